"""Trades, in the order of the wire: the last price of each instrument and venue, and our own count of its trades.

A slot is one venue of one instrument. Every trade is kept in a log, newest first for each slot, because a bust names a
trade and takes exactly that one out of the count.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_u8
from umdf.market.statistics_kernel import (
    ACTIONS,
    DELETED,
    DROP,
    EVERY,
    HEAD,
    IDS,
    LOG,
    LOG_CAPACITY,
    LOG_COUNT,
    NEW_SESSION,
    NO_LAST,
    NO_SLOT,
    O_ID,
    O_KIND,
    O_ORDER,
    O_PRICE,
    O_STREAM,
    OP,
    OP_COUNT,
    OPERATION,
    OPS,
    ORDER,
    ROW,
    ROWS,
    S_KEY,
    S_NEXT,
    SET_LAST,
    SLOT_COUNT,
    START_AGAIN,
    at,
    find,
    find_or_add,
    put,
    slot_at,
)

# Places in the table of arguments that only the tape has, in those that only the fold has.
STREAMS, PRICES, SIZES, TIMES, TRADE_IDS, BUYERS, SELLERS = 14, 15, 16, 17, 18, 19, 20
CONDITIONS = 24
TAPE_ARGUMENTS = 25

# A slot, behind the fold's first four places.
T_LAST = 6  # NO, A_TRADE or PUBLISHED: where the last price comes from
T_PRICE, T_SIZE, T_TS, T_TRADE_ID, T_BUYER, T_SELLER, T_CONDITIONS, T_BUSTED = 7, 8, 9, 10, 11, 12, 13, 14
T_COUNT, T_QUANTITY, T_NOTIONAL_LOW, T_NOTIONAL_HIGH = 15, 16, 17, 18
T_FIRST, T_HIGH, T_LOW, T_BUSTS, T_UNKNOWN_BUSTS, T_NEWEST = 19, 20, 21, 22, 23, 24
TAPE_SLOT = 25
NO, A_TRADE, PUBLISHED = 0, 1, 2

# A trade in the log; T_NEWEST and L_OLDER are a place in it + 1, or 0.
L_TRADE_ID, L_PRICE, L_SIZE, L_OLDER, L_BUSTED = 0, 1, 2, 3, 4
LOGGED = 5

NULL = -(1 << 63)
# A leg trade, and one out of sequence: trades that never move the last price (13.4, Binary TradeCondition bit 3).
MOVES_NOTHING = 1 << 18 | 1 << 3
_LOW_HALF = np.uint64(0xFFFFFFFF)


@inlined
def _add_product(s, price, size, sign):
    """notional ± price · size, exactly: two words of 64 bits."""
    negative = ((price < 0) != (size < 0)) != (sign < 0)
    a, b = np.uint64(abs(price)), np.uint64(abs(size))
    a_low, a_high = a & _LOW_HALF, a >> np.uint64(32)
    b_low, b_high = b & _LOW_HALF, b >> np.uint64(32)
    low_high, high_low = a_low * b_high, a_high * b_low
    middle = (a_low * b_low >> np.uint64(32)) + (low_high & _LOW_HALF) + (high_low & _LOW_HALF)
    high = a_high * b_high + (low_high >> np.uint64(32)) + (high_low >> np.uint64(32)) + (middle >> np.uint64(32))
    low = a * b
    old_low, old_high = np.uint64(at(s, T_NOTIONAL_LOW)), np.uint64(at(s, T_NOTIONAL_HIGH))
    if negative:
        put(s, T_NOTIONAL_LOW, np.int64(old_low - low))
        put(s, T_NOTIONAL_HIGH, np.int64(old_high - high - (np.uint64(1) if old_low < low else np.uint64(0))))
    else:
        total = old_low + low
        put(s, T_NOTIONAL_LOW, np.int64(total))
        put(s, T_NOTIONAL_HIGH, np.int64(old_high + high + (np.uint64(1) if total < low else np.uint64(0))))


@inlined
def _count(s, price, size, sign):
    put(s, T_COUNT, at(s, T_COUNT) + sign)
    if size != NULL:
        put(s, T_QUANTITY, at(s, T_QUANTITY) + sign * size)
        if price != NULL:
            _add_product(s, price, size, sign)


@inlined
def _no_prices(s):
    put(s, T_FIRST, NULL)
    put(s, T_HIGH, NULL)
    put(s, T_LOW, NULL)


@inlined
def _start_count(s):
    for place in range(T_COUNT, TAPE_SLOT):
        put(s, place, 0)
    _no_prices(s)


@inlined
def _is_newer(s, ts, trade_id):
    """Whether a trade is the last one: the last received need not be (10.1 NOTE 1), time and trade id say so."""
    if at(s, T_LAST) == NO or ts == NULL or at(s, T_TS) == NULL or ts > at(s, T_TS):
        return True
    return ts == at(s, T_TS) and (trade_id == NULL or at(s, T_TRADE_ID) == NULL or trade_id >= at(s, T_TRADE_ID))


@inlined
def _trade(t, s, row):
    price, size, ts, trade_id = (
        at(at(t, PRICES), row),
        at(at(t, SIZES), row),
        at(at(t, TIMES), row),
        at(at(t, TRADE_IDS), row),
    )
    conditions = np.int64(load_i32(at(t, CONDITIONS), 4 * row))
    place = at(t, LOG_COUNT)
    put(t, LOG_COUNT, place + 1)
    entry = at(t, LOG) + 8 * LOGGED * place
    put(entry, L_TRADE_ID, trade_id)
    put(entry, L_PRICE, price)
    put(entry, L_SIZE, size)
    put(entry, L_OLDER, at(s, T_NEWEST))
    put(entry, L_BUSTED, 0)
    put(s, T_NEWEST, place + 1)
    _count(s, price, size, 1)
    if price == NULL:
        return
    if at(s, T_FIRST) == NULL:
        put(s, T_FIRST, price)
    if at(s, T_HIGH) == NULL or price > at(s, T_HIGH):
        put(s, T_HIGH, price)
    if at(s, T_LOW) == NULL or price < at(s, T_LOW):
        put(s, T_LOW, price)
    if conditions & MOVES_NOTHING == 0 and _is_newer(s, ts, trade_id):
        put(s, T_LAST, A_TRADE)
        put(s, T_PRICE, price)
        put(s, T_SIZE, size)
        put(s, T_TS, ts)
        put(s, T_TRADE_ID, trade_id)
        put(s, T_BUYER, at(at(t, BUYERS), row))
        put(s, T_SELLER, at(at(t, SELLERS), row))
        put(s, T_CONDITIONS, conditions)
        put(s, T_BUSTED, 0)


@inlined
def _look_again(t, s):
    """First, high and low of the trades that are left."""
    _no_prices(s)
    older = at(s, T_NEWEST)
    while older != 0:
        entry = at(t, LOG) + 8 * LOGGED * (older - 1)
        price = at(entry, L_PRICE)
        if at(entry, L_BUSTED) == 0 and price != NULL:
            put(s, T_FIRST, price)
            if at(s, T_HIGH) == NULL or price > at(s, T_HIGH):
                put(s, T_HIGH, price)
            if at(s, T_LOW) == NULL or price < at(s, T_LOW):
                put(s, T_LOW, price)
        older = at(entry, L_OLDER)


@inlined
def _bust(t, s, trade_id):
    """Take a trade out of the count and mark it. What the exchange publishes it sends again itself (13.4)."""
    if trade_id != NULL and at(s, T_LAST) != NO and at(s, T_TRADE_ID) == trade_id:
        put(s, T_BUSTED, 1)
    older = at(s, T_NEWEST)
    while older != 0 and trade_id != NULL:
        entry = at(t, LOG) + 8 * LOGGED * (older - 1)
        if at(entry, L_TRADE_ID) == trade_id and at(entry, L_BUSTED) == 0:
            price = at(entry, L_PRICE)
            put(entry, L_BUSTED, 1)
            put(s, T_BUSTS, at(s, T_BUSTS) + 1)
            _count(s, price, at(entry, L_SIZE), -1)
            if price == at(s, T_FIRST) or price == at(s, T_HIGH) or price == at(s, T_LOW):
                _look_again(t, s)
            return
        older = at(entry, L_OLDER)
    put(s, T_UNKNOWN_BUSTS, at(s, T_UNKNOWN_BUSTS) + 1)


@inlined
def _forget(s, kind):
    if at(s, S_KEY) == HEAD:
        return
    if kind == NEW_SESSION or kind == START_AGAIN or kind == DROP:
        for place in range(T_LAST, T_BUSTED + 1):
            put(s, place, 0)
    if kind == NEW_SESSION or kind == DROP:  # no snapshot and no channel reset sends our own count again
        _start_count(s)


@inlined
def _operate(t, op):
    """What comes between trades; False when there is no slot for a last price."""
    kind, instrument_id = at(op, O_KIND), at(op, O_ID)
    if kind == SET_LAST or kind == NO_LAST:
        number = _slot(t, instrument_id, at(op, O_STREAM))
        if number == NO_SLOT:
            return False
        s = slot_at(t, number)
        put(s, T_LAST, PUBLISHED if kind == SET_LAST else NO)
        for i in range(O_PRICE, OPERATION):
            put(s, T_PRICE + i - O_PRICE, at(op, i) if kind == SET_LAST else 0)
        put(s, T_BUSTED, 0)
    elif instrument_id == EVERY:
        for number in range(at(t, SLOT_COUNT)):
            _forget(slot_at(t, number), kind)
    else:
        number = find(t, instrument_id, np.int64(HEAD), np.int64(0))
        while number != NO_SLOT:
            _forget(slot_at(t, number), kind)
            number = at(slot_at(t, number), S_NEXT)
    return True


@inlined
def _slot(t, instrument_id, stream):
    before = at(t, SLOT_COUNT)
    number = find_or_add(t, instrument_id, np.int64(stream), np.int64(0))
    if number != NO_SLOT and at(t, SLOT_COUNT) != before:
        _start_count(slot_at(t, number))
    return number


@kernel
def run_tape(t):
    """Run rows ROW … and operations OP …; returns 0 when slots or log are full (grow, call again), else 1."""
    rows, ids, order, ops, op_count = at(t, ROWS), at(t, IDS), at(t, ORDER), at(t, OPS), at(t, OP_COUNT)
    row, op = at(t, ROW), at(t, OP)
    full = False
    while not full and (row < rows or op < op_count):
        if op < op_count and (row == rows or at(ops, OPERATION * op + O_ORDER) <= at(order, row)):
            full = not _operate(t, ops + 8 * OPERATION * op)
            op += 0 if full else 1
            continue
        number = _slot(t, at(ids, row), np.int64(load_u8(at(t, STREAMS), row)))
        if number == NO_SLOT or at(t, LOG_COUNT) == at(t, LOG_CAPACITY):
            full = True
            continue
        s = slot_at(t, number)
        if load_u8(at(t, ACTIONS), row) == DELETED:
            _bust(t, s, at(at(t, TRADE_IDS), row))
        else:
            _trade(t, s, row)
        row += 1
    put(t, ROW, row)
    put(t, OP, op)
    return 0 if full else 1
