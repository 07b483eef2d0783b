"""What a live channel reports, beside its market data: small values, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.feed.channel_states import FeedState
from umdf.feed.feed_lines import ChannelKey
from umdf.sync.gaps import Gap
from umdf.sync.trust import Trust


@dataclass(frozen=True)
class StateChanged:
    channel: ChannelKey
    before: FeedState
    state: FeedState
    ts_ns: int


@dataclass(frozen=True)
class GapOpened:
    """No line delivered these sequences in time. They may still come."""

    channel: ChannelKey
    gap: Gap


@dataclass(frozen=True)
class EpochStarted:
    """A numbering started: the first that was received, or a new one after a failover or the weekly restart."""

    channel: ChannelKey
    epoch: int
    first: int


@dataclass(frozen=True)
class TrustChanged:
    channel: ChannelKey
    instrument_id: int
    symbol: str | None
    before: Trust
    trust: Trust


@dataclass(frozen=True)
class BookChanged:
    """The book of an instrument is another one than before; several updates of one batch are one change."""

    channel: ChannelKey
    instrument_id: int
    symbol: str | None
    sequence: int  # of the last update
    ts_recv: int
    is_last: bool  # the last update ends its event


@dataclass(frozen=True)
class RecorderStopped:
    """Nothing is recorded any more; books are not affected."""

    reason: str


FeedEvent = StateChanged | GapOpened | EpochStarted | TrustChanged | BookChanged | RecorderStopped
