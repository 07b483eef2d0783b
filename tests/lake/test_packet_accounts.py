"""What is said of packets: their order, and counts by value, against the slow and obvious way."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from umdf.lake.tasks.flow_packets import USED
from umdf.lake.tasks.gather import PacketRecords
from umdf.lake.tasks.packet_accounts import SECOND_NS, LoopingPackets, looping_quality, wire_order


def datagrams(lines: list[int], numbers: list[int], offsets: list[int]) -> PacketRecords:
    nothing, none = np.zeros(len(lines), np.int64), np.zeros(len(lines), np.int32)
    found = np.array(numbers, np.int64), nothing, nothing, none, none, np.array(offsets, np.int64), none
    return PacketRecords(np.array(lines, np.uint8), *found, np.zeros(len(lines), np.uint8))


@pytest.mark.parametrize(
    ("lines", "numbers", "offsets"),
    [
        ([], [], []),
        ([0, 0, 1, 1], [5, 6, 5, 6], [1, 2, 1, 2]),  # as it should be
        ([1, 1, 0, 0], [5, 6, 5, 6], [1, 2, 1, 2]),  # each line as it should be
        ([0, 1, 0, 1, 0], [5, 5, 4, 7, 6], [9, 1, 8, 2, 7]),  # a number that came late
        ([0, 0, 0], [5, 5, 5], [3, 1, 2]),  # the same number in files in any order
    ],
)
def test_datagrams_stand_by_line_number_and_offset(lines: list[int], numbers: list[int], offsets: list[int]) -> None:
    expected = sorted(range(len(lines)), key=lambda row: (lines[row], numbers[row], offsets[row]))
    order = wire_order(datagrams(lines, numbers, offsets))
    assert (list(range(len(lines))) if order is None else order.tolist()) == expected


@pytest.mark.parametrize("seconds", [[], [100], [100, 100, 103, 101, 100], [100, 4_000_000_000, 100, -7]])
def test_packets_are_counted_by_second_however_far_apart_a_damaged_clock_puts_them(seconds: list[int]) -> None:
    ts, some = np.array(seconds, np.int64) * SECOND_NS + 5, np.zeros(len(seconds), np.int64)
    size, verdict = np.full(len(seconds), 100, np.int32), np.full(len(seconds), USED, np.uint8)
    said = looping_quality([LoopingPackets("blake2b-256:00", 0, some, some, ts, ts, size, some, verdict)], 3)
    assert said["seconds"] == sorted(Counter(seconds).items())
