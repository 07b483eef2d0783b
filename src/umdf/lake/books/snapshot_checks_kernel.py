"""Compares books of one channel with those of snapshots, entry by entry."""

from __future__ import annotations

import numpy as np

from umdf.book.arena_kernel import A_BOOKS, arenas, find_book
from umdf.book.memory_layout_kernel import AGGREGATED, B_BOOK_TYPE, BOOK_BYTES, get
from umdf.book.state_kernel import (
    E_COUNT,
    E_FIRM,
    E_ORDER_ID,
    E_PRICE,
    E_SIDE,
    E_SIZE,
    ENTRY_BYTES,
    count_entries,
    write_entries,
)
from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, store_i64

FIRST, PAIRS, OURS, SNAPSHOT_BOOKS, IDS, LENDING, OUT, CAPACITY, OUR_ENTRIES, SNAPSHOT_ENTRIES = range(10)
ARGUMENTS = 10
# Entries of the book, of the snapshot, index of the first difference (-1: none).
R_FOUND, R_EXPECTED, R_FIRST_DIFFERENCE = (0, 1, 2)
RESULT_COLUMNS = 3


@inlined
def _is_same_entry(one, other, aggregated):
    same = load_u8(one, E_SIDE) == load_u8(other, E_SIDE) and load_i64(one, E_PRICE) == load_i64(other, E_PRICE)
    same = same and load_i64(one, E_SIZE) == load_i64(other, E_SIZE)
    if aggregated:
        return same and load_i32(one, E_COUNT) == load_i32(other, E_COUNT)
    same = same and load_i64(one, E_ORDER_ID) == load_i64(other, E_ORDER_ID)
    return same and load_i64(one, E_FIRM) == load_i64(other, E_FIRM)


@inlined
def _entry_count(table, number):
    return count_entries(table, number) if number >= 0 else np.int64(0)


@kernel
def compare_books(t):
    """Compare pairs from FIRST on; returns the first pair that did not fit, or PAIRS. A missing book is empty."""
    ours, stated = get(t, OURS), get(t, SNAPSHOT_BOOKS)
    for i in range(get(t, FIRST), get(t, PAIRS)):
        instrument, lending = load_i64(get(t, IDS), 8 * i), load_i64(get(t, LENDING), 8 * i)
        number, other = find_book(ours, instrument, lending), find_book(stated, instrument, lending)
        found, expected = _entry_count(ours, number), _entry_count(stated, other)
        if max(found, expected) > get(t, CAPACITY):
            return i
        if found > 0:
            write_entries(ours, number, get(t, OUR_ENTRIES))
        aggregated = False
        if expected > 0:
            write_entries(stated, other, get(t, SNAPSHOT_ENTRIES))
            b = arenas(stated)[A_BOOKS] + BOOK_BYTES * other
            aggregated = load_i32(b, B_BOOK_TYPE) & AGGREGATED != 0
        place, most = 0, min(found, expected)
        while place < most and _is_same_entry(
            get(t, OUR_ENTRIES) + ENTRY_BYTES * place, get(t, SNAPSHOT_ENTRIES) + ENTRY_BYTES * place, aggregated
        ):
            place += 1
        result = get(t, OUT) + 8 * RESULT_COLUMNS * i
        store_i64(result, 8 * R_FOUND, found)
        store_i64(result, 8 * R_EXPECTED, expected)
        store_i64(result, 8 * R_FIRST_DIFFERENCE, -1 if place == found and place == expected else place)
    return get(t, PAIRS)
