"""A bust that both lines lost makes an earlier bar wrong: the exchange's next totals show it."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_bars_before_a_lost_bust_are_marked_in_batch_and_stream(tmp_path: Path, protocol: str) -> None:
    captured = day(tmp_path, 6_000, 10, protocol=protocol, roll_s=8, rate=150, seed=8)
    files = closed_files(captured / "capture")
    ingest(tmp_path / "whole", files)
    [bust, *_] = [row for row in rows(tmp_path / "whole", "trades") if row["action"] == "C"]
    names = [file.name for file in files]
    damaged = tmp_path / "damaged" / "capture"
    damaged.parent.mkdir()
    drop_numbers(files, damaged, protocol, {bust["sequence"]})
    entries = [{"file": name, "bytes": (damaged / name).stat().st_size, "digest": "…"} for name in names]
    (damaged / MANIFEST).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    made = Made([damaged.parent], tmp_path / "lake")
    ingest(made.root, made.files)
    true = bars_of(tmp_path / "whole", bust["instrument_id"])
    found = bars_of(made.root, bust["instrument_id"])
    wrong = [ts for ts, (_, volume) in found.items() if volume != true.get(ts, (False, 0))[1]]
    assert wrong and all(found[ts][0] for ts in wrong)
    assert min(wrong) // 10**9 < bust["ts_send"] // 10**9
    others = [row for row in rows(made.root, "ohlcv_1s") if row["instrument_id"] != bust["instrument_id"]]
    assert sum(map(is_bad, others)) <= 1
    follow(tmp_path / "followed", cut(made.files, 6))
    assert made.differing(tmp_path / "followed") == set()
