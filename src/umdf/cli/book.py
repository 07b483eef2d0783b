"""`umdf book`: books, statistics and states at a moment, from captures alone."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.places import place
from umdf.cli.tables import show_table
from umdf.cli.voice import JsonFlag, Voice, print_json, print_text, voice_of
from umdf.errors import ConfigError

if TYPE_CHECKING:
    from umdf.cli.replaying import Replay
    from umdf.cli.shown_book import Shown

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
            parser=place, help="Captures (pcap, pcapng, also .gz or .zst), or directories of them.", metavar="CAPTURE…"
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
    from umdf.cli.moment import moment
    from umdf.cli.replaying import captures_of, replay
    from umdf.cli.shown_book import found_instruments
    from umdf.transport.input_file import need_file
    from umdf.transport.side_by_side import first_ns
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    voice, paths = voice_of(ctx), captures_of(captures)
    for path in paths:
        need_file(path, "a rebuild of books")
    until = moment(at, lambda: min(filter(None, map(first_ns, paths)), default=0)) if at is not None else None
    result = replay(paths, load_schema(schema), load_templates(templates), until)
    _warn(voice, result)
    instruments = found_instruments(result.session)
    if symbol is not None:
        chosen = [shown for shown in instruments if symbol in (shown.symbol, str(shown.instrument_id))]
        if not chosen:
            names = sorted({shown.symbol or str(shown.instrument_id) for shown in instruments})
            near = difflib.get_close_matches(symbol, names, 5, 0.5)
            hint = f"near it: {', '.join(near)}" if near else "`umdf book CAPTURE…` lists all"
            raise ConfigError(f"no instrument {symbol} in these captures", hint)
        for shown in chosen:
            print_json(shown.as_json(depth, orders)) if as_json else _show(shown, depth, orders)
    elif as_json:
        for shown in instruments:
            print_json(shown.summary())
    else:
        _show_summary([shown.summary() for shown in instruments])


def _warn(voice: Voice, result: Replay) -> None:
    for damage in result.damaged:
        voice.warn(damage)
    for notice in result.session.notices():
        voice.warn(notice)
    if not result.streams:
        voice.warn("no packet looks like UMDF")
    for (speaks, number), channel in result.session.channels.items():
        if channel.gaps:
            lost = sum(gap.last - gap.first + 1 for gap in channel.gaps)
            unit = "packets" if speaks.name == "SBE" else "messages"
            voice.warn(
                f"channel {number}: {lost} {unit} lost in {len(channel.gaps)} gaps, {channel.healed} books healed"
            )


def _show_summary(rows: list[dict[str, Any]]) -> None:
    columns = "wire channel symbol state bid_size bid ask ask_size last orders rpt_seq stale".split()
    cells = [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]
    show_table(columns, cells, keep=("symbol", "bid_size", "bid", "ask", "ask_size", "stale"))


def _show(shown: Shown, depth: int, orders: bool) -> None:
    from umdf.cli.shown_book import STATISTICS

    for line in shown.heading():
        print_text(line)
    columns = ("orders", "size", "bid", "ask", "size", "orders")
    show_table(columns, shown.ladder(depth))
    if orders:
        show_table(("side", "price", "order", "size", "firm", "since"), shown.order_rows(depth))
    show_table(STATISTICS, shown.statistics_rows())
