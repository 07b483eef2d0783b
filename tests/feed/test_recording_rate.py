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

PACKETS_PER_S = 10_000  # 5,000 on each line
AT_ONCE = 50


def waiting_bytes() -> dict[int, int]:
    """Of the buffer of each unicast UDP socket of this machine, by port."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16): int(row[4].partition(":")[2], 16) for row in rows}


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
        ports = {line.port for channel in channels for lines in channel.streams.values() for line in lines}
        while not ports <= waiting_bytes().keys():
            assert client.poll() is None
            time.sleep(0.05)
        start_s, sent = time.monotonic(), 0
        for packets in day.packets(iter(lambda: AT_ONCE, None)):
            time.sleep(max(0.0, start_s + sent / PACKETS_PER_S - time.monotonic()))
            target.send(packets)
            sent += len(packets)
        took_s = time.monotonic() - start_s
        while any(waiting_bytes()[port] for port in ports):  # what nobody has received yet
            assert client.poll() is None
            time.sleep(0.05)
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 0
    last = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    recorded = sum(len(batch) for path in closed_files(recording) for batch in open_capture(path))
    assert last["type"] == "status" and recorded == last["packets"] == sent - last["lost"] > 0
    assert sent >= sized(1_000, 600 * PACKETS_PER_S)
    print(f"{sent:,} packets sent in {took_s:.0f} s, {last['lost']:,} lost by the sockets, {recorded:,} recorded")
