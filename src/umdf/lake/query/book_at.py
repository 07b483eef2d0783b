"""The book of an instrument at a given time, with all its orders.

Invariant: a book that may be wrong is marked. It is the state after the last packet received by then, at the end of an
event, exactly as `mbp_10` would show it; and if later rows show that messages were lost before them, and the loss
cannot be dated after the given time, the book is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError, UsageError
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.query.arrays import filter_rows, int64_values, is_in
from umdf.lake.query.computed_rows import DeriveTask, read_book_rows
from umdf.lake.query.price_styles import OutputFormat
from umdf.lake.query.query_times import RECEIVED, SENT, ComparedTime, clock_offsets, compared_time
from umdf.lake.query.symbols import InstrumentCatalog
from umdf.lake.query.table_reader import InstrumentFilter, Partition, ReadStats, query_of, read_rows
from umdf.lake.query.times import TimeRange, parse_time, to_trading_date
from umdf.lake.recording.capture_clock import offset_text
from umdf.market.families import MAYBE_BAD_BOOK, NULL
from umdf.units import utc_text

if TYPE_CHECKING:
    from umdf.book.views import Book, Level
    from umdf.lake.books.derived_levels import DayReplay

PRICE = {"unit": "1e-9"}
LEVEL_SCHEMA = pa.schema(
    [
        pa.field("side", pa.utf8()),
        pa.field("level", pa.int32(), metadata={"doc": "level, counted from 0 (the best)"}),
        pa.field("price", pa.int64(), metadata=PRICE),
        pa.field("size", pa.int64()),
        pa.field("count", pa.int32()),
    ]
)
ORDER_SCHEMA = pa.schema(
    [
        *(LEVEL_SCHEMA.field(name) for name in ("side", "level", "price")),
        pa.field("size", pa.int64()),
        pa.field("order_id", pa.int64()),
        pa.field("firm", pa.int64()),
        pa.field("ts_insert", pa.int64(), metadata={"unit": "ns since 1970 UTC"}),
        pa.field("implied", pa.bool_()),
    ]
)


@dataclass(frozen=True, eq=False)
class BookAt:
    """A book at a given time. `distrust_reason` is why it may be wrong; None if it is right."""

    symbol: str
    instrument_id: int
    trading_date: date
    channel_id: int
    book: Book  # prices in units of 1e-9
    depth: int | None
    ts_recv: int | None  # of the last row in it
    sequence: int | None
    distrust_reason: str | None

    @property
    def is_trusted(self) -> bool:
        return self.distrust_reason is None

    @property
    def bids(self) -> tuple[Level, ...]:
        return self.book.bids[: self.depth]

    @property
    def asks(self) -> tuple[Level, ...]:
        return self.book.asks[: self.depth]

    def levels(self, price_type: str = "decimal") -> pa.Table:
        """side, level, price, size, count: the bids, then the asks, the best first."""
        rows = [
            {"side": side, "level": at, "price": level.price, "size": level.size, "count": level.count}
            for side, at, level in self._numbered_levels()
        ]
        return OutputFormat(price_type).to_table(pa.Table.from_pylist(rows, LEVEL_SCHEMA))

    def orders(self, price_type: str = "decimal") -> pa.Table:
        """Every order, by priority; empty for a book by price."""
        rows = [
            {"side": side, "level": at, "price": level.price, **vars(order)}
            for side, at, level in self._numbered_levels()
            for order in level.orders
        ]
        return OutputFormat(price_type).to_table(pa.Table.from_pylist(rows, ORDER_SCHEMA))

    def _numbered_levels(self) -> list[tuple[str, int, Level]]:
        sides = (("B", self.bids), ("A", self.asks))
        return [(side, at, level) for side, own in sides for at, level in enumerate(own)]

    def __repr__(self) -> str:
        trust = f", may be wrong: {self.distrust_reason}" if self.distrust_reason else ""
        levels = f"{len(self.bids)} bids, {len(self.asks)} asks"
        return f"<BookAt {self.symbol} {self.trading_date} channel {self.channel_id}: {levels}{trust}>"


def book_at(
    catalog: InstrumentCatalog,
    symbol: Any,
    at: Any,
    depth: int | None,
    channel: int | None,
    lending: bool,
    stype_in: str,
    time: str,
) -> BookAt:
    if depth is not None and (isinstance(depth, bool) or depth < 1):
        raise UsageError(f"invalid depth: {depth}", "use at least 1, or omit it for all levels")
    when = parse_time(at, "at")
    day = to_trading_date(when) if isinstance(when, int) else when
    span = TimeRange(day, date.fromordinal(day.toordinal() + 1))
    selection = catalog.select(symbol, stype_in, span, ["mbo"])
    if selection is None or len(selection.requested) != 1:
        raise UsageError("book_at takes one symbol", "call it once per symbol")
    candidates = [
        (part, number)
        for part, wanted in selection.filters.items()
        for number in sorted(wanted.ids or ())
        if part[0] == day and channel in (None, part[1])
    ]
    if len(candidates) != 1:
        raise _ambiguous_symbol_error(selection.requested[0], day, channel, [part for part, _ in candidates])
    part, number = candidates[0]
    limit = when if isinstance(when, int) else None
    compared = compared_time(catalog.snapshot, time)
    return _BookLookup(catalog.snapshot, part, number, limit, lending, compared).book(selection.requested[0], depth)


def _ambiguous_symbol_error(symbol: str, day: date, channel: int | None, parts: list[Partition]) -> UmdfError:
    if not parts:
        where = f" on channel {channel}" if channel is not None else ""
        return UmdfError(f"{symbol} is not listed{where} on {day}", "omit the channel, or use another")
    channels = sorted({str(channel) for _, channel in parts})
    hint = f"pass channel={channels[0]}" if len(channels) > 1 else "use stype_in='instrument_id'"
    return UmdfError(f"{symbol} is ambiguous on {day} (channels {', '.join(channels)})", hint)


class _BookLookup:
    """One instrument of a channel-day up to a time (None: to the end)."""

    def __init__(
        self,
        snapshot: LakeSnapshot,
        part: Partition,
        instrument_id: int,
        as_of_ns: int | None,
        lending: bool,
        time: ComparedTime,
    ) -> None:
        self.snapshot, self.part, self.instrument_id, self.lending = snapshot, part, instrument_id, lending
        self.as_of_ns = (1 << 63) - 1 if as_of_ns is None else as_of_ns
        self.time_column = SENT if time.is_exchange(part) else RECEIVED
        self.clock_offset_ns = None if as_of_ns is None or time.is_exchange(part) else clock_offsets(snapshot).get(part)
        self.mbo, self.states = read_book_rows(
            snapshot, DeriveTask(part, InstrumentFilter(frozenset({instrument_id}))), ReadStats()
        )

    def book(self, symbol: str, depth: int | None) -> BookAt:
        from umdf.lake.books.derived_levels import replay_day

        day = replay_day(self.mbo, self.states)
        end, recoveries = self._find_cut(day)
        until = replay_day(*self._rows_until(day, end, recoveries))
        found = until.books_replay.books.book(self.instrument_id, lending=self.lending) if len(until.ids) else None
        received, sequence = (None, None) if end < 0 else self._ts_and_sequence(day, end)
        reason = self._distrust_reason(day, end, recoveries, found)
        if found is None:
            found = _empty_book(self.instrument_id, self.lending)
        trading_date, channel = self.part
        assert trading_date is not None and channel is not None
        return BookAt(symbol, self.instrument_id, trading_date, channel, found, depth, received, sequence, reason)

    def _find_cut(self, day: DayReplay) -> tuple[int, list[int]]:
        """The last row that ends an event by then, and the snapshots that replaced the book up to there.

        Rows are applied in order, so a late packet holds back those after it.
        """
        rows, own = day.rows, self._own_rows(day)
        times = getattr(rows.units, self.time_column) if len(own) else np.empty(0, np.int64)
        came = np.maximum.accumulate(times[rows.rows.unit[own]]) if len(own) else times
        by_then = own[came <= self.as_of_ns]
        ends = by_then[day.result.is_event_end[by_then]]
        end = int(ends[-1]) if len(ends) else -1
        following = own[own > end]
        next_row = int(following[0]) if len(following) else len(rows)
        recoveries = [
            int(snapshot)
            for snapshot, position in zip(
                day.result.recovery_snapshots.tolist(), day.result.recovery_position.tolist(), strict=True
            )
            if day.snapshots.book[snapshot] == self._book_index
            and (
                position <= 2 * end + 1
                or (
                    position <= 2 * next_row and day.snapshot_states[snapshot].header[self.time_column] <= self.as_of_ns
                )
            )
        ]
        return end, recoveries

    @property
    def _book_index(self) -> int:
        return 1 if self.lending else 0  # there is only one instrument

    def _own_rows(self, day: DayReplay) -> Any:
        return np.flatnonzero(day.rows.book == self._book_index) if len(day.rows) else np.empty(0, np.int64)

    def _ts_and_sequence(self, day: DayReplay, row: int) -> tuple[int, int]:
        units, unit = day.rows.units, day.rows.rows.unit[row]
        return int(units.ts_recv[unit]), int(units.sequence[unit])

    def _rows_until(self, day: DayReplay, end: int, recoveries: list[int]) -> tuple[pa.Table, pa.Table]:
        """The rows of `mbo` and `book_state` up to there."""
        from umdf.lake.books.instrument_rows import is_between, wire_key
        from umdf.lake.books.state_record import EVENT_FLAGS
        from umdf.market.families import SNAPSHOT

        until = (int(day.rows.epoch[end]), int(day.rows.key[end])) if end >= 0 else (-1, 0)

        def is_before(rows: pa.Table) -> Any:
            if not rows.num_rows:
                return np.empty(0, np.bool_)
            epoch = day.epochs.ranks(int64_values(rows.column("seq_version")))
            key = wire_key(*(int64_values(rows.column(name)) for name in ("sequence", "msg_index", "entry_index")))
            return is_between(epoch, key, None, until)

        flags = int64_values(self.states.column("flags"))
        keys = {
            (day.snapshot_states[snapshot].seq_version, day.snapshot_states[snapshot].key) for snapshot in recoveries
        }
        versions, sequences = (int64_values(self.states.column(name)) for name in ("seq_version", "sequence"))
        inside = (int64_values(self.states.column(name)) for name in ("msg_index", "entry_index"))
        whole = [
            sequence << 32 | m << 16 | e
            for sequence, m, e in zip(sequences.tolist(), *(i.tolist() for i in inside), strict=True)
        ]
        is_recovery = np.array([pair in keys for pair in zip(versions.tolist(), whole, strict=True)], np.bool_)
        kept = np.where(flags & SNAPSHOT != 0, is_recovery, (flags & EVENT_FLAGS == 0) | is_before(self.states))
        return filter_rows(self.mbo, is_before(self.mbo)), filter_rows(self.states, kept.astype(np.bool_))

    def _distrust_reason(self, day: DayReplay, end: int, recoveries: list[int], book: Book | None) -> str | None:
        result = day.result
        if self.clock_offset_ns is not None:
            return f"the capture clock was {offset_text(self.clock_offset_ns)}: use time='exchange'"
        newest = max(
            (int(result.recovery_position[result.recovery_snapshots == snapshot][0]) for snapshot in recoveries),
            default=-1,
        )
        if end < 0 and newest < 0:
            return "no data before this time"
        is_recovered = newest > 2 * end + 1
        if not is_recovered and result.bad[end] != 0:
            return "messages were lost before it"
        if book is None or book.stale is not None:
            return "its rows are inconsistent"
        return self._loss_after(day, end, newest if is_recovered else -1)

    def _loss_after(self, day: DayReplay, end: int, newest: int) -> str | None:
        """The book was right at its last row: whether messages were lost between that row and the given time."""
        following = self._own_rows(day)
        following = following[following > end]
        if len(following):
            row = int(following[0])
            known = int(day.rows.rows.column("rpt_seq")[end]) if end >= 0 else NULL
            rpt_seq = int(day.rows.rows.column("rpt_seq")[row])
            follows = newest >= 0 or NULL in (known, rpt_seq) or rpt_seq == known + 1
            if follows and day.result.bad[row] == 0 and not self._was_recovered_later(day, end, row, newest):
                return None
        elif not self._ends_untrusted() and not self._was_recovered_later(day, end, len(day.rows), newest):
            return None
        since = self._ts_and_sequence(day, end)[1] if newest < 0 else None
        lost = self._first_loss(day, end, since)
        if lost is not None and self.as_of_ns < lost:
            return None
        when = "" if lost is None else f" at {utc_text(lost)}"
        return f"messages were lost after its last row, perhaps{when} before this time"

    def _was_recovered_later(self, day: DayReplay, end: int, row: int, newest: int) -> bool:
        """Whether a snapshot had to replace the book before its next row, although it was right here."""
        positions = day.result.recovery_position[day.snapshots.book[day.result.recovery_snapshots] == self._book_index]
        return bool(((positions > max(2 * end + 1, newest)) & (positions <= 2 * row)).any())

    def _ends_untrusted(self) -> bool:
        from umdf.lake.books.state_record import EVENT_FLAGS, decode_state_rows

        states = [one for one in decode_state_rows(self.states) if one.header["lending"] == self._book_index]
        ends = [one for one in states if one.flags & EVENT_FLAGS == 0]
        newest = max(ends, key=lambda one: (one.header["ts_recv"], one.key), default=None)
        return newest is None or newest.flags & MAYBE_BAD_BOOK != 0

    def _first_loss(self, day: DayReplay, end: int, since: int | None) -> int | None:
        """When the last packet before the first gap after a sequence was received or sent: the loss came later."""
        question = query_of("gaps", filters={self.part: InstrumentFilter()})
        rows = read_rows(self.snapshot, question, ["stream", "seq_version", "first_sequence"])
        rows = filter_rows(rows, is_in(rows.column("stream"), ["incremental"]))
        version = int(day.rows.units.seq_version[day.rows.rows.unit[end]]) if end >= 0 else None
        if since is None or version is None:
            return None
        first = int64_values(rows.column("first_sequence"))
        behind = first[(int64_values(rows.column("seq_version")) == version) & (first > since)]
        if not len(behind):
            return None
        return self._packet_ts(version, int(behind.min()) - 1)

    def _packet_ts(self, version: int, sequence: int) -> int | None:
        question = query_of("packets", filters={self.part: InstrumentFilter()})
        rows = read_rows(self.snapshot, question, ["stream", "seq_version", "sequence", self.time_column])
        chosen = is_in(rows.column("stream"), ["incremental"]) & (int64_values(rows.column("sequence")) == sequence)
        own = filter_rows(rows, chosen & (int64_values(rows.column("seq_version")) == version))
        times = int64_values(own.column(self.time_column))
        return int(times.min()) if len(times) else None


def _empty_book(number: int, lending: bool) -> Book:
    from umdf.book.views import ENTRY_DTYPE, Book

    return Book(number, lending, None, None, False, None, np.empty(0, ENTRY_DTYPE))
