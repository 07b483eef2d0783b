"""Every message of the schema, through bytes and back, with every kind of value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.packet_builders import (
    NESTED,
    SCHEMA,
    assert_equals_reference,
    decode,
    decoded_rows,
    headers,
    packets_of,
    tables,
    versions_of,
)
from wire.sbe.reference_codec import encode_message, encode_packet
from wire.sbe.strategies import MODES, as_decoded, bounds, sample_values, values

from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.encode import Encoder
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Message, Schema

CASES = [pytest.param(schema, m, id=m.name) for schema in (SCHEMA, NESTED) for m in schema.messages.values()]
DECODERS = {id(schema): Decoder(schema) for schema in (SCHEMA, NESTED)}


@pytest.mark.parametrize(("schema", "message"), CASES)
@given(st.data())
def test_what_is_encoded_in_any_version_decodes_to_the_same(
    schema: Schema, message: Message, data: st.DataObject
) -> None:
    mode, version = data.draw(st.sampled_from(MODES)), data.draw(st.sampled_from(versions_of(schema, message.since)))
    messages = data.draw(st.lists(values(message, version, mode), min_size=1, max_size=2))
    assert_round_trip(schema, message, messages, version)


def assert_round_trip(schema: Schema, message: Message, messages: list[dict[str, Any]], version: int) -> None:
    header = {"channel": 72, "seq_version": 3, "sequence": 9, "sending_time": 1_600_000_000_000_000_000}
    encoded = compose(schema, [Packet([(message.name, m) for m in messages], **header)], version)
    plain = [encode_message(schema, message, m, version) for m in messages]
    assert packets_of(encoded) == [encode_packet(plain, tuple(header.values()))]  # type: ignore[arg-type]
    batch = decode(packets_of(encoded), decoder=DECODERS[id(schema)])
    assert [fields for *_, fields in decoded_rows(batch)] == [as_decoded(message, m) for m in messages]
    assert_equals_reference(batch, packets_of(encoded), schema)
    again = Encoder(schema, version).encode(headers(batch), tables(batch))
    assert packets_of(again) == packets_of(encoded)


@pytest.mark.parametrize("message", SCHEMA.messages.values(), ids=lambda m: m.name)
def test_every_null_value_is_read_as_absent(message: Message) -> None:
    given_values = sample_values(message, optional=False)
    packet = encode_packet([encode_message(SCHEMA, message, given_values)])
    ((_, _, _, fields),) = decoded_rows(decode([packet]))
    assert fields.keys() == given_values.keys()


@pytest.mark.parametrize("message", SCHEMA.messages.values(), ids=lambda m: m.name)
def test_a_required_field_keeps_every_value_it_can_hold(message: Message) -> None:
    required = [f for f in message.sent_fields if any(part.null is None for part in f.parts) and f.parts[0].length == 1]
    for place in (0, 1):
        given_values = {
            f.name: chr(bounds(f.parts[0])[place])
            if f.parts[0].primitive == "char"
            else f"{bounds(f.parts[0])[place]}e{f.exponent or 0}"
            if f.exponent is not None
            else bounds(f.parts[0])[place]
            for f in required
        }
        packet = encode_packet([encode_message(SCHEMA, message, given_values)])
        batch = decode([packet])
        assert {f.name for f in required} <= decoded_rows(batch)[0][3].keys()
        assert_equals_reference(batch, [packet])


def test_codes_and_bits_that_the_schema_does_not_know_are_kept_raw() -> None:
    status = SCHEMA.message_by_name("SecurityStatus_3")
    given_values = {"securityID": 1, "matchEventIndicator": 0xFF, "tradingSessionID": 255, "tradeDate": 65535}
    given_values |= {"securityTradingStatus": 254, "securityTradingEvent": 253}
    packet = encode_packet([encode_message(SCHEMA, status, given_values)])
    ((_, _, _, fields),) = decoded_rows(decode([packet]))
    assert fields == given_values


def test_a_required_char_may_be_nul() -> None:
    order = SCHEMA.message_by_name("MassDeleteOrders_MBO_52")
    given_values = {"securityID": 1, "matchEventIndicator": 0, "mDUpdateAction": 3, "mDEntryType": "\0"}
    ((_, _, _, fields),) = decoded_rows(decode([encode_packet([encode_message(SCHEMA, order, given_values)])]))
    assert fields["mDEntryType"] == "\0"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"A" * 20, "A" * 20),
        (b"\xff\xfe" * 10, "\\xff\\xfe" * 10),
        ("ação €".encode(), "ação €"),
        (b"AB\0CD\xff", "AB"),  # what stands behind the first NUL is padding
        (b"\0" * 20, ""),
    ],
)
def test_a_text_ends_at_its_first_nul_and_is_never_refused(sent: bytes, seen: str) -> None:
    definition = SCHEMA.message_by_name("SecurityDefinition_12")
    packet = encode_packet([encode_message(SCHEMA, definition, sample_values(definition) | {"symbol": sent})])
    batch = decode([packet])
    assert decoded_rows(batch)[0][3]["symbol"] == seen
    assert_equals_reference(batch, [packet])


@pytest.mark.parametrize("depth", range(1, 9))
def test_groups_nest_as_deep_as_a_schema_may_have_them(depth: int) -> None:
    opened = "".join(f'<group name="g{n}" id="{n}"><field name="f{n}" id="{9 + n}" type="u8"/>' for n in range(depth))
    texts = "".join(f'<data name="d{n}" id="{30 + n}" type="text"/></group>' for n in range(depth))
    schema = loads(
        f"""<messageSchema package="deep" id="9" version="1" byteOrder="littleEndian"><types>
        <type name="u8" primitiveType="uint8"/><composite name="groupSizeEncoding">
        <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint8"/></composite>
        <composite name="text"><type name="length" primitiveType="uint8"/><type name="varData" primitiveType="char"
        length="0"/></composite></types><message name="Deep_1" id="1">{opened}{texts}</message>
        </messageSchema>""".encode()
    )
    content: dict[str, Any] = {}
    for number in reversed(range(depth)):
        entry = content | {f"f{number}": number, f"d{depth - 1 - number}": "x" * number}
        content = {f"g{number}": [entry, {f"f{number}": 255}]}
    message = schema.messages[1]
    packets = [encode_packet([encode_message(schema, message, content, 1)] * 2)]
    packets += [packets[0][:-1], packets[0][:16] + b"\xff" * 9 + packets[0][25:]]
    batch = decode(packets, schema)
    assert_equals_reference(batch, packets, schema)
    assert len(decoded_rows(batch)) == 3
    assert packets_of(compose(schema, [Packet([(1, content)] * 2, 72, 1, 1)])) == packets[:1]


@pytest.mark.parametrize("message", [m for m in SCHEMA.messages.values() if m.groups], ids=lambda m: m.name)
@given(st.data())
def test_a_group_holds_up_to_255_entries(message: Message, data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(message.groups))
    entries = [data.draw(values(group, 16, mode)) for mode in MODES]
    count = data.draw(st.sampled_from([1, 2, 63, 64, 65, 254, 255]))
    whole = data.draw(values(message, 16, "minimal")) | {group.name: (entries * 51)[:count]}
    assert_round_trip(SCHEMA, message, [whole], 16)
