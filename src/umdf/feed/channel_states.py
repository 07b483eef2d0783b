"""The states of a channel that is received live, as a table, and the streams that each state joins (4.2.6)."""

from __future__ import annotations

from enum import StrEnum

from umdf.sync.stream_detection import StreamKind


class FeedState(StrEnum):
    WAITING = "waiting"  # nothing was received yet
    SYNCHRONIZING = "synchronizing"  # instruments and snapshots come; incrementals wait for them
    LIVE = "live"  # every book, phase, state and definition is healthy
    RECOVERING = "recovering"  # something was lost; what it may have affected is not healthy
    SILENT = "silent"  # nothing on any line for 3 × the interval of heartbeats (4.1.1)


class Signal(StrEnum):
    RECEIVED = "received"
    HEALTHY = "healthy"  # all instruments are known; all books, phases, states and definitions healthy
    UNTRUSTED = "untrusted"  # a book, phase, state or definition is not healthy
    EPOCH_STARTED = "epoch started"  # the numbering started again: as at the start of the day (4.2.8)
    FELL_SILENT = "fell silent"


TRANSITIONS: dict[FeedState, dict[Signal, FeedState]] = {
    FeedState.WAITING: {Signal.RECEIVED: FeedState.SYNCHRONIZING},
    FeedState.SYNCHRONIZING: {
        Signal.HEALTHY: FeedState.LIVE,
        Signal.FELL_SILENT: FeedState.SILENT,
    },
    FeedState.LIVE: {
        Signal.UNTRUSTED: FeedState.RECOVERING,
        Signal.EPOCH_STARTED: FeedState.SYNCHRONIZING,
        Signal.FELL_SILENT: FeedState.SILENT,
    },
    FeedState.RECOVERING: {
        Signal.HEALTHY: FeedState.LIVE,
        Signal.EPOCH_STARTED: FeedState.SYNCHRONIZING,
        Signal.FELL_SILENT: FeedState.SILENT,
    },
    FeedState.SILENT: {Signal.RECEIVED: FeedState.RECOVERING, Signal.EPOCH_STARTED: FeedState.SYNCHRONIZING},
}

# The instrument and snapshot streams are left when nothing is missing, and joined again to recover.
ALL_STREAMS = frozenset(StreamKind)
JOINED_STREAMS: dict[FeedState, frozenset[StreamKind]] = {
    FeedState.WAITING: ALL_STREAMS,
    FeedState.SYNCHRONIZING: ALL_STREAMS,
    FeedState.LIVE: frozenset({StreamKind.INCREMENTAL}),
    FeedState.RECOVERING: ALL_STREAMS,
    FeedState.SILENT: ALL_STREAMS,
}
