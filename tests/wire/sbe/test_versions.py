"""Blocks as versions 8 to 16 sent them, as a later one may send them, and of any length at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.packet_builders import NESTED, SCHEMA, VERSIONS, assert_equals_reference, decode, decoded_rows, fields_of
from wire.sbe.reference_codec import encode_message, encode_packet, frame
from wire.sbe.strategies import MODES, encoded_messages, sample_values, values
from wire.sbe.test_roundtrip import CASES

from umdf.wire.sbe.compose import compose_message
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Message, Schema

# What the notes on the reference say of older versions: template, version, length of the block.
LENGTHS = [
    *((50, version, 64) for version in range(8, 16)),
    (50, 16, 72),
    *((51, version, 44) for version in (8, 9, 10)),
    *((51, version, 52) for version in (15, 16)),
    *((30, version, 32) for version in (8, 9, 10)),
    *((30, version, 34) for version in (15, 16)),
    *((12, version, 230) for version in (8, 9)),
    *((12, version, 231) for version in (10, 15)),
    (12, 16, 232),
    *((53, version, 56) for version in (8, 9, 10, 15, 16)),
]
ORDER = {"securityID": 1, "matchEventIndicator": 128, "mDUpdateAction": 0, "mDEntryType": "0", "mDEntrySize": 100}
ORDER |= {"mDEntryPx": "12.3400", "enteringFirm": 8, "mDInsertTimestamp": 5, "secondaryOrderID": 6, "rptSeq": 7}
ORDER |= {"transactTime": 9}
POSITIONS = ["Order_MBO_50", "DeleteOrder_MBO_51", "MassDeleteOrders_MBO_52"]


@pytest.mark.parametrize(("template", "version", "length"), LENGTHS)
def test_a_block_is_as_long_as_its_version_sent_it(template: int, version: int, length: int) -> None:
    message = SCHEMA.messages[template]
    required = sample_values(message, version, optional=False)
    framed_message = compose_message(SCHEMA, template, required, version)
    assert int.from_bytes(framed_message[4:6], "little") == length
    assert fields_of(decode([encode_packet([framed_message])])) == [required]


@pytest.mark.parametrize(("version", "length"), [(8, 41), (9, 41), (10, 42), (15, 42), (16, 42)])
def test_an_entry_of_a_snapshot_is_as_long_as_its_version_sent_it(version: int, length: int) -> None:
    entry: dict[str, Any] = {"mDEntrySize": 5, "secondaryOrderID": 6, "mDEntryType": "1"}
    entry |= {"mDEntryPositionNo": 3} if version <= 15 else {}
    entry |= {"matchEventIndicator": 16} if version >= 10 else {}
    message = compose_message(SCHEMA, 71, {"securityID": 1, "noMDEntries": [entry, entry]}, version)
    assert int.from_bytes(message[20:22], "little") == length
    assert fields_of(decode([encode_packet([message])])) == [{"securityID": 1, "noMDEntries": [entry, entry]}]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", POSITIONS)
def test_mdentrypositionno_is_read_up_to_version_15_and_is_padding_from_16_on(name: str, version: int) -> None:
    message = SCHEMA.message_by_name(name)
    known = {f.name for f in message.sent_fields if f.in_version(version)}
    content = {field: value for field, value in ORDER.items() if field in known}
    if version <= 15:
        packet = encode_packet([encode_message(SCHEMA, message, content | {"mDEntryPositionNo": 3}, version)])
        assert fields_of(decode([packet])) == [content | {"mDEntryPositionNo": 3}]
    else:
        packet = encode_packet([encode_message(SCHEMA, message, content, version, padding=0xAB)])
        assert fields_of(decode([packet])) == [content]


@pytest.mark.parametrize(("schema", "message"), CASES)
def test_a_shorter_block_lacks_the_fields_beyond_it_and_no_others(schema: Schema, message: Message) -> None:
    full = sample_values(message, schema.version)
    packets = [
        encode_packet([encode_message(schema, message, full, schema.version, lengths={"": length})])
        for length in range(message.block_length + 1)
    ]
    batch = decode(packets, schema)
    assert_equals_reference(batch, packets, schema)
    behind = {part.name for part in (*message.groups, *message.data)}
    for length, fields in enumerate(fields_of(batch)):
        whole = {f.name for f in message.sent_fields if f.in_version(schema.version) and f.end <= length}
        begun = {f.name for f in message.sent_fields if f.in_version(schema.version) and f.offset < length}
        assert whole <= fields.keys() - behind <= begun


@pytest.mark.parametrize("message", [m for m in SCHEMA.messages.values() if m.groups], ids=lambda m: m.name)
def test_shorter_entries_of_groups_lack_the_fields_beyond_them(message: Message) -> None:
    full = sample_values(message)
    for group in message.groups:
        entry = sample_values(group)
        packets = [
            encode_packet(
                [encode_message(SCHEMA, message, full | {group.name: [entry] * 3}, lengths={group.name: length})]
            )
            for length in range(1, group.block_length + 1)
        ]
        batch = decode(packets)
        assert len(decoded_rows(batch)) == len(packets)
        assert_equals_reference(batch, packets)


@given(st.data(), st.sampled_from([case.values for case in CASES]))
def test_a_later_version_with_longer_blocks_and_more_behind_them_is_read(
    data: st.DataObject, case: tuple[Schema, Message]
) -> None:
    schema, message = case
    later = schema.version + 1
    content = data.draw(values(message, later, data.draw(st.sampled_from(MODES))))
    longer = st.integers(message.block_length, message.block_length + 40)
    lengths = {"": data.draw(longer)} | {group.name: group.block_length + data.draw(longer) for group in message.groups}
    tail = data.draw(st.binary(max_size=60))
    packet = encode_packet(
        [
            encode_message(schema, message, content, later, lengths=lengths, padding=0xEE, tail=tail),
            encode_message(schema, message, content, schema.version),
        ]
    )
    batch = decode([packet], schema)
    assert batch.quarantine == []
    later_fields, fields = fields_of(batch)
    assert later_fields == fields
    assert_equals_reference(batch, [packet], schema)


@pytest.mark.parametrize(("schema", "message"), CASES)
@pytest.mark.parametrize("longer", [1, 8, 1000])
def test_a_longer_block_is_skipped_to_its_end(schema: Schema, message: Message, longer: int) -> None:
    content, later = sample_values(message, schema.version), schema.version + 1
    lengths = {"": message.block_length + longer}
    packet = encode_packet([encode_message(schema, message, content, later, lengths=lengths, padding=0xEE)] * 2)
    batch = decode([packet], schema)
    assert fields_of(batch) == [content] * 2
    assert batch.quarantine == []


@given(st.lists(st.lists(encoded_messages(SCHEMA, VERSIONS), max_size=4), min_size=1, max_size=6))
def test_versions_mixed_within_a_batch_keep_order_and_values(packets: list[list[bytes]]) -> None:
    made = [encode_packet(messages, (72, 1, number, 0)) for number, messages in enumerate(packets)]
    assert_equals_reference(decode(made), made)


@given(st.lists(st.lists(encoded_messages(NESTED, range(6)), max_size=4), min_size=1, max_size=6))
def test_versions_mixed_within_a_batch_of_nested_groups_keep_order_and_values(packets: list[list[bytes]]) -> None:
    made = [encode_packet(messages, (72, 1, number, 0)) for number, messages in enumerate(packets)]
    assert_equals_reference(decode(made, NESTED), made, NESTED)


def test_a_position_seen_once_leaves_the_rows_before_and_after_it_absent() -> None:
    order = SCHEMA.message_by_name("Order_MBO_50")
    today = encode_message(SCHEMA, order, ORDER, 16, padding=0xAB)
    older = encode_message(SCHEMA, order, ORDER | {"mDEntryPositionNo": 3}, 15)
    packets = [encode_packet([today] * 5)] * 300 + [encode_packet([older])] + [encode_packet([today] * 5)] * 300
    positions = [fields.get("mDEntryPositionNo") for fields in fields_of(decode(packets))]
    assert positions == [None] * 1500 + [3] + [None] * 1500


def test_a_required_field_absent_once_leaves_the_rows_before_and_after_it_present() -> None:
    order = SCHEMA.message_by_name("Order_MBO_50")
    today = encode_message(SCHEMA, order, ORDER, 16)
    cut = encode_message(SCHEMA, order, ORDER, 16, lengths={"": 20})
    packets = [encode_packet([today] * 5)] * 300 + [encode_packet([cut])] + [encode_packet([today] * 5)] * 300
    sizes = [fields.get("mDEntrySize") for fields in fields_of(decode(packets))]
    assert sizes == [100] * 1500 + [None] + [100] * 1500


def test_a_file_may_state_fields_of_a_version_that_is_not_its_own() -> None:
    schema = loads(
        b"""<messageSchema package="odd" id="9" version="3" byteOrder="littleEndian"><types>
        <type name="u8" primitiveType="uint8"/><type name="maybe" primitiveType="uint8" presence="optional"/></types>
        <message name="Odd_1" id="1"><field name="now" id="1" type="u8"/><field name="soon" id="2" type="u8"
        sinceVersion="4"/><field name="going" id="3" type="maybe" until="4"/></message></messageSchema>"""
    )
    packets = [encode_packet([frame(b"\1\2\3", 3, 1, 9, version)]) for version in (3, 4, 5)]
    batch = decode(packets, schema)
    assert fields_of(batch) == [{"now": 1, "going": 3}, {"now": 1, "soon": 2, "going": 3}, {"now": 1, "soon": 2}]
    assert_equals_reference(batch, packets, schema)
