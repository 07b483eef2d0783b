"""Finds packets with a damaged header: those that are inconsistent with their neighbours on the same flow.

No checksum covers a header in a file, so a wrong bit in a sequence would look like a loss of millions, and one in a
time like another day. But a gap, a reset or a new day continues with the next packet, and damage does not: a header
is judged by the few packets before and after it. Invariant: the decision on a packet depends only on the `MARGIN`
packets on either side of it, never on the boundaries of batches and splits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.sync.arbitration.lines_kernel import MAX_DISTANCE

NEIGHBOURS = 8  # packets on either side that a packet is compared with
LOOK_BACK = 3 * NEIGHBOURS  # packets before a packet among which it may continue the numbering
# A decision depends on those of so many packets, and these on their neighbours, and those on their neighbours.
MARGIN = LOOK_BACK + 2 * NEIGHBOURS
MAX_OVERTAKING = MAX_DISTANCE  # maximum reordering, in sequences
MAX_FIRST_SEQUENCE = 16  # a sequence up to this may start an epoch or a loop
MAX_WRONG_BITS = 3  # maximum wrong bits in a sequence
EDGE_PACKETS = 3  # packets at either end of a file that are judged less strictly
MILLISECOND_NS, SECOND_NS = 10**6, 10**9
# Maximum difference between the lags (receive minus send time) of neighbours.
MAX_LAG_DIFFERENCE_NS = 60 * SECOND_NS
MAX_LAG_DIFFERENCE_WITHOUT_CLOCK_NS = 12 * 3_600 * SECOND_NS  # the same if the file has no receive times

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Column = NDArray[Any]  # integers of any width
AgreementRule = Callable[[Any, Any], Mask]  # whether packets at these rows can be neighbours
# Whether packets may be valid although they disagree with these others; the mask: those that agree with none.
SuccessionRule = Callable[[Numbers, Numbers, Mask], Mask]


class Headers(NamedTuple):
    """Headers of the packets of one flow, in order; or of its messages, if those carry the sequences."""

    number: Column  # 0: none
    channel: Column
    epoch: Column
    sent: Column  # NULL if unknown
    ts_recv: Column
    offset: Column
    split: Column
    weight: Column  # 1 for the first of a packet
    is_cut: Column  # no valid header; FAST: a message of an unknown template
    announced: Column  # of a Binary heartbeat: the last sequence before its nextSeqNo; 0: none
    content: Column  # of a FAST message with a low number, a hash; 0: unknown

    def take(self, rows: Any) -> Headers:
        return Headers(*(column[rows] for column in self))


def concat_headers(parts: list[Headers]) -> Headers:
    return Headers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class HeaderChecker:
    """Takes the packets of one flow in order, and decides on each one once enough others have followed."""

    def __init__(self, find_damaged: Callable[[Headers], Mask]) -> None:
        self._find_damaged = find_damaged
        self._window: Headers | None = None
        self._reported = 0  # how many of the window were returned before: the others are compared with them

    def add(self, new: Headers | None) -> tuple[Headers, Mask]:
        """The headers that can be decided now, and which of them are damaged. None: there are no more."""
        parts = [part for part in (self._window, new) if part is not None and len(part.number)]
        if not parts:
            return NO_HEADERS, np.zeros(0, np.bool_)
        headers = concat_headers(parts) if len(parts) > 1 else parts[0]
        count = len(headers.number)
        last = count if new is None else max(count - MARGIN, self._reported)
        is_damaged = self._find_damaged(headers)[self._reported : last]
        reported = headers.take(slice(self._reported, last))
        keep = max(last - MARGIN, 0)
        self._window, self._reported = headers.take(slice(keep, None)), last - keep
        return reported, is_damaged


_NONE = np.zeros(0, np.int64)
NO_HEADERS = Headers(*[_NONE] * 8, is_cut=np.zeros(0, np.bool_), announced=_NONE, content=_NONE)


def mask_foreign_headers(headers: Headers) -> Mask:
    """Judges by channel, epoch and send time."""
    channel, epoch, number, is_cut = headers.channel, headers.epoch, headers.number, headers.is_cut
    has_clock = headers.ts_recv > 0
    lag = headers.sent.astype(np.float64) - headers.ts_recv  # damaged times would overflow an integer
    max_difference = np.where(has_clock, float(MAX_LAG_DIFFERENCE_NS), float(MAX_LAG_DIFFERENCE_WITHOUT_CLOCK_NS))

    def is_in_time(one: Any, other: Any) -> Mask:
        return np.abs(lag[one] - lag[other]) <= max_difference[one]

    def agree(one: Any, other: Any) -> Mask:
        found = (channel[one] == channel[other]) & (epoch[one] == epoch[other]) & is_in_time(one, other)
        return found & ~is_cut[one] & ~is_cut[other]

    def may_follow(rows: Numbers, others: Numbers, _: Mask) -> Mask:
        """An epoch may start with the last packets of a file, or end with its first ones."""
        fresh = number[np.maximum(rows, others)]
        begins = (fresh > 0) & (fresh <= MAX_FIRST_SEQUENCE) & (epoch[rows] != epoch[others])
        return begins & (channel[rows] == channel[others]) & is_in_time(rows, others) & ~is_cut[rows] & ~is_cut[others]

    return _mask_implausible(len(number), agree, may_follow) | is_cut


def mask_far_sequences(headers: Headers) -> Mask:
    """Judges by sequence alone; all headers have one."""
    number, epoch = headers.number, headers.epoch

    def agree(one: Any, other: Any) -> Mask:
        return (np.abs(number[one] - number[other]) <= MAX_OVERTAKING) & (epoch[one] == epoch[other])

    def may_follow(rows: Numbers, others: Numbers, alone: Mask) -> Mask:
        """The last packets of a file may follow a gap, or start an epoch or a loop, and the first ones may end it. A
        damaged sequence differs from the right one, or from 0, in only a few bits. Packets of another epoch prove
        nothing: a file may start with the last messages of a loop."""
        right = number[others] + rows - others
        by_bits = np.minimum(np.bitwise_count(number[rows] ^ right), np.bitwise_count(number[rows]))
        is_likely = (by_bits > MAX_WRONG_BITS) & (~alone | (number[others] <= MAX_FIRST_SEQUENCE))
        return (number[rows] <= MAX_FIRST_SEQUENCE) | (epoch[rows] != epoch[others]) | is_likely

    bad = _mask_implausible(len(number), agree, may_follow)
    if (
        headers.is_cut.any()
    ):  # nothing in the message confirms its sequence: it must not take the place of a missing one
        low, here, high = number[:-2], number[1:-1], number[2:]
        bad[1:-1] |= headers.is_cut[1:-1] & (high - low == 2) & ((here < low) | (here > high))
    for row in np.flatnonzero(bad & ~headers.is_cut).tolist():
        # What continues the numbering is sound, even if it stands alone among late copies of much older packets.
        before = slice(max(row - LOOK_BACK, 0), row)
        valid = number[before][~bad[before] & (epoch[before] == epoch[row])]
        bad[row] = not (len(valid) and 0 < number[row] - valid.max() <= NEIGHBOURS)
    return bad


def mask_wrong_sequences(headers: Headers) -> Mask:
    """Judges by sequence, and by the order of sequences and times."""
    bad = mask_far_sequences(headers)
    valid = np.flatnonzero(~bad) if bad.any() else np.arange(len(bad))
    return bad if len(valid) < 3 else bad | _mask_disordered(headers, valid)


def _mask_implausible(count: int, agree: AgreementRule, may_follow: SuccessionRule) -> Mask:
    bad = np.zeros(count, np.bool_)
    disagreements = np.flatnonzero(~agree(slice(None, -1), slice(1, None)))
    if not len(disagreements):
        return bad
    rows = np.unique((disagreements[:, None] + [-1, 0, 1, 2]).ravel())
    rows = rows[(rows >= 0) & (rows < count)]
    reach = np.array([*range(-NEIGHBOURS, 0), *range(1, NEIGHBOURS + 1)])

    def neighbours_of(some: Numbers) -> tuple[Numbers, Mask]:
        neighbour_rows = some[:, None] + reach
        return np.clip(neighbour_rows, 0, count - 1), (neighbour_rows >= 0) & (neighbour_rows < count)

    neighbour_rows, exists = neighbours_of(rows)
    checked_rows = np.unique(np.concatenate([rows, neighbour_rows[exists]]))
    checked_neighbours, are_there = neighbours_of(checked_rows)
    agreement_counts = np.zeros(count, np.int64)
    agreement_counts[checked_rows] = (agree(checked_rows[:, None], checked_neighbours) & are_there).sum(axis=1)
    own_counts = agreement_counts[rows]
    # Packets before and after it agree with each other but not with it, and each has more support: it is damaged.
    rivals = exists & ~agree(rows[:, None], neighbour_rows) & (agreement_counts[neighbour_rows] > own_counts[:, None])
    before, after = neighbour_rows[:, :NEIGHBOURS, None], neighbour_rows[:, None, NEIGHBOURS:]
    between = agree(before, after) & rivals[:, :NEIGHBOURS, None] & rivals[:, None, NEIGHBOURS:]
    bad[rows] = between.any(axis=(1, 2))
    # Or it is alone, or one of a few at the end of a file, and cannot follow the nearest packet with more support.
    is_small_camp = (own_counts == 0) | (
        (own_counts < EDGE_PACKETS) & ((rows < EDGE_PACKETS) | (rows >= count - EDGE_PACKETS))
    )
    follows = ~rivals.any(axis=1)
    for inward in (slice(NEIGHBOURS, None), slice(NEIGHBOURS - 1, None, -1)):
        nearest = np.take_along_axis(neighbour_rows[:, inward], rivals[:, inward].argmax(axis=1)[:, None], axis=1)[:, 0]
        follows |= rivals[:, inward].any(axis=1) & may_follow(rows, nearest, own_counts == 0)
    bad[rows] |= is_small_camp & ~follows
    return bad


def _mask_disordered(headers: Headers, valid: Numbers) -> Mask:
    """Packets that were sent between their neighbours but have no sequence between theirs, or the other way round.

    A late packet has both an older sequence and an older time, so it is not affected. If there is no sequence free
    between the neighbours, one of them is wrong, and nothing can be concluded. Several packets may have the same
    time, or sequence and time may both be wrong, so that the packet seems to arrive before it was sent: then it is
    rejected only where exactly one sequence is missing, which none of its neighbours has either, and if its own one is
    that of a neighbour, or too far away for packets that overtook each other.
    """
    bad = np.zeros(len(headers.number), np.bool_)
    every = headers.number[valid]
    number, sent = every, headers.sent[valid]
    if (np.diff(number) > 0).all() and (np.diff(sent) >= 0).all():
        return bad
    epoch = headers.epoch[valid]
    delay = headers.ts_recv[valid] - sent
    too_soon = delay[1:-1] < np.minimum(delay[:-2], delay[2:]) - MILLISECOND_NS
    low, high, early, late = number[:-2], number[2:], sent[:-2], sent[2:]
    number, sent = number[1:-1], sent[1:-1]
    judged = (high - low >= 2) & (high - low <= MAX_OVERTAKING) & (epoch[:-2] == epoch[2:]) & (epoch[1:-1] == epoch[2:])
    between = (low < number) & (number < high)
    wrong = (early < sent) & (sent < late) & ~between
    out = (high - low == 2) & ((number < low) | (number > high))
    for row in np.flatnonzero(out & judged).tolist():
        near = every[max(row + 1 - NEIGHBOURS, 0) : row + 2 + NEIGHBOURS]
        is_twice = np.count_nonzero(near == number[row]) > 1
        out[row] = low[row] + 1 not in near and (is_twice or abs(number[row] - low[row]) > NEIGHBOURS)
    wrong |= out & (((early <= sent) & (sent <= late)) | too_soon)
    wrong |= between & (early <= late) & ((sent < early - SECOND_NS) | (sent > late + SECOND_NS))
    bad[valid[1:-1][judged & wrong]] = True
    return bad
