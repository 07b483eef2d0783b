"""Decoded messages for people: dictionaries and FIX fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.mutations import CORPUS
from wire.sbe.packet_builders import NESTED, SCHEMA, decode, decoded_rows, versions_of
from wire.sbe.reference_codec import encode_message, encode_packet
from wire.sbe.strategies import MODES, encoded_messages, sample_values, values

from umdf.wire.fix.text import format_fields
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Message, Schema
from umdf.wire.sbe.view import fix_fields, rows

BOTH = pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["exchange", "nested"])
ORDER: dict[str, Any] = {"securityID": 9, "matchEventIndicator": 0x90, "mDUpdateAction": 1, "mDEntryType": "1"}
ORDER |= {"mDEntryPx": "12.3400", "mDEntrySize": 100, "enteringFirm": 8, "secondaryOrderID": 6, "rptSeq": 7}
ORDER |= {"mDInsertTimestamp": 1_600_000_000_123_456_789, "transactTime": 1_600_000_001_000_000_000}


def fix_line(schema: Schema, name: str, content: dict[str, Any], version: int = 16) -> str:
    message = schema.message_by_name(name)
    (row,) = rows(decode([encode_packet([encode_message(schema, message, content, version)])], schema))
    return format_fields(fix_fields(row.node.block, row.fields))


def named_fields(name: str, content: dict[str, Any]) -> dict[str, Any]:
    packet = encode_packet([encode_message(SCHEMA, SCHEMA.message_by_name(name), content)])
    (row,) = rows(decode([packet]), names=True)
    return row.fields


def test_messages_come_in_wire_order_whatever_their_template() -> None:
    made = [encode_message(SCHEMA, m, sample_values(m)) for m in SCHEMA.messages.values()]
    packets = [encode_packet(made[::-1]), encode_packet(made[3:9]), encode_packet(made)]
    ids = list(SCHEMA.messages)
    order = [(packet, index, template) for packet, index, template, _ in decoded_rows(decode(packets))]
    assert order == [
        (packet, index, template)
        for packet, templates in enumerate([ids[::-1], ids[3:9], ids])
        for index, template in enumerate(templates)
    ]


def test_codes_and_bits_have_names_when_asked_for() -> None:
    fields = named_fields("Order_MBO_50", ORDER)
    assert fields["mDUpdateAction"] == "CHANGE"
    assert fields["mDEntryType"] == "OFFER"
    assert fields["matchEventIndicator"] == ["Implied", "EndOfEvent"]
    assert fields["mDEntryPx"] == "12.3400"
    assert fields["securityID"] == 9


def test_codes_and_bits_without_a_name_stay_as_they_are() -> None:
    fields = named_fields("Order_MBO_50", ORDER | {"mDUpdateAction": 77, "mDEntryType": "%"})
    assert (fields["mDUpdateAction"], fields["mDEntryType"]) == (77, "%")
    trade = sample_values(SCHEMA.message_by_name("Trade_53")) | {"tradeCondition": 1 << 15}
    assert named_fields("Trade_53", trade)["tradeCondition"] == ["bit 15"]


def test_an_order_as_fix() -> None:
    assert fix_line(SCHEMA, "Order_MBO_50", ORDER) == (
        "35=X|1128=9|48=9|22=8|207=BVMF|37035=144|279=1|269=1|270=12.34|271=100|37501=8"
        "|37034=20200913-12:26:40.123456789|198=6|83=7|60=20200913-12:26:41.000000000"
    )


def test_groups_as_fix_start_with_their_count_and_each_entry_with_the_same_field() -> None:
    entries = [
        {"mDEntrySize": 5, "secondaryOrderID": 6, "mDEntryType": "0", "mDEntryPx": "1.5000"},
        {"mDEntrySize": 7, "secondaryOrderID": 8, "mDEntryType": "1"},
    ]
    text = fix_line(SCHEMA, "SnapshotFullRefresh_Orders_MBO_71", {"securityID": 1, "noMDEntries": entries}, 9)
    group = text.partition("|268=2|")[2].split("|")
    assert [field.partition("=")[0] for field in group].count("269") == 2
    assert group[0] == "269=0"
    assert [field for field in group if field.startswith("270=")] == ["270=1.5"]


def test_a_definition_as_fix_has_dates_months_and_text() -> None:
    definition = sample_values(SCHEMA.message_by_name("SecurityDefinition_12"))
    definition |= {"maturityDate": 20_000, "maturityMonthYear": {"year": 2026, "month": 12}, "securityDesc": "a|b"}
    fields = fix_line(SCHEMA, "SecurityDefinition_12", definition).split("|")
    assert {"541=20241004", "200=202612", "667=00030303", "107=a\\"} <= set(fields)


@BOTH
def test_everything_that_decodes_can_be_shown_in_every_way(schema: Schema) -> None:
    batch = decode(CORPUS[schema.id], schema)
    for names in (False, True):
        for row in rows(batch, names=names):
            json.dumps(row.fields).encode()
    for row in rows(batch):
        assert format_fields(fix_fields(row.node.block, row.fields)).count("\n") == 0


@BOTH
@given(st.data())
def test_any_values_can_be_shown_in_every_way(schema: Schema, data: st.DataObject) -> None:
    made = data.draw(st.lists(encoded_messages(schema, versions_of(schema)), max_size=4))
    batch = decode([encode_packet(made)], schema)
    for row in rows(batch, names=True):
        json.dumps(row.fields).encode()
    for row in rows(batch):
        format_fields(fix_fields(row.node.block, row.fields)).encode()


@given(st.data(), st.sampled_from(list(SCHEMA.messages.values())))
def test_fix_shows_every_value_that_is_there(data: st.DataObject, message: Message) -> None:
    content = data.draw(values(message, 16, data.draw(st.sampled_from(MODES))))
    ((_, _, _, fields),) = decoded_rows(decode([encode_packet([encode_message(SCHEMA, message, content)])]))
    tags = [tag for tag, _ in fix_fields(message, fields)]
    constants = [f.tag for f in message.fields if f.constant is not None]
    present = [f.tag for f in message.sent_fields if f.name in fields] + [
        d.tag for d in message.data if d.name in fields
    ]
    for group in message.groups:
        entries = fields.get(group.name, [])
        present += [group.tag] * bool(entries)
        for entry in entries:
            present += [f.tag for f in group.fields if f.name in entry or f.constant is not None]
    assert sorted(tags) == sorted(constants + present)


def test_dates_that_a_users_file_sends_as_text_stay_text() -> None:
    schema = loads(
        b"""<messageSchema package="text" id="9" version="1" byteOrder="littleEndian"><types>
        <type name="day" primitiveType="char" length="8" semanticType="LocalMktDate"/></types>
        <message name="Day_1" id="1"><field name="maturityDate" id="541" type="day"/></message></messageSchema>"""
    )
    assert fix_line(schema, "Day_1", {"maturityDate": "20261113"}, 1) == "541=20261113"


def test_a_group_without_fields_can_be_shown_with_names() -> None:
    tree = sample_values(NESTED.message_by_name("Tree_1"), 3)
    assert fix_line(NESTED, "Tree_1", tree, 3).startswith("1=3|2=3|10=1|11=3|12=A|20=1|21=3|30=1|31=3|22=text|13=text|")
