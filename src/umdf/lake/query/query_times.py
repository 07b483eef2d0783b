"""Which time of a row is compared with the times of a query: when it was received, or when the exchange sent it.

    auto       receive time; on channel-days with a recording whose clock is off, exchange time
    receive    receive time (ts_recv)
    exchange   exchange time (ts_send): when the exchange sent the packet

Invariant: a channel-day is compared by one time. Intervals (`ts_interval`) and `ts_opened` are exchange times anyway.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date

from umdf.errors import UsageError
from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.query.name_lookup import check_choice, time_column
from umdf.lake.recording.capture_clock import is_clock_off, largest_offset
from umdf.lake.schemas import Table

AUTO, RECEIVE, EXCHANGE = TIMES = ("auto", "receive", "exchange")
RECEIVED, SENT = "ts_recv", "ts_send"
Partition = tuple[date | None, int | None]


@dataclass(frozen=True)
class ComparedTime:
    """The choice of a query, and the channel-days whose clock is off."""

    choice: str = AUTO
    off: frozenset[Partition] = frozenset()

    def is_exchange(self, part: Partition) -> bool:
        return self.choice == EXCHANGE or (self.choice == AUTO and part in self.off)

    def column(self, table: Table, part: Partition) -> str | None:
        """The column of a table that times are compared with."""
        name = time_column(table)
        return SENT if name == RECEIVED and SENT in table.schema.names and self.is_exchange(part) else name

    def columns(self, table: Table) -> set[str]:
        """The columns that are compared on some channel-day."""
        parts: list[Partition] = [(None, None), *self.off]
        return {name for part in parts if (name := self.column(table, part)) is not None}


AUTO_TIME = ComparedTime()


def compared_time(snapshot: LakeSnapshot, choice: str, table: Table | None = None) -> ComparedTime:
    check_choice("time", choice, TIMES)
    if table is not None and choice == EXCHANGE and time_column(table) == RECEIVED and SENT not in table.schema.names:
        raise UsageError(f"{table.name} has no exchange time", "use time='receive'")
    return ComparedTime(choice, frozenset(clock_offsets(snapshot)) if choice == AUTO else frozenset())


def clock_offsets(snapshot: LakeSnapshot) -> dict[Partition, int]:
    """The channel-days with a recording whose clock is off, and the largest offset of each."""
    found: dict[Partition, list[int | None]] = defaultdict(list)
    for entry in ledger.entries(snapshot):
        if is_clock_off(entry.clock_offset_ns):
            found[entry.trading_date, entry.channel_id].append(entry.clock_offset_ns)
    return {part: largest_offset(offsets) or 0 for part, offsets in found.items()}
