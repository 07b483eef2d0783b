"""Where the epochs of each line start and end."""

from __future__ import annotations

from typing import Any

from umdf.lake.plan.line_epochs import find_resets, last_sent, set_aside_lone_restarts
from umdf.lake.plan.segments import Segment, StreamLine

A, B = ("239.0.0.1", 30001), ("239.0.0.2", 30002)
LINES = {A: StreamLine("fast", "incremental", 72, 0), B: StreamLine("fast", "incremental", 72, 1)}
SECOND_NS, MILLISECOND_NS = 10**9, 10**6
SENT = 1_800_000_000 * SECOND_NS


def survey(*resets: tuple[int, int, int]) -> dict[str, Any]:
    return {"flows": [list(A), list(B)], "resets": list(resets)}


def test_resets_of_two_lines_a_millisecond_apart_are_one_epoch() -> None:
    later = SENT + MILLISECOND_NS
    found = find_resets([survey((0, SENT + 5, SENT)), survey((1, later + 5, later))], LINES)
    assert found == {A: ((SENT + 5, SENT),), B: ((later + 5, SENT),)}


def test_a_line_that_lost_the_reset_takes_the_time_of_the_other() -> None:
    again = survey((0, SENT + 9, SENT))  # the same reset in another file
    assert find_resets([survey((0, SENT + 5, SENT)), again], LINES) == {
        A: ((SENT + 5, SENT),),
        B: ((SENT + 5, SENT),),
    }


def test_two_resets_of_a_line_are_two_epochs() -> None:
    later = SENT + MILLISECOND_NS
    found = find_resets([survey((0, SENT, SENT), (1, SENT, SENT), (0, later, later), (1, later, later))], LINES)
    assert found == {A: ((SENT, SENT), (later, later)), B: ((SENT, SENT), (later, later))}


def test_a_line_that_goes_on_does_not_take_the_reset_of_the_other() -> None:
    """Where a restart would be seen in the numbers, a second before the reset is not needed to know it."""
    for first, goes_on in ((365, True), (5, False)):
        runs = [
            (0, SENT - 300 * MILLISECOND_NS, SENT, first, SENT + 5 * SECOND_NS, 900),
            (1, SENT - 290 * MILLISECOND_NS, SENT, first, SENT + 5 * SECOND_NS, 900),
        ]
        found = find_resets([survey((1, SENT + 5, SENT)) | {"runs": runs}], LINES)
        assert found == {A: () if goes_on else ((SENT + 5, SENT),), B: ((SENT + 5, SENT),)}


def test_a_recording_that_begins_behind_a_lost_reset_is_of_the_epoch_of_the_other_line() -> None:
    """Line B is received 15 ms later, with the reset."""
    begin = SENT - 15 * MILLISECOND_NS
    for first, is_near in ((20, True), (65, False)):
        end = SENT + 5 * SECOND_NS
        runs = [(0, begin, begin, first, end, 900), (1, SENT + 5, SENT, 3, end, 900)]
        found = find_resets([survey((1, SENT + 5, SENT)) | {"runs": runs}], LINES)
        assert found == {A: ((SENT + 5 - SECOND_NS, SENT),) if is_near else (), B: ((SENT + 5, SENT),)}


def part(last: int, ts_last: int) -> Segment:
    return Segment({}, 0, A, 1, 0, 1, last, last, 0, ts_last, [[last, ts_last]], [], None)


def test_a_line_that_restarts_alone_shortly_before_a_silence_is_set_aside() -> None:
    """Heartbeats of the other line show that its epoch goes on."""
    lines = {A: StreamLine("sbe", "incremental", 72, 0), B: StreamLine("sbe", "incremental", 72, 1)}

    def segment(group: tuple[str, int], epoch: int, ts_first_ms: int, ts_last_ms: int, heartbeat_ms: int) -> Segment:
        first, last, heartbeat = (SENT + ms * MILLISECOND_NS for ms in (ts_first_ms, ts_last_ms, heartbeat_ms))
        announced = (900, heartbeat) if heartbeat_ms else None
        return Segment({}, 0, group, epoch, 1, 1, 900, 900, first, last, [[900, last]], [], announced)

    for heartbeat_ms, is_set_aside in ((7_000, True), (0, False)):
        parts = [
            segment(A, 274, 0, 2_600, heartbeat_ms),
            segment(B, 274, 0, 2_000, 0),
            segment(B, 374, 2_010, 2_700, 0),
        ]
        _, found = set_aside_lone_restarts(parts, lines, lambda part: [int(part.epoch or 0)])
        assert found == ({(1, B)} if is_set_aside else set())


def test_heartbeats_say_what_was_sent_last() -> None:
    assert last_sent([part(500, 100)], []) == 500
    assert last_sent([part(500, 100), part(400, 90)], [(520, 110)]) == 520
    assert last_sent([part(500, 100)], [(90_000, 110)]) == 90_000  # nothing came later
    assert last_sent([part(500, 100)], [(90_000, 50)]) == 500  # later packets contradict it
