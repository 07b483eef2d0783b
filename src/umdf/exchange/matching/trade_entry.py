"""Trades that Python enters, amends and busts, and what is published again then (13.4)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from umdf.errors import UsageError, one_of
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.matching.session_trades import T_CODE, T_ID, T_PRICE, SessionTrade, SessionTrades
from umdf.exchange.matching.trade_entry_kernel import append_amended_trade
from umdf.exchange.matching.trade_kernel import VOLUME_UNIT
from umdf.market.families import CONDITIONS
from umdf.units import fix_decimal

# 277 of trades that the marketplace enters: on behalf, termo vista, and types that no order of ours leads to.
ENTERED_CONDITIONS = ("2", "3", "X", "RL", "RF", "MP", "PT", "TC", "TA", "SW")
BLOCK_TRADES = ("PT",)


def condition_bits(names: Iterable[str]) -> int:
    bits = 0
    for name in names:
        if name not in ENTERED_CONDITIONS:
            raise UsageError(f"invalid trade condition: {name}", f"use {one_of(ENTERED_CONDITIONS)}")
        bits |= CONDITIONS[name] | (CONDITIONS["BLOCK"] if name in BLOCK_TRADES else 0)
    return bits


def bust_trade(market: Market, trades: SessionTrades, index: int, trade: SessionTrade, ts_ns: int) -> None:
    """Bust a trade: volume and VWAP change, high and low if they were its own, the rest only if no trade is left."""
    left = trades.of(index)
    _append_bust(market, index, trade, ts_ns)
    _publish_statistics(market, index, left[left[:, T_ID] != trade.trade_id], ts_ns)


def amend_trade(
    market: Market, trades: SessionTrades, index: int, trade: SessionTrade, price: int, size: int, ts_ns: int
) -> int:
    """Bust a trade and enter another one instead, at its time (Binary 9.2.23): it never sets the last price. Its id."""
    if size <= 0:
        raise UsageError(f"invalid size: {size}", "bust the trade instead")
    if price % int(market.instruments[index, k.I_TICK]):
        tick = fix_decimal(int(market.instruments[index, k.I_TICK]), -9)
        raise UsageError(f"price is not on a tick: {fix_decimal(price, -9)}", f"use a multiple of {tick}")
    left = trades.of(index)
    left = left[left[:, T_ID] != trade.trade_id]
    _append_bust(market, index, trade, ts_ns)
    conditions = trade.conditions & ~k.C_LAST | k.C_OUT_OF_SEQUENCE
    arguments = (price, size, trade.buyer, trade.seller, conditions, trade.ts_ns)
    trade_id = int(append_amended_trade(market.table.ctypes.data, index, *arguments))
    amended = [index, trade_id, price, size, trade.buyer, trade.seller, trade.ts_ns, conditions, 0]
    _publish_statistics(market, index, np.concatenate([left, np.array([amended], np.int64)]), ts_ns)
    return trade_id


def _append_bust(market: Market, index: int, trade: SessionTrade, ts_ns: int) -> None:
    row = market.instruments[index]
    row[k.I_QUANTITY] -= trade.size
    row[k.I_TURNOVER] -= trade.price // VOLUME_UNIT * trade.size
    row[k.I_TRADES] -= 1
    market.append(
        k.BUST, index, spacing_ns=ts_ns - market.now, flags=trade.implied_flag, price=trade.price, size=trade.size,
        id=trade.trade_id, firm=trade.buyer, other=trade.seller, insert=trade.ts_ns, aux=int(row[k.I_QUANTITY]),
    )  # fmt: skip


def _publish_statistics(market: Market, index: int, left: np.ndarray, ts_ns: int) -> None:
    """Publish what has changed with the trades that are left, as the end of the event."""
    row, indices = market.instruments[index], np.array([index])
    if not len(left):
        for statistic, kind, code in (
            (k.S_OPENING, k.OPENING, 0), (k.S_HIGH, k.HIGH, k.NULL), (k.S_LOW, k.LOW, k.NULL),
        ):  # fmt: skip
            value = market.statistic_values(statistic)
            if value[index, k.V_PRESENT]:
                market.append(kind, index, spacing_ns=ts_ns - market.now, flags=k.DELETED, code=code)
                value[index, k.V_PRESENT] = 0
        market.statistic_values(k.S_LAST)[index, k.V_PRESENT] = 0
        row[[k.I_LAST, k.I_HIGH]], row[k.I_LOW], row[k.I_OPENED] = k.NULL, np.iinfo(np.int64).max, 0
    else:
        prices = left[left[:, T_CODE] & k.C_LEG == 0][:, T_PRICE]
        for column, statistic, kind, price in (
            (k.I_HIGH, k.S_HIGH, k.HIGH, prices.max(initial=k.NULL)),
            (k.I_LOW, k.S_LOW, k.LOW, prices.min(initial=np.iinfo(np.int64).max)),
        ):
            if len(prices) and row[column] != price:
                row[column] = price
                market.publish_statistic(statistic, kind, indices, spacing_ns=ts_ns - market.now, flags=0, price=price)
    quantity, last = int(row[k.I_QUANTITY]), int(row[k.I_LAST])
    vwap = (int(row[k.I_TURNOVER]) + quantity // 2) // quantity * VOLUME_UNIT if quantity else k.NULL
    change = last - int(row[k.I_PREVIOUS_CLOSE]) if last != k.NULL else k.NULL
    columns = {"price": vwap, "size": quantity, "other": int(row[k.I_TRADES]), "aux": change}
    market.publish_statistic(k.S_EXECUTION, k.EXECUTION, indices, spacing_ns=ts_ns - market.now, **columns)
