"""The clock of a recording, compared with the exchange's: whether `ts_recv` can be trusted.

The offset of a clock is the median of receive minus send time over packets of one flow of a file. Most of it is the
clock: the way from the exchange takes microseconds to milliseconds, and single delays do not move a median.

Invariant: a clock is off if its offset is impossible as a delay. More than a second is no delay of a feed that is given
up after 20 ms (13.7); and nothing arrives before it was sent. A millisecond is allowed for, because clocks that are
synchronized over a network differ by that much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import BAD_TS_RECV
from umdf.market.rows import Events

MAX_DELAY_NS = 10**9
MAX_LEAD_NS = 10**6  # arrival before sending
FIRST_SAMPLES, SAMPLE_EVERY = 64, 256
MIN_SAMPLES = 3  # a flow with fewer has the offset of its file

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def is_clock_off(offset_ns: int | None) -> bool:
    return offset_ns is not None and not -MAX_LEAD_NS <= offset_ns <= MAX_DELAY_NS


def largest_offset(offsets_ns: Iterable[int | None]) -> int | None:
    """That of the clock that is furthest off; an early one is further off than one that is as much late."""
    known = (offset for offset in offsets_ns if offset is not None)
    return max(known, key=lambda offset: (is_clock_off(offset), abs(offset), -offset), default=None)


def offset_text(offset_ns: int) -> str:
    """Such as "16.250 s behind the exchange's clock"."""
    return f"{abs(offset_ns) / 1e9:,.3f} s {'behind' if offset_ns < 0 else 'ahead of'} the exchange's clock"


class ClockSamples:
    """Differences between receive and send times of units of one flow: of the first ones, and then of every so many.

    Which ones depends only on their position in the flow, never on batches.
    """

    def __init__(self, first: int = FIRST_SAMPLES, every: int = SAMPLE_EVERY) -> None:
        self._first, self._every = first, every
        self._samples: list[Numbers] = []
        self._count = 0  # units so far

    def choose(self, count: int) -> Numbers:
        """Which of the next `count` units are sampled."""
        position = np.arange(self._count, self._count + count)
        self._count += count
        return np.flatnonzero((position < self._first) | (position % self._every == 0))

    def add(self, ts_recv: NDArray[Any], ts_send: NDArray[Any]) -> None:
        """Times of chosen units. Files without receive times have zeros."""
        has_time = ts_recv > 0
        self._samples.append(ts_recv[has_time].astype(np.int64) - ts_send[has_time].astype(np.int64))

    @property
    def samples(self) -> Numbers:
        return np.concatenate([np.empty(0, np.int64), *self._samples])


def clock_offsets(by_flow: dict[int, ClockSamples]) -> list[tuple[int, int]]:
    """Flow and offset of each flow of a file."""
    samples = {flow: one.samples for flow, one in by_flow.items()}
    everything = np.concatenate([np.empty(0, np.int64), *samples.values()])
    if not len(everything):
        return []
    chosen = {flow: own if len(own) >= MIN_SAMPLES else everything for flow, own in samples.items()}
    return [(flow, int(np.floor(np.median(some)))) for flow, some in sorted(chosen.items())]


class FirstArrivals:
    """For each sequence of a span, whether its first arrival was timed by a clock that is off."""

    def __init__(self, count: int) -> None:
        self._ts_recv = np.full(count, np.iinfo(np.int64).max)
        self.is_off = np.zeros(count, np.bool_)

    def add(self, at: Numbers, ts_recv: Numbers, is_off: bool) -> None:
        rows = np.flatnonzero(ts_recv < self._ts_recv[at])
        rows = rows[np.argsort(-ts_recv[rows], kind="stable")]  # the last one wins
        self._ts_recv[at[rows]], self.is_off[at[rows]] = ts_recv[rows], is_off


def flag_untrusted_times(events: Events, is_off: Mask) -> None:
    """Set BAD_TS_RECV on the rows of these units."""
    for rows in events.families.values():
        flags = np.where(is_off[rows.unit], BAD_TS_RECV, 0).astype(np.int32)
        rows.columns["flags"] = rows.column("flags") | flags
