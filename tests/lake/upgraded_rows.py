"""Where the rows of an upgraded lake may differ from those of a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umdf.market.families import JOINED, LAST, MAYBE_BAD_BOOK

# Columns that layout 1 did not have: NULL in an upgraded lake.
LATER_COLUMNS = {
    "ledger": {"content_digest", "clock_offset_ns"}, "status": {"venue"},
    "quality": {"clock_offset_ns", "filled", "incomplete_snapshots"}, "trades": {"expire_date", "btb_cert_indicator"},
}  # fmt: skip
# An upgrade changes words, not what an older umdf judged: in which cells an upgraded lake may differ from a new one, by
# the values there. LAST is on more rows of mbp_1, days that begin in mid-week are joined, absent tags have defaults.
JOIN_FLAGS = JOINED | MAYBE_BAD_BOOK
DifferenceRule = Callable[[str, Any, Any, dict[str, Any]], bool]  # column, old and new value, new row
JUDGED_ANEW: dict[str, DifferenceRule] = {
    **dict.fromkeys(
        ("ohlcv_1m", "ohlcv_1h", "ohlcv_1d"),
        lambda column, old, new, row: column == "flags" and new == old | JOIN_FLAGS,
    ),
    "day_statistics": lambda column, old, new, row: (
        column == "last_state" or (column == "flags" and new == old | JOIN_FLAGS)
    ),
    "gaps": lambda column, old, new, row: row["cause"] == "join" and old is None,
    "mbp_1": lambda column, old, new, row: column == "flags" and new == old | LAST,
    "news": lambda column, old, new, row: (column, old, new) == ("language", None, "pt"),
    "statistics": lambda column, old, new, row: (column, old, new) == ("price_adjustment_method", None, 0),
}
ROW_KEY = (
    "channel_id", "trading_date", "stream", "seq_version", "sequence", "first_sequence", "msg_index", "entry_index",
    "instrument_id", "ts_interval",
)  # fmt: skip


def check_differences(name: str, upgraded: list[dict[str, Any]], made: list[dict[str, Any]]) -> None:
    """The same rows; where they differ, they may."""
    keys = [column for column in ROW_KEY if column in upgraded[0]]
    pairs = [sorted(rows, key=lambda row: [repr(row[key]) for key in keys]) for rows in (upgraded, made)]
    for old, new in zip(*pairs, strict=True):
        assert [old[key] for key in keys] == [new[key] for key in keys]
        for column in old.keys() - LATER_COLUMNS.get(name, set()):
            same = old[column] == new[column]
            assert same or JUDGED_ANEW[name](column, old[column], new[column], new), (name, column, old, new)
