"""Books on demand: `mbp_10` (and `mbp_1`) from `mbo` and `book_state`, computed when read, never stored.

Invariant: exactly the rows that the books task would write. Whether a book can be trusted is in the rows of `mbo`
(MAYBE_BAD_BOOK); other changes of books (snapshots, resets) are in `book_state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.errors import UmdfError
from umdf.lake.books.gap_recovery import Timeline
from umdf.lake.books.instrument_rows import Epochs, RowsByBook, StagedRows, group_by_book
from umdf.lake.books.levels import mbp_table
from umdf.lake.books.replay import BookReplay, ReplayResult
from umdf.lake.books.reset_rows import resets_from_states
from umdf.lake.books.snapshot_rows import BookSnapshots
from umdf.lake.books.state_record import FORMAT, BookState, decode_state_rows
from umdf.market.families import COMMON, IMPLIED, LAST, MAYBE_BAD_BOOK, MBO, NULL, NULL_I32, SNAPSHOT, Column
from umdf.market.rows import Rows

DEPTH = 10
SIDES = np.array([ord("B"), ord("A")], np.uint8)
INDEX_TYPES = {"msg_index": np.uint16, "entry_index": np.uint16}


@dataclass(eq=False)
class DayReplay:
    """Some instruments of one channel-day, replayed from the first row to the last."""

    ids: NDArray[np.int64]
    rows: RowsByBook
    snapshot_states: list[BookState]  # the snapshots, in the order of `snapshots`
    snapshots: BookSnapshots
    result: ReplayResult
    books_replay: BookReplay
    epochs: Epochs


def replay_day(mbo: pa.Table, state_rows: pa.Table, depth: int = DEPTH) -> DayReplay:
    """The books of some instruments, from all their rows of `mbo` and `book_state` of one channel-day."""
    mbo = mbo.filter(mbo.column("instrument_id").is_valid())
    if not set(state_rows.column("format").to_pylist()) <= {FORMAT}:
        raise UmdfError("the stored books have another format version", "rebuild the day with `umdf lake rebuild LAKE`")
    book_events = decode_state_rows(state_rows)
    all_ids = np.concatenate([mbo.column("instrument_id").to_numpy(), [one.instrument_id for one in book_events]])
    ids, epochs = np.unique(all_ids.astype(np.int64)), Epochs()
    batch = _to_staged(mbo)
    order = np.argsort(batch.column("ts_recv").to_numpy(), kind="stable")  # epochs in order of first appearance
    epochs.ranks(batch.column("seq_version").to_numpy()[order])
    synthetic = resets_from_states([one for one in book_events if one.flags & LAST], batch.schema)
    rows = group_by_book(StagedRows([(batch, None)]), "mbo", ids, epochs, synthetic)
    snapshot_states = [one for one in book_events if one.flags & SNAPSHOT]
    snapshot_states.sort(
        key=lambda one: (one.instrument_id, one.header["lending"], epochs.rank(one.seq_version), one.key)
    )
    snapshots = _snapshots_from_states(snapshot_states, ids, epochs)
    books_replay = BookReplay(ids, Timeline(), depth)
    books_replay.always_recovers = True
    for one in book_events:
        if one.book_header["declared_depth"] != k.UNDECLARED:
            books_replay.books.set_depth(
                one.instrument_id, one.book_header["declared_depth"], lending=bool(one.header["lending"])
            )
    result = books_replay.apply(rows, snapshots)
    if len(rows):
        result.bad[:] = rows.rows.column("flags") & MAYBE_BAD_BOOK != 0
    return DayReplay(ids, rows, snapshot_states, snapshots, result, books_replay, epochs)


def derive_levels(mbo: pa.Table, states: pa.Table, depth: int) -> pa.Table:
    """Rows of mbp_1 or mbp_10."""
    day = replay_day(mbo, states, depth)
    return mbp_table(day.rows, day.snapshots, day.result, depth, day.ids, _symbols_by_id(mbo, day.ids), day.epochs)


def derive_mbp_10(mbo: pa.Table, states: pa.Table) -> pa.Table:
    return derive_levels(mbo, states, DEPTH)


def _symbols_by_id(mbo: pa.Table, ids: NDArray[np.int64]) -> pa.Array:
    pairs = mbo.select(["instrument_id", "symbol"]).group_by("instrument_id").aggregate([("symbol", "max")])
    known = dict(zip(*(pairs.column(name).to_pylist() for name in ("instrument_id", "symbol_max")), strict=True))
    return pa.array([known.get(number) for number in ids.tolist()], pa.utf8())


def _to_staged(rows: pa.Table) -> pa.RecordBatch:
    """Rows of the table in staged form: NULLs as numbers, characters as bytes."""
    arrays: dict[str, pa.Array] = {}
    for column in (*COMMON, *MBO.columns):
        if column.name == "channel_id":
            arrays[column.name] = pa.array(np.zeros(rows.num_rows, np.int16))
        else:
            kind = INDEX_TYPES.get(column.name, column.dtype)
            arrays[column.name] = pa.array(_raw_values(rows.column(column.name).combine_chunks(), column).astype(kind))
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _raw_values(values: Any, column: Column) -> NDArray[Any]:
    if column.type == "char":
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        letters = np.array([ord(letter) for letter in coded.dictionary.to_pylist()] + [0], np.uint8)
        return letters[np.asarray(coded.indices.fill_null(len(letters) - 1))]
    if column.type == "date":
        values = values.cast(pa.int32())
    return values.fill_null(column.null).to_numpy(zero_copy_only=False)


def _snapshots_from_states(states: list[BookState], ids: NDArray[np.int64], epochs: Epochs) -> BookSnapshots:
    """Stored books, as the snapshots from which they were stored."""
    numbers = np.array([one.instrument_id for one in states], np.int64)
    lending = np.array([one.header["lending"] for one in states], np.int32)
    offsets = np.zeros(len(states) + 1, np.int32)
    np.cumsum([1 + len(one.section("entries")) for one in states], out=offsets[1:])
    total = int(offsets[-1])
    owner = np.repeat(np.arange(len(states)), np.diff(offsets))
    columns: dict[str, NDArray[Any]] = {
        column.name: np.full(total, column.null if column.nullable else 0, column.dtype) for column in MBO.columns
    }
    first = offsets[:-1]
    entry = np.ones(total, np.bool_)
    entry[first] = False
    columns |= {
        "instrument_id": numbers[owner],
        "flags": np.full(total, SNAPSHOT, np.int32),
        "rpt_seq": np.array([one.rpt_seq for one in states], np.int64)[owner],
        "ts_event": np.full(total, NULL),
    }
    columns["action"][:], columns["side"][:], columns["update_action"][:] = ord("A"), ord("N"), 0
    columns["action"][first] = ord("R")
    columns["venue"][lending[owner] != 0] = ord("L")
    if entry.any():
        _fill_entries(columns, entry, states, owner)
    none = np.zeros(total, np.uint16)
    rows = Rows(MBO, np.zeros(total, np.uint32), none, none, columns)
    version = [one.seq_version for one in states]
    return BookSnapshots(
        (2 * np.searchsorted(ids, numbers) + lending).astype(np.int32),
        epochs.ranks(np.array(version, np.int64)),
        np.array([one.key >> 32 for one in states], np.int64),
        np.array([one.rpt_seq for one in states], np.int64),
        np.array(
            [
                one.book_header["declared_depth"] if one.book_header["declared_depth"] > 0 else NULL_I32
                for one in states
            ],
            np.int32,
        ),
        np.full(len(states), NULL),
        np.full(len(states), NULL),
        np.array([one.header["ts_send"] for one in states], np.int64),
        np.array([one.header["ts_recv"] for one in states], np.int64),
        rows,
        offsets,
    )


def _fill_entries(
    columns: dict[str, NDArray[Any]], entry: NDArray[np.bool_], states: list[BookState], owner: NDArray[np.int64]
) -> None:
    entries = np.concatenate([one.section("entries") for one in states])
    kind = np.array([one.book_header["book_type"] for one in states], np.int64)[owner[entry]]
    columns["side"][entry] = SIDES[entries["side"]]
    for name in ("price", "size", "order_id", "firm", "ts_insert"):
        columns[name][entry] = entries[name]
    columns["flags"][entry] |= np.where(entries["implied"] != 0, IMPLIED, 0).astype(np.int32)
    columns["order_count"][entry] = np.where(kind & k.AGGREGATED != 0, entries["count"], NULL_I32)
    group = 2 * owner[entry] + entries["side"]
    rank = np.arange(len(entries)) - np.searchsorted(group, group) + 1  # bids come first, the best one first
    columns["position"][entry] = np.where(kind & k.BY_POSITION != 0, rank, NULL_I32)
