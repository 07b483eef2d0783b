"""What an exchange is, from `exchange.toml`: instruments, order flow, schedule and channels; checked before it starts.

[exchange]        instruments, seed, start, messages_per_s …
[schedule]        local times of the day's steps; [schedule.equities], [schedule.derivatives]: of the phases
[[channel]]       number, protocol, book …, one table for each channel that is published
[replayer]        and [historical_replayer]: see `replayer_settings`
[faults]          see `network.faults`: what the network does to packets and replayers
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from umdf.errors import ConfigError, UmdfError, did_you_mean, one_of
from umdf.exchange.instruments.catalogue import MAX_INSTRUMENTS, MIN_INSTRUMENTS
from umdf.exchange.instruments.catalogue_file import SECURITY_TYPES
from umdf.exchange.live.replayer_settings import TYPES as REPLAYER_TYPES
from umdf.exchange.live.replayer_settings import replayer_settings
from umdf.exchange.live.schedule import DAY_STEPS, DEFAULT_PHASES, MARKETS, Timetable
from umdf.exchange.network.faults import Faults, read_faults
from umdf.exchange.publish.channel_settings import (
    FAST,
    INCREMENTAL,
    MBO,
    PRIORITY,
    SBE,
    STREAMS,
    ChannelSettings,
    Members,
)
from umdf.exchange.replayer.server import ReplayerSettings
from umdf.market.calendar import ZONE
from umdf.transport.channels_file import REPLAYERS, ChannelAddresses, LineAddress

TABLES = ("exchange", "schedule", "network", "channel", "faults", *REPLAYERS)
LOOP_KEYS = ("snapshots_per_s", "definitions_per_s", "loop_pause_ms")
CHANNEL_KEYS = ("number", "protocol", "name", "book", "depth", "generation", "lines", "heartbeat_s", "types", "groups",
                "symbols", "news_only", *LOOP_KEYS, *STREAMS)  # fmt: skip
MAX_RATE = 1_000_000
DEFAULT_START = datetime(2026, 11, 16, 9, 59, 30)  # a Monday, half a minute before the stocks open
UNICAST, MULTICAST = "unicast", "multicast"
LINE_PORTS, CHANNEL_PORTS = 10, 20  # from one line of a channel to the next, from one channel to the next


@dataclass(frozen=True)
class Network:
    """Where streams are sent whose channels do not say."""

    mode: str = UNICAST
    first_port: int = 20_001
    interface: str = "127.0.0.1"
    ttl: int = 0

    def addresses_of(self, channel: ChannelSettings, place: int) -> dict[str, tuple[LineAddress, ...]]:
        """The addresses of each stream of the channel at a place in the file: the looping ones are on line A only."""
        port = self.first_port + place * CHANNEL_PORTS
        return {
            stream: tuple(
                LineAddress(line, self._host(channel, at), port + at * LINE_PORTS + number, self.interface)
                for at, line in enumerate(channel.lines if stream == INCREMENTAL else channel.lines[:1])
            )
            for number, stream in enumerate(STREAMS)
        }

    def _host(self, channel: ChannelSettings, line: int) -> str:
        if self.mode == UNICAST:
            return self.interface
        return f"239.{20 + 10 * (channel.protocol == FAST) + line}.{channel.channel >> 8}.{channel.channel & 255}"


@dataclass(frozen=True)
class ExchangeSettings:
    channels: tuple[ChannelSettings, ...]
    addresses: tuple[ChannelAddresses, ...] = ()  # one for each channel
    instruments: int = 400
    catalogue: Path | None = None  # instead of generated instruments
    seed: int = 1
    start: datetime = DEFAULT_START  # local time of São Paulo
    messages_per_s: float = 1_000  # of the order flow, about; 0: only what the operator enters
    tick_ms: int = 5
    pairs: tuple[tuple[str, str], ...] = ()  # symbols whose auctions start and end together (15)
    synchronization_ms: int = 1_000  # that the query to a paired instrument and its reply take
    control: Path | None = None  # the socket of the operator
    network: Network = field(default_factory=Network)
    timetable: Timetable = field(default_factory=Timetable)
    replayers: Mapping[str, ReplayerSettings] = field(default_factory=dict)
    faults: Faults | None = None
    history: Path = Path("exchange-history")  # of the replayers: what the FIX/FAST channels have published

    def __post_init__(self) -> None:
        for key, value, low, high in (
            ("instruments", self.instruments, MIN_INSTRUMENTS, MAX_INSTRUMENTS),
            ("seed", self.seed, 0, (1 << 63) - 1),
            ("messages_per_s", self.messages_per_s, 0, MAX_RATE),
            ("tick_ms", self.tick_ms, 1, 1_000),
            ("synchronization_ms", self.synchronization_ms, 0, 1_000),
        ):
            if not low <= value <= high:
                raise ConfigError(f"exchange.{key} out of range: {value}", f"use {low} to {high}")
        if not self.channels:
            raise ConfigError("the exchange has no channel", "add a table [[channel]]")

    @property
    def start_ns(self) -> int:
        return round(self.start.replace(tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000_000


def read_settings(file: Path) -> ExchangeSettings:
    """The settings of a file; an error names the file, the key and the value."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", "see examples/exchange.toml") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8", "an exchange file is TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: invalid TOML: {error}", "fix the file") from None
    try:
        return _Reader(tables, file.parent).settings()
    except UmdfError as error:
        raise ConfigError(f"{file}: {error.reason}", error.hint) from None


@dataclass(frozen=True)
class _Reader:
    tables: dict[str, Any]
    directory: Path  # of paths in the file

    def settings(self) -> ExchangeSettings:
        _require_known("", self.tables, TABLES)
        exchange = self._table("exchange")
        types: dict[str, type | tuple[type, ...]] = {
            "instruments": int, "catalogue": str, "seed": int, "start": (str, datetime), "messages_per_s": (int, float),
            "tick_ms": int, "control": str, "history": str, "pairs": list, "synchronization_ms": int,
        }  # fmt: skip
        _require_types("exchange", exchange, types)
        for key in ("catalogue", "history"):
            if key in exchange:
                exchange[key] = self.directory / exchange[key]
        if "control" in exchange:
            exchange["control"] = Path(exchange["control"])  # of the working directory, where the operator looks for it
        if "pairs" in exchange:
            exchange["pairs"] = tuple(map(_pair_of, exchange["pairs"]))
        if "start" in exchange:
            exchange["start"] = _start_of(exchange["start"])
        network = self._network()
        channels = self.tables.get("channel", [])
        if not isinstance(channels, list) or not all(isinstance(channel, dict) for channel in channels):
            raise ConfigError("channel is not a list of tables", "write each channel as [[channel]]")
        found = [_channel(place, table, network) for place, table in enumerate(channels)]
        _refuse_duplicates([addresses for _, addresses in found])
        return ExchangeSettings(
            tuple(channel for channel, _ in found),
            tuple(addresses for _, addresses in found),
            network=network,
            timetable=self._timetable(),
            replayers=self._replayers(),
            faults=self._faults(),
            **exchange,
        )

    def _faults(self) -> Faults | None:
        if "faults" not in self.tables:
            return None
        return read_faults(self._table("faults"))

    def _replayers(self) -> dict[str, ReplayerSettings]:
        found = {}
        for name in REPLAYERS:
            if name in self.tables:
                table = self._table(name)
                _require_types(name, table, REPLAYER_TYPES)
                found[name] = replayer_settings(name, table)
        return found

    def _table(self, name: str) -> dict[str, Any]:
        table = self.tables.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{name} is not a table", f"write [{name}]")
        return dict(table)

    def _network(self) -> Network:
        table = self._table("network")
        _require_types("network", table, {"mode": str, "first_port": int, "interface": str, "ttl": int})
        network = Network(**table)
        if network.mode not in (UNICAST, MULTICAST):
            raise ConfigError(f"network.mode: {network.mode}", f"use {UNICAST} or {MULTICAST}")
        if not 1 <= network.first_port <= 60_000:
            raise ConfigError(f"network.first_port out of range: {network.first_port}", "use 1 to 60000")
        if not 0 <= network.ttl <= 255:
            raise ConfigError(f"network.ttl out of range: {network.ttl}", "use 0 to 255")
        return network

    def _timetable(self) -> Timetable:
        table = self._table("schedule")
        _require_known("schedule", table, (*DAY_STEPS, *MARKETS, "holidays"))
        holidays = table.get("holidays", [])
        if not isinstance(holidays, list):
            raise ConfigError(f"schedule.holidays is not a list: {holidays}", 'write ["2026-11-20"]')
        phases: dict[str, Mapping[str, str]] = dict(DEFAULT_PHASES)
        for market in MARKETS:
            if market in table:
                phases[market] = _texts(f"schedule.{market}", table[market])
        day = _texts("schedule", {name: table[name] for name in DAY_STEPS if name in table})
        return Timetable(phases, day, frozenset(map(_date_of, holidays)))


def _texts(table: str, values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ConfigError(f"{table} is not a table", f"write [{table}]")
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in values.items()}


def _channel(place: int, table: dict[str, Any], network: Network) -> tuple[ChannelSettings, ChannelAddresses]:
    where = f"channel {table.get('number', f'table {place + 1}')}"

    def refuse(reason: str, hint: str) -> NoReturn:
        raise ConfigError(f"{where}: {reason}", hint)

    _require_known(where, table, CHANNEL_KEYS)
    texts: dict[str, type | tuple[type, ...]] = dict.fromkeys(("protocol", "name", "book", "generation", "lines"), str)
    lists: dict[str, type | tuple[type, ...]] = dict.fromkeys(("types", "groups", "symbols"), list)
    streams: dict[str, type | tuple[type, ...]] = dict.fromkeys(STREAMS, dict)
    numbers: dict[str, type | tuple[type, ...]] = {"heartbeat_s": (int, float), "news_only": bool}
    numbers |= dict.fromkeys(("number", "depth", *LOOP_KEYS), int)
    _require_types(where, table, {**numbers, **texts, **lists, **streams})
    if "number" not in table:
        refuse("has no number", "add number = 72")
    for key in lists:
        if not all(isinstance(text, str) for text in table.get(key, [])):
            refuse(f"{key} is not a list of texts: {table[key]}", f'write {key} = ["…"]')
    for kind in table.get("types", []):
        if kind not in SECURITY_TYPES:
            refuse(f"unknown type: {kind}", f"use {one_of(SECURITY_TYPES)}")
    try:
        settings = ChannelSettings(
            table["number"],
            table.get("protocol", SBE),
            table.get("generation", PRIORITY),
            table.get("book", MBO).upper(),
            table.get("depth", 0),
            Members(*(tuple(table.get(key, ())) for key in lists)),
            table.get("news_only", False),
            table.get("lines", "AB"),
            heartbeat_ms=round(table.get("heartbeat_s", 0) * 1_000),
            **{key: table[key] for key in LOOP_KEYS if key in table},
        )
    except UmdfError as error:
        raise ConfigError(error.reason, error.hint) from None
    streams_of = network.addresses_of(settings, place)
    for stream in STREAMS:
        if stream in table:
            streams_of[stream] = tuple(
                _address(where, f"{stream}.{line}", line, value, network) for line, value in table[stream].items()
            )
    return settings, ChannelAddresses(
        settings.channel,
        settings.protocol,
        streams_of,
        "none" if settings.is_news_channel else settings.book_type.lower(),
        table.get("name", ""),
        settings.heartbeat_ns / 1e9,
    )


def _address(where: str, key: str, line: str, value: Any, network: Network) -> LineAddress:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if line not in ("A", "B"):
        raise ConfigError(f"{where}: unknown line: {key}", "lines are A and B")
    if not host or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise ConfigError(f"{where}: {key}: not an address: {value}", 'write "127.0.0.1:20001"')
    return LineAddress(line, host, int(port), network.interface)


def _refuse_duplicates(channels: list[ChannelAddresses]) -> None:
    found: dict[str, str] = {}
    for channel in channels:
        identity = f"channel {channel.number} ({channel.protocol})"
        for key in (identity, *(str(line) for _, line in channel.lines())):
            if key in found:
                where = "" if key == identity else f": in {found[key]} and {identity}"
                raise ConfigError(f"{key} is listed twice{where}", "change one of them")
            found[key] = identity


def _require_known(table: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = did_you_mean(close) if close else f"known: {', '.join(known)}"
            raise ConfigError(f"unknown key: {f'{table}.' if table else ''}{key}", hint)


def _require_types(table: str, values: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]]) -> None:
    _require_known(table, values, tuple(types))
    for key, value in values.items():
        if not isinstance(value, types[key]) or (isinstance(value, bool) and types[key] is not bool):
            raise ConfigError(f"{table}: invalid {key}: {value!r}", "see docs/exchange.md for the keys of the file")


def _pair_of(value: Any) -> tuple[str, str]:
    match value:
        case [str(symbol), str(other)]:
            return symbol, other
    raise ConfigError(f"exchange.pairs: not two symbols: {value}", 'write [["DOLF27", "WDOF27"]]')


def _start_of(value: str | datetime) -> datetime:
    try:
        start = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ConfigError(f"exchange.start: not a time: {value}", 'write "2026-11-16 09:59:30"') from None
    if start.tzinfo is not None:
        raise ConfigError(f"exchange.start has a time zone: {value}", "write the local time of São Paulo")
    return start


def _date_of(value: Any) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except (ValueError, TypeError):
        raise ConfigError(f"schedule.holidays: not a date: {value}", 'write "2026-11-20"') from None
