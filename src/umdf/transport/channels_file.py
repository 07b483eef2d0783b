"""`channels.toml`: the channels of an exchange, and where their streams are sent.

    [[channel]]
    number = 72
    protocol = "sbe"            # sbe or fast
    book = "mbo"                # mbo (by order), mbp (by price), tob (top of book) or none
    heartbeat_s = 1             # interval of heartbeats on a quiet stream
    schema = "messages.xml"     # SBE schema or FAST templates, beside this file; absent: built in
    interface = "10.1.0.5"      # that joins multicast groups; { A = …, B = … } if the lines arrive on two
    incremental = { A = "224.0.20.72:20001", B = "224.0.21.72:20101" }
    snapshot = { A = "224.0.20.72:20002" }
    instruments = { A = "224.0.20.72:20003" }

    [replayer]                  # TCP Replayer of the FIX/FAST channels; [historical_replayer] has the same keys
    comp_id = "CLIENT"          # SenderCompID (49) that the exchange has given to you
    replayer_id = "REPLAYER"    # its own (56)
    A = "10.1.2.3:30001"
    B = "10.1.2.4:30001"        # used when A is not available (5.2)

Only `number`, `protocol` and one stream of a channel are required. The exchange writes this file, the client joins what
it lists, and an ingest takes it where the content of captures does not show the channel, the stream or the line.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any, NoReturn

from umdf.errors import ConfigError, UsageError, did_you_mean, one_of

PROTOCOLS = ("sbe", "fast")
BOOKS = ("mbo", "mbp", "tob", "none")
STREAMS = ("incremental", "snapshot", "instruments")
LINES = ("A", "B")
KEYS = ("number", "protocol", "name", "book", "heartbeat_s", "schema", "interface", *STREAMS)
# Binary sends one a second on a quiet stream; FIX/FAST states no interval, and real ones were 30 s apart.
HEARTBEAT_S = {"sbe": 1.0, "fast": 30.0}
REPLAYER, HISTORICAL_REPLAYER = "replayer", "historical_replayer"
REPLAYERS = (REPLAYER, HISTORICAL_REPLAYER)
REPLAYER_KEYS = ("comp_id", "replayer_id", *LINES)
LOOPBACK = "127.0.0.1"
EXAMPLE = '"224.0.20.72:20001"'


@dataclass(frozen=True)
class LineAddress:
    """Where a line of a stream is sent, and the interface that it arrives on."""

    line: str
    address: str
    port: int
    interface: str = LOOPBACK

    @property
    def is_multicast(self) -> bool:
        return IPv4Address(self.address).is_multicast

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclass(frozen=True)
class ChannelAddresses:
    """One channel of the file."""

    number: int
    protocol: str
    streams: Mapping[str, tuple[LineAddress, ...]]  # by name, those that it has; lines in order
    book: str = "mbo"
    name: str = ""
    heartbeat_s: float = 0.0  # 0: that of the protocol
    schema: Path | None = None

    def __post_init__(self) -> None:
        if not self.heartbeat_s:
            object.__setattr__(self, "heartbeat_s", HEARTBEAT_S[self.protocol])

    def lines(self) -> list[tuple[str, LineAddress]]:
        """Every line of every stream."""
        return [(stream, line) for stream in STREAMS for line in self.streams.get(stream, ())]


@dataclass(frozen=True)
class ReplayerAddresses:
    """A replayer of all channels, and as whom a client logs on."""

    comp_id: str
    replayer_id: str
    addresses: tuple[tuple[str, int], ...]  # A, then B


def read_channels(file: Path) -> list[ChannelAddresses]:
    """The channels of a file; an error names the file, the channel, the key and the value."""
    tables = _read_tables(file)
    channels = tables.get("channel", [])
    if not isinstance(channels, list) or not channels or not all(isinstance(table, dict) for table in channels):
        raise ConfigError(f"{file} lists no channels", "each channel is a table [[channel]]")
    found = [_Table(file, place, table).channel() for place, table in enumerate(channels, 1)]
    _refuse_duplicates(file, found)
    return found


def select_channels(channels: Sequence[ChannelAddresses], only: Sequence[str]) -> list[ChannelAddresses]:
    """The named ones: by number, or by protocol and number (sbe:72); all, if none is named."""
    names = {f"{channel.protocol}:{channel.number}": channel for channel in channels}
    for name in only:
        if name not in names and all(str(channel.number) != name for channel in channels):
            raise UsageError(f"no channel {name} in the channels file", f"it has {', '.join(names)}")
    return [found for name, found in names.items() if not only or name in only or str(found.number) in only]


def read_replayer(file: Path, name: str = REPLAYER) -> ReplayerAddresses | None:
    """The replayer of a file, if it has one."""
    table = _read_tables(file).get(name)
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: {name} is not a table", f"write [{name}]")
    for key in table:
        if key not in REPLAYER_KEYS:
            raise ConfigError(f"{file}: {name}: unknown key: {key}", f"known: {', '.join(REPLAYER_KEYS)}")
    for key in ("comp_id", "replayer_id", "A"):
        if key not in table:
            raise ConfigError(f"{file}: {name} has no {key}", f"a replayer needs {', '.join(REPLAYER_KEYS[:3])}")
    for key in ("comp_id", "replayer_id"):
        if not isinstance(table[key], str) or not table[key].isascii() or not table[key].isprintable():
            raise ConfigError(f"{file}: {name}: invalid {key} = {_toml(table[key])}", "expected a CompID")
    addresses = []
    for line in LINES:
        if line in table:
            host, _, port = table[line].rpartition(":") if isinstance(table[line], str) else ("", "", "")
            if not host or not _is_port(port):
                raise ConfigError(f"{file}: {name}: invalid {line} = {_toml(table[line])}", 'expected "host:port"')
            addresses.append((host, int(port)))
    return ReplayerAddresses(table["comp_id"], table["replayer_id"], tuple(addresses))


def _read_tables(file: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", "check --channels") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8", "a channels file is TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: invalid TOML: {error}", "fix the file") from None
    for key in tables:
        if key not in ("channel", *REPLAYERS):
            raise ConfigError(
                f"{file}: unknown table: {key}", "tables are [[channel]], [replayer], [historical_replayer]"
            )
    return tables


def format_channels(
    channels: Iterable[ChannelAddresses], replayers: Mapping[str, ReplayerAddresses] | None = None
) -> str:
    """The text of a file with these channels and replayers."""
    tables = [_format_channel(channel) for channel in channels]
    for name, replayer in (replayers or {}).items():
        values: dict[str, Any] = {"comp_id": replayer.comp_id, "replayer_id": replayer.replayer_id}
        values |= {line: f"{host}:{port}" for line, (host, port) in zip(LINES, replayer.addresses, strict=False)}
        tables.append(f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items()))
    return "\n".join(tables)


def _format_channel(channel: ChannelAddresses) -> str:
    values: dict[str, Any] = {"number": channel.number, "protocol": channel.protocol}
    values |= {"name": channel.name} if channel.name else {}
    values |= {"book": channel.book, "heartbeat_s": channel.heartbeat_s}
    values |= {"schema": str(channel.schema)} if channel.schema else {}
    interfaces = {address.line: address.interface for _, address in channel.lines()}
    is_one = len(set(interfaces.values())) == 1
    values["interface"] = next(iter(interfaces.values())) if is_one else interfaces
    for stream in STREAMS:
        if stream in channel.streams:
            values[stream] = {address.line: str(address) for address in channel.streams[stream]}
    return "[[channel]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class _Table:
    """A [[channel]] table being read."""

    file: Path
    place: int
    values: dict[str, Any]

    def channel(self) -> ChannelAddresses:
        for key in self.values:
            if key not in KEYS:
                close = difflib.get_close_matches(key, KEYS, 1)
                self._refuse(f"unknown key: {key}", did_you_mean(close) if close else f"known: {', '.join(KEYS)}")
        streams = {stream: self._lines(stream) for stream in STREAMS if stream in self.values}
        if not streams:
            self._refuse("has no stream", f"for example incremental = {{ A = {EXAMPLE} }}")
        return ChannelAddresses(
            self._number(),
            self._choice("protocol", PROTOCOLS),
            streams,
            self._choice("book", BOOKS, "mbo"),
            self._text("name"),
            self._heartbeat_s(),
            self._schema(),
        )

    def _refuse(self, reason: str, hint: str) -> NoReturn:
        number = self.values.get("number")
        which = f"channel {number}" if isinstance(number, int) else f"channel table {self.place}"
        raise ConfigError(f"{self.file}: {which}: {reason}", hint)

    def _refuse_value(self, key: str, value: Any, expected: str) -> NoReturn:
        self._refuse(f"invalid {key} = {_toml(value)}", f"expected {expected}")

    def _number(self) -> int:
        value = self.values.get("number")
        if value is None:
            self._refuse("has no number", "add number = 72")
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65_535:
            self._refuse_value("number", value, "1 to 65535")
        return value

    def _heartbeat_s(self) -> float:
        value = self.values.get("heartbeat_s", 0)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or ("heartbeat_s" in self.values and not 0.001 <= value <= 3600):
            self._refuse_value("heartbeat_s", value, "seconds from 0.001 to 3600")
        return float(value)

    def _text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str):
            self._refuse_value(key, value, "a text")
        return value

    def _schema(self) -> Path | None:
        """Relative to the channels file."""
        schema = self._text("schema")
        path = self.file.parent / schema
        if schema and not path.is_file():
            self._refuse_value("schema", schema, f"a file; there is none at {path}")
        return path if schema else None

    def _choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value is None:
            self._refuse(f"has no {key}", f'add {key} = "{choices[0]}"')
        if value not in choices:
            self._refuse_value(key, value, one_of(choices))
        return value

    def _lines(self, stream: str) -> tuple[LineAddress, ...]:
        lines = self.values[stream]
        if not isinstance(lines, dict) or not lines:
            self._refuse_value(stream, lines, f"the addresses of its lines, as {{ A = {EXAMPLE} }}")
        for line in lines:
            if line not in LINES:
                self._refuse(f"unknown line: {stream}.{line}", f"lines are {' and '.join(LINES)}")
        return tuple(self._address(stream, line, lines[line]) for line in LINES if line in lines)

    def _address(self, stream: str, line: str, value: Any) -> LineAddress:
        address, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        if not _is_ipv4(address) or not _is_port(port):
            self._refuse_value(f"{stream}.{line}", value, f"an IPv4 address and a port, as {EXAMPLE}")
        return LineAddress(line, address, int(port), self._interface(line))

    def _interface(self, line: str) -> str:
        key, value = "interface", self.values.get("interface", LOOPBACK)
        if isinstance(value, dict):
            key, value = f"interface.{line}", value.get(line, "")
        if not isinstance(value, str) or not _is_ipv4(value):
            self._refuse_value(key, value, "the IPv4 address of a network interface of this machine")
        return value


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535


def _refuse_duplicates(file: Path, channels: list[ChannelAddresses]) -> None:
    found: dict[str, str] = {}
    for channel in channels:
        identity = f"channel {channel.number} ({channel.protocol})"
        if identity in found:
            raise ConfigError(f"{file}: {identity} is listed twice", "merge its tables")
        found[identity] = identity
        for stream, line in channel.lines():
            place = f"{identity} {stream}.{line.line}"
            if str(line) in found:
                raise ConfigError(f"{file}: {line} is listed twice: {found[str(line)]} and {place}", "fix one")
            found[str(line)] = place
