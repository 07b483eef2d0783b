"""The outcome of a run: each step with what was expected, what came, and the evidence. JSON in both directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_EXECUTED = "n/e"


@dataclass(frozen=True)
class MessageEvidence:
    """A decoded message and its bytes."""

    channel: int
    stream: str
    sequence: int
    text: str  # fields as FIX writes them
    data: str  # bytes in base 16; of Binary, those of the packet


@dataclass(frozen=True)
class BookEvidence:
    """Rows of both sides, the best first."""

    bids: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What the client has seen on a channel of one book type. Of many messages the first and the last are kept."""

    messages: tuple[MessageEvidence, ...] = ()
    left_out: int = 0  # messages that are not among them
    before: BookEvidence = BookEvidence()
    after: BookEvidence = BookEvidence()
    replies: tuple[MessageEvidence, ...] = ()  # of a TCP Replayer


@dataclass(frozen=True)
class BookResult:
    """A step on a channel of one book type."""

    book_type: str
    outcome: Outcome
    expected: tuple[str, ...]
    failures: tuple[str, ...] = ()  # what was expected and what came
    evidence: Evidence = Evidence()


@dataclass(frozen=True)
class StepResult:
    id: str
    description: str
    is_required: bool
    outcome: Outcome
    actions: tuple[str, ...] = ()  # of the exchange and of the client
    books: tuple[BookResult, ...] = ()
    reason: str = ""  # why it was not executed, or what broke
    section: str = ""
    section_title: str = ""

    @property
    def failures(self) -> list[str]:
        found = [f"{book.book_type}: {failure}" for book in self.books for failure in book.failures]
        return [self.reason, *found] if self.outcome == Outcome.FAIL and self.reason else found


@dataclass(frozen=True)
class Run:
    """One combination, from its first step to its last."""

    combination: str
    protocol: str
    generation: str
    segment: str
    mode: str
    started: str  # ISO 8601, UTC
    seconds: float
    steps: tuple[StepResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Outcome, int]:
        found = Counter(step.outcome for step in self.steps)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def first_failure(self) -> StepResult | None:
        return next((step for step in self.steps if step.outcome == Outcome.FAIL), None)

    @property
    def has_passed(self) -> bool:
        """Whether all required steps that can be executed have passed, and there was one."""
        required = [step for step in self.steps if step.is_required]
        passed = [step for step in required if step.outcome == Outcome.PASS]
        return bool(passed) and not any(step.outcome == Outcome.FAIL for step in required)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "counts": self.counts, "has_passed": self.has_passed}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Run:
        """The inverse of `to_json`."""
        names = Run.__dataclass_fields__
        kept = {name: value for name, value in values.items() if name in names}
        return Run(**{**kept, "steps": tuple(map(_step, values["steps"])), "notes": tuple(values["notes"])})


def _step(values: dict[str, Any]) -> StepResult:
    books = tuple(map(_book, values["books"]))
    return StepResult(
        **{**values, "outcome": Outcome(values["outcome"]), "actions": tuple(values["actions"]), "books": books}
    )


def _book(values: dict[str, Any]) -> BookResult:
    evidence = values["evidence"]
    found = Evidence(
        _messages(evidence["messages"]),
        evidence["left_out"],
        _book_evidence(evidence["before"]),
        _book_evidence(evidence["after"]),
        _messages(evidence["replies"]),
    )
    texts = {name: tuple(values[name]) for name in ("expected", "failures")}
    return BookResult(**{**values, **texts, "outcome": Outcome(values["outcome"]), "evidence": found})


def _messages(values: Iterable[dict[str, Any]]) -> tuple[MessageEvidence, ...]:
    return tuple(MessageEvidence(**each) for each in values)


def _book_evidence(values: dict[str, Any]) -> BookEvidence:
    return BookEvidence(tuple(values["bids"]), tuple(values["asks"]))
