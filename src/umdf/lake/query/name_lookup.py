"""Resolves names of schemas, columns and options; and the time and sort columns of a table.

Invariant: an unknown name is one clear error, with suggestions.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from umdf.errors import UsageError, did_you_mean, one_of
from umdf.lake.schemas import Table, tables

MAX_NAMES_LISTED = 8  # names in a hint
# Databento writes schemas with dashes; these have other names there.
ALIASES = {"cmbp_1": "mbp_1", "tcbbo": "tbbo", "definitions": "definition", "imbalances": "imbalance"}
# Times of `start` and `end` are compared with the first of these columns that a table has.
TIME_COLUMNS = ("ts_interval", "ts_recv", "ts_opened", "ts_first")
# Rows of these tables describe a day, or a position in the stream.
TABLES_WITHOUT_TIME = frozenset({"day_statistics", "book_state"})
STREAM_ORDER = ("sequence", "msg_index", "entry_index")
# Tables ordered by the incremental stream's `sequence`; all others are sorted by these columns.
STREAM_ORDERED_TABLES = frozenset(
    "mbo trades execution_summary statistics status imbalance price_band news control mbp_1 mbp_10 tbbo".split()
)
SORT_COLUMNS: dict[str, tuple[str, ...]] = {
    "definition": ("ts_recv", *STREAM_ORDER),
    "snapshot": ("ts_recv", *STREAM_ORDER),
    "book_check": ("ts_recv", "sequence", "instrument_id"),
    "packets": ("ts_recv", "file_id", "file_offset"),
    "quarantine": ("ts_recv", "file_id", "file_offset"),
    "gaps": ("ts_opened", "first_sequence", "instrument_id"),
}
MAX_SUGGESTIONS = 3  # names in an error
DERIVED_DEPTHS = {"mbp_1": 1, "mbp_10": 10}  # from `mbo` and `book_state`, if not stored


def close_matches(name: str, known: Iterable[str], max_matches: int = MAX_SUGGESTIONS) -> list[str]:
    """Similar names, the most similar first."""
    by_fold = {each.upper(): each for each in known}
    found = difflib.get_close_matches(name.upper(), list(by_fold), max_matches, 0.6)
    return [by_fold[each] for each in found]


def resolve_schema(name: str, available: Collection[str] | None = None) -> str:
    """The table of a schema: `mbp-1` and `mbp_1` are the same. `available`: the tables that an error suggests."""
    normalized = str(name).strip().lower().replace("-", "_")
    normalized = ALIASES.get(normalized, normalized)
    if normalized not in tables():
        available = tables() if available is None else available
        close = close_matches(normalized, available)
        hint = did_you_mean(close) if close else f"available: {', '.join(available)}"
        raise UsageError(f"unknown schema: {name!r}", hint)
    return normalized


def resolve_columns(table: Table, columns: Sequence[str] | str | None, extra: Sequence[str] = ()) -> list[str]:
    """The requested columns, in the order of the result; all for None."""
    known = [*table.schema.names, *extra]
    if columns is None:
        return known
    requested = [columns] if isinstance(columns, str) else list(columns)
    for name in requested:
        if name not in known:
            close = close_matches(str(name), known)
            more = f" and {len(known) - MAX_NAMES_LISTED} more" if len(known) > MAX_NAMES_LISTED else ""
            hint = did_you_mean(close) if close else f"available: {', '.join(known[:MAX_NAMES_LISTED])}{more}"
            raise UsageError(f"unknown column of {table.name}: {name!r}", hint)
    if not requested or len(set(requested)) != len(requested):
        raise UsageError("columns is empty or has repeated names", "omit it for all columns")
    return requested


def check_choice(option: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise UsageError(f"invalid {option}: {value!r}", f"use {one_of(known)}")
    return str(value)


def time_column(table: Table) -> str | None:
    """The column that times are compared with."""
    return (
        None
        if table.name in TABLES_WITHOUT_TIME
        else next((name for name in TIME_COLUMNS if name in table.schema.names), None)
    )


def sort_columns(table: Table) -> tuple[str, ...]:
    """The sort columns within a channel-day, besides the epoch of STREAM_ORDERED_TABLES."""
    if table.name in STREAM_ORDERED_TABLES:
        return STREAM_ORDER
    own = ("ts_interval", "instrument_id") if "ts_interval" in table.schema.names else table.sort
    return SORT_COLUMNS.get(table.name, own)
