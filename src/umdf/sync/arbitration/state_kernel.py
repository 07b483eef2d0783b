"""The state of one channel's arbitration: an int64 array `w`, and the output of a call, `o`.

`w` holds settings, positions, the lines and the regions below; every region starts where the header says.

    ring    the content keys of the last delivered numbers: number << 1 | conflicted, key
    gaps    open gaps in order: first, last, and first and last of the gap as it was reported
    held    rows that wait for missing units, in order of arrival; `order` has their slots by number
    aside   rows of lines in another epoch, and candidates (at most one per line), in order of arrival

A row is one unit. Its bytes are where `R_SOURCE` says: in the buffer of this call, or among the stored bytes.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import array_kernel, inlined, load_u8, load_u64, outlined, store_u8, store_u64

NONE = -1
FOREVER = np.iinfo(np.int64).max
DATA, HEARTBEAT, RESET, RECOVERED = 0, 1, 2, 3  # kinds of units
MAX_LINES, MAX_REVEALS, MAX_PAST_EPOCHS = 64, 64, 64
REMEMBERED = 65_536  # numbers whose content keys are known; a power of two
ROW_OVERHEAD_BYTES = 256  # counted for each row beside its own bytes

(
    WAIT_NS, TIMEOUT_NS, IS_VERSIONED, GAP_LIMIT, RING, GAPS, ORDER, SCRATCH,
    CLOCK,  # receive time of the newest unit
    EPOCH, EXPECTED,  # of the channel: the next number to deliver
    FIRST, EXPIRED,  # numbers below FIRST, or up to EXPIRED, were never delivered or are too old to be known
    NEWEST,  # FAST: the last epoch that a line began
    LINE_COUNT, GAP_HEAD, GAP_TAIL, REVEAL_COUNT, PAST_COUNT, CANDIDATE_COUNT, ORDER_HEAD, ORDER_TAIL,
    OUT_CAPACITY, OUT_COUNT, STEPS, STEP_COUNT, QUARANTINE, QUARANTINE_COUNT,
    BUFFER, BUFFER_SIZE, STORED_BYTES, STORED_USED,  # address and size of this call's bytes, and of the stored ones
    STORED_COUNT,  # how many delivered rows have their bytes there
) = range(33)  # fmt: skip

# A store of rows, twice as many as its limit allows, so that dead ones are removed seldom. S_KEPT: the bytes of the
# first so many rows are among the stored bytes.
S_ROWS, S_CAPACITY, S_LIMIT, S_COUNT, S_HEAD, S_ALIVE, S_BYTES, S_KEPT = range(8)
HELD, ASIDE = 33, 41
DUPLICATES, LATE, QUARANTINED, SET_ASIDE, CONFLICTS = range(5)
COUNT_KINDS = 5
TOTALS = 49

(
    R_START, R_END, R_NUMBER, R_EPOCH, R_TS, R_ARRIVAL, R_MSG_INDEX, R_LINE, R_KIND, R_KEY, R_SOURCE, R_STATE,
    R_OTHER,  # held: slot + 1 of a copy with other content, -1 if that could not be kept
) = range(13)  # fmt: skip
ROW_WORDS = 13
DEAD, ALIVE, CANDIDATE = 0, 1, 2  # R_STATE
INPUT, STORED = 0, 1  # R_SOURCE
CURRENT, WORK = 54, 67  # rows: the unit of this moment, and a candidate that is believed

# What releases units at this moment: a row of this call's units, or NONE if a waiting time ended, and when.
RELEASE_ROW, RELEASE_NS = 80, 81
REVEALS = 82  # pairs: the last number that a heartbeat knew, and when
PAST = REVEALS + 2 * MAX_REVEALS  # pairs: epochs before this one, and their next number
LINES = PAST + 2 * MAX_PAST_EPOCHS
(
    L_ID, L_EPOCH, L_POSITION, L_SEEN, L_FIRST, L_RESET_KEY, L_CANDIDATE, L_CONFLICTS, L_AGREEMENTS, L_MISALIGNED,
    L_MATCHED,
    L_BEFORE, L_RESTART_NS,  # where the line was before its numbering restarted, and when it did
    L_COUNTS,
) = range(14)  # fmt: skip
LINE_WORDS = L_COUNTS + COUNT_KINDS
HEADER_WORDS = LINES + MAX_LINES * LINE_WORDS

# Output: columns of delivered units, then steps, then quarantined units.
(
    O_START, O_END, O_SEQUENCE, O_EPOCH, O_TS, O_MSG_INDEX, O_LINE, O_KEY, O_LATE, O_RELEASE_ROW, O_RELEASE_NS,
    O_SOURCE,
) = range(12)  # fmt: skip
OUT_COLUMNS, STEP_WORDS, QUARANTINE_WORDS, GAP_WORDS = 12, 8, 5, 4


@inlined
def row_at(w, store, slot):
    return w[store + S_ROWS] + slot * ROW_WORDS


@inlined
def line_at(index):
    return LINES + index * LINE_WORDS


@inlined
def row_cost(w, row):
    return w[row + R_END] - w[row + R_START] + ROW_OVERHEAD_BYTES


@inlined
def has_room(w, store, row):
    return w[store + S_BYTES] + row_cost(w, row) <= w[store + S_LIMIT]


@outlined
def append_row(w, store, source, state):
    """Copy a row into a store that has room for it, and return its slot. May move other rows."""
    if w[store + S_COUNT] == w[store + S_CAPACITY]:
        remove_dead_rows(w, store)
    slot = w[store + S_COUNT]
    row = row_at(w, store, slot)
    for word in range(ROW_WORDS):
        w[row + word] = w[source + word]
    w[row + R_STATE], w[row + R_OTHER], w[row + R_ARRIVAL] = state, 0, w[CLOCK]
    w[store + S_COUNT] += 1
    w[store + S_ALIVE] += 1
    w[store + S_BYTES] += row_cost(w, row)
    return slot


@inlined
def free_row(w, store, slot):
    row = row_at(w, store, slot)
    w[row + R_STATE] = DEAD
    w[store + S_ALIVE] -= 1
    w[store + S_BYTES] -= row_cost(w, row)
    if w[store + S_ALIVE] == 0:
        w[store + S_COUNT], w[store + S_HEAD], w[store + S_KEPT] = 0, 0, 0


@inlined
def first_alive(w, store):
    """The slot of the oldest row, or the number of slots."""
    slot = w[store + S_HEAD]
    while slot < w[store + S_COUNT] and w[row_at(w, store, slot) + R_STATE] == DEAD:
        slot += 1
    w[store + S_HEAD] = slot
    return slot


@outlined
def remove_dead_rows(w, store):
    kept, scratch = 0, w[SCRATCH]
    for slot in range(w[store + S_COUNT]):
        row = row_at(w, store, slot)
        w[scratch + slot] = kept
        if w[row + R_STATE] != DEAD:
            target = row_at(w, store, kept)
            for word in range(ROW_WORDS):
                w[target + word] = w[row + word]
            kept += 1
    w[store + S_COUNT], w[store + S_HEAD], w[store + S_KEPT] = kept, 0, 0
    if store == HELD:
        for at in range(w[ORDER_HEAD], w[ORDER_TAIL]):
            w[w[ORDER] + at] = w[scratch + w[w[ORDER] + at]]
        for slot in range(kept):
            row = row_at(w, store, slot)
            if w[row + R_OTHER] > 0:
                w[row + R_OTHER] = w[scratch + w[row + R_OTHER] - 1] + 1
    else:
        for index in range(w[LINE_COUNT]):
            line = line_at(index)
            if w[line + L_CANDIDATE]:
                w[line + L_CANDIDATE] = w[scratch + w[line + L_CANDIDATE] - 1] + 1


@inlined
def copy_bytes(source, start, size, target, used):
    words = size & -8
    for at in range(0, words, 8):
        store_u64(target, used + at, load_u64(source, start + at))
    for at in range(words, size):
        store_u8(target, used + at, load_u8(source, start + at))


@array_kernel("i8")
def count_new_bytes(_, w):
    """How many bytes of the rows kept are still in the buffer of this call only."""
    size = 0
    for store in (HELD, ASIDE):
        for slot in range(w[store + S_KEPT], w[store + S_COUNT]):
            row = row_at(w, store, slot)
            if w[row + R_STATE] != DEAD and w[row + R_SOURCE] == INPUT:
                size += w[row + R_END] - w[row + R_START]
    return size


@array_kernel("i8")
def keep_bytes(target, w):
    """Copy the bytes of rows out of the buffer of this call, into the stored bytes; or all of them into others."""
    buffer, stored = w[BUFFER], w[STORED_BYTES]
    used = w[STORED_USED] if target == stored else 0
    for store in (HELD, ASIDE):
        for slot in range(w[store + S_KEPT] if target == stored else 0, w[store + S_COUNT]):
            row = row_at(w, store, slot)
            if w[row + R_STATE] == DEAD or (w[row + R_SOURCE] == STORED and target == stored):
                continue
            start, size = w[row + R_START], w[row + R_END] - w[row + R_START]
            copy_bytes(stored if w[row + R_SOURCE] == STORED else buffer, start, size, target, used)
            w[row + R_START], w[row + R_END], w[row + R_SOURCE] = used, used + size, STORED
            used += size
        w[store + S_KEPT] = w[store + S_COUNT]
    w[STORED_BYTES], w[STORED_USED] = target, used


@array_kernel("i8", "i8")
def gather_output(target, w, o):
    """Copy the bytes of all delivered rows behind each other."""
    capacity, used = w[OUT_CAPACITY], 0
    for at in range(w[OUT_COUNT]):
        start = o[O_START * capacity + at]
        size = o[O_END * capacity + at] - start
        source = w[STORED_BYTES] if o[O_SOURCE * capacity + at] == STORED else w[BUFFER]
        copy_bytes(source, start, size, target, used)
        o[O_START * capacity + at], o[O_END * capacity + at] = used, used + size
        used += size


@array_kernel("i8")
def remove_dead(_, w):
    remove_dead_rows(w, HELD)
    remove_dead_rows(w, ASIDE)
