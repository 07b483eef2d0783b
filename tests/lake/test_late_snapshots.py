"""Snapshots that are sent after a silence name the sequence before it: they are not late."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake.captures import day, files_of, ingest
from lake.followed_days import Made, cut, follow

from umdf.exchange.bulk.trading_day import TradingDay

pytestmark = pytest.mark.xdist_group("lake-followed")


@pytest.mark.parametrize(("protocol", "size"), [("sbe", 1), ("fast", 4)])
def test_a_snapshot_after_a_silence_does_not_rebuild_the_day(
    protocol: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = TradingDay._silence

    def silence_and_snapshots(self: TradingDay, seconds: float) -> None:
        silence(self, seconds)
        self._send_snapshot_loop()
        silence(self, 2.5)

    monkeypatch.setattr(TradingDay, "_silence", silence_and_snapshots)
    captured = day(tmp_path, 1_000, 10, protocol=protocol, roll_s=1, rate=500, seed=5)
    made = Made([captured], tmp_path / "whole")
    ingest(made.root, files_of(captured))
    outcomes = follow(tmp_path / "followed", cut(made.files, size))
    assert [each.rebuilt_days for each in outcomes if each.rebuilt_days] == []
    assert made.differing(tmp_path / "followed") == set()
