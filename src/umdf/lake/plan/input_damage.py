"""Damage of input files: the rows of `quarantine` that belong to no day.

Invariant: they exist as long as their file is in the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from umdf.lake.commit.ledger import file_id
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import Writer
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.plan.gap_timeline import write_small_table
from umdf.lake.tasks.quarantine import damage_rows

TABLE = "quarantine"
NO_PARTITION = {"trading_date": None, "channel_id": None}


def input_damage_change(
    writer: Writer, surveys: Iterable[dict[str, Any]], dropped: Collection[str], has_table: bool
) -> Change:
    """Adds rows for the warnings of new surveys, if the lake has the table; removes those of `dropped` digests."""
    added = [write_small_table(writer.paths.root, writer.stamp, TABLE, damage_rows(surveys), None)] if has_table else []
    removed = []
    dropped_ids = pa.array(sorted(map(file_id, dropped)), pa.int64())
    for add in writer.snapshot.adds(TABLE, **NO_PARTITION) if dropped else ():
        before = read_file(writer.paths.table(TABLE) / add.path)
        remaining = before.filter(~pc.field("file_id").isin(dropped_ids))
        if remaining.num_rows < before.num_rows:
            removed.append(add)
            added.append(write_file(writer.paths.root, TABLE, writer.stamp, remaining, NO_PARTITION))
    return Change(TABLE, tuple(add for add in added if add), tuple(removed))
