"""What tests of kill -9 share: how far a run has come, what a reader sees meanwhile, and which process dies."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lake.lake_commands import Command

from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.schemas import tables

# How far an ingest has come, as its directory shows it, and how much of that there is in a small one.
STEPS: dict[str, tuple[str, int]] = {
    "files": ("*/trading_date=*/*/part-{commit:08d}-*.parquet", 20),
    "surveys": ("_lake/surveys/*.json", 3),
    "staged": ("_lake/work/ingest-*/staged/**/*", 6),
    "intent": ("_lake/intents/{commit:08d}.json", 1),
    "tables": ("*/_delta_log/*{before:020d}.json", 12),
}


def rows_of_all(root: Path) -> tuple[int, ...]:
    snapshot = open_snapshot(root)
    return tuple(snapshot.rows(name) for name in tables())


@contextmanager
def reading(root: Path) -> Iterator[set[tuple[int, ...]]]:
    """What a reader sees meanwhile: the numbers of rows of all tables together."""
    seen: set[tuple[int, ...]] = set()
    faults: list[Exception] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.3):
            try:
                seen.add(rows_of_all(root))
            except Exception as fault:
                faults.append(fault)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        ended.set()
        reader.join()
    assert not faults, faults[0]


def reached_step(root: Path, step: str, wanted: int) -> Callable[[], bool]:
    number = open_snapshot(root).number
    pattern = STEPS[step][0].format(commit=number + 1, before=number)
    there = len(list(root.glob(pattern)))
    return lambda: len(list(root.glob(pattern))) - there >= wanted


def kill_a_worker(command: Command, chance: random.Random) -> bool:
    with suppress(ProcessLookupError):
        if workers := sorted(command.workers()):
            os.kill(chance.choice(workers), signal.SIGKILL)
            return True
    return False
