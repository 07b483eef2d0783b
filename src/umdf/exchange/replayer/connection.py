"""One client of a replayer: its FIX session and its request, without I/O.

    connection.receive(data, now_ns); connection.tick(now_ns)
    socket.send(connection.take_output())        # one report at a time, so that requests in between are seen

One request is served at a time: another one meanwhile is refused with 1348=3, and one beyond the limit of requests per
second with 1348=7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from umdf.exchange.replayer.service import ReplayService
from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import FixMessage
from umdf.wire.fix.session import FixSession, Role, SequenceNumbers, SessionSettings, State
from umdf.wire.fix.session_events import ApplicationMessage, SessionEnd
from umdf.wire.fix.session_messages import WrongField

MAX_REQUESTS_PER_S = 1_000
MAX_REQUEST_BYTES = 16 << 10
MAX_WAITING_BYTES = 256 << 10  # of replies to a client that sends, but does not read
UNSUPPORTED_TYPE = 3  # BusinessRejectReason (380)
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class ReplayerId:
    comp_id: str  # SenderCompID of the replayer
    clients: frozenset[str] = frozenset()  # who may log on; empty: everyone


class CompIds:
    """The sequence numbers of clients by CompID, also while they are not logged on. One session for each."""

    MAX_CLIENTS = 10_000

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._numbers: dict[str, SequenceNumbers] = {}
        self._active: set[str] = set()

    def admit(self, comp_id: str) -> SequenceNumbers | None:
        is_allowed = comp_id in self._allowed if self._allowed else 0 < len(comp_id) <= 64
        if not is_allowed or comp_id in self._active:
            return None
        if comp_id not in self._numbers and len(self._numbers) >= self.MAX_CLIENTS:
            del self._numbers[next(name for name in self._numbers if name not in self._active)]
        self._active.add(comp_id)
        return self._numbers.setdefault(comp_id, SequenceNumbers())

    def release(self, comp_id: str) -> None:
        self._active.discard(comp_id)


class ReplayerConnection:
    def __init__(
        self, replayer: ReplayerId, comp_ids: CompIds, service: ReplayService, now_ns: int,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._comp_ids, self._service, self._log = comp_ids, service, log
        self._admitted: str | None = None
        settings = SessionSettings(replayer.comp_id, "", Role.ACCEPTOR, max_message_bytes=MAX_REQUEST_BYTES)
        self.session = FixSession(settings, now_ns, self._admit)
        self._parts: Iterator[m.RawData | m.Report] | None = None
        self._requests: deque[int] = deque(maxlen=MAX_REQUESTS_PER_S)  # when they came
        self.end_reason = ""

    def _admit(self, comp_id: str) -> SequenceNumbers | None:
        numbers = self._comp_ids.admit(comp_id)
        if numbers is not None:
            self._admitted = comp_id
        return numbers

    @property
    def is_closed(self) -> bool:
        return self.session.state == State.ENDED

    @property
    def has_work(self) -> bool:
        """Whether there is more to send, without any event."""
        return self._parts is not None and self.session.state == State.ACTIVE

    def receive(self, data: bytes, now_ns: int) -> None:
        for event in self.session.receive(data, now_ns):
            if isinstance(event, SessionEnd):
                self._end(event)
            elif isinstance(event, ApplicationMessage):
                self._on_message(event.message, now_ns)
        if self.session.output_bytes > MAX_WAITING_BYTES:
            self.close("the client sends, but does not read")

    def tick(self, now_ns: int) -> None:
        for event in self.session.tick(now_ns):
            if isinstance(event, SessionEnd):
                self._end(event)

    def take_output(self, now_ns: int) -> bytes:
        """Bytes to send now, with at most one report of a request that is being served."""
        if self.has_work and not self.session.output_bytes:
            assert self._parts is not None
            part = next(self._parts, None)
            if part is None or isinstance(part, m.Report):
                self._parts = None
            if part is not None:
                msg_type = m.RAW_DATA if isinstance(part, m.RawData) else m.REPORT
                self.session.send(msg_type, part.fields(), now_ns)
        return self.session.take_output()

    def close(self, reason: str = "the connection was closed") -> None:
        """The connection is gone."""
        if not self.is_closed:
            self.session.state = State.ENDED
        self._end(SessionEnd(reason))

    def _end(self, event: SessionEnd) -> None:
        self._parts = None
        if not self.end_reason:
            self.end_reason = event.reason
            self._log(f"{self.session.peer_id or 'client'}: {event.reason}")
        if self._admitted is not None:
            self._comp_ids.release(self._admitted)
            self._admitted = None

    def _on_message(self, message: FixMessage, now_ns: int) -> None:
        if message.msg_type != m.REQUEST:
            self.session.reject_business(message, UNSUPPORTED_TYPE, "only ApplicationMessageRequest (BW)", now_ns)
            return
        request = m.parse_request(message)
        if isinstance(request, WrongField):
            self.session.reject(message, request, now_ns)
            return
        oldest = self._requests[0] if len(self._requests) == MAX_REQUESTS_PER_S else None
        self._requests.append(now_ns)
        if oldest is not None and now_ns - oldest < SECOND_NS:
            refusal = m.Acknowledgment(
                "0", request.request_id, m.ResponseType.UNAVAILABLE, request.ranges[0], None,
                m.ResponseStatus.UNAVAILABLE,
            )  # fmt: skip
            self.session.send(m.ACKNOWLEDGMENT, refusal.fields(), now_ns)
            return
        answer = self._service.request(request, in_progress=self._parts is not None)
        self.session.send(m.ACKNOWLEDGMENT, answer.acknowledgment.fields(), now_ns)
        if answer.parts is not None:
            self._parts = answer.parts
