"""The columns that the program of `conversion_plan` does not fill: texts, names of codes, months, lists. All are rare.

Where one template gives all rows of a family, its bytes are already in the order of those rows; where several do (an
older one and its successor), they are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL_I32, OUT_OF_RANGE, Column
from umdf.market.rows import Numbers, RepeatingGroup, Rows, Text, take_text, text_column
from umdf.market.sbe.conversion_plan import RulePlan, list_path
from umdf.market.sbe.mapping_rules import EnumName, FieldSource, MonthYear, code_number, find_data

if TYPE_CHECKING:
    from umdf.market.sbe.events import ConversionRun


@dataclass(frozen=True)
class _Found:
    """The columns that messages of one template add to the rows of a family."""

    places: NDArray[np.int64]  # among those rows
    months: dict[str, Numbers] = field(default_factory=dict)
    texts: dict[str, Text] = field(default_factory=dict)
    lists: dict[str, RepeatingGroup] = field(default_factory=dict)


def add_text_columns(run: ConversionRun, families: dict[str, Rows]) -> None:
    """Add the columns that are not numbers."""
    for family in run.filled:
        if not family.text_rules or family.is_list:
            continue
        rows, rules = families[family.plan.family.name], family.text_rules
        parts = [_found(run, each, rows) for each in rules if run.batch.rows[each.builder.node.index]]
        if len(parts) > 1 or len(parts[0].places) < len(rows):
            parts = [_joined(parts, rows)]
        rows.columns.update(parts[0].months)
        rows.texts |= parts[0].texts
        rows.lists |= parts[0].lists
        for each in rules:
            rows.lists |= {
                name: _message_group(rows, each, name) for name, of in each.rule.lists.items() if not of.group
            }


def _found(run: ConversionRun, each: RulePlan, rows: Rows) -> _Found:
    found = _Found(run.row_positions(each.number, int(run.batch.rows[each.builder.node.index])))
    for name, source in each.rule.columns.items():
        if isinstance(source, MonthYear):
            if (months := _month_years(run, each, source)) is not None:
                found.months[name] = months
        elif rows.family.column(name).is_text and (text := _read_text(run, each, source)) is not None:
            found.texts[name] = text
    for name, of in each.rule.lists.items():
        entries = _group(run, each, name, rows, found.places) if of.group else None
        if entries is not None:
            found.lists[name] = entries
    return found


def _joined(parts: list[_Found], rows: Rows) -> _Found:
    """For several templates, or one that provides only some of the rows."""
    counts = [len(part.places) for part in parts]
    order = np.full(len(rows), sum(counts))  # of those that no template gives: a last row without content
    order[np.concatenate([part.places for part in parts])] = np.arange(sum(counts))
    months = {name: np.full(len(rows), NULL_I32, np.int32) for part in parts for name in part.months}
    for part in parts:
        for name, values in part.months.items():
            months[name][part.places] = values
    texts: dict[str, Text] = {}
    for name in {name for part in parts for name in part.texts}:
        texts[name] = take_text(_end_to_end([part.texts.get(name) for part in parts], counts), order)
    lists: dict[str, RepeatingGroup] = {}
    for name in {name for part in parts for name in part.lists}:
        columns = {column.name: column for column in rows.family.lists[name]}
        lists[name] = _lists_end_to_end([part.lists.get(name) for part in parts], counts, columns).take(order)
    return _Found(np.arange(len(rows)), months, texts, lists)


def _end_to_end(texts: list[Text | None], counts: list[int]) -> Text:
    """The rows of these texts (None: empty ones), and one more that is empty."""
    sizes = [
        np.zeros(count, np.int32) if text is None else np.diff(text[0])
        for text, count in zip(texts, counts, strict=True)
    ]
    content = [text[1][: int(text[0][-1])] for text in texts if text is not None]
    return _ends(sizes), np.concatenate([np.empty(0, np.uint8), *content])


def _lists_end_to_end(
    lists: list[RepeatingGroup | None], counts: list[int], known: Mapping[str, Column]
) -> RepeatingGroup:
    found = [
        each if each is not None else RepeatingGroup(np.zeros(count + 1, np.int32), {})
        for each, count in zip(lists, counts, strict=True)
    ]
    entries = [int(each.offsets[-1]) for each in found]
    columns = {
        name: np.concatenate(
            [
                each.columns.get(name, np.full(count, known[name].null, known[name].dtype))
                for each, count in zip(found, entries, strict=True)
            ]
        )
        for name in {name for each in found for name in each.columns}
    }
    names = {name for each in found for name in each.texts}
    texts = {name: _end_to_end([each.texts.get(name) for each in found], entries) for name in names}
    return RepeatingGroup(
        _ends([np.diff(each.offsets) for each in found]), columns, {n: (t[0][:-1], t[1]) for n, t in texts.items()}
    )


def _ends(sizes: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Arrow's offsets of rows of these sizes, and of one more that is empty."""
    return np.concatenate([[0], np.cumsum(np.concatenate([*sizes, [0]]))]).astype(np.int32)


def _read_text(run: ConversionRun, each: RulePlan, source: FieldSource) -> Text | None:
    node = each.builder.node
    if isinstance(source, EnumName):
        return _enum_names(run, each, source)
    found = each.builder.resolve(source.field)
    count = int(run.batch.rows[node.index])
    table, memory = run.batch.store_of(node)
    if found is not None and found.wire is not None and found.wire.is_text:
        number = node.columns.index(found.wire)
        offsets = _offsets(memory.array, table.values[number], count)
        return offsets, memory.array[table.text[number] :][: int(offsets[-1])]
    number = find_data(each.rule.template, node, source.field)
    if number is None:
        return None
    offsets = _offsets(memory.array, table.offsets[len(node.children) + number], count)
    return offsets, run.batch.data(node.data[number])[: int(offsets[-1])]


def _offsets(array: NDArray[np.uint8], place: int, count: int) -> NDArray[np.int32]:
    return array[place : place + 4 * (count + 1)].view(np.int32)


def _enum_names(run: ConversionRun, each: RulePlan, source: FieldSource) -> Text | None:
    """Codes by their names; one that the schema does not name (3.3) by its digits."""
    found = each.builder.resolve(source.field)
    if found is None or found.wire is None:
        return None
    node, wire = each.builder.node, found.wire
    codes = run.batch.values(node, wire).tolist()
    names: dict[int, str | None] = {code_number(code): name for code, name in wire.field.codes.items()}
    if wire.part.null is not None:
        names[wire.part.null] = None
    texts = [names.get(code, str(code)) for code in codes]
    if found.has_bitmap:
        table, memory = run.batch.store_of(node)
        bits = memory.array[table.bitmaps[node.columns.index(wire)] :][: (len(codes) + 7) // 8]
        is_there = np.unpackbits(bits, count=len(codes), bitorder="little").tolist()
        texts = [text if there else None for text, there in zip(texts, is_there, strict=True)]
    return text_column(texts)


def _month_years(run: ConversionRun, each: RulePlan, source: FieldSource) -> Numbers | None:
    """yyyymm, yyyymmdd, or yyyymm9w for the week; NULL if every part is absent."""
    found = each.builder.resolve(source.field)
    if found is None or found.wire is None:
        return None
    node, parts = each.builder.node, {}
    for wire in node.columns:
        if wire.field is found.field:
            values = run.batch.values(node, wire).astype(np.int64)
            parts[wire.part.name] = np.where(values == wire.part.null, 0, values)
    nothing = np.zeros(int(run.batch.rows[node.index]), np.int64)
    year, month, day, week = (parts.get(name, nothing) for name in ("year", "month", "day", "week"))
    of_month = 100 * year + month
    last = np.where(day != 0, day, np.where(week != 0, 90 + week, 0))
    months = np.where(last != 0, 100 * of_month + last, of_month)
    return np.where(months == 0, NULL_I32, months).astype(np.int32)


def _group(
    run: ConversionRun, each: RulePlan, name: str, rows: Rows, places: NDArray[np.int64]
) -> RepeatingGroup | None:
    """A repeating group: its columns went through the program as a family of their own."""
    family = run.plan.find_family(list_path(each.rule, name))
    if family is None:
        return None
    root, entry = each.builder.node, run.plan.rules[family.rules[0]]
    table, memory = run.batch.store_of(root)
    place = table.offsets[root.children.index(entry.builder.node.index)]
    offsets = _offsets(memory.array, place, int(run.batch.rows[root.index]))
    if not run.totals.get(family.number):
        return RepeatingGroup(offsets, {})
    columns = dict(run.columns(family))
    wrong = columns.pop("flags") & OUT_OF_RANGE != 0
    if wrong.any():
        parents = np.repeat(places, np.diff(offsets))
        rows.columns["flags"][parents[wrong]] |= OUT_OF_RANGE
    texts: dict[str, Text] = {}
    for column, source in entry.rule.columns.items():
        if family.family.column(column).is_text:
            text = _read_text(run, entry, source)
            if text is not None:
                texts[column] = text
    return RepeatingGroup(offsets, columns, texts)


def _message_group(rows: Rows, each: RulePlan, name: str) -> RepeatingGroup:
    """A list of one entry from the message's own fields, where it has any of them."""
    columns = {column: rows.column(column) for column in each.rule.lists[name].columns}
    is_there = np.zeros(len(rows), bool)
    for column, values in columns.items():
        is_there |= values != rows.family.column(column).null
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(is_there, out=offsets[1:])
    return RepeatingGroup(offsets, {column: values[is_there] for column, values in columns.items()})
