"""Which entries of a batch become rows of which family, and what follows from the kind of an entry.

One pass says of each entry its kind, whether it is the last of its instrument in its message, and counts; a second one
writes for each family the entries that its rows come from.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
)

# The table of arguments. Of each message its entries; of each entry what says its kind.
MESSAGES, ENTRIES, OFFSETS, SUB_OFFSETS, IS_SNAPSHOT, ENTRY_TYPES, CONDITIONS, SETTL_FLAGS = range(8)
INSTRUMENTS, RPT_SEQS, ACTIONS, QUOTE_FLAGS, KINDS, OWNERS, MARKS, ENTRY_TYPE_KINDS = range(8, 16)
FAMILY_OF, SEEN, SEEN_MASK, COUNTS, TARGETS, EXCHANGE_LAST, IMPLIED_CONDITION, IMPLIED = range(16, 24)
THEORETICAL, LAST_FLAG, SNAPSHOT_FLAG, COMPOSITE, TRADE, HEADER, UNKNOWN, MESSAGE_NUMBERS = range(24, 32)
ARGUMENTS = 32

# When the second kind of a letter is meant: LETTER_KINDS has (kind, other kind, when) for each of 256.
ALWAYS, IS_LAST_PRICE, IS_THEORETICAL, NO_INSTRUMENT = 0, 1, 2, 3

# Families: mbo, and what FAMILY_OF says of a kind; NOWHERE has no row of its own.
MBO, TRADES, STATISTICS, STATUS, IMBALANCE, PRICE_BAND, CONTROL = range(7)
FAMILIES, NO_FAMILY, MBO_ONLY = 7, -1, -2
UNKNOWN_ENTRIES = FAMILIES  # counted after the families
COUNTERS = FAMILIES + 1

# Where a family's rows are written: TARGETS has these addresses for each.
T_ENTRY, T_BODY, T_SUB, T_KIND, T_ENTRY_INDEX, T_FLAGS, T_UNIT = range(7)
TARGET = 7

# Marks of an entry.
IN_MBO, LAST_IN_MBO, LAST_OF_ALL = 1, 2, 4

NULL = -(1 << 63)
DELETES = 1 << 2 | 1 << 3 | 1 << 4  # of 279: delete, delete thru, delete from
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@inlined
def get(t, word):
    return load_i64(t, 8 * word)


@inlined
def is_delete(action):
    return action >= 0 and action < 6 and DELETES >> action & 1 != 0


@inlined
def _is_first(t, table, instrument, stamp):
    """Whether this instrument is new among those with this stamp; it is remembered. It is never full: each of the
    two tables has twice as many slots as any message has entries."""
    mask = get(t, SEEN_MASK)
    seen = get(t, SEEN) + 16 * (mask + 1) * table
    bucket = np.int64(np.uint64(instrument) * _HASH_FACTOR >> np.uint64(20)) & mask
    while load_i64(seen, 16 * bucket + 8) == stamp:
        if load_i64(seen, 16 * bucket) == instrument:
            return False
        bucket = (bucket + 1) & mask
    store_i64(seen, 16 * bucket, instrument)
    store_i64(seen, 16 * bucket + 8, stamp)
    return True


@inlined
def _entry_kind(t, entry):
    line = get(t, ENTRY_TYPE_KINDS) + 24 * np.int64(load_u8(get(t, ENTRY_TYPES), entry))
    kind, when = load_i64(line, 0), load_i64(line, 16)
    if when == IS_LAST_PRICE:
        last = get(t, IS_SNAPSHOT) != 0 or load_i32(get(t, CONDITIONS), 4 * entry) & get(t, EXCHANGE_LAST) != 0
        return load_i64(line, 8) if last else kind
    if when == IS_THEORETICAL:
        return load_i64(line, 8) if load_i8(get(t, SETTL_FLAGS), entry) == get(t, THEORETICAL) else kind
    if when == NO_INSTRUMENT:
        return load_i64(line, 8) if load_i64(get(t, INSTRUMENTS), 8 * entry) == NULL else kind
    return kind


@inlined
def _count(t, family, number):
    store_i64(get(t, COUNTS), 8 * family, load_i64(get(t, COUNTS), 8 * family) + number)


@kernel
def find_owners(offsets, messages, owners):
    """The message of each entry; returns the most entries of a message."""
    longest = np.int64(0)
    for message in range(messages):
        first, last = np.int64(load_i32(offsets, 4 * message)), np.int64(load_i32(offsets, 4 * message + 4))
        for entry in range(first, last):
            store_i32(owners, 4 * entry, np.int32(message))
        longest = max(longest, last - first)
    return longest


@kernel
def classify_entries(t, stamp):
    """Kinds, marks and counts of all entries. `stamp` is above all that were used with SEEN; returns the next."""
    snapshot, subs = get(t, IS_SNAPSHOT), get(t, SUB_OFFSETS)
    for message in range(get(t, MESSAGES)):
        first, last = (
            np.int64(load_i32(get(t, OFFSETS), 4 * message)),
            np.int64(load_i32(get(t, OFFSETS), 4 * message + 4)),
        )
        if snapshot != 0:
            _count(t, MBO, 1)
        before_mbo = before_all = np.int64(NULL)
        any_mbo = any_all = False
        for entry in range(last - 1, first - 1, -1):
            kind, mark = _entry_kind(t, entry), np.int64(0)
            family, instrument = load_i64(get(t, FAMILY_OF), 8 * kind), load_i64(get(t, INSTRUMENTS), 8 * entry)
            if kind == get(t, UNKNOWN):
                _count(t, UNKNOWN_ENTRIES, 1)
            numbered = snapshot == 0 and load_i64(get(t, RPT_SEQS), 8 * entry) != NULL
            if numbered or family == MBO_ONLY or family == CONTROL or family == TRADES:
                bust = family == TRADES and is_delete(np.int64(load_i8(get(t, ACTIONS), entry)))
                if numbered or not bust:
                    mark |= IN_MBO
                    _count(t, MBO, 1)
                    if not (any_mbo and before_mbo == instrument) and _is_first(t, 0, instrument, stamp):
                        mark |= LAST_IN_MBO
                    before_mbo, any_mbo = instrument, True
            if family >= 0:
                number = np.int64(1)
                if kind == get(t, COMPOSITE):
                    number = np.int64(0)
                    if subs != 0:
                        number = np.int64(load_i32(subs, 4 * entry + 4)) - np.int64(load_i32(subs, 4 * entry))
                if number != 0:
                    if not (any_all and before_all == instrument) and _is_first(t, 1, instrument, stamp):
                        mark |= LAST_OF_ALL
                    before_all, any_all = instrument, True
                    _count(t, family, number)
            store_u8(get(t, KINDS), entry, np.uint8(kind))
            store_u8(get(t, MARKS), entry, np.uint8(mark))
        stamp += 1
    return stamp


@inlined
def _write_row(t, family, entry, body, sub, kind, entry_index, flags):
    target = get(t, TARGETS) + 8 * TARGET * family
    row = load_i64(get(t, COUNTS), 8 * family)
    store_i64(get(t, COUNTS), 8 * family, row + 1)
    store_i32(load_i64(target, 8 * T_ENTRY), 4 * row, np.int32(entry))
    store_i32(load_i64(target, 8 * T_BODY), 4 * row, np.int32(body))
    store_i32(load_i64(target, 8 * T_SUB), 4 * row, np.int32(sub))
    store_u8(load_i64(target, 8 * T_KIND), row, np.uint8(kind))
    store_u16(load_i64(target, 8 * T_ENTRY_INDEX), 2 * row, np.uint16(min(entry_index, 65535)))
    store_i32(load_i64(target, 8 * T_FLAGS), 4 * row, np.int32(flags))
    store_i32(load_i64(target, 8 * T_UNIT), 4 * row, load_i32(get(t, MESSAGE_NUMBERS), 4 * body))


@kernel
def select_entries(t):
    """Write the rows of every family; COUNTS starts at 0 again, the capacity is what `classify_entries` counted."""
    snapshot, subs = get(t, IS_SNAPSHOT), get(t, SUB_OFFSETS)
    for message in range(get(t, MESSAGES)):
        first, last = (
            np.int64(load_i32(get(t, OFFSETS), 4 * message)),
            np.int64(load_i32(get(t, OFFSETS), 4 * message + 4)),
        )
        base = get(t, SNAPSHOT_FLAG) if snapshot != 0 else np.int64(0)
        if snapshot != 0:
            # With no book entry behind it, the clearing row is the last one of the book.
            is_only_row = True
            for entry in range(first, last):
                is_only_row = is_only_row and load_u8(get(t, MARKS), entry) & IN_MBO == 0
            flags = base | (get(t, LAST_FLAG) if is_only_row else 0)
            _write_row(t, MBO, np.int64(-1), message, np.int64(-1), get(t, HEADER), np.int64(0), flags)
        for entry in range(first, last):
            kind, mark = np.int64(load_u8(get(t, KINDS), entry)), load_u8(get(t, MARKS), entry)
            family = load_i64(get(t, FAMILY_OF), 8 * kind)
            entry_index = entry - first + (1 if snapshot != 0 else 0)
            flags = base | np.int64(load_i32(get(t, QUOTE_FLAGS), 4 * entry))
            if load_i32(get(t, CONDITIONS), 4 * entry) & get(t, IMPLIED_CONDITION) != 0:
                flags |= get(t, IMPLIED)
            if mark & IN_MBO != 0:
                last_flag = get(t, LAST_FLAG) if mark & LAST_IN_MBO != 0 else np.int64(0)
                _write_row(t, MBO, entry, message, np.int64(-1), kind, entry_index, flags | last_flag)
            if family < 0:
                continue
            last_flag = get(t, LAST_FLAG) if mark & LAST_OF_ALL != 0 else np.int64(0)
            if kind != get(t, COMPOSITE):
                _write_row(t, family, entry, message, np.int64(-1), kind, entry_index, flags | last_flag)
            elif subs != 0:
                sub_first, sub_last = np.int64(load_i32(subs, 4 * entry)), np.int64(load_i32(subs, 4 * entry + 4))
                for sub in range(sub_first, sub_last):
                    own = flags | (last_flag if sub == sub_last - 1 else 0)
                    _write_row(t, family, entry, message, sub, kind, entry_index, own)


_A, _B, _C, _M, _N, _R, _T, _U = 65, 66, 67, 77, 78, 82, 84, 85


@inlined
def _book_action(update, price, size):
    """279 of a bid or offer. An entry of a snapshot has none: it is new. Codes that 1.3.2 does not have: unknown."""
    if update <= 0:
        return _A
    if update == 1:
        return _M
    if update == 3:
        return _R
    if update == 5:
        return _C if price == NULL and size == NULL else _M  # 9.7
    return _C if update == 2 or update == 4 else _U


@kernel
def book_actions(kinds, updates, prices, sizes, rows, actions, sides, first_book_kind):
    """Action and side of mbo rows, from their kind and 279. Kinds: a bid, an offer, an empty book, a channel reset, a
    trade, from `first_book_kind` on, and the start of a snapshot before them."""
    for row in range(rows):
        kind = np.int64(load_u8(kinds, row)) - first_book_kind
        update = np.int64(load_i8(updates, row))
        action, side = _N, _N
        if kind == 0 or kind == 1:
            action = _book_action(update, load_i64(prices, 8 * row), load_i64(sizes, 8 * row))
            side = _B if kind == 0 else _A
        elif kind == 2 or kind == 3 or kind == -1:
            action = _R
        elif kind == 4 and not is_delete(update):
            action = _T
        store_u8(actions, row, np.uint8(action))
        store_u8(sides, row, np.uint8(side))


NOT_SENT = -127  # of a column of one byte: the tag was not sent; NULL: it was, with a value that does not fit
NULL_BYTE = -128


@kernel
def fill_defaults(values, rows, default, condition, equals, actions):
    """Of a column of one byte: the default where the tag was not sent, in rows whose byte at `condition` is `equals`
    and that add or modify something (or whose family has no actions: 0); NULL in others."""
    for row in range(rows):
        if load_i8(values, row) == NOT_SENT:
            holds = load_u8(condition, row) == equals
            holds = holds and (actions == 0 or load_u8(actions, row) == _A or load_u8(actions, row) == _M)
            store_u8(values, row, np.uint8((default if holds else np.int64(NULL_BYTE)) & 255))
