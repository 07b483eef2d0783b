"""Where the rows of one list stand in another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.books import replay_kernel as k

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
    arguments = np.zeros(k.POSITION_ARGUMENTS, np.int64)
    arguments[k.IN_ROWS], arguments[k.OTHERS], arguments[k.INCLUDE_EQUAL] = len(book), len(of_book), behind
    arguments[k.IN_GROUP], arguments[k.IN_KEY], arguments[k.OF_GROUP], arguments[k.OF_KEY] = map(
        buffer_address, held
    )
    arguments[k.POSITIONS] = buffer_address(positions)
    if len(of_book):
        k.find_positions(buffer_address(arguments))
    return positions
