"""RptSeq of the records that one channel publishes."""

from __future__ import annotations

from umdf.exchange.matching.memory_layout_kernel import FLAGS, INSTRUMENT, KIND, NULL, RECORD_BYTES, SNAPSHOT
from umdf.kernels import kernel, load_i64, store_i64

# What a kind of record does to RptSeq of its instrument; RESTART_ALL of all, and LAST has the newest one.
NOTHING, COUNTED, RESTART, RESTART_ALL, LAST_COUNTED = 0, 1, 2, 3, 4


@kernel
def number_records(journal, rows, modes, counters, instruments, numbers):
    """Write RptSeq of each record to `numbers`, NULL where it has none."""
    for row in range(rows):
        record = journal + row * RECORD_BYTES
        index, mode = load_i64(record, INSTRUMENT * 8), load_i64(modes, load_i64(record, KIND * 8) * 8)
        number = NULL
        if mode == LAST_COUNTED:
            number = load_i64(counters, index * 8)
        elif mode == COUNTED and load_i64(record, FLAGS * 8) & SNAPSHOT == 0:
            number = load_i64(counters, index * 8) + 1
            store_i64(counters, index * 8, number)
        elif mode == RESTART:
            store_i64(counters, index * 8, 0)
        elif mode == RESTART_ALL:
            for other in range(instruments):
                store_i64(counters, other * 8, 0)
        store_i64(numbers, row * 8, number)
    return rows
