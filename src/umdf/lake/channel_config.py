"""The channel configuration (`--config`) that a lake was made with. It is kept in the lake, under its digest, and each
input's entry in the ledger names the one that it was ingested with.

The one rule: a flow is the same stream of the same channel in every day of a lake. Who wants it otherwise has to say
so (`umdf lake reprocess --config`), and every day is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from umdf.errors import ConfigError, UmdfError
from umdf.lake import durable
from umdf.lake.ledger import ALGORITHM, Entry
from umdf.lake.segments import Group, flow_of

Named = Mapping[Group, Mapping[str, Any]]
KEYS = ("protocol", "channel", "stream", "line")


def keep(root: Path, named: Named) -> str | None:
    """The digest of a configuration, which is in the lake from now on; None if nothing is named."""
    if not named:
        return None
    streams = [{"group": group[0], "port": group[1], **_said(said)} for group, said in sorted(named.items())]
    digest = hashlib.sha256(json.dumps(streams, sort_keys=True).encode()).hexdigest()
    durable.create_once(_path(root, digest), {"streams": streams})
    return f"{ALGORITHM}:{digest}"


def kept(root: Path, entries: Iterable[Entry]) -> dict[Group, Mapping[str, Any]]:
    """What the inputs in a lake were ingested with."""
    named: dict[Group, Mapping[str, Any]] = {}
    for digest in sorted({entry.channel_config for entry in entries if entry.channel_config}):
        path = _path(root, digest.partition(":")[2])
        content = durable.read(path)
        if content is None:
            raise UmdfError(f"{path} is gone: the channel configuration of the lake", "restore it from a backup")
        named |= {(stream["group"], stream["port"]): _said(stream) for stream in content["streams"]}
    return named


def merged(root: Path, entries: Iterable[Entry], given: Named) -> dict[Group, Mapping[str, Any]]:
    """What was kept and what is given now; refused if they contradict each other, or what inputs are in the lake as."""
    entries = list(entries)
    known = kept(root, entries)
    for group, said in given.items():
        if group in known:
            _refuse_other(root, group, _said(said), known[group])
            continue
        for entry in (each for each in entries if each.flow == flow_of(group)):
            there = {"channel": entry.channel_id, "stream": entry.stream, "line": entry.line}
            both = said.keys() & there.keys()
            _refuse_other(root, group, *({key: each[key] for key in both} for each in (said, there)))
    return known | {group: _said(said) for group, said in given.items()}


def _refuse_other(root: Path, group: Group, said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in KEYS:
        if said.get(key) != known.get(key):
            one, other = (f"{key} {each[key]}" if key in each else f"no {key}" for each in (said, known))
            raise ConfigError(
                f"the configuration gives {flow_of(group)} {one}, and it is in the lake with {other}",
                f"leave --config out, or `umdf lake reprocess {root} --config FILE` to make every day again with it",
            )


def _said(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {key: stream[key] for key in KEYS if key in stream}


def _path(root: Path, digest: str) -> Path:
    return root / "_lake" / "configs" / f"{digest}.json"
