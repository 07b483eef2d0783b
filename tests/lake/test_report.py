"""The day report: its numbers are those of the truth, and a day is called whole only if it is."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from lake.captures import NO_BOOKS, day, files_of, ingest, truth
from lake.report_lake import DAY, DIGEST, NINE, OTHER_DAY, bad_state, gap, quality, state, traded, write_lake

from umdf.errors import UmdfError
from umdf.exchange.matching.memory_layout_kernel import NEVER_LAST_PRICE
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.ledger import file_id
from umdf.lake.report.day_report import day_report
from umdf.lake.report.html import bar_chart, decimal, decimals, duration, percentage, size
from umdf.lake.report.page import render_page
from umdf.lake.tasks.gather import LONE_RESTART

EVIL = '<script>alert("x")</script>&amp;'


class Page(HTMLParser):
    """What a browser would make of it: the text of every cell, and whether every tag is closed."""

    EMPTY = frozenset({"meta", "br", "line", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag not in self.EMPTY or tag == "rect":
            self.open.append(tag)
        if tag in ("td", "dd", "p"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "dd", "p"):
            self.cells.append("")  # what follows is not of this cell

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def clean(tmp: Path) -> tuple[Path, Path]:
    """A day without loss, and its lake."""
    captured, root = day(tmp, messages=3_000, seed=3), tmp / "clean"
    ingest(root, files_of(captured))
    return captured, root


def test_the_market_of_a_clean_day_is_that_of_the_truth(clean: tuple[Path, Path]) -> None:
    captured, root = clean
    report = day_report(root)
    trades: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    prices: dict[int, list[int]] = defaultdict(list)  # of trades that set one: not those of legs (13.4)
    for row in truth(captured, "trades").to_pylist():
        if not row["busted"]:
            trades[row["instrument_id"]].append((row["price"], row["size"], row["trade_id"]))
            if not row["conditions"] & NEVER_LAST_PRICE:
                prices[row["instrument_id"]].append(row["price"])
    [total] = report.totals
    assert total.trades == sum(map(len, trades.values()))
    assert total.volume == sum(size for some in trades.values() for _, size, _ in some)
    notional = sum(price * size for some in trades.values() for price, size, _ in some)
    assert Decimal(total.notional) == Decimal(notional).scaleb(-9)
    most = sorted(trades, key=lambda number: -len(trades[number]))
    assert [one.trades for one in report.active][: len(most)] == [len(trades[number]) for number in most]
    for one in report.active[: len(most)]:
        own = trades[one.instrument_id]
        assert one.high is not None and Decimal(one.high) == Decimal(max(prices[one.instrument_id])).scaleb(-9)
        assert one.low is not None and Decimal(one.low) == Decimal(min(prices[one.instrument_id])).scaleb(-9)
        assert one.volume == sum(size for _, size, _ in own) and not one.is_incomplete


def test_a_clean_day_is_complete_and_its_page_shows_the_same_numbers(clean: tuple[Path, Path]) -> None:
    _, root = clean
    report, snapshot = day_report(root, DAY), open_snapshot(root)
    assert report.verdict == "complete" and report.summary[0] == "The day is complete."
    assert report.summary[1] == f"Nothing was lost; none of {report.books} books is stale at the end."
    assert report.summary[2] == f"All {report.checks.total('equal')} snapshots match the rebuilt books."
    assert report.checks.snapshots == snapshot.rows("book_check") > 0 and report.checks.total("different") == 0
    assert {one.name: one.rows for one in report.tables} == {
        name: snapshot.rows(name) for name in snapshot.marker.versions if name != "ledger"
    }
    shown = report.activity
    assert shown is not None and shown.messages is not None and shown.volume is not None
    assert sum(shown.messages) == report.messages == snapshot.marker.notes["messages"]
    assert sum(shown.volume) == report.totals[0].volume and shown.interval_ns == 10**9
    made = Page(render_page(report))
    assert not made.open and made.tags >= {"svg", "table", "style"} and not made.tags & {"script", "link", "img"}
    assert {f"{report.messages:,}", f"{report.totals[0].trades:,}", report.active[0].symbol} <= set(made.cells)
    assert not re.search(r"https?://|url\(", render_page(report))


def test_losses_of_every_line_equal_the_truth(tmp: Path) -> None:
    captured, root = day(tmp, messages=3_000, seed=3, loss=0.02), tmp / "lossy"
    ingest(root, files_of(captured), tables=NO_BOOKS)
    report = day_report(root)
    lost: dict[str, set[int]] = {"A": set(), "B": set()}
    for row in truth(captured, "loss").to_pylist():
        for line in row["line"]:  # A, B, or both
            lost[line] |= set(range(row["first_sequence"], row["last_sequence"] + 1))
    both = lost["A"] & lost["B"]
    [channel] = report.gaps.channels
    assert channel.missing == len(both) > 0
    assert channel.gaps == sum(number - 1 not in both for number in both) == len(report.gaps.listed)
    of_line = {line.line: line for line in report.lines if line.stream == "incremental"}
    assert {name: line.lost for name, line in of_line.items()} == {name: len(some) for name, some in lost.items()}
    [sent] = [row for row in truth(captured, "sequences").to_pylist() if row["stream"] == "incremental"]
    assert {line.numbers for line in of_line.values()} == {sent["last_sequence"]}
    assert report.books is None and "book_state has no rows for the end of the day" in report.summary[1]
    assert not Page(render_page(report)).open


def test_a_report_over_several_channels(tmp_path: Path) -> None:
    write_lake(
        tmp_path,
        {
            "quality": [
                quality(72, "A", first_arrivals=60, lost=20, first_sequence=1, last_sequence=100, skew_p50_ns=21_247),
                quality(72, "B", first_arrivals=30, lost=50, first_sequence=1, last_sequence=100),
                quality(80, "A", first_arrivals=100, first_sequence=1, last_sequence=100),
            ],
            "gaps": [
                gap(72, 10, 17, recovered_by="snapshot", ts_recovered=NINE + 2 * 10**9, affected=2, instruments=[1, 2]),
                gap(72, 50, 51, affected=1, instruments=[1], ts_opened=NINE + 5 * 10**9),
                gap(80, 1, 4, cause="join"),
            ],
            "book_check": [
                *({"channel_id": 72, "instrument_id": 1, "verdict": word} for word in ("equal", "stale", "stale")),
                {"channel_id": 72, "instrument_id": 2, "verdict": "unverified"},
                {"channel_id": 80, "instrument_id": 8, "verdict": "no_book"},
            ],
            "book_state": [
                bad_state(72, 1, stale=1, untrusted_events=7, ts=NINE),
                state(72, 1, lending=1, sequence=3),
                state(72, 2, sequence=20),
                bad_state(72, 2, doubt=1),  # an older state: it has recovered since
                state(72, 3, flags=36),  # from a snapshot, in the middle of the day
                state(80, 8),
            ],
            "day_statistics": [
                traded(72, 1, "PETR4", 3, 100, "38.1"),
                traded(72, 2, "VALE3", 5, 200, "61.25"),
                traded(80, 8, "WINZ26", 4, 1, "129500"),
            ],
        },
    )
    report = day_report(tmp_path)
    assert report.channels == (72, 80) and report.inputs == 1 and report.input_bytes == 1000
    assert [(one.symbol, one.notional, one.last) for one in report.active] == [
        ("VALE3", "61250", "61.25"), ("WINZ26", "518000", "129500"), ("PETR4", "11430", "38.1"),
    ]  # fmt: skip
    assert [(line.channel_id, line.line, line.lost, line.numbers, line.all_arrivals) for line in report.lines] == [
        (72, "A", 20, 100, 90), (72, "B", 50, 100, 90), (80, "A", 0, 100, 100),
    ]  # fmt: skip
    assert [(gap.missing, gap.instruments) for gap in report.gaps.listed] == [(8, ("PETR4", "VALE3")), (2, ("PETR4",))]
    assert [(book.symbol, book.state, book.unverified_events) for book in report.bad_books] == [("PETR4", "stale", 7)]
    assert report.verdict == "damaged"
    assert report.summary == (
        "The day is not complete.",
        "The capture of channel 80 starts 4 sequence numbers late; 2 gaps lost 10 sequence numbers on channel 72; "
        "1 gap was not recovered; 2 of 3 books were recovered from snapshots; 1 is stale or unverified at the end "
        "(PETR4).",
        "1 of 5 snapshots could be compared with a book, and no difference was found.",
    )
    cells = Page(render_page(report)).cells
    assert {"66.67 %", "33.33 %", "20.00 %", "21.2 µs", "2.0 s", "not recovered", "10:00:05.000", "518,000"} <= set(
        cells
    )


@pytest.mark.parametrize(
    ("changed", "verdict", "said"),
    [
        ({}, "complete", "Nothing was lost; none of 1 book is stale at the end."),
        ({"quality": []}, "unknown", "Quality has no rows for the lines; none of 1 book is stale at the end."),
        ({"book_state": []}, "unknown", "Nothing was lost; book_state has no rows for the end of the day."),
        ({"gaps": [gap(72, 5, 5, recovered_by="rpt_seq")]}, "recovered", "1 gap lost 1 sequence number on channel 72; none of 1 book is stale at the end."),  # noqa: E501
        ({"book_state": [bad_state(72, 1)]}, "damaged", "Nothing was lost; 1 book is stale or unverified at the end (1)."),  # noqa: E501
        ({"quality": [quality(72, "A", first_arrivals=7, first_sequence=1, last_sequence=10)]}, "damaged", "3 sequence numbers of channel 72 are missing but not listed in gaps; none of 1 book is stale at the end."),  # noqa: E501
        ({"gaps": [gap(channel, 5, 6, recovered_by="rpt_seq") for channel in (1, 2, 3, 4)]}, "recovered", "4 gaps lost 8 sequence numbers on 4 channels; none of 1 book is stale at the end."),  # noqa: E501
        ({"book_check": [{"channel_id": 72, "instrument_id": 1, "verdict": "different"}]}, "damaged", "1 of 1 snapshot could be compared with a book, and 1 differs."),  # noqa: E501
        ({"quarantine": [{"channel_id": 72, "reason": "cut"}] * 2}, "damaged", "2 units were quarantined (cut)."),
        ({"quarantine": [{"channel_id": 72, "line": "A", "reason": LONE_RESTART}]}, "complete", "Line A of channel 72 restarted its numbering alone; what it sent since is not used, because another line goes on."),  # noqa: E501
        ({"book_check": [{"channel_id": 72, "instrument_id": 1, "verdict": "other_epoch"}] * 2}, "complete", "None of 2 snapshots could be compared with a book, because they are of an epoch that was not captured."),  # noqa: E501
        ({"quality": [quality(72, "A", first_arrivals=10, first_sequence=1, last_sequence=10), quality(72, "A", stream="snapshot", lost=3)]}, "recovered", "The incremental stream lost nothing; none of 1 book is stale at the end."),  # noqa: E501
    ],
)  # fmt: skip
def test_a_day_is_complete_only_if_every_table_confirms_it(
    tmp_path: Path, changed: dict[str, Any], verdict: str, said: str
) -> None:
    sound = {
        "quality": [quality(72, "A", first_arrivals=10, first_sequence=1, last_sequence=10)],
        "book_state": [state(72, 1)],
        "trades": [{"channel_id": 72, "instrument_id": 1}],
    }
    write_lake(tmp_path, {name: rows for name, rows in (sound | changed).items() if rows})
    report = day_report(tmp_path)
    assert report.verdict == verdict and said in report.summary
    assert not Page(render_page(report)).open


def test_every_text_of_the_feed_is_escaped(tmp_path: Path) -> None:
    root = tmp_path / EVIL.replace("/", "")
    write_lake(
        root,
        {
            "day_statistics": [traded(72, 1, EVIL, 1, 1, "1")],
            "quality": [quality(72, EVIL)],
            "gaps": [gap(72, 1, 2, recovered_by=EVIL, instruments=[1])],
            "book_check": [{"channel_id": 72, "instrument_id": 1, "verdict": word, "difference": EVIL}
                           for word in ("different", EVIL)],
            "book_state": [bad_state(72, 1)],
            "quarantine": [{"channel_id": 72, "reason": EVIL, "template": EVIL, "line": EVIL}],
        },
    )  # fmt: skip
    made = render_page(day_report(root))
    assert "<script" not in made and "script" not in Page(made).tags
    assert Page(made).cells.count(EVIL) >= 8


def test_damage_of_a_file_belongs_to_the_days_that_are_in_it(tmp_path: Path) -> None:
    write_lake(tmp_path, {"quality": [quality(72, "A")]}, OTHER_DAY)
    other = f"blake2b-256:{1 << 250:064x}"
    damage = [{"file_id": file_id(digest), "file_offset": 4, "reason": "cut off"} for digest in (DIGEST, other)]
    write_lake(tmp_path, {"quarantine": damage}, None)
    [refused] = day_report(tmp_path).quarantine
    assert (refused.reason, refused.rows, refused.channel_id) == ("cut off", 1, None)


def test_a_date_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    write_lake(tmp_path, {"quality": [quality(72, "A")]}, OTHER_DAY)
    write_lake(tmp_path, {"quality": [quality(72, "A")]}, DAY)
    assert day_report(tmp_path).trading_date == "2026-11-13"
    with pytest.raises(UmdfError) as refused:
        day_report(tmp_path, DAY.replace(year=2020))
    assert str(refused.value) == "no data for 2020-11-13; available dates: 2026-11-12, 2026-11-13"


def test_json_is_the_report(clean: tuple[Path, Path]) -> None:
    report = day_report(clean[1])
    said = json.loads(json.dumps(report.to_json()))
    assert set(said) == {field.name for field in dataclasses.fields(report)}
    assert said["active"][0]["notional"] == report.active[0].notional and said["verdict"] == "complete"


def test_percentages_never_round_to_0_or_100_unless_exact() -> None:
    assert [percentage(*pair) for pair in ((1, 10**6), (10**6 - 1, 10**6), (0, 5), (5, 5))] == [
        "&lt;0.01 %", "&gt;99.99 %", "0.00 %", "100.00 %",
    ]  # fmt: skip
    times = {0: "0", 999: "999 ns", 1_500: "1.5 µs", 2_500_000: "2.5 ms", 61 * 10**9: "61.0 s"}
    assert {ns: duration(ns) for ns in times} == times
    assert [size(value) for value in (0, 999, 1_000, 5_283_537)] == ["0 B", "999 B", "1.0 kB", "5.3 MB"]
    assert decimal("-1234567.125") == "−1,234,567.125"
    assert list(decimals("4.8", None, "12", "0.015"))[::2] == ["4.800", "12.000"]


def test_chart_bars_are_proportional_and_show_their_values() -> None:
    drawn = str(bar_chart("Messages", [0, 5, 10], NINE, 60 * 10**9, [NINE + 90 * 10**9], str))
    heights = [float(found) for found in re.findall(r' height="([\d.]+)"', drawn)]
    assert len(heights) == 2 and heights[1] == 2 * heights[0]
    assert "<title>10:01:00: 5</title>" in drawn and "maximum: 10 at 10:02:00" in drawn
    assert drawn.count('class="mark"') == 1 and 'd="M500.0 ' in drawn
    assert bar_chart("Volume", [0, 0], NINE, 10**9, [], str).count("<rect") == 0
