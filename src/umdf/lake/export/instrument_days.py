"""Reads an export's rows, one instrument and trading date at a time, so that memory stays bounded.

Invariant: rows come from `umdf.Lake`, at one commit for the whole export. An instrument is identified by its symbol;
one without a symbol by its ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute

from umdf.errors import UmdfError, UsageError, one_of
from umdf.lake.query.times import TimeRange, midnight_ns

if TYPE_CHECKING:
    from umdf.lake.query.lake import Lake

pc: Any = pyarrow.compute  # its functions are created at run time

STYPES = ("raw", "parent", "instrument_id")  # a continuous contract is several instruments under one name
DAY = timedelta(days=1)
DAY_NS = 86_400 * 10**9
MAX_SYMBOL_BYTES = 150  # of a symbol in a file name, which may have 255 bytes
KEY_COLUMNS = ("trading_date", "channel_id", "instrument_id", "symbol")  # columns that identify rows here


@dataclass(frozen=True)
class ExportRequest:
    """Which rows to export, as requested."""

    symbols: Sequence[str] | None = None
    start: Any = None
    end: Any = None
    stype_in: str = "raw"
    exclude_stale: bool = False
    channel: int | None = None

    @property
    def span(self) -> TimeRange:
        return TimeRange.parse(self.start, self.end)


@dataclass(frozen=True, order=True)
class Instrument:
    symbol: str
    instrument_id: int = 0  # only for an instrument without a usable symbol

    @classmethod
    def from_definition(cls, symbol: str | None, number: int) -> Instrument:
        """Identified by its ID if the symbol is blank, has blanks around it, or is too long for a file name."""
        is_usable = symbol and symbol == symbol.strip() and len(percent_encode(symbol)) <= MAX_SYMBOL_BYTES
        return cls(symbol) if symbol and is_usable else cls("", number)

    def __str__(self) -> str:
        return self.symbol or f"instrument {self.instrument_id}"

    @property
    def file_name(self) -> str:
        """For file names: unique per instrument, and never a path. BTC/BRL becomes BTC%2FBRL."""
        return percent_encode(self.symbol) if self.symbol else f"instrument_id={self.instrument_id}"


def percent_encode(text: str) -> str:
    """Text for a file name: letters, digits, - _ . and ~ are kept, the rest is percent-encoded."""
    return quote(text, safe="", errors="surrogatepass")


@dataclass(frozen=True)
class ExportDay:
    """A trading date of an export."""

    lake: Lake
    request: ExportRequest
    date: date
    instruments: Sequence[Instrument]  # requested, and listed on this date

    @property
    def window(self) -> tuple[int | None, int | None]:
        """The times of the range, if it has any."""
        return self.request.span.start_ns, self.request.span.end_ns

    def read(
        self, table: str, instrument: Instrument | None, columns: Sequence[str] | None, whole_day: bool
    ) -> pa.Table:
        """Rows of an instrument (None: of all requested ones); `whole_day`: also those outside the window."""
        asked = self.request
        low, high = (None, None) if whole_day else self.window
        start: Any = self.date
        end: Any = self.date + DAY
        if low is not None or high is not None:
            # Rows of a date may be received after midnight: the trading date decides.
            begin, finish = midnight_ns(self.date) - DAY_NS, midnight_ns(self.date) + 2 * DAY_NS
            start, end = max(begin, low or begin), min(finish, high or finish)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *KEY_COLUMNS]))
        rows = self.lake.get_range(
            table,
            None if instrument is None else instrument.symbol or instrument.instrument_id,
            start,
            end,
            stype_in="instrument_id" if instrument is not None and not instrument.symbol else "raw",
            exclude_stale=asked.exclude_stale and not whole_day and table != "definition",
            price_type="fixed",
            pretty_ts=False,
            columns=wanted,
        ).to_arrow()
        rows = rows.filter(pc.equal(rows.column("trading_date"), pa.scalar(self.date, pa.date32())))
        if asked.channel is not None:
            rows = rows.filter(pc.equal(rows.column("channel_id"), asked.channel))
        if instrument is not None and instrument.symbol:
            return rows
        if instrument is None and asked.symbols is None:
            return rows
        # The symbol may become known later in the day than the ID: rows with a symbol use it.
        chosen = set(self.instruments) if instrument is None else {instrument}
        pairs = zip(*(rows.column(name).to_pylist() for name in ("symbol", "instrument_id")), strict=True)
        return rows.filter(pa.array([Instrument.from_definition(*pair) in chosen for pair in pairs], pa.bool_()))

    def instrument_days(self) -> Iterator[InstrumentDay]:
        return (InstrumentDay(self, one) for one in self.instruments)


@dataclass(frozen=True)
class InstrumentDay:
    """One instrument on one trading date."""

    day: ExportDay
    instrument: Instrument

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.instrument)

    def read(self, table: str, columns: Sequence[str] | None = None, whole_day: bool = False) -> pa.Table:
        return self.day.read(table, self.instrument, columns, whole_day)

    def read_single_channel(
        self, table: str, columns: Sequence[str] | None = None, whole_day: bool = False
    ) -> pa.Table:
        """For books: an instrument may be on several channels, with order depth and price depth."""
        rows = self.read(table, columns, whole_day)
        channels = sorted(filter(None, pc.unique(rows.column("channel_id")).to_pylist()))
        if len(channels) > 1:
            hint = f"select one, for example --channel {channels[0]}"
            raise UmdfError(f"{self.name} is on several channels: {', '.join(map(str, channels))}", hint)
        return rows

    def __str__(self) -> str:
        return f"{self.name} on {self.day.date}"


def export_days(lake: Lake, request: ExportRequest) -> list[ExportDay]:
    """The trading dates of a range; an unknown range or symbol raises the error of `umdf.Lake`."""
    if request.stype_in not in STYPES:
        raise UsageError(f"unsupported stype_in: {request.stype_in!r}", f"use {one_of(STYPES)}")
    span, columns = request.span, ["trading_date", "symbol", "instrument_id"]
    lake.get_range("definition", None, request.start, request.end)  # checks the range before the symbols
    dates = [day for day in lake.dates() if span.includes_date(day)]
    if not dates:
        return []
    rows = lake.get_range(
        "definition", request.symbols, dates[0], dates[-1] + DAY, stype_in=request.stype_in, columns=columns
    ).to_arrow()
    instruments: dict[date, set[Instrument]] = {day: set() for day in dates}
    for day, symbol, number in zip(*(rows.column(name).to_pylist() for name in columns), strict=True):
        instruments[day].add(Instrument.from_definition(symbol, number))
    return [ExportDay(lake, request, day, sorted(some)) for day, some in instruments.items() if some]
