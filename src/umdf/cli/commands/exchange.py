"""`umdf exchange`: a simulated exchange. `run` is a live one; `capture` writes a whole day as files, with the truth."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.commands import (
    exchange_admin,
    exchange_auctions,
    exchange_network,
    exchange_operator,
    exchange_statistics,
    exchange_views,
)
from umdf.cli.commands.exchange_run import CHANNELS_EXAMPLES, RUN_EXAMPLES, channels, run
from umdf.cli.output import ExitCode, JsonFlag, counted, exit_with, print_escaped, print_json, size_text

EXAMPLES = (
    "umdf exchange run exchange.toml    run an exchange",
    "umdf exchange status               its phases and sequences, from another terminal",
    "umdf exchange capture day          generate a trading day as captures",
)
CAPTURE_EXAMPLES = (
    "umdf exchange capture day                         a million messages of 500 instruments",
    "umdf exchange capture day --messages 50000000 --instruments 5000 --loss 0.001 --seed 7",
    "umdf exchange capture day --messages 200000 --instruments 50 --protocol both --generation position",
    "umdf exchange capture live --messages 20000 --instruments 20 --real-time --roll-s 10  a recording that grows",
    "umdf exchange capture day --messages 100000 --instruments 100 --json",
)


DEFAULT_MESSAGES = 1_000_000


class ProtocolChoice(StrEnum):
    SBE = "sbe"
    FAST = "fast"
    BOTH = "both"


class Generation(StrEnum):
    PRIORITY = "priority"
    POSITION = "position"


def exchange(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Simulate the exchange: live, or a trading day as capture files."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        exit_with(ExitCode.DONE)
    if as_json:
        settings = ctx.default_map or {}
        ctx.default_map = {**settings, "capture": {**settings.get("capture", {}), "as_json": True}}


def capture(
    out: Annotated[
        Path, typer.Argument(help="Directory to create, with capture/, truth/ and session.json", metavar="OUT")
    ],
    messages: Annotated[
        int, typer.Option(help="Approximate number of incremental messages", metavar="N")
    ] = DEFAULT_MESSAGES,
    instruments: Annotated[int, typer.Option(help="Number of instruments on the channel", metavar="N")] = 500,
    protocol: Annotated[
        ProtocolChoice, typer.Option(help="Protocol; both writes the same session in each")
    ] = ProtocolChoice.SBE,
    generation: Annotated[
        Generation, typer.Option(help="Book protocol generation: by price and priority, or by position (legacy)")
    ] = Generation.PRIORITY,
    lines: Annotated[str, typer.Option(help="Lines of the incremental stream", metavar="A|AB")] = "AB",
    loss: Annotated[
        float,
        typer.Option(help="Fraction of incremental packets lost on each line, 0 to 0.5", metavar="FRACTION"),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed produces the same files", metavar="N")] = 1,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Write in real time, at the pace of the simulated clock")
    ] = False,
    channel_reset: Annotated[
        bool, typer.Option("--channel-reset", help="Include a channel reset in the middle of the session")
    ] = False,
    rate: Annotated[int, typer.Option(help="Average messages per simulated second", metavar="N")] = 5_000,
    channel: Annotated[int, typer.Option(help="Channel number", metavar="N")] = 72,
    roll_bytes: Annotated[int, typer.Option(help="Maximum bytes per capture file", metavar="BYTES")] = 256 << 20,
    roll_s: Annotated[int, typer.Option(help="Maximum simulated seconds per capture file", metavar="SECONDS")] = 600,
    snapshot_loops: Annotated[int, typer.Option(help="Times that all books are sent as snapshots", metavar="N")] = 12,
    as_json: JsonFlag = False,
) -> None:
    """Generate a trading day as capture files, with the expected results.

    Writes the instrument, snapshot and incremental streams, the incremental one on lines A and B, with phases,
    auctions, trades, trade busts, statistics, book resets and bursts.

    OUT/capture holds the files and manifest.jsonl, which lists each file once it is closed. OUT/truth holds the
    exchange's own final books, trades, statistics, states and lost sequences as Parquet.
    """
    from umdf.exchange.bulk.capture import write_capture
    from umdf.exchange.bulk.settings import BulkSettings

    settings = BulkSettings(
        messages,
        instruments,
        protocol.value,
        generation.value,
        lines,
        loss,
        seed,
        channel,
        channel_reset,
        real_time,
        rate,
        roll_bytes,
        roll_s,
        snapshot_loops=snapshot_loops,
    )
    written = write_capture(settings, out)
    if as_json:
        print_json(asdict(written))
    else:
        print_escaped(
            f"wrote {written.messages:,} messages ({written.simulated_s:,.1f} s simulated) in "
            f"{counted(written.files, 'file')}, {size_text(written.bytes)}, to {written.directory}; "
            f"try `umdf book {out}/capture`"
        )


SUBCOMMANDS = (
    (run, RUN_EXAMPLES),
    (channels, CHANNELS_EXAMPLES),
    *exchange_views.SUBCOMMANDS,
    *exchange_operator.SUBCOMMANDS,
    *exchange_auctions.SUBCOMMANDS,
    *exchange_statistics.SUBCOMMANDS,
    *exchange_admin.SUBCOMMANDS,
    *exchange_network.SUBCOMMANDS,
    (capture, CAPTURE_EXAMPLES),
)
