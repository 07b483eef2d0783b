"""What a user names as input: captures, directories, manifests and patterns; and groups that a configuration names.

The one rule: what is named must be there. Whether it is a capture is told by its content, later.
"""

from __future__ import annotations

import glob
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError, ConfigError
from umdf.lake.places import place_of
from umdf.transport.input_file import need_file
from umdf.transport.recording import ENDINGS

PATTERN = frozenset("*?[")
STREAM_KEYS = {"group": str, "port": int, "channel": int, "stream": str, "line": str, "protocol": str}
WORDS = {"stream": ("incremental", "snapshot", "instruments"), "protocol": ("sbe", "fast")}


def inputs_of(given: Sequence[Path]) -> list[Path]:
    """Files as they are; of a directory the captures in it; of a manifest the files that it lists; of a pattern all
    that it matches."""
    found: list[Path] = []
    for path in map(place_of, given):
        need_file(path, "an ingest")
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.name.endswith(ENDINGS) and p.is_file())
            if not inside:
                raise CaptureError(f"{path}: no capture in this directory", "name a pcap or pcapng file")
            found += inside
        elif path.suffix == ".jsonl" and path.is_file():
            found += _listed(path)
        elif path.exists():
            found.append(path)
        elif PATTERN & set(str(path)):
            matched = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            if not matched:
                raise CaptureError(f"{path}: no file matches this pattern", "check the path")
            found += inputs_of(matched)
        else:
            raise CaptureError(f"{path}: no such file or directory", "check the path")
    return found


def _listed(manifest: Path) -> list[Path]:
    try:
        lines = [json.loads(line) for line in manifest.read_text().splitlines() if line.strip()]
        return [manifest.parent / line["file"] for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise CaptureError(
            f"{manifest}: no manifest of captures ({error})", 'a line is {"file": "name.pcap"}'
        ) from error


def named_streams(file: Path | None) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    """The [[stream]] tables of a configuration by group and port."""
    if file is None:
        return {}
    try:
        streams = tomllib.loads(file.read_text()).get("stream", [])
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}", "a list of [[stream]] tables is needed") from error
    named = {}
    for number, stream in enumerate(streams, 1):
        for key, value in stream.items():
            if not isinstance(value, STREAM_KEYS.get(key, ())) or value not in WORDS.get(key, (value,)):
                raise ConfigError(f"{file}: stream {number}: {key} = {value!r}", f"keys are {', '.join(STREAM_KEYS)}")
        if "group" not in stream or "port" not in stream:
            raise ConfigError(f"{file}: stream {number} has no group and port", 'group = "224.0.20.72", port = 20001')
        named[stream["group"], stream["port"]] = stream
    return named
