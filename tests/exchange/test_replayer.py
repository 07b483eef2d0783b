"""The replayer: every outcome of a request, over two FIX sessions in memory; its history, cut anywhere."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from umdf.exchange.network.renumbering import SEQUENCE_RESET
from umdf.exchange.publish.sinks import Packets
from umdf.exchange.replayer.connection import (
    MAX_REQUEST_BYTES,
    MAX_WAITING_BYTES,
    CompIds,
    ReplayerConnection,
    ReplayerId,
)
from umdf.exchange.replayer.history import ENTRY, ChannelHistory, Entries
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.retention import SESSION, TWO_DAYS, WEEK, Profile
from umdf.exchange.replayer.service import MAX_REPORT_BYTES, ReplayService, ReplaySettings, Switch
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import FixFramer, FixMessage, encode_message
from umdf.wire.fix.session import FixSession, Role, SessionSettings
from umdf.wire.fix.session_events import ApplicationMessage

S, DAY = 1_000_000_000, 86_400 * 1_000_000_000
NOW = 1_794_000_000 * S  # a Friday in November 2026


def message_bytes(sequence: int) -> bytes:
    return random.Random(sequence).randbytes(20 + sequence % 60)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[ChannelHistory]:
    """Sequences 1 to 3,000 of three days ago, to 6,000 of yesterday, to 9,000 of today; the last one is new."""
    own = ChannelHistory(tmp_path / "channel-072")
    for first, ts_ns in ((1, NOW - 3 * DAY), (3_001, NOW - DAY), (6_001, NOW - 3600 * S)):
        own.append((sequence, ts_ns, message_bytes(sequence)) for sequence in range(first, first + 3_000))
    own.append([(9_001, NOW - 10_000_000, message_bytes(9_001))])
    yield own
    own.close()


class Client:
    """A FIX session as a client has it, and what it has received."""

    def __init__(self, service: ReplayService, comp_ids: CompIds | None = None, name: str = "CLIENT") -> None:
        self.now = NOW
        self.server = ReplayerConnection(ReplayerId("REPLAYER"), comp_ids or CompIds(frozenset()), service, NOW)
        self.session = FixSession(SessionSettings(name, "REPLAYER", Role.INITIATOR), NOW)
        self.received: list[FixMessage] = []

    def turn(self) -> bool:
        """Move bytes once in each direction."""
        data = self.session.take_output()
        if data:
            self.server.receive(data, self.now)
        answer = self.server.take_output(self.now)
        events = self.session.receive(answer, self.now)
        self.received += [event.message for event in events if isinstance(event, ApplicationMessage)]
        return bool(data or answer)

    def settle(self) -> list[FixMessage]:
        while self.turn():
            pass
        received, self.received = self.received, []
        return received

    def ask(self, first: int, last: int, channel: str = "72", name: str = "r1") -> list[FixMessage]:
        self.settle()
        request = m.ReplayRequest(name, (m.ChannelRange(channel, first, last),))
        self.session.send(m.REQUEST, request.fields(), self.now)
        return self.settle()


def service_of(history: ChannelHistory, retention: str = WEEK, *switches: Switch) -> ReplayService:
    return ReplayService({"72": history}, ReplaySettings(switches=set(switches)), Profile(retention), lambda: NOW)


def outcome(received: list[FixMessage]) -> tuple:
    """1348, 1354 and 35021 of the acknowledgment; 1426 and 1354 of the report; the sequences that came."""
    acknowledgment, *rest = received
    found = m.parse_acknowledgment(acknowledgment)
    assert isinstance(found, m.Acknowledgment) and acknowledgment.msg_type == "BX"
    if not rest:
        return (found.response_type, found.error, found.status), None, []
    report = m.parse_report(rest[-1])
    assert isinstance(report, m.Report)
    sequences, previous = [], 0
    for part in rest[:-1]:
        data = m.parse_raw_data(part)
        assert isinstance(data, m.RawData) and data.total >= len(data.messages)
        for replayed in data.messages:
            assert replayed.data == message_bytes(replayed.sequence)
            assert replayed.previous_sequence == previous
            previous = replayed.sequence
            sequences.append(replayed.sequence)
    assert report.last_sequence == (sequences[-1] if sequences else None)
    return (found.response_type, found.error, found.status), (report.report_type, report.error), sequences


ACCEPTED = (0, None, 0)
# retention, switches, channel, first, last: the acknowledgment, the report, the sequences (FIX/FAST reference 2.1).
OUTCOMES = {
    "all of it": (WEEK, [], "72", 2470, 2490, ACCEPTED, (3, None), (2470, 2490)),
    "one message": (WEEK, [], "72", 9000, 9000, ACCEPTED, (3, None), (9000, 9000)),
    "2,000 messages": (WEEK, [], "72", 1, 2000, ACCEPTED, (3, None), (1, 2000)),
    "2,001 messages": (WEEK, [], "72", 1, 2001, (2, 4, 2), None, None),
    "backwards": (WEEK, [], "72", 10, 9, (2, 3, 2), None, None),
    "last is 0": (WEEK, [], "72", 1, 0, (2, 3, 2), None, None),
    "first is negative": (WEEK, [], "72", -5, 5, (2, 3, 2), None, None),
    "first is 0": (WEEK, [], "72", 0, 5, (2, 3, 2), None, None),
    "another channel": (WEEK, [], "99", 1, 5, (1, 0, 2), None, None),
    "not available yet": (WEEK, [], "72", 9001, 9001, ACCEPTED, (4, 5), None),
    "the newest is not available yet": (WEEK, [], "72", 8990, 9001, ACCEPTED, (4, 5), (8990, 9000)),
    "gone": (SESSION, [], "72", 1, 20, ACCEPTED, (4, 1), None),
    "older than two days (D3.4)": (TWO_DAYS, [], "72", 100, 120, ACCEPTED, (4, 1), None),
    "of the last day (D3.3)": (TWO_DAYS, [], "72", 3100, 3120, ACCEPTED, (3, None), (3100, 3120)),
    "the oldest is gone": (SESSION, [], "72", 5990, 6010, ACCEPTED, (4, 6), (6001, 6010)),
    "both ends are missing": (SESSION, [], "72", 7800, 9700, ACCEPTED, (4, 5), (7800, 9000)),
    "unavailable": (WEEK, [Switch.UNAVAILABLE], "72", 1, 2, (7, None, 4), None, None),
    "not authorized": (WEEK, [Switch.NOT_AUTHORIZED], "72", 1, 2, (2, None, 1), None, None),
    "no resources": (WEEK, [Switch.NO_RESOURCES], "72", 1, 2, (2, 8, 4), None, None),
    "no resources later": (WEEK, [Switch.NO_RESOURCES_LATER], "72", 1, 2, ACCEPTED, (4, 8), None),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_of_a_request(history: ChannelHistory, name: str) -> None:
    retention, switches, channel, first, last, acknowledgment, report, span = OUTCOMES[name]
    client = Client(service_of(history, retention, *switches))
    sequences = list(range(span[0], span[1] + 1)) if span else []
    assert outcome(client.ask(first, last, channel)) == (acknowledgment, report, sequences)


def test_both_ends_of_a_range_can_be_missing(tmp_path: Path) -> None:
    own = ChannelHistory(tmp_path)
    own.append([(5, NOW - DAY, b"old"), (6, NOW - S, message_bytes(6)), (7, NOW, b"new")])
    assert outcome(Client(service_of(own, SESSION)).ask(5, 7)) == (ACCEPTED, (4, 7), [6])


def test_two_channels_in_a_request_are_too_many(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    client.settle()
    ranges = (m.ChannelRange("72", 1, 2), m.ChannelRange("72", 3, 4))
    client.session.send("BW", m.ReplayRequest("r", ranges).fields(), NOW)
    assert outcome(client.settle())[0][0] == 4


def test_a_second_request_meanwhile_is_refused_and_the_first_goes_on(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    client.settle()
    for name in ("first", "second"):
        client.session.send("BW", m.ReplayRequest(name, (m.ChannelRange("72", 1, 2000),)).fields(), NOW)
    received = client.settle()
    refused = [message for message in received if message.text(1346) == "second"]
    assert [(message.msg_type, message.integer(1348)) for message in refused] == [("BX", 3)]
    assert outcome([message for message in received if message.text(1346) == "first"])[1] == (3, None)
    assert outcome(client.ask(5, 6))[2] == [5, 6]


def test_reports_are_at_most_60_kb(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    sizes = [sum(len(value) + 7 for _, value in part.fields) for part in client.ask(1, 2000) if part.msg_type == "URDR"]
    assert len(sizes) > 1 and max(sizes) <= MAX_REPORT_BYTES + 1_000


REQUEST_ID, REQUEST_TYPE, ONE_CHANNEL = (1346, "r"), (1347, 0), (1351, 1)
CHANNEL, FIRST, LAST = (1355, "72"), (1182, 1), (1183, 2)


@pytest.mark.parametrize(
    ("fields", "tag", "reason"),
    [
        ([REQUEST_TYPE, ONE_CHANNEL, CHANNEL, FIRST, LAST], "1346", "1"),
        ([REQUEST_ID, ONE_CHANNEL, CHANNEL, FIRST, LAST], "1347", "1"),
        ([REQUEST_ID, (1347, 9), ONE_CHANNEL, CHANNEL, FIRST, LAST], "1347", "5"),
        ([REQUEST_ID, (1347, "x"), ONE_CHANNEL, CHANNEL, FIRST, LAST], "1347", "6"),
        ([REQUEST_ID, REQUEST_TYPE], "1351", "1"),
        ([REQUEST_ID, REQUEST_TYPE, (1351, 2), CHANNEL, FIRST, LAST], "1351", "16"),
        ([REQUEST_ID, REQUEST_TYPE, (1351, 0)], "1351", "16"),
        ([REQUEST_ID, REQUEST_TYPE, ONE_CHANNEL, FIRST, LAST], "1355", "1"),
        ([REQUEST_ID, REQUEST_TYPE, ONE_CHANNEL, CHANNEL, FIRST], "1183", "1"),
        ([REQUEST_ID, REQUEST_TYPE, ONE_CHANNEL, CHANNEL, (1182, "x"), LAST], "1182", "6"),
    ],
)  # fmt: skip
def test_a_request_that_is_no_request_is_rejected_and_the_session_goes_on(history, fields, tag, reason) -> None:
    client = Client(service_of(history))
    client.settle()
    client.session.send("BW", fields, NOW)
    client.session.send("D", [(11, "x")], NOW)
    client.server.receive(client.session.take_output(), NOW)
    output = client.server.take_output(NOW)
    rejection, business = (found for found in FixFramer().feed(output) if isinstance(found, FixMessage))
    assert [rejection.text(each) for each in (35, 45, 371, 372, 373)] == ["3", "2", tag, "BW", reason]
    assert [business.text(each) for each in (35, 45, 372, 380)] == ["j", "3", "D", "3"]
    list(client.session.receive(output, NOW))
    assert outcome(client.ask(5, 6))[2] == [5, 6]


def test_a_client_that_sends_but_does_not_read_is_disconnected(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    client.settle()
    for number in range(2, 2_000):
        header = [(49, "CLIENT"), (56, "REPLAYER"), (34, number), (52, "20261106-12:00:00.000")]
        client.server.receive(encode_message("1", [*header, (112, "x" * 1_000)]), NOW)
    assert client.server.is_closed and client.server.end_reason == "the client sends, but does not read"
    assert client.server.session.output_bytes < MAX_WAITING_BYTES + 2_000


def test_a_request_has_at_most_16_kb(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    client.settle()
    client.session.send("BW", [(58, "x" * MAX_REQUEST_BYTES)], NOW)
    client.settle()
    assert client.server.session.counts.garbled_bytes > MAX_REQUEST_BYTES
    assert outcome(client.ask(5, 6))[2] == [5, 6]


def test_random_requests_never_wedge_it(history: ChannelHistory, sized) -> None:
    draw, client = random.Random(7), Client(service_of(history, TWO_DAYS))
    client.settle()
    for number in range(sized(300, 10_000)):
        client.now += draw.randrange(1, 50_000_000)
        for part in range(draw.choice([1, 1, 1, 2, 3])):
            first = draw.randrange(-5, 9_500)
            one = m.ChannelRange(draw.choice(["72", "72", "72", "1"]), first, first + draw.choice([0, 1, 30, 2_500]))
            request = m.ReplayRequest(f"r{number}-{part}", (one,) * draw.choice([1, 1, 1, 2]))
            client.session.send("BW", request.fields(), client.now)
        for _ in range(draw.randrange(3)):
            client.turn()
    client.settle()
    assert outcome(client.ask(7_000, 7_010, name="last"))[2] == list(range(7_000, 7_011))


def test_one_client_has_one_session(history: ChannelHistory) -> None:
    comp_ids = CompIds(frozenset({"A", "B"}))
    clients = [Client(service_of(history), comp_ids, name) for name in ("A", "A", "B", "C")]
    for client in clients:
        client.settle()
    assert [client.server.is_closed for client in clients] == [False, True, False, True]
    clients[0].server.close()
    again = Client(service_of(history), comp_ids, "A")
    assert outcome(again.ask(5, 6))[2] == [5, 6]


def test_nothing_before_a_sequence_reset_is_served(history: ChannelHistory) -> None:
    client = Client(service_of(history))
    history.append((sequence, NOW - S, message_bytes(sequence)) for sequence in range(1, 11))
    assert outcome(client.ask(1, 10)) == (ACCEPTED, (3, None), list(range(1, 11)))
    assert outcome(client.ask(5_000, 5_001, name="r2")) == (ACCEPTED, (4, 5), [])


def test_a_sequence_reset_ends_what_is_served_at_once(tmp_path: Path) -> None:
    """Not only when the first message of the new numbering is sent, which may take a heartbeat's interval (4.2.8)."""
    own, writer = ChannelHistory(tmp_path), Writer(load_templates())
    sink, client = HistorySink(own), Client(service_of(own))
    values = {"SendingTime": 20261106120000000, "NewSeqNo": 1}
    reset = writer.encode(SEQUENCE_RESET, {"MsgSeqNum": 4, **values})

    def write(*messages: tuple[int, bytes]) -> None:
        parts = [struct.pack(">IHHH", number, 1, 1, len(data)) + data for number, data in messages]
        lengths = np.array([len(part) for part in parts], np.int64)
        ends = np.cumsum(lengths)
        starts, buffer = ends - lengths, np.frombuffer(b"".join(parts), np.uint8)
        times, zeros = np.full(len(parts), NOW - S), np.zeros(len(parts), np.int64)
        sink.write(Packets(buffer, starts, ends, times, zeros, zeros))

    write(*((number, b"\xc0\x81" + message_bytes(number)) for number in (1, 2, 3)))
    assert client.ask(1, 3)[-1].text(1426) == "3"
    write((4, reset))
    assert outcome(client.ask(1, 4, name="r2")) == (ACCEPTED, (4, 5), [])
    write((1, b"\xc0\x81new"), (2, reset), (1, b"\xc0\x81newer"))
    assert own.read(own.entries(1, 9)) == [(1, b"\xc0\x81newer")]
    own.close()


def test_a_sequence_reset_while_the_index_is_read(history: ChannelHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions read in another thread than the exchange writes."""
    read, writers = history._entries, list[threading.Thread]()

    def slow(first: int, count: int) -> Entries:
        if not writers:
            writers.append(threading.Thread(target=history.start_epoch))
            writers[0].start()
            writers[0].join(0.05)
        return read(first, count)

    monkeypatch.setattr(history, "_entries", slow)
    assert len(history.entries(1, 100)) == 100
    writers[0].join()
    assert history.last == 0


def test_a_history_that_was_cut_anywhere_serves_what_is_whole(tmp_path: Path) -> None:
    draw = random.Random(3)
    for number in range(40):
        directory = tmp_path / str(number)
        own = ChannelHistory(directory)
        for first in range(1, 200, 20):
            own.append((sequence, NOW, message_bytes(sequence)) for sequence in range(first, first + 20))
        own.close()
        for path in directory.iterdir():
            if draw.random() < 0.7:  # a kill between the two writes, or in one
                size = path.stat().st_size
                with open(path, "r+b") as file:
                    file.truncate(draw.choice([0, size, draw.randrange(size), size - size % ENTRY.itemsize]))
        own = ChannelHistory(directory)
        assert own.read(own.entries(1, 200)) == [(s, message_bytes(s)) for s in range(1, own.last + 1)]
        own.append([(own.last + 3, NOW, b"next")])
        last = own.last
        own.close()
        own = ChannelHistory(directory)
        assert (own.last, own.read(own.entries(last, last))) == (last, [(last, b"next")])
        own.close()
