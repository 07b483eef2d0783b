"""Names that a caller gives: schemas, columns, options; and which column of a table is its time, which its order.

The one rule: a name that is not known is one clear error, with those that come near.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from umdf.errors import UsageError
from umdf.lake.schemas import Table, tables

# Databento names schemas with dashes; it calls these by other names.
ALIASES = {"cmbp_1": "mbp_1", "tcbbo": "tbbo", "definitions": "definition", "imbalances": "imbalance"}
# What `start` and `end` are compared with, where they are instants: the first of these that a table has.
TIMES = ("ts_interval", "ts_recv", "ts_opened", "ts_first")
NO_TIMES = frozenset({"day_statistics", "book_state"})  # a row is about a day, or about a place in the stream
PLACE = ("sequence", "msg_index", "entry_index")
# Tables whose `sequence` is the incremental stream's; all others are in the order of these columns.
OF_FEED = frozenset(
    "mbo trades execution_summary statistics status imbalance price_band news control mbp_1 mbp_10 tbbo".split()
)
ORDERS: dict[str, tuple[str, ...]] = {
    "definition": ("ts_recv", *PLACE),
    "snapshot": ("ts_recv", *PLACE),
    "book_check": ("ts_recv", "sequence", "instrument_id"),
    "packets": ("ts_recv", "file_id", "file_offset"),
    "quarantine": ("ts_recv", "file_id", "file_offset"),
    "gaps": ("ts_opened", "first_sequence", "instrument_id"),
}
DERIVED = {"mbp_1": 1, "mbp_10": 10}  # from `mbo` and `book_state`, where they are not stored


def near(name: str, known: Iterable[str], most: int = 5) -> list[str]:
    """Names that are nearly the same, the nearest first."""
    by_fold = {each.upper(): each for each in known}
    found = difflib.get_close_matches(name.upper(), list(by_fold), most, 0.6)
    return [by_fold[each] for each in found]


def schema_named(name: str) -> str:
    """The table that a schema's name means: `mbp-1` and `mbp_1` are the same."""
    said = str(name).strip().lower().replace("-", "_")
    said = ALIASES.get(said, said)
    if said not in tables():
        close = near(said, tables())
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(tables())}"
        raise UsageError(f"no schema {name!r}", hint)
    return said


def columns_named(table: Table, columns: Sequence[str] | str | None, more: Sequence[str] = ()) -> list[str]:
    """The columns that are asked for, as they stand in the result; all of them for None."""
    known = [*table.schema.names, *more]
    if columns is None:
        return known
    asked = [columns] if isinstance(columns, str) else list(columns)
    for name in asked:
        if name not in known:
            close = near(str(name), known)
            hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(known)}"
            raise UsageError(f"{table.name} has no column {name!r}", hint)
    if not asked or len(set(asked)) != len(asked):
        raise UsageError("columns: some are named twice, or none", "name each one once, or leave them out for all")
    return asked


def among(option: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise UsageError(f"{option}={value!r} is not known", f"use {' or '.join(known)}")
    return str(value)


def time_of(table: Table) -> str | None:
    """The column that instants are compared with."""
    return None if table.name in NO_TIMES else next((name for name in TIMES if name in table.schema.names), None)


def order_of(table: Table) -> tuple[str, ...]:
    """The columns by which rows of a trading date and channel come, besides the epoch of OF_FEED."""
    if table.name in OF_FEED:
        return PLACE
    own = ("ts_interval", "instrument_id") if "ts_interval" in table.schema.names else table.sort
    return ORDERS.get(table.name, own)
