"""Every fault of the network between an exchange and its clients: what it does, and its key in `[faults]`.

`faulty_lines` and `faulty_replayer` cause them, in front of any sink and any connection; `proxy` puts those between
real sockets. `Faults` is the table that the configuration, the documentation and `umdf exchange faults` read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from umdf.errors import ConfigError, one_of
from umdf.exchange.publish.channel_settings import STREAMS

SECOND_NS, MS_NS = 1_000_000_000, 1_000_000
FOREVER_S = 1e12
REPLAYER_STREAM = "replayer"  # of an outage: the replayer is down
LINES = ("A", "B")


@dataclass(frozen=True)
class Outage:
    """A time in which nothing is delivered, in seconds since the start."""

    stream: str = ""  # empty: every stream of the channels
    line: str = ""  # empty: all lines
    from_s: float = 0.0
    until_s: float = FOREVER_S

    def covers(self, stream: str, line: str) -> bool:
        return self.stream in ("", stream) and self.line in ("", line)


@dataclass(frozen=True)
class Renumbering:
    """A time in which one incremental line is numbered from 1 alone, after a SequenceReset or with a new version."""

    line: str
    from_s: float = 0.0
    until_s: float = FOREVER_S


def _fault(default: Any, high: float, unit: str, text: str) -> Any:
    return field(default=default, metadata={"high": high, "unit": unit, "text": text})


def _share(text: str, high: float = 0.5) -> Any:
    return _fault(0.0, high, "fraction", text)


@dataclass(frozen=True)
class Faults:
    loss: float = _share("packets of the incremental streams that each line loses by itself")
    common_loss: float = _share("packets of the incremental streams at which all lines begin to lose the same run")
    burst_loss: float = _share("packets of the incremental streams at which a line begins to lose a run by itself")
    max_run: int = _fault(8, 10_000, "packets", "longest run of burst_loss and common_loss")
    loop_loss: float = _share("packets of the snapshot and instrument streams that are lost: holes in their loops", 1.0)
    chunk_loss: float = _share("chunks of large FIX/FAST messages that are lost", 1.0)
    duplicates: float = _share("packets that arrive a second time, up to late_ms later", 1.0)
    reordering: float = _share("packets that arrive up to late_ms later than those behind them")
    late_ms: float = _fault(10.0, 60_000, "ms", "how late a packet of duplicates and reordering is at most")
    delay_ms: float = _fault(0.0, 60_000, "ms", "delay of all lines")
    skew_ms: float = _fault(0.0, 60_000, "ms", "delay of line B behind line A")
    corruption: float = _share("packets that arrive truncated, or with a message whose length is impossible")
    header_corruption: float = _share("packets that arrive with another channel, version, number or chunk in a header")
    replayer_loss: float = _share("answers of the replayer (URDR, BY) that never come", 1.0)
    replayer_corruption: float = _share(
        "URDR of the replayer with other messages, channels or lengths than stated", 1.0
    )
    replayer_refusals: float = _share("requests to the replayer that are refused (1348=7, try again)", 1.0)
    replayer_delay_ms: float = _fault(0.0, 60_000, "ms", "delay of everything that the replayer sends")
    ends_s: float = _fault(FOREVER_S, FOREVER_S, "seconds", "when all faults end, since the start")
    outages: tuple[Outage, ...] = ()  # dead lines, silent streams, a replayer that is down
    renumberings: tuple[Renumbering, ...] = ()

    def __post_init__(self) -> None:
        for fault in fields(self):
            if fault.metadata:
                value, high = getattr(self, fault.name), fault.metadata["high"]
                if not 0 <= value <= high:
                    raise ConfigError(f"faults.{fault.name} out of range: {value}", f"use 0 to {high:g}")

    @property
    def changes_packets(self) -> bool:
        """Whether packets arrive otherwise than they were sent, or as late as nobody waits for."""
        shares = self.chunk_loss, self.duplicates, self.reordering, self.corruption, self.header_corruption
        return any(shares) or bool(self.renumberings) or self.delay_ms > 0 or self.skew_ms > 0

    @property
    def harms_replayer(self) -> bool:
        shares = self.replayer_loss, self.replayer_corruption, self.replayer_refusals, self.replayer_delay_ms
        return any(shares) or any(outage.covers(REPLAYER_STREAM, "") for outage in self.outages)


class FaultKey(NamedTuple):
    """A key of `[faults]`, for people."""

    key: str
    unit: str
    default: str
    text: str


def fault_keys() -> list[FaultKey]:
    found = [
        FaultKey(fault.name, fault.metadata["unit"], "never" if fault.default == FOREVER_S else f"{fault.default:g}",
                 fault.metadata["text"])
        for fault in fields(Faults)
        if fault.metadata
    ]  # fmt: skip
    return [
        *found,
        FaultKey("[[faults.outage]]", "stream, line, from_s, until_s", "none",
                 f"nothing is delivered: of a stream ({', '.join(STREAMS)}, {REPLAYER_STREAM}), a line, or both"),
        FaultKey("[[faults.renumbering]]", "line, from_s, until_s", "none",
                 "an incremental line is numbered from 1 alone, then as the others again"),
    ]  # fmt: skip


def read_faults(table: Mapping[str, Any]) -> Faults:
    """The table `[faults]` of a TOML file."""
    values: dict[str, Any] = {}
    numbers = {fault.name: fault for fault in fields(Faults) if fault.metadata}
    for key, value in table.items():
        if key == "outage":
            values["outages"] = tuple(_entry(Outage, key, entry) for entry in _list(key, value))
        elif key == "renumbering":
            values["renumberings"] = tuple(_entry(Renumbering, key, entry) for entry in _list(key, value))
        elif key not in numbers:
            raise ConfigError(f"unknown key: faults.{key}", "`umdf exchange faults` lists the keys")
        elif isinstance(value, bool) or not isinstance(value, int if key == "max_run" else int | float):
            raise ConfigError(f"faults: invalid {key}: {value!r}", "write a number")
        else:
            values[key] = value
    return Faults(**values)


def read_faults_of(file: Path) -> Faults:
    """The faults of a TOML file."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}", "write a TOML file with a table [faults]") from None
    if not isinstance(tables.get("faults"), dict):
        raise ConfigError(f"{file} has no [faults]", "`umdf exchange faults` lists its keys")
    try:
        return read_faults(tables["faults"])
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.reason}", error.hint) from None


def _list(key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigError(f"faults.{key} is not a list of tables", f"write [[faults.{key}]]")
    return value


def _entry(kind: type[Any], key: str, entry: dict[str, Any]) -> Any:
    choices = {"stream": (*STREAMS, REPLAYER_STREAM), "line": LINES}
    known = {each.name for each in fields(kind)}
    for name, value in entry.items():
        if name not in known:
            raise ConfigError(f"unknown key: faults.{key}.{name}", f"use {one_of(sorted(known))}")
        is_right = value in choices[name] if name in choices else isinstance(value, int | float) and value >= 0
        if not is_right or isinstance(value, bool):
            raise ConfigError(
                f"faults.{key}.{name}: {value!r}", f"use {one_of(choices[name])}" if name in choices else "use seconds"
            )
    if "line" in known and kind is Renumbering and "line" not in entry:
        raise ConfigError(f"faults.{key} names no line", 'write line = "B"')
    return kind(**entry)
