"""Definitions come again and again on the instrument stream: what does not change anything is left out.

The one rule: a definition stays if it differs from the one before it of its instrument, in the order of the stream. So
leaving out repeats within parts of a stream and then among what is left gives what one pass over all of it would.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from umdf.lake.hashing import LogicalHash
from umdf.market.arrow import record_batch
from umdf.market.events import COMMON
from umdf.market.rows import Events
from umdf.sync.pieces import Pieces

# About the packet and the list, not about the instrument.
NOT_COMPARED = {column.name for column in COMMON} - {"instrument_id"} | {"total_instruments", "is_last"}


class Repeats:
    """Of one stream, in its order."""

    def __init__(self, last: Mapping[int, int] | None = None) -> None:
        self._hash = LogicalHash(NOT_COMPARED)
        self.last: dict[int, int] = dict(last or {})  # a word for the last definition of each instrument
        self._packets: dict[tuple[int, int], int] = {}

    def new_packets(self, pieces: Pieces, header_bytes: int) -> NDArray[np.bool_]:
        """Which packets differ from the last one with their number: in a loop, the same place has the same content."""
        new, view = np.ones(len(pieces), np.bool_), pieces.buffer.data
        places = zip(pieces.start.tolist(), pieces.end.tolist(), strict=True)
        numbers = zip(pieces.epoch.tolist(), pieces.sequence.tolist(), strict=True)
        for row, ((start, end), number) in enumerate(zip(places, numbers, strict=True)):
            digest = (end - start) << 32 | zlib.crc32(view[start + header_bytes : end])
            new[row] = self._packets.get(number) != digest
            self._packets[number] = digest
        return new

    def new_definitions(self, events: Events) -> Events:
        rows = events.rows("definition")
        keep = np.zeros(len(rows), np.bool_)
        if len(rows):
            words = self._hash.of_rows(record_batch(events, "definition")).tolist()
            for row, (instrument_id, word) in enumerate(zip(rows.column("instrument_id").tolist(), words, strict=True)):
                keep[row] = self.last.get(instrument_id) != word
                self.last[instrument_id] = word
        return events.at({"definition": keep})
