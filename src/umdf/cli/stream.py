"""`umdf stream`: a growing recording into the tables of a lake, with Structured Streaming."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.ingest import tables_of
from umdf.cli.places import place
from umdf.cli.spark_options import Conf, Cores, Master, Packed, lake_session, session_options
from umdf.cli.voice import JsonFlag, print_json, voice_of
from umdf.errors import UsageError
from umdf.lake.given import named_streams

if TYPE_CHECKING:
    from umdf.lake.stream import Batch

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
    recording: Annotated[Path, typer.Argument(parser=place, help="Directory with captures and their manifest.jsonl.")],
    lake: Annotated[
        Path, typer.Option(parser=place, help="Directory of the lake; it is made if it does not exist.", metavar="DIR")
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
    master: Master = None,
    cores: Cores = None,
    packed: Packed = None,
    conf: Conf = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow a recording: files that its manifest lists as closed become rows of the lake, exactly once.

    What is in the tables is final: a channel goes as far as every line has come and as its snapshots have been seen.
    Should a file come later for a place behind that, its day is made again. A stream that was stopped or killed goes on
    where it was; a day that is over is compacted. While it runs it is the one writer of the lake. A recording that has
    no manifest yet is waited for.
    """
    from umdf.lake.advance import Settings
    from umdf.lake.frontier import Follow
    from umdf.lake.stream import Stream, refuse_unreadable, wait_for_manifest
    from umdf.lake.writer import open_writer

    if finish and not once:
        raise UsageError("--finish goes with --once", "a stream that is still followed cannot be over")
    voice, follow = voice_of(ctx), Follow(int(hold_s * SECOND_NS), int(wait_for_s * SECOND_NS))
    settings = Settings(tables=tables_of(tables), named=named_streams(config), follow=follow)
    if not once:
        wait_for_manifest(recording, voice.warn)
    refuse_unreadable(recording)  # now: Spark takes a while to start
    how = {"quick": True, **session_options(master, cores, packed, conf)}
    with open_writer(lake, "stream", wait_s=wait_s) as writer, lake_session(lake, how) as spark:
        about = {"checkpoint": checkpoint, "max_files": max_files, "told": partial(_tell, as_json)}
        followed = Stream(spark, recording, writer, settings, **about)
        try:
            followed.run(once=once, every_s=every_s)
        except KeyboardInterrupt:
            voice.warn("stopped; when it is started again it goes on from here")
            raise
        if finish:
            followed.finish()
        elif once and followed.is_holding:
            voice.warn("numbers for which more may come are held back: the next run goes on, --finish takes them")


def _tell(as_json: bool, batch: Batch) -> None:
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
            reached = datetime.fromtimestamp(edge.ts_recv / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
            parts.append(f"channel {channel} up to {edge.number:,} ({reached})")
    parts += [f"lag {batch.lag_s[0]:.1f} to {batch.lag_s[1]:.1f} s"] if batch.lag_s else []
    parts += [f"day of channel {channel} is over" for channel, _ in outcome.closed_days]
    parts += [f"day of channel {channel} made again" for channel, _ in outcome.made_again]
    print("; ".join(parts), flush=True)
