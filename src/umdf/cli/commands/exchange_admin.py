"""Operator commands for books, channels and the schedule of a running exchange: resets, failover, migration, steps."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from umdf.cli.commands.exchange_operator import DEFAULT_SOCKET, ControlOption, report, send
from umdf.cli.output import JsonFlag

RESET_EXAMPLES = ("umdf exchange reset PETR4", "umdf exchange reset sbe:72")
FAILOVER_EXAMPLES = ("umdf exchange failover fast:72",)
MIGRATE_EXAMPLES = ("umdf exchange migrate PETR4 VALE3",)
STEP_EXAMPLES = ("umdf exchange step settlement", "umdf exchange step end-of-day")


class ScheduleStep(StrEnum):
    MORNING = "morning"
    SETTLEMENT = "settlement"
    END_OF_DAY = "end-of-day"
    STOP_WEEK = "stop-week"
    START_WEEK = "start-week"


def reset(
    target: Annotated[str, typer.Argument(help="Symbol (its book), or a channel such as sbe:72", metavar="TARGET")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Reset the book of an instrument, or all books of a channel: emptied, then sent again (4.2.9)."""
    protocol, separator, channel = target.partition(":")
    if separator:
        send(control, "reset_channel", protocol=protocol, channel=_channel(target, channel))
    else:
        send(control, "reset_book", symbol=target)
    report({"reset": target}, as_json, f"{target}: reset")


def failover(
    target: Annotated[str, typer.Argument(help="Channel, such as sbe:72", metavar="PROTOCOL:CHANNEL")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Fail over a channel: its numbering restarts at 1 (FAST: SequenceReset; SBE: next sequence version)."""
    protocol, _, channel = target.partition(":")
    send(control, "failover", protocol=protocol, channel=_channel(target, channel))
    report({"failover": target}, as_json, f"{target}: numbered from 1")


def migrate(
    symbols: Annotated[list[str], typer.Argument(help="Symbols of instruments", metavar="SYMBOL")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Move instruments to another market segment: their orders are sent again with new order IDs (9.1)."""
    send(control, "migrate", symbols=symbols)
    report({"migrated": symbols}, as_json, f"{', '.join(symbols)}: migrated")


def step(
    name: Annotated[
        ScheduleStep,
        typer.Argument(help="Step to run: morning, settlement, end-of-day, stop-week or start-week", metavar="STEP"),
    ],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Run a step of the schedule now."""
    send(control, "step", name=name.replace("-", "_"))
    report({"step": name}, as_json, f"{name}: done")


def _channel(target: str, channel: str) -> int:
    from umdf.errors import UsageError

    if not channel.isdigit():
        raise UsageError(f"not a channel: {target}", "write protocol:number, such as sbe:72")
    return int(channel)


SUBCOMMANDS = (
    (reset, RESET_EXAMPLES),
    (failover, FAILOVER_EXAMPLES),
    (migrate, MIGRATE_EXAMPLES),
    (step, STEP_EXAMPLES),
)
