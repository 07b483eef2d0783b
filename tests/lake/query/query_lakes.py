"""Small lakes for the tests of queries: made once for each run, read with other engines, written by hand."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars
from lake.captures import ALL, day, files_of, ingest

from umdf.exchange.bulk.settings import TRADING_DATE
from umdf.units import EPOCH

FIRST, SECOND = EPOCH + timedelta(days=TRADING_DATE), EPOCH + timedelta(days=TRADING_DATE + 3)
STORED = frozenset(ALL) - {"mbp_10"}
MESSAGES, INSTRUMENTS = 3_000, 12


@cache
def two_days(directory: Path, messages: int = MESSAGES) -> Path:
    """Channels 72 (a lossy Friday, a clean Monday) and 80 (a clean Friday); mbp_10 is stored of Monday only."""
    root = directory / "lake"
    friday = [
        day(directory, messages, INSTRUMENTS, loss=0.02),
        day(directory, messages, INSTRUMENTS, seed=3, channel=80),
    ]
    monday = day(directory, messages, INSTRUMENTS, seed=2, trading_date=TRADING_DATE + 3)
    ingest(root, [file for one in friday for file in files_of(one)], tables=STORED)
    ingest(root, files_of(monday), tables=frozenset(ALL))
    return root


def delta(root: Path, table: str, **partition: Any) -> polars.DataFrame:
    """A table as Delta, by another engine."""
    frame = polars.read_delta(str(root / table))
    for name, value in partition.items():
        frame = frame.filter(polars.col(name) == value)
    return frame


def next_day(day: date) -> date:
    return day + timedelta(days=1)
