"""The client of a TCP Replayer: fills gaps of FIX/FAST channels over one FIX 4.4 session (5.2, 13.7). No I/O.

    client = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER"))
    client.request(Span(72, 101, 108), now_ns)
    …                                            # a TcpLoop connects it: `open`, `receive`, `tick`, `take_output`
    for outcome in client.take_outcomes(): ...   # ReplayedMessages, or ReplayFailure with the reason

A request has at most 2,000 messages. What does not come, or comes as "not available yet", is requested three more
times, 140 ms apart; then the caller recovers from a snapshot. Retransmissions do not exist (5.2 item 9): an answer is
complete only if every sequence came, and a request without progress is made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import FixMessage
from umdf.wire.fix.session import FixSession, Role, SessionSettings, State
from umdf.wire.fix.session_events import ApplicationMessage, Rejection, SessionEnd, SessionStart
from umdf.wire.fix.session_messages import BUSINESS_REJECT, WrongField

MILLISECOND_NS = 1_000_000
RETRY_ERRORS = (
    m.ResponseError.NEWEST_NOT_AVAILABLE, m.ResponseError.BOTH_ENDS_NOT_AVAILABLE, m.ResponseError.NO_RESOURCES,
)  # fmt: skip
RETRY_RESPONSES = (m.ResponseType.IN_PROGRESS, m.ResponseType.UNAVAILABLE)
FIRST_RECONNECT_MS, MAX_RECONNECT_MS = 200, 10_000


@dataclass(frozen=True)
class ReplayClientSettings:
    comp_id: str
    replayer_id: str
    heartbeat_s: int = 30
    timeout_ms: int = 2_000  # without anything of an answer
    retry_after_ms: int = 140  # 5.2
    retries: int = 3
    max_messages: int = 10_000  # beyond it, and what is wanted then, snapshots are faster
    max_request_messages: int = m.MAX_REQUEST_MESSAGES


@dataclass(frozen=True)
class Span:
    """Sequences of a channel, from first to last."""

    channel: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class ReplayedMessages:
    """Messages of a span, without technical header."""

    channel: int
    messages: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class ReplayFailure:
    """What will not come from this replayer."""

    span: Span
    reason: str


@dataclass(eq=False)
class _Request:
    span: Span
    due_ns: int
    attempt: int = 0
    request_id: str = ""  # once it is sent
    deadline_ns: int = 0
    missing: set[int] = field(default_factory=set)
    requested: range = range(0)  # from the first to the last that was missing when it was sent


@dataclass
class ReplayCounts:
    requests: int = 0
    messages: int = 0
    bytes: int = 0
    timeouts: int = 0
    refused: int = 0
    invalid: int = 0  # answers that are not what was requested
    connections: int = 0


class ReplayClient:
    def __init__(self, settings: ReplayClientSettings) -> None:
        self.settings, self.counts = settings, ReplayCounts()
        self._session: FixSession | None = None
        self._waiting: deque[_Request] = deque()
        self._current: _Request | None = None
        self._outcomes: list[ReplayedMessages | ReplayFailure] = []
        self._number = 0
        self._now_ns = 0
        self._reconnect_ms, self._connect_at_ns = FIRST_RECONNECT_MS, 0
        self._timeouts = 0  # consecutive ones
        self.is_answering = False  # the replayer of this session
        self.last_error = ""

    # Requests and outcomes

    def request(self, span: Span, now_ns: int) -> None:
        wanted = sum(len(request.span) for request in self._waiting) + len(span)
        if wanted > self.settings.max_messages:
            self._outcomes.append(ReplayFailure(span, f"{wanted} messages are too many for replay"))
            return
        step = self.settings.max_request_messages
        for first in range(span.first, span.last + 1, step):
            part = Span(span.channel, first, min(first + step - 1, span.last))
            self._waiting.append(_Request(part, now_ns, missing=set(range(part.first, part.last + 1))))

    def cancel(self, channel: int) -> None:
        """Forget the requests of a channel: a snapshot, or a new epoch, has made them useless."""
        self._waiting = deque(request for request in self._waiting if request.span.channel != channel)
        if self._current is not None and self._current.span.channel == channel:
            self._current.missing.clear()

    def take_outcomes(self) -> list[ReplayedMessages | ReplayFailure]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    @property
    def is_idle(self) -> bool:
        return self._current is None and not self._waiting

    # The connection: opened by whoever has sockets

    def wants_connection(self, now_ns: int) -> bool:
        return self._session is None and now_ns >= self._connect_at_ns

    def open(self, now_ns: int) -> None:
        """A connection is being made: log on."""
        self._now_ns = now_ns
        own, peer = self.settings.comp_id, self.settings.replayer_id
        settings = SessionSettings(own, peer, Role.INITIATOR, self.settings.heartbeat_s)
        self._session = FixSession(settings, now_ns)
        self._timeouts, self.is_answering = 0, False
        self.counts.connections += 1

    @property
    def is_active(self) -> bool:
        return self._session is not None and self._session.state == State.ACTIVE

    @property
    def is_closed(self) -> bool:
        return self._session is None or self._session.state == State.ENDED

    @property
    def has_work(self) -> bool:
        return False

    def receive(self, data: bytes, now_ns: int) -> None:
        self._now_ns = now_ns
        if self._session is None:
            return
        for event in self._session.receive(data, now_ns):
            if isinstance(event, SessionStart):
                self._reconnect_ms, self.last_error = FIRST_RECONNECT_MS, ""
            elif isinstance(event, Rejection):
                self._on_rejection(event)
            elif isinstance(event, ApplicationMessage):
                self._on_message(event.message)
            elif isinstance(event, SessionEnd):
                self.last_error = event.reason
        self._send_next()

    def tick(self, now_ns: int) -> None:
        self._now_ns = now_ns
        if self._session is not None:
            for event in self._session.tick(now_ns):
                if isinstance(event, SessionEnd):
                    self.last_error = event.reason
        current = self._current
        if current is not None and now_ns >= current.deadline_ns:
            self.counts.timeouts += 1
            self._timeouts += 1
            self._retry(current, f"no answer within {self.settings.timeout_ms} ms")
            if self._timeouts > self.settings.retries:
                self._leave("requests are not answered", now_ns)
        for request in [request for request in self._waiting if not request.request_id and self._is_overdue(request)]:
            self._waiting.remove(request)
            self._fail(request, self.last_error or "no connection to the replayer")
        self._send_next()

    def take_output(self, now_ns: int) -> bytes:
        self._now_ns = now_ns
        self._send_next()
        return b"" if self._session is None else self._session.take_output()

    def close(self, reason: str) -> None:
        """The connection is gone: what was under way is requested again when there is another."""
        self.last_error = self.last_error or reason
        self._session = None
        self._connect_at_ns = self._now_ns + self._reconnect_ms * MILLISECOND_NS
        self._reconnect_ms = min(2 * self._reconnect_ms, MAX_RECONNECT_MS)
        if self._current is not None:
            self._retry(self._current, reason or "connection lost")

    def _leave(self, reason: str, now_ns: int) -> None:
        """End a session that is of no use, without waiting for the peer: the other address may be better."""
        if self._session is not None and self.is_active:
            self._session.log_out(reason, now_ns)
            self._session.state, self.last_error = State.ENDED, reason

    def log_out(self, now_ns: int) -> None:
        if self._session is not None:
            self._session.log_out("the client stops", now_ns)

    # One request at a time

    def _is_overdue(self, request: _Request) -> bool:
        """Whether a request waits for a connection that does not come."""
        patience_ms = self.settings.timeout_ms + self.settings.retries * self.settings.retry_after_ms
        return not self.is_active and self._now_ns - request.due_ns > patience_ms * MILLISECOND_NS

    def _send_next(self) -> None:
        if self._current is not None or not self.is_active or not self._waiting:
            return
        # One that is made again in 140 ms does not hold up the others, nor those of other channels.
        request = next((request for request in self._waiting if request.due_ns <= self._now_ns), None)
        if request is None:
            return
        self._waiting.remove(request)
        assert self._session is not None
        self._number += 1
        self.counts.requests += 1
        request.request_id = f"{self.settings.comp_id}-{self._number}"
        request.deadline_ns = self._now_ns + self.settings.timeout_ms * MILLISECOND_NS
        request.requested = range(min(request.missing), max(request.missing) + 1)
        one = m.ChannelRange(str(request.span.channel), request.requested[0], request.requested[-1])
        self._session.send(m.REQUEST, m.ReplayRequest(request.request_id, (one,)).fields(), self._now_ns)
        self._current = request

    def _on_message(self, message: FixMessage) -> None:
        parsers = {
            m.ACKNOWLEDGMENT: m.parse_acknowledgment, m.RAW_DATA: m.parse_raw_data, m.REPORT: m.parse_report,
        }  # fmt: skip
        if message.msg_type == BUSINESS_REJECT:
            self._on_rejection(Rejection(message.text(372), message.text(58)))
            return
        parser = parsers.get(message.msg_type)
        found = None if parser is None else parser(message)
        request = self._current
        if found is None or isinstance(found, WrongField):
            self.counts.invalid += 1
            return
        if request is None or found.request_id != request.request_id:
            return  # of a request that has failed, or is made again
        self._timeouts, self.is_answering = 0, True
        request.deadline_ns = self._now_ns + self.settings.timeout_ms * MILLISECOND_NS
        if isinstance(found, m.Acknowledgment):
            self._on_acknowledgment(request, found)
        elif isinstance(found, m.RawData):
            self._on_raw_data(request, found)
        else:
            self._on_report(request, found)

    def _on_rejection(self, rejection: Rejection) -> None:
        """FIX itself refuses the request: it would do so again."""
        if self._current is not None and rejection.msg_type in ("", m.REQUEST):
            self.counts.refused += 1
            self._finish(self._current, rejection.reason or "the replayer rejected the request")

    def _on_acknowledgment(self, request: _Request, found: m.Acknowledgment) -> None:
        if found.response_type == m.ResponseType.ACCEPTED:
            return
        self.counts.refused += 1
        error = "" if found.error is None else f", ApplRespError {found.error}"
        reason = f"refused: ApplRespType {found.response_type}{error}"
        if found.response_type in RETRY_RESPONSES or found.error in RETRY_ERRORS:
            self._retry(request, reason)
        else:
            self._finish(request, reason)

    def _on_raw_data(self, request: _Request, found: m.RawData) -> None:
        is_requested = all(message.sequence in request.requested for message in found.messages)
        if found.channel not in ("", str(request.span.channel)) or not is_requested:
            self.counts.invalid += 1  # another channel's, or what was not requested: nothing of it is used
            return
        # A request made again is for one range, so what came in between comes again.
        messages = {each.sequence: each.data for each in found.messages if each.sequence in request.missing}
        if messages:
            request.missing.difference_update(messages)
            self.counts.messages += len(messages)
            self.counts.bytes += sum(map(len, messages.values()))
            self._outcomes.append(ReplayedMessages(request.span.channel, tuple(messages.items())))

    def _on_report(self, request: _Request, found: m.Report) -> None:
        if not request.missing:
            self._finish(request, "")
        elif found.error is None or found.error in RETRY_ERRORS:
            # Complete by its own account, but not all of it came: requested again (5.2 item 9).
            self._retry(request, f"not available: ApplRespError {found.error}")
        else:
            self._finish(request, f"not available: ApplRespError {found.error}")

    def _retry(self, request: _Request, reason: str) -> None:
        self._current = None
        if not request.missing:  # it was cancelled
            return
        if request.attempt >= self.settings.retries:
            self._fail(request, reason)
            return
        request.attempt += 1
        request.request_id = ""
        request.due_ns = self._now_ns + self.settings.retry_after_ms * MILLISECOND_NS
        self._waiting.appendleft(request)

    def _finish(self, request: _Request, reason: str) -> None:
        self._current = None
        self._fail(request, reason)

    def _fail(self, request: _Request, reason: str) -> None:
        for first, last in _runs(sorted(request.missing)):
            self._outcomes.append(ReplayFailure(Span(request.span.channel, first, last), reason))


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive numbers, as first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
