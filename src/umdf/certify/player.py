"""Plays steps one after the other, and judges what a client has seen of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from umdf.certify.client_actions import ClientConnections
from umdf.certify.evidence import evidence_of
from umdf.certify.expectations import Expectation, Message
from umdf.certify.observation import INCREMENTAL, MBO, SNAPSHOT, BookState, Observation, SeenMessage
from umdf.certify.operations import Operation
from umdf.certify.profile import BOOK_CHANNELS, INDEX_CHANNEL, Combination
from umdf.certify.recovery_expectations import Snapshot
from umdf.certify.results import BookResult, Outcome, StepResult
from umdf.certify.script.step import Action, Section, Step
from umdf.certify.selection import Selection
from umdf.certify.stage import STRATEGY, Stage
from umdf.errors import UmdfError

Progress = Callable[[StepResult], None]


class CertifiedClient(ClientConnections, Protocol):
    """A client that does what steps say, and whose evidence can be read."""

    troubles: list[str]  # of the network or the replayers, since the step began

    def begin_step(self) -> None: ...

    def mark_books(self, channel: int, security_id: int) -> None: ...

    def settle(self) -> None: ...

    def books(self, channel: int, security_id: int) -> tuple[BookState, ...]: ...

    def messages(self, channel: int, streams: Sequence[str]) -> tuple[SeenMessage, ...]: ...

    def replies(self) -> tuple[SeenMessage, ...]: ...


class Player:
    """Plays steps one after the other, and looks at what the client has seen of each."""

    def __init__(
        self,
        combination: Combination,
        stage: Stage,
        client: CertifiedClient,
        announce: Callable[[Step], None] = lambda _: None,
    ) -> None:
        """`announce` gets each step before it is played."""
        self._combination, self._stage, self._client, self._announce = combination, stage, client, announce

    def play(self, selection: Selection) -> Iterator[StepResult]:
        for section in selection.sections:
            why_not = section.why_not(self._combination.protocol, self._combination.segment)
            if why_not:
                yield from (not_executed(section, step, why_not) for step in selection.steps(section))
                continue
            problem = self.perform(section.start)
            for step in selection.steps(section):
                yield self._play(section, step, problem)

    def _play(self, section: Section, step: Step, problem: str) -> StepResult:
        self._announce(step)
        security_id = self._stage.security_id(step.role)
        if not step.includes_previous:
            self._client.begin_step()
            for channel in self._channels(section, step):
                self._client.mark_books(channel, security_id)
        problem = problem or self.perform(step.actions, step.settle_s)
        books = tuple(
            judge(book_type, expectations, self._observe(section, step, book_type, expectations))
            for book_type, expectations in step.expected.items()
            if book_type in self._combination.book_types
        )
        troubles = [*([problem] if problem else []), *self._client.troubles]
        has_failed = bool(troubles) or any(book.outcome == Outcome.FAIL for book in books)
        return StepResult(
            step.id,
            step.description,
            step.is_required,
            Outcome.FAIL if has_failed else Outcome.PASS,
            tuple(action_text(action) for action in step.actions),
            books,
            "; ".join(troubles),
            section.id,
            section.title,
        )

    def perform(self, actions: Sequence[Action], settle_s: float = 0.3) -> str:
        """Do what a step says; returns what went wrong, or nothing."""
        try:
            for action in actions:
                if isinstance(action, Operation):
                    action.run(self._stage)
                    self._stage.exchange.flush()
                else:
                    action.perform(self._client, self._stage)
        except (UmdfError, KeyError) as error:
            return f"the exchange could not do it: {error}"
        self._stage.advance(settle_s)
        self._client.settle()
        return ""

    def _channels(self, section: Section, step: Step) -> list[int]:
        if section.is_of_indexes:
            return [INDEX_CHANNEL]
        return [BOOK_CHANNELS[book_type] for book_type in step.expected if book_type in self._combination.book_types]

    def _observe(
        self, section: Section, step: Step, book_type: str, expectations: Sequence[Expectation]
    ) -> Observation:
        channel = INDEX_CHANNEL if section.is_of_indexes else BOOK_CHANNELS[book_type]
        security_id = self._stage.security_id(step.role)
        return Observation(
            book_type,
            self._combination.protocol,
            self._combination.generation,
            security_id,
            self._stage.group(step.role),
            self._stage.closing_price,
            self._client.messages(channel, streams_of(expectations)),
            self._client.books(channel, security_id),
            self._client.replies() if book_type == MBO else (),
            self._stage.leg_ids if step.role == STRATEGY else (),
        )


def streams_of(expectations: Sequence[Expectation]) -> list[str]:
    """The streams that must be decoded to check these."""
    found = {INCREMENTAL}
    for expectation in expectations:
        if isinstance(expectation, Snapshot):
            found.add(SNAPSHOT)
        if isinstance(expectation, Message):
            found.add(expectation.stream)
    return sorted(found)


def judge(book_type: str, expectations: Sequence[Expectation], seen: Observation) -> BookResult:
    """Check an observation against what is expected."""
    failures = tuple(
        f"expected {expectation.text}; {failure}"
        for expectation in expectations
        if (failure := expectation.failure(seen)) is not None
    )
    outcome = Outcome.FAIL if failures else Outcome.PASS
    texts = tuple(expectation.text for expectation in expectations)
    return BookResult(book_type, outcome, texts, failures, evidence_of(seen))


def not_executed(section: Section, step: Step, reason: str) -> StepResult:
    where = section.id, section.title
    return StepResult(step.id, step.description, step.is_required, Outcome.NOT_EXECUTED, (), (), reason, *where)


def action_text(action: Action) -> str:
    return f"the {'exchange' if isinstance(action, Operation) else 'client'} {action.text}"
