"""Decodes message after message with the interpreter: offset, template, memory for the rows, and errors.

A message with an error leaves no row and one quarantine row. One for which memory is full leaves nothing: it is
read again when the memory has grown.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_u8, outlined, store_u8
from umdf.wire.fast.decode import slow_path_kernel as slow_path
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.interpreter_kernel import run_program
from umdf.wire.fast.decode.operator_kernel import check_presence_map, read_presence_map
from umdf.wire.fast.decode.tables_kernel import put, word
from umdf.wire.fast.decode.validity_kernel import build_validity


@inlined
def _find_program(t, template_id):
    """The address of a template's program, or 0 (an open hash table)."""
    table, mask = word(t, k.PROGRAM_INDEX), word(t, k.PROGRAM_INDEX_SIZE) - 1
    slot = template_id & mask
    while word(table, 2 * slot) >= 0:
        if word(table, 2 * slot) == template_id:
            return word(table, 2 * slot + 1)
        slot = (slot + 1) & mask
    return np.int64(0)


@inlined
def _discard_rows(t, program):
    """Take back the rows of a message."""
    for node in range(word(program, k.P_ROOT), word(program, k.P_NODES_END), 8 * k.NODE):
        put(node, k.N_ROWS, word(node, k.N_SAVED))
    for text in range(word(program, k.P_TEXTS), word(program, k.P_TEXTS_END), 8 * k.TEXT):
        put(text, k.T_USED, word(text, k.T_SAVED))


@inlined
def _reserve(t, program, length):
    """Remember where the message's rows start. 0, or OUT_OF_ROOM: a row of the root and all bytes of the message must
    fit, so that only entries and what comes from a dictionary have to be looked at later."""
    for node in range(word(program, k.P_ROOT), word(program, k.P_NODES_END), 8 * k.NODE):
        put(node, k.N_SAVED, word(node, k.N_ROWS))
    full, root = np.int64(k.NOTHING_FULL), word(program, k.P_ROOT)
    if word(root, k.N_ROWS) >= word(root, k.N_CAPACITY):
        full = (root - word(t, k.NODES)) // (8 * k.NODE)
    for text in range(word(program, k.P_TEXTS), word(program, k.P_TEXTS_END), 8 * k.TEXT):
        used = word(text, k.T_USED)
        put(text, k.T_SAVED, used)
        if used + length + k.TEXT_RESERVE > word(text, k.T_CAPACITY):
            full = k.TEXT_FULL + (text - word(t, k.TEXTS)) // (8 * k.TEXT)
    if full == k.NOTHING_FULL:
        return np.int64(0)
    put(t, k.FULL, full)
    put(t, k.LENGTH, length)
    return np.int64(k.OUT_OF_ROOM)


@inlined
def _copy_slots(t, source, target):
    if word(t, k.KEEP_DICTIONARY) != 0:
        for at in range(k.SLOT * word(t, k.SLOT_COUNT)):
            put(target, at, word(source, at))


@kernel
def interpret_messages(t):
    """Decode from message FIRST on. Returns the message reached: MESSAGES, or one that has to wait because something is
    FULL, because generated code or the reference reader decodes it, or because it lies outside the buffer."""
    epoch, stack = word(t, k.EPOCH), word(t, k.STACK)
    for message in range(word(t, k.FIRST), word(t, k.MESSAGES)):
        start, stop = word(word(t, k.STARTS), message), word(word(t, k.ENDS), message)
        if start < 0 or stop < start or stop > word(t, k.BUFFER_SIZE):
            put(t, k.FULL, k.OUTSIDE_BUFFER)
            return message
        b, end = word(t, k.BUFFER) + start, stop - start
        if stop + k.SLACK > word(t, k.BUFFER_SIZE):
            if end + k.SLACK > word(t, k.SCRATCH_SIZE):
                put(t, k.FULL, k.SCRATCH_FULL)
                put(t, k.LENGTH, end)
                return message
            for at in range(end):
                store_u8(word(t, k.SCRATCH), at, load_u8(b, at))
            b = word(t, k.SCRATCH)
        if word(t, k.QUARANTINE_ROWS) + k.MAX_QUARANTINE_ROWS_PER_MESSAGE > word(t, k.QUARANTINE_CAPACITY):
            put(t, k.FULL, k.QUARANTINE_FULL)
            return message
        quarantine_rows, template_before = word(t, k.QUARANTINE_ROWS), word(t, k.TEMPLATE_ID)
        put(t, k.MESSAGE, message)
        put(t, k.DEPTH, 0)
        put(t, k.COMBINED, 0)
        put(t, k.CURRENT_TEMPLATE, -1)
        put(t, k.FAULT_INSTRUCTION, 0)
        if word(t, k.KEEP_DICTIONARY) == 0:
            epoch += 1
            put(t, k.EPOCH, epoch)
            put(t, k.TEMPLATE_ID, -1)

        # The message's own presence map and template id (10.5, 10.1).
        p, program = np.int64(0), np.int64(0)
        code = read_presence_map(t, b, p, end, -1, 0)
        if code == 0:
            map_at, map_bytes = p, word(t, k.NEXT) - p
            p = word(t, k.NEXT)
            if load_u8(b, map_at) & np.uint8(64):
                code = slow_path.read_integer(t, b, p, end, 0, 0, k.UINT32, 0)
                if code == 0:
                    put(t, k.TEMPLATE_ID, word(t, k.LOW))
            else:
                put(t, k.NEXT, p)
                if word(t, k.TEMPLATE_ID) < 0:
                    code = slow_path.set_fault(t, k.D5, p)
        if code == 0:
            template_id = word(t, k.TEMPLATE_ID)
            program = _find_program(t, template_id)
            if program == 0:
                code = slow_path.set_fault(t, k.D9, p)
            elif word(program, k.P_REFERENCE) != 0 or (word(program, k.P_GENERATED) & word(t, k.USE_GENERATED)) != 0:
                put(t, k.QUARANTINE_ROWS, quarantine_rows)
                put(t, k.CURRENT_TEMPLATE, template_id)
                put(t, k.TEMPLATE_ID, template_before)
                return message
            p = word(t, k.NEXT)
            put(t, k.CURRENT_TEMPLATE, template_id)
        _copy_slots(t, word(t, k.SLOTS), word(t, k.SLOTS_SAVED))
        if code == 0:
            code = _reserve(t, program, end)
        if code == 0:
            check_presence_map(t, b, map_at, map_bytes, word(program, k.P_BITS), 0)
            code = run_program(t, b, p, end, program, map_at, map_bytes, message, stack, epoch)
        if code == 0:
            continue
        if program != 0:
            _discard_rows(t, program)
        if code == k.OUT_OF_ROOM:
            put(t, k.QUARANTINE_ROWS, quarantine_rows)
            put(t, k.TEMPLATE_ID, template_before)
            _copy_slots(t, word(t, k.SLOTS_SAVED), word(t, k.SLOTS))
            return message
        slow_path.record_fault(t, code, word(t, k.FAULT_OFFSET), word(t, k.FAULT_INSTRUCTION))
        # A kept dictionary is worth nothing after an error: start again.
        epoch += 1
        put(t, k.EPOCH, epoch)
        put(t, k.TEMPLATE_ID, -1)
    return word(t, k.MESSAGES)


@outlined
def interpret_one(t, block, template_id, buffer, start, end):
    """Decode a message of a template alone, by a table that `Decoder.reserve_message` has prepared; what was decoded
    before is forgotten. Returns whether it is decoded, without anything to report: an anomaly is left to a batch."""
    program = _find_program(t, template_id)
    if program == 0:
        return False
    for node in range(word(program, k.P_ROOT), word(program, k.P_NODES_END), 8 * k.NODE):
        put(node, k.N_ROWS, 0)
    for text in range(word(program, k.P_TEXTS), word(program, k.P_TEXTS_END), 8 * k.TEXT):
        put(text, k.T_USED, 0)
    put(t, k.BUFFER, buffer)
    put(t, k.BUFFER_SIZE, end)
    put(t, k.ONE_START, start)
    put(t, k.ONE_END, end)
    put(t, k.STARTS, t + 8 * k.ONE_START)
    put(t, k.ENDS, t + 8 * k.ONE_END)
    put(t, k.FIRST, 0)
    put(t, k.MESSAGES, 1)
    put(t, k.QUARANTINE_ROWS, 0)
    reached = interpret_messages(t)
    if reached != 1 or word(t, k.QUARANTINE_ROWS) != 0 or word(t, k.CURRENT_TEMPLATE) != template_id:
        return False
    build_validity(t, block)
    return True
