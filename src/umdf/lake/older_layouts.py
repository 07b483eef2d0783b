"""What older layouts called the columns of tables, and some of their values: what an upgrade changes.

Invariant: an upgrade changes names and words, never rows. So a table of an older layout has the same columns at the
same places, with the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute

from umdf.lake.layout import LAYOUT
from umdf.lake.schemas import Table, table

pc: Any = pyarrow.compute  # its functions are made at run time


@dataclass(frozen=True)
class TableRenames:
    columns: Mapping[str, str] = field(default_factory=dict)  # old name: new name
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # column: old value: new value
    content: Callable[[bytes], bytes] | None = None  # from the old `content` of a row to the new one


GAP_RECORD_NAMES = {"touched": "instruments", "touched_count": "affected", "ts_cured": "ts_recovered"}
LAST_STATE_NAMES = {
    "said": "phases", "groups": "snapshot_phases", "own": "snapshot_states", "gone": "deleted",
    "misjudged": "unverified_members",
}  # fmt: skip


def renamed_state(content: bytes) -> bytes:
    """The state of an open channel-day, of layout 3 in the words of layout 4."""
    from umdf.lake.plan.frontier import join_content, split_content  # it imports commits, which import this

    def renamed(found: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in found.items()}

    fields, staged = split_content(content)
    fields["gap_records"] = [renamed(each, GAP_RECORD_NAMES) for each in fields.pop("answers")]
    fields["states"] = renamed(fields["states"], LAST_STATE_NAMES)
    return join_content(fields, staged)


# By the older layout, then by table: how the next layout differs from it.
RENAMES: dict[int, dict[str, TableRenames]] = {
    1: {
        **{name: TableRenames({"stream": "venue"}) for name in ("mbo", "trades", "statistics")},
        "packets": TableRenames({"verdict": "disposition"}),
        "gaps": TableRenames({"cure": "recovered_by", "ts_cured": "ts_recovered", "touched": "affected"}),
        "day_statistics": TableRenames({"events_in_doubt": "unverified_events", "losses": "gaps"}),
        "book_check": TableRenames(values={"verdict": {"in_doubt": "unverified", "older": "outdated"}}),
    },
    # A recording that begins within an epoch is no loss. Columns of layout 3 that are new are NULL in older files.
    2: {"gaps": TableRenames(values={"cause": {"start": "join"}})},
    3: {"channel_state": TableRenames(content=renamed_state)},
}


def renames_since(layout: int) -> dict[str, list[TableRenames]]:
    """By table: how the current layout differs from an older one, step by step."""
    names = dict.fromkeys(name for older in range(layout, LAYOUT) for name in RENAMES[older])
    return {name: [RENAMES[older][name] for older in range(layout, LAYOUT) if name in RENAMES[older]] for name in names}


def table_of_layout(name: str, layout: int) -> Table:
    """A table as a layout has it."""
    known = table(name)
    for older in range(LAYOUT - 1, layout - 1, -1):
        renames = RENAMES[older].get(name, TableRenames())
        old_names = {new: old for old, new in renames.columns.items()}
        fields = [each.with_name(old_names.get(each.name, each.name)) for each in known.schema]
        known = replace(known, schema=pa.schema(fields, known.schema.metadata))
    return known


def renamed_rows(rows: pa.Table, renames: TableRenames) -> pa.Table:
    """Rows of a table in the words of the next layout."""
    rows = rows.rename_columns([renames.columns.get(name, name) for name in rows.column_names])
    for name, words in renames.values.items():
        column = rows.column(name).cast(pa.utf8())
        for old, new in words.items():
            column = pc.if_else(pc.equal(column, old), new, column)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    if renames.content is not None:
        old_contents = rows.column("content")
        contents = pa.array(map(renames.content, old_contents.to_pylist()), old_contents.type)
        rows = rows.set_column(rows.column_names.index("content"), "content", contents)
    return rows
