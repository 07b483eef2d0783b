"""Every byte of a packet is explained, and as the kernels read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.mutations import CORPUS, as_bytes, mutated
from wire.sbe.packet_builders import NESTED, SCHEMA, decode, decoded_rows, versions_of
from wire.sbe.reference_codec import encode_message, encode_packet, frame
from wire.sbe.strategies import encoded_messages, sample_values

from umdf.wire.sbe.explain import Line, explain
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Message, Schema

BOTH = pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["exchange", "nested"])
ORDER = SCHEMA.message_by_name("Order_MBO_50")


def flat(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Fields as explain names them: noLegs[0].legSymbol, maturityMonthYear.year."""
    for name, value in values.items():
        match value:
            case list():
                for number, entry in enumerate(value):
                    yield from flat(entry, f"{path}{name}[{number}].")
            case dict():
                yield from flat(value, f"{path}{name}.")
            case _:
                yield path + name, value


def explained(lines: list[Line]) -> list[dict[str, Any]]:
    """The fields of each message that an explanation shows."""
    messages: list[dict[str, Any]] = []
    prefix = {1: ""}
    for line in lines:
        if line.depth == 0 and line.name not in ("Packet header", "damaged"):
            messages.append({})
        elif line.name.endswith("]"):
            prefix[line.depth + 1] = f"{prefix[line.depth - 1]}{line.name}."
        elif line.tag is not None and line.offset is not None and line.raw and line.value is not None:
            messages[-1][prefix[line.depth] + line.name] = line.value
    return messages


def assert_explained(schema: Schema, packets: list[bytes]) -> None:
    batch = decode(packets, schema)
    rows: dict[int, dict[int, Any]] = {}
    for packet, index, _, fields in decoded_rows(batch):
        rows.setdefault(packet, {})[index] = fields
    refused = {(line.packet) for line in batch.quarantine if not line.is_skipped}
    for number, packet in enumerate(packets):
        lines = explain(schema, packet)
        at = 0
        for line in sorted((line for line in lines if line.raw), key=lambda line: line.offset or 0):
            assert (line.offset, line.raw) == (at, packet[at : at + len(line.raw)]), line
            at += len(line.raw)
        assert at == len(packet), "some bytes are not explained"
        assert any(line.is_damaged for line in lines) == (number in refused)
        messages = explained(lines)
        for index, fields in rows.get(number, {}).items():
            assert messages[index] == dict(flat(fields))


@BOTH
def test_sound_packets_are_explained_as_they_are_decoded(schema: Schema) -> None:
    assert_explained(schema, CORPUS[schema.id])


@BOTH
@given(st.data())
def test_packets_of_any_version_and_length_are_explained_as_they_are_decoded(
    schema: Schema, data: st.DataObject
) -> None:
    versions = versions_of(schema)
    assert_explained(schema, [encode_packet(data.draw(st.lists(encoded_messages(schema, versions), max_size=3)))])


@BOTH
def test_fuzz_mutated_packets_are_explained_as_they_are_decoded(
    schema: Schema, sized: Callable[[int, int], int]
) -> None:
    seed = int(np.random.default_rng().integers(1 << 62))
    print(f"seed {seed}")  # shown when it fails
    count = sized(2_000, 50_000)
    packets = mutated(schema, count, np.random.default_rng(seed))
    assert_explained(schema, as_bytes(packets, np.arange(count)))


@given(st.binary(max_size=120))
def test_random_bytes_are_explained_without_complaint(packet: bytes) -> None:
    assert_explained(SCHEMA, [packet])


@pytest.mark.parametrize("message", SCHEMA.messages.values(), ids=lambda m: m.name)
def test_a_packet_cut_anywhere_is_explained_up_to_the_cut(message: Message) -> None:
    whole = encode_packet([encode_message(SCHEMA, message, sample_values(message))])
    assert_explained(SCHEMA, [whole[:size] for size in range(len(whole) + 1)])


def lines_of(packet: bytes) -> dict[str, Line]:
    return {line.name: line for line in explain(SCHEMA, packet)}


def test_an_order_is_explained_in_the_exchanges_words() -> None:
    content = {"securityID": 1, "matchEventIndicator": 128, "mDUpdateAction": 0, "mDEntryType": "0", "mDEntrySize": 100}
    content |= {"mDEntryPx": "12.34", "secondaryOrderID": 7, "transactTime": 1_600_000_000_123_456_789}
    lines = lines_of(encode_packet([encode_message(SCHEMA, ORDER, content)], (72, 3, 9, 1_600_000_000_000_000_001)))
    assert lines["sendingTime"].meaning == "2020-09-13 12:26:40.000000001 UTC"
    assert (lines["channelNumber"].value, lines["sequenceNumber"].value) == (72, 9)
    assert lines["encodingType"].meaning == "SBE 1.0 little-endian"
    assert lines["Order_MBO_50"].offset == 16
    assert (lines["mDEntryPx"].value, lines["mDEntryPx"].tag) == ("12.3400", 270)
    assert (lines["mDEntryPx"].offset, lines["mDEntryPx"].raw) == (40, (123_400).to_bytes(8, "little"))
    assert lines["matchEventIndicator"].meaning.startswith("7 ")
    assert lines["transactTime"].meaning == "2020-09-13 12:26:40.123456789 UTC"
    assert lines["enteringFirm"].meaning == "absent"
    assert lines["mDEntryPositionNo"].meaning == "absent: until version 15"
    assert lines["padding"].raw == bytes(4)
    assert lines["securityExchange"].value == "BVMF"
    assert lines["securityExchange"].offset is None


def test_fields_beyond_a_shorter_block_are_explained_as_absent() -> None:
    lines = lines_of(encode_packet([encode_message(SCHEMA, ORDER, sample_values(ORDER), lengths={"": 64})]))
    assert lines["mDEntryPrevSize"].meaning == "absent: beyond the sent block"
    assert lines["block"].meaning == "64 bytes; this schema has 72"
    older = lines_of(encode_packet([encode_message(SCHEMA, ORDER, sample_values(ORDER, 15), 15)]))
    assert older["mDEntryPrevSize"].meaning == "absent: since version 16"
    assert older["mDEntryPositionNo"].value == 3
    assert "block" not in older


def test_what_the_schema_does_not_know_is_shown_as_unknown() -> None:
    lines = lines_of(encode_packet([frame(b"12345", 5, 49)]))
    assert lines["unknown bytes"].raw == b"12345"
    assert "template 49" in lines


def test_padding_inside_and_before_a_composite_is_explained() -> None:
    schema = loads(
        b"""<messageSchema package="gaps" id="9" version="3" byteOrder="littleEndian"><types>
        <type name="u8" primitiveType="uint8"/><composite name="pair"><type name="x" primitiveType="uint8" offset="1"/>
        <type name="y" primitiveType="uint16" offset="4"/></composite></types>
        <message name="Gap_1" id="1" blockLength="16"><field name="a" id="1" type="u8"/>
        <field name="p" id="2" type="pair" offset="4"/><field name="z" id="3" type="u8" offset="12"/></message>
        </messageSchema>"""
    )
    packets = [encode_packet([frame(bytes(range(1, size + 1)), size, 1, 9, 3)]) for size in range(20)]
    assert_explained(schema, packets)
