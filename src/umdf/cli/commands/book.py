"""`umdf book`: books, statistics and states at a moment, from captures alone."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import parse_path
from umdf.cli.output import JsonFlag, Printer, print_escaped, print_json, printer_of
from umdf.cli.text_table import print_table
from umdf.errors import ConfigError

if TYPE_CHECKING:
    from umdf.cli.book_view import BookView
    from umdf.cli.replay import ReplayResult

EXAMPLES = (
    "umdf book day.pcap                                   every instrument: best prices, last trade, state",
    "umdf book capture/ --symbol PETR4                    its ladder, statistics and state at the end",
    "umdf book a.pcap b.pcap --symbol WINZ26 --at 13:05   … as they were at 13:05 UTC",
    "umdf book day.pcap --symbol PETR4 --at 120034 --depth 5 --json",
)


def book(
    ctx: typer.Context,
    captures: Annotated[
        list[Path],
        typer.Argument(
            parser=parse_path,
            help="Captures (pcap, pcapng, also .gz or .zst), or directories of them.",
            metavar="CAPTURE…",
        ),
    ],
    symbol: Annotated[str | None, typer.Option(help="One instrument, by symbol or number.")] = None,
    at: Annotated[
        str | None, typer.Option(help="A moment: a sequence number, or a time (UTC, unless it says otherwise).")
    ] = None,
    depth: Annotated[int, typer.Option(help="Price levels to show of each side; 0 is all.", min=0)] = 10,
    orders: Annotated[bool, typer.Option("--orders", help="Show the orders of each level.")] = False,
    schema: Annotated[Path | None, typer.Option(help="The exchange's SBE schema (XML) instead of ours.")] = None,
    templates: Annotated[Path | None, typer.Option(help="The exchange's FAST templates (XML) instead of ours.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Rebuild the books of captures and show them.

    Streams are recognised by what they carry: instruments, snapshots, incrementals, lines A and B of Binary and FAST
    channels, in any number of files. A book whose history is not whole is shown with the reason why it is stale.
    """
    from umdf.cli.book_view import instrument_views
    from umdf.cli.replay import expand_captures, replay
    from umdf.cli.time_options import parse_at
    from umdf.transport.capture_merge import first_packet_ns
    from umdf.transport.input_file import need_file
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    printer, paths = printer_of(ctx), expand_captures(captures)
    for path in paths:
        need_file(path, "a rebuild of books")
    until = parse_at(at, lambda: min(filter(None, map(first_packet_ns, paths)), default=0)) if at is not None else None
    result = replay(paths, load_schema(schema), load_templates(templates), until)
    _print_warnings(printer, result)
    instruments = instrument_views(result.session)
    if symbol is not None:
        selected = [view for view in instruments if symbol in (view.symbol, str(view.instrument_id))]
        if not selected:
            names = sorted({view.symbol or str(view.instrument_id) for view in instruments})
            similar = difflib.get_close_matches(symbol, names, 5, 0.5)
            hint = f"near it: {', '.join(similar)}" if similar else "`umdf book CAPTURE…` lists all"
            raise ConfigError(f"no instrument {symbol} in these captures", hint)
        for view in selected:
            print_json(view.as_json(depth, orders)) if as_json else _print_book(view, depth, orders)
    elif as_json:
        for view in instruments:
            print_json(view.summary())
    else:
        _print_summary([view.summary() for view in instruments])


def _print_warnings(printer: Printer, result: ReplayResult) -> None:
    for damage in result.damaged:
        printer.warn(damage)
    for notice in result.session.notices():
        printer.warn(notice)
    if not result.streams:
        printer.warn("no packet looks like UMDF")
    for (protocol, number), channel in result.session.channels.items():
        if channel.gaps:
            missing = sum(gap.last - gap.first + 1 for gap in channel.gaps)
            unit = "packets" if protocol.name == "SBE" else "messages"
            printer.warn(
                f"channel {number}: {missing} {unit} lost in {len(channel.gaps)} gaps, {channel.recovered} books healed"
            )


def _print_summary(rows: list[dict[str, Any]]) -> None:
    columns = "wire channel symbol state bid_size bid ask ask_size last orders rpt_seq stale".split()
    cells = [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]
    print_table(columns, cells, keep=("symbol", "bid_size", "bid", "ask", "ask_size", "stale"))


def _print_book(view: BookView, depth: int, orders: bool) -> None:
    from umdf.cli.book_view import STATISTICS

    for line in view.heading_lines():
        print_escaped(line)
    columns = ("orders", "size", "bid", "ask", "size", "orders")
    print_table(columns, view.ladder_rows(depth))
    if orders:
        print_table(("side", "price", "order", "size", "firm", "since"), view.order_rows(depth))
    print_table(STATISTICS, view.statistics_rows())
