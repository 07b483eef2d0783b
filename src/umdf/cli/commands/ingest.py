"""`umdf ingest`: captures into the tables of a lake, on Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import (
    ChannelsOption,
    NoSparkFlag,
    TablesOption,
    TargetLakeOption,
    WriterWaitOption,
    parse_path,
    split_list,
)
from umdf.cli.output import DamagedError, JsonFlag, Printer, counted, print_json, printer_of, size_text
from umdf.cli.spark_options import (
    EnvironmentOption,
    LocalCoresOption,
    MasterOption,
    SparkConfOption,
    open_lake_session,
    spark_session_options,
)
from umdf.cli.text_table import print_table
from umdf.errors import UsageError
from umdf.lake.plan.input_paths import find_captures, read_channel_config

if TYPE_CHECKING:
    from umdf.lake.ingest_result import IngestResult
    from umdf.lake.ingest_settings import StepProgress, TaskRunner

EXAMPLES = (
    "umdf ingest day/capture --lake lake                            every capture in a directory",
    "umdf ingest a.pcap b.pcap.zst --lake lake --cores 2            on two cores",
    "umdf ingest day/capture/manifest.jsonl --lake lake             the files listed in a manifest",
    "umdf ingest day/capture --lake lake --tables trades,ohlcv_1m   only these tables",
    "umdf ingest day/capture --lake lake --master spark://host:7077 --environment umdf-env.tar.gz",
    "umdf ingest day/capture --lake lake --channels channels.toml --json",
)
MAX_FILES_LISTED = 5  # files in a warning
MIN_ROWS_FOR_AVERAGE = 1_000  # a small file is mostly Parquet's own metadata


def ingest(
    ctx: typer.Context,
    captures: Annotated[
        list[Path],
        typer.Argument(
            parser=parse_path,
            help="Captures, directories of captures, manifests (.jsonl), or patterns in quotes",
            metavar="CAPTURE",
        ),
    ],
    lake: TargetLakeOption,
    tables: TablesOption = "",
    channels: ChannelsOption = None,
    master: MasterOption = None,
    cores: LocalCoresOption = None,
    environment: EnvironmentOption = None,
    conf: SparkConfOption = None,
    no_spark: NoSparkFlag = False,
    writer_wait_s: WriterWaitOption = 0.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 if a file was damaged or not a capture")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Load captures into a lake: packets, events, books, bars and gaps, as Delta tables.

    All tables change in one commit. Files that the lake already has are skipped, whatever their names; a file that has
    grown is read again, and its channel-days are rebuilt. If a file belongs to a day that is already in the lake, that
    channel-day is rebuilt from all its files.

    --channels names the channel, stream and line of a multicast group where the content does not show them (see
    docs/lake.md, "Inputs", for an example). The lake keeps this configuration for later files.
    """
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import ingest_captures
    from umdf.lake.ingest_settings import IngestSettings

    spark_options = spark_session_options(master, cores, environment, conf, no_spark)
    printer, (paths, skipped) = printer_of(ctx), find_captures(captures)
    _warn_of_skipped(printer, skipped)
    settings = IngestSettings(tables=parse_tables(tables), channel_config=read_channel_config(channels))
    started_s = time.monotonic()
    with (
        open_writer(lake, "ingest", writer_wait_s=writer_wait_s) as writer,
        open_runner(lake, spark_options, no_spark) as run,
        progress_bars(printer) as stage,
    ):
        outcome = ingest_captures(paths, writer, run, settings, stage)
    seconds = time.monotonic() - started_s
    _print_warnings(printer, outcome)
    print_outcome(outcome, seconds, as_json)
    if strict and (outcome.unusable or outcome.damaged):
        damaged = len(outcome.unusable) + len(outcome.damaged)
        raise DamagedError(f"{damaged} damaged files", "the rest was ingested")


def parse_tables(text: str) -> frozenset[str]:
    from umdf.lake.ingest import TABLES
    from umdf.lake.ingest_settings import DEFAULT_TABLES

    names = frozenset(split_list(text))
    unknown = sorted(names - set(TABLES))
    if unknown:
        raise UsageError(f"unknown table: {', '.join(unknown)}", f"available: {', '.join(TABLES)}")
    return names or DEFAULT_TABLES


@contextmanager
def open_runner(lake: Path, spark_options: Mapping[str, Any], no_spark: bool) -> Iterator[TaskRunner]:
    if no_spark:
        from umdf.lake.runtime.local_runner import LocalRunner

        with LocalRunner(spark_options["cores"] or 1) as runner:
            yield runner
        return
    from umdf.lake.runtime.spark_runner import SparkRunner

    with open_lake_session(lake, spark_options) as session:
        yield SparkRunner(session)


@contextmanager
def progress_bars(printer: Printer) -> Iterator[StepProgress]:
    """A progress bar for each stage on a terminal, with its rate and remaining time; nothing elsewhere."""
    if printer.json or not sys.stderr.isatty():
        yield lambda name, tasks: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    rate = TextColumn("{task.fields[rate]}")
    columns = ("[bold]{task.description:<8}", BarColumn(), MofNCompleteColumn(), rate, TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:

        def stage(name: str, tasks: int) -> Callable[[int, int], None] | None:
            if not tasks:
                return None
            task, started_s = progress.add_task(name, total=tasks, rate=""), time.monotonic()

            def done(finished: int, total: int) -> None:
                rate = f"{finished / max(time.monotonic() - started_s, 1e-9):.1f} tasks/s"
                progress.update(task, completed=finished, total=total, rate=rate)

            return done

        yield stage


def _warn_of_skipped(printer: Printer, skipped: list[Path]) -> None:
    if skipped:
        listed = ", ".join(path.name for path in skipped[:MAX_FILES_LISTED]) + (
            " …" if len(skipped) > MAX_FILES_LISTED else ""
        )
        printer.warn(f"skipped {len(skipped):,} files that are not captures: {listed}")


def _print_warnings(printer: Printer, outcome: IngestResult) -> None:
    if outcome.unusable:
        listed = ", ".join(f"{path} ({reason})" for path, reason in outcome.unusable)
        printer.warn(f"skipped, not captures: {listed}")
    for notice in (*outcome.damaged, *outcome.notices):
        printer.warn(notice)
    if outcome.clock_offsets:
        from umdf.lake.recording.capture_clock import offset_text

        path, offset_ns = max(outcome.clock_offsets, key=lambda found: abs(found[1]))
        others = f" and {len(outcome.clock_offsets) - 1} more files" if len(outcome.clock_offsets) > 1 else ""
        printer.warn(
            f"{path}{others}: the capture clock is {offset_text(offset_ns)}; rows have the flag BAD_TS_RECV, and "
            "queries use exchange time"
        )
    if outcome.not_stored:
        printer.warn(f"quarantine is full: {outcome.not_stored:,} more packets or messages are counted but not stored")
    if outcome.unrecognised:
        printer.warn(f"{outcome.unrecognised:,} packets belong to multicast groups without UMDF traffic")
    if outcome.missing_sequences:
        lost = f"{counted(outcome.missing_sequences, 'sequence number')} lost in {counted(outcome.gaps, 'gap')}"
        printer.warn(f"{lost}; see the table gaps")

    if outcome.missing_in_loops or outcome.incomplete_snapshots:
        lost = f"{outcome.missing_in_loops:,} sequence numbers of looping streams lost"
        printer.warn(f"{lost}, {outcome.incomplete_snapshots:,} snapshots incomplete; see the tables gaps and quality")


def _bytes_per_row(size_bytes: int, rows: int) -> str:
    return f"{size_bytes / rows:.1f}" if rows >= MIN_ROWS_FOR_AVERAGE else ""


def print_outcome(outcome: IngestResult, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json({**vars(outcome), "seconds": round(seconds, 3)})
        return
    rows = [
        (name, f"{count:,}", size_text(outcome.bytes[name]), _bytes_per_row(outcome.bytes[name], count))
        for name, count in sorted(outcome.rows.items(), key=lambda item: -item[1])
    ]
    if rows:
        print_table(("table", "rows", "size", "bytes/row"), rows)
    rate = outcome.messages / max(seconds, 1e-9)
    grown = f" ({len(outcome.grown)} grown)" if outcome.grown else ""
    files = f"{counted(outcome.new, 'new file')}{grown}, {outcome.known:,} already in the lake"
    summary = f"{files}; {counted(outcome.messages, 'message')} in {seconds:.1f} s"
    print(f"{summary} ({rate:,.0f}/s); commit {outcome.commit}" if outcome.commit else f"{summary}; nothing to do")
