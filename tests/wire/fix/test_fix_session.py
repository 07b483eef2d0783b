"""The FIX session: what each side answers, by a table of cases, and two sessions talking to each other."""

from __future__ import annotations

import random

import pytest

from umdf.wire.fix.message import FixFramer, FixMessage, encode_message
from umdf.wire.fix.session import FixSession, Role, SequenceNumbers, SessionSettings, State
from umdf.wire.fix.session_events import ApplicationMessage, SessionEnd, SessionStart

S = 1_000_000_000
START = 1_700_000_000 * S


def acceptor(**values) -> FixSession:
    return FixSession(SessionSettings("SERVER", "", Role.ACCEPTOR), START, **values)


def peer_message(msg_type: str, number: int, *fields: tuple[int, object], own: str = "CLIENT") -> bytes:
    header = [(49, own), (56, "SERVER"), (34, number), (52, "20261118-12:00:00.000")]
    return encode_message(msg_type, [*header, *fields])  # type: ignore[list-item]


def logon(number: int = 1, *, reset: bool = True, heartbeat_s: int = 30) -> bytes:
    return peer_message("A", number, (98, 0), (108, heartbeat_s), *([(141, "Y")] if reset else []))


def output(session: FixSession) -> list[FixMessage]:
    found = list(FixFramer().feed(session.take_output()))
    assert all(isinstance(message, FixMessage) for message in found)
    return found  # type: ignore[return-value]


def logged_on(**values) -> FixSession:
    session = acceptor(**values)
    assert list(session.receive(logon(), START)) == [SessionStart("CLIENT")]
    (reply,) = output(session)
    assert (reply.msg_type, reply.text(49), reply.text(56), reply.integer(34)) == ("A", "SERVER", "CLIENT", 1)
    assert (reply.text(141), reply.text(108)) == ("Y", "30")
    return session


def with_empty_field(data: bytes) -> bytes:
    """A message whose field with the value "?" has none; with the BodyLength and CheckSum that it then has."""
    body = data[data.index(b"35=") : data.index(b"\x0110=") + 1].replace(b"=?", b"=")
    message = b"8=FIX.4.4\x019=%d\x01" % len(body) + body
    return message + b"10=%03d\x01" % (sum(message) % 256)


TESTED = peer_message("1", 2, (112, "a")) + peer_message("1", 3, (112, "b"))
# What a client sends, what the server answers (MsgType and some tags), and whether the session goes on.
CASES = {
    "test request": (peer_message("1", 2, (112, "X")), [("0", {112: "X"})], True),
    "test request without id": (peer_message("1", 2), [("3", {371: "112", 373: "1"})], True),
    "resend request": (
        peer_message("2", 2, (7, 1), (16, 0)),
        [("4", {34: "1", 43: "Y", 123: "Y", 36: "2"})], True,
    ),
    "resend request of a part": (TESTED + peer_message("2", 4, (7, 1), (16, 1)),
                                 [("0", {}), ("0", {}), ("4", {34: "1", 36: "2"})], True),
    "resend request of more than was sent": (peer_message("2", 2, (7, 1), (16, 999_999)),
                                             [("4", {34: "1", 36: "2"})], True),
    "resend request backwards": (TESTED + peer_message("2", 4, (7, 2), (16, 1)),
                                 [("0", {}), ("0", {}), ("3", {371: "16", 373: "5"})], True),
    "resend request beyond what was sent": (peer_message("2", 2, (7, 9), (16, 0)), [("3", {371: "7"})], True),
    "resend request without an end": (peer_message("2", 2, (7, 1)), [("3", {371: "16", 373: "1"})], True),
    "sequence reset to nowhere": (peer_message("4", 2), [("3", {371: "36", 373: "1"})], True),
    "no sending time": (encode_message("0", [(49, "CLIENT"), (56, "SERVER"), (34, 2)]),
                        [("3", {45: "2", 371: "52", 372: "0", 373: "1"})], True),
    "a possible duplicate without its time": (peer_message("0", 2, (43, "Y")), [("3", {371: "122", 373: "1"})], True),
    "a tag without a value": (with_empty_field(peer_message("BW", 2, (1346, "?"))),
                              [("3", {45: "2", 371: "1346", 372: "BW", 373: "4"})], True),
    "no message type": (with_empty_field(peer_message("?", 2)), [], True),
    "a gap": (peer_message("0", 5), [("2", {7: "2", 16: "0"})], True),
    "gap fill": (peer_message("4", 2, (123, "Y"), (36, 10)), [], True),
    "gap fill backwards": (peer_message("4", 2, (123, "Y"), (36, 1)), [("3", {371: "36"})], True),
    "gap fill of nothing": (peer_message("4", 2, (123, "Y"), (36, 2)), [("3", {371: "36", 373: "5"})], True),
    "gap fill with a number too low": (peer_message("4", 1, (123, "Y"), (36, 9)),
                                       [("5", {58: "MsgSeqNum too low: expected 2, received 1"})], False),
    "gap fill that comes twice": (peer_message("4", 1, (43, "Y"), (123, "Y"), (36, 9)), [], True),
    "sequence reset": (peer_message("4", 1, (36, 9)) + peer_message("1", 9, (112, "X")), [("0", {112: "X"})], True),
    "a number too low": (peer_message("0", 1), [("5", {58: "MsgSeqNum too low: expected 2, received 1"})], False),
    "a possible duplicate": (peer_message("0", 1, (43, "Y")), [], True),
    "logout": (peer_message("5", 2), [("5", {})], False),
    "another CompID": (peer_message("0", 2, own="OTHER"), [("3", {371: "49", 373: "9"}), ("5", {})], False),
    "to another CompID": (encode_message("0", [(49, "CLIENT"), (56, "OTHER"), (34, 2)]),
                          [("3", {371: "56", 373: "9"}), ("5", {})], False),
    "no number": (encode_message("0", [(49, "CLIENT"), (56, "SERVER")]), [("5", {})], False),
    "a second logon": (logon(2), [("5", {})], False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_server_answers_as_fix_says(name: str) -> None:
    sent, expected, goes_on = CASES[name]
    session = logged_on()
    list(session.receive(sent, START + S))
    answers = output(session)
    assert [answer.msg_type for answer in answers] == [msg_type for msg_type, _ in expected]
    for answer, (_, tags) in zip(answers, expected, strict=True):
        assert {tag: answer.text(tag) for tag in tags} == tags
    assert (session.state == State.ACTIVE) == goes_on


@pytest.mark.parametrize(
    "first",
    [peer_message("0", 1), b"GET / HTTP/1.1\r\n\r\n", peer_message("A", 1, (108, 30)),
     logon(heartbeat_s=0), encode_message("A", [(49, "CLIENT"), (56, "ELSE"), (34, 1), (98, 0), (108, 30)])],
)  # fmt: skip
def test_what_does_not_log_on_is_ended(first: bytes) -> None:
    session = acceptor()
    events = list(session.receive(first, START))
    assert [type(event) for event in events] == [SessionEnd]
    assert session.state == State.ENDED


def test_messages_beyond_a_gap_follow_when_it_is_filled() -> None:
    session = logged_on()
    assert list(session.receive(peer_message("BW", 4, (1346, "c")), START)) == []
    assert [message.msg_type for message in output(session)] == ["2"]
    events = list(session.receive(peer_message("BW", 2, (1346, "a")), START))
    events += session.receive(peer_message("BW", 3, (1346, "b")), START)
    assert [event.message.text(1346) for event in events if isinstance(event, ApplicationMessage)] == ["a", "b", "c"]
    assert session.numbers.incoming == 5


def test_messages_received_beyond_a_lost_one_survive_the_gap_fill() -> None:
    """The peer never sends again: its gap fill covers the lost message and all that were received after it."""
    session = logged_on()
    assert list(session.receive(peer_message("BW", 3, (1346, "b")), START)) == []
    assert list(session.receive(peer_message("BW", 4, (1346, "c")), START)) == []
    events = list(session.receive(peer_message("4", 2, (43, "Y"), (123, "Y"), (36, 5)), START))
    assert [event.message.text(1346) for event in events if isinstance(event, ApplicationMessage)] == ["b", "c"]
    assert session.numbers.incoming == 5
    assert len(list(session.receive(peer_message("BW", 5, (1346, "d")), START))) == 1


def test_an_ended_session_keeps_nothing_that_still_comes() -> None:
    session = logged_on()
    list(session.receive(peer_message("5", 2), START))
    for _ in range(3):
        assert list(session.receive(b"8=FIX.4.4\x019=200000\x01" + b"x" * 50_000, START)) == []
    assert session._framer.pending_bytes == 0


def test_silence_is_answered_by_a_heartbeat_then_a_test_request_then_the_end() -> None:
    session = logged_on()
    seen: list[tuple[int, str]] = []
    events = []
    for second in range(1, 120):
        events += session.tick(START + second * S)
        seen += [(second, message.msg_type) for message in output(session)]
        if session.state == State.ENDED:
            break
    assert seen == [(30, "0"), (37, "1"), (67, "0"), (68, "5")]
    assert [type(event) for event in events] == [SessionEnd]


def test_a_client_that_sends_a_byte_a_second_is_silent() -> None:
    session = logged_on()
    data = peer_message("BW", 2, (58, "x" * 500))
    for second, byte in enumerate(data, 1):
        list(session.receive(bytes([byte]), START + second * S))
        session.tick(START + second * S)
        if session.state == State.ENDED:
            break
    assert second < 80


def test_numbers_go_on_after_a_logon_without_reset() -> None:
    numbers = SequenceNumbers()
    session = logged_on(admit=lambda _: numbers)
    list(session.receive(peer_message("5", 2), START))
    again = acceptor(admit=lambda _: numbers)
    assert list(again.receive(logon(3, reset=False), START)) == [SessionStart("CLIENT")]
    (reply,) = output(again)
    assert (reply.integer(34), reply.text(141)) == (3, "")
    late = acceptor(admit=lambda _: numbers)
    assert [type(event) for event in late.receive(logon(1, reset=False), START)] == [SessionEnd]
    assert "too low" in output(late)[0].text(58)


def test_two_sessions_exchange_everything_in_order_over_any_cuts() -> None:
    draw = random.Random(5)
    server = acceptor()
    client = FixSession(SessionSettings("CLIENT", "SERVER", Role.INITIATOR), START)
    wires = {server: bytearray(), client: bytearray()}
    received: dict[FixSession, list[str]] = {server: [], client: []}
    sent: dict[FixSession, list[str]] = {server: [], client: []}
    now = START
    for _ in range(3_000):
        now += draw.randrange(S // 10)
        own, other = draw.choice([(server, client), (client, server)])
        if own.state == State.ACTIVE and draw.random() < 0.3:
            text = str(len(sent[own]))
            own.send("U1", [(58, text)], now)
            sent[own].append(text)
        own.tick(now)
        wires[own] += own.take_output()
        size = draw.randrange(60)
        data = bytes(wires[own][:size])
        del wires[own][:size]
        for event in other.receive(data, now):
            if isinstance(event, ApplicationMessage):
                received[other].append(event.message.text(58))
            assert not isinstance(event, SessionEnd)
    for own, other in ((server, client), (client, server)):
        assert received[other] == sent[own][: len(received[other])]
        assert len(received[other]) > 200
