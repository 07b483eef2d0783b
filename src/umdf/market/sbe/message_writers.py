"""One rule of the Binary table, backwards: rows of a family → columns of a template's messages.

The encoder is fastest with plain arrays without nulls, so a draft holds those: missing values are already the null
value of their field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.families import FAMILIES, Column, Family
from umdf.market.rows import Numbers, Rows, Text
from umdf.market.sbe.field_encoders import (
    EncodedValues,
    FieldEncoder,
    PickedRows,
    constant_encoder,
    field_encoder,
    leaf_sources,
)
from umdf.market.sbe.mapping_rules import (
    Combine,
    FieldSource,
    MonthYear,
    TemplateRule,
    find_data,
    find_field,
    find_node,
)
from umdf.wire.sbe.encode import NULLS_IN_PLACE
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import Layout, Node

NodeFields = list[tuple[WireColumn, list[FieldEncoder]]]  # each with its sources, in the order they are tried
NodeTexts = list[tuple[str, str]]  # the wire's name, the column's


@dataclass(eq=False)
class DraftMessages:
    """Messages of one template whose order among the others is not final yet."""

    template: int
    rows: Rows
    first_rows: PickedRows  # the first row of each message
    packet: NDArray[np.uint32]
    msg_index: NDArray[np.uint16]
    names: list[str]
    arrays: list[pa.Array]

    @property
    def wire_order(self) -> NDArray[np.int64]:
        return self.rows.wire_order[self.first_rows]

    def filter(self, which: NDArray[np.bool_]) -> None:
        self.first_rows = np.arange(len(self.rows))[self.first_rows][which]
        self.packet, self.msg_index = self.packet[which], self.msg_index[which]
        self.arrays = [array.filter(pa.array(which)) for array in self.arrays]

    def record_batch(self) -> pa.RecordBatch:
        own = [arrow_array(self.packet), arrow_array(self.msg_index)]
        batch = pa.RecordBatch.from_arrays(own + self.arrays, names=["packet", "msg_index", *self.names])
        return batch.replace_schema_metadata({"template_id": str(self.template), NULLS_IN_PLACE: ""})


class MessageWriter:
    """Writes the messages of one rule."""

    def __init__(self, layout: Layout, rule: TemplateRule, version: int) -> None:
        self.rule = rule
        family = FAMILIES[rule.family]
        root = layout.roots[rule.template]
        self._root = _NodeWriter(rule, root, version, family)
        entry = find_node(layout, rule.template, rule.group) if rule.group else None
        self._entry = _NodeWriter(rule, entry, version, family) if entry else None
        self._lists: list[tuple[str, Family, _NodeWriter]] = []
        for name, each in rule.lists.items():
            child = find_node(layout, rule.template, each.group)
            inner = Family(name, "", family.lists[name], {})
            if not each.group:
                self._root.add_first_entries(rule, root, inner, each.columns)
            elif child is not None:
                part = _NodeWriter(TemplateRule(rule.template, rule.family, each.columns), child, version, inner)
                self._lists.append((name, inner, part))

    def draft(self, rows: Rows, picked: PickedRows) -> DraftMessages:
        """The messages of these rows: one each, or one for all entries that belong together."""
        first_rows = picked
        if self._entry:
            row_numbers = np.arange(len(rows))[picked]
            starts = _run_starts(rows.unit[picked], rows.msg_index[picked], rows.column("instrument_id")[picked])
            first_rows = row_numbers[starts]
            entries = _struct(*self._entry.encode(rows, picked), len(row_numbers))
            offsets = np.append(starts, len(row_numbers)).astype(np.int32)
        names, arrays = self._root.encode(rows, first_rows)
        if self._entry:
            names.append(self._entry.node.block.name)
            arrays.append(pa.ListArray.from_arrays(arrow_array(offsets), entries))
        for name, family, part in self._lists:
            if name in rows.lists:
                names.append(part.node.block.name)
                arrays.append(_list_array(rows, name, family, part, first_rows))
        return DraftMessages(
            self.rule.template, rows, first_rows, rows.unit[first_rows], rows.msg_index[first_rows], names, arrays
        )


class _NodeWriter:
    """The fields of one node that the columns of a family write."""

    def __init__(self, rule: TemplateRule, node: Node, version: int, family: Family) -> None:
        self.node = node
        self.fields: NodeFields = []
        self.texts: NodeTexts = []
        columns = {column.name: column for column in (*family.columns, *_common(family))}
        for wire in node.columns:
            if wire.field.in_version(version):
                if wire.is_text:
                    self.texts += _text_fields(rule, node, wire.field.name, rule.columns)
                elif encoders := _field_encoders(rule, node, wire, columns, rule.columns):
                    self.fields.append((wire, encoders))
        for name, source in rule.columns.items():
            number = find_data(rule.template, node, source.field) if source.field else None
            if number is not None and node.block.data[number].since <= version:
                self.texts.append((node.block.data[number].name, name))

    def add_first_entries(
        self, rule: TemplateRule, node: Node, inner: Family, sources: Mapping[str, FieldSource]
    ) -> None:
        """Fields that a list of the family may also have, in its first entry."""
        columns = {column.name: column for column in inner.columns}
        for wire, encoders in self.fields:
            for encode in _field_encoders(rule, node, wire, columns, sources, with_constants=False):
                encoders.append(_first_entry_encoder(inner, encode))

    def encode(self, rows: Rows, picked: PickedRows) -> tuple[list[str], list[pa.Array]]:
        names, arrays = [], []
        for wire, encoders in self.fields:
            names.append(wire.name)
            arrays.append(arrow_array(_encode_field(encoders, rows, picked)))
        for name, column in self.texts:
            names.append(name)
            arrays.append(_text_array(rows.texts.get(column), rows, picked))
        return names, arrays


def _common(family: Family) -> list[Column]:
    names = ("instrument_id", "ts_event", "rpt_seq", "flags") if family.name in FAMILIES else ()
    return [family.column(name) for name in names]


def _field_encoders(
    rule: TemplateRule,
    node: Node,
    wire: WireColumn,
    columns: Mapping[str, Column],
    sources: Mapping[str, FieldSource],
    *,
    with_constants: bool = True,
) -> list[FieldEncoder]:
    encoders = []
    # A column of this field alone takes precedence over one that it is only a part of.
    for name, source in sorted(sources.items(), key=lambda item: isinstance(item[1], Combine)):
        for single in leaf_sources(source):
            whole = not wire.part.name or isinstance(single, MonthYear)  # one part of several is not the value
            if whole and single.field and find_field(rule.template, node, single.field) is wire.field:
                encode = field_encoder(single, columns[name], wire)
                encoders += [encode] if encode else []
    if with_constants:
        for name, value in rule.constants.items():
            if find_field(rule.template, node, name) is wire.field:
                encoders.append(constant_encoder(value, wire))
    return encoders


def _text_fields(rule: TemplateRule, node: Node, field: str, sources: Mapping[str, FieldSource]) -> NodeTexts:
    for name, source in sources.items():
        found = find_field(rule.template, node, source.field) if source.field else None
        if found is not None and found.name == field:
            return [(field, name)]
    return []


def _encode_field(encoders: list[FieldEncoder], rows: Rows, picked: PickedRows) -> Numbers:
    values, missing = encoders[0](rows, picked)
    for encode in encoders[1:]:
        if missing is False or not np.any(missing):
            break
        others, still_missing = encode(rows, picked)
        found = missing & ~np.asarray(still_missing)
        values = np.where(found, others, values)  # elsewhere it is the null value already
        missing = missing & ~found
    return values


def _first_entry_encoder(inner: Family, encode: FieldEncoder) -> FieldEncoder:
    def encode_first(rows: Rows, picked: PickedRows) -> EncodedValues:
        found = rows.lists.get(inner.name)
        count = len(rows.unit[picked])
        if found is None or not len(found.offsets) or found.offsets[-1] == found.offsets[0]:
            return np.zeros(count, np.int8), True
        first, last = found.offsets[:-1][picked], found.offsets[1:][picked]
        values, missing = encode(_entry_rows(rows, inner), np.minimum(first, found.offsets[-1] - 1).astype(np.int64))
        return values, missing | (first == last)

    return encode_first


def _entry_rows(rows: Rows, inner: Family) -> Rows:
    """The entries of a list as rows of their own."""
    group = rows.lists[inner.name]
    count = int(group.offsets[-1])
    nothing = np.zeros(count, np.uint16)
    return Rows(inner, nothing.astype(np.uint32), nothing, nothing, group.columns, group.texts)


def _list_array(rows: Rows, name: str, inner: Family, part: _NodeWriter, picked: PickedRows) -> pa.Array:
    entries = _entry_rows(rows, inner)
    struct = _struct(*part.encode(entries, slice(None)), len(entries))
    lists = pa.ListArray.from_arrays(arrow_array(rows.lists[name].offsets), struct)
    return lists if isinstance(picked, slice) else lists.take(pa.array(picked))


def _struct(names: list[str], arrays: list[pa.Array], count: int) -> pa.Array:
    kind = pa.struct([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
    return pa.Array.from_buffers(kind, count, [None], null_count=0, children=arrays)


def _run_starts(*columns: Numbers) -> NDArray[np.int64]:
    """The starts of runs of equal rows."""
    first = np.ones(len(columns[0]), bool)
    first[1:] = False
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def _text_array(text: Text | None, rows: Rows, picked: PickedRows) -> pa.Array:
    if text is None:
        return pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(rows.unit[picked]), np.int64)))
    offsets, content = (pa.py_buffer(np.ascontiguousarray(part)) for part in text)
    array = pa.Array.from_buffers(pa.binary(), len(rows), [None, offsets, content], null_count=0)
    return array if isinstance(picked, slice) else array.take(pa.array(picked))


def arrow_array(values: Numbers) -> pa.Array:
    """Numbers as Arrow, without a copy and without nulls."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)], 0)
