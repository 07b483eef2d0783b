"""FIX/FAST lines that number anew (4.2.8) without a SequenceReset that was received, together or one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.captures import ingest, rows
from lake.damaged_days import market

from umdf.exchange.bulk import trading_day
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.capture_sinks import flows_of
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.publish.publisher import Publisher
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.tasks.damaged_headers import Headers
from umdf.lake.tasks.numbering_runs import NumberingRuns
from umdf.market.families import MAYBE_BAD_BOOK

pytestmark = pytest.mark.xdist_group("lake-restarts")
FILE_HEADER = 24
# Which groups are lines of one channel is detected by equal messages of equal numbers, which a restart makes ambiguous.
FLOWS = flows_of(BulkSettings(1_000, 10, "fast"), "fast").values()
CHANNEL: Any = {"channel_config": {flow.dest: {"channel": 72} for some in FLOWS for flow in some}}
COUNTED = ("mbo", "trades", "status", "statistics", "news")  # rows of two sessions are those of both


def write_session(target: Path, *, hours: int = 0, first: int = 1) -> Path:
    """A short session, so many hours later, whose incremental stream begins with this number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trading_day, "SESSION_START_S", trading_day.SESSION_START_S + 3600 * hours)
        begin = Publisher.__init__

        def begin_at(self: Publisher, *arguments: Any, **more: Any) -> None:
            begin(self, *arguments, **more)
            self._next_sequence["incremental"] = first

        patch.setattr(Publisher, "__init__", begin_at)
        write_capture(BulkSettings(1_000, 10, "fast", seed=5 + hours), target)
    return target


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A session, a later one that is numbered anew, and that one as it goes on with the numbers of the first."""
    tmp = tmp_path_factory.mktemp("sessions")
    first = write_session(tmp / "first")
    ingest(tmp / "lake", captures(first, "A"))
    last = max(row["last_sequence"] for row in rows(tmp / "lake", "quality") if row["stream"] == "incremental")
    return {
        "first": first,
        "anew": write_session(tmp / "anew", hours=2),
        "continued": write_session(tmp / "continued", hours=2, first=last + 1),
    }


def captures(session: Path, lines: str) -> list[Path]:
    """The files of some lines, and the looping streams."""
    kept = [f"incremental-{line}" for line in lines] + ["instruments", "snapshot"]
    return [path for path in sorted((session / "capture").glob("*.pcap")) if any(name in path.name for name in kept)]


def in_one_file(paths: list[Path], target: Path) -> list[Path]:
    """The captures of each group, one after the other."""
    target.mkdir()
    joined: dict[str, bytes] = {}
    for path in paths:
        name = path.name.partition("-072-")[2]
        joined[name] = joined.get(name, path.read_bytes()[:FILE_HEADER]) + path.read_bytes()[FILE_HEADER:]
    for name, content in joined.items():
        (target / name).write_bytes(content)
    return sorted(target.iterdir())


def best_prices(root: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    key = ("instrument_id", "ts_send", "sequence", "msg_index", "entry_index")
    values = ("bid_px_00", "bid_sz_00", "ask_px_00", "ask_sz_00", "flags")
    return {tuple(row[name] for name in key): tuple(row[name] for name in values) for row in rows(root, "mbp_1")}


@pytest.mark.parametrize("lines", ["A", "AB"])
@pytest.mark.parametrize("is_joined", [False, True])
def test_lines_that_number_anew_without_a_reset_begin_an_epoch(
    sessions: dict[str, Path], lines: str, is_joined: bool, tmp_path: Path
) -> None:
    both = [captures(sessions[name], lines) for name in ("first", "anew")]
    files = in_one_file(both[0] + both[1], tmp_path / "joined") if is_joined else both[0] + both[1]
    ingest(tmp_path / "lake", files, **CHANNEL)
    for number, each in enumerate(both):
        ingest(tmp_path / f"lake{number}", each, **CHANNEL)
    found = open_snapshot(tmp_path / "lake")
    assert found.rows("gaps") == found.rows("quarantine") == 0
    for name in COUNTED:
        assert found.rows(name) == sum(open_snapshot(tmp_path / f"lake{number}").rows(name) for number in (0, 1)), name
    mbo = rows(tmp_path / "lake", "mbo")
    assert len({row["seq_version"] for row in mbo}) == 2 and not any(row["flags"] & MAYBE_BAD_BOOK for row in mbo)
    # The books are those of each session alone: no snapshot of the first is used for the second.
    best = [best_prices(tmp_path / name) for name in ("lake0", "lake1", "lake")]
    assert best[0] | best[1] == best[2] and not best[0].keys() & best[1].keys()


def test_a_line_that_numbers_anew_alone_is_set_aside(sessions: dict[str, Path], tmp_path: Path) -> None:
    both = captures(sessions["first"], "AB")
    line_a = [path for path in captures(sessions["anew"], "A") if "incremental" in path.name]
    line_b = captures(sessions["continued"], "B")
    expected = ingest(tmp_path / "expected", captures(sessions["first"], "B") + line_b, **CHANNEL)
    found = ingest(tmp_path / "lake", both + line_a + line_b, **CHANNEL)
    assert found.gaps == expected.gaps == 0
    clean, lake = market(tmp_path / "expected"), market(tmp_path / "lake")
    assert {name for name in lake if lake[name] != clean[name]} <= {"packets", "quality", "quarantine"}


def headers(numbers: list[int], contents: list[int]) -> Headers:
    number, content = np.array(numbers, np.int64), np.array(contents, np.int64)
    times, zeros = np.arange(len(number)) * 1_000_000, np.zeros(len(number), np.int64)
    return Headers(number, zeros, zeros, times, times, zeros, zeros, zeros + 1, zeros > 0, zeros, content)


LONG = [*range(1, 400)]  # each number with its own content
CASES: dict[str, tuple[list[int], list[int], list[int]]] = {  # numbers, contents, where numberings begin
    "from 1 again": ([*LONG, *range(1, 50)], [*LONG, *range(1_001, 1_050)], [0, 399]),
    "the first ones of the new numbering are lost": ([*LONG, *range(20, 50)], [*LONG, *range(1_020, 1_050)], [0, 399]),
    "the same messages again": ([*LONG, *range(1, 50), 400], [*LONG, *range(1, 50), 400], [0]),
    "two late packets": ([*LONG[:199], *LONG[209:], 200, 201, *range(400, 440)], [0] * 431, [0]),
    "two damaged ones": ([*LONG, 3, 4, *range(400, 440)], [*LONG, 1_003, 1_004, *range(400, 440)], [0]),
    "far below, unknown": ([*range(9_000, 9_050), *range(1, 50)], [0] * 99, [0, 50]),
    "a few far below": ([*range(9_000, 9_050), 4, 5, 6, *range(9_050, 9_060)], [0] * 63, [0]),
    "a loss": ([*LONG, *range(7_000, 7_100)], [0] * 499, [0]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 7, 1_000])
def test_where_a_numbering_begins(case: str, batch: int) -> None:
    numbers, contents, begins = CASES[case]
    every, runs = headers(numbers, contents), NumberingRuns()
    parts = [runs.add(every.take(slice(at, at + batch)), 0) for at in range(0, len(numbers), batch)]
    parts.append(runs.add(None, 0))
    assert np.concatenate([part.number for part in parts]).tolist() == numbers
    epoch = np.concatenate([part.epoch for part in parts])
    assert [0, *(np.flatnonzero(np.diff(epoch)) + 1).tolist()] == begins
    assert [run.ts_recv // 1_000_000 for run in runs.runs] == begins
