"""Columns → messages: the kernel that walks `program`'s instructions, message by message and row by row.

The presence map of a segment stands in front of it, trimmed, so its length is known last: space is left for as many
bytes as the segment's map took the time before, and what was written is moved where that was wrong. What is rare (a
delta that needs more than 64 bits, a value that is rejected) is not handled here: the kernel gives up on the message,
and the reference writer encodes it or reports what is wrong.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u32, load_u64, outlined, store_u8, store_u64
from umdf.wire.fast.encode import tables_kernel as e
from umdf.wire.fast.encode.stop_bit_kernel import (
    close_presence_map,
    flush_presence_map,
    is_same_text,
    leading_zeros,
    put_signed,
    put_text,
    put_unsigned,
)
from umdf.wire.fast.encode.tables_kernel import put, word

MAX_INT64 = (1 << 63) - 1


@inlined
def _row_range(i, row):
    """Where a text or a list of the row begins, and how long it is."""
    offsets = word(i, e.I_VALUES)
    first = np.int64(load_i32(offsets, 4 * row))
    return first, np.int64(load_i32(offsets, 4 * row + 4)) - first


@inlined
def _load_value(i, row):
    """A number of the instruction's column, or how many entries the row has; a uInt64 as the same bits."""
    type = word(i, e.I_TYPE)
    if type == e.INT64 or type == e.UINT64:
        return load_i64(word(i, e.I_VALUES), 8 * row)
    if type == e.INT32:
        return np.int64(load_i32(word(i, e.I_VALUES), 4 * row))
    if word(i, e.I_ROLE) == e.COUNT:
        return _row_range(i, row)[1]
    return np.int64(load_u32(word(i, e.I_VALUES), 4 * row))


@inlined
def _put_integer(p, i, value):
    """As it stands in the stream; 0 where the one that is added for NULL does not fit any more."""
    optional = word(i, e.I_OPTIONAL)
    if word(i, e.I_TYPE) & 1:
        return np.int64(0) if optional != 0 and value == -1 else put_unsigned(p, value + optional)
    return _put_nullable(p, value, optional)


@inlined
def _put_nullable(p, value, optional):
    if optional != 0 and value >= 0:
        return np.int64(0) if value == MAX_INT64 else put_signed(p, value + 1)
    return put_signed(p, value)


@inlined
def _difference(value, base):
    """And whether it is one: an overflow must not happen, LLVM takes it for impossible."""
    difference = np.int64(np.uint64(value) - np.uint64(base))
    return difference, ((value ^ base) & (value ^ difference)) >= 0


@inlined
def _put_null(p):
    store_u8(p, 0, np.uint8(128))
    return p + 1


@outlined
def _successor(i, value):
    """What a field of the kind copy or increment has if it is not sent (6.3.6)."""
    if word(i, e.I_OPERATOR) != e.INCREMENT:
        return value
    return word(i, e.I_LOW) if value == word(i, e.I_HIGH) else np.int64(np.uint64(value) + np.uint64(1))


@inlined
def _assign(slot, epoch, present, type, value, more):
    put(slot, e.S_STATE, 4 * epoch + (e.ASSIGNED if present else e.EMPTY))
    put(slot, e.S_TYPE, type)
    put(slot, e.S_VALUE, value)
    put(slot, e.S_MORE, more)


@inlined
def _is_inferable_integer(i, epoch, present, value):
    """Whether a reader finds the same without it being sent."""
    slot = word(i, e.I_SLOT)
    state = word(slot, e.S_STATE) - 4 * epoch
    if state == e.ASSIGNED:
        return present and word(slot, e.S_TYPE) == word(i, e.I_TYPE) and value == _successor(i, word(slot, e.S_VALUE))
    if state == e.EMPTY or word(i, e.I_HAS_INITIAL) == 0:
        return not present
    return present and value == word(i, e.I_INITIAL)


@outlined
def _is_inferable_decimal(i, epoch, present, mantissa, exponent):
    slot = word(i, e.I_SLOT)
    state = word(slot, e.S_STATE) - 4 * epoch
    if state == e.ASSIGNED:
        same = mantissa == word(slot, e.S_VALUE) and exponent == word(slot, e.S_MORE)
        return present and word(slot, e.S_TYPE) == e.DECIMAL and same
    if state == e.EMPTY or word(i, e.I_HAS_INITIAL) == 0:
        return not present
    return present and mantissa == word(i, e.I_INITIAL) and exponent == word(i, e.I_MORE)


@outlined
def _is_inferable_string(i, epoch, present, source, length):
    slot = word(i, e.I_SLOT)
    state = word(slot, e.S_STATE) - 4 * epoch
    if state == e.ASSIGNED:
        if not present or word(slot, e.S_TYPE) != word(i, e.I_TYPE):
            return False
        return is_same_text(source, length, word(slot, e.S_VALUE), word(slot, e.S_MORE))
    if state == e.EMPTY or word(i, e.I_HAS_INITIAL) == 0:
        return not present
    return present and is_same_text(source, length, word(i, e.I_INITIAL), word(i, e.I_MORE))


@outlined
def _put_decimal(p, i, epoch, mantissa, exponent):
    """Of one operator or none, that is sent: the next offset, or 0 to give up."""
    base, base_exponent = np.int64(0), np.int64(0)
    if word(i, e.I_OPERATOR) == e.DELTA:
        slot = word(i, e.I_SLOT)
        state = word(slot, e.S_STATE) - 4 * epoch
        base, base_exponent = word(i, e.I_INITIAL), word(i, e.I_MORE)
        if state == e.ASSIGNED:
            base, base_exponent = word(slot, e.S_VALUE), word(slot, e.S_MORE)
        if state == e.EMPTY or (state == e.ASSIGNED and word(slot, e.S_TYPE) != e.DECIMAL):
            return np.int64(0)
        _assign(slot, epoch, True, e.DECIMAL, mantissa, exponent)
    difference, fits = _difference(mantissa, base)
    if not fits:
        return np.int64(0)
    return put_signed(_put_nullable(p, exponent - base_exponent, word(i, e.I_OPTIONAL)), difference)


@kernel
def encode_messages(t):
    """Encode from FIRST on; returns the message that it stopped at, and why in STATUS."""
    p = word(t, e.BUFFER) + word(t, e.USED)
    for message in range(word(t, e.FIRST), word(t, e.MESSAGES)):
        pc = load_i64(word(t, e.STARTS), 8 * message)
        if pc == 0:
            put(t, e.STATUS, e.USE_REFERENCE)
            return np.int64(message)
        end = _encode_message(t, p, pc, load_i64(word(t, e.ROWS), 8 * message), word(t, e.EPOCH) + message)
        if end <= 0:
            put(t, e.STATUS, e.USE_REFERENCE if end == 0 else e.FULL)
            return np.int64(message)
        p = end
        put(t, e.USED, p - word(t, e.BUFFER))
        put(word(t, e.ENDS), message, word(t, e.USED))
    put(t, e.STATUS, e.DONE)
    return word(t, e.MESSAGES)


@outlined
def _encode_message(t, p, pc, row, epoch):
    """Write one message: the offset behind it, 0 to give up, -1 if the buffer is too small."""
    limit, stack, scratch = word(t, e.BUFFER) + word(t, e.CAPACITY) - e.SLACK, word(t, e.STACK), word(t, e.SCRATCH)
    frame, i = stack, pc
    masks, bits, count, flushed = np.int64(0), np.uint64(0), np.int64(0), np.int64(0)
    map_at, room, need, opened = p, np.int64(0), np.int64(0), pc
    one = np.uint64(1)
    while True:
        i = pc
        pc += 8 * e.INSTRUCTION
        op = word(i, e.I_OP)
        if op == e.SKIP:
            # All of what follows is absent: its bits and its NULLs are known.
            if (load_u64(masks, word(i, e.I_WORD)) & np.uint64(word(i, e.I_BIT))) == 0:
                added = word(i, e.I_HIGH)
                bits = bits << np.uint64(added) | np.uint64(word(i, e.I_INITIAL))
                count += added
                store_u64(p, 0, e.STOP_BITS)
                store_u64(p, 8, e.STOP_BITS)
                p += word(i, e.I_LOW)
                pc += word(i, e.I_JUMP)
        elif op == e.INTEGER:
            mask = np.uint64(word(i, e.I_BIT))
            present = mask == 0 or (load_u64(masks, word(i, e.I_WORD)) & mask) != 0
            operator, value = word(i, e.I_OPERATOR), np.int64(0)
            if present:
                value = _load_value(i, row)
                if word(i, e.I_ROLE) == e.EXPONENT and (value < -63 or value > 63):
                    return np.int64(0)
            sent = True
            if operator == e.DELTA:
                sent = False
                if present:
                    slot, base = word(i, e.I_SLOT), word(i, e.I_INITIAL)
                    state = word(slot, e.S_STATE) - 4 * epoch
                    if state == e.ASSIGNED:
                        base = word(slot, e.S_VALUE)
                        if word(slot, e.S_TYPE) != word(i, e.I_TYPE):
                            return np.int64(0)
                    delta, fits = _difference(value, base)
                    if state == e.EMPTY or not fits or (word(i, e.I_TYPE) == e.UINT64 and (value | base) < 0):
                        return np.int64(0)
                    _assign(slot, epoch, True, word(i, e.I_TYPE), value, 0)
                    p = _put_nullable(p, delta, word(i, e.I_OPTIONAL))
                    if p == 0:
                        return p
                else:
                    p = _put_null(p)
            elif operator != e.NONE:
                if operator == e.DEFAULT:
                    initial = word(i, e.I_HAS_INITIAL) != 0
                    sent = present != initial or (present and value != word(i, e.I_INITIAL))
                elif operator == e.CONSTANT:
                    if present and value != word(i, e.I_INITIAL):
                        return np.int64(0)
                    sent = False
                else:
                    sent = not _is_inferable_integer(i, epoch, present, value)
                    _assign(word(i, e.I_SLOT), epoch, present, word(i, e.I_TYPE), value, 0)
                if operator != e.CONSTANT:
                    bits = bits << one | np.uint64(sent)
                    count += 1
                elif word(i, e.I_OPTIONAL) != 0:
                    bits = bits << one | np.uint64(present)
                    count += 1
            if sent:
                if present:
                    p = _put_integer(p, i, value)
                    if p == 0:
                        return p
                else:
                    p = _put_null(p)
            if not present:
                pc += word(i, e.I_JUMP)  # the mantissa, or the entries
        elif op == e.TEXT:
            mask = np.uint64(word(i, e.I_BIT))
            present = mask == 0 or (load_u64(masks, word(i, e.I_WORD)) & mask) != 0
            operator, source, length = word(i, e.I_OPERATOR), np.int64(0), np.int64(0)
            if present:
                first, length = _row_range(i, row)
                source = word(i, e.I_CONTENT) + first
            sent = True
            if operator == e.DEFAULT:
                initial = word(i, e.I_HAS_INITIAL) != 0
                sent = present != initial
                if present and initial:
                    sent = not is_same_text(source, length, word(i, e.I_INITIAL), word(i, e.I_MORE))
            elif operator == e.COPY:
                sent = not _is_inferable_string(i, epoch, present, source, length)
                _assign(word(i, e.I_SLOT), epoch, present, word(i, e.I_TYPE), source, length)
            if operator != e.NONE:
                bits = bits << one | np.uint64(sent)
                count += 1
            if sent:
                if present:
                    if length > limit - p - need:
                        return np.int64(-1)
                    p = put_text(p, i, source, length)
                    if p == 0 or p + need > limit:
                        return np.int64(0) if p == 0 else np.int64(-1)
                else:
                    p = _put_null(p)
        elif op == e.SEQUENCE or op == e.GROUP:
            first, length = row, np.int64(1)
            if op == e.SEQUENCE:
                first, length = _row_range(i, row)
                if length == 0:
                    pc += word(i, e.I_JUMP)
                    continue
            elif word(i, e.I_BIT) != 0:
                length = np.int64((load_u64(masks, word(i, e.I_WORD)) & np.uint64(word(i, e.I_BIT))) != 0)
                bits = bits << one | np.uint64(length)
                count += 1
                if length == 0:
                    pc += word(i, e.I_JUMP)
                    continue
            put(frame, e.F_RETURN, pc)
            put(frame, e.F_LEFT, length)
            put(frame, e.F_ROW, row)
            put(frame, e.F_MASKS, masks)
            put(frame, e.F_BITS, np.int64(bits))
            put(frame, e.F_COUNT, count)
            put(frame, e.F_FLUSHED, flushed)
            put(frame, e.F_MAP, map_at)
            put(frame, e.F_ROOM, room)
            put(frame, e.F_NEED, need)
            put(frame, e.F_OPENED, opened)
            frame += 8 * e.FRAME
            scratch += word(t, e.SCRATCH_WIDTH)
            row = first
        elif op == e.OPEN:
            need = word(i, e.I_HIGH)
            if p + need > limit:
                return np.int64(-1)
            masks = word(i, e.I_VALUES) + word(i, e.I_WORD) * row
            bits, count, flushed = np.uint64(0), np.int64(0), np.int64(0)
            map_at, room, opened = p, word(i, e.I_LOW), i
            p += room
        elif op == e.END_ENTRY or op == e.END_GROUP or op == e.END_MESSAGE:
            if room != 0:
                p = close_presence_map(p, opened, map_at, room, bits, count, flushed, scratch)
            if op == e.END_MESSAGE:
                return p
            frame -= 8 * e.FRAME
            if op == e.END_ENTRY:
                left = word(frame, e.F_LEFT) - 1
                if left > 0:
                    put(frame, e.F_LEFT, left)
                    row += 1
                    pc = word(frame, e.F_RETURN)
                    frame += 8 * e.FRAME
                    continue
            scratch -= word(t, e.SCRATCH_WIDTH)
            row, masks, bits = word(frame, e.F_ROW), word(frame, e.F_MASKS), np.uint64(word(frame, e.F_BITS))
            count, flushed, map_at = word(frame, e.F_COUNT), word(frame, e.F_FLUSHED), word(frame, e.F_MAP)
            room, need, opened = word(frame, e.F_ROOM), word(frame, e.F_NEED), word(frame, e.F_OPENED)
            if p + need > limit:
                return np.int64(-1)
        elif op == e.WHOLE_DECIMAL:
            # One operator for both parts, or none.
            mask = np.uint64(word(i, e.I_BIT))
            present = mask == 0 or (load_u64(masks, word(i, e.I_WORD)) & mask) != 0
            operator, mantissa, exponent = word(i, e.I_OPERATOR), np.int64(0), np.int64(0)
            if present:
                mantissa = load_i64(word(i, e.I_VALUES), 8 * row)
                exponent = np.int64(load_i32(word(i, e.I_CONTENT), 4 * row))
                if exponent < -63 or exponent > 63:
                    return np.int64(0)
            sent = True
            if operator == e.DEFAULT:
                initial = word(i, e.I_HAS_INITIAL) != 0
                same = mantissa == word(i, e.I_INITIAL) and exponent == word(i, e.I_MORE)
                sent = present != initial or (present and not same)
            elif operator == e.COPY:
                sent = not _is_inferable_decimal(i, epoch, present, mantissa, exponent)
                _assign(word(i, e.I_SLOT), epoch, present, e.DECIMAL, mantissa, exponent)
            if operator == e.DEFAULT or operator == e.COPY:
                bits = bits << one | np.uint64(sent)
                count += 1
            if sent:
                p = _put_decimal(p, i, epoch, mantissa, exponent) if present else _put_null(p)
                if p == 0:
                    return p
        elif op == e.BIT:
            present = (load_u64(masks, word(i, e.I_WORD)) & np.uint64(word(i, e.I_BIT))) != 0
            bits = bits << one | np.uint64(present)
            count += 1
        elif op == e.FLUSH:
            flushed, count = flush_presence_map(scratch, flushed, bits, count)
        else:  # TEMPLATE
            bits, count = one, np.int64(1)
            p = put_unsigned(p, word(i, e.I_INITIAL))


@kernel
def set_mask_bits(masks, stride, bitmap, rows, bit):
    """Set a bit in the mask of each row that the bitmap has; the bitmap is whole words."""
    for group in range((rows + 63) >> 6):
        present = load_u64(bitmap, 8 * group)
        while present != 0:
            highest = 63 - leading_zeros(present)
            at = masks + stride * (64 * group + highest)
            store_u64(at, 0, load_u64(at, 0) | np.uint64(bit))
            present ^= np.uint64(1) << np.uint64(highest)
