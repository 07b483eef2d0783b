"""QuickFIX (C++), the engine that many firms use, as a client of our replayer and as a replayer of our client.

It checks each message against a data dictionary: required fields, types, groups, lengths and checksums.
`pip install quickfix` (or quickfix-py) runs these tests; no other part of umdf needs it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.feed_lines import ChannelKey
from umdf.feed.replay_client import ReplayClientSettings, Span
from umdf.feed.replay_source import ReplaySource
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import ReplayerAddresses
from umdf.transport.free_ports import free_ports

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("quickfix") is None, reason="QuickFIX is not installed: pip install quickfix"
)
LOCALHOST, PATIENCE_S = "127.0.0.1", 30
Message = dict[str, Any]


def content(sequence: int) -> bytes:
    """What a replayer of ours has: any bytes; the fields in it are none."""
    return b"%d|\x01\x80\xff10=000\x0195=3\x01|" % sequence


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found
    return found


class QuickFix:
    """The process of an engine, and what it has reported."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self.is_logged_on, self.messages = (
            process,
            False,
            list[tuple[Message, dict[str, list[Message]]]](),
        )
        self.is_started, self.commands, self.done = False, 0, 0
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, *values = json.loads(line)
            if event == "message":
                self.messages.append((values[0], values[1]))
            elif event == "started":
                self.is_started = True
            elif event == "done":
                self.done += 1
            else:
                self.is_logged_on = event == "logon"

    def command(self, name: str, *arguments: Any) -> None:
        """Returns once it is done: what the engine receives then comes after it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        self.commands += 1
        wait_for(lambda: self.done == self.commands)

    def request(self, name: str, first: int, last: int, channel: int = 73) -> None:
        group = [[[1351, 1], [1355, channel], [1182, first], [1183, last]]]
        self.command("send", "BW", [[1346, name], [1347, 0]], group)

    def of_type(self, msg_type: str, **values: str) -> list[tuple[Message, dict[str, list[Message]]]]:
        """Messages with these fields (`f112="x"`), and their groups."""
        wanted = {"35": msg_type} | {name[1:]: value for name, value in values.items()}
        return [found for found in list(self.messages) if wanted.items() <= found[0].items()]


@contextmanager
def quickfix(directory: Path, role: str, port: int, own: str = "CLIENT", other: str = "REPLAYER") -> Iterator[QuickFix]:
    script = Path(__file__).with_name("quickfix_process.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(directory), role, str(port), own, other],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    engine = QuickFix(process)
    try:
        wait_for(lambda: engine.is_started)
        yield engine
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def logged() -> list[str]:
    """Why sessions ended."""
    return []


@pytest.fixture
def server(tmp_path: Path, logged: list[str]) -> Iterator[ReplayerServer]:
    history = ChannelHistory(tmp_path / "channel-073")
    history.append((sequence, time.time_ns() - 60_000_000_000, content(sequence)) for sequence in range(1, 5_001))
    service = ReplayService({"73": history}, ReplaySettings(), Profile(WEEK), time.time_ns)
    own = ReplayerServer(ReplayerSettings((LOCALHOST, 0), "REPLAYER", frozenset({"CLIENT"})), service, logged.append)
    own.start()
    yield own
    own.stop()
    history.close()


@pytest.fixture
def client(server: ReplayerServer, tmp_path: Path) -> Iterator[QuickFix]:
    with quickfix(tmp_path, "initiator", server.address[1]) as engine:
        wait_for(lambda: engine.is_logged_on)
        yield engine


def test_quickfix_gets_what_it_requests(client: QuickFix) -> None:
    client.request("q1", 11, 2_010)
    ((report, channels),) = wait_for(lambda: client.of_type("BY"))
    ((acknowledgment, statuses),) = client.of_type("BX")
    assert acknowledgment["1348"] == "0"
    assert statuses["1351"] == [{"1355": "73", "1182": "11", "1183": "2010", "35021": "0"}]
    got = {}
    for part, groups in client.of_type("URDR", f911="2000", f1180="73"):
        data = bytes.fromhex(part["96"])
        for entry in groups["10054"]:
            offset = int(entry["10055"])
            got[int(entry["1181"])] = data[offset : offset + int(entry["95"])]
    assert got == {sequence: content(sequence) for sequence in range(11, 2_011)}
    assert report["1426"] == "3" and channels["1351"] == [{"1355": "73", "1357": "2010"}]


REFUSED = {  # channel, first, last: 1348, 1354, 35021
    "unknown channel": ((99, 1, 2), "1", ("0", "2")),
    "backwards": ((73, 9, 8), "2", ("3", "2")),
    "2,001 messages": ((73, 1, 2_001), "2", ("4", "2")),
}


def test_quickfix_reads_refusals(client: QuickFix) -> None:
    for name, ((channel, first, last), response, (error, status)) in REFUSED.items():
        client.request(name, first, last, channel)
        ((acknowledgment, groups),) = wait_for(lambda name=name: client.of_type("BX", f1346=name))
        assert acknowledgment["1348"] == response
        assert (groups["1351"][0]["1354"], groups["1351"][0]["35021"]) == (error, status)
    client.request("partly", 5_000, 5_001)
    ((report, groups),) = wait_for(lambda: client.of_type("BY"))
    assert report["1426"] == "4" and groups["1351"] == [{"1355": "73", "1357": "5000", "1354": "5"}]


def test_a_test_request_is_answered(client: QuickFix) -> None:
    client.command("send", "1", [[112, "are you there"]])
    wait_for(lambda: client.of_type("0", f112="are you there"))
    assert client.is_logged_on


def test_a_resend_request_is_answered_by_a_gap_fill(client: QuickFix) -> None:
    """QuickFIX forgets what it has received, so that our next message shows it a gap."""
    client.request("q1", 1, 5)
    wait_for(lambda: client.of_type("BY"))
    client.command("forget", 2)
    client.request("q2", 6, 9)
    wait_for(lambda: client.of_type("4", f34="2", f123="Y", f43="Y"))
    client.request("q3", 1, 3)
    wait_for(lambda: client.of_type("BY", f1346="q3"))
    assert client.is_logged_on


def test_another_comp_id_in_mid_session_ends_it(client: QuickFix) -> None:
    client.command("send_as", "SOMEONE")
    client.request("q1", 1, 5)
    wait_for(lambda: client.of_type("5"))
    assert client.of_type("3", f373="9") and not client.of_type("BX")


def test_an_unknown_comp_id_is_not_logged_on(server: ReplayerServer, logged: list[str], tmp_path: Path) -> None:
    for own, other in (("STRANGER", "REPLAYER"), ("CLIENT", "SOMEONE")):
        logged.clear()
        with quickfix(tmp_path, "initiator", server.address[1], own, other) as engine:
            wait_for(lambda: logged)
            assert "unknown CompID" in logged[0] and not engine.is_logged_on and not engine.of_type("A")


def test_quickfix_logs_out(server: ReplayerServer, client: QuickFix) -> None:
    client.command("logout")
    wait_for(lambda: client.of_type("5") and server.session_count == 0)


@pytest.fixture
def acceptor(tmp_path: Path) -> Iterator[tuple[QuickFix, ReplaySource]]:
    """A replayer of QuickFIX, and our client that is logged on to it."""
    (port,) = free_ports(1)
    with quickfix(tmp_path, "acceptor", port, "REPLAYER", "CLIENT") as engine:
        settings = ReplayClientSettings("CLIENT", "REPLAYER", heartbeat_s=1, timeout_ms=1_000)
        source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", ((LOCALHOST, port),)), settings)
        try:
            wait_for(lambda: engine.is_logged_on and source.is_connected)
            yield engine, source
        finally:
            source.close()


def fetch(source: ReplaySource, first: int, last: int) -> dict[int, bytes]:
    """The messages that come, once the request is answered."""
    source.request(ChannelKey("fast", 73), Gap(1, first, last, 0))
    got: dict[int, bytes] = {}

    def take() -> bool:
        for packets in source.take():
            for start, end in zip(packets.start.tolist(), packets.end.tolist(), strict=True):
                packet = packets.buffer[start:end].tobytes()
                got[int.from_bytes(packet[:4], "big")] = packet[10:]
        return len(got) == last - first + 1 or bool(source.failures)

    wait_for(take)
    return got


def test_our_client_gets_what_it_requests_from_quickfix(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    _, source = acceptor
    got = fetch(source, 5, 304)
    assert got == {sequence: b"%d|\x0110=000\x0195=3\x01|" % sequence for sequence in range(5, 305)}
    assert source.counts.requests == 1 and not source.failures


def test_our_client_answers_the_test_and_resend_requests_of_quickfix(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    engine, source = acceptor
    engine.command("send", "1", [[112, "are you there"]])
    wait_for(lambda: engine.of_type("0", f112="are you there"))
    fetch(source, 1, 5)
    engine.command("forget", 2)
    assert len(fetch(source, 6, 9)) == 4
    wait_for(lambda: engine.of_type("4", f34="2", f123="Y", f43="Y"))
    assert engine.is_logged_on


def test_our_client_believes_a_reject_of_quickfix(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    engine, source = acceptor
    engine.command("behave", "rejects")
    assert fetch(source, 5, 6) == {}
    assert [(each.span, each.reason) for each in source.failures] == [(Span(73, 5, 6), "not today")]
    assert source.counts.requests == 1


def test_our_client_repeats_a_request_that_quickfix_does_not_answer(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    engine, source = acceptor
    engine.command("behave", "is silent", "acknowledges", "serves")
    assert len(fetch(source, 5, 104)) == 100
    assert source.counts.requests == 3 and source.counts.timeouts == 2


def test_our_client_waits_for_a_slow_replayer(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    """Each report comes within the timeout, the whole answer does not."""
    engine, source = acceptor
    engine.command("behave", "slow")
    assert len(fetch(source, 1, 200)) == 200
    assert source.counts.requests == 1 and not source.failures


def test_our_client_requests_what_was_missing_when_a_replayer_drops_it(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    engine, source = acceptor
    engine.command("behave", "drops", "serves")
    assert len(fetch(source, 1, 200)) == 200
    assert source.counts.connections == 2 and source.counts.requests == 2 and not source.failures


@pytest.mark.parametrize("lie", ["other numbers", "other channel", "outside", "too long"])
def test_our_client_uses_nothing_of_a_lying_answer(acceptor: tuple[QuickFix, ReplaySource], lie: str) -> None:
    engine, source = acceptor
    engine.command("behave", lie, "serves")
    got = fetch(source, 1, 30)
    assert got == {sequence: b"%d|\x0110=000\x0195=3\x01|" % sequence for sequence in range(1, 31)}
    assert source.counts.requests == 2 and source.counts.invalid == 1 and not source.failures


def test_our_client_logs_on_again_after_a_logout(acceptor: tuple[QuickFix, ReplaySource]) -> None:
    engine, source = acceptor
    engine.command("logout")
    wait_for(lambda: engine.of_type("5"))
    engine.command("logon")
    wait_for(lambda: source.counts.connections > 1 and source.is_connected)
    assert len(fetch(source, 5, 8)) == 4


def test_our_client_logs_out(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with quickfix(tmp_path, "acceptor", port, "REPLAYER", "CLIENT") as engine:
        source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", ((LOCALHOST, port),)))
        wait_for(lambda: engine.is_logged_on)
        source.close()
        wait_for(lambda: engine.of_type("5", f58="the client stops"))
        wait_for(lambda: not engine.is_logged_on)
