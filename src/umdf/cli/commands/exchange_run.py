"""`umdf exchange run` and `umdf exchange channels`: a live exchange from its TOML file."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from umdf.cli.output import JsonFlag, counted, print_escaped, print_json, size_text

RUN_EXAMPLES = (
    "umdf exchange run examples/exchange.toml",
    "umdf exchange run exchange.toml --captures day --no-udp --speed 60 --duration-s 600",
    "umdf exchange run exchange.toml --duration-s 30 --json",
)
CHANNELS_EXAMPLES = (
    "umdf exchange channels examples/exchange.toml",
    "umdf exchange channels exchange.toml > channels.toml",
)
FileArgument = Annotated[Path, typer.Argument(help="Exchange file, TOML (see docs/exchange.md)", metavar="FILE")]


def run(
    file: FileArgument,
    captures: Annotated[
        Path | None, typer.Option(help="Directory for captures of everything published, in DIR/capture", metavar="DIR")
    ] = None,
    udp: Annotated[bool, typer.Option("--udp/--no-udp", help="Send packets to the addresses of the channels")] = True,
    speed: Annotated[
        float, typer.Option(help="Speed of the exchange's clock: simulated seconds per second", metavar="N", min=0.001)
    ] = 1.0,
    duration_s: Annotated[
        float | None,
        typer.Option(help="Seconds to run, of the exchange's clock (default: until Ctrl-C)", metavar="SECONDS", min=0),
    ] = None,
    control: Annotated[
        Path | None, typer.Option(help="Control socket (default: as in the file)", metavar="PATH")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a live exchange that trades and publishes its channels over UDP, into captures, or both.

    Its clock starts at the time in the file and runs in real time, or --speed times as fast. Ctrl-C stops it and closes
    the captures. Operate it from another terminal: `umdf exchange order`, `phase`, `news` and so on.
    """
    from umdf.exchange.live.launch import Outputs, open_exchange
    from umdf.exchange.live.pacing import Pace, run_paced
    from umdf.exchange.live.settings import read_settings

    settings = read_settings(file)
    outputs = Outputs(captures=captures, sends_udp=udp, control=control or settings.control)
    with open_exchange(settings, outputs) as opened:
        stop = _StopOnSignal()
        if not as_json:
            print_escaped(f"running {opened.summary}; press Ctrl-C to stop")
        run_paced(opened.exchange, opened.wait, Pace(speed, settings.tick_ms, duration_s), stop)
    result = opened.result()
    if as_json:
        print_json(result)
        return
    written = f", {counted(result['files'], 'file')} ({size_text(result['bytes'])}) in {captures}" if captures else ""
    line = f"stopped at {result['time']}: {counted(result['records'], 'record')}, {counted(result['trades'], 'trade')}"
    print_escaped(f"{line}, {counted(result['packets'], 'packet')}{written}")


class _StopOnSignal:
    """Whether Ctrl-C was pressed, or the process was asked to end. The second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self._is_set = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _: FrameType | None) -> None:
        if self._is_set:
            raise KeyboardInterrupt
        self._is_set = True

    def __call__(self) -> bool:
        return self._is_set


def channels(file: FileArgument, as_json: JsonFlag = False) -> None:
    """Print the channels file (channels.toml) for clients of the exchange.

    It lists each channel with the addresses of its lines; `umdf ingest --channels` and `umdf feed --channels` read it.
    """
    from umdf.exchange.live.replayer_settings import client_addresses
    from umdf.exchange.live.settings import read_settings
    from umdf.transport.channels_file import STREAMS, format_channels

    settings = read_settings(file)
    addresses = settings.addresses
    if as_json:
        print_json(
            [
                {"number": channel.number, "protocol": channel.protocol, "book": channel.book, "name": channel.name}
                | {stream: {line.line: str(line) for line in channel.streams.get(stream, ())} for stream in STREAMS}
                for channel in addresses
            ]
        )
    else:
        replayers = {name: client_addresses(replayer) for name, replayer in settings.replayers.items()}
        print(format_channels(addresses, replayers), end="")
