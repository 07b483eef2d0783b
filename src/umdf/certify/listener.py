"""Observes a real feed while somebody else plays the script, and ticks its steps in their order.

    listener = Listener(protocol, generation, segment, MBO, selection)
    listener.take(message), listener.take_book(state)   # as they come
    listener.results()

One line is enough. A step has passed once everything that it expects has been seen, and the next one begins there.
Steps that are not required may be left out by whoever plays. What traffic cannot show (that nothing changes, a
disconnected client, a replayer) is not executed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from umdf.certify.book_expectations import Unchanged
from umdf.certify.evidence import concerns
from umdf.certify.expectations import Expectation
from umdf.certify.observation import BookState, Observation, SeenMessage
from umdf.certify.operations import Operation
from umdf.certify.player import judge, not_executed
from umdf.certify.profile import Combination
from umdf.certify.recovery_expectations import HasOrders, IndexValue, Logon, ReplayAnswer
from umdf.certify.results import Outcome, StepResult
from umdf.certify.script.step import Section, Step
from umdf.certify.selection import Selection
from umdf.certify.stage import MAIN

MOST_MESSAGES = 2_000  # that one step is looked for in
PREVIOUS_CLOSING = ("5", "4")  # 269, 286
INVISIBLE = (Unchanged, HasOrders, Logon, ReplayAnswer, IndexValue)


@dataclass
class Listener:
    combination: Combination
    book_type: str
    security_id: int
    group: str
    selection: Selection
    closing_price: int = 0
    _messages: deque[SeenMessage] = field(default_factory=lambda: deque(maxlen=MOST_MESSAGES))
    _books: list[BookState] = field(default_factory=lambda: [BookState()])
    _done: dict[str, StepResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        steps = [(section, step) for section in self.selection.sections for step in self.selection.steps(section)]
        self._waiting = [(section, step) for section, step in steps if not self.why_not(section, step)]
        self._steps = steps

    @property
    def is_finished(self) -> bool:
        return not self._waiting

    @property
    def next_step(self) -> Step | None:
        return self._waiting[0][1] if self._waiting else None

    def why_not(self, section: Section, step: Step) -> str:
        """Why traffic cannot show a step, or nothing."""
        found = section.why_not(self.combination.protocol, self.combination.segment)
        if found:
            return found
        if section.is_of_indexes or step.role != MAIN:
            return "it concerns another instrument"
        if any(not isinstance(action, Operation) for action in step.actions):
            return "it is the client that disconnects or requests"
        expected = step.expected.get(self.book_type)
        if expected is None:
            return f"the script does not look at {self.book_type} here"
        return "" if self._visible(expected) else "traffic cannot show that nothing changes"

    @staticmethod
    def _visible(expected: Sequence[Expectation]) -> list[Expectation]:
        return [each for each in expected if not isinstance(each, INVISIBLE)]

    # What comes

    def take_book(self, state: BookState) -> None:
        """The book after a packet, before its messages are taken."""
        if state != self._books[-1]:
            self._books.append(state)

    def take(self, message: SeenMessage) -> None:
        if concerns(message, self._seen(())):
            self._messages.append(message)
            self._note_closing_price(message)

    def tick(self) -> Iterator[StepResult]:
        """The steps that have passed by now: the next one, or one after others that are not required."""
        for at, (section, step) in enumerate(self._waiting):
            result = judge(self.book_type, self._visible(step.expected[self.book_type]), self._seen(self._messages))
            if result.outcome == Outcome.PASS:
                where = section.id, section.title
                passed = StepResult(
                    step.id, step.description, step.is_required, Outcome.PASS, (), (result,), "", *where
                )
                self._done[step.id] = passed
                self._waiting = self._waiting[at + 1 :]
                following = self.next_step
                if following is None or not following.includes_previous:
                    self._messages.clear()
                    self._books = self._books[-1:]
                yield passed
                return
            if step.is_required and step.requirement != "C":
                return

    def results(self) -> Iterator[StepResult]:
        """All steps, in their order; required ones that were not seen have failed."""
        for section, step in self._steps:
            why_not = self.why_not(section, step)
            if step.id in self._done:
                yield self._done[step.id]
            elif why_not or not step.is_required or step.requirement == "C":
                yield not_executed(section, step, why_not or "not seen")
            else:
                where = section.id, section.title
                reason = "not seen until the end"
                yield StepResult(step.id, step.description, True, Outcome.FAIL, (), (), reason, *where)

    def _seen(self, messages: Sequence[SeenMessage] | deque[SeenMessage]) -> Observation:
        own = self.combination
        what = self.book_type, own.protocol, own.generation, self.security_id, self.group, self.closing_price
        return Observation(*what, tuple(messages), tuple(self._books))

    def _note_closing_price(self, message: SeenMessage) -> None:
        for entry in message.entries:
            is_own = entry.get(48) == str(self.security_id)
            if is_own and (entry.get(269), entry.get(286)) == PREVIOUS_CLOSING and 270 in entry:
                whole, _, rest = entry[270].partition(".")
                self.closing_price = int(whole) * 10**9 + int(rest.ljust(9, "0")[:9])
