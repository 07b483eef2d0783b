"""Requests of orders and their results as rows of int64: what Python passes to `order_requests_kernel`."""

from __future__ import annotations

# A request. Q_PRICE is NULL for orders without a price, and with Q_SIZE for what an amendment leaves as it is.
# Q_EXPIRES is the last day (`memory_layout_kernel`: DAY, GOOD_TILL_CANCELLED), Q_ORDER_ID whom to amend or cancel.
(
    Q_ACTION, Q_INSTRUMENT, Q_SIDE, Q_PRICE, Q_SIZE, Q_FIRM, Q_TYPE, Q_EXPIRES, Q_DISPLAY, Q_STP, Q_ORDER_ID, Q_TS
) = range(0, 96, 8)  # fmt: skip
REQUEST_WORDS, REQUEST_BYTES = 12, 96
ENTER, AMEND, CANCEL, RESUME = 0, 1, 2, 3  # RESUME: an order that was matched until the journal was full
LIMIT, MARKET, MARKET_TO_LIMIT, MOA, MOC = 0, 1, 2, 3, 4

# A result: the id under which the order rests (0: it does not), why it was refused, quantities, 1 if it has started an
# auction instead of trading.
A_ORDER_ID, A_REFUSAL, A_TRADED, A_CANCELLED, A_STARTED_AUCTION = range(0, 40, 8)
RESULT_WORDS, RESULT_BYTES = 5, 40

# Why a request is refused. Nothing has changed then.
(
    NOT_ALLOWED, TYPE_NOT_ALLOWED, UNKNOWN_ORDER, SIZE_INVALID, SIZE_OFF_LOT, SIZE_OUTSIDE_BAND, DISPLAY_INVALID,
    PRICE_MISSING, PRICE_NOT_ALLOWED, PRICE_OFF_TICK, PRICE_INVALID, OUTSIDE_HARD_LIMITS, OUTSIDE_STATIC_LIMITS,
    OUTSIDE_REJECTION_BAND, OUTSIDE_SPREAD, SELF_TRADE, NO_COUNTERPARTY, SIDE_FULL, WAITING_FULL, TERMS_INVALID,
    UNKNOWN_INSTRUMENT, SYNCHRONISM,
) = range(-1, -23, -1)  # fmt: skip
