"""The replayer on real sockets: many clients, hostile ones among them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from umdf.cli.app import run
from umdf.errors import ConfigError
from umdf.exchange.live.launch import OpenedExchange, Outputs, open_exchange
from umdf.exchange.live.settings import read_settings
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span
from umdf.transport.tcp import TcpLoop
from umdf.wire.fix.message import encode_message

LOCALHOST = "127.0.0.1"
EXAMPLE = Path(__file__).parents[2] / "examples" / "exchange.toml"
PATIENCE_S = 30  # of a busy machine; nothing here waits for it


def data_of(sequence: int) -> bytes:
    return b"%d|" % sequence * 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReplayerServer]:
    history = ChannelHistory(tmp_path / "channel-072")
    history.append((sequence, time.time_ns() - 60_000_000_000, data_of(sequence)) for sequence in range(1, 5_001))
    service = ReplayService({"72": history}, ReplaySettings(), Profile(WEEK), time.time_ns)
    own = ReplayerServer(ReplayerSettings((LOCALHOST, 0), "REPLAYER", max_sessions=210), service)
    own.start()
    yield own
    own.stop()
    history.close()


def fetch(server: ReplayerServer, spans: dict[str, Span]) -> dict[str, list[int]]:
    """What each client gets, all at once."""
    loop, clients = TcpLoop(), {}
    for name, span in spans.items():
        clients[name] = ReplayClient(ReplayClientSettings(name, "REPLAYER", timeout_ms=1_000 * PATIENCE_S))
        clients[name].request(span, time.time_ns())
        clients[name].open(time.time_ns())
        loop.connect(server.address, clients[name])
    got: dict[str, list[int]] = {name: [] for name in spans}
    deadline = time.monotonic() + PATIENCE_S
    while not all(client.is_idle for client in clients.values()) and time.monotonic() < deadline:
        loop.poll(0.05)
        for name, client in clients.items():
            for outcome in client.take_outcomes():
                assert isinstance(outcome, ReplayedMessages), outcome
                assert all(data == data_of(sequence) for sequence, data in outcome.messages)
                got[name] += [sequence for sequence, _ in outcome.messages]
    loop.close()
    return got


def test_many_clients_are_served_at_once(server: ReplayerServer, sized) -> None:
    spans = {f"C{number}": Span(72, 1 + number, 1_000 + 2 * number) for number in range(sized(40, 200))}
    got = fetch(server, spans)
    assert got == {name: list(range(span.first, span.last + 1)) for name, span in spans.items()}


HOSTILE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "a wrong checksum": encode_message("A", [(49, "X"), (56, "REPLAYER"), (34, 1)])[:-4] + b"000\x01",
    "a field of 100 MB": b"8=FIX.4.4\x019=104857600\x0135=" + b"x" * 200_000,
    "half a message": encode_message("A", [(49, "X"), (56, "REPLAYER")])[:30],
    "a flood": b"8=FIX.4.4\x019=5\x0135=0\x0110=161\x01" * 100_000,
    "another CompID": encode_message("A", [(49, "X"), (56, "ELSE"), (34, 1), (98, 0), (108, 30)]),
}


def test_hostile_clients_do_not_disturb_the_others(server: ReplayerServer) -> None:
    sockets = []
    for data in HOSTILE.values():
        own = socket.create_connection(server.address)
        own.setblocking(False)
        try:
            own.send(data)
        except OSError:
            pass
        sockets.append(own)
    assert fetch(server, {"GOOD": Span(72, 10, 2_500)})["GOOD"] == list(range(10, 2_501))
    for own in sockets:
        own.close()
    assert fetch(server, {"GOOD": Span(72, 1, 3)})["GOOD"] == [1, 2, 3]


def test_sessions_are_limited(server: ReplayerServer) -> None:
    sockets = [socket.create_connection(server.address) for _ in range(230)]
    refused = 0
    for own in sockets[210:]:
        own.settimeout(PATIENCE_S)
        refused += own.recv(1) == b""
    assert refused == 20
    for own in sockets:
        own.close()
    deadline = time.monotonic() + PATIENCE_S
    while server.session_count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fetch(server, {"GOOD": Span(72, 1, 3)})["GOOD"] == [1, 2, 3]


def test_clients_are_logged_out_when_the_replayer_stops(
    server: ReplayerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = ReplayerServer(ReplayerSettings((LOCALHOST, 0), "REPLAYER"), server.service)
    stopping.start()
    loop, client = TcpLoop(), ReplayClient(ReplayClientSettings("C", "REPLAYER"))
    client.open(time.time_ns())
    loop.connect(stopping.address, client)
    deadline = time.monotonic() + PATIENCE_S
    while not client.is_active and time.monotonic() < deadline:
        loop.poll(0.02)
    assert client.is_active
    wake = stopping._loop.wake
    monkeypatch.setattr(stopping._loop, "wake", lambda: (wake(), stopping._thread.join()))  # it ends first
    stopping.stop()
    while not client.is_closed and time.monotonic() < deadline:
        loop.poll(0.02)
    loop.close()
    assert client.last_error == "the replayer stops"


def test_a_port_in_use_is_a_clear_error(server: ReplayerServer) -> None:
    with pytest.raises(ConfigError, match="cannot listen on 127"):
        ReplayerServer(ReplayerSettings(server.address, "OTHER"), server.service)


def test_a_host_that_is_not_known_closes_the_connection() -> None:
    loop, client = TcpLoop(), ReplayClient(ReplayClientSettings("C", "REPLAYER"))
    client.open(0)
    loop.connect(("no such host", 30_001), client)
    assert client.is_closed and client.last_error.startswith("cannot connect to no such host:30001: ")
    loop.close()


def test_waking_a_loop_never_waits() -> None:
    """Its thread may have ended; the live client must not stop with it."""
    loop = TcpLoop()
    waking = threading.Thread(target=lambda: [loop.wake() for _ in range(100_000)], daemon=True)
    waking.start()
    waking.join(PATIENCE_S)
    assert not waking.is_alive()
    loop.poll(0)
    loop.close()


def test_nobody_listens() -> None:
    with socket.socket() as own:
        own.bind((LOCALHOST, 0))
        address = own.getsockname()
    client = ReplayClient(ReplayClientSettings("C", "REPLAYER"))
    client.request(Span(72, 1, 2), 0)
    client.open(0)
    loop = TcpLoop(clock_ns=lambda: 5_000_000_000)
    loop.connect(address, client)
    for _ in range(20):
        loop.poll(0.02)
    client.tick(5_000_000_000)
    assert client.is_closed and "connect" in client.last_error
    assert [type(outcome) for outcome in client.take_outcomes()] == [ReplayFailure]
    loop.close()


WRITER = """
import sys, time
from pathlib import Path
from umdf.exchange.replayer.history import ChannelHistory
history = ChannelHistory(Path(sys.argv[1]))
sequence = history.last
while True:
    history.append((sequence + n, 1, b"%d|" % (sequence + n) * 10) for n in range(1, 8))
    sequence += 7
    print(sequence, flush=True)
"""


def test_the_history_survives_kills(tmp_path: Path, sized) -> None:
    directory, reported = tmp_path / "history", 0
    for _ in range(sized(2, 20)):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert process.stdout is not None
        for line in process.stdout:
            reported = int(line)
            if reported % 997 < 7:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
        own = ChannelHistory(directory)
        assert own.last >= reported
        for first in range(1, own.last + 1, 1_000):
            last = min(first + 999, own.last)
            assert own.read(own.entries(first, last)) == [(s, data_of(s)) for s in range(first, last + 1)]
        own.close()


def test_an_operator_switches_refusals_on_and_off_over_the_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1348=7, 35021=1 and 1354=8, each by a command, on a running exchange."""
    close, stopped_before = ChannelHistory.close, list[bool]()
    settings = read_settings(EXAMPLE)
    fast = next(at for at, channel in enumerate(settings.channels) if channel.protocol == "fast")
    settings = replace(
        settings, instruments=100, channels=settings.channels[fast : fast + 1],
        addresses=settings.addresses[fast : fast + 1], history=tmp_path / "history",
        replayers={"replayer": ReplayerSettings((LOCALHOST, 0), "REPLAYER", available_after_ms=0)},
    )  # fmt: skip
    control = tmp_path / "exchange.sock"
    with open_exchange(settings, Outputs(tmp_path / "day", sends_udp=False, control=control)) as opened:
        opened.exchange.advance(opened.exchange.now_ns + 2_000_000_000)
        replayers = opened.exchange.replayers
        assert replayers is not None
        span = Span(settings.channels[0].channel, 1, 3)
        assert fetch_outcome(replayers.servers["replayer"], span) == ""
        for switch, reason in (
            ("unavailable", "refused: ApplRespType 7"),
            ("not-authorized", "refused: ApplRespType 2"),
            ("no-resources", "refused: ApplRespType 2, ApplRespError 8"),
            ("no-resources-later", "not available: ApplRespError 8"),
        ):
            command(opened, control, switch, "--json")
            assert fetch_outcome(replayers.servers["replayer"], span) == reason
            command(opened, control, switch, "--off")
        server = replayers.servers["replayer"]
        assert fetch_outcome(server, span) == ""
        monkeypatch.setattr(
            ChannelHistory, "close", lambda own: (stopped_before.append(not server.is_serving), close(own))
        )
    assert stopped_before == [True], "its thread reads the history"


def command(opened: OpenedExchange, control: Path, *arguments: str) -> None:
    """`umdf exchange replayer …`, while the exchange answers its socket."""
    found: list[int] = []
    own = threading.Thread(
        target=lambda: found.append(run(["exchange", "replayer", *arguments, "--control", str(control)]))
    )
    own.start()
    while own.is_alive():
        opened.wait(0.01)
    assert found == [0]


def fetch_outcome(server: ReplayerServer, span: Span) -> str:
    """Why a span does not come from a replayer; empty if it does."""
    loop, client = TcpLoop(), ReplayClient(ReplayClientSettings("C", "REPLAYER", retries=0))
    client.request(span, time.time_ns())
    client.open(time.time_ns())
    loop.connect(server.address, client)
    deadline = time.monotonic() + PATIENCE_S
    while not client.is_idle and time.monotonic() < deadline:
        loop.poll(0.02)
        client.tick(time.time_ns())
    loop.close()
    outcomes = client.take_outcomes()
    assert outcomes
    failed = [outcome.reason for outcome in outcomes if isinstance(outcome, ReplayFailure)]
    return failed[0] if failed else ""
