"""Every header and field of one packet: its offset, bytes and meaning.

Plain Python over the schema, on purpose: it shares nothing with the kernels, and tests compare the two.
It reads as far as the bytes are valid and reports where they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from umdf.units import decimal_text, iso_date, utc_text
from umdf.wire.sbe.schema import Block, Data, Field, Group, Message, Part, Schema

ENCODINGS = {0xEB50: "SBE 1.0 little-endian"}


@dataclass(frozen=True)
class Line:
    """One item of a packet. `offset` is None for what is not sent (constants, absent fields of other versions)."""

    depth: int
    name: str
    offset: int | None = None
    raw: bytes = b""
    value: Any = None
    meaning: str = ""
    tag: int | None = None
    is_damaged: bool = False


class _TruncatedError(Exception):
    """The bytes end inside an item."""


class _PacketReader:
    def __init__(self, schema: Schema, packet: bytes) -> None:
        self.schema, self.packet = schema, packet
        self.offset, self.end = 0, len(packet)

    def check(self, size: int, what: str) -> None:
        if self.offset + size > self.end:
            raise _TruncatedError(f"{what} needs {size} bytes, {self.end - self.offset} left")

    def take(self, size: int, what: str) -> bytes:
        self.check(size, what)
        self.offset += size
        return self.packet[self.offset - size : self.offset]

    def number(self, depth: int, name: str, size: int, meaning: str = "") -> Line:
        raw = self.take(size, name)
        return Line(depth, name, self.offset - size, raw, int.from_bytes(raw, "little"), meaning)

    def lines(self) -> Iterator[Line]:
        try:
            yield from self._packet_header()
            while self.offset < len(self.packet):
                self.end = len(self.packet)
                yield from self._message()
        except _TruncatedError as cut:
            yield Line(0, "damaged", self.offset, self.packet[self.offset :], meaning=str(cut), is_damaged=True)

    def _packet_header(self) -> Iterator[Line]:
        yield Line(0, "Packet header", 0, meaning="reference 5.1")
        yield self.number(1, "channelNumber", 1)
        yield self.number(1, "reserved", 1)
        yield self.number(1, "sequenceVersion", 2)
        yield self.number(1, "sequenceNumber", 4)
        sent = self.number(1, "sendingTime", 8)
        yield Line(1, sent.name, sent.offset, sent.raw, sent.value, utc_text(sent.value) + " UTC")

    def _message(self) -> Iterator[Line]:
        start = self.offset
        self.check(12, "a message header")
        length, encoding = self.number(1, "messageLength", 2), self.number(1, "encodingType", 2)
        header = [self.number(1, name, 2) for name in ("blockLength", "templateId", "schemaId", "version")]
        block, template, schema_id, version = (line.value for line in header)
        message = self.schema.messages.get(template) if schema_id == self.schema.id else None
        name = message.name if message else f"template {template}"
        yield Line(0, name, start, meaning=message.description if message else "not in the schema, skipped")
        known = ENCODINGS.get(encoding.value, "unknown encoding")
        is_unknown = encoding.value not in ENCODINGS
        yield length
        yield Line(1, encoding.name, encoding.offset, encoding.raw, encoding.value, known, is_damaged=is_unknown)
        yield from header
        if length.value < 12:
            raise _TruncatedError(f"messageLength {length.value} is less than its own header of 12")
        if start + length.value > len(self.packet):
            left = len(self.packet) - start
            raise _TruncatedError(f"messageLength {length.value} exceeds the packet: {left} bytes left")
        self.end = start + length.value
        if message is not None and not is_unknown:
            try:
                yield from self._block(1, message, block, version)
            except _TruncatedError as cut:
                yield Line(
                    1, "damaged", self.offset, self.packet[self.offset : self.end], meaning=str(cut), is_damaged=True
                )
                self.offset = self.end
        if self.offset < self.end:
            yield Line(
                1,
                "unknown bytes",
                self.offset,
                self.packet[self.offset : self.end],
                meaning="not in the schema, skipped",
            )
        self.offset = self.end

    def _block(self, depth: int, block: Block, length: int, version: int) -> Iterator[Line]:
        start, body = self.offset, self.take(length, f"the block of {block.name}")
        if block.block_length and length != block.block_length_of(version):
            yield Line(
                depth, "block", start, meaning=f"{length} bytes; this schema has {block.block_length_of(version)}"
            )
        explained = 0
        for field in sorted(block.fields, key=lambda f: f.offset if f.parts else -1):
            if field.constant is not None:
                meaning = field.codes.get(field.constant, "")
                yield Line(
                    depth, field.name, None, value=field.constant, meaning=_join("constant", meaning), tag=field.tag
                )
                continue
            for line in _field(depth, field, start, body, version, self.schema.oldest):
                if line.offset is not None:
                    if line.offset > start + explained:
                        yield Line(depth, "padding", start + explained, body[explained : line.offset - start])
                    explained = line.offset + len(line.raw) - start
                yield line
        if explained < length:
            yield Line(
                depth,
                "padding" if length <= block.block_length else "unknown bytes",
                start + explained,
                body[explained:],
            )
        for group in block.groups:
            if group.since <= version:
                yield from self._group(depth, group, version)
        for data in block.data:
            if data.since <= version:
                yield from self._data(depth, data)

    def _group(self, depth: int, group: Group, version: int) -> Iterator[Line]:
        self.check(group.length_size + group.count_size, group.name)
        length = self.number(depth + 1, "blockLength", group.length_size)
        count = self.number(depth + 1, "numInGroup", group.count_size)
        yield Line(depth, group.name, length.offset, meaning=group.description, tag=group.tag)
        yield length
        yield count
        if count.value and not length.value:
            raise _TruncatedError(f"{group.name} has {count.value} entries of zero length")
        if count.value * length.value > self.end - self.offset:
            raise _TruncatedError(
                f"{group.name} needs {count.value * length.value} bytes, {self.end - self.offset} left"
            )
        for number in range(count.value):
            yield Line(depth + 1, f"{group.name}[{number}]", self.offset)
            yield from self._block(depth + 2, group, length.value, version)

    def _data(self, depth: int, data: Data) -> Iterator[Line]:
        start = self.offset
        self.check(data.length_size, data.name)
        length = int.from_bytes(self.packet[start : start + data.length_size], "little")
        raw = self.take(data.length_size + length, data.name)
        text = raw[data.length_size :].decode("utf-8", "backslashreplace") if length else None
        yield Line(depth, data.name, start, raw, text, f"{length} bytes" if length else "absent", tag=data.tag)


def _field(depth: int, field: Field, start: int, body: bytes, version: int, oldest: int) -> Iterator[Line]:
    if not field.in_version(version):
        when = f"until version {field.until}" if field.until is not None and version > field.until else ""
        yield Line(depth, field.name, None, meaning=f"absent: {when or f'since version {field.since}'}", tag=field.tag)
        return
    for part in field.parts:
        name = f"{field.name}.{part.name}" if part.name else field.name
        if part.offset + part.size > len(body):
            yield Line(depth, name, None, meaning="absent: beyond the sent block", tag=field.tag)
            continue
        raw = body[part.offset : part.offset + part.size]
        null = part.null if part.null is not None or version >= oldest else part.null_before
        value, meaning = _meaning(field, part, raw, null)
        yield Line(depth, name, start + part.offset, raw, value, meaning, field.tag)


def _meaning(field: Field, part: Part, raw: bytes, null: int | None) -> tuple[Any, str]:
    if part.primitive == "char":
        if part.length > 1:
            text = raw.split(b"\0")[0].decode("utf-8", "backslashreplace")
            return (None, "absent") if not text and null is not None else (text, "")
        return (None, "absent") if null == raw[0] else (chr(raw[0]), field.codes.get(chr(raw[0]), ""))
    value = int.from_bytes(raw, "little", signed=part.primitive.startswith("int"))
    if value == null:
        return None, "absent"
    if field.exponent is not None:
        return decimal_text(value, field.exponent), f"{value} × 10^{field.exponent}"
    if field.time_unit is not None:
        return value, utc_text(value * 10 ** (9 - field.time_unit)) + " UTC"
    if field.is_set:
        bits = [f"{bit} {field.bits.get(bit, 'unknown')}" for bit in range(8 * part.size) if value >> bit & 1]
        return value, ", ".join(bits) or "no bit set"
    if field.is_date:
        return value, str(iso_date(value))
    if field.codes:
        return value, field.codes.get(value, "unknown code")
    return value, ""


def _join(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def explain(schema: Schema, packet: bytes) -> list[Line]:
    """The meaning of every byte of a packet."""
    return list(_PacketReader(schema, packet).lines())


__all__ = ["Line", "Message", "explain"]
