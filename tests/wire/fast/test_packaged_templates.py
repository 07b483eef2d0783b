"""The template file that comes with the package, against tables typed from the message reference and the notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from umdf.wire.fast import loader, templates
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, Field, Instruction, Segment, Sequence, Template
from umdf.wire.fix import dictionary

SET = loader.load()
HEADER = "35 34 52 1128"
BLOCK = "48 22 207"
LOST_PAGE = "272 273 37016 37017 37014 274 276 277"
DEPRECATED = "5767 7687 9343 9344 9989 9990 9993 9996 9997 37001 37002 37003 37004 37005 37006 37007"

# Message reference 2.2.1, section 1, message by message and row by row. A group's rows stand in brackets behind its
# count tag.
REFERENCE = {
    "4": f"{HEADER} 36",
    "0": HEADER,
    "y": f"""{HEADER} 393 893 146 [ 55 {BLOCK} 1351 [ 1180 1141 [ 1022 264 ] ] 454 [ 455 456 ]
        711 [ 311 309 305 308 6919 37021 ] 1144 870 [ 871 872 ] 1205 [ 1206 1207 1208 1209 ]
        555 [ 600 602 603 616 609 623 37009 37010 624 ] 980 1234 [ 1093 1231 ] 561 562 969 5151 9749 9748 9219 1377
        1378 15 460 167 762 7534 6937 107 541 200 202 947 1194 201 231 37012 667 461 470 225 873 916 917 63 64 120
        423 6938 1151 7595 1300 37011 37010 37015 35561 1482 ]""",
    "X": f"""{HEADER} 75 268 [ 269 279 83 37100 6939 {BLOCK} 1500 270 271 37780 {LOST_PAGE} 336 286 15 9325 37013 37
        1003 288 289 346 290 423 451 287 731 1020 1306 1148 1149 1150 37008 37003 432 37019 37023 37024 37025 1140
        1025 31 811 711 [ 309 305 308 810 37018 ] {DEPRECATED} ]""",
    "W": f"""{HEADER} 369 911 75 451 264 83 {BLOCK} 268 [ 269 37100 6939 1500 270 271 {LOST_PAGE} 336 1174 286 15 9325
        37013 37 1003 288 289 346 290 423 287 731 1020 1306 1148 1149 1150 37008 37003 432 37019 37023 37024 37025
        1140 1025 31 811 711 [ 309 305 308 810 37018 ] {DEPRECATED} ]""",
    "f": f"{HEADER} 1151 {BLOCK} 75 625 326 336 342 60 1500 1174",
    "B": f"""{HEADER} 42 6940 1472 1474 148 358 359 146 [ {BLOCK} ] 245 [ 246 217 ] 33 [ 58 354 355 ] 149""",
    "n": f"{HEADER} 212 213 347",
}
# Rows (message, group, tag) of ours that the reference does not have, and why.
BEYOND = {
    ("X", 0, 43): "the exchange's channel reset has it",
    ("X", 268, 1023): "the exchange's channel reset has it",
    ("W", 0, 262): "the exchange's snapshot of the previous generation has it",
    ("W", 268, 625): "the state in a snapshot, messaging specification 11.4",
    ("W", 268, 326): "the state in a snapshot, messaging specification 11.4",
    ("W", 268, 342): "the state in a snapshot, messaging specification 11.4",
    ("W", 268, 451): "sent with each price that has one, not once in the body",
}
ELSEWHERE = {("W", 0, 451)}  # the row that the last line of BEYOND stands for

IDS = {
    "X": {152, 145, 81, 1152},
    "W": {153, 147, 1153},
    "y": {1149, 149},
    "f": {142, 1142},
    "B": {143, 1143},
    "0": {144},
    "4": {122},
    "n": {140},
}

# The previous X in the order of the stream: tag, type (? optional), operator, initial value. A decimal (dec) states
# the operator of its exponent; the mantissa's is always delta.
X_145 = """
1128 ascii constant 9 | 35 ascii constant X | 34 uInt32 | 52 uInt64 | 75 uInt32? | 268 sequence
279 uInt32 copy 1 | 269 ascii copy 0 | 22 uInt32 constant 8 | 207 ascii constant BVMF | 48 uInt64 copy
83 uInt32 increment | 276 ascii? default | 270 dec? default -2 | 37014 dec? default -2 | 346 uInt32? default
423 ascii? | 273 uInt32 copy | 271 int64? delta | 272 uInt32? copy | 37016 uInt32? copy | 37017 uInt32? copy
1500 ascii? default | 15 ascii? copy | 451 dec? default | 287 uInt32? default | 1020 uInt64? delta
274 ascii? default | 277 ascii? | 336 uInt32? | 286 uInt32? | 37 ascii? default | 1003 ascii? default
288 ascii? default | 289 ascii? default | 290 uInt32? default | 731 uInt32? | 9325 uInt32? | 37013 uInt32?
6939 ascii? default | 1306 uInt32? default | 1148 dec? default | 1149 dec? default | 1150 dec? default
37008 uInt32? | 37003 uInt64? | 432 uInt64? | 37019 uInt64? | 1140 uInt64?
711 sequence? | 309 uInt64 delta | 305 uInt32 constant 8 | 308 ascii constant BVMF | 810 dec default -2
37018 uInt32? | 37100 uInt64?
"""

# What FIX types may look like on the wire; the exchange's own files vary as much.
WIRE_TYPES = """
Price PriceOffset Percentage: decimal
float: decimal int32
UTCTimestamp UTCDateOnly UTCTimeOnly LocalMktDate: uInt32 uInt64 ascii
MonthYear SeqNum NumInGroup Length: uInt32
Qty: int32 int64 uInt32 uInt64
int: int32 uInt32 uInt64 ascii
char MultipleValueString: ascii uInt32
Boolean Currency Country Exchange Language: ascii
String: ascii unicode uInt32
data: byteVector unicode
"""


def rows(text: str) -> set[tuple[int, int]]:
    """(group, tag) of each tag in a line of REFERENCE."""
    found: set[tuple[int, int]] = set()
    groups, last = [0], 0
    for word in text.split():
        if word == "[":
            groups.append(last)
        elif word == "]":
            groups.pop()
        else:
            last = int(word)
            found.add((groups[-1], last))
    return found


def walk(body: Segment, group: int = 0) -> Iterator[tuple[int, Field]]:
    """(group, field) of each field in the order of the stream, a sequence's length before its entries."""
    for instruction in body.instructions:
        if isinstance(instruction, Sequence):
            assert instruction.length.id is not None
            yield group, instruction.length
            yield from walk(instruction.body, instruction.length.id)
        else:
            assert isinstance(instruction, Field)
            yield group, instruction


def message_type(template: Template) -> str:
    return next(str(field.operator.initial) for _, field in walk(template.body) if field.id == 35)


def found_rows(message: str) -> set[tuple[int, int]]:
    return {
        (group, field.id)
        for template in SET.templates
        if message_type(template) == message
        for group, field in walk(template.body)
        if field.id is not None
    }


def field_of(template: int, tag: int, group: int = 0) -> Field:
    return next(field for g, field in walk(SET.by_id[template].body) if (g, field.id) == (group, tag))


def describe(body: Segment) -> list[str]:
    """The lines of X_145 for a body."""
    lines: list[str] = []
    for instruction in body.instructions:
        assert isinstance(instruction, Field | Sequence)
        mark = "?" if instruction.optional else ""
        if isinstance(instruction, Sequence):
            assert instruction.length.operator.kind == templates.NONE
            lines += [f"{instruction.length.id} sequence{mark}", *describe(instruction.body)]
            continue
        kind, operator = instruction.type, instruction.operator
        if instruction.has_part_operators:
            exponent, mantissa = instruction.parts
            assert mantissa.operator.kind == templates.DELTA and mantissa.operator.initial is None
            kind, operator = "dec", exponent.operator
        words = [str(instruction.id), kind + mark]
        words += [operator.kind] if operator.kind != templates.NONE else []
        words += [str(operator.initial)] if operator.initial is not None else []
        lines.append(" ".join(words))
    return lines


@pytest.mark.parametrize("message", REFERENCE)
def test_every_tag_of_the_reference_has_its_place(message: str):
    missing = {(message, *row) for row in rows(REFERENCE[message]) - found_rows(message)}
    assert missing == {row for row in ELSEWHERE if row[0] == message}


@pytest.mark.parametrize("message", REFERENCE)
def test_no_tag_stands_where_neither_the_reference_nor_a_stated_reason_puts_it(message: str):
    extra = {(message, *row) for row in found_rows(message) - rows(REFERENCE[message])}
    assert extra == {row for row in BEYOND if row[0] == message}


def test_the_file_holds_both_generations_under_the_documented_ids():
    ids: dict[str, set[int]] = {}
    for template in SET.templates:
        assert template.id is not None
        ids.setdefault(message_type(template), set()).add(template.id)
    assert ids == IDS


def test_the_previous_incremental_refresh_has_the_exchanges_shape():
    expected = [line.strip() for part in X_145.strip().splitlines() for line in part.split("|")]
    assert describe(SET.by_id[145].body) == expected


def test_the_current_incremental_refresh_is_the_previous_one_with_the_known_changes():
    before, now = (describe(SET.by_id[number].body) for number in (145, 152))
    assert [line for line in before if line not in now] == ["83 uInt32 increment", "290 uInt32? default"]
    assert [line for line in now if line not in before] == [
        "83 uInt32? increment",
        "37780 int64? default",
        "37023 uInt32?",
        "37024 uInt32?",
        "37025 uInt32?",
        "1025 dec? default",
        "31 dec? default",
        "811 dec? default",
    ]


def test_a_position_is_known_to_the_previous_generation_only():
    with_position = {t.id for t in SET.templates if any(field.id == 290 for _, field in walk(t.body))}
    assert with_position == {145, 147}


def test_the_snapshot_names_its_instrument_and_its_place_in_the_stream_in_the_body():
    for number in (153, 147):
        body = {field.id for group, field in walk(SET.by_id[number].body) if group == 0}
        entry = {field.id for group, field in walk(SET.by_id[number].body) if group == 268}
        assert {48, 83, 369} <= body and not {48, 83, 279} & entry
        assert field_of(number, 269, 268).operator == templates.Operator("default", "2")
        assert field_of(number, 1500, 268).operator == templates.Operator("default", "E")


def test_the_channel_reset_needs_no_instrument():
    assert describe(SET.by_id[81].body)[-12:] == [
        "279 uInt32? copy 0",
        "1023 uInt32? default 1",
        "269 ascii copy J",
        "22 uInt32? constant 8",
        "48 uInt64? copy",
        "83 uInt32? increment",
        "270 dec? default 0",
        "273 uInt32 copy",
        "271 int32? delta",
        "276 ascii? default",
        "346 uInt32? delta",
        "336 ascii? default 2",
    ]


def test_types_that_the_exchange_chose_are_kept():
    assert field_of(142, 625).type == templates.ASCII and field_of(142, 326).type == templates.UINT32
    assert field_of(149, 872, 870).type == templates.ASCII and field_of(149, 623, 555).type == templates.INT32
    assert field_of(145, 423, 268).type == templates.ASCII and field_of(145, 37, 268).type == templates.ASCII
    assert field_of(149, 893).type == field_of(149, 52).type == templates.ASCII
    assert field_of(152, 52).type == templates.UINT64
    assert field_of(152, 273, 268).type == templates.UINT32 and field_of(153, 273, 268).type == templates.ASCII
    assert field_of(140, 213).type == templates.BYTES and field_of(1149, 107, 146).type == templates.UNICODE


def test_channels_of_an_instrument_are_nested_three_deep_and_need_no_presence_map():
    for number in (149, 1149):
        instruments = SET.by_id[number].body.by_name["RelatedSym"]
        assert isinstance(instruments, Sequence) and not instruments.optional
        channels = instruments.body.by_name["ApplIDs"]
        assert isinstance(channels, Sequence) and not channels.optional
        depths = channels.body.by_name["MDFeedTypes"]
        assert isinstance(depths, Sequence) and depths.optional
        assert (channels.length.id, depths.length.id) == (1351, 1141)
        assert instruments.body.has_presence_map
        assert not channels.body.has_presence_map and not depths.body.has_presence_map


def test_every_template_keeps_its_own_dictionary_and_no_entry_of_it_changes_type():
    def slots(instruction: Instruction) -> Iterator[int]:
        assert isinstance(instruction, Field | Sequence)
        if isinstance(instruction, Sequence):
            fields = [instruction.length]
            for inner in instruction.body.instructions:
                yield from slots(inner)
        else:
            fields = list(instruction.parts) if instruction.has_part_operators else [instruction]
        yield from (field.operator.slot for field in fields if field.operator.slot is not None)

    for template in SET.templates:
        for instruction in template.body.instructions:
            for slot in slots(instruction):
                assert (SET.slots[slot].dictionary, SET.slots[slot].scope) == ("user", str(template.id))
                assert len(SET.slots[slot].types) == 1


def filled(body: Segment, optional: bool, seed: int) -> dict[str, Any]:
    """A value for each field; decimals have 0 to 8 places."""
    values: dict[str, Any] = {}
    for number, instruction in enumerate(body.instructions, seed):
        assert isinstance(instruction, Field | Sequence)
        if instruction.optional and not optional:
            continue
        if isinstance(instruction, Sequence):
            values[instruction.name] = [filled(instruction.body, optional, 3 * number + entry) for entry in range(3)]
        elif instruction.operator.kind == templates.CONSTANT:
            values[instruction.name] = instruction.operator.initial
        elif instruction.type == templates.DECIMAL:
            values[instruction.name] = Decimal(-(number % 9), (-1) ** number * (10**15 + number))
        elif instruction.type in templates.RANGES:
            values[instruction.name] = templates.RANGES[instruction.type][1] - number
        elif instruction.type == templates.BYTES:
            values[instruction.name] = bytes([0, 1, 255, number % 256])
        else:
            values[instruction.name] = f"ação {number}" if instruction.type == templates.UNICODE else f"T {number}"
    return values


@pytest.mark.parametrize("optional", [True, False], ids=["all fields", "mandatory fields"])
@pytest.mark.parametrize("template", SET.templates, ids=lambda template: template.name)
def test_every_template_carries_a_message_there_and_back(template: Template, optional: bool):
    assert template.id is not None
    values = filled(template.body, optional, seed=1)
    encoded = Writer(SET).encode(template.id, values)
    message, end = Reader(SET).decode(encoded)
    assert (message.template, message.values, end) == (template, values, len(encoded))


def test_fields_have_the_dictionarys_names_and_types_that_fit_it():
    fitting: dict[str, set[str]] = {}
    for line in WIRE_TYPES.strip().splitlines():
        fix_types, _, wire_types = line.partition(":")
        fitting |= {fix_type: set(wire_types.split()) for fix_type in fix_types.split()}
    for template in SET.templates:
        for group, field in walk(template.body):
            assert field.id is not None
            tag = dictionary.lookup(field.id, group)
            assert tag is not None and tag.name == field.name, (template.id, field)
            assert field.type in fitting[tag.type], (template.id, field)
