"""Encoding: whole batches, messages by hand, and what cannot be put on the wire said in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.packet_builders import (
    NESTED,
    SCHEMA,
    assert_equals_reference,
    decode,
    fields_of,
    headers,
    packets_of,
    tables,
)
from wire.sbe.reference_codec import encode_message, encode_packet
from wire.sbe.strategies import sample_values

from umdf.errors import EncodeError
from umdf.wire.sbe.arrow import arrow_schema
from umdf.wire.sbe.compose import Packet, compose, compose_message
from umdf.wire.sbe.encode import TILE_ROWS, Encoder
from umdf.wire.sbe.layout import Layout

ORDER: dict[str, Any] = {"securityID": 1, "matchEventIndicator": 0, "mDUpdateAction": 0, "mDEntryType": "0"}
ORDER |= {"mDEntrySize": 100, "secondaryOrderID": 7}
ENTRY: dict[str, Any] = {"mDEntrySize": 5, "secondaryOrderID": 6, "mDEntryType": "1"}
DEFINITION = sample_values(SCHEMA.messages[12])
PHASE = sample_values(SCHEMA.messages[10])
ENCODER = Encoder(SCHEMA)


def heartbeats(packet: list[int], index: list[int], **columns: Any) -> pa.RecordBatch:
    values = {"packet": packet, "msg_index": index, "nextSeqNo": [7] * len(packet)} | columns
    return pa.RecordBatch.from_pydict(values).replace_schema_metadata({"template_id": "2"})


def order(**values: Any) -> dict[str, Any]:
    return ORDER | values


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        (50, {k: v for k, v in ORDER.items() if k != "mDEntrySize"}, "Order_MBO_50.mDEntrySize is required"),
        (50, order(mDEntrySize=None), "Order_MBO_50.mDEntrySize is required"),
        (12, DEFINITION | {"symbol": "A" * 21}, "SecurityDefinition_12.symbol holds at most 20 bytes"),
        (12, DEFINITION | {"symbol": "é"}, "SecurityDefinition_12.symbol: 'é' is not ASCII"),
        (12, DEFINITION | {"symbol": "A\0B"}, "symbol: text contains a NUL"),
        (12, DEFINITION | {"symbol": "\ud800"}, "symbol: '\\ud800' is not a string"),
        (12, DEFINITION | {"symbol": 5}, "symbol: 5 is not a string"),
        (12, DEFINITION | {"securityDesc": 5}, "securityDesc: 5 is not a string"),
        (12, DEFINITION | {"securityDesc": "A" * 256}, "securityDesc of 256 bytes does not fit its length"),
        (
            12,
            DEFINITION | {"maturityMonthYear": 202611},
            "maturityMonthYear expects a dict of day, month, week, year",
        ),
        (12, DEFINITION | {"maturityMonthYear": {"yeer": 1}}, "maturityMonthYear expects a dict"),
        (12, DEFINITION | {"noLegs": 3}, "noLegs expects a list of entries"),
        (12, DEFINITION | {"noLegs": "abc"}, "noLegs expects a list of entries"),
        (12, DEFINITION | {"noLegs": [{"legSymbool": "A"}]}, "SecurityDefinition_12.noLegs has no field 'legSymbool'"),
        (12, DEFINITION | {"noLegs": [{}]}, "is required and has no value"),
        (50, order(rptSeq=1 << 32), "Order_MBO_50.rptSeq: 4294967296 is outside 0 to 4294967295"),
        (50, order(rptSeq=-1), "Order_MBO_50.rptSeq: -1 is outside 0 to 4294967295"),
        (50, order(rptSeq=0), "Order_MBO_50.rptSeq: 0 is the null value; pass None"),
        (50, order(mDEntryPx="-922337203685477.5808"), "mDEntryPx: -922337203685477.5808 is the null value"),
        (50, order(securityID=1 << 70), "securityID: 1180591620717411303424 is outside 0 to 18446744073709551615"),
        (50, order(mDEntrySize=1 << 63), "Order_MBO_50.mDEntrySize: 9223372036854775808 is outside -92"),
        (
            50,
            order(mDEntrySize="many"),
            "Order_MBO_50.mDEntrySize: 'many' is not an integer from -9223372036854775808 to",
        ),
        (50, order(mDEntrySize=1.5), "mDEntrySize: 1.5 is not an integer from"),
        (50, order(mDEntrySize={"a": 1}), "mDEntrySize: {'a': 1} is not an integer from"),
        (50, order(matchEventIndicator=256), "Order_MBO_50.matchEventIndicator: 256 is outside 0 to 255"),
        (50, [ORDER], "50 expects a dict of field values"),
        (
            10,
            PHASE | {"securityGroup": "ABCD"},
            "SecurityGroupPhase_10.securityGroup holds at most 3 bytes, not 'ABCD'",
        ),
        (10, PHASE | {"securityGroup": "é"}, "SecurityGroupPhase_10.securityGroup: 'é' is not ASCII"),
        (10, PHASE | {"securityTradingEvent": 255}, "securityTradingEvent: 255 is the null value"),
        (
            71,
            {"securityID": 1, "noMDEntries": [ENTRY | {"enteringFirm": 0}]},
            "noMDEntries.enteringFirm: 0 is the null value",
        ),
        (50, order(mDEntryType="01"), "Order_MBO_50.mDEntryType expects one ASCII character, got"),
        (50, order(mDEntryType=""), "Order_MBO_50.mDEntryType expects one ASCII character, got"),
        (50, order(mDEntryType="€"), "Order_MBO_50.mDEntryType expects one ASCII character, got"),
        (50, order(mDEntryPx="1.00001"), "mDEntryPx: '1.00001' has more than 4 decimals"),
        (50, order(mDEntryPx=0.1), "has more than 4 decimals"),
        (50, order(mDEntryPx="ten"), "mDEntryPx: 'ten' is not a decimal number"),
        (50, order(mDEntryPx="NaN"), "does not fit a decimal"),
        (50, order(mDEntryPx="1e999999999"), "does not fit a decimal"),
        (50, order(mDEntryPx="1e-999999999"), "does not fit a decimal"),
        (50, order(mDEntryPx="922337203685477.5808"), "is outside -922337203685477.5808 to 922337203685477.5807"),
        (50, order(price=1), "Order_MBO_50 has no field 'price'"),
        ("Order_51", ORDER, "unknown message 'Order_51'"),
        (58, ORDER, "unknown message 58"),
        (71, {"securityID": 1, "noMDEntries": [ENTRY] * 256}, "256 entries exceed its counter"),
        (
            5,
            sample_values(SCHEMA.messages[5]) | {"text": "A" * 65536},
            "News_5.text of 65536 bytes does not fit its length",
        ),
        (5, sample_values(SCHEMA.messages[5]) | {"text": "A" * 65535}, "UDP carries 65507"),
    ],
)
def test_values_that_cannot_be_encoded_raise_a_one_line_error(
    template: str | int, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(EncodeError) as refused:
        compose_message(SCHEMA, template, values)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        *({"channel": 256}, {"channel": -1}, {"seq_version": 65536}, {"sequence": 1 << 32}, {"sending_time": 1 << 64}),
        *({"sending_time": -1}, {"sequence": 1.5}, {"sequence": "x"}, {"sequence": None}),
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match=f"header {next(iter(header))}"):
        compose(SCHEMA, [Packet([("Sequence_2", {"nextSeqNo": 1})], **header)])


@pytest.mark.parametrize(
    ("packet", "index", "said"),
    [
        ([0, 0], [0, 2], "without gaps"),
        ([0, 0], [1, 2], "without gaps"),
        ([0, 0], [0, 0], "the same packet and msg_index"),
        ([0, 1], [0, 1], "without gaps"),
        ([0, -1], [0, 0], "counts from 0"),
        ([0, 0], [0, -1], "counts from 0"),
        ([0, None], [0, 1], "counts from 0"),
    ],
)
def test_msg_index_counts_from_0_without_gaps_or_duplicates(packet: list, index: list, said: str) -> None:
    with pytest.raises(EncodeError, match=said):
        ENCODER.encode({}, [heartbeats(packet, index)])


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.RecordBatch.from_pydict({"packet": [0], "msg_index": [0]}), "has no known template_id"),
        (heartbeats([0], [0]).replace_schema_metadata({"template_id": "49"}), "has no known template_id"),
        (heartbeats([0], [0]).drop_columns(["packet"]), "Sequence_2: column packet is missing"),
        (heartbeats([0], [0], nextSeqNumber=[3]), "Sequence_2 has no column 'nextSeqNumber'"),
        (heartbeats([0], [0], nextSeqNo=[1 << 40]), "Sequence_2.nextSeqNo: 1099511627776 is outside 0 to 4294967295"),
        (
            heartbeats([0], [0], nextSeqNo=["many"]),
            "Sequence_2.nextSeqNo: 'many' is not an integer from 0 to 4294967295",
        ),
        (heartbeats([0], [0], nextSeqNo=[1.5]), "Sequence_2.nextSeqNo: 1.5 is not an integer from 0 to 4294967295"),
        (heartbeats([0], [0], nextSeqNo=[[1]]), "Sequence_2.nextSeqNo expects uint32, got list<"),
        (heartbeats([0], [0]).drop_columns(["nextSeqNo"]), "Sequence_2.nextSeqNo is required"),
        (heartbeats([0] * 5500, [*range(5500)]), "packet 0 would have 88016 bytes; UDP carries 65507"),
    ],
)
def test_a_batch_that_cannot_be_sent_is_refused_in_one_line(batch: pa.RecordBatch, said: str) -> None:
    with pytest.raises(EncodeError) as refused:
        ENCODER.encode({}, [batch])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("template", "version"), [(28, 8), (29, 8), (12, 7), (22, 7)])
def test_a_template_is_not_sent_before_the_version_that_brought_it(template: int, version: int) -> None:
    message = SCHEMA.messages[template]
    said = f"{message.name} was added in version {version + 1}, not in version {version}"
    values = sample_values(message, version + 1)
    with pytest.raises(EncodeError, match=said):
        compose_message(SCHEMA, template, values, version)
    with pytest.raises(EncodeError, match=said):
        Encoder(SCHEMA, version).encode({}, tables(decode([encode_packet([encode_message(SCHEMA, message, values)])])))
    assert compose_message(SCHEMA, template, values, version + 1) == encode_message(
        SCHEMA, message, values, version + 1
    )


def test_a_value_of_a_column_that_means_absent_is_refused() -> None:
    (orders,) = tables(decode([encode_packet([encode_message(SCHEMA, SCHEMA.messages[50], ORDER)] * 2)]))
    for name, null in (("rptSeq", 0), ("mDEntryPx", -(1 << 63)), ("enteringFirm", 0)):
        place = orders.schema.get_field_index(name)
        kind = orders.schema.field(place)
        absent = orders.set_column(place, kind, pa.array([None, 5], kind.type))  # its null value stands in the buffer
        assert len(packets_of(ENCODER.encode({}, [absent]))) == 1
        with pytest.raises(EncodeError, match=rf"Order_MBO_50\.{name}: .* is the null value; pass None"):
            ENCODER.encode({}, [orders.set_column(place, kind, pa.array([5, null], kind.type))])


def test_entries_without_bytes_are_refused() -> None:
    tree = sample_values(NESTED.message_by_name("Tree_1"), 3)
    tree["outer"][0]["empty"] = [{}]
    with pytest.raises(EncodeError, match=r"Tree_1\.outer\.empty: entries of zero length"):
        compose_message(NESTED, "Tree_1", tree)


@pytest.mark.parametrize("version", [-1, 65536, "8", 8.0])
def test_a_version_must_fit_the_header(version: int) -> None:
    with pytest.raises(EncodeError, match="does not fit"):
        Encoder(SCHEMA, version)


def test_values_may_be_given_in_any_form_that_is_exact() -> None:
    message = compose_message(SCHEMA, "Order_MBO_50", order(mDEntryPx=12, rptSeq=np.int8(3), mDEntryType=48))
    assert fields_of(decode([encode_packet([message])])) == [order(mDEntryPx="12.0000", rptSeq=3)]


@pytest.mark.parametrize(
    ("given_price", "shown"),
    [
        *(
            ("12.34", "12.3400"),
            ("-0.0001", "-0.0001"),
            ("1e3", "1000.0000"),
            ("12.340000", "12.3400"),
            (-5, "-5.0000"),
        ),
        ("922337203685477.5807", "922337203685477.5807"),
        ("-922337203685477.5807", "-922337203685477.5807"),
    ],
)
def test_decimals_are_exact(given_price: Any, shown: str) -> None:
    message = compose_message(SCHEMA, 50, order(mDEntryPx=given_price))
    assert fields_of(decode([encode_packet([message])]))[0]["mDEntryPx"] == shown


def test_packets_without_messages_and_no_packets_at_all() -> None:
    assert packets_of(compose(SCHEMA, [Packet(channel=1, seq_version=2, sequence=3, sending_time=4)])) == [
        encode_packet([], (1, 2, 3, 4))
    ]
    assert packets_of(compose(SCHEMA, [])) == []
    assert packets_of(ENCODER.encode({"sequence": [1, 2]}, [])) == [
        encode_packet([], (0, 0, 1, 0)),
        encode_packet([], (0, 0, 2, 0)),
    ]


def test_the_longest_packet_that_udp_carries_is_sent() -> None:
    fixed = 16 + 12 + 36 + 6
    news = sample_values(SCHEMA.messages[5]) | {"headline": None, "uRLLink": None, "text": "A" * (65507 - fixed)}
    (packet,) = packets_of(compose(SCHEMA, [Packet([(5, news)])]))
    assert len(packet) == 65507
    assert len(fields_of(decode([packet]))[0]["text"]) == 65507 - fixed
    with pytest.raises(EncodeError, match="65508 bytes"):
        compose(SCHEMA, [Packet([(5, news | {"text": news["text"] + "A"})])])


def test_columns_that_are_left_out_are_absent() -> None:
    layout = Layout(SCHEMA)
    for template_id, message in SCHEMA.messages.items():
        required = sample_values(message, optional=False)
        whole = decode([encode_packet([encode_message(SCHEMA, message, required)] * 3)]).record_batch(template_id)
        kept = whole.select(
            ["packet", "msg_index", *(c.name for c in layout.roots[template_id].columns if c.field.name in required)]
        )
        (packet,) = packets_of(ENCODER.encode({}, [kept.replace_schema_metadata({"template_id": str(template_id)})]))
        assert fields_of(decode([packet])) == [required] * 3


def test_a_null_list_is_an_empty_group() -> None:
    schema = arrow_schema(Layout(SCHEMA), 71)
    fields = [field.with_nullable(True) for field in schema]
    row = {"packet": 0, "msg_index": 0, "securityID": 1, "noMDEntries": None}
    batch = pa.RecordBatch.from_pylist([row], schema=pa.schema(fields, metadata=schema.metadata))
    (packet,) = packets_of(ENCODER.encode({}, [batch]))
    assert fields_of(decode([packet])) == [{"securityID": 1}]


@given(st.data())
def test_slices_encode_as_what_they_show(data: st.DataObject) -> None:
    """Of batches with texts, groups, groups in groups and data: Arrow's offsets do not start at 0 then."""
    schema = data.draw(st.sampled_from([SCHEMA, NESTED]))
    message = data.draw(
        st.sampled_from([m for m in schema.messages.values() if m.groups or m.data or m.name == "Gone_3"])
    )
    count = data.draw(st.integers(1, 6))
    content = [sample_values(message, schema.version) for _ in range(count)]
    for number, values in enumerate(content):
        for group in message.groups:
            if group.name in values:
                values[group.name] *= number
        for each in message.data:
            values[each.name] = "x" * number
    packets = [encode_packet([encode_message(schema, message, each, schema.version)]) for each in content]
    (table,) = tables(decode(packets, schema))
    first = data.draw(st.integers(0, count - 1))
    part = table.slice(first, data.draw(st.integers(1, count - first)))
    numbers = pa.array(np.arange(part.num_rows), pa.uint32())
    part = part.set_column(0, "packet", numbers).replace_schema_metadata(table.schema.metadata)
    headers = {"channel": 72, "seq_version": 1, "sequence": 1}
    assert packets_of(Encoder(schema).encode(headers, [part])) == packets[first : first + part.num_rows]


def test_a_batch_of_many_packets_encodes_back_to_its_bytes() -> None:
    messages = [encode_message(SCHEMA, m, sample_values(m)) for m in SCHEMA.messages.values()]
    packets = [
        encode_packet(messages[number % 7 :: 1 + number % 5], (number % 256, number % 9, number, number * 10**12))
        for number in range(TILE_ROWS // 2 + 5)
    ]
    batch = decode(packets)
    encoded = ENCODER.encode(headers(batch), tables(batch)[::-1])  # in any order of templates
    assert packets_of(encoded) == packets


def test_one_header_value_serves_all_packets() -> None:
    encoded = ENCODER.encode({"channel": 9, "sequence": [4, 5]}, [heartbeats([0, 1], [0, 0])])
    batch = decode(packets_of(encoded))
    assert batch.channel.tolist() == [9, 9]
    assert batch.sequence.tolist() == [4, 5]
    assert_equals_reference(batch, packets_of(encoded))
    with pytest.raises(EncodeError, match="header channel: expected one value, or one per packet"):
        ENCODER.encode({"channel": [9, 9], "sequence": [4, 5, 6]}, [])
