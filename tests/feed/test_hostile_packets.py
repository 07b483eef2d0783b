"""Hostile packets on the ports that a client has joined, between good ones: they are counted, and no book is wrong."""

from __future__ import annotations

import random
import socket

import numpy as np
import pytest
from feed.live_truth import Follower, LiveDay, is_line, write_day
from feed.test_live import addresses, on_free_ports, until

from umdf.feed.channel_feed import FeedSettings
from umdf.feed.channel_states import FeedState
from umdf.feed.live import Live
from umdf.feed.replay import UdpReplay
from umdf.transport.channels_file import LOOPBACK

# Binary: packet header of 16 bytes, framing header of 4, SBE header of 8, then the SecurityID of an Order_MBO_50.
TEMPLATE, SECURITY_ID, ORDER = slice(22, 24), slice(28, 36), 50
SEQUENCE_VERSION, SCHEMA_VERSION = slice(2, 4), slice(26, 28)
FIRST_BYTE_OF_CHANNEL = 0
AT_ONCE = 100


def replaced(packet: bytes, where: slice, value: int) -> bytes:
    changed = bytearray(packet)
    changed[where] = value.to_bytes(where.stop - where.start, "little")
    return bytes(changed)


def hostile(choose: random.Random, packet: bytes) -> list[bytes]:
    """What cannot be of this channel, whatever the protocol."""
    return [
        *(choose.randbytes(size) for size in (0, 1, 15, 60, 1_400, 9_000)),
        packet[: choose.randrange(len(packet))],
        packet + choose.randbytes(3),
        bytes([packet[FIRST_BYTE_OF_CHANNEL] ^ 0x40]) + packet[1:],
        choose.randbytes(16) + packet[16:],
    ]


@pytest.fixture(scope="module", params=["sbe", "fast"])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    return write_day(tmp_path_factory.mktemp("hostile") / "day", request.param, channel_reset=False)


def test_hostile_packets_between_good_ones_are_dropped_and_disturb_no_book(day: LiveDay) -> None:
    choose, channels = random.Random(5), on_free_ports(day)
    ports = [where.port for where in addresses(channels).values()]
    follower, wrong_ids, hostile_count, sent = Follower(day), 0, 0, 0
    batches = list(day.packets(iter(lambda: AT_ONCE, None)))
    with (
        Live(channels, settings=FeedSettings(keeps_joined=True)) as live,
        UdpReplay(addresses(channels)) as target,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker,
    ):
        (follower.feed,) = live.client.feeds.values()
        line_a = next(where.port for line, where in addresses(channels).items()
                      if (line.stream, line.line) == ("incremental", "A"))  # fmt: skip
        for number, batch in enumerate(batches):
            rows = np.flatnonzero(is_line(batch, "incremental", "A"))
            good = [batch.buffer[batch.start[row] : batch.end[row]].tobytes() for row in rows.tolist()]
            datagrams = [(port, data) for data in hostile(choose, good[0] if good else bytes(40)) for port in ports]
            # As long as a list and a snapshot loop follow: framed packets with wrong content, before the good ones.
            if day.protocol == "sbe" and number < len(batches) // 2:
                orders = [packet for packet in good if int.from_bytes(packet[TEMPLATE], "little") == ORDER]
                datagrams += [(line_a, replaced(packet, SECURITY_ID, 999_000_000 + number)) for packet in orders[:1]]
                datagrams += [(line_a, replaced(packet, SEQUENCE_VERSION, 9_999)) for packet in good[:1]]
                datagrams += [(line_a, replaced(packet, SCHEMA_VERSION, 99)) for packet in orders[1:2]]
                wrong_ids += len(orders[:1])
            for port, data in datagrams:
                attacker.sendto(data, (LOOPBACK, port))
            target.send(batch)
            hostile_count, sent = hostile_count + len(datagrams), sent + len(datagrams) + len(batch)
            until(lambda sent=sent: sum(each.packets for each in live.receiver.counts().values()) >= sent,
                  lambda: live.poll(0.05))  # fmt: skip
            follower.compare()
        until(lambda: follower.feed.state == FeedState.LIVE, lambda: live.poll(0.05))
        follower.compare()
        follower.assert_all_right()
        (status,) = live.status()
    assert follower.compared > 100 and follower.feed.instrument_ids() <= set(day.instrument_ids)
    assert status.dropped > hostile_count // 2 and live.receiver.truncated > 0
    if day.protocol == "sbe":
        assert wrong_ids > 5 and status.totals.lines["A"].quarantined > 0 and status.totals.gaps > 0
