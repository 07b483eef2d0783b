"""`umdf lake forget`: an input and its rows leave a lake."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from umdf.cli.places import LakeArgument
from umdf.cli.voice import JsonFlag, print_json, voice_of

FORGET_EXAMPLES = (
    "umdf lake forget lake day/capture/a.pcap    by the path that it was ingested from",
    "umdf lake forget lake sha256:9f86d081884c    by its digest, as the table ledger has it",
)


def forget(
    ctx: typer.Context,
    root: LakeArgument,
    given: Annotated[str, typer.Argument(help="Path or digest of an input; the file may be gone.", metavar="INPUT")],
    cores: Annotated[int | None, typer.Option(help="Cores of this machine to use; else all.", min=1)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without Spark, in processes of our own.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Take an input and its rows out of a lake.

    The days that it belongs to are made again from their other inputs, which must still be where they were; days that
    had no other input are removed. Readers see the old rows until all of this is done.
    """
    from umdf.cli.ingest import progress_of, runner_of
    from umdf.cli.spark_options import session_options
    from umdf.lake.forget import find_input, forget_input
    from umdf.lake.layout import open_home
    from umdf.lake.writer import open_writer

    open_home(root)
    begun = time.monotonic()
    with open_writer(root, "forget") as writer:
        entry = find_input(writer, given)
        with (
            runner_of(root, session_options(None, cores, None, None), plain) as run,
            progress_of(voice_of(ctx)) as stage,
        ):
            outcome = forget_input(writer, entry, run, stage)
    seconds = time.monotonic() - begun
    if as_json:
        print_json({"digest": entry.digest, "path": entry.path, **vars(outcome), "seconds": round(seconds, 3)})
        return
    again = f"{len(outcome.days)} channel-days made again from their other inputs in {seconds:.1f} s"
    print(f"forgotten: {entry.path} ({entry.digest}); {again}; commit {outcome.commit}")
