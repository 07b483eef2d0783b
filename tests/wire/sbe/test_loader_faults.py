"""A file that is wrong is refused with every fault, each with its line; no file makes the loader fall over.

In the cases, the lines that must be reported end with `<!--!-->`.
"""

from __future__ import annotations

import re
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umdf.errors import SchemaError
from umdf.wire.sbe.loader import PACKAGED_SCHEMA, load, loads
from umdf.wire.sbe.schema import Block, Schema

OURS = resources.files("umdf.schemas").joinpath("sbe", PACKAGED_SCHEMA).read_text(encoding="utf-8")

TYPES = """
<types>
<composite name="Size"><type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint8"/></composite>
<composite name="Size1"><type name="blockLength" primitiveType="uint8"/><type name="numInGroup" primitiveType="uint8"/></composite>
<composite name="Swapped"><type name="numInGroup" primitiveType="uint8"/><type name="blockLength" primitiveType="uint16"/></composite>
<composite name="Signed"><type name="blockLength" primitiveType="int16"/><type name="numInGroup" primitiveType="uint8"/></composite>
<composite name="Text"><type name="length" primitiveType="uint8"/><type name="varData" primitiveType="char" length="0"/></composite>
<composite name="Odd"><type name="length" primitiveType="uint8"/><type name="varData" primitiveType="int16"/></composite>
<composite name="Ebcdic"><type name="length" primitiveType="uint8"/><type name="varData" primitiveType="uint8" characterEncoding="cp037"/></composite>
<composite name="Weeks"><type name="time" primitiveType="uint64"/><type name="unit" primitiveType="uint8" presence="constant">7</type></composite>
<type name="Name" primitiveType="char" length="8"/>
<type name="Pair" primitiveType="uint16" length="2"/>
<enum name="E" encodingType="uint16"><validValue name="A">1</validValue><validValue name="BIG">300</validValue></enum>
<enum name="C" encodingType="char"><validValue name="A">a</validValue></enum>
<set name="S" encodingType="uint8"><choice name="bit">0</choice></set>
</types>
"""  # noqa: E501 (one declaration a line, so that none can be reported for another)


def document(body: str, attributes: str = 'id="2" version="16"') -> bytes:
    return f"<messageSchema {attributes}>{TYPES}{body}</messageSchema>".encode()


def types(body: str) -> bytes:
    return document(f'<types>{body}</types>\n<message name="M" id="1"/>')


def message(body: str, attributes: str = "") -> bytes:
    return document(f'<message name="M" id="1" {attributes}>\n{body}\n</message>')


def groups(depth: int) -> str:
    if depth == 9:
        return '<group name="g9" id="1" dimensionType="Size"/><!--!-->\n'
    return f'<group name="g{depth}" id="1" dimensionType="Size">\n{groups(depth + 1)}</group>\n'


FIELD = '<field name="f" id="1" type="Name"/>'
CASES = {
    "unknown type": (message('<field name="f" id="1" type="Nmae"/><!--!-->'), "type Nmae is unknown"),
    "unknown primitive": (types('<type name="T" primitiveType="uint128"/><!--!-->'), "type uint128 is unknown"),
    "float": (types('<type name="T" primitiveType="float"/><!--!-->'), "float is not supported"),
    "double in a field": (message('<field name="f" id="1" type="double"/><!--!-->'), "double is not supported"),
    "no primitive": (types('<type name="T"/><!--!-->'), "needs the attribute primitiveType"),
    "no name of a type": (types('<type primitiveType="uint8"/><!--!-->'), "needs the attribute name"),
    "no name of a field": (message('<field id="1" type="Name"/><!--!-->'), "needs the attribute name"),
    "blank name": (message('<field name=" " id="1" type="Name"/><!--!-->'), "needs the attribute name"),
    "no id": (message('<field name="f" type="Name"/><!--!-->'), "needs the attribute id"),
    "no type": (message('<field name="f" id="1"/><!--!-->'), "needs the attribute type"),
    "id in words": (message('<field name="f" id="one" type="Name"/><!--!-->'), 'id must be an integer, not "one"'),
    "id with exotic digits": (message('<field name="f" id="٣" type="Name"/><!--!-->'), "id must be an integer"),
    "endless id": (message(f'<field name="f" id="{"9" * 5000}" type="Name"/><!--!-->'), "id must be an integer"),
    "no id of a message": (document('\n<message name="M"/><!--!-->'), "needs the attribute id"),
    "no messages": (b'<messageSchema id="2" version="16"/><!--!-->', "has no messages"),
    "no version": (document('<message name="M" id="1"/>', 'id="2"><!--!--'), "needs the attribute version"),
    "type twice": (
        types('<type name="T" primitiveType="int8"/>\n<type name="T" primitiveType="int8"/><!--!-->'),
        "before",
    ),
    "template id twice": (document('<message name="M" id="1"/>\n<message name="N" id="1"/><!--!-->'), "id 1 is taken"),
    "message name twice": (document('<message name="M" id="1"/>\n<message name="M" id="2"/><!--!-->'), "of that name"),
    "template id too large": (document('\n<message name="M" id="65536"/><!--!-->'), "id is 65536"),
    "field name twice": (message(f"{FIELD}\n{FIELD}<!--!-->"), "second member of that name"),
    "group named like a field": (message(f'{FIELD}\n<group name="f" id="2" dimensionType="Size"/><!--!-->'), "second"),
    "overlap": (message(f'{FIELD}\n<field name="g" id="2" type="Name" offset="7"/><!--!-->'), "ends at 8"),
    "negative offset": (message('<field name="f" id="1" type="Name" offset="-1"/><!--!-->'), "offset is -1"),
    "past the block": (message(f"{FIELD}<!--!-->", 'blockLength="7"'), "past the blockLength of 7"),
    "block too long": (document('\n<message name="M" id="1" blockLength="65536"/><!--!-->'), "blockLength is 65536"),
    "fields too long": (
        document('\n<message name="M" id="1"><!--!-->\n<field name="f" id="1" type="Name" offset="65530"/></message>'),
        "its fields need 65538 bytes",
    ),
    "group longer than its header can say": (
        message('<group name="g" id="2" dimensionType="Size1" blockLength="256"/><!--!-->'),
        "blockLength is 256",
    ),
    "text too long": (types('<type name="T" primitiveType="char" length="65536"/><!--!-->'), "length is 65536"),
    "array of numbers": (message('<field name="f" id="1" type="Pair"/><!--!-->'), "only char may"),
    "enum value out of range": (
        types('<enum name="T" encodingType="uint8">\n<validValue name="A">256</validValue><!--!-->\n</enum>'),
        "the value is 256",
    ),
    "enum value in words": (
        types('<enum name="T" encodingType="uint8">\n<validValue name="A">x</validValue><!--!-->\n</enum>'),
        "must be an integer",
    ),
    "char value of two": (
        types('<enum name="T" encodingType="char">\n<validValue name="A">10</validValue><!--!-->\n</enum>'),
        "one ASCII character",
    ),
    "enum over a text": (types('<enum name="T" encodingType="Name"/><!--!-->'), "not a single number or char"),
    "enum over an enum": (types('<enum name="T" encodingType="E"/><!--!-->'), "not a single number or char"),
    "null value out of range": (
        types('<type name="T" primitiveType="int8" presence="optional" nullValue="128"/><!--!-->'),
        "nullValue is 128",
    ),
    "constant out of range": (
        types('<type name="T" primitiveType="int8" presence="constant">200</type><!--!-->'),
        "the constant is 200",
    ),
    "constant without value": (types('<type name="T" primitiveType="int8" presence="constant"/><!--!-->'), "no value"),
    "constant too long": (
        types('<type name="T" primitiveType="char" length="2" presence="constant">abc</type><!--!-->'),
        "longer than length 2",
    ),
    "constant field without value": (
        message('<field name="f" id="1" type="E" presence="constant"/><!--!-->'),
        "neither a valueRef nor a constant type",
    ),
    "valueRef without value": (
        message('<field name="f" id="1" type="E" presence="constant" valueRef="E.B"/><!--!-->'),
        'valueRef "E.B" names no value',
    ),
    "valueRef without enum": (
        message('<field name="f" id="1" type="E" presence="constant" valueRef="A"/><!--!-->'),
        'valueRef "A" names no value',
    ),
    "valueRef to an unknown enum": (
        message('<field name="f" id="1" type="E" presence="constant" valueRef="X.A"/><!--!-->'),
        "type X is unknown",
    ),
    "valueRef too large for the type": (
        message('<field name="f" id="1" type="uint8" presence="constant" valueRef="E.BIG"/><!--!-->'),
        "the constant is 300",
    ),
    "valueRef of another kind": (
        message('<field name="f" id="1" type="uint8" presence="constant" valueRef="C.A"/><!--!-->'),
        "the constant 'a' is not a valid uint8",
    ),
    "constant set": (
        message('<field name="f" id="1" type="S" presence="constant" valueRef="E.A"/><!--!-->'),
        "type S cannot be the constant",
    ),
    "unknown presence": (message('<field name="f" id="1" type="Name" presence="maybe"/><!--!-->'), 'is "maybe"'),
    "codes of a type that is no enum": (
        message('<field name="f" id="1" type="uint8" codes="S"/><!--!-->'),
        "not an enum",
    ),
    "codes of another kind": (message('<field name="f" id="1" type="uint8" codes="C"/><!--!-->'), "not an enum"),
    "until before since": (
        message('<field name="f" id="1" type="Name" sinceVersion="5" until="4"/><!--!-->'),
        "until is 4; it must be from 5",
    ),
    "signed set": (
        types('<set name="T" encodingType="int8"><choice name="A">0</choice></set><!--!-->'),
        "unsigned encodingType",
    ),
    "bit out of range": (
        types(
            '<set name="T" encodingType="uint8"><choice name="A">0</choice>\n<choice name="B">8</choice><!--!--></set>'
        ),
        "the bit is 8",
    ),
    "set without bits": (types('<set name="T" encodingType="uint8"/><!--!-->'), "has no choices"),
    "swapped dimensions": (message('<group name="g" id="1" dimensionType="Swapped"/><!--!-->'), "must be blockLength"),
    "signed dimensions": (message('<group name="g" id="1" dimensionType="Signed"/><!--!-->'), "must be blockLength"),
    "no dimensions": (message('<group name="g" id="1"/><!--!-->'), "type groupSizeEncoding is unknown"),
    "data of a plain type": (message('<data name="d" id="1" type="Name"/><!--!-->'), "must be length"),
    "data of wide characters": (message('<data name="d" id="1" type="Odd"/><!--!-->'), "must be char or uint8"),
    "data in EBCDIC": (message('<data name="d" id="1" type="Ebcdic"/><!--!-->'), 'characterEncoding "cp037"'),
    "unknown time unit": (message('<field name="f" id="1" type="Weeks"/><!--!-->'), "time unit 7"),
    "field after a group": (
        message(f'<group name="g" id="2" dimensionType="Size"/>\n{FIELD}<!--!-->'),
        "after a <group>",
    ),
    "group after data": (
        message('<data name="d" id="2" type="Text"/>\n<group name="g" id="3" dimensionType="Size"/><!--!-->'),
        "after a <data>",
    ),
    "groups too deep": (message(groups(1)), "nested deeper than 8"),
    "composite of itself": (
        types('<composite name="T">\n<ref name="t" type="T"/><!--!--></composite>'),
        "part of itself",
    ),
    "ring of composites": (
        types(
            '<composite name="T"><ref name="u" type="U"/></composite>\n'
            '<composite name="U"><ref name="t" type="T"/></composite><!--!-->'
        ),
        "part of itself",
    ),
    "composite of constants": (
        types(
            '<composite name="T"><!--!--><type name="a" primitiveType="int8" presence="constant">1</type></composite>'
        ),
        "no member that is sent",
    ),
    "decimal inside a composite": (
        types('<composite name="T">\n<ref name="t" type="Weeks"/><!--!--></composite>'),
        "cannot be inside another composite",
    ),
    "members overlap": (
        types(
            '<composite name="T"><type name="a" primitiveType="int8"/>\n'
            '<type name="b" primitiveType="int8" offset="0"/><!--!--></composite>'
        ),
        "inside the member before it",
    ),
    "members of one name": (
        types(
            '<composite name="T"><type name="a" primitiveType="int8"/>\n'
            '<type name="a" primitiveType="int8"/><!--!--></composite>'
        ),
        "a second member",
    ),
    "big-endian": (
        document('<message name="M" id="1"/>', 'id="2" version="1" byteOrder="bigEndian"><!--!--'),
        "bigEndian",
    ),
    "another root": (b'<templates id="2" version="1"/><!--!-->', "the root element must be messageSchema"),
    "foreign element": (message('<padding name="p"/><!--!-->'), "does not belong in <message>"),
    "foreign element in types": (types('<alias name="T"/><!--!-->'), "not a type declaration"),
    "foreign element in an enum": (
        types('<enum name="T" encodingType="int8">\n<choice name="A"/><!--!--></enum>'),
        "belong",
    ),
    "foreign element in the schema": (document('<message name="M" id="1"/>\n<include/><!--!-->'), "<messageSchema>"),
}


def marked(content: bytes) -> list[int]:
    return [number for number, line in enumerate(content.split(b"\n"), 1) if b"<!--!--" in line]


def refused(content: bytes) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        loads(content, "file.xml")
    return caught.value


@pytest.mark.parametrize(("content", "reason"), CASES.values(), ids=CASES)
def test_a_fault_is_reported_at_its_line(content, reason):
    faults = refused(content).faults
    assert [fault.line for fault in faults] == marked(content)
    assert reason in faults[0].reason
    assert faults[0].file == "file.xml"


def test_a_file_without_the_fault_of_the_cases_loads():
    fields = f'{FIELD}<group name="g" id="2" dimensionType="Size"/><data name="d" id="3" type="Text"/>'
    assert loads(message(fields, 'blockLength="8"')).messages[1].block_length == 8


def test_all_faults_come_at_once_in_the_order_of_the_file():
    body = """<types><type name="T" primitiveType="double"/><!--!-->
<enum name="X" encodingType="uint8">
<validValue name="A">999</validValue><!--!-->
<validValue name="B">-1</validValue><!--!-->
</enum></types>
<message name="M" id="1" blockLength="4">
<field name="broken" id="1" type="T"/>
<field name="unknown" id="2" type="Y"/><!--!-->
<field name="long" id="x" type="Name"/><!--!-->
<field name="tail" id="3" type="Name"/><!--!-->
</message>
<message name="M" id="2"/><!--!-->"""
    error = refused(document(body))
    assert [fault.line for fault in error.faults] == marked(document(body))
    assert error.faults[3].element == '<field name="unknown">'
    assert "and 6 more" in str(error)


def test_a_broken_type_is_reported_once_however_many_fields_use_it():
    fields = "".join(f'<field name="f{number}" id="1" type="T"/>' for number in range(5))
    content = document(f'<types><type name="T" primitiveType="x"/></types><message name="M" id="1">{fields}</message>')
    assert len(refused(content).faults) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 64,
        b"<messageSchema",
        b"not xml at all",
        b"\xd4\xc3\xb2\xa1" + bytes(60),
        OURS.encode()[:-40],
        b'<?xml version="1.0" encoding="nosuch"?><messageSchema/>',
        b'<?xml version="1.0" encoding="gbk"?><messageSchema/>',
    ],
    ids=["empty", "zeros", "cut", "text", "a capture", "ours, cut", "unknown encoding", "wide encoding"],
)
def test_a_file_that_is_no_xml_is_refused(content):
    assert "not XML" in refused(content).faults[0].reason


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="cannot be read"):
        load(tmp_path / "missing.xml")


def test_long_chains_of_composites_end_without_exhausting_the_stack():
    chain = [f'<composite name="C{n}"><ref name="m" type="C{n + 1}"/></composite>' for n in range(5000)]
    content = types("\n".join([*chain, '<type name="C5000" primitiveType="int8"/>']))
    assert "nested deeper than" in refused(content).faults[0].reason


def test_composites_cannot_multiply_without_bound():
    doubling = [f'<composite name="C{n}"><ref name="a" type="C{n + 1}"/><ref name="b" type="C{n + 1}"/></composite>'
                for n in reversed(range(40))]  # fmt: skip
    content = types("\n".join(['<type name="C40" primitiveType="int8"/>', *doubling]))
    assert "at most 64 members" in refused(content).faults[0].reason


def check(block: Block) -> None:
    """What every decoder relies on: fields in order, apart, and within the block."""
    end = 0
    for field in block.sent_fields:
        for part in field.parts:
            assert part.offset >= end and part.size > 0
            end = part.offset + part.size
    assert end <= block.block_length <= 65535
    assert len({field.name for field in block.fields}) == len(block.fields)
    for group in block.groups:
        check(group)


def load_or_refuse(text: str) -> Schema | None:
    try:
        schema = loads(text.encode("utf-8", "surrogatepass"))
    except SchemaError as error:
        assert error.faults and all(fault.reason for fault in error.faults)
        return None
    for number, message in schema.messages.items():
        assert message.template_id == number
        check(message)
    return schema


ATTRIBUTES = [match.span() for match in re.finditer(r' [\w:]+="[^"]*"', OURS)]
VALUES = sorted(set(re.findall(r'"([^"<>&]*)"', OURS)))
LINES = OURS.splitlines()
new_values = (
    st.sampled_from(VALUES)
    | st.sampled_from(
        ["", " ", "-1", "0", "255", "256", "65535", "65536", "1e3", "0x10", "float", "optional", "constant"]
    )
    | st.integers(-(1 << 70), 1 << 70).map(str)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"<&'), max_size=5)
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ATTRIBUTES), st.none() | new_values), min_size=1, max_size=4))
def test_changed_or_missing_attributes_either_load_or_are_refused(changes):
    text = OURS
    for (start, end), value in sorted(dict(changes).items(), reverse=True):
        name = text[start:end].partition("=")[0]
        text = text[:start] + ("" if value is None else f'{name}="{value}"') + text[end:]
    load_or_refuse(text)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LINES) - 1), st.integers(0, len(LINES) - 1)), min_size=1, max_size=3))
def test_moved_lines_either_load_or_are_refused(moves):
    lines = list(LINES)
    for source, target in moves:
        lines.insert(target, lines.pop(source))
    load_or_refuse("\n".join(lines))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(re.findall(r">([^<>\s]+)</", OURS)), new_values)
def test_changed_values_either_load_or_are_refused(old, new):
    load_or_refuse(OURS.replace(f">{old}</", f">{new.replace('>', '')}</", 1))
