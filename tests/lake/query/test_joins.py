"""Trades with the quotes before them, against `tbbo` and against a loop over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake.query.query_lakes import FIRST, delta, next_day
from lake.wire_order import epochs_of, place_of

import umdf
from umdf.lake.query.joins import quotes_before
from umdf.market.families import MAYBE_BAD_BOOK

RAW: dict[str, Any] = {"price_type": "fixed", "pretty_ts": False}
LEVEL = [f"{side}_{part}_00" for side in ("bid", "ask") for part in ("px", "sz", "ct")]
KEY = ["trading_date", "channel_id", "instrument_id", "seq_version", "sequence", "msg_index", "entry_index", "trade_id"]


@pytest.mark.parametrize("quotes", ["mbp-1", "mbp_10"])
def test_the_join_by_position_equals_tbbo(lake: umdf.Lake, root: Path, quotes: str) -> None:
    """The books task writes tbbo while it has the books; here it comes from stored (or derived) rows only."""
    found = polars.from_arrow(lake.trades_with_quotes(quotes=quotes, **RAW).to_arrow())
    assert isinstance(found, polars.DataFrame) and found.height == delta(root, "trades").height
    made = found.filter(polars.col("action") == "A").select(KEY + LEVEL).sort(KEY)
    stored = delta(root, "tbbo").select(KEY + LEVEL).sort(KEY)
    assert made.height > 100 and made.equals(stored.cast(made.schema))
    assert made["bid_px_00"].null_count() < made.height / 2


@pytest.mark.parametrize("by", ["position", "ts_event", "ts_recv"])
def test_the_join_equals_a_plain_loop_over_all_quotes(lake: umdf.Lake, root: Path, by: str) -> None:
    epochs, quotes = epochs_of(root), delta(root, "mbp_1", trading_date=FIRST).to_dicts()
    symbols = ["PETR4", "WINZ26"]
    found = lake.trades_with_quotes(symbols, FIRST, next_day(FIRST), by=by, **RAW).to_arrow().to_pylist()
    assert len(found) > 20

    def key(row: dict[str, Any]) -> Any:
        if by == "position":
            return place_of(row, epochs)
        return row["ts_send"] if row[by] is None else row[by]

    for trade in found:
        own = [
            quote
            for quote in quotes
            if all(quote[name] == trade[name] for name in ("channel_id", "instrument_id", "seq_version"))
            and key(quote) < key(trade)
        ]
        last = max(own, key=lambda quote: (key(quote), place_of(quote, epochs)), default=dict.fromkeys(LEVEL))
        assert [trade[name] for name in LEVEL] == [last[name] for name in LEVEL]
        assert trade["quote_sequence"] == last.get("sequence") and trade["quote_flags"] == last.get("flags")


def test_the_quote_may_be_older_than_the_range(lake: umdf.Lake) -> None:
    whole = lake.trades_with_quotes("PETR4", FIRST, next_day(FIRST), **RAW).to_arrow()
    middle = whole.column("ts_recv")[whole.num_rows // 2].as_py()
    later = lake.trades_with_quotes("PETR4", middle, next_day(FIRST), **RAW).to_arrow()
    chosen = np.array([value >= middle for value in whole.column("ts_recv").to_pylist()])
    assert 0 < later.num_rows < whole.num_rows and later.equals(whole.filter(pa.array(chosen)))
    assert later.column("bid_px_00")[0].as_py() is not None


def test_stale_trades_and_stale_quotes_can_be_left_out(lake: umdf.Lake) -> None:
    whole = lake.trades_with_quotes(**RAW).to_arrow().to_pylist()
    clean = [row for row in whole if not (row["flags"] | (row["quote_flags"] or 0)) & MAYBE_BAD_BOOK]
    assert 0 < len(clean) < len(whole)
    assert lake.trades_with_quotes(exclude_stale=True, **RAW).to_arrow().to_pylist() == clean


def test_price_type_and_columns_work_as_in_get_range(lake: umdf.Lake) -> None:
    plan = lake.trades_with_quotes("PETR4", columns=["ts_event", "price", "bid_px_00", "quote_ts_event"])
    found = plan.to_arrow()
    assert found.schema.equals(plan.arrow_schema)
    assert [str(kind) for kind in found.schema.types] == [
        "timestamp[ns, tz=UTC]", "decimal128(19, 9)", "decimal128(19, 9)", "timestamp[ns, tz=UTC]",
    ]  # fmt: skip
    named = lake.trades_with_quotes("WIN.c.0", stype_in="continuous").to_arrow()
    assert set(named.column("continuous").to_pylist()) == {"WIN.c.0"} and named.num_rows > 0


PLACES = st.tuples(st.integers(0, 3), st.sampled_from([5, 6]), st.integers(1, 9), st.integers(0, 3), st.integers(0, 2))


def made_rows(places: list[tuple[int, ...]]) -> pa.Table:
    names = ("instrument_id", "seq_version", "sequence", "msg_index", "entry_index")
    columns: dict[str, Any] = {name: [place[n] for place in places] for n, name in enumerate(names)}
    columns["ts_event"] = [None if place[4] == 2 else place[2] // 2 for place in places]
    columns["ts_send"] = columns["ts_recv"] = [place[2] for place in places]
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


@given(
    st.lists(PLACES, max_size=12), st.lists(PLACES, max_size=12), st.sampled_from(["position", "ts_event", "ts_recv"])
)
def test_random_rows_in_random_order_join_like_the_reference(trades: list[Any], quotes: list[Any], by: str) -> None:
    quotes = sorted(set(quotes))

    def key(place: tuple[int, ...]) -> Any:
        if by == "position":
            return place[2:]
        return place[2] // 2 if by == "ts_event" and place[4] != 2 else place[2]

    expected = []
    for trade in trades:
        own = [n for n, quote in enumerate(quotes) if quote[:2] == trade[:2] and key(quote) < key(trade)]
        expected.append(max(own, key=lambda n: (key(quotes[n]), n), default=-1))
    assert quotes_before(made_rows(trades), made_rows(quotes), by).tolist() == expected
