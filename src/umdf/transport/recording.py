"""A recording: a directory in which captures grow, and `manifest.jsonl`, which gets a line when one of them is closed.

    {"file": "20261113-124501-sbe-072-incremental-A.pcap", "bytes": 18419588, …}

The one rule: what the manifest lists does not change any more, and lines are only added. So a number of lines says
which files there were, now and after a restart.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError

MANIFEST = "manifest.jsonl"
ENDINGS = tuple(kind + packed for kind in (".pcap", ".pcapng") for packed in ("", ".gz", ".zst"))


def has_manifest(directory: str | os.PathLike[str]) -> bool:
    return (Path(directory) / MANIFEST).is_file()


def closed_files(directory: str | os.PathLike[str], *, check: bool = True) -> list[Path]:
    """The files that are closed, in the order in which they were; without a manifest, all captures by name. `check`:
    that they are there, with the size that they had."""
    directory = Path(directory)
    if not directory.is_dir():
        raise CaptureError(f"{directory}: no such directory", "name the directory of a recording")
    if not has_manifest(directory):
        return sorted(path for path in directory.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    text = (directory / MANIFEST).read_bytes()
    whole = text[: text.rfind(b"\n") + 1]  # its last line may be half written
    found: dict[Path, None] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        if line.strip():
            said = _said(directory / MANIFEST, number, line)
            if said.get("closed", True):
                path = directory / said["file"]
                if check:
                    _check(path, said)
                found[path] = None
    return list(found)


def _said(manifest: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
        if not isinstance(said["file"], str):
            raise TypeError("the file is no text")
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{manifest}: line {number} is no line of a manifest ({error})"
        raise CaptureError(reason, 'a line is {"file": "name.pcap", "bytes": 123}') from error
    return said


def _check(path: Path, said: dict[str, Any]) -> None:
    if not path.is_file():
        raise CaptureError(f"{path}: the manifest lists it, and it is not there", "restore it, or begin anew")
    size, expected = path.stat().st_size, said.get("bytes")
    if expected is not None and size != expected:
        reason = f"{path}: it has {size} bytes, and {expected} when it was closed"
        raise CaptureError(reason, "a file must not change after the manifest lists it")
