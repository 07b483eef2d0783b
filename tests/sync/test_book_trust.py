"""The rules of trust of a book, one by one, on the kernels that decide them: for the rows of a day, and for a live book
that holds updates back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from sync.test_channel import PETR4, empty_book, events

from umdf.book.engine import Books
from umdf.buffers import buffer_address
from umdf.sync import book_trust_kernel as trust
from umdf.sync import update_gate_kernel as gate
from umdf.sync.trust import BookTrust

ADD, CLEAR, BID, NEITHER, NULL = ord("A"), ord("R"), ord("B"), ord("N"), trust.NULL
EMPTY = "empty book"
IMPOSSIBLE = -13  # an outcome below zero: an unknown action, say
HEALTHY, UNVERIFIED, STALE = "healthy", "unverified", "stale"

Row = tuple[int | str, int] | tuple[int | str, int, int]  # RptSeq or EMPTY, gaps before the row, outcome


def trust_after(*rows: Row) -> list[str]:
    """The state of one book after each row."""
    count = len(rows)
    is_empty = np.array([row[0] == EMPTY for row in rows])
    columns = {
        trust.BOOK: np.zeros(count, np.int32),
        trust.ACTION: np.where(is_empty, CLEAR, ADD).astype(np.uint8),
        trust.SIDE: np.where(is_empty, NEITHER, BID).astype(np.uint8),
        trust.FLAGS: np.zeros(count, np.int32),
        trust.RPT_SEQ: np.array([NULL if isinstance(row[0], str) else row[0] for row in rows], np.int64),
        trust.OUTCOMES: np.array([row[2] if len(row) == 3 else 1 for row in rows], np.int8),
        trust.GAPS: np.array([row[1] for row in rows], np.int64),
        trust.TIMES: np.arange(count, dtype=np.int64),
        trust.STATES: np.zeros((1, trust.STATE_COLUMNS), np.int64),
        trust.BAD: np.zeros(count, np.uint8),
        trust.LOST_FROM: np.zeros(count, np.int64),
        trust.LOST_UPDATES: np.zeros(count, np.int64),
        trust.ANSWERS: np.zeros(count, np.uint8),
    }
    arguments = np.zeros(trust.TRUST_ARGUMENTS, np.int64)
    arguments[trust.ROWS] = count
    for place, column in columns.items():
        arguments[place] = buffer_address(column)
    trust.track_trust(buffer_address(arguments))
    return [STALE if bits & trust.IS_STALE else UNVERIFIED if bits else HEALTHY for bits in columns[trust.BAD].tolist()]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 0), (2, 0), (3, 0)], [HEALTHY] * 3),
        (
            [(1, 0), (2, 1), (40, 1)],
            [HEALTHY, UNVERIFIED, STALE],
        ),  # it proves nothing after so few updates
        ([(1, 0), (3, 0)], [HEALTHY, STALE]),
        ([(1, 0), (3, 1)], [HEALTHY, STALE]),
        ([(5, 0)], [STALE]),  # its first update is 1
        ([(5, 1)], [STALE]),
        ([(1, 1)], [HEALTHY]),
        ([(1, 0), (2, 0), (2, 0), (1, 0)], [HEALTHY] * 4),  # a snapshot may have them already
        ([(7, 0), (EMPTY, 0), (9, 0)], [STALE, HEALTHY, HEALTHY]),  # any number may follow an Empty Book
        ([(1, 0), (EMPTY, 1), (1, 1)], [HEALTHY] * 3),
        ([(1, 0), (EMPTY, 0), (4, 1)], [HEALTHY, HEALTHY, STALE]),
        ([(1, 0), (EMPTY, 0), (1, 1)], [HEALTHY] * 3),
        ([(1, 0), (2, 0, IMPOSSIBLE), (3, 0)], [HEALTHY, STALE, STALE]),
    ],
)
def test_rules_of_a_book(rows: list[Row], expected: list[str]) -> None:
    assert trust_after(*rows) == expected


@pytest.mark.parametrize(("count", "expected"), [(1, UNVERIFIED), (32, UNVERIFIED), (33, HEALTHY), (200, HEALTHY)])
def test_the_next_rpt_seq_answers_a_gap_unless_the_book_had_few_updates(count: int, expected: str) -> None:
    """4.2.9: an Empty Book may have been lost with as many updates as the book had before it."""
    rows: list[Row] = [(number, 0) for number in range(1, count + 1)]
    following: list[Row] = [(count + 1 + number, 1) for number in range(100)]
    assert trust_after(*rows, *following)[count:] == [expected] * 100
    assert trust_after(*rows, *following, (EMPTY, 1), (1, 1))[-2:] == [HEALTHY] * 2


@pytest.mark.parametrize("restarted", [1, 2, 8, 9])
def test_lost_empty_book_restarts_rpt_seq_and_leaves_the_book_stale(restarted: int) -> None:
    """4.2.9: RptSeq restarts after an Empty Book. If that was lost, a lower number is new, not old."""
    rows: list[Row] = [(number, 0) for number in range(1, 10)]
    assert trust_after(*rows, (restarted, 1), (restarted + 1, 1))[-2:] == [STALE, STALE]
    assert trust_after(*rows, (restarted, 1), (EMPTY, 1), (1, 1))[-2:] == [HEALTHY, HEALTHY]


def live_trust_after(*rows: Row) -> list[str]:
    """The same as `trust_after` of a live book. A unit has one row, and so has a gap."""
    live, found, gaps, last_gap, sequence = BookTrust(Books(requires_full_history=True)), [], 0, -1, 0
    for rpt_seq, gaps_before, *_ in rows:
        if gaps_before > gaps:
            gaps, last_gap, sequence = gaps_before, sequence + 1, sequence + 1
        sequence += 1
        unit = empty_book(sequence, PETR4) if isinstance(rpt_seq, str) else events(sequence, (PETR4, rpt_seq, 1))
        live.gate(unit.rows("mbo"), np.array([sequence]), np.array([last_gap]))
        state = live.states[live.number_of(PETR4, lending=False)]
        level = STALE if state[gate.S_STALE] else HEALTHY
        found.append(UNVERIFIED if level == HEALTHY and last_gap > state[gate.S_VERIFIED] else level)
    return found


def random_rows(random: Random, count: int) -> list[Row]:
    """Of a book that is emptied now and then, of which some updates are lost and others come twice."""
    rows, rpt_seq, gaps = list[Row](), 0, 0
    loss, reset = random.choice((0.0, 0.02, 0.2)), random.choice((0.0, 0.01, 0.1))
    while len(rows) < count:
        is_empty = random.random() < reset
        rpt_seq = 0 if is_empty else rpt_seq + 1
        if random.random() < loss:  # this one is lost, with others or without
            gaps += 1
            rpt_seq += random.choice((0, 0, 1, 5))
        elif random.random() < loss / 4:
            gaps += 1  # of other instruments
        else:
            rows.append((EMPTY if is_empty else rpt_seq, gaps))
            if random.random() < 0.02 and rpt_seq > 3:
                rows.append((rpt_seq - random.randint(0, 2), gaps))
    return rows


def test_rows_of_a_day_and_live_books_are_trusted_alike(sized: Callable[[int, int], int]) -> None:
    for seed in range(sized(40, 5_000)):
        rows = random_rows(Random(seed), 150)
        assert live_trust_after(*rows) == trust_after(*rows), f"seed {seed}"
