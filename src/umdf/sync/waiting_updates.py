"""Updates of stale instruments that wait until a snapshot or a missing unit makes them applicable.

Invariant: memory is bounded by bytes. If it is exceeded, the oldest updates are dropped, and `dropped_until` says up to
which sequence an instrument's updates are incomplete: only a snapshot of that sequence or later can recover it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.rows import Events, merge_events

DEFAULT_BYTES = 64 << 20
NOTHING_DROPPED = -1
JOINED_PARTS = 16  # the largest joined chunk, as a part of the memory


@dataclass(eq=False)
class _Chunk:
    number: int  # the older, the smaller
    events: Events
    instruments: set[int]  # whose updates are still needed
    nbytes: int
    last: int  # the last sequence


class WaitingUpdates:
    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes, self.nbytes = max_bytes, 0
        self._chunks: dict[int, _Chunk] = {}  # by number
        self._count = 0
        self._chunks_of: dict[int, list[_Chunk]] = {}
        self._dropped_until: dict[int, int] = {}

    def __len__(self) -> int:
        """How many instruments have waiting updates."""
        return len(self._chunks_of)

    def add(self, events: Events) -> None:
        """Rows of stale instruments, in wire order."""
        instruments: set[int] = set()
        for rows in events.families.values():
            instruments.update(np.unique(rows.column("instrument_id")).tolist())
        instruments.discard(NULL)
        if not instruments:
            return
        events = events.compacted()
        self._count += 1
        chunk = _Chunk(self._count, events, instruments, events.nbytes, int(events.units.sequence.max()))
        self._chunks[chunk.number] = chunk
        for instrument_id in instruments:
            self._chunks_of.setdefault(instrument_id, []).append(chunk)
        self.nbytes += chunk.nbytes
        while self.nbytes > self.max_bytes and self._chunks:
            oldest = self._chunks.pop(min(self._chunks))
            for instrument_id in oldest.instruments:
                self._dropped_until[instrument_id] = max(oldest.last, self.dropped_until(instrument_id))
                self._forget_chunk(instrument_id, oldest)
            self.nbytes -= oldest.nbytes

    def dropped_until(self, instrument_id: int) -> int:
        return self._dropped_until.get(instrument_id, NOTHING_DROPPED)

    def take(self, instrument_ids: NDArray[np.int64]) -> Events | None:
        """The updates of these (sorted) instruments, in wire order; they no longer wait."""
        wanted = [number for number in instrument_ids.tolist() if number in self._chunks_of]
        if not wanted:
            return None
        holding = {chunk.number: chunk for number in wanted for chunk in self._chunks_of.pop(number)}
        parts, joined, nbytes = list[Events](), list[_Chunk](), 0
        # Many small chunks are joined: a snapshot loop takes rows out of each again and again.
        for number in sorted(holding):
            if joined and nbytes + holding[number].nbytes > self.max_bytes // JOINED_PARTS:
                parts.append(self._split(joined, wanted, instrument_ids))
                joined, nbytes = [], 0
            joined.append(holding[number])
            nbytes += holding[number].nbytes
        return merge_events([*parts, self._split(joined, wanted, instrument_ids)])

    def _split(self, chunks: list[_Chunk], wanted: list[int], instrument_ids: NDArray[np.int64]) -> Events:
        """Take the rows of some instruments out of chunks; what remains is one chunk."""
        events = merge_events([chunk.events for chunk in chunks])
        masks = {name: np.isin(rows.column("instrument_id"), instrument_ids) for name, rows in events.families.items()}
        for chunk in chunks:
            del self._chunks[chunk.number]
            self.nbytes -= chunk.nbytes
            chunk.instruments.difference_update(wanted)
        instruments = set[int]().union(*(chunk.instruments for chunk in chunks))
        if instruments:
            rest = events.take({name: ~mask for name, mask in masks.items()}).compacted()
            number, last = chunks[0].number, max(chunk.last for chunk in chunks)
            remainder = self._chunks[number] = _Chunk(number, rest, instruments, rest.nbytes, last)
            self.nbytes += remainder.nbytes
            replaced = {id(chunk) for chunk in chunks}
            for instrument in instruments:
                others = [chunk for chunk in self._chunks_of[instrument] if id(chunk) not in replaced]
                self._chunks_of[instrument] = [*others, remainder]
        return events.take(masks)

    def discard(self, instrument_ids: Iterable[int]) -> None:
        """What waits for these instruments is out of date: they are empty or deleted."""
        ids = np.array(sorted(instrument_ids), np.int64)
        self.take(ids)
        self.forget_dropped(ids.tolist())

    def forget_dropped(self, instrument_ids: Iterable[int]) -> None:
        """A snapshot has replaced what was dropped."""
        for number in instrument_ids:
            self._dropped_until.pop(number, None)

    def clear(self) -> None:
        self._chunks.clear()
        self._chunks_of.clear()
        self._dropped_until.clear()
        self.nbytes = 0

    def _forget_chunk(self, instrument_id: int, chunk: _Chunk) -> None:
        others = [other for other in self._chunks_of[instrument_id] if other is not chunk]
        if others:
            self._chunks_of[instrument_id] = others
        else:
            del self._chunks_of[instrument_id]


def rows_after(events: Events, ids: NDArray[np.int64], after: dict[int, int]) -> Events:
    """Without rows that are not newer than a sequence of their (sorted) instrument."""
    limits = np.array([after[number] for number in ids.tolist()], np.int64)
    masks = {}
    for name, rows in events.families.items():
        own = rows.column("instrument_id")
        at = np.minimum(np.searchsorted(ids, own), len(ids) - 1)
        masks[name] = (ids[at] != own) | (events.units.sequence[rows.unit] > limits[at])
    return events.take(masks)
