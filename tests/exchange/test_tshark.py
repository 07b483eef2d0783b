"""What an exchange sends over the loopback, as tshark sees it: well-formed UDP, within the limits, every packet."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from umdf.exchange.live.outputs import sinks_of, udp_lines
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.live.settings import read_settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "exchange.toml"
SECOND = 10**9
IP_UDP_HEADERS, PORTS = 28, 200
FIELDS = ("ip.src", "ip.dst", "ip.len", "ip.hdr_len", "udp.dstport", "udp.length", "data.len", "_ws.malformed")

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


@pytest.fixture
def first_port() -> Iterator[int]:
    """The first of PORTS ports; somebody listens at each, or the kernel would refuse what is sent to it."""
    for first in range(42_001, 60_000, PORTS):
        with ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + PORTS):
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                listener.bind(("127.0.0.1", port))
            yield first
            return
    pytest.fail("no free ports")


def test_tshark_finds_every_packet_well_formed(tmp_path: Path, first_port: int) -> None:
    file = tmp_path / "exchange.toml"
    file.write_text(EXAMPLE.read_text().replace("first_port = 20001", f"first_port = {first_port}"))
    settings = replace(
        read_settings(file), instruments=100, messages_per_s=200.0, start=datetime(2026, 11, 16, 9, 59, 58)
    )
    found, ports = tmp_path / "loopback.pcapng", f"{first_port}-{first_port + PORTS - 1}"
    command = ["tshark", "-i", "lo", "-f", f"udp dst portrange {ports}", "-B", "64", "-w", str(found)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tshark:
        assert tshark.stderr is not None
        lines = []
        while (line := tshark.stderr.readline()) and "Capturing on" not in line:
            lines.append(line)
        if tshark.poll() is not None or not line:
            pytest.skip(f"tshark may not capture here: {''.join(lines)[:200]}")
        while "File:" not in line and (line := tshark.stderr.readline()):
            pass  # it says so when the capture has started
        running = RunningMarket(settings, sinks_of(settings, [udp_lines(ttl=0)]))
        for _ in range(40):
            running.advance(running.now_ns + SECOND // 10)
        running.close()  # publishes what is still waiting
        sent = {
            (publisher.protocol, publisher.settings.channel, stream): packets
            for publisher in running.publication.publishers
            for stream, _, _, packets in publisher.sequences()
        }
        size = -1
        while size != found.stat().st_size:  # what the kernel still has arrives in blocks
            size = found.stat().st_size
            time.sleep(1)
        tshark.send_signal(signal.SIGINT)
        tshark.wait(30)
    read = ["tshark", "-r", str(found), "-d", f"udp.port=={ports},data", "-T", "fields"]
    output = subprocess.run(
        [*read, *(word for name in FIELDS for word in ("-e", name))], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("\t") for line in output.splitlines()]
    limits = {
        line.port: 1_400 if channel.protocol == "sbe" else 1_420
        for channel in settings.addresses for _, line in channel.lines()
    }  # fmt: skip
    for source, dest, total, header, port, length, payload, malformed in rows:
        assert (source, dest, header, malformed) == ("127.0.0.1", "127.0.0.1", "20", "")
        assert int(total) == int(payload) + IP_UDP_HEADERS == int(length) + 20
        assert 0 < int(payload) <= limits[int(port)]
    lines_of = {
        (channel.protocol, channel.number, stream): len(lines)
        for channel in settings.addresses for stream, lines in channel.streams.items()
    }  # fmt: skip
    assert len(rows) == sum(packets * lines_of[key] for key, packets in sent.items()) > 500
