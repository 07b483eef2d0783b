"""The walk over packets: headers, groups and lengths. Everything is checked here, and the rows of each node are found.

Nothing is read later that the walk has not found to be inside the message. What is damaged is a quarantine row.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    outlined,
    prefetch,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
)
from umdf.wire.sbe.tables_kernel import (
    BASE,
    BLOCK_PAST_END,
    BUFFER,
    BUFFER_SIZE,
    DAMAGED,
    DATA,
    DATA_ADDRESS,
    DATA_CAPACITY,
    DATA_COUNT,
    DATA_CUT,
    DATA_FULL,
    DATA_PAST_END,
    DATA_SAVED,
    DATA_USED,
    ENCODING_UNKNOWN,
    ENDS,
    FULL,
    GROUP_CUT,
    GROUP_OF_NOTHING,
    GROUP_PAST_END,
    HEADER_CUT,
    HIGHEST_OTHER,
    LENGTH_PAST_END,
    LENGTH_TOO_SMALL,
    LOWEST_OTHER,
    MAX_PACKET_BYTES,
    MESSAGE_HEADER,
    MESSAGES,
    N_END,
    N_FRAMING,
    N_FREE,
    N_FULL_LENGTH,
    N_HEADER,
    N_INCOMPLETE,
    N_META,
    N_MIN_VERSION,
    N_PARTS,
    N_PARTS_END,
    N_PENDING,
    N_PENDING_BEFORE_MESSAGE,
    N_ROW_OFFSETS,
    N_ROWS,
    NEWEST,
    NO_NODE,
    NODE,
    NODE_OF_TEMPLATE,
    NODES,
    OK,
    OLDEST,
    P_CHILD,
    P_COUNT_SIZE,
    P_KIND,
    P_LENGTH_SIZE,
    P_OFFSETS,
    P_SINCE,
    PACKET_CUT,
    PACKET_HEADER,
    PACKET_TOO_LONG,
    PART,
    PARTS,
    PREFETCH_BYTES,
    Q_INDEX,
    Q_LEFT,
    Q_NEED,
    Q_OFFSET,
    Q_PACKET,
    Q_PART,
    Q_REASON,
    Q_TEMPLATE,
    Q_VERSION,
    QUARANTINE,
    QUARANTINE_CAPACITY,
    QUARANTINE_FULL,
    QUARANTINE_ROW,
    QUARANTINE_ROWS,
    ROW_KEYS_OFFSET,
    SBE_LITTLE_ENDIAN,
    SCHEMA_ID,
    SCHEMA_OTHER,
    STACK,
    STARTS,
    STOP,
    TEMPLATE_UNKNOWN,
    WINDOW_FIRST,
    get,
    put,
)


@inlined
def _load_uint(buffer, here, size):
    """An unsigned integer of 1, 2 or 4 bytes."""
    if size == 1:
        return np.int64(load_u8(buffer, here))
    if size == 2:
        return np.int64(load_u16(buffer, here))
    return np.int64(load_u32(buffer, here))


@inlined
def _quarantine(t, packet, index, offset, template, version, reason, part, need, left):
    """Write a quarantine row; False when its buffer is full."""
    row = get(t, QUARANTINE_ROWS)
    if row >= get(t, QUARANTINE_CAPACITY):
        put(t, FULL, QUARANTINE_FULL)
        return False
    line = get(t, QUARANTINE) + 8 * QUARANTINE_ROW * row
    put(line, Q_PACKET, packet)
    put(line, Q_INDEX, index)
    put(line, Q_OFFSET, offset)
    put(line, Q_TEMPLATE, template)
    put(line, Q_VERSION, version)
    put(line, Q_REASON, reason)
    put(line, Q_PART, part)
    put(line, Q_NEED, need)
    put(line, Q_LEFT, left)
    put(t, QUARANTINE_ROWS, row + 1)
    return True


@inlined
def _open_row(t, n, here, meta):
    """Remember that a row of this node starts here `here`; False when its table or its list is full."""
    count = get(n, N_PENDING)
    if count >= get(n, N_FREE):
        put(t, FULL, (n - get(t, NODES)) // (8 * NODE))
        return False
    store_u32(get(n, N_ROW_OFFSETS), 4 * count, np.uint32(here - get(t, BASE)))
    put(get(n, N_META), count, meta)
    put(n, N_PENDING, count + 1)
    if (meta & 0xFFFF) < get(n, N_FULL_LENGTH) or (meta >> 16) < get(n, N_MIN_VERSION):
        put(n, N_INCOMPLETE, 1)
    return True


@inlined
def _row_count(n):
    return get(n, N_ROWS) + get(n, N_PENDING)


@inlined
def _close_part(n, part, total):
    """Arrow's offsets: where the entries (or bytes) of the node's newest row end."""
    store_i32(get(part, P_OFFSETS), 4 * _row_count(n), np.int32(total))


@outlined
def _walk_parts(t, root, here, end, version, fault):
    """Walk the groups and data behind a root block. Leaves the fault's reason, part, offset, need and left."""
    buffer, nodes, parts, stack = get(t, BUFFER), get(t, NODES), get(t, PARTS), get(t, STACK)
    node, depth = root, 0  # nodes by address
    which = get(node, N_PARTS)
    while True:
        if which == get(node, N_PARTS_END):
            if depth == 0:
                return OK
            frame = stack + 32 * depth
            left, block = get(frame, 2) - 1, get(frame, 3)
            if left > 0:
                put(frame, 2, left)
            else:
                child = node
                node, which = get(frame, 0), get(frame, 1)
                depth -= 1
                _close_part(node, parts + 8 * PART * which, _row_count(child))
                which += 1
                continue
        else:
            part = parts + 8 * PART * which
            if get(part, P_KIND) == DATA:
                size, length = get(part, P_LENGTH_SIZE), 0
                which_data = get(part, P_CHILD)
                used = get(get(t, DATA_USED), which_data)
                if version >= get(part, P_SINCE):
                    if here + size > end:
                        _set_fault(fault, DATA_CUT, which, here, size, end - here)
                        return DAMAGED
                    length = _load_uint(buffer, here, size)
                    if here + size + length > end:
                        _set_fault(fault, DATA_PAST_END, which, here, length, end - here - size)
                        return DAMAGED
                    if used + length > get(get(t, DATA_CAPACITY), which_data):
                        put(t, FULL, DATA_FULL - which_data)
                        return STOP
                    target = get(get(t, DATA_ADDRESS), which_data) + used
                    for i in range(length):
                        store_u8(target, i, load_u8(buffer, here + size + i))
                    here += size + length
                put(get(t, DATA_USED), which_data, used + length)
                _close_part(node, part, used + length)
                which += 1
                continue
            child = nodes + 8 * NODE * get(part, P_CHILD)
            header = get(part, P_LENGTH_SIZE) + get(part, P_COUNT_SIZE)
            block, left = 0, 0
            if version >= get(part, P_SINCE):
                if here + header > end:
                    _set_fault(fault, GROUP_CUT, which, here, header, end - here)
                    return DAMAGED
                block = _load_uint(buffer, here, get(part, P_LENGTH_SIZE))
                left = _load_uint(buffer, here + get(part, P_LENGTH_SIZE), get(part, P_COUNT_SIZE))
                here += header
            if left == 0:
                _close_part(node, part, _row_count(child))
                which += 1
                continue
            if block == 0:
                # Entries without a byte carry nothing and would cost memory for free.
                _set_fault(fault, GROUP_OF_NOTHING, which, here - header, left, 0)
                return DAMAGED
            if block > 0xFFFF or left * block > end - here:
                _set_fault(fault, GROUP_PAST_END, which, here - header, left * block, end - here)
                return DAMAGED
            depth += 1
            frame = stack + 32 * depth
            put(frame, 0, node)
            put(frame, 1, which)
            put(frame, 2, left)
            put(frame, 3, block)
            node = child
        # Open the next entry of `node`.
        if here + block > end:
            _set_fault(fault, GROUP_PAST_END, get(stack + 32 * depth, 1), here, block, end - here)
            return DAMAGED
        if not _open_row(t, node, here, block | version << 16):
            return STOP
        here += block
        which = get(node, N_PARTS)


@inlined
def _set_fault(fault, reason, part, here, need, left):
    put(fault, 0, reason)
    put(fault, 1, part)
    put(fault, 2, here)
    put(fault, 3, need)
    put(fault, 4, left)


@outlined
def _walk_complex(t, n, body, end, meta, packet, index, start, template):
    """A message with groups or data: its rows are opened together, or none is and the message is quarantined."""
    data, saved, data_count = get(t, DATA_USED), get(t, DATA_SAVED), get(t, DATA_COUNT)
    last = get(t, NODES) + 8 * NODE * get(n, N_END)
    fault = get(t, STACK)  # frame 0 is not used by the walk
    for node in range(n, last, 8 * NODE):
        put(node, N_PENDING_BEFORE_MESSAGE, get(node, N_PENDING))
    for i in range(data_count):
        put(saved, data_count + i, get(data, i))
    outcome = STOP
    if _open_row(t, n, body, meta):
        outcome = _walk_parts(t, n, body + (meta & 0xFFFF), end, meta >> 16, fault)
    if outcome == OK:
        return True
    for node in range(n, last, 8 * NODE):
        put(node, N_PENDING, get(node, N_PENDING_BEFORE_MESSAGE))
    for i in range(data_count):
        put(data, i, get(saved, data_count + i))
    if outcome == STOP:
        return False
    reason, part, offset = get(fault, 0), get(fault, 1), get(fault, 2) - start
    return _quarantine(t, packet, index, offset, template, meta >> 16, reason, part, get(fault, 3), get(fault, 4))


@outlined
def _walk_general(t, packet, index, start, here, length):
    """A message that is not just the expected block: another version or length, groups, data, or something wrong."""
    buffer = get(t, BUFFER)
    encoding, schema = np.int64(load_u16(buffer, here + 2)), np.int64(load_u16(buffer, here + 8))
    block, version = np.int64(load_u16(buffer, here + 4)), np.int64(load_u16(buffer, here + 10))
    template = np.int64(load_u16(buffer, here + 6))
    node = np.int64(load_u32(get(t, NODE_OF_TEMPLATE), 4 * template))
    if encoding != SBE_LITTLE_ENDIAN:
        return _quarantine(t, packet, index, here - start, template, version, ENCODING_UNKNOWN, -1, encoding, 0)
    if schema != get(t, SCHEMA_ID):
        return _quarantine(t, packet, index, here - start, template, version, SCHEMA_OTHER, -1, schema, 0)
    if version < get(t, OLDEST) or version > get(t, NEWEST):
        put(t, LOWEST_OTHER, min(version, get(t, LOWEST_OTHER)))
        put(t, HIGHEST_OTHER, max(version, get(t, HIGHEST_OTHER)))
    if node == NO_NODE:
        return _quarantine(t, packet, index, here - start, template, version, TEMPLATE_UNKNOWN, -1, template, 0)
    left = length - MESSAGE_HEADER
    if block > left:
        return _quarantine(t, packet, index, here - start, template, version, BLOCK_PAST_END, -1, block, left)
    n, body, meta = get(t, NODES) + node, here + MESSAGE_HEADER, block | version << 16
    count = get(n, N_PENDING)
    if count >= get(n, N_FREE):
        put(t, FULL, node // (8 * NODE))
        return False
    store_u32(
        get(n, N_ROW_OFFSETS) + ROW_KEYS_OFFSET, 4 * count, np.uint32(packet - get(t, WINDOW_FIRST) | index << 16)
    )
    if get(n, N_PARTS) != get(n, N_PARTS_END):
        return _walk_complex(t, n, body, here + length, meta, packet, index, start, template)
    return _open_row(t, n, body, meta)


@outlined
def walk_pass(t, packet, limit):
    """Open a row for every valid message of these packets; returns the packet for which a buffer was full, or limit, or
    -1 for a packet outside the buffer: all else is checked against the packet."""
    buffer, nodes, node_of = get(t, BUFFER), get(t, NODES), get(t, NODE_OF_TEMPLATE)
    starts, ends, base = get(t, STARTS), get(t, ENDS), get(t, BASE)
    first, messages, size, lowest = get(t, WINDOW_FIRST), get(t, MESSAGES), get(t, BUFFER_SIZE), max(base, 0)
    while packet < limit:
        start, end = get(starts, packet), get(ends, packet)
        if end - start < PACKET_HEADER or end - start > MAX_PACKET_BYTES or start < lowest or end > size:
            if start < 0 or start > end or end > size:
                return -1
            if start < base:
                break  # the pass's offsets are counted from its first packet: another pass
            if not _quarantine_packet(t, packet, end - start):
                break
            packet += 1
            continue
        if end - base > 0xFFFFFFFF:
            break  # too far from the pass's first packet: another pass
        here, tag, has_room = start + PACKET_HEADER, packet - first, True
        while here + MESSAGE_HEADER <= end:
            framing, header = np.int64(load_u32(buffer, here)), load_i64(buffer, here + 4)
            length = framing & 0xFFFF
            prefetch(buffer, here + PREFETCH_BYTES)
            n = nodes + np.int64(load_u32(node_of, 4 * ((header >> 16) & 0xFFFF)))
            count = get(n, N_PENDING)
            if here + length > end:
                break
            if header == get(n, N_HEADER) and framing == get(n, N_FRAMING) and count < get(n, N_FREE):
                where = get(n, N_ROW_OFFSETS)
                store_u32(where, 4 * count, np.uint32(here + MESSAGE_HEADER - base))
                store_u32(where, ROW_KEYS_OFFSET + 4 * count, np.uint32(tag))
                store_i64(n, 8 * N_PENDING, count + 1)
            elif length < MESSAGE_HEADER:
                break
            elif not _walk_general(t, packet, tag >> 16, start, here, length):
                has_room = False
                break
            here += length
            tag += 1 << 16
        if has_room and here < end:
            has_room = _quarantine_rest(t, packet, tag >> 16, start, here, end)
            tag += 1 << 16
        if not has_room:
            break
        store_u16(messages, 2 * packet, np.uint16(tag >> 16))
        packet += 1
    return packet


@outlined
def _quarantine_packet(t, packet, size):
    store_u16(get(t, MESSAGES), 2 * packet, np.uint16(0))
    if size < PACKET_HEADER:
        return _quarantine(t, packet, 0, 0, -1, -1, PACKET_CUT, -1, PACKET_HEADER, size)
    return _quarantine(t, packet, 0, 0, -1, -1, PACKET_TOO_LONG, -1, MAX_PACKET_BYTES, size)


@outlined
def _quarantine_rest(t, packet, index, start, here, end):
    """What is left of a packet cannot be framed: there is no telling where the next message would start."""
    buffer = get(t, BUFFER)
    if here + MESSAGE_HEADER > end:
        return _quarantine(t, packet, index, here - start, -1, -1, HEADER_CUT, -1, MESSAGE_HEADER, end - here)
    length = np.int64(load_u16(buffer, here))
    template, version = np.int64(load_u16(buffer, here + 6)), np.int64(load_u16(buffer, here + 10))
    if length < MESSAGE_HEADER:
        return _quarantine(
            t, packet, index, here - start, template, version, LENGTH_TOO_SMALL, -1, length, MESSAGE_HEADER
        )
    return _quarantine(t, packet, index, here - start, template, version, LENGTH_PAST_END, -1, length, end - here)
