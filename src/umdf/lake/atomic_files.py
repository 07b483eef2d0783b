"""Small files that exist completely or not at all, even after a power failure.

Invariant: a name can be created only once (`create_exclusively`); no reader sees a partial file.
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
        errno.ENOSPC: ("no space left on the disk", "free some space, then run the command again"),
        errno.EDQUOT: ("the disk quota is used up", "free some space, then run the command again"),
        errno.ENOENT: ("its directory no longer exists", "check whether the lake was moved or deleted"),
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
    """Make files that another process wrote there durable."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(directory)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def create_exclusively(path: Path, content: dict[str, Any]) -> bool:
    """True if this call created the file; False if it exists already. The name appears only with its full content."""
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
    """The parsed content of the file; None if there is no such file."""
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise TypeError(content)
        return parse(content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: invalid JSON", "restore it from a backup") from error
