"""Decoded messages as rows for display: dictionaries (what `--format json` prints) and FIX fields.

Values are exact: integers and codes as sent, a char as text, a decimal as text with its full scale, a field of several
parts as a dictionary; a date is its day number, or with `dates` a text (2026-11-13). Absent values are left out.
Constants are not sent, so only the FIX view shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.units import decimal_text, fix_date, fix_timestamp, iso_date, strip_trailing_zeros
from umdf.wire.fix.dictionary import lookup
from umdf.wire.fix.text import month_year
from umdf.wire.sbe.decode import Batch
from umdf.wire.sbe.layout import Column, Layout, Node
from umdf.wire.sbe.schema import DATE, OPTIONAL, REQUIRED, Block, Field, Group

Values = dict[str, Any]

MSG_SEQ_NUM, SENDING_TIME = 34, 52
HEADER_TAGS = {8, 9, 35, 1128, 49, 56}  # the fields before them in FIX
MD_ENTRY_TYPE = 269  # what an entry of a book starts with in FIX


@dataclass(frozen=True)
class Row:
    """One message of a batch."""

    packet: int
    msg_index: int
    node: Node
    fields: Values


def decode_text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def name_codes(field: Field, value: Any) -> Any:
    """A code by its name, a set by the names of its bits; what has no name stays as it is."""
    if field.codes:
        return field.codes.get(value, value)
    if field.is_set:
        return [field.bits.get(bit, f"bit {bit}") for bit in range(64) if value >> bit & 1]
    return value


def rows(batch: Batch, *, names: bool = False, dates: bool = False) -> Iterator[Row]:
    """Every message of a batch, in wire order."""
    tables = []
    for template_id in batch.templates:
        node = batch.layout.roots[template_id]
        position = batch.packet(node).astype(np.int64) << 16 | batch.msg_index(node)
        found = node_rows(batch.layout, node, batch.record_batch(template_id), names, dates)
        tables.append((node, position, iter(found)))
    positions = np.concatenate([place for _, place, _ in tables]) if tables else np.empty(0, np.int64)
    owners = np.repeat(np.arange(len(tables)), [len(place) for _, place, _ in tables])
    order = np.argsort(positions, kind="stable")
    for position, owner in zip(positions[order].tolist(), owners[order].tolist(), strict=True):
        node, _, fields = tables[owner]
        yield Row(position >> 16, position & 0xFFFF, node, next(fields))


def node_rows(
    layout: Layout, node: Node, table: pa.RecordBatch | pa.StructArray, names: bool, dates: bool
) -> list[Values]:
    """The rows of a message's RecordBatch, or of a group's struct array."""
    pick = table.column if isinstance(table, pa.RecordBatch) else table.field
    count = len(table)
    fields: list[Values] = [{} for _ in range(count)]
    for column in node.columns:
        show = _formatter(column, names, dates)
        parts = bool(column.part.name)
        for row, value in zip(fields, pick(column.name).to_pylist(), strict=True):
            if value is None:
                continue
            if parts:
                row.setdefault(column.field.name, {})[column.part.name] = show(value)
            else:
                row[column.field.name] = show(value)
    for group, child in zip(node.block.groups, node.children, strict=True):
        lists = pick(group.name)
        entries = node_rows(layout, layout.nodes[child], lists.flatten(), names, dates)
        offsets = lists.offsets.to_numpy()
        offsets = (offsets - offsets[0]).tolist()
        for row, first, last in zip(fields, offsets, offsets[1:], strict=False):
            if last > first:
                row[group.name] = entries[first:last]
    for data in node.block.data:
        for row, content in zip(fields, pick(data.name).to_pylist(), strict=True):
            if content is not None:
                row[data.name] = decode_text(content)
    return fields


def _formatter(column: Column, names: bool, dates: bool) -> Callable[[Any], Any]:
    field = column.field
    if column.is_text:
        return decode_text
    exponent = field.exponent
    if exponent is not None:
        return lambda mantissa: decimal_text(mantissa, exponent)
    if dates and field.is_date:
        return iso_date
    if column.part.primitive == "char":
        return (lambda code: name_codes(field, chr(code))) if names else chr
    return (lambda value: name_codes(field, value)) if names else (lambda value: value)


def with_packet_header(
    fields: Iterable[tuple[int, str]], sequence: int, sending_time_ns: int
) -> Iterator[tuple[int, str]]:
    """The FIX fields of a message with 34 and 52, which FIX has in every message and Binary once per packet, after the
    header fields of the message itself."""
    sent = (MSG_SEQ_NUM, str(sequence)), (SENDING_TIME, fix_timestamp(sending_time_ns, 9))
    fields = iter(fields)
    for field in fields:
        if field[0] not in HEADER_TAGS:
            yield from sent
            yield field
            break
        yield field
    else:
        yield from sent
    yield from fields


def fix_fields(block: Block, values: Values, group_tag: int = 0) -> Iterator[tuple[int, str]]:
    """The fields of a message as FIX writes them: constants too, a group as its count and then its entries."""
    for field in _fix_order(block):
        value = field.constant if field.constant is not None else values.get(field.name)
        if value is not None:
            yield field.tag, _fix_text(field, value, group_tag)
    for group in block.groups:
        entries = values.get(group.name, [])
        if entries:
            yield group.tag, str(len(entries))
            for entry in entries:
                yield from fix_fields(group, entry, group.tag)
    for data in block.data:
        if data.name in values:
            yield data.tag, values[data.name]


def _fix_order(block: Block) -> list[Field]:
    """FIX separates the entries of a group by their first field, so every entry must have it."""
    fields = list(block.fields)
    if isinstance(block, Group) and fields and fields[0].presence == OPTIONAL:
        always = [field for field in fields if field.presence == REQUIRED]
        first = next((field for field in always if field.tag == MD_ENTRY_TYPE), always[0] if always else fields[0])
        fields.remove(first)
        fields.insert(0, first)
    return fields


def _fix_text(field: Field, value: Any, group_tag: int) -> str:
    if isinstance(value, dict):
        if value.keys() <= {"year", "month", "day", "week"}:
            return month_year(*(value.get(part) for part in ("year", "month", "day", "week")))
        return ",".join(f"{part}:{number}" for part, number in value.items())
    if field.time_unit is not None:
        return fix_timestamp(value, field.time_unit)
    if field.exponent is not None:
        return strip_trailing_zeros(value)
    tag = lookup(field.tag, group_tag)
    kind = tag.type if tag else field.semantic
    if field.is_date or kind in (DATE, "UTCDateOnly"):
        return fix_date(value) if isinstance(value, int) else value.replace("-", "")
    if kind == "Boolean" and value in (0, 1):
        return "NY"[value]
    return str(value)
