"""The field operators on dictionary entries (6.3), and presence maps, in every detail: what the interpreter calls where
a field is not one of the few kinds that it reads itself.

As in `slow_path_kernel`, a function returns 0 or the code of the fault, whose offset is left in FAULT_AT.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_u8
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.slow_path_kernel import (
    add_delta,
    count_combined,
    is_utf8,
    read_integer,
    read_text,
    record_fault,
    set_fault,
    splice_text,
)
from umdf.wire.fast.decode.stop_bit_kernel import copy_bytes
from umdf.wire.fast.decode.tables_kernel import put, word


@inlined
def presence_bits(b, p, count, first):
    """Bits `first` … of a map of `count` bytes at `p`, the next one on top; at least 57 are there."""
    bits, room = np.uint64(0), np.int64(64)
    at, skip = first // 7, first % 7
    while room > 0 and at < count:
        seven = np.uint64(load_u8(b, p + at) & np.uint8(127))
        if room == 64:
            seven &= np.uint64(127 >> skip)
            room += skip
        room -= 7
        bits |= seven << np.uint64(room) if room >= 0 else seven >> np.uint64(-room)
        at += 1
    return bits


@kernel
def read_presence_map(t, b, p, end, needed, i):
    """Find a presence map's end and report what is wrong with it; `needed` is -1 while the template is not known."""
    most, q, c = word(t, k.MAX_PRESENCE_BYTES), p, np.int64(0)
    while q < min(p + most, end) and c < 128:
        c = np.int64(load_u8(b, q))
        q += 1
    if c < 128:
        return set_fault(t, k.T1 if end - p < most else k.T2, p)
    put(t, k.NEXT, q)
    if q - p > 1 and c == 128:
        record_fault(t, k.R7, p, i)
    if needed >= 0:
        check_presence_map(t, b, p, q - p, needed, i)
    return np.int64(0)


@kernel
def check_presence_map(t, b, p, count, needed, i):
    """R8: whole bytes, or set bits, behind the last one that can be used."""
    surplus = count > max(1, (needed + 6) // 7)
    for at in range(needed // 7, count):
        seven = np.int64(load_u8(b, p + at)) & 127
        if at == needed // 7:
            seven &= 127 >> needed % 7
        surplus |= seven != 0
    if surplus:
        record_fault(t, k.R8, p, i)


@inlined
def assign(slot, epoch, state, type, value, more):
    put(slot, k.S_STATE, 4 * epoch + state)
    put(slot, k.S_TYPE, type)
    put(slot, k.S_VALUE, value)
    put(slot, k.S_MORE, more)


@inlined
def assign_integer(slot, epoch, state, type, value):
    put(slot, k.S_STATE, 4 * epoch + state)
    put(slot, k.S_TYPE, type)
    put(slot, k.S_VALUE, value)


@kernel
def value_not_sent(t, i, epoch, at):
    """Copy, increment or tail whose bit is not set: EMPTY, ASSIGNED and the value in LOW and LENGTH, or a fault."""
    slot, tail = word(i, k.I_SLOT), word(i, k.I_OP) == k.TEXTUAL + k.TAIL
    state = word(slot, k.S_STATE) - 4 * epoch
    if state == k.ASSIGNED:
        if word(slot, k.S_TYPE) != word(i, k.I_TYPE):
            return set_fault(t, k.D4, at)
        put(t, k.LOW, word(slot, k.S_VALUE))
        put(t, k.LENGTH, word(slot, k.S_MORE))
        return np.int64(k.ASSIGNED)
    if state == k.EMPTY:
        if word(i, k.I_OPTIONAL) == 0:
            return set_fault(t, k.D7 if tail else k.D6, at)
        return np.int64(k.EMPTY)
    if word(i, k.I_HAS_INITIAL) == 0:
        if word(i, k.I_OPTIONAL) == 0:
            return set_fault(t, k.D6 if tail else k.D5, at)
        put(slot, k.S_STATE, 4 * epoch + k.EMPTY)
        return np.int64(k.EMPTY)
    put(t, k.LOW, word(i, k.I_INITIAL))
    put(t, k.LENGTH, word(i, k.I_MORE))
    assign(slot, epoch, k.ASSIGNED, word(i, k.I_TYPE), word(i, k.I_INITIAL), word(i, k.I_MORE))
    return np.int64(k.ASSIGNED)


@kernel
def read_decimal(t, b, p, end, i, epoch, bit):
    """A decimal with at most one operator: NULL, LOW and LENGTH (mantissa and exponent) and NEXT, or a fault."""
    operator, slot, start = word(i, k.I_OP) - k.DECIMAL, word(i, k.I_SLOT), p
    mantissa, exponent = word(i, k.I_INITIAL), word(i, k.I_MORE)
    null = np.int64(0)
    if bit == 0:
        put(t, k.NEXT, p)
        null = np.int64(word(i, k.I_HAS_INITIAL) == 0)
        if operator == k.COPY:
            code = value_not_sent(t, i, epoch, p)
            if code > k.ASSIGNED:
                return code
            null = np.int64(code == k.EMPTY)
            mantissa, exponent = word(t, k.LOW), word(t, k.LENGTH)
    else:
        type = -1 if operator == k.DELTA else k.INT32
        code = read_integer(t, b, p, end, 1, word(i, k.I_OPTIONAL), type, i)
        if code != 0:
            return code
        null = word(t, k.NULL)
        if null == 0:
            high, low = word(t, k.HIGH), word(t, k.LOW)
            code = read_integer(t, b, word(t, k.NEXT), end, 1, 0, -1 if operator == k.DELTA else k.INT64, i)
            if code != 0:
                return code
            if operator == k.DELTA:
                state = word(slot, k.S_STATE) - 4 * epoch
                if state == k.EMPTY:
                    return set_fault(t, k.D6, start)
                if state == k.ASSIGNED:
                    if word(slot, k.S_TYPE) != k.DECIMAL_TYPE:
                        return set_fault(t, k.D4, start)
                    mantissa, exponent = word(slot, k.S_VALUE), word(slot, k.S_MORE)
                high2, low2 = word(t, k.HIGH), word(t, k.LOW)
                put(t, k.HIGH, high)
                put(t, k.LOW, low)
                code = add_delta(t, exponent, k.INT32, start)
                if code != 0:
                    return code
                low = word(t, k.LOW)
                put(t, k.HIGH, high2)
                put(t, k.LOW, low2)
                code = add_delta(t, mantissa, k.INT64, start)
                if code != 0:
                    return code
            mantissa, exponent = word(t, k.LOW), low
        if operator == k.COPY and null != 0:
            put(slot, k.S_STATE, 4 * epoch + k.EMPTY)
        elif operator == k.COPY or (operator == k.DELTA and null == 0):
            assign(slot, epoch, k.ASSIGNED, k.DECIMAL_TYPE, mantissa, exponent)
    put(t, k.NULL, null)
    put(t, k.LOW, mantissa)
    put(t, k.LENGTH, exponent)
    if null == 0 and (exponent < -63 or exponent > 63):
        record_fault(t, k.R1, start, i)
    return np.int64(0)


@kernel
def apply_text_operator(t, b, p, end, i, epoch, bit):
    """Texts of all operators, except one that is simply sent: LENGTH (-1: absent) and NEXT, or a fault. The bytes stand
    at the end of the column's."""
    operator, slot, text = word(i, k.I_OP) - k.TEXTUAL, word(i, k.I_SLOT), word(i, k.I_TEXT)
    used = word(text, k.T_USED)
    to = word(text, k.T_BYTES) + used
    if bit != 0:
        if operator == k.TAIL or operator == k.DELTA:
            code = splice_text(t, b, p, end, i, np.int64(operator == k.TAIL))
        else:
            code = read_text(t, b, p, end, word(i, k.I_OPTIONAL), to, i)
            if code == 0 and word(i, k.I_TYPE) == k.UNICODE and not is_utf8(to, max(0, word(t, k.LENGTH))):
                record_fault(t, k.R2, p, i)
        if code != 0:
            return code
        if operator != k.DEFAULT and operator != k.NONE:
            length = word(t, k.LENGTH)
            if length >= 0:
                assign(slot, epoch, k.ASSIGNED, word(i, k.I_TYPE), to, length)
            elif operator != k.DELTA:
                put(slot, k.S_STATE, 4 * epoch + k.EMPTY)
        return np.int64(0)
    put(t, k.NEXT, p)
    source, length = word(i, k.I_INITIAL), word(i, k.I_MORE) if word(i, k.I_HAS_INITIAL) != 0 else np.int64(-1)
    if operator != k.DEFAULT:
        code = value_not_sent(t, i, epoch, p)
        if code > k.ASSIGNED:
            return code
        source, length = word(t, k.LOW), word(t, k.LENGTH) if code == k.ASSIGNED else np.int64(-1)
    put(t, k.LENGTH, length)
    if length > 0:
        code = count_combined(t, length, p)
        if code != 0:
            return code
        if used + length + k.TEXT_SLACK > word(text, k.T_CAPACITY):
            return np.int64(k.OUT_OF_ROOM)
        copy_bytes(source, to, length)
    return np.int64(0)
