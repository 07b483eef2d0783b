"""Bulk captures: messages per second from start to closed files, with both lines and the truth."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result
from umdf.exchange.bulk.capture import Summary, write_capture
from umdf.exchange.bulk.settings import BulkSettings

MESSAGES = {"sbe": 4_000_000, "fast": 400_000}
WARM_MESSAGES = 20_000
INSTRUMENTS = 500
ROUNDS = 3
TARGETS = {"sbe": 1.0, "fast": 0.2}  # million messages a second, on 2 cores
NAMES = {"sbe": "Binary", "fast": "FIX/FAST"}


def run() -> Iterator[Result]:
    for protocol, messages in MESSAGES.items():
        for generation in ("priority", "position"):
            _generate(protocol, generation, WARM_MESSAGES)
            best = min(
                (_generate(protocol, generation, messages) for _ in range(ROUNDS)),
                key=lambda summary: summary.elapsed_s,
            )
            rate = best.messages / best.elapsed_s / 1e6
            packets, megabytes = best.packets / best.elapsed_s / 1e3, best.bytes / best.elapsed_s / 1e6
            figure = f"{packets:.0f} k packets/s, {megabytes:.0f} MB/s"
            name = f"bulk capture, {NAMES[protocol]}, {generation}"
            yield Result(name, figure, rate, "M messages/s", TARGETS[protocol], at_least=True)


def _generate(protocol: str, generation: str, messages: int) -> Summary:
    settings = BulkSettings(messages, INSTRUMENTS, protocol, generation)
    with tempfile.TemporaryDirectory() as directory:
        return write_capture(settings, Path(directory))
