"""Which groups a stream waits for."""

from __future__ import annotations

from typing import Any

import pytest

from umdf.lake.plan.frontier import SECOND_NS, ReadProgress

A, B = ("239.0.0.1", 30001), ("239.0.0.2", 30002)
WAIT_NS = 120 * SECOND_NS


def _file(group: tuple[str, int], first_s: int, last_s: int) -> dict[str, Any]:
    segment = (0, 72, 1, 20_000, 1, 2, 1, first_s * SECOND_NS, last_s * SECOND_NS, [], False)
    return {"flows": [list(group)], "splits": [{"segments": [segment]}]}


@pytest.mark.parametrize(
    ("length_s", "behind_s", "is_live"),
    [
        (10, 119, True),
        (10, 121, False),  # silent for longer than the wait
        (600, 600, True),  # its next file is about to be closed
        (600, 901, False),  # and should have been closed long since
    ],
)
def test_a_group_is_silent_when_its_next_file_should_have_come(length_s: int, behind_s: int, is_live: bool) -> None:
    files = [_file(A, 0, length_s), _file(B, 0, length_s), _file(A, length_s, length_s + behind_s)]
    live = ReadProgress(files).active_groups([A, B], WAIT_NS)
    assert set(live) == ({A, B} if is_live else {A})
    assert live[A] == (length_s + behind_s) * SECOND_NS


def test_a_group_without_files_is_not_waited_for() -> None:
    assert set(ReadProgress([_file(A, 0, 10)]).active_groups([A, B], WAIT_NS)) == {A}
