"""`umdf lake forget`: removes an input and its rows from a lake."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from umdf.cli.arguments import LakeArgument
from umdf.cli.output import JsonFlag, print_json, printer_of

FORGET_EXAMPLES = (
    "umdf lake forget lake day/capture/a.pcap    by the path that it was ingested from",
    "umdf lake forget lake sha256:9f86d081884c    by its digest, as the table ledger has it",
)


def forget(
    ctx: typer.Context,
    root: LakeArgument,
    input_id: Annotated[str, typer.Argument(help="Path or digest of an input; the file may be gone.", metavar="INPUT")],
    cores: Annotated[int | None, typer.Option(help="Cores of this machine to use; else all.", min=1)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without Spark, in processes of our own.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Take an input and its rows out of a lake.

    The days that it belongs to are made again from their other inputs, which must still be where they were; days that
    had no other input are removed. Readers see the old rows until all of this is done.
    """
    from umdf.cli.commands.ingest import open_runner, progress_bars
    from umdf.cli.spark_options import spark_session_options
    from umdf.lake.admin.forget_input import find_input, forget_input
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.layout import open_lake_paths

    open_lake_paths(root)
    started_s = time.monotonic()
    with open_writer(root, "forget") as writer:
        entry = find_input(writer, input_id)
        with (
            open_runner(root, spark_session_options(None, cores, None, None), plain) as run,
            progress_bars(printer_of(ctx)) as stage,
        ):
            outcome = forget_input(writer, entry, run, stage)
    seconds = time.monotonic() - started_s
    if as_json:
        print_json({"digest": entry.digest, "path": entry.path, **vars(outcome), "seconds": round(seconds, 3)})
        return
    summary = f"{len(outcome.days)} channel-days made again from their other inputs in {seconds:.1f} s"
    print(f"forgotten: {entry.path} ({entry.digest}); {summary}; commit {outcome.commit}")
