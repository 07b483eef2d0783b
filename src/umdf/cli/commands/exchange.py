"""`umdf exchange`: a synthetic exchange. `capture` writes a whole day as files, with the truth beside them."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.output import ExitCode, JsonFlag, exit_with, print_json
from umdf.cli.text_table import print_table

EXAMPLES = ("umdf exchange capture --help    write a day as capture files",)
CAPTURE_EXAMPLES = (
    "umdf exchange capture --messages 1000000 --instruments 500 --out day",
    "umdf exchange capture --messages 50000000 --instruments 5000 --out day --loss 0.001 --seed 7",
    "umdf exchange capture --messages 200000 --instruments 50 --out day --wire both --generation position",
    "umdf exchange capture --messages 20000 --instruments 20 --out live --live-pace --roll-s 10",
    "umdf exchange capture --messages 100000 --instruments 100 --out day --json",
)


class ProtocolChoice(StrEnum):
    SBE = "sbe"
    FAST = "fast"
    BOTH = "both"


class Generation(StrEnum):
    PRIORITY = "priority"
    POSITION = "position"


def exchange(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Play the exchange."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        exit_with(ExitCode.DONE)
    if as_json:
        settings = ctx.default_map or {}
        ctx.default_map = {**settings, "capture": {**settings.get("capture", {}), "as_json": True}}


def capture(
    messages: Annotated[int, typer.Option(help="About so many messages of the incremental stream.")],
    out: Annotated[Path, typer.Option(help="Directory for capture/, truth/ and session.json.")],
    instruments: Annotated[int, typer.Option(help="How many instruments the channel has.")] = 500,
    wire: Annotated[
        ProtocolChoice, typer.Option(help="Binary, FIX/FAST, or the same session in both.")
    ] = ProtocolChoice.SBE,
    generation: Annotated[Generation, typer.Option(help="Books by price and priority, or by position.")] = (
        Generation.PRIORITY
    ),
    lines: Annotated[str, typer.Option(help="Lines of the incremental stream: A or AB.")] = "AB",
    loss: Annotated[float, typer.Option(help="Share of the packets that each line loses.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
    live_pace: Annotated[bool, typer.Option("--live-pace", help="Write as fast as the simulated clock goes.")] = False,
    channel_reset: Annotated[bool, typer.Option("--channel-reset", help="Reset the channel in mid-session.")] = False,
    rate: Annotated[int, typer.Option(help="Messages a second of the simulated clock, in the mean.")] = 5_000,
    channel: Annotated[int, typer.Option(help="Number of the channel.")] = 72,
    roll_bytes: Annotated[int, typer.Option(help="A file grows to so many bytes.")] = 256 << 20,
    roll_s: Annotated[int, typer.Option(help="A file spans so many seconds of the simulated clock.")] = 600,
    snapshot_loops: Annotated[int, typer.Option(help="How often all books are sent as snapshots in the day.")] = 12,
    as_json: JsonFlag = False,
) -> None:
    """Write a consistent trading day as rolling capture files, with the truth beside them.

    Instrument, snapshot and incremental streams; lines A and B of the incremental one. Phases, auctions, trades, busts,
    statistics, retransmission and bursts are in it. capture/manifest.jsonl lists each file once it is closed;
    truth/*.parquet holds final books, all trades, statistics, states and what was lost, by the generator's own books.
    """
    from umdf.exchange.bulk.capture import write_capture
    from umdf.exchange.bulk.settings import BulkSettings

    settings = BulkSettings(
        messages,
        instruments,
        wire.value,
        generation.value,
        lines,
        loss,
        seed,
        channel,
        channel_reset,
        live_pace,
        rate,
        roll_bytes,
        roll_s,
        snapshot_loops=snapshot_loops,
    )
    result = asdict(write_capture(settings, out))
    if as_json:
        print_json(result)
    else:
        print_table(
            ("what", "how much"),
            [(name, f"{value:,}" if name != "directory" else value) for name, value in result.items()],
        )


SUBCOMMANDS = ((capture, CAPTURE_EXAMPLES),)
