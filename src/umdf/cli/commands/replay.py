"""`umdf replay`: captures sent again as UDP, as if they were live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.arguments import FastTemplatesOption, parse_path
from umdf.cli.output import JsonFlag, counted, print_json, printer_of
from umdf.errors import ConfigError, UsageError

EXAMPLES = (
    "umdf replay day/capture --print-channels > channels.toml   where the lines will be sent, for umdf feed",
    "umdf replay day/capture --channels channels.toml           as recorded",
    "umdf replay day.pcap --channels channels.toml --speed 10   ten times as fast",
    "umdf replay day.pcap --channels channels.toml --speed 0    as fast as possible",
)
FIRST_PORT = 30_001


def replay(
    ctx: typer.Context,
    captures: Annotated[
        list[Path],
        typer.Argument(parser=parse_path, help="Captures or directories of captures", metavar="CAPTURE"),
    ],
    channels: Annotated[Path | None, typer.Option(help="Channel addresses to send to (TOML)", metavar="FILE")] = None,
    speed: Annotated[
        float,
        typer.Option(help="Speed: 1 as recorded, 10 ten times as fast, 0 as fast as possible", metavar="N", min=0),
    ] = 1.0,
    print_channels: Annotated[
        bool, typer.Option("--print-channels", help="Print a channels file with loopback addresses, and send nothing")
    ] = False,
    fast_templates: FastTemplatesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send captures over UDP, in order of receive time.

    Each line of the captures is sent to the address that the channels file has for its channel, stream and line.
    Multicast does not leave this machine.
    """
    from umdf.cli.replay import expand_captures
    from umdf.feed.feed_lines import feed_lines
    from umdf.feed.replay import Pacer, UdpReplay, captured_lines, loopback_channels, paced_packets, replayed_packets
    from umdf.transport.channels_file import format_channels, read_channels
    from umdf.transport.input_file import need_file
    from umdf.wire.fast.loader import load as load_templates

    printer, paths = printer_of(ctx), expand_captures(captures)
    for path in paths:
        need_file(path, "`umdf replay`")
    lines = captured_lines(paths, load_templates(fast_templates))
    if print_channels:
        print(format_channels(loopback_channels(lines, FIRST_PORT)), end="")
        return
    if channels is None:
        raise UsageError("no addresses to send to", "pass --channels FILE, or write one with --print-channels")
    listed = {line: where for channel in read_channels(channels) for line, where in feed_lines(channel).items()}
    missing = sorted(str(line) for line in lines.values() if line not in listed)
    if len(missing) == len(lines):
        raise ConfigError(f"{channels} lists none of the captured lines: {', '.join(missing)}", "use --print-channels")
    for line in missing:
        printer.warn(f"{line} is not in {channels}: not sent")
    warnings: list[str] = []
    started_s = time.monotonic()
    with UdpReplay(listed) as target:
        for packets in paced_packets(replayed_packets(paths, lines, warnings), Pacer(speed, time.time_ns, time.sleep)):
            target.send(packets)
    seconds = time.monotonic() - started_s
    for warning in warnings:
        printer.warn(warning)
    if as_json:
        print_json({"packets": target.packets, "lines": len(lines) - len(missing), "seconds": round(seconds, 3)})
    else:
        print(f"{counted(target.packets, 'packet')} sent in {seconds:.1f} s")
