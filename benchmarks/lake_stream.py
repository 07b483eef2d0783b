"""Second half of `make bench-lake`: a recording into a lake in micro-batches, and queries of that lake.

The stream is measured from the start of its first micro-batch to the end of its last; the lag of a message is measured
with a recorder that closes its files at the pace at which the stream has just shown that it can follow. The queries
are of that lake: LAG_ROUNDS of the recording's rounds, so of 20 M messages and more.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.measure import Result
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.lake.commit.writer import open_writer
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.runtime.session import session_scope
from umdf.lake.schemas import tables
from umdf.lake.stream.stream_ingest import MicroBatch, StreamIngest
from umdf.market.families import FAMILIES
from umdf.transport.recording import MANIFEST

FOLLOW = FollowSettings()
BATCHES = 34
FILES_PER_ROUND = 3  # files that are closed at about the same time: lines A and B, snapshots
ROUNDS = 2  # of them in a micro-batch
MESSAGE_FACTOR = 3  # as many messages as the other half has: micro-batches of some two seconds
LAG_ROUNDS = 24  # of 69, so 20 M messages and more
SAMPLES = 20  # of each file, for the lag
RECORDER_SLOWDOWN = 1.25  # of the recorder: a little slower than the stream
COLD_QUERY = """
import sys, time
import umdf
lake_path, symbol, date = sys.argv[1:]
umdf.Lake, __import__("pyarrow.dataset")
started_s = time.monotonic()
rows = umdf.Lake(lake_path).get_range("mbp_1", symbol, date).to_arrow()
print(time.monotonic() - started_s, rows.num_rows)
"""


class Recording:
    """A capture whose manifest grows."""

    def __init__(self, directory: Path, messages: int, instruments: int) -> None:
        # A day of the bulk generator has 4,000 messages a second of its own clock, and three series of files.
        rounds = BATCHES * ROUNDS
        roll_s = max(messages // 4_400 // rounds, 1)
        settings = BulkSettings(messages, instruments, roll_bytes=1 << 30, roll_s=roll_s, snapshot_loops=2 * rounds)
        write_capture(settings, directory)
        self.path = directory / "capture"
        self.lines = (self.path / MANIFEST).read_text().splitlines(keepends=True)
        ends = [json.loads(line)["last_ns"] for line in self.lines]
        self.days_s = (max(ends) - min(json.loads(line)["first_ns"] for line in self.lines)) / 1e9

    def list_files(self, count: int) -> None:
        (self.path / MANIFEST).write_text("".join(self.lines[:count]))

    def drop_files_after(self, count: int) -> None:
        """Delete the files after the first `count`, which would take page cache from the others."""
        for line in self.lines[count:]:
            (self.path / json.loads(line)["file"]).unlink()
        del self.lines[count:]


def run(directory: Path, messages: int, instruments: int) -> Iterator[Result]:
    recording = Recording(directory / "recording", MESSAGE_FACTOR * messages, instruments)
    lake = directory / "streamed"
    batches: list[MicroBatch] = []
    with session_scope(cores=2, work=directory / "spark", quick=True) as spark:
        yield from _throughput(spark, recording, lake, batches)
        usual_s = statistics.median(batch.seconds for batch in batches)
        shutil.rmtree(lake)
        recording.drop_files_after(FILES_PER_ROUND * LAG_ROUNDS)
        yield from _lag(spark, recording, directory / "live", usual_s / ROUNDS)
    yield from _queries(directory / "live", directory)
    yield from _source(recording, directory)


def _throughput(spark: Any, recording: Recording, lake: Path, batches: list[MicroBatch]) -> Iterator[Result]:
    with open_writer(lake, "stream") as writer:
        files = FILES_PER_ROUND * ROUNDS
        stream = StreamIngest(
            spark, recording.path, writer, IngestSettings(follow=FOLLOW), max_files=files, on_batch=batches.append
        )
        stream.run(once=True)
        stream.finish()
        finished_s = time.time()
        events = sum(writer.snapshot.rows(name) for name in FAMILIES if name in tables())  # each once
    start_s = batches[0].committed_ns / 1e9 - batches[0].seconds
    seconds = batches[-1].committed_ns / 1e9 - start_s
    figure = f"{events:,} events, {len(batches)} batches, {seconds:.1f} s"
    yield Result("stream, local[2]", figure, events / seconds / 1e6, "M events/s", 1.0, at_least=True)
    longest, middle = max(batch.seconds for batch in batches), statistics.median(batch.seconds for batch in batches)
    yield Result("longest micro-batch", f"median {middle:.1f} s", longest, "s", 10.0)
    yield Result(
        "files joined when the day is over", "behind the last", finished_s - batches[-1].committed_ns / 1e9, "s"
    )


def _lag(spark: Any, recording: Recording, lake: Path, round_s: float) -> Iterator[Result]:
    """Files are closed one round after the other; a message came at its share of the time before its file closed."""
    batches: list[MicroBatch] = []
    rounds = [recording.lines[at : at + FILES_PER_ROUND] for at in range(0, len(recording.lines), FILES_PER_ROUND)]
    closed: list[tuple[float, int, int]] = []  # when, and the times of the first and last packet
    recording.list_files(FILES_PER_ROUND)
    pace = RECORDER_SLOWDOWN * round_s
    with open_writer(lake, "stream") as writer:
        stream = StreamIngest(spark, recording.path, writer, IngestSettings(follow=FOLLOW), on_batch=batches.append)

        def record() -> None:
            for number in range(1, len(rounds)):
                time.sleep(pace)
                entries = [json.loads(line) for line in rounds[number] if "incremental" in line]
                recording.list_files(FILES_PER_ROUND * (number + 1))
                if entries:
                    closed.append((time.time(), entries[0]["first_ns"], entries[0]["last_ns"]))
            time.sleep(2 * pace)
            stream.stop()

        recorder = Thread(target=record, daemon=True)
        recorder.start()
        stream.run(interval_s=0)
        recorder.join()
        stream.finish()
    moved = [
        (batch.outcome.open_days.values(), batch.committed_ns / 1e9) for batch in batches if batch.outcome.open_days
    ]
    reached = [(max(edge.ts_recv for edge in edges), committed) for edges, committed in moved]
    lags = []
    for when, first, last in closed:
        for share in ((sample + 0.5) / SAMPLES for sample in range(SAMPLES)):
            ts, came = first + share * (last - first), when - pace * (1 - share)
            seen = [committed for edge, committed in reached if edge >= ts]
            lags += [min(seen) - came] if seen else []
    lags.sort()
    p50, p99 = statistics.median(lags), lags[int(len(lags) * 0.99)]
    figure = f"p50 {p50:.1f} s, p99 {p99:.1f} s; files are closed every {pace:.1f} s"
    yield Result("lag, packet → queryable, p50", figure, p50, "s")


def _queries(lake: Path, directory: Path) -> Iterator[Result]:
    import umdf

    opened = umdf.Lake(lake)
    [date] = opened.dates()
    rows = opened.get_range("day_statistics", columns=["symbol", "events"]).to_arrow().to_pylist()
    symbols = [row["symbol"] for row in sorted(rows, key=lambda row: -row["events"])]
    command = [sys.executable, "-c", COLD_QUERY, str(lake), symbols[0], str(date)]
    answers = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
    seconds, count = min((float(s), n) for s, n in answers)
    yield Result("one instrument-day of mbp_1, to_arrow", f"{int(count):,} rows, new process", seconds, "s", 1.0)
    with session_scope(cores=2, work=directory / "spark") as spark:
        on_spark = umdf.Lake(lake, spark=spark)
        for symbol in symbols[8:16]:  # until the JVM has compiled what such a query needs
            on_spark.get_range("mbp_1", symbol, str(date)).to_spark().toArrow()
        times = []
        for symbol in symbols[5:8]:
            start_s = time.monotonic()
            on_spark.get_range("mbp_1", symbol, str(date)).to_spark().toArrow()
            times.append(time.monotonic() - start_s)
        yield Result("one instrument-day of mbp_1, Spark", "warm, another symbol each time", min(times), "s", 1.0)
    start_s = time.monotonic()
    joined = opened.trades_with_quotes(symbols[:50], str(date)).to_arrow()
    seconds = time.monotonic() - start_s
    rate = joined.num_rows / seconds
    yield Result("trades with quotes, 50 instruments", f"{joined.num_rows:,} rows", rate / 1e6, "M rows/s")


def _source(recording: Recording, directory: Path) -> Iterator[Result]:
    """Captures as a DataFrame, without a lake: the second time, when everything is warm."""
    import umdf

    with session_scope(cores=2, work=directory / "spark") as spark:
        umdf.register_source(spark)
        frame = spark.read.format("umdf").option("schema", "mbo").load(str(recording.path))
        frame.write.format("noop").mode("overwrite").save()
        start_s = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        seconds, rows = time.monotonic() - start_s, frame.select("sequence").count()
    yield Result("source → DataFrame, mbo", f"{rows:,} rows", rows / seconds / 1e6, "M rows/s")
