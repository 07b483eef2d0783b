"""Which protocol a datagram speaks, and where the messages of a FAST datagram or stream are.

Every kernel takes the address of one table of int64, the names of whose places stand here, and first makes sure that
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

# Places in the table of arguments; addresses, but for the counts.
BUFFER, BUFFER_SIZE, STARTS, ENDS, PACKETS, FIRST = 0, 1, 2, 3, 4, 5
PROTOCOL = 6
ROWS, CAPACITY, CHUNKED, FULL = 7, 8, 9, 10
START, END, PACKET, MSG_SEQ_NUM, NO_CHUNKS, CURRENT_CHUNK, MSG_INDEX = 11, 12, 13, 14, 15, 16, 17
JOURNAL, JOURNAL_ROWS, JOURNAL_CAPACITY = 18, 19, 20
POSITION, NEEDED, REASON, NUMBER = 21, 22, 23, 24  # where a stream was left: the next unit's bytes, what is wrong
KEYS, ARRIVALS, ARRIVED, RESTART = 25, 26, 27, 28
ARGUMENTS = 29

# A line of the journal, as int64s: the datagram, the message in it, the byte in the datagram, MsgSeqNum (or -1), why,
# the two numbers of the sentence, and how many bytes are passed over.
J_PACKET, J_INDEX, J_OFFSET, J_SEQUENCE, J_REASON, J_FIRST, J_SECOND, J_SKIPPED = 0, 1, 2, 3, 4, 5, 6, 7
JOURNAL_LINE = 8

# What is known of a key, as int64s: its frames so far, the highest MsgSeqNum of its numbering, its numberings so far.
A_COUNT, A_HIGHEST, A_NUMBERING = 0, 1, 2
ARRIVAL = 3

# Why a part of a datagram, or the rest of a stream, is not among the rows.
SOUND, HEADER_CUT, TRAILING, TOO_LONG, LENGTH_PAST_END, NO_CHUNK, CHUNK_OUT_OF_RANGE, EMPTY = 0, 1, 2, 3, 4, 5, 6, 7

NOTHING_FULL, ROWS_FULL, JOURNAL_FULL = 0, 1, 2

UNKNOWN, SBE, FAST = 0, 1, 2
SBE_PACKET_HEADER, SBE_MESSAGE_HEADER, SBE_FRAMING_HEADER = 16, 12, 4  # reference 5.1, 5.2
SBE_LITTLE_ENDIAN = 0xEB50
TECHNICAL_HEADER = 10  # messaging spec 4.2.4
LONGEST = TECHNICAL_HEADER + 65535  # of one unit of a raw stream; a datagram is shorter
OUTSIDE = -1


@inlined
def _u(base, index):
    return load_i64(base, 8 * index)


@inlined
def _set(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def _inside(t):
    """Whether every packet lies within the buffer: all else is checked against the packet."""
    size, starts, ends = _u(t, BUFFER_SIZE), _u(t, STARTS), _u(t, ENDS)
    good = True
    for i in range(_u(t, PACKETS)):
        start, end = _u(starts, i), _u(ends, i)
        good &= (start >= 0) & (start <= end) & (end <= size)
    return good


@inlined
def _numbers(buffer, at):
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
def _header_fault(no_chunks, current_chunk, length):
    if no_chunks == 0:
        return NO_CHUNK
    if current_chunk == 0 or current_chunk > no_chunks:
        return CHUNK_OUT_OF_RANGE
    if length == 0:
        return EMPTY
    return SOUND


@inlined
def _is_fast_chain(buffer, at, end):
    """Whether pairs of technical header and message end exactly at the end. No pair at all is a chain."""
    while at + TECHNICAL_HEADER < end:
        numbers, length = _numbers(buffer, at), _msg_length(buffer, at)
        if _header_fault(_no_chunks(numbers), _current_chunk(numbers), length) != SOUND:
            return False
        at += TECHNICAL_HEADER + length
    return at == end


@inlined
def _is_sbe_start(buffer, start, end):
    """Whether the first framing header is one. The message may be cut: a capture can be, by its snap length."""
    if end - start < SBE_PACKET_HEADER + SBE_FRAMING_HEADER:
        return False
    framing = np.int64(load_u32(buffer, start + SBE_PACKET_HEADER))
    return framing >> 16 == SBE_LITTLE_ENDIAN and framing & 0xFFFF >= SBE_MESSAGE_HEADER


@inlined
def _is_sbe_chain(buffer, start, end):
    """Whether messages, each with a framing header, end exactly at the end; asked only where the first one starts."""
    at = start + SBE_PACKET_HEADER
    while at + SBE_MESSAGE_HEADER <= end:
        framing = np.int64(load_u32(buffer, at))
        if framing >> 16 != SBE_LITTLE_ENDIAN or framing & 0xFFFF < SBE_MESSAGE_HEADER:
            return False
        at += framing & 0xFFFF
    return at == end


@kernel
def recognise_packets(t):
    """The protocol of each packet, from its content alone.

    A whole chain of either protocol says more than the start of one: what looks like SBE at first but is damaged, yet
    chains as FAST, is FAST.
    """
    if not _inside(t):
        return OUTSIDE
    buffer, starts, ends, protocol = _u(t, BUFFER), _u(t, STARTS), _u(t, ENDS), _u(t, PROTOCOL)
    for packet in range(_u(t, PACKETS)):
        start, end = _u(starts, packet), _u(ends, packet)
        verdict = UNKNOWN
        if end - start <= LONGEST:
            sbe = _is_sbe_start(buffer, start, end)
            if sbe and _is_sbe_chain(buffer, start, end):
                verdict = SBE
            elif end > start and _is_fast_chain(buffer, start, end):
                verdict = FAST
            elif sbe:
                verdict = SBE
        store_u8(protocol, packet, np.uint8(verdict))
    return _u(t, PACKETS)


@inlined
def _note(t, packet, index, offset, sequence, reason, first, second, skipped):
    """Write a line of the journal; False when there is no room for it."""
    row = _u(t, JOURNAL_ROWS)
    if row >= _u(t, JOURNAL_CAPACITY):
        _set(t, FULL, JOURNAL_FULL)
        return False
    line = _u(t, JOURNAL) + 8 * JOURNAL_LINE * row
    _set(line, J_PACKET, packet)
    _set(line, J_INDEX, index)
    _set(line, J_OFFSET, offset)
    _set(line, J_SEQUENCE, sequence)
    _set(line, J_REASON, reason)
    _set(line, J_FIRST, first)
    _set(line, J_SECOND, second)
    _set(line, J_SKIPPED, skipped)
    _set(t, JOURNAL_ROWS, row + 1)
    return True


@outlined
def _refuse(t, packet, index, start, at, end):
    """Note what is wrong at `at`; returns where to go on: behind this pair, or at the end, or OUTSIDE (no room).

    The length of a damaged header is believed only if what follows it is a chain up to the end of the datagram.
    """
    buffer, left = _u(t, BUFFER), end - at
    if end - start > LONGEST:
        return end if _note(t, packet, index, 0, -1, TOO_LONG, LONGEST, left, left) else OUTSIDE
    if left < TECHNICAL_HEADER:
        reason = HEADER_CUT if index == 0 else TRAILING
        return end if _note(t, packet, index, at - start, -1, reason, TECHNICAL_HEADER, left, left) else OUTSIDE
    numbers, length = _numbers(buffer, at), _msg_length(buffer, at)
    no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
    sequence = np.int64(numbers >> np.uint64(32))
    reason, first, second = _header_fault(no_chunks, current_chunk, length), current_chunk, no_chunks
    onward = end
    if at + TECHNICAL_HEADER + length > end:
        reason, first, second = LENGTH_PAST_END, length, left - TECHNICAL_HEADER
    elif _is_fast_chain(buffer, at + TECHNICAL_HEADER + length, end):
        onward = at + TECHNICAL_HEADER + length
    return onward if _note(t, packet, index, at - start, sequence, reason, first, second, onward - at) else OUTSIDE


@kernel
def frame_packets(t):
    """A row for every sound pair of header and chunk; returns the packet that could not be taken because FULL.

    Starts with packet FIRST and goes on behind the rows there are, so that the caller can enlarge what was full.
    """
    buffer, starts, ends = _u(t, BUFFER), _u(t, STARTS), _u(t, ENDS)
    packet, packets, capacity = _u(t, FIRST), _u(t, PACKETS), _u(t, CAPACITY)
    row_start, row_end, row_packet = _u(t, START), _u(t, END), _u(t, PACKET)
    row_sequence, row_no_chunks = _u(t, MSG_SEQ_NUM), _u(t, NO_CHUNKS)
    row_current_chunk, row_index = _u(t, CURRENT_CHUNK), _u(t, MSG_INDEX)
    if packet == 0 and not _inside(t):
        return OUTSIDE
    _set(t, FULL, NOTHING_FULL)
    row, chunked = _u(t, ROWS), _u(t, CHUNKED)
    while packet < packets:
        start, end = _u(starts, packet), _u(ends, packet)
        at, index, before, chunked_before = start, 0, row, chunked
        journal_before, room = _u(t, JOURNAL_ROWS), True
        while True:
            sound = end - at > TECHNICAL_HEADER and end - start <= LONGEST
            if sound:
                numbers, length = _numbers(buffer, at), _msg_length(buffer, at)
                no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
                body = at + TECHNICAL_HEADER
                sound = _header_fault(no_chunks, current_chunk, length) == SOUND and body + length <= end
                if sound:
                    if row >= capacity:
                        _set(t, FULL, ROWS_FULL)
                        room = False
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
            if not sound:
                at = _refuse(t, packet, index, start, at, end)
                if at == OUTSIDE:
                    room = False
                    break
            index += 1
            if at == end:
                break
        if not room:
            row, chunked = before, chunked_before
            _set(t, JOURNAL_ROWS, journal_before)
            break
        packet += 1
    _set(t, ROWS, row)
    _set(t, CHUNKED, chunked)
    return packet


@kernel
def cut_stream(t):
    """Cut the bytes from POSITION on into units of one header and its message: START and END of each.

    Leaves in POSITION where it has stopped, in NEEDED how many bytes the unit there has at least, in REASON what is
    wrong with it. Returns the number of units.
    """
    buffer, size, at, capacity = _u(t, BUFFER), _u(t, BUFFER_SIZE), _u(t, POSITION), _u(t, CAPACITY)
    row_start, row_end = _u(t, START), _u(t, END)
    row, reason, needed, number = 0, SOUND, TECHNICAL_HEADER, 0
    while row < capacity and size - at >= TECHNICAL_HEADER:
        numbers, length = _numbers(buffer, at), _msg_length(buffer, at)
        no_chunks, current_chunk = _no_chunks(numbers), _current_chunk(numbers)
        reason = _header_fault(no_chunks, current_chunk, length)
        if reason != SOUND:
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
def count_arrivals(t):
    """Count the frames and the numberings of each key; ARRIVED gets both for each frame that is a chunk of several.

    A MsgSeqNum that is RESTART below the highest one begins a new numbering.
    """
    packet, no_chunks, sequences, keys = _u(t, PACKET), _u(t, NO_CHUNKS), _u(t, MSG_SEQ_NUM), _u(t, KEYS)
    arrivals, arrived, restart = _u(t, ARRIVALS), _u(t, ARRIVED), _u(t, RESTART)
    found = 0
    for row in range(_u(t, ROWS)):
        of_key = arrivals + 8 * ARRIVAL * np.int64(load_u16(keys, 2 * np.int64(load_u32(packet, 4 * row))))
        sequence = np.int64(load_u32(sequences, 4 * row))
        _set(of_key, A_COUNT, _u(of_key, A_COUNT) + 1)
        if sequence > _u(of_key, A_HIGHEST):
            _set(of_key, A_HIGHEST, sequence)
        elif _u(of_key, A_HIGHEST) - sequence >= restart:
            _set(of_key, A_HIGHEST, sequence)
            _set(of_key, A_NUMBERING, _u(of_key, A_NUMBERING) + 1)
        if load_u16(no_chunks, 2 * row) > 1:
            _set(arrived, 2 * found, _u(of_key, A_COUNT))
            _set(arrived, 2 * found + 1, _u(of_key, A_NUMBERING))
            found += 1
    return found
