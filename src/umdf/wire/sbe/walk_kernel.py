"""The walk over packets: headers, groups and lengths. Everything is checked here, and the rows of each node are found.

Nothing is read later that the walk has not found to be inside the message. What is not sound is a line in the journal.
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
    AHEAD,
    BAD,
    BASE,
    BLOCK_PAST_END,
    BUFFER,
    BUFFER_SIZE,
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
    FIRST_OF_STRETCH,
    FULL,
    GROUP_CUT,
    GROUP_OF_NOTHING,
    GROUP_PAST_END,
    HEADER_CUT,
    HIGHEST_OTHER,
    J_INDEX,
    J_LEFT,
    J_NEED,
    J_OFFSET,
    J_PACKET,
    J_PART,
    J_REASON,
    J_TEMPLATE,
    J_VERSION,
    JOURNAL,
    JOURNAL_CAPACITY,
    JOURNAL_FULL,
    JOURNAL_LINE,
    JOURNAL_ROWS,
    LENGTH_PAST_END,
    LENGTH_TOO_SMALL,
    LONGEST_PACKET,
    LOWEST_OTHER,
    MESSAGE_HEADER,
    MESSAGES,
    N_CAREFUL,
    N_COUNT,
    N_FRAMING,
    N_HEADER,
    N_KNOWN,
    N_LAST,
    N_META,
    N_PARTS,
    N_PARTS_END,
    N_ROOM,
    N_ROWS,
    N_SAVED,
    N_VERSION,
    N_WHERE,
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
    SBE_LITTLE_ENDIAN,
    SCHEMA_ID,
    SCHEMA_OTHER,
    STACK,
    STARTS,
    STOP,
    TAGS,
    TEMPLATE_UNKNOWN,
    at,
    put,
)


@inlined
def _small(buffer, here, size):
    """An unsigned integer of 1, 2 or 4 bytes."""
    if size == 1:
        return np.int64(load_u8(buffer, here))
    if size == 2:
        return np.int64(load_u16(buffer, here))
    return np.int64(load_u32(buffer, here))


@inlined
def _note(t, packet, index, offset, template, version, reason, part, need, left):
    """Write a line of the journal; False when there is no room for it."""
    row = at(t, JOURNAL_ROWS)
    if row >= at(t, JOURNAL_CAPACITY):
        put(t, FULL, JOURNAL_FULL)
        return False
    line = at(t, JOURNAL) + 8 * JOURNAL_LINE * row
    put(line, J_PACKET, packet)
    put(line, J_INDEX, index)
    put(line, J_OFFSET, offset)
    put(line, J_TEMPLATE, template)
    put(line, J_VERSION, version)
    put(line, J_REASON, reason)
    put(line, J_PART, part)
    put(line, J_NEED, need)
    put(line, J_LEFT, left)
    put(t, JOURNAL_ROWS, row + 1)
    return True


@inlined
def _open_row(t, n, here, meta):
    """Remember that a row of this node starts here `here`; False when its table or its list is full."""
    count = at(n, N_COUNT)
    if count >= at(n, N_ROOM):
        put(t, FULL, (n - at(t, NODES)) // (8 * NODE))
        return False
    store_u32(at(n, N_WHERE), 4 * count, np.uint32(here - at(t, BASE)))
    put(at(n, N_META), count, meta)
    put(n, N_COUNT, count + 1)
    if (meta & 0xFFFF) < at(n, N_KNOWN) or (meta >> 16) < at(n, N_VERSION):
        put(n, N_CAREFUL, 1)
    return True


@inlined
def _total(n):
    return at(n, N_ROWS) + at(n, N_COUNT)


@inlined
def _close_part(n, part, total):
    """Arrow's offsets: where the entries (or bytes) of the node's newest row end."""
    store_i32(at(part, P_OFFSETS), 4 * _total(n), np.int32(total))


@outlined
def _walk_parts(t, root, here, end, version, fault):
    """Walk the groups and data behind a root block. Leaves the fault's reason, part, offset, need and left."""
    buffer, nodes, parts, stack = at(t, BUFFER), at(t, NODES), at(t, PARTS), at(t, STACK)
    node, depth = root, 0  # nodes by address
    which = at(node, N_PARTS)
    while True:
        if which == at(node, N_PARTS_END):
            if depth == 0:
                return OK
            frame = stack + 32 * depth
            left, block = at(frame, 2) - 1, at(frame, 3)
            if left > 0:
                put(frame, 2, left)
            else:
                child = node
                node, which = at(frame, 0), at(frame, 1)
                depth -= 1
                _close_part(node, parts + 8 * PART * which, _total(child))
                which += 1
                continue
        else:
            part = parts + 8 * PART * which
            if at(part, P_KIND) == DATA:
                size, length = at(part, P_LENGTH_SIZE), 0
                which_data = at(part, P_CHILD)
                used = at(at(t, DATA_USED), which_data)
                if version >= at(part, P_SINCE):
                    if here + size > end:
                        _fault(fault, DATA_CUT, which, here, size, end - here)
                        return BAD
                    length = _small(buffer, here, size)
                    if here + size + length > end:
                        _fault(fault, DATA_PAST_END, which, here, length, end - here - size)
                        return BAD
                    if used + length > at(at(t, DATA_CAPACITY), which_data):
                        put(t, FULL, DATA_FULL - which_data)
                        return STOP
                    target = at(at(t, DATA_ADDRESS), which_data) + used
                    for i in range(length):
                        store_u8(target, i, load_u8(buffer, here + size + i))
                    here += size + length
                put(at(t, DATA_USED), which_data, used + length)
                _close_part(node, part, used + length)
                which += 1
                continue
            child = nodes + 8 * NODE * at(part, P_CHILD)
            header = at(part, P_LENGTH_SIZE) + at(part, P_COUNT_SIZE)
            block, left = 0, 0
            if version >= at(part, P_SINCE):
                if here + header > end:
                    _fault(fault, GROUP_CUT, which, here, header, end - here)
                    return BAD
                block = _small(buffer, here, at(part, P_LENGTH_SIZE))
                left = _small(buffer, here + at(part, P_LENGTH_SIZE), at(part, P_COUNT_SIZE))
                here += header
            if left == 0:
                _close_part(node, part, _total(child))
                which += 1
                continue
            if block == 0:
                # Entries without a byte carry nothing and would cost memory for free.
                _fault(fault, GROUP_OF_NOTHING, which, here - header, left, 0)
                return BAD
            if block > 0xFFFF or left * block > end - here:
                _fault(fault, GROUP_PAST_END, which, here - header, left * block, end - here)
                return BAD
            depth += 1
            frame = stack + 32 * depth
            put(frame, 0, node)
            put(frame, 1, which)
            put(frame, 2, left)
            put(frame, 3, block)
            node = child
        # Open the next entry of `node`.
        if here + block > end:
            _fault(fault, GROUP_PAST_END, at(stack + 32 * depth, 1), here, block, end - here)
            return BAD
        if not _open_row(t, node, here, block | version << 16):
            return STOP
        here += block
        which = at(node, N_PARTS)


@inlined
def _fault(fault, reason, part, here, need, left):
    put(fault, 0, reason)
    put(fault, 1, part)
    put(fault, 2, here)
    put(fault, 3, need)
    put(fault, 4, left)


@outlined
def _walk_complex(t, n, body, end, meta, packet, index, start, template):
    """A message with groups or data: its rows are opened together, or not here all and noted in the journal."""
    data, saved, data_count = at(t, DATA_USED), at(t, DATA_SAVED), at(t, DATA_COUNT)
    last = at(t, NODES) + 8 * NODE * at(n, N_LAST)
    fault = at(t, STACK)  # frame 0 is not used by the walk
    for node in range(n, last, 8 * NODE):
        put(node, N_SAVED, at(node, N_COUNT))
    for i in range(data_count):
        put(saved, data_count + i, at(data, i))
    came = STOP
    if _open_row(t, n, body, meta):
        came = _walk_parts(t, n, body + (meta & 0xFFFF), end, meta >> 16, fault)
    if came == OK:
        return True
    for node in range(n, last, 8 * NODE):
        put(node, N_COUNT, at(node, N_SAVED))
    for i in range(data_count):
        put(data, i, at(saved, data_count + i))
    if came == STOP:
        return False
    reason, part, offset = at(fault, 0), at(fault, 1), at(fault, 2) - start
    return _note(t, packet, index, offset, template, meta >> 16, reason, part, at(fault, 3), at(fault, 4))


@outlined
def _walk_unusual(t, packet, index, start, here, length):
    """A message that is not just the expected block: another version or length, groups, data, or something wrong."""
    buffer = at(t, BUFFER)
    encoding, schema = np.int64(load_u16(buffer, here + 2)), np.int64(load_u16(buffer, here + 8))
    block, version = np.int64(load_u16(buffer, here + 4)), np.int64(load_u16(buffer, here + 10))
    template = np.int64(load_u16(buffer, here + 6))
    node = np.int64(load_u32(at(t, NODE_OF_TEMPLATE), 4 * template))
    if encoding != SBE_LITTLE_ENDIAN:
        return _note(t, packet, index, here - start, template, version, ENCODING_UNKNOWN, -1, encoding, 0)
    if schema != at(t, SCHEMA_ID):
        return _note(t, packet, index, here - start, template, version, SCHEMA_OTHER, -1, schema, 0)
    if version < at(t, OLDEST) or version > at(t, NEWEST):
        put(t, LOWEST_OTHER, min(version, at(t, LOWEST_OTHER)))
        put(t, HIGHEST_OTHER, max(version, at(t, HIGHEST_OTHER)))
    if node == NO_NODE:
        return _note(t, packet, index, here - start, template, version, TEMPLATE_UNKNOWN, -1, template, 0)
    left = length - MESSAGE_HEADER
    if block > left:
        return _note(t, packet, index, here - start, template, version, BLOCK_PAST_END, -1, block, left)
    n, body, meta = at(t, NODES) + node, here + MESSAGE_HEADER, block | version << 16
    count = at(n, N_COUNT)
    if count >= at(n, N_ROOM):
        put(t, FULL, node // (8 * NODE))
        return False
    store_u32(at(n, N_WHERE) + TAGS, 4 * count, np.uint32(packet - at(t, FIRST_OF_STRETCH) | index << 16))
    if at(n, N_PARTS) != at(n, N_PARTS_END):
        return _walk_complex(t, n, body, here + length, meta, packet, index, start, template)
    return _open_row(t, n, body, meta)


@outlined
def walk_pass(t, packet, limit):
    """Open a row for every sound message of these packets; returns the packet for which a buffer was full, or limit, or
    -1 for a packet outside the buffer: all else is checked against the packet."""
    buffer, nodes, node_of = at(t, BUFFER), at(t, NODES), at(t, NODE_OF_TEMPLATE)
    starts, ends, base = at(t, STARTS), at(t, ENDS), at(t, BASE)
    first, messages, size, lowest = at(t, FIRST_OF_STRETCH), at(t, MESSAGES), at(t, BUFFER_SIZE), max(base, 0)
    while packet < limit:
        start, end = at(starts, packet), at(ends, packet)
        if end - start < PACKET_HEADER or end - start > LONGEST_PACKET or start < lowest or end > size:
            if start < 0 or start > end or end > size:
                return -1
            if start < base:
                break  # the pass's places are counted from its first packet: another pass
            if not _refuse_packet(t, packet, end - start):
                break
            packet += 1
            continue
        if end - base > 0xFFFFFFFF:
            break  # too far from the pass's first packet: another pass
        here, tag, room = start + PACKET_HEADER, packet - first, True
        while here + MESSAGE_HEADER <= end:
            framing, header = np.int64(load_u32(buffer, here)), load_i64(buffer, here + 4)
            length = framing & 0xFFFF
            prefetch(buffer, here + AHEAD)
            n = nodes + np.int64(load_u32(node_of, 4 * ((header >> 16) & 0xFFFF)))
            count = at(n, N_COUNT)
            if here + length > end:
                break
            if header == at(n, N_HEADER) and framing == at(n, N_FRAMING) and count < at(n, N_ROOM):
                where = at(n, N_WHERE)
                store_u32(where, 4 * count, np.uint32(here + MESSAGE_HEADER - base))
                store_u32(where, TAGS + 4 * count, np.uint32(tag))
                store_i64(n, 8 * N_COUNT, count + 1)
            elif length < MESSAGE_HEADER:
                break
            elif not _walk_unusual(t, packet, tag >> 16, start, here, length):
                room = False
                break
            here += length
            tag += 1 << 16
        if room and here < end:
            room = _refuse_rest(t, packet, tag >> 16, start, here, end)
            tag += 1 << 16
        if not room:
            break
        store_u16(messages, 2 * packet, np.uint16(tag >> 16))
        packet += 1
    return packet


@outlined
def _refuse_packet(t, packet, size):
    store_u16(at(t, MESSAGES), 2 * packet, np.uint16(0))
    if size < PACKET_HEADER:
        return _note(t, packet, 0, 0, -1, -1, PACKET_CUT, -1, PACKET_HEADER, size)
    return _note(t, packet, 0, 0, -1, -1, PACKET_TOO_LONG, -1, LONGEST_PACKET, size)


@outlined
def _refuse_rest(t, packet, index, start, here, end):
    """What is left of a packet cannot be framed: there is no telling where the next message would start."""
    buffer = at(t, BUFFER)
    if here + MESSAGE_HEADER > end:
        return _note(t, packet, index, here - start, -1, -1, HEADER_CUT, -1, MESSAGE_HEADER, end - here)
    length = np.int64(load_u16(buffer, here))
    template, version = np.int64(load_u16(buffer, here + 6)), np.int64(load_u16(buffer, here + 10))
    if length < MESSAGE_HEADER:
        return _note(t, packet, index, here - start, template, version, LENGTH_TOO_SMALL, -1, length, MESSAGE_HEADER)
    return _note(t, packet, index, here - start, template, version, LENGTH_PAST_END, -1, length, end - here)
