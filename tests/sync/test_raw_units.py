"""What is known of raw units without decoding them, and copies of them."""

from __future__ import annotations

import numpy as np
import pytest

from umdf.sync.raw_units import content_keys, data_units
from umdf.sync.raw_units_kernel import NEXT_SEQUENCE, PACKET_COLUMNS, USABLE, read_packets


def test_content_keys_tell_contents_apart():
    buffer = np.frombuffer(b"abcdefghijklmnopabcdefghijklmnoqabcdefgh", np.uint8)
    bounds = [(0, 16), (16, 32), (0, 8), (32, 40), (0, 0), (0, 7)]
    keys = content_keys(buffer, *(np.array(column, np.int64) for column in zip(*bounds, strict=True)))
    assert keys[2] == keys[3] and len(set(keys.tolist())) == 5 and (keys > 0).all()


def test_the_framing_of_a_packet_finds_truncated_ones_and_heartbeats():
    packet = bytes(16) + bytes([16, 0, 80, 235, 4, 0, 2, 0, 2, 0, 16, 0]) + (77).to_bytes(4, "little")
    other = packet[:22] + b"\x03" + packet[23:]
    too_long = other[:16] + b"\x11" + other[17:]
    buffer = np.frombuffer(packet + other + too_long + packet, np.uint8)
    start, end, found = np.array([0, 32, 64, 96]), np.array([32, 64, 96, 127]), np.zeros((PACKET_COLUMNS, 4), np.int64)
    source = buffer.ctypes.data, len(buffer), start.ctypes.data, end.ctypes.data
    assert read_packets(*source, 4, 0, found.ctypes.data) == 4
    assert found[NEXT_SEQUENCE].tolist() == [77, 0, 0, 0]
    assert found[USABLE].tolist() == [1, 0, 0, 0]  # without a number; too long a message; the last one is truncated


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
def test_compacted_units_hold_only_their_own_bytes(size: int):
    buffer = np.arange(200, dtype=np.uint8)
    start = np.array([3, 100], np.int64)
    zeros = np.zeros(2, np.int64)
    whole = data_units(buffer, start, start + size, zeros, zeros, zeros, *np.zeros((2, 2), np.uint16))
    packed = whole.compacted()
    assert packed.buffer.tobytes() == buffer[3 : 3 + size].tobytes() + buffer[100 : 100 + size].tobytes()
