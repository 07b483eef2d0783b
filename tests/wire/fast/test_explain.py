"""Explanations cover every byte, name every bit, and say where each value came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors.fast import Case, fast_vectors, field, one_field, template
from wire.fast.strategies import damaged, streams, template_sets

from umdf.errors import EncodeError
from umdf.wire.fast.explain import Bit, Line, explain
from umdf.wire.fast.loader import loads
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal

X = template(
    '<uInt32 name="MsgSeqNum" id="34"/>'
    '<sequence name="MDEntries"><length name="NoMDEntries" id="268"/>'
    '<uInt32 name="MDUpdateAction" id="279"><copy value="1"/></uInt32>'
    '<decimal name="MDEntryPx" id="270" presence="optional">'
    '<exponent><default value="-2"/></exponent><mantissa><delta/></mantissa></decimal>'
    '<uInt32 name="RptSeq" id="83"><increment/></uInt32>'
    "</sequence>"
)


def _explained() -> list[Line]:
    templates = loads(X)
    entry = {"MDUpdateAction": 1, "MDEntryPx": Decimal(-2, 2345), "RptSeq": 7}
    data = Writer(templates).encode(1, {"MsgSeqNum": 9, "MDEntries": [entry, {"MDUpdateAction": 2, "RptSeq": 8}]})
    return explain(templates, data)


def test_each_line_says_bytes_tag_operator_bit_and_origin() -> None:
    found = [
        (line.kind, line.offset, line.raw.hex(), line.path, line.tag, line.operator, line.origin, line.value)
        for line in _explained()
    ]
    first, second = "MDEntries[0]", "MDEntries[1]"
    assert found == [
        ("presence map", 0, "c0", "", None, "", "stream", "1000000"),
        ("template id", 1, "81", "", None, "copy", "stream", 1),
        ("field", 2, "89", "MsgSeqNum", 34, "none", "stream", 9),
        ("sequence", 3, "82", "MDEntries", 268, "none", "stream", 2),
        ("presence map", 4, "90", first, None, "", "stream", "0010000"),
        ("field", 5, "", f"{first}.MDUpdateAction", 279, "copy", "initial", 1),
        ("field", 5, "", f"{first}.MDEntryPx.exponent", 270, "default", "default", -2),
        ("field", 5, "12a9", f"{first}.MDEntryPx.mantissa", 270, "delta", "stream", 2345),
        ("decimal", 7, "", f"{first}.MDEntryPx", 270, "", "", Decimal(-2, 2345)),
        ("field", 7, "87", f"{first}.RptSeq", 83, "increment", "stream", 7),
        ("presence map", 8, "e0", second, None, "", "stream", "1100000"),
        ("field", 9, "82", f"{second}.MDUpdateAction", 279, "copy", "stream", 2),
        ("field", 10, "80", f"{second}.MDEntryPx.exponent", 270, "default", "", None),
        ("field", 11, "", f"{second}.RptSeq", 83, "increment", "previous", 8),
    ]


def test_a_presence_map_names_who_used_each_bit_and_a_field_names_its_bit() -> None:
    lines = _explained()
    second = "MDEntries[1]"
    bits = (
        Bit(0, True, f"{second}.MDUpdateAction"),
        Bit(1, True, f"{second}.MDEntryPx.exponent"),
        Bit(2, False, f"{second}.RptSeq"),
    )
    assert lines[10].bits_used == bits
    assert [(line.bit, line.map_offset) for line in lines[11:]] == [(bit, 8) for bit in bits]
    assert lines[2].bit is None and lines[2].map_offset is None


@pytest.mark.parametrize(
    ("xml", "stream", "meanings"),
    [
        (one_field("uInt32"), "c08185", ["as sent"]),
        (one_field("uInt32", optional=True), "c08180", ["NULL, absent"]),
        (one_field("uInt32", '<constant value="7"/>'), "c081", ["the constant"]),
        (one_field("uInt32", '<constant value="7"/>', optional=True), "c081", ["the constant is absent"]),
        (one_field("uInt32", '<default value="7"/>'), "c081", ["not sent, the default"]),
        (one_field("uInt32", "<copy/>", optional=True), "c081", ["not sent, absent"]),
        (one_field("uInt32", "<copy/>", optional=True), "e08180", ["NULL, absent from now on"]),
        (one_field("uInt32", "<copy/>"), "e0818580", ["as sent", "not sent, as before"]),
        (one_field("uInt32", '<copy value="1"/>'), "c081", ["not sent, nothing before: the initial value"]),
        (one_field("uInt32", "<increment/>"), "e0818580", ["as sent", "not sent, one more than 5"]),
        (one_field("int32", '<delta value="9"/>'), "c081fb", ["9 -5"]),
        (one_field("decimal", "<delta/>"), "c081fe85", ["exponent 0 -2, mantissa 0 +5"]),
        (
            one_field("string", "<delta/>"),
            "c081804142c3" + "8081c4" + "80ffc5",
            [
                "removes 0 from the back of '', adds 'ABC'",
                "removes 1 from the back of 'ABC', adds 'D'",
                "removes 0 from the front of 'ABD', adds 'E'",
            ],
        ),
        (one_field("byteVector", '<tail value="4142"/>'), "e0818143", ["b'C' replaces the end of b'AB'"]),
        (template('<group name="G" presence="optional"/>'), "e081", ["group is present"]),
        (template('<group name="G" presence="optional"/>'), "c081", ["group is absent"]),
        (template('<group name="G"/>'), "c081", ["group"]),
        (template('<sequence name="S" presence="optional"/>'), "c08180", ["sequence is absent: NULL, absent"]),
        (template('<sequence name="S"><length name="N"/></sequence>'), "c08180", ["N, 0 entries follow: as sent"]),
    ],
)
def test_the_meaning_says_what_the_operator_did(xml: bytes, stream: str, meanings: list[str]) -> None:
    lines = explain(loads(xml), bytes.fromhex(stream), reset="never")
    assert [line.meaning for line in lines if line.kind not in ("presence map", "template id")] == meanings


@pytest.mark.parametrize("case", fast_vectors(), ids=lambda case: case.name)
def test_spec_examples_explain_to_their_values(case: Case) -> None:
    lines = explain(loads(case.xml), case.stream, reset="never")
    assert b"".join(line.raw for line in lines) == case.stream
    values = [line.value for line in lines if line.path == "Value" and line.kind in ("field", "decimal")]
    absent_in_parts = [None for line in lines if line.path == "Value.exponent" and line.value is None]
    assert values + absent_in_parts == list(case.values)


def test_an_error_is_the_last_line_and_holds_the_rest() -> None:
    templates = loads(template(field("uInt32", name="A") + field("decimal", name="B")))
    lines = explain(templates, bytes.fromhex("c081 0085 81 0102"))
    report, error = lines[-2], lines[-1]
    assert (report.kind, report.offset, report.path, report.value) == ("report", 2, "A", "R6")
    assert (error.kind, error.offset, error.raw.hex(), error.path, error.value) == ("error", 4, "810102", "B", "T1")
    assert error.meaning.startswith("T1 at byte 5: ")


def test_an_unknown_template_is_explained() -> None:
    lines = explain(loads(one_field("uInt32")), bytes.fromhex("c08285"))
    assert [line.kind for line in lines] == ["presence map", "template id", "error"]
    assert lines[1].meaning == "no such template"
    assert explain(loads(one_field("uInt32")), b"") == []


@given(data=st.data())
def test_every_byte_is_explained_exactly_once_whatever_the_bytes(data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    writer, stream = Writer(templates), b""
    for template_id, values in data.draw(streams(templates, most=2)):
        try:
            stream += writer.encode(template_id, values)
        except EncodeError:
            continue
    for content in (stream, data.draw(damaged(stream))):
        lines = explain(templates, content)
        assert b"".join(line.raw for line in lines) == content
        offsets = [line.offset for line in lines if line.kind != "error"]
        assert offsets == sorted(offsets)
        for line in lines:
            if line.kind == "presence map":
                assert [bit.index for bit in line.bits_used] == list(range(len(line.bits_used)))
