"""Step 2 of an ingest: the tables of a channel-day that need no book, and what its books need to know of it.

One task for each channel and date. Large families are written bucket by bucket, so that memory does not grow with the
day. The one rule: an instrument's symbol is that of its last definition of the day, in every row of the day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.file_writer import write_file
from umdf.lake.files import FileAdd, Stamp, in_order
from umdf.lake.hashing import LogicalHash
from umdf.lake.last_states import LastStates
from umdf.lake.listed import Listed
from umdf.lake.listed import listed as symbols_and_depths
from umdf.lake.repeats import Repeats
from umdf.lake.schemas import table
from umdf.lake.snapshot_rows import Part
from umdf.lake.staging import BUCKETS, Staged, StagedWriter, read_staged
from umdf.lake.tasks import Place
from umdf.market.arrow import record_batch

FROM_INCREMENTAL = ("status", "news", "price_band", "imbalance", "execution_summary", "control")
TABLES = ("definition", *FROM_INCREMENTAL, "snapshot")
ROWS_AT_ONCE = 2_000_000
ALL_BUCKETS = range(BUCKETS + 1)


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"root", "stamp", "directory", "channel_id", "trading_date", "staged", "snapshots", "instruments", "tables",
    "part", "before": staged definitions, "listed", "states"} → {"files", "rows", "definitions": staged, "listed",
    "renamed", "states", "ends"}."""
    staged, snapshots, instruments = (
        [Staged.from_json(said) for said in task[name]] for name in ("staged", "snapshots", "instruments")
    )
    day, part = _Day(task, place), Part.from_json(task["part"])
    before = read_staged([Staged.from_json(said) for said in task["before"]], "definition", ALL_BUCKETS)
    repeats = Repeats({int(number): word for number, word in task["listed"].items()})
    listed = repeats.new_definitions(read_staged(instruments, "definition", ALL_BUCKETS))
    changed = read_staged(staged, "definition", ALL_BUCKETS)
    defined = [events.rows("definition") for events in (before, listed, changed)]
    earlier, day.symbols = (symbols_and_depths(some, task["channel_id"]) for some in (defined[:1], defined))
    writer = StagedWriter(Path(task["directory"]), f"definitions-{uuid.uuid4().hex}")  # whose bytes a state keeps
    for events in (before, listed, changed):
        writer.add(events)
    day.write("definition", [listed, changed])
    for family in FROM_INCREMENTAL:
        day.write(family, (read_staged(staged, family, buckets) for buckets in _packs(staged, family)))
    states = LastStates(task["states"], day.symbols, part.versions)
    controls, statuses = (read_staged(staged, family, ALL_BUCKETS) for family in ("control", "status"))
    states.take(controls, changed, statuses)
    states.take_snapshots(read_staged(snapshots, "status", ALL_BUCKETS))
    held = read_staged(snapshots, "snapshot", ALL_BUCKETS)
    day.write("snapshot", [held.at({"snapshot": part.holds(held)})], once=True)
    return {
        "files": day.files,
        "rows": day.rows,
        "definitions": [each.to_json() for each in writer.close()],
        "listed": repeats.last,
        "renamed": renamed(earlier, day.symbols),
        "states": states.to_json(),
        "ends": states.ends(),
    }


def renamed(before: Listed, after: Listed) -> list[int]:
    """The instruments whose rows would now have another symbol, or that have another depth."""
    ids, rows = after.ids, before.rows_of(after.ids)
    names = zip(before.symbols.take(pa.array(rows)).to_pylist(), after.symbols[:-1].to_pylist(), strict=True)
    changed = np.array([name != new for name, new in names], np.bool_)
    return ids[changed | (before.depths[rows] != after.depths[:-1])].tolist()


class _Day:
    def __init__(self, task: dict[str, Any], place: Place) -> None:
        self.task, self.place = task, place
        self.symbols: Listed
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.rows: dict[str, int] = {}

    def write(self, family: str, parts: Any, once: bool = False) -> None:
        """A file for each part; `once` leaves out what came on two lines."""
        if family not in self.task["tables"]:
            return
        known, task = table(family), self.task
        partition = {"trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py()}
        partition["channel_id"] = task["channel_id"]
        for events in parts:
            if not len(events.rows(family)):
                continue
            batch = record_batch(events, family, self.symbols)
            rows = in_order(pa.Table.from_batches([first_copies(batch) if once else batch]), known)
            where = {"task": self.place.task, "attempt": self.place.attempt, "packed": task.get("packed", True)}
            made = write_file(task["root"], family, Stamp(*task["stamp"]), rows, partition, **where)
            assert isinstance(made, FileAdd)
            self.files.setdefault(family, []).append(made.to_json())
            self.rows[family] = self.rows.get(family, 0) + made.rows


def _packs(staged: list[Staged], family: str) -> Iterator[list[int]]:
    """Buckets together, as many as fit."""
    pack: list[int] = []
    size = 0
    for bucket in ALL_BUCKETS:
        rows = sum(file.rows.get(bucket, 0) for file in staged if file.family == family)
        if pack and size + rows > ROWS_AT_ONCE:
            yield pack
            pack, size = [], 0
        pack.append(bucket)
        size += rows
    yield pack


def first_copies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of rows that differ only in when they came, the first."""
    words = LogicalHash({"ts_recv"}).of_rows(batch)
    came = batch.column("ts_recv").to_numpy(zero_copy_only=False)
    order = np.lexsort((came, words))
    first = np.ones(len(order), np.bool_)
    first[1:] = words[order][1:] != words[order][:-1]
    return batch.take(pa.array(np.sort(order[first])))
