"""Drops repeated definitions: the instrument stream sends all of them in every loop.

Invariant: a definition is kept if it differs from its instrument's previous one, in the order of the stream. So
dropping repeats within parts of a stream, and then among the rest, gives the same result as a single pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from umdf.lake.hashing import LogicalHash
from umdf.market.arrow import record_batch
from umdf.market.families import COMMON
from umdf.market.rows import Events
from umdf.sync.raw_units import RawUnits

# Columns of the packet and the list, not of the instrument.
IGNORED_COLUMNS = {column.name for column in COMMON} - {"instrument_id"} | {"total_instruments", "is_last"}


class DefinitionFilter:
    """Filters one stream, in order."""

    def __init__(self, last_hashes: Mapping[int, int] | None = None) -> None:
        self._hash = LogicalHash(IGNORED_COLUMNS)
        self.last_hashes: dict[int, int] = dict(last_hashes or {})  # hash of each instrument's last definition
        self._packet_digests: dict[tuple[int, int], int] = {}

    def changed_packets(self, units: RawUnits, header_bytes: int) -> NDArray[np.bool_]:
        """Which packets differ from the previous one with the same sequence: loops repeat the same packets."""
        is_changed, view = np.ones(len(units), np.bool_), units.buffer.data
        byte_ranges = zip(units.start.tolist(), units.end.tolist(), strict=True)
        numbers = zip(units.epoch.tolist(), units.sequence.tolist(), strict=True)
        for row, ((start, end), number) in enumerate(zip(byte_ranges, numbers, strict=True)):
            digest = (end - start) << 32 | zlib.crc32(view[start + header_bytes : end])
            is_changed[row] = self._packet_digests.get(number) != digest
            self._packet_digests[number] = digest
        return is_changed

    def changed_definitions(self, events: Events) -> Events:
        rows = events.rows("definition")
        keep = np.zeros(len(rows), np.bool_)
        if len(rows):
            hashes = self._hash.row_hashes(record_batch(events, "definition")).tolist()
            for row, (instrument_id, row_hash) in enumerate(
                zip(rows.column("instrument_id").tolist(), hashes, strict=True)
            ):
                keep[row] = self.last_hashes.get(instrument_id) != row_hash
                self.last_hashes[instrument_id] = row_hash
        return events.take({"definition": keep})
