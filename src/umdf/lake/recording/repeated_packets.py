"""Packets that another file of the same line has too: the same bytes, received at the same time.

A capture may be ingested twice in different files: a part and the whole, or two overlapping parts. Idempotence is by
content: such a packet is read from the first of the files only (umdf.lake.plan.overlapping_files defines which), so it
is counted once, and a snapshot in it is compared once.

Invariant: what is dropped from a source depends only on that source and the splits in its `earlier`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.recording import content_hash_kernel as k
from umdf.transport.capture import PacketBatch

Numbers = NDArray[np.int64]


def content_hashes(buffer: NDArray[np.uint8], start: Numbers, end: Numbers, seed: Numbers) -> Numbers:
    """A hash of each range of bytes, mixed with its seed."""
    columns = [np.ascontiguousarray(column, np.int64) for column in (start, end, seed)]
    hashes = np.empty(len(start), np.int64)
    addresses = map(buffer_address, (buffer, *columns))
    k.hash_ranges(*addresses, len(start), buffer_address(hashes))
    return hashes


class EarlierPackets:
    """The packets of the splits of other files."""

    def __init__(self, batches: Iterable[PacketBatch]) -> None:
        self._hashes = np.unique(np.concatenate([np.empty(0, np.int64), *map(_packet_hashes, batches)]))

    def without_repeats(self, batch: PacketBatch) -> PacketBatch:
        hashes = _packet_hashes(batch)
        at = np.minimum(np.searchsorted(self._hashes, hashes), max(len(self._hashes) - 1, 0))
        is_new: Any = self._hashes[at] != hashes if len(self._hashes) else np.ones(len(batch), np.bool_)
        return batch if is_new.all() else batch.take(np.flatnonzero(is_new))


def _packet_hashes(batch: PacketBatch) -> Numbers:
    return content_hashes(batch.buffer, batch.start, batch.end, batch.ts_ns)
