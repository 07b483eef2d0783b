"""Answers requests for replay (FIX/FAST 5.2, reference 2.1): which messages, and every way a request can fail.

    answer = service.request(request, in_progress=False)
    answer.acknowledgment      # sent first
    answer.parts               # then these: RawData, and a Report at the end; None if the request was not accepted

A service is one replayer: the Replayer serves the trading session, the Historical Replayer the week (5.2 items 1, 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from umdf.exchange.replayer.history import ChannelHistory
from umdf.wire.fix.replay_messages import (
    MAX_REQUEST_MESSAGES,
    Acknowledgment,
    ChannelRange,
    RawData,
    ReplayRequest,
    Report,
    ReportType,
    ResponseError,
    ResponseStatus,
    ResponseType,
    replayed,
)

MAX_REPORT_BYTES = 60_000  # of a URDR, group included
GROUP_ENTRY_BYTES = 64  # at most, of one message
AVAILABLE_AFTER_MS = 25  # after publication (5.2)


class Switch(Enum):
    """What an operator can turn on, to show clients every answer that the specification has."""

    UNAVAILABLE = "unavailable"  # 1348=7
    NOT_AUTHORIZED = "not-authorized"  # 35021=1
    NO_RESOURCES = "no-resources"  # 1354=8 in the acknowledgment
    NO_RESOURCES_LATER = "no-resources-later"  # 1354=8 in the report


@dataclass
class ReplaySettings:
    available_after_ms: int = AVAILABLE_AFTER_MS
    max_messages: int = MAX_REQUEST_MESSAGES
    switches: set[Switch] = field(default_factory=set)


class Retention(Protocol):
    def oldest_ns(self, now_ns: int) -> int:
        """Since when messages are served."""
        ...


@dataclass(frozen=True)
class Answer:
    acknowledgment: Acknowledgment
    parts: Iterator[RawData | Report] | None = None  # of an accepted request; the last is the report


class ReplayService:
    def __init__(
        self,
        histories: Mapping[str, ChannelHistory],
        settings: ReplaySettings,
        retention: Retention,
        clock_ns: Callable[[], int],
    ) -> None:
        """`clock_ns` is the exchange's own time, in which messages were sent; sessions may run in another."""
        self.settings = settings
        self._histories, self._retention, self._clock_ns = histories, retention, clock_ns
        self._numbers = itertools.count(1)

    def request(self, request: ReplayRequest, *, in_progress: bool) -> Answer:
        requested, response_id = request.ranges[0], f"R{next(self._numbers)}"
        failure = self._failure(request, requested, in_progress=in_progress)
        if failure is None:
            accepted = Acknowledgment(response_id, request.request_id, ResponseType.ACCEPTED, requested, None, 0)
            return Answer(accepted, self._parts(request.request_id, response_id, requested))
        response_type, error, status = failure
        return Answer(Acknowledgment(response_id, request.request_id, response_type, requested, error, status))

    def _failure(
        self, request: ReplayRequest, requested: ChannelRange, *, in_progress: bool
    ) -> tuple[ResponseType, ResponseError | None, ResponseStatus] | None:
        """Tags 1348, 1354 and 35021 of a request that is not accepted."""
        switches = self.settings.switches
        if in_progress:
            return ResponseType.IN_PROGRESS, None, ResponseStatus.IN_PROGRESS
        if Switch.UNAVAILABLE in switches:
            return ResponseType.UNAVAILABLE, None, ResponseStatus.UNAVAILABLE
        if len(request.ranges) > 1:
            return ResponseType.TOO_MANY_APPLICATIONS, None, ResponseStatus.INVALID_RANGE
        if requested.channel not in self._histories:
            error = ResponseError.UNKNOWN_APPLICATION
            return ResponseType.UNKNOWN_APPLICATION, error, ResponseStatus.INVALID_RANGE
        if Switch.NOT_AUTHORIZED in switches:
            return ResponseType.NOT_ACCEPTED, None, ResponseStatus.NOT_AUTHORIZED
        if not 1 <= requested.first <= requested.last:
            return ResponseType.NOT_ACCEPTED, ResponseError.INVALID_RANGE, ResponseStatus.INVALID_RANGE
        if requested.last - requested.first + 1 > self.settings.max_messages:
            return ResponseType.NOT_ACCEPTED, ResponseError.TOO_MANY_MESSAGES, ResponseStatus.INVALID_RANGE
        if Switch.NO_RESOURCES in switches:
            return ResponseType.NOT_ACCEPTED, ResponseError.NO_RESOURCES, ResponseStatus.UNAVAILABLE
        return None

    def _parts(self, request_id: str, response_id: str, requested: ChannelRange) -> Iterator[RawData | Report]:
        history, now_ns = self._histories[requested.channel], self._clock_ns()
        epoch, oldest = history.epoch, max(history.first, history.first_since(self._retention.oldest_ns(now_ns)))
        entries = history.entries(max(requested.first, oldest), requested.last)
        entries = entries[entries["ts_ns"] <= now_ns - self.settings.available_after_ms * 1_000_000]
        available = entries[entries["size"] > 0]
        newest = int(entries["sequence"][-1]) if len(entries) else 0
        error: ResponseError | None = None
        if requested.first < oldest:
            error = ResponseError.OLDEST_NOT_AVAILABLE if len(available) else ResponseError.MESSAGES_GONE
        if newest < requested.last and error != ResponseError.MESSAGES_GONE:
            error = ResponseError.NEWEST_NOT_AVAILABLE if error is None else ResponseError.BOTH_ENDS_NOT_AVAILABLE
        if error is None and len(available) < len(entries):  # a hole that nobody has any more
            error = ResponseError.MESSAGES_GONE
        if Switch.NO_RESOURCES_LATER in self.settings.switches:
            available, error = available[:0], ResponseError.NO_RESOURCES
        last, at, sizes = 0, 0, available["size"].tolist()
        while at < len(available) and history.epoch == epoch:
            size, end = 0, at
            while end < len(available) and (end == at or size + sizes[end] + GROUP_ENTRY_BYTES <= MAX_REPORT_BYTES):
                size, end = size + sizes[end] + GROUP_ENTRY_BYTES, end + 1
            messages = replayed(history.read(available[at:end]), last)
            if len(messages) < end - at:
                error = ResponseError.MESSAGES_GONE  # damaged on disk
            if messages:
                last = messages[-1].sequence
                yield RawData(request_id, response_id, requested.channel, len(available), messages)
            at = end
        if at < len(available):  # a SequenceReset came meanwhile: what was before it is not served (4.2.8)
            error = ResponseError.MESSAGES_GONE
        report_type = ReportType.COMPLETED if error is None else ReportType.ERROR
        yield Report(
            f"E{response_id[1:]}", report_type, request_id, response_id, requested.channel, last or None, error
        )  # fmt: skip
