"""Where the rows of one list stand in another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.books import trust_kernel as h

Numbers = NDArray[np.int64]


def merge_positions(
    book: NDArray[np.int32],
    key: NDArray[np.uint64],
    of_book: NDArray[np.int32],
    of_key: NDArray[np.uint64],
    *,
    behind: bool,
) -> Numbers:
    """For some (book, key), sorted, how many rows (sorted) precede each; with `behind` also those of the same key."""
    places = np.zeros(len(of_book), np.int64)
    held = [np.ascontiguousarray(v) for v in (book, key, of_book, of_key)]
    arguments = np.zeros(h.POSITION_ARGUMENTS, np.int64)
    arguments[h.IN_ROWS], arguments[h.OTHERS], arguments[h.INCLUDE_EQUAL] = len(book), len(of_book), behind
    arguments[h.IN_GROUP], arguments[h.IN_KEY], arguments[h.OF_GROUP], arguments[h.OF_KEY] = map(buffer_address, held)
    arguments[h.POSITIONS] = buffer_address(places)
    if len(of_book):
        h.find_positions(buffer_address(arguments))
    return places
