"""What an ingest, or a micro-batch of a stream, came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from umdf.errors import CaptureError
from umdf.lake.plan.planner import DayPosition
from umdf.lake.plan.segments import ChannelDayKey


@dataclass
class IngestResult:
    """What an ingest came to."""

    new: int = 0
    known: int = 0
    grown: list[str] = field(default_factory=list)  # known files that have become longer
    unusable: list[tuple[str, str]] = field(default_factory=list)  # files that are no captures, and why
    damaged: list[str] = field(default_factory=list)
    unread_bytes: int = 0  # of damaged files
    not_stored: int = 0  # rows for which `quarantine` has no room
    unrecognised: int = 0  # packets of groups that carry no stream of the exchange
    days: list[ChannelDayKey] = field(default_factory=list)
    # Followed days, and how far they have come.
    open_days: dict[ChannelDayKey, DayPosition] = field(default_factory=dict)
    closed_days: list[ChannelDayKey] = field(default_factory=list)  # followed days that are over
    closings: list[tuple[int, int]] = field(default_factory=list)  # of new files: when closed, and ts_recv of the last
    # Followed days for which something came behind the frontier.
    rebuilt_days: list[ChannelDayKey] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    gaps: int = 0
    missing_sequences: int = 0
    stale: int = 0
    commit: int | None = None
    peak_memory_bytes: int = 0
    largest_task_share: float = 0.0
    notices: list[str] = field(default_factory=list)  # about traffic that the schema was not written for

    def raise_if_no_captures(self) -> None:
        if self.unusable and len(self.unusable) == self.new + self.known:
            path, reason = self.unusable[0]
            raise CaptureError(f"{path}: {reason}; no other file is a capture", "name pcap or pcapng files")
