"""One rule of the Binary table, backwards: rows of a family → columns of a template's messages.

The encoder is quickest with plain arrays without nulls, so that is what a draft holds: where a value is missing, the
null value of its field stands already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.events import FAMILIES, Column, Family
from umdf.market.rows import Numbers, Rows, Text
from umdf.market.sbe_fields import Picked, Reverser, Values, fixed, reverser, single_sources
from umdf.market.sbe_rules import AnyOf, MonthYear, Rule, Source, data_of, field_of, node_of
from umdf.wire.sbe.encode import NULLS_IN_PLACE
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import Layout, Node

Fields = list[tuple[WireColumn, list[Reverser]]]  # each with whom to ask, in turn, until nothing is missing
Texts = list[tuple[str, str]]  # the wire's name, the column's


@dataclass(eq=False)
class Draft:
    """Messages of one template whose places among the others are not final yet."""

    template: int
    rows: Rows
    heads: Picked  # the first row of each message
    packet: NDArray[np.uint32]
    msg_index: NDArray[np.uint16]
    names: list[str]
    arrays: list[pa.Array]

    @property
    def order(self) -> NDArray[np.int64]:
        return self.rows.order[self.heads]

    def keep(self, which: NDArray[np.bool_]) -> None:
        self.heads = np.arange(len(self.rows))[self.heads][which]
        self.packet, self.msg_index = self.packet[which], self.msg_index[which]
        self.arrays = [array.filter(pa.array(which)) for array in self.arrays]

    def record_batch(self) -> pa.RecordBatch:
        own = [array_of(self.packet), array_of(self.msg_index)]
        batch = pa.RecordBatch.from_arrays(own + self.arrays, names=["packet", "msg_index", *self.names])
        return batch.replace_schema_metadata({"template_id": str(self.template), NULLS_IN_PLACE: ""})


class Writer:
    """Writes the messages of one rule."""

    def __init__(self, layout: Layout, rule: Rule, version: int) -> None:
        self.rule = rule
        family = FAMILIES[rule.family]
        root = layout.roots[rule.template]
        self._root = _Part(rule, root, version, family)
        entry = node_of(layout, rule.template, rule.group) if rule.group else None
        self._entry = _Part(rule, entry, version, family) if entry else None
        self._lists: list[tuple[str, Family, _Part]] = []
        for name, each in rule.lists.items():
            child = node_of(layout, rule.template, each.group)
            inner = Family(name, "", family.lists[name], {})
            if not each.group:
                self._root.add_first_entries(rule, root, inner, each.columns)
            elif child is not None:
                part = _Part(Rule(rule.template, rule.family, each.columns), child, version, inner)
                self._lists.append((name, inner, part))

    def draft(self, rows: Rows, picked: Picked) -> Draft:
        """The messages that these rows make: one each, or one for all entries that stood together."""
        heads = picked
        if self._entry:
            places = np.arange(len(rows))[picked]
            starts = _starts(rows.unit[picked], rows.msg_index[picked], rows.column("instrument_id")[picked])
            heads = places[starts]
            entries = _struct(*self._entry.written(rows, picked), len(places))
            offsets = np.append(starts, len(places)).astype(np.int32)
        names, arrays = self._root.written(rows, heads)
        if self._entry:
            names.append(self._entry.node.block.name)
            arrays.append(pa.ListArray.from_arrays(array_of(offsets), entries))
        for name, family, part in self._lists:
            if name in rows.lists:
                names.append(part.node.block.name)
                arrays.append(_list_array(rows, name, family, part, heads))
        return Draft(self.rule.template, rows, heads, rows.unit[heads], rows.msg_index[heads], names, arrays)


class _Part:
    """The fields of one node that the columns of a family write."""

    def __init__(self, rule: Rule, node: Node, version: int, family: Family) -> None:
        self.node = node
        self.fields: Fields = []
        self.texts: Texts = []
        columns = {column.name: column for column in (*family.columns, *_common(family))}
        for wire in node.columns:
            if wire.field.in_version(version):
                if wire.is_text:
                    self.texts += _text(rule, node, wire.field.name, rule.columns)
                elif askable := _askable(rule, node, wire, columns, rule.columns):
                    self.fields.append((wire, askable))
        for name, source in rule.columns.items():
            number = data_of(rule.template, node, source.field) if source.field else None
            if number is not None and node.block.data[number].since <= version:
                self.texts.append((node.block.data[number].name, name))

    def add_first_entries(self, rule: Rule, node: Node, inner: Family, sources: Mapping[str, Source]) -> None:
        """Fields that a list of the family may say as well, by its first entry."""
        columns = {column.name: column for column in inner.columns}
        for wire, askable in self.fields:
            for reverse in _askable(rule, node, wire, columns, sources, fixed_too=False):
                askable.append(_of_first_entry(inner, reverse))

    def written(self, rows: Rows, picked: Picked) -> tuple[list[str], list[pa.Array]]:
        names, arrays = [], []
        for wire, askable in self.fields:
            names.append(wire.name)
            arrays.append(array_of(_asked(askable, rows, picked)))
        for name, column in self.texts:
            names.append(name)
            arrays.append(_text_array(rows.texts.get(column), rows, picked))
        return names, arrays


def _common(family: Family) -> list[Column]:
    names = ("instrument_id", "ts_event", "rpt_seq", "flags") if family.name in FAMILIES else ()
    return [family.column(name) for name in names]


def _askable(
    rule: Rule,
    node: Node,
    wire: WireColumn,
    columns: Mapping[str, Column],
    sources: Mapping[str, Source],
    *,
    fixed_too: bool = True,
) -> list[Reverser]:
    found = []
    # A column that is this field alone says more than one that it is only a part of.
    for name, source in sorted(sources.items(), key=lambda item: isinstance(item[1], AnyOf)):
        for single in single_sources(source):
            whole = not wire.part.name or isinstance(single, MonthYear)  # one part of several is not the value
            if whole and single.field and field_of(rule.template, node, single.field) is wire.field:
                reverse = reverser(single, columns[name], wire)
                found += [reverse] if reverse else []
    if fixed_too:
        for name, value in rule.fixed.items():
            if field_of(rule.template, node, name) is wire.field:
                found.append(fixed(value, wire))
    return found


def _text(rule: Rule, node: Node, field: str, sources: Mapping[str, Source]) -> Texts:
    for name, source in sources.items():
        found = field_of(rule.template, node, source.field) if source.field else None
        if found is not None and found.name == field:
            return [(field, name)]
    return []


def _asked(askable: list[Reverser], rows: Rows, picked: Picked) -> Numbers:
    values, missing = askable[0](rows, picked)
    for reverse in askable[1:]:
        if missing is False or not np.any(missing):
            break
        others, still = reverse(rows, picked)
        found = missing & ~np.asarray(still)
        values = np.where(found, others, values)  # elsewhere it is the null value already
        missing = missing & ~found
    return values


def _of_first_entry(inner: Family, reverse: Reverser) -> Reverser:
    def reverse_first(rows: Rows, picked: Picked) -> Values:
        found = rows.lists.get(inner.name)
        count = len(rows.unit[picked])
        if found is None or not len(found.offsets) or found.offsets[-1] == found.offsets[0]:
            return np.zeros(count, np.int8), True
        first, last = found.offsets[:-1][picked], found.offsets[1:][picked]
        values, missing = reverse(_entries(rows, inner), np.minimum(first, found.offsets[-1] - 1).astype(np.int64))
        return values, missing | (first == last)

    return reverse_first


def _entries(rows: Rows, inner: Family) -> Rows:
    """The entries of a list as rows of their own."""
    found = rows.lists[inner.name]
    count = int(found.offsets[-1])
    nothing = np.zeros(count, np.uint16)
    return Rows(inner, nothing.astype(np.uint32), nothing, nothing, found.columns, found.texts)


def _list_array(rows: Rows, name: str, inner: Family, part: _Part, picked: Picked) -> pa.Array:
    entries = _entries(rows, inner)
    struct = _struct(*part.written(entries, slice(None)), len(entries))
    lists = pa.ListArray.from_arrays(array_of(rows.lists[name].offsets), struct)
    return lists if isinstance(picked, slice) else lists.take(pa.array(picked))


def _struct(names: list[str], arrays: list[pa.Array], count: int) -> pa.Array:
    kind = pa.struct([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
    return pa.Array.from_buffers(kind, count, [None], null_count=0, children=arrays)


def _starts(*columns: Numbers) -> NDArray[np.int64]:
    """Where a stretch of equal rows starts."""
    first = np.ones(len(columns[0]), bool)
    first[1:] = False
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def _text_array(text: Text | None, rows: Rows, picked: Picked) -> pa.Array:
    if text is None:
        return pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(rows.unit[picked]), np.int64)))
    offsets, content = (pa.py_buffer(np.ascontiguousarray(part)) for part in text)
    array = pa.Array.from_buffers(pa.binary(), len(rows), [None, offsets, content], null_count=0)
    return array if isinstance(picked, slice) else array.take(pa.array(picked))


def array_of(values: Numbers) -> pa.Array:
    """Numbers as Arrow, without a copy and without nulls."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)], 0)
