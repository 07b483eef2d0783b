"""Arbitration, unit by unit: in which epoch the channel is, which lines continue in it, which are set aside."""

from __future__ import annotations

import numpy as np

from umdf.kernels import array_kernel, inlined, outlined
from umdf.sync.arbitration.delivery_kernel import (
    EPOCH_STEP,
    JOIN_STEP,
    MISALIGNED_AFTER,
    add_step,
    apply,
    count,
    fill_gap,
    find_gap,
    find_held,
    is_remembered,
    order_number,
    report_holes,
    ring_at,
)
from umdf.sync.arbitration.lines_kernel import (
    CONTINUED,
    ENDED,
    RESTART_DISTANCE,
    TOO_MANY_LINES,
    UNCONFIRMED,
    add_candidate,
    drop_candidate,
    find_epoch,
    find_line,
    first_number,
    forget_candidate,
    has_other_live_line,
    is_near,
    keep_aside,
    mark_last_candidates,
    match_candidates,
    next_match,
    plausible_epoch,
    quarantine,
    restarted_epoch,
)
from umdf.sync.arbitration.state_kernel import (
    ALIVE,
    ASIDE,
    BUFFER_SIZE,
    CLOCK,
    COUNT_KINDS,
    CURRENT,
    DATA,
    DEAD,
    DUPLICATES,
    EPOCH,
    EXPECTED,
    EXPIRED,
    FIRST,
    FOREVER,
    GAP_HEAD,
    GAP_TAIL,
    HELD,
    INPUT,
    IS_VERSIONED,
    L_AGREEMENTS,
    L_BEFORE,
    L_CANDIDATE,
    L_CONFLICTS,
    L_COUNTS,
    L_EPOCH,
    L_FIRST,
    L_MATCHED,
    L_MISALIGNED,
    L_POSITION,
    L_RESET_KEY,
    L_RESTART_NS,
    L_SEEN,
    LATE,
    LINE_COUNT,
    MAX_PAST_EPOCHS,
    NEWEST,
    NONE,
    ORDER,
    ORDER_TAIL,
    OUT_COUNT,
    PAST,
    PAST_COUNT,
    QUARANTINE_COUNT,
    R_END,
    R_EPOCH,
    R_KEY,
    R_KIND,
    R_LINE,
    R_MSG_INDEX,
    R_NUMBER,
    R_SOURCE,
    R_START,
    R_STATE,
    R_TS,
    RECOVERED,
    RELEASE_NS,
    RELEASE_ROW,
    REMEMBERED,
    RESET,
    RING,
    ROW_WORDS,
    S_COUNT,
    SET_ASIDE,
    STEP_COUNT,
    STORED_COUNT,
    TOTALS,
    WORK,
    free_row,
    line_at,
    row_at,
)

LATE_NS = 1_000_000_000  # how late a unit may come behind the restart of its line


@outlined
def move_line(w, line, epoch, position):
    if w[line + L_EPOCH] != epoch:
        if w[line + L_EPOCH] != NONE:
            w[line + L_BEFORE], w[line + L_RESTART_NS] = w[line + L_POSITION], w[CLOCK]
        w[line + L_EPOCH], w[line + L_FIRST] = epoch, 1
        w[line + L_CONFLICTS], w[line + L_AGREEMENTS], w[line + L_MISALIGNED] = 0, 0, 0
    w[line + L_POSITION] = position


@outlined
def start_channel(w, o, first, line):
    """The first epoch: what was before is not lost."""
    epoch = 0
    if w[IS_VERSIONED]:
        row = CURRENT
        for index in range(w[LINE_COUNT]):
            if line == NONE and w[line_at(index) + L_MATCHED]:
                row = row_at(w, ASIDE, w[line_at(index) + L_CANDIDATE] - 1)
        epoch = w[row + R_EPOCH]
    w[EPOCH], w[EXPECTED], w[FIRST], w[NEWEST] = epoch, first, first, 0
    add_step(w, o, EPOCH_STEP, first, first, w[CLOCK])
    if first > 1:
        add_step(w, o, JOIN_STEP, first, first, w[CLOCK])


@outlined
def switch_epoch(w, o, epoch, first):
    """End the channel's epoch, and begin another one."""
    report_holes(w, o, FOREVER)
    at = PAST + 2 * (w[PAST_COUNT] % MAX_PAST_EPOCHS)
    for known in range(min(w[PAST_COUNT], MAX_PAST_EPOCHS)):
        if w[PAST + 2 * known] == w[EPOCH]:
            at = PAST + 2 * known
    w[PAST_COUNT] += at == PAST + 2 * (w[PAST_COUNT] % MAX_PAST_EPOCHS)
    w[at], w[at + 1] = w[EPOCH], w[EXPECTED]
    for known in range(min(w[PAST_COUNT], MAX_PAST_EPOCHS)):
        if w[PAST + 2 * known] == epoch:  # nothing is delivered twice
            first = w[PAST + 2 * known + 1]
    w[EPOCH], w[EXPECTED], w[FIRST], w[EXPIRED] = epoch, first, first, 0
    w[GAP_HEAD], w[GAP_TAIL] = 0, 0
    for word in range(2 * REMEMBERED):
        w[w[RING] + word] = 0
    add_step(w, o, EPOCH_STEP, first, first, w[CLOCK])
    for index in range(w[LINE_COUNT]):
        line = line_at(index)
        w[line + L_CONFLICTS], w[line + L_AGREEMENTS], w[line + L_MISALIGNED] = 0, 0, 0


@outlined
def next_aside(w, slot):
    """The next unit of the channel's epoch that was set aside; the number of slots if there is none."""
    while slot < w[ASIDE + S_COUNT]:
        row = row_at(w, ASIDE, slot)
        if w[row + R_STATE] == ALIVE and w[row + R_EPOCH] == w[EPOCH]:
            break
        slot += 1
    return slot


@outlined
def accept(w, o, row, line, epoch):
    """A unit that is believed."""
    if epoch == w[EPOCH] and w[line + L_MISALIGNED] and w[line + L_EPOCH] == epoch and not has_other_live_line(w, line):
        w[line + L_MISALIGNED], w[line + L_CONFLICTS] = 0, 0
        if not w[IS_VERSIONED]:  # a restart whose reset was lost
            epoch = restarted_epoch(w, line, w[row + R_NUMBER])
    move_line(w, line, epoch, w[row + R_NUMBER])
    if w[row + R_KIND] == RESET:
        w[line + L_FIRST] = w[row + R_NUMBER] + 1
    slot = FOREVER
    if epoch != w[EPOCH]:
        if has_other_live_line(w, line):
            if w[row + R_KIND] != RESET:
                w[row + R_EPOCH] = epoch
                keep_aside(w, o, row, ALIVE)
                count(w, line, SET_ASIDE)
            return
        switch_epoch(w, o, epoch, w[line + L_FIRST])
        slot = 0
    while True:  # first what was set aside of this epoch
        unit, source = row, line
        slot = next_aside(w, slot)
        is_aside = slot < w[ASIDE + S_COUNT]
        if is_aside:
            unit = row_at(w, ASIDE, slot)
            source = find_line(w, w[unit + R_LINE])
        elif w[line + L_MISALIGNED]:
            compare_misaligned(w, row, line)
            break
        apply(w, o, unit, source)
        if not is_aside:
            break
        free_row(w, ASIDE, slot)
        slot += 1


@outlined
def compare_misaligned(w, row, line):
    """A line that contradicted the others is used again once it agrees with them."""
    number, known = w[row + R_NUMBER], 0
    if is_remembered(w, number):
        known = w[ring_at(w, number) + 1]
    else:
        at = find_held(w, number)
        if at < w[ORDER_TAIL] and order_number(w, at) == number:
            known = w[row_at(w, HELD, w[w[ORDER] + at]) + R_KEY]
    if w[row + R_KIND] != DATA or known == 0 or w[row + R_KEY] == 0:
        count(w, line, SET_ASIDE)
    elif known != w[row + R_KEY]:
        w[line + L_AGREEMENTS] = 0
        count(w, line, SET_ASIDE)
    else:
        w[line + L_AGREEMENTS] += 1
        count(w, line, DUPLICATES)
        if w[line + L_AGREEMENTS] == MISALIGNED_AFTER:
            w[line + L_MISALIGNED], w[line + L_CONFLICTS] = 0, 0


@inlined
def is_repeated_reset(w, line):
    """Whether this SequenceReset is the line's last one again."""
    is_same = w[CURRENT + R_KEY] != 0 and w[CURRENT + R_KEY] == w[line + L_RESET_KEY]
    w[line + L_RESET_KEY] = w[CURRENT + R_KEY]
    return is_same


@inlined
def is_from_before_restart(w, line):
    """FAST: whether a late unit is of the numbering that the line had before: far from where the line is now, and
    nearer to where it was. It would be a jump of the new numbering otherwise."""
    if w[IS_VERSIONED] or w[line + L_BEFORE] == 0 or w[CLOCK] - w[line + L_RESTART_NS] > LATE_NS:
        return False
    number, ahead = w[CURRENT + R_NUMBER], w[CURRENT + R_NUMBER] - w[line + L_POSITION]
    return ahead > RESTART_DISTANCE and abs(number - w[line + L_BEFORE]) < ahead


@inlined
def is_far_copy(w, line):
    """Whether a unit far from its line and the channel is one that was delivered, however late it comes: it says
    nothing about where the line is. Two of them would look like a restart of a FAST line."""
    own, number = w[line + L_EPOCH], w[CURRENT + R_NUMBER]
    is_current = w[EPOCH] != NONE and (own == NONE or own == w[EPOCH])
    is_current &= not w[IS_VERSIONED] or w[CURRENT + R_EPOCH] == w[EPOCH]
    is_at_line = own != NONE and is_near(number, w[line + L_POSITION])
    if not is_current or is_at_line or is_near(number, w[EXPECTED] - 1) or not is_remembered(w, number):
        return False
    return w[CURRENT + R_KEY] != 0 and w[ring_at(w, number) + 1] == w[CURRENT + R_KEY]


@outlined
def fill_requested(w, o, line):
    """A unit that was requested fills a gap of the channel's epoch. It moves no line, and no line continues in it."""
    w[CURRENT + R_KIND] = DATA
    is_current = w[EPOCH] != NONE and (not w[IS_VERSIONED] or w[CURRENT + R_EPOCH] == w[EPOCH])
    gap = find_gap(w, w[CURRENT + R_NUMBER]) if is_current else NONE
    if gap == NONE:
        count(w, line, DUPLICATES)
    else:
        count(w, line, LATE)
        fill_gap(w, o, gap, CURRENT)


@outlined
def process(w, o, is_end):
    """The unit in CURRENT, or the end of all units."""
    line, epoch, first = NONE, NONE, NONE
    if is_end:
        first = mark_last_candidates(w)
    else:
        line = find_line(w, w[CURRENT + R_LINE])
        if line == NONE:
            quarantine(w, o, CURRENT, TOO_MANY_LINES)
            return
        if w[CURRENT + R_KIND] == RECOVERED:
            fill_requested(w, o, line)
            return
        w[line + L_SEEN] = w[CLOCK]
        if w[CURRENT + R_KIND] == DATA and is_from_before_restart(w, line):
            count(w, line, LATE)
            return
        if w[CURRENT + R_KIND] == DATA and is_far_copy(w, line):
            count(w, line, DUPLICATES)
            return
        if w[CURRENT + R_KIND] == RESET:  # sent by each site for itself (4.2.8)
            if w[IS_VERSIONED] or is_repeated_reset(w, line):
                count(w, line, DUPLICATES)
                return
            first, epoch = first_number(w, CURRENT), 0
            if w[EPOCH] != NONE:
                epoch = restarted_epoch(w, line, w[CURRENT + R_NUMBER])
        else:
            epoch = plausible_epoch(w, CURRENT, line)
            if epoch == NONE:
                first = match_candidates(w, CURRENT)
                if first == NONE:
                    add_candidate(w, o, line)
                    return
    if first != NONE and w[EPOCH] == NONE:
        start_channel(w, o, first, line)
    while True:
        row, source = CURRENT, line
        match = next_match(w) if epoch == NONE else NONE
        if match != NONE:
            candidate = row_at(w, ASIDE, w[match + L_CANDIDATE] - 1)
            for word in range(ROW_WORDS):
                w[WORK + word] = w[candidate + word]
            forget_candidate(w, match)
            row, source = WORK, match
        elif is_end:
            break
        else:
            drop_candidate(w, o, line, UNCONFIRMED if epoch == NONE else CONTINUED)
        accept(w, o, row, source, find_epoch(w, row, source) if epoch == NONE else epoch)
        if match == NONE:
            break


@inlined
def begin_call(w):
    w[OUT_COUNT], w[STEP_COUNT], w[QUARANTINE_COUNT], w[STORED_COUNT] = 0, 0, 0, 0
    for kind in range(COUNT_KINDS):
        w[TOTALS + kind] = 0
        for index in range(w[LINE_COUNT]):
            w[line_at(index) + L_COUNTS + kind] = 0


@outlined
def drop_all(w, o):
    """At the end, what was not confirmed is quarantined, and what was set aside is dropped."""
    for index in range(w[LINE_COUNT]):
        drop_candidate(w, o, line_at(index), ENDED)
    for slot in range(w[ASIDE + S_COUNT]):
        if w[row_at(w, ASIDE, slot) + R_STATE] != DEAD:
            free_row(w, ASIDE, slot)


@array_kernel("i8", "i8", "i8", "i8", "i8", "u2", "u2", "u1", "i8", "i8", "i8", "i8")
def arbitrate(now, start, end, sequence, epoch, ts_recv, msg_index, lines, kind, next_sequence, content_key, w, o):
    """Process units in order of arrival, then report the holes whose waiting time ended before `now`. If that is
    FOREVER, no more units will come."""
    begin_call(w)
    is_last = now == FOREVER
    for at in range(len(start) + is_last):
        is_end = at == len(start)
        if not is_end:
            w[CLOCK], w[RELEASE_ROW] = max(w[CLOCK], ts_recv[at]), NONE
            report_holes(w, o, w[CLOCK])
            w[RELEASE_ROW], w[RELEASE_NS] = at, w[CLOCK]
            w[CURRENT + R_START], w[CURRENT + R_END], w[CURRENT + R_SOURCE] = start[at], end[at], INPUT
            is_data = kind[at] == DATA or kind[at] == RECOVERED
            w[CURRENT + R_NUMBER] = sequence[at] if is_data else next_sequence[at] - 1
            w[CURRENT + R_EPOCH] = epoch[at] if w[IS_VERSIONED] else 0
            w[CURRENT + R_TS], w[CURRENT + R_KEY] = ts_recv[at], content_key[at]
            w[CURRENT + R_MSG_INDEX], w[CURRENT + R_LINE] = np.int64(msg_index[at]), np.int64(lines[at])
            w[CURRENT + R_KIND] = np.int64(kind[at])
            if not is_data or start[at] < 0 or start[at] > end[at] or end[at] > w[BUFFER_SIZE]:
                w[CURRENT + R_START], w[CURRENT + R_END] = 0, 0  # nothing of it is delivered
        else:
            w[RELEASE_ROW], w[RELEASE_NS] = NONE, FOREVER
        process(w, o, is_end)
    w[RELEASE_ROW] = NONE
    report_holes(w, o, now)
    if is_last:
        drop_all(w, o)
