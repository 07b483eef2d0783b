"""The result of an ingest or of one micro-batch of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umdf.errors import CaptureError
from umdf.lake.plan.loop_gaps import INCREMENTAL
from umdf.lake.plan.planner import DayPosition
from umdf.lake.plan.segments import ChannelDayKey


@dataclass
class IngestResult:
    """The result of an ingest: files, rows, gaps and damage."""

    new: int = 0
    known: int = 0
    grown: list[str] = field(default_factory=list)  # known files that have grown
    unusable: list[tuple[str, str]] = field(default_factory=list)  # files that are not captures, and why
    damaged: list[str] = field(default_factory=list)
    clock_offsets: list[tuple[str, int]] = field(default_factory=list)  # new files whose clock is off, and by how much
    unread_bytes: int = 0  # of damaged files
    not_stored: int = 0  # rows that exceed the limit of `quarantine`
    unrecognised: int = 0  # packets of multicast groups without UMDF traffic
    days: list[ChannelDayKey] = field(default_factory=list)
    # Followed days and their frontiers.
    open_days: dict[ChannelDayKey, DayPosition] = field(default_factory=dict)
    closed_days: list[ChannelDayKey] = field(default_factory=list)  # followed days that are complete
    # Per new file: when it was closed, and ts_recv of its last packet.
    closings: list[tuple[int, int]] = field(default_factory=list)
    # Followed days that had data before their frontier.
    rebuilt_days: list[ChannelDayKey] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    gaps: int = 0
    missing_sequences: int = 0
    missing_in_loops: int = 0  # sequences of looping streams that no line delivered
    incomplete_snapshots: int = 0
    stale: int = 0
    commit: int | None = None
    peak_memory_bytes: int = 0
    largest_task_share: float = 0.0
    notices: list[str] = field(default_factory=list)  # about traffic of another schema version

    def add_loop_losses(self, small_tables: Mapping[str, list[dict[str, Any]]]) -> None:
        """Add what is in the rows of `gaps` and `quality` of a day."""
        gaps, quality = small_tables.get("gaps", []), small_tables.get("quality", [])
        self.missing_in_loops += sum(row["missing"] for row in gaps if row["stream"] != INCREMENTAL)
        self.incomplete_snapshots += sum(row["incomplete_snapshots"] or 0 for row in quality)

    def raise_if_no_captures(self) -> None:
        if self.unusable and len(self.unusable) == self.new + self.known:
            path, reason = self.unusable[0]
            raise CaptureError(f"no usable captures ({path}: {reason})", "pass pcap or pcapng files")
