"""The script on our exchange and our client, over sockets of this machine.

run = certify(Combination("fast", "priority", "equities"), directory)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from umdf.certify.client import OurClient
from umdf.certify.exchange_session import open_exchange, packets_sent
from umdf.certify.player import Player, Progress
from umdf.certify.profile import Combination
from umdf.certify.results import Run, StepResult
from umdf.certify.selection import EVERYTHING, Selection
from umdf.certify.stage import Stage
from umdf.transport.channels_file import LOOPBACK
from umdf.transport.free_ports import free_ports

MODE = "our exchange, our client"
PORTS = 16  # four channels of three streams, two replayers
SYNCHRONIZE_S = 1.5  # of the exchange's time


@contextmanager
def open_session(
    combination: Combination, directory: Path, selection: Selection = EVERYTHING
) -> Iterator[tuple[Stage, OurClient]]:
    """An exchange on the day of the script, and our client, connected to it."""
    ports = iter(free_ports(PORTS))
    with open_exchange(combination, directory, selection, lambda: next(ports), LOOPBACK) as opened:
        stage = opened.stage
        client = OurClient(opened.channels, opened.replayers, lambda: packets_sent(stage.exchange))
        try:
            client.connect(starts_again=True)
            stage.after_advance = client.poll
            stage.advance(SYNCHRONIZE_S)
            client.settle()
            yield stage, client
        finally:
            client.close()


def certify(
    combination: Combination,
    directory: Path,
    selection: Selection = EVERYTHING,
    progress: Progress = lambda _: None,
) -> Run:
    """Play the script; `directory` gets the history of the replayers."""
    with open_session(combination, directory, selection) as (stage, client):
        return collect(combination, MODE, Player(combination, stage, client).play(selection), progress)


def collect(combination: Combination, mode: str, results: Iterator[StepResult], progress: Progress) -> Run:
    """The run that results belong to, once there is no other."""
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    steps: list[StepResult] = []
    for result in results:
        steps.append(result)
        progress(result)
    what = str(combination), combination.protocol, combination.generation, combination.segment, mode
    return Run(*what, started, round(time.monotonic() - began, 3), tuple(steps))
