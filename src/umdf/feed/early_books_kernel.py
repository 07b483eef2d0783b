"""Packets → the books, as they are received: before the session has them, and only where its answer is certain.

Invariant: an update is applied here only if the session, which gets the same packet later, will find that it is the
next one of a book that is neither stale nor unverified. Anything else disarms: nothing more is applied here until the
session has processed everything that was received.

What the session then does with the same rows: RptSeq tells the book engine that they are already in the book.

A unit is a packet of Binary, and a message of FIX/FAST, where it is of the epoch that its line is in.
"""

from __future__ import annotations

import numpy as np

from umdf.book.apply_kernel import NEEDS_GROWTH, ORDER_DISTANCE, apply_row, prefetch_ahead, prefetch_first
from umdf.book.arena_kernel import A_BOOKS, arenas
from umdf.book.input_row_kernel import (
    ACTION,
    COLUMN_COUNT,
    FLAGS,
    INSTRUMENT,
    RPT_SEQ,
    SIDE,
    columns_of,
    i32_in,
    i64_in,
    u8_in,
)
from umdf.book.live_kernel import SCRATCH_ROWS, V_PLACES, V_REJECTED, read_packet
from umdf.book.memory_layout_kernel import (
    ACTION_CLEAR,
    B_CHANGED_SIDES,
    B_RPT_SEQ,
    B_STALE,
    BOOK_BYTES,
    COLUMNS,
    F_SNAPSHOT,
    LIVE_TABLE,
    NULL,
    REMOVED_COUNT,
    SIDE_NEITHER,
    get,
    invalidate_ladders,
    put,
)
from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    outlined,
    store_i32,
    store_i64,
)
from umdf.market.fast.live_rows_kernel import NOT_PLAIN as MESSAGE_NOT_PLAIN
from umdf.market.fast.live_rows_kernel import PLACES, SENT, SEQUENCE, read_message
from umdf.sync.arbitration.lines_kernel import MAX_DISTANCE
from umdf.sync.arbitration.state_kernel import REMEMBERED as ARBITER_REMEMBERED
from umdf.sync.arbitration.state_kernel import RING
from umdf.sync.raw_units_kernel import SENDING_TIME_AT, content_key
from umdf.sync.template_scan_kernel import FRAMING, TEMPLATE, framed_until_end, peek_template
from umdf.sync.update_gate_kernel import S_APPLIED, S_STALE, S_VERIFIED, STATE_WORDS
from umdf.transport.udp_receiver_kernel import (
    BUFFER,
    BURST,
    END,
    FLOW,
    POLL_BYTES,
    POLL_COUNT,
    POLLS,
    ROWS,
    START,
    TIMEOUT_MS,
    TS_NS,
    has_room,
    poll,
    receive_burst,
)
from umdf.wire.packet_kernel import TECHNICAL_HEADER, has_whole_messages, message_at
from umdf.wire.sbe.tables_kernel import MAX_PACKET_BYTES, PACKET_HEADER

# The table of a channel. FIRST, NEXT: the sequences that were applied since it was armed, and the next one. LATEST_GAP:
# the greatest missing sequence. ARBITER: the state of arbitration. KEYS: number and content key of what was applied.
# PLAIN: one byte per template, 1 if its messages do nothing to books but what their rows say. LINES: 1 for each line
# that continues in the channel's epoch. READERS: of FIX/FAST, how the messages of a template are read; SENT_FROM: when
# the epoch began, by sending time.
(
    IS_ARMED, CHANNEL, EPOCH, FIRST, NEXT, LATEST_GAP, BOOKS, STATES, ARBITER, KEYS, PLAIN, LINES, CHANGES,
    CHANGE_COUNT, REASON, UNITS, STOPS, READERS, READER_COUNT, SENT_FROM,
) = range(20)  # fmt: skip
TABLE_WORDS = 20
# A reader: the template; the table of `live_rows_kernel`, 0 of a SequenceReset; where it has the columns of books.
READER_TEMPLATE, READER_TABLE, READER_COLUMNS = range(3)
READER_WORDS = READER_COLUMNS + COLUMN_COUNT
MAX_LINES = 64
REMEMBERED = 16_384  # units that are applied here before the session has them; a power of two
TEMPLATES = 256
# A change of a book: CHANGES is 0 if nobody wants to know.
C_INSTRUMENT, C_SEQUENCE, C_TS_RECV, C_FLAGS = range(4)
CHANGE_WORDS = 4
MAX_CHANGES = 8_192
MAX_REMOVED = 8_192
# Why nothing more is applied: of a unit, of one of its messages, of one of its updates.
(
    CONTINUES, NOT_ARMED, OTHER_EPOCH, NEW_LINE, NOT_NEXT, OTHER_CONTENT, REVEALS_LOSS, NO_ROOM, NOT_PLAIN, REJECTED,
    UNKNOWN_BOOK, IN_DOUBT, NOT_FOLLOWING, NEEDS_MEMORY, IMPOSSIBLE,
) = range(15)  # fmt: skip
# Of a flow of the receiver: the address of its channel's table and its line; or 0, and whether it may wait.
F_TABLE, F_LINE = 0, 1
FLOW_WORDS = 2
MAY_WAIT, AT_ONCE = -1, -2
BATCH_MS = 5  # what was received is processed together after this time, unless the session is needed sooner
# Why `receive_early` returns.
TIMED_OUT, WOKEN, FULL, SESSION_NEEDED, CHANGED = range(5)


@inlined
def _is_plain(e, packet, size):
    """Whether every message does nothing to books but what its rows say. The packet is framed to its end."""
    here, end, plain = packet + PACKET_HEADER, packet + size, get(e, PLAIN)
    while here + FRAMING <= end:
        template = np.int64(load_u16(here, TEMPLATE))
        if template >= TEMPLATES or load_u8(plain, template) == 0:
            return False
        here += np.int64(load_u16(here, 0))
    return True


@outlined
def _compare_copy(e, sequence, key):
    """A number that was applied before, here or by the session: CONTINUES if the content is the same."""
    if sequence >= get(e, FIRST):
        known = get(e, KEYS) + 16 * (sequence & (REMEMBERED - 1))
        is_same = load_i64(known, 0) == sequence and load_i64(known, 8) == key
    else:  # not remembered as contradicted
        state = get(e, ARBITER)
        known = state + 8 * (get(state, RING) + 2 * (sequence & (ARBITER_REMEMBERED - 1)))
        is_same = load_i64(known, 0) == sequence << 1 and load_i64(known, 8) == key
    return CONTINUES if is_same else OTHER_CONTENT


@outlined
def _note_change(e, first, instrument, sequence, ts_recv, flags):
    """Note that a book has changed; the changes of this unit start at `first`, one for each book."""
    changes, count = get(e, CHANGES), get(e, CHANGE_COUNT)
    at = first
    while at < count and load_i64(changes + 8 * CHANGE_WORDS * at, 8 * C_INSTRUMENT) != instrument:
        at += 1
    change = changes + 8 * CHANGE_WORDS * at
    put(change, C_INSTRUMENT, instrument)
    put(change, C_SEQUENCE, sequence)
    put(change, C_TS_RECV, ts_recv)
    put(change, C_FLAGS, flags)
    if at == count:
        put(e, CHANGE_COUNT, count + 1)


@inlined
def _check_row(e, a, c, i, number):
    """Whether the session will find that a row is the next one of a book that nothing is wrong with."""
    if i64_in(c, INSTRUMENT, i) == NULL or number < 0:
        return UNKNOWN_BOOK
    b, s = a[A_BOOKS] + BOOK_BYTES * number, get(e, STATES) + 8 * STATE_WORDS * number
    if get(s, S_STALE) != 0 or load_i64(b, B_STALE) != 0 or get(s, S_VERIFIED) < get(e, LATEST_GAP):
        return IN_DOUBT
    rpt_seq, known = i64_in(c, RPT_SEQ, i), load_i64(b, B_RPT_SEQ)
    if get(s, S_APPLIED) < 0 or known == NULL or rpt_seq != known + 1 or i32_in(c, FLAGS, i) & F_SNAPSHOT:
        return NOT_FOLLOWING
    is_clear = u8_in(c, ACTION, i) == ACTION_CLEAR and u8_in(c, SIDE, i) == SIDE_NEITHER
    return NOT_PLAIN if is_clear else CONTINUES


@inlined
def _apply_rows(e, t, a, c, places, rows, prefetched, sequence, ts_recv):
    """Apply the rows of a unit up to the first one that is not plainly the next of its book. `prefetched`: as
    `prefetch_first` takes it."""
    first_change, wants_changes = get(e, CHANGE_COUNT), get(e, CHANGES) != 0
    invalidate_ladders(t)
    prefetch_first(t, a, c, np.int64(0), rows, prefetched)
    for i in range(rows):
        x, number = prefetch_ahead(t, a, c, i, rows)
        found = _check_row(e, a, c, i, number)
        if found != CONTINUES:
            put(e, CHANGE_COUNT, first_change)  # the session reports this unit
            return found
        b = a[A_BOOKS] + BOOK_BYTES * number
        rpt_seq, changed_sides = load_i64(b, B_RPT_SEQ), load_i32(b, B_CHANGED_SIDES)
        wire_key = sequence << 32 | load_i64(places, 8 * i)
        outcome, _, _, _ = apply_row(t, a, c, i, wire_key, x, number, 0)
        if outcome < 0:
            if outcome != NEEDS_GROWTH:  # it did nothing; the session finds it again
                store_i64(b, B_RPT_SEQ, rpt_seq)
                store_i64(b, B_STALE, 0)
                store_i32(b, B_CHANGED_SIDES, changed_sides)
            put(e, CHANGE_COUNT, first_change)
            return NEEDS_MEMORY if outcome == NEEDS_GROWTH else IMPOSSIBLE
        if wants_changes:
            instrument, flags = i64_in(c, INSTRUMENT, i), i32_in(c, FLAGS, i)
            _note_change(e, first_change, instrument, sequence, ts_recv, flags)
    return CONTINUES


@inlined
def _has_room(e, sequence):
    t = get(e, BOOKS)
    has_room = sequence - get(e, FIRST) < REMEMBERED and get(t, REMOVED_COUNT) + SCRATCH_ROWS <= MAX_REMOVED
    return has_room and get(e, CHANGE_COUNT) + SCRATCH_ROWS <= MAX_CHANGES


@inlined
def _remember(e, sequence, key):
    """A unit was applied."""
    memory = get(e, KEYS) + 16 * (sequence & (REMEMBERED - 1))
    store_i64(memory, 0, sequence)
    store_i64(memory, 8, key)
    put(e, NEXT, sequence + 1)
    put(e, UNITS, get(e, UNITS) + 1)


@inlined
def _is_of_epoch(e, line):
    return line < MAX_LINES and get(get(e, LINES), line) != 0


@inlined
def _apply_binary_packet(e, packet, size, line, ts_recv):
    announced = framed_until_end(packet, PACKET_HEADER, size)
    if size < PACKET_HEADER or size > MAX_PACKET_BYTES or announced < 0:
        return CONTINUES  # the session drops it too
    sequence, epoch = np.int64(load_u32(packet, 4)), np.int64(load_u16(packet, 2))
    if np.int64(load_u8(packet, 0)) != get(e, CHANNEL) or (sequence == 0 and announced == 0):
        return CONTINUES
    if epoch != get(e, EPOCH):
        return OTHER_EPOCH
    if not _is_of_epoch(e, line):
        return NEW_LINE
    if sequence == 0:
        return CONTINUES if announced <= get(e, NEXT) else REVEALS_LOSS
    if sequence > get(e, NEXT):
        return NOT_NEXT
    key = content_key(packet, SENDING_TIME_AT, size - SENDING_TIME_AT)
    if sequence < get(e, NEXT):
        return _compare_copy(e, sequence, key)
    if not _has_room(e, sequence):
        return NO_ROOM
    if not _is_plain(e, packet, size):
        return NOT_PLAIN
    t = get(e, BOOKS)
    live, a, c = get(t, LIVE_TABLE), arenas(t), columns_of(t)
    rejected = get(live, V_REJECTED)
    rows = read_packet(t, a, c, live, packet, size)
    if rows < 0 or get(live, V_REJECTED) != rejected:
        return REJECTED
    places = get(live, V_PLACES)
    found = np.int64(CONTINUES)
    if rows > 0:
        found = _apply_rows(e, t, a, c, places, rows, np.int64(ORDER_DISTANCE), sequence, ts_recv)
    if found == CONTINUES:
        _remember(e, sequence, key)
    return found


@inlined
def _find_reader(e, template):
    """The reader of a template; 0 if it has none."""
    for number in range(get(e, READER_COUNT)):
        reader = get(e, READERS) + 8 * READER_WORDS * number
        if get(reader, READER_TEMPLATE) == template:
            return reader
    return np.int64(0)


@outlined
def _apply_message(e, packet, start, end, sequence, msg_index, ts_recv):
    reader = _find_reader(e, peek_template(packet, start, end))
    if reader != 0 and get(reader, READER_TABLE) == 0:  # a SequenceReset is about its line, not the next unit
        return OTHER_EPOCH
    # Far below its line's position, a unit may show that the numbering has begun again.
    if sequence > get(e, NEXT) or sequence < get(e, NEXT) - MAX_DISTANCE:
        return NOT_NEXT
    key = content_key(packet, start, end - start)
    if sequence < get(e, NEXT):
        return _compare_copy(e, sequence, key)
    if not _has_room(e, sequence):
        return NO_ROOM
    if reader == 0:
        return NOT_PLAIN
    read = get(reader, READER_TABLE)
    rows = read_message(read, packet, start, end, msg_index)
    if rows < 0:
        return NOT_PLAIN if rows == MESSAGE_NOT_PLAIN else REJECTED
    stated, sent = load_i64(get(read, SEQUENCE), 0), load_i64(get(read, SENT), 0)
    if stated != sequence or sent == NULL or sent < get(e, SENT_FROM):  # the session takes it for damaged
        return REJECTED
    if rows > 0:
        t = get(e, BOOKS)
        for column in range(COLUMN_COUNT):
            put(t, COLUMNS + column, get(reader, READER_COLUMNS + column))
        places = get(read, PLACES)
        found = _apply_rows(e, t, arenas(t), columns_of(t), places, rows, np.int64(0), sequence, ts_recv)
        if found != CONTINUES:
            return found
    _remember(e, sequence, key)
    return CONTINUES


@outlined
def _apply_fast_packet(e, packet, size, line, ts_recv):
    """Apply the messages of a packet up to the first that is not certain."""
    if not has_whole_messages(packet, 0, size):
        return NOT_PLAIN
    if not _is_of_epoch(e, line):
        return NEW_LINE
    at, msg_index = np.int64(0), np.int64(0)
    while at < size:
        sequence, end = message_at(packet, at)
        reason = _apply_message(e, packet, at + TECHNICAL_HEADER, end, sequence, msg_index, ts_recv)
        if reason != CONTINUES:
            return reason
        at = end
        msg_index += 1
    return CONTINUES


@outlined
def apply_early(e, packet, size, line, ts_recv):
    """Apply a packet if that is certain; returns whether the session is needed now."""
    if get(e, IS_ARMED) == 0:
        return True
    if get(e, READER_COUNT) != 0:
        reason = _apply_fast_packet(e, packet, size, line, ts_recv)
    else:
        reason = _apply_binary_packet(e, packet, size, line, ts_recv)
    if reason != CONTINUES:
        put(e, IS_ARMED, 0)
        put(e, REASON, reason)
        put(e, STOPS, get(e, STOPS) + 1)
    return reason != CONTINUES


@outlined
def _apply_received(table, flows, row):
    """A packet that was just received; returns whether the session is needed now."""
    flow = flows + 8 * FLOW_WORDS * load_i64(get(table, FLOW), 8 * row)
    e, line = get(flow, F_TABLE), get(flow, F_LINE)
    if e == 0:
        return line == AT_ONCE
    start, end = load_i64(get(table, START), 8 * row), load_i64(get(table, END), 8 * row)
    return apply_early(e, get(table, BUFFER) + start, end - start, line, load_i64(get(table, TS_NS), 8 * row))


@kernel
def apply_rows_early(buffer, starts, ends, ts_ns, flow, rows, flows):
    """Packets that have been received already, in order; returns whether the session is needed now."""
    is_needed = False
    for row in range(rows):
        own = flows + 8 * FLOW_WORDS * np.int64(load_u16(flow, 2 * row))
        e, line = get(own, F_TABLE), get(own, F_LINE)
        start, end = load_i64(starts, 8 * row), load_i64(ends, 8 * row)
        if e != 0:
            is_needed |= apply_early(e, buffer + start, end - start, line, load_i64(ts_ns, 8 * row))
        else:
            is_needed |= line == AT_ONCE
    return is_needed


@kernel
def receive_early(table, flows, is_waiting_for_changes, until_ns):
    """Receive behind what is there, and apply it, until the session is needed, the memory is full, nothing comes for
    TIMEOUT_MS, or BATCH_MS have passed since the first packet, or `until_ns`; or, if someone waits for that, until
    something was received."""
    polls, count, is_needed = get(table, POLLS), get(table, POLL_COUNT), False
    timeout_ms = get(table, TIMEOUT_MS)
    while has_room(table):
        if poll(polls, np.uint64(count), np.int32(timeout_ms)) <= 0:
            return SESSION_NEEDED if is_needed else TIMED_OUT
        is_more, row = False, get(table, ROWS)
        for entry in range(1, count):
            if load_u16(polls, POLL_BYTES * entry + 6) and has_room(table):
                is_more |= receive_burst(table, entry) == BURST
                while row < get(table, ROWS):
                    is_needed |= _apply_received(table, flows, row)
                    row += 1
        if load_u16(polls, 6) != 0:
            return WOKEN
        if is_needed:  # with everything that has come by now
            if not is_more:
                return SESSION_NEEDED
            timeout_ms = np.int64(0)
        elif row > 0:
            timeout_ms, times = min(timeout_ms, np.int64(BATCH_MS)), get(table, TS_NS)
            if load_i64(times, 8 * (row - 1)) >= min(until_ns, load_i64(times, 0) + 1_000_000 * BATCH_MS):
                return TIMED_OUT
            if is_waiting_for_changes:
                return CHANGED
    return FULL
