"""The channel configuration (`--channels`) of a lake. It is stored in the lake under its digest, and each ledger entry
names the configuration that its input was ingested with.

Invariant: a flow is the same stream of the same channel in every day of a lake. `umdf lake rebuild --channels`
replaces the configuration and rebuilds every day.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from umdf.errors import ConfigError, UmdfError
from umdf.lake import atomic_files
from umdf.lake.commit.ledger import DIGEST_ALGORITHM, LedgerEntry
from umdf.lake.plan.segments import MulticastGroup, flow_text

ChannelConfig = Mapping[MulticastGroup, Mapping[str, Any]]
STREAM_KEYS = ("protocol", "channel", "stream", "line")


def store(root: Path, config: ChannelConfig) -> str | None:
    """Store a configuration in the lake; returns its digest, None if it is empty."""
    if not config:
        return None
    streams = [{"group": group[0], "port": group[1], **_known_keys(stream)} for group, stream in sorted(config.items())]
    digest = hashlib.sha256(json.dumps(streams, sort_keys=True).encode()).hexdigest()
    atomic_files.create_exclusively(_path(root, digest), {"streams": streams})
    return f"{DIGEST_ALGORITHM}:{digest}"


def load(root: Path, entries: Iterable[LedgerEntry]) -> dict[MulticastGroup, Mapping[str, Any]]:
    """The configuration that the lake's inputs were ingested with."""
    config: dict[MulticastGroup, Mapping[str, Any]] = {}
    for digest in sorted({entry.channel_config for entry in entries if entry.channel_config}):
        path = _path(root, digest.partition(":")[2])
        content = atomic_files.read_json(path)
        if content is None:
            raise UmdfError(f"channel configuration not found: {path}", "restore it from a backup")
        config |= {(stream["group"], stream["port"]): _known_keys(stream) for stream in content["streams"]}
    return config


def merge(
    root: Path, entries: Iterable[LedgerEntry], new_config: ChannelConfig
) -> dict[MulticastGroup, Mapping[str, Any]]:
    """The stored configuration and a new one; an error if they contradict each other or the streams of the inputs."""
    entries = list(entries)
    stored = load(root, entries)
    for group, stream in new_config.items():
        if group in stored:
            _refuse_contradiction(root, group, _known_keys(stream), stored[group])
            continue
        for entry in (each for each in entries if each.flow == flow_text(group)):
            entry_stream = {"channel": entry.channel_id, "stream": entry.stream, "line": entry.line}
            both = stream.keys() & entry_stream.keys()
            _refuse_contradiction(root, group, *({key: each[key] for key in both} for each in (stream, entry_stream)))
    return stored | {group: _known_keys(stream) for group, stream in new_config.items()}


def _refuse_contradiction(
    root: Path, group: MulticastGroup, new_stream: Mapping[str, Any], stored: Mapping[str, Any]
) -> None:
    for key in STREAM_KEYS:
        if new_stream.get(key) != stored.get(key):
            one, other = (f"{key} {each[key]}" if key in each else f"no {key}" for each in (new_stream, stored))
            raise ConfigError(
                f"{flow_text(group)} is {other} in the lake, but {one} in --channels",
                f"omit --channels, or rebuild all days with `umdf lake rebuild {root} --channels FILE`",
            )


def _known_keys(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {key: stream[key] for key in STREAM_KEYS if key in stream}


def _path(root: Path, digest: str) -> Path:
    return root / "_lake" / "configs" / f"{digest}.json"
