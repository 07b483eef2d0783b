"""A recording: a directory of growing captures, and `manifest.jsonl`, which gets a line when a capture is closed.

    {"file": "20261113-124501-sbe-072-incremental-A.pcap", "bytes": 18419588, …}

Invariant: a listed file no longer changes, and lines are only added. If that is violated (a restarted recorder may
start a new manifest), the digest of its lines shows it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from umdf.errors import CaptureError

MANIFEST = "manifest.jsonl"
SUFFIXES = tuple(kind + packed for kind in (".pcap", ".pcapng") for packed in ("", ".gz", ".zst"))
A_LINE = 'a line is {"file": "name.pcap", "bytes": 123}'


class Directory(NamedTuple):
    """The files below a directory, each once, by name: captures, and files that do not look like captures."""

    captures: list[Path]
    others: list[Path]


def files_below(directory: str | os.PathLike[str]) -> Directory:
    """Follows links to directories, and enters each directory once; manifests and hidden files (the lock of a recorder)
    are ignored."""
    found = Directory([], [])
    directories, files = set[tuple[int, int]](), set[tuple[int, int]]()
    _is_first(Path(directory), directories)
    for top, below, names in os.walk(directory, onerror=_refuse, followlinks=True):
        below[:] = [name for name in sorted(below) if _is_first(Path(top, name), directories)]
        for path in (Path(top, name) for name in sorted(names) if name != MANIFEST):
            is_capture = path.name.endswith(SUFFIXES)
            if (is_capture or not path.name.startswith(".")) and path.is_file() and _is_first(path, files):
                (found.captures if is_capture else found.others).append(path)
    return Directory(sorted(found.captures), sorted(found.others))


def _refuse(error: OSError) -> None:
    raise error


def _is_first(path: Path, seen: set[tuple[int, int]]) -> bool:
    about = path.stat()
    key = about.st_dev, about.st_ino
    is_new = key not in seen
    seen.add(key)
    return is_new


@dataclass(frozen=True)
class Manifest:
    """The closed files of a manifest, in order, with their lines."""

    path: Path
    entries: dict[str, dict[str, Any]]

    @property
    def files(self) -> list[Path]:
        return [self.path.parent / name for name in self.entries]

    def digest(self, count: int) -> str:
        """Digest of the lines of the first `count` files, which identifies the recording."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in list(self.entries.values())[:count]:
            digest.update(json.dumps(entry, sort_keys=True).encode() + b"\n")
        return digest.hexdigest()


def has_manifest(directory: str | os.PathLike[str]) -> bool:
    return (Path(directory) / MANIFEST).is_file()


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """An empty manifest if there is no such file."""
    path = Path(path)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        text = b""
    entries = dict[str, dict[str, Any]]()
    for number, line in _lines(text):
        entry = _parse_line(path, number, line)
        if entry.get("closed", True):
            entries.setdefault(entry["file"], entry)
    return Manifest(path, entries)


def closed_files(directory: str | os.PathLike[str], *, check: bool = True) -> list[Path]:
    """The closed files, in order of closing; without a manifest, all captures by name. `check` that they exist with the
    listed size."""
    directory = Path(directory)
    if not directory.is_dir():
        raise CaptureError(f"recording not found: {directory}", "pass its directory")
    if not has_manifest(directory):
        return sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
    manifest = read_manifest(directory / MANIFEST)
    for path, record in zip(manifest.files, manifest.entries.values(), strict=True):
        if check:
            _check_file(path, record)
    return manifest.files


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines, without an incomplete last line."""
    whole, _, last = text.rpartition(b"\n")
    lines = [*whole.splitlines(), *([last] if _is_json(last) else [])]
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse_line(manifest: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if not isinstance(record["file"], str):
            raise TypeError("not a text file")
    except (ValueError, KeyError, TypeError) as error:
        raise CaptureError(f"{manifest}:{number}: invalid entry ({error})", A_LINE) from error
    named = Path(record["file"])
    if named.is_absolute() or ".." in named.parts:
        reason = f"{manifest}:{number}: {record['file']} is outside the manifest's directory"
        raise CaptureError(reason, "pass such files on the command line")
    return record


def _check_file(path: Path, record: dict[str, Any]) -> None:
    if not path.is_file():
        raise CaptureError(
            f"{path} is listed in the manifest but does not exist", "restore it, or start a new recording"
        )
    size, expected = path.stat().st_size, record.get("bytes")
    if expected is not None and size != expected:
        reason = f"{path} has {size} bytes, but the manifest says {expected}"
        raise CaptureError(reason, "files must not change after they are listed")
