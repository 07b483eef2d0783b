"""What the program of `sbe_plan` does not move: texts, names of codes, months, and lists. All of it is low traffic.

A text of a family comes from one template only, so that its bytes are in the order of the family's rows already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umdf.market.events import OUT_OF_RANGE
from umdf.market.rows import List, Numbers, Rows, Text, text_of
from umdf.market.sbe_plan import RulePlan
from umdf.market.sbe_rules import MonthYear, Named, Source, code_of, data_of

if TYPE_CHECKING:
    from umdf.market.sbe_events import Run


def add_texts(run: Run, families: dict[str, Rows]) -> None:
    """Add to the rows what is not among their numbers."""
    for each in run.plan.with_texts:
        rows = families.get(each.rule.family)
        count = int(run.batch.rows[each.steps.node.index])
        if rows is None or not count:
            continue
        for name, source in each.rule.columns.items():
            if isinstance(source, MonthYear):
                months = _months(run, each, source)
                if months is not None:
                    rows.columns[name] = months
            elif rows.family.column(name).is_text:
                text = _text(run, each, source)
                if text is not None:
                    rows.texts[name] = (
                        text if count == len(rows) else _placed(text, run.places(each.number, count), rows)
                    )
        for name in each.rule.lists:
            found = _list(run, each, name, rows) if each.rule.lists[name].group else _of_message(rows, each, name)
            if found is not None:
                rows.lists[name] = found


def _text(run: Run, each: RulePlan, source: Source) -> Text | None:
    node = each.steps.node
    if isinstance(source, Named):
        return _names(run, each, source)
    found = each.steps.find(source.field)
    count = int(run.batch.rows[node.index])
    table, memory = run.batch.store(node)
    if found is not None and found.wire is not None and found.wire.is_text:
        number = node.columns.index(found.wire)
        offsets = _offsets(memory.array, table.values[number], count)
        return offsets, memory.array[table.text[number] :][: int(offsets[-1])]
    number = data_of(each.rule.template, node, source.field)
    if number is None:
        return None
    offsets = _offsets(memory.array, table.offsets[len(node.children) + number], count)
    return offsets, run.batch.data(node.data[number])[: int(offsets[-1])]


def _offsets(array: NDArray[np.uint8], place: int, count: int) -> NDArray[np.int32]:
    return array[place : place + 4 * (count + 1)].view(np.int32)


def _names(run: Run, each: RulePlan, source: Source) -> Text | None:
    """Codes by their names; one that the schema does not name (3.3) by its digits."""
    found = each.steps.find(source.field)
    if found is None or found.wire is None:
        return None
    node, wire = each.steps.node, found.wire
    codes = run.batch.values(node, wire).tolist()
    names: dict[int, str | None] = {code_of(code): name for code, name in wire.field.codes.items()}
    if wire.part.null is not None:
        names[wire.part.null] = None
    texts = [names.get(code, str(code)) for code in codes]
    if found.has_bitmap:
        table, memory = run.batch.store(node)
        bits = memory.array[table.bitmaps[node.columns.index(wire)] :][: (len(codes) + 7) // 8]
        is_there = np.unpackbits(bits, count=len(codes), bitorder="little").tolist()
        texts = [text if there else None for text, there in zip(texts, is_there, strict=True)]
    return text_of(texts)


def _placed(text: Text, places: NDArray[np.int64], rows: Rows) -> Text:
    """A text that only some rows have."""
    lengths = np.zeros(len(rows), np.int32)
    lengths[places] = np.diff(text[0])
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, text[1]


def _months(run: Run, each: RulePlan, source: Source) -> Numbers | None:
    """yyyymm, yyyymmdd, or yyyymm9w for the week; NULL where no part is there."""
    found = each.steps.find(source.field)
    if found is None or found.wire is None:
        return None
    node, parts = each.steps.node, {}
    for wire in node.columns:
        if wire.field is found.field:
            values = run.batch.values(node, wire).astype(np.int64)
            parts[wire.part.name] = np.where(values == wire.part.null, 0, values)
    nothing = np.zeros(int(run.batch.rows[node.index]), np.int64)
    year, month, day, week = (parts.get(name, nothing) for name in ("year", "month", "day", "week"))
    of_month = 100 * year + month
    last = np.where(day != 0, day, np.where(week != 0, 90 + week, 0))
    months = np.where(last != 0, 100 * of_month + last, of_month)
    return np.where(months == 0, np.iinfo(np.int32).min, months).astype(np.int32)


def _list(run: Run, each: RulePlan, name: str, rows: Rows) -> List | None:
    """A repeating group: its columns went through the program as a family of their own."""
    family = run.plan.family_of(f"{each.rule.family}.{name}")
    if family is None:
        return None
    root, entry = each.steps.node, run.plan.rules[family.rules[0]]
    table, memory = run.batch.store(root)
    place = table.offsets[root.children.index(entry.steps.node.index)]
    offsets = _offsets(memory.array, place, int(run.batch.rows[root.index]))
    if not run.totals[family.number]:
        return List(offsets, {})
    columns = run.columns(family)
    wrong = columns.pop("flags") & OUT_OF_RANGE != 0
    if wrong.any():
        parents = np.repeat(np.arange(len(rows)), np.diff(offsets))
        rows.columns["flags"][parents[wrong]] |= OUT_OF_RANGE
    texts: dict[str, Text] = {}
    for column, source in entry.rule.columns.items():
        if family.family.column(column).is_text:
            text = _text(run, entry, source)
            if text is not None:
                texts[column] = text
    return List(offsets, columns, texts)


def _of_message(rows: Rows, each: RulePlan, name: str) -> List:
    """A list of one entry from the message's own fields, where it has any of them."""
    columns = {column: rows.column(column) for column in each.rule.lists[name].columns}
    is_there = np.zeros(len(rows), bool)
    for column, values in columns.items():
        is_there |= values != rows.family.column(column).null
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(is_there, out=offsets[1:])
    return List(offsets, {column: values[is_there] for column, values in columns.items()})
