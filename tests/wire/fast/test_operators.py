"""Every operator on every type, mandatory and optional, on every state that its dictionary entry can have.

A first field with the same key brings the entry into the state: it is inside an optional group, so that it can also
leave it alone.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from vectors.fast import field, template

from umdf.errors import EncodeError
from umdf.wire.fast.loader import loads
from umdf.wire.fast.reference.dictionary import EMPTY, UNDEFINED, Assigned
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.transfer_encoding import FastError
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, Field, TemplateSet

# type: the initial value as text and as value, the previous value, its bytes where NULL is possible, one more, the base
TYPES: dict[str, tuple[str, Any, Any, str, Any, Any]] = {
    "int32": ("-5", -5, 7, "88", 8, 0),
    "uInt32": ("5", 5, (1 << 32) - 1, "1000000080", 0, 0),  # the greatest and one is the least (6.3.6)
    "int64": ("-5", -5, (1 << 63) - 1, "01000000000000000080", -(1 << 63), 0),
    "uInt64": ("5", 5, 7, "88", 8, 0),
    "decimal": ("1.50", Decimal(-1, 15), Decimal(-2, 7), "fe87", None, Decimal(0, 0)),
    "string": ("AB", "AB", "CD", "43c4", None, ""),
    "unicode": ("é", "é", "CD", "834344", None, ""),
    "byteVector": ("0aFF", b"\x0a\xff", b"\x80\x80", "838080", None, b""),
}
INTEGERS, STRINGS = ("int32", "uInt32", "int64", "uInt64"), ("string", "unicode", "byteVector")
APPLIES = {"copy": tuple(TYPES), "increment": INTEGERS, "delta": tuple(TYPES), "tail": STRINGS}
PRESENCES = {"mandatory": False, "optional": True}
STATES = ("undefined", "undefined with initial", "empty", "assigned")
CASES = [case for case in product(APPLIES, TYPES, PRESENCES, STATES) if case[1] in APPLIES[case[0]]]

# What a field has if nothing is sent for it (6.3.5 to 6.3.8); for delta: if a delta of nothing is sent.
PREVIOUS, NEXT, INITIAL, BASE, ABSENT = "previous", "next", "initial", "base", "absent"
OUTCOMES = {
    ("copy", "mandatory"): ("D5", INITIAL, "D6", PREVIOUS),
    ("copy", "optional"): (ABSENT, INITIAL, ABSENT, PREVIOUS),
    ("increment", "mandatory"): ("D5", INITIAL, "D6", NEXT),
    ("increment", "optional"): (ABSENT, INITIAL, ABSENT, NEXT),
    ("tail", "mandatory"): ("D6", INITIAL, "D7", PREVIOUS),
    ("tail", "optional"): (ABSENT, INITIAL, ABSENT, PREVIOUS),
    ("delta", "mandatory"): (BASE, INITIAL, "D6", PREVIOUS),
    ("delta", "optional"): (BASE, INITIAL, "D6", PREVIOUS),
}


def _templates(operator: str, type: str, presence: str, initial: bool) -> TemplateSet:
    value = f' value="{TYPES[type][0]}"' if initial else ""
    setter = field(type, '<copy key="K"/>', optional=True, name="Setter")
    group = f'<group name="G" presence="optional">{setter}</group>'
    return loads(template(group + field(type, f'<{operator} key="K"{value}/>', PRESENCES[presence])))


def _set_up(type: str, state: str) -> tuple[int, str]:
    """The group's bit, and its bytes."""
    if state == "empty":
        return 0b0100000, "c080"
    return (0b0100000, "c0" + TYPES[type][3]) if state == "assigned" else (0, "")


def _nothing_sent(operator: str, type: str, presence: str) -> str:
    if operator != "delta":
        return ""
    second = "80" if type not in INTEGERS else ""
    return ("81" if PRESENCES[presence] else "80") + second


def _expected(outcome: str, type: str) -> dict[str, Any]:
    _, initial, previous, _, following, base = TYPES[type]
    value = {PREVIOUS: previous, NEXT: following, INITIAL: initial, BASE: base, ABSENT: None}[outcome]
    return {} if value is None else {"Value": value}


@pytest.mark.parametrize(("operator", "type", "presence", "state"), CASES)
def test_a_field_not_sent_takes_its_value_from_the_dictionary_state(
    operator: str, type: str, presence: str, state: str
) -> None:
    templates = _templates(operator, type, presence, state == "undefined with initial")
    outcome = OUTCOMES[operator, presence][STATES.index(state)]
    bit, group = _set_up(type, state)
    data = bytes([0xC0 | bit]) + bytes.fromhex("81" + group + _nothing_sent(operator, type, presence))
    reader, writer = Reader(templates), Writer(templates)
    before: dict[str, Any] = {"empty": {"G": {}}, "assigned": {"G": {"Setter": TYPES[type][2]}}}.get(state, {})
    if outcome[0] == "D":
        with pytest.raises(FastError) as caught:
            reader.decode(data)
        assert (caught.value.code, caught.value.field) == (outcome, "Value")
        return
    message, end = reader.decode(data)
    expected = before | _expected(outcome, type)
    assert (message.values, end, message.reports) == (expected, len(data), [])
    if state != "empty" or operator == "delta":
        # After an empty entry has been made by sending NULL, the writer would not have sent it at all.
        assert writer.encode(1, expected) == data
    instruction = templates.by_id[1].body.by_name["Value"]
    assert isinstance(instruction, Field)
    entry = reader.dictionary.entry(instruction)
    value = expected.get("Value")
    assert entry == (EMPTY if value is None else Assigned(instruction.type, value))


@pytest.mark.parametrize(("operator", "type"), [(op, type) for op in APPLIES for type in APPLIES[op]])
def test_null_empties_the_entry_except_that_delta_leaves_it(operator: str, type: str) -> None:
    templates = _templates(operator, type, "optional", initial=False)
    value = TYPES[type][2]
    reader, writer = Reader(templates, "never"), Writer(templates, "never")
    for values in ({"Value": value}, {}, {"Value": value}):
        written = writer.encode(1, values)
        assert reader.decode(written)[0].values == values
        if not values:
            entry = reader.dictionary.entries[0]
            assert written[-1] == 0x80
            assert (entry == EMPTY) == (operator != "delta")


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("presence", PRESENCES)
@pytest.mark.parametrize("operator", ["none", "constant", "default"])
def test_operators_without_a_dictionary_entry(operator: str, type: str, presence: str) -> None:
    text, initial, other, *_ = TYPES[type]
    xml = "" if operator == "none" else f'<{operator} value="{text}"/>'
    templates = loads(template(field(type, xml, PRESENCES[presence])))
    assert templates.slots == ()
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    streams: list[dict[str, Any]] = [{"Value": initial}, {"Value": initial}]
    streams += [{"Value": other}] if operator != "constant" else []
    streams += [{}, {"Value": initial}] if PRESENCES[presence] else []
    sizes = []
    for values in streams:
        written = writer.encode(1, values, template_id_always=False)
        sizes.append(len(written))
        assert reader.decode(written)[0].values == values
    if operator != "none":
        assert sizes[1] == 1  # the presence map alone
        assert reader.dictionary.entries == []
    if operator == "constant":
        with pytest.raises(EncodeError, match="D3"):
            writer.encode(1, {"Value": other})
    if PRESENCES[presence]:
        return
    if operator == "constant":
        assert writer.encode(1, {}) == writer.encode(1, {"Value": initial})
    else:
        with pytest.raises(EncodeError, match="mandatory field is missing"):
            writer.encode(1, {})


def test_an_entry_is_undefined_until_something_is_remembered() -> None:
    templates = _templates("copy", "uInt32", "optional", initial=False)
    assert Reader(templates).dictionary.entries == [UNDEFINED]
