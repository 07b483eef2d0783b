"""The day report: what a lake has of one trading date, and whether it is complete.

The data are collected here and in `feed` and `market`; `page` renders them.

Invariant: a day is reported as complete only if the tables that prove it exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.recording.capture_clock import offset_text
from umdf.lake.report.feed import (
    DIFFERENT,
    EQUAL,
    INCREMENTAL,
    CheckSummary,
    GapSummary,
    LineQuality,
    QuarantineGroup,
    UntrustedBook,
    is_lone_restart,
    line_quality,
    summarize_checks,
    summarize_gaps,
    summarize_quarantine,
    untrusted_books,
)
from umdf.lake.report.lake_day import LakeDay
from umdf.lake.report.market import (
    ActiveInstrument,
    Activity,
    ChannelTotals,
    build_activity,
    channel_totals,
    day_statistics,
    messages_by_second,
    most_active,
    symbols_by_id,
)
from umdf.lake.schemas import tables

COMPLETE, JOINED, RECOVERED, DAMAGED, UNKNOWN = "complete", "joined", "recovered", "damaged", "unknown"
HEADLINES = {
    COMPLETE: "The day is complete.",
    JOINED: "Nothing was lost since the recording begins; what was sent before it is not in the lake.",
    RECOVERED: "Some data was lost, but every book was recovered.",
    DAMAGED: "The day is not complete.",
    UNKNOWN: "This lake does not show whether the day is complete.",
}
MAX_NAMED = 3


@dataclass(frozen=True)
class TableSize:
    name: str
    doc: str
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class DayReport:
    trading_date: str
    channels: tuple[int, ...]
    lake: str
    lake_id: str
    producer: str
    commit: int
    ts_commit: int
    inputs: int  # files
    input_bytes: int
    messages: int | None  # each message once, over all lines
    verdict: str
    summary: tuple[str, ...]  # sentences: whether the day is complete, and why not
    tables: tuple[TableSize, ...]
    totals: tuple[ChannelTotals, ...]
    active: tuple[ActiveInstrument, ...]
    activity: Activity | None
    lines: tuple[LineQuality, ...]
    gaps: GapSummary
    checks: CheckSummary
    quarantine: tuple[QuarantineGroup, ...]
    books: int | None  # instruments with a book; None: the lake has no book states
    bad_books: tuple[UntrustedBook, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def day_report(root: str | os.PathLike[str], trading_date: date | None = None) -> DayReport:
    """The report of a date (default: the lake's last), at the last finished commit."""
    snapshot = open_snapshot(root)
    day = LakeDay(snapshot, trading_date)
    statistics = day_statistics(day)
    names = symbols_by_id(day, statistics)
    gaps, checks, quarantine = summarize_gaps(day, names), summarize_checks(day, names), summarize_quarantine(day)
    lines, states, messages = line_quality(day, gaps), untrusted_books(day, names), messages_by_second(day)
    books, bad_books = states or (None, ())
    verdict = _verdict(lines, states is not None, gaps, checks, quarantine, bad_books)
    inputs = {entry.digest: entry.size_bytes for entry in ledger.entries(snapshot) if entry.trading_date == day.date}
    return DayReport(
        trading_date=str(day.date),
        channels=day.channels(),
        lake=str(snapshot.paths.root),
        lake_id=snapshot.paths.lake_id,
        producer=snapshot.paths.producer,
        commit=snapshot.number,
        ts_commit=snapshot.marker.ts_ns,
        inputs=len(inputs),
        input_bytes=sum(inputs.values()),
        messages=None if messages is None else sum(messages.values()),
        verdict=verdict,
        summary=(HEADLINES[verdict], *_summary(lines, gaps, checks, quarantine, books, bad_books)),
        tables=tuple(_table_sizes(day)),
        totals=channel_totals(statistics),
        active=most_active(day, statistics, names),
        activity=build_activity(day, messages),
        lines=lines,
        gaps=gaps,
        checks=checks,
        quarantine=quarantine,
        books=books,
        bad_books=bad_books,
    )


def _table_sizes(day: LakeDay) -> Iterable[TableSize]:
    for name, known in tables().items():
        adds = day.snapshot.adds(name, trading_date=day.date) if "trading_date" in known.partition else []
        if adds:
            yield TableSize(name, known.doc, sum(a.rows for a in adds), len(adds), sum(a.bytes for a in adds))


def _verdict(
    lines: tuple[LineQuality, ...],
    has_states: bool,
    gaps: GapSummary,
    checks: CheckSummary,
    quarantine: tuple[QuarantineGroup, ...],
    bad: tuple[UntrustedBook, ...],
) -> str:
    # What a line sent after it restarted alone is not used, but the other lines have it.
    refused = any(not is_lone_restart(group) for group in quarantine)
    if bad or gaps.total("open") or gaps.total("unaccounted") or refused or checks.total(DIFFERENT):
        return DAMAGED
    if not lines or not has_states:
        return UNKNOWN
    if gaps.total("gaps") or any(_loop_losses(lines)):
        return RECOVERED
    return JOINED if gaps.channels else COMPLETE


def _loop_losses(lines: tuple[LineQuality, ...]) -> tuple[int, int]:
    """Sequences that the looping streams lost, and incomplete snapshots."""
    loops = [line for line in lines if line.stream != INCREMENTAL]
    return sum(line.lost or 0 for line in loops), sum(line.incomplete_snapshots or 0 for line in loops)


def _summary(
    lines: tuple[LineQuality, ...],
    gaps: GapSummary,
    checks: CheckSummary,
    quarantine: tuple[QuarantineGroup, ...],
    books: int | None,
    bad: tuple[UntrustedBook, ...],
) -> Iterable[str]:
    lost, incomplete = _loop_losses(lines)
    nothing_lost = "the incremental stream lost nothing" if lost or incomplete else "nothing was lost"
    yield _sentence(*_gap_phrases(nothing_lost if lines else "", gaps), *_book_phrases(checks, books, bad))
    if lost or incomplete:
        phrase = f"the snapshot and instrument streams lost {_plural(lost, 'sequence number')}"
        yield _sentence(phrase, f"{_plural(incomplete, 'snapshot')} {'is' if incomplete == 1 else 'are'} incomplete")
    off = [line for line in lines if line.is_clock_off]
    if off:
        worst = max(off, key=lambda line: abs(line.clock_offset_ns or 0))
        where = f"the capture clock of channel {worst.channel_id}, line {worst.line}"
        yield _sentence(f"{where}, is {offset_text(worst.clock_offset_ns or 0)}", "its receive times are not reliable")
    if checks.snapshots:
        yield _sentence(_check_phrase(checks))
    alone = [group for group in quarantine if is_lone_restart(group) and group.line]
    for channel, line in sorted({(group.channel_id or 0, group.line or "") for group in alone}):
        phrase = f"line {line} of channel {channel} restarted its numbering alone"
        yield _sentence(phrase, "what it sent since is not used, because another line goes on")
    quarantine = tuple(group for group in quarantine if not is_lone_restart(group))
    if quarantine:
        more = ", …" if len({refused.reason for refused in quarantine}) > 1 else ""
        rows = sum(refused.rows for refused in quarantine)
        yield _sentence(
            f"{_plural(rows, 'unit')} {'was' if rows == 1 else 'were'} quarantined ({quarantine[0].reason}{more})"
        )
    if unread := sum(refused.size_bytes for refused in quarantine if refused.channel_id is None):
        yield _sentence(f"{_plural(unread, 'byte')} of the capture files could not be read")


def _gap_phrases(nothing_lost: str, gaps: GapSummary) -> Iterable[str]:
    for channel in gaps.channels:
        if channel.before:
            missed = _plural(channel.before, "sequence number")
            yield f"the capture of channel {channel.channel_id} starts {missed} late"
        if channel.unaccounted:
            missing = _plural(channel.unaccounted, "sequence number")
            yield f"{missing} of channel {channel.channel_id} are missing but not listed in gaps"
    lossy = [channel for channel in gaps.channels if channel.gaps]
    for channel in lossy if len(lossy) <= MAX_NAMED else ():
        lost = f"{_plural(channel.gaps, 'gap')} lost {_plural(channel.missing, 'sequence number')}"
        yield f"{lost} on channel {channel.channel_id}"
    if len(lossy) > MAX_NAMED:
        lost = f"{_plural(gaps.total('gaps'), 'gap')} lost {_plural(gaps.total('missing'), 'sequence number')}"
        yield f"{lost} on {len(lossy)} channels"
    if not gaps.channels:
        yield nothing_lost or "quality has no rows for the lines"
    if open_gaps := gaps.total("open"):
        yield f"{_plural(open_gaps, 'gap')} {'was' if open_gaps == 1 else 'were'} not recovered"


def _book_phrases(checks: CheckSummary, books: int | None, bad: tuple[UntrustedBook, ...]) -> Iterable[str]:
    if books is None:
        yield "book_state has no rows for the end of the day"
        return
    if checks.recovered:
        verb = "was" if checks.recovered == 1 else "were"
        yield f"{checks.recovered:,} of {_plural(books, 'book')} {verb} recovered from snapshots"
    if not bad:
        yield (
            "none is stale at the end" if checks.recovered else f"none of {_plural(books, 'book')} is stale at the end"
        )
        return
    named = ", ".join(book.symbol for book in bad[:MAX_NAMED]) + (", …" if len(bad) > MAX_NAMED else "")
    noun = "" if checks.recovered else " of the books" if len(bad) > 1 else " book"
    yield f"{len(bad):,}{noun} {'is' if len(bad) == 1 else 'are'} stale or unverified at the end ({named})"


def _check_phrase(checks: CheckSummary) -> str:
    equal, different = checks.total(EQUAL), checks.total(DIFFERENT)
    if equal == checks.snapshots:
        return (
            f"all {equal:,} snapshots match the rebuilt books" if equal > 1 else "1 snapshot matches the rebuilt book"
        )
    if not equal + different:
        phrase = f"none of {_plural(checks.snapshots, 'snapshot')} could be compared with a book"
        is_foreign = checks.total("other_epoch") == checks.snapshots
        return f"{phrase}, because they are of an epoch that was not captured" if is_foreign else phrase
    result = f"{different:,} {'differs' if different == 1 else 'differ'}" if different else "no difference was found"
    return (
        f"{equal + different:,} of {_plural(checks.snapshots, 'snapshot')} could be compared with a book, and {result}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _sentence(*parts: str) -> str:
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."
