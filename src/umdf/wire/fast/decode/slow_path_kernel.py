"""Every rule of reading single values in kernels: overlong and oversized integers, cut items, strings with leading
zeros, UTF-8, what delta and tail make of a previous text. The fast kernels come here with whatever is not usual.

Each function returns 0 or the code of the fault, whose place is left in FAULT_AT; reports go to the journal.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_u8, store_u8, store_u32
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.stop_bit_kernel import copy_bytes, copy_stop_bit_string
from umdf.wire.fast.decode.tables_kernel import put, word


@kernel
def record_fault(t, code, offset, instruction):
    """A quarantine row; a report the message already has is only counted. Never full (see `interpret_messages`)."""
    rows, message = word(t, k.QUARANTINE_ROWS), word(t, k.MESSAGE)
    row = word(t, k.QUARANTINE) + 8 * k.QUARANTINE_ROW * rows
    before = row - 8 * k.QUARANTINE_ROW
    for _ in range(min(rows, k.MAX_QUARANTINE_ROWS_PER_MESSAGE)):
        if word(before, k.Q_MESSAGE) != message:
            break
        if word(before, k.Q_CODE) == code:
            put(before, k.Q_COUNT, word(before, k.Q_COUNT) + 1)
            return
        before -= 8 * k.QUARANTINE_ROW
    depth = np.int64(0)
    for level in range(word(t, k.DEPTH)):
        frame = word(t, k.STACK) + 8 * k.FRAME * level
        if word(frame, k.F_INDEX) >= 0:  # a sequence's, not a group's
            store_u32(row + 8 * k.Q_INDEXES, 4 * depth, np.uint32(word(frame, k.F_INDEX)))
            depth += 1
    put(row, k.Q_MESSAGE, message)
    put(row, k.Q_OFFSET, offset)
    put(row, k.Q_CODE, code)
    put(row, k.Q_INSTRUCTION, instruction)
    put(row, k.Q_COUNT, 1)
    put(row, k.Q_TEMPLATE, word(t, k.CURRENT_TEMPLATE))
    put(row, k.Q_DEPTH, depth)
    put(t, k.QUARANTINE_ROWS, rows + 1)


@inlined
def set_fault(t, code, at):
    put(t, k.FAULT_OFFSET, at)
    return np.int64(code)


@inlined
def _is_in_range(high, low, type):
    """Whether a value of 128 bits is one of the type's (6.2.1)."""
    value = np.int64(low)
    if type == k.UINT64:
        return high == 0
    if high != value >> 63:
        return False
    if type == k.INT32:
        return value >= -(1 << 31) and value < 1 << 31
    if type == k.UINT32:
        return value >= 0 and value < 1 << 32
    return True


@kernel
def read_integer(t, b, p, end, is_signed, nullable, type, i):
    """An integer of a type; type -1 is a delta, which has no bounds of its own (6.3.7.1)."""
    most, q, c = word(t, k.MAX_INTEGER_BYTES), p, np.int64(0)
    while q < min(p + most, end) and c < 128:
        c = np.int64(load_u8(b, q))
        q += 1
    if c < 128:
        return set_fault(t, k.T1 if end - p < most else k.D2, p)
    first = np.int64(load_u8(b, p)) & 127
    high, low = np.int64(0), np.uint64(0)
    if is_signed != 0 and first & 64:
        high, low = np.int64(-1), np.uint64(0xFFFFFFFFFFFFFFFF)
    for at in range(p, q):
        high = high << 7 | np.int64(low >> np.uint64(57))
        low = low << np.uint64(7) | np.uint64(load_u8(b, at) & np.uint8(127))
    if q - p > 1:
        if is_signed == 0:
            overlong = first == 0
        else:
            overlong = first == (127 if load_u8(b, p + 1) & np.uint8(64) else 0)
        if overlong:
            record_fault(t, k.R6, p, i)
    null = nullable != 0 and high == 0 and low == 0
    if nullable != 0 and not null and high >= 0:
        if low == 0:
            high -= 1
        low -= np.uint64(1)
    put(t, k.NULL, np.int64(null))
    put(t, k.NEXT, q)
    put(t, k.HIGH, high)
    put(t, k.LOW, np.int64(low))
    if type >= 0 and not null and not _is_in_range(high, low, type):
        return set_fault(t, k.D2, p)
    return np.int64(0)


@kernel
def add_delta(t, base, type, at):
    """The delta that `read_integer` has left, plus a base of the type: never a wrap (6.3.7.1)."""
    high, low = word(t, k.HIGH), np.uint64(word(t, k.LOW))
    total = low + np.uint64(base)
    high += np.int64(total < low)
    if type != k.UINT64:
        high += base >> 63
    put(t, k.LOW, np.int64(total))
    return np.int64(0) if _is_in_range(high, total, type) else set_fault(t, k.D2, at)


@kernel
def read_ascii(t, b, p, end, nullable, to, i):
    """An ASCII string into `to`; LENGTH is -1 for NULL."""
    q = copy_stop_bit_string(b, p, end, to)
    if q > end:
        return set_fault(t, k.T1, p)
    length, zeros = q - p, np.int64(0)
    put(t, k.NEXT, q)
    put(t, k.LENGTH, length)
    if load_u8(to, 0) != 0:
        return np.int64(0)
    if nullable != 0:
        if length == 1:
            put(t, k.LENGTH, -1)
            return np.int64(0)
        zeros = np.int64(1)
    if load_u8(to, zeros) == 0:
        zeros += 1
    if zeros < length and load_u8(to, zeros) != 0:
        record_fault(t, k.R9, p, i)
    for at in range(length - zeros):
        store_u8(to, at, load_u8(to, at + zeros))
    put(t, k.LENGTH, length - zeros)
    return np.int64(0)


@kernel
def read_vector(t, b, p, end, nullable, to, i):
    """A length and that many bytes into `to`; LENGTH is -1 for NULL."""
    code = read_integer(t, b, p, end, 0, nullable, k.UINT32, i)
    if code != 0:
        return code
    length, q = word(t, k.LOW), word(t, k.NEXT)
    if word(t, k.NULL) != 0:
        put(t, k.LENGTH, -1)
        return np.int64(0)
    if length > end - q:
        return set_fault(t, k.T1, p)
    copy_bytes(b + q, to, length)
    put(t, k.LENGTH, length)
    put(t, k.NEXT, q + length)
    return np.int64(0)


@kernel
def read_text(t, b, p, end, nullable, to, i):
    """As it stands in the stream, of any kind."""
    if word(i, k.I_TYPE) == k.ASCII:
        return read_ascii(t, b, p, end, nullable, to, i)
    return read_vector(t, b, p, end, nullable, to, i)


@kernel
def is_utf8(base, length):
    at = np.int64(0)
    while at < length:
        c = np.int64(load_u8(base, at))
        at += 1
        if c < 0x80:
            continue
        more = np.int64(1) if c < 0xE0 else np.int64(2) if c < 0xF0 else np.int64(3)
        if c < 0xC2 or c > 0xF4 or at + more > length:
            return False
        second = np.int64(load_u8(base, at))
        least = np.int64(0xA0) if c == 0xE0 else np.int64(0x90) if c == 0xF0 else np.int64(0x80)
        most = np.int64(0x9F) if c == 0xED else np.int64(0x8F) if c == 0xF4 else np.int64(0xBF)
        if second < least or second > most:
            return False
        for further in range(at + 1, at + more):
            if load_u8(base, further) & np.uint8(0xC0) != 0x80:
                return False
        at += more
    return True


@inlined
def count_combined(t, length, at):
    """What is not in the stream but made from it is limited: a byte of the stream can repeat thousands."""
    combined = word(t, k.COMBINED) + length
    put(t, k.COMBINED, combined)
    return set_fault(t, k.T2, at) if combined > word(t, k.MAX_COMBINED_BYTES) else np.int64(0)


@kernel
def splice_text(t, b, p, end, i, is_tail):
    """The text of a delta or tail, made at the end of the column's bytes; LENGTH is -1 for NULL (6.3.7.3, 6.3.8)."""
    text, slot = word(i, k.I_TEXT), word(i, k.I_SLOT)
    to = word(text, k.T_BYTES) + word(text, k.T_USED)
    subtract, q, optional = np.int64(0), p, word(i, k.I_OPTIONAL)
    too_long = False
    if is_tail == 0:
        code = read_integer(t, b, p, end, 1, optional, -1, i)
        if code != 0:
            return code
        q, subtract = word(t, k.NEXT), word(t, k.LOW)
        if word(t, k.NULL) != 0:
            put(t, k.LENGTH, -1)
            return np.int64(0)
        too_long = word(t, k.HIGH) != subtract >> 63
        optional = np.int64(0)
    code = read_text(t, b, q, end, optional, to, i)
    if code != 0:
        return code
    added = word(t, k.LENGTH)
    if added < 0:
        return np.int64(0)
    state = word(slot, k.S_STATE) - 4 * word(t, k.EPOCH)
    old, length = word(i, k.I_INITIAL), word(i, k.I_MORE)
    if state == k.EMPTY and is_tail == 0:
        return set_fault(t, k.D6, p)
    if state == k.ASSIGNED:
        if word(slot, k.S_TYPE) != word(i, k.I_TYPE):
            return set_fault(t, k.D4, p)
        old, length = word(slot, k.S_VALUE), word(slot, k.S_MORE)
    in_front = subtract < 0
    count = -subtract - 1 if in_front else subtract
    if is_tail != 0:
        count = min(added, length)
    if too_long or count > length:
        return set_fault(t, k.D7, p)
    kept = length - count
    code = count_combined(t, kept + added, p)
    if code != 0:
        return code
    put(t, k.LENGTH, kept + added)
    if word(text, k.T_USED) + kept + added + k.TEXT_SLACK > word(text, k.T_CAPACITY):
        return np.int64(k.OUT_OF_ROOM)
    if in_front:
        copy_bytes(old + count, to + added, kept)
    else:
        for at in range(added - 1, -1, -1):
            store_u8(to, kept + at, load_u8(to, at))
        for at in range(kept):
            store_u8(to, at, load_u8(old, at))
    if word(i, k.I_TYPE) == k.UNICODE and not is_utf8(to, kept + added):
        record_fault(t, k.R2, p, i)
    return np.int64(0)
