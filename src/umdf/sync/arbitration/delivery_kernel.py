"""Delivers the units of the channel's epoch: in order, each number once, holes after a waiting time."""

from __future__ import annotations

from umdf.kernels import inlined, outlined
from umdf.sync.arbitration.state_kernel import (
    ALIVE,
    CLOCK,
    CONFLICTS,
    DATA,
    DUPLICATES,
    EPOCH,
    EXPECTED,
    EXPIRED,
    FIRST,
    FOREVER,
    GAP_HEAD,
    GAP_LIMIT,
    GAP_TAIL,
    GAP_WORDS,
    GAPS,
    HELD,
    L_AGREEMENTS,
    L_CONFLICTS,
    L_COUNTS,
    L_MISALIGNED,
    LATE,
    MAX_REVEALS,
    NONE,
    O_END,
    O_EPOCH,
    O_KEY,
    O_LATE,
    O_LINE,
    O_MSG_INDEX,
    O_RELEASE_NS,
    O_RELEASE_ROW,
    O_SEQUENCE,
    O_SOURCE,
    O_START,
    O_TS,
    ORDER,
    ORDER_HEAD,
    ORDER_TAIL,
    OUT_CAPACITY,
    OUT_COUNT,
    R_ARRIVAL,
    R_END,
    R_KEY,
    R_KIND,
    R_LINE,
    R_MSG_INDEX,
    R_NUMBER,
    R_OTHER,
    R_SOURCE,
    R_START,
    R_TS,
    RELEASE_NS,
    RELEASE_ROW,
    REMEMBERED,
    REVEAL_COUNT,
    REVEALS,
    RING,
    S_CAPACITY,
    S_COUNT,
    STEP_COUNT,
    STEP_WORDS,
    STEPS,
    STORED,
    STORED_COUNT,
    TOTALS,
    WAIT_NS,
    append_row,
    first_alive,
    free_row,
    has_room,
    row_at,
)

EPOCH_STEP, JOIN_STEP, GAP_STEP, FILLED_STEP = 0, 1, 2, 3
MISALIGNED_AFTER = 8  # conflicts in a row, and agreements until the line is used again


@inlined
def count(w, line, kind):
    w[TOTALS + kind] += 1
    w[line + L_COUNTS + kind] += 1


@outlined
def add_step(w, o, kind, first, last, ts):
    at = w[STEPS] + w[STEP_COUNT] * STEP_WORDS
    o[at], o[at + 1], o[at + 2], o[at + 3] = w[OUT_COUNT], kind, w[EPOCH], first
    o[at + 4], o[at + 5], o[at + 6], o[at + 7] = last, ts, w[RELEASE_ROW], w[RELEASE_NS]
    w[STEP_COUNT] += 1


@outlined
def emit(w, o, row, is_late):
    """Deliver a unit."""
    at, capacity = w[OUT_COUNT], w[OUT_CAPACITY]
    o[O_START * capacity + at], o[O_END * capacity + at] = w[row + R_START], w[row + R_END]
    o[O_SEQUENCE * capacity + at], o[O_EPOCH * capacity + at] = w[row + R_NUMBER], w[EPOCH]
    o[O_TS * capacity + at], o[O_MSG_INDEX * capacity + at] = w[row + R_TS], w[row + R_MSG_INDEX]
    o[O_LINE * capacity + at], o[O_KEY * capacity + at] = w[row + R_LINE], w[row + R_KEY]
    o[O_LATE * capacity + at], o[O_SOURCE * capacity + at] = is_late, w[row + R_SOURCE]
    o[O_RELEASE_ROW * capacity + at], o[O_RELEASE_NS * capacity + at] = w[RELEASE_ROW], w[RELEASE_NS]
    w[STORED_COUNT] += w[row + R_SOURCE] == STORED
    w[OUT_COUNT] = at + 1
    memory = ring_at(w, w[row + R_NUMBER])
    if w[memory] >> 1 < w[row + R_NUMBER]:
        w[memory], w[memory + 1] = w[row + R_NUMBER] << 1, w[row + R_KEY]


# What was delivered


@inlined
def ring_at(w, number):
    return w[RING] + 2 * (number & (REMEMBERED - 1))


@inlined
def is_remembered(w, number):
    return number > 0 and w[ring_at(w, number)] >> 1 == number


@inlined
def keys_differ(one, other):
    return one != 0 and other != 0 and one != other


@inlined
def compare_keys(w, line, one, other):
    """Whether two contents of a number are the same as far as is known; follows whether the line is aligned."""
    if keys_differ(one, other):
        w[line + L_CONFLICTS] += 1
        if w[line + L_CONFLICTS] >= MISALIGNED_AFTER:
            w[line + L_MISALIGNED], w[line + L_AGREEMENTS] = 1, 0
        return False
    if one != 0 and other != 0:
        w[line + L_CONFLICTS] = 0
    return True


@outlined
def report_conflict(w, o, row):
    """Something about this number is not certain: report it once, and deliver the other copy too."""
    memory, number = ring_at(w, w[row + R_NUMBER]), w[row + R_NUMBER]
    if w[memory] & 1 == 0:
        w[memory] |= 1
        add_step(w, o, GAP_STEP, number, number, w[row + R_TS])
        emit(w, o, row, 1)


# Open gaps


@outlined
def find_gap(w, number):
    """The index of the open gap with this number, or NONE."""
    low, high = w[GAP_HEAD], w[GAP_TAIL]
    while low < high:
        middle = (low + high) // 2
        if w[w[GAPS] + GAP_WORDS * middle + 1] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < w[GAP_TAIL] and w[w[GAPS] + GAP_WORDS * low] <= number else NONE


@outlined
def insert_gap(w, at, first, last, reported_first, reported_last):
    """Insert an open gap; if there are too many, the oldest expires."""
    gaps = w[GAPS]
    if w[GAP_TAIL] - w[GAP_HEAD] == w[GAP_LIMIT]:
        w[EXPIRED] = w[gaps + GAP_WORDS * w[GAP_HEAD] + 1]
        w[GAP_HEAD] += 1
    if w[GAP_TAIL] == 2 * w[GAP_LIMIT]:
        shift, kept = w[GAP_HEAD], w[GAP_TAIL] - w[GAP_HEAD]
        for word in range(GAP_WORDS * kept):
            w[gaps + word] = w[gaps + GAP_WORDS * shift + word]
        w[GAP_HEAD], w[GAP_TAIL] = 0, kept
        at -= shift
    at = max(at, w[GAP_HEAD])
    for word in range(GAP_WORDS * w[GAP_TAIL] - 1, GAP_WORDS * at - 1, -1):
        w[gaps + GAP_WORDS + word] = w[gaps + word]
    gap = gaps + GAP_WORDS * at
    w[gap], w[gap + 1], w[gap + 2], w[gap + 3] = first, last, reported_first, reported_last
    w[GAP_TAIL] += 1


@outlined
def fill_gap(w, o, at, row):
    """Deliver a late unit of an open gap."""
    number, gap = w[row + R_NUMBER], w[GAPS] + GAP_WORDS * at
    emit(w, o, row, 1)
    first, last, reported_first, reported_last = w[gap], w[gap + 1], w[gap + 2], w[gap + 3]
    if first < number and number < last:
        w[gap + 1] = number - 1
        insert_gap(w, at + 1, number + 1, last, reported_first, reported_last)
    elif first < number:
        w[gap + 1] = number - 1
    elif number < last:
        w[gap] = number + 1
    else:
        has_more = at > w[GAP_HEAD] and w[gap - GAP_WORDS + 2] == reported_first
        has_more |= at + 1 < w[GAP_TAIL] and w[gap + GAP_WORDS + 2] == reported_first
        for word in range(GAP_WORDS * (at + 1), GAP_WORDS * w[GAP_TAIL]):
            w[w[GAPS] + word - GAP_WORDS] = w[w[GAPS] + word]
        w[GAP_TAIL] -= 1
        if not has_more and reported_first > w[EXPIRED]:
            add_step(w, o, FILLED_STEP, reported_first, reported_last, w[row + R_TS])


# Holes: missing numbers that are not reported yet


@inlined
def order_number(w, at):
    return w[row_at(w, HELD, w[w[ORDER] + at]) + R_NUMBER]


@outlined
def find_held(w, number):
    """Where in the order of held units this number is, or belongs."""
    low, high = w[ORDER_HEAD], w[ORDER_TAIL]
    if low == high or order_number(w, high - 1) < number:
        return high
    while low < high:
        middle = (low + high) // 2
        if order_number(w, middle) < number:
            low = middle + 1
        else:
            high = middle
    return low


@outlined
def deliver_held(w, o):
    """Deliver held units as far as they follow."""
    while w[ORDER_HEAD] < w[ORDER_TAIL] and order_number(w, w[ORDER_HEAD]) == w[EXPECTED]:
        slot = w[w[ORDER] + w[ORDER_HEAD]]
        w[ORDER_HEAD] += 1
        row = row_at(w, HELD, slot)
        emit(w, o, row, 0)
        number, other = w[row + R_NUMBER], w[row + R_OTHER]
        if other > 0:
            report_conflict(w, o, row_at(w, HELD, other - 1))
            free_row(w, HELD, other - 1)
        elif other < 0:
            w[ring_at(w, number)] |= 1
            add_step(w, o, GAP_STEP, number, number, w[row + R_TS])
        free_row(w, HELD, slot)
        w[EXPECTED] += 1
    if w[ORDER_HEAD] == w[ORDER_TAIL]:
        w[ORDER_HEAD], w[ORDER_TAIL] = 0, 0
    passed = 0
    while passed < w[REVEAL_COUNT] and w[REVEALS + 2 * passed] < w[EXPECTED]:
        passed += 1
    if passed:
        for word in range(2 * passed, 2 * w[REVEAL_COUNT]):
            w[REVEALS + word - 2 * passed] = w[REVEALS + word]
        w[REVEAL_COUNT] -= passed


@inlined
def held_since(w):
    slot = first_alive(w, HELD)
    return w[row_at(w, HELD, slot) + R_ARRIVAL] if slot < w[HELD + S_COUNT] else FOREVER


@inlined
def revealed_since(w):
    return w[REVEALS + 1] if w[REVEAL_COUNT] else FOREVER


@outlined
def report_hole(w, o, limit):
    """Report the first hole as a gap, up to a number, and deliver what follows."""
    by_held, by_heartbeat = held_since(w), revealed_since(w)
    last = order_number(w, w[ORDER_HEAD]) - 1 if w[ORDER_HEAD] < w[ORDER_TAIL] else FOREVER
    if by_heartbeat < by_held:
        last = min(last, w[REVEALS])
    last = min(last, limit)
    add_step(w, o, GAP_STEP, w[EXPECTED], last, min(by_held, by_heartbeat, w[CLOCK]))
    insert_gap(w, w[GAP_TAIL], w[EXPECTED], last, w[EXPECTED], last)
    w[EXPECTED] = last + 1
    deliver_held(w, o)


@outlined
def report_holes(w, o, now):
    """Report the holes whose waiting time ended before `now`."""
    while True:
        since = min(held_since(w), revealed_since(w))
        if since == FOREVER or since >= now - w[WAIT_NS]:
            break
        if w[RELEASE_ROW] == NONE and now != FOREVER:
            w[RELEASE_NS] = since + w[WAIT_NS]
        report_hole(w, o, FOREVER)


@outlined
def hold(w, o, row, at):
    """Keep a unit until those before it are there, or until they are given up because memory is full."""
    number, is_new = w[row + R_NUMBER], True
    while w[EXPECTED] < number and not has_room(w, HELD, row):
        report_hole(w, o, number - 1)
        is_new = False
    if w[EXPECTED] == number:
        deliver(w, o, row)
        return
    slot = append_row(w, HELD, row, ALIVE)
    if w[ORDER_TAIL] == w[HELD + S_CAPACITY]:
        shift = w[ORDER_HEAD]
        for place in range(shift, w[ORDER_TAIL]):
            w[w[ORDER] + place - shift] = w[w[ORDER] + place]
        w[ORDER_HEAD], w[ORDER_TAIL] = 0, w[ORDER_TAIL] - shift
        is_new = False
    if not is_new:
        at = find_held(w, number)
    for place in range(w[ORDER_TAIL], at, -1):
        w[w[ORDER] + place] = w[w[ORDER] + place - 1]
    w[w[ORDER] + at] = slot
    w[ORDER_TAIL] += 1


@outlined
def deliver(w, o, row):
    """Deliver the unit that was expected, and what follows it."""
    emit(w, o, row, 0)
    w[EXPECTED] += 1
    if w[ORDER_TAIL] > 0 or w[REVEAL_COUNT]:
        deliver_held(w, o)


@outlined
def add_held_copy(w, o, row, line, at):
    """A second copy of a number that is not delivered yet."""
    first = row_at(w, HELD, w[w[ORDER] + at])
    if compare_keys(w, line, w[first + R_KEY], w[row + R_KEY]):
        count(w, line, DUPLICATES)
        return
    count(w, line, CONFLICTS)
    if w[first + R_OTHER] == 0:
        slot = append_row(w, HELD, row, ALIVE) + 1 if has_room(w, HELD, row) else NONE
        first = row_at(w, HELD, w[w[ORDER] + at])  # it may have moved
        w[first + R_OTHER] = slot


@outlined
def add_reveal(w, number):
    """A heartbeat: all numbers up to this one were sent."""
    known = w[REVEAL_COUNT]
    if number < w[EXPECTED] or (known and number <= w[REVEALS + 2 * known - 2]):
        return
    if known == MAX_REVEALS:  # as if the last one had known it
        w[REVEALS + 2 * known - 2] = number
        return
    w[REVEALS + 2 * known], w[REVEALS + 2 * known + 1] = number, w[CLOCK]
    w[REVEAL_COUNT] += 1


@outlined
def apply(w, o, row, line):
    """A unit of the channel's epoch, of a line that is aligned."""
    number = w[row + R_NUMBER]
    if w[row + R_KIND] != DATA:
        add_reveal(w, number)
    elif number == w[EXPECTED]:
        deliver(w, o, row)
    elif number > w[EXPECTED]:
        at = find_held(w, number)
        if at < w[ORDER_TAIL] and order_number(w, at) == number:
            add_held_copy(w, o, row, line, at)
        else:
            hold(w, o, row, at)
    else:
        apply_old(w, o, row, line)


@outlined
def apply_old(w, o, row, line):
    """A number that was delivered or given up."""
    number = w[row + R_NUMBER]
    gap = find_gap(w, number)
    if gap != NONE:
        count(w, line, LATE)
        fill_gap(w, o, gap, row)
    elif is_remembered(w, number):
        if compare_keys(w, line, w[ring_at(w, number) + 1], w[row + R_KEY]):
            count(w, line, DUPLICATES)
        else:
            count(w, line, CONFLICTS)
            report_conflict(w, o, row)
    elif number < w[FIRST] or number <= w[EXPIRED]:
        count(w, line, LATE)
    else:
        count(w, line, DUPLICATES)
