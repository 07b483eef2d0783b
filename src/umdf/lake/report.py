"""The day report: what a lake holds of one trading date, and whether it is whole.

Facts are gathered here and in report_feed and report_market; report_page makes a page of them. The one rule: a day is
called whole only if the tables that can say so are there and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from umdf.lake import ledger
from umdf.lake.report_day import LakeDay
from umdf.lake.report_feed import (
    DIFFERENT,
    EQUAL,
    BadBook,
    Checks,
    Gaps,
    Line,
    Refused,
    bad_books_of,
    checks_of,
    gaps_of,
    lines_of,
    quarantine_of,
)
from umdf.lake.report_market import (
    Active,
    Activity,
    Totals,
    activity_of,
    day_statistics,
    messages_by_second,
    most_active,
    names_of,
    totals_of,
)
from umdf.lake.schemas import tables
from umdf.lake.snapshot import open_snapshot

WHOLE, HEALED, DAMAGED, UNKNOWN = "whole", "healed", "damaged", "unknown"
HEADLINES = {
    WHOLE: "The day is whole.",
    HEALED: "Something is missing, but every book was healed.",
    DAMAGED: "The day is not whole.",
    UNKNOWN: "This lake cannot tell whether the day is whole.",
}
MOST_NAMED = 3


@dataclass(frozen=True)
class TableSize:
    name: str
    doc: str
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Report:
    trading_date: str
    channels: tuple[int, ...]
    lake: str
    lake_id: str
    producer: str
    commit: int
    ts_commit: int
    inputs: int  # files
    input_bytes: int
    messages: int | None  # each once, whatever lines it came on
    verdict: str
    summary: tuple[str, ...]  # whether the day is whole, in plain words
    tables: tuple[TableSize, ...]
    totals: tuple[Totals, ...]
    active: tuple[Active, ...]
    activity: Activity | None
    lines: tuple[Line, ...]
    gaps: Gaps
    checks: Checks
    quarantine: tuple[Refused, ...]
    books: int | None  # instruments with a book; None: the lake has no states of books
    bad_books: tuple[BadBook, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def day_report(root: str | os.PathLike[str], trading_date: date | None = None) -> Report:
    """Of the last finished commit; without a date, of the lake's last one."""
    snapshot = open_snapshot(root)
    day = LakeDay(snapshot, trading_date)
    statistics = day_statistics(day)
    names = names_of(day, statistics)
    gaps, checks, quarantine = gaps_of(day, names), checks_of(day, names), quarantine_of(day)
    lines, states, messages = lines_of(day, gaps), bad_books_of(day, names), messages_by_second(day)
    books, bad_books = states or (None, ())
    verdict = _verdict(bool(lines) and states is not None, gaps, checks, quarantine, bad_books)
    inputs = {entry.digest: entry.size_bytes for entry in ledger.entries(snapshot) if entry.trading_date == day.date}
    return Report(
        trading_date=str(day.date),
        channels=day.channels(),
        lake=str(snapshot.home.root),
        lake_id=snapshot.home.lake_id,
        producer=snapshot.home.producer,
        commit=snapshot.number,
        ts_commit=snapshot.marker.ts_ns,
        inputs=len(inputs),
        input_bytes=sum(inputs.values()),
        messages=None if messages is None else sum(messages.values()),
        verdict=verdict,
        summary=(HEADLINES[verdict], *_summary(bool(lines), gaps, checks, quarantine, books, bad_books)),
        tables=tuple(_sizes(day)),
        totals=totals_of(statistics),
        active=most_active(day, statistics, names),
        activity=activity_of(day, messages),
        lines=lines,
        gaps=gaps,
        checks=checks,
        quarantine=quarantine,
        books=books,
        bad_books=bad_books,
    )


def _sizes(day: LakeDay) -> Iterable[TableSize]:
    for name, known in tables().items():
        adds = day.snapshot.adds(name, trading_date=day.date) if "trading_date" in known.partition else []
        if adds:
            yield TableSize(name, known.doc, sum(a.rows for a in adds), len(adds), sum(a.bytes for a in adds))


def _verdict(
    is_known: bool, gaps: Gaps, checks: Checks, quarantine: tuple[Refused, ...], bad: tuple[BadBook, ...]
) -> str:
    if bad or gaps.total("open") or gaps.total("unaccounted") or quarantine or checks.total(DIFFERENT):
        return DAMAGED
    if not is_known:
        return UNKNOWN
    return HEALED if gaps.channels else WHOLE


def _summary(
    has_lines: bool,
    gaps: Gaps,
    checks: Checks,
    quarantine: tuple[Refused, ...],
    books: int | None,
    bad: tuple[BadBook, ...],
) -> Iterable[str]:
    yield _sentence(*_losses(has_lines, gaps), *_books(checks, books, bad))
    if checks.snapshots:
        yield _sentence(_compared(checks))
    if quarantine:
        more = ", …" if len({refused.reason for refused in quarantine}) > 1 else ""
        rows = sum(refused.rows for refused in quarantine)
        yield _sentence(f"{_many(rows, 'piece')} of the input could not be used ({quarantine[0].reason}{more})")
    if unread := sum(refused.size_bytes for refused in quarantine if refused.channel_id is None):
        yield _sentence(f"{_many(unread, 'byte')} of the capture files could not be read")


def _losses(has_lines: bool, gaps: Gaps) -> Iterable[str]:
    for channel in gaps.channels:
        if channel.before:
            yield f"the capture of channel {channel.channel_id} begins {_many(channel.before, 'sequence number')} late"
        if channel.unaccounted:
            missing = _many(channel.unaccounted, "sequence number")
            yield f"{missing} of channel {channel.channel_id} are missing, and `gaps` does not say which"
    lossy = [channel for channel in gaps.channels if channel.gaps]
    for channel in lossy if len(lossy) <= MOST_NAMED else ():
        lost = f"{_many(channel.gaps, 'gap')} lost {_many(channel.missing, 'sequence number')}"
        yield f"{lost} on channel {channel.channel_id}"
    if len(lossy) > MOST_NAMED:
        lost = f"{_many(gaps.total('gaps'), 'gap')} lost {_many(gaps.total('missing'), 'sequence number')}"
        yield f"{lost} on {len(lossy)} channels"
    if not gaps.channels:
        yield "nothing was lost on the way" if has_lines else "`quality` has no rows that tell what the lines delivered"
    if still := gaps.total("open"):
        yield f"{_many(still, 'gap')} {'is' if still == 1 else 'are'} not cured"


def _books(checks: Checks, books: int | None, bad: tuple[BadBook, ...]) -> Iterable[str]:
    if books is None:
        yield "`book_state` has no rows that tell how the books ended"
        return
    if checks.healed:
        verb = "was" if checks.healed == 1 else "were"
        yield f"{checks.healed:,} of {_many(books, 'book')} {verb} healed from snapshots"
    if not bad:
        yield "none is stale at the end" if checks.healed else f"none of {_many(books, 'book')} is stale at the end"
        return
    named = ", ".join(book.symbol for book in bad[:MOST_NAMED]) + (", …" if len(bad) > MOST_NAMED else "")
    noun = "" if checks.healed else " of the books" if len(bad) > 1 else " book"
    yield f"{len(bad):,}{noun} {'is' if len(bad) == 1 else 'are'} stale or in doubt at the end ({named})"


def _compared(checks: Checks) -> str:
    equal, different = checks.total(EQUAL), checks.total(DIFFERENT)
    if equal == checks.snapshots:
        return f"{'every one of ' if equal > 1 else ''}{_many(equal, 'snapshot')} is equal to our book"
    if not equal + different:
        return f"none of {_many(checks.snapshots, 'snapshot')} could be compared with a book"
    result = f"{different:,} {'differs' if different == 1 else 'differ'}" if different else "no difference was found"
    return f"{equal + different:,} of {_many(checks.snapshots, 'snapshot')} could be compared with a book, and {result}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _sentence(*parts: str) -> str:
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."
