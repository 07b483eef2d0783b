"""Step 2 of an ingest: the tables of a channel-day that need no books, and the definitions and states for its books.

One task per channel-day. Large families are written bucket by bucket, so that memory does not grow with the day.
Invariant: an instrument's symbol is that of its last definition of the day, in every row of the day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.books.snapshot_rows import DaySpan
from umdf.lake.hashing import LogicalHash
from umdf.lake.parquet.data_files import FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.schemas import table
from umdf.lake.tasks.instrument_list import InstrumentList
from umdf.lake.tasks.instrument_list import build_instrument_list as symbols_and_depths
from umdf.lake.tasks.last_states import NOWHERE, SEQUENCE_BITS, LastStates, StreamGaps
from umdf.lake.tasks.protocols import SBE
from umdf.lake.tasks.staging import BUCKETS, StagedFile, StagedWriter, read_staged
from umdf.lake.tasks.unchanged_definitions import DefinitionFilter
from umdf.market.arrow import record_batch
from umdf.market.families import NULL
from umdf.market.rows import Events, Numbers
from umdf.sync.gaps import MARGIN_NS

INCREMENTAL_FAMILIES = ("status", "news", "price_band", "imbalance", "execution_summary", "control")
TABLES = ("definition", *INCREMENTAL_FAMILIES, "snapshot")
MAX_PACK_ROWS = 2_000_000
ALL_BUCKETS = range(BUCKETS + 1)


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"root", "stamp", "directory", "channel_id", "trading_date", "staged", "snapshots", "instruments", "tables",
    "part", "gaps", "join", "before": staged definitions, "listed", "states"} → {"files", "rows", "definitions": staged,
    "listed", "renamed", "states", "ends"}."""
    staged, snapshots, instruments = (
        [StagedFile.from_json(staged_file) for staged_file in task[name]]
        for name in ("staged", "snapshots", "instruments")
    )
    day, part = _DayWriter(task, attempt), DaySpan.from_json(task["part"])
    before = read_staged([StagedFile.from_json(file) for file in task["before"]], "definition", ALL_BUCKETS)
    deduplicator = DefinitionFilter({int(number): word for number, word in task["listed"].items()})
    new_definitions = deduplicator.changed_definitions(read_staged(instruments, "definition", ALL_BUCKETS))
    incremental_definitions = read_staged(staged, "definition", ALL_BUCKETS)
    earlier, later = split_by_time(new_definitions, incremental_definitions)
    definitions = before, earlier, incremental_definitions, later
    definition_rows = [events.rows("definition") for events in definitions]
    instruments_before, day.instruments = (
        symbols_and_depths(some, task["channel_id"]) for some in (definition_rows[:1], definition_rows)
    )
    writer = StagedWriter(Path(task["directory"]), f"definitions-{uuid.uuid4().hex}")  # the state stores its bytes
    for events in definitions:
        writer.add(events)
    day.write("definition", [new_definitions, incremental_definitions])
    for family in INCREMENTAL_FAMILIES:
        day.write(family, (read_staged(staged, family, buckets) for buckets in _bucket_packs(staged, family)))
    join = NOWHERE if task["join"] is None else task["join"]
    gaps = StreamGaps(task["gaps"], join, range(1, len(part.versions)))
    has_rpt_seq = task["protocol"] == SBE  # of statuses
    states = LastStates(task["states"], day.instruments, part.versions, gaps, has_rpt_seq)
    controls, statuses = (read_staged(staged, family, ALL_BUCKETS) for family in ("control", "status"))
    states.apply(controls, incremental_definitions, statuses)
    snapshot_events = read_staged(snapshots, "snapshot", ALL_BUCKETS)
    states.apply_snapshots(read_staged(snapshots, "status", ALL_BUCKETS), _positions_held(snapshot_events, part))
    day.write("snapshot", [snapshot_events.take({"snapshot": part.contains(snapshot_events)})], is_deduplicated=True)
    return {
        "files": day.files,
        "rows": day.rows,
        "definitions": [each.to_json() for each in writer.close()],
        "listed": deduplicator.last_hashes,
        "renamed": changed_instruments(instruments_before, day.instruments),
        "states": states.to_json(),
        "ends": states.final_states(),
    }


def split_by_time(listed: Events, incremental: Events) -> tuple[Events, Events]:
    """Definitions of the instrument stream: those that changes of their instruments on the incremental stream have
    replaced, and those that were sent well after the last one, which show changes that were lost (7.2)."""
    rows, changes = listed.rows("definition"), incremental.rows("definition")
    ids, sent = changes.column("instrument_id"), incremental.units.ts_send[changes.unit]
    order = np.lexsort((sent, ids))
    last = order[np.append(ids[order][1:] != ids[order][:-1], True)] if len(order) else order
    at = np.searchsorted(ids[last], rows.column("instrument_id"))
    is_changed = np.append(ids[last], NULL)[at] == rows.column("instrument_id")
    is_later = is_changed & (listed.units.ts_send[rows.unit] > np.append(sent[last], 0)[at] + MARGIN_NS)
    return listed.take({"definition": ~is_later}), listed.take({"definition": is_later})


def _positions_held(snapshots: Events, part: DaySpan) -> tuple[Numbers, Numbers]:
    """When snapshots were sent, and their positions in the incremental stream, as far as they are known."""
    rows, ranks = snapshots.rows("snapshot"), part.ranks(snapshots)
    last = rows.column("last_sequence")
    position = ranks.astype(np.int64) << SEQUENCE_BITS | last
    return snapshots.units.ts_send[rows.unit], np.where((ranks >= 0) & (last != NULL), position, NOWHERE)


def changed_instruments(before: InstrumentList, after: InstrumentList) -> list[int]:
    """The instruments whose symbol or depth has changed."""
    ids, rows = after.ids, before.rows_of(after.ids)
    names = zip(before.symbols.take(pa.array(rows)).to_pylist(), after.symbols[:-1].to_pylist(), strict=True)
    changed = np.array([name != new for name, new in names], np.bool_)
    return ids[changed | (before.depths[rows] != after.depths[:-1])].tolist()


class _DayWriter:
    def __init__(self, task: dict[str, Any], attempt: TaskAttempt) -> None:
        self.task, self.attempt = task, attempt
        self.instruments: InstrumentList
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.rows: dict[str, int] = {}

    def write(self, family: str, parts: Any, is_deduplicated: bool = False) -> None:
        """Write one file per part; `is_deduplicated` drops rows that came on two lines."""
        if family not in self.task["tables"]:
            return
        known_table, task = table(family), self.task
        partition = {"trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py()}
        partition["channel_id"] = task["channel_id"]
        for events in parts:
            if not len(events.rows(family)):
                continue
            batch = record_batch(events, family, self.instruments)
            rows = sort_rows(
                pa.Table.from_batches([drop_later_copies(batch) if is_deduplicated else batch]), known_table
            )
            file_options = {
                "task": self.attempt.task,
                "attempt": self.attempt.attempt,
                "compressed": task.get("is_compressed", True),
            }
            added = write_file(task["root"], family, FileStamp(*task["stamp"]), rows, partition, **file_options)
            assert isinstance(added, FileAdd)
            self.files.setdefault(family, []).append(added.to_json())
            self.rows[family] = self.rows.get(family, 0) + added.rows


def _bucket_packs(staged: list[StagedFile], family: str) -> Iterator[list[int]]:
    """Groups buckets, as many as fit."""
    pack: list[int] = []
    size = 0
    for bucket in ALL_BUCKETS:
        rows = sum(file.rows.get(bucket, 0) for file in staged if file.family == family)
        if pack and size + rows > MAX_PACK_ROWS:
            yield pack
            pack, size = [], 0
        pack.append(bucket)
        size += rows
    yield pack


def drop_later_copies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the first of rows that differ only in their receive time."""
    hashes = LogicalHash({"ts_recv"}).row_hashes(batch)
    ts_recv = batch.column("ts_recv").to_numpy(zero_copy_only=False)
    order = np.lexsort((ts_recv, hashes))
    first = np.ones(len(order), np.bool_)
    first[1:] = hashes[order][1:] != hashes[order][:-1]
    return batch.take(pa.array(np.sort(order[first])))
