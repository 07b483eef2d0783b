"""The looping streams of one channel, at a pace: snapshots of its books, and the definitions of its instruments.

What a loop contains is fixed when it starts. If an instrument of the channel is listed or deleted meanwhile, the loop
ends early and the next one has the new list: a client counts the snapshots (911).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import INSTRUMENTS, SNAPSHOTS
from umdf.exchange.publish.control_records import control_records
from umdf.exchange.publish.publisher import JournalBatch, Publisher

Records = NDArray[np.int64]
Indices = NDArray[np.int64]
SECOND_NS, MS_NS = 1_000_000_000, 1_000_000
STEP_NS = 200 * MS_NS  # between the parts of a loop, if an instrument has not longer
LONGEST_DELAY_NS = SECOND_NS  # that is made up for
Chooser = Callable[[], Indices]
RecordsOf = Callable[[Indices, int], Records]  # of a part, and how many instruments the loop has


class PublishedMarket(Protocol):
    """What the loops read: the market as it is when everything of it has been published."""

    @property
    def listing(self) -> Listing: ...

    @property
    def is_listed(self) -> NDArray[np.bool_]: ...

    def snapshots(self, first: int, stop: int) -> tuple[Records, int]:
        """Snapshots of instruments from `first` on, and the first that is not among them."""
        ...


class _Loop:
    """One looping stream: which instruments are left of the loop, and when the next part is due."""

    def __init__(self, publisher: Publisher, stream: str, rate_per_s: int) -> None:
        self.publisher, self._stream, self._pause_ns = publisher, stream, publisher.settings.loop_pause_ms * MS_NS
        self._part = max(1, rate_per_s * STEP_NS // SECOND_NS)  # instruments that are sent together
        self._interval_ns = self._part * SECOND_NS // rate_per_s
        self._due_ns = 0
        self._total = 0
        self.left: Indices | None = None  # None between two loops

    def advance(self, now_ns: int, choose: Chooser, records_of: RecordsOf) -> None:
        """Send the parts that are due; after a halt of the exchange, only the next one."""
        if now_ns < self._due_ns:
            return
        starts = self.left is None
        if self.left is None:
            self.left = choose()
            self._total = len(self.left)
        if now_ns - self._due_ns > LONGEST_DELAY_NS:
            self._due_ns = now_ns
        parts = 1 + (now_ns - self._due_ns) // self._interval_ns
        chosen, self.left = np.split(self.left, [min(parts * self._part, len(self.left))])
        self._due_ns += parts * self._interval_ns
        records = records_of(chosen, self._total)
        if not len(self.left):
            records = np.concatenate([records, control_records(k.SEQUENCE_RESET, now_ns)])
            self.left, self._due_ns = None, self._due_ns + self._pause_ns
        self.publisher.publish(JournalBatch(self._stream, records, now_ns, starts, self._total))

    def end(self, now_ns: int) -> None:
        """End the loop early; the next starts at once."""
        if self.left is not None:
            records = control_records(k.SEQUENCE_RESET, now_ns)
            self.publisher.publish(JournalBatch(self._stream, records, now_ns))
        self.left, self._due_ns = None, 0


class ChannelLoops:
    def __init__(self, publisher: Publisher, market: PublishedMarket) -> None:
        settings = publisher.settings
        self._publisher, self._market = publisher, market
        self._snapshots = _Loop(publisher, SNAPSHOTS, settings.snapshots_per_s)
        self._definitions = _Loop(publisher, INSTRUMENTS, settings.definitions_per_s)
        self._listed = np.zeros(0, bool)  # members when the loops last looked
        self._now_ns = 0

    def advance(self, now_ns: int, phases: Callable[[], Records]) -> None:
        """Send what is due; `phases` has the records of the phases of all groups as they are now."""
        if self._publisher.settings.is_news_channel:
            return
        self._now_ns = now_ns
        listed = self._publisher.is_member & self._market.is_listed
        if not np.array_equal(listed, self._listed):
            self._listed = listed.copy()
            self.end(now_ns)
        self._definitions.advance(now_ns, lambda: np.flatnonzero(listed), self._definition_records)
        is_start = self._snapshots.left is None

        def snapshot_records(part: Indices, _total: int) -> Records:
            records = self._snapshot_records(part)
            return np.concatenate([self._publisher.member_phases(phases()), records]) if is_start else records

        self._snapshots.advance(now_ns, self._chosen_snapshots, snapshot_records)

    def end(self, now_ns: int) -> None:
        """End both loops early, as when the channel is reset or its instruments have changed."""
        self._definitions.end(now_ns)
        self._snapshots.end(now_ns)

    def all_snapshots(self) -> Records:
        """Snapshots of all members, as after a channel reset."""
        return self._snapshot_records(np.flatnonzero(self._publisher.is_member & self._market.is_listed))

    def _chosen_snapshots(self) -> Indices:
        """The members that are listed; those without orders and statistics are left out if the channel is set so."""
        members = np.flatnonzero(self._listed)
        if self._publisher.settings.sends_empty_books or not len(members):
            return members
        records = self._snapshot_records(members)
        headers = records[records[:, k.KIND] == k.SNAPSHOT_HEADER]
        is_empty = (headers[:, k.SIZE] == 0) & (headers[:, k.OTHER] == 0) & (headers[:, k.POSITION] <= 1)
        return headers[~is_empty, k.INSTRUMENT]

    def _snapshot_records(self, members: Indices) -> Records:
        """Snapshots of some instruments, run by run of neighbours."""
        parts = [np.zeros((0, k.RECORD_COLUMNS), np.int64)]
        for run in np.split(members, np.flatnonzero(np.diff(members) != 1) + 1):
            first = int(run[0]) if len(run) else 0
            while len(run) and first <= run[-1]:
                records, first = self._market.snapshots(first, int(run[-1]) + 1)
                parts.append(records)
        return np.concatenate(parts)

    def _definition_records(self, members: Indices, total: int) -> Records:
        listing = self._market.listing
        records = control_records(k.DEFINITION, np.full(len(members), self._now_ns))
        records[:, k.INSTRUMENT] = records[:, k.ID] = members
        records[:, k.CODE], records[:, k.SIZE], records[:, k.OTHER] = (
            ord("A"),
            total,
            listing.definition_number[members],
        )
        records[:, k.POSITION] = 0
        if self._definitions.left is not None and not len(self._definitions.left) and len(records):
            records[-1, k.POSITION] = 1  # the last of the list
        return records
