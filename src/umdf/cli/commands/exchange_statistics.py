"""Operator commands that publish statistics: settlement prices, volumes of other venues, volatility, composites."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from umdf.cli.commands.exchange_operator import DEFAULT_SOCKET, ControlOption, SymbolArgument, report, send
from umdf.cli.output import JsonFlag

SETTLE_EXAMPLES = ("umdf exchange settle preview", "umdf exchange settle updated WINZ26 --price 182345")
VOLUME_EXAMPLES = ("umdf exchange volume PETRK325 exercise 15000 12 487500.00",)
VOLATILITY_EXAMPLES = ("umdf exchange volatility WINZ26 12.45 13.10 0.25",)
COMPOSITE_EXAMPLES = ("umdf exchange composite IBOV",)


class Settlement(StrEnum):
    PREVIEW = "preview"
    FINAL = "final"
    UPDATED = "updated"


class Venue(StrEnum):
    EXERCISE = "exercise"
    EX_PIT = "ex-pit"


VENUE_CODES = {Venue.EXERCISE: "O", Venue.EX_PIT: "X"}  # 1500


def settle(
    kind: Annotated[
        Settlement, typer.Argument(help="preview, final, or updated (of the previous day)", metavar="KIND")
    ],
    symbol: Annotated[
        str | None, typer.Argument(help="Symbol (default: all derivatives and indexes)", metavar="SYMBOL")
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="Settlement price (default: computed from the trades)", metavar="PRICE")
    ] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Publish settlement prices of derivatives and indexes (10.6)."""
    send(control, "settle", kind=kind, symbol=symbol, price=price)
    report({"settlement": kind, "symbol": symbol}, as_json, f"{symbol or 'all'}: {kind} settlement")


def volume(
    symbol: SymbolArgument,
    venue: Annotated[Venue, typer.Argument(help="exercise or ex-pit", metavar="VENUE")],
    quantity: Annotated[int, typer.Argument(help="Quantity traded", metavar="QUANTITY")],
    trades: Annotated[int, typer.Argument(help="Number of trades", metavar="TRADES")],
    turnover: Annotated[str, typer.Argument(help="Financial volume, such as 487500.00", metavar="AMOUNT")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Publish the volume of another venue: option exercises or ex-pit trades (12.4). FIX/FAST only."""
    code = VENUE_CODES[venue]
    send(control, "volume", symbol=symbol, venue=code, quantity=quantity, trades=trades, turnover=turnover)
    report({"symbol": symbol, "venue": code, "quantity": quantity}, as_json, f"{symbol}: {venue} volume {quantity:,}")


def volatility(
    symbol: SymbolArgument,
    short: Annotated[str, typer.Argument(help="Price of the short option", metavar="SHORT")],
    long: Annotated[str, typer.Argument(help="Price of the long option", metavar="LONG")],
    delta: Annotated[str, typer.Argument(help="Delta of the contract", metavar="DELTA")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Publish the prices of a volatility contract (10.11). FIX/FAST only."""
    send(control, "volatility", symbol=symbol, short_price=short, long_price=long, delta=delta)
    report({"symbol": symbol}, as_json, f"{symbol}: volatility {short} {long} {delta}")


def composite(symbol: SymbolArgument, control: ControlOption = DEFAULT_SOCKET, as_json: JsonFlag = False) -> None:
    """Publish the composite underlying price of an index (269=D). FIX/FAST only."""
    send(control, "composite", symbol=symbol)
    report({"symbol": symbol}, as_json, f"{symbol}: composite prices")


SUBCOMMANDS = (
    (settle, SETTLE_EXAMPLES),
    (volume, VOLUME_EXAMPLES),
    (volatility, VOLATILITY_EXAMPLES),
    (composite, COMPOSITE_EXAMPLES),
)
