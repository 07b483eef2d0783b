"""The whole client with real sockets on the loopback interface: receiving, recording, being killed, being asked."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feed.free_ports import free_udp_ports
from feed.live_truth import LiveDay, orders_of, write_day
from lake.captures import ingest, rows

from umdf.cli.app import run
from umdf.errors import CaptureError, ConfigError, UsageError
from umdf.feed.channel_states import FeedState
from umdf.feed.client import FeedClient
from umdf.feed.events import GapOpened, RecorderStopped
from umdf.feed.feed_lines import FeedLine, feed_lines
from umdf.feed.live import Live
from umdf.feed.metrics import health, metrics_text
from umdf.feed.recorder import Recorder
from umdf.feed.replay import UdpReplay, captured_lines, replayed_packets
from umdf.feed.subscriptions import LiveLevels, LiveRow, read_rows
from umdf.transport.capture import open_capture
from umdf.transport.channels_file import LOOPBACK, ChannelAddresses, LineAddress, format_channels
from umdf.transport.monitoring_server import MonitoringServer
from umdf.transport.recording import closed_files
from umdf.transport.rolling_captures import LOCK
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.loader import load as load_templates

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    return write_day(tmp_path_factory.mktemp("live") / "day", loss=0.02)


def on_free_ports(day: LiveDay) -> list[ChannelAddresses]:
    """The channels of a day, received on ports that nobody else has. They stay long silent without being so."""
    ports = iter(free_udp_ports(len(day.lines)))
    return [
        ChannelAddresses(
            channel.number,
            channel.protocol,
            {name: tuple(LineAddress(line.line, LOOPBACK, next(ports)) for line in lines)
             for name, lines in channel.streams.items()},
            heartbeat_s=1_000,
        )
        for channel in day.channels
    ]  # fmt: skip


def addresses(channels: list[ChannelAddresses]) -> dict[FeedLine, LineAddress]:
    return {line: where for channel in channels for line, where in feed_lines(channel).items()}


def until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        step()


def send_all(day: LiveDay, channels: list[ChannelAddresses], live: Live) -> int:
    """Send the day in small parts, so that no buffer overflows, and receive all of it."""
    sent = 0
    with UdpReplay(addresses(channels)) as target:
        for packets in day.packets(iter(lambda: 200, None)):
            target.send(packets)
            sent += len(packets)
            until(lambda sent=sent: sum(c.packets for c in live.receiver.counts().values()) >= sent,
                  lambda: live.poll(0.05))  # fmt: skip
    for _ in range(5):
        live.poll(0.05)
    return sent


def trade_keys(items: list[LiveRow]) -> list[tuple[Any, ...]]:
    return [(row.sequence, row.instrument_id, row.values["trade_id"], row.values["price"], row.values["size"],
             row.ts_recv) for row in items]  # fmt: skip


def replayed_trades(day: LiveDay, recording: Path) -> list[tuple[Any, ...]]:
    """The trades that a client without sockets has from a recording."""
    paths = closed_files(recording)
    lines, client, found = captured_lines(paths, load_templates()), FeedClient(day.channels), []
    for packets in replayed_packets(paths, lines, []):
        client.receive(packets)
        for report in client.advance(int(packets.ts_ns[-1])):
            for events in report.batches:
                found += read_rows(report.feed, events, "trades", None)
    for report in client.advance(int(packets.ts_ns[-1]) + 10**9):
        for events in report.batches:
            found += read_rows(report.feed, events, "trades", None)
    return trade_keys(found)


def test_a_recorded_live_run_equals_the_exchange_and_its_recording_equals_it(day: LiveDay, tmp_path: Path) -> None:
    channels, recording = on_free_ports(day), tmp_path / "recording"
    trades: list[LiveRow] = []
    changes, levels, gaps = [], [], []
    with Live(channels, record=recording) as live:
        live.subscribe(schema="trades", callback=trades.append)
        live.subscribe(schema="books", callback=changes.append)
        live.subscribe(schema="gaps", callback=gaps.append)
        live.subscribe(schema="mbp_10", symbols=["PETR4"], callback=levels.append)
        sent = send_all(day, channels, live)
        (status,), (feed,) = live.status(), live.client.feeds.values()
        assert (status.state, status.packets, status.lost, status.untrusted) == (FeedState.LIVE, sent, 0, 0)
        truth = day.true_books()
        truth.advance(feed.channel.sequence)
        for number in day.instrument_ids:
            assert orders_of(feed, number) == truth.orders(number)
        book, number = live.book("PETR4"), live.client.find("PETR4")[1]
        assert book is not None and live.trust("PETR4").is_healthy and live.instrument("PETR4").symbol == "PETR4"
        assert live.book(str(number), channel=72) is not None
        assert live.state_trust("PETR4").is_healthy
        statistics = live.instrument("PETR4").statistics
        seen = [values["incomplete"] for name, values in statistics.items() if name.startswith("trades seen")]
        assert {*seen} == {feed.channel.trades_incomplete(number)}
    assert len(gaps) == status.totals.gaps > 0 and all(isinstance(gap, GapOpened) for gap in gaps)
    assert levels and all(isinstance(each, LiveLevels) and each.symbol == "PETR4" for each in levels)
    assert (levels[-1].bids, levels[-1].asks) == book.mbp(10)
    assert {change.instrument_id for change in changes} >= {row.instrument_id for row in trades}
    # The same from the recording, and in a lake.
    assert len(trades) > 50 and sorted(trade_keys(trades)) == sorted(replayed_trades(day, recording))
    assert sum(1 for path in closed_files(recording) for batch in open_capture(path) for _ in range(len(batch))) == sent
    ingest(tmp_path / "lake", closed_files(recording), tables=frozenset({"trades"}))
    in_lake = [(row["sequence"], row["instrument_id"], row["trade_id"]) for row in rows(tmp_path / "lake", "trades")]
    assert sorted(in_lake) == sorted(key[:3] for key in trade_keys(trades))


def test_a_loop_over_a_subscription_receives_until_the_client_is_closed(day: LiveDay) -> None:
    channels = on_free_ports(day)
    with Live(channels) as live, UdpReplay(addresses(channels)) as target:
        items = live.subscribe(schema="mbo", symbols=["PETR4"])
        for packets in day.packets(iter(lambda: 1_000, None)):
            target.send(packets)
            live.poll(0.05)
        for row in items:
            assert isinstance(row, LiveRow) and row.symbol == "PETR4" and row.values["side"] in ("B", "A", "N", None)
            live.close()
        with pytest.raises(UsageError, match="unknown instrument: NOPE"):
            live.book("NOPE")


@pytest.mark.parametrize(("schema", "said"), [("trade", "did you mean trades?"), ("x", "available: mbo, trades")])
def test_an_unknown_schema_is_an_error(day: LiveDay, schema: str, said: str) -> None:
    with Live(on_free_ports(day)) as live, pytest.raises(UsageError, match="unknown schema") as error:
        live.subscribe(schema=schema)
    assert said in str(error.value)


def test_an_address_in_use_is_an_error_at_start_and_leaves_nothing_behind(day: LiveDay, tmp_path: Path) -> None:
    channels = on_free_ports(day)
    with Live(channels), pytest.raises(ConfigError, match="Address already in use; check the addresses"):
        Live(channels, record=tmp_path / "r")
    Live(channels, record=tmp_path / "r").close()


def feed_command(*arguments: str | Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "umdf", "feed", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recorded(directory: Path) -> int:
    """Packets in the files of a recording, unfinished ones too."""
    count = 0
    for path in [*directory.glob("*.pcap"), *directory.glob("*.pcap.part")]:
        try:
            with open_capture(path) as capture:
                count += sum(map(len, capture))
        except CaptureError:  # nothing was flushed yet
            continue
    return count


def test_a_killed_recorder_loses_nothing_that_it_has_flushed(day: LiveDay, tmp_path: Path) -> None:
    channels, recording = on_free_ports(day), tmp_path / "recording"
    (tmp_path / "channels.toml").write_text(format_channels(channels))
    client = feed_command("--channels", tmp_path / "channels.toml", "--record", recording, "--json")
    try:
        until(lambda: (recording / LOCK).exists(), lambda: time.sleep(0.05))
        with pytest.raises(CaptureError, match="is being recorded by another process"):
            Recorder(recording, addresses(channels))
        sent = 0
        with UdpReplay(addresses(channels)) as target:
            first = next(day.packets(iter(lambda: 300, None)))
            until(lambda: recorded(recording) > 0, lambda: (target.send(first), time.sleep(0.3)))
            sent = recorded(recording)
    finally:
        client.send_signal(signal.SIGKILL)
        client.communicate()
    parts = sorted(recording.glob("*.part"))
    with parts[0].open("ab") as file:
        file.write(b"\x01\x02\x03\x04half a record")
    recorder = Recorder(recording, addresses(channels))
    recorder.close()
    assert len(recorder.closed_for_others) == len(parts) and not list(recording.glob("*.part"))
    assert sum(1 for path in closed_files(recording) for batch in open_capture(path) for _ in range(len(batch))) >= sent
    for path in closed_files(recording):
        with open_capture(path) as capture:
            assert sum(map(len, capture)) > 0 and not capture.warnings


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow beyond 64 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_stops_the_recorder_and_not_the_books(day: LiveDay, tmp_path: Path, small_disk: None) -> None:
    channels = on_free_ports(day)
    reports: list[Any] = []
    live = Live(channels, record=tmp_path / "recording")
    live.subscribe(schema="state", callback=reports.append)
    packets_sent, now_ns = 0, 0
    for packets in day.packets(iter(lambda: 200, None)):
        now_ns = int(packets.ts_ns[-1])
        live.process([packets], now_ns)
        packets_sent += len(packets)
    live.process([], now_ns + 10**9)
    (stopped,) = [event for event in reports if isinstance(event, RecorderStopped)]
    assert "cannot write the capture: File too large" in stopped.reason
    (status,) = live.status()
    assert status.state == FeedState.LIVE and live.recorder is not None and live.recorder.failure
    assert health([status], live.recorder.failure)[0] is False
    live.close()


def test_the_command_goes_on_without_a_recorder_that_stopped_and_says_so_at_the_end(
    day: LiveDay, tmp_path: Path
) -> None:
    channels = on_free_ports(day)
    (tmp_path / "channels.toml").write_text(format_channels(channels))
    words = [sys.executable, "-m", "umdf", "feed", "--channels", str(tmp_path / "channels.toml"), "--json"]
    limit = 64 << 10  # bytes of a file, instead of a full disk
    words += ["--record", str(tmp_path / "recording"), "--interval-s", "0.1", "--log", str(tmp_path / "feed.log")]
    client = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert client.stdout is not None
    records, is_enough = (json.loads(line) for line in client.stdout), threading.Event()

    def send() -> None:
        with UdpReplay(addresses(channels)) as target:
            while not is_enough.is_set():
                for packets in day.packets(iter(lambda: 200, None)):
                    target.send(packets)
                    time.sleep(0.002)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    stopped = next(record for record in records if record["type"] == "recorder")
    packets = [record["packets"] for record in itertools.islice((r for r in records if r["type"] == "status"), 5)]
    is_enough.set()
    sender.join()
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=DEADLINE_S)
    said = "recording stopped: cannot write the capture: File too large; check the free disk space"
    assert stopped["text"] == said
    assert packets[-1] > packets[0], "it still receives"
    error = json.loads(errors)
    assert (error["error"], error["exit_code"], client.returncode) == (said, 3, 3)


def test_metrics_and_health_are_served_on_loopback(day: LiveDay) -> None:
    with Live(on_free_ports(day)) as live:
        for packets in day.packets():
            live.process([packets], int(packets.ts_ns[-1]))
        live.process([], int(packets.ts_ns[-1]) + 10**8)

        def read(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://{LOOPBACK}:{server.port}{path}") as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        with MonitoringServer(0, lambda: metrics_text(live.status()), lambda: health(live.status(), "")) as server:
            code, text = read("/metrics")
            assert code == 200
            for line in text.splitlines():
                assert line.startswith(("# HELP umdf_", "# TYPE umdf_")) or (line.startswith("umdf_") and "} " in line)
            sequence = next(iter(live.client.feeds.values())).channel.sequence
            assert f'umdf_sequence{{protocol="sbe",channel="72"}} {sequence}\n' in text
            assert 'umdf_state{protocol="sbe",channel="72",state="live"} 1\n' in text
            assert 'umdf_early_units_total{protocol="sbe",channel="72"} 0\n' in text
            assert json.loads(read("/health")[1]) == {
                "healthy": True,
                "channels": {"72 (sbe)": "live"},
                "recorder": None,
            }
            assert read("/other")[0] == 404


def test_the_command_reports_status_as_json_and_ends(
    day: LiveDay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "channels.toml"
    file.write_text(format_channels(on_free_ports(day)))
    log, words = tmp_path / "feed.log", ["feed", "--channels", str(file), "--duration-s", "0.1"]
    assert run([*words, "--json", "--log", str(log)]) == 0
    printed = capsys.readouterr().out
    (record,) = [json.loads(line) for line in printed.splitlines()]
    assert (record["type"], record["channel"], record["state"], record["packets"]) == ("status", 72, "waiting", 0)
    assert log.read_text() == printed
    assert run([*words, "--channel", "sbe:72"]) == 0
    assert run([*words, "--channel", "fast:72"]) == 2
    assert "no channel fast:72 in the channels file; it has sbe:72" in capsys.readouterr().err
    file.write_text(file.read_text().replace("127.0.0.1:", "127.0.0.1;", 1))
    assert run(["feed", "--channels", str(file), "--duration-s", "0.1"]) == 3
    assert "channels.toml: channel 72: invalid incremental.A" in capsys.readouterr().err


def test_the_command_shows_every_channel_in_80_columns(day: LiveDay, tmp_path: Path) -> None:
    from cli.test_text_table import on_a_terminal

    file = tmp_path / "channels.toml"
    file.write_text(format_channels(on_free_ports(day)))
    program = f"from umdf.cli.app import run; run(['feed', '--channels', {str(file)!r}, '--duration-s', '0.7'])"
    shown = on_a_terminal(program, 80, NO_COLOR="1")
    assert "72 sbe" in shown and "waiting" in shown and "sequence" in shown


def test_received_rows_can_be_taken(day: LiveDay) -> None:
    packets = next(day.packets())
    part = packets.take(np.array([2, 0]))
    assert isinstance(part, ReceivedPackets) and part.start.tolist() == packets.start[[2, 0]].tolist()
