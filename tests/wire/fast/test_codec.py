"""The reference reader and writer agree with each other, on any template, and survive any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from vectors.fast import field, one_field, template
from wire.fast.strategies import arbitrary_bytes, damaged, streams, template_sets, values_of

from umdf.errors import EncodeError
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.message import Message, by_tag
from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.transfer_encoding import FastError, Limits
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, Sequence, TemplateSet


def _as_read(templates: TemplateSet, template_id: int, values: dict[str, Any]) -> Message:
    return Message(templates.by_id[template_id], values)


@pytest.mark.parametrize("reset", ["message", "never"])
@pytest.mark.parametrize("always", [True, False])
@given(data=st.data())
def test_random_messages_of_random_templates_come_back(reset: Reset, always: bool, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    writer, reader, again = Writer(templates, reset), Reader(templates, reset), Writer(templates, reset)
    for template_id, values in data.draw(streams(templates)):
        try:
            written = writer.encode(template_id, values, template_id_always=always)
        except EncodeError as error:
            assert any(f": {code}: " in str(error) for code in ("D3", "D4", "D6"))
            event("not encodable")
            continue
        message, end = reader.decode(written)
        assert end == len(written)
        assert message == _as_read(templates, template_id, values)
        assert again.encode(template_id, message.values, template_id_always=always) == written


@pytest.mark.parametrize("template_id", sorted(load().by_id))
@settings(max_examples=settings().max_examples // 10)
@given(data=st.data())
def test_random_messages_of_the_packaged_templates_come_back(template_id: int, data: st.DataObject) -> None:
    templates = load()
    values = data.draw(values_of(templates.by_id[template_id].body, templates))
    written = Writer(templates).encode(template_id, values)
    message, end = Reader(templates).decode(written)
    assert (message, end) == (_as_read(templates, template_id, values), len(written))


@given(data=st.data())
def test_damaged_messages_are_errors_or_messages_and_never_anything_else(data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    writer, stream = Writer(templates, "never"), b""
    for template_id, values in data.draw(streams(templates, most=2)):
        try:
            stream += writer.encode(template_id, values)
        except EncodeError:
            continue
    _read_all(templates, data.draw(damaged(stream)))


@given(templates=template_sets(), data=arbitrary_bytes())
def test_random_bytes_are_errors_or_messages_and_never_anything_else(templates: TemplateSet, data: bytes) -> None:
    _read_all(templates, data)


def _read_all(templates: TemplateSet, data: bytes) -> None:
    reader, offset = Reader(templates, "never", Limits(entries=2000, empty_entries=500)), 0
    try:
        while offset < len(data):
            message, after = reader.decode(data, offset)
            assert offset < after <= len(data)
            assert all(report.code[0] == "R" and offset <= report.offset <= after for report in message.reports)
            offset = after
    except FastError as error:
        event(error.code)
        assert error.code in {"T1", "T2", "D2", "D4", "D5", "D6", "D7", "D9"}
        assert offset <= error.offset <= len(data)


def test_a_failed_message_leaves_the_writer_as_it_was() -> None:
    templates = loads(template(field("uInt32", "<copy/>", name="A") + field("uInt32", name="B")))
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    first = writer.encode(1, {"A": 5, "B": 1})
    with pytest.raises(EncodeError):
        writer.encode(1, {"A": 6, "B": -1})
    second = writer.encode(1, {"A": 5, "B": 1})
    assert second == bytes.fromhex("c08181")
    assert [reader.decode(data)[0].values for data in (first, second)] == [{"A": 5, "B": 1}] * 2


def test_a_tail_longer_than_the_previous_value_replaces_it() -> None:
    templates = loads(one_field("string", '<tail value="AB"/>'))
    assert Reader(templates).decode(bytes.fromhex("e081 5859da"))[0].values == {"Value": "XYZ"}
    assert Writer(templates).encode(1, {"Value": "XYZ"}).hex() == "e0815859da"


def test_equal_values_of_different_types_are_no_copies_of_each_other() -> None:
    fields = field("int32", '<copy key="K"/>', name="A") + field("int64", '<copy key="K"/>', name="B")
    templates = loads(template(fields))
    written = Writer(templates).encode(1, {"A": 5, "B": 5})
    assert written.hex() == "f0818585"
    assert Reader(templates).decode(written)[0].values == {"A": 5, "B": 5}


def test_each_message_starts_from_nothing_where_the_feed_resets() -> None:
    templates = loads(one_field("uInt32", "<copy/>"))
    writer, reader = Writer(templates), Reader(templates)
    written = [writer.encode(1, {"Value": 5}, template_id_always=False) for _ in range(2)]
    assert [data.hex() for data in written] == ["e08185", "e08185"]
    assert reader.decode(b"".join(written))[1] == 3
    with pytest.raises(FastError, match="D5"):
        reader.decode(b"\xc0\x81")


def test_a_group_or_entry_without_bits_has_no_presence_map() -> None:
    inside = '<sequence name="S"><uInt32 name="A"/></sequence><group name="G"><uInt32 name="B"/></group>'
    templates = loads(template(inside))
    values = {"S": [{"A": 1}, {"A": 2}], "G": {"B": 3}}
    assert Writer(templates).encode(1, values).hex() == "c081" + "82" + "81" + "82" + "83"
    assert Reader(templates).decode(bytes.fromhex("c0818281" + "8283"))[0].values == values


def test_an_absent_optional_group_leaves_previous_values_alone() -> None:
    templates = loads(template('<group name="G" presence="optional"><uInt32 name="A"><copy/></uInt32></group>'))
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    stream = [{"G": {"A": 9}}, {}, {"G": {"A": 9}}]
    written = [writer.encode(1, values, template_id_always=False).hex() for values in stream]
    assert written == ["e081c089", "80", "a080"]
    assert [reader.decode(bytes.fromhex(data))[0].values for data in written] == stream


def test_absence_of_a_decimal_with_a_default_exponent_is_a_null_exponent() -> None:
    # As the exchange sends it: the exponent is there to say that there is none, and nothing follows.
    parts = '<exponent><default value="-2"/></exponent><mantissa><delta/></mantissa>'
    templates = loads(one_field("decimal", parts, optional=True))
    stream = [{"Value": Decimal(-2, 100)}, {}, {"Value": Decimal(-2, 101)}]
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    written = [writer.encode(1, values, template_id_always=False).hex() for values in stream]
    assert written == ["c08100e4", "a080", "8081"]
    assert [reader.decode(bytes.fromhex(data))[0].values for data in written] == stream


def test_a_tail_may_cut_a_character_in_two() -> None:
    templates = loads(one_field("unicode", "<tail/>"))
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    stream = [{"Value": "aé"}, {"Value": "aè"}]
    written = [writer.encode(1, values, template_id_always=False).hex() for values in stream]
    assert written == ["e0818361c3a9", "a081a8"]
    messages = [reader.decode(bytes.fromhex(data))[0] for data in written]
    assert [message.values for message in messages] == stream
    assert not any(message.reports for message in messages)


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        ("ABCD", "ABXY", "8258d9"),  # the common front
        ("ABCD", "XYCD", "fd58d9"),  # the common back
        ("ABCD", "ABCD", "8080"),
        ("ABAB", "AB", "8280"),  # front and back cost the same: the front stays
        ("AB", "ABAB", "8041c2"),
        ("", "A", "80c1"),
        ("ABCD", "", "8480"),
        ("AB", "A\0", "810080"),
    ],
)
def test_a_string_delta_keeps_the_longer_end_and_the_front_if_both_are_alike(old: str, new: str, delta: str) -> None:
    for type in ("string", "unicode"):
        templates = loads(one_field(type, "<delta/>"))
        writer, reader = Writer(templates, "never"), Reader(templates, "never")
        first, second = (writer.encode(1, {"Value": value}, template_id_always=False) for value in (old, new))
        assert type == "unicode" or second.hex() == "80" + delta
        assert reader.decode(first)[0].values == {"Value": old}
        assert reader.decode(second)[0].values == {"Value": new}


def test_a_dynamic_reference_is_a_message_inside_a_message() -> None:
    inner = '<template name="Inner" id="2"><uInt32 name="A"><copy/></uInt32></template>'
    templates = loads(template("<templateRef/>", inner))
    values = {"templateRef": Message(templates.by_id[2], {"A": 7})}
    written = Writer(templates).encode(1, values)
    assert written.hex() == "c081" + "e08287"
    assert Reader(templates).decode(written)[0].values == values


def test_the_template_id_is_remembered_across_references() -> None:
    # One internal key for all template ids (10): the inner id is the previous one of the next message.
    templates = loads(template("<templateRef/>", '<template name="Inner" id="2"><uInt32 name="A"/></template>'))
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    inner = Message(templates.by_id[2], {"A": 7})
    stream = [(1, {"templateRef": inner}), (2, {"A": 8}), (1, {"templateRef": inner})]
    written = [writer.encode(*message, template_id_always=False).hex() for message in stream]
    assert written == ["c081c08287", "8088", "c081c08287"]
    assert [reader.decode(bytes.fromhex(data))[0].values for data in written] == [values for _, values in stream]


def test_type_dictionaries_follow_the_place_of_a_reference() -> None:
    inner = '<template name="Inner" id="2" dictionary="type"><uInt32 name="A"><copy/></uInt32></template>'
    one = '<group name="One"><typeRef name="One"/><templateRef/></group>'
    two = '<group name="Two"><typeRef name="Two"/><templateRef/></group>'
    templates = loads(template(one + two, inner))
    under = {name: templates.templates_for_type(name)[2].body.instructions[0] for name in ("any", "One", "Two")}
    assert len({instruction.operator.slot for instruction in under.values()}) == 3  # type: ignore[union-attr]
    seven = {"templateRef": Message(templates.templates_for_type("One")[2], {"A": 7})}
    eight = {"templateRef": Message(templates.templates_for_type("Two")[2], {"A": 8})}
    writer, reader = Writer(templates, "never"), Reader(templates, "never")
    for expected in ("c081" + "e08287" + "a088", "c081" + "c082" + "80"):
        written = writer.encode(1, {"One": seven, "Two": eight})
        assert written.hex() == expected
        assert reader.decode(written)[0].values == {"One": seven, "Two": eight}


def test_blocks_have_their_size_in_front() -> None:
    templates = loads(one_field("uInt32"))
    written = Writer(templates).encode_block([(1, {"Value": 5}), (1, {"Value": 6})])
    assert written.hex() == "86" + "c08185" + "c08186"
    messages, end = Reader(templates).decode_block(b"\x00" + written)  # a block size may be overlong
    assert ([message.values["Value"] for message in messages], end) == ([5, 6], 8)


def test_values_can_be_seen_by_tag() -> None:
    sequence = '<sequence name="MDEntries"><length name="NoMDEntries" id="268"/><uInt32 name="A" id="279"/></sequence>'
    templates = loads(template('<uInt32 name="MsgSeqNum" id="34"/><uInt32 name="Untagged"/>' + sequence))
    message, _ = Reader(templates).decode(bytes.fromhex("c0818586818a"))
    assert message.by_tag() == {34: 5, 268: [{"A": 10}]}
    entries = templates.by_id[1].body.by_name["MDEntries"]
    assert isinstance(entries, Sequence)
    assert by_tag(entries.body, message.values["MDEntries"][0]) == {279: 10}
