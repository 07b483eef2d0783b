"""Books on demand: `mbp_10` (and `mbp_1`) from `mbo` and `book_state`, for whoever asks, without storing it.

The one rule: exactly the rows that the books task would have written. Whether a book can be trusted is in the rows of
`mbo` (MAYBE_BAD_BOOK); what happened to books outside of them is in `book_state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book import tables_kernel as k
from umdf.errors import UmdfError
from umdf.lake.book_made import empty_books
from umdf.lake.book_rows import Chosen, Epochs, Grouped, grouped
from umdf.lake.book_state import FORMAT, Stored, states_in
from umdf.lake.gap_cures import Timeline
from umdf.lake.healing import BookRun, Told
from umdf.lake.levels import updates
from umdf.lake.snapshot_rows import SnapshotLines
from umdf.market.events import COMMON, IMPLIED, LAST, MAYBE_BAD_BOOK, MBO, NULL, NULL_I32, SNAPSHOT, Column
from umdf.market.rows import Rows

DEPTH = 10
SIDES = np.array([ord("B"), ord("A")], np.uint8)
PLACE_TYPES = {"msg_index": np.uint16, "entry_index": np.uint16}


@dataclass(eq=False)
class Replay:
    """Some instruments of one channel and date, applied from the first row to the last."""

    ids: NDArray[np.int64]
    rows: Grouped
    stored: list[Stored]  # the snapshots, in the order of `snapshots`
    snapshots: SnapshotLines
    told: Told
    run: BookRun
    epochs: Epochs


def replay(mbo: pa.Table, states: pa.Table, depth: int = DEPTH) -> Replay:
    """The books of some instruments, from all their rows of `mbo` and `book_state` of one channel and date."""
    mbo = mbo.filter(mbo.column("instrument_id").is_valid())
    if not set(states.column("format").to_pylist()) <= {FORMAT}:
        raise UmdfError("the lake holds books of another version", "reprocess the day: `umdf lake reprocess`")
    happened = states_in(states)
    every = np.concatenate([mbo.column("instrument_id").to_numpy(), [one.instrument_id for one in happened]])
    ids, epochs = np.unique(every.astype(np.int64)), Epochs()
    batch = _as_staged(mbo)
    order = np.argsort(batch.column("ts_recv").to_numpy(), kind="stable")  # epochs by their first appearance
    epochs.ranks(batch.column("seq_version").to_numpy()[order])
    made = empty_books([one for one in happened if one.flags & LAST], batch.schema)
    rows = grouped(Chosen([(batch, None)]), "mbo", ids, epochs, made)
    stored = [one for one in happened if one.flags & SNAPSHOT]
    stored.sort(key=lambda one: (one.instrument_id, one.head["lending"], epochs.rank(one.seq_version), one.key))
    snapshots = _snapshots(stored, ids, epochs)
    run = BookRun(ids, Timeline(), depth)
    run.heals_all = True
    for one in happened:
        if one.book["said"] != k.NOT_SAID:
            run.books.set_depth(one.instrument_id, one.book["said"], lending=bool(one.head["lending"]))
    told = run.run(rows, snapshots)
    if len(rows):
        told.bad[:] = rows.rows.column("flags") & MAYBE_BAD_BOOK != 0
    return Replay(ids, rows, stored, snapshots, told, run, epochs)


def derive_levels(mbo: pa.Table, states: pa.Table, depth: int) -> pa.Table:
    """Rows of mbp_1 or mbp_10."""
    made = replay(mbo, states, depth)
    return updates(made.rows, made.snapshots, made.told, depth, made.ids, _symbols(mbo, made.ids), made.epochs)


def derive_mbp_10(mbo: pa.Table, states: pa.Table) -> pa.Table:
    return derive_levels(mbo, states, DEPTH)


def _symbols(mbo: pa.Table, ids: NDArray[np.int64]) -> pa.Array:
    pairs = mbo.select(["instrument_id", "symbol"]).group_by("instrument_id").aggregate([("symbol", "max")])
    known = dict(zip(*(pairs.column(name).to_pylist() for name in ("instrument_id", "symbol_max")), strict=True))
    return pa.array([known.get(number) for number in ids.tolist()], pa.utf8())


def _as_staged(rows: pa.Table) -> pa.RecordBatch:
    """Rows of the table as they were staged: absent values are numbers again, letters bytes."""
    arrays: dict[str, pa.Array] = {}
    for column in (*COMMON, *MBO.columns):
        if column.name == "channel_id":
            arrays[column.name] = pa.array(np.zeros(rows.num_rows, np.int16))
        else:
            kind = PLACE_TYPES.get(column.name, column.dtype)
            arrays[column.name] = pa.array(_numbers(rows.column(column.name).combine_chunks(), column).astype(kind))
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _numbers(values: Any, column: Column) -> NDArray[Any]:
    if column.type == "char":
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        letters = np.array([ord(letter) for letter in coded.dictionary.to_pylist()] + [0], np.uint8)
        return letters[np.asarray(coded.indices.fill_null(len(letters) - 1))]
    if column.type == "date":
        values = values.cast(pa.int32())
    return values.fill_null(column.null).to_numpy(zero_copy_only=False)


def _snapshots(stored: list[Stored], ids: NDArray[np.int64], epochs: Epochs) -> SnapshotLines:
    """Stored books as the snapshots that they came from."""
    numbers = np.array([one.instrument_id for one in stored], np.int64)
    lending = np.array([one.head["lending"] for one in stored], np.int32)
    offsets = np.zeros(len(stored) + 1, np.int32)
    np.cumsum([1 + len(one.section("entries")) for one in stored], out=offsets[1:])
    total = int(offsets[-1])
    owner = np.repeat(np.arange(len(stored)), np.diff(offsets))
    columns: dict[str, NDArray[Any]] = {
        column.name: np.full(total, column.null if column.nullable else 0, column.dtype) for column in MBO.columns
    }
    first = offsets[:-1]
    entry = np.ones(total, np.bool_)
    entry[first] = False
    columns |= {
        "instrument_id": numbers[owner],
        "flags": np.full(total, SNAPSHOT, np.int32),
        "rpt_seq": np.array([one.rpt_seq for one in stored], np.int64)[owner],
        "ts_event": np.full(total, NULL),
    }
    columns["action"][:], columns["side"][:], columns["update_action"][:] = ord("A"), ord("N"), 0
    columns["action"][first] = ord("R")
    columns["stream"][lending[owner] != 0] = ord("L")
    if entry.any():
        _fill_entries(columns, entry, stored, owner)
    none = np.zeros(total, np.uint16)
    rows = Rows(MBO, np.zeros(total, np.uint32), none, none, columns)
    version = [one.seq_version for one in stored]
    return SnapshotLines(
        (2 * np.searchsorted(ids, numbers) + lending).astype(np.int32),
        epochs.ranks(np.array(version, np.int64)),
        np.array([one.key >> 32 for one in stored], np.int64),
        np.array([one.rpt_seq for one in stored], np.int64),
        np.array([one.book["said"] if one.book["said"] > 0 else NULL_I32 for one in stored], np.int32),
        np.full(len(stored), NULL),
        np.full(len(stored), NULL),
        np.array([one.head["ts_send"] for one in stored], np.int64),
        np.array([one.head["ts_recv"] for one in stored], np.int64),
        rows,
        offsets,
    )


def _fill_entries(
    columns: dict[str, NDArray[Any]], entry: NDArray[np.bool_], stored: list[Stored], owner: NDArray[np.int64]
) -> None:
    entries = np.concatenate([one.section("entries") for one in stored])
    kind = np.array([one.book["kind"] for one in stored], np.int64)[owner[entry]]
    columns["side"][entry] = SIDES[entries["side"]]
    for name in ("price", "size", "order_id", "firm", "ts_insert"):
        columns[name][entry] = entries[name]
    columns["flags"][entry] |= np.where(entries["implied"] != 0, IMPLIED, 0).astype(np.int32)
    columns["order_count"][entry] = np.where(kind & k.AGGREGATED != 0, entries["count"], NULL_I32)
    group = 2 * owner[entry] + entries["side"]
    rank = np.arange(len(entries)) - np.searchsorted(group, group) + 1  # they stand bids first, the best first
    columns["position"][entry] = np.where(kind & k.BY_POSITION != 0, rank, NULL_I32)
