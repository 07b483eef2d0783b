"""Template files become the model, or are refused with all their faults at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from vectors.fast import field, one_field, template, templates

from umdf.errors import SchemaError
from umdf.wire.fast.loader import MAX_INSTRUCTIONS, MAX_NESTING, MAX_PRESENCE_BITS, load, loads
from umdf.wire.fast.templates import Decimal, DynamicRef, Field, Group, Operator, Sequence, Slot, TemplateSet

OFFICIAL = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE templates>
<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1" xmlns:x="urn:vendor">
  <!-- as the exchange writes it -->
  <x:history><version name="1">anything</version></x:history>
  <template name="MDIncrementalRefresh_145" id="145" dictionary="145" xmlns="http://www.fixprotocol.org/ns/fast/td/1.1"
            x:name="not ours" description="unknown attributes do no harm">
    <string name="ApplVerID" id="1128"><constant value="9"/></string>
    <uInt32 name="MsgSeqNum" id="34" x:presence="optional"/>
    <sequence name="MDEntries">
      <length name="NoMDEntries" id="268"/>
      <uInt32 name="MDUpdateAction" id="279"><copy value="1"/></uInt32>
      <decimal name="MDEntryPx" id="270" presence="optional">
        <exponent><default value="-2"/></exponent><mantissa><delta/></mantissa>
      </decimal>
      <x:remark/>
      <string charset="unicode" name="Text" id="58" presence="optional"/>
      <byteVector name="RawData" id="96"><length name="RawDataLength" id="95"/></byteVector>
    </sequence>
  </template>
</templates>"""


def test_a_file_in_the_shape_of_the_exchange_becomes_the_model() -> None:
    loaded = loads(OFFICIAL)
    (found,) = loaded.templates
    assert found is loaded.by_id[145] is loaded.by_name["MDIncrementalRefresh_145"]
    version, number, entries = found.body.instructions
    assert version == Field("ApplVerID", 1128, "ascii", False, Operator("constant", "9"))
    assert number == Field("MsgSeqNum", 34, "uInt32")
    assert isinstance(entries, Sequence)
    assert entries.length == Field("NoMDEntries", 268, "uInt32")
    action, price, text, raw = entries.body.instructions
    assert action == Field("MDUpdateAction", 279, "uInt32", False, Operator("copy", 1, 0))
    assert isinstance(price, Field) and price.has_part_operators and price.optional
    assert price.exponent == Field("exponent", 270, "int32", True, Operator("default", -2))
    assert price.mantissa == Field("mantissa", 270, "int64", False, Operator("delta", None, 1))
    assert text == Field("Text", 58, "unicode", True)
    assert raw == Field("RawData", 96, "byteVector", length_name="RawDataLength", length_id=95)
    assert loaded.slots == (
        Slot("user", "145", "MDUpdateAction", "", ("uInt32",)),
        Slot("user", "145", "MDEntryPx", "mantissa", ("int64",)),
    )


def test_a_file_is_read_from_disk_and_the_packaged_one_without_a_name(tmp_path: Path) -> None:
    file = tmp_path / "official.xml"
    file.write_bytes(OFFICIAL)
    loaded = load(file)
    assert (loaded.source, loaded.templates) == (str(file), loads(OFFICIAL).templates)
    assert 145 in load().by_id


def test_the_digest_changes_with_what_decoding_depends_on_and_with_nothing_else() -> None:
    digest = loads(OFFICIAL).digest
    assert loads(OFFICIAL.replace(b"as the exchange", b"as someone"), "elsewhere").digest == digest
    assert loads(OFFICIAL.replace(b'value="-2"', b'value="-3"')).digest != digest


def test_the_namespace_may_have_a_prefix() -> None:
    uri = "http://www.fixprotocol.org/ns/fast/td/1.1"
    xml = f'<f:templates xmlns:f="{uri}"><f:template name="T" id="7"><f:uInt32 name="A"/></f:template></f:templates>'
    assert loads(xml.encode()).by_id[7].body.instructions == (Field("A", None, "uInt32"),)


def test_a_single_template_is_a_file_too() -> None:
    assert loads(b'<template name="T" id="7"><uint32 name="A"/></template>').by_id[7].body.bits == 0


# Who takes presence-map bits (10.5.1): operator, mandatory, optional.
BITS = [
    ("", 0, 0),
    ('<constant value="1"/>', 0, 1),
    ('<default value="1"/>', 1, 1),
    ("<copy/>", 1, 1),
    ("<increment/>", 1, 1),
    ("<delta/>", 0, 0),
]


@pytest.mark.parametrize(("operator", "mandatory", "optional"), BITS)
def test_bits_follow_operator_and_presence(operator: str, mandatory: int, optional: int) -> None:
    assert loads(one_field("uInt32", operator)).by_id[1].body.bits == mandatory
    assert loads(one_field("uInt32", operator, optional=True)).by_id[1].body.bits == optional
    sequence = f'<sequence name="S"{{}}><length name="N">{operator}</length></sequence>'
    assert loads(template(sequence.format(""))).by_id[1].body.bits == mandatory
    assert loads(template(sequence.format(' presence="optional"'))).by_id[1].body.bits == optional
    parts = f"<exponent>{operator}</exponent><mantissa>{operator}</mantissa>"
    assert loads(one_field("decimal", parts)).by_id[1].body.bits == 2 * mandatory
    assert loads(one_field("decimal", parts, optional=True)).by_id[1].body.bits == optional + mandatory


def test_a_tail_takes_a_bit_and_an_optional_group_one_and_its_content_none_of_the_outer_map() -> None:
    inside = field("string", "<tail/>") + field("uInt32", "<copy/>", name="C")
    body = (
        loads(template(f'<group name="G" presence="optional">{inside}</group>' + field("string", "<tail/>")))
        .by_id[1]
        .body
    )
    group = body.instructions[0]
    assert isinstance(group, Group)
    assert (body.bits, group.body.bits) == (2, 2)
    assert loads(template(f'<group name="G">{inside}</group>')).by_id[1].body.bits == 0


@pytest.mark.parametrize(
    ("content", "least"),
    [
        (field("uInt32"), 1),
        (field("decimal"), 2),
        (field("decimal", optional=True), 1),
        (field("decimal", "<delta/>"), 2),
        (field("decimal", "<exponent><delta/></exponent><mantissa><delta/></mantissa>"), 2),
        (field("decimal", "<exponent><delta/></exponent><mantissa><delta/></mantissa>", optional=True), 1),
        (field("string", "<delta/>"), 2),
        (field("string", "<delta/>", optional=True), 1),
        (field("uInt32", '<constant value="1"/>'), 0),
        (field("uInt32", '<constant value="1"/>', optional=True), 1),  # the presence map
        (field("uInt32", "<copy/>"), 1),
        (f'<group name="G">{field("uInt32")}{field("uInt32", "<copy/>", name="C")}</group>', 2),
        (f'<group name="G" presence="optional">{field("uInt32")}</group>', 1),
        (f'<sequence name="S">{field("uInt32")}</sequence>', 1),
        ("<templateRef/>", 1),
        ("", 0),
    ],
)
def test_the_fewest_bytes_of_an_entry_are_known(content: str, least: int) -> None:
    sequence = loads(template(f'<sequence name="Outer">{content}</sequence>')).by_id[1].body.instructions[0]
    assert isinstance(sequence, Sequence)
    assert sequence.body.min_bytes == least


def slot_of(loaded: TemplateSet, template_id: int, name: str) -> Slot:
    instruction = loaded.by_id[template_id].body.by_name[name]
    assert isinstance(instruction, Field) and instruction.operator.slot is not None
    return loaded.slots[instruction.operator.slot]


def test_the_nearest_dictionary_counts_and_keys_are_shared_within_it() -> None:
    copy = '<uInt32 name="{0}"{1}><copy{2}/></uInt32>'
    first = copy.format("A", "", "") + copy.format("B", ' dictionary="template"', "")
    first += copy.format("C", ' dictionary="template"', ' dictionary="own" key="A"') + copy.format("D", "", ' key="A"')
    second = copy.format("A", "", "") + copy.format("B", ' dictionary="template"', "")
    second += copy.format("T", ' dictionary="type"', "")
    one = f'<template name="One" id="1">{first}</template>'
    two = f'<template name="Two" id="2" dictionary="global"><typeRef name="Kind"/>{second}</template>'
    loaded = loads(f'<templates dictionary="outer">{one}{two}</templates>'.encode())
    assert slot_of(loaded, 1, "A") == Slot("user", "outer", "A", "", ("uInt32",))
    assert slot_of(loaded, 1, "D") is slot_of(loaded, 1, "A")
    assert slot_of(loaded, 1, "B") == Slot("template", "One", "B", "", ("uInt32",))
    assert slot_of(loaded, 1, "C") == Slot("user", "own", "A", "", ("uInt32",))
    assert slot_of(loaded, 2, "A") == Slot("global", "", "A", "", ("uInt32",))
    assert slot_of(loaded, 2, "B") == Slot("template", "Two", "B", "", ("uInt32",))
    assert slot_of(loaded, 2, "T") == Slot("type", "Kind", "T", "", ("uInt32",))
    assert len(loaded.slots) == 6


def test_fields_of_several_types_on_one_key_are_known() -> None:
    loaded = loads(template(field("string", '<copy key="K"/>', name="A") + field("int64", '<delta key="K"/>')))
    assert loaded.slots == (Slot("global", "", "K", "", ("ascii", "int64")),)


def test_generated_keys_never_collide_with_keys_of_the_file() -> None:
    parts = "<exponent><copy/></exponent><mantissa><copy/></mantissa>"
    sequence = '<sequence name="S"><length><copy/></length></sequence>'
    named = field("uInt32", "<copy/>", name="length") + field("int32", '<copy key="exponent"/>', name="exponent")
    loaded = loads(template(field("decimal", parts) + sequence + named))
    assert [(slot.key, slot.part) for slot in loaded.slots] == [
        ("Value", "exponent"),
        ("Value", "mantissa"),
        ("S", "length"),
        ("length", ""),
        ("exponent", ""),
    ]


def test_a_static_reference_is_replaced_by_what_it_stands_for() -> None:
    header = '<template name="Header" dictionary="template"><uInt32 name="A"><copy/></uInt32></template>'
    loaded = loads(template('<uInt32 name="B"/><templateRef name="Header"/><uInt32 name="C"/>', header))
    assert [instruction.name for instruction in loaded.by_id[1].body.instructions] == ["B", "A", "C"]
    assert slot_of(loaded, 1, "A") == Slot("template", "Header", "A", "", ("uInt32",))  # the current template (6.4)
    assert loaded.by_name["Header"].id is None
    by_number = loads(template('<templateRef id="2"/>', '<template name="U" id="2"><uInt32 name="A"/></template>'))
    assert by_number.by_id[1].body == by_number.by_id[2].body


def test_a_referred_template_brings_its_type_or_takes_that_of_the_place() -> None:
    copy = '<{0} name="{1}"><copy dictionary="type"/></{0}>'
    own = f'<template name="Own"><typeRef name="Mine"/>{copy.format("uInt32", "A")}</template>'
    none = f'<template name="None">{copy.format("uInt32", "B")}</template>'
    place = '<typeRef name="Place"/><templateRef name="Own"/><templateRef name="None"/>'
    loaded = loads(template(place, own + none))
    assert slot_of(loaded, 1, "A").scope == "Mine"
    assert slot_of(loaded, 1, "B").scope == "Place"


def test_dynamic_references_have_names_of_ours() -> None:
    body = loads(template("<templateRef/><templateRef/>")).by_id[1].body
    assert body.instructions == (DynamicRef("templateRef", "any"), DynamicRef("templateRef2", "any"))


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        ("int32", " -0012 ", -12),
        ("uInt64", "18446744073709551615", (1 << 64) - 1),
        ("decimal", "100", Decimal(2, 1)),
        ("decimal", "-0.050", Decimal(-2, -5)),
        ("decimal", ".5", Decimal(-1, 5)),
        ("decimal", "0.00", Decimal(0, 0)),
        ("string", " as is ", " as is "),
        ("string", "", ""),
        ("unicode", "ação", "ação"),
        ("byteVector", "0A ff", b"\x0a\xff"),
    ],
)
def test_initial_values_have_the_type_of_their_field(type: str, text: str, value: object) -> None:
    found = loads(one_field(type, f'<copy value="{text}"/>')).by_id[1].body.instructions[0]
    assert isinstance(found, Field) and found.operator.initial == value


_DEEP = '<group name="G">' * (MAX_NESTING + 1) + "</group>" * (MAX_NESTING + 1)
_TWICE = "".join(f'<group name="{name}"><templateRef name="{{0}}"/></group>' for name in "ab")
_DOUBLING = "".join(
    f'<template name="D{n}" id="{n + 2}">{_TWICE.format(f"D{n + 1}")}</template>' for n in range(MAX_NESTING)
)
_WIDE = "".join(field("uInt32", "<copy/>", name=f"F{n}") for n in range(MAX_PRESENCE_BITS + 1))

# code, what the reason says, content of template 1, other templates
FAULTS = [
    ("S1", "unknown element", "<int16 name='A'/>", ""),
    ("S1", "unknown element inside uInt32", "<uInt32 name='A'><nonsense/></uInt32>", ""),
    ("S1", "unknown element inside copy", "<uInt32 name='A'><copy><copy/></copy></uInt32>", ""),
    ("S1", "unknown element inside uInt32", "<uInt32 name='A'><length name='B'/></uInt32>", ""),
    ("S1", "only template is allowed here", "", "<group name='A'/>"),
    ("S1", "has no name", "<uInt32/>", ""),
    ("S1", "has no name", "<group name=''/>", ""),
    ("S1", "has no name", "<group name='A'><typeRef/></group>", ""),
    ("S1", "id must be a number", "<uInt32 name='A' id='x'/>", ""),
    ("S1", "id must be a number", "<uInt32 name='A' id='99999999999'/>", ""),
    ("S1", "the name is taken", "<uInt32 name='A'/><string name='A'/>", ""),
    (
        "S1",
        "the name is taken",
        "<uInt32 name='A'/><templateRef name='U'/>",
        "<template name='U'><int32 name='A'/></template>",
    ),
    ("S1", "template name T is taken by the template of line 1", "", "<template name='T' id='2'/>"),
    ("S1", "template id 1 is taken by the template of line 1", "", "<template name='U' id='1'/>"),
    ("S1", "template id 1 is taken by the template of line 1", "", "<template name='U' id=' 01'/>"),
    ("S1", "nothing can ever use it", "", "<template name='U'/>"),
    ("S1", "presence must be", "<uInt32 name='A' presence='maybe'/>", ""),
    ("S1", "presence must be", "<sequence name='A' presence='maybe'/>", ""),
    ("S1", "charset must be", "<string name='A' charset='latin1'/>", ""),
    ("S1", "a second operator", "<uInt32 name='A'><copy/><delta/></uInt32>", ""),
    ("S1", "a second length", "<sequence name='A'><length/><length/></sequence>", ""),
    ("S1", "length must be before", "<sequence name='A'><uInt32 name='B'/><length/></sequence>", ""),
    ("S1", "length must be before", "<sequence name='A'><group name='B'/><length name='L'/></sequence>", ""),
    ("S1", "a second length", "<sequence name='A'><length/><uInt32 name='B'/><length/></sequence>", ""),
    ("S1", "typeRef must be before", "<sequence name='A'><length/><typeRef name='B'/></sequence>", ""),
    ("S1", "typeRef must be before", "<uInt32 name='A'/><typeRef name='B'/>", ""),
    ("S1", "typeRef must be before", "<group name='A'><uInt32 name='B'/><typeRef name='C'/></group>", ""),
    ("S1", "exponent must be before", "<decimal name='A'><mantissa/><exponent/></decimal>", ""),
    ("S1", "prefix is not declared", "<x:uInt32 name='A'/>", ""),
    ("S1", "a second length", "<byteVector name='A'><length name='B'/><length name='B'/></byteVector>", ""),
    ("S1", "a second exponent", "<decimal name='A'><exponent/><exponent/></decimal>", ""),
    ("S1", "a second typeRef", "<typeRef name='A'/><typeRef name='B'/>", ""),
    ("S1", "operators for its parts", "<decimal name='A'><copy/><mantissa><copy/></mantissa></decimal>", ""),
    (
        "S1",
        "contains itself: T > U > T",
        "<templateRef name='U'/>",
        "<template name='U' id='2'><templateRef name='T'/></template>",
    ),
    ("S1", f"more than {MAX_NESTING} groups", _DEEP, ""),
    (
        "S1",
        f"more than {MAX_INSTRUCTIONS} instructions",
        "<templateRef name='D0'/>",
        _DOUBLING + "<template name='D16' id='99'/>",
    ),
    ("S1", "presence-map bits", _WIDE, ""),
    ("S2", "tail cannot be used on uInt32", "<uInt32 name='A'><tail/></uInt32>", ""),
    ("S2", "tail cannot be used on decimal", "<decimal name='A'><tail/></decimal>", ""),
    ("S2", "tail cannot be used on int64", "<decimal name='A'><mantissa><tail/></mantissa></decimal>", ""),
    ("S2", "tail cannot be used on uInt32", "<sequence name='A'><length><tail/></length></sequence>", ""),
    ("S2", "increment cannot be used on decimal", "<decimal name='A'><increment/></decimal>", ""),
    ("S2", "increment cannot be used on ascii", "<string name='A'><increment/></string>", ""),
    ("S2", "increment cannot be used on byteVector", "<byteVector name='A'><increment/></byteVector>", ""),
    ("S3", "digits (D11)", "<uInt32 name='A'><copy value='-1'/></uInt32>", ""),
    ("S3", "(R4)", "<int32 name='A'><copy value='2147483648'/></int32>", ""),
    ("S3", "(D11)", "<int32 name='A'><copy value=''/></int32>", ""),
    ("S3", "(D11)", "<decimal name='A'><copy value='1e2'/></decimal>", ""),
    ("S3", "(R1)", f"<decimal name='A'><copy value='1{'0' * 64}'/></decimal>", ""),
    ("S3", "(R1)", "<decimal name='A'><copy value='9223372036854775808'/></decimal>", ""),
    ("S3", "(R1)", "<decimal name='A'><exponent><copy value='64'/></exponent></decimal>", ""),
    ("S3", "(R3)", "<string name='A'><copy value='ação'/></string>", ""),
    ("S3", "(D11)", "<byteVector name='A'><copy value='abc'/></byteVector>", ""),
    ("S4", "constant without a value", "<uInt32 name='A'><constant/></uInt32>", ""),
    ("S5", "default without a value", "<uInt32 name='A'><default/></uInt32>", ""),
    ("S5", "default without a value", "<sequence name='A'><length><default/></length></sequence>", ""),
    ("D8", "unknown template Nowhere", "<templateRef name='Nowhere'/>", ""),
    ("D8", "unknown template 7", "<templateRef id='7'/>", ""),
]


@pytest.mark.parametrize(("code", "reason", "content", "others"), FAULTS, ids=lambda text: text[:40])
def test_a_fault_has_its_code_and_its_place(code: str, reason: str, content: str, others: str) -> None:
    with pytest.raises(SchemaError) as caught:
        loads(template(content, others), "bad.xml")
    (fault,) = (
        caught.value.faults
        if len(caught.value.faults) == 1
        else [fault for fault in caught.value.faults if reason in fault.reason]
    )
    assert fault.reason.startswith(code + ": ") and reason in fault.reason
    assert (fault.file, fault.line) == ("bad.xml", 1) and fault.element.startswith("<")


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    with pytest.raises(SchemaError) as caught:
        loads(
            templates(
                """<template name="T" id="1">
                     <uInt32 name="A"><tail/></uInt32>
                     <int32 name="B"><copy value="x"/></int32>
                     <sequence name="S">
                       <string name="C"><constant/></string>
                       <decimal name="D"><default/></decimal>
                       <templateRef name="Nowhere"/>
                     </sequence>
                     <nonsense/>
                   </template>"""
            ),
            "bad.xml",
        )
    found = [(fault.line, fault.element, fault.reason[:2]) for fault in caught.value.faults]
    assert found == [
        (2, '<uInt32 name="A">', "S2"),
        (3, '<int32 name="B">', "S3"),
        (5, '<string name="C">', "S4"),
        (6, '<decimal name="D">', "S5"),
        (7, '<templateRef name="Nowhere">', "D8"),
        (9, "<nonsense>", "S1"),
    ]
    assert "bad.xml:2" in str(caught.value) and "5 more" in str(caught.value)


def test_a_fault_in_a_referenced_template_is_reported_once() -> None:
    users = "".join(f'<template name="U{n}" id="{n}"><templateRef name="T"/></template>' for n in range(2, 6))
    with pytest.raises(SchemaError) as caught:
        loads(template("<uInt32 name='A'><tail/></uInt32>", users))
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "S1: not XML"),
        (b"<templates><template>", "S1: not XML"),
        (b"<templates><template name='T' id='1'></templates>", r"<string>:1: S1: not XML: mismatched tag"),
        (b"<?xml version='1.0' encoding='nonsense'?><templates/>", "S1: not XML"),
        (b"\xff\xfe\x00", "S1: not XML"),
        (b"<messageSchema/>", "S1: the file's outermost element"),
        (b"<templates/>", "S1: holds no template"),
        (b'<!DOCTYPE t [<!ENTITY a "b">]><templates>&a;</templates>', "S1: rejected"),
    ],
)
def test_what_is_no_template_file_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        loads(content)


def test_a_file_that_cannot_be_read_is_a_fault_too(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        load(tmp_path / "nowhere.xml")
