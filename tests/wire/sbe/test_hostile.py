"""Bytes that are cut, wrong or meant to hurt are quarantined, counted and passed over; nothing else happens."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.mutations import CORPUS, as_bytes, mutated
from wire.sbe.packet_builders import (
    NESTED,
    SCHEMA,
    assert_consistent,
    assert_equals_reference,
    decode,
    decoded_rows,
    fields_of,
    versions_of,
)
from wire.sbe.reference_codec import encode_message, encode_packet, frame
from wire.sbe.strategies import encoded_messages, sample_values

from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.schema import Message, Schema

ORDER = SCHEMA.message_by_name("Order_MBO_50")
GOOD = encode_message(SCHEMA, ORDER, sample_values(ORDER))
BOTH = pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["exchange", "nested"])
TESTS = Path(__file__).parents[2]


def quarantined(batch: Batch) -> list[tuple[int, str, str]]:
    return [(line.msg_index, line.field, line.reason) for line in batch.quarantine]


EVERY = pytest.mark.parametrize(
    ("schema", "message"),
    [pytest.param(s, m, id=m.name) for s in (SCHEMA, NESTED) for m in s.messages.values()],
)


@EVERY
def test_a_packet_cut_at_any_byte_keeps_what_came_before_the_cut(schema: Schema, message: Message) -> None:
    made = encode_message(schema, message, sample_values(message, schema.version), schema.version)
    whole = encode_packet([made, made], (1, 2, 3, 4))
    packets = [whole[:size] for size in range(len(whole))]
    batch = decode(packets, schema)
    assert_equals_reference(batch, packets, schema)
    assert len(decoded_rows(batch)) == len(made)  # the first message, in every packet that holds all of it


@EVERY
def test_a_message_cut_at_any_byte_is_quarantined_and_the_next_message_is_read(
    schema: Schema, message: Message
) -> None:
    made = encode_message(schema, message, sample_values(message, schema.version), schema.version)
    packets = [encode_packet([struct.pack("<H", size) + made[2:size], made]) for size in range(12, len(made))] or [
        encode_packet([made])
    ]
    batch = decode(packets, schema)
    assert_equals_reference(batch, packets, schema)
    assert {packet for packet, *_ in decoded_rows(batch)} == {*range(len(packets))}
    assert len(batch.quarantine) == len(made) - 12


@pytest.mark.parametrize("length", range(0, 12))
def test_a_message_length_below_its_header_ends_the_packet(length: int) -> None:
    bad = struct.pack("<H", length) + GOOD[2:]
    packets = [encode_packet([GOOD, bad, GOOD]), encode_packet([GOOD])]
    batch = decode(packets)
    assert_equals_reference(batch, packets)
    assert quarantined(batch) == [(1, "", f"messageLength {length} is less than its own header of 12")]
    assert (batch.quarantine[0].packet, batch.quarantine[0].offset, batch.quarantine[0].template_id) == (
        0,
        16 + len(GOOD),
        50,
    )


@pytest.mark.parametrize("length", [len(GOOD) + 1, 0x7FFF, 0x8000, 0xFFFF])
def test_a_message_length_past_the_end_ends_the_packet(length: int) -> None:
    packets = [encode_packet([GOOD, struct.pack("<H", length) + GOOD[2:]]), encode_packet([GOOD])]
    batch = decode(packets)
    assert_equals_reference(batch, packets)
    assert quarantined(batch) == [(1, "", f"messageLength {length} exceeds the packet: {len(GOOD)} bytes left")]


@pytest.mark.parametrize("block", [73, 74, 0x7FFF, 0xFFFF])
def test_a_block_past_its_message_is_quarantined_and_the_next_message_is_read(block: int) -> None:
    packet = encode_packet([GOOD[:4] + struct.pack("<H", block) + GOOD[6:], GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(0, "", f"blockLength {block} exceeds the message: 72 bytes left")]
    assert [index for _, index, *_ in decoded_rows(batch)] == [1]


def test_a_group_of_255_entries_with_no_data_is_quarantined() -> None:
    packet = encode_packet([frame(bytes(8) + struct.pack("<HB", 42, 255), 8, 71), GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(0, "noMDEntries", "the group's entries need 10710 bytes, 0 left in the message")]


def test_a_group_of_entries_without_bytes_is_quarantined() -> None:
    packet = encode_packet([frame(bytes(8) + struct.pack("<HB", 0, 255), 8, 71), GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(0, "noMDEntries", "the group has 255 entries of zero bytes")]


def test_a_group_without_entries_may_have_any_block_length() -> None:
    packet = encode_packet([frame(bytes(8) + struct.pack("<HB", length, 0), 8, 71) for length in (0, 1, 0xFFFF)])
    assert fields_of(decode([packet])) == [{"securityID": 0}] * 3


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_cut_group_header_is_quarantined(left: int) -> None:
    packet = encode_packet([frame(bytes(8 + left), 8, 71), GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(0, "noMDEntries", f"the group's header needs 3 bytes, {left} left in the message")]


@pytest.mark.parametrize("length", [1, 255, 0x7FFF, 0xFFFF])
def test_data_past_the_end_is_quarantined(length: int) -> None:
    packet = encode_packet([frame(bytes(36) + struct.pack("<HH", 0, length), 36, 5), GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(0, "text", f"a length of {length} exceeds the message: 0 bytes left")]
    assert len(decoded_rows(batch)) == 1


@pytest.mark.parametrize(
    ("count", "block"), [(1 << 31, 1 << 31), (0xFFFFFFFF, 0xFFFFFFFF), (1, 0x10000), (0xFFFFFFFF, 1)]
)
def test_the_widest_group_headers_do_not_wrap(count: int, block: int) -> None:
    outer = struct.pack("<HB", 6, 1) + bytes(6)
    packet = encode_packet([frame(bytes(5) + outer + struct.pack("<II", block, count) + bytes(9), 5, 1, 9, 3)])
    batch = decode([packet], NESTED)
    assert_equals_reference(batch, [packet], NESTED)
    assert [(line.field, line.offset) for line in batch.quarantine] == [("outer.inner", 42)]


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_the_widest_data_lengths_do_not_wrap(length: int) -> None:
    groups = struct.pack("<HBHB", 6, 0, 2, 0)
    packet = encode_packet([frame(bytes(5) + groups + b"\0" + struct.pack("<I", length) + bytes(9), 5, 1, 9, 3)])
    batch = decode([packet], NESTED)
    assert_equals_reference(batch, [packet], NESTED)
    assert [line.field for line in batch.quarantine] == ["last"]


def test_what_the_schema_does_not_know_is_skipped_and_the_others_are_read() -> None:
    strange = [
        frame(b"12345", 5, 49),
        frame(b"", 0, 58),
        frame(b"123", 3, 50, 3),
        frame(b"", 0, 0),
        frame(b"", 0, 65535),
    ]
    packet = encode_packet([GOOD, *strange, GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert [index for _, index, *_ in decoded_rows(batch)] == [0, 6]
    assert all(line.is_skipped for line in batch.quarantine)


def test_a_wrong_encoding_is_quarantined_and_the_others_are_read() -> None:
    packet = encode_packet([GOOD, GOOD[:2] + b"\x5b\xe0" + GOOD[4:], GOOD])
    batch = decode([packet])
    assert_equals_reference(batch, [packet])
    assert quarantined(batch) == [(1, "", "encodingType 0xe05b is not SBE 1.0 little-endian (0xeb50)")]
    assert not batch.quarantine[0].is_skipped


def test_a_message_damaged_at_its_end_leaves_no_rows() -> None:
    """Groups were walked and texts copied before the fault: all of it is taken back."""
    tree = NESTED.message_by_name("Tree_1")
    sound = sample_values(tree, 3)
    whole = encode_message(NESTED, tree, sound, 3)
    bad = encode_packet([whole[:-4], whole])
    bad = bad[:16] + struct.pack("<H", len(whole) - 4) + bad[18:]
    packets = [encode_packet([whole]), bad, encode_packet([whole])]
    batch = decode(packets, NESTED)
    assert_equals_reference(batch, packets, NESTED)
    assert fields_of(batch) == [sound] * 3
    assert [line.field for line in batch.quarantine] == ["last"]
    table = batch.record_batch(1)
    assert len(table.column("outer").flatten()) == 3


def test_texts_outgrow_their_memory_among_bad_messages() -> None:
    news = SCHEMA.message_by_name("News_5")
    packets = []
    for number in range(60):
        content = sample_values(news) | {"newsID": number + 1, "text": bytes([65 + number % 26]) * 20_000}
        whole = encode_message(SCHEMA, news, content)
        cut = struct.pack("<H", len(whole) - 1) + whole[2:-1]
        packets.append(encode_packet([whole, cut, whole]))
    batch = decode(packets)
    assert_equals_reference(batch, packets)
    assert len(batch.quarantine) == 60


def test_the_quarantine_grows_and_keeps_every_row() -> None:
    packets = [encode_packet([frame(b"", 0, 900 + number)] * 1000) for number in range(5)]
    batch = decode(packets)
    assert_equals_reference(batch, packets)
    assert len(batch.quarantine) == 5000


def test_the_fullest_group_of_one_byte_entries_is_read() -> None:
    entries = b"".join(bytes(8) + struct.pack("<HB", 1, 255) + bytes(255) for _ in range(1))
    packet = encode_packet([frame(entries, 8, 71)] * 230)
    batch = decode([packet] * 3)
    assert_consistent(batch)
    assert len(batch.record_batch(71).column("noMDEntries").flatten()) == 3 * 230 * 255
    wide = struct.pack("<HBBIIII", 1, 1, 0, 1, 0, 0, 0)
    assert_equals_reference(
        decode([encode_packet([frame(wide, 0, 1, 9, 1)])], NESTED), [encode_packet([frame(wide, 0, 1, 9, 1)])], NESTED
    )


@BOTH
@given(st.data())
def test_random_bytes_are_read_as_the_reference_reads_them(schema: Schema, data: st.DataObject) -> None:
    noise = st.binary(max_size=200)
    headed = st.builds(lambda h, b: encode_packet([h[:2] + b"\x50\xeb" + b]), noise, noise)
    body = st.builds(
        lambda body, block, template, version: encode_packet([frame(body, block, template, schema.id, version)]),
        st.binary(max_size=300),
        st.integers(0, 300),
        st.sampled_from([*schema.messages, 49]),
        st.sampled_from(versions_of(schema)),
    )
    packets = data.draw(st.lists(noise | headed | body, min_size=1, max_size=6))
    assert_equals_reference(decode(packets, schema), packets, schema)


@BOTH
@given(st.data())
def test_damaged_packets_are_read_as_the_reference_reads_them(schema: Schema, data: st.DataObject) -> None:
    versions = versions_of(schema)
    packet = bytearray(encode_packet(data.draw(st.lists(encoded_messages(schema, versions), min_size=1, max_size=3))))
    for _ in range(data.draw(st.integers(1, 4))):
        packet[data.draw(st.integers(16, len(packet) - 1))] = data.draw(
            st.sampled_from([0, 1, 12, 254, 255]) | st.integers(0, 255)
        )
    packets = [bytes(packet), bytes(packet[: data.draw(st.integers(0, len(packet)))])]
    assert_equals_reference(decode(packets, schema), packets, schema)


@BOTH
def test_the_corpus_of_the_fuzz_is_sound(schema: Schema) -> None:
    batch = decode(CORPUS[schema.id], schema)
    assert_equals_reference(batch, CORPUS[schema.id], schema)
    assert set(batch.templates) == set(schema.messages)


@BOTH
def test_fuzz_mutated_packets(schema: Schema, sized: Callable[[int, int], int]) -> None:
    """Counts add up and every table is valid in all of them; rows and journal are the reference's in some batches."""
    random = np.random.default_rng()
    seed = int(random.integers(1 << 62))
    random, decoder, size, found, refused = np.random.default_rng(seed), Decoder(schema), 5_000, 0, 0
    print(f"seed {seed}")  # shown when it fails
    for number in range(sized(20_000, 1_000_000) // 2 // size):
        packets = mutated(schema, size, random)
        batch = decoder.decode(*packets)
        assert_consistent(batch)
        found, refused = found + int(batch.rows.sum()), refused + len(batch.quarantine)
        if number % sized(1, 10) == 0:
            assert_equals_reference(batch, as_bytes(packets, np.arange(size)), schema)
    assert found and refused


GUARDED = """
import sys
from wire.sbe.guarded_memory import decode_in_guarded_memory
decode_in_guarded_memory(int(sys.argv[1]), int(sys.argv[2]))
"""


def test_fuzz_nothing_is_read_or_written_outside_the_buffers(sized: Callable[[int, int], int]) -> None:
    """Packets and tables end where a page without access begins, in a process of their own: a touch would kill it."""
    seed = int(np.random.default_rng().integers(1 << 62))
    command = [sys.executable, "-c", GUARDED, str(seed), str(sized(4_000, 100_000))]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"seed {seed}: exit {ran.returncode}\n{ran.stderr[-2000:]}"
    assert "guarded" in ran.stdout


def test_reading_past_guarded_memory_kills_the_process() -> None:
    code = "from wire.sbe.guarded_memory import read_past_the_end; read_past_the_end()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=False)
    assert ran.returncode == -11
