"""The least work of any book of orders: for each event, read and write one hash slot and one order record, and read the
key of one level.

`touch` is the reference, over numpy records as in the first prototypes; `touch_bare` does the same by address, as our
kernels do, and is a lower bound for any engine.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, store_i32, store_i64

ORDER = np.dtype([("qty", "i8"), ("oid", "u8"), ("slot", "i4"), ("next", "i4"), ("prev", "i4"), ("pad", "i4")])
SLOT = np.dtype([("key", "u8"), ("idx", "i4"), ("pad", "i4")])
SIDES, SIDE_KEYS = 1024, 2048
T, N = 84, 78
FACTOR = np.uint64(0x9E3779B97F4A7C15)
_jit: Any = numba.njit(nogil=True, _nrt=False)  # type: ignore[call-arg]


@inlined
def _side(instrument, side):
    return (instrument << 1 | side & 1) & (SIDES - 1)


@_jit
def touch(action, instrument, side, order_id, orders, slots, shift, counts, keys):
    """Returns a mix of all values read, so that the compiler removes nothing."""
    total, order_mask = np.int64(0), orders.shape[0] - 1
    for i in range(action.shape[0]):
        if action[i] == T or action[i] == N:
            continue
        s = _side(instrument[i], np.int64(side[i]))
        h = np.int64((np.uint64(order_id[i] << 12 ^ s) * FACTOR) >> shift)
        total += np.int64(slots[h].idx) + orders[h & order_mask].qty + keys[s * SIDE_KEYS + (counts[s] & 7)]
        slots[h].idx = np.int32(total)
        orders[h & order_mask].qty = total
    return total


ROWS, ACTION, INSTRUMENT, SIDE, ORDER_ID, ORDERS, ORDER_MASK, SLOTS, SHIFT, COUNTS, KEYS = range(11)
ARGUMENT_COUNT = 11


@kernel
def touch_bare(t):
    actions, instruments, sides = load_i64(t, 8 * ACTION), load_i64(t, 8 * INSTRUMENT), load_i64(t, 8 * SIDE)
    order_ids, orders, mask = load_i64(t, 8 * ORDER_ID), load_i64(t, 8 * ORDERS), load_i64(t, 8 * ORDER_MASK)
    slots, shift, counts, keys = (
        load_i64(t, 8 * SLOTS), np.uint64(load_i64(t, 8 * SHIFT)), load_i64(t, 8 * COUNTS), load_i64(t, 8 * KEYS)
    )  # fmt: skip
    total = np.int64(0)
    for i in range(load_i64(t, 8 * ROWS)):
        action = load_u8(actions, i)
        if action == T or action == N:
            continue
        s = _side(load_i64(instruments, 8 * i), np.int64(load_u8(sides, i)))
        h = np.int64((np.uint64(load_i64(order_ids, 8 * i) << 12 ^ s) * FACTOR) >> shift)
        key = SIDE_KEYS * s + (np.int64(load_i32(counts, 4 * s)) & 7)
        total += load_i32(slots, 16 * h + 8) + load_i64(orders, 32 * (h & mask)) + load_i64(keys, 8 * key)
        store_i32(slots, 16 * h + 8, np.int32(total))
        store_i64(orders, 32 * (h & mask), total)
    return total
