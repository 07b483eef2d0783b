"""Trades with the quotes before them: an as-of join, instrument by instrument, without a loop over rows.

The one rule: a quote is before a trade, never beside it. By "position" that is the order of the feed, which is exact:
the last event that ended before the trade's own. By a time, it is the last quote with an earlier time; rows of one
packet or event have equal times, so quotes that a trade itself has caused are never joined to it. A new numbering of
the channel (seq_version) begins with no quotes, as its books do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.query.arrays import numbers, rows_where
from umdf.lake.query.made import TASK_ROWS, Levels, Task, instrument_tasks, parts_to_make
from umdf.lake.query.names import DERIVED, PLACE
from umdf.lake.query.reading import EVER, Question, Reading, Wanted, by_part, chosen, question_of, read
from umdf.lake.schemas import Table, levels
from umdf.lake.schemas import table as table_named
from umdf.lake.snapshot import Snapshot
from umdf.market.events import MAYBE_BAD_BOOK, NULL

BY = ("position", "ts_event", "ts_recv")
QUOTES = tuple(DERIVED)
OF_QUOTE = ("ts_event", "ts_recv", "sequence", "flags")  # as quote_ts_event …
KEYS = ("instrument_id", "seq_version", *PLACE, "ts_event", "ts_send", "ts_recv", "flags")
Numbers = NDArray[np.int64]


def quote_fields(quotes: str) -> list[pa.Field]:
    """What stands behind the columns of a trade."""
    schema = table_named(quotes).schema
    about = [schema.field(name).with_name(f"quote_{name}").with_nullable(True) for name in OF_QUOTE]
    return [*about, *(schema.field(column.name) for column in levels(DERIVED[quotes]))]


@dataclass(frozen=True)
class TradesWithQuotes:
    """A row for each row of `trades` that a question asks for."""

    question: Question  # of trades
    quotes: str = "mbp_1"
    by: str = "position"

    @property
    def table(self) -> Table:
        return self.question.table

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.table.schema, *quote_fields(self.quotes)])

    def tasks(self, snapshot: Snapshot, most_rows: int = TASK_ROWS) -> list[Task]:
        parts = list(by_part(chosen(snapshot, self.question)))
        return instrument_tasks(snapshot, self.question, parts, ("trades", self._source(snapshot)), most_rows)

    def _source(self, snapshot: Snapshot) -> str:
        return self.quotes if snapshot.adds(self.quotes) else "mbo"

    def make(self, snapshot: Snapshot, task: Task, reading: Reading) -> pa.Table:
        trades = read(snapshot, replace(self.question, wanted={task.part: task.wanted}), None, reading)
        quotes = self._quotes(snapshot, task, reading)
        place = quotes_before(trades, quotes, self.by)
        own = [quotes.column(field.name.removeprefix("quote_")) for field in quote_fields(self.quotes)]
        found = pa.table(own, pa.schema(quote_fields(self.quotes))).take(_or_null(place))
        rows = pa.Table.from_arrays([*trades.columns, *found.columns], schema=self.schema)
        if not self.question.exclude_stale:
            return rows
        flags = numbers(rows.column("quote_flags"))
        return rows_where(rows, (flags == NULL) | (flags & MAYBE_BAD_BOOK == 0))

    def _quotes(self, snapshot: Snapshot, task: Task, reading: Reading) -> pa.Table:
        """Those of the whole day: the one before the first trade can be hours old."""
        wanted = {task.part: Wanted(task.wanted.ids)}
        question = question_of(self.quotes, wanted=wanted, span=EVER)
        if task.part in parts_to_make(snapshot, question):
            return Levels(question).make(snapshot, Task(task.part, wanted[task.part]), reading)
        names = {*KEYS, *(column.name for column in levels(DERIVED[self.quotes]))}
        columns = [name for name in question.table.schema.names if name in names]
        return read(snapshot, question, columns, reading, ordered=False)


def quotes_before(trades: pa.Table, quotes: pa.Table, by: str) -> Numbers:
    """For each trade the place of the last quote before it; -1 if there is none. All of one date and channel."""
    base = min((int(numbers(rows.column("sequence")).min()) for rows in (trades, quotes) if rows.num_rows), default=0)
    codes = _groups(trades, quotes)
    trade_group, quote_group = codes[: trades.num_rows], codes[trades.num_rows :]
    every = np.arange(int(codes.max(initial=-1)) + 2)
    trade_key, quote_key = (_keys(rows, by, base) for rows in (trades, quotes))
    # Of equal times the last in the feed counts.
    quote_order = np.lexsort((_keys(quotes, "position", base), quote_key, quote_group))
    trade_order = np.argsort(trade_group, kind="stable")
    starts = np.searchsorted(quote_group[quote_order], every)
    edges = np.searchsorted(trade_group[trade_order], every)
    found = np.full(trades.num_rows, -1, np.int64)
    sorted_keys = quote_key[quote_order]
    for group in np.flatnonzero(np.diff(edges)).tolist():
        own, first, last = trade_order[edges[group] : edges[group + 1]], int(starts[group]), int(starts[group + 1])
        if last > first:
            behind = np.searchsorted(sorted_keys[first:last], trade_key[own], side="left")
            found[own] = np.where(behind > 0, quote_order[first + np.maximum(behind - 1, 0)], -1)
    return found


def _groups(trades: pa.Table, quotes: pa.Table) -> Numbers:
    """A number for each instrument and numbering of the channel."""
    found = np.zeros(trades.num_rows + quotes.num_rows, np.int64)
    for name in ("instrument_id", "seq_version"):
        both = np.concatenate([numbers(rows.column(name)) for rows in (trades, quotes)])
        values, places = np.unique(both, return_inverse=True)
        found = found * len(values) + places
    return found


def _keys(rows: pa.Table, by: str, base: int) -> NDArray[Any]:
    """What is compared: the place in the feed in one number, or a time (ts_send, where ts_event is not said)."""
    if by == "position":
        sequence, message, entry = (numbers(rows.column(name)) for name in PLACE)
        # A book that comes back by a snapshot stands behind message 65,535 of its packet: 17 bits.
        return ((sequence - base).astype(np.uint64) << np.uint64(33)) + ((message << 16) + entry).astype(np.uint64)
    times = numbers(rows.column(by))
    return np.where(times == NULL, numbers(rows.column("ts_send")), times)


def _or_null(places: Numbers) -> pa.Array:
    validity = pa.py_buffer(np.packbits(places >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(places), [validity, pa.py_buffer(np.ascontiguousarray(places))])
