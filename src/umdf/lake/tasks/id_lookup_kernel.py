"""Lookups by instrument ID with a hash table, and positions in sorted arrays with a linear scan.

Invariant: a table of SLOTS slots is at most half full; with more instruments callers use numpy.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i64, store_i32, store_i64

SLOTS = 1 << 15
MAX_IDS = SLOTS // 2
SLOT_BYTES = 16  # bytes: an ID, and 1 + its value (0: empty)


@inlined
def _find_slot(table, instrument_id):
    """The slot of an ID, or where it would go."""
    slot = np.int64((np.uint64(instrument_id) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(49))
    while load_i64(table, SLOT_BYTES * slot + 8) != 0 and load_i64(table, SLOT_BYTES * slot) != instrument_id:
        slot = (slot + 1) & np.int64(SLOTS - 1)
    return slot


@kernel
def count_ids(ids, rows, table, found, counts):
    """IDs in order of first appearance, and their row counts; returns the number of IDs, or -1 if too many. `table` is
    zeroed."""
    distinct = np.int64(0)
    for row in range(rows):
        instrument_id = load_i64(ids, 8 * row)
        slot = _find_slot(table, instrument_id)
        index = load_i64(table, SLOT_BYTES * slot + 8) - 1
        if index < 0:
            if distinct == MAX_IDS:
                return np.int64(-1)
            index = distinct
            distinct += 1
            store_i64(table, SLOT_BYTES * slot, instrument_id)
            store_i64(table, SLOT_BYTES * slot + 8, index + 1)
            store_i64(found, 8 * index, instrument_id)
            store_i64(counts, 8 * index, 0)
        store_i64(counts, 8 * index, load_i64(counts, 8 * index) + 1)
    return distinct


@kernel
def find_ids(known, count, ids, rows, table, indices):
    """The index of each ID in `known`; -1 if it is not there. `table` is zeroed."""
    for index in range(count):
        slot = _find_slot(table, load_i64(known, 8 * index))
        store_i64(table, SLOT_BYTES * slot, load_i64(known, 8 * index))
        store_i64(table, SLOT_BYTES * slot + 8, index + 1)
    for row in range(rows):
        slot = _find_slot(table, load_i64(ids, 8 * row))
        store_i32(indices, 4 * row, np.int32(load_i64(table, SLOT_BYTES * slot + 8) - 1))
    return 0


@kernel
def last_at_or_before(keys, count, values, rows, indices):
    """For each value the index of the last key (sorted) that is not larger; -1 if there is none. Increasing values are
    found by scanning on."""
    index = np.int64(-1)
    for row in range(rows):
        number = load_i64(values, 8 * row)
        if index >= 0 and load_i64(keys, 8 * index) > number:
            index = np.int64(-1)
        step = np.int64(1)
        while index + step < count and load_i64(keys, 8 * (index + step)) <= number:
            index += step
            step *= 2
        while step > 0:
            if index + step < count and load_i64(keys, 8 * (index + step)) <= number:
                index += step
            step //= 2
        store_i64(indices, 8 * row, index)
    return 0
