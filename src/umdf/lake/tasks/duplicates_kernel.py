"""The first arrival of each sequence."""

from __future__ import annotations

from umdf.kernels import kernel, load_i64, load_u8, store_i64


@kernel
def first_arrivals(keys, times, lines, count, base, first):
    """first[key - base]: the row of the first arrival; of simultaneous ones, that of the first line.

    `first` is -1 where no row was seen yet."""
    for row in range(count):
        slot = 8 * (load_i64(keys, 8 * row) - base)
        known = load_i64(first, slot)
        if known >= 0:
            ts_recv, ts_known = load_i64(times, 8 * row), load_i64(times, 8 * known)
            if ts_recv > ts_known or (ts_recv == ts_known and load_u8(lines, row) >= load_u8(lines, known)):
                continue
        store_i64(first, slot, row)
    return 0
