"""A capture whose clock is off: shown, flagged, and no query answers for another moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from lake.captures import NO_BOOKS, day, files_of, ingest, rows

import umdf
from umdf.cli.app import run
from umdf.errors import UsageError
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.hashing import logical_hash
from umdf.lake.recording.capture_clock import (
    FIRST_SAMPLES,
    MAX_DELAY_NS,
    MAX_LEAD_NS,
    SAMPLE_EVERY,
    ClockSamples,
    clock_offsets,
    largest_offset,
)
from umdf.lake.report.day_report import day_report
from umdf.lake.report.page import render_page
from umdf.market.families import BAD_TS_RECV
from umdf.transport.capture import open_capture
from umdf.transport.pcap_writer import PcapWriter

pytestmark = pytest.mark.xdist_group("lake-clock")
BEHIND_NS = -16_250_000_000
MINUTE_NS = 60 * 10**9


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clock")


def shifted(files: list[Path], directory: Path, by_ns: int) -> list[Path]:
    """The same packets, timed by another clock."""
    directory.mkdir()
    for path in files:
        with open_capture(path) as capture, PcapWriter(directory / path.name) as writer:
            for batch in capture:
                for number, flow in enumerate(batch.flows):
                    own = batch.take(np.flatnonzero(batch.flow == number))
                    ends = flow.source, flow.source_port
                    writer.write_batch(
                        own.buffer, own.start, own.end, own.ts_ns + by_ns, ends, (flow.dest, flow.dest_port)
                    )
    return sorted(directory.iterdir())


@pytest.fixture(scope="module", params=("sbe", "fast"))
def lakes(request: pytest.FixtureRequest, tmp: Path) -> tuple[Path, Path]:
    """The lake of a recording, and that of the same recording with a slow clock."""
    captured = day(tmp, 4_000, 12, protocol=request.param, seed=9, roll_s=3_600)
    right, slow = tmp / f"right-{request.param}", tmp / f"slow-{request.param}"
    ingest(right, files_of(captured))
    result = ingest(slow, shifted(files_of(captured), tmp / f"files-{request.param}", BEHIND_NS))
    assert len(result.clock_offsets) == len(files_of(captured))
    return right, slow


def test_only_the_rows_of_a_slow_clock_are_flagged(lakes: tuple[Path, Path]) -> None:
    right, slow = lakes
    for name in ("mbo", "trades", "statistics", "definition", "snapshot", "status", "tbbo", "mbp_1"):
        tables = {root: open_snapshot(root).arrow_table(name) for root in lakes}
        if name == "mbp_1":  # resets and snapshots have rows of their own there
            tables = {root: rows.filter(pc.field("ts_event").is_valid()) for root, rows in tables.items()}
        flags = {root: rows.column("flags").to_numpy() for root, rows in tables.items()}
        assert len(flags[right]) == len(flags[slow]) > 0, name
        assert not (flags[right] & BAD_TS_RECV).any(), name
        assert (flags[slow] & BAD_TS_RECV != 0).all(), name
        assert (flags[slow] & ~BAD_TS_RECV == flags[right]).all(), name


def test_the_market_is_the_same_whatever_the_clock(lakes: tuple[Path, Path]) -> None:
    for name in ("mbo", "trades", "mbp_1", "ohlcv_1s", "bbo_1s", "book_check", "gaps"):
        one, other = (logical_hash(open_snapshot(root).arrow_table(name), {"ts_recv", "flags"}) for root in lakes)
        assert one == other, name


def test_the_offset_is_in_quality_and_ledger(lakes: tuple[Path, Path]) -> None:
    right, slow = lakes
    for name in ("quality", "ledger"):
        usual = [row["clock_offset_ns"] for row in rows(right, name)]
        assert all(0 <= offset < 10**7 for offset in usual), name
        found = [row["clock_offset_ns"] for row in rows(slow, name)]
        assert sorted(offset - BEHIND_NS for offset in found) == sorted(usual), name


def test_status_and_ingest_name_the_offset(
    lakes: tuple[Path, Path], tmp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, slow = lakes

    def output(*words: str | Path) -> tuple[str, str]:
        assert run([str(word) for word in words]) == 0
        return capsys.readouterr()

    assert json.loads(output("lake", "status", slow, "--json")[0])["clocks"][0]["line"] == "A"
    assert "s behind the exchange's clock (BAD_TS_RECV)" in output("lake", "status", slow)[0]
    assert "clock" not in output("lake", "status", right)[0]
    files = next(path for path in sorted(tmp.iterdir()) if path.name.startswith("files-"))
    warned = output("ingest", files, "--lake", tmp_path / "lake", "--no-spark", "--tables", "packets")[1]
    assert "the capture clock is 16.25" in warned or "the capture clock is 16.24" in warned


def test_a_book_is_that_of_the_moment(lakes: tuple[Path, Path]) -> None:
    right, slow = (umdf.Lake(root) for root in lakes)
    trades = right.get_range("trades", pretty_ts=False).to_arrow()
    middle = trades.num_rows // 2
    symbol, at = trades.column("symbol")[middle].as_py(), trades.column("ts_send")[middle].as_py()
    expected = right.book_at(symbol, at, time="exchange")
    assert expected.is_trusted and expected.bids
    for found in (slow.book_at(symbol, at), slow.book_at(symbol, at, time="exchange")):
        assert (found.bids, found.asks, found.sequence) == (expected.bids, expected.asks, expected.sequence)
        assert found.is_trusted
    misled = slow.book_at(symbol, at, time="receive")
    assert not misled.is_trusted and "16.2" in str(misled.distrust_reason) and "exchange" in str(misled.distrust_reason)
    assert misled.sequence != expected.sequence  # what it would have shown
    whole_day = slow.book_at(symbol, right.dates()[0], time="receive")
    assert whole_day.is_trusted  # no time was given that could be mistaken


@pytest.mark.parametrize("schema", ["trades", "mbp_1", "definition", "packets"])
def test_a_range_has_the_rows_of_its_time(lakes: tuple[Path, Path], schema: str) -> None:
    right, slow = (umdf.Lake(root) for root in lakes)
    sent = np.sort(right.get_range(schema, pretty_ts=False).to_arrow().column("ts_send").drop_null().to_numpy())
    low, high = int(sent[len(sent) // 4]), int(sent[len(sent) // 2]) + 1
    keys = ["sequence", "ts_send"]
    expected = right.get_range(schema, None, low, high, time="exchange", columns=keys, pretty_ts=False).to_arrow()
    assert expected.num_rows > 0
    assert ((sent >= low) & (sent < high)).sum() == expected.num_rows
    for time in ("auto", "exchange"):
        found = slow.get_range(schema, None, low, high, time=time, columns=keys, pretty_ts=False).to_arrow()
        assert found.sort_by([(key, "ascending") for key in keys]) == expected.sort_by(
            [(key, "ascending") for key in keys]
        )
    received = right.get_range(schema, columns=["ts_recv"], pretty_ts=False).to_arrow().column(0).to_numpy()
    inside = int(((received >= low) & (received < high)).sum())
    assert right.get_range(schema, None, low, high).to_arrow().num_rows == inside  # the clock is right
    slow_range = slow.get_range(schema, None, low + BEHIND_NS, high + BEHIND_NS, time="receive")
    assert slow_range.to_arrow().num_rows == inside


def test_definitions_are_those_in_force_at_the_moment(lakes: tuple[Path, Path]) -> None:
    right, slow = (umdf.Lake(root) for root in lakes)
    first = int(right.get_range("definition", pretty_ts=False).to_arrow().column("ts_send").to_numpy().min())
    assert slow.definitions(at=first).to_arrow().num_rows > 0
    assert slow.definitions(at=first + 1, time="exchange").to_arrow().num_rows > 0


def test_an_unknown_time_is_an_error(lakes: tuple[Path, Path]) -> None:
    lake = umdf.Lake(lakes[0])
    with pytest.raises(UsageError, match="invalid time: 'send'"):
        lake.get_range("trades", time="send")
    with pytest.raises(UsageError, match="book_check has no exchange time"):
        lake.get_range("book_check", time="exchange")


def test_one_line_with_a_slow_clock_flags_only_what_it_timed(tmp: Path, tmp_path: Path) -> None:
    files = files_of(day(tmp, 2_000, 12, seed=10, roll_s=3_600))
    slow = shifted([path for path in files if "incremental-B" in path.name], tmp_path / "slow", BEHIND_NS)
    late = shifted([path for path in files if "incremental-B" in path.name], tmp_path / "late", -BEHIND_NS)
    others = [path for path in files if "incremental-B" not in path.name]
    ingest(tmp_path / "lake", [*others, *slow], tables=NO_BOOKS | {"mbo"})
    by_sequence = {
        row["sequence"] for row in rows(tmp_path / "lake", "packets") if row["line"] == "B" and row["sequence"]
    }
    for row in rows(tmp_path / "lake", "mbo"):
        assert (row["flags"] & BAD_TS_RECV != 0) == (row["sequence"] in by_sequence)
    ingest(tmp_path / "other", [*others, *late], tables=NO_BOOKS | {"mbo"})
    timed_by_a = {row["sequence"] for row in rows(tmp_path / "other", "packets") if row["line"] == "A"}
    for row in rows(tmp_path / "other", "mbo"):
        assert (row["flags"] & BAD_TS_RECV == 0) == (row["sequence"] in timed_by_a)


def test_the_median_is_not_moved_by_single_delays() -> None:
    sent = np.arange(1_000) * 10**6 + 10**18
    flows = {0: ClockSamples(), 1: ClockSamples(), 2: ClockSamples()}
    assert flows[0].choose(1_000).tolist() == [*range(FIRST_SAMPLES), *range(SAMPLE_EVERY, 1_000, SAMPLE_EVERY)]
    flows[0].add(sent + np.where(np.arange(1_000) % 3 == 0, 5 * 10**9, 20_000), sent)
    flows[1].add(sent[:2] + 7, sent[:2])  # too few for a median of their own
    flows[2].add(sent * 0, sent)  # no receive times
    assert clock_offsets(flows) == [(0, 20_000), (1, 20_000), (2, 20_000)]
    assert clock_offsets({0: flows[2]}) == []


def test_what_is_sampled_does_not_depend_on_batches() -> None:
    whole, parts = ClockSamples(10, 7), ClockSamples(10, 7)
    expected = whole.choose(100).tolist()
    assert [low + row for low in range(0, 100, 9) for row in parts.choose(min(9, 100 - low)).tolist()] == expected


def test_which_clock_is_furthest_off() -> None:
    assert largest_offset([]) is None
    assert largest_offset([None, 5, -3]) == 5
    assert largest_offset([-2 * MAX_LEAD_NS, MAX_DELAY_NS]) == -2 * MAX_LEAD_NS  # the second may be a delay


def test_the_report_names_the_clock(lakes: tuple[Path, Path]) -> None:
    right, slow = (day_report(root) for root in lakes)
    assert not any("clock" in sentence for sentence in right.summary)
    [sentence] = [each for each in slow.summary if "clock" in each]
    assert sentence.startswith("The capture clock of channel 7") and "s behind the exchange's clock" in sentence
    assert '<span class="pill bad">-16.2' in render_page(slow)
    assert '<span class="pill bad">-16.2' not in render_page(right)
