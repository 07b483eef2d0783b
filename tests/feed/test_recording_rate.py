"""`umdf feed --record` at the rate of a busy channel: what the kernel delivered is in the files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from feed.live_truth import write_day
from feed.test_live import addresses, on_free_ports

from umdf.feed.replay import UdpReplay
from umdf.transport.capture import open_capture
from umdf.transport.channels_file import format_channels
from umdf.transport.recording import closed_files
from umdf.transport.rolling_captures import LOCK

PACKETS_PER_S = 10_000  # 5,000 on each line
AT_ONCE = 50


def test_nothing_that_the_kernel_delivered_is_missing_in_the_recording(
    tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    """Ten minutes at full size."""
    day = write_day(tmp_path / "day", messages=sized(4_000, 6_200_000))
    channels, recording = on_free_ports(day), tmp_path / "recording"
    (tmp_path / "channels.toml").write_text(format_channels(channels))
    words = [sys.executable, "-m", "umdf", "feed", "--channels", str(tmp_path / "channels.toml"), "--json"]
    with (
        (tmp_path / "out").open("w") as out,
        subprocess.Popen([*words, "--record", str(recording)], stdout=out) as client,
        UdpReplay(addresses(channels)) as target,
    ):
        while not (recording / LOCK).exists():
            assert client.poll() is None
            time.sleep(0.05)
        time.sleep(1)  # the sockets are opened then
        start_s, sent = time.monotonic(), 0
        for packets in day.packets(iter(lambda: AT_ONCE, None)):
            time.sleep(max(0.0, start_s + sent / PACKETS_PER_S - time.monotonic()))
            target.send(packets)
            sent += len(packets)
        took_s = time.monotonic() - start_s
        time.sleep(1)
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    last = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    recorded = sum(len(batch) for path in closed_files(recording) for batch in open_capture(path))
    assert last["type"] == "status" and recorded == last["packets"] == sent - last["lost"] > 0
    assert sent >= sized(1_000, 600 * PACKETS_PER_S)
    print(f"{sent:,} packets sent in {took_s:.0f} s, {last['lost']:,} lost by the sockets, {recorded:,} recorded")
