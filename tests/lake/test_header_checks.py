"""Which headers do not fit those around them: cases that a whole day seldom has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from umdf.lake.tasks.damaged_headers import Headers, mask_far_sequences, mask_wrong_sequences
from umdf.market.families import NULL


def headers(number: Sequence[int], epoch: Sequence[int]) -> Headers:
    count = len(number)
    nothing, times = np.zeros(count, np.int64), np.arange(count) * 1_000_000
    numbers = np.array(number, np.int64), nothing, np.array(epoch, np.int64)
    return Headers(
        *numbers,
        times,
        times,
        100 * np.arange(count),
        nothing,
        nothing + 1,
        np.zeros(count, np.bool_),
        nothing,
        nothing,
    )


@pytest.mark.parametrize("before", [[19, 20], [20], [17, 18, 19, 20, 21, 22]])
def test_a_file_may_begin_with_the_end_of_a_loop(before: list[int]) -> None:
    number, epoch = [*before, *range(1, 40)], [NULL] * len(before) + [7] * 39
    assert not mask_far_sequences(headers(number, epoch)).any()


@pytest.mark.parametrize("place", [0, 5, 38])
def test_a_wrong_bit_is_detected(place: int) -> None:
    number = list(range(1, 40))
    number[place] |= 1 << 22
    assert np.flatnonzero(mask_far_sequences(headers(number, [7] * 39))).tolist() == [place]


def test_packets_that_overtook_each_other_are_not_damaged() -> None:
    """Two lines' worth of faults at once: one packet was lost, and the one after the next came early."""
    number = np.array([*range(500, 547), 549, 548, *range(550, 580)])
    found = headers(number.tolist(), [7] * len(number))
    sent = number * 1_000_000
    received = np.where(number == 549, sent + 1_100_000, sent + 3_000_000)
    assert not mask_wrong_sequences(found._replace(sent=sent, ts_recv=received)).any()


def test_what_continues_the_numbering_is_not_damaged_among_late_copies_of_old_packets() -> None:
    copies = [4_100, 210, 2_950, 1_200, 3_300, 470, 1_900, 2_300, 90, 3_800]
    number = [*range(4_900, 5_000), *copies, 5_000, *copies[::-1], 5_001, *copies]
    first, second = number.index(5_000), number.index(5_001)
    assert not mask_far_sequences(headers(number, [7] * len(number)))[[first, second]].any()
    number[first] |= 1 << 20
    assert mask_far_sequences(headers(number, [7] * len(number)))[[first, second]].tolist() == [True, False]
