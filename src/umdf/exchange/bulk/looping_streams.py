"""The looping streams of a bulk capture: the instrument definitions, and snapshots of all books.

A snapshot loop is sent in parts, each of the market at that time, so that one loop refers to several sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Indices, Market, Records
from umdf.exchange.publish.channel_settings import INSTRUMENTS, SNAPSHOTS
from umdf.exchange.publish.publisher import JournalBatch

PARTS_PER_LOOP = 4


class LoopingStreams:
    """Flush the incremental stream before calling any of these."""

    def __init__(self, market: Market, phase: Indices, publish: Callable[[JournalBatch], None]) -> None:
        self._market, self._phases, self._publish = market, phase, publish
        self._next_index = self._snapshot_count = 0  # of the current loop: next instrument, snapshots

    @property
    def is_active(self) -> bool:
        return self._snapshot_count > 0

    def send_definitions(self) -> None:
        """Send all definitions, and the SequenceReset that ends the loop."""
        indices, listing = np.flatnonzero(self._market.is_listed), self._market.listing
        records = self._records(
            k.DEFINITION,
            len(indices),
            id=indices,
            instrument=indices,
            code=ord("A"),
            size=len(indices),
            other=listing.definition_number[indices],  # as it is now: it may change before this is encoded
            position=np.arange(len(indices)) == len(indices) - 1,
        )
        records = np.concatenate([records, self._records(k.SEQUENCE_RESET)])
        self._publish(JournalBatch(INSTRUMENTS, records, self._market.now, starts_loop=True))

    def send_snapshots(self) -> None:
        """Send the next part of the snapshot loop, or the first of a new one."""
        market, starts, parts = self._market, not self.is_active, list[Records]()
        if starts:
            self._next_index, self._snapshot_count = 0, int(market.is_listed.sum())
            groups = np.arange(len(self._phases))
            parts.append(self._records(k.GROUP_PHASE, len(groups), id=groups, aux=self._phases, flags=k.SNAPSHOT))
        total, count = self._snapshot_count, len(market.listing)
        records, self._next_index = market.snapshots(
            self._next_index, min(self._next_index + -(-count // PARTS_PER_LOOP), count)
        )
        parts.append(records)
        if self._next_index == count:
            parts.append(self._records(k.SEQUENCE_RESET))
            self._snapshot_count = 0
        self._publish(JournalBatch(SNAPSHOTS, np.concatenate(parts), market.now, starts, total))

    def _records(self, kind: int, count: int = 1, **columns: Any) -> Records:
        records = np.full((count, k.RECORD_COLUMNS), k.NULL, np.int64)
        records[:, k.KIND], records[:, k.SIDE], records[:, k.FLAGS] = kind, k.NO_SIDE, 0
        records[:, k.TS] = self._market.now
        for name, values in columns.items():
            records[:, getattr(k, name.upper())] = values
        return records
