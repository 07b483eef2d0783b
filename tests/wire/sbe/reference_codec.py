"""The Binary codec once more, slow and obvious: one packet at a time, in plain Python, driven by the schema's model.

It shares nothing with the codec under test but that model. Where the two disagree, one of them is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from umdf.wire.sbe.schema import Block, Field, Message, Part, Schema

FORMATS = {
    **{"char": "B", "int8": "b", "uint8": "B", "int16": "<h", "uint16": "<H"},
    **{"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q"},
}
LENGTHS = {1: "B", 2: "<H", 4: "<I"}
SBE = 0xEB50

Values = dict[str, Any]


@dataclass(frozen=True)
class DecodedMessage:
    """A sound message."""

    msg_index: int
    template_id: int
    fields: Values


@dataclass(frozen=True)
class QuarantinedMessage:
    """What is not among the messages: `kind` is the name of the reason, `need` and `left` are its numbers."""

    msg_index: int
    offset: int
    template_id: int | None
    version: int | None
    field: str
    kind: str
    need: int
    left: int


@dataclass
class DecodedPacket:
    header: tuple[int, int, int, int] = (0, 0, 0, 0)  # channel, seq_version, sequence, sending_time
    messages: int = 0
    found: list[DecodedMessage] = field(default_factory=list)
    refused: list[QuarantinedMessage] = field(default_factory=list)


class BadMessageError(Exception):
    def __init__(self, kind: str, path: str, offset: int, need: int, left: int) -> None:
        super().__init__(kind)
        self.kind, self.path, self.offset, self.need, self.left = kind, path, offset, need, left


def decode_packet(schema: Schema, packet: bytes) -> DecodedPacket:
    if len(packet) < 16:
        return DecodedPacket(refused=[QuarantinedMessage(0, 0, None, None, "", "PACKET_CUT", 16, len(packet))])
    if len(packet) > 65535:
        return DecodedPacket(refused=[QuarantinedMessage(0, 0, None, None, "", "PACKET_TOO_LONG", 65535, len(packet))])
    channel, _reserved, seq_version, sequence, sending_time = struct.unpack_from("<BBHIQ", packet)
    decoded = DecodedPacket(header=(channel, seq_version, sequence, sending_time))
    at = 16
    while at < len(packet):
        index, left = decoded.messages, len(packet) - at
        decoded.messages += 1
        if left < 12:
            decoded.refused.append(QuarantinedMessage(index, at, None, None, "", "HEADER_CUT", 12, left))
            break
        length, encoding, block, template, schema_id, version = struct.unpack_from("<HHHHHH", packet, at)
        if length > left:
            decoded.refused.append(
                QuarantinedMessage(index, at, template, version, "", "LENGTH_PAST_END", length, left)
            )
            break
        if length < 12:
            decoded.refused.append(QuarantinedMessage(index, at, template, version, "", "LENGTH_TOO_SMALL", length, 12))
            break
        try:
            if encoding != SBE:
                raise BadMessageError("ENCODING_UNKNOWN", "", at, encoding, 0)
            if schema_id != schema.id:
                raise BadMessageError("SCHEMA_OTHER", "", at, schema_id, 0)
            if template not in schema.messages:
                raise BadMessageError("TEMPLATE_UNKNOWN", "", at, template, 0)
            if block > length - 12:
                raise BadMessageError("BLOCK_PAST_END", "", at, block, length - 12)
            fields = _Reader(packet, at + 12, at + length, version, schema.oldest).block(
                schema.messages[template], block, ""
            )
            decoded.found.append(DecodedMessage(index, template, fields))
        except BadMessageError as bad:
            line = QuarantinedMessage(index, bad.offset, template, version, bad.path, bad.kind, bad.need, bad.left)
            decoded.refused.append(line)
        at += length
    return decoded


@dataclass
class _Reader:
    packet: bytes
    at: int
    end: int
    version: int
    oldest: int

    def number(self, size: int) -> int:
        self.at += size
        return struct.unpack_from(LENGTHS[size], self.packet, self.at - size)[0]

    def block(self, block: Block, length: int, path: str) -> Values:
        """One block whose length has been checked, and what is behind it."""
        values = read_block(block, self.packet[self.at : self.at + length], self.version, self.oldest)
        self.at += length
        for group in block.groups:
            inner = f"{path}.{group.name}".lstrip(".")
            if self.version < group.since:
                continue
            start, header = self.at, group.length_size + group.count_size
            if header > self.end - start:
                raise BadMessageError("GROUP_CUT", inner, start, header, self.end - start)
            entry, count = self.number(group.length_size), self.number(group.count_size)
            if count and not entry:
                raise BadMessageError("GROUP_OF_NOTHING", inner, start, count, 0)
            if count and (entry > 65535 or entry * count > self.end - self.at):
                raise BadMessageError("GROUP_PAST_END", inner, start, entry * count, self.end - self.at)
            entries = []
            for _ in range(count):
                if entry > self.end - self.at:
                    raise BadMessageError("GROUP_PAST_END", inner, self.at, entry, self.end - self.at)
                entries.append(self.block(group, entry, inner))
            if entries:
                values[group.name] = entries
        for data in block.data:
            inner = f"{path}.{data.name}".lstrip(".")
            if self.version < data.since:
                continue
            start = self.at
            if data.length_size > self.end - start:
                raise BadMessageError("DATA_CUT", inner, start, data.length_size, self.end - start)
            size = self.number(data.length_size)
            if size > self.end - self.at:
                raise BadMessageError("DATA_PAST_END", inner, start, size, self.end - self.at)
            if size:
                values[data.name] = self.packet[self.at : self.at + size].decode("utf-8", "backslashreplace")
            self.at += size
        return values


def read_block(block: Block, content: bytes, version: int, oldest: int) -> Values:
    values: Values = {}
    for each in block.fields:
        if not each.parts or not each.in_version(version):
            continue
        parts = {}
        for part in each.parts:
            raw = content[part.offset : part.offset + part.size]
            null = part.null_before if part.null is None and version < oldest else part.null
            value = _value(each, part, raw, null) if len(raw) == part.size else None
            if value is not None:
                parts[part.name] = value
        if parts:
            values[each.name] = parts.get("", parts)
    return values


def _value(each: Field, part: Part, raw: bytes, null: int | None) -> Any:
    if part.length > 1:
        text = raw.split(b"\0")[0]
        return None if null is not None and not text else text.decode("utf-8", "backslashreplace")
    (value,) = struct.unpack(FORMATS[part.primitive], raw)
    if value == null:
        return None
    if part.primitive == "char":
        return chr(value)
    if each.exponent is not None:
        return f"{Decimal(value).scaleb(each.exponent):f}"
    return value


def encode_packet(messages: list[bytes], header: tuple[int, int, int, int] = (72, 1, 1, 0), reserved: int = 0) -> bytes:
    channel, *rest = header
    return struct.pack("<BBHIQ", channel, reserved, *rest) + b"".join(messages)


def frame(body: bytes, block: int, template: int, schema: int = 2, version: int = 16, encoding: int = SBE) -> bytes:
    return struct.pack("<HHHHHH", 12 + len(body), encoding, block, template, schema, version) + body


def encode_message(
    schema: Schema,
    message: Message,
    values: Mapping[str, Any],
    version: int = 16,
    *,
    lengths: Mapping[str, int] | None = None,
    padding: int = 0,
    tail: bytes = b"",
) -> bytes:
    """A framed message. `lengths` are of blocks that are not as long as the version's (by group path, "" is the root);
    `padding` fills what no field takes; `tail` follows what the schema knows."""
    body, block = _encode_block(message, values, version, lengths or {}, padding, "")
    return frame(body + tail, block, message.template_id, schema.id, version)


def _encode_block(
    block: Block, values: Mapping[str, Any], version: int, lengths: Mapping[str, int], padding: int, path: str
) -> tuple[bytes, int]:
    length = lengths.get(path, block.block_length_of(version))
    whole = bytearray([padding]) * max(length, block.block_length)
    for each in block.fields:
        if each.parts and each.in_version(version):
            for part in each.parts:
                whole[part.offset : part.offset + part.size] = _bytes(each, part, values.get(each.name))
    out = bytes(whole[:length])
    for group in block.groups:
        if group.since <= version:
            inner = f"{path}.{group.name}".lstrip(".")
            entries = [_encode_block(group, e, version, lengths, padding, inner)[0] for e in values.get(group.name, ())]
            entry = lengths.get(inner, group.block_length_of(version))
            out += struct.pack(LENGTHS[group.length_size], entry)
            out += struct.pack(LENGTHS[group.count_size], len(entries)) + b"".join(entries)
    for data in block.data:
        if data.since <= version:
            content = _encoded(values.get(data.name) or b"")
            out += struct.pack(LENGTHS[data.length_size], len(content)) + content
    return out, length


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _bytes(each: Field, part: Part, value: Any) -> bytes:
    if isinstance(value, Mapping):
        value = value.get(part.name)
    if part.length > 1:
        return _encoded(value or b"").ljust(part.size, b"\0")
    if value is None:
        assert part.null is not None, f"{each.name} is required"
        value = part.null
    elif each.exponent is not None:
        value = int(Decimal(value).scaleb(-each.exponent))
    elif isinstance(value, str):
        value = ord(value)
    return struct.pack(FORMATS[part.primitive], value)
