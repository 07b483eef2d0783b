"""What older layouts called things, and where the rows of an upgraded lake may differ from those of a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from umdf.market.families import JOINED, LAST, MAYBE_BAD_BOOK

# By layout. Not taken from the source: this is what the layouts had.
MARKERS = {1: "commits", 2: "markers", 3: "commit_markers"}
NEW_NAMES: dict[int, dict[str, dict[str, str]]] = {
    1: {
        **{name: {"stream": "venue"} for name in ("mbo", "trades", "statistics")},
        "packets": {"verdict": "disposition"},
        "gaps": {"cure": "recovered_by", "ts_cured": "ts_recovered", "touched": "affected"},
        "day_statistics": {"events_in_doubt": "unverified_events", "losses": "gaps"},
    },
    2: {},
    3: {},
}
NEW_VALUES: dict[int, dict[str, dict[str, dict[str, str]]]] = {
    1: {
        "book_check": {"verdict": {"in_doubt": "unverified", "older": "outdated"}},
        "gaps": {"cause": {"start": "join"}},
    },
    2: {"gaps": {"cause": {"start": "join"}}},
    3: {},
}
REWRITTEN = {layout: {*NEW_NAMES[layout], *NEW_VALUES[layout], "channel_state"} for layout in MARKERS}
# Columns that layouts 1 and 2 did not have: NULL in an upgraded lake.
LATER_COLUMNS = {
    "ledger": {"content_digest", "clock_offset_ns"}, "status": {"venue"},
    "quality": {"clock_offset_ns", "filled", "incomplete_snapshots"}, "trades": {"expire_date", "btb_cert_indicator"},
}  # fmt: skip
# An upgrade changes words, not what an older umdf judged: in which cells an upgraded lake may differ from a new one, by
# the values there. LAST is on more rows of mbp_1, days that begin in mid-week are joined, absent tags have defaults,
# prices of the previous day are not those of the day, and after a gap a book with few updates is unverified until a
# snapshot.
JOIN_FLAGS = JOINED | MAYBE_BAD_BOOK
DifferenceRule = Callable[[str, Any, Any, dict[str, Any]], bool]  # column, old and new value, new row


def is_now_unverified(column: str, old: Any, new: Any, row: dict[str, Any]) -> bool:
    return column == "flags" and new == old | MAYBE_BAD_BOOK


JUDGED_ANEW: dict[str, DifferenceRule] = {
    **dict.fromkeys(("mbo", "trades", "tbbo"), is_now_unverified),
    **dict.fromkeys(
        ("bbo_1s", "bbo_1m"),
        lambda column, old, new, row: (
            is_now_unverified(column, old, new, row) or (column in ("price", "size") and new is None)
        ),
    ),
    **dict.fromkeys(
        ("ohlcv_1m", "ohlcv_1h", "ohlcv_1d"),
        lambda column, old, new, row: column == "flags" and new == old | JOIN_FLAGS,
    ),
    "book_state": lambda column, old, new, row: column == "content" or is_now_unverified(column, old, new, row),
    "day_statistics": lambda column, old, new, row: (
        (column, old, new) == ("last_state", 21, 4)
        or (column in ("exchange_close", "settlement_price") and new is None)
        or (column in ("unverified_events", "gaps") and new > old)
        or (column == "flags" and new == old | JOIN_FLAGS)
    ),
    # Such a gap stays open for a book until the snapshot, so that more gaps may be why updates are missing then.
    "gaps": lambda column, old, new, row: (
        (row["cause"] == "join" and old is None)
        or (column in ("ts_recovered", "affected") and (new is None or new > old))
        or (column == "recovered_by" and (old, new) in (("rpt_seq", "snapshot"), ("rpt_seq", None), ("snapshot", None)))
        or (column == "instruments" and (new is None or {*old} < {*new}))
    ),
    "mbp_1": lambda column, old, new, row: column == "flags" and new in (old | LAST, old | LAST | MAYBE_BAD_BOOK),
    "news": lambda column, old, new, row: (column, old, new) == ("language", None, "pt"),
    "statistics": lambda column, old, new, row: (
        (column, old, new) == ("price_adjustment_method", None, 0) or is_now_unverified(column, old, new, row)
    ),
}
ROW_KEY = (
    "channel_id", "trading_date", "stream", "seq_version", "sequence", "first_sequence", "msg_index", "entry_index",
    "instrument_id", "ts_interval",
)  # fmt: skip


def renamed(layout: int, name: str, found: pa.Table) -> pa.Table:
    """Rows of an older layout in the words of this one."""
    names, values_of = NEW_NAMES[layout].get(name, {}), NEW_VALUES[layout].get(name, {})
    found = found.rename_columns([names.get(column, column) for column in found.column_names])
    for column, words in values_of.items():
        values = [words.get(value, value) for value in found.column(column).to_pylist()]
        found = found.set_column(found.column_names.index(column), column, pa.array(values, pa.utf8()))
    return found


LEVELS = ("bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00", "bid_ct_00", "ask_ct_00")


def check_differences(name: str, upgraded: list[dict[str, Any]], made: list[dict[str, Any]]) -> None:
    """The same rows; where they differ, they may."""
    keys = [column for column in ROW_KEY if column in upgraded[0]]

    def key(row: dict[str, Any]) -> str:
        return repr([row[column] for column in keys])

    if name == "mbp_1":  # other rows show where trust changes
        common = {*map(key, upgraded)} & {*map(key, made)}
        for rows in (upgraded, made):
            assert {*map(key, rows)} <= common | trust_changes(rows, key)
        upgraded, made = ([row for row in rows if key(row) in common] for rows in (upgraded, made))
    for old, new in zip(sorted(upgraded, key=key), sorted(made, key=key), strict=True):
        assert key(old) == key(new)
        for column in old.keys() - LATER_COLUMNS.get(name, set()):
            same = old[column] == new[column]
            assert same or JUDGED_ANEW[name](column, old[column], new[column], new), (name, column, old, new)


def trust_changes(rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> set[str]:
    """Rows of mbp_1 where trust changes, or that only repeat the best levels."""
    found, before = set[str](), dict[tuple[int, int], tuple[bool, list[Any]]]()
    place = ("trading_date", "seq_version", "sequence", "msg_index", "entry_index")
    for row in sorted(rows, key=lambda row: [row[column] for column in place]):
        now = bool(row["flags"] & MAYBE_BAD_BOOK), [row[column] for column in LEVELS]
        is_bad, levels = before.get(who := (row["channel_id"], row["instrument_id"]), (False, []))
        if now[0] != is_bad or now[1] == levels:
            found.add(key(row))
        before[who] = now
    return found
