"""`umdf lake forget`: removes an input and its rows from a lake."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from umdf.cli.arguments import LakeArgument, NoSparkFlag
from umdf.cli.output import JsonFlag, counted, print_json, printer_of
from umdf.cli.spark_options import LocalCoresOption, spark_session_options

FORGET_EXAMPLES = (
    "umdf lake forget lake day/capture/a.pcap    by the path it was ingested from",
    "umdf lake forget lake sha256:9f86d081884c    by its digest, as in the ledger table",
)


def forget(
    ctx: typer.Context,
    root: LakeArgument,
    input_id: Annotated[
        str, typer.Argument(help="Path or digest of the input; the file itself need not exist", metavar="INPUT")
    ],
    cores: LocalCoresOption = None,
    no_spark: NoSparkFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove an ingested file (an input) and its rows from a lake.

    Its channel-days are rebuilt from their other inputs, which must still be where they were ingested from;
    channel-days without another input are deleted. Readers see the old rows until the change is committed.
    """
    from umdf.cli.commands.ingest import open_runner, progress_bars
    from umdf.lake.admin.forget_input import find_input, forget_input
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.layout import open_lake_paths

    spark_options = spark_session_options(None, cores, None, None, no_spark)
    open_lake_paths(root)
    started_s = time.monotonic()
    with open_writer(root, "forget") as writer:
        entry = find_input(writer, input_id)
        with (
            open_runner(root, spark_options, no_spark) as run,
            progress_bars(printer_of(ctx)) as stage,
        ):
            outcome = forget_input(writer, entry, run, stage)
    seconds = time.monotonic() - started_s
    if as_json:
        print_json({"digest": entry.digest, "path": entry.path, **vars(outcome), "seconds": round(seconds, 3)})
        return
    summary = f"{counted(len(outcome.days), 'channel-day')} rebuilt in {seconds:.1f} s"
    print(f"removed {entry.path} ({entry.digest}); {summary}; commit {outcome.commit}")
