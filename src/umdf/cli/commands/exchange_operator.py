"""The operator's commands of a running exchange: `umdf exchange order`, `phase`, `news` … over its control socket."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.cli.output import JsonFlag, print_escaped, print_json

ORDER_EXAMPLES = (
    "umdf exchange order PETR4 buy 500 32.45",
    "umdf exchange order PETR4 sell 1000 32.60 --firm 8 --display 100 --time-in-force gtc",
    "umdf exchange order VALE3 buy 200 --type moc",
)
AMEND_EXAMPLES = ("umdf exchange amend 1000000123 --price 32.50 --size 300",)
CANCEL_EXAMPLES = ("umdf exchange cancel 1000000123", "umdf exchange cancel --firm 8 --symbol PETR4")
CROSS_EXAMPLES = ("umdf exchange cross PETR4 1000 32.45 --buyer 3 --seller 8",)
TRADE_EXAMPLES = (
    "umdf exchange trade PETR4 100 32.45 --buyer 3 --seller 8",
    "umdf exchange trade PETR4 100 32.50 --replaces 40",
)
BUST_EXAMPLES = ("umdf exchange bust PETR4 40",)
PHASE_EXAMPLES = (
    "umdf exchange phase pause equities",
    "umdf exchange phase final-closing-call derivatives",
)
STATE_EXAMPLES = (
    "umdf exchange state PETR4 reserved --opens-in-s 60",
    "umdf exchange state PETR4 open",
)
BAND_EXAMPLES = (
    "umdf exchange band PETR4 rejection 30.00 35.00",
    "umdf exchange band PETR4 quantity 100000 5000000",
    "umdf exchange band PETR4 auction --percent-of last -- -10 10",
)
NEWS_EXAMPLES = (
    'umdf exchange news "Fato relevante" "Texto da notícia" --symbol PETR4',
    'umdf exchange news Notice "Trading resumes at 14:00" --channel 78',
)
INSTRUMENT_EXAMPLES = (
    "umdf exchange instrument add PETR99 --like PETR4",
    'umdf exchange instrument add UDS90001 --like UDS00001 --legs "buy PETRK325; sell PETRK345"',
    "umdf exchange instrument modify PETR4 --lot 200",
    "umdf exchange instrument delete PETR99",
)

DEFAULT_SOCKET = Path("exchange.sock")
ControlOption = Annotated[Path, typer.Option(help="Control socket of the running exchange", metavar="PATH")]
SymbolArgument = Annotated[str, typer.Argument(help="Symbol of an instrument", metavar="SYMBOL")]
SizeArgument = Annotated[int, typer.Argument(help="Quantity", metavar="SIZE")]
PriceArgument = Annotated[str, typer.Argument(help="Price, such as 32.45", metavar="PRICE")]
BuyerOption = Annotated[int, typer.Option(help="Number of the buying firm", metavar="N")]
SellerOption = Annotated[int, typer.Option(help="Number of the selling firm", metavar="N")]


class Side(StrEnum):
    BUY = "buy"
    SELL = "sell"


class OrderType(StrEnum):
    LIMIT = "limit"
    MARKET = "market"
    MARKET_TO_LIMIT = "market-to-limit"
    MOA = "moa"
    MOC = "moc"


class TimeInForce(StrEnum):
    DAY = "day"
    GTC = "gtc"
    GTD = "gtd"


class Midpoint(StrEnum):
    LAST = "last"
    THEORETICAL = "theoretical"


class Action(StrEnum):
    ADD = "add"
    MODIFY = "modify"
    DELETE = "delete"


class BandKind(StrEnum):
    HARD = "hard"
    AUCTION = "auction"
    REJECTION = "rejection"
    STATIC = "static"
    QUANTITY = "quantity"


def send(control: Path, command: str, **arguments: Any) -> Any:
    """Send a command to the running exchange; its result. Arguments that are None are left out."""
    from umdf.errors import UmdfError, UsageError
    from umdf.transport.control_socket import request

    given = {name: value for name, value in arguments.items() if value is not None}
    reply = request(control, json.dumps({"command": command, **given}, ensure_ascii=False).encode())
    try:
        answer = json.loads(reply)
        is_ok = answer["ok"]
    except (ValueError, TypeError, KeyError):
        raise UmdfError(f"{control} does not answer as an exchange does", "check --control") from None
    if not is_ok:
        raise UsageError(answer["error"], answer["hint"])
    return answer["result"]


def report(result: Any, as_json: bool, text: str) -> None:
    """Print a result as JSON, or the sentence for people."""
    if as_json:
        print_json(result)
    else:
        print_escaped(text)


def order(
    symbol: SymbolArgument,
    side: Annotated[Side, typer.Argument(help="buy or sell", metavar="SIDE")],
    size: SizeArgument,
    price: Annotated[
        str | None, typer.Argument(help="Price, such as 32.45 (limit orders only)", metavar="PRICE")
    ] = None,
    firm: Annotated[int, typer.Option(help="Number of the firm that enters the order", metavar="N")] = 3,
    type: Annotated[OrderType, typer.Option(help="Order type")] = OrderType.LIMIT,
    time_in_force: Annotated[
        TimeInForce, typer.Option(help="How long the order stays: this day, until cancelled, until --expires")
    ] = TimeInForce.DAY,
    expires: Annotated[str | None, typer.Option(help="Last day of a gtd order, YYYY-MM-DD", metavar="DATE")] = None,
    display: Annotated[int | None, typer.Option(help="Quantity to show, of an iceberg order", metavar="SIZE")] = None,
    stp: Annotated[int | None, typer.Option(help="Self-trade prevention ID", metavar="N")] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Enter an order."""
    result = send(
        control, "enter", symbol=symbol, side=side, size=size, price=price, firm=firm, order_type=type,
        time_in_force=time_in_force, expire_date=expires, display_size=display, stp_id=stp,
    )  # fmt: skip
    report(result, as_json, _outcome(result))


def amend(
    order_id: Annotated[int, typer.Argument(help="Order ID", metavar="ORDER")],
    price: Annotated[str | None, typer.Option(help="New price", metavar="PRICE")] = None,
    size: Annotated[int | None, typer.Option(help="New quantity", metavar="SIZE")] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Change the price or quantity of an order; it keeps its priority only if nothing but the quantity shrinks."""
    result = send(control, "amend", order_id=order_id, price=price, size=size)
    report(result, as_json, _outcome(result))


def _outcome(result: dict[str, Any]) -> str:
    rests = f"order {result['order_id']} rests" if result["order_id"] else "nothing rests"
    parts = [rests, *(f"{name} {result[name]:,}" for name in ("traded", "cancelled") if result.get(name))]
    return ", ".join(parts) + ("; an auction has started" if result.get("started_auction") else "")


def cancel(
    order_id: Annotated[int | None, typer.Argument(help="Order ID", metavar="ORDER")] = None,
    firm: Annotated[int | None, typer.Option(help="Cancel all orders of a firm", metavar="N")] = None,
    symbol: Annotated[str | None, typer.Option(help="Cancel all orders of an instrument", metavar="SYMBOL")] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Cancel an order, or all orders of a firm, of an instrument, or of both."""
    if order_id is not None:
        quantity = send(control, "cancel", order_id=order_id)
    else:
        quantity = send(control, "mass_cancel", firm=firm, symbol=symbol)
    report({"cancelled": quantity}, as_json, f"cancelled {quantity:,}")


def cross(
    symbol: SymbolArgument,
    size: SizeArgument,
    price: PriceArgument,
    buyer: BuyerOption = 3,
    seller: SellerOption = 8,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Enter a cross: a trade that two firms agreed on, at a price inside the spread."""
    trade_id = send(control, "cross", symbol=symbol, price=price, size=size, buyer=buyer, seller=seller)
    report({"trade_id": trade_id}, as_json, f"trade {trade_id}")


def trade(
    symbol: SymbolArgument,
    size: SizeArgument,
    price: PriceArgument,
    buyer: BuyerOption = 3,
    seller: SellerOption = 8,
    condition: Annotated[
        list[str] | None,
        typer.Option(help="Trade condition (277): 2, 3, RL, RF, MP, PT …; may be repeated", metavar="CODE"),
    ] = None,
    replaces: Annotated[
        int | None, typer.Option(help="ID of the trade that this one replaces", metavar="TRADE")
    ] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Enter a trade on behalf of two firms, or correct a trade."""
    if replaces is not None:
        trade_id = send(control, "amend_trade", symbol=symbol, trade_id=replaces, price=price, size=size)
    else:
        parties = {"buyer": buyer, "seller": seller}
        trade_id = send(control, "trade", symbol=symbol, price=price, size=size, conditions=condition, **parties)
    report({"trade_id": trade_id}, as_json, f"trade {trade_id}")


def bust(
    symbol: SymbolArgument,
    trade_id: Annotated[int, typer.Argument(help="Trade ID", metavar="TRADE")],
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Bust a trade of the session."""
    send(control, "bust", symbol=symbol, trade_id=trade_id)
    report({"busted": trade_id}, as_json, f"trade {trade_id} is busted")


def phase(
    phase: Annotated[
        str,
        typer.Argument(help="pre-open, open, pause, final-closing-call, pre-close or close", metavar="PHASE"),
    ],
    groups: Annotated[
        list[str],
        typer.Argument(
            help="Groups of instruments; equities and derivatives stand for all groups of a market", metavar="GROUP"
        ),
    ],
    after_market: Annotated[bool, typer.Option("--after-market", help="In the after-market session (336=6)")] = False,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Change the trading phase of groups of instruments; leaving an auction uncrosses the books."""
    send(control, "phase", groups=groups, phase=phase, after_market=after_market or None)
    report({"groups": groups, "phase": phase}, as_json, f"{', '.join(groups)}: {phase}")


def state(
    symbol: SymbolArgument,
    state: Annotated[
        str,
        typer.Argument(help="open, pause, reserved, forbidden, final-closing-call or close", metavar="STATE"),
    ],
    opens_in_s: Annotated[
        float | None, typer.Option(help="Seconds until a reserved instrument opens", metavar="SECONDS")
    ] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Change the state of an instrument: it separates from its group, or rejoins it with the group's own state."""
    send(control, "state", symbol=symbol, state=state, opens_in_s=opens_in_s)
    report({"symbol": symbol, "state": state}, as_json, f"{symbol}: {state}")


def band(
    symbol: SymbolArgument,
    kind: Annotated[BandKind, typer.Argument(help="hard, auction, rejection, static or quantity", metavar="KIND")],
    low: Annotated[str, typer.Argument(help="Lowest price; for quantity: average daily quantity", metavar="LOW")],
    high: Annotated[str, typer.Argument(help="Highest price; for quantity: largest order", metavar="HIGH")],
    percent_of: Annotated[
        Midpoint | None, typer.Option(help="Price that the limits are a percentage of (auction, rejection)")
    ] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Set a price band or the quantity band of an instrument. Write -- before negative limits."""
    send(control, "band", symbol=symbol, kind=kind, low=low, high=high, percent_of=percent_of)
    report({"symbol": symbol, "kind": kind, "low": low, "high": high}, as_json, f"{symbol}: {kind} {low} to {high}")


def news(
    headline: Annotated[str, typer.Argument(help="Headline", metavar="HEADLINE")],
    text: Annotated[str, typer.Argument(help="Text; long texts are sent in parts", metavar="TEXT")],
    symbol: Annotated[
        list[str] | None, typer.Option(help="Instrument that the news is about; may be repeated", metavar="SYMBOL")
    ] = None,
    channel: Annotated[
        list[int] | None,
        typer.Option(help="Channel to send it on; may be repeated (default: all of the market)", metavar="N"),
    ] = None,
    number: Annotated[int | None, typer.Option("--id", help="News ID (1472)", metavar="N")] = None,
    source: Annotated[int, typer.Option(help="News source (6940)", metavar="N")] = 3,
    language: Annotated[str | None, typer.Option(help="Language (1474): pt, en or es", metavar="CODE")] = None,
    url: Annotated[str | None, typer.Option(help="Link to the full text", metavar="URL")] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Publish news.

    News about an instrument goes to all channels of its market, other news to all channels with order books. The
    Unified News Channel carries only news sent with its --channel.
    """
    more = {"symbols": symbol or None, "channels": channel or None, "language": language, "url": url}
    send(control, "news", headline=headline, text=text, source=source, news_id=number, **more)
    report({"headline": headline}, as_json, f"published: {headline}")


def instrument(
    action: Annotated[Action, typer.Argument(help="add, modify or delete", metavar="ACTION")],
    symbol: SymbolArgument,
    like: Annotated[
        str | None, typer.Option(help="Instrument to copy the definition of a new one from", metavar="SYMBOL")
    ] = None,
    lot: Annotated[int | None, typer.Option(help="Round lot", metavar="SIZE")] = None,
    description: Annotated[str | None, typer.Option(help="Description", metavar="TEXT")] = None,
    legs: Annotated[
        str | None,
        typer.Option(help="Legs of a new strategy: side, ratio and symbol each, separated by ;", metavar="LEGS"),
    ] = None,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """List an instrument, change its definition, or delete it."""
    arguments: dict[str, Any] = {"symbol": symbol}
    if action != Action.DELETE:
        arguments |= {"lot": lot, "description": description}
    if action == Action.ADD:
        arguments |= {"like": like, "legs": legs}
    result = send(control, f"{action}_instrument", **arguments)
    done = {Action.ADD: "listed", Action.MODIFY: "changed", Action.DELETE: "deleted"}[action]
    report({"symbol": symbol, "result": result}, as_json, f"{symbol}: {done}")


SUBCOMMANDS = (
    (order, ORDER_EXAMPLES),
    (amend, AMEND_EXAMPLES),
    (cancel, CANCEL_EXAMPLES),
    (cross, CROSS_EXAMPLES),
    (trade, TRADE_EXAMPLES),
    (bust, BUST_EXAMPLES),
    (phase, PHASE_EXAMPLES),
    (state, STATE_EXAMPLES),
    (band, BAND_EXAMPLES),
    (news, NEWS_EXAMPLES),
    (instrument, INSTRUMENT_EXAMPLES),
)
