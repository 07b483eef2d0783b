"""Two lines into one: held against a slow merge of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.sync.arbitration import ArbitrationResult, Gap, LineArbiter
from umdf.sync.raw_units import RawUnits

MS = 1_000_000


def pieces(*rows: tuple[int, int, int], epoch: int = 7) -> RawUnits:
    """(sequence, time in ms, line); the content of a piece is its number."""
    sequence = np.array([row[0] for row in rows], np.int64)
    content = sequence.astype("<u8").view(np.uint8)
    start = 8 * np.arange(len(rows), dtype=np.int64)
    return RawUnits(
        content,
        start,
        start + 8,
        sequence,
        np.full(len(rows), epoch, np.int64),
        np.array([row[1] * MS for row in rows], np.int64),
        np.zeros(len(rows), np.uint16),
        np.array([row[2] for row in rows], np.uint16),
    )


def numbers(merged: ArbitrationResult) -> list[int]:
    found = merged.units
    content = [int(found.buffer[a:b].view("<u8")[0]) for a, b in zip(found.start, found.end, strict=True)]
    assert content == found.sequence.tolist()  # the bytes went with the numbers
    return content


def test_each_number_comes_once_and_the_first_arrival_is_kept():
    merged = LineArbiter().arbitrate(pieces((5, 1, 0), (5, 2, 1), (6, 3, 1), (6, 4, 0)), 10 * MS)
    assert numbers(merged) == [5, 6]
    assert merged.units.line.tolist() == [0, 1]
    assert (merged.duplicates, merged.late, merged.gaps) == (2, 0, [])


def test_a_packet_lost_on_one_line_is_no_gap():
    lines = LineArbiter()
    assert numbers(lines.arbitrate(pieces((1, 1, 0), (3, 2, 0)), 3 * MS)) == [1]
    assert lines.waiting_count == 1
    assert numbers(lines.arbitrate(pieces((1, 4, 1), (2, 5, 1), (3, 6, 1)), 7 * MS)) == [2, 3]


def test_a_packet_lost_on_both_lines_opens_one_gap_when_the_wait_is_over():
    lines = LineArbiter()
    lines.arbitrate(pieces((1, 1, 0), (4, 2, 0), (4, 3, 1)), 4 * MS)
    assert not lines.arbitrate(pieces((5, 12, 0)), 21 * MS).gaps
    merged = lines.arbitrate(pieces((6, 23, 0)), 23 * MS)
    assert merged.gaps == [Gap(7, 2, 3, 2 * MS)]
    assert merged.gap_rows == [0]
    assert numbers(merged) == [4, 5, 6]


def test_what_comes_after_its_gap_is_late():
    lines = LineArbiter()
    lines.arbitrate(pieces((1, 1, 0), (3, 2, 0)), 100 * MS)
    merged = lines.arbitrate(pieces((2, 101, 1), (1, 102, 1)), 200 * MS)
    assert (numbers(merged), merged.late, merged.duplicates) == ([], 1, 1)


def test_a_new_epoch_begins_with_one():
    lines = LineArbiter()
    lines.arbitrate(pieces((900, 1, 0)), 2 * MS)
    merged = lines.arbitrate(pieces((2, 50, 0), (3, 51, 0), epoch=8), 100 * MS)
    assert merged.gaps == [Gap(8, 1, 1, 50 * MS)]
    assert numbers(merged) == [2, 3]
    assert numbers(lines.arbitrate(pieces((901, 60, 1)), 200 * MS)) == []  # the old one is over


def test_finish_turns_every_hole_into_a_gap():
    lines = LineArbiter()
    lines.arbitrate(pieces((1, 1, 0), (3, 2, 0)), 3 * MS)
    merged = lines.finish()
    assert numbers(merged) == [3]
    assert merged.gaps == [Gap(7, 2, 2, 2 * MS)]
    assert lines.finish().gaps == []


@given(st.data())
def test_whatever_the_lines_lose_the_stream_is_what_either_had(data: st.DataObject):
    count = data.draw(st.integers(1, 60))
    had = [data.draw(st.lists(st.booleans(), min_size=count, max_size=count)) for _ in range(2)]
    rows = [(n + 1, 2 * n + line, line) for line in range(2) for n in range(count) if had[line][n]]
    rows.sort(key=lambda row: row[1])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    lines, found, gaps = LineArbiter(), [], []
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[first:last]
        now = part[-1][1] if part else 0
        merged = lines.arbitrate(pieces(*part), now * MS)
        found += numbers(merged)
        gaps += [n for gap in merged.gaps for n in range(gap.first, gap.last + 1)]
    merged = lines.finish()
    found += numbers(merged)
    gaps += [n for gap in merged.gaps for n in range(gap.first, gap.last + 1)]
    expected = [n + 1 for n in range(count) if had[0][n] or had[1][n]]
    assert found == expected
    assert gaps == [n for n in range(expected[0], expected[-1] + 1) if n not in expected] if expected else gaps == []


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
def test_compacted_units_hold_only_their_own_bytes(size: int):
    buffer = np.arange(200, dtype=np.uint8)
    start = np.array([3, 100], np.int64)
    zeros = np.zeros(2, np.int64)
    whole = RawUnits(buffer, start, start + size, zeros, zeros, zeros, *np.zeros((2, 2), np.uint16))
    packed = whole.compacted()
    assert packed.buffer.tobytes() == buffer[3 : 3 + size].tobytes() + buffer[100 : 100 + size].tobytes()
