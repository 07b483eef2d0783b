"""One FIX 4.4 session, for either side: bytes and time in, messages and bytes out. No I/O and no clock.

    session = FixSession(SessionSettings("REPLAYER", "CLIENT", role=Role.ACCEPTOR))
    for event in session.receive(data, now_ns): ...   # SessionStart, ApplicationMessage, Rejection, SessionEnd
    session.send("BX", fields, now_ns)
    session.tick(now_ns)                              # heartbeats, test requests, time-outs
    socket.send(session.take_output())

Of a session that has ended, nothing is received or sent any more; the caller sends what is left and closes.
Messages are never sent again: a ResendRequest is answered by a gap fill (FIX/FAST 5.2 item 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from umdf.wire.fix.message import (
    BEGIN_STRING,
    MAX_MESSAGE_BYTES,
    Fields,
    FieldValue,
    FixFramer,
    FixMessage,
    GarbledBytes,
    encode_message,
    utc_timestamp,
)
from umdf.wire.fix.session_events import ApplicationMessage, Rejection, SessionEnd, SessionEvent, SessionStart
from umdf.wire.fix.session_messages import (
    BUSINESS_REJECT,
    COMP_ID_PROBLEM,
    HEARTBEAT,
    LOGON,
    LOGOUT,
    REJECT,
    RESEND_REQUEST,
    SEQUENCE_RESET,
    TEST_REQUEST,
    VALUE_INCORRECT,
    WrongField,
    wrong_field,
)

SECOND_NS = 1_000_000_000
MAX_GARBLED_BYTES = 1 << 20  # of a session; a peer that sends more of it is not a FIX engine
MAX_QUEUED_MESSAGES = 1_000  # received after a gap
LOGON_TIMEOUT_S = LOGOUT_TIMEOUT_S = 10
SILENCE_FACTOR = 1.2  # of the heartbeat interval, before a TestRequest


class Role(Enum):
    INITIATOR = "initiator"
    ACCEPTOR = "acceptor"


class State(Enum):
    AWAIT_LOGON = "await logon"
    ACTIVE = "active"
    LOGOUT_SENT = "logout sent"
    ENDED = "ended"


@dataclass
class SequenceNumbers:
    """The next numbers of both directions. A server keeps them for peers that log on again without a reset."""

    incoming: int = 1
    outgoing: int = 1


@dataclass(frozen=True)
class SessionSettings:
    own_id: str  # SenderCompID of what is sent
    peer_id: str  # of what is received; of an acceptor empty until the logon has named it
    role: Role
    heartbeat_s: int = 30  # what an initiator asks for; an acceptor takes the peer's
    min_heartbeat_s: int = 1
    max_heartbeat_s: int = 3_600
    max_message_bytes: int = MAX_MESSAGE_BYTES  # received


@dataclass
class SessionCounts:
    received: int = 0
    sent: int = 0
    garbled_bytes: int = 0
    rejected: int = 0
    resend_requests: int = 0


@dataclass
class _Timers:
    """When something last happened, and what is due."""

    received_ns: int
    sent_ns: int
    started_ns: int
    test_request_ns: int | None = None  # an unanswered TestRequest
    logout_ns: int | None = None


# Which messages a state accepts; any other ends the session.
ACCEPTED_TYPES: dict[State, Callable[[str], bool]] = {
    State.AWAIT_LOGON: lambda msg_type: msg_type == LOGON,
    State.ACTIVE: lambda msg_type: msg_type != LOGON,
    State.LOGOUT_SENT: lambda msg_type: msg_type != LOGON,
    State.ENDED: lambda msg_type: False,
}


@dataclass(eq=False)
class FixSession:
    settings: SessionSettings
    now_ns: int
    # Knows the peer of an acceptor by its CompID: its numbers, or None if it may not log on.
    admit: Callable[[str], SequenceNumbers | None] | None = None
    numbers: SequenceNumbers = field(default_factory=SequenceNumbers)
    state: State = State.AWAIT_LOGON
    counts: SessionCounts = field(default_factory=SessionCounts)

    def __post_init__(self) -> None:
        self.peer_id, self.heartbeat_s = self.settings.peer_id, self.settings.heartbeat_s
        self._framer, self._output = FixFramer(self.settings.max_message_bytes), bytearray()
        self._timers = _Timers(self.now_ns, self.now_ns, self.now_ns)
        self._queued: dict[int, FixMessage] = {}  # received beyond a gap
        self._resend_until = 0  # numbers up to it were requested again
        self._handlers: dict[str, Callable[[FixMessage], Iterator[SessionEvent]]] = {
            HEARTBEAT: lambda _: iter(()),
            TEST_REQUEST: self._on_test_request,
            RESEND_REQUEST: self._on_resend_request,
            REJECT: self._on_reject,
            LOGOUT: self._on_logout,
        }
        if self.settings.role == Role.INITIATOR:
            self.numbers.incoming = self.numbers.outgoing = 1  # 5.2 item 8: a reset on every logon
            self._send(LOGON, [(98, 0), (108, self.heartbeat_s), (141, "Y")])

    # Output

    def take_output(self) -> bytes:
        """Bytes to send now."""
        data = bytes(self._output)
        self._output.clear()
        return data

    @property
    def output_bytes(self) -> int:
        return len(self._output)

    def send(self, msg_type: str, fields: Fields, now_ns: int) -> None:
        """Send an application message."""
        assert self.state == State.ACTIVE, "only an active session sends"
        self.now_ns = max(self.now_ns, now_ns)
        self._send(msg_type, fields)

    def _send(self, msg_type: str, fields: Fields, *, number: int | None = None) -> None:
        sent = utc_timestamp(self.now_ns)
        header: list[tuple[int, FieldValue]] = [(49, self.settings.own_id), (56, self.peer_id)]
        if number is None:
            header += [(34, self.numbers.outgoing), (52, sent)]
            self.numbers.outgoing += 1
        else:  # instead of messages that are not sent again
            header += [(34, number), (43, "Y"), (52, sent), (122, sent)]
        self._output += encode_message(msg_type, [*header, *fields])
        self._timers.sent_ns = self.now_ns
        self.counts.sent += 1

    def log_out(self, reason: str, now_ns: int) -> None:
        """Send Logout, and wait for the peer's."""
        self.now_ns = max(self.now_ns, now_ns)
        if self.state == State.ACTIVE:
            self._send(LOGOUT, [(58, reason)])
            self.state, self._timers.logout_ns = State.LOGOUT_SENT, self.now_ns

    # Time

    def tick(self, now_ns: int) -> list[SessionEvent]:
        """Send what is due: heartbeats, test requests; end a session whose peer is silent."""
        self.now_ns = max(self.now_ns, now_ns)
        timers, interval_ns = self._timers, self.heartbeat_s * SECOND_NS
        if self.state == State.AWAIT_LOGON and self.now_ns - timers.started_ns > LOGON_TIMEOUT_S * SECOND_NS:
            return [self._end(f"no Logon within {LOGON_TIMEOUT_S} s")]
        if self.state == State.LOGOUT_SENT and self.now_ns - (timers.logout_ns or 0) > LOGOUT_TIMEOUT_S * SECOND_NS:
            return [self._end(f"no Logout in reply within {LOGOUT_TIMEOUT_S} s", is_regular=True)]
        if self.state != State.ACTIVE:
            return []
        silent_ns = self.now_ns - timers.received_ns
        if timers.test_request_ns is not None and self.now_ns - timers.test_request_ns > interval_ns:
            self._send(LOGOUT, [(58, "TestRequest was not answered")])
            return [self._end(f"nothing received for {silent_ns // SECOND_NS} s")]
        if timers.test_request_ns is None and silent_ns > SILENCE_FACTOR * interval_ns:
            timers.test_request_ns = self.now_ns
            self._send(TEST_REQUEST, [(112, f"T{self.now_ns}")])
        if self.now_ns - timers.sent_ns >= interval_ns:
            self._send(HEARTBEAT, [])
        return []

    # Input

    def receive(self, data: bytes, now_ns: int) -> Iterator[SessionEvent]:
        """Events of received bytes. The iterator must be used up."""
        self.now_ns = max(self.now_ns, now_ns)
        if self.state == State.ENDED:  # the socket is closed once everything is sent; nothing is kept until then
            return
        for found in self._framer.feed(data):
            if self.state == State.ENDED:
                return
            if isinstance(found, GarbledBytes):
                # A garbled message is ignored, and its number with it: the next one shows the gap.
                self.counts.garbled_bytes += found.size
                if self.state == State.AWAIT_LOGON or self.counts.garbled_bytes > MAX_GARBLED_BYTES:
                    yield self._end(f"received what is not FIX: {found.reason}")
                continue
            # Only whole messages: a peer that sends a byte a second is silent.
            self._timers.received_ns, self._timers.test_request_ns = self.now_ns, None
            self.counts.received += 1
            yield from self._on_message(found)

    def _on_message(self, message: FixMessage) -> Iterator[SessionEvent]:
        msg_type, number = message.msg_type, message.integer(34)
        if message.begin_string != BEGIN_STRING:
            yield self._refuse(f"BeginString is not {BEGIN_STRING.decode()}: {message.begin_string.decode('latin-1')}")
        elif self.state == State.AWAIT_LOGON and self.peer_id and msg_type in (LOGOUT, REJECT):
            yield self._end(f"the logon was refused: {message.text(58) or 'without a reason'}")
        elif not ACCEPTED_TYPES[self.state](msg_type):
            yield self._refuse(f"MsgType {msg_type} is not expected: {self.state.value}")
        elif number is None or number < 1:
            yield self._refuse("MsgSeqNum (34) is missing or not a number")
        elif msg_type == LOGON:
            yield from self._on_logon(message, number)
        elif message.text(49) != self.peer_id or message.text(56) != self.settings.own_id:
            tag, name = (49, "SenderCompID") if message.text(49) != self.peer_id else (56, "TargetCompID")
            self._reject(message, WrongField(COMP_ID_PROBLEM, tag, f"{name} is not this session's"))
            yield self._refuse("CompID problem")
        elif msg_type == SEQUENCE_RESET:
            yield from self._on_sequence_reset(message, number)
        else:
            yield from self._in_sequence(message, number)

    def _in_sequence(self, message: FixMessage, number: int) -> Iterator[SessionEvent]:
        if number < self.numbers.incoming:
            if message.text(43) != "Y":  # possible duplicates were handled when they came first
                yield self._refuse(f"MsgSeqNum too low: expected {self.numbers.incoming}, received {number}")
            return
        if number > self.numbers.incoming:
            if message.msg_type == RESEND_REQUEST:  # answered at once, or both sides would wait
                yield from self._on_resend_request(message)
            if message.msg_type == LOGOUT:
                yield from self._on_logout(message)
                return
            self._request_resend(number)
            if len(self._queued) >= MAX_QUEUED_MESSAGES:
                yield self._refuse(f"more than {MAX_QUEUED_MESSAGES} messages after a gap that is not filled")
            else:
                self._queued[number] = message
            return
        self.numbers.incoming += 1
        yield from self._handle(message)
        yield from self._drain()

    def _drain(self) -> Iterator[SessionEvent]:
        """Handle what was received beyond a gap that is closed now; a gap fill covers it too, and brings nothing."""
        for number in sorted(self._queued):
            if self.state == State.ENDED or number > self.numbers.incoming:
                return
            message = self._queued.pop(number)
            self.numbers.incoming = max(self.numbers.incoming, number + 1)
            if message.msg_type != RESEND_REQUEST:
                yield from self._handle(message)

    def _handle(self, message: FixMessage) -> Iterator[SessionEvent]:
        if wrong := wrong_field(message):
            self._reject(message, wrong)
        elif handler := self._handlers.get(message.msg_type):
            yield from handler(message)
        elif self.state == State.ACTIVE:
            yield ApplicationMessage(message)

    def _request_resend(self, number: int) -> None:
        if number > self._resend_until:
            self.counts.resend_requests += self._resend_until < self.numbers.incoming
            if self._resend_until < self.numbers.incoming:
                self._send(RESEND_REQUEST, [(7, self.numbers.incoming), (16, 0)])
            self._resend_until = number

    # Messages of the session

    def _on_logon(self, message: FixMessage, number: int) -> Iterator[SessionEvent]:
        heartbeat_s, resets = message.integer(108), message.text(141) == "Y"
        if message.text(56) != self.settings.own_id or self.peer_id not in ("", message.text(49)):
            yield self._end(f"unknown CompID: {message.text(49)} to {message.text(56)}")
            return
        if message.text(98) != "0" or heartbeat_s is None:
            yield self._refuse("Logon needs EncryptMethod (98) = 0 and HeartBtInt (108)")
            return
        limits = self.settings.min_heartbeat_s, self.settings.max_heartbeat_s
        if self.settings.role == Role.ACCEPTOR:
            self.peer_id = message.text(49)
            numbers = self.admit(self.peer_id) if self.admit else self.numbers
            if numbers is None:
                yield self._end(f"unknown CompID, or it is logged on already: {self.peer_id}")
                return
            self.numbers = numbers
            if resets:
                numbers.incoming = numbers.outgoing = 1
            if not limits[0] <= heartbeat_s <= limits[1]:
                yield self._refuse(f"HeartBtInt is not within {limits[0]} and {limits[1]}: {heartbeat_s}")
                return
            self.heartbeat_s = heartbeat_s
        if number < self.numbers.incoming:
            yield self._refuse(f"MsgSeqNum too low: expected {self.numbers.incoming}, received {number}")
            return
        if self.settings.role == Role.ACCEPTOR:
            reset: list[tuple[int, FieldValue]] = [(141, "Y")] if resets else []
            self._send(LOGON, [(98, 0), (108, self.heartbeat_s), *reset])
        self.state = State.ACTIVE
        yield SessionStart(self.peer_id)
        if number > self.numbers.incoming:
            self._request_resend(number)
        else:
            self.numbers.incoming += 1

    def _on_reject(self, message: FixMessage) -> Iterator[SessionEvent]:
        yield Rejection(message.text(372), message.text(58))

    def _on_test_request(self, message: FixMessage) -> Iterator[SessionEvent]:
        self._send(HEARTBEAT, [(112, message.text(112))])
        yield from ()

    def _on_resend_request(self, message: FixMessage) -> Iterator[SessionEvent]:
        first, last, following = message.integer(7), message.integer(16), self.numbers.outgoing
        if first is None or not 1 <= first < following:
            self._reject(message, WrongField(VALUE_INCORRECT, 7, f"BeginSeqNo must be 1 to {following - 1}"))
        elif last is None or (last != 0 and last < first):
            self._reject(
                message, WrongField(VALUE_INCORRECT, 16, "EndSeqNo must be BeginSeqNo or more, or 0: everything")
            )
        else:
            # Not beyond what was requested: the peer has the messages behind it, and would drop them.
            fills_until = following if last == 0 else min(last + 1, following)
            self._send(SEQUENCE_RESET, [(123, "Y"), (36, fills_until)], number=first)
        yield from ()

    def _on_sequence_reset(self, message: FixMessage, number: int) -> Iterator[SessionEvent]:
        is_gap_fill, new_number = message.text(123) == "Y", message.integer(36)
        if wrong := wrong_field(message):
            self._reject(message, wrong)
            return
        if is_gap_fill and number > self.numbers.incoming:
            self._request_resend(number)
            return
        if is_gap_fill and number < self.numbers.incoming:
            if message.text(43) != "Y":
                yield self._refuse(f"MsgSeqNum too low: expected {self.numbers.incoming}, received {number}")
            return
        least = self.numbers.incoming + is_gap_fill  # a gap fill stands for one message at least
        if new_number is None or new_number < least:
            self._reject(message, WrongField(VALUE_INCORRECT, 36, f"NewSeqNo must be {least} or more"))
            return
        if not is_gap_fill:
            self._queued.clear()
        self.numbers.incoming = new_number
        yield from self._drain()

    def _on_logout(self, message: FixMessage) -> Iterator[SessionEvent]:
        if self.state == State.ACTIVE:
            self._send(LOGOUT, [])
        yield self._end(message.text(58) or "logged out", is_regular=True)

    # Refusals

    def reject_business(self, message: FixMessage, reason: int, text: str, now_ns: int) -> None:
        """Refuse an application message that is well-formed (BusinessMessageReject)."""
        self.counts.rejected += 1
        reference = message.get(34) or b"0"
        self.send(BUSINESS_REJECT, [(45, reference), (372, message.msg_type), (380, reason), (58, text)], now_ns)

    def reject(self, message: FixMessage, wrong: WrongField, now_ns: int) -> None:
        """Refuse a message that breaks a rule of FIX (Reject)."""
        self.now_ns = max(self.now_ns, now_ns)
        self._reject(message, wrong)

    def _reject(self, message: FixMessage, wrong: WrongField) -> None:
        self.counts.rejected += 1
        reference = [(45, message.get(34) or b"0"), (371, wrong.tag), (372, message.msg_type)]
        self._send(REJECT, [*reference, (373, wrong.reason), (58, wrong.text)])

    def _refuse(self, reason: str) -> SessionEnd:
        """Log out and end: what the peer did cannot be repaired."""
        if self.state != State.AWAIT_LOGON or self.peer_id:
            self._send(LOGOUT, [(58, reason)])
        return self._end(reason)

    def _end(self, reason: str, *, is_regular: bool = False) -> SessionEnd:
        self.state = State.ENDED
        self._queued.clear()
        return SessionEnd(reason, is_regular)
