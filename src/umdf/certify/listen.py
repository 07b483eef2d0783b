"""Listens to a real feed: finds the instrument on its channel, and gives its traffic to a `Listener`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from umdf.certify.client import state_of
from umdf.certify.listener import Listener
from umdf.certify.observation import SeenMessage
from umdf.certify.player import Progress
from umdf.certify.profile import Combination
from umdf.certify.results import Run, StepResult
from umdf.certify.runner import collect
from umdf.certify.selection import Selection
from umdf.errors import UsageError, one_of
from umdf.feed.channel_feed import FeedSettings
from umdf.feed.live import Live
from umdf.feed.tap import TapRecord
from umdf.transport.channels_file import ChannelAddresses

MODE = "a real feed, observed"
POLL_S = 0.05


@dataclass(frozen=True)
class ObservationTarget:
    """What is looked at."""

    symbol: str
    book_type: str  # MBO, MBP or TOB
    generation: str
    segment: str


def listen(
    channels: Sequence[ChannelAddresses],
    target: ObservationTarget,
    selection: Selection,
    progress: Progress,
    is_over: Callable[[], bool] = lambda: False,
) -> Run:
    """Listen until all steps have passed, or it is over."""
    found = [each for each in channels if each.book.upper() == target.book_type]
    if not found:
        raise UsageError(
            f"no channel with {target.book_type} books", f"use {one_of(sorted({each.book for each in channels}))}"
        )
    combination = Combination(found[0].protocol, target.generation, target.segment)
    feed = _Feed(target, combination, selection)

    def results() -> Iterator[StepResult]:
        with Live(found, settings=FeedSettings(keeps_joined=True), tap=feed.take) as live:
            while not is_over() and not feed.is_finished:
                live.poll(POLL_S)
                for step in feed.take_passed():
                    progress(step)
        yield from feed.results()

    return collect(combination, MODE, results(), lambda _: None)


class _Feed:
    """Tap records → the listener, once the instrument is known."""

    def __init__(self, target: ObservationTarget, combination: Combination, selection: Selection) -> None:
        self._target, self._combination, self._selection = target, combination, selection
        self._channel = -1
        self._listener: Listener | None = None
        self._passed: list[StepResult] = []

    @property
    def is_finished(self) -> bool:
        return self._listener is not None and self._listener.is_finished

    def take_passed(self) -> list[StepResult]:
        passed, self._passed = self._passed, []
        return passed

    def results(self) -> Iterator[StepResult]:
        if self._listener is None:
            raise UsageError(
                f"{self._target.symbol} was not found on the instrument stream",
                "check --symbol, --book and --channels",
            )
        return self._listener.results()

    def take(self, record: TapRecord) -> None:
        number, line = record.feed.key.number, record.line
        if line is None or self._channel not in (-1, number):
            return
        messages = [
            SeenMessage(number, line.stream, each.sequence, tuple(each.fix()), record.data) for each in record.messages
        ]
        if self._listener is None:
            self._find(number, messages)
        if self._listener is None:
            return
        if self._listener.security_id in record.after:
            self._listener.take_book(state_of(record.after[self._listener.security_id]))
        for message in messages:
            self._listener.take(message)
            self._passed += self._listener.tick()

    def _find(self, channel: int, messages: Sequence[SeenMessage]) -> None:
        for entry in (entry for message in messages for entry in message.entries):
            if entry.get(55) == self._target.symbol and 48 in entry:
                self._channel = channel
                what = self._combination, self._target.book_type, int(entry[48]), entry.get(1151, "")
                self._listener = Listener(*what, self._selection)


def seconds_from_now(seconds: float | None) -> Callable[[], bool]:
    """Whether so many seconds have passed."""
    if seconds is None:
        return lambda: False
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until
