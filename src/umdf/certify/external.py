"""Our exchange plays the script on given addresses, for a client of a third party.

The person at the client confirms each step, or the client's log is read (`external_client`) and checked as our own
client is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from umdf.certify.external_client import Instruct, LoggedClient
from umdf.certify.player import Player, Progress, action_text, not_executed
from umdf.certify.profile import HEARTBEAT_S, Combination
from umdf.certify.results import Outcome, Run, StepResult
from umdf.certify.runner import collect
from umdf.certify.script.step import Section, Step
from umdf.certify.selection import Selection
from umdf.certify.stage import Stage
from umdf.transport.channels_file import LOOPBACK

MODE = "our exchange, external client"


@dataclass(frozen=True)
class ExternalSettings:
    first_port: int = 20_001  # of the channels, then of the replayers; one port for each stream
    interface: str = LOOPBACK
    settle_s: float = 2.0  # of real time, for the client to receive and to write its log
    speed: float = 1.0  # of the exchange's clock
    patience_s: float = 300.0  # of real time, until the client has started


def play_with_log(
    combination: Combination,
    stage: Stage,
    selection: Selection,
    log: Path,
    instruct: Instruct,
    settings: ExternalSettings,
    progress: Progress,
) -> Run:
    """Check what the client writes to its log."""
    client = LoggedClient(log, instruct, stage, settle_s=settings.settle_s, speed=settings.speed)
    stage.after_advance = client.poll
    player = Player(combination, stage, client, lambda step: instruct({"step": step.id}))
    client.connect(starts_again=True)
    try:
        client.wait_for_log(settings.patience_s)
        stage.advance(2 * HEARTBEAT_S[combination.protocol] + 1)  # it synchronizes on an idle stream
        client.settle()
        return collect(combination, MODE, player.play(selection), progress)
    finally:
        instruct({"client": "end"})


# Requests the outcome of a step while the exchange goes on: called again until it returns one.
ConfirmStep = Callable[[Step, tuple[str, ...]], Outcome | None]


def play_with_person(
    combination: Combination,
    stage: Stage,
    selection: Selection,
    confirm: ConfirmStep,
    instruct: Instruct,
    progress: Progress,
) -> Run:
    """A person at the client says what it has shown."""
    client = _InstructedClient(instruct, stage)
    stage.after_advance = client.poll
    player = Player(combination, stage, client)

    def results() -> Iterator[StepResult]:
        for section in selection.sections:
            why_not = section.why_not(combination.protocol, combination.segment)
            problem = "" if why_not else player.perform(section.start)
            for step in selection.steps(section):
                yield not_executed(section, step, why_not) if why_not else play(section, step, problem)

    def play(section: Section, step: Step, problem: str) -> StepResult:
        problem = problem or player.perform(step.actions, step.settle_s)
        actions, outcome = tuple(action_text(action) for action in step.actions), None
        while not problem and (outcome := confirm(step, actions)) is None:
            stage.advance(0.1)
        where = section.id, section.title
        found = outcome or Outcome.FAIL
        reason = problem or "confirmed by a person"
        return StepResult(step.id, step.description, step.is_required, found, actions, (), reason, *where)

    return collect(combination, MODE, results(), progress)


class _InstructedClient(LoggedClient):
    """Without a log: instructions only."""

    def __init__(self, instruct: Instruct, stage: Stage) -> None:
        super().__init__(Path(), instruct, stage, settle_s=0.0)

    def _read(self) -> None:
        pass
