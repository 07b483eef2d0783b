"""`umdf history`: what the Historical Replayer has, as a capture that other commands read."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from feed.live_truth import is_line, write_day

from umdf.cli.app import run
from umdf.exchange.publish.sinks import Packets
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.history import fetch_history
from umdf.feed.replay_client import ReplayFailure, Span
from umdf.transport.channels_file import (
    HISTORICAL_REPLAYER,
    ChannelAddresses,
    LineAddress,
    ReplayerAddresses,
    format_channels,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A channels file, and the last sequence of the day that is served."""
    directory = tmp_path_factory.mktemp("history")
    day, own = write_day(directory / "day", "fast"), ChannelHistory(directory / "log")
    sink, newest_ns = HistorySink(own), 0
    for packets in day.packets():
        kept = packets.take(np.flatnonzero(is_line(packets, "incremental", "A")))
        if len(kept):
            newest_ns = int(kept.ts_ns[-1])
            zeros = np.zeros(len(kept), np.int64)
            sink.write(Packets(kept.buffer, kept.start, kept.end, kept.ts_ns, zeros, zeros))
    service = ReplayService({"72": own}, ReplaySettings(), Profile(WEEK), lambda: newest_ns + 10**9)
    server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "HISTORICAL"), service)
    server.start()
    channel = ChannelAddresses(72, "fast", {"incremental": (LineAddress("A", "127.0.0.1", 20_001),)})
    replayer = ReplayerAddresses("CLIENT", "HISTORICAL", (server.address,))
    (directory / "channels.toml").write_text(format_channels([channel], {HISTORICAL_REPLAYER: replayer}))
    yield directory / "channels.toml", own.last
    server.stop()
    own.close()


def fetch(served: tuple[Path, int], out: Path, *words: str) -> int:
    return run(["history", "--channels", str(served[0]), "--channel", "72", "--out", str(out), "--json", *words])


def test_a_whole_session_comes_in_parts_and_is_decoded(
    served: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, last = tmp_path / "h.pcap", served[1]
    assert fetch(served, out, "--from", "1", "--to", str(last)) == 0
    assert json.loads(capsys.readouterr().out) == {"messages": last, "missing": 0, "file": str(out)}
    assert run(["decode", str(out), "--format", "fix"]) == 0
    lines = capsys.readouterr().out.splitlines()
    numbers = [int(line.partition("|34=")[2].partition("|")[0]) for line in lines if "|34=" in line]
    assert numbers == list(range(1, last + 1))


def test_missing_messages_are_reported(
    served: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = served[1]
    assert fetch(served, tmp_path / "h.pcap", "--from", str(last - 9), "--to", str(last + 5)) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["messages"] == 10 and "5 messages not available" in shown.err
    assert fetch(served, tmp_path / "h.pcap", "--from", str(last + 1), "--to", str(last + 2)) == 3
    assert "nothing was received: not available" in capsys.readouterr().err


def test_a_replayer_that_is_not_there_is_tried_once_and_not_for_every_part(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = closed.getsockname()
    times = itertools.count(1_794_000_000 * 10**9, 10**9)  # a second passes with every look at the clock
    replayer = ReplayerAddresses("CLIENT", "HISTORICAL", (address,))
    found = list(fetch_history(replayer, Span(72, 1, 1_000_000), lambda: next(times)))
    assert [(each.span.first, each.span.last) for each in found if isinstance(each, ReplayFailure)] == [
        (1, 2_000), (2_001, 1_000_000),
    ]  # fmt: skip
    assert len(found) == 2 and all("connect" in each.reason for each in found if isinstance(each, ReplayFailure))


def test_nothing_is_left_of_a_capture_without_messages(served: tuple[Path, int], tmp_path: Path) -> None:
    out, last = tmp_path / "h.pcap", served[1]
    assert fetch(served, out, "--from", str(last + 1), "--to", str(last + 2)) == 3
    assert not out.exists()
