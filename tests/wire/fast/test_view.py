"""What people see of a message: JSON fields and FIX, the same from the reference reader and from a decoded batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors.fast import field, template, templates
from wire.fast.strategies import template_sets, values_of

from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, TemplateSet
from umdf.wire.fast.view import fields_of, fix_fields, rows
from umdf.wire.fix.text import format_fields


def read(templates: TemplateSet, template_id: int, values: dict[str, Any]) -> Message:
    return Reader(templates).decode(Writer(templates).encode(template_id, values))[0]


def as_fix(message: Message) -> str:
    return format_fields(fix_fields(message.template.body, message.values))


def as_json(message: Message) -> dict[str, Any]:
    return fields_of(message.template.body, message.values)


X = {
    "MsgSeqNum": 7,
    "SendingTime": 20261113133000123,
    "TradeDate": 20261113,
    "MDEntries": [
        {
            "MDUpdateAction": 0,
            "MDEntryType": "0",
            "SecurityID": 200000001,
            "RptSeq": 41,
            "MDEntryPx": Decimal(-2, 2550),
            "MDEntryTime": 93012345,
            "MDEntrySize": 300,
            "MDEntryDate": 20261113,
            "OrderID": "80000000001",
            "MDEntryBuyer": "39",
        },
        {
            "MDUpdateAction": 2,
            "MDEntryType": "1",
            "SecurityID": 200000001,
            "RptSeq": 42,
            "MDEntryPx": Decimal(-2, 2600),
            "MDEntryTime": 133012345,
            "Underlyings": [{"UnderlyingSecurityID": 5, "UnderlyingPx": Decimal(0, 12)}],
        },
    ],
}


def test_an_incremental_message_as_fix() -> None:
    assert as_fix(read(load(), 152, X)) == (
        "1128=9|35=X|34=7|52=20261113-13:30:00.123|75=20261113|268=2"
        "|279=0|269=0|22=8|207=BVMF|48=200000001|83=41|270=25.5|273=09:30:12.345|271=300|272=20261113"
        "|37=80000000001|288=39"
        "|279=2|269=1|22=8|207=BVMF|48=200000001|83=42|270=26|273=13:30:12.345"
        "|711=1|309=5|305=8|308=BVMF|810=12"
    )


def test_an_incremental_message_as_json_keeps_what_was_sent() -> None:
    shown = as_json(read(load(), 152, X))
    assert shown["MsgType"] == "X" and shown["SendingTime"] == 20261113133000123
    first, second = shown["MDEntries"]
    assert (first["MDEntryPx"], first["MDEntryTime"], first["SecurityExchange"]) == ("25.50", 93012345, "BVMF")
    assert "MDEntrySize" not in second
    assert second["Underlyings"] == [
        {
            "UnderlyingSecurityID": 5,
            "UnderlyingSecurityIDSource": 8,
            "UnderlyingSecurityExchange": "BVMF",
            "UnderlyingPx": "12",
        }
    ]
    assert json.loads(json.dumps(shown)) == shown


def one(type: str, tag: int, value: Any) -> tuple[Any, str]:
    """A field with this tag, in JSON and in FIX."""
    xml = field(type).replace(' name="Value"', f' name="Value" id="{tag}"')
    message = read(loads(template(xml)), 1, {"Value": value})
    (shown,), ((_, text),) = as_json(message).values(), fix_fields(message.template.body, message.values)
    return shown, text


@pytest.mark.parametrize(
    ("type", "tag", "value", "shown", "text"),
    [
        ("uInt64", 52, 20261113133000123, 20261113133000123, "20261113-13:30:00.123"),
        ("uInt64", 52, 20261113133000, 20261113133000, "20261113-13:30:00"),
        ("uInt64", 52, 20261113, 20261113, "20261113"),
        ("uInt64", 52, 20261113993000123, 20261113993000123, "20261113993000123"),
        ("string", 52, "20261113-13:30:00.123", "20261113-13:30:00.123", "20261113-13:30:00.123"),
        ("string", 52, "20261113133000123", "20261113133000123", "20261113-13:30:00.123"),
        ("uInt32", 273, 93012345, 93012345, "09:30:12.345"),
        ("uInt32", 273, 5123, 5123, "00:00:05.123"),
        ("uInt32", 273, 0, 0, "00:00:00.000"),
        ("uInt32", 273, 4294967295, 4294967295, "4294967295"),
        ("uInt32", 273, 246060000, 246060000, "246060000"),
        ("string", 273, "133012345", "133012345", "13:30:12.345"),
        ("string", 273, "13:30:12", "13:30:12", "13:30:12"),
        ("uInt32", 75, 20261113, 20261113, "20261113"),
        ("uInt32", 200, 202612, 202612, "202612"),
        ("uInt32", 893, 1, 1, "Y"),
        ("string", 893, "N", "N", "N"),
        ("uInt32", 326, 17, 17, "17"),
        ("decimal", 270, Decimal(-2, -5), "-0.05", "-0.05"),
        ("decimal", 270, Decimal(-4, 123400), "12.3400", "12.34"),
        ("decimal", 270, Decimal(3, 7), "7000", "7000"),
        ("unicode", 107, "ação", "ação", "ação"),
        ("unicode", 107, "a\udcff", "a\\xff", "a\\xff"),
        ("byteVector", 213, b"\x00\xffA", "00ff41", "00ff41"),
    ],
)
def test_a_value_by_its_fix_type(type: str, tag: int, value: Any, shown: Any, text: str) -> None:
    assert one(type, tag, value) == (shown, text)


def test_a_tag_with_two_meanings_is_read_by_its_group() -> None:
    shape = """<sequence name="Legs"><length name="NoLegs" id="555"/><string name="A" id="37010"/></sequence>
        <group name="G"><uInt32 name="B" id="37010"/></group>"""
    message = read(loads(template(shape)), 1, {"Legs": [{"A": "1"}, {"A": "2"}], "G": {"B": 9}})
    assert as_fix(message) == "555=2|37010=1|37010=2|37010=9"
    assert as_json(message) == {"Legs": [{"A": "1"}, {"A": "2"}], "G": {"B": 9}}


def test_what_has_no_tag_is_not_in_fix_and_an_empty_sequence_is() -> None:
    shape = '<uInt32 name="A"/><sequence name="S"><length id="268"/><uInt32 name="B" id="1"/></sequence>'
    message = read(loads(template(shape)), 1, {"A": 3, "S": []})
    assert as_fix(message) == "268=0"
    assert as_json(message) == {"A": 3, "S": []}


def test_a_message_inside_a_message_says_its_template() -> None:
    inner = '<template name="Inner" id="2"><uInt32 name="A" id="34"/></template>'
    file = loads(templates(f'<template name="Outer" id="1"><templateRef/></template>{inner}'))
    message = read(file, 1, {"templateRef": Message(file.by_id[2], {"A": 3})})
    assert as_json(message) == {"templateRef": {"template": "Inner", "A": 3}}
    assert as_fix(message) == "34=3"


def test_an_exponent_out_of_bounds_does_not_fill_the_memory() -> None:
    message = Reader(loads(template('<decimal name="A" id="270"/>'))).decode(bytes.fromhex("c081077f7f7fff83"))[0]
    assert [report.code for report in message.reports] == ["R1"]
    assert as_json(message) == {"A": "3e2147483647"} and as_fix(message) == "270=3e2147483647"


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_any_message_can_be_printed(data: st.DataObject) -> None:
    random = data.draw(template_sets())
    template_id = data.draw(st.sampled_from(sorted(random.by_id)))
    message = Message(random.by_id[template_id], data.draw(values_of(random.by_id[template_id].body, random)))
    json.dumps(as_json(message), ensure_ascii=False).encode()
    as_fix(message).encode()


def test_a_batch_shows_the_same_rows_in_wire_order() -> None:
    file = load()
    writer, status = Writer(file), {"MsgSeqNum": 8, "SendingTime": 20261113133000124}
    messages = [writer.encode(144, status), writer.encode(152, X), writer.encode(144, {**status, "MsgSeqNum": 9})]
    end = np.cumsum([len(message) for message in messages])
    start = np.array([0, *end[:-1]])
    buffer = np.frombuffer(b"".join(messages), np.uint8)
    found = list(rows(Decoder(file).decode(buffer, start, end)))
    plain = [Reader(file).decode(message)[0] for message in messages]
    assert [row.number for row in found] == [0, 1, 2]
    assert [row.template.id for row in found] == [144, 152, 144]
    assert [row.fields for row in found] == [as_json(message) for message in plain]
    assert [format_fields(row.fix()) for row in found] == [as_fix(message) for message in plain]
