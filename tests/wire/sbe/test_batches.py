"""Batches: however packets are cut into them and wherever they lie, the same rows come out, and stay."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.sbe.packet_builders import (
    NESTED,
    SCHEMA,
    VERSIONS,
    assert_consistent,
    assert_equals_reference,
    concatenate_packets,
    decode,
    decoded_rows,
    fields_of,
    tables,
)
from wire.sbe.reference_codec import encode_message, encode_packet, frame
from wire.sbe.strategies import encoded_messages, sample_values

from umdf.errors import UmdfError
from umdf.wire.sbe import column_store
from umdf.wire.sbe.arrow import arrow_schema
from umdf.wire.sbe.column_store import INITIAL_CAPACITY, INITIAL_DATA_CAPACITY
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.headers import read_packet_headers
from umdf.wire.sbe.schema import Schema
from umdf.wire.sbe.tables_kernel import PASS_PACKETS, WINDOW_PACKETS

ORDER = SCHEMA.message_by_name("Order_MBO_50")
PACKETS = st.lists(
    st.lists(encoded_messages(SCHEMA, VERSIONS), max_size=3).map(encode_packet) | st.binary(max_size=40),
    min_size=1,
    max_size=8,
)
ALL = [
    encode_packet([encode_message(SCHEMA, message, sample_values(message, version), version)], (7, 8, number, 10))
    for version in VERSIONS
    for number, message in enumerate(SCHEMA.messages.values())
]


@given(PACKETS, st.integers(1, 8))
def test_packets_decode_the_same_in_one_batch_and_in_many(packets: list[bytes], size: int) -> None:
    decoder = Decoder(SCHEMA)
    whole = decoded_rows(decode(packets, decoder=decoder))
    cut = [
        (packet + at, *rest)
        for at in range(0, len(packets), size)
        for packet, *rest in decoded_rows(decode(packets[at : at + size], decoder=decoder))
    ]
    assert cut == whole


@pytest.mark.parametrize("common", [1, 30, 300], ids="all alike|some more|nearly one template".split("|"))
def test_a_large_batch_equals_its_packets_decoded_one_by_one(common: int) -> None:
    """Rows that are few wait for others of their kind over many passes, and memory grows in the middle of it."""
    random, order = Random(common), encode_message(SCHEMA, ORDER, sample_values(ORDER))
    kinds = [*ALL, b"cut", encode_packet([]), encode_packet([order] * 3), ALL[7][:-3], bytes(random.randbytes(60))]
    weights = [common if packet is kinds[-3] else 1 for packet in kinds]
    packets = random.choices(kinds, weights, k=2 * WINDOW_PACKETS + 700)
    decoder = Decoder(SCHEMA)
    whole = decode(packets, decoder=Decoder(SCHEMA))
    assert_consistent(whole)
    cut = [
        (packet + at, *rest)
        for at in range(0, len(packets), PASS_PACKETS - 1)
        for packet, *rest in decoded_rows(decode(packets[at : at + PASS_PACKETS - 1], decoder=decoder))
    ]
    assert decoded_rows(whole) == cut
    assert len(whole.quarantine) == sum(len(decode([packet], decoder=decoder).quarantine) for packet in packets)


@given(PACKETS, st.randoms(use_true_random=False), st.integers(0, 70))
def test_packets_may_lie_anywhere_in_the_buffer(packets: list[bytes], random: Random, gap: int) -> None:
    places = list(range(len(packets)))
    random.shuffle(places)
    buffer, start, end = bytearray(b"\xee" * gap), np.zeros(len(packets), np.int64), np.zeros(len(packets), np.int64)
    for number in places:
        start[number] = len(buffer)
        buffer += packets[number]
        end[number] = len(buffer)
        buffer += b"\xee" * gap
    batch = Decoder(SCHEMA).decode(np.frombuffer(bytes(buffer), np.uint8), start, end)
    assert_equals_reference(batch, packets)


def test_packets_may_overlap_and_repeat() -> None:
    buffer, _, _ = concatenate_packets(ALL[:1])
    size = len(buffer)
    batch = Decoder(SCHEMA).decode(buffer, np.array([0, 0, 0, 4]), np.array([size, size, size - 1, size]))
    assert_equals_reference(batch, [ALL[0], ALL[0], ALL[0][:-1], ALL[0][4:]])


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (0, 41), (11, 10), (41, 41), (1 << 62, 1 << 62)])
def test_a_packet_outside_the_buffer_is_the_callers_mistake(start: int, end: int) -> None:
    decoder, buffer = Decoder(SCHEMA), np.zeros(40, np.uint8)
    with pytest.raises(ValueError, match="outside the buffer"):
        decoder.decode(buffer, np.array([0, start]), np.array([40, end]))
    assert_equals_reference(decode(ALL, decoder=decoder), ALL)


@pytest.mark.parametrize(("start", "end"), [(-1, 30), (-40, -10), (0, 41), (-(1 << 62), 0), (100, 140)])
def test_headers_of_packets_outside_the_buffer_are_not_read(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="outside the buffer"):
        read_packet_headers(np.zeros(40, np.uint8), np.array([0, start]), np.array([40, end]))


def test_offsets_changed_after_decoding_do_not_read_outside_the_buffer() -> None:
    buffer, start, end = concatenate_packets(ALL)
    batch = Decoder(SCHEMA).decode(buffer, start, end)
    start += 1 << 40
    end += 1 << 40
    with pytest.raises(ValueError, match="outside the buffer"):
        _ = batch.sequence


@pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["exchange", "nested"])
def test_tables_grow_as_rows_come(schema: Schema) -> None:
    made = [
        encode_message(schema, m, sample_values(m, schema.version), schema.version) for m in schema.messages.values()
    ]
    packets = [
        encode_packet([message], (1, 1, number, 0)) for number in range(3 * INITIAL_CAPACITY) for message in made
    ]
    packets = packets[: 3 * INITIAL_CAPACITY * len(made)]
    batch = decode(packets, schema)
    assert_consistent(batch)
    assert [len(table) for table in tables(batch)] == [3 * INITIAL_CAPACITY] * len(made)
    assert decoded_rows(batch)[-len(made) :] == [
        (len(packets) - len(made) + number, 0, *rest)
        for number, (_, _, *rest) in enumerate(decoded_rows(decode(packets[-len(made) :], schema)))
    ]
    for table in tables(batch):
        first = table.slice(0, 1).drop_columns(["packet"]).to_pylist()
        assert table.drop_columns(["packet"]).to_pylist() == first * table.num_rows


def test_a_batch_keeps_its_values_while_the_next_ones_are_decoded() -> None:
    decoder, held = Decoder(SCHEMA), []
    for number in range(12):
        order = sample_values(ORDER) | {"securityID": number}
        definition = sample_values(SCHEMA.messages[12]) | {"securityID": number, "securityDesc": f"text {number}"}
        made = [encode_message(SCHEMA, ORDER, order), encode_message(SCHEMA, SCHEMA.messages[12], definition)]
        batch = decode([encode_packet(made, (1, 1, number, 0))] * 5, decoder=decoder)
        keep = [lambda b: b, tables, lambda b: [t.column(5) for t in tables(b)], lambda b: b.sequence][number % 4]
        held.append((keep(batch), number))
        del batch
    for kept, number in held:
        match kept:
            case np.ndarray():
                assert kept.tolist() == [number] * 5
            case [pa.RecordBatch(), *_]:
                assert [t.column("securityID").to_pylist() for t in kept] == [[number] * 5] * 2
                assert kept[0].column("securityDesc").to_pylist() == [f"text {number}".encode()] * 5
            case [pa.Array(), *_]:
                fresh = decode([encode_packet([encode_message(SCHEMA, ORDER, sample_values(ORDER))])])
                assert kept[-1].to_pylist() == fresh.record_batch(50).column(5).to_pylist() * 5
            case _:
                assert {fields["securityID"] for fields in fields_of(kept)} == {number}
                assert_consistent(kept)


def test_a_record_batch_in_use_outlives_its_batch() -> None:
    decoder = Decoder(SCHEMA)
    held = tables(decode(ALL, decoder=decoder))
    before = [table.to_pylist() for table in held]
    for _ in range(8):
        tables(decode([bytes(reversed(packet)) for packet in ALL] + ALL[::-1], decoder=decoder))
    assert [table.to_pylist() for table in held] == before


def test_an_empty_batch_has_no_rows() -> None:
    batch = Decoder(SCHEMA).decode(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    assert decoded_rows(batch) == []
    assert batch.templates == []
    assert batch.quarantine == []
    assert len(batch.sequence) == 0


def test_a_batch_has_no_rows_of_the_previous_batch() -> None:
    decoder = Decoder(SCHEMA)
    decode([*ALL, b"cut"], decoder=decoder)
    batch = decode([ALL[0]], decoder=decoder)
    assert_equals_reference(batch, [ALL[0]])


def test_a_packet_of_only_a_header_is_sound() -> None:
    packets = [encode_packet([], (72, 5, 6, 7)), encode_packet([], (255, 65535, (1 << 32) - 1, (1 << 64) - 1), 1)]
    batch = decode(packets)
    assert batch.quarantine == []
    assert_equals_reference(batch, packets)


def test_the_reserved_byte_is_not_looked_at() -> None:
    packet = encode_packet([encode_message(SCHEMA, ORDER, sample_values(ORDER))], reserved=1)
    assert len(decoded_rows(decode([packet]))) == 1


def test_heartbeats_decode() -> None:
    heartbeat = encode_message(SCHEMA, SCHEMA.message_by_name("Sequence_2"), {"nextSeqNo": 10})
    batch = decode([encode_packet([heartbeat], (72, 1, 0, 5))] * 3)
    assert fields_of(batch) == [{"nextSeqNo": 10}] * 3
    assert batch.sequence.tolist() == [0, 0, 0]


def test_the_fullest_packet_decodes() -> None:
    """65,535 bytes of messages without a block: 5,459 of them, and 11 bytes that are none."""
    packet = encode_packet([frame(b"", 0, 1)] * 5459).ljust(65535, b"\0")
    batch = decode([packet] * 3)
    assert len(batch.record_batch(1)) == 3 * 5459
    assert batch.messages.tolist() == [5460] * 3
    assert batch.msg_index(batch.layout.roots[1]).tolist() == [*range(5459)] * 3
    assert_consistent(batch)


def test_a_packet_too_long_for_udp_is_refused_whole() -> None:
    packet = encode_packet([frame(b"", 0, 1)] * 5459).ljust(65536, b"\0")
    batch = decode([packet, ALL[0]])
    assert_equals_reference(batch, [packet, ALL[0]])
    assert "longer than 65535" in batch.quarantine[0].reason


def test_packets_more_than_4_gib_apart_decode_and_a_packet_of_that_size_is_refused(tmp_path: Path) -> None:
    far, sparse = 5 << 30, tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(far + 4096)
    with sparse.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        buffer = np.frombuffer(memory, np.uint8)
        places = [far, 0, far, 100, 0, 0]
        for at in set(places):
            memory[at : at + len(ALL[3])] = ALL[3]
        start = np.array(places)
        end = start + len(ALL[3])
        end[4] = far  # a packet of 5 GiB
        batch = Decoder(SCHEMA).decode(buffer, start, end)
        rows, lines = decoded_rows(batch), batch.quarantine
        del buffer, batch
    assert [packet for packet, *_ in rows] == [0, 1, 2, 3, 5]
    assert [(line.packet, line.reason) for line in lines] == [(4, f"a packet of {far} bytes is longer than 65535")]


@pytest.mark.parametrize("packets", [ALL, ALL[-60:]], ids=["all versions", "today's"])
def test_without_validity_null_values_stand_as_they_were_sent(packets: list[bytes]) -> None:
    decoder, plain = Decoder(SCHEMA, validity=False), Decoder(SCHEMA)
    decode(ALL * 2, decoder=decoder)  # leaves values in memory that is used again
    batch, usual = decode(packets, decoder=decoder), decode(packets, decoder=plain)
    assert_consistent(batch)
    for template_id in batch.templates:
        node, other = batch.layout.roots[template_id], usual.layout.roots[template_id]
        table, wanted = batch.record_batch(template_id), usual.record_batch(template_id)
        for column, same in zip(node.columns, other.columns, strict=True):
            null = b"" if column.is_text else column.part.null
            values = wanted.column(column.name)
            expected = values if null is None else values.fill_null(null)
            assert table.column(column.name).to_pylist() == expected.to_pylist(), column.name
            if not column.is_text and null is not None:
                assert batch.values(node, column).tolist() == expected.to_pylist()
                assert usual.values(other, same).tolist() == expected.to_pylist()


def test_a_position_that_no_row_has_reads_as_null_values() -> None:
    message = encode_message(SCHEMA, ORDER, sample_values(ORDER), padding=0xCC)
    decoder = Decoder(SCHEMA)
    decode([encode_packet([encode_message(SCHEMA, ORDER, sample_values(ORDER, 10), 10)])] * 50, decoder=decoder)
    batch = decode([encode_packet([message])] * 50, decoder=decoder)
    node = batch.layout.roots[50]
    column = next(c for c in node.columns if c.name == "mDEntryPositionNo")
    assert batch.values(node, column).tolist() == [0] * 50
    assert batch.record_batch(50).column("mDEntryPositionNo").null_count == 50


def test_a_table_can_be_sliced_and_sent_on() -> None:
    batch = decode(ALL)
    for table in tables(batch):
        part = table.slice(3, 4)
        part.validate(full=True)
        assert part.to_pylist() == table.to_pylist()[3:7]
        assert pa.ipc.read_record_batch(part.serialize(), part.schema).equals(part)


def test_a_template_without_rows_is_an_empty_table() -> None:
    batch = decode([ALL[0]])
    for template_id in SCHEMA.messages:
        table = batch.record_batch(template_id)
        assert table.schema.equals(arrow_schema(batch.layout, template_id), check_metadata=True)
        assert table.num_rows == (template_id == 1)


def test_deleted_decoders_free_their_memory() -> None:
    layouts = []
    for _ in range(3):
        batch = decode(ALL)
        tables(batch)
        layouts.append(weakref.ref(batch.layout))
        del batch
    gc.collect()
    assert [layout() for layout in layouts] == [None] * 3


def test_more_text_than_arrow_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_store, "MAX_DATA_CAPACITY", INITIAL_DATA_CAPACITY)
    news = SCHEMA.message_by_name("News_5")
    packet = encode_packet([encode_message(SCHEMA, news, sample_values(news) | {"text": "A" * 50_000})])
    decoder = Decoder(SCHEMA)
    with pytest.raises(UmdfError, match="decode fewer packets per batch"):
        decode([packet] * 3, decoder=decoder)
    assert_equals_reference(decode([packet] * 2, decoder=decoder), [packet] * 2)


def test_record_batch_returns_the_same_table_twice() -> None:
    batch = decode(ALL)
    first = tables(batch)
    assert all(a.equals(b) for a, b in zip(first, tables(batch), strict=True))
    for table in first:
        table.validate(full=True)
