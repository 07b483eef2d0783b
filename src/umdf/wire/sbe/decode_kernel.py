"""Bytes → columns, for every template, in one table-driven kernel.

A block of packets is walked first (headers, groups, lengths: everything is checked here), which leaves for every node
(a message's root block, or a group) a short list of where its rows start. Then each column is gathered from those
places in one tight loop. Nothing is read that the walk has not found to be inside the message.

The kernel takes the address of one table of int64 (`Arguments` in `decode`), the names of whose places stand here.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)

# Places in the table of arguments.
BUFFER, BUFFER_SIZE, STARTS, ENDS, PACKETS = 0, 1, 2, 3, 4
NODES, NODE_COUNT, COLUMNS, PARTS, NODE_OF_TEMPLATE, SCHEMA_ID = 5, 6, 7, 8, 9, 10
DATA_USED, DATA_CAPACITY, DATA_ADDRESS, DATA_COUNT, DATA_SAVED = 11, 12, 13, 14, 15
SENDING_TIME, SEQUENCE, SEQ_VERSION, MESSAGES, CHANNEL = 16, 17, 18, 19, 20
JOURNAL, JOURNAL_ROWS, JOURNAL_CAPACITY, FULL, VALIDITY, STACK, FIRST, BASE = 21, 22, 23, 24, 25, 26, 27, 28
ARGUMENTS = 29

# A node, as int64s. First what the walk of a message of the expected kind needs: one cache line.
N_HEADER, N_FRAMING = 0, 1  # the expected SBE header and framing header, each as one word
N_COUNT, N_ROOM = 2, 3  # of a pass: rows found so far, and how many can be
N_WHERE, N_NEXT_PACKET, N_NEXT_INDEX = 4, 5, 6  # addresses: where rows start; this pass's part of a root's own columns
N_CAREFUL = 7  # of a pass: some row does not carry every column
N_COLUMNS, N_COLUMNS_END, N_PARTS, N_PARTS_END, N_LAST = 8, 9, 10, 11, 12  # N_LAST: one past its descendants
N_KNOWN, N_VERSION = 13, 14  # a block at least so long, of at least this version, holds every column as it is
N_ROWS, N_CAPACITY, N_MOST, N_PACKET, N_INDEX, N_META, N_SAVED = 15, 16, 17, 18, 19, 20, 21
NODE = 24
NO_FRAMING = -1  # what no simple message can have: the node is a group, or has groups or data

# A column, as int64s.
C_OFFSET, C_SIZE, C_KIND, C_NULLABLE, C_NULL, C_SINCE, C_UNTIL = 0, 1, 2, 3, 4, 5, 6
C_VALUES, C_BITMAP, C_TRACKED, C_TEXT = 7, 8, 9, 10  # addresses, and whether the unusual happened: a row of a
# column without null value was absent (so it has a bitmap), or one of a column that is gone was there (so it has values)
COLUMN = 11
FIXED, TEXT = 0, 1

# A part behind a block, as int64s.
P_KIND, P_CHILD, P_LENGTH_SIZE, P_COUNT_SIZE, P_SINCE, P_OFFSETS = 0, 1, 2, 3, 4, 5
PART = 6
GROUP, DATA = 0, 1

# A line of the journal, as int64s: the packet, the message in it, the byte in the packet, the template and version as
# sent, why, which part (or -1), and the two numbers of the sentence.
J_PACKET, J_INDEX, J_OFFSET, J_TEMPLATE, J_VERSION, J_REASON, J_PART, J_NEED, J_LEFT = 0, 1, 2, 3, 4, 5, 6, 7, 8
JOURNAL_LINE = 9

# Why a message (or the rest of a packet) is not among the rows.
PACKET_CUT, PACKET_TOO_LONG, HEADER_CUT, LENGTH_TOO_SMALL, LENGTH_PAST_END, ENCODING_UNKNOWN = 1, 2, 3, 4, 5, 6
BLOCK_PAST_END, GROUP_CUT, GROUP_PAST_END, GROUP_OF_NOTHING, DATA_CUT, DATA_PAST_END = 7, 8, 9, 10, 11, 12
TEMPLATE_UNKNOWN, SCHEMA_OTHER = 13, 14

PACKET_HEADER, MESSAGE_HEADER = 16, 12
LONGEST_PACKET = 65535
NO_NODE = 0  # unknown templates lead to the first node, which is no template's and expects nothing
SBE_LITTLE_ENDIAN = 0xEB50  # framing header, encodingType (reference 5.2)
PASS_PACKETS = 128  # walked, then gathered: small enough to stay in the cache
DEEPEST = 8

# What FULL says when a buffer has to grow; a node's number when it is the node's.
NOTHING_FULL, JOURNAL_FULL, DATA_FULL = -1, -2, -3
OK, BAD, STOP = 0, 1, 2  # what a walk came to


@inlined
def _u(base, index):
    return load_i64(base, 8 * index)


@inlined
def _set(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def _small(buffer, at, size):
    """An unsigned integer of 1, 2 or 4 bytes."""
    if size == 1:
        return np.int64(load_u8(buffer, at))
    if size == 2:
        return np.int64(load_u16(buffer, at))
    return np.int64(load_u32(buffer, at))


@inlined
def _note(t, packet, index, offset, template, version, reason, part, need, left):
    """Write a line of the journal; False when there is no room for it."""
    row = _u(t, JOURNAL_ROWS)
    if row >= _u(t, JOURNAL_CAPACITY):
        _set(t, FULL, JOURNAL_FULL)
        return False
    line = _u(t, JOURNAL) + 8 * JOURNAL_LINE * row
    _set(line, J_PACKET, packet)
    _set(line, J_INDEX, index)
    _set(line, J_OFFSET, offset)
    _set(line, J_TEMPLATE, template)
    _set(line, J_VERSION, version)
    _set(line, J_REASON, reason)
    _set(line, J_PART, part)
    _set(line, J_NEED, need)
    _set(line, J_LEFT, left)
    _set(t, JOURNAL_ROWS, row + 1)
    return True


@inlined
def _open_row(t, n, at, meta):
    """Remember that a row of this node starts at `at`; False when its table or its list is full."""
    count = _u(n, N_COUNT)
    if count >= _u(n, N_ROOM):
        _set(t, FULL, (n - _u(t, NODES)) // (8 * NODE))
        return False
    store_u32(_u(n, N_WHERE), 4 * count, np.uint32(at - _u(t, BASE)))
    _set(_u(n, N_META), count, meta)
    _set(n, N_COUNT, count + 1)
    if (meta & 0xFFFF) < _u(n, N_KNOWN) or (meta >> 16) < _u(n, N_VERSION):
        _set(n, N_CAREFUL, 1)
    return True


@inlined
def _total(n):
    return _u(n, N_ROWS) + _u(n, N_COUNT)


@inlined
def _close_part(n, part, total):
    """Arrow's offsets: where the entries (or bytes) of the node's newest row end."""
    store_i32(_u(part, P_OFFSETS), 4 * _total(n), np.int32(total))


@kernel
def _walk_parts(t, root, at, end, version, fault):
    """Walk the groups and data behind a root block. Leaves the fault's reason, part, offset, need and left."""
    buffer, nodes, parts, stack = _u(t, BUFFER), _u(t, NODES), _u(t, PARTS), _u(t, STACK)
    node, depth = root, 0  # nodes by address
    which = _u(node, N_PARTS)
    while True:
        if which == _u(node, N_PARTS_END):
            if depth == 0:
                return OK
            frame = stack + 32 * depth
            left, block = _u(frame, 2) - 1, _u(frame, 3)
            if left > 0:
                _set(frame, 2, left)
            else:
                child = node
                node, which = _u(frame, 0), _u(frame, 1)
                depth -= 1
                _close_part(node, parts + 8 * PART * which, _total(child))
                which += 1
                continue
        else:
            part = parts + 8 * PART * which
            if _u(part, P_KIND) == DATA:
                size, length = _u(part, P_LENGTH_SIZE), 0
                which_data = _u(part, P_CHILD)
                used = _u(_u(t, DATA_USED), which_data)
                if version >= _u(part, P_SINCE):
                    if at + size > end:
                        _fault(fault, DATA_CUT, which, at, size, end - at)
                        return BAD
                    length = _small(buffer, at, size)
                    if at + size + length > end:
                        _fault(fault, DATA_PAST_END, which, at, length, end - at - size)
                        return BAD
                    if used + length > _u(_u(t, DATA_CAPACITY), which_data):
                        _set(t, FULL, DATA_FULL - which_data)
                        return STOP
                    target = _u(_u(t, DATA_ADDRESS), which_data) + used
                    for i in range(length):
                        store_u8(target, i, load_u8(buffer, at + size + i))
                    at += size + length
                _set(_u(t, DATA_USED), which_data, used + length)
                _close_part(node, part, used + length)
                which += 1
                continue
            child = nodes + 8 * NODE * _u(part, P_CHILD)
            header = _u(part, P_LENGTH_SIZE) + _u(part, P_COUNT_SIZE)
            block, left = 0, 0
            if version >= _u(part, P_SINCE):
                if at + header > end:
                    _fault(fault, GROUP_CUT, which, at, header, end - at)
                    return BAD
                block = _small(buffer, at, _u(part, P_LENGTH_SIZE))
                left = _small(buffer, at + _u(part, P_LENGTH_SIZE), _u(part, P_COUNT_SIZE))
                at += header
            if left == 0:
                _close_part(node, part, _total(child))
                which += 1
                continue
            if block == 0:
                # Entries without a byte carry nothing and would cost memory for free.
                _fault(fault, GROUP_OF_NOTHING, which, at - header, left, 0)
                return BAD
            if block > 0xFFFF or left * block > end - at:
                _fault(fault, GROUP_PAST_END, which, at - header, left * block, end - at)
                return BAD
            depth += 1
            frame = stack + 32 * depth
            _set(frame, 0, node)
            _set(frame, 1, which)
            _set(frame, 2, left)
            _set(frame, 3, block)
            node = child
        # Open the next entry of `node`.
        if at + block > end:
            _fault(fault, GROUP_PAST_END, _u(stack + 32 * depth, 1), at, block, end - at)
            return BAD
        if not _open_row(t, node, at, block | version << 16):
            return STOP
        at += block
        which = _u(node, N_PARTS)


@inlined
def _fault(fault, reason, part, at, need, left):
    _set(fault, 0, reason)
    _set(fault, 1, part)
    _set(fault, 2, at)
    _set(fault, 3, need)
    _set(fault, 4, left)


@kernel
def _walk_complex(t, n, body, end, meta, packet, index, start, template):
    """A message with groups or data: its rows are opened together, or not at all and noted in the journal."""
    data, saved, data_count = _u(t, DATA_USED), _u(t, DATA_SAVED), _u(t, DATA_COUNT)
    last = _u(t, NODES) + 8 * NODE * _u(n, N_LAST)
    fault = _u(t, STACK)  # frame 0 is not used by the walk
    for node in range(n, last, 8 * NODE):
        _set(node, N_SAVED, _u(node, N_COUNT))
    for i in range(data_count):
        _set(saved, data_count + i, _u(data, i))
    came = STOP
    if _open_row(t, n, body, meta):
        came = _walk_parts(t, n, body + (meta & 0xFFFF), end, meta >> 16, fault)
    if came == OK:
        return True
    for node in range(n, last, 8 * NODE):
        _set(node, N_COUNT, _u(node, N_SAVED))
    for i in range(data_count):
        _set(data, i, _u(saved, data_count + i))
    if came == STOP:
        return False
    reason, part, offset = _u(fault, 0), _u(fault, 1), _u(fault, 2) - start
    return _note(t, packet, index, offset, template, meta >> 16, reason, part, _u(fault, 3), _u(fault, 4))


@kernel
def _walk_unusual(t, packet, index, start, at, length):
    """A message that is not just the expected block: another version or length, groups, data, or something wrong."""
    buffer = _u(t, BUFFER)
    encoding, schema = np.int64(load_u16(buffer, at + 2)), np.int64(load_u16(buffer, at + 8))
    block, version = np.int64(load_u16(buffer, at + 4)), np.int64(load_u16(buffer, at + 10))
    template = np.int64(load_u16(buffer, at + 6))
    node = np.int64(load_u32(_u(t, NODE_OF_TEMPLATE), 4 * template))
    if encoding != SBE_LITTLE_ENDIAN:
        return _note(t, packet, index, at - start, template, version, ENCODING_UNKNOWN, -1, encoding, 0)
    if schema != _u(t, SCHEMA_ID):
        return _note(t, packet, index, at - start, template, version, SCHEMA_OTHER, -1, schema, 0)
    if node == NO_NODE:
        return _note(t, packet, index, at - start, template, version, TEMPLATE_UNKNOWN, -1, template, 0)
    left = length - MESSAGE_HEADER
    if block > left:
        return _note(t, packet, index, at - start, template, version, BLOCK_PAST_END, -1, block, left)
    n, body, meta = _u(t, NODES) + node, at + MESSAGE_HEADER, block | version << 16
    count = _u(n, N_COUNT)
    if count >= _u(n, N_ROOM):
        _set(t, FULL, node // (8 * NODE))
        return False
    store_u32(_u(n, N_NEXT_PACKET), 4 * count, np.uint32(packet))
    store_u16(_u(n, N_NEXT_INDEX), 2 * count, np.uint16(index))
    if _u(n, N_PARTS) != _u(n, N_PARTS_END):
        return _walk_complex(t, n, body, at + length, meta, packet, index, start, template)
    return _open_row(t, n, body, meta)


@inlined
def _walk_pass(t, packet, limit):
    """Open a row for every sound message of these packets; returns the packet for which a buffer was full, or limit."""
    buffer, nodes, node_of = _u(t, BUFFER), _u(t, NODES), _u(t, NODE_OF_TEMPLATE)
    starts, ends, base = _u(t, STARTS), _u(t, ENDS), _u(t, BASE)
    channel, seq_version, sequence = _u(t, CHANNEL), _u(t, SEQ_VERSION), _u(t, SEQUENCE)
    sending_time, messages = _u(t, SENDING_TIME), _u(t, MESSAGES)
    while packet < limit:
        start, end = _u(starts, packet), _u(ends, packet)
        if start < base or end - base > 0xFFFFFFFF:
            break  # too far from the pass's first packet: another pass
        if end - start < PACKET_HEADER or end - start > LONGEST_PACKET:
            if not _refuse_packet(t, packet, end - start):
                break
            packet += 1
            continue
        store_u64(sending_time, 8 * packet, load_u64(buffer, start + 8))
        store_u32(sequence, 4 * packet, load_u32(buffer, start + 4))
        store_u16(seq_version, 2 * packet, load_u16(buffer, start + 2))
        store_u8(channel, packet, load_u8(buffer, start))
        at, index, room = start + PACKET_HEADER, 0, True
        while at + MESSAGE_HEADER <= end:
            framing, header = np.int64(load_u32(buffer, at)), load_i64(buffer, at + 4)
            length = framing & 0xFFFF
            n = nodes + np.int64(load_u32(node_of, 4 * ((header >> 16) & 0xFFFF)))
            count = _u(n, N_COUNT)
            if at + length > end:
                break
            if header == _u(n, N_HEADER) and framing == _u(n, N_FRAMING) and count < _u(n, N_ROOM):
                store_u32(_u(n, N_NEXT_PACKET), 4 * count, np.uint32(packet))
                store_u16(_u(n, N_NEXT_INDEX), 2 * count, np.uint16(index))
                store_u32(_u(n, N_WHERE), 4 * count, np.uint32(at + MESSAGE_HEADER - base))
                store_i64(n, 8 * N_COUNT, count + 1)
            elif length < MESSAGE_HEADER:
                break
            elif not _walk_unusual(t, packet, index, start, at, length):
                room = False
                break
            at += length
            index += 1
        if room and at < end:
            room = _refuse_rest(t, packet, index, start, at, end)
            index += 1
        if not room:
            break
        store_u16(messages, 2 * packet, np.uint16(index))
        packet += 1
    return packet


@kernel
def _refuse_packet(t, packet, size):
    store_u8(_u(t, CHANNEL), packet, np.uint8(0))
    store_u16(_u(t, SEQ_VERSION), 2 * packet, np.uint16(0))
    store_u32(_u(t, SEQUENCE), 4 * packet, np.uint32(0))
    store_u64(_u(t, SENDING_TIME), 8 * packet, np.uint64(0))
    store_u16(_u(t, MESSAGES), 2 * packet, np.uint16(0))
    if size < PACKET_HEADER:
        return _note(t, packet, 0, 0, -1, -1, PACKET_CUT, -1, PACKET_HEADER, size)
    return _note(t, packet, 0, 0, -1, -1, PACKET_TOO_LONG, -1, LONGEST_PACKET, size)


@kernel
def _refuse_rest(t, packet, index, start, at, end):
    """What is left of a packet cannot be framed: there is no telling where the next message would start."""
    buffer = _u(t, BUFFER)
    if at + MESSAGE_HEADER > end:
        return _note(t, packet, index, at - start, -1, -1, HEADER_CUT, -1, MESSAGE_HEADER, end - at)
    length = np.int64(load_u16(buffer, at))
    template, version = np.int64(load_u16(buffer, at + 6)), np.int64(load_u16(buffer, at + 10))
    if length < MESSAGE_HEADER:
        return _note(t, packet, index, at - start, template, version, LENGTH_TOO_SMALL, -1, length, MESSAGE_HEADER)
    return _note(t, packet, index, at - start, template, version, LENGTH_PAST_END, -1, length, end - at)


@inlined
def _gather(base, where, count, size, values):
    """A column of rows whose blocks all hold it; `base` is that of the pass plus the column's offset."""
    if size == 8:
        for i in range(count):
            store_u64(values, 8 * i, load_u64(base, np.int64(load_u32(where, 4 * i))))
    elif size == 4:
        for i in range(count):
            store_u32(values, 4 * i, load_u32(base, np.int64(load_u32(where, 4 * i))))
    elif size == 2:
        for i in range(count):
            store_u16(values, 2 * i, load_u16(base, np.int64(load_u32(where, 4 * i))))
    else:
        for i in range(count):
            store_u8(values, i, load_u8(base, np.int64(load_u32(where, 4 * i))))


@inlined
def _fill(values, size, row, count, value):
    """The same value in `count` rows."""
    if size == 8:
        for i in range(count):
            store_u64(values, 8 * (row + i), value)
    elif size == 4:
        for i in range(count):
            store_u32(values, 4 * (row + i), np.uint32(value))
    elif size == 2:
        for i in range(count):
            store_u16(values, 2 * (row + i), np.uint16(value))
    else:
        for i in range(count):
            store_u8(values, row + i, np.uint8(value))


@inlined
def _put(values, size, row, value):
    if size == 8:
        store_u64(values, 8 * row, value)
    elif size == 4:
        store_u32(values, 4 * row, np.uint32(value))
    elif size == 2:
        store_u16(values, 2 * row, np.uint16(value))
    else:
        store_u8(values, row, np.uint8(value))


@inlined
def _get(buffer, at, size):
    if size == 8:
        return load_u64(buffer, at)
    if size == 4:
        return np.uint64(load_u32(buffer, at))
    if size == 2:
        return np.uint64(load_u16(buffer, at))
    return np.uint64(load_u8(buffer, at))


@inlined
def _in_block(c, meta):
    """Whether a block of this length and version carries the column."""
    block, version = meta & 0xFFFF, meta >> 16
    if _u(c, C_OFFSET) + _u(c, C_SIZE) > block:
        return False
    return _u(c, C_SINCE) <= version and version <= _u(c, C_UNTIL)


@kernel
def _track(c, rows):
    """From now on this column without a null value has a bitmap: every row so far is present."""
    for word in range((rows + 63) >> 6):
        store_u64(_u(c, C_BITMAP), 8 * word, np.uint64(0xFFFFFFFFFFFFFFFF))
    _set(c, C_TRACKED, 1)


@inlined
def _mark(bitmap, row, present):
    byte = load_u8(bitmap, row >> 3) & np.uint8((1 << (row & 7)) - 1)
    store_u8(bitmap, row >> 3, byte | np.uint8(np.int64(present) << (row & 7)))


@inlined
def _meta(base, n, i):
    """The block length and version of a row: a root's are in its own header, which stands before it."""
    if _u(n, N_PACKET) != 0:
        at = np.int64(load_u32(_u(n, N_WHERE), 4 * i))
        return np.int64(load_u16(base, at - 8)) | np.int64(load_u16(base, at - 2)) << 16
    return _u(_u(n, N_META), i)


@inlined
def _keep_presence(c, row, present):
    """A column without a null value has a bitmap from its first absent row on."""
    if not present and _u(c, C_TRACKED) == 0:
        _track(c, row)
    if _u(c, C_TRACKED) != 0:
        _mark(_u(c, C_BITMAP), row, present)


@kernel
def _gather_carefully(t, n, c):
    """A column of rows of which some do not carry it (an older version, a shorter block), or of texts."""
    base, size, values = _u(t, BUFFER) + _u(t, BASE), _u(c, C_SIZE), _u(c, C_VALUES)
    where, first, count = _u(n, N_WHERE), _u(n, N_ROWS), _u(n, N_COUNT)
    nullable, null = _u(c, C_NULLABLE), np.uint64(_u(c, C_NULL))
    if _u(c, C_KIND) == FIXED:
        if _u(c, C_UNTIL) < _u(n, N_VERSION) and _u(c, C_TRACKED) == 0:
            _fill(values, size, 0, first, null)
            _set(c, C_TRACKED, 1)
        for i in range(count):
            present = _in_block(c, _meta(base, n, i))
            value = _get(base, np.int64(load_u32(where, 4 * i)) + _u(c, C_OFFSET), size) if present else null
            _put(values, size, first + i, value)
            if nullable == 0:
                _keep_presence(c, first + i, present)
        return
    # Fixed-length texts, padded with NUL, become Arrow's offsets and bytes; empty means absent where it may (3.5).
    text = _u(c, C_TEXT)
    if first == 0:
        store_i32(values, 0, np.int32(0))
    used = np.int64(load_u32(values, 4 * first))
    for i in range(count):
        present = _in_block(c, _meta(base, n, i))
        length = np.int64(0)
        if present:
            at = np.int64(load_u32(where, 4 * i)) + _u(c, C_OFFSET)
            while length < size and load_u8(base, at + length) != 0:
                store_u8(text, used + length, load_u8(base, at + length))
                length += 1
        used += length
        store_i32(values, 4 * (first + i + 1), np.int32(used))
        if nullable != 0:
            _mark(_u(c, C_BITMAP), first + i, length > 0)
        else:
            _keep_presence(c, first + i, present)


@inlined
def _word(values, size, first, null):
    """64 rows' presence as one word."""
    word = np.uint64(0)
    if size == 8:
        for i in range(64):
            word |= np.uint64(load_u64(values, 8 * (first + i)) != null) << np.uint64(i)
    elif size == 4:
        n4 = np.uint32(null)
        for i in range(64):
            word |= np.uint64(load_u32(values, 4 * (first + i)) != n4) << np.uint64(i)
    elif size == 2:
        n2 = np.uint16(null)
        for i in range(64):
            word |= np.uint64(load_u16(values, 2 * (first + i)) != n2) << np.uint64(i)
    else:
        n1 = np.uint8(null)
        for i in range(64):
            word |= np.uint64(load_u8(values, first + i) != n1) << np.uint64(i)
    return word


@inlined
def _presence(values, size, null, bitmap, rows):
    """The bitmap of a whole column: a row is present where it does not hold the null value.

    Works in words of 64 rows; the buffers have room for that behind their last row.
    """
    for word in range((rows + 63) >> 6):
        store_u64(bitmap, 8 * word, _word(values, size, 64 * word, null))


@inlined
def _gather_node(t, n):
    """Move the rows that the walk has found into the node's columns."""
    count, row, where = _u(n, N_COUNT), _u(n, N_ROWS), _u(n, N_WHERE)
    base, careful = _u(t, BUFFER) + _u(t, BASE), _u(n, N_CAREFUL)
    for column in range(_u(n, N_COLUMNS), _u(n, N_COLUMNS_END)):
        c = _u(t, COLUMNS) + 8 * COLUMN * column
        if careful != 0 or _u(c, C_KIND) == TEXT:
            _gather_carefully(t, n, c)
        elif _u(c, C_UNTIL) < _u(n, N_VERSION):
            # Gone in every version that comes here: its bytes are padding now. Nothing is written while nothing was sent.
            if _u(c, C_TRACKED) != 0:
                _fill(_u(c, C_VALUES), _u(c, C_SIZE), row, count, np.uint64(_u(c, C_NULL)))
        else:
            size = _u(c, C_SIZE)
            _gather(base + _u(c, C_OFFSET), where, count, size, _u(c, C_VALUES) + size * row)
            if _u(c, C_TRACKED) != 0:
                for i in range(count):
                    _mark(_u(c, C_BITMAP), row + i, True)
    _set(n, N_CAREFUL, 0)
    _set(n, N_ROWS, row + count)


@inlined
def _start_pass(n):
    rows = _u(n, N_ROWS)
    _set(n, N_COUNT, 0)
    _set(n, N_ROOM, min(_u(n, N_MOST), _u(n, N_CAPACITY) - rows))
    _set(n, N_NEXT_PACKET, _u(n, N_PACKET) + 4 * rows)
    _set(n, N_NEXT_INDEX, _u(n, N_INDEX) + 2 * rows)


@inlined
def _inside(t):
    """Whether every packet lies within the buffer: all else is checked against the packet."""
    size, starts, ends = _u(t, BUFFER_SIZE), _u(t, STARTS), _u(t, ENDS)
    good = True
    for i in range(_u(t, PACKETS)):
        start, end = _u(starts, i), _u(ends, i)
        good &= (start >= 0) & (start <= end) & (end <= size)
    return good


@kernel
def decode_packets(t):
    """Decode packets FIRST … PACKETS - 1; returns the packet that could not be taken because FULL, else PACKETS."""
    data_count, packet, packets = _u(t, DATA_COUNT), _u(t, FIRST), _u(t, PACKETS)
    first_node, last_node = _u(t, NODES), _u(t, NODES) + 8 * NODE * _u(t, NODE_COUNT)
    if packet == 0:
        if not _inside(t):
            return -1
        _set(t, JOURNAL_ROWS, 0)
        for i in range(data_count):
            _set(_u(t, DATA_USED), i, 0)
        for n in range(first_node, last_node, 8 * NODE):
            if _u(n, N_ROWS) > 0:
                _set(n, N_ROWS, 0)
                for column in range(_u(n, N_COLUMNS), _u(n, N_COLUMNS_END)):
                    _set(_u(t, COLUMNS), COLUMN * column + C_TRACKED, 0)
    while packet < packets:
        limit = min(packets, packet + PASS_PACKETS)
        _set(t, BASE, _u(_u(t, STARTS), packet))
        journal_rows = _u(t, JOURNAL_ROWS)
        for i in range(data_count):
            _set(_u(t, DATA_SAVED), i, _u(_u(t, DATA_USED), i))
        while True:
            # Walk up to the limit. Where a buffer is full in mid-packet, walk again up to that packet: rare, and simple.
            _set(t, FULL, NOTHING_FULL)
            for n in range(first_node, last_node, 8 * NODE):
                _start_pass(n)
            reached = _walk_pass(t, packet, limit)
            if reached == limit:
                break
            _set(t, JOURNAL_ROWS, journal_rows)
            for i in range(data_count):
                _set(_u(t, DATA_USED), i, _u(_u(t, DATA_SAVED), i))
            if reached == packet:
                return packet
            limit = reached
        for n in range(first_node, last_node, 8 * NODE):
            if _u(n, N_COUNT) > 0:
                _gather_node(t, n)
        packet = limit
    if _u(t, VALIDITY) != 0:
        for n in range(first_node, last_node, 8 * NODE):
            rows = _u(n, N_ROWS)
            if rows > 0:
                for column in range(_u(n, N_COLUMNS), _u(n, N_COLUMNS_END)):
                    c = _u(t, COLUMNS) + 8 * COLUMN * column
                    if _u(c, C_UNTIL) < _u(n, N_VERSION) and _u(c, C_TRACKED) == 0:
                        _fill(_u(c, C_BITMAP), 8, 0, (rows + 63) >> 6, np.uint64(0))
                    elif _u(c, C_NULLABLE) != 0 and _u(c, C_KIND) == FIXED:
                        _presence(_u(c, C_VALUES), _u(c, C_SIZE), np.uint64(_u(c, C_NULL)), _u(c, C_BITMAP), rows)
    return packets
