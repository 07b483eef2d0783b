"""Where each line is believed to be, and which units are believed.

A unit at a position where no line is believed to be is a *candidate*: damage does not repeat itself, but a loss, a
restart or a new line continues, so a second such unit close to it confirms both.
"""

from __future__ import annotations

from umdf.kernels import inlined, outlined
from umdf.sync.arbitration.delivery_kernel import find_gap, is_remembered, keys_differ, ring_at
from umdf.sync.arbitration.state_kernel import (
    ASIDE,
    CANDIDATE,
    CANDIDATE_COUNT,
    CLOCK,
    CURRENT,
    DATA,
    EPOCH,
    EXPECTED,
    IS_VERSIONED,
    L_CANDIDATE,
    L_COUNTS,
    L_EPOCH,
    L_FIRST,
    L_ID,
    L_MATCHED,
    L_MISALIGNED,
    L_POSITION,
    L_SEEN,
    LINE_COUNT,
    LINE_WORDS,
    MAX_LINES,
    NEWEST,
    NONE,
    QUARANTINE,
    QUARANTINE_COUNT,
    QUARANTINE_WORDS,
    QUARANTINED,
    R_EPOCH,
    R_KEY,
    R_KIND,
    R_LINE,
    R_NUMBER,
    R_STATE,
    R_TS,
    S_ALIVE,
    TIMEOUT_NS,
    TOTALS,
    append_row,
    first_alive,
    free_row,
    has_room,
    line_at,
    row_at,
)

MAX_DISTANCE = 1_000  # of a unit from where its line is believed to be, in numbers: more than packets overtake others
RESTART_DISTANCE = 64  # FAST: other content so far below the line's position may be a restart whose reset was lost
CONTINUED, UNCONFIRMED, NO_ROOM, ENDED, TOO_MANY_LINES = range(5)  # why a unit is quarantined


@inlined
def is_near(number, position):
    return abs(number - position) <= MAX_DISTANCE


def is_restart(position, number):
    """Whether messages from this number on may be a new numbering of a FAST line at `position`, whose reset was lost.
    The lake calls it with columns."""
    return (number <= MAX_DISTANCE) & (number <= position - RESTART_DISTANCE)


_is_restart = inlined(is_restart)


@outlined
def is_near_line(w, epoch, number):
    """Whether a line is believed to be near this number of an epoch."""
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        if w[line + L_EPOCH] == epoch and is_near(number, w[line + L_POSITION]):
            return True
    return False


@outlined
def has_other_live_line(w, own):
    """Whether another line continues in the channel's epoch."""
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        is_current = line != own and w[line + L_EPOCH] == w[EPOCH] and w[line + L_MISALIGNED] == 0
        if is_current and w[CLOCK] - w[line + L_SEEN] <= w[TIMEOUT_NS]:
            return True
    return False


@outlined
def find_line(w, number):
    for index in range(w[LINE_COUNT]):
        if w[line_at(index) + L_ID] == number:
            return line_at(index)
    if w[LINE_COUNT] == MAX_LINES:
        return NONE
    line = line_at(w[LINE_COUNT])
    for word in range(LINE_WORDS):
        w[line + word] = 0
    w[line + L_ID], w[line + L_EPOCH], w[line + L_FIRST] = number, NONE, 1
    w[LINE_COUNT] += 1
    return line


# Candidates


@outlined
def quarantine(w, o, row, reason):
    at = w[QUARANTINE] + QUARANTINE_WORDS * w[QUARANTINE_COUNT]
    o[at], o[at + 1], o[at + 2] = w[row + R_LINE], w[row + R_NUMBER], w[row + R_EPOCH]
    o[at + 3], o[at + 4] = w[row + R_TS], reason
    w[QUARANTINE_COUNT] += 1
    w[TOTALS + QUARANTINED] += 1


@outlined
def drop_candidate(w, o, line, reason):
    if w[line + L_CANDIDATE]:
        slot = w[line + L_CANDIDATE] - 1
        quarantine(w, o, row_at(w, ASIDE, slot), reason)
        w[line + L_COUNTS + QUARANTINED] += 1
        forget_candidate(w, line)


@inlined
def forget_candidate(w, line):
    free_row(w, ASIDE, w[line + L_CANDIDATE] - 1)
    w[line + L_CANDIDATE] = 0
    w[CANDIDATE_COUNT] -= 1


@outlined
def keep_aside(w, o, row, state):
    """Keep a unit beside the stream; the oldest ones make room. Returns its slot, or NONE if it is too large."""
    while not has_room(w, ASIDE, row) and w[ASIDE + S_ALIVE]:
        slot = first_alive(w, ASIDE)
        oldest = row_at(w, ASIDE, slot)
        if w[oldest + R_STATE] == CANDIDATE:
            drop_candidate(w, o, find_line(w, w[oldest + R_LINE]), NO_ROOM)
        else:
            free_row(w, ASIDE, slot)
    return append_row(w, ASIDE, row, state) if has_room(w, ASIDE, row) else NONE


@inlined
def confirms(w, line, row):
    """Whether a unit confirms the candidate of a line. The same packet again proves nothing, on another line neither:
    it may have been damaged before the lines parted. A channel that has not started has nothing to lose by it. Two
    FAST units of open gaps may both be late: a restart goes on with the next number."""
    other = row_at(w, ASIDE, w[line + L_CANDIDATE] - 1)
    if w[other + R_EPOCH] != w[row + R_EPOCH] or not is_near(w[other + R_NUMBER], w[row + R_NUMBER]):
        return False
    may_be_late = not w[IS_VERSIONED] and w[row + R_NUMBER] != w[other + R_NUMBER] + 1
    if may_be_late and find_gap(w, w[row + R_NUMBER]) != NONE and find_gap(w, w[other + R_NUMBER]) != NONE:
        return False
    is_same = w[other + R_NUMBER] == w[row + R_NUMBER] and not keys_differ(w[other + R_KEY], w[row + R_KEY])
    return not is_same or (w[EPOCH] == NONE and w[other + R_LINE] != w[row + R_LINE])


@inlined
def first_number(w, row):
    """The number that a stream which begins with this unit expects first."""
    return max(1, w[row + R_NUMBER] + (w[row + R_KIND] != DATA))


@outlined
def match_candidates(w, row):
    """Mark the candidates that a unit confirms; returns the number that a channel which starts now expects first."""
    first, is_confirmed = first_number(w, row), False
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        w[line + L_MATCHED] = w[line + L_CANDIDATE] > 0 and confirms(w, line, row)
        if w[line + L_MATCHED]:
            first = min(first, first_number(w, row_at(w, ASIDE, w[line + L_CANDIDATE] - 1)))
            is_confirmed = True
    return first if is_confirmed else NONE


@outlined
def next_match(w):
    """The line of the oldest marked candidate, or NONE."""
    oldest = NONE
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        is_marked = w[line + L_MATCHED] and w[line + L_CANDIDATE]  # it may have been dropped to make room
        if is_marked and (oldest == NONE or w[line + L_CANDIDATE] < w[oldest + L_CANDIDATE]):
            oldest = line
    return oldest


@outlined
def add_candidate(w, o, line):
    drop_candidate(w, o, line, UNCONFIRMED)
    slot = keep_aside(w, o, CURRENT, CANDIDATE)
    if slot == NONE:
        quarantine(w, o, CURRENT, NO_ROOM)
        w[line + L_COUNTS + QUARANTINED] += 1
    else:
        w[line + L_CANDIDATE] = slot + 1
        w[CANDIDATE_COUNT] += 1


@outlined
def mark_last_candidates(w):
    """At the end, a unit is believed if it is all there is, or if two lines have it: nothing can confirm it any more.
    Returns the number that a channel which starts with it expects first."""
    first = NONE
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        w[line + L_MATCHED] = 0
        if not w[line + L_CANDIDATE]:
            continue
        row = row_at(w, ASIDE, w[line + L_CANDIDATE] - 1)
        if w[EPOCH] == NONE and w[CANDIDATE_COUNT] == 1:
            w[line + L_MATCHED] = 1
            first = first_number(w, row)
        for other in range(w[LINE_COUNT]):
            twin = line_at(other)
            if w[EPOCH] != NONE and twin != line and w[twin + L_CANDIDATE]:
                copy = row_at(w, ASIDE, w[twin + L_CANDIDATE] - 1)
                is_same = w[copy + R_EPOCH] == w[row + R_EPOCH] and w[copy + R_NUMBER] == w[row + R_NUMBER]
                w[line + L_MATCHED] |= is_same and not keys_differ(w[copy + R_KEY], w[row + R_KEY])
    return first


# Epochs


@outlined
def plausible_epoch(w, row, line):
    """The epoch of a unit at a position where a line is believed to be, or NONE."""
    number, own = w[row + R_NUMBER], w[line + L_EPOCH]
    is_near_channel = w[EPOCH] != NONE and is_near(number, w[EXPECTED] - 1)
    if w[IS_VERSIONED]:
        epoch = w[row + R_EPOCH]
        is_current = epoch == w[EPOCH] and is_near_channel
        return epoch if is_current or is_near_line(w, epoch, number) else NONE
    if own != NONE and is_near(number, w[line + L_POSITION]):
        if not may_be_restart(w, row, line):
            return own
    elif is_near_channel:
        return w[EPOCH]
    return w[NEWEST] if w[NEWEST] > own and is_near_line(w, w[NEWEST], number) else NONE


@inlined
def may_be_restart(w, row, line):
    """Numbers near 1 that were delivered with other content: a FAST line whose reset was lost (4.2.8)."""
    number = w[row + R_NUMBER]
    if not _is_restart(w[line + L_POSITION], number) or w[line + L_EPOCH] != w[EPOCH]:
        return False
    return is_remembered(w, number) and keys_differ(w[ring_at(w, number) + 1], w[row + R_KEY])


@outlined
def find_epoch(w, row, line):
    """The epoch of a confirmed unit. Binary states it; a FAST line that went back began a new one."""
    number, own = w[row + R_NUMBER], w[line + L_EPOCH]
    if w[IS_VERSIONED]:
        return w[row + R_EPOCH]
    if own != NONE and number > w[line + L_POSITION]:
        return own
    is_near_channel = is_near(number, w[EXPECTED] - 1)
    fills = find_gap(w, number) != NONE or (number >= w[EXPECTED] and not has_other_live_line(w, line))
    if own == NONE and (is_near_channel or fills):
        return w[EPOCH]
    return restarted_epoch(w, line, number)


@outlined
def restarted_epoch(w, line, number):
    """FAST: the epoch of a line that restarts: that of the line that restarted before it, or a new one."""
    if w[NEWEST] > w[line + L_EPOCH] and is_near_line(w, w[NEWEST], number):
        return w[NEWEST]
    w[NEWEST] += 1
    return w[NEWEST]
