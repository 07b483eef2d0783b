"""Input paths: captures, directories, manifests and patterns; and the streams of a channels file.

Invariant: a named path must exist, and a named file must be a capture. Other files of a directory are skipped and
counted.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from umdf.errors import CaptureError
from umdf.lake.locations import local_path
from umdf.transport.channels_file import read_channels
from umdf.transport.input_file import need_file
from umdf.transport.recording import A_LINE, files_below, read_manifest

GLOB_CHARACTERS = frozenset("*?[")


class InputPaths(NamedTuple):
    """Captures to read, and files of directories that do not look like captures."""

    captures: list[Path]
    skipped: list[Path]


def find_captures(paths: Sequence[Path]) -> InputPaths:
    """Expands paths: a directory to the captures in it, a manifest to the files it lists, a pattern to its matches."""
    found = InputPaths([], [])
    for path in map(local_path, paths):
        need_file(path, "`umdf ingest`")
        if path.is_dir():
            captures, others = files_below(path)
            if not captures:
                raise CaptureError(f"no captures in {path}", "pass a pcap or pcapng file, or a directory that has some")
            found.captures.extend(captures)
            found.skipped.extend(others)
        elif path.suffix == ".jsonl" and path.is_file():
            listed = read_manifest(path).files
            if not listed:
                raise CaptureError(f"{path} lists no captures", A_LINE)
            found.captures.extend(listed)
        elif path.exists():
            _check_capture(path)
            found.captures.append(path)
        elif GLOB_CHARACTERS & set(str(path)):
            matched = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            if not matched:
                raise CaptureError(f"no files match {path}", "check the pattern")
            for more, known in zip(find_captures(matched), found, strict=True):
                known.extend(more)
        else:
            raise CaptureError(f"{path}: no such file or directory", "check the path")
    return found


def _check_capture(path: Path) -> None:
    from umdf.transport.capture import open_capture  # imports numba, which `umdf --help` must not

    open_capture(path).close()


def read_channel_config(file: Path | None) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    """The streams of a channels file, by multicast group and port."""
    return {
        (line.address, line.port): {
            "group": line.address,
            "port": line.port,
            "channel": channel.number,
            "stream": stream,
            "line": line.line,
            "protocol": channel.protocol,
        }
        for channel in (read_channels(file) if file else ())
        for stream, line in channel.lines()
    }
