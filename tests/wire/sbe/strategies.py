"""Values for any message of a schema, as `view` shows them (and `compose` takes them)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from wire.sbe.reference_codec import encode_message

from umdf.wire.sbe.schema import SIZES, Block, Field, Message, Part, Schema

MODES = ("set", "absent", "minimal", "maximal", "random")


def null_of(part: Part) -> int | None:
    """What means absent: of a required one, in versions before those that the schema serves."""
    return part.null if part.null is not None else part.null_before


def bounds(part: Part) -> tuple[int, int]:
    """The least and the largest value that is not the null value."""
    bits = 8 * SIZES[part.primitive]
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if part.primitive.startswith("int") else (0, (1 << bits) - 1)
    most = 127 if part.primitive == "char" else most  # a character is ASCII
    return least + (least == null_of(part)), most - (most == null_of(part))


def shown_text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")


def contents(least: int, most: int, *, ascii: bool = False) -> st.SearchStrategy[str | bytes]:
    """Text of so many bytes, without NUL: plain, full, beyond ASCII, or no text at all. Where only ASCII is text, all
    else is given as bytes."""
    anything = st.binary(min_size=least, max_size=most).map(lambda raw: raw.replace(b"\0", b"\x01"))
    plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=least, max_size=most)
    wide = st.text(st.sampled_from("açãoß€ X"), max_size=most).filter(lambda t: least <= len(t.encode()) <= most)
    return plain | anything | wide.map(str.encode if ascii else str) | st.just("Z" * most)


def _part(field: Field, part: Part, mode: str) -> st.SearchStrategy[Any]:
    """One value; None where it is absent."""
    if mode == "absent" and part.null is not None:
        return st.none()
    if mode == "random":
        chosen = ("set", "minimal", "maximal", *(["absent"] if part.null is not None else []))
        return st.sampled_from(chosen).flatmap(lambda each: _part(field, part, each))
    if part.length > 1:
        if mode == "minimal":
            return st.just("Z")
        return st.just("Z" * part.length) if mode == "maximal" else contents(1, part.length, ascii=True)
    least, most = bounds(part)
    if mode in ("minimal", "maximal"):
        numbers = st.just(least if mode == "minimal" else most)
    else:
        numbers = st.integers(least, most).filter(lambda number: number != null_of(part))
    if part.primitive == "char":
        return numbers.map(chr)
    if field.exponent is not None:
        exponent = field.exponent
        return numbers.map(lambda mantissa: f"{Decimal(mantissa).scaleb(exponent):f}")
    return numbers


def _field(field: Field, mode: str) -> st.SearchStrategy[Any]:
    if not field.parts[0].name:
        return _part(field, field.parts[0], mode)
    parts = st.fixed_dictionaries({part.name: _part(field, part, mode) for part in field.parts})
    return parts.map(lambda each: {name: value for name, value in each.items() if value is not None} or None)


_MADE: dict[tuple[int, int, str, int], st.SearchStrategy[dict[str, Any]]] = {}  # making one costs more than drawing


def values(block: Block, version: int, mode: str, most_entries: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """The fields of one block that this version has, and its groups and data; what is absent is left out."""
    key = id(block), version, mode, most_entries
    if key not in _MADE:
        _MADE[key] = _values(block, version, mode, most_entries)
    return _MADE[key]


def _values(block: Block, version: int, mode: str, most_entries: int) -> st.SearchStrategy[dict[str, Any]]:
    content: dict[str, st.SearchStrategy[Any]] = {
        field.name: _field(field, mode) for field in block.sent_fields if field.in_version(version)
    }
    for group in block.groups:
        if group.since <= version and group.block_length:
            few = 0 if mode == "absent" else 1 if mode in ("minimal", "set") else 0
            many = {"absent": 0, "minimal": 1}.get(mode, most_entries)
            content[group.name] = st.lists(values(group, version, mode, 2), min_size=few, max_size=many)
    for data in block.data:
        if data.since <= version:
            longest = 200 if data.length_size == 1 else 300
            content[data.name] = st.none() if mode == "absent" else contents(0 if mode == "random" else 1, longest)
    return st.fixed_dictionaries(content).map(_without_absent)


def _without_absent(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != []}


def sample_value(field: Field) -> Any:
    """Some value that is not the null value, where one will do."""
    if field.parts[0].name:
        return {part.name: 3 for part in field.parts}
    if field.parts[0].primitive == "char":
        return "A"
    return 3 if field.exponent is None else f"{Decimal(3).scaleb(field.exponent):f}"


def sample_values(block: Block, version: int = 16, *, optional: bool = True) -> dict[str, Any]:
    """Every field of a block that this version has (or only the required ones), one entry in each group, all data."""
    fields = [f for f in block.sent_fields if f.in_version(version)]
    out = {f.name: sample_value(f) for f in fields if optional or any(part.null is None for part in f.parts)}
    if optional:
        out |= {g.name: [sample_values(g, version)] for g in block.groups if g.since <= version and g.block_length}
        out |= {data.name: "text" for data in block.data if data.since <= version}
    return out


def as_decoded(block: Block, given: dict[str, Any]) -> dict[str, Any]:
    """What the view makes of given values: bytes as text, empty data left out."""
    out = {name: shown_text(value) if isinstance(value, (str, bytes)) else value for name, value in given.items()}
    for group in block.groups:
        if group.name in out:
            out[group.name] = [as_decoded(group, entry) for entry in given[group.name]]
    for data in block.data:
        if not out.get(data.name):
            out.pop(data.name, None)
    return out


@st.composite
def encoded_messages(
    draw: st.DrawFn, schema: Schema, versions: Sequence[int], messages: Sequence[Message] = ()
) -> bytes:
    """Any message, framed: any version, blocks that are longer or shorter than that version's, padding with garbage."""
    message = draw(st.sampled_from(list(messages or schema.messages.values())))
    version = draw(st.sampled_from(versions))
    content = draw(values(message, version, draw(st.sampled_from(MODES)), 2))
    lengths = {}
    for path, block in [("", message), *((group.name, group) for group in message.groups)]:
        if draw(st.booleans()):
            lengths[path] = draw(st.integers(int(path != ""), block.block_length + 9))
    tail = draw(st.sampled_from([b"", b"\0", b"\x05\0\x01later", b"\xff" * 30]))
    padding = draw(st.sampled_from([0, 0xFF, 0x41]))
    return encode_message(schema, message, content, version, lengths=lengths, padding=padding, tail=tail)
