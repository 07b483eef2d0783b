"""Two small lakes for the tests of all formats: two whole days (a channel reset in the second), and a lossy one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from lake.captures import ALL, day, files_of, ingest

from umdf.exchange.bulk.settings import TRADING_DATE
from umdf.lake.query.lake import Lake

FIRST, SECOND = date(2026, 11, 13), date(2026, 11, 16)


@dataclass(frozen=True)
class Days:
    """A lake, and where the captures of each date have their truth."""

    root: Path
    captures: dict[date, Path]

    @property
    def lake(self) -> Lake:
        return Lake(self.root)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Days:
    tmp = tmp_path_factory.mktemp("export")
    days = {
        FIRST: day(tmp, sized(3_000, 60_000), 12, seed=3),
        SECOND: day(tmp, sized(1_500, 30_000), 12, seed=4, channel_reset=True, trading_date=TRADING_DATE + 3),
    }
    root = tmp / "lake"
    for directory in days.values():
        ingest(root, files_of(directory), tables=ALL - {"mbp_10"})
    return Days(root, days)


@pytest.fixture(scope="session")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Days:
    tmp = tmp_path_factory.mktemp("lossy")
    directory = day(tmp, 3_000, 12, seed=5, loss=0.03)
    ingest(tmp / "lake", files_of(directory))
    return Days(tmp / "lake", {FIRST: directory})
