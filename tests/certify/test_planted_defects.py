"""The checks can fail: each planted defect is found by the step that it concerns, with a message that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from certify.planted_defects import DEFECTS, Defect, planted

from umdf.certify.client import OurClient
from umdf.certify.player import Player
from umdf.certify.profile import HEARTBEAT_S, Combination
from umdf.certify.results import Outcome
from umdf.certify.runner import open_session
from umdf.certify.selection import select_steps
from umdf.certify.stage import STRATEGY, Stage

IN_SHORT_RUN = {"no heartbeat", "missing delete", "wrong state code", "no statistics reset"}
Sessions = dict[Combination, tuple[Stage, OurClient]]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionPool]:
    with ExitStack() as stack:
        yield SessionPool(tmp_path_factory.mktemp("certify"), stack)


class SessionPool:
    """One session for each combination: sections start from books of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack, self._open = directory, stack, Sessions()

    def of(self, combination: Combination) -> tuple[Stage, OurClient]:
        if combination not in self._open:
            directory = self._directory / f"{len(self._open)}"
            self._open[combination] = self._stack.enter_context(open_session(combination, directory))
        return self._open[combination]


def start_again(stage: Stage, client: OurClient) -> None:
    """After a defect: what it has left behind is forgotten."""
    exchange = stage.exchange
    if stage.is_listed(STRATEGY):
        exchange.delete_instrument(stage.symbol(STRATEGY))
    stage.clear_books()
    stage.rejoin()
    stage.widen_auction_band()
    exchange.trading.end_of_day("")  # the statistics of its trades are reset
    client.connect(starts_again=True)
    heartbeat_s = HEARTBEAT_S[stage.combination.protocol]
    for _ in range(2):
        stage.advance(heartbeat_s + 1, 10**10)
    client.settle()


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(each, marks=() if each.name in IN_SHORT_RUN else pytest.mark.full_size, id=each.name)
        for each in DEFECTS
    ],
)
def test_a_planted_defect_is_found_at_its_step(defect: Defect, sessions: SessionPool) -> None:
    stage, client = sessions.of(defect.combination)
    try:
        with planted(defect, stage):
            results = list(Player(defect.combination, stage, client).play(select_steps(only=defect.section)))
    finally:
        start_again(stage, client)
    failed = [result for result in results if result.outcome == Outcome.FAIL]
    assert [result.id for result in failed[:1]] == [defect.step], [result.failures for result in failed[:2]]
    assert defect.said in " | ".join(failed[0].failures)


def test_there_are_at_least_25_defects() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 25
