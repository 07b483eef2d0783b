"""The meaning of every byte and bit of a FAST message, as data; the command line prints it.

The reference reader decodes with its trace on, so the explanation is what the decoder did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.reader import Reader, TraceStep
from umdf.wire.fast.reference.transfer_encoding import FastError, Limits, PresenceMap, Report
from umdf.wire.fast.templates import (
    CONSTANT,
    DEFAULT,
    DELTA,
    INCREMENT,
    NONE,
    TAIL,
    Decimal,
    Field,
    Sequence,
    TemplateSet,
)


@dataclass(frozen=True)
class Bit:
    """A presence-map bit that a field used."""

    index: int  # from 0, in the order of the stream
    set: bool
    path: str


@dataclass(frozen=True)
class Line:
    kind: str  # presence map, template id, field, decimal (of two fields before it), group, sequence, report, error
    offset: int
    raw: bytes  # b"" if nothing was sent
    path: str
    tag: int | None = None
    type: str = ""
    operator: str = ""
    bit: Bit | None = None  # the bit that decided about it
    map_offset: int | None = None  # and the byte at which its presence map starts
    bits_used: tuple[Bit, ...] = ()  # of a presence map: the user of each bit
    origin: str = ""  # stream, previous (dictionary), initial, default, constant; "" where absent
    value: Any = None
    meaning: str = ""


def explain(templates: TemplateSet, data: bytes, reset: Reset = "message", limits: Limits | None = None) -> list[Line]:
    """All messages of the data. Each byte is in the `raw` of exactly one line, in order; bytes that cannot be read are
    in the last, with the reason."""
    reader = Reader(templates, reset, limits)
    lines: list[Line] = []
    offset = 0
    while offset < len(data):
        start, reader.trace = offset, []
        error = None
        reports: list[Report] = []
        try:
            message, offset = reader.decode(data, offset)
            reports = message.reports
        except FastError as failure:
            error, reports, offset = failure, failure.reports, len(data)
        uses: dict[int, list[Bit]] = {}  # the bits that were used, by the offset of their map
        for step in reader.trace:
            if step.bits is not None and step.bit is not None:
                uses.setdefault(step.bits.offset, []).append(_bit(step, step.bits))
        message_lines = [_line(step, uses, templates, data) for step in reader.trace] + [
            _report_line(report) for report in reports
        ]
        lines += sorted(message_lines, key=lambda line: line.offset)
        if error is not None:
            rest = max((step.end for step in reader.trace), default=start)
            text = f"{error.code} at byte {error.offset}: {error.reason}"
            lines.append(Line("error", rest, data[rest:], error.field, value=error.code, meaning=text))
    return lines


def _report_line(report: Report) -> Line:
    text = f"{report.code}: {report.reason}"
    return Line("report", report.offset, b"", report.field, value=report.code, meaning=text)


def _line(step: TraceStep, uses: dict[int, list[Bit]], templates: TemplateSet, data: bytes) -> Line:
    raw = data[step.start : step.end]
    if step.kind == "presence map":
        assert step.bits is not None
        bits = tuple(uses.get(step.start, ()))
        shown = "".join("01"[step.bits.bit(index)] for index in range(7 * len(step.bits.groups)))
        return Line(
            step.kind,
            step.start,
            raw,
            step.path,
            bits_used=bits,
            origin="stream",
            value=shown,
            meaning=_bits_text(bits),
        )
    bit, map_offset = None, None
    if step.bits is not None and step.bit is not None:
        bit, map_offset = _bit(step, step.bits), step.bits.offset
    if step.kind == "template id":
        template = templates.by_id.get(step.value)
        text = f"template {template.name}" if template else "no such template"
        text += "" if raw else ", as the message before"
        return Line(
            step.kind,
            step.start,
            raw,
            step.path,
            None,
            "uInt32",
            "copy",
            bit,
            map_offset,
            (),
            step.origin,
            step.value,
            text,
        )
    shown = step.instruction
    field = shown.length if isinstance(shown, Sequence) else shown
    tag = field.id if field is not None else None
    if not isinstance(field, Field):
        text = "group is absent" if step.origin == "" else "group is present" if bit else "group"
        return Line(
            step.kind, step.start, raw, step.path, tag, "group", NONE, bit, map_offset, (), step.origin, None, text
        )
    if step.kind == "decimal":
        text = "exponent and mantissa together"
        return Line(step.kind, step.start, raw, step.path, tag, field.type, "", value=step.value, meaning=text)
    text = _meaning(step, field)
    if isinstance(shown, Sequence):
        named = f"{field.name}, " if field.name else ""
        count = "sequence is absent" if step.value is None else f"{step.value} entries follow"
        text = f"{named}{count}: {text}"
    return Line(
        *(step.kind, step.start, raw, step.path, tag, field.type, field.operator.kind),
        *(bit, map_offset, (), step.origin, step.value, text),
    )


def _bit(step: TraceStep, bits: PresenceMap) -> Bit:
    assert step.bit is not None
    return Bit(step.bit, bits.bit(step.bit), step.path if step.kind != "template id" else "template id")


def _bits_text(bits: tuple[Bit, ...]) -> str:
    return ", ".join(f"{int(bit.set)} {bit.path}" for bit in bits)


def _meaning(step: TraceStep, field: Field) -> str:
    kind, raw = field.operator.kind, step.end > step.start
    if kind == CONSTANT:
        return "the constant" if step.value is not None else "the constant is absent"
    if raw and step.value is None:
        return "NULL, absent" if kind in (NONE, DELTA, DEFAULT) else "NULL, absent from now on"
    if raw and kind == DELTA:
        return _delta(step)
    if raw and kind == TAIL:
        return f"{step.sent_value!r} replaces the end of {step.base_value!r}"
    if raw:
        return "as sent"
    if step.value is None:
        return "not sent, absent"
    if step.origin == "previous" and kind == INCREMENT:
        return f"not sent, one more than {step.base_value}"
    return {
        "previous": "not sent, as before",
        "initial": "not sent, nothing before: the initial value",
        "default": "not sent, the default",
    }[step.origin]


def _delta(step: TraceStep) -> str:
    if not isinstance(step.sent_value, tuple):
        return f"{step.base_value} {step.sent_value:+d}"
    first, second = step.sent_value
    if isinstance(step.base_value, Decimal):
        return f"exponent {step.base_value.exponent} {first:+d}, mantissa {step.base_value.mantissa} {second:+d}"
    end, count = ("front", -first - 1) if first < 0 else ("back", first)
    return f"removes {count} from the {end} of {step.base_value!r}, adds {second!r}"
