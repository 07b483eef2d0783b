"""Decoded messages as rows for display: dictionaries (what `--format json` prints) and FIX fields.

Values are exact: integers and codes as sent, a decimal as text with the scale that was sent, a byte vector in base 16.
Absent values are left out; a constant is part of a FAST message, so it is shown. Dates and times are digits in this
feed (20261113, 93012345, 20261113133000123), which only the FIX view formats, by the FIX type of the tag: the
type in the template differs between messages (SendingTime is text in a SecurityList, a number elsewhere).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from umdf.units import decimal_text, fix_decimal
from umdf.wire.fast.conversion import MAX_EXPONENT
from umdf.wire.fast.decode.batch import Batch
from umdf.wire.fast.message import Message
from umdf.wire.fast.templates import Decimal, DynamicRef, Field, Group, Segment, Sequence, Template
from umdf.wire.fix.dictionary import lookup

Values = dict[str, Any]

SENDING_TIME = 52

# As digits. A time without its leading zero is what an integer makes of it.
_TIMESTAMP = re.compile(r"(\d{8})([01]\d|2[0-3])([0-5]\d)([0-5]\d|60)(\d{3})?")
_TIME = re.compile(r"(\d|[01]\d|2[0-3])([0-5]\d)([0-5]\d|60)(\d{3})")


@dataclass(frozen=True)
class Row:
    """One message of a batch."""

    number: int  # within the batch
    message: Message

    @property
    def template(self) -> Template:
        return self.message.template

    @cached_property
    def fields(self) -> Values:
        return fields_of(self.message.template.body, self.message.values)

    @property
    def sending_time_ns(self) -> int | None:
        """When the exchange sent it (tag 52); None if the message does not have it."""
        for instruction in self.template.body.instructions:
            if isinstance(instruction, Field) and instruction.id == SENDING_TIME:
                return _epoch_ns(str(self.message.values.get(instruction.name)))
        return None

    def fix(self) -> Iterator[tuple[int, str]]:
        return fix_fields(self.message.template.body, self.message.values)


def rows(batch: Batch) -> Iterator[Row]:
    """Every message of a batch, in wire order; a nested one is shown inside its parent."""
    for number, message in batch.to_messages().items():
        yield Row(number, message)


def fields_of(segment: Segment, values: Mapping[str, Any]) -> Values:
    """A segment's values by name: a sequence as a list of dictionaries, a group as a dictionary, a message inside the
    message as one preceded by the name of its template."""
    found: Values = {}
    for instruction in segment.instructions:
        value = values.get(instruction.name)
        if value is None:
            continue
        if isinstance(instruction, Sequence):
            value = [fields_of(instruction.body, entry) for entry in value]
        elif isinstance(instruction, Group):
            value = fields_of(instruction.body, value)
        elif isinstance(instruction, DynamicRef):
            value = {"template": value.template.name, **fields_of(value.template.body, value.values)}
        else:
            value = json_value(value)
        found[instruction.name] = value
    return found


def fix_fields(segment: Segment, values: Mapping[str, Any], group_tag: int = 0) -> Iterator[tuple[int, str]]:
    """The same as FIX writes it, in the order of the template: groups flat, a sequence as its count and then its
    entries. Fields without a tag in the template have none in FIX."""
    for instruction in segment.instructions:
        value = values.get(instruction.name)
        if value is None:
            continue
        if isinstance(instruction, Sequence):
            tag = instruction.length.id or instruction.id
            if tag is not None:
                yield tag, str(len(value))
            for entry in value:
                yield from fix_fields(instruction.body, entry, tag or 0)
        elif isinstance(instruction, Group):
            yield from fix_fields(instruction.body, value, group_tag)
        elif isinstance(instruction, DynamicRef):
            yield from fix_fields(value.template.body, value.values)
        elif instruction.id is not None:
            yield instruction.id, _fix_text(instruction, value, group_tag)


def json_value(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Decimal):
        return _decimal(value, decimal_text)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        # Bytes that were not UTF-8 are kept as lone surrogates, which cannot be printed.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value


def _fix_text(field: Field, value: Any, group_tag: int) -> str:
    if isinstance(value, Decimal):
        return _decimal(value, fix_decimal)
    text = str(json_value(value))
    tag = lookup(field.id, group_tag) if field.id is not None else None
    kind = tag.type if tag else ""
    if kind == "UTCTimestamp" and (match := _TIMESTAMP.fullmatch(text)):
        date, hours, minutes, seconds, fraction = match.groups()
        return f"{date}-{hours}:{minutes}:{seconds}" + (f".{fraction}" if fraction else "")
    if kind == "UTCTimeOnly":
        # Midnight and a bit is less than nine digits: 5123 is 00:00:05.123.
        match = _TIME.fullmatch(text.zfill(9) if isinstance(value, int) else text)
        if match:
            hours, minutes, seconds, fraction = match.groups()
            return f"{hours:0>2}:{minutes}:{seconds}.{fraction}"
    if kind == "Boolean" and text in ("0", "1"):
        return "NY"[int(text)]
    return text


def _epoch_ns(text: str) -> int | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    date, hours, minutes, seconds, fraction = match.groups()
    try:
        day = datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    second = int(day.timestamp()) + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return second * 10**9 + int(fraction or 0) * 10**6


def _decimal(value: Decimal, text_of: Any) -> str:
    """An exponent out of bounds (R1) would make a text of any length."""
    exponent, mantissa = value
    return text_of(mantissa, exponent) if abs(exponent) <= MAX_EXPONENT else f"{mantissa}e{exponent}"
