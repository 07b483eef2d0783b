"""Orders as Python sees them: requests and results as arrays, one order of a book, and why an order is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UsageError
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching import request_layout_kernel as q
from umdf.exchange.matching.market import Market
from umdf.units import fix_decimal

Requests = NDArray[Any]  # of the type REQUEST
Results = NDArray[Any]  # of the type RESULT

BID, ASK = 0, 1
LIMIT, MARKET, MARKET_TO_LIMIT, MOA, MOC = q.LIMIT, q.MARKET, q.MARKET_TO_LIMIT, q.MOA, q.MOC
ENTER, AMEND, CANCEL = q.ENTER, q.AMEND, q.CANCEL
DAY, GTC, GTD = "DAY", "GTC", "GTD"
NULL = k.NULL
BAND_STATISTICS = {  # and their code (6939)
    "hard": (k.S_HARD_LIMITS, 1), "auction": (k.S_AUCTION_BAND, 2), "rejection": (k.S_REJECTION_BAND, 3),
    "static": (k.S_STATIC_LIMITS, 4),
}  # fmt: skip

REQUEST = np.dtype(
    [
        (name, np.int64)
        for name in (
            "action", "instrument", "side", "price", "size", "firm", "order_type", "expires", "display_size", "stp_id",
            "order_id", "ts_ns",
        )
    ]
)  # fmt: skip
RESULT = np.dtype([(name, np.int64) for name in ("order_id", "refusal", "traded", "cancelled", "started_auction")])

SYNCHRONISM_REASON = 7153  # ordRejReason
ORDER_TYPE_NAMES = {
    LIMIT: "LIMIT", MARKET: "MARKET", MARKET_TO_LIMIT: "MARKET_TO_LIMIT", MOA: "MOA", MOC: "MOC",
}  # fmt: skip
IN_AUCTIONS = "auctions (Reserved, Final Closing Call)"
# The reason, the value that is wrong, and what to do.
REFUSALS: dict[int, tuple[str, str | None, str]] = {
    q.NOT_ALLOWED: ("the state of the instrument does not allow it", None, "wait for Open or an auction"),
    q.TYPE_NOT_ALLOWED: (
        "order type not allowed in this state", "order_type",
        f"MARKET and MARKET_TO_LIMIT are for Open, MOA is for {IN_AUCTIONS}",
    ),
    q.UNKNOWN_ORDER: ("unknown order", "order_id", "it was traded, cancelled or has expired"),
    q.SIZE_INVALID: ("invalid size", "size", f"use a positive one, up to {k.MAX_ORDER_LOTS} lots"),
    q.SIZE_OFF_LOT: ("size is not a multiple of the lot", "size", "use a multiple of {lot}"),
    q.SIZE_OUTSIDE_BAND: ("size is above the quantity band", "size", "use at most {max_size}"),
    q.DISPLAY_INVALID: (
        "invalid display size", "display_size", "use lots below the size, for limit orders only",
    ),
    q.PRICE_MISSING: ("limit order without a price", None, "give a price, or another type: MARKET, MOA, MOC"),
    q.PRICE_NOT_ALLOWED: ("this order has no price", "price", "use None, or a limit order"),
    q.PRICE_OFF_TICK: ("price is not on a tick", "price", "use a multiple of {tick}"),
    q.PRICE_INVALID: ("price out of range", "price", "use fewer ticks"),
    q.OUTSIDE_HARD_LIMITS: ("price is outside the hard limits", "price", "use {hard}"),
    q.OUTSIDE_STATIC_LIMITS: ("price is outside the static limits", "price", "use {static}"),
    q.OUTSIDE_REJECTION_BAND: ("price is outside the rejection band", "price", "use {rejection}"),
    q.OUTSIDE_SPREAD: ("price of a cross is outside the spread", "price", "use {spread}"),
    q.SELF_TRADE: (
        "self-trade prevention: it would trade with an order of the same id", "stp_id", "cancel that order first",
    ),
    q.NO_COUNTERPARTY: ("nothing to trade with", "side", "use a limit order"),
    q.SIDE_FULL: ("the side of the book is full", "side", "cancel orders first"),
    q.WAITING_FULL: ("too many orders wait for the closing call", None, "cancel some first"),
    q.TERMS_INVALID: ("invalid last day or self-trade prevention id", "stp_id", "use a date, and 0 to 2^32 - 1"),
    q.UNKNOWN_INSTRUMENT: ("unknown instrument", "instrument", "use an index of the listing"),
}  # fmt: skip


@dataclass(frozen=True)
class EntryResult:
    """What became of an order: `order_id` is the one under which it rests or waits, None if it does not."""

    order_id: int | None
    traded: int
    cancelled: int  # of a market order without counterparty, by self-trade prevention, or as requested
    started_auction: bool  # it would have traded outside of the auction band


@dataclass(frozen=True)
class Order:
    """An order of a book."""

    order_id: int
    price: int | None  # 1e-9; None: a market order of an auction
    size: int  # displayed
    hidden: int
    firm: int | None
    entered_ns: int
    last_day: int | None  # days since 1970, None: any day, or the day's end
    stp_id: int | None


@dataclass(frozen=True)
class OrderBook:
    """Both sides, the best order first."""

    bids: list[Order]
    asks: list[Order]


@dataclass(frozen=True)
class Theoretical:
    """What an auction would trade now. The imbalance is positive if buyers are left."""

    price: int
    size: int
    imbalance: int


def read_side(market: Market, index: int, side: int) -> list[Order]:
    """The orders of one side of a book, the best first."""
    row = market.instruments[index]
    first, count = int(row[k.I_ORDERS_OFFSET] + side * row[k.I_CAPACITY]), int(row[k.I_BIDS + side])
    ticks = int(row[k.I_TICK]) * (1 if side == BID else -1)
    return [
        Order(
            order[k.O_ID],
            None if order[k.O_KEY] == k.MARKET_ORDER_KEY else order[k.O_KEY] * ticks,
            order[k.O_SIZE],
            order[k.O_RESERVE],
            None if order[k.O_FIRM] == k.NULL else order[k.O_FIRM],
            order[k.O_INSERT],
            _date_or_none(order[k.O_TERMS] >> k.EXPIRY_SHIFT),
            order[k.O_TERMS] & k.STP_MASK or None,
        )
        for order in market.orders[first : first + count][::-1].tolist()
    ]


def _date_or_none(last_day: int) -> int | None:
    return last_day if k.DAY < last_day < k.GOOD_TILL_CANCELLED else None


def refusal_error(market: Market, code: int, values: dict[str, Any]) -> UsageError:
    """The error of a refused request; `values` are those of the request, with the index of its instrument."""
    if code == q.SYNCHRONISM:
        return _synchronism_error(market, values["instrument"])
    reason, field, hint = REFUSALS[code]
    if "{" in hint:
        hint = hint.format(**_limits(market, values["instrument"]))
    if field is None:
        return UsageError(reason, hint)
    value = values[field]
    if field == "order_type":
        return UsageError(f"{reason}: {ORDER_TYPE_NAMES.get(value, value)}", hint)
    return UsageError(f"{reason}: {_price_text(value) if field == 'price' and value is not None else value}", hint)


def _synchronism_error(market: Market, index: int) -> UsageError:
    """The texts of 15.2.2 and, in the auction of one instrument, of 15.4."""
    symbol, text = market.listing.instruments[index].symbol, "Instrument has an auction synchronism in progress"
    is_own = market.instruments[index, k.I_SYNCHRONISM] == k.OF_INSTRUMENT
    text += f" 'Instrument {symbol} in Simultaneous Auction closing.'" if is_own else "."
    return UsageError(f"rejected ({SYNCHRONISM_REASON}): {text}", "try again when the auction has ended")


def _price_text(price: int) -> str:
    """In reais: people read it; orders have prices in 1e-9."""
    return fix_decimal(int(price), -9)


def _limits(market: Market, index: int) -> dict[str, Any]:
    row, quantity_band = market.instruments[index], market.statistic_values(k.S_QUANTITY_BAND)[index]
    best_bid, best_ask = (read_side(market, index, side)[:1] for side in (BID, ASK))
    return {
        "tick": _price_text(row[k.I_TICK]),
        "lot": int(row[k.I_LOT]),
        "max_size": int(quantity_band[k.V_OTHER]),
        "spread": " to ".join(_price_text(best[0].price or 0) if best else "any" for best in (best_bid, best_ask)),
        **{kind: _band_text(market, statistic, index) for kind, (statistic, _) in BAND_STATISTICS.items()},
    }


def _band_text(market: Market, statistic: int, index: int) -> str:
    value = market.statistic_values(statistic)[index]
    is_percent = value[k.V_CODE] >> k.BAND_LIMIT_TYPE & 0xFF == 2
    return f"{_price_text(value[k.V_PRICE])} to {_price_text(value[k.V_AUX])}" + (" percent" if is_percent else "")


def last_day_of(time_in_force: str, expire_date: int | None) -> int:
    """The last day of an order; `expire_date` in days since 1970."""
    if time_in_force == GTD:
        if expire_date is None:
            raise UsageError("GTD order without an expiry date", "give its last day")
        if not k.DAY < expire_date < k.GOOD_TILL_CANCELLED:
            raise UsageError(f"invalid expire_date: {expire_date}", "use days since 1970")
        return expire_date
    if expire_date is not None:
        raise UsageError(f"{time_in_force} orders have no expire_date: {expire_date}", "use GTD")
    if time_in_force not in (DAY, GTC):
        raise UsageError(f"invalid time_in_force: {time_in_force}", "use DAY, GTC or GTD")
    return k.DAY if time_in_force == DAY else k.GOOD_TILL_CANCELLED
