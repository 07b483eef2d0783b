"""Everything that an exchange publishes: all channels, tick by tick.

    publication = Publication(publishers, market, phases)
    publication.publish(engine.take_records(), now_ns)      # every tick, also if nothing has happened

Invariant: a tick publishes the journal before the loops read the market, so that a snapshot includes exactly what the
channel has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UsageError, one_of
from umdf.exchange.publish.channel_loops import ChannelLoops, PublishedMarket
from umdf.exchange.publish.channel_settings import INCREMENTAL
from umdf.exchange.publish.publisher import JournalBatch, Publisher

Records = NDArray[np.int64]


class Publication:
    """`phases` has a record of each group's phase as it is now."""

    def __init__(self, publishers: Sequence[Publisher], market: PublishedMarket, phases: Callable[[], Records]) -> None:
        self.publishers = list(publishers)
        self._phases = phases
        self._loops = [ChannelLoops(publisher, market) for publisher in publishers]

    def publish(self, records: Records, now_ns: int) -> None:
        """Publish a tick: records of the journal, then heartbeats and parts of loops that are due."""
        batch = JournalBatch(INCREMENTAL, records, now_ns)
        for publisher in self.publishers:
            publisher.publish(batch)
        for loops in self._loops:
            loops.advance(now_ns, self._phases)

    def reset_channel(self, protocol: str, channel: int, now_ns: int) -> None:
        """Reset a channel: its books are sent again (4.2.9). Publish the journal before."""
        publisher, loops = self.find(protocol, channel)
        publisher.reset_channel(loops.all_snapshots(), now_ns)
        loops.end(now_ns)

    def reset_sequences(self, protocol: str, channel: int, now_ns: int) -> None:
        """Number the incremental stream of a channel from 1 again: a failover."""
        publisher, loops = self.find(protocol, channel)
        publisher.reset_sequences(now_ns)
        loops.end(now_ns)

    def start_week(self, now_ns: int) -> None:
        """The platform comes up: number the incremental streams of all channels from 1 again."""
        for publisher, loops in zip(self.publishers, self._loops, strict=True):
            publisher.resume(now_ns)
            publisher.reset_sequences(now_ns)
            loops.end(now_ns)

    def start_day(self, trading_date: int) -> None:
        """Publish with another trading date, in days since 1970, from now on."""
        for publisher in self.publishers:
            publisher.set_trading_date(trading_date)

    def close(self) -> None:
        for publisher in self.publishers:
            publisher.close()

    def find(self, protocol: str, channel: int) -> tuple[Publisher, ChannelLoops]:
        """The publisher of a channel, and its loops."""
        known: list[str] = []
        for publisher, loops in zip(self.publishers, self._loops, strict=True):
            if (publisher.protocol, publisher.settings.channel) == (protocol, channel):
                return publisher, loops
            known.append(f"{publisher.protocol} {publisher.settings.channel}")
        raise UsageError(f"unknown channel: {protocol} {channel}", f"use {one_of(known)}")
