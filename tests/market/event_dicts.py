"""Rows of events as dictionaries without what is absent, as `fast_reference` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from umdf.market.families import COMMON, FAMILIES, UNIT_COLUMNS, Column
from umdf.market.rows import Events, Numbers, Rows, Text, strings_of


def _values(column: Column, numbers: Mapping[str, Numbers], texts: dict[str, Text]) -> list[Any] | None:
    if column.is_text:
        return [text or None for text in strings_of(texts[column.name])] if column.name in texts else None
    if column.name not in numbers:
        return None
    values = numbers[column.name]
    assert values.dtype == column.dtype, column.name
    return [None if v == column.null else chr(v) if column.type == "char" else v for v in values.tolist()]


def row_dicts(rows: Rows) -> list[dict[str, Any]]:
    made = [
        {"unit": unit, "entry_index": place}
        for unit, place in zip(rows.unit.tolist(), rows.entry_index.tolist(), strict=True)
    ]
    for column in (*COMMON, *rows.family.columns):
        if column.name in UNIT_COLUMNS or column.name in ("msg_index", "entry_index"):
            continue
        for row, value in zip(made, _values(column, rows.columns, rows.texts) or [], strict=False):
            if value is not None:
                row[column.name] = value
    for name, held in rows.lists.items():
        entries: list[dict[str, Any]] = [{} for _ in range(int(held.offsets[-1]))]
        for column in rows.family.lists[name]:
            for entry, value in zip(entries, _values(column, held.columns, held.texts) or [], strict=False):
                if value is not None:
                    entry[column.name] = value
        for row, (first, last) in zip(made, pairwise(held.offsets.tolist()), strict=True):
            if last > first:
                row[name] = entries[first:last]
    return made


def event_dicts(events: Events) -> dict[str, list[dict[str, Any]]]:
    return {name: row_dicts(events.rows(name)) for name in FAMILIES}
