"""The book of an instrument at a moment, with every order in it.

The one rule: a book that may be wrong says so. It is what the feed had said when the last packet by then had come, cut
at the end of an event, exactly as `mbp_10` would show it; and where the rows after the moment show that something was
lost before them, and it cannot be told to have been lost after the moment, the book is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError, UsageError
from umdf.lake.query.arrays import is_text, numbers, rows_where
from umdf.lake.query.made import Task, book_rows
from umdf.lake.query.prices import Style
from umdf.lake.query.reading import Part, Reading, Wanted, question_of, read
from umdf.lake.query.symbols import Catalogue
from umdf.lake.query.times import Span, date_of, moment
from umdf.lake.snapshot import Snapshot
from umdf.market.events import MAYBE_BAD_BOOK, NULL
from umdf.units import utc_text

if TYPE_CHECKING:
    from umdf.book.views import Book, Level
    from umdf.lake.derive import Replay

PRICE = {"unit": "1e-9"}
LEVELS = pa.schema(
    [
        pa.field("side", pa.utf8()),
        pa.field("level", pa.int32(), metadata={"doc": "from 0, the best"}),
        pa.field("price", pa.int64(), metadata=PRICE),
        pa.field("size", pa.int64()),
        pa.field("count", pa.int32()),
    ]
)
ORDERS = pa.schema(
    [
        *(LEVELS.field(name) for name in ("side", "level", "price")),
        pa.field("size", pa.int64()),
        pa.field("order_id", pa.int64()),
        pa.field("firm", pa.int64()),
        pa.field("ts_insert", pa.int64(), metadata={"unit": "ns since 1970 UTC"}),
        pa.field("implied", pa.bool_()),
    ]
)


@dataclass(frozen=True, eq=False)
class BookAt:
    """A book at a moment. `doubt` says in words why it may be wrong; without it, it is right."""

    symbol: str
    instrument_id: int
    trading_date: date
    channel_id: int
    book: Book  # prices in units of 1e-9
    depth: int | None
    ts_recv: int | None  # of the last row in it
    sequence: int | None
    doubt: str | None

    @property
    def trusted(self) -> bool:
        return self.doubt is None

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
            for side, at, level in self._levels()
        ]
        return Style(price_type).table(pa.Table.from_pylist(rows, LEVELS))

    def orders(self, price_type: str = "decimal") -> pa.Table:
        """Every order in its priority; none of a book by price."""
        rows = [
            {"side": side, "level": at, "price": level.price, **vars(order)}
            for side, at, level in self._levels()
            for order in level.orders
        ]
        return Style(price_type).table(pa.Table.from_pylist(rows, ORDERS))

    def _levels(self) -> list[tuple[str, int, Level]]:
        sides = (("B", self.bids), ("A", self.asks))
        return [(side, at, level) for side, own in sides for at, level in enumerate(own)]

    def __repr__(self) -> str:
        said = f", not trusted: {self.doubt}" if self.doubt else ""
        levels = f"{len(self.bids)} bids, {len(self.asks)} asks"
        return f"<BookAt {self.symbol} {self.trading_date} channel {self.channel_id}: {levels}{said}>"


def book_at(
    catalogue: Catalogue, symbol: Any, at: Any, depth: int | None, channel: int | None, lending: bool, stype_in: str
) -> BookAt:
    if depth is not None and (isinstance(depth, bool) or depth < 1):
        raise UsageError(f"depth {depth} is no number of levels", "leave it out for all of them")
    when = moment(at, "at")
    day = date_of(when) if isinstance(when, int) else when
    span = Span(day, date.fromordinal(day.toordinal() + 1))
    selection = catalogue.selection(symbol, stype_in, span, ["mbo"])
    if selection is None or len(selection.asked) != 1:
        raise UsageError("book_at: one symbol at a time", "call it again for each")
    places = [
        (part, number)
        for part, wanted in selection.wanted.items()
        for number in sorted(wanted.ids or ())
        if part[0] == day and channel in (None, part[1])
    ]
    if len(places) != 1:
        raise _ambiguous(selection.asked[0], day, channel, [part for part, _ in places])
    part, number = places[0]
    limit = when if isinstance(when, int) else None
    return _Moment(catalogue.snapshot, part, number, limit, lending).book(selection.asked[0], depth)


def _ambiguous(symbol: str, day: date, channel: int | None, parts: list[Part]) -> UmdfError:
    if not parts:
        where = f" on channel {channel}" if channel is not None else ""
        return UmdfError(f"{symbol} is not listed{where} on {day}", "leave the channel out, or ask for another")
    channels = sorted({str(channel) for _, channel in parts})
    hint = f"say channel={channels[0]}" if len(channels) > 1 else "ask by its number: stype_in='instrument_id'"
    return UmdfError(f"{symbol} is more than one instrument on {day}: channels {', '.join(channels)}", hint)


class _Moment:
    """One instrument of a channel-day up to a moment (None: to the end)."""

    def __init__(self, snapshot: Snapshot, part: Part, number: int, limit: int | None, lending: bool) -> None:
        self.snapshot, self.part, self.number, self.lending = snapshot, part, number, lending
        self.limit = (1 << 63) - 1 if limit is None else limit
        self.mbo, self.states = book_rows(snapshot, Task(part, Wanted(frozenset({number}))), Reading())

    def book(self, symbol: str, depth: int | None) -> BookAt:
        from umdf.lake.derive import replay

        day = replay(self.mbo, self.states)
        end, heals = self._cut(day)
        until = replay(*self._until(day, end, heals))
        found = until.run.books.book(self.number, lending=self.lending) if len(until.ids) else None
        received, sequence = (None, None) if end < 0 else self._place(day, end)
        doubt = self._doubt(day, end, heals, found)
        if found is None:
            found = _empty_book(self.number, self.lending)
        trading_date, channel = self.part
        assert trading_date is not None and channel is not None
        return BookAt(symbol, self.number, trading_date, channel, found, depth, received, sequence, doubt)

    def _cut(self, day: Replay) -> tuple[int, list[int]]:
        """The last row that ends an event by then, and the snapshots that took the place of the book up to there.

        Rows are applied in order, so a packet that came late holds back those behind it.
        """
        rows, own = day.rows, self._own(day)
        came = np.maximum.accumulate(rows.units.ts_recv[rows.rows.unit[own]]) if len(own) else np.empty(0, np.int64)
        by_then = own[came <= self.limit]
        ends = by_then[day.told.is_end[by_then]]
        end = int(ends[-1]) if len(ends) else -1
        following = own[own > end]
        next_row = int(following[0]) if len(following) else len(rows)
        heals = [
            int(line)
            for line, place in zip(day.told.heals.tolist(), day.told.heal_place.tolist(), strict=True)
            if day.snapshots.book[line] == self._book
            and (place <= 2 * end + 1 or (place <= 2 * next_row and day.stored[line].head["ts_recv"] <= self.limit))
        ]
        return end, heals

    @property
    def _book(self) -> int:
        return 1 if self.lending else 0  # there is one instrument

    def _own(self, day: Replay) -> Any:
        return np.flatnonzero(day.rows.book == self._book) if len(day.rows) else np.empty(0, np.int64)

    def _place(self, day: Replay, row: int) -> tuple[int, int]:
        units, unit = day.rows.units, day.rows.rows.unit[row]
        return int(units.ts_recv[unit]), int(units.sequence[unit])

    def _until(self, day: Replay, end: int, heals: list[int]) -> tuple[pa.Table, pa.Table]:
        """What `mbo` and `book_state` have up to there."""
        from umdf.lake.book_rows import is_between, wire_key
        from umdf.lake.book_state import HAPPENED
        from umdf.market.events import SNAPSHOT

        until = (int(day.rows.epoch[end]), int(day.rows.key[end])) if end >= 0 else (-1, 0)

        def is_before(rows: pa.Table) -> Any:
            if not rows.num_rows:
                return np.empty(0, np.bool_)
            epoch = day.epochs.ranks(numbers(rows.column("seq_version")))
            key = wire_key(*(numbers(rows.column(name)) for name in ("sequence", "msg_index", "entry_index")))
            return is_between(epoch, key, None, until)

        flags = numbers(self.states.column("flags"))
        keys = {(day.stored[line].seq_version, day.stored[line].key) for line in heals}
        versions, places = (numbers(self.states.column(name)) for name in ("seq_version", "sequence"))
        inside = (numbers(self.states.column(name)) for name in ("msg_index", "entry_index"))
        whole = [p << 32 | m << 16 | e for p, m, e in zip(places.tolist(), *(i.tolist() for i in inside), strict=True)]
        healing = np.array([pair in keys for pair in zip(versions.tolist(), whole, strict=True)], np.bool_)
        kept = np.where(flags & SNAPSHOT != 0, healing, (flags & HAPPENED == 0) | is_before(self.states))
        return rows_where(self.mbo, is_before(self.mbo)), rows_where(self.states, kept.astype(np.bool_))

    def _doubt(self, day: Replay, end: int, heals: list[int], book: Book | None) -> str | None:
        told = day.told
        newest = max((int(told.heal_place[told.heals == line][0]) for line in heals), default=-1)
        if end < 0 and newest < 0:
            return "nothing was said about it before this moment"
        healed = newest > 2 * end + 1
        if not healed and told.bad[end] != 0:
            return "something was lost before it"
        if book is None or book.stale is not None:
            return "its rows do not fit together"
        return self._loss_after(day, end, newest if healed else -1)

    def _loss_after(self, day: Replay, end: int, newest: int) -> str | None:
        """The book was right at its last row. Was something lost between that row and the moment?"""
        following = self._own(day)
        following = following[following > end]
        if len(following):
            row = int(following[0])
            known = int(day.rows.rows.column("rpt_seq")[end]) if end >= 0 else NULL
            rpt_seq = int(day.rows.rows.column("rpt_seq")[row])
            follows = newest >= 0 or NULL in (known, rpt_seq) or rpt_seq == known + 1
            if follows and day.told.bad[row] == 0 and not self._healed_later(day, end, row, newest):
                return None
        elif not self._ends_badly() and not self._healed_later(day, end, len(day.rows), newest):
            return None
        since = self._place(day, end)[1] if newest < 0 else None
        lost = self._first_loss(day, end, since)
        if lost is not None and self.limit < lost:
            return None
        when = "" if lost is None else f" at {utc_text(lost)}"
        return f"something was lost after its last row, perhaps{when} before this moment"

    def _healed_later(self, day: Replay, end: int, row: int, newest: int) -> bool:
        """Whether a snapshot had to take its place before the next row, though it was right here."""
        places = day.told.heal_place[day.snapshots.book[day.told.heals] == self._book]
        return bool(((places > max(2 * end + 1, newest)) & (places <= 2 * row)).any())

    def _ends_badly(self) -> bool:
        from umdf.lake.book_state import HAPPENED, states_in

        states = [one for one in states_in(self.states) if one.head["lending"] == self._book]
        ends = [one for one in states if one.flags & HAPPENED == 0]
        newest = max(ends, key=lambda one: (one.head["ts_recv"], one.key), default=None)
        return newest is None or newest.flags & MAYBE_BAD_BOOK != 0

    def _first_loss(self, day: Replay, end: int, since: int | None) -> int | None:
        """When the last packet before the first gap behind a number came: what was lost, was lost after it."""
        question = question_of("gaps", wanted={self.part: Wanted()})
        rows = read(self.snapshot, question, ["stream", "seq_version", "first_sequence"])
        rows = rows_where(rows, is_text(rows.column("stream"), ["incremental"]))
        version = int(day.rows.units.seq_version[day.rows.rows.unit[end]]) if end >= 0 else None
        if since is None or version is None:
            return None
        first = numbers(rows.column("first_sequence"))
        behind = first[(numbers(rows.column("seq_version")) == version) & (first > since)]
        if not len(behind):
            return None
        return self._came(version, int(behind.min()) - 1)

    def _came(self, version: int, sequence: int) -> int | None:
        question = question_of("packets", wanted={self.part: Wanted()})
        rows = read(self.snapshot, question, ["stream", "seq_version", "sequence", "ts_recv"])
        chosen = is_text(rows.column("stream"), ["incremental"]) & (numbers(rows.column("sequence")) == sequence)
        own = rows_where(rows, chosen & (numbers(rows.column("seq_version")) == version))
        times = numbers(own.column("ts_recv"))
        return int(times.min()) if len(times) else None


def _empty_book(number: int, lending: bool) -> Book:
    from umdf.book.views import ENTRY, Book

    return Book(number, lending, None, None, False, None, np.empty(0, ENTRY))
