"""The exchange of a certification: its instruments, channels, addresses and replayers, for one of eight combinations.

Three earlier days of a week are played first, so that the replayers have a history (D3) and the day starts with the
closing prices of the day before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path

from umdf.certify.observation import MBO, MBP, TOB
from umdf.errors import UsageError, one_of
from umdf.exchange.live.schedule import DERIVATIVES, EQUITIES, Timetable
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import FAST, POSITION, PRIORITY, SBE, STREAMS, ChannelSettings, Members
from umdf.exchange.replayer.server import ReplayerSettings
from umdf.transport.channels_file import (
    HISTORICAL_REPLAYER,
    LOOPBACK,
    REPLAYER,
    ChannelAddresses,
    LineAddress,
)

MBO_CHANNEL, MBP_CHANNEL, TOB_CHANNEL, INDEX_CHANNEL = 72, 73, 74, 62
BOOK_CHANNELS = {MBO: MBO_CHANNEL, MBP: MBP_CHANNEL, TOB: TOB_CHANNEL}
BOOK_SECURITY_TYPES = ("CS", "PS", "ETF", "OPT", "FUT", "MLEG")
HEARTBEAT_S = {FAST: 30.0, SBE: 1.0}
WEEK_START = datetime(2026, 11, 15, 12)  # a Sunday: numbering begins
DAY_START = datetime(2026, 11, 19, 7, 30)  # the Thursday on which the script is played
COMP_ID, REPLAYER_ID, HISTORICAL_ID = "CERTIFIED", "REPLAYER", "HISTORY"
# Earlier days trade for less than a minute: nobody looks at the rest of them.
_SHORT_DAY = {"pre_open": "10:00", "open": "10:00:10", "pre_close": "10:00:50", "close": "10:01"}
FAR_AWAY_S = 3_600.0  # of real time: silence is measured by a clock that does not run as fast as the exchange's


@dataclass(frozen=True)
class Combination:
    """What is certified: a protocol, the generation of its books, a segment."""

    protocol: str = FAST
    generation: str = PRIORITY
    segment: str = EQUITIES

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("protocol", self.protocol, (FAST, SBE)),
            ("generation", self.generation, (PRIORITY, POSITION)),
            ("segment", self.segment, (EQUITIES, DERIVATIVES)),
        ):
            if value not in choices:
                raise UsageError(f"unknown {name}: {value}", f"use {one_of(choices)}")

    def __str__(self) -> str:
        if self.protocol == FAST:
            return f"FIX/FAST by {'price and priority' if self.generation == PRIORITY else 'position'}, {self.segment}"
        return f"Binary version {16 if self.generation == PRIORITY else 10}, {self.segment}"

    @property
    def book_types(self) -> tuple[str, ...]:
        return (MBO, MBP, TOB) if self.protocol == FAST else (MBO,)

    @property
    def has_replayer(self) -> bool:
        """The replayers serve FIX/FAST only."""
        return self.protocol == FAST

    @property
    def symbols(self) -> Symbols:
        return SYMBOLS[self.segment]


@dataclass(frozen=True)
class Symbols:
    """The instruments of the script."""

    main: str  # the chosen instrument
    legs: tuple[str, str]  # of the user-defined spread; its channel is that of the first
    index: str = ""
    member: str = ""  # of the index
    listed_strategy: str = "UDS00001"  # the one that a new one is made like
    strategy: str = "UDS00002"


SYMBOLS = {
    EQUITIES: Symbols("PETR4", ("PETRL324", "PETRL333"), "IBOV", "VALE3"),
    DERIVATIVES: Symbols("WINZ26", ("WING27", "WINJ27")),
}
COMBINATIONS = tuple(
    Combination(protocol, generation, segment)
    for protocol in (FAST, SBE)
    for generation in (PRIORITY, POSITION)
    for segment in (EQUITIES, DERIVATIVES)
)

PortOf = Callable[[], int]


def exchange_settings(
    combination: Combination, directory: Path, port_of: PortOf, *, start: datetime, interface: str = LOOPBACK
) -> ExchangeSettings:
    """The exchange of a combination; `port_of` gives free ports, `directory` gets the history of the replayers."""
    channels = [_channel(combination, book_type) for book_type in combination.book_types]
    if combination.symbols.index and combination.protocol == FAST:
        members = Members(types=("INDEX", "ETF"))
        channels.append(_with_pace(INDEX_CHANNEL, combination, MBO, members))
    replayers: dict[str, ReplayerSettings] = {}
    if combination.has_replayer:
        replayers = {
            REPLAYER: ReplayerSettings((interface, port_of()), REPLAYER_ID, retention="session"),
            HISTORICAL_REPLAYER: ReplayerSettings((interface, port_of()), HISTORICAL_ID, retention="two-days"),
        }
    with as_file(files("umdf.certify") / f"{combination.segment}.csv") as catalogue:
        return ExchangeSettings(
            tuple(channels),
            tuple(_addresses(channel, port_of, interface) for channel in channels),
            catalogue=catalogue,
            start=start,
            messages_per_s=0,
            timetable=Timetable({EQUITIES: _SHORT_DAY, DERIVATIVES: _SHORT_DAY}),
            replayers=replayers,
            history=directory / "history",
        )


def _channel(combination: Combination, book_type: str) -> ChannelSettings:
    return _with_pace(BOOK_CHANNELS[book_type], combination, book_type, Members(types=BOOK_SECURITY_TYPES))


def _with_pace(number: int, combination: Combination, book_type: str, members: Members) -> ChannelSettings:
    return ChannelSettings(
        number,
        combination.protocol,
        combination.generation,
        book_type,
        members=members,
        lines="A",  # as in the certification environment
        sends_empty_books=True,  # D1.1, D2.1 and E4.2 expect what 4.1.2 allows to be left out
        loop_pause_ms=500,
        heartbeat_ms=round(HEARTBEAT_S[combination.protocol] * 1_000),
    )


def _addresses(channel: ChannelSettings, port_of: PortOf, interface: str) -> ChannelAddresses:
    streams = {stream: (LineAddress("A", interface, port_of(), interface),) for stream in STREAMS}
    return ChannelAddresses(channel.channel, channel.protocol, streams, channel.book_type.lower(), "", FAR_AWAY_S)
