"""`umdf stream`: a growing recording into the tables of a lake, with Structured Streaming."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.arguments import ChannelsOption, TablesOption, TargetLakeOption, WriterWaitOption, parse_path
from umdf.cli.commands.ingest import parse_tables
from umdf.cli.output import JsonFlag, counted, print_json, printer_of
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
    "umdf stream live/capture --lake lake --once                  process what is closed now, then stop",
    "umdf stream live/capture --lake lake --once --finish         the recording is complete: process everything",
    "umdf stream live/capture --lake lake --interval-s 5 --max-files 20",
    "umdf stream live/capture --lake lake --master spark://host:7077 --json",
)
SECOND_NS = 10**9


def stream(
    ctx: typer.Context,
    recording: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, help="Recording: directory of captures with a manifest.jsonl", metavar="RECORDING"
        ),
    ],
    lake: TargetLakeOption,
    once: Annotated[bool, typer.Option("--once", help="Process the files that are closed now, then stop")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="With --once: the recording is complete, process everything")
    ] = False,
    interval_s: Annotated[
        float, typer.Option(help="Minimum seconds between micro-batches", metavar="SECONDS", min=0)
    ] = 1.0,
    max_files: Annotated[
        int | None, typer.Option(help="Maximum files per micro-batch (default: no limit)", metavar="N", min=1)
    ] = None,
    snapshot_delay_s: Annotated[
        float,
        typer.Option(
            help="Seconds that snapshots may lag behind the incremental stream; raise it if days are rebuilt",
            metavar="SECONDS",
            min=0,
        ),
    ] = 1.0,
    line_timeout_s: Annotated[
        float,
        typer.Option(help="Stop waiting for a line after this many silent seconds", metavar="SECONDS", min=0),
    ] = 120.0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark checkpoint directory (default: inside the lake)", metavar="DIR")
    ] = None,
    tables: TablesOption = "",
    channels: ChannelsOption = None,
    master: MasterOption = None,
    cores: CoresOption = None,
    environment: EnvironmentOption = None,
    conf: SparkConfOption = None,
    writer_wait_s: WriterWaitOption = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Load a growing recording into a lake, exactly once.

    Each micro-batch takes the files that the manifest lists as closed. Rows are final when they appear: a channel
    advances up to the point that all its lines and its snapshots have reached. If a file arrives later for an earlier
    position, its channel-day is rebuilt. A stopped or killed stream resumes where it was; finished days are compacted.

    While it runs, the stream is the lake's only writer. If the recording has no manifest yet, the stream waits for it.
    """
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest_settings import IngestSettings
    from umdf.lake.plan.frontier import FollowSettings
    from umdf.lake.stream.stream_ingest import StreamIngest, refuse_without_manifest, wait_for_manifest

    if finish and not once:
        raise UsageError("--finish can only be used with --once")
    printer = printer_of(ctx)
    follow_settings = FollowSettings(int(snapshot_delay_s * SECOND_NS), int(line_timeout_s * SECOND_NS))
    settings = IngestSettings(
        tables=parse_tables(tables), channel_config=read_channel_config(channels), follow=follow_settings
    )
    if not once:
        wait_for_manifest(recording, printer.warn)
    refuse_without_manifest(recording)  # before Spark, which takes a while to start
    spark_options = {"quick": True, **spark_session_options(master, cores, environment, conf)}
    with (
        open_writer(lake, "stream", writer_wait_s=writer_wait_s) as writer,
        open_lake_session(lake, spark_options) as spark,
    ):
        options = {"checkpoint": checkpoint, "max_files": max_files, "on_batch": partial(_print_batch, as_json)}
        pipeline = StreamIngest(spark, recording, writer, settings, **options)
        try:
            pipeline.run(once=once, interval_s=interval_s)
        except KeyboardInterrupt:
            printer.warn("stopped; start it again to resume from here")
            raise
        if finish:
            pipeline.finish()
        elif once and pipeline.has_open_days:
            printer.warn(
                "some packets or messages wait until their lines and snapshots arrive; "
                "the next run continues, or --finish processes them"
            )


def _print_batch(as_json: bool, batch: MicroBatch) -> None:
    outcome = batch.outcome
    if as_json:
        days = {f"{day[0]}:{day[1]}": edge._asdict() for day, edge in outcome.open_days.items()}
        print_json({**vars(batch), "outcome": {**vars(outcome), "open_days": days}})
        return
    rate = outcome.messages / max(batch.seconds, 1e-9)
    files = counted(batch.files, "file")
    parts = [f"micro-batch {batch.number}: {files}, {outcome.messages:,} messages in {batch.seconds:.1f} s"]
    parts += [f"{rate:,.0f}/s"] if outcome.messages else []
    for (channel, _), edge in sorted(outcome.open_days.items()):
        if edge.rank >= 0:
            time_text = datetime.fromtimestamp(edge.ts_recv / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
            parts.append(f"channel {channel} up to sequence {edge.number:,}, {time_text} UTC")
    if batch.lag_s:
        newest_s, oldest_s = batch.lag_s
        parts.append(f"lag {newest_s:.1f} s (newest message) to {oldest_s:.1f} s (oldest)")
    parts += [f"channel {channel}: day complete" for channel, _ in outcome.closed_days]
    parts += [f"channel {channel}: day rebuilt" for channel, _ in outcome.rebuilt_days]
    print("; ".join(parts), flush=True)
