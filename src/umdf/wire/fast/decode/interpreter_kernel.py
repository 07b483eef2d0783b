"""Any template, by its table of instructions: what serves every message, and the measure for generated code.

An instruction leaves its value at the row of its column and its presence in a mask; a row's texts and lists are closed
together at its end. What is unusual about a value is `slow_path_kernel`'s and `operator_kernel`'s.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_u8, load_u64, store_i32, store_i64, store_u32
from umdf.wire.fast.decode import slow_path_kernel as slow_path
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.operator_kernel import (
    apply_text_operator,
    assign,
    assign_integer,
    presence_bits,
    read_decimal,
    read_presence_map,
    value_not_sent,
)
from umdf.wire.fast.decode.stop_bit_kernel import (
    STOP_BITS,
    copy_stop_bit_string,
    read_signed,
    read_unsigned,
    wrapping_sum,
)
from umdf.wire.fast.decode.tables_kernel import put, word


@inlined
def _close_row(node, row, mask, mask_word):
    """The row's presence, and where its texts and lists end."""
    words = word(node, k.N_MASK_WORDS)
    masks = word(node, k.N_MASKS) + 8 * words * row
    while mask_word < words:
        put(masks, mask_word, np.int64(mask))
        mask = np.uint64(0)
        mask_word += 1
    for text in range(word(node, k.N_TEXTS), word(node, k.N_TEXTS_END), 8 * k.TEXT):
        store_i32(word(text, k.T_OFFSETS), 4 * (row + 1), np.int32(word(text, k.T_USED)))
    for item in range(word(node, k.N_LISTS), word(node, k.N_LISTS_END), 8 * k.LIST):
        store_i32(word(item, k.L_OFFSETS), 4 * (row + 1), np.int32(word(word(item, k.L_CHILD), k.N_ROWS)))
    put(node, k.N_ROWS, row + 1)


@kernel
def run_program(t, b, p, end, program, map_at, map_bytes, message, stack, epoch):
    """The body of a message. Returns 0, OUT_OF_ROOM, or the code of the error."""
    pc, node = word(program, k.P_START), word(program, k.P_ROOT)
    row, mask, mask_word = word(node, k.N_ROWS), np.uint64(0), np.int64(0)
    store_u32(word(node, k.N_MESSAGE), 4 * row, np.uint32(message))
    bits, missing_bits = presence_bits(b, map_at, map_bytes, np.int64(1)), np.int64(0)
    depth, entries, length, count_at = np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    one, top = np.uint64(1), np.uint64(63)
    code = np.int64(0)
    i = pc
    while True:
        i = pc
        pc += 8 * k.INSTRUCTION
        op = word(i, k.I_OP)
        if op >= k.INTEGER and op < k.DECIMAL:
            operator = (op - k.INTEGER) >> 1
            optional = word(i, k.I_OPTIONAL)
            present, value, at = True, np.int64(0), p
            if operator == k.NONE or operator == k.DEFAULT or operator == k.COPY or operator == k.INCREMENT:
                sent = True
                if operator != k.NONE:
                    sent = bits >> top != 0
                    bits <<= one
                if sent:
                    if op & 1:
                        value, q = read_signed(b, p)
                        present = optional == 0 or value != 0
                        if optional != 0 and value > 0:
                            value -= 1
                    else:
                        value, q = read_unsigned(b, p)
                        present = optional == 0 or value != 0
                        value -= optional & np.int64(present)
                    if q == 0 or q > end or value > word(i, k.I_HIGH) or value < word(i, k.I_LOW):
                        code = slow_path.read_integer(t, b, p, end, op & 1, optional, word(i, k.I_TYPE), i)
                        if code != 0:
                            break
                        value, present, q = word(t, k.LOW), word(t, k.NULL) == 0, word(t, k.NEXT)
                    p = q
                    if operator >= k.COPY:
                        state = k.ASSIGNED if present else k.EMPTY
                        assign_integer(word(i, k.I_SLOT), epoch, state, word(i, k.I_TYPE), value)
                elif operator == k.DEFAULT:
                    present, value = word(i, k.I_HAS_INITIAL) != 0, word(i, k.I_INITIAL)
                else:
                    slot = word(i, k.I_SLOT)
                    if word(slot, k.S_STATE) == 4 * epoch + k.ASSIGNED and word(slot, k.S_TYPE) == word(i, k.I_TYPE):
                        value = word(slot, k.S_VALUE)
                        if operator == k.INCREMENT:
                            # From the type's last value to its first (6.3.6); of a uInt64 both are as int64s here.
                            value = word(i, k.I_MORE) if value == word(i, k.I_EXPONENTS) else value + 1
                            put(slot, k.S_VALUE, value)
                    else:
                        code = value_not_sent(t, i, epoch, p)
                        if code > k.ASSIGNED:
                            break
                        present, value = code == k.ASSIGNED, word(t, k.LOW)
                        code = np.int64(0)
            elif operator == k.DELTA:
                delta, q = read_signed(b, p)
                present = optional == 0 or delta != 0
                if optional != 0 and delta > 0:
                    delta -= 1
                slot = word(i, k.I_SLOT)
                state, base = word(slot, k.S_STATE) - 4 * epoch, word(i, k.I_INITIAL)
                if state == k.ASSIGNED:
                    base = word(slot, k.S_VALUE)
                    if word(slot, k.S_TYPE) != word(i, k.I_TYPE):
                        state = np.int64(k.EMPTY)  # whatever is wrong is found below
                value = wrapping_sum(base, delta)
                low, high = word(i, k.I_LOW), word(i, k.I_HIGH)
                if (
                    q == 0
                    or q > end
                    or (state == k.EMPTY and present)
                    or base < low
                    or value < low
                    or value > high
                    or ((base ^ value) & (delta ^ value)) < 0
                ):
                    code = slow_path.read_integer(t, b, p, end, 1, optional, -1, i)
                    if code != 0:
                        break
                    present, q = word(t, k.NULL) == 0, word(t, k.NEXT)
                    if present:
                        state = word(slot, k.S_STATE) - 4 * epoch
                        if state == k.EMPTY:
                            code = slow_path.set_fault(t, k.D6, p)
                            break
                        if state == k.ASSIGNED and word(slot, k.S_TYPE) != word(i, k.I_TYPE):
                            code = slow_path.set_fault(t, k.D4, p)
                            break
                        code = slow_path.add_delta(t, base, word(i, k.I_TYPE), p)
                        if code != 0:
                            break
                        value = word(t, k.LOW)
                p = q
                if present:
                    assign_integer(slot, epoch, k.ASSIGNED, word(i, k.I_TYPE), value)
            else:  # a constant: it stands here only as a decimal's part or as a length
                value = word(i, k.I_INITIAL)
                if optional != 0:
                    present = bits >> top != 0
                    bits <<= one
            role = word(i, k.I_ROLE)
            if role == k.COUNT:
                length, count_at = value if present else np.int64(-1), at
            elif present:
                mask |= np.uint64(word(i, k.I_BIT))
                store_i64(word(i, k.I_VALUES), row << word(i, k.I_SHIFT), value)
                if role == k.EXPONENT and (value < -63 or value > 63):
                    slow_path.record_fault(t, k.R1, at, i)
            elif role == k.EXPONENT:
                pc += word(i, k.I_JUMP)
                missing_bits += word(i, k.I_TEXT)
        elif op == k.SKIP:
            # Nothing of what follows is there, if no bit says so and the next bytes are all NULL.
            if (bits & np.uint64(word(i, k.I_INITIAL))) == 0:
                nulls = word(i, k.I_LOW)
                seen = (load_u64(b, p) ^ STOP_BITS) & np.uint64(word(i, k.I_BIT))
                if nulls > 8:
                    seen |= (load_u64(b, p + 8) ^ STOP_BITS) & np.uint64(word(i, k.I_MORE))
                    seen |= (load_u64(b, p + 16) ^ STOP_BITS) & np.uint64(word(i, k.I_EXPONENTS))
                if seen == 0 and p + nulls <= end:
                    p += nulls
                    bits <<= np.uint64(word(i, k.I_HIGH))
                    pc += word(i, k.I_JUMP)
        elif op == k.PRICE:
            # A decimal in parts as this feed has them: the exponent default, the mantissa delta, both in usual range.
            exponent, q, present = word(i, k.I_INITIAL), p, word(i, k.I_HAS_INITIAL) != 0
            usual = True
            if bits >> top != 0:
                exponent, q = read_signed(b, p)
                present = word(i, k.I_OPTIONAL) == 0 or exponent != 0
                if word(i, k.I_OPTIONAL) != 0 and exponent > 0:
                    exponent -= 1
                usual = q != 0 and q <= end and exponent >= -63 and exponent <= 63
            if usual and present:
                delta, r = read_signed(b, q)
                slot = word(i, k.I_SLOT)
                base = word(slot, k.S_VALUE) if word(slot, k.S_STATE) == 4 * epoch + k.ASSIGNED else word(i, k.I_LOW)
                value = wrapping_sum(base, delta)
                usual = (
                    r != 0
                    and r <= end
                    and ((base ^ value) & (delta ^ value)) >= 0
                    and word(slot, k.S_STATE) != 4 * epoch + k.EMPTY
                    and (word(slot, k.S_TYPE) == k.INT64 or word(slot, k.S_STATE) < 4 * epoch)
                )
                if usual:
                    q = r
                    mask |= np.uint64(word(i, k.I_BIT))
                    store_i64(word(i, k.I_VALUES), row << 3, value)
                    store_i64(word(i, k.I_EXPONENTS), row << 2, exponent)
                    assign_integer(slot, epoch, k.ASSIGNED, k.INT64, value)
            if usual:
                p = q
                bits <<= one
                pc += word(i, k.I_JUMP)
            # Otherwise its two parts follow, as instructions of their own.
        elif op >= k.TEXTUAL:
            operator, sent = op - k.TEXTUAL, np.int64(1)
            if operator != k.NONE and operator != k.DELTA:
                sent = np.int64(bits >> top)
                bits <<= one
            text = word(i, k.I_TEXT)
            used, size, q = word(text, k.T_USED), np.int64(-1), p
            usual = False
            if sent != 0:
                if operator <= k.COPY and word(i, k.I_TYPE) == k.ASCII:
                    first = load_u8(b, p) & np.uint8(127)
                    if first != 0:
                        q = copy_stop_bit_string(b, p, end, word(text, k.T_BYTES) + used)
                        usual, size = q <= end, q - p
                        if usual and operator == k.COPY:
                            to = word(text, k.T_BYTES) + used
                            assign(word(i, k.I_SLOT), epoch, k.ASSIGNED, k.ASCII, to, size)
            elif operator == k.DEFAULT and word(i, k.I_HAS_INITIAL) == 0:
                usual = True
            if not usual:
                code = apply_text_operator(t, b, p, end, i, epoch, sent)
                if code != 0:
                    break
                q, size = word(t, k.NEXT), word(t, k.LENGTH)
            p = q
            if size >= 0:
                mask |= np.uint64(word(i, k.I_BIT))
                put(text, k.T_USED, used + size)
        elif op >= k.DECIMAL:
            operator, sent = op - k.DECIMAL, np.int64(1)
            if operator == k.DEFAULT or operator == k.COPY:
                sent = np.int64(bits >> top)
                bits <<= one
            code = read_decimal(t, b, p, end, i, epoch, sent)
            if code != 0:
                break
            p = word(t, k.NEXT)
            if word(t, k.NULL) == 0:
                mask |= np.uint64(word(i, k.I_BIT))
                store_i64(word(i, k.I_VALUES), row << 3, word(t, k.LOW))
                store_i64(word(i, k.I_EXPONENTS), row << 2, word(t, k.LENGTH))
        elif op == k.BIT:
            if bits >> top != 0:
                mask |= np.uint64(word(i, k.I_BIT))
            bits <<= one
        elif op == k.MASK_WORD:
            masks = word(node, k.N_MASKS) + 8 * word(node, k.N_MASK_WORDS) * row
            while mask_word < word(i, k.I_LOW):
                put(masks, mask_word, np.int64(mask))
                mask = np.uint64(0)
                mask_word += 1
        elif op == k.REFILL:
            bits = presence_bits(b, map_at, map_bytes, word(i, k.I_LOW) - missing_bits)
        elif op == k.SEQUENCE or op == k.GROUP:
            if op == k.GROUP:
                length = np.int64(1)
                if word(i, k.I_OPTIONAL) != 0:
                    length = np.int64(bits >> top) * 2 - 1
                    bits <<= one
            if length < 0:
                pc += word(i, k.I_JUMP)
                continue
            mask |= np.uint64(word(i, k.I_BIT))
            frame = stack + 8 * k.FRAME * depth
            put(frame, k.F_INDEX, -1)
            if op == k.SEQUENCE:
                least, child = word(i, k.I_LOW), word(i, k.I_TEXT)
                entries += length
                if length * least > end - p:
                    code = slow_path.set_fault(t, k.T1, count_at)
                    break
                if (least == 0 and length > word(t, k.MAX_EMPTY_ENTRIES)) or entries > word(t, k.MAX_ENTRIES):
                    code = slow_path.set_fault(t, k.T2, count_at)
                    break
                if word(child, k.N_ROWS) + length > word(child, k.N_CAPACITY):
                    put(t, k.FULL, (child - word(t, k.NODES)) // (8 * k.NODE))
                    put(t, k.LENGTH, length)
                    code = np.int64(k.OUT_OF_ROOM)
                    break
                if length == 0:
                    pc += word(i, k.I_JUMP)
                    continue
                put(frame, k.F_INDEX, 0)
            put(frame, k.F_RETURN, pc)
            put(frame, k.F_LEFT, length)
            put(frame, k.F_NODE, node)
            put(frame, k.F_ROW, row)
            put(frame, k.F_MASK, np.int64(mask))
            put(frame, k.F_WORD, mask_word)
            put(frame, k.F_PRESENCE, np.int64(bits))
            put(frame, k.F_MISSING_BITS, missing_bits)
            put(frame, k.F_MAP, map_at)
            put(frame, k.F_MAP_BYTES, map_bytes)
            depth += 1
            put(t, k.DEPTH, depth)
            if op == k.SEQUENCE:
                node = word(i, k.I_TEXT)
                row, mask, mask_word = word(node, k.N_ROWS), np.uint64(0), np.int64(0)
        elif op == k.OPEN:
            # The presence map of a group or entry, if its instructions need one (6.2.5).
            if depth > word(t, k.MAX_NESTING):
                code = slow_path.set_fault(t, k.T2, p)
                break
            bits, missing_bits = np.uint64(0), np.int64(0)
            needed = word(i, k.I_LOW)
            if needed > 0:
                map_at = p
                first = np.int64(load_u8(b, p))
                if first >= 128 and p < end and needed >= 7:
                    bits, map_bytes = np.uint64(first) << np.uint64(57), np.int64(1)
                    p += 1
                else:
                    q, c, wide = p + 1, first, np.uint64(first & 127)
                    while c < 128 and q < p + 9:
                        c = np.int64(load_u8(b, q))
                        wide = wide << np.uint64(7) | np.uint64(c & 127)
                        q += 1
                    map_bytes = q - p
                    bits = wide << np.uint64(64 - 7 * map_bytes)
                    if (
                        c < 128
                        or q > end
                        or (c == 128 and map_bytes > 1)
                        or map_bytes * 7 >= needed + 7
                        or (needed < 64 and bits << np.uint64(needed) != 0)
                    ):
                        code = read_presence_map(t, b, p, end, needed, i)
                        if code != 0:
                            break
                        map_bytes = word(t, k.NEXT) - p
                        bits = presence_bits(b, p, map_bytes, np.int64(0))
                        q = word(t, k.NEXT)
                    p = q
        elif op == k.END_ENTRY or op == k.END_GROUP:
            frame = stack + 8 * k.FRAME * (depth - 1)
            if op == k.END_ENTRY:
                _close_row(node, row, mask, mask_word)
                row += 1
                mask, mask_word = np.uint64(0), np.int64(0)
                left = word(frame, k.F_LEFT) - 1
                if left > 0:
                    put(frame, k.F_LEFT, left)
                    put(frame, k.F_INDEX, word(frame, k.F_INDEX) + 1)
                    pc = word(frame, k.F_RETURN)
                    continue
                node, row = word(frame, k.F_NODE), word(frame, k.F_ROW)
                mask, mask_word = np.uint64(word(frame, k.F_MASK)), word(frame, k.F_WORD)
            bits, missing_bits = np.uint64(word(frame, k.F_PRESENCE)), word(frame, k.F_MISSING_BITS)
            map_at, map_bytes = word(frame, k.F_MAP), word(frame, k.F_MAP_BYTES)
            depth -= 1
            put(t, k.DEPTH, depth)
        else:  # END_MESSAGE
            _close_row(node, row, mask, mask_word)
            if p == end:
                return np.int64(0)
            code = slow_path.set_fault(t, k.T3, p)
            i = np.int64(0)
            break
    if code == k.OUT_OF_ROOM and word(i, k.I_OP) >= k.TEXTUAL:
        put(t, k.FULL, k.TEXT_FULL + (word(i, k.I_TEXT) - word(t, k.TEXTS)) // (8 * k.TEXT))
    put(t, k.FAULT_INSTRUCTION, i)
    return code
