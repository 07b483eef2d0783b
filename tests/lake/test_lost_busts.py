"""A bust that both lines lost makes an earlier bar wrong: the exchange's next totals show it, or leave it open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lake.captures import day, ingest, rows
from lake.damaged_days import drop_numbers
from lake.followed_days import Made, cut, follow
from lake.test_trust import is_bad

from umdf.transport.recording import MANIFEST, closed_files

pytestmark = pytest.mark.xdist_group("lake-losses")


def bars_of(root: Path, instrument: int) -> dict[int, tuple[bool, int]]:
    some = [row for row in rows(root, "ohlcv_1s") if row["instrument_id"] == instrument]
    return {row["ts_interval"]: (is_bad(row), row["volume"]) for row in some}


def without(files: list[Path], damaged: Path, protocol: str, numbers: set[int]) -> Made:
    """The recording without these numbers, and its lake."""
    captured = damaged / "capture"
    damaged.mkdir()
    drop_numbers(files, captured, protocol, numbers)
    names = [file.name for file in files]
    entries = [{"file": name, "bytes": (captured / name).stat().st_size, "digest": "…"} for name in names]
    (captured / MANIFEST).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    made = Made([damaged], damaged / "lake")
    ingest(made.root, made.files)
    return made


def until_more_trades(whole: Path, bust: dict[str, Any]) -> int:
    """The first number after a bust and two more trades of its instrument."""
    own = [row for row in rows(whole, "trades") if row["instrument_id"] == bust["instrument_id"]]
    later = sorted({row["sequence"] for row in own if row["sequence"] > bust["sequence"] and row["action"] == "A"})
    return later[1] + 1


@pytest.mark.parametrize(
    ("protocol", "lost"),
    [("sbe", "alone"), ("fast", "alone"), ("sbe", "with more trades"), ("sbe", "last"), ("fast", "last")],
)
def test_bars_before_a_lost_bust_are_marked_in_batch_and_stream(tmp_path: Path, protocol: str, lost: str) -> None:
    captured = day(tmp_path, 6_000, 10, protocol=protocol, roll_s=8, rate=150, seed=8)
    files, whole = closed_files(captured / "capture"), tmp_path / "whole"
    ingest(whole, files)
    [bust, *_] = [row for row in rows(whole, "trades") if row["action"] == "C"]
    first, last = bust["sequence"], max(row["sequence"] for row in rows(whole, "mbo"))
    until = {"alone": first + 1, "with more trades": until_more_trades(whole, bust), "last": last + 1}[lost]
    made = without(files, tmp_path / "damaged", protocol, set(range(first, until)))
    true, found = (bars_of(root, bust["instrument_id"]) for root in (whole, made.root))
    wrong = [ts for ts, (_, volume) in found.items() if volume != true.get(ts, (False, 0))[1]]
    assert wrong and all(found[ts][0] for ts in wrong)
    assert min(wrong) // 10**9 < bust["ts_send"] // 10**9
    if lost == "alone":
        others = [row for row in rows(made.root, "ohlcv_1s") if row["instrument_id"] != bust["instrument_id"]]
        assert sum(map(is_bad, others)) <= 1
    follow(tmp_path / "followed", cut(made.files, 6))
    assert made.differing(tmp_path / "followed") == set()
