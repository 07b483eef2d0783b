"""FIX/FAST lines that number anew (4.2.8) without a SequenceReset that was received, together or one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lake.captures import ingest, rows
from lake.damaged_days import market

from umdf.exchange.bulk import trading_day
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.capture_sinks import flows_of
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.publish.publisher import Publisher
from umdf.lake.commit.lake_snapshot import open_snapshot

pytestmark = pytest.mark.xdist_group("lake-restarts")
FILE_HEADER = 24
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


@pytest.mark.parametrize("lines", ["A", "AB"])
@pytest.mark.parametrize("is_joined", [False, True])
def test_lines_that_number_anew_without_a_reset_begin_an_epoch(
    sessions: dict[str, Path], lines: str, is_joined: bool, tmp_path: Path
) -> None:
    both = [captures(sessions[name], lines) for name in ("first", "anew")]
    files = in_one_file(both[0] + both[1], tmp_path / "joined") if is_joined else both[0] + both[1]
    ingest(tmp_path / "lake", files)
    for number, each in enumerate(both):
        ingest(tmp_path / f"lake{number}", each)
    found = open_snapshot(tmp_path / "lake")
    assert found.rows("gaps") == found.rows("quarantine") == 0
    for name in COUNTED:
        assert found.rows(name) == sum(open_snapshot(tmp_path / f"lake{number}").rows(name) for number in (0, 1)), name
    mbo = rows(tmp_path / "lake", "mbo")
    assert len({row["seq_version"] for row in mbo}) == 2 and not any(row["flags"] & 4 for row in mbo)


def test_a_line_that_numbers_anew_alone_is_set_aside(sessions: dict[str, Path], tmp_path: Path) -> None:
    both = captures(sessions["first"], "AB")
    line_a = [path for path in captures(sessions["anew"], "A") if "incremental" in path.name]
    line_b = captures(sessions["continued"], "B")
    # Which groups are lines of one channel cannot be detected, because their messages differ.
    flows = flows_of(BulkSettings(1_000, 10, "fast"), "fast").values()
    config: Any = {"channel_config": {flow.dest: {"channel": 72} for some in flows for flow in some}}
    expected = ingest(tmp_path / "expected", captures(sessions["first"], "B") + line_b, **config)
    found = ingest(tmp_path / "lake", both + line_a + line_b, **config)
    assert found.gaps == expected.gaps == 0
    clean, lake = market(tmp_path / "expected"), market(tmp_path / "lake")
    assert {name for name in lake if lake[name] != clean[name]} <= {"packets", "quality", "quarantine"}
