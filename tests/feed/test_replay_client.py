"""The client of a replayer, against servers that are slow, silent, lying or gone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span
from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import Fields, encode_message
from umdf.wire.fix.session import FixSession, Role, SessionSettings
from umdf.wire.fix.session_events import ApplicationMessage, SessionEnd

MS = 1_000_000
START = 1_794_000_000_000 * MS
Reply = list[tuple[str, Fields]]


def data_of(sequence: int) -> bytes:
    return b"message %d \x01" % sequence


def accepted(request: m.ReplayRequest) -> tuple[str, Fields]:
    return "BX", m.Acknowledgment("R", request.request_id, 0, request.ranges[0], None, 0).fields()


def raw(request: m.ReplayRequest, sequences: list[int], channel: str = "72") -> tuple[str, Fields]:
    messages = m.replayed((sequence, data_of(sequence)) for sequence in sequences)
    return "URDR", m.RawData(request.request_id, "R", channel, len(sequences), messages).fields()


def report(request: m.ReplayRequest, error: int | None = None) -> tuple[str, Fields]:
    return "BY", m.Report("E", 3 if error is None else 4, request.request_id, "R", "72", 1, error).fields()


def span_of(request: m.ReplayRequest) -> list[int]:
    return list(range(request.ranges[0].first, request.ranges[0].last + 1))


def honest(request: m.ReplayRequest, attempt: int) -> Reply:
    return [accepted(request), raw(request, span_of(request)), report(request)]


class Network:
    """A client and a scripted server, with a clock of milliseconds."""

    def __init__(self, script: Callable[[m.ReplayRequest, int], Reply | None], **settings) -> None:
        self.client = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER", **settings))
        self.script, self.requests, self.now = script, [], START
        self.server: FixSession | None = None
        self.outcomes: list[ReplayedMessages | ReplayFailure] = []
        self.is_down = self.may_end = False

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.now += MS
            if self.client.wants_connection(self.now) and not self.is_down:
                self.client.open(self.now)
                self.server = FixSession(SessionSettings("REPLAYER", "", Role.ACCEPTOR), self.now)
            self.client.tick(self.now)
            data = self.client.take_output(self.now)
            if self.server is not None:
                for event in self.server.receive(data, self.now):
                    if isinstance(event, ApplicationMessage):
                        self._answer(event)
                    if isinstance(event, SessionEnd):
                        assert self.may_end, event
                        self.disconnect()
                        break
                if self.server is not None:
                    self.server.tick(self.now)
                    self.client.receive(self.server.take_output(), self.now)
            self.outcomes += self.client.take_outcomes()

    def _answer(self, event: ApplicationMessage) -> None:
        request = m.parse_request(event.message)
        assert isinstance(request, m.ReplayRequest) and self.server is not None
        assert len(span_of(request)) <= 2_000
        self.requests.append((self.now, span_of(request)))
        reply = self.script(request, len(self.requests))
        if reply is None:
            self.disconnect()
            return
        for msg_type, fields in reply:
            self.server.send(msg_type, fields, self.now)

    def disconnect(self) -> None:
        self.server = None
        self.client.close("connection lost")

    def replayed(self) -> list[int]:
        found = []
        for outcome in self.outcomes:
            if isinstance(outcome, ReplayedMessages):
                assert all(data == data_of(sequence) for sequence, data in outcome.messages)
                found += [sequence for sequence, _ in outcome.messages]
        return found

    def failures(self) -> list[tuple[int, int]]:
        return [(o.span.first, o.span.last) for o in self.outcomes if isinstance(o, ReplayFailure)]


def test_a_span_is_requested_in_parts_of_2000() -> None:
    network = Network(honest)
    network.client.request(Span(72, 101, 4_500), START)
    network.run(20)
    assert network.replayed() == list(range(101, 4_501))
    assert [len(span) for _, span in network.requests] == [2_000, 2_000, 400]
    assert network.client.is_idle and not network.failures()


def test_more_than_10000_messages_are_left_to_a_snapshot() -> None:
    network = Network(honest)
    network.client.request(Span(72, 1, 10_001), START)
    network.run(5)
    assert network.failures() == [(1, 10_001)] and not network.requests


def test_what_is_not_available_yet_is_requested_three_more_times_140_ms_apart() -> None:
    network = Network(lambda request, _: [accepted(request), report(request, 5)])
    network.client.request(Span(72, 5, 6), START)
    network.run(1_000)
    times = [at for at, _ in network.requests]
    assert [(after - before) // MS for before, after in itertools.pairwise(times)] == [140, 140, 140]
    assert network.failures() == [(5, 6)]


# What a server does at its first request; afterwards it is honest.
ONCE = {
    "the end of the range is not available yet": lambda r: [accepted(r), raw(r, span_of(r)[:4]), report(r, 5)],
    "a report is lost": lambda r: [accepted(r), raw(r, span_of(r)[:4])],
    "raw data is lost": lambda r: [accepted(r), *(raw(r, left) for left in [span_of(r)[5:]] if left), report(r)],
    "nothing comes": lambda r: [],
    "a prior request is in progress": lambda r: [("BX", m.Acknowledgment("R", r.request_id, 3).fields())],
    "temporarily unavailable": lambda r: [("BX", m.Acknowledgment("R", r.request_id, 7).fields())],
    "there are no resources": lambda r: [("BX", m.Acknowledgment("R", r.request_id, 2, r.ranges[0], 8, 4).fields())],
    "there are no resources later": lambda r: [accepted(r), raw(r, span_of(r)[:4]), report(r, 8)],
    "the connection is lost": lambda r: None,
    "other sequences come": lambda r: [accepted(r), raw(r, [1, 2, 3]), report(r)],
    "another channel comes": lambda r: [accepted(r), raw(r, span_of(r), "73"), report(r)],
    "another request is answered": lambda r: [
        accepted(r), ("URDR", m.RawData("x", "R", "72", 1, m.replayed([(101, b"wrong")])).fields()), report(r)],
    "the first and the last part are lost": lambda r: [
        accepted(r), *(raw(r, middle) for middle in [span_of(r)[3:6]] if middle), report(r)],
    "an entry lies outside of the data": lambda r: [
        accepted(r), ("URDR", [(1346, r.request_id), (95, 3), (96, "abc"), (911, 1), (10054, 1), (1181, 101),
                               (1350, 0), (10055, 2), (95, 2)]), report(r)],
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_a_single_failure_is_recovered_by_another_request(name: str) -> None:
    network = Network(lambda request, attempt: ONCE[name](request) if attempt == 1 else honest(request, attempt))
    network.client.request(Span(72, 101, 110), START)
    network.run(4_000)
    assert sorted(network.replayed()) == list(range(101, 111))  # each once
    assert network.client.is_idle and not network.failures() and len(network.requests) == 2


def test_a_session_whose_requests_are_not_answered_is_left_for_another() -> None:
    """A replayer may send heartbeats and nothing else; line B is there for that (5.2)."""
    network = Network(lambda request, attempt: honest(request, attempt) if attempt > 4 else [], timeout_ms=100)
    network.may_end = True
    network.client.request(Span(72, 101, 110), START)
    network.run(1_200)
    assert network.failures() == [(101, 110)] and len(network.requests) == 4
    assert network.client.counts.connections == 2 and not network.client.is_answering
    network.client.request(Span(72, 201, 210), network.now)
    network.run(20)
    assert network.replayed() == list(range(201, 211)) and network.client.is_answering


def test_messages_that_the_replayer_no_longer_has_are_not_requested_again() -> None:
    network = Network(lambda r, _: [accepted(r), raw(r, span_of(r)[3:]), report(r, 6)])
    network.client.request(Span(72, 101, 110), START)
    network.run(1_000)
    assert network.replayed() == list(range(104, 111))
    assert (network.failures(), len(network.requests)) == ([(101, 103)], 1)


def test_the_newest_part_is_requested_again_although_the_oldest_is_gone() -> None:
    """1354=7 (reference 2.1.4): what is in the middle comes twice, and must not spoil what is new."""

    def script(request: m.ReplayRequest, attempt: int) -> Reply:
        newest = 108 if attempt == 1 else 110
        sequences = [sequence for sequence in span_of(request) if 103 <= sequence <= newest]
        return [accepted(request), raw(request, sequences), report(request, 7 if attempt == 1 else 6)]

    network = Network(script)
    network.client.request(Span(72, 101, 110), START)
    network.run(1_000)
    assert network.replayed() == list(range(103, 111))
    assert network.failures() == [(101, 102)] and network.client.counts.invalid == 0


@pytest.mark.parametrize("msg_type", ["3", "j"])
def test_a_rejected_request_is_not_made_again(msg_type: str) -> None:
    reason = [(373, 5)] if msg_type == "3" else [(380, 3)]
    network = Network(lambda r, _: [(msg_type, [(45, 2), (372, "BW"), *reason, (58, "never")])])
    network.client.request(Span(72, 101, 110), START)
    network.run(20)
    assert (network.failures(), len(network.requests)) == ([(101, 110)], 1)
    (outcome,) = network.outcomes
    assert isinstance(outcome, ReplayFailure) and outcome.reason == "never"


def test_the_reason_of_a_refused_logon_is_reported_until_a_logon_succeeds() -> None:
    client = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER"))
    client.open(START)
    header = [(49, "REPLAYER"), (56, "CLIENT"), (34, 1), (52, "20261106-12:00:00.000")]
    client.receive(encode_message("5", [*header, (58, "not a subscriber")]), START)
    client.close("closed by the peer")
    assert client.last_error == "the logon was refused: not a subscriber"
    client.open(START)
    client.receive(encode_message("A", [*header, (98, 0), (108, 30), (141, "Y")]), START)
    assert client.is_active and client.last_error == ""


def test_a_request_that_waits_for_its_next_attempt_does_not_hold_up_another_channel() -> None:
    def script(request: m.ReplayRequest, attempt: int) -> Reply:
        channel = request.ranges[0].channel
        if channel == "72" and attempt == 1:
            return [accepted(request), report(request, 5)]
        return [accepted(request), raw(request, span_of(request), channel), report(request)]

    network = Network(script)
    network.client.request(Span(72, 5, 6), START)
    network.client.request(Span(73, 901, 902), START)
    network.run(200)
    assert [(at - START) // MS < 100 for at, _ in network.requests] == [True, True, False]
    assert network.replayed() == [901, 902, 5, 6]


def test_a_cancelled_request_is_not_made_again() -> None:
    network = Network(lambda request, _: [("BX", m.Acknowledgment("R", request.request_id, 3).fields())])
    network.client.request(Span(72, 5, 6), START)
    network.run(5)
    network.client.cancel(72)
    network.client.request(Span(73, 5, 6), START)
    network.run(5)
    network.client.cancel(73)
    network.run(1_000)
    assert network.client.is_idle and len(network.requests) == 2 and not network.outcomes


def test_without_a_connection_a_span_is_given_up_in_time() -> None:
    network = Network(honest)
    network.is_down = True
    network.client.request(Span(72, 101, 110), START)
    network.run(3_000)
    assert network.failures() == [(101, 110)] and network.client.is_idle


def test_random_faults_lose_nothing_that_is_not_reported(sized) -> None:
    for seed in range(sized(20, 300)):
        draw = random.Random(seed)
        script = lambda request, attempt, draw=draw: (  # noqa: E731
            ONCE[draw.choice(list(ONCE))](request) if draw.random() < 0.4 else honest(request, attempt)
        )
        network = Network(script, timeout_ms=300)
        network.may_end = True
        wanted: set[int] = set()
        for _ in range(5):
            first = draw.randrange(100, 9_000)
            span = Span(72, first, first + draw.randrange(60))
            if wanted.isdisjoint(range(span.first, span.last + 1)):
                wanted |= set(range(span.first, span.last + 1))
                network.client.request(span, network.now)
            network.run(draw.randrange(300))
        network.run(15_000 if not network.client.is_idle else 0)
        came = network.replayed()
        failed = {number for first, last in network.failures() for number in range(first, last + 1)}
        assert network.client.is_idle
        assert len(came) == len(set(came)) and set(came).isdisjoint(failed) and set(came) | failed == wanted
