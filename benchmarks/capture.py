"""Capture files: scanning one from the page cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import sbe_traffic
from benchmarks.measure import Result, fastest
from umdf.transport.capture import open_capture
from umdf.transport.pcap_writer import PcapWriter

MESSAGES = 300_000
COPIES = 10


def run() -> Iterator[Result]:
    packets = sbe_traffic.encode_packets(MESSAGES)
    ts_ns = 1_763_000_000_000_000_000 + np.arange(len(packets.start)) * 7_000
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "traffic.pcap"
        with PcapWriter(path) as writer:
            for _ in range(COPIES):
                flow = ("10.0.0.1", 20_000), ("224.0.20.1", 20_001)
                writer.write_batch(packets.buffer, packets.start, packets.end, ts_ns, *flow)

        def scan() -> None:
            with open_capture(path) as capture:
                for _ in capture:
                    pass

        size = path.stat().st_size
        best = fastest({"scan": scan})["scan"]
        count = COPIES * len(packets.start)
        figure = f"{best / count * 1e9:.0f} ns/packet of {size / count:.0f} bytes"
        yield Result("pcap scan, page cache", figure, size / best / 1e9, "GB/s", 2, at_least=True)
