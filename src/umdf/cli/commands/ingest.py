"""`umdf ingest`: captures into the tables of a lake, on Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import parse_path
from umdf.cli.output import DamagedError, JsonFlag, Printer, print_json, printer_of
from umdf.cli.spark_options import (
    CoresOption,
    EnvironmentOption,
    MasterOption,
    SparkConfOption,
    open_lake_session,
    spark_session_options,
)
from umdf.cli.text_table import print_table
from umdf.errors import UsageError
from umdf.lake.plan.input_paths import find_captures, read_channel_config

if TYPE_CHECKING:
    from umdf.lake.ingest import StageProgress, TaskRunner
    from umdf.lake.ingest_result import IngestResult

EXAMPLES = (
    "umdf ingest day/capture --lake lake                           every capture below a directory",
    "umdf ingest a.pcap b.pcap.zst --lake lake --cores 2           on two cores of this machine",
    "umdf ingest day/capture/manifest.jsonl --lake lake            the files that a manifest lists",
    "umdf ingest day/capture --lake lake --tables trades,ohlcv_1m  only these tables",
    "umdf ingest day/capture --lake lake --master spark://host:7077 --packed umdf-env.tar.gz",
    "umdf ingest day/capture --lake lake --config channels.toml --json",
)
MAX_FILES_LISTED = 5  # files in a warning


def ingest(
    ctx: typer.Context,
    captures: Annotated[
        list[Path], typer.Argument(parser=parse_path, help="Captures, directories of them, or manifests (.jsonl).")
    ],
    lake: Annotated[
        Path,
        typer.Option(parser=parse_path, help="Directory of the lake; it is made if it does not exist.", metavar="DIR"),
    ],
    master: MasterOption = None,
    cores: CoresOption = None,
    packed: EnvironmentOption = None,
    conf: SparkConfOption = None,
    tables: Annotated[str, typer.Option(help="Tables to write, with commas between them; else all.")] = "",
    config: Annotated[Path | None, typer.Option(help="Groups and ports of channels (TOML).", metavar="FILE")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without Spark, in processes of our own.")] = False,
    wait_s: Annotated[float, typer.Option(help="Wait so long for another writer of the lake.")] = 0.0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 4 if a file was damaged or no capture.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring captures into a lake: packets, events, books, bars, and what was lost, as Delta tables.

    Everything becomes visible together, in one commit. A file that the lake knows is passed over, whatever its name; of
    one that has grown since, the rest is added. A day to which a file comes later is made again from all its files.
    --config names groups where their content does not tell enough, and is kept in the lake for all that comes later:
    [\\[stream]] group = "224.0.20.72", port = 20001, channel = 72, stream = "incremental", line = "A".
    """
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import IngestSettings, ingest_captures

    spark_options = spark_session_options(master, cores, packed, conf, plain)
    printer, (paths, skipped) = printer_of(ctx), find_captures(captures)
    _warn_of_skipped(printer, skipped)
    settings = IngestSettings(tables=parse_tables(tables), channel_config=read_channel_config(config))
    started_s = time.monotonic()
    with (
        open_writer(lake, "ingest", wait_s=wait_s) as writer,
        open_runner(lake, spark_options, plain) as run,
        progress_bars(printer) as stage,
    ):
        outcome = ingest_captures(paths, writer, run, settings, stage)
    seconds = time.monotonic() - started_s
    _print_warnings(printer, outcome)
    print_outcome(outcome, seconds, as_json)
    if strict and (outcome.unusable or outcome.damaged):
        damaged = len(outcome.unusable) + len(outcome.damaged)
        raise DamagedError(f"{damaged} faults in the files", "the rest is in the lake")


def parse_tables(text: str) -> frozenset[str]:
    from umdf.lake.ingest import DEFAULT_TABLES, TABLES

    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - set(TABLES))
    if unknown:
        raise UsageError(f"no table {', '.join(unknown)}", f"there are {', '.join(TABLES)}")
    return names or DEFAULT_TABLES


@contextmanager
def open_runner(lake: Path, spark_options: Mapping[str, Any], plain: bool) -> Iterator[TaskRunner]:
    if plain:
        from umdf.lake.runtime.local_runner import LocalRunner

        with LocalRunner(spark_options["cores"] or 1) as runner:
            yield runner
        return
    from umdf.lake.runtime.spark_runner import SparkRunner

    with open_lake_session(lake, spark_options) as session:
        yield SparkRunner(session)


@contextmanager
def progress_bars(printer: Printer) -> Iterator[StageProgress]:
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
        printer.warn(f"{len(skipped):,} files in the directories are no captures, and left out: {listed}")


def _print_warnings(printer: Printer, outcome: IngestResult) -> None:
    if outcome.unusable:
        listed = ", ".join(f"{path} ({reason})" for path, reason in outcome.unusable)
        printer.warn(f"no captures, and left out: {listed}")
    for notice in (*outcome.damaged, *outcome.notices):
        printer.warn(notice)
    if outcome.not_kept:
        printer.warn(
            f"{outcome.not_kept:,} pieces that could not be used found no room in quarantine: it says how many"
        )
    if outcome.unrecognised:
        printer.warn(f"{outcome.unrecognised:,} datagrams are of groups that carry no stream of the exchange")
    if outcome.missing:
        printer.warn(f"{outcome.missing:,} numbers were lost in {outcome.gaps:,} gaps: see the table gaps")


def print_outcome(outcome: IngestResult, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json({**vars(outcome), "seconds": round(seconds, 3)})
        return
    rows = [
        (name, f"{count:,}", f"{outcome.bytes[name] / 1e6:,.1f} MB", f"{outcome.bytes[name] / max(count, 1):.1f}")
        for name, count in sorted(outcome.rows.items(), key=lambda item: -item[1])
    ]
    if rows:
        print_table(("table", "rows", "size", "bytes a row"), rows)
    rate = outcome.messages / max(seconds, 1e-9)
    grown = f" ({len(outcome.grown)} grown)" if outcome.grown else ""
    summary = f"{outcome.new} new files{grown}, {outcome.known} known; {outcome.messages:,} messages in {seconds:.1f} s"
    print(
        f"{summary} ({rate:,.0f} a second); commit {outcome.commit}" if outcome.commit else f"{summary}: nothing to do"
    )
