"""The faults of the network and of replayers: `umdf exchange faults`, `proxy` and `replayer`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.commands.exchange_operator import DEFAULT_SOCKET, ControlOption, report, send
from umdf.cli.output import JsonFlag, counted, print_escaped, print_json
from umdf.cli.text_table import print_table

FAULTS_EXAMPLES = ("umdf exchange faults",)
PROXY_EXAMPLES = (
    "umdf exchange proxy channels.toml --faults faults.toml --out faulty-channels.toml",
    "umdf exchange proxy channels.toml --faults exchange.toml --out faulty-channels.toml --duration-s 60",
)
REPLAYER_EXAMPLES = ("umdf exchange replayer unavailable", "umdf exchange replayer not-authorized --off")


class ReplayerSwitch(StrEnum):
    UNAVAILABLE = "unavailable"
    NOT_AUTHORIZED = "not-authorized"
    NO_RESOURCES = "no-resources"
    NO_RESOURCES_LATER = "no-resources-later"


def faults(as_json: JsonFlag = False) -> None:
    """List the faults of the simulated network: the keys of [faults], their units and effects."""
    from umdf.exchange.network.faults import fault_keys

    keys = fault_keys()
    if as_json:
        print_json([key._asdict() for key in keys])
        return
    print_table(("key", "unit", "default", "effect"), keys, keep=("key", "effect"))


def proxy(
    channels: Annotated[Path, typer.Argument(help="Channels file of the exchange (channels.toml)", metavar="FILE")],
    faults: Annotated[Path, typer.Option(help="TOML file with a table [faults]", metavar="FILE")],
    out: Annotated[Path, typer.Option(help="Channels file to write for the client", metavar="FILE")],
    first_port: Annotated[int, typer.Option(help="First port that the client uses", metavar="PORT", min=1)] = 25_001,
    seed: Annotated[int, typer.Option(help="Random seed", metavar="N", min=0)] = 1,
    duration_s: Annotated[
        float | None, typer.Option(help="Seconds to run (default: until Ctrl-C)", metavar="SECONDS", min=0)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a faulty network between an exchange and a client.

    Receives every line and relays every replayer of the channels file, on this machine only, with the faults of
    [faults]. Start the client with the channels file that this command writes (--out).
    """
    from threading import Event

    from umdf.exchange.network.faults import read_faults_of
    from umdf.exchange.network.proxy import FaultyProxy, ProxySettings
    from umdf.transport.channels_file import REPLAYERS, format_channels, read_channels, read_replayer

    found = {name: replayer for name in REPLAYERS if (replayer := read_replayer(channels, name)) is not None}
    with FaultyProxy(read_channels(channels), found, read_faults_of(faults), ProxySettings(first_port, seed)) as own:
        out.write_text(format_channels(own.channels, own.replayers), encoding="utf-8")
        if not as_json:
            print_escaped(f"the client uses {out}; press Ctrl-C to stop")
        try:
            own.run(Event(), duration_s)
        except KeyboardInterrupt:
            pass
        packets = own.packets
    if as_json:
        print_json({"packets": packets})
    else:
        print_escaped(f"stopped after {counted(packets, 'packet')}")


def replayer(
    switch: Annotated[
        ReplayerSwitch,
        typer.Argument(help="unavailable, not-authorized, no-resources or no-resources-later", metavar="REFUSAL"),
    ],
    off: Annotated[bool, typer.Option("--off", help="Stop refusing")] = False,
    historical: Annotated[
        bool, typer.Option("--historical", help="Switch the Historical Replayer, not the Replayer")
    ] = False,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Make a replayer refuse every request, to test clients.

    unavailable (1348=7), not-authorized (35021=1) and no-resources (1354=8) are sent in the acknowledgment,
    no-resources-later in the report.
    """
    name = "historical_replayer" if historical else "replayer"
    send(control, "replayer", name=name, switch=switch.value, is_on=not off)
    report({"replayer": name, "switch": switch, "on": not off}, as_json, f"{name}: {switch} {'off' if off else 'on'}")


SUBCOMMANDS = ((faults, FAULTS_EXAMPLES), (proxy, PROXY_EXAMPLES), (replayer, REPLAYER_EXAMPLES))
