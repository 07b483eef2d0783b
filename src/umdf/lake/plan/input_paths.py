"""Input paths: captures, directories, manifests and patterns; and the file of channel addresses.

Invariant: a named path must exist, and a named file must be a capture. Other files of a directory are skipped and
counted.
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from umdf.errors import CaptureError, ConfigError
from umdf.lake.locations import local_path
from umdf.transport.input_file import need_file
from umdf.transport.recording import A_LINE, files_below, read_manifest

GLOB_CHARACTERS = frozenset("*?[")
STREAM_KEYS = {"group": str, "port": int, "channel": int, "stream": str, "line": str, "protocol": str}
ALLOWED_VALUES = {"stream": ("incremental", "snapshot", "instruments"), "protocol": ("sbe", "fast")}


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
    """The [[stream]] tables of a configuration, by multicast group and port."""
    if file is None:
        return {}
    try:
        streams = tomllib.loads(file.read_text()).get("stream", [])
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}", "expected a list of [[stream]] tables") from error
    config = {}
    for number, stream in enumerate(streams, 1):
        for key, value in stream.items():
            if not isinstance(value, STREAM_KEYS.get(key, ())) or value not in ALLOWED_VALUES.get(key, (value,)):
                raise ConfigError(
                    f"{file}: stream {number}: invalid {key} = {value!r}", f"keys are {', '.join(STREAM_KEYS)}"
                )
        if "group" not in stream or "port" not in stream:
            raise ConfigError(
                f"{file}: stream {number} needs group and port", 'for example group = "224.0.20.72", port = 20001'
            )
        config[stream["group"], stream["port"]] = stream
    return config
