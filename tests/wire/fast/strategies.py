"""Random FAST templates, values that fit them, and damaged bytes, for every reader and writer there is.

    template_sets()                 whole files: all types, operators, dictionaries, keys, groups, sequences, references
    values_of(segment, templates)   values for any segment, of random or of real templates
    streams(templates)              messages one after another: [(template id, values), …]
    damaged(data)                   the same bytes with a few things wrong
    hostile()                       bytes that know how FAST looks

Values are drawn close together (the initial value, its neighbours, the ends of the type), so that copies, increments
and tails hit. A few templates let fields of different types or operators share a dictionary entry: their messages
may not be encodable (EncodeError with D3, D4 or D6), which the tests have to expect.
"""

from __future__ import annotations

from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from umdf.wire.fast.loader import loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DECIMAL,
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
    TemplateSet,
)

TYPES = ("int32", "uInt32", "int64", "uInt64", "decimal", "ascii", "unicode", "byteVector")
_INTEGER_OPERATORS = ("constant", "default", "copy", "increment", "delta")
_STRING_OPERATORS = ("constant", "default", "copy", "delta", "tail")
_OPERATORS = {
    **dict.fromkeys(RANGES, _INTEGER_OPERATORS),
    DECIMAL: ("constant", "default", "copy", "delta"),
    **dict.fromkeys((ASCII, UNICODE, BYTES), _STRING_OPERATORS),
}
_DICTIONARIES = ("global", "template", "type", "alpha", "beta")

# All of four bytes, so that a tail can turn each into each other (it cannot make a value shorter).
_TAILS = {
    ASCII: ("AAAA", "AAAB", "AABB", "ABBB", "BBBB", "BAAA"),
    UNICODE: ("abcd", "abce", "abé", "aéb", "éé", "éè", "a€", "\N{GRINNING FACE}"),
    BYTES: (b"\x00\x00\x00\x00", b"\x00\x00\x00\x80", b"\x00\xff\x80\x80", b"\xff\xff\xff\xff"),
}


class _Names:
    """Names that never repeat in a file."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"


@st.composite
def template_sets(draw: st.DrawFn, most_templates: int = 3, most_fields: int = 5, most_depth: int = 3) -> TemplateSet:
    """A file of templates with ids from 1; the first has no dynamic reference, later ones may refer to earlier ones."""
    names = _Names()
    count = draw(st.integers(1, most_templates))
    templates = []
    for number in range(1, count + 1):
        earlier = [f"T{other}" for other in range(1, number)]
        body = draw(_bodies(names, earlier, number > 1, most_fields, most_depth))
        templates.append(
            f'<template name="T{number}" id="{number}"{draw(_dictionary())}>{draw(_type_ref())}{body}</template>'
        )
    xml = f"<templates{draw(_dictionary())}>{''.join(templates)}</templates>"
    note(xml)
    return loads(xml.encode())


def _dictionary() -> st.SearchStrategy[str]:
    named = st.sampled_from(_DICTIONARIES).map(lambda name: f' dictionary="{name}"')
    return st.one_of(st.just(""), st.just(""), named)


def _type_ref() -> st.SearchStrategy[str]:
    return st.sampled_from(("", "", '<typeRef name="One"/>', '<typeRef name="Two"/>'))


def _presence() -> st.SearchStrategy[str]:
    return st.sampled_from(("", ' presence="mandatory"', ' presence="optional"', ' presence="optional"'))


@st.composite
def _bodies(draw: st.DrawFn, names: _Names, earlier: list[str], dynamic: bool, most: int, depth: int) -> str:
    """The instructions of a template, group or sequence."""
    parts = []
    for _ in range(draw(st.integers(0, most))):
        kinds = ["field"] * 6 + (["group", "sequence", "sequence"] if depth else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "field":
            parts.append(draw(fields(names)))
            continue
        inside = draw(_bodies(names, earlier, dynamic, max(1, most - 2), depth - 1))
        attributes = f'name="{names(kind)}"{draw(_presence())}{draw(_dictionary())}'
        length = draw(_lengths(names)) if kind == "sequence" else ""
        parts.append(f"<{kind} {attributes}>{draw(_type_ref())}{length}{inside}</{kind}>")
    # Twice the same template in one segment would be twice the same name.
    if earlier and draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), f'<templateRef name="{draw(st.sampled_from(earlier))}"/>')
    if dynamic and draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), "<templateRef/>")
    return "".join(parts)


@st.composite
def _lengths(draw: st.DrawFn, names: _Names) -> str:
    if draw(st.booleans()):
        return ""
    name = f' name="{names("No")}"' if draw(st.booleans()) else ""
    operator = draw(_operators("uInt32", st.sampled_from(("0", "1", "2")), optional=False))
    return f"<length{name}>{operator}</length>"


@st.composite
def fields(draw: st.DrawFn, names: _Names, type: str | None = None) -> str:
    type = type or draw(st.sampled_from(TYPES))
    presence = draw(_presence())
    optional = "optional" in presence
    tag = "string" if type in (ASCII, UNICODE) else type
    charset = ' charset="unicode"' if type == UNICODE else ""
    tag_id = f' id="{draw(st.integers(1, 40_000))}"' if draw(st.booleans()) else ""
    attributes = f'name="{names("F")}"{tag_id}{charset}{presence}{draw(_dictionary())}'
    if type == DECIMAL and draw(st.booleans()):
        exponent = draw(_operators("int32", st.integers(-63, 63).map(str), optional))
        mantissa = draw(_operators("int64", _initial_texts("int64"), optional=False))
        inside = f"<exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa>"
    else:
        inside = draw(_operators(type, _initial_texts(type), optional))
    if type in (UNICODE, BYTES) and draw(st.booleans()):
        inside = f'<length name="{names("L")}"/>{inside}'
    return f"<{tag} {attributes}>{inside}</{tag}>"


@st.composite
def _operators(draw: st.DrawFn, type: str, initial: st.SearchStrategy[str], optional: bool) -> str:
    operator = draw(st.sampled_from(("", *_OPERATORS[type])))
    if not operator:
        return ""
    must = operator == "constant" or (operator == "default" and not optional)
    value = ""
    if must or draw(st.booleans()):
        text = draw(initial)
        if operator == "tail":
            four = draw(st.sampled_from(_TAILS[type]))
            text = four.hex() if isinstance(four, bytes) else four
        value = f' value="{text}"'
    if operator in ("constant", "default"):
        return f"<{operator}{value}/>"
    # A key that all fields of a type share, and rarely one that all share.
    shared = draw(st.integers(0, 11))
    key = f' key="of {type}"' if shared < 3 else ' key="of all"' if shared == 3 else ""
    return f"<{operator}{draw(_dictionary())}{key}{value}/>"


def _initial_texts(type: str) -> st.SearchStrategy[str]:
    if type in RANGES:
        return _integers(type, None).map(str)
    if type == DECIMAL:
        return st.sampled_from(("0", "1", "-1", "100", "12.50", ".01", "-0.0", "9223372036854775807"))
    if type == BYTES:
        return st.binary(max_size=3).map(bytes.hex)
    return st.text("AB", max_size=3) if type == ASCII else st.text("Aé€", max_size=3)


def _integers(type: str, initial: Any) -> st.SearchStrategy[int]:
    low, high = RANGES[type]
    near = [low, low + 1, high - 1, high, 0, 1, 2, 63, 64, 127, 128]
    if isinstance(initial, int):
        near += [initial] * 4 + [max(low, initial - 1), min(high, initial + 1)]
    return st.one_of(st.sampled_from(near), st.integers(0, 5), st.integers(low, high))


def _values(field: Field) -> st.SearchStrategy[Any]:
    """Values of a field that has one."""
    operator = field.operator
    if field.has_part_operators:
        exponent, mantissa = field.parts
        powers = _values(exponent).map(lambda power: power if -63 <= power <= 63 else power % 127 - 63)
        return st.builds(Decimal, powers, _values(mantissa))
    if operator.kind == CONSTANT:
        return st.just(operator.initial)
    if field.type in RANGES:
        return _integers(field.type, operator.initial)
    if operator.kind == TAIL:
        return st.sampled_from(_TAILS[field.type])
    free: st.SearchStrategy[Any]
    if field.type == DECIMAL:
        free = st.builds(Decimal, st.integers(-63, 63), _integers("int64", None))
    elif field.type == ASCII:
        free = st.one_of(st.text("AB", max_size=6), st.text(st.characters(max_codepoint=0x7F), max_size=20))
    elif field.type == UNICODE:
        free = st.one_of(st.text("Aé€", max_size=6), st.text(max_size=20))
    else:
        free = st.binary(max_size=20)
    return free if operator.initial is None else st.one_of(st.just(operator.initial), free)


_ABSENT = object()


def values_of(segment: Segment, templates: TemplateSet, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Values for a segment, as readers return them."""
    each = {i.name: _instruction_values(i, templates, depth) for i in segment.instructions}
    return st.fixed_dictionaries(each).map(_without_absent)


def _without_absent(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not _ABSENT}


def _instruction_values(instruction: Instruction, templates: TemplateSet, depth: int) -> st.SearchStrategy[Any]:
    present: st.SearchStrategy[Any]
    if isinstance(instruction, Field):
        present = _values(instruction)
    elif isinstance(instruction, Group):
        present = values_of(instruction.body, templates, depth)
    elif isinstance(instruction, Sequence):
        entries = values_of(instruction.body, templates, depth)
        length = instruction.length.operator
        exact = length.initial if length.kind == CONSTANT and isinstance(length.initial, int) else None
        least, most = (0, 3) if exact is None else (exact, exact)
        present = st.lists(entries, min_size=least, max_size=most)
    else:
        return st.deferred(lambda: _referred(instruction, templates, depth + 1))
    return st.one_of(st.just(_ABSENT), present) if instruction.optional else present


def _referred(reference: DynamicRef, templates: TemplateSet, depth: int) -> st.SearchStrategy[Message]:
    usable = templates.templates_for_type(reference.application_type)
    ids = sorted(usable) if depth < 2 else [1]  # the first template ends the recursion
    return st.sampled_from(ids).flatmap(
        lambda template_id: values_of(usable[template_id].body, templates, depth).map(
            lambda values: Message(usable[template_id], values)
        )
    )


def streams(templates: TemplateSet, most: int = 5) -> st.SearchStrategy[list[tuple[int, dict[str, Any]]]]:
    messages = [
        values_of(template.body, templates).map(lambda values, template_id=template_id: (template_id, values))
        for template_id, template in sorted(templates.by_id.items())
    ]
    return st.lists(st.one_of(messages), min_size=1, max_size=most)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bits turned, bytes replaced, added or lost, ends cut."""
    content = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        if not content:
            break
        at = draw(st.integers(0, len(content) - 1))
        what = draw(st.sampled_from(("bit", "byte", "add", "lose", "cut")))
        if what == "bit":
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "byte":
            content[at] = draw(st.sampled_from((0x00, 0x7F, 0x80, 0x81, 0xFF)))
        elif what == "add":
            content[at:at] = draw(st.sampled_from((b"\x00", b"\x7f" * 20, b"\x80", b"\x08\x00\x00\x00\x80")))
        else:
            del content[at : None if what == "cut" else at + 1]
    return bytes(content)


def arbitrary_bytes() -> st.SearchStrategy[bytes]:
    """Bytes that are more often something in FAST than chance would make them."""
    pieces = st.sampled_from((b"\xc0\x81", b"\xe0\x82", b"\xff\x83", b"\x80", b"\x81", b"\xff", b"\x00", b"\x7f\xff"))
    return st.one_of(
        st.binary(max_size=60), st.lists(st.one_of(pieces, st.binary(max_size=3)), max_size=30).map(b"".join)
    )
