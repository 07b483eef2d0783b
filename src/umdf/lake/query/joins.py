"""Trades with the quotes before them: an as-of join, instrument by instrument, without a loop over rows.

Invariant: a quote is strictly before its trade. By "position" that is wire order, which is exact: the last
event that ended before the trade's own. By a time, it is the last quote with an earlier time; rows of one packet or
event have equal times, so quotes caused by a trade are never joined to it. A new epoch of the channel (seq_version)
starts without quotes, as its books do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.query.arrays import filter_rows, int64_values
from umdf.lake.query.computed_rows import TASK_ROWS, DerivedLevels, DeriveTask, instrument_tasks, partitions_to_derive
from umdf.lake.query.name_lookup import DERIVED_DEPTHS, STREAM_ORDER
from umdf.lake.query.table_reader import (
    ALL_TIMES,
    InstrumentFilter,
    Query,
    ReadStats,
    group_by_partition,
    query_of,
    read_rows,
    select_files,
)
from umdf.lake.schemas import Table, levels
from umdf.lake.schemas import table as table_named
from umdf.market.families import MAYBE_BAD_BOOK, NULL

JOIN_ORDERS = ("position", "ts_event", "ts_recv")
QUOTE_TABLES = tuple(DERIVED_DEPTHS)
QUOTE_COLUMNS = ("ts_event", "ts_recv", "sequence", "flags")  # as quote_ts_event …
KEYS = ("instrument_id", "seq_version", *STREAM_ORDER, "ts_event", "ts_send", "ts_recv", "flags")
Numbers = NDArray[np.int64]


def quote_fields(quotes: str) -> list[pa.Field]:
    """The columns after those of the trade."""
    schema = table_named(quotes).schema
    about = [schema.field(name).with_name(f"quote_{name}").with_nullable(True) for name in QUOTE_COLUMNS]
    return [*about, *(schema.field(column.name) for column in levels(DERIVED_DEPTHS[quotes]))]


@dataclass(frozen=True)
class TradesWithQuotes:
    """One row per selected row of `trades`."""

    query: Query  # of trades
    quotes: str = "mbp_1"
    by: str = "position"

    @property
    def table(self) -> Table:
        return self.query.table

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.table.schema, *quote_fields(self.quotes)])

    def tasks(self, snapshot: LakeSnapshot, max_rows: int = TASK_ROWS) -> list[DeriveTask]:
        parts = list(group_by_partition(select_files(snapshot, self.query)))
        return instrument_tasks(snapshot, self.query, parts, ("trades", self._quote_source(snapshot)), max_rows)

    def _quote_source(self, snapshot: LakeSnapshot) -> str:
        return self.quotes if snapshot.adds(self.quotes) else "mbo"

    def derive(self, snapshot: LakeSnapshot, task: DeriveTask, stats: ReadStats) -> pa.Table:
        trades = read_rows(snapshot, replace(self.query, filters={task.partition: task.instrument_filter}), None, stats)
        quotes = self._read_quotes(snapshot, task, stats)
        place = quotes_before(trades, quotes, self.by)
        own = [quotes.column(field.name.removeprefix("quote_")) for field in quote_fields(self.quotes)]
        found = pa.table(own, pa.schema(quote_fields(self.quotes))).take(_nullable_indices(place))
        rows = pa.Table.from_arrays([*trades.columns, *found.columns], schema=self.schema)
        if not self.query.exclude_stale:
            return rows
        flags = int64_values(rows.column("quote_flags"))
        return filter_rows(rows, (flags == NULL) | (flags & MAYBE_BAD_BOOK == 0))

    def _read_quotes(self, snapshot: LakeSnapshot, task: DeriveTask, reading: ReadStats) -> pa.Table:
        """The quotes of the whole day: the one before the first trade can be hours old."""
        wanted = {task.partition: InstrumentFilter(task.instrument_filter.ids)}
        question = query_of(self.quotes, filters=wanted, span=ALL_TIMES)
        if task.partition in partitions_to_derive(snapshot, question):
            return DerivedLevels(question).derive(snapshot, DeriveTask(task.partition, wanted[task.partition]), reading)
        names = {*KEYS, *(column.name for column in levels(DERIVED_DEPTHS[self.quotes]))}
        columns = [name for name in question.table.schema.names if name in names]
        return read_rows(snapshot, question, columns, reading, ordered=False)


def quotes_before(trades: pa.Table, quotes: pa.Table, by: str) -> Numbers:
    """For each trade the index of the last quote before it; -1 if there is none. All of one channel-day."""
    base = min(
        (int(int64_values(rows.column("sequence")).min()) for rows in (trades, quotes) if rows.num_rows), default=0
    )
    codes = _group_codes(trades, quotes)
    trade_group, quote_group = codes[: trades.num_rows], codes[trades.num_rows :]
    every = np.arange(int(codes.max(initial=-1)) + 2)
    trade_key, quote_key = (_sort_keys(rows, by, base) for rows in (trades, quotes))
    # Of quotes with equal times, the last in the feed counts.
    quote_order = np.lexsort((_sort_keys(quotes, "position", base), quote_key, quote_group))
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


def _group_codes(trades: pa.Table, quotes: pa.Table) -> Numbers:
    """A code per instrument and epoch of the channel."""
    found = np.zeros(trades.num_rows + quotes.num_rows, np.int64)
    for name in ("instrument_id", "seq_version"):
        both = np.concatenate([int64_values(rows.column(name)) for rows in (trades, quotes)])
        values, places = np.unique(both, return_inverse=True)
        found = found * len(values) + places
    return found


def _sort_keys(rows: pa.Table, by: str, base: int) -> NDArray[Any]:
    """The sort key: the position in the feed as one number, or a time (ts_send if ts_event is absent)."""
    if by == "position":
        sequence, message, entry = (int64_values(rows.column(name)) for name in STREAM_ORDER)
        # A book recovered by a snapshot comes after message 65,535 of its packet: 17 bits.
        return ((sequence - base).astype(np.uint64) << np.uint64(33)) + ((message << 16) + entry).astype(np.uint64)
    times = int64_values(rows.column(by))
    return np.where(times == NULL, int64_values(rows.column("ts_send")), times)


def _nullable_indices(places: Numbers) -> pa.Array:
    validity = pa.py_buffer(np.packbits(places >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(places), [validity, pa.py_buffer(np.ascontiguousarray(places))])
