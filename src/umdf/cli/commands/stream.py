"""`umdf stream`: a growing recording into the tables of a lake, with Structured Streaming."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.arguments import parse_path
from umdf.cli.commands.ingest import parse_tables
from umdf.cli.output import JsonFlag, print_json, printer_of
from umdf.cli.spark_options import (
    CoresOption,
    EnvironmentOption,
    MasterOption,
    SparkConfOption,
    open_lake_session,
    spark_session_options,
)
from umdf.errors import UsageError
from umdf.lake.plan.input_paths import read_channel_config

if TYPE_CHECKING:
    from umdf.lake.stream.stream_ingest import MicroBatch

EXAMPLES = (
    "umdf stream live/capture --lake lake                         follow a recording until Ctrl-C",
    "umdf stream live/capture --lake lake --once                  what is closed now, then stop",
    "umdf stream live/capture --lake lake --once --finish         the recording is over: take everything",
    "umdf stream live/capture --lake lake --every-s 5 --max-files 20",
    "umdf stream live/capture --lake lake --master spark://host:7077 --json",
)
SECOND_NS = 10**9


def stream(
    ctx: typer.Context,
    recording: Annotated[
        Path, typer.Argument(parser=parse_path, help="Directory with captures and their manifest.jsonl.")
    ],
    lake: Annotated[
        Path,
        typer.Option(parser=parse_path, help="Directory of the lake; it is made if it does not exist.", metavar="DIR"),
    ],
    once: Annotated[bool, typer.Option("--once", help="Take the files that are closed now, then stop.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="With --once: no more files will come.")] = False,
    every_s: Annotated[float, typer.Option(help="Seconds from one micro-batch to the next, at least.", min=0)] = 1.0,
    max_files: Annotated[int | None, typer.Option(help="So many files in a micro-batch at most.", min=1)] = None,
    hold_s: Annotated[float, typer.Option(help="Snapshots may come so much later than what they hold.", min=0)] = 1.0,
    wait_for_s: Annotated[
        float, typer.Option(help="A line that is silent for longer is not waited for.", min=0)
    ] = 120.0,
    checkpoint: Annotated[Path | None, typer.Option(help="Where Spark keeps its offsets; else in the lake.")] = None,
    tables: Annotated[str, typer.Option(help="Tables to write, with commas between them; else all.")] = "",
    config: Annotated[Path | None, typer.Option(help="Groups and ports of channels (TOML).", metavar="FILE")] = None,
    wait_s: Annotated[float, typer.Option(help="Wait so long for another writer of the lake.")] = 0.0,
    master: MasterOption = None,
    cores: CoresOption = None,
    packed: EnvironmentOption = None,
    conf: SparkConfOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow a recording: files that its manifest lists as closed become rows of the lake, exactly once.

    What is in the tables is final: a channel goes as far as every line has come and as its snapshots have been seen.
    Should a file come later for a place behind that, its day is made again. A stream that was stopped or killed goes on
    where it was; a day that is over is compacted. While it runs it is the one writer of the lake. A recording that has
    no manifest yet is waited for.
    """
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import IngestSettings
    from umdf.lake.plan.frontier import FollowSettings
    from umdf.lake.stream.stream_ingest import StreamIngest, refuse_without_manifest, wait_for_manifest

    if finish and not once:
        raise UsageError("--finish goes with --once", "a stream that is still followed cannot be over")
    printer, follow_settings = printer_of(ctx), FollowSettings(int(hold_s * SECOND_NS), int(wait_for_s * SECOND_NS))
    settings = IngestSettings(
        tables=parse_tables(tables), channel_config=read_channel_config(config), follow=follow_settings
    )
    if not once:
        wait_for_manifest(recording, printer.warn)
    refuse_without_manifest(recording)  # before Spark, which takes a while to start
    spark_options = {"quick": True, **spark_session_options(master, cores, packed, conf)}
    with open_writer(lake, "stream", wait_s=wait_s) as writer, open_lake_session(lake, spark_options) as spark:
        options = {"checkpoint": checkpoint, "max_files": max_files, "on_batch": partial(_print_batch, as_json)}
        pipeline = StreamIngest(spark, recording, writer, settings, **options)
        try:
            pipeline.run(once=once, every_s=every_s)
        except KeyboardInterrupt:
            printer.warn("stopped; when it is started again it goes on from here")
            raise
        if finish:
            pipeline.finish()
        elif once and pipeline.has_open_days:
            printer.warn("numbers for which more may come are held back: the next run goes on, --finish takes them")


def _print_batch(as_json: bool, batch: MicroBatch) -> None:
    outcome = batch.outcome
    if as_json:
        days = {f"{day[0]}:{day[1]}": edge._asdict() for day, edge in outcome.open_days.items()}
        print_json({**vars(batch), "outcome": {**vars(outcome), "open_days": days}})
        return
    rate = outcome.messages / max(batch.seconds, 1e-9)
    parts = [f"batch {batch.number}: {batch.files} files, {outcome.messages:,} messages in {batch.seconds:.1f} s"]
    parts += [f"{rate:,.0f} a second"] if outcome.messages else []
    for (channel, _), edge in sorted(outcome.open_days.items()):
        if edge.rank >= 0:
            time_text = datetime.fromtimestamp(edge.ts_recv / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
            parts.append(f"channel {channel} up to {edge.number:,} ({time_text})")
    parts += [f"lag {batch.lag_s[0]:.1f} to {batch.lag_s[1]:.1f} s"] if batch.lag_s else []
    parts += [f"day of channel {channel} is over" for channel, _ in outcome.closed_days]
    parts += [f"day of channel {channel} made again" for channel, _ in outcome.made_again]
    print("; ".join(parts), flush=True)
