"""The protocol of a packet, and the offsets of the messages of a FAST packet or raw stream.

Every kernel takes the address of one table of int64, whose slots are named here, and first makes sure that
all packets lie within the buffer. No byte is read that has not been found to be inside its packet.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i64,
    load_u16,
    load_u32,
    load_u64,
    outlined,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    swap_u16,
    swap_u64,
)

# Slots of the table of arguments; addresses, but for the counts.
BUFFER, BUFFER_SIZE, STARTS, ENDS, PACKETS, FIRST = 0, 1, 2, 3, 4, 5
PROTOCOL = 6
ROWS, CAPACITY, MULTI_CHUNK_ROWS, FULL = 7, 8, 9, 10
START, END, PACKET, MSG_SEQ_NUM, NO_CHUNKS, CURRENT_CHUNK, MSG_INDEX = 11, 12, 13, 14, 15, 16, 17
QUARANTINE, QUARANTINE_ROWS, QUARANTINE_CAPACITY = 18, 19, 20
POSITION, NEEDED, REASON, NUMBER = 21, 22, 23, 24  # where a stream stopped: the next unit's bytes, what is wrong
KEYS, KEY_STATES, CHUNK_ARRIVALS, RESTART_DISTANCE = 25, 26, 27, 28
ARGUMENTS = 29

# A quarantine row, as int64s: the packet, the message in it, the byte in the packet, MsgSeqNum (or -1), why,
# the two numbers of the reason's text, and how many bytes are skipped.
Q_PACKET, Q_INDEX, Q_OFFSET, Q_SEQUENCE, Q_REASON, Q_FIRST, Q_SECOND, Q_SKIPPED = 0, 1, 2, 3, 4, 5, 6, 7
QUARANTINE_ROW = 8

# What is known of a key, as int64s: its chunks so far, the highest MsgSeqNum of its epoch, its epochs so far.
K_CHUNKS, K_HIGHEST, K_EPOCH = 0, 1, 2
KEY_STATE = 3

# Why a part of a packet, or the rest of a stream, is not among the rows.
VALID, HEADER_TRUNCATED, TRAILING_BYTES, TOO_LONG, LENGTH_PAST_END, NO_CHUNK, CHUNK_OUT_OF_RANGE, EMPTY_MESSAGE = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
)

NOTHING_FULL, ROWS_FULL, QUARANTINE_FULL = 0, 1, 2

UNKNOWN, SBE, FAST = 0, 1, 2
SBE_PACKET_HEADER, SBE_MESSAGE_HEADER, SBE_FRAMING_HEADER = 16, 12, 4  # reference 5.1, 5.2
SBE_LITTLE_ENDIAN = 0xEB50
TECHNICAL_HEADER = 10  # messaging spec 4.2.4
MAX_UNIT_BYTES = TECHNICAL_HEADER + 65535  # of one unit of a raw stream; a packet is shorter
OUTSIDE_BUFFER = -1


@inlined
def _get(base, index):
    return load_i64(base, 8 * index)


@inlined
def _set(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def _all_inside(t):
    """Whether every packet lies within the buffer: all else is checked against the packet."""
    size, starts, ends = _get(t, BUFFER_SIZE), _get(t, STARTS), _get(t, ENDS)
    good = True
    for i in range(_get(t, PACKETS)):
        start, end = _get(starts, i), _get(ends, i)
        good &= (start >= 0) & (start <= end) & (end <= size)
    return good


@inlined
def _load_header(buffer, at):
    """MsgSeqNum, NoChunks and CurrentChunk as one word; big-endian, unlike everything of SBE."""
    return swap_u64(load_u64(buffer, at))


@inlined
def _no_chunks(numbers):
    return np.int64((numbers >> np.uint64(16)) & np.uint64(0xFFFF))


@inlined
def _current_chunk(numbers):
    return np.int64(numbers & np.uint64(0xFFFF))


@inlined
def _msg_length(buffer, at):
    return np.int64(swap_u16(load_u16(buffer, at + 8)))


@inlined
def _header_error(no_chunks, current_chunk, length):
    if no_chunks == 0:
        return NO_CHUNK
    if current_chunk == 0 or current_chunk > no_chunks:
        return CHUNK_OUT_OF_RANGE
    if length == 0:
        return EMPTY_MESSAGE
    return VALID


@inlined
def _is_fast_chain(buffer, at, end):
    """Whether pairs of technical header and message end exactly at the end. No pair at all is a chain."""
    while at + TECHNICAL_HEADER < end:
        numbers, length = _load_header(buffer, at), _msg_length(buffer, at)
        if _header_error(_no_chunks(numbers), _current_chunk(numbers), length) != VALID:
            return False
        at += TECHNICAL_HEADER + length
    return at == end


@inlined
def has_whole_messages(buffer, start, end):
    """Whether a FAST packet is nothing but messages of one chunk, each behind its technical header."""
    at = start
    while at + TECHNICAL_HEADER < end and _no_chunks(_load_header(buffer, at)) == 1:
        at += TECHNICAL_HEADER + _msg_length(buffer, at)
    return start < at and at == end and end - start <= MAX_UNIT_BYTES and _is_fast_chain(buffer, start, end)


@inlined
def message_at(buffer, at):
    """The MsgSeqNum of the message at a technical header, and where it ends."""
    return np.int64(_load_header(buffer, at) >> np.uint64(32)), at + TECHNICAL_HEADER + _msg_length(buffer, at)


@inlined
def _is_sbe_start(buffer, start, end):
    """Whether the first framing header is one. The message may be truncated by the capture's snap length."""
    if end - start < SBE_PACKET_HEADER + SBE_FRAMING_HEADER:
        return False
    framing = np.int64(load_u32(buffer, start + SBE_PACKET_HEADER))
    return framing >> 16 == SBE_LITTLE_ENDIAN and framing & 0xFFFF >= SBE_MESSAGE_HEADER


@inlined
def _is_sbe_chain(buffer, start, end):
    """Whether messages, each with a framing header, end exactly at the end; checked only where the first one starts."""
    at = start + SBE_PACKET_HEADER
    while at + SBE_MESSAGE_HEADER <= end:
        framing = np.int64(load_u32(buffer, at))
        if framing >> 16 != SBE_LITTLE_ENDIAN or framing & 0xFFFF < SBE_MESSAGE_HEADER:
            return False
        at += framing & 0xFFFF
    return at == end


@kernel
def detect_protocols(t):
    """The protocol of each packet, from its content alone.

    A whole chain of either protocol is better evidence than the start of one: what starts like SBE but is damaged, yet
    chains as FAST, is FAST.
    """
    if not _all_inside(t):
        return OUTSIDE_BUFFER
    buffer, starts, ends, protocol = _get(t, BUFFER), _get(t, STARTS), _get(t, ENDS), _get(t, PROTOCOL)
    for packet in range(_get(t, PACKETS)):
        start, end = _get(starts, packet), _get(ends, packet)
        detected = UNKNOWN
        if end - start <= MAX_UNIT_BYTES:
            sbe = _is_sbe_start(buffer, start, end)
            if sbe and _is_sbe_chain(buffer, start, end):
                detected = SBE
            elif end > start and _is_fast_chain(buffer, start, end):
                detected = FAST
            elif sbe:
                detected = SBE
        store_u8(protocol, packet, np.uint8(detected))
    return _get(t, PACKETS)


@inlined
def _quarantine(t, packet, index, offset, sequence, reason, first, second, skipped):
    """Write a quarantine row; False when its buffer is full."""
    row = _get(t, QUARANTINE_ROWS)
    if row >= _get(t, QUARANTINE_CAPACITY):
        _set(t, FULL, QUARANTINE_FULL)
        return False
    line = _get(t, QUARANTINE) + 8 * QUARANTINE_ROW * row
    _set(line, Q_PACKET, packet)
    _set(line, Q_INDEX, index)
    _set(line, Q_OFFSET, offset)
    _set(line, Q_SEQUENCE, sequence)
    _set(line, Q_REASON, reason)
    _set(line, Q_FIRST, first)
    _set(line, Q_SECOND, second)
    _set(line, Q_SKIPPED, skipped)
    _set(t, QUARANTINE_ROWS, row + 1)
    return True


@outlined
def _quarantine_chunk(t, packet, index, start, at, end):
    """Note what is wrong at `at`; returns where to go on: behind this pair, or at the end, or OUTSIDE (buffer full).

    The length of a damaged header is used only if what follows it is a chain up to the end of the packet.
    """
    buffer, left = _get(t, BUFFER), end - at
    if end - start > MAX_UNIT_BYTES:
        return end if _quarantine(t, packet, index, 0, -1, TOO_LONG, MAX_UNIT_BYTES, left, left) else OUTSIDE_BUFFER
    if left < TECHNICAL_HEADER:
        reason = HEADER_TRUNCATED if index == 0 else TRAILING_BYTES
        return (
            end
            if _quarantine(t, packet, index, at - start, -1, reason, TECHNICAL_HEADER, left, left)
            else OUTSIDE_BUFFER
        )
    numbers, length = _load_header(buffer, at), _msg_length(buffer, at)
    no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
    sequence = np.int64(numbers >> np.uint64(32))
    reason, first, second = _header_error(no_chunks, current_chunk, length), current_chunk, no_chunks
    resume_at = end
    if at + TECHNICAL_HEADER + length > end:
        reason, first, second = LENGTH_PAST_END, length, left - TECHNICAL_HEADER
    elif _is_fast_chain(buffer, at + TECHNICAL_HEADER + length, end):
        resume_at = at + TECHNICAL_HEADER + length
    return (
        resume_at
        if _quarantine(t, packet, index, at - start, sequence, reason, first, second, resume_at - at)
        else OUTSIDE_BUFFER
    )


@kernel
def parse_packets(t):
    """A row for every valid pair of header and chunk; returns the packet that could not be taken because FULL.

    Starts with packet FIRST and goes on behind the rows there are, so that the caller can enlarge what was full.
    """
    buffer, starts, ends = _get(t, BUFFER), _get(t, STARTS), _get(t, ENDS)
    packet, packets, capacity = _get(t, FIRST), _get(t, PACKETS), _get(t, CAPACITY)
    row_start, row_end, row_packet = _get(t, START), _get(t, END), _get(t, PACKET)
    row_sequence, row_no_chunks = _get(t, MSG_SEQ_NUM), _get(t, NO_CHUNKS)
    row_current_chunk, row_index = _get(t, CURRENT_CHUNK), _get(t, MSG_INDEX)
    if packet == 0 and not _all_inside(t):
        return OUTSIDE_BUFFER
    _set(t, FULL, NOTHING_FULL)
    row, chunked = _get(t, ROWS), _get(t, MULTI_CHUNK_ROWS)
    while packet < packets:
        start, end = _get(starts, packet), _get(ends, packet)
        at, index, rows_before, chunked_before = start, 0, row, chunked
        quarantine_before, has_room = _get(t, QUARANTINE_ROWS), True
        while True:
            is_valid = end - at > TECHNICAL_HEADER and end - start <= MAX_UNIT_BYTES
            if is_valid:
                numbers, length = _load_header(buffer, at), _msg_length(buffer, at)
                no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
                body = at + TECHNICAL_HEADER
                is_valid = _header_error(no_chunks, current_chunk, length) == VALID and body + length <= end
                if is_valid:
                    if row >= capacity:
                        _set(t, FULL, ROWS_FULL)
                        has_room = False
                        break
                    store_i64(row_start, 8 * row, body)
                    store_i64(row_end, 8 * row, body + length)
                    store_u32(row_packet, 4 * row, np.uint32(packet))
                    store_u32(row_sequence, 4 * row, np.uint32(numbers >> np.uint64(32)))
                    store_u16(row_no_chunks, 2 * row, np.uint16(no_chunks))
                    store_u16(row_current_chunk, 2 * row, np.uint16(current_chunk))
                    store_u16(row_index, 2 * row, np.uint16(index))
                    row += 1
                    chunked += no_chunks > 1
                    at = body + length
            if not is_valid:
                at = _quarantine_chunk(t, packet, index, start, at, end)
                if at == OUTSIDE_BUFFER:
                    has_room = False
                    break
            index += 1
            if at == end:
                break
        if not has_room:
            row, chunked = rows_before, chunked_before
            _set(t, QUARANTINE_ROWS, quarantine_before)
            break
        packet += 1
    _set(t, ROWS, row)
    _set(t, MULTI_CHUNK_ROWS, chunked)
    return packet


@kernel
def parse_stream(t):
    """Split the bytes from POSITION on into units of one header and its message: START and END of each.

    Leaves in POSITION where it has stopped, in NEEDED how many bytes the unit there has at least, in REASON what is
    wrong with it. Returns the number of units.
    """
    buffer, size, at, capacity = _get(t, BUFFER), _get(t, BUFFER_SIZE), _get(t, POSITION), _get(t, CAPACITY)
    row_start, row_end = _get(t, START), _get(t, END)
    row, reason, needed, number = 0, VALID, TECHNICAL_HEADER, 0
    while row < capacity and size - at >= TECHNICAL_HEADER:
        numbers, length = _load_header(buffer, at), _msg_length(buffer, at)
        no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
        reason = _header_error(no_chunks, current_chunk, length)
        if reason != VALID:
            needed, number = current_chunk, no_chunks
            break
        if length > size - at - TECHNICAL_HEADER:
            needed = TECHNICAL_HEADER + length
            break
        store_i64(row_start, 8 * row, at)
        store_i64(row_end, 8 * row, at + TECHNICAL_HEADER + length)
        at += TECHNICAL_HEADER + length
        row += 1
    _set(t, POSITION, at)
    _set(t, NEEDED, needed)
    _set(t, REASON, reason)
    _set(t, NUMBER, number)
    return row


@kernel
def count_chunk_arrivals(t):
    """Count the chunks and the epochs of each key; ARRIVED gets both for each chunk of a message of several.

    A MsgSeqNum that is RESTART below the highest one begins a new epoch.
    """
    packet, no_chunks, sequences, keys = _get(t, PACKET), _get(t, NO_CHUNKS), _get(t, MSG_SEQ_NUM), _get(t, KEYS)
    key_states, chunk_arrivals, restart = _get(t, KEY_STATES), _get(t, CHUNK_ARRIVALS), _get(t, RESTART_DISTANCE)
    found = 0
    for row in range(_get(t, ROWS)):
        state = key_states + 8 * KEY_STATE * np.int64(load_u16(keys, 2 * np.int64(load_u32(packet, 4 * row))))
        sequence = np.int64(load_u32(sequences, 4 * row))
        _set(state, K_CHUNKS, _get(state, K_CHUNKS) + 1)
        if sequence > _get(state, K_HIGHEST):
            _set(state, K_HIGHEST, sequence)
        elif _get(state, K_HIGHEST) - sequence >= restart:
            _set(state, K_HIGHEST, sequence)
            _set(state, K_EPOCH, _get(state, K_EPOCH) + 1)
        if load_u16(no_chunks, 2 * row) > 1:
            _set(chunk_arrivals, 2 * found, _get(state, K_CHUNKS))
            _set(chunk_arrivals, 2 * found + 1, _get(state, K_EPOCH))
            found += 1
    return found
