"""What `umdf feed` shows: a table of its channels on a terminal, and lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from umdf.units import printable

if TYPE_CHECKING:
    from umdf.feed.live import ChannelStatus

COLUMNS = ("channel", "state", "epoch", "sequence", "packets/s", "gaps", "missing", "recovered", "untrusted", "latency")
MIN_WIDTHS = {"channel": 8, "state": 13, "sequence": 10}  # so that the table does not move
NOT_IN_TABLE = ("epoch", "missing")  # it fits into 80 columns
MAX_LATENCY_NS = 3_600_000_000_000  # more is a difference of clocks: a simulated exchange, or a replayed capture
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
            rate = ""
            if status.channel in self._before:
                packets, then_ns = self._before[status.channel]
                rate = f"{(status.packets - packets) * 1e9 / max(1, now_ns - then_ns):,.0f}"
            self._before[status.channel] = status.packets, now_ns
            totals = status.totals
            counts = totals.gaps, totals.missing - totals.filled, status.recovered, status.untrusted
            place = ("", "") if status.epoch is None else (str(status.epoch), f"{status.sequence:,}")
            name = f"{status.channel.number} {status.channel.protocol}"
            cells = name, str(status.state), *place, rate, *(f"{count:,}" for count in counts)
            rows.append([*cells, latency_text(status.latency_ns)])
        return rows

    def table(self, statuses: Sequence[ChannelStatus], now_ns: int, notes: Sequence[str], height: int) -> Any:
        """Everything about the channels; then warnings, the last events and the quality of lines, as far as they fit
        into the height of the terminal."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0))
        shown = [position for position, column in enumerate(COLUMNS) if column not in NOT_IN_TABLE]
        for position in shown:
            column = COLUMNS[position]
            justify = "left" if position < 2 else "right"
            table.add_column(column, justify=justify, min_width=MIN_WIDTHS.get(column), no_wrap=True)
        for row in self.rows(statuses, now_ns):
            style = STYLES.get(row[1], "")
            table.add_row(*(Text(row[position], style if position == 1 else "") for position in shown))
        room = height - len(statuses) - 3 - len(notes)
        events = self.events[-max(0, room) :] if room > 0 else []
        lines = [line_text(status) for status in statuses if status.totals.lines][: max(0, room - len(events))]
        texts = (
            *(Text(printable(note), "yellow") for note in notes),
            *(Text(printable(event), no_wrap=True, overflow="ellipsis") for event in events),
            *(Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in lines),
        )
        return Group(table, *texts)


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
    dropped = [f"{status.dropped:,} packets dropped: of other channels, or damaged"] if status.dropped else []
    return f"{status.channel.number} {status.channel.protocol}: {'; '.join([*parts, *lost, *dropped])}"


def latency_text(ns: int | None) -> str:
    """A latency, which may be negative where clocks differ; nothing where they differ by more than an hour."""
    if ns is None or abs(ns) > MAX_LATENCY_NS:
        return ""
    if abs(ns) < 1_000_000:
        return f"{ns / 1e3:.0f} µs"
    return f"{ns / 1e6:.1f} ms" if abs(ns) < 1_000_000_000 else f"{ns / 1e9:,.1f} s"
