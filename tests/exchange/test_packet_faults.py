"""What a faulty network does to single packets, to the numbers of one line, and to the answers of a replayer."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from umdf.errors import ConfigError
from umdf.exchange.network.faults import Faults, Outage, Renumbering, fault_keys, read_faults
from umdf.exchange.network.faulty_lines import CommonLoss, FaultyLines, StreamName
from umdf.exchange.network.faulty_replayer import FaultyReplayer
from umdf.exchange.network.renumbering import template_id, with_sequence
from umdf.exchange.publish.sinks import Packets
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load
from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import FixFramer, FixMessage, encode_message

MS, SECOND = 1_000_000, 1_000_000_000
SBE_HEADER, FAST_HEADER = struct.Struct("<BBHIQ"), struct.Struct(">IHHH")
HEARTBEAT = bytes([0xC0, 0x01, 0x90, 0x83, *[0x11] * 8, 0x81])  # template 144, MsgSeqNum 3


class Received:
    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []

    def write(self, packets: Packets) -> None:
        for start, end, ts in zip(packets.start.tolist(), packets.end.tolist(), packets.ts_ns.tolist(), strict=True):
            self.packets.append((ts, packets.buffer[start:end].tobytes()))

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


def sbe_packet(number: int) -> bytes:
    message = bytes(12)
    return SBE_HEADER.pack(72, 0, 7, number, number) + struct.pack("<HH", 12 + len(message), 0xEB50) + bytes(20)


def send(contents: list[bytes], faults: Faults, protocol: str = "sbe", stream: str = "incremental", seed: int = 1):
    """One packet a millisecond, on both lines."""
    lines = {"A": Received(), "B": Received()}
    name = StreamName(protocol, stream, 0)
    network = FaultyLines(lines, np.random.default_rng(seed), faults, stream=name)
    for number, content in enumerate(contents, 1):
        ends = np.array([len(content)])
        network.write(Packets(np.frombuffer(content, np.uint8), ends - ends, ends, np.array([number * MS]),
                              np.array([number]), np.array([number])))  # fmt: skip
        network.advance(number * MS)
    network.close()
    return [line.packets for line in lines.values()]


SENT = [sbe_packet(number) for number in range(1, 2_001)]


def test_packets_come_twice_and_late_but_in_order_of_their_arrival() -> None:
    faults = Faults(duplicates=0.1, reordering=0.1, late_ms=20.0)
    for received in send(SENT, faults):
        times, contents = zip(*received, strict=True)
        assert list(times) == sorted(times)
        assert 150 < len(received) - len(SENT) < 250 and set(contents) == set(SENT)
        numbers = [SBE_HEADER.unpack_from(content)[3] for content in contents]
        assert sum(one > other for one, other in pairwise(numbers)) > 100


def test_lines_are_delayed_and_line_b_is_behind() -> None:
    a, b = send(SENT, Faults(delay_ms=5.0, skew_ms=30.0))
    assert len(a) == len(b) == len(SENT)
    assert all(4 * MS < ts - number * MS < 6 * MS for number, (ts, _) in enumerate(a, 1))
    assert all(34 * MS < ts - number * MS < 36 * MS for number, (ts, _) in enumerate(b, 1))


def test_damage_shows_in_framing_or_header_and_never_in_a_value() -> None:
    for received in send(SENT, Faults(corruption=0.1, header_corruption=0.1)):
        damaged = [content for _, content in received if content not in set(SENT)]
        assert 200 < len(damaged) < 600
        for content in damaged:
            channel, _, version, number, sent = SBE_HEADER.unpack_from(content)
            is_header = (channel, version, number) != (72, 7, sent)
            is_framing = len(content) < len(SENT[0]) or content[20:22] == struct.pack("<H", 60_000)
            assert is_header or is_framing
            assert abs(number - sent) > 10_000 or number == sent, "a number is damaged beyond belief, or right"


def test_the_faults_end_and_the_same_seed_does_the_same() -> None:
    faults = Faults(loss=0.3, burst_loss=0.01, duplicates=0.2, corruption=0.2, reordering=0.1, ends_s=1.0)
    one, other, different = (send(SENT, faults, seed=seed) for seed in (5, 5, 6))
    assert one == other != different
    for received in one:
        assert [content for ts, content in received if ts > 1.1005 * SECOND] == SENT[1_100:]


def test_loops_have_holes_and_streams_fall_silent() -> None:
    a, b = send(SENT, Faults(loop_loss=0.2, loss=0.5), stream="snapshot")
    assert 1_500 < len(a) < 1_700 and 1_500 < len(b) < 1_700
    a, b = send(SENT, Faults(outages=(Outage("snapshot", "", 0.5, 1.0),)), stream="snapshot")
    assert len(a) == len(b) == 1_500
    a, b = send(SENT, Faults(outages=(Outage("snapshot", "", 0.5, 1.0),)))
    assert len(a) == len(b) == 2_000


def test_chunks_are_lost_alone() -> None:
    whole = FAST_HEADER.pack(1, 1, 1, 3) + b"abc"
    chunks = [FAST_HEADER.pack(number // 2, 2, 1 + number % 2, 3) + b"abc" for number in range(4, 2_000)]
    for received in send([whole, *chunks], Faults(chunk_loss=0.1), "fast"):
        lost = len(chunks) + 1 - len(received)
        assert 140 < lost < 260 and received[0][1] == whole


def test_what_is_lost_on_all_lines_is_lost_also_where_they_come_one_by_one() -> None:
    faults = Faults(common_loss=0.01, max_run=5)
    common, numbers = CommonLoss(np.random.default_rng(1), faults), np.arange(1, 3_001)
    one, other = common.of_one(numbers), common.of_one(numbers)
    assert (one == other).all() and 40 < one.sum() < 160


def test_a_line_is_numbered_alone_for_a_time() -> None:
    """Binary: with another version, from 1; afterwards as before."""
    _, received = send(SENT, Faults(renumberings=(Renumbering("B", 0.5, 1.0),)))
    headers = [SBE_HEADER.unpack_from(content) for _, content in received]
    alone = [(version, number) for _, _, version, number, sent in headers if 500 <= sent < 1_000]
    assert alone == [(107, number) for number in range(1, len(alone) + 1)] and len(alone) == 500
    assert all((version, number) == (7, sent) for _, _, version, number, sent in headers if not 500 <= sent < 1_000)


@pytest.mark.parametrize("number", [1, 127, 128, 70_000, 4_000_000_000])
def test_the_number_of_a_fast_message_is_replaced(number: int) -> None:
    message = with_sequence(HEARTBEAT, number)
    assert template_id(message) == 144
    batch = Decoder(load()).decode(np.frombuffer(message, np.uint8), np.array([0]), np.array([len(message)]))
    assert not batch.quarantine
    assert with_sequence(message, 3) == HEARTBEAT


def test_every_fault_is_listed_and_read() -> None:
    names = [fault.name for fault in fields(Faults) if fault.metadata]
    assert [key.key for key in fault_keys()][: len(names)] == names
    table = {
        "loss": 0.1,
        "max_run": 4,
        "outage": [{"stream": "replayer", "until_s": 3}],
        "renumbering": [{"line": "B"}],
    }
    found = read_faults(table)
    assert (found.loss, found.max_run, found.outages) == (0.1, 4, (Outage("replayer", until_s=3),))
    for wrong in (
        {"los": 0.1}, {"loss": "much"}, {"loss": 0.9}, {"outage": [{"line": "C"}]}, {"renumbering": [{}]},
        {"outage": {"line": "A"}}, {"max_run": 1.5},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="faults"):
            read_faults(wrong)


# The replayer


class Answers:
    """A connection that has answered one request."""

    def __init__(self) -> None:
        messages = m.replayed([(7, b"abc\x01d"), (8, b"efgh")])
        one = m.ChannelRange("72", 7, 8)
        parts = [
            (m.ACKNOWLEDGMENT, m.Acknowledgment("R1", "Q1", m.ResponseType.ACCEPTED, one, None, 0).fields()),
            (m.RAW_DATA, m.RawData("Q1", "R1", "72", 2, messages).fields()),
            (m.REPORT, m.Report("E1", m.ReportType.COMPLETED, "Q1", "R1", "72", 8).fields()),
        ]
        header = [(49, "REPLAYER"), (56, "CLIENT")]
        self.output = b"".join(
            encode_message(kind, [*header, (34, number), *body]) for number, (kind, body) in enumerate(parts, 1)
        )
        self.is_closed = self.has_work = False

    def receive(self, data: bytes, now_ns: int) -> None: ...

    def tick(self, now_ns: int) -> None: ...

    def take_output(self, now_ns: int) -> bytes:
        data, self.output = self.output, b""
        return data

    def close(self, reason: str) -> None:
        self.is_closed = True


def answers(faults: Faults, now_ns: int = 0, seed: int = 1) -> list[FixMessage]:
    connection = FaultyReplayer(Answers(), np.random.default_rng(seed), faults, 0)
    data = connection.take_output(0) + connection.take_output(now_ns)
    found = [each for each in FixFramer().feed(data) if isinstance(each, FixMessage)]
    assert [each.integer(34) for each in found] == list(range(1, len(found) + 1)), "the session has no hole"
    return found


def test_a_replayer_without_faults_answers_as_it_does() -> None:
    assert [each.msg_type for each in answers(Faults())] == ["BX", "URDR", "BY"]


def test_a_field_without_a_value_is_relayed_as_absent() -> None:
    body = b"35=0\x0149=R\x0156=C\x0134=1\x0158=\x01"
    message = b"8=FIX.4.4\x019=%d\x01" % len(body) + body
    source = Answers()
    source.output = message + b"10=%03d\x01" % (sum(message) % 256)
    data = FaultyReplayer(source, np.random.default_rng(1), Faults(), 0).take_output(0)
    (relayed,) = FixFramer().feed(data)
    assert isinstance(relayed, FixMessage)
    assert relayed.fields == ((35, b"0"), (49, b"R"), (56, b"C"), (34, b"1"))


def test_a_replayer_refuses_and_what_it_would_have_sent_are_heartbeats() -> None:
    refusal, *others = answers(Faults(replayer_refusals=1.0))
    assert (refusal.integer(1348), [each.msg_type for each in others]) == (7, ["0", "0"])


def test_a_replayer_is_silent_slow_or_down() -> None:
    assert [each.msg_type for each in answers(Faults(replayer_loss=1.0))] == ["BX", "0", "0"]
    slow = Faults(replayer_delay_ms=50.0)
    assert answers(slow, 49 * MS) == [] and len(answers(slow, 50 * MS)) == 3
    connection = FaultyReplayer(Answers(), np.random.default_rng(1), Faults(outages=(Outage("replayer"),)), 0)
    connection.tick(1)
    assert connection.is_closed


def test_every_lie_of_a_replayer_is_another_answer_than_the_right_one() -> None:
    right = m.parse_raw_data(answers(Faults())[1])
    seen = set()
    for seed in range(40):
        wrong = m.parse_raw_data(answers(Faults(replayer_corruption=1.0), seed=seed)[1])
        assert isinstance(wrong, m.RawData) and isinstance(right, m.RawData)
        assert (wrong.channel, wrong.messages) != (right.channel, right.messages)
        seen.add((wrong.channel, wrong.messages))
    assert len(seen) == 4


def test_faults_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="late_ms out of range: -1"):
        replace(Faults(), late_ms=-1)
