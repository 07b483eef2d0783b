"""One day in FIX/FAST and in Binary, each in a lake of its own: what both protocols say is the same, row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from lake.captures import day, files_of, ingest
from lake.wire_order import Key, Row, epochs_of, place_of

from umdf.lake.commit.lake_snapshot import open_snapshot

pytestmark = pytest.mark.xdist_group("lake-parity")
MS = 1_000_000
PARTS = tuple(f"{side}_{part}" for part in ("px", "sz", "ct") for side in ("bid", "ask"))
LEVELS = tuple(f"{part}_{level:02d}" for level in range(10) for part in PARTS)
BARS = ("ts_interval", "open", "high", "low", "close", "volume", "trade_count", "financial_volume")
SHARED = {  # what both protocols say
    "mbo": ("action", "side", "price", "size", "order_id", "firm", "trade_id", "ts_event"),
    "trades": ("action", "trade_id", "price", "size", "buyer", "seller", "ts_event"),
    "mbp_1": ("action", "side", "depth", "price", "size", *LEVELS[:6], "ts_event"),
    "mbp_10": ("action", "side", "depth", "price", "size", *LEVELS, "ts_event"),
    "tbbo": ("action", "trade_id", "price", "size", "buyer", "seller", *LEVELS[:6]),
    "bbo_1s": ("ts_interval", "price", "size", *LEVELS[:6]),
    "bbo_1m": ("ts_interval", "price", "size", *LEVELS[:6]),
    **{f"ohlcv_{size}": BARS for size in ("1s", "1m", "1h", "1d")},
    "day_statistics": ("open", "high", "low", "close", "vwap", "volume", "trade_count", "financial_volume", "busted",
                       "settlement_price", "open_interest", "last_phase", "last_state"),
    "price_band": ("price_band_type", "low_limit_price", "high_limit_price"),
    "book_check": ("verdict", "orders_expected", "orders_found"),
}  # fmt: skip


def _projection(root: Path, name: str) -> dict[int, list[Key]]:
    """Rows by instrument in their order. Binary alone names the aggressor's side; FAST's times are of milliseconds."""
    found: dict[int, list[Key]] = defaultdict(list)
    epochs = epochs_of(root)
    table = open_snapshot(root).arrow_table(name).to_pylist()
    order: Callable[[Row], Key] = lambda row: (row["ts_interval"],)  # noqa: E731
    if table and "msg_index" in table[0]:
        order = lambda row: place_of(row, epochs)  # noqa: E731
    elif name == "book_check":
        order = lambda row: (row["ts_recv"],)  # noqa: E731
    elif name == "day_statistics":
        order = lambda row: ()  # noqa: E731
    for row in sorted(table, key=order):
        if name == "mbo" and row["action"] == "N":  # moves no order; the protocols number other things with 83
            continue
        if row.get("action") == "T":
            row["side"] = "N"
        if name == "trades" and row["action"] == "C":  # Binary's bust does not say whose trade it was
            row["buyer"] = row["seller"] = None
        if "ts_event" in row and row["ts_event"] is not None:
            row["ts_event"] //= MS
        found[row["instrument_id"]].append(tuple(row[column] for column in SHARED[name]))
    return found


def test_fast_and_binary_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    captured = day(tmp_path_factory.mktemp("both"), sized(6_000, 80_000), sized(20, 60), protocol="both", seed=5)
    for protocol in ("sbe", "fast"):
        ingest(tmp_path / protocol, [path for path in files_of(captured) if f"-{protocol}-" in path.name])
    for name in SHARED:
        binary, fast = _projection(tmp_path / "sbe", name), _projection(tmp_path / "fast", name)
        assert binary.keys() == fast.keys() and binary, name
        for instrument_id, said in binary.items():
            if name.startswith("mbp"):  # FAST does not say where an event ends that crosses messages: it shows more
                assert _by_time(said) == _by_time(fast[instrument_id]), (name, instrument_id)
            else:
                assert said == fast[instrument_id], (name, instrument_id)


def _by_time(updates: list[Key]) -> list[tuple[int, Key]]:
    """What stood in the book at the end of each millisecond in which that changed."""
    shown: list[tuple[int, Key]] = []
    for *change, time in updates:
        if shown and shown[-1][0] == time:
            shown.pop()
        shown.append((time, tuple(change[5:])))  # without the change that led there
    return [(time, levels) for before, (time, levels) in pairwise([(0, ()), *shown]) if before[1] != levels]
