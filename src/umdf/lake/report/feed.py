"""Feed quality, gaps and recovery of a day, for the day report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from umdf.lake.books.state_record import HEADER, HEADER_FIELDS
from umdf.lake.commit import ledger
from umdf.lake.commit.day_continuity import continued_days
from umdf.lake.plan.gap_timeline import JOIN
from umdf.lake.recording.capture_clock import is_clock_off
from umdf.lake.report.lake_day import LakeDay, has_flag
from umdf.lake.tasks.gather import LONE_RESTART
from umdf.market.families import MAYBE_BAD_BOOK, NULL, SNAPSHOT

INCREMENTAL = "incremental"
EQUAL, DIFFERENT = "equal", "different"
RECOVERY_VERDICTS = (DIFFERENT, "stale", "unverified")  # the snapshot replaced the book
MAX_LISTED = 50

Symbols = Mapping[int, str]  # symbols by instrument


@dataclass(frozen=True)
class LineQuality:
    """One line of one stream. Only the incremental stream has arbitration."""

    channel_id: int
    stream: str
    line: str | None
    packets: int
    messages: int
    size_bytes: int
    lost: int | None
    numbers: int | None  # units that all lines should have delivered
    duplicates: int
    late: int
    corrupt: int
    first_arrivals: int | None
    all_arrivals: int | None
    skew_p50_ns: int | None
    skew_p99_ns: int | None
    skew_max_ns: int | None
    peak_packets_1s: int | None
    ts_first: int | None
    ts_last: int | None
    clock_offset_ns: int | None
    incomplete_snapshots: int | None

    @property
    def is_clock_off(self) -> bool:
        return is_clock_off(self.clock_offset_ns)


@dataclass(frozen=True)
class Gap:
    channel_id: int
    seq_version: int | None
    first_sequence: int | None
    last_sequence: int | None
    missing: int
    cause: str
    recovered_by: str | None
    ts_opened: int | None
    ts_recovered: int | None
    affected: int | None
    instruments: tuple[str, ...]  # only the listed ones


@dataclass(frozen=True)
class ChannelGaps:
    channel_id: int
    gaps: int = 0
    missing: int = 0  # units lost in them
    open: int = 0  # gaps without a recovery
    before: int = 0  # units sent before the capture started
    unaccounted: int = 0  # missing units without a row in the table


@dataclass(frozen=True)
class GapSummary:
    channels: tuple[ChannelGaps, ...]  # channels with missing units
    listed: tuple[Gap, ...]  # selected: open ones first, then the largest; in order of time
    times: tuple[int, ...]  # ts_opened of all gaps

    def total(self, name: str) -> int:
        return sum(getattr(channel, name) for channel in self.channels)


@dataclass(frozen=True)
class ChannelChecks:
    channel_id: int
    verdicts: dict[str, int]  # number of snapshots by verdict


@dataclass(frozen=True)
class CheckSummary:
    """Results of comparing snapshots with books."""

    channels: tuple[ChannelChecks, ...]
    different: tuple[dict[str, Any], ...]  # the first ones
    recovered: int  # books that a snapshot replaced

    def total(self, verdict: str) -> int:
        return sum(channel.verdicts.get(verdict, 0) for channel in self.channels)

    @property
    def snapshots(self) -> int:
        return sum(sum(channel.verdicts.values()) for channel in self.channels)


@dataclass(frozen=True)
class QuarantineGroup:
    """Quarantined input with the same reason."""

    channel_id: int | None
    line: str | None
    reason: str
    template: str | None
    rows: int
    size_bytes: int


def is_lone_restart(group: QuarantineGroup) -> bool:
    """Of the packets of a line that restarted its numbering alone, which another line has."""
    is_rest = ";" not in group.reason and group.reason.endswith(f" × {LONE_RESTART}")  # beyond the limit of the table
    return group.reason == LONE_RESTART or is_rest


@dataclass(frozen=True)
class UntrustedBook:
    """A book that may be wrong at the end of the day."""

    channel_id: int
    instrument_id: int
    symbol: str
    state: str  # stale or unverified
    ts_last: int | None  # of its last row
    unverified_events: int


def line_quality(day: LakeDay, gaps: GapSummary) -> tuple[LineQuality, ...]:
    rows = day.dataset("quality").to_table().to_pylist()
    arrivals = _arrivals(rows)
    missing = {channel.channel_id: channel.missing + channel.unaccounted for channel in gaps.channels}
    found = []
    for row in sorted(rows, key=_line_sort_key):
        channel, is_incremental = row["channel_id"], row["stream"] == INCREMENTAL
        line_fields: dict[str, Any] = {
            "lost": row["lost"],
            "first_arrivals": row["first_arrivals"] if is_incremental else None,
            "all_arrivals": arrivals[channel] if is_incremental else None,
            "numbers": arrivals[channel] + missing.get(channel, 0) if is_incremental else None,
        }
        row_fields = {name: row[name] for name in LineQuality.__dataclass_fields__ if name not in line_fields}
        found.append(LineQuality(**row_fields, **line_fields))
    return tuple(found)


def _line_sort_key(row: dict[str, Any]) -> tuple[int, bool, str, str]:
    """Sorts lines: the incremental stream of a channel before its others."""
    return row["channel_id"], row["stream"] != INCREMENTAL, row["stream"], row["line"] or ""


def _arrivals(rows: list[dict[str, Any]]) -> Counter[int]:
    """How many units of a channel arrived: each arrived first on one line."""
    found: Counter[int] = Counter()
    for row in rows:
        if row["stream"] == INCREMENTAL:
            found[row["channel_id"]] += row["first_arrivals"]
    return found


def summarize_gaps(day: LakeDay, symbols: Symbols) -> GapSummary:
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    rows = [row for row in day.dataset("gaps").to_table().to_pylist() if row["stream"] == INCREMENTAL]
    continued = continued_days(day.snapshot)
    for row in rows:
        count = counts[row["channel_id"]]
        if row["cause"] == JOIN:
            # If the lake has the day before, nothing is missing.
            count["before"] += 0 if (day.date, row["channel_id"]) in continued else row["missing"]
        else:
            count.update({"gaps": 1, "missing": row["missing"], "open": int(row["recovered_by"] is None)})
    for channel, missing in ({} if rows else _unaccounted(day)).items():
        counts[channel]["unaccounted"] = missing
    lost = [row for row in rows if row["cause"] != JOIN]
    chosen = sorted(lost, key=lambda row: (row["recovered_by"] is not None, -row["missing"]))[:MAX_LISTED]
    return GapSummary(
        tuple(ChannelGaps(channel, **count) for channel, count in sorted(counts.items()) if any(count.values())),
        tuple(_gap(row, symbols) for row in sorted(chosen, key=_gap_sort_key)),
        tuple(sorted(row["ts_opened"] for row in lost if row["ts_opened"] is not None)),
    )


def _gap_sort_key(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["channel_id"], row["ts_opened"] or 0, row["first_sequence"] or 0


def _gap(row: dict[str, Any], symbols: Symbols) -> Gap:
    listed = row["instruments"] or ([row["instrument_id"]] if row["instrument_id"] else [])
    row_fields = {name: row[name] for name in Gap.__dataclass_fields__ if name != "instruments"}
    return Gap(**row_fields, instruments=tuple(symbols.get(number, str(number)) for number in listed))


def _unaccounted(day: LakeDay) -> dict[int, int]:
    """If `gaps` has no rows: whether nothing was lost, or the table was not requested. The lines' counts show it."""
    rows = day.dataset("quality").to_table().to_pylist()
    found = {}
    for channel, arrived in sorted(_arrivals(rows).items()):
        own = [row for row in rows if row["channel_id"] == channel and row["first_sequence"] is not None]
        if own:
            numbers = max(row["last_sequence"] for row in own) - min(row["first_sequence"] for row in own) + 1
            if numbers > arrived:
                found[channel] = numbers - arrived
    return found


def summarize_checks(day: LakeDay, symbols: Symbols) -> CheckSummary:
    rows = day.rows("book_check", "channel_id instrument_id verdict")
    verdicts: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows.group_by(["channel_id", "verdict"]).aggregate([([], "count_all")]).to_pylist():
        verdicts[row["channel_id"]][row["verdict"]] = row["count_all"]
    replaced = rows.filter(pc.field("verdict").isin(RECOVERY_VERDICTS))
    recovered = len(replaced.group_by(["channel_id", "instrument_id"]).aggregate([]))
    columns = "channel_id instrument_id ts_recv difference orders_expected orders_found"
    different = day.rows("book_check", columns, pc.field("verdict") == DIFFERENT)
    first = different.sort_by([("ts_recv", "ascending"), ("instrument_id", "ascending")]).slice(0, MAX_LISTED)
    listed = [
        row | {"symbol": symbols.get(row["instrument_id"], str(row["instrument_id"]))} for row in first.to_pylist()
    ]
    channels = tuple(ChannelChecks(channel, dict(sorted(found.items()))) for channel, found in sorted(verdicts.items()))
    return CheckSummary(channels, tuple(listed), recovered)


def summarize_quarantine(day: LakeDay) -> tuple[QuarantineGroup, ...]:
    """Includes damage of the day's files, whose rows have no date."""
    columns = "channel_id line reason template size_bytes file_id"
    own = day.rows("quarantine", columns).to_pylist()
    inputs = {ledger.file_id(entry.digest) for entry in ledger.entries(day.snapshot) if entry.trading_date == day.date}
    undated = day.snapshot.arrow_dataset("quarantine", trading_date=None).to_table(columns=columns.split()).to_pylist()
    own += [row for row in undated if row["file_id"] in inputs]
    rows: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for row in own:
        key = row["channel_id"], row["line"], row["reason"], row["template"]
        rows[key] += 1
        sizes[key] += row["size_bytes"] or 0
    return tuple(QuarantineGroup(*key, rows=count, size_bytes=sizes[key]) for key, count in rows.most_common())


def untrusted_books(day: LakeDay, symbols: Symbols) -> tuple[int, tuple[UntrustedBook, ...]] | None:
    """How many instruments have a book, and the books that may be wrong at the end; None without `book_state`."""
    if not day.has("book_state"):
        return None
    is_final_state = ~has_flag(SNAPSHOT)
    is_bad = has_flag(MAYBE_BAD_BOOK)
    columns = "channel_id instrument_id"
    books = day.rows("book_state", columns, is_final_state).group_by(columns.split()).aggregate([])
    suspects = day.rows("book_state", "instrument_id", is_final_state & is_bad).column("instrument_id")
    columns += " seq_version sequence msg_index entry_index flags content"
    last: dict[tuple[int, int, int], tuple[int, dict[str, Any]]] = {}
    rows = day.rows("book_state", columns, is_final_state & pc.field("instrument_id").isin(suspects.combine_chunks()))
    keys = ("seq_version", "sequence", "msg_index", "entry_index")
    for row in rows.sort_by([(name, "ascending") for name in keys]).to_pylist():
        head: dict[str, Any] = dict(zip(HEADER_FIELDS, HEADER.unpack_from(row["content"]), strict=True))
        last[row["channel_id"], row["instrument_id"], head["lending"]] = row["flags"], head
    found = [
        UntrustedBook(
            channel,
            instrument,
            symbols.get(instrument, str(instrument)),
            "stale" if head["stale"] else "unverified",
            None if head["ts"] in (0, NULL) else head["ts"],
            head["untrusted_events"],
        )
        for (channel, instrument, _), (flags, head) in last.items()
        if flags & MAYBE_BAD_BOOK
    ]
    return books.num_rows, tuple(sorted(found, key=lambda book: (book.channel_id, book.symbol)))
