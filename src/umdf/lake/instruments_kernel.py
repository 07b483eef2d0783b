"""Instruments by their ids, and places in what is sorted: by a hash or by walking on, where numpy compares.

The one rule: a table of SLOTS slots is at most half full; whoever has more instruments asks numpy.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i64, store_i32, store_i64

SLOTS = 1 << 15
MOST = SLOTS // 2
SLOT = 16  # bytes: an id, and 1 + what is said of it (0: nobody's)


@inlined
def _slot_of(table, instrument_id):
    """Where an id is, or would be."""
    slot = np.int64((np.uint64(instrument_id) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(49))
    while load_i64(table, SLOT * slot + 8) != 0 and load_i64(table, SLOT * slot) != instrument_id:
        slot = (slot + 1) & np.int64(SLOTS - 1)
    return slot


@kernel
def count_ids(ids, rows, table, found, counts):
    """Ids in the order in which they are first seen, and how many rows each has; how many ids, or -1: too many. `table`
    is of zeros."""
    distinct = np.int64(0)
    for row in range(rows):
        instrument_id = load_i64(ids, 8 * row)
        slot = _slot_of(table, instrument_id)
        place = load_i64(table, SLOT * slot + 8) - 1
        if place < 0:
            if distinct == MOST:
                return np.int64(-1)
            place = distinct
            distinct += 1
            store_i64(table, SLOT * slot, instrument_id)
            store_i64(table, SLOT * slot + 8, place + 1)
            store_i64(found, 8 * place, instrument_id)
            store_i64(counts, 8 * place, 0)
        store_i64(counts, 8 * place, load_i64(counts, 8 * place) + 1)
    return distinct


@kernel
def find_ids(known, count, ids, rows, table, places):
    """The place of each id among those known; -1: it is none of them. `table` is of zeros."""
    for place in range(count):
        slot = _slot_of(table, load_i64(known, 8 * place))
        store_i64(table, SLOT * slot, load_i64(known, 8 * place))
        store_i64(table, SLOT * slot + 8, place + 1)
    for row in range(rows):
        slot = _slot_of(table, load_i64(ids, 8 * row))
        store_i32(places, 4 * row, np.int32(load_i64(table, SLOT * slot + 8) - 1))
    return 0


@kernel
def last_before(keys, count, asked, rows, places):
    """For each number the place of the last key (sorted) that is not larger; -1: there is none. Numbers that grow are
    found by walking on."""
    place = np.int64(-1)
    for row in range(rows):
        number = load_i64(asked, 8 * row)
        if place >= 0 and load_i64(keys, 8 * place) > number:
            place = np.int64(-1)
        step = np.int64(1)
        while place + step < count and load_i64(keys, 8 * (place + step)) <= number:
            place += step
            step *= 2
        while step > 0:
            if place + step < count and load_i64(keys, 8 * (place + step)) <= number:
                place += step
            step //= 2
        store_i64(places, 8 * row, place)
    return 0
