"""Small files that are there completely or not at all, also after a power cut.

Invariant: whoever creates a name first has it (`create_exclusively`); nobody ever sees half of a file.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from umdf.errors import UmdfError

Parsed = TypeVar("Parsed")


def write_error(path: Path, error: OSError) -> UmdfError:
    """The error for a file of the lake that cannot be written."""
    reasons = {
        errno.ENOSPC: ("no space left on the disk", "free some space and run the same command again"),
        errno.EDQUOT: ("the disk quota is used up", "free some space and run the same command again"),
        errno.ENOENT: ("its directory is gone", "was the lake moved or deleted meanwhile?"),
        errno.EROFS: ("the file system is read-only", "mount it writable"),
        errno.EACCES: ("permission denied", "make the lake writable for this user"),
    }
    reason, hint = reasons.get(error.errno or 0, (error.strerror or str(error), ""))
    return UmdfError(f"cannot write {path}: {reason}", hint)


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_files(directory: Path) -> None:
    """Make what someone else has written there durable."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(directory)


def make_directory(path: Path) -> None:
    """With every directory above it that is new made durable too."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def create_exclusively(path: Path, content: dict[str, Any]) -> bool:
    """True if this call created the file; False if it exists already. Its name appears with all of its content."""
    return create_text_exclusively(path, _json(content))


def create_text_exclusively(path: Path, text: str) -> bool:
    return _write(path, text, os.link)


def replace(path: Path, content: dict[str, Any]) -> None:
    _write(path, _json(content), os.replace)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _write(path: Path, text: str, publish: Any) -> bool:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        make_directory(path.parent)
        with temporary.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
        sync_directory(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return True


class DamagedError(UmdfError):
    """A file of the lake does not have the content that it should have."""


def read_json(path: Path) -> dict[str, Any] | None:
    """None if there is no such file."""
    return read_json_as(path, dict)


def read_json_as(path: Path, parse: Callable[[dict[str, Any]], Parsed]) -> Parsed | None:
    """What is made of the file's content; None if there is no such file."""
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise TypeError(content)
        return parse(content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: not the JSON that umdf wrote", "restore it from a backup") from error
