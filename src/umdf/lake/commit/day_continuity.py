"""Whether a channel-day continues the one before it: derived from the ledger when it is read.

Numbering is weekly, so a recording that begins above 1 is joined, not incomplete: if the lake has the numbers before
it, nothing is missing. Invariant: nothing of this is stored, so it does not matter in which order days are ingested.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING

from umdf.lake.commit import ledger

if TYPE_CHECKING:
    from umdf.lake.commit.lake_snapshot import LakeSnapshot
    from umdf.lake.commit.ledger import LedgerEntry

ChannelDate = tuple[date | None, int | None]


def continued_days(snapshot: LakeSnapshot) -> frozenset[ChannelDate]:
    """The channel-days whose first sequence follows the last one of an earlier day, in the same epoch."""
    found: set[ChannelDate] = set()
    by_channel: dict[int, dict[date, list[LedgerEntry]]] = defaultdict(lambda: defaultdict(list))
    for entry in ledger.entries(snapshot):
        if entry.stream == "incremental" and entry.first_sequence is not None and entry.channel_id is not None:
            assert entry.trading_date is not None
            by_channel[entry.channel_id][entry.trading_date].append(entry)
    for channel, days in by_channel.items():
        last: dict[int | None, int] = {}  # by epoch: the last sequence of the newest day that has it
        for day, entries in sorted(days.items()):
            begin = min(entries, key=lambda entry: (entry.ts_first or 0, entry.first_sequence))
            first = min(e.first_sequence or 0 for e in entries if e.seq_version == begin.seq_version)
            if last.get(begin.seq_version) == first - 1:
                found.add((day, channel))
            for epoch in {entry.seq_version for entry in entries}:
                last[epoch] = max(entry.last_sequence or 0 for entry in entries if entry.seq_version == epoch)
    return frozenset(found)
