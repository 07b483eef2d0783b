"""`--at` in all its spellings."""

from __future__ import annotations

import numpy as np
import pytest

from umdf.cli.time_options import parse_at, parse_time_ns
from umdf.errors import ConfigError

DAY_NS = 1_763_038_800_000_000_000  # 2025-11-13 13:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds", "ns"),
    [
        ("13:00", 0, 0),
        ("9:30", -12_600, 0),
        ("13:00:01", 1, 0),
        ("13:00:01.5", 1, 500_000_000),
        ("13:00:01.000000001", 1, 1),
        ("2025-11-13T13:00:00", 0, 0),
        ("2025-11-13T10:00:00-03:00", 0, 0),
        ("2025-11-13 13:00:00.25Z", 0, 250_000_000),
        ("2025-11-14", 11 * 3600, 0),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text: str, seconds: int, ns: int):
    assert parse_time_ns(text, lambda: DAY_NS + 5 * 3_600_000_000_000) == DAY_NS + seconds * 1_000_000_000 + ns


def test_a_number_is_a_sequence():
    sequence, ts_send = np.array([4, 5, 6]), np.array([9, 0, 0])
    assert parse_at("5", lambda: 0).includes(sequence, ts_send).tolist() == [True, True, False]


def test_a_time_is_a_sending_time():
    ts_send = np.array([DAY_NS - 1, DAY_NS, DAY_NS + 1])
    assert parse_at("13:00", lambda: DAY_NS).includes(np.arange(3), ts_send).tolist() == [True, True, False]


@pytest.mark.parametrize("text", ["noon", "25:00", "13:61", "2025-13-01", "-5", "1.5", ""])
def test_anything_else_is_refused(text: str):
    with pytest.raises(ConfigError, match=r"invalid --at: .*; use a sequence number or a time"):
        parse_at(text, lambda: DAY_NS)
