"""`make bench-lake`: captures into tables on Spark, beside the same functions in plain processes.

Sessions are those of `umdf ingest`, and their start is not counted. The candidates take turns, and of each the fastest
round counts. One capture of both lines is written first, below a temporary directory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import lake_stream
from benchmarks.__main__ import _line
from benchmarks.measure import Result
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.lake.commit.writer import open_writer
from umdf.lake.ingest import BOOK_TABLES, ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import DEFAULT_TABLES, IngestSettings, TaskRunner
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.session import session_scope
from umdf.lake.runtime.spark_runner import SparkRunner

MESSAGES, WARM_MESSAGES, INSTRUMENTS, ROUNDS = 20_000_000, 60_000, 2_000, 3
EVENTS = DEFAULT_TABLES - set(BOOK_TABLES) | {"mbo", "trades", "statistics"}
TABLES = {"event tables": (EVENTS, 1.3), "books and bars": (DEFAULT_TABLES, 1.5)}
GIB = 1 << 30


class LakeBenchmark:
    def __init__(self, directory: Path, messages: int, instruments: int, rounds: int) -> None:
        self.directory, self.rounds = directory, rounds
        self.outcomes: dict[str, IngestResult] = {}
        self.days = {}
        for name, settings in (
            ("warm", BulkSettings(WARM_MESSAGES, 50)),
            ("day", BulkSettings(messages, instruments, roll_bytes=1 << 30, roll_s=86_400)),
        ):
            write_capture(settings, directory / name)
            self.days[name] = sorted((directory / name / "capture").glob("*.pcap"))

    def measure(self, run: TaskRunner, tables: str, day: str = "day") -> float:
        root = self.directory / "lake"
        shutil.rmtree(root, ignore_errors=True)
        with open_writer(root) as writer:
            started_s = time.monotonic()
            self.outcomes[tables] = ingest_captures(
                self.days[day], writer, run, IngestSettings(tables=TABLES[tables][0])
            )
            return time.monotonic() - started_s

    def fastest(self, runners: dict[str, TaskRunner], what: str) -> dict[str, float]:
        """Seconds of each runner; all are warm."""
        best = dict.fromkeys(runners, float("inf"))
        for run in runners.values():
            self.measure(run, what, "warm")
        for _ in range(self.rounds):
            for name, run in runners.items():
                best[name] = min(best[name], self.measure(run, what))
        return best


def run(messages: int = MESSAGES, instruments: int = INSTRUMENTS, rounds: int = ROUNDS) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as temporary:
        bench = LakeBenchmark(Path(temporary), messages, instruments, rounds)
        two: dict[str, float] = {}
        with session_scope(cores=2, work=Path(temporary) / "spark", quick=True) as spark, LocalRunner(2) as plain:
            for what, (_, target) in TABLES.items():
                best = bench.fastest({"spark": SparkRunner(spark), "plain": plain}, what)
                two[what] = best["spark"]
                rate = f"{messages / best['spark'] / 1e6:.2f} M messages/s, plain {messages / best['plain'] / 1e6:.2f}"
                yield Result(f"captures → {what}, local[2]", rate, best["spark"] / best["plain"], "× plain", target)
        with _pin_to_one_core(), session_scope(cores=1, work=Path(temporary) / "spark", quick=True) as spark:
            for what in TABLES:
                one = bench.fastest({"spark": SparkRunner(spark)}, what)["spark"]
                figure = f"{one:.1f} s → {two[what]:.1f} s"
                yield Result(f"captures → {what}, 1 → 2 cores", figure, one / two[what], "× faster", 1.7, at_least=True)
        yield from _sizes(bench.outcomes["books and bars"])
        shutil.rmtree(Path(temporary) / "day")
        yield from lake_stream.run(Path(temporary), messages, instruments)


@contextmanager
def _pin_to_one_core() -> Iterator[None]:
    """For this thread and the processes that it starts: else driver and JVM would use the second core."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def _sizes(outcome: IngestResult) -> Iterator[Result]:
    peak = outcome.peak_memory_bytes / GIB
    yield Result("peak memory of a task", f"{peak * 1024:.0f} MiB", peak, "GiB", 2.0)
    yield Result("largest book task", "one instrument at 15 %", outcome.largest_task_share, "of the rows")
    for name in ("mbo", "packets"):
        size = outcome.bytes[name] / outcome.rows[name]
        yield Result(f"bytes a row of {name}", f"{outcome.rows[name]:,} rows", size, "bytes")
    total = sum(outcome.bytes.values())
    yield Result("bytes a message, all tables", f"{total / 1e6:,.0f} MB", total / outcome.messages, "bytes")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench-lake", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--instruments", type=int, default=INSTRUMENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    missed = 0
    print(f"{'what':<42} {'ratio':>8}  {'of what':<22} {'target':>8}      figure")
    for result in run(options.messages, options.instruments, options.rounds):
        print(_line(result), flush=True)
        missed += not result.met
    print(f"{missed} missed" if missed else "all targets met")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
