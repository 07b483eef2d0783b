"""Bad input to `umdf exchange run` and to the operator's commands: one line that says why, an exit code, and nothing
has changed."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from umdf.cli.app import run
from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.catalogue_file import save_catalogue
from umdf.exchange.live.launch import Outputs, open_exchange
from umdf.exchange.live.settings import read_settings

ROOT = Path(__file__).parents[2]
HEAD = '[exchange]\ninstruments = 100\nstart = "2026-11-16 10:30:00"\nmessages_per_s = 5\n'
CHANNEL = '[[channel]]\nnumber = 72\nprotocol = "fast"\n'
FILES = [
    ("[exchange\n", "exchange.toml: invalid TOML"),
    (HEAD, "the exchange has no channel; add a table [[channel]]"),
    (HEAD + "colour = 1\n" + CHANNEL, "unknown key: exchange.colour"),
    (HEAD.replace("100", "5") + CHANNEL, "exchange.instruments out of range: 5; use 100 to 20000"),
    (HEAD.replace("2026-11-16 10:30:00", "tomorrow") + CHANNEL, "exchange.start: not a time: tomorrow"),
    (HEAD + 'catalogue = "nope.csv"\n' + CHANNEL, "exchange.catalogue: cannot read"),
    (HEAD + 'pairs = [["PETR4", "NOPE"]]\n' + CHANNEL, "exchange.pairs: unknown instrument: NOPE"),
    (HEAD + '[schedule]\nholidays = ["never"]\n' + CHANNEL, "schedule.holidays: not a date: never"),
    (HEAD + '[schedule.equities]\nopen = "10:00"\n' + CHANNEL, "schedule.equities: has no pre_open"),
    (HEAD + CHANNEL + CHANNEL, "channel 72 (fast) is listed twice; change one of them"),
    (HEAD + CHANNEL + 'types = ["LOANS"]\n', "channel 72: unknown type: LOANS; use CASH, "),
    (HEAD + CHANNEL + 'symbols = ["PETR44"]\n', "channel 72 (fast): unknown symbol: PETR44; did you mean PETR4?"),
    (HEAD + CHANNEL + 'groups = ["ZZ"]\n', "channel 72 (fast): unknown group: ZZ"),
    (HEAD + CHANNEL + 'incremental = { A = "here" }\n', "channel 72: incremental.A: not an address: here"),
    (HEAD + '[network]\nmode = "multicast"\ninterface = "eth7"\n' + CHANNEL, "not an IPv4 address: eth7"),
    (HEAD + '[faults]\nloss = 2\n' + CHANNEL, "loss"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), FILES)
def test_an_exchange_does_not_start_from_a_bad_file(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, captures = tmp_path / "exchange.toml", tmp_path / "day"
    file.write_text(text)
    control = tmp_path / "x.sock"
    argv = ["exchange", "run", str(file), "--captures", str(captures), "--control", str(control), "--duration-s", "0.1"]
    assert run(argv) == 3
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("umdf: ") and found.err.count("\n") == 1 and reason in found.err
    assert sorted(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (slice(0, 1), "has no instruments; write a line for each one"),
        (slice(1, None), "line 1: unknown field: WINZ26"),
        (slice(0, 0), "is empty; the first line has the names of the fields"),
    ],
)
def test_an_exchange_does_not_start_with_a_bad_catalogue(
    lines: slice, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue, file = tmp_path / "catalogue.csv", tmp_path / "exchange.toml"
    save_catalogue(catalogue, generate_catalogue(100, 1, date(2026, 11, 16)))
    catalogue.write_text("".join(catalogue.read_text().splitlines(keepends=True)[lines]))
    file.write_text(HEAD + 'catalogue = "catalogue.csv"\n' + CHANNEL)
    assert run(["exchange", "run", str(file), "--captures", str(tmp_path / "day"), "--no-udp"]) == 3
    assert f"umdf: exchange.catalogue: {catalogue}" in (error := capsys.readouterr().err) and reason in error
    assert sorted(tmp_path.iterdir()) == [catalogue, file]


def test_a_busy_port_of_a_replayer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "exchange.toml"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        file.write_text(HEAD + CHANNEL + f'[replayer]\naddress = "{address}"\ncomp_id = "R"\n')
        assert run(["exchange", "run", str(file), "--captures", str(tmp_path / "day")]) == 3
    assert f"umdf: cannot listen on {address}: Address already in use" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running exchange whose clock stands still."""
    path = tmp_path_factory.mktemp("exchange") / "x.sock"
    settings = read_settings(ROOT / "examples" / "exchange.toml")
    short = settings.channels[:2], settings.addresses[:2]
    settings = replace(settings, channels=short[0], addresses=short[1], instruments=100, messages_per_s=0)
    is_over, is_ready = threading.Event(), threading.Event()

    def answer() -> None:
        with open_exchange(settings, Outputs(control=path)) as opened:
            opened.exchange.advance(opened.exchange.now_ns + 60 * 10**9)
            is_ready.set()
            while not is_over.is_set():
                opened.wait(0.02)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    assert is_ready.wait(60)
    yield path
    is_over.set()
    thread.join(10)


REFUSED = [
    ("order PETR9 buy 500 32.45", "unknown instrument: PETR9; did you mean PETR4?"),
    ("order PETR4 buy 500 320.45", "price is outside the hard limits: 320.45; use "),
    ("order PETR4 buy 500 30.005", "price is not on a tick: 30.005; use a multiple of 0.01"),
    ("order PETR4 buy 550 30", "size is not a multiple of the lot: 550; use a multiple of 100"),
    ("order PETR4 buy 500", "limit order without a price"),
    ("order PETR4 buy 500 30 --time-in-force gtd", "GTD order without an expiry date; give its last day"),
    ("order PETR4 buy 500 30 --expires 2026-12-01", "DAY orders have no expire_date"),
    ("amend 999 --size 100", "unknown order: 999; it was traded, cancelled or has expired"),
    ("cancel 999", "unknown order: 999"),
    ("bust PETR4 99999", "unknown trade: 99999; use a trade of this session that is not busted"),
    ("trade PETR4 100 32.5 --replaces 99999", "unknown trade: 99999"),
    ("cross PETR4 100 900 --buyer 3 --seller 8", "price is outside the hard limits: 900"),
    ("phase open equities", "cannot change from Open to Open; use pause, "),
    ("phase pause equities ZZ", "unknown group: ZZ; use a code or a market"),
    ("state PETR4 pause --opens-in-s 60", "only a Reserved state has an opening time"),
    ("band PETR4 hard 40 30", "the low limit is above the high one: 40 > 30"),
    ("reset sbe:99", "unknown channel: sbe 99; use sbe 72 or fast 72"),
    ("failover 72", "not a channel: 72; write protocol:number, such as sbe:72"),
    ("news '' text", "news without a headline"),
    ("instrument add PETR4 --like VALE3", "PETR4 is listed already"),
    ("instrument delete NOPE", "unknown instrument: NOPE"),
    ("settle final PETR4", "PETR4 has no settlement price"),
    ("migrate PETR4 NOPE", "unknown instrument: NOPE"),
    ("step start-week", "the platform is up already"),
    ("replayer unavailable", "the exchange has no replayer; add [replayer] to its file"),
    ("uncross PETR4", "PETR4 is in no auction of its own"),
]


@pytest.mark.parametrize(("command", "reason"), REFUSED)
def test_a_refused_command_changes_nothing(
    control: Path, command: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _seen(control, capsys)
    assert run(["exchange", *shlex.split(command), "--control", str(control)]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("umdf: ") and found.err.count("\n") == 1 and reason in found.err
    assert _seen(control, capsys) == before


def _seen(control: Path, capsys: pytest.CaptureFixture[str]) -> object:
    """What an operator can see of the exchange, all books of PETR4 included."""
    found = []
    for command in (["status"], ["book", "PETR4"]):
        assert run(["exchange", *command, "--control", str(control), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    return found


def test_a_second_exchange_does_not_take_the_socket(
    control: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exchange.toml"
    file.write_text(HEAD + CHANNEL)
    assert run(["exchange", "run", str(file), "--control", str(control), "--duration-s", "0.1"]) == 3
    assert f"another exchange is running at {control}; stop it" in capsys.readouterr().err
    assert run(["exchange", "status", "--control", str(control)]) == 0
