"""What a running exchange shows its operator: `umdf exchange status` and `umdf exchange book`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from umdf.cli.commands.exchange_operator import DEFAULT_SOCKET, ControlOption, SymbolArgument, send
from umdf.cli.output import JsonFlag, counted, print_escaped, print_json

BOOK_EXAMPLES = ("umdf exchange book PETR4", "umdf exchange book PETR4 --depth 3 --json")
STATUS_EXAMPLES = ("umdf exchange status", "umdf exchange status --json")


def book(
    symbol: SymbolArgument,
    depth: Annotated[int, typer.Option(help="Maximum orders per side", metavar="N", min=1)] = 10,
    control: ControlOption = DEFAULT_SOCKET,
    as_json: JsonFlag = False,
) -> None:
    """Show an instrument's book, order by order, as the exchange has it."""
    found = send(control, "book", symbol=symbol, depth=depth)
    if as_json:
        print_json(found)
        return
    print(f"{'order':>20} {'firm':>5} {'size':>10} {'bid':>12}   {'ask':<12} {'size':>10} {'firm':>5}")
    for row in range(max(len(found["bids"]), len(found["asks"]))):
        bid, ask = (side[row] if row < len(side) else {} for side in (found["bids"], found["asks"]))
        left = f"{bid.get('order_id', ''):>20} {bid.get('firm') or '':>5} {bid.get('size', ''):>10} {_price(bid):>12}"
        print(f"{left}   {_price(ask):<12} {ask.get('size', ''):>10} {ask.get('firm') or '':>5}")


def _price(order: dict[str, Any]) -> str:
    return (order["price"] or "market") if order else ""


def status(control: ControlOption = DEFAULT_SOCKET, as_json: JsonFlag = False) -> None:
    """Show the exchange's time, the phases of its groups and the sequences of its channels."""
    found = send(control, "status")
    if as_json:
        print_json(found)
        return
    counts = [counted(found[f"{name}s"], name) for name in ("instrument", "order", "trade", "record")]
    print(f"{found['time']}  {'up' if found['is_up'] else 'down'}  {', '.join(counts)}")
    phases: dict[str, list[str]] = {}
    for group, name in found["phases"].items():
        phases.setdefault(name, []).append(group)
    for name, groups in phases.items():
        shown = " ".join(groups[:12]) + (f" and {len(groups) - 12} more" if len(groups) > 12 else "")
        print_escaped(f"  {name}: {shown}")
    print(f"{'channel':>8} {'protocol':<9}{'book':<5}{'incremental':>14} {'snapshot':>12} {'instruments':>12}")
    for each in found["channels"]:
        last = each["last_sequence"]
        name = f"{each['channel']:>8} {each['protocol']:<9}{each['book']:<5}"
        print(f"{name}{last['incremental']:>14,} {last['snapshot']:>12,} {last['instruments']:>12,}")


SUBCOMMANDS = ((status, STATUS_EXAMPLES), (book, BOOK_EXAMPLES))
