"""Plays the script: an exchange, a client, and the outcome of each step.

run = certify(Combination("fast", "priority", "equities"), directory)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from umdf.certify.client import OurClient
from umdf.certify.evidence import evidence_of
from umdf.certify.expectations import Expectation, Message
from umdf.certify.observation import INCREMENTAL, MBO, SNAPSHOT, Observation
from umdf.certify.operations import Operation
from umdf.certify.profile import (
    BOOK_CHANNELS,
    COMP_ID,
    DAY_START,
    INDEX_CHANNEL,
    WEEK_START,
    Combination,
    exchange_settings,
)
from umdf.certify.recovery_expectations import Snapshot
from umdf.certify.results import BookResult, Outcome, Run, StepResult
from umdf.certify.script.step import Action, Section, Step
from umdf.certify.selection import EVERYTHING, Selection
from umdf.certify.stage import STRATEGY, Stage
from umdf.certify.week import play_week
from umdf.errors import UmdfError
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.outputs import sinks_of, udp_lines
from umdf.exchange.replayer.replayers import Replayers
from umdf.transport.channels_file import HISTORICAL_REPLAYER, REPLAYER, ReplayerAddresses
from umdf.transport.free_ports import free_ports

Progress = Callable[[StepResult], None]


@contextmanager
def open_session(
    combination: Combination, directory: Path, selection: Selection = EVERYTHING
) -> Iterator[tuple[Stage, OurClient]]:
    """An exchange on the day of the script, and our client, connected to it over loopback sockets."""
    ports = iter(free_ports(16))
    needs_week = combination.has_replayer and any(section.needs_week for section in selection.sections)
    start = WEEK_START if needs_week else DAY_START - timedelta(days=1)
    settings = exchange_settings(combination, directory, lambda: next(ports), start=start)
    with ExitStack() as stack:
        openers = []
        addresses: dict[str, ReplayerAddresses] = {}
        if settings.replayers:
            replayers = Replayers(settings.history, settings.replayers, lambda: exchange.now_ns)
            stack.callback(replayers.stop)
            openers.append(replayers.open_line)
            for name in (REPLAYER, HISTORICAL_REPLAYER):
                where = replayers.servers[name].address
                addresses[name] = ReplayerAddresses(COMP_ID, settings.replayers[name].comp_id, (where,))
        exchange = Exchange(settings, sinks_of(settings, openers, [udp_lines(ttl=0)]))
        stack.callback(exchange.close)
        if settings.replayers:
            replayers.start()
        stage = Stage(exchange, combination)
        play_week(stage)
        client = OurClient(settings.addresses, addresses, lambda: packets_sent(exchange))
        stack.callback(client.close)
        client.connect(starts_again=True)
        stage.after_advance = client.poll
        stage.advance(1.5)  # the client synchronizes
        client.settle()
        yield stage, client


def packets_sent(exchange: Exchange) -> dict[tuple[int, str], int]:
    """By channel and stream."""
    return {
        (publisher.settings.channel, stream): packets
        for publisher in exchange.publication.publishers
        for stream, _, _, packets in publisher.sequences()
    }


def certify(
    combination: Combination,
    directory: Path,
    selection: Selection = EVERYTHING,
    progress: Progress = lambda _: None,
) -> Run:
    """Play the script on our exchange and our client."""
    started, began = datetime.now(UTC), time.monotonic()
    results: list[StepResult] = []
    with open_session(combination, directory, selection) as (stage, client):
        for result in Player(combination, stage, client).play(selection):
            results.append(result)
            progress(result)
    return Run(
        str(combination),
        combination.protocol,
        combination.generation,
        combination.segment,
        "our exchange, our client",
        started.isoformat(timespec="seconds"),
        round(time.monotonic() - began, 3),
        tuple(results),
    )


class Player:
    """Plays steps one after the other, and looks at what the client has seen of each."""

    def __init__(self, combination: Combination, stage: Stage, client: OurClient) -> None:
        self._combination, self._stage, self._client = combination, stage, client

    def play(self, selection: Selection) -> Iterator[StepResult]:
        for section in selection.sections:
            why_not = section.why_not(self._combination.protocol, self._combination.segment)
            if why_not:
                yield from (not_executed(section, step, why_not) for step in selection.steps(section))
                continue
            problem = self._perform(section.start)
            for step in selection.steps(section):
                yield self._play(section, step, problem)

    def _play(self, section: Section, step: Step, problem: str) -> StepResult:
        roles_id = self._stage.security_id(step.role)
        if not step.includes_previous:
            self._client.begin_step()
            for channel in self._channels(section, step):
                self._client.mark_books(channel, roles_id)
        problem = problem or self._perform(step.actions, step.settle_s)
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

    def _perform(self, actions: Sequence[Action], settle_s: float = 0.3) -> str:
        """Do what a step says; what is wrong with it, or nothing."""
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
