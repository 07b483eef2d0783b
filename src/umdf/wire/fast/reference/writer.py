"""Writes FAST messages in canonical bytes: everything optional is left out, and nothing is longer than necessary.

Choices that the specification leaves open, the same in all our writers: a string delta takes the longest common
prefix or suffix, whichever needs fewer bytes, and the prefix if both need the same; a tail is
the shortest that gives the value; decimals are compared as pairs, so nothing is ever rescaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from umdf.errors import EncodeError
from umdf.wire.columns import shown
from umdf.wire.fast import conversion
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import (
    EMPTY,
    UNDEFINED,
    Assigned,
    Dictionary,
    Reset,
    initial_base,
    successor,
    to_bytes,
)
from umdf.wire.fast.reference.transfer_encoding import (
    write_ascii,
    write_presence_map,
    write_signed,
    write_unsigned,
    write_vector,
)
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DECIMAL,
    DEFAULT,
    DELTA,
    NONE,
    RANGES,
    TAIL,
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


class Writer:
    """Encodes message after message, as a `Reader` with the same `reset` reads them."""

    def __init__(self, templates: TemplateSet, reset: Reset = "message") -> None:
        self.templates = templates
        self.reset = reset
        self.dictionary = Dictionary(len(templates.slots))

    def encode(self, template_id: int, values: Mapping[str, Any], *, template_id_always: bool = True) -> bytes:
        """One message. With `template_id_always` it carries its template id even if the message before had the same.

        Values that cannot be encoded are an EncodeError with template, field and value; the dictionaries are then as
        before.
        """
        try:
            return self.encode_row(template_id, values, template_id_always=template_id_always)
        except EncodeError as error:
            template = self.templates.by_id.get(template_id)
            raise EncodeError(f"{template.name}: {error.reason}" if template else error.reason, error.hint) from None

    def encode_row(self, template_id: int, values: Mapping[str, Any], *, template_id_always: bool = True) -> bytes:
        """As `encode`, with a given template."""
        before = self.dictionary.copy()
        try:
            if self.reset == "message":
                self.dictionary.reset()
            return self._message(self.templates.by_id, template_id, values, [], template_id_always)
        except EncodeError:
            self.dictionary = before
            raise

    def encode_block(self, messages: Iterable[tuple[int, Mapping[str, Any]]]) -> bytes:
        """One or more messages after their size (10); this feed does not use blocks."""
        content = b"".join(self.encode(template_id, values) for template_id, values in messages)
        if not content:
            raise EncodeError("D12: a block needs at least one message")
        return write_unsigned(len(content)) + content

    def _message(
        self,
        templates: Mapping[int, Template],
        template_id: int,
        values: Mapping[str, Any],
        path: list[str],
        always: bool,
    ) -> bytes:
        template = templates.get(template_id)
        if template is None:
            raise _field_error(path, "D9", f"unknown template {template_id}")
        sent = always or self.dictionary.template_id != template_id
        self.dictionary.template_id = template_id
        bits, out = [sent], bytearray(write_unsigned(template_id) if sent else b"")
        self._segment(template.body, values, bits, out, path)
        return write_presence_map(bits) + out

    def _segment(
        self, segment: Segment, values: Mapping[str, Any], bits: list[bool], out: bytearray, path: list[str]
    ) -> None:
        if not isinstance(values, Mapping):
            raise _field_error(path, "D1", f"expected a dict, not {values.__class__.__name__}")
        for name in values:
            if name not in segment.by_name:
                raise _field_error([*path, str(name)], "D1", "unknown field")
        for instruction in segment.instructions:
            self._instruction(instruction, values.get(instruction.name), bits, out, [*path, instruction.name])

    def _instruction(
        self, instruction: Instruction, value: Any, bits: list[bool], out: bytearray, path: list[str]
    ) -> None:
        if isinstance(instruction, Field):
            self._field(instruction, value, bits, out, path)
            return
        if value is None and not instruction.optional:
            raise _field_error(path, "D1", "mandatory field is missing")
        if isinstance(instruction, Sequence):
            self._sequence(instruction, value, bits, out, path)
        elif isinstance(instruction, Group):
            if instruction.optional:
                bits.append(value is not None)
            if value is not None:
                out += self._inner_segment(instruction.body, value, path)
        else:
            out += self._dynamic(instruction, value, path)

    def _sequence(self, sequence: Sequence, value: Any, bits: list[bool], out: bytearray, path: list[str]) -> None:
        if value is not None and not isinstance(value, list | tuple):
            raise _field_error(path, "D1", f"must be a list of entries, not a {value.__class__.__name__}")
        self._field(sequence.length, None if value is None else len(value), bits, out, path)
        for index, entry in enumerate(value or ()):
            out += self._inner_segment(sequence.body, entry, [*path[:-1], f"{path[-1]}[{index}]"])

    def _inner_segment(self, segment: Segment, values: Mapping[str, Any], path: list[str]) -> bytes:
        bits: list[bool] = []
        out = bytearray()
        self._segment(segment, values, bits, out, path)
        return (write_presence_map(bits) if segment.has_presence_map else b"") + bytes(out)

    def _dynamic(self, reference: DynamicRef, value: Any, path: list[str]) -> bytes:
        if not isinstance(value, Message) or value.template.id is None:
            raise _field_error(path, "D1", "must be a Message whose template has an id")
        templates = self.templates.templates_for_type(reference.application_type)
        return self._message(templates, value.template.id, value.values, path, always=False)

    def _field(self, field: Field, given: Any, bits: list[bool], out: bytearray, path: list[str]) -> None:
        kind, initial = field.operator.kind, field.operator.initial
        if given is None and not field.optional and kind == CONSTANT:
            given = initial
        if given is None and not field.optional and not field.has_part_operators:
            raise _field_error(path, "D1", "mandatory field is missing")
        if field.has_part_operators:
            self._split_decimal(field, given, bits, out, path)
            return
        value = None
        if given is not None:
            value = _converted(given, field.type, path)
        if kind == NONE:
            out += _stream_bytes(field, value)
        elif kind == CONSTANT:
            if value is not None and value != initial:
                raise _field_error(path, "D3", f"always {initial!r}, cannot be {value!r}")
            if field.optional:
                bits.append(value is not None)
        elif kind == DEFAULT:
            bits.append(value != initial)
            if value != initial:
                out += _stream_bytes(field, value)
        elif kind == DELTA:
            out += self._delta(field, value, path)
        else:
            self._dictionary_field(field, value, bits, out, path)

    def _split_decimal(self, field: Field, given: Any, bits: list[bool], out: bytearray, path: list[str]) -> None:
        exponent, mantissa = field.parts
        value = None
        if given is not None:
            value = _converted(given, DECIMAL, path)
        elif not field.optional:
            # Both parts constant: nothing is sent, so no value is needed.
            if exponent.operator.kind != CONSTANT or mantissa.operator.kind != CONSTANT:
                raise _field_error(path, "D1", "mandatory field is missing")
            value = Decimal(exponent.operator.initial, mantissa.operator.initial)  # type: ignore[arg-type]
        assert value is None or isinstance(value, Decimal)
        self._field(exponent, None if value is None else value.exponent, bits, out, [*path, exponent.name])
        if value is not None:
            self._field(mantissa, value.mantissa, bits, out, [*path, mantissa.name])

    def _dictionary_field(
        self, field: Field, value: Value | None, bits: list[bool], out: bytearray, path: list[str]
    ) -> None:
        """Copy, increment or tail: not sent if the reader would find the same without it."""
        entry, initial = self.dictionary.entry(field), field.operator.initial
        if entry is UNDEFINED:
            same = value == initial  # both may be None: absent, and the entry is empty from now on
        elif entry is EMPTY:
            same = value is None
        else:
            assert isinstance(entry, Assigned)
            same = entry.type == field.type and value == successor(field, entry.value)
        bits.append(not same)
        if not same:
            tail = field.operator.kind == TAIL and value is not None
            out += _stream_bytes(field, self._tail(field, value, path)) if tail else _stream_bytes(field, value)
        self.dictionary.assign(field, value)

    def _base(self, field: Field, path: list[str]) -> Value:
        entry, initial = self.dictionary.entry(field), field.operator.initial
        if entry is EMPTY and field.operator.kind == DELTA:
            raise _field_error(path, "D6", "a delta to a previous value that is empty")
        if isinstance(entry, Assigned):
            if entry.type != field.type:
                raise _field_error(path, "D4", f"a {field.type} whose previous value is a {entry.type}")
            return entry.value
        return initial if initial is not None else initial_base(field.type)

    def _delta(self, field: Field, value: Value | None, path: list[str]) -> bytes:
        nullable = field.optional
        if value is None:
            return write_signed(None)
        base = self._base(field, path)
        self.dictionary.assign(field, value)
        if isinstance(value, Decimal) and isinstance(base, Decimal):
            exponent = write_signed(value.exponent - base.exponent, nullable)
            return exponent + write_signed(value.mantissa - base.mantissa)
        if isinstance(value, int) and isinstance(base, int):
            return write_signed(value - base, nullable)
        return _shortest_delta(to_bytes(base), to_bytes(value), nullable, field.type == ASCII)

    def _tail(self, field: Field, value: Value | None, path: list[str]) -> Value:
        assert isinstance(value, str | bytes)
        old, new = to_bytes(self._base(field, path)), to_bytes(value)
        if len(new) < len(old):
            raise _field_error(path, "D3", f"tail cannot make the previous {len(old)} bytes shorter, to {len(new)}")
        kept = _common_prefix(old, new) if len(new) == len(old) else 0
        # The cut may be inside a UTF-8 character (6.3.8.2): such bytes survive as surrogates.
        return new[kept:] if field.type == BYTES else new[kept:].decode("utf-8", "surrogateescape")


def _converted(given: Any, type: str, path: list[str]) -> Value:
    try:
        return conversion.to_type(given, type)
    except conversion.ConversionError as error:
        value = f"{given.mantissa}e{given.exponent}" if isinstance(given, Decimal) else shown(given)
        raise _field_error(
            path, error.code, error.reason if value in error.reason else f"{value}: {error.reason}"
        ) from None


def _stream_bytes(field: Field, value: Value | None) -> bytes:
    """A value, or NULL, as encoded in the stream."""
    nullable = field.optional
    if value is None:
        return b"\x80"
    if isinstance(value, Decimal):
        return write_signed(value.exponent, nullable) + write_signed(value.mantissa)
    if isinstance(value, int):
        return (write_signed if RANGES[field.type][0] < 0 else write_unsigned)(value, nullable)
    if field.type == ASCII:
        assert isinstance(value, str)
        return write_ascii(value, nullable)
    assert field.type in (UNICODE, BYTES)
    return write_vector(to_bytes(value), nullable)


def _shortest_delta(old: bytes, new: bytes, nullable: bool, ascii: bool) -> bytes:
    front = _common_prefix(old, new)
    back = _common_prefix(old[::-1], new[::-1])
    # What stays cannot be removed from the front by a negative number, hence one less (6.3.7.3).
    behind = write_signed(len(old) - front, nullable), new[front:]
    before = write_signed(back - len(old) - 1, nullable), new[: len(new) - back]
    choices = [
        length + (write_ascii(text.decode()) if ascii else write_vector(text)) for length, text in (behind, before)
    ]
    return min(choices, key=len)


def _common_prefix(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _field_error(path: list[str], code: str, reason: str) -> EncodeError:
    return EncodeError(f"{'.'.join(path) or 'message'}: {code}: {reason}")
