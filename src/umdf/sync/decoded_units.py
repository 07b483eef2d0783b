"""Applies decoded units of the incremental stream to a channel: those in order, and those that come late.

Some may be damaged: their bytes are there, but cannot be decoded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap, GapCause
from umdf.sync.gated_updates import resets_many


def apply_in_order(channel: Channel, events: Events, damaged: NDArray[np.bool_]) -> Events:
    """Apply units; those that are damaged are gaps. Returns the events that were applied."""
    first, units = 0, events.units
    for unit in np.flatnonzero(damaged).tolist():
        channel.apply(events.of_units(np.arange(first, unit)))
        epoch, sequence, ts_recv = (int(each[unit]) for each in (units.seq_version, units.sequence, units.ts_recv))
        channel.open_gap(Gap(epoch, sequence, sequence, ts_recv, GapCause.DAMAGE))
        first = unit + 1
    channel.apply(events.of_units(np.arange(first, len(damaged))))
    return events.of_units(~damaged)


def apply_late(channel: Channel, events: Events, damaged: NDArray[np.bool_]) -> Events:
    """Apply those late units that can be, in ascending runs; returns their events. Of a number that came before,
    with other content, nothing is used. Later updates were applied: what resets many instruments can no longer
    be, and stays missing."""
    is_usable, first = ~resets_many(events) & ~damaged, 0
    sequences = events.units.sequence.astype(np.int64)
    for end in [*np.flatnonzero(np.diff(sequences) <= 0).tolist(), len(sequences) - 1]:
        for unit in range(first, end + 1):
            if not channel.gaps.is_missing(int(sequences[unit])):
                is_usable[unit] = False
                if not damaged[unit]:
                    channel.apply_late(events.of_units(first + np.flatnonzero(is_usable[first:unit])))
                    part, first = events.of_units(np.array([unit])), unit + 1
                    channel.contradict(int(sequences[unit]), part, int(events.units.ts_recv[unit]))
        channel.apply_late(events.of_units(first + np.flatnonzero(is_usable[first : end + 1])))
        first = end + 1
    return events.of_units(is_usable)
