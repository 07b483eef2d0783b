"""What an export is made of: one instrument on one trading date after the other, so that memory stays bounded.

The one rule: rows come from `umdf.Lake`, at one commit for the whole export; nothing is read twice in another way. An
instrument goes by its symbol; one whose symbol is absent or blank by its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute

from umdf.errors import UmdfError, UsageError
from umdf.lake.query.times import Span, midnight_ns

if TYPE_CHECKING:
    from umdf.lake.query.lake import Lake

pc: Any = pyarrow.compute  # its functions are made at run time

STYPES = ("raw", "parent", "instrument_id")  # a continuous contract is many instruments under one name
DAY = timedelta(days=1)
DAY_NS = 86_400 * 10**9
MOST_BYTES = 150  # of a symbol in the name of a file, which may have 255
TOLD_BY = ("trading_date", "channel_id", "instrument_id", "symbol")  # columns by which rows are told apart here


@dataclass(frozen=True)
class Asked:
    """Which rows an export is about, as its caller said it."""

    symbols: Sequence[str] | None = None
    start: Any = None
    end: Any = None
    stype_in: str = "raw"
    exclude_stale: bool = False
    channel: int | None = None

    @property
    def span(self) -> Span:
        return Span.of(self.start, self.end)


@dataclass(frozen=True, order=True)
class Instrument:
    symbol: str
    number: int = 0  # instrument_id, of one that has no symbol to go by

    @classmethod
    def listed(cls, symbol: str | None, number: int) -> Instrument:
        """By its number if the symbol is blank, or has blanks around it, or is too long for the name of a file."""
        is_usable = symbol and symbol == symbol.strip() and len(quoted(symbol)) <= MOST_BYTES
        return cls(symbol) if symbol and is_usable else cls("", number)

    def __str__(self) -> str:
        return self.symbol or f"instrument {self.number}"

    @property
    def file_name(self) -> str:
        """For names of files: another one for every other instrument, and never a path. BTC/BRL becomes BTC%2FBRL."""
        return quoted(self.symbol) if self.symbol else f"instrument_id={self.number}"


def quoted(text: str) -> str:
    """Text as a part of a file's name: letters, digits, - and _ and . and ~ stay, the rest is percent-encoded."""
    return quote(text, safe="", errors="surrogatepass")


@dataclass(frozen=True)
class Day:
    """A trading date of an export."""

    lake: Lake
    asked: Asked
    date: date
    instruments: Sequence[Instrument]  # that are asked for, and listed on this date

    @property
    def window(self) -> tuple[int | None, int | None]:
        """The instants of the range, where it has some."""
        return self.asked.span.low, self.asked.span.high

    def read(self, table: str, one: Instrument | None, columns: Sequence[str] | None, whole: bool) -> pa.Table:
        """Rows of an instrument (None: of all that are asked for); `whole`: also those outside of the window."""
        asked = self.asked
        low, high = (None, None) if whole else self.window
        start: Any = self.date
        end: Any = self.date + DAY
        if low is not None or high is not None:
            # Rows of a date may be received on the other side of midnight: they are told by their trading date.
            begin, finish = midnight_ns(self.date) - DAY_NS, midnight_ns(self.date) + 2 * DAY_NS
            start, end = max(begin, low or begin), min(finish, high or finish)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *TOLD_BY]))
        rows = self.lake.get_range(
            table,
            None if one is None else one.symbol or one.number,
            start,
            end,
            stype_in="instrument_id" if one is not None and not one.symbol else "raw",
            exclude_stale=asked.exclude_stale and not whole and table != "definition",
            price_type="fixed",
            pretty_ts=False,
            columns=wanted,
        ).to_arrow()
        rows = rows.filter(pc.equal(rows.column("trading_date"), pa.scalar(self.date, pa.date32())))
        if asked.channel is not None:
            rows = rows.filter(pc.equal(rows.column("channel_id"), asked.channel))
        if one is not None and one.symbol:
            return rows
        if one is None and asked.symbols is None:
            return rows
        # A symbol may come later in the day than the number: what has one goes by it.
        chosen = set(self.instruments) if one is None else {one}
        pairs = zip(*(rows.column(name).to_pylist() for name in ("symbol", "instrument_id")), strict=True)
        return rows.filter(pa.array([Instrument.listed(*pair) in chosen for pair in pairs], pa.bool_()))

    def pieces(self) -> Iterator[Piece]:
        return (Piece(self, one) for one in self.instruments)


@dataclass(frozen=True)
class Piece:
    """One instrument on one trading date."""

    day: Day
    instrument: Instrument

    @property
    def name(self) -> str:
        """For people."""
        return str(self.instrument)

    def read(self, table: str, columns: Sequence[str] | None = None, whole: bool = False) -> pa.Table:
        return self.day.read(table, self.instrument, columns, whole)

    def of_one_channel(self, table: str, columns: Sequence[str] | None = None, whole: bool = False) -> pa.Table:
        """For books: an instrument may be on several channels, by order and by price."""
        rows = self.read(table, columns, whole)
        channels = sorted(filter(None, pc.unique(rows.column("channel_id")).to_pylist()))
        if len(channels) > 1:
            hint = f"say --channel {channels[0]}"
            raise UmdfError(f"{self.name} is on the channels {', '.join(map(str, channels))}", hint)
        return rows

    def __str__(self) -> str:
        return f"{self.name} on {self.day.date}"


def days(lake: Lake, asked: Asked) -> list[Day]:
    """The trading dates of a range; a range or a name that the lake does not know is its own error."""
    if asked.stype_in not in STYPES:
        raise UsageError(f"stype_in {asked.stype_in!r} cannot be exported", f"use {' or '.join(STYPES)}")
    span, columns = asked.span, ["trading_date", "symbol", "instrument_id"]
    lake.get_range("definition", None, asked.start, asked.end)  # the range alone, before the names
    dates = [day for day in lake.dates() if span.has_date(day)]
    if not dates:
        return []
    rows = lake.get_range(
        "definition", asked.symbols, dates[0], dates[-1] + DAY, stype_in=asked.stype_in, columns=columns
    ).to_arrow()
    listed: dict[date, set[Instrument]] = {day: set() for day in dates}
    for day, symbol, number in zip(*(rows.column(name).to_pylist() for name in columns), strict=True):
        listed[day].add(Instrument.listed(symbol, number))
    return [Day(lake, asked, day, sorted(some)) for day, some in listed.items() if some]
