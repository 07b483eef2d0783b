"""Crosses, trades on behalf, busted and amended trades, and the last trade of the week before."""

from __future__ import annotations

import numpy as np
import pytest
from exchange.open_engine import CENT, REAL, START_NS, SYMBOL, content, engine, enter, kinds, rows
from exchange.published_events import publish

from umdf.errors import UsageError
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID, NULL
from umdf.exchange.matching.trade_entry import ENTERED_CONDITIONS
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings
from umdf.exchange.publish.publisher import INCREMENTAL, JournalBatch
from umdf.market.families import CONDITIONS, TRD_SUB_TYPES


def test_a_cross_is_within_the_spread_and_a_trade_on_behalf_leaves_the_book() -> None:
    exchange = engine(SYMBOL)
    enter(exchange, BID, 3_000, 100)
    enter(exchange, ASK, 3_005, 100)
    for price in (2_999, 3_006):
        with pytest.raises(UsageError, match=r"outside the spread: [\d.]+; use 30 to 30\.05"):
            exchange.cross(SYMBOL, price * CENT, 100, buyer=1, seller=2, ts_ns=START_NS)
    exchange.take_records()
    exchange.cross(SYMBOL, 3_002 * CENT, 100, buyer=1, seller=2, ts_ns=START_NS)
    exchange.enter_on_behalf(SYMBOL, 3_010 * CENT, 50, buyer=1, seller=2, ts_ns=START_NS, conditions=("2", "TC"))
    codes = [row[0] for row in rows(exchange.take_records(), k.TRADE, k.CODE)]
    assert codes == [k.C_CROSSED | k.C_OPENING, 1 << 6 | 1 << 23]
    assert content(exchange) == [[(3_000, 100, 0)], [(3_005, 100, 0)]]
    with pytest.raises(UsageError, match="invalid trade condition: U; use 2, 3,"):
        exchange.enter_on_behalf(SYMBOL, 3_010 * CENT, 50, buyer=1, seller=2, ts_ns=START_NS, conditions=("U",))


def test_after_a_bust_high_low_and_vwap_are_sent_again_and_the_rest_only_if_no_trade_is_left() -> None:
    """13.4."""
    exchange = engine(SYMBOL)
    for price in (3_000, 3_010, 2_990):
        exchange.cross(SYMBOL, price * CENT, 100, buyer=1, seller=2, ts_ns=START_NS)
    middle, high, low = (row[0] for row in rows(exchange.take_records(), k.TRADE, k.ID))
    exchange.bust(SYMBOL, high, START_NS)
    records = exchange.take_records()
    assert kinds(records) == [k.BUST, k.HIGH, k.EXECUTION]
    assert rows(records, k.HIGH, k.PRICE) == [[30 * REAL]]
    assert rows(records, k.EXECUTION, k.PRICE, k.SIZE, k.OTHER) == [[2_995 * CENT, 200, 2]]
    with pytest.raises(UsageError, match=f"unknown trade: {high}"):
        exchange.bust(SYMBOL, high, START_NS)
    amended = exchange.amend_trade(SYMBOL, low, price=2_980 * CENT, size=300, ts_ns=START_NS + 5)
    records = exchange.take_records()
    assert kinds(records) == [k.BUST, k.TRADE, k.LOW, k.EXECUTION]
    assert rows(records, k.TRADE, k.TS, k.SIZE, k.CODE)[0][:2] == [START_NS, 300]
    assert rows(records, k.TRADE, k.CODE)[0][0] & k.C_OUT_OF_SEQUENCE
    exchange.bust(SYMBOL, amended, START_NS)
    exchange.take_records()
    exchange.bust(SYMBOL, middle, START_NS)
    records = exchange.take_records()
    assert kinds(records) == [k.BUST, k.OPENING, k.HIGH, k.LOW, k.EXECUTION]
    assert all(flags & k.DELETED for (flags,) in rows(records[1:4], k.OPENING, k.FLAGS))


def test_the_last_trade_of_a_session_is_published_at_the_start_of_the_week() -> None:
    exchange = engine(SYMBOL)
    exchange.cross(SYMBOL, 30 * REAL, 300, buyer=1, seller=2, ts_ns=START_NS)
    exchange.market.clear_session(np.arange(12))
    exchange.start_session()
    exchange.take_records()
    exchange.publish_exchange_last(START_NS)
    assert rows(exchange.take_records(), k.LAST_PRICE, k.PRICE, k.SIZE, k.FIRM, k.CODE) == [
        [30 * REAL, 300, NULL, 1 << 16]
    ]


@pytest.mark.parametrize("protocol", [SBE, FAST])
def test_the_conditions_of_entered_trades_arrive_in_both_protocols(protocol: str) -> None:
    exchange = engine(SYMBOL)
    words = [word for word in ENTERED_CONDITIONS if word != "2"]
    for word in words:
        exchange.enter_on_behalf(SYMBOL, 30 * REAL, 100, buyer=1, seller=2, ts_ns=START_NS, conditions=("2", word))
    trade_id = int(exchange.market.instruments[exchange.index_of(SYMBOL), k.I_TRADE_ID])
    exchange.amend_trade(SYMBOL, trade_id, price=31 * REAL, size=50, ts_ns=START_NS)
    batch = JournalBatch(INCREMENTAL, exchange.take_records(), START_NS)
    trades = publish(ChannelSettings(72, protocol), exchange.market.listing, batch).rows("trades")
    conditions, actions = trades.column("conditions").tolist(), trades.column("action").tolist()
    for found, word in zip(conditions, words, strict=False):
        assert found & CONDITIONS[word] and found & CONDITIONS["2"], word
    assert [chr(action) for action in actions] == ["A"] * len(words) + ["C", "A"]
    if protocol == SBE:
        assert conditions[-1] & CONDITIONS["OUT_OF_SEQUENCE"]
        codes = {code: word for code, word in TRD_SUB_TYPES.items() if word in words}
        assert set(trades.column("trd_sub_type").tolist()) >= set(codes)
