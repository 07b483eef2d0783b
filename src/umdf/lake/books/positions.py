"""Where the rows of one list stand in another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.books import trust_kernel as trust

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
    positions = np.zeros(len(of_book), np.int64)
    held = [np.ascontiguousarray(v) for v in (book, key, of_book, of_key)]
    arguments = np.zeros(trust.POSITION_ARGUMENTS, np.int64)
    arguments[trust.IN_ROWS], arguments[trust.OTHERS], arguments[trust.INCLUDE_EQUAL] = len(book), len(of_book), behind
    arguments[trust.IN_GROUP], arguments[trust.IN_KEY], arguments[trust.OF_GROUP], arguments[trust.OF_KEY] = map(
        buffer_address, held
    )
    arguments[trust.POSITIONS] = buffer_address(positions)
    if len(of_book):
        trust.find_positions(buffer_address(arguments))
    return positions
