"""The sample packet of the reference (section 6): its framing.

Three of its rows are damaged in print and its bodies are of an older layout, so only what 6.1 to 6.5 state is held
against the codec; the bodies are zeros here. The version of the second message is 10 in the dump and 15 in 6.5.
"""

from __future__ import annotations

import pytest
from wire.sbe.packet_builders import SCHEMA, assert_equals_reference, decode, decoded_rows
from wire.sbe.strategies import sample_values

from umdf.units import utc_text
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.explain import explain

PACKET_HEADER = "37 00 01 00 b1 68 de 3a 00 c8 98 65 f4 ac eb 15"
FIRST = "4c 00 50 eb 40 00 32 00 02 00 0f 00"
SECOND = {10: "44 00 50 eb 38 00 35 00 02 00 0a 00", 15: "44 00 50 eb 38 00 35 00 02 00 0f 00"}
SENT = 1_579_546_260_000_000_000
PRINTED = pytest.mark.parametrize("version", SECOND, ids=["as in the dump", "as in 6.5"])


def sample(version: int) -> bytes:
    headers = bytes.fromhex(PACKET_HEADER), bytes.fromhex(FIRST), bytes.fromhex(SECOND[version])
    return headers[0] + headers[1] + bytes(64) + headers[2] + bytes(56)


@PRINTED
def test_the_sample_packet_has_two_messages(version: int) -> None:
    packet = sample(version)
    assert len(packet) == 0xA0
    batch = decode([packet])
    assert [(index, template) for _, index, template, _ in decoded_rows(batch)] == [(0, 50), (1, 53)]
    assert batch.quarantine == []
    assert_equals_reference(batch, [packet])


@PRINTED
def test_the_sample_packets_header_is_read_as_the_reference_says(version: int) -> None:
    batch = decode([sample(version)])
    assert batch.channel.tolist() == [55]
    assert batch.seq_version.tolist() == [1]
    assert batch.sequence.tolist() == [987654321]
    assert batch.sending_time.tolist() == [SENT]
    assert utc_text(SENT) == "2020-01-20 18:51:00.000000000"


@PRINTED
def test_the_sample_packets_framing_stands_where_the_reference_says(version: int) -> None:
    stated = {
        0x10: ("messageLength", 76),
        0x12: ("encodingType", 0xEB50),
        0x14: ("blockLength", 64),
        0x16: ("templateId", 50),
        0x18: ("schemaId", 2),
        0x1A: ("version", 15),
        0x5C: ("messageLength", 68),  # 6.4 counts from 0058, four bytes before what the dump shows
        0x5E: ("encodingType", 0xEB50),
        0x60: ("blockLength", 56),
        0x62: ("templateId", 53),
        0x64: ("schemaId", 2),
        0x66: ("version", version),
    }
    lines = {line.offset: (line.name, line.value) for line in explain(SCHEMA, sample(version)) if line.raw}
    assert {at: lines[at] for at in stated} == stated


@pytest.mark.parametrize(("template", "framing"), [(50, FIRST), (53, SECOND[15])])
def test_we_frame_version_15_as_the_sample_does(template: int, framing: str) -> None:
    message = SCHEMA.messages[template]
    header = {"channel": 55, "seq_version": 1, "sequence": 987654321, "sending_time": SENT}
    encoded = compose(SCHEMA, [Packet([(template, sample_values(message, 15))], **header)], 15).buffer.tobytes()
    assert encoded[:16] == bytes.fromhex(PACKET_HEADER)
    assert encoded[16:28] == bytes.fromhex(framing)
