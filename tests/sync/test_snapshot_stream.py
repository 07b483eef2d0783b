"""A snapshot stream: its parts are joined only if they are of one loop."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from sync.recorded_days import CHANNELS, Client
from sync.small_exchange import CHANNEL, MS, SCHEMA, SmallExchange
from sync.small_exchange_model import Instrument

from umdf.market.families import NULL
from umdf.sync.snapshot_stream import (
    MAX_PAUSE_NS,
    EarlySnapshots,
    Received,
    ReceivedSnapshot,
    SnapshotHeader,
    SnapshotStream,
)
from umdf.sync.unit_codecs import SbeUnits
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.schema import OtherVersions


def instrument() -> Instrument:
    """With some orders."""
    exchange = SmallExchange(Random(3))
    found = exchange.instruments[11]
    for _ in range(6):
        exchange.add_order(found)
    return found


def complete(numbers: list[int], times: list[int], parts: list[int]) -> int:
    """How many snapshots are complete, if these halves of one arrive, with these numbers and sending times."""
    messages = instrument().snapshot(50, 273, 1, None)
    assert len(messages) == 3
    halves = messages[:2], messages[2:]
    packets = [
        Packet(halves[part], CHANNEL, 7, number, ts) for number, ts, part in zip(numbers, times, parts, strict=True)
    ]
    return sum(isinstance(found, ReceivedSnapshot) for found in read(SnapshotStream(), packets))


def read(stream: SnapshotStream, packets: list[Packet]) -> list[Received]:
    encoded, times = compose(SCHEMA, packets), [packet.sending_time for packet in packets]
    codec = SbeUnits(Decoder(SCHEMA, validity=False), OtherVersions(SCHEMA), CHANNEL)
    units, _ = codec.read(encoded.buffer, encoded.start, encoded.end, np.array(times), 0, is_looping=True)
    stream.add(units, [(when, number) for number, when in enumerate(times)])
    return stream.read(codec)


@pytest.mark.parametrize(
    ("numbers", "pause_ns", "expected"),
    [
        ([4, 5], MS, 1),
        ([4, 5], MAX_PAUSE_NS + 1, 0),  # the second half is of the next loop, which has the same numbers
        ([4, 6], MS, 0),  # a packet between them was lost
        ([4, 4], MS, 0),
    ],
)
def test_halves_are_one_snapshot_if_they_were_sent_together(numbers: list[int], pause_ns: int, expected: int) -> None:
    assert complete(numbers, [1_000 * MS, 1_000 * MS + pause_ns], [0, 1]) == expected


def test_the_next_loop_has_the_whole_snapshot() -> None:
    times = [1_000 * MS, 2_000 * MS, 2_001 * MS]
    assert complete([4, 4, 5], times, [0, 0, 1]) == 1


def test_a_snapshot_that_never_ends_is_given_up() -> None:
    """Its packets are kept until it is complete, but not more bytes than allowed."""
    header, *orders = instrument().snapshot(50, 273, 1, None)
    endless, stream = (header[0], header[1] | {"totNumBids": 1_000_000}), SnapshotStream(max_bytes=5_000)
    assert not read(stream, [Packet([endless], CHANNEL, 7, 1, 1_000 * MS)])
    for number in range(2, 60):
        assert not read(stream, [Packet(orders, CHANNEL, 7, number, (1_000 + number) * MS)])
        assert sum(len(units.buffer) for units in stream._units) <= 5_000
    assert stream.dropped == 1  # what follows has no header
    whole = [Packet([header, *orders], CHANNEL, 7, 1, 2_000 * MS)]
    assert [type(found) for found in read(stream, whole)] == [ReceivedSnapshot]


def test_early_snapshots_are_bounded_and_the_oldest_go_first() -> None:
    early, last = EarlySnapshots(max_bytes=4_000), 0
    for loop in range(3):
        for number in range(20):
            last += 1
            found = Instrument(100 + number, "AA", orders=instrument().orders).snapshot(last, 273, 20, None)
            packet = Packet(found, CHANNEL, 7, 1 + number, (1_000 * (loop + 1) + number) * MS)
            for each in read(SnapshotStream(), [packet]):
                assert isinstance(each, ReceivedSnapshot)
                early.add(each)
            early.limit()
            assert early._nbytes <= 4_000
    assert early.newest() is not None and early.dropped > 20
    kept = [each for each in early.take() if isinstance(each, ReceivedSnapshot)]
    assert [each.header.sequence for each in kept] == list(range(61 - len(kept), 61)) and len(kept) > 1
    for each in kept:
        some = each.snapshots
        book = some.events_of(np.arange(len(some)) == each.row).rows("mbo")
        assert some.is_complete[each.row] and set(book.column("instrument_id")) == {99 + each.header.sequence - 40}
        assert len(book) == 1 + len(instrument().orders)
    assert early._nbytes == 0


def test_a_snapshot_that_states_no_epoch_and_began_before_this_one_is_not_of_it() -> None:
    """Before version 15: its first part was received before the numbering began, its last one after."""
    session = Client(CHANNELS["sbe-position"]).session
    [channel_input] = session._inputs.values()
    channel_input.epoch_start = 1_000, 7
    for at, is_usable in (((999, 6), False), ((1_000, 7), False), ((1_000, 8), True)):
        assert session._is_usable(channel_input, SnapshotHeader(at, 5, NULL, 0)) == is_usable
