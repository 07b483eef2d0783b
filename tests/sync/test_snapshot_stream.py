"""A snapshot stream: its parts are joined only if they are of one loop."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from sync.small_exchange import CHANNEL, MS, SCHEMA, SmallExchange
from sync.small_exchange_model import Instrument

from umdf.sync.snapshot_stream import MAX_PAUSE_NS, ReceivedSnapshot, SnapshotStream
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
    encoded = compose(SCHEMA, packets)
    codec = SbeUnits(Decoder(SCHEMA, validity=False), OtherVersions(SCHEMA), CHANNEL)
    ts = np.array(times)
    units, _ = codec.read(encoded.buffer, encoded.start, encoded.end, ts, 0, is_looping=True)
    stream = SnapshotStream()
    stream.add(units, [(when, number) for number, when in enumerate(times)])
    return sum(isinstance(found, ReceivedSnapshot) for found in stream.read(codec))


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
