"""What may be said for `start` and `end`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas
import pytest

from umdf.errors import UmdfError
from umdf.lake.query.times import TimeRange, midnight_ns, parse_time, to_trading_date

DAY = date(2026, 11, 13)
NOON = 1_794_571_200 * 10**9  # 2026-11-13 12:00 UTC, by `date -d … +%s`
BRASILIA = timezone(timedelta(hours=-3))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2026-11-13", DAY),
        (DAY, DAY),
        (np.datetime64("2026-11-13"), DAY),
        ("2026-11-13T12:00", NOON),
        ("2026-11-13 12:00:00", NOON),
        ("2026-11-13T12:00:00Z", NOON),
        ("2026-11-13T09:00:00-03:00", NOON),
        ("2026-11-13T12:00:00.000000001", NOON + 1),
        ("2026-11-13T09:00:00.123456789-03:00", NOON + 123_456_789),
        ("2026-11-13T12:00:00.5", NOON + 500_000_000),
        (datetime(2026, 11, 13, 12), NOON),
        (datetime(2026, 11, 13, 12, microsecond=7, tzinfo=UTC), NOON + 7_000),
        (datetime(2026, 11, 13, 9, tzinfo=BRASILIA), NOON),
        (pandas.Timestamp("2026-11-13T12:00:00.000000001"), NOON + 1),
        (pandas.Timestamp("2026-11-13T09:00:00.000000001", tz="America/Sao_Paulo"), NOON + 1),
        (np.datetime64("2026-11-13T12:00:00.000000001"), NOON + 1),
        (np.datetime64("2026-11-13T12:00"), NOON),
        (NOON, NOON),
        (np.int64(NOON), NOON),
    ],
)
def test_dates_and_instants_are_parsed(said: Any, meant: date | int) -> None:
    assert parse_time(said, "start") == meant and type(parse_time(said, "start")) is type(meant)


@pytest.mark.parametrize(
    "said",
    ["2026-13-45", "2026-02-30", "yesterday", "", "13/11/2026", 1.5, True, pandas.NaT, np.datetime64("NaT"), [],
     "25:00", "2026-11-13T12:00:00.1234567890"],
)  # fmt: skip
def test_anything_else_is_one_clear_error(said: Any) -> None:
    with pytest.raises(UmdfError, match=r"^invalid start: .*; use a date such as 2026-11-13"):
        TimeRange.parse(said, None)


@pytest.mark.parametrize(
    ("start", "end"), [("2026-11-14", "2026-11-13"), (NOON, NOON - 1), ("2026-11-13T12:00", "2026-11-13")]
)
def test_a_range_that_ends_before_it_starts_is_refused(start: Any, end: Any) -> None:
    with pytest.raises(UmdfError, match=r"^start .* is after end .* end is exclusive, for one day use the"):
        TimeRange.parse(start, end)


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-11-13", "2026-11-13"), (NOON, NOON), ("2026-11-13", "2026-11-13T03:00")],  # midnight in São Paulo
)
def test_a_range_whose_start_is_its_end_is_empty(start: Any, end: Any) -> None:
    span = TimeRange.parse(start, end)
    assert span.is_empty and not any(span.includes_date(DAY + timedelta(days=n), 1) for n in range(-2, 3))


def test_dates_are_trading_dates_and_instants_are_not() -> None:
    dates, instants = (
        TimeRange.parse("2026-11-13", "2026-11-14"),
        TimeRange.parse("2026-11-13T12:00", "2026-11-14T12:00"),
    )
    assert [dates.includes_date(DAY + timedelta(days=n)) for n in (-1, 0, 1)] == [False, True, False]
    assert not dates.has_times and dates.start_ns is dates.end_ns is None
    assert [instants.includes_date(DAY + timedelta(days=n)) for n in (-1, 0, 1, 2)] == [False, True, True, False]
    assert instants.has_times and instants.start_ns == NOON
    # Before 03:00 UTC it is still the day before in São Paulo.
    assert TimeRange.parse("2026-11-14T02:59", None).includes_date(DAY) and not TimeRange.parse(
        "2026-11-14T03:00", None
    ).includes_date(DAY)
    assert to_trading_date(midnight_ns(DAY)) == DAY and to_trading_date(midnight_ns(DAY) - 1) == DAY - timedelta(days=1)
