"""Reads FAST messages byte by byte in plain Python: complete, simple and slow.

It is the reference for the kernels, and the engine of `explain`. All bytes of a field are read before
its operator is applied. R1 is reported for every decimal that has such an exponent (6.2.2), R2 if the bytes of a string
are in the stream, not again if the string is taken from a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from umdf.wire.fast.conversion import MAX_EXPONENT
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import (
    EMPTY,
    UNDEFINED,
    Dictionary,
    Reset,
    from_bytes,
    initial_base,
    successor,
    to_bytes,
)
from umdf.wire.fast.reference.transfer_encoding import Cursor, FastError, Limits, PresenceMap
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DECIMAL,
    DEFAULT,
    DELTA,
    INT32,
    INT64,
    NONE,
    RANGES,
    TAIL,
    UINT32,
    UNICODE,
    Decimal,
    DynamicRef,
    Field,
    Group,
    Instruction,
    Segment,
    Sequence,
    Template,
    TemplateSet,
    Value,
)


class TraceStep(NamedTuple):
    """One step of the reader, for `explain`."""

    kind: str  # presence map, template id, field, decimal (of two parts before it), group or sequence
    path: str
    instruction: Instruction | None
    start: int  # bytes of the stream; none if start = end
    end: int
    bits: PresenceMap | None  # the map that decided about it, or the map itself
    bit: int | None  # which of its bits
    origin: str  # stream, previous, initial, default, constant; "" if absent
    value: Any
    sent_value: Any = None  # what was sent, if not the value itself: a delta, a tail
    base_value: Any = None  # the value that a remembering operator started from


class Reader:
    """Decodes message after message. `reset`: when the dictionaries are reset: before each message, as in this feed, or
    never. After an error a kept dictionary is useless: start again with a new reader."""

    def __init__(self, templates: TemplateSet, reset: Reset = "message", limits: Limits | None = None) -> None:
        self.templates = templates
        self.reset = reset
        self.limits = limits or Limits()
        self.dictionary = Dictionary(len(templates.slots))
        self.trace: list[TraceStep] | None = None  # a list here is filled with the steps

    def decode(self, data: bytes, offset: int = 0) -> tuple[Message, int]:
        """The message that starts at the offset, and where the next one starts; FastError if it cannot be read."""
        if self.reset == "message":
            self.dictionary.reset()
        cursor = Cursor(data, offset, self.limits)
        try:
            message = _MessageDecoder(self, cursor).message(self.templates.by_id)
        except FastError as error:
            error.reports = cursor.reports
            raise
        return Message(message.template, message.values, cursor.reports), cursor.offset

    def decode_block(self, data: bytes, offset: int = 0) -> tuple[list[Message], int]:
        """The messages of a block, one or more messages after their size (10); this feed does not use blocks."""
        cursor = Cursor(data, offset, self.limits)
        size = cursor.unsigned(UINT32)  # may be overlong here (10.6.1)
        if not size:
            raise cursor.error("D12", "a block of zero bytes", offset)
        if size > cursor.remaining:
            raise cursor.error("T1", f"a block of {size} bytes announced, {cursor.remaining} left", offset)
        end, next_offset, messages = cursor.offset + size, cursor.offset, []
        data = data[:end]
        while next_offset < end:
            message, next_offset = self.decode(data, next_offset)
            messages.append(message)
        return messages, end


class _MessageDecoder:
    """The state of decoding one message, besides the reader's dictionaries."""

    def __init__(self, reader: Reader, cursor: Cursor) -> None:
        self.templates, self.dictionary = reader.templates, reader.dictionary
        self.cursor, self.trace = cursor, reader.trace
        self.sent_value: Any = None  # by the field at hand, and what it started from: only for the trace
        self.base_value: Any = None
        self.entries = self.combined_bytes = self.level = 0

    def trace_step(
        self,
        kind: str,
        instruction: Instruction | None,
        start: int,
        bits: PresenceMap | None,
        bit: int | None,
        origin: str,
        value: Any,
    ) -> None:
        if self.trace is not None:
            location = kind, self.cursor.field, instruction, start, self.cursor.offset
            self.trace.append(TraceStep(*location, bits, bit, origin, value, self.sent_value, self.base_value))
            self.sent_value = self.base_value = None

    def message(self, templates: Mapping[int, Template]) -> Message:
        """A segment with a template id: a message, or the target of a dynamic reference."""
        cursor = self.cursor
        bits = self.presence_map()
        start, sent = cursor.offset, bits.next()
        if sent:
            self.dictionary.template_id = cursor.unsigned(UINT32)
        template_id = self.dictionary.template_id
        if template_id is None:
            raise cursor.error("D5", "no template id, and no message before to take it from")
        self.trace_step("template id", None, start, bits, 0, "stream" if sent else "previous", template_id)
        template = templates.get(template_id)
        if template is None:
            raise cursor.error("D9", f"unknown template {template_id}", start)
        cursor.check_presence_map(bits, template.body.bits + 1)
        return Message(template, self.segment(template.body, bits))

    def presence_map(self) -> PresenceMap:
        bits = self.cursor.presence_map()
        self.trace_step("presence map", None, bits.offset, bits, None, "stream", None)
        return bits

    def segment(self, segment: Segment, bits: PresenceMap) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for instruction in segment.instructions:
            self.cursor.path.append(instruction.name)
            value = self.instruction(instruction, bits)
            self.cursor.path.pop()
            if value is not None:
                values[instruction.name] = value
        return values

    def instruction(self, instruction: Instruction, bits: PresenceMap) -> Any:
        if isinstance(instruction, Field):
            return self.field(instruction, bits)
        if isinstance(instruction, Sequence):
            return self.sequence(instruction, bits)
        if isinstance(instruction, Group):
            return self.group(instruction, bits)
        return self.dynamic(instruction)

    def change_nesting(self, by: int) -> None:
        self.level += by
        if self.level > self.cursor.limits.nesting:
            raise self.cursor.error("T2", f"more than {self.cursor.limits.nesting} levels inside each other")

    def group(self, group: Group, bits: PresenceMap) -> dict[str, Any] | None:
        present = not group.optional or bits.next()
        bit = bits.next_bit - 1 if group.optional else None
        self.trace_step("group", group, self.cursor.offset, bits, bit, "stream" if present else "", None)
        return self.inner_segment(group.body) if present else None

    def inner_segment(self, segment: Segment) -> dict[str, Any]:
        self.change_nesting(1)
        bits = PresenceMap()
        if segment.has_presence_map:
            bits = self.presence_map()
            self.cursor.check_presence_map(bits, segment.bits)
        values = self.segment(segment, bits)
        self.change_nesting(-1)
        return values

    def sequence(self, sequence: Sequence, bits: PresenceMap) -> list[dict[str, Any]] | None:
        cursor, start = self.cursor, self.cursor.offset
        length = self.field(sequence.length, bits, "sequence", sequence)
        if length is None:
            return None
        assert isinstance(length, int)
        if length * (least := sequence.body.min_bytes) > cursor.remaining:
            raise cursor.error("T1", f"{length} entries of at least {least} bytes, {cursor.remaining} left", start)
        if least == 0 and length > cursor.limits.empty_entries:
            raise cursor.error("T2", f"{length} entries that may take no byte", start)
        self.entries += length
        if self.entries > cursor.limits.entries:
            raise cursor.error("T2", f"more than {cursor.limits.entries} entries", start)
        entries = []
        for index in range(length):
            cursor.path.append(index)
            entries.append(self.inner_segment(sequence.body))
            cursor.path.pop()
        return entries

    def dynamic(self, reference: DynamicRef) -> Message:
        self.change_nesting(1)
        message = self.message(self.templates.templates_for_type(reference.application_type))
        self.change_nesting(-1)
        return message

    def field(
        self, field: Field, bits: PresenceMap, kind: str = "field", owner: Sequence | None = None
    ) -> Value | None:
        if field.has_part_operators:
            return self.split_decimal(field, bits)
        start, first_bit = self.cursor.offset, bits.next_bit
        value, origin = self.apply_operator(field, bits)
        bit = first_bit if bits.next_bit > first_bit else None
        if isinstance(value, Decimal):
            self.check_exponent(value.exponent, start)
        self.trace_step(kind, owner or field, start, bits, bit, origin, value)
        return value

    def split_decimal(self, field: Field, bits: PresenceMap) -> Decimal | None:
        (exponent, mantissa), start = field.parts, self.cursor.offset
        self.cursor.path.append(exponent.name)
        power = self.field(exponent, bits)
        if power is None:
            self.cursor.path.pop()
            return None  # and the mantissa's bit is absent too (10.5.1)
        assert isinstance(power, int)
        self.check_exponent(power, start)
        self.cursor.path[-1] = mantissa.name
        digits = self.field(mantissa, bits)
        self.cursor.path.pop()
        assert isinstance(digits, int)
        value = Decimal(power, digits)
        self.trace_step("decimal", field, self.cursor.offset, None, None, "stream", value)
        return value

    def check_exponent(self, exponent: int, offset: int) -> None:
        if abs(exponent) > MAX_EXPONENT:
            self.cursor.report("R1", f"the exponent {exponent} is outside -63 to 63", offset)

    def apply_operator(self, field: Field, bits: PresenceMap) -> tuple[Value | None, str]:
        """The value of a field and where it came from (6.3, 10.5.1)."""
        kind, initial = field.operator.kind, field.operator.initial
        if kind == NONE:
            return _from_stream(self.stream_value(field))
        if kind == CONSTANT:
            return (initial, CONSTANT) if not field.optional or bits.next() else (None, "")
        if kind == DELTA:
            return _from_stream(self.delta(field))
        if bits.next():
            if kind == DEFAULT:
                return _from_stream(self.stream_value(field))
            value = self.tail(field) if kind == TAIL else self.stream_value(field)
            self.dictionary.assign(field, value)
            return _from_stream(value)
        if kind == DEFAULT:
            value, origin = (initial, DEFAULT) if initial is not None else (None, "")
        else:
            value, origin = self.value_not_sent(field)
        if isinstance(value, str | bytes):
            self.count_combined_bytes(to_bytes(value), self.cursor.offset)
        return value, origin

    def value_not_sent(self, field: Field) -> tuple[Value | None, str]:
        """Copy, increment or tail whose bit is not set."""
        entry, initial = self.dictionary.entry(field), field.operator.initial
        tail = field.operator.kind == TAIL
        if entry is EMPTY:
            if not field.optional:
                raise self.cursor.error("D7" if tail else "D6", "mandatory, not sent, and the previous value is empty")
            return None, ""
        if entry is UNDEFINED:
            if initial is None and not field.optional:
                reason = "mandatory, not sent, with neither a previous nor an initial value"
                raise self.cursor.error("D6" if tail else "D5", reason)
            self.dictionary.assign(field, initial)
            return (initial, "initial") if initial is not None else (None, "")
        value = successor(field, self.previous(field, self.cursor.offset))
        self.dictionary.assign(field, value)
        return value, "previous"

    def previous(self, field: Field, start: int) -> Value:
        entry = self.dictionary.entry(field)
        assert isinstance(entry, tuple)
        if entry.type != field.type:
            raise self.cursor.error("D4", f"a {field.type} whose previous value is a {entry.type}", start)
        self.base_value = entry.value
        return entry.value

    def base(self, field: Field, start: int) -> Value:
        """The base of delta and tail."""
        entry, initial = self.dictionary.entry(field), field.operator.initial
        if entry is EMPTY and field.operator.kind == DELTA:
            raise self.cursor.error("D6", "a delta to a previous value that is empty", start)
        if entry is UNDEFINED or entry is EMPTY:
            self.base_value = initial if initial is not None else initial_base(field.type)
            return self.base_value
        return self.previous(field, start)

    def stream_value(self, field: Field) -> Value | None:
        """The value as encoded in the stream."""
        cursor, start, nullable = self.cursor, self.cursor.offset, field.optional
        if field.type == ASCII:
            return cursor.ascii(nullable)
        if field.type in (UNICODE, BYTES):
            content = cursor.vector(nullable)
            return None if content is None else self.text(content, field, start)
        if field.type == DECIMAL:
            exponent = cursor.signed(INT32, nullable)
            if exponent is None:
                return None
            mantissa = cursor.signed(INT64)
            assert mantissa is not None
            return Decimal(exponent, mantissa)
        signed = RANGES[field.type][0] < 0
        return cursor.signed(field.type, nullable) if signed else cursor.unsigned(field.type, nullable)

    def text(self, content: bytes, field: Field, start: int) -> str | bytes:
        value = from_bytes(content, field.type)
        if field.type == UNICODE and isinstance(value, str) and any("\udc80" <= char <= "\udcff" for char in value):
            self.cursor.report("R2", "invalid UTF-8", start)
        return value

    def delta(self, field: Field) -> Value | None:
        cursor, start = self.cursor, self.cursor.offset
        first = cursor.signed(None, field.optional)  # of the value, the exponent, or the length to subtract
        if first is None:
            return None  # the previous value stays (10.5.1)
        second: Any = None
        if field.type == DECIMAL:
            second = cursor.signed(None)
        elif field.type == ASCII:
            second = cursor.ascii()
        elif field.type in (UNICODE, BYTES):
            second = cursor.vector()
        self.sent_value = first if second is None else (first, second)
        base = self.base(field, start)
        if isinstance(base, Decimal):
            assert second is not None
            exponent = self.add_delta(base.exponent, first, INT32, start)
            value: Value = Decimal(exponent, self.add_delta(base.mantissa, second, INT64, start))
        elif isinstance(base, int):
            value = self.add_delta(base, first, field.type, start)
        else:
            assert second is not None
            value = self.splice(base, first, second, field, start)
        self.dictionary.assign(field, value)
        return value

    def add_delta(self, base: int, delta: int, type: str, start: int) -> int:
        low, high = RANGES[type]
        if not low <= base + delta <= high:
            raise self.cursor.error("D2", f"{base} and a delta of {delta} is outside {type}, {low} to {high}", start)
        return base + delta

    def splice(self, base: str | bytes, subtract: int, added: str | bytes, field: Field, start: int) -> Value:
        old, new = to_bytes(base), to_bytes(added)
        front = subtract < 0
        count = -subtract - 1 if front else subtract  # -1 means: add in front, remove nothing (6.3.7.3)
        if count > len(old):
            raise self.cursor.error("D7", f"{count} to subtract from a value of length {len(old)}", start)
        return self.combined_text(new + old[count:] if front else old[: len(old) - count] + new, field, start)

    def tail(self, field: Field) -> Value | None:
        start = self.cursor.offset
        sent = self.cursor.ascii(field.optional) if field.type == ASCII else self.cursor.vector(field.optional)
        if sent is None:
            return None
        self.sent_value = sent
        old, new = to_bytes(self.base(field, start)), to_bytes(sent)
        return self.combined_text(old[: max(0, len(old) - len(new))] + new, field, start)

    def combined_text(self, content: bytes, field: Field, start: int) -> Value:
        self.count_combined_bytes(content, start)
        return self.text(content, field, start)

    def count_combined_bytes(self, content: bytes, start: int) -> None:
        """Of a text that is not in the stream literally."""
        most = self.cursor.limits.combined_bytes
        self.combined_bytes += len(content)
        if self.combined_bytes > most:
            raise self.cursor.error("T2", f"texts that are not sent as they are make more than {most} bytes", start)


def _from_stream(value: Value | None) -> tuple[Value | None, str]:
    return value, "" if value is None else "stream"
