"""Messages written by hand: dictionaries (as `view` shows them) → RecordBatches → packets.

compose(schema, [Packet(channel=72, sequence=1, messages=[("Order_MBO_50", {"securityID": 1, …})])])
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from umdf.errors import EncodeError
from umdf.units import decimal_text
from umdf.wire.columns import shown
from umdf.wire.sbe.arrow import KEY_FIELDS, arrow_schema, arrow_type
from umdf.wire.sbe.encode import EncodedPackets, Encoder
from umdf.wire.sbe.layout import Column, Layout, Node
from umdf.wire.sbe.schema import Schema
from umdf.wire.sbe.type_declarations import bounds

Values = Mapping[str, Any]
MAX_DIGITS = 40  # before or after the point: no field holds half of them


@dataclass(frozen=True)
class Packet:
    """A packet to encode: its header and its messages by template name or id."""

    messages: Sequence[tuple[str | int, Values]] = ()
    channel: int = 0
    seq_version: int = 1
    sequence: int = 0
    sending_time: int = 0


def compose(schema: Schema, packets: Iterable[Packet], version: int | None = None) -> EncodedPackets:
    """Encode packets given message by message."""
    encoder, packets = Encoder(schema, version), list(packets)
    ids = {message.name: template_id for template_id, message in schema.messages.items()}
    tables: dict[int, _MessageRows] = {}
    for number, packet in enumerate(packets):
        for index, (template, values) in enumerate(packet.messages):
            template_id = ids.get(template, -1) if isinstance(template, str) else template
            if not isinstance(template_id, int) or template_id not in encoder.layout.roots:
                raise EncodeError(f"unknown message {shown(template)}")
            if not isinstance(values, Mapping):
                raise EncodeError(f"{template} expects a dict of field values, got {shown(values)}")
            tables.setdefault(template_id, _MessageRows()).add(number, index, values)
    batches = [table.record_batch(encoder.layout, template_id) for template_id, table in tables.items()]
    names = ("channel", "seq_version", "sequence", "sending_time")
    return encoder.encode({name: [getattr(packet, name) for packet in packets] for name in names}, batches)


def compose_message(schema: Schema, template: str | int, values: Values, version: int | None = None) -> bytes:
    """One message with its framing, without a packet around it."""
    encoded = compose(schema, [Packet([(template, values)])], version)
    return encoded.buffer[16:].tobytes()


@dataclass
class _MessageRows:
    packet: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    rows: list[Values] = field(default_factory=list)

    def add(self, packet: int, index: int, values: Values) -> None:
        self.packet.append(packet)
        self.index.append(index)
        self.rows.append(values)

    def record_batch(self, layout: Layout, template_id: int) -> pa.RecordBatch:
        node = layout.roots[template_id]
        own = [pa.array(column, kind.type) for column, kind in zip((self.packet, self.index), KEY_FIELDS, strict=True)]
        columns = _columns(layout, node, self.rows)
        return pa.RecordBatch.from_arrays(own + columns, schema=arrow_schema(layout, template_id))


def _columns(layout: Layout, node: Node, rows: Sequence[Values]) -> list[pa.Array]:
    _check_names(node, rows)
    arrays = []
    for column in node.columns:
        values = [_column_value(column, row.get(column.field.name), f"{node.path}.{column.name}") for row in rows]
        arrays.append(pa.array(values, arrow_type(column)))
    for group, child in zip(node.block.groups, node.children, strict=True):
        entries, offsets = [], [0]
        for row in rows:
            found = row.get(group.name, ())
            if not isinstance(found, Sequence) or not all(isinstance(entry, Mapping) for entry in found):
                raise EncodeError(f"{node.path}.{group.name} expects a list of entries, each a dict")
            entries += found
            offsets.append(len(entries))
        inner = layout.nodes[child]
        names = [
            *(column.name for column in inner.columns),
            *(part.name for part in inner.block.groups + inner.block.data),
        ]
        columns = _columns(layout, inner, entries)
        kind = pa.struct([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)])
        struct = pa.Array.from_buffers(kind, len(entries), [None], null_count=0, children=columns)
        arrays.append(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), struct))
    for data in node.block.data:
        texts = [_text_bytes(f"{node.path}.{data.name}", row.get(data.name)) for row in rows]
        arrays.append(pa.array(texts, pa.binary()))
    return arrays


def _check_names(node: Node, rows: Sequence[Values]) -> None:
    block = node.block
    known = {part.name for part in (*block.fields, *block.groups, *block.data)}
    for row in rows:
        unknown = row.keys() - known
        if unknown:
            raise EncodeError(f"{node.path} has no field {sorted(unknown)[0]!r}")


def _column_value(column: Column, value: Any, name: str) -> Any:
    """A value as it goes into the column: a decimal's mantissa, a char's code, the bytes of a text."""
    field, part = column.field, column.part
    if part.name and value is not None:
        names = {each.name for each in field.parts}
        if not isinstance(value, Mapping) or value.keys() - names:
            raise EncodeError(f"{name.removesuffix(f'.{part.name}')} expects a dict of {', '.join(sorted(names))}")
        value = value.get(part.name)
    if value is None:
        return None
    if column.is_text:
        content = _text_bytes(name, value)
        if isinstance(value, str) and not value.isascii():
            raise EncodeError(f"{name}: {shown(value)} is not ASCII")
        if content and b"\0" in content:
            raise EncodeError(f"{name}: text contains a NUL: {shown(value)}")
        return content
    if part.primitive == "char" and isinstance(value, str):
        if len(value) != 1 or not value.isascii():
            raise EncodeError(f"{name} expects one ASCII character, got {shown(value)}")
        return ord(value)
    low, high = bounds(part.primitive)
    if field.exponent is not None:
        number = _mantissa(name, value, field.exponent)
        limits = decimal_text(low, field.exponent), decimal_text(high, field.exponent)
    else:
        number, limits = _whole(name, value, low, high), (str(low), str(high))
    if not low <= number <= high:
        raise EncodeError(f"{name}: {shown(value)} is outside {limits[0]} to {limits[1]}")
    return number


def _whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise EncodeError(f"{name}: {shown(value)} is not an integer from {low} to {high}") from None


def _mantissa(name: str, value: Any, exponent: int) -> int:
    try:
        number = Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        raise EncodeError(f"{name}: {shown(value)} is not a decimal number") from None
    sign, digits, scale = number.as_tuple()
    if not isinstance(scale, int) or abs(number.adjusted()) > MAX_DIGITS:
        raise EncodeError(f"{name}: {shown(value)} does not fit a decimal")
    mantissa = int("".join(map(str, digits))) * (-1 if sign else 1)
    whole, rest = divmod(mantissa * 10 ** max(scale - exponent, 0), 10 ** max(exponent - scale, 0))
    if rest:
        raise EncodeError(f"{name}: {shown(value)} has more than {-exponent} decimals")
    return whole


def _text_bytes(name: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise EncodeError(f"{name}: {shown(value)} is not a string") from None
