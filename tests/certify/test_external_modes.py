"""The log of an external client, the example that writes one, and a listener beside an exchange that plays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from umdf.certify.exchange_session import open_exchange
from umdf.certify.external import ExternalSettings, play_with_log, play_with_person
from umdf.certify.external_client import LoggedClient, instruction_file
from umdf.certify.listen import ObservationTarget, listen, seconds_from_now
from umdf.certify.observation import MBO, BookRow
from umdf.certify.profile import Combination
from umdf.certify.results import Outcome
from umdf.certify.selection import Selection, select_steps
from umdf.certify.stage import Stage
from umdf.errors import ConfigError
from umdf.transport.channels_file import LOOPBACK, format_channels
from umdf.transport.free_ports import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "certification_client.py"
SBE = Combination("sbe")


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
        stage, stop, passed = opened.stage, list[bool](), list[str]()

        def play() -> None:
            _play_slowly(stage, selection, stop)

        player = Thread(target=play)
        is_late = seconds_from_now(60)
        player.start()
        try:
            target = ObservationTarget("PETR4", MBO, "priority", "equities")
            run = listen(opened.channels, target, selection, lambda step: passed.append(step.id), lambda: is_late())
        finally:
            stop.append(True)
            player.join()
    assert passed == ["B2.1", "B2.2", "B2.3", "B2.4", "B2.5", "B2.6"]
    assert run.has_passed and run.steps[1].books[0].evidence.messages


def _play_slowly(stage: Stage, selection: Selection, stop: list[bool]) -> None:
    """Plays each step once the listener has had time; then the loops go on."""
    from time import sleep

    from umdf.certify.operations import Operation

    def wait(seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            stage.exchange.advance(stage.exchange.now_ns + 100_000_000)
            sleep(0.02)

    section = selection.sections[0]
    wait(6)
    for operation in section.start:
        operation.run(stage)
    for step in section.steps[:6]:
        for action in step.actions:
            assert isinstance(action, Operation)
            action.run(stage)
        wait(3)
    while not stop:
        wait(0.2)
