"""What `umdf feed` shows: a table of its channels on a terminal, and lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from umdf.units import printable

if TYPE_CHECKING:
    from umdf.feed.live import ChannelStatus

COLUMNS = ("channel", "state", "sequence", "packets/s", "gaps", "missing", "recovered", "untrusted", "latency")
STYLES = {"live": "green", "recovering": "yellow", "synchronizing": "cyan", "silent": "red", "waiting": "dim"}
MAX_EVENTS = 8


class FeedView:
    """Rates need the status before; events are the last few."""

    def __init__(self) -> None:
        self._before: dict[Any, tuple[int, int]] = {}
        self.events: list[str] = []

    def add_event(self, text: str) -> None:
        self.events = [*self.events, text][-MAX_EVENTS:]

    def rows(self, statuses: Sequence[ChannelStatus], now_ns: int) -> list[list[str]]:
        rows = []
        for status in statuses:
            packets, then_ns = self._before.get(status.channel, (status.packets, now_ns))
            rate = (status.packets - packets) * 1e9 / max(1, now_ns - then_ns)
            self._before[status.channel] = status.packets, now_ns
            totals = status.totals
            counts = totals.gaps, totals.missing - totals.filled, status.recovered, status.untrusted
            place = f"{status.epoch}:{status.sequence:,}" if status.epoch is not None else ""
            name = f"{status.channel.number} {status.channel.protocol}"
            cells = name, str(status.state), place, f"{rate:,.0f}", *(f"{count:,}" for count in counts)
            rows.append([*cells, latency_text(status.latency_ns)])
        return rows

    def table(self, statuses: Sequence[ChannelStatus], now_ns: int, notes: Sequence[str]) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for position, column in enumerate(COLUMNS):
            table.add_column(column, justify="left" if position < 2 else "right")
        for row in self.rows(statuses, now_ns):
            table.add_row(row[0], Text(row[1], STYLES.get(row[1], "")), *row[2:])
        lines = [
            Text(line_text(status), "dim") for status in statuses if any(vars(status.totals).values())
        ]  # quality of the lines
        return Group(
            table,
            *lines,
            *(Text(printable(note), "yellow") for note in notes),
            *(Text(printable(event)) for event in self.events),
        )


def line_text(status: ChannelStatus) -> str:
    """How the lines of a channel compare: what each delivered first, and what was wrong with it."""
    parts = []
    for line, quality in sorted(status.totals.lines.items()):
        faults = [
            f"{value:,} {name.replace('_', ' ')}"
            for name, value in vars(quality).items()
            if value and name not in ("delivered", "duplicates")
        ]
        parts.append(", ".join([f"line {line} first in {quality.delivered:,}", *faults]))
    lost = [f"{status.lost:,} packets lost by this machine"] if status.lost else []
    return f"{status.channel.number} {status.channel.protocol}: {'; '.join([*parts, *lost])}"


def latency_text(ns: int | None) -> str:
    """A latency, which may be negative where clocks differ."""
    if ns is None:
        return ""
    if abs(ns) < 1_000_000:
        return f"{ns / 1e3:.0f} µs"
    return f"{ns / 1e6:.1f} ms" if abs(ns) < 1_000_000_000 else f"{ns / 1e9:,.1f} s"
