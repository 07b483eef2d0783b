"""Events as plain Python, and believable Binary messages, for the tests of the Binary table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from umdf.market.families import FAMILIES, Column
from umdf.market.rows import Events, Numbers, RepeatingGroup, Rows, Text
from umdf.wire.sbe.loader import load
from umdf.wire.sbe.schema import SIZES, Block, Field, Schema

SCHEMA: Schema = load()
BOTH_WAYS = (16, 15, 10, 8)  # versions that messages are written in


def event_dicts(events: Events) -> dict[str, list[dict[str, Any]]]:
    """Every row as a dictionary: NULL is None, a char is text; what is None in every row of a list stays."""
    return {name: row_dicts(rows) for name, rows in events.families.items()}


def row_dicts(rows: Rows) -> list[dict[str, Any]]:
    own = {"unit": rows.unit.tolist(), "msg_index": rows.msg_index.tolist(), "entry_index": rows.entry_index.tolist()}
    names = ("ts_event", "instrument_id", "rpt_seq", "flags")
    columns = [*(rows.family.column(name) for name in names), *rows.family.columns]
    shown = own | {column.name: _shown(column, rows.columns, rows.texts, len(rows)) for column in columns}
    for name, each in rows.lists.items():
        shown[name] = _lists(rows.family.lists[name], each)
    return [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]


def _shown(column: Column, columns: Mapping[str, Numbers], texts: dict[str, Text], count: int) -> list[Any]:
    if column.is_text:
        found = texts.get(column.name)
        if found is None:
            return [None] * count
        content, offsets = found[1].tobytes(), found[0].tolist()
        raw = [content[a:b] for a, b in itertools.pairwise(offsets)]
        return [each.decode("utf-8", "backslashreplace") or None for each in raw]
    found = columns.get(column.name)
    if found is None:
        return [None if column.nullable else "\0" if column.type == "char" else 0] * count
    assert found.dtype == column.dtype, column.name
    absent = column.null if column.nullable else None
    values = [None if value == absent else value for value in found.tolist()]
    return [chr(value) if value is not None else None for value in values] if column.type == "char" else values


def _lists(columns: Sequence[Column], each: RepeatingGroup) -> list[list[dict[str, Any]]]:
    count = int(each.offsets[-1])
    shown = {c.name: _shown(c, each.columns, each.texts, count) for c in columns}
    entries = [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]
    offsets = each.offsets.tolist()
    return [entries[a:b] for a, b in itertools.pairwise(offsets)]


def with_absent_columns(family: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A reference's rows with every column of the family: what it does not name is absent."""
    found = FAMILIES[family]
    columns = [*(found.column(name) for name in ("ts_event", "instrument_id", "rpt_seq", "flags")), *found.columns]
    rows = [_empty(columns) | row for row in rows]
    for row in rows:
        for name in row.keys() & found.lists.keys():
            row[name] = [_empty(found.lists[name]) | entry for entry in row[name]]
    return rows


def _empty(columns: Sequence[Column]) -> dict[str, Any]:
    return {c.name: None if c.nullable else "\0" if c.type == "char" else 0 for c in columns}


# Believable messages: codes that the schema names, prices that fit, sets of known bits.

SETS = {
    "matchEventIndicator": st.sampled_from([0, 0x80, 0x10, 0x20, 0xB0]),
    "tradeCondition": st.integers(0, 0x7FFF),
    "imbalanceCondition": st.sampled_from([0, 0x100, 0x200]),
}
ALLOWED = {
    (12, "securityIDSource"): ("8",),  # no event says it
    (50, "mDUpdateAction"): (0, 1),
    (52, "mDUpdateAction"): (3, 4),
    **{(template, "mDUpdateAction"): (0, 2) for template in (15, 16, 19, 24, 25)},
    **{(template, "mDEntryType"): ("0", "1") for template in (50, 51, 52, 71)},
}
BOTH_OR_ONE = {"year": st.integers(1970, 9999), "month": st.integers(1, 12), "day": st.none() | st.integers(1, 31)}


def _believable_field(template: int, field: Field, version: int) -> st.SearchStrategy[Any]:
    part = field.parts[0]
    absent = [] if part.null is None or (template, field.name) == (54, "sellerDays") else [st.none()]
    if (template, field.name) in ALLOWED:
        return st.sampled_from(ALLOWED[template, field.name])
    if field.name in SETS:
        return SETS[field.name]
    if part.name:
        week = st.fixed_dictionaries(
            {"year": st.integers(1970, 9999), "month": st.integers(1, 12), "week": st.integers(1, 5)}
        )
        return st.none() | week | st.fixed_dictionaries(BOTH_OR_ONE).map(_present)
    if part.length > 1:
        return st.text("ABCxyz019", min_size=1, max_size=part.length)
    if field.name == "securitySubType":
        return st.integers(0, 60_000)
    if field.codes:
        return st.one_of(st.sampled_from(sorted(field.codes, key=str)), *absent)
    if field.exponent is not None:
        exponent = field.exponent
        return st.one_of(*absent, st.integers(-(10**12), 10**12).map(lambda m: _decimal(m, exponent, part.null)))
    if field.time_unit == 0:
        return st.one_of(*absent, st.integers(1, 4_000_000_000))
    bits = min(8 * SIZES[part.primitive], 31) - 1
    return st.one_of(*absent, st.integers(1, (1 << bits) - 1))


def _decimal(mantissa: int, exponent: int, null: int | None) -> str:
    return f"{Decimal(mantissa + (mantissa == null)).scaleb(exponent):f}"


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def realistic_messages(template: int, block: Block, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of one message as the exchange would send it in this version."""
    content = {f.name: _believable_field(template, f, version) for f in block.sent_fields if f.in_version(version)}
    for group in block.groups:
        least = 1 if template == 71 else 0
        content[group.name] = st.lists(realistic_messages(template, group, version), min_size=least, max_size=3)
    for data in block.data:
        content[data.name] = st.none() | st.text("ação de hoje", min_size=1, max_size=20)
    return st.fixed_dictionaries(content).map(_present)
