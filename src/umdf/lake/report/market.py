"""Trading activity of a day, by instrument and over time, for the day report.

Invariant: numbers are exact. Prices are decimal strings, sums are integers or decimals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from umdf.lake.commit.day_continuity import continued_days
from umdf.lake.parquet.file_reader import TableFiles
from umdf.lake.report.feed import INCREMENTAL
from umdf.lake.report.lake_day import LakeDay, has_flag
from umdf.market.calendar import ZONE
from umdf.market.families import JOINED, MAYBE_BAD_BOOK, PRICE_EXPONENT
from umdf.units import fix_decimal, strip_trailing_zeros

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MAX_ACTIVE = 20
SECOND_NS, MINUTE_NS = 10**9, 60 * 10**9
SHORT_SESSION_NS = 10 * MINUTE_NS  # shorter sessions are drawn by second
COLUMNS = (
    "channel_id instrument_id symbol flags high low close volume trade_count financial_volume events unverified_events"
)


@dataclass(frozen=True)
class ActiveInstrument:
    channel_id: int
    instrument_id: int
    symbol: str
    trades: int
    volume: int
    notional: str  # Σ price × size
    events: int  # rows of `mbo`
    high: str | None
    low: str | None
    last: str | None
    spread: str | None  # median over the seconds (or minutes) in which the best prices changed
    is_incomplete: bool  # some of its data was lost


@dataclass(frozen=True)
class ChannelTotals:
    """Totals of one channel."""

    channel_id: int
    instruments: int
    trades: int
    volume: int
    notional: str
    events: int


@dataclass(frozen=True)
class Activity:
    """Messages and volume over time; None: the lake lacks the table."""

    first_ns: int  # start of the first interval
    interval_ns: int
    messages: tuple[int, ...] | None
    volume: tuple[int, ...] | None


def _price_text(value: int | None) -> str | None:
    return None if value is None else fix_decimal(value, PRICE_EXPONENT)


def day_statistics(day: LakeDay) -> pa.Table:
    return day.rows("day_statistics", COLUMNS)


def symbols_by_id(day: LakeDay, statistics: pa.Table) -> Mapping[int, str]:
    """Symbols by instrument ID, of all instruments in the tables."""
    symbols: dict[int, str] = {}
    for rows in (day.rows("definition", "instrument_id symbol"), statistics):
        pairs = zip(rows.column("instrument_id").to_pylist(), rows.column("symbol").to_pylist(), strict=True)
        symbols |= {number: symbol for number, symbol in pairs if number is not None and symbol}
    return symbols


def channel_totals(statistics: pa.Table) -> tuple[ChannelTotals, ...]:
    names = ("trade_count", "volume", "financial_volume", "events")
    sums = statistics.group_by("channel_id").aggregate([([], "count_all"), *((name, "sum") for name in names)])
    totals = []
    for row in sums.sort_by("channel_id").to_pylist():
        trades, volume, notional, events = (row[f"{name}_sum"] or 0 for name in names)
        text = strip_trailing_zeros(str(notional))
        totals.append(ChannelTotals(row["channel_id"], row["count_all"], trades, volume, text, events))
    return tuple(totals)


def most_active(day: LakeDay, statistics: pa.Table, symbols: Mapping[int, str]) -> tuple[ActiveInstrument, ...]:
    """The most active instruments by trades, then by events."""
    order = [("trade_count", "descending"), ("events", "descending"), ("instrument_id", "ascending")]
    rows = statistics.sort_by(order).slice(0, MAX_ACTIVE).to_pylist()
    spreads = _median_spreads(day, [row["instrument_id"] for row in rows])
    continued = continued_days(day.snapshot)
    return tuple(
        ActiveInstrument(
            row["channel_id"],
            row["instrument_id"],
            symbols.get(row["instrument_id"], str(row["instrument_id"])),
            row["trade_count"] or 0,
            row["volume"] or 0,
            strip_trailing_zeros(str(row["financial_volume"] or 0)),
            row["events"] or 0,
            *(_price_text(row[name]) for name in ("high", "low", "close")),
            spread=_price_text(spreads.get((row["channel_id"], row["instrument_id"]))),
            is_incomplete=bool(row["flags"] & MAYBE_BAD_BOOK)
            and not (row["flags"] & JOINED and (day.date, row["channel_id"]) in continued),
        )
        for row in rows
    )


def _median_spreads(day: LakeDay, instruments: list[int]) -> dict[tuple[int, int], int]:
    """The median spread (the lower one of two, so that it occurred), without auctions, which cross the book."""
    name = "bbo_1s" if day.has("bbo_1s") else "bbo_1m"
    is_usable = (pc.field("ask_px_00") > pc.field("bid_px_00")) & ~has_flag(MAYBE_BAD_BOOK)
    wanted = pc.field("instrument_id").isin(pa.array(instruments, pa.int64()))
    columns = "channel_id instrument_id bid_px_00 ask_px_00"
    rows = day.rows(name, columns, wanted & is_usable)
    channel, instrument, bid, ask = (rows.column(column).to_numpy() for column in columns.split())
    spread = ask - bid
    order = np.lexsort((spread, instrument, channel))
    spreads: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at in order.tolist():
        spreads[int(channel[at]), int(instrument[at])].append(int(spread[at]))
    return {key: values[(len(values) - 1) // 2] for key, values in spreads.items()}


def messages_by_second(day: LakeDay) -> Counter[int] | None:
    """Messages by second of sending, each once; None if the lake has no packets."""
    if not day.has("packets"):
        return None
    used = (pc.field("disposition") == "used") & (pc.field("stream") == INCREMENTAL)
    return _sum_by_interval(day.dataset("packets"), "ts_send", "messages", SECOND_NS, used)


def _sum_by_interval(
    table: TableFiles, when: str, what: str, interval_ns: int, where: ds.Expression | None = None
) -> Counter[int]:
    """Sums of a column by intervals of another, batch by batch, so that memory stays bounded."""
    found: Counter[int] = Counter()
    for batch in table.to_batches(columns=[when, what], filter=where):
        times, numbers = (batch.column(name).fill_null(0).to_numpy(zero_copy_only=False) for name in (when, what))
        intervals, place = np.unique(times // interval_ns, return_inverse=True)
        sums = np.zeros(len(intervals), np.int64)
        np.add.at(sums, place, numbers)
        found.update(dict(zip(intervals.tolist(), sums.tolist(), strict=True)))
    return found


def build_activity(day: LakeDay, messages: Counter[int] | None) -> Activity | None:
    """By second for short sessions, otherwise by minute; times outside the day (damaged ones) are ignored."""
    midnight = datetime.combine(day.date, time(), ZoneInfo(ZONE))
    begin, end = (int(moment.timestamp()) * SECOND_NS for moment in (midnight, midnight + timedelta(days=1)))
    sent = Counter({second: count for second, count in (messages or {}).items() if begin <= second * SECOND_NS < end})
    is_short = bool(sent) and (max(sent) - min(sent)) * SECOND_NS < SHORT_SESSION_NS and day.has("ohlcv_1s")
    interval_ns = SECOND_NS if is_short else MINUTE_NS
    name = "ohlcv_1s" if is_short else "ohlcv_1m"
    traded = _sum_by_interval(day.dataset(name), "ts_interval", "volume", interval_ns)
    by_interval: Counter[int] = Counter()
    for second, count in sent.items():
        by_interval[second * SECOND_NS // interval_ns] += count
    interval_numbers = {place for place in (*by_interval, *traded) if begin <= place * interval_ns < end}
    if not interval_numbers:
        return None
    interval_range = range(min(interval_numbers), max(interval_numbers) + 1)
    return Activity(
        interval_range.start * interval_ns,
        interval_ns,
        None if messages is None else tuple(by_interval[place] for place in interval_range),
        tuple(traded[place] for place in interval_range) if day.has(name) else None,
    )
