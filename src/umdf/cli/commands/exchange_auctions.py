"""Auctions of a running exchange: `umdf exchange auction`, `pair`, `extend` and `uncross`."""

from __future__ import annotations

from typing import Annotated

import typer

from umdf.cli.commands.exchange_operator import DEFAULT_SOCKET, ControlOption, SymbolArgument, report, send
from umdf.cli.output import JsonFlag

AUCTION_EXAMPLES = ("umdf exchange auction PETR4", "umdf exchange auction PETR4 --end")
PAIR_EXAMPLES = ("umdf exchange pair DOLF27 WDOF27",)
EXTEND_EXAMPLES = ("umdf exchange extend DOLF27 30",)
UNCROSS_EXAMPLES = ("umdf exchange uncross WDOF27",)


def auction(
    symbol: SymbolArgument,
    end: Annotated[bool, typer.Option("--end", help="End the special auction")] = False,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Put an instrument into a special auction, or end it (SecurityList with 37015=8)."""
    send(control, "special_auction", symbol=symbol, is_special=not end)
    report(
        {"symbol": symbol, "special_auction": not end}, as_json, f"{symbol}: special auction {'off' if end else 'on'}"
    )


def pair(
    symbol: SymbolArgument,
    other: Annotated[str, typer.Argument(help="Symbol of the other instrument", metavar="OTHER")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Let the auctions of two instruments start and end together (simultaneous auctions)."""
    send(control, "pair", symbol=symbol, other=other)
    report({"pair": [symbol, other]}, as_json, f"{symbol} and {other} are paired")


def extend(
    symbol: SymbolArgument,
    seconds: Annotated[float, typer.Argument(help="Seconds by which its end moves", metavar="SECONDS")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Extend the auction that an instrument is in."""
    end = send(control, "extend_auction", symbol=symbol, seconds=seconds)
    report({"symbol": symbol, "ends": end}, as_json, f"{symbol}: the auction ends at {end}")


def uncross(
    symbol: SymbolArgument,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """End the auction of an instrument now, without asking the instrument that it is paired with."""
    send(control, "close_auction", symbol=symbol)
    report({"symbol": symbol}, as_json, f"{symbol}: the auction has ended")


SUBCOMMANDS = (
    (auction, AUCTION_EXAMPLES),
    (pair, PAIR_EXAMPLES),
    (extend, EXTEND_EXAMPLES),
    (uncross, UNCROSS_EXAMPLES),
)
