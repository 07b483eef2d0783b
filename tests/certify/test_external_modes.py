"""The log of an external client, the example that writes one, and a listener beside an exchange that plays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from umdf.certify.exchange_session import open_exchange
from umdf.certify.external import ExternalSettings, play_with_log, play_with_person
from umdf.certify.external_client import MOST_AHEAD_NS, STALL_S, Clock, LoggedClient, instruction_file
from umdf.certify.listen import ObservationTarget, listen, seconds_from_now
from umdf.certify.observation import MBO, BookRow
from umdf.certify.operations import Operation
from umdf.certify.profile import Combination
from umdf.certify.results import Outcome
from umdf.certify.selection import Selection, select_steps
from umdf.certify.stage import Stage
from umdf.errors import ConfigError
from umdf.transport.channels_file import LOOPBACK, format_channels
from umdf.transport.free_ports import free_ports
from umdf.units import fix_timestamp

PATIENCE_S = 600  # only a failure takes so long
EXAMPLE = Path(__file__).parents[2] / "examples" / "certification_client.py"
SBE = Combination("sbe")
SECOND_NS = 1_000_000_000


@pytest.fixture
def ports() -> Iterator[int]:
    return iter(free_ports(16))


def test_the_log_of_a_client_is_read_as_it_grows(tmp_path: Path, ports: Iterator[int]) -> None:
    log = tmp_path / "client.jsonl"
    selection = select_steps(only="C1")
    with open_exchange(SBE, tmp_path, selection, lambda: next(ports), LOOPBACK) as opened:
        client = LoggedClient(log, instruction_file(tmp_path / "told"), opened.stage, settle_s=0.0, speed=1e9)
        client.mark_books(72, 5)
        log.write_text(json.dumps({"book": {"bids": [["32.47", 20, 7], [None, 5, 8]], "asks": []}, "channel": 72,
                                   "security_id": 5}) + '\n{"message": "35=X|48=5", "chan')  # fmt: skip
        client.poll()
        with log.open("a") as file:
            file.write('nel": 72, "stream": "incremental", "sequence": 3}\n{"reply": "35=BX|1348=0"}\n')
        client.poll()
        assert client.books(72, 5)[-1].bids == (BookRow(32_470_000_000, 20, 7), BookRow(None, 5, 8))
        (message,) = client.messages(72, ["incremental"])
        assert (message.msg_type, message.sequence, message.fields) == ("X", 3, ((35, "X"), (48, "5")))
        assert [reply.msg_type for reply in client.replies()] == ["BX"]
        log.write_text(log.read_text() + '{"messages": 1}\n')
        with pytest.raises(ConfigError, match="line 4: neither message, book nor reply"):
            client.poll()


class SlowClient:
    """Writes a message every second of its own clock, and is so many seconds of the exchange's later then."""

    def __init__(self, log: Path, stage: Stage, later_s: float) -> None:
        self._log, self._stage, self._later_ns = log, stage, round(later_s * SECOND_NS)
        self.clock, self.now_s, self.written_ns, self._next_s = Clock(lambda: self.now_s, self.sleep), 0.0, 0, 1.0

    def write(self, written_ns: int) -> None:
        self.written_ns = written_ns
        message = {
            "message": f"52={fix_timestamp(written_ns, 9)}",
            "channel": 72,
            "stream": "incremental",
            "sequence": 10**9,
        }
        with self._log.open("a") as file:
            file.write(json.dumps(message) + "\n")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        while self._next_s <= self.now_s:
            self._next_s += 1.0
            if self._later_ns:
                self.write(min(self.written_ns + self._later_ns, self._stage.exchange.now_ns))


@pytest.mark.parametrize("later_s", [0.4, 0.0], ids=["slow", "stopped"])
def test_the_exchange_waits_for_a_client_that_is_slow_and_not_for_one_that_writes_nothing(
    tmp_path: Path, ports: Iterator[int], later_s: float
) -> None:
    log, selection = tmp_path / "client.jsonl", select_steps(only="C1")
    with open_exchange(SBE, tmp_path, selection, lambda: next(ports), LOOPBACK) as opened:
        stage = opened.stage
        slow = SlowClient(log, stage, later_s)
        told = instruction_file(tmp_path / "told")
        client = LoggedClient(log, told, stage, settle_s=0.0, speed=10.0, clock=slow.clock)
        slow.write(stage.exchange.now_ns + SECOND_NS)
        client.poll()
        client.connect(starts_again=False)
        slow.write(stage.exchange.now_ns)
        began_ns, began_s, furthest_ns = stage.exchange.now_ns, slow.now_s, 0
        for _ in range(200):
            stage.exchange.advance(stage.exchange.now_ns + SECOND_NS // 20)
            client.poll()
            furthest_ns = max(furthest_ns, stage.exchange.now_ns - slow.written_ns)
        assert stage.exchange.now_ns == began_ns + 10 * SECOND_NS
        if later_s:
            assert furthest_ns <= MOST_AHEAD_NS + 2 * SECOND_NS, "between two packets are up to 1.3 s"
            assert slow.now_s - began_s > 10
        else:
            assert STALL_S < slow.now_s - began_s < STALL_S + 3


def test_the_example_client_is_certified_by_its_log(tmp_path: Path, ports: Iterator[int], sized) -> None:
    selection = select_steps(only=sized("B2.4", "B2"))
    channels, told, log = (tmp_path / name for name in ("channels.toml", "told.jsonl", "log.jsonl"))
    with open_exchange(SBE, tmp_path, selection, lambda: next(ports), LOOPBACK) as opened:
        channels.write_text(format_channels(opened.channels, opened.replayers))
        example = subprocess.Popen([sys.executable, str(EXAMPLE), str(channels), str(told), str(log)])
        try:
            settings = ExternalSettings(settle_s=1.0, speed=10.0)
            instruct = instruction_file(told)
            run = play_with_log(SBE, opened.stage, selection, log, instruct, settings, lambda _: None)
            assert example.wait(60) == 0, "the instruction `end` ends it"
        finally:
            example.kill()
            example.wait()
    assert {step.id: step.failures for step in run.steps if step.outcome != Outcome.PASS} == {}
    assert run.has_passed and run.mode == "our exchange, external client"


def test_a_person_confirms_each_step(tmp_path: Path, ports: Iterator[int]) -> None:
    selection, asked = select_steps(only="B2.3"), list[str]()
    answers = iter([None, Outcome.PASS, Outcome.NOT_EXECUTED, Outcome.FAIL])

    def confirm(step: object, actions: tuple[str, ...]) -> Outcome | None:
        asked.append(getattr(step, "id", ""))
        return next(answers)

    with open_exchange(SBE, tmp_path, selection, lambda: next(ports), LOOPBACK) as opened:
        opened.stage.after_advance = lambda: None
        instruct = instruction_file(tmp_path / "told")
        run = play_with_person(SBE, opened.stage, selection, confirm, instruct, lambda _: None)
    assert asked == ["B2.1", "B2.1", "B2.2", "B2.3"], "it asks again until there is an answer"
    assert [step.outcome for step in run.steps] == [Outcome.PASS, Outcome.NOT_EXECUTED, Outcome.FAIL]
    assert not run.has_passed


def test_a_listener_ticks_the_steps_that_it_sees(tmp_path: Path, ports: Iterator[int]) -> None:
    """The exchange plays B2 up to B2.6 for nobody; the listener knows its addresses only."""
    selection = select_steps(only="B2.6")
    with open_exchange(SBE, tmp_path, selection, lambda: next(ports), LOOPBACK) as opened:
        listening, is_late = _Listening(), seconds_from_now(PATIENCE_S)

        def is_over() -> bool:
            listening.polls += 1
            return is_late()

        player = Thread(target=_play, args=(opened.stage, selection, listening))
        player.start()
        try:
            target = ObservationTarget("PETR4", MBO, "priority", "equities")
            passed = listening.passed
            run = listen(opened.channels, target, selection, lambda step: passed.append(step.id), is_over)
        finally:
            listening.has_ended = True
            player.join()
    assert passed == ["B2.1", "B2.2", "B2.3", "B2.4", "B2.5", "B2.6"]
    assert run.has_passed and run.steps[1].books[0].evidence.messages


@dataclass
class _Listening:
    """How far the listener is: it begins to receive before its first poll, and each poll takes all that has come."""

    polls: int = 0
    passed: list[str] = field(default_factory=list)
    has_ended: bool = False


def _play(stage: Stage, selection: Selection, listening: _Listening) -> None:
    """Play each step once the listener has passed the one before; nothing is sent while it is behind."""

    def advance(seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            stage.exchange.advance(stage.exchange.now_ns + 100_000_000)
            until = listening.polls + 2
            while listening.polls < until and not listening.has_ended:
                sleep(0.001)

    while not listening.polls:
        sleep(0.01)
    section = selection.sections[0]
    advance(6)
    for operation in section.start:
        operation.run(stage)
    for step in section.steps[:6]:
        for action in step.actions:
            assert isinstance(action, Operation)
            action.run(stage)
        advance(0.5)
        while step.id not in listening.passed and not listening.has_ended:
            advance(0.5)
