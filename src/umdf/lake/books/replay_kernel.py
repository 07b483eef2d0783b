"""Kernels of the replay: positions of one list in another; the current best levels."""

from __future__ import annotations

import numpy as np

from umdf.book.arena_kernel import A_BOOKS, arenas, find_book
from umdf.book.ladder_kernel import store_level, write_side
from umdf.book.memory_layout_kernel import BOOK_BYTES, NULL_I32, get
from umdf.kernels import kernel, load_i32, load_i64, load_u64, store_i64

NULL = -(1 << 63)

# Arguments of `find_positions`: rows by (group, key), others by (group, key), the positions of these.
IN_ROWS, IN_GROUP, IN_KEY, OTHERS, OF_GROUP, OF_KEY, INCLUDE_EQUAL, POSITIONS = range(8)
POSITION_ARGUMENTS = 8


@kernel
def find_positions(t):
    """For each of the others how many rows precede it; with INCLUDE_EQUAL also those of the same key."""
    rows, row, behind = get(t, IN_ROWS), 0, get(t, INCLUDE_EQUAL) != 0
    for i in range(get(t, OTHERS)):
        group, key = load_i32(get(t, OF_GROUP), 4 * i), load_u64(get(t, OF_KEY), 8 * i)
        while row < rows:
            there, own = load_i32(get(t, IN_GROUP), 4 * row), load_u64(get(t, IN_KEY), 8 * row)
            if there > group or (there == group and (own > key or (own == key and not behind))):
                break
            row += 1
        store_i64(get(t, POSITIONS), 8 * i, row)
    return 0


# Arguments of `write_ladders`.
TABLE, BOOKS, IDS, LENDING, DEPTH, STRIDE, OUT = range(7)
LADDER_ARGUMENTS = 7


@kernel
def write_ladders(t):
    """The best DEPTH levels of some books, as ladder rows; NULL if there is no book."""
    books, depth = get(t, TABLE), get(t, DEPTH)
    a = arenas(books)
    for i in range(get(t, BOOKS)):
        body = get(t, OUT) + get(t, STRIDE) * i
        number = find_book(books, load_i64(get(t, IDS), 8 * i), load_i64(get(t, LENDING), 8 * i))
        for side in range(2):
            if number >= 0:
                write_side(a, a[A_BOOKS] + BOOK_BYTES * number, side, depth, body)
            else:
                for rank in range(depth):
                    store_level(body, depth, side, rank, np.int64(NULL), np.int64(NULL), np.int64(NULL_I32))
    return 0
