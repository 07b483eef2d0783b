"""`umdf feed`: receives channels live, shows how they are, and records them."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.output import JsonFlag, Printer, print_escaped, print_json, printer_of
from umdf.errors import CaptureError

if TYPE_CHECKING:
    from umdf.feed.live import Live

EXAMPLES = (
    "umdf feed --channels channels.toml                     the state of every channel",
    "umdf feed --channels channels.toml --record recording  also record, for umdf stream and umdf ingest",
    "umdf feed --channels channels.toml --metrics-port 9100  with /metrics and /health on 127.0.0.1",
    "umdf feed --channels channels.toml --channel sbe:72     one channel only: a process for each is fine",
    "umdf feed --channels channels.toml --json              events and status as JSON lines",
)
VIEW_INTERVAL_S = 0.5


def feed(
    ctx: typer.Context,
    channels: Annotated[Path, typer.Option(help="Channel addresses (TOML)", metavar="FILE")],
    only: Annotated[
        list[str] | None,
        typer.Option("--channel", help="Channel to receive: 72 or sbe:72; may be repeated (default: all)", metavar="N"),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Directory for a recording of everything received", metavar="DIR")
    ] = None,
    keep_joined: Annotated[
        bool, typer.Option("--keep-joined", help="Stay on the instrument and snapshot streams once synchronized")
    ] = False,
    duration_s: Annotated[
        float | None, typer.Option(help="Seconds to receive (default: until interrupted)", metavar="SECONDS", min=0)
    ] = None,
    interval_s: Annotated[float, typer.Option(help="Seconds between status lines", metavar="SECONDS", min=0.1)] = 10.0,
    log: Annotated[
        Path | None, typer.Option(help="File that gets events and status as JSON lines, appended", metavar="FILE")
    ] = None,
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

    Each book is healthy, unverified or stale. A channel is live when all its instruments are known and nothing about
    them is uncertain: books, definitions, phases. What both lines lost is recovered from the TCP Replayer, if the
    channels file has one, or from the snapshot stream. A terminal shows a table of the channels; elsewhere events and
    status are printed as lines.
    """
    from umdf.feed.channel_feed import FeedSettings
    from umdf.feed.live import Live
    from umdf.transport.udp_receiver import ReceiverSettings

    printer = printer_of(ctx)
    settings = FeedSettings(keeps_joined=keep_joined or record is not None)
    receiver_settings = ReceiverSettings(buffer_bytes=buffer_mib << 20)
    _announce_compilation(printer)
    live = Live(channels, only=only or (), record=record, settings=settings, receiver_settings=receiver_settings)
    with live, _ending_on_signals(live), _open_log(log) as log_file:
        _print_notices(printer, live)
        report = FeedReport(live, printer, log_file)
        for schema in ("gaps", "trust", "state"):
            live.subscribe(schema=schema, callback=report.add_event)
        try:
            with _monitoring(metrics_port, live):
                report.run(duration_s, interval_s)
        except KeyboardInterrupt:
            pass
        report.add_status()
        failure = live.recorder.failure if live.recorder is not None else ""
    if failure:
        raise CaptureError(f"recording stopped: {failure}", "what was written before is complete")


def _announce_compilation(printer: Printer) -> None:
    """Nothing is received before everything is compiled, which may take minutes after an installation or an update."""
    from umdf.feed.compilation import uncompiled_kernels

    if count := uncompiled_kernels():
        text = f"compiling {count} kernels: once, it takes up to some minutes; then the channels are joined"
        if printer.json:
            print_json({"type": "starting", "ts_ns": time.time_ns(), "text": text})
        else:
            print_escaped(text)
        sys.stdout.flush()


@contextmanager
def _ending_on_signals(live: Live) -> Iterator[None]:
    """The first one ends when everything that was received is processed and recorded, the next one at once."""

    def end(*_: Any) -> None:
        if live.is_ending:
            raise KeyboardInterrupt
        live.end()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class FeedReport:
    """What happens on the channels: as a view on a terminal, as lines elsewhere, and in a log."""

    def __init__(self, live: Live, printer: Printer, log: IO[str] | None) -> None:
        from umdf.cli.feed_view import FeedView

        self._live, self._printer, self._log, self._view = live, printer, log, FeedView()
        self._is_view = not printer.json and sys.stdout.isatty()

    def run(self, duration_s: float | None, interval_s: float) -> None:
        """Receive for some time, with a status every interval."""
        until_s = None if duration_s is None else time.monotonic() + duration_s
        status_s = time.monotonic() + interval_s
        step_s = min(VIEW_INTERVAL_S, interval_s) if self._is_view else interval_s
        with self._display() as display:
            while not self._live.is_ending and (until_s is None or time.monotonic() < until_s):
                left_s = step_s if until_s is None else min(step_s, until_s - time.monotonic())
                self._live.run(max(0.0, left_s))
                if display is not None:
                    display.update(self._table(), refresh=True)
                if time.monotonic() >= status_s and (until_s is None or time.monotonic() < until_s):
                    status_s += interval_s
                    self.add_status()

    def _display(self) -> Any:
        if not self._is_view:
            return nullcontext()
        from rich.live import Live as LiveDisplay

        return LiveDisplay(self._table(), auto_refresh=False)

    def _table(self) -> Any:
        live, height = self._live, shutil.get_terminal_size().lines
        return self._view.table(live.status(), time.time_ns(), live.notices(), height)

    def add_event(self, event: Any) -> None:
        from umdf.feed.metrics import event_record

        record = event_record(event, time.time_ns())
        self._write_log(record)
        if self._printer.json:
            print_json(record)
            return
        if record["type"] == "recorder":
            self._printer.warn(record["text"])
        elif record["type"] == "trust":
            pass  # a gap on a channel of 18,000 instruments is one line, not 18,000
        elif self._is_view:
            self._view.add_event(_event_text(record))
        else:
            print_escaped(_event_text(record))

    def add_status(self) -> None:
        from umdf.cli.feed_view import COLUMNS, line_text
        from umdf.feed.metrics import status_record

        now_ns, statuses = time.time_ns(), self._live.status()
        for record in (status_record(status, now_ns) for status in statuses):
            self._write_log(record)
            if self._printer.json:
                print_json(record)
        if not self._printer.json and not self._is_view:
            for row, status in zip(self._view.rows(statuses, now_ns), statuses, strict=True):
                shown = [f"{name} {value}" for name, value in zip(COLUMNS, row, strict=True) if value]
                print_escaped(", ".join([*shown, *filter(None, [line_text(status).partition(": ")[2]])]))
        sys.stdout.flush()

    def _write_log(self, record: dict[str, Any]) -> None:
        """A log that cannot be written must not stop the books."""
        if self._log is None:
            return
        try:
            self._log.write(json.dumps(record) + "\n")
        except OSError as error:
            self._log = None
            self._printer.warn(f"logging stopped: {error.strerror}")


def _open_log(log: Path | None) -> AbstractContextManager[IO[str] | None]:
    return nullcontext() if log is None else log.open("a", buffering=1, encoding="utf-8")


def _event_text(record: dict[str, Any]) -> str:
    from umdf.units import utc_text

    where = f"{record['channel']} {record['protocol']}: " if "channel" in record else ""
    return f"{utc_text(record['ts_ns'])[11:23]} {where}{record['text']}"


def _print_notices(printer: Printer, live: Live) -> None:
    for notice in live.notices():
        printer.warn(notice)
    if live.recorder is not None and live.recorder.closed_for_others:
        count = len(live.recorder.closed_for_others)
        printer.warn(f"files of a killed recorder: {count} closed and listed in the manifest")


def _monitoring(port: int | None, live: Live) -> Any:
    from umdf.feed.metrics import health, metrics_text
    from umdf.transport.monitoring_server import MonitoringServer

    if port is None:
        return nullcontext()

    def healthy() -> tuple[bool, str]:
        return health(live.status(), live.recorder.failure if live.recorder is not None else "")

    return MonitoringServer(port, lambda: metrics_text(live.status()), healthy)
