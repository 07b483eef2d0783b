"""The day report as one HTML page: no network access, no scripts, light or dark mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from umdf.lake.report.day_report import COMPLETE, DAMAGED, JOINED, RECOVERED, UNKNOWN, DayReport
from umdf.lake.report.feed import DIFFERENT, EQUAL, MAX_LISTED, LineQuality
from umdf.lake.report.html import (
    ABSENT,
    Html,
    bar_chart,
    code,
    count,
    date_and_time,
    decimal,
    decimals,
    duration,
    escape,
    paragraph,
    percentage,
    pill,
    size,
    table,
    time_of_day,
)
from umdf.lake.report.market import MAX_ACTIVE, SECOND_NS
from umdf.lake.report.style import STYLE

MAX_SYMBOLS = 6
VERDICT_STYLES = {COMPLETE: "good", JOINED: "fair", RECOVERED: "fair", DAMAGED: "bad", UNKNOWN: "fair"}
VERDICT_MEANINGS = {
    EQUAL: "compared: identical, order by order",
    DIFFERENT: "compared: different; the snapshot replaced the book",
    "stale": "not compared: the book was stale; recovered from the snapshot",
    "unverified": "not compared: messages were lost before; recovered from the snapshot",
    "no_book": "not compared: first image of the book",
    "ahead": "not compared: the incremental stream ends before it",
    "outdated": "not compared: the book was ahead of the snapshot",
    "other_epoch": "not compared: belongs to an epoch that was not captured",
}
RECOVERY_LABELS = {
    "rpt_seq": ("no book affected", "good"),
    "snapshot": ("recovered from snapshots", "good"),
    "retransmission": ("retransmitted", "good"),
    None: ("not recovered", "bad"),
}


def render_page(report: DayReport) -> str:
    title = f"Market data of {report.trading_date}"
    sections = "\n".join(
        f"<section><h2>{escape(name)}</h2>\n{''.join(parts)}</section>" for name, parts in _sections(report)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><main>\n{_header(report, title)}\n{sections}\n"
        f"<footer>{paragraph('Times are in São Paulo time. Created by `umdf report`.')}</footer></main></body></html>\n"
    )


def _sections(report: DayReport) -> Iterator[tuple[str, Iterable[Html]]]:
    if len(report.channels) > 1:
        yield "Channels", _channels(report)
    yield "Over the day", _activity(report)
    yield "Most active", _active(report)
    yield "Feed quality", _lines(report)
    yield "Gaps and recovery", _gaps(report)
    yield "Books against snapshots", _checks(report)
    yield "Books that may be wrong at the end", _bad_books(report)
    yield "Quarantine", _quarantine(report)
    yield "Tables", _tables(report)


def _header(report: DayReport, title: str) -> Html:
    channels = ", ".join(map(str, report.channels))
    trades = sum(total.trades for total in report.totals)
    facts = (
        ("messages", count(report.messages)),
        ("trades", count(trades) if report.totals else ABSENT),
        ("instruments", count(sum(total.instruments for total in report.totals)) if report.totals else ABSENT),
        ("gaps", count(report.gaps.total("gaps"))),
        ("snapshots equal", Html(f"{report.checks.total(EQUAL):,}<small> / {report.checks.snapshots:,}</small>")),
        ("books unverified", ABSENT if report.books is None else count(len(report.bad_books))),
    )
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts)
    subtitle = (
        f"{'Channel' if len(report.channels) == 1 else 'Channels'} {escape(channels)} · "
        f"{report.inputs:,} {'file' if report.inputs == 1 else 'files'}, {size(report.input_bytes)} · "
        f"lake commit {report.commit:,} of {date_and_time(report.ts_commit)} · {escape(report.producer)}"
    )
    head, *rest = report.summary
    summary_html = "".join(paragraph(each, "said") for each in rest)
    return Html(
        f'<header><h1>{escape(title)}</h1><p class="note">{subtitle}<br>{code(report.lake)}</p>'
        f'<div class="verdict {VERDICT_STYLES[report.verdict]}"><p class="head">{escape(head)}</p>{summary_html}</div>'
        f'<dl class="tiles">{tiles}</dl></header>'
    )


def _channels(report: DayReport) -> Iterator[Html]:
    gaps = {channel.channel_id: channel for channel in report.gaps.channels}
    totals = {total.channel_id: total for total in report.totals}
    rows = []
    for channel in report.channels:
        total, lost = totals.get(channel), gaps.get(channel)
        market = (
            (count(total.instruments), count(total.events), count(total.trades), count(total.volume),
             decimal(total.notional)) if total else (ABSENT,) * 5
        )  # fmt: skip
        missing = (count(lost.gaps), count(lost.missing + lost.unaccounted)) if lost else (count(0), count(0))
        bad = sum(book.channel_id == channel for book in report.bad_books)
        rows.append((escape(channel), *market, *missing, ABSENT if report.books is None else count(bad)))
    columns = "channel|instruments#|events#|trades#|volume#|notional#|gaps#|sequences lost#|books unverified#"
    yield table(columns.split("|"), rows)


def _activity(report: DayReport) -> Iterator[Html]:
    activity = report.activity
    if activity is None:
        yield paragraph("Neither `packets` nor `ohlcv_1m` has rows for this date.")
        return
    word = "second" if activity.interval_ns == SECOND_NS else "minute"
    place = activity.first_ns, activity.interval_ns, report.gaps.times
    for name, values, source in (("Messages", activity.messages, "packets"), ("Volume", activity.volume, "ohlcv_1m")):
        if values is None:
            yield paragraph(f"{name} per {word}: `{source}` has no rows for this date.")
        else:
            yield bar_chart(f"{name} per {word}", values, *place, lambda value: f"{value:,}")
    if report.gaps.times:
        yield paragraph("Triangles below the line are gaps.")


def _active(report: DayReport) -> Iterator[Html]:
    if not report.active:
        yield paragraph("`day_statistics` has no rows for this date.")
        return
    several = len(report.channels) > 1
    columns = "instrument|trades#|volume#|notional#|events#|high#|low#|last#|spread#|".split("|")
    rows = [
        (escape(one.symbol), count(one.trades), count(one.volume), decimal(one.notional), count(one.events),
         *decimals(one.high, one.low, one.last, one.spread),
         pill("incomplete", "fair") if one.is_incomplete else Html(""))
        for one in report.active
    ]  # fmt: skip
    if several:
        columns.insert(1, "channel")
        rows = [(row[0], escape(one.channel_id), *row[1:]) for row, one in zip(rows, report.active, strict=True)]
    yield table(columns, rows)
    moments = "seconds" if any(one.name == "bbo_1s" for one in report.tables) else "minutes"
    every = sum(total.instruments for total in report.totals)
    left = f"The {MAX_ACTIVE} instruments with the most trades, of {every:,}. " if every > MAX_ACTIVE else ""
    yield paragraph(
        f"{left}Notional is Σ price × size, without contract multipliers; busted trades do not count. Events are rows "
        f"of `mbo`. The spread is the median of the {moments} in which the best prices changed. Incomplete: some "
        "of the instrument's data was lost."
    )


def _lines(report: DayReport) -> Iterator[Html]:
    if not report.lines:
        yield paragraph("`quality` has no rows for this date.")
        return
    columns = (
        "channel|stream|line|packets#|messages#|lost#|loss#|duplicates#|late#|corrupt#|first#|skew, median#|"
        "skew, 99 %#|skew, maximum#|per second#|busiest second#|clock offset#|incomplete snapshots#"
    )
    yield table(columns.split("|"), map(_line_row, report.lines))
    yield paragraph(
        "First: share of units that this line delivered first. Skew: how much later than the first line it delivered "
        "the others. Per second and busiest second: packets, on average and at most. Only the incremental stream is "
        "arbitrated. Clock offset: capture clock minus exchange clock; most of a small one is the way of the packets."
    )


def _line_row(line: LineQuality) -> tuple[Html, ...]:
    begin, end = line.ts_first, line.ts_last
    duration_ns = None if begin is None or end is None or end <= begin else end - begin
    rate = None if duration_ns is None else line.packets * SECOND_NS // duration_ns
    return (
        escape(line.channel_id), escape(line.stream), escape(line.line), count(line.packets), count(line.messages),
        count(line.lost), percentage(line.lost, line.numbers), count(line.duplicates), count(line.late),
        count(line.corrupt), percentage(line.first_arrivals, line.all_arrivals), duration(line.skew_p50_ns),
        duration(line.skew_p99_ns), duration(line.skew_max_ns),
        Html("&lt;1") if rate == 0 else count(rate), count(line.peak_packets_1s), _clock(line),
        count(line.incomplete_snapshots),
    )  # fmt: skip


def _clock(line: LineQuality) -> Html:
    if line.is_clock_off:
        return pill(f"{(line.clock_offset_ns or 0) / SECOND_NS:,.3f} s", "bad")
    return duration(line.clock_offset_ns)


def _gaps(report: DayReport) -> Iterator[Html]:
    gaps = report.gaps
    for channel in gaps.channels:
        if channel.before:
            sentence = f"The capture of channel {channel.channel_id} starts after {channel.before:,} sequence numbers."
            yield paragraph(sentence)
        if channel.unaccounted:
            yield paragraph(f"{channel.unaccounted:,} sequence numbers of channel {channel.channel_id} are missing.")
    if not gaps.listed:
        yield paragraph("`gaps` has no rows for this date.")
        return
    columns = "channel|at|first sequence#|last#|missing#|recovery|after#|books affected#|which".split("|")
    rows = []
    for gap in gaps.listed:
        recovery = pill(*RECOVERY_LABELS.get(gap.recovered_by, (str(gap.recovered_by), "plain")))
        duration_ns = gap.ts_recovered - gap.ts_opened if gap.ts_recovered and gap.ts_opened else None
        named = ", ".join(gap.instruments[:MAX_SYMBOLS]) + (", …" if len(gap.instruments) > MAX_SYMBOLS else "")
        numbers = count(gap.first_sequence), count(gap.last_sequence), count(gap.missing)
        rows.append((escape(gap.channel_id), time_of_day(gap.ts_opened), *numbers, recovery, duration(duration_ns),
                     count(gap.affected), escape(named)))  # fmt: skip
    yield table(columns, rows)
    total = gaps.total("gaps")
    if total > len(gaps.listed):
        yield paragraph(
            f"{len(gaps.listed)} of {total:,}: unrecovered gaps first, then the largest. All are in the table gaps."
        )


def _checks(report: DayReport) -> Iterator[Html]:
    checks = report.checks
    if not checks.snapshots:
        yield paragraph("No snapshot was compared: `book_check` has no rows for this date.")
        return
    rows = []
    for channel in checks.channels:
        total = sum(channel.verdicts.values())
        for verdict in sorted(channel.verdicts, key=lambda word: (*VERDICT_MEANINGS, word).index(word)):
            tone = {EQUAL: "good", DIFFERENT: "bad"}.get(verdict, "plain")
            found = channel.verdicts[verdict]
            about = escape(VERDICT_MEANINGS.get(verdict, ""))
            rows.append((escape(channel.channel_id), pill(verdict.replace("_", " "), tone), count(found),
                         percentage(found, total), about))  # fmt: skip
    yield table("channel|verdict|snapshots#|share#|meaning".split("|"), rows)
    if checks.different:
        columns = "channel|instrument|at|orders in the snapshot#|in the book#|first difference".split("|")
        listed = (
            (escape(row["channel_id"]), escape(row["symbol"]), time_of_day(row["ts_recv"]),
             count(row["orders_expected"]), count(row["orders_found"]), escape(row["difference"]))
            for row in checks.different
        )  # fmt: skip
        yield table(columns, listed, "Snapshots that differ from the book")


def _bad_books(report: DayReport) -> Iterator[Html]:
    if report.books is None:
        yield paragraph("`book_state` has no rows for this date.")
        return
    if not report.bad_books:
        yield paragraph(f"None of {report.books:,}.")
        return
    columns = "channel|instrument|state|last row at|rows unverified#".split("|")
    yield table(columns, (
        (escape(book.channel_id), escape(book.symbol), pill(book.state, "bad" if book.state == "stale" else "fair"),
         time_of_day(book.ts_last), count(book.unverified_events))
        for book in report.bad_books[:MAX_LISTED]
    ))  # fmt: skip
    if len(report.bad_books) > MAX_LISTED:
        yield paragraph(f"The first {MAX_LISTED} of {len(report.bad_books):,}.")
    yield paragraph(
        "Stale: updates of this book were lost. Unverified: messages were lost, and no later update shows whether this "
        "book was affected."
    )


def _quarantine(report: DayReport) -> Iterator[Html]:
    if not report.quarantine:
        yield paragraph("Nothing: `quarantine` has no rows for this date.")
        return
    rows = (
        (escape(one.channel_id), escape(one.line), escape(one.reason), escape(one.template), count(one.rows),
         size(one.size_bytes))
        for one in report.quarantine[:MAX_LISTED]
    )  # fmt: skip
    yield table("channel|line|reason|template|units#|size#".split("|"), rows)
    if len(report.quarantine) > MAX_LISTED:
        yield paragraph(f"The {MAX_LISTED} most frequent of {len(report.quarantine):,} reasons.")


def _tables(report: DayReport) -> Iterator[Html]:
    rows = [
        (code(one.name), count(one.rows), size(one.bytes), Html(f"{one.bytes / max(one.rows, 1):,.1f}"),
         count(one.files), escape(one.doc))
        for one in sorted(report.tables, key=lambda one: (-one.rows, one.name))
    ]  # fmt: skip
    total = [sum(getattr(one, name) for one in report.tables) for name in ("rows", "bytes", "files")]
    each = Html(f"{total[1] / max(total[0], 1):,.1f}")
    rows.append((escape("total"), count(total[0]), size(total[1]), each, count(total[2]), Html("")))
    yield table("table|rows#|size#|bytes/row#|files#|content".split("|"), rows)
