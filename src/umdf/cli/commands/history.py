"""`umdf history`: messages of a FIX/FAST channel from the Historical Replayer, as a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.output import JsonFlag, counted, print_json, printer_of
from umdf.errors import ConfigError, UmdfError, UsageError

EXAMPLES = (
    "umdf history --channels channels.toml --channel 72 --from 1 --to 50000 --out morning.pcap",
    "umdf history --channels channels.toml --channel 72 --from 2470 --to 2490 --out part.pcap --json",
)
SOURCE = ("127.0.0.1", 1)


def history(
    ctx: typer.Context,
    channels: Annotated[
        Path, typer.Option(help="Channel addresses (TOML), with a [historical_replayer]", metavar="FILE")
    ],
    channel: Annotated[int, typer.Option(help="Channel number", metavar="N")],
    first: Annotated[int, typer.Option("--from", help="First sequence to fetch", metavar="SEQ", min=1)],
    last: Annotated[int, typer.Option("--to", help="Last sequence to fetch", metavar="SEQ", min=1)],
    out: Annotated[Path, typer.Option(help="Capture to write (pcap)", metavar="FILE")],
    as_json: JsonFlag = False,
) -> None:
    """Fetch messages of a FAST channel from the Historical Replayer, as a capture.

    They are requested 2,000 at a time and written as packets of the channel's incremental line A, with the technical
    headers rebuilt, so `umdf decode`, `book` and `ingest` read the file like any capture. The receive time of a packet
    is the time of the download.
    """
    import time

    from umdf.feed.history import fetch_history
    from umdf.feed.replay_client import ReplayFailure, Span
    from umdf.feed.replay_source import rebuilt_packets
    from umdf.transport.channels_file import HISTORICAL_REPLAYER, read_channels, read_replayer
    from umdf.transport.pcap_writer import PcapWriter

    printer = printer_of(ctx)
    if last < first:
        raise UsageError(f"--to is before --from: {last}", f"use {first} or more")
    replayer = read_replayer(channels, HISTORICAL_REPLAYER)
    if replayer is None:
        raise ConfigError(f"{channels} has no [historical_replayer]", "add its comp_id, replayer_id and A")
    found = [one for one in read_channels(channels) if (one.number, one.protocol) == (channel, "fast")]
    if not found or "incremental" not in found[0].streams:
        raise ConfigError(f"{channels} has no FIX/FAST channel {channel}", "the replayers serve FIX/FAST only")
    line = found[0].streams["incremental"][0]
    messages, missing, reason = 0, 0, ""
    with PcapWriter(out) as writer:
        for outcome in fetch_history(replayer, Span(channel, first, last)):
            if isinstance(outcome, ReplayFailure):
                missing, reason = missing + len(outcome.span), outcome.reason
                continue
            packets = rebuilt_packets(outcome, time.time_ns())
            dest = line.address, line.port
            writer.write_batch(packets.buffer, packets.start, packets.end, packets.ts_ns, SOURCE, dest)
            messages += len(outcome.messages)
    if not messages:
        if out.is_file():  # not /dev/null
            out.unlink()
        raise UmdfError(f"nothing was received: {reason}", "check the range and the replayer")
    if missing:
        printer.warn(f"{counted(missing, 'message')} not available: {reason}")
    if as_json:
        print_json({"messages": messages, "missing": missing, "file": str(out)})
    else:
        print(f"{counted(messages, 'message')} in {out}")
