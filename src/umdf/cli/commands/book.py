"""`umdf book`: books, statistics and states at a moment, from captures alone."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import FastTemplatesOption, SbeSchemaOption, parse_path, split_list
from umdf.cli.output import JsonFlag, Printer, print_escaped, print_json, printer_of
from umdf.cli.text_table import print_table
from umdf.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from umdf.cli.book_view import BookView
    from umdf.cli.replay import ReplayResult

EXAMPLES = (
    "umdf book day.pcap                                    every instrument: best prices, last trade, state",
    "umdf book capture/ --symbols PETR4                    the final book, statistics and state",
    "umdf book a.pcap b.pcap --symbols WINZ26 --at 13:05   the book at 13:05 UTC",
    "umdf book day.pcap --symbols PETR4 --at 120034 --depth 5 --json",
)


def book(
    ctx: typer.Context,
    captures: Annotated[
        list[Path],
        typer.Argument(
            parser=parse_path,
            help="Captures (pcap, pcapng; may be compressed) or directories of captures",
            metavar="CAPTURE",
        ),
    ],
    symbols: Annotated[
        str,
        typer.Option(
            help="Symbols or instrument IDs, comma-separated (default: a summary of all instruments)",
            metavar="SYMBOLS",
        ),
    ] = "",
    at: Annotated[
        str | None,
        typer.Option(
            help="Stop at this sequence number or time (UTC unless it has an offset)", metavar="SEQUENCE|TIME"
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="Price levels per side, 0 for all", metavar="N", min=0)] = 10,
    orders: Annotated[bool, typer.Option("--orders", help="Show the individual orders of each level")] = False,
    sbe_schema: SbeSchemaOption = None,
    fast_templates: FastTemplatesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Rebuild order books from captures.

    Streams are detected from their content: instruments, snapshots, incrementals, lines A and B of SBE and FAST
    channels, in any number of files. Each book is healthy, unverified or stale, with the reason.
    """
    from umdf.cli.book_view import deleted_views, instrument_views
    from umdf.cli.replay import expand_captures, replay
    from umdf.cli.time_options import parse_at
    from umdf.transport.capture_merge import first_packet_ns
    from umdf.transport.input_file import need_file
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    printer, paths = printer_of(ctx), expand_captures(captures)
    for path in paths:
        need_file(path, "`umdf book`")
    until = parse_at(at, lambda: min(filter(None, map(first_packet_ns, paths)), default=0)) if at is not None else None
    result = replay(paths, load_schema(sbe_schema), load_templates(fast_templates), until)
    _print_warnings(printer, result)
    instruments = instrument_views(result.session)
    if symbols:
        known = [*instruments, *deleted_views(result.session)]
        selected = [view for symbol in split_list(symbols) for view in _views_of(symbol, known)]
        for view in selected:
            print_json(view.as_json(depth, orders)) if as_json else _print_book(view, depth, orders)
    elif as_json:
        for view in instruments:
            print_json(view.summary())
    else:
        _print_summary([view.summary() for view in instruments])


def _views_of(symbol: str, instruments: list[BookView]) -> list[BookView]:
    """The instruments with this symbol or ID: one per channel that has it."""
    found = [view for view in instruments if symbol in (view.symbol, str(view.instrument_id))]
    if not found:
        names = sorted({view.symbol or str(view.instrument_id) for view in instruments})
        similar = difflib.get_close_matches(symbol, names, 2, 0.5)
        hint = did_you_mean(similar) if similar else "list all with `umdf book CAPTURE…`"
        raise ConfigError(f"unknown instrument: {symbol}", hint)
    return found


def _print_warnings(printer: Printer, result: ReplayResult) -> None:
    for damage in result.damaged:
        printer.warn(damage)
    for notice in result.session.notices():
        printer.warn(notice)
    if not result.streams:
        printer.warn("no UMDF packets found")
    for (protocol, number), channel in result.session.channels.items():
        if dropped := result.session.dropped_snapshots((protocol, number)):
            printer.warn(f"channel {number}: {dropped} snapshots were ahead of the stream and too many to be kept")
        gaps = channel.gaps.opened
        if gaps:
            missing = sum(gap.last - gap.first + 1 for gap in gaps) - channel.gaps.filled_count
            unit = "packets" if protocol.name == "SBE" else "messages"
            lost = f"{missing} {unit} lost in {len(gaps)} gaps"
            printer.warn(f"channel {number}: {lost}, books were recovered {channel.recovered} times from snapshots")


def _print_summary(rows: list[dict[str, Any]]) -> None:
    columns = "protocol channel symbol state bid_size bid ask ask_size last orders rpt_seq trust stale".split()
    cells = [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]
    print_table(columns, cells, keep=("symbol", "bid_size", "bid", "ask", "ask_size", "trust"))


def _print_book(view: BookView, depth: int, orders: bool) -> None:
    from umdf.cli.book_view import STATISTICS

    for line in view.heading_lines():
        print_escaped(line)
    columns = ("orders", "size", "bid", "ask", "size", "orders")
    print_table(columns, view.ladder_rows(depth))
    if orders:
        print_table(("side", "price", "order", "size", "firm", "since"), view.order_rows(depth))
    print_table(STATISTICS, view.statistics_rows())
