"""`umdf feed`: receives channels live, shows how they are, and records them."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.output import JsonFlag, Printer, print_escaped, print_json, printer_of

if TYPE_CHECKING:
    from umdf.cli.feed_view import FeedView
    from umdf.feed.live import Live

EXAMPLES = (
    "umdf feed --channels channels.toml                     the state of every channel",
    "umdf feed --channels channels.toml --record recording  also record, for umdf stream and umdf ingest",
    "umdf feed --channels channels.toml --metrics-port 9100  with /metrics and /health on 127.0.0.1",
    "umdf feed --channels channels.toml --json              events and status as JSON lines",
)
VIEW_INTERVAL_S = 0.5


def feed(
    ctx: typer.Context,
    channels: Annotated[Path, typer.Option(help="Channel addresses (TOML)", metavar="FILE")],
    record: Annotated[
        Path | None, typer.Option(help="Directory for a recording of everything received", metavar="DIR")
    ] = None,
    keep_joined: Annotated[
        bool, typer.Option("--keep-joined", help="Stay on the instrument and snapshot streams once synchronized")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds to receive (default: until interrupted)", metavar="N", min=0)
    ] = None,
    interval_s: Annotated[float, typer.Option(help="Seconds between status lines", metavar="N", min=0.1)] = 10.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Port on 127.0.0.1 for /metrics (Prometheus) and /health", metavar="PORT", min=0, max=65535),
    ] = None,
    buffer_mib: Annotated[
        int, typer.Option(help="Receive buffer of each line, in MiB", metavar="N", min=1, max=1024)
    ] = 4,
    as_json: JsonFlag = False,
) -> None:
    """Receive channels live: merge lines A and B, keep the books, record everything.

    Each book is healthy, unverified or stale; a channel is live when all of its books are healthy. What both lines lost
    is recovered from the TCP Replayer, if the channels file has one, or from the snapshot stream. A terminal shows a
    table of the channels; elsewhere events and status are printed as lines.
    """
    from umdf.cli.feed_view import FeedView
    from umdf.feed.channel_feed import FeedSettings
    from umdf.feed.live import Live
    from umdf.transport.udp_receiver import ReceiverSettings

    printer = printer_of(ctx)
    settings = FeedSettings(keeps_joined=keep_joined or record is not None)
    receiver_settings = ReceiverSettings(buffer_bytes=buffer_mib << 20)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as on Ctrl-C: the recording is finished
    with Live(channels, record=record, settings=settings, receiver_settings=receiver_settings) as live:
        view = FeedView()
        _print_notices(printer, live)
        for schema in ("gaps", "trust", "state"):
            live.subscribe(schema=schema, callback=lambda event: _show_event(printer, view, event))
        try:
            with _monitoring(metrics_port, live):
                _show(live, view, seconds, interval_s, printer)
        except KeyboardInterrupt:
            pass
        _print_status(live, view, printer)


def _show(live: Live, view: FeedView, seconds: float | None, interval_s: float, printer: Printer) -> None:
    if printer.json or not sys.stdout.isatty():
        until_s = None if seconds is None else time.monotonic() + seconds
        while until_s is None or time.monotonic() < until_s:
            left_s = interval_s if until_s is None else min(interval_s, until_s - time.monotonic())
            live.run(max(0.0, left_s))
            if until_s is None or time.monotonic() < until_s:
                _print_status(live, view, printer)
        return
    from rich.live import Live as LiveDisplay

    until_s = None if seconds is None else time.monotonic() + seconds
    with LiveDisplay(view.table(live.status(), time.time_ns(), live.notices()), auto_refresh=False) as display:
        while until_s is None or time.monotonic() < until_s:
            live.run(VIEW_INTERVAL_S)
            display.update(view.table(live.status(), time.time_ns(), live.notices()), refresh=True)


def _show_event(printer: Printer, view: FeedView, event: Any) -> None:
    from umdf.feed.metrics import event_record

    now_ns = time.time_ns()
    record = event_record(event, now_ns)
    if printer.json:
        print_json(record)
        return
    text = _event_text(record)
    if sys.stdout.isatty():
        view.add_event(text)
    elif record["type"] != "trust":  # a gap on a channel of 18,000 instruments is one line, not 18,000
        print_escaped(text)


def _event_text(record: dict[str, Any]) -> str:
    from umdf.units import utc_text

    where = f"{record['channel']} {record['protocol']}: " if "channel" in record else ""
    return f"{utc_text(record['ts_ns'])[11:23]} {where}{record['text']}"


def _print_status(live: Live, view: FeedView, printer: Printer) -> None:
    from umdf.cli.feed_view import COLUMNS, line_text
    from umdf.feed.metrics import status_record

    sys.stdout.flush()
    now_ns, statuses = time.time_ns(), live.status()
    if printer.json:
        for status in statuses:
            print_json(status_record(status, now_ns))
    elif not sys.stdout.isatty():
        for row, status in zip(view.rows(statuses, now_ns), statuses, strict=True):
            shown = (f"{name} {value}" for name, value in zip(COLUMNS, row, strict=True) if value)
            print_escaped(", ".join([*shown, line_text(status).partition(": ")[2]]))
    sys.stdout.flush()


def _print_notices(printer: Printer, live: Live) -> None:
    for notice in live.notices():
        printer.warn(notice)
    if live.recorder is not None and live.recorder.closed_for_others:
        count = len(live.recorder.closed_for_others)
        printer.warn(f"{count} files of a killed recorder were closed and listed in the manifest")


def _monitoring(port: int | None, live: Live) -> Any:
    from contextlib import nullcontext

    from umdf.feed.metrics import health, metrics_text
    from umdf.transport.monitoring_server import MonitoringServer

    if port is None:
        return nullcontext()

    def healthy() -> tuple[bool, str]:
        return health(live.status(), live.recorder.failure if live.recorder is not None else "")

    return MonitoringServer(port, lambda: metrics_text(live.status()), healthy)
