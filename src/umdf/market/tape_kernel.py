"""Trades, in wire order: the last price of each instrument and venue, and our own totals of its trades.

A slot is one venue of one instrument. The trades of the session are kept in a log, newest first for each slot, because
a bust names a trade and takes exactly that one out of the totals. The log is bounded: of trades that leave it, a slot
keeps the first, highest and lowest price, and a bust of one of them is a bust of an unknown trade.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, store_i64
from umdf.market.statistics_kernel import (
    ACTIONS,
    ALL_INSTRUMENTS,
    CLEAR_LAST_PRICE,
    DELETED,
    HEAD,
    IDS,
    INSTRUMENT_DELETED,
    LOG,
    LOG_CAPACITY,
    LOG_COUNT,
    NEW_SESSION,
    NO_SLOT,
    O_ID,
    O_KIND,
    O_ORDER,
    O_PRICE,
    O_VENUE,
    OP,
    OP_COUNT,
    OPERATION,
    OPS,
    ORDER,
    RESET_ALL,
    ROW,
    ROWS,
    S_KEY,
    S_NEXT,
    SET_LAST_PRICE,
    SLOT_COUNT,
    find,
    find_or_add,
    get,
    put,
    slot_at,
)

# Slots of the table of arguments that only the tape has, in place of those that only the fold has.
VENUES, PRICES, SIZES, TIMES, TRADE_IDS, BUYERS, SELLERS = 14, 15, 16, 17, 18, 19, 20
CONDITIONS = 24
TAPE_ARGUMENTS = 25

# A slot, behind the fold's first four fields.
T_LAST = 6  # NO, A_TRADE or PUBLISHED: where the last price comes from
T_PRICE, T_SIZE, T_TS, T_TRADE_ID, T_BUYER, T_SELLER, T_CONDITIONS, T_BUSTED = 7, 8, 9, 10, 11, 12, 13, 14
T_COUNT, T_QUANTITY, T_NOTIONAL_LOW, T_NOTIONAL_HIGH = 15, 16, 17, 18
T_FIRST, T_HIGH, T_LOW, T_BUSTS, T_UNKNOWN_BUSTS, T_NEWEST = 19, 20, 21, 22, 23, 24
T_LEFT_FIRST, T_LEFT_HIGH, T_LEFT_LOW = 25, 26, 27  # of the trades that have left the log
TAPE_SLOT = 28
NO_LAST_PRICE, FROM_TRADE, FROM_STATISTIC = 0, 1, 2

# A trade in the log; T_NEWEST and L_OLDER are an index into it + 1, or 0.
L_TRADE_ID, L_PRICE, L_SIZE, L_OLDER, L_BUSTED = 0, 1, 2, 3, 4
LOG_ENTRY = 5

NULL = -(1 << 63)
# A leg trade, and one out of sequence: trades that never move the last price (13.4, Binary TradeCondition bit 3).
NEVER_LAST_PRICE = 1 << 18 | 1 << 3
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
    old_low, old_high = np.uint64(get(s, T_NOTIONAL_LOW)), np.uint64(get(s, T_NOTIONAL_HIGH))
    if negative:
        put(s, T_NOTIONAL_LOW, np.int64(old_low - low))
        put(s, T_NOTIONAL_HIGH, np.int64(old_high - high - (np.uint64(1) if old_low < low else np.uint64(0))))
    else:
        total = old_low + low
        put(s, T_NOTIONAL_LOW, np.int64(total))
        put(s, T_NOTIONAL_HIGH, np.int64(old_high + high + (np.uint64(1) if total < low else np.uint64(0))))


@inlined
def _add_to_totals(s, price, size, sign):
    put(s, T_COUNT, get(s, T_COUNT) + sign)
    if size != NULL:
        put(s, T_QUANTITY, get(s, T_QUANTITY) + sign * size)
        if price != NULL:
            _add_product(s, price, size, sign)


@inlined
def _clear_prices(s):
    put(s, T_FIRST, NULL)
    put(s, T_HIGH, NULL)
    put(s, T_LOW, NULL)


@inlined
def _clear_totals(s):
    for word in range(T_COUNT, TAPE_SLOT):
        put(s, word, 0)
    for word in range(T_LEFT_FIRST, TAPE_SLOT):
        put(s, word, NULL)
    _clear_prices(s)


@inlined
def _is_newer(s, ts, trade_id):
    """Whether a trade is the last one: the last received need not be (10.1 NOTE 1), time and trade id say so."""
    if get(s, T_LAST) == NO_LAST_PRICE or ts == NULL or get(s, T_TS) == NULL or ts > get(s, T_TS):
        return True
    return ts == get(s, T_TS) and (trade_id == NULL or get(s, T_TRADE_ID) == NULL or trade_id >= get(s, T_TRADE_ID))


@inlined
def _add_trade(t, s, row):
    price, size, ts, trade_id = (
        get(get(t, PRICES), row),
        get(get(t, SIZES), row),
        get(get(t, TIMES), row),
        get(get(t, TRADE_IDS), row),
    )
    conditions = np.int64(load_i32(get(t, CONDITIONS), 4 * row))
    position = get(t, LOG_COUNT)
    put(t, LOG_COUNT, position + 1)
    entry = get(t, LOG) + 8 * LOG_ENTRY * position
    put(entry, L_TRADE_ID, trade_id)
    put(entry, L_PRICE, price)
    put(entry, L_SIZE, size)
    put(entry, L_OLDER, get(s, T_NEWEST))
    put(entry, L_BUSTED, 0)
    put(s, T_NEWEST, position + 1)
    _add_to_totals(s, price, size, 1)
    if price == NULL:
        return
    if get(s, T_FIRST) == NULL:
        put(s, T_FIRST, price)
    _widen(s, T_HIGH, T_LOW, price, price)
    if conditions & NEVER_LAST_PRICE == 0 and _is_newer(s, ts, trade_id):
        put(s, T_LAST, FROM_TRADE)
        put(s, T_PRICE, price)
        put(s, T_SIZE, size)
        put(s, T_TS, ts)
        put(s, T_TRADE_ID, trade_id)
        put(s, T_BUYER, get(get(t, BUYERS), row))
        put(s, T_SELLER, get(get(t, SELLERS), row))
        put(s, T_CONDITIONS, conditions)
        put(s, T_BUSTED, 0)


@inlined
def _widen(s, high, low, highest, lowest):
    """Have the range of prices in two words of a slot include these."""
    if get(s, high) == NULL or highest > get(s, high):
        put(s, high, highest)
    if get(s, low) == NULL or lowest < get(s, low):
        put(s, low, lowest)


@inlined
def _recompute_prices(t, s):
    """First, high and low of the trades that are not busted."""
    _clear_prices(s)
    older = get(s, T_NEWEST)
    while older != 0:
        entry = get(t, LOG) + 8 * LOG_ENTRY * (older - 1)
        price = get(entry, L_PRICE)
        if get(entry, L_BUSTED) == 0 and price != NULL:
            put(s, T_FIRST, price)
            _widen(s, T_HIGH, T_LOW, price, price)
        older = get(entry, L_OLDER)
    if get(s, T_LEFT_FIRST) != NULL:
        put(s, T_FIRST, get(s, T_LEFT_FIRST))
        _widen(s, T_HIGH, T_LOW, get(s, T_LEFT_HIGH), get(s, T_LEFT_LOW))


@inlined
def _bust(t, s, trade_id):
    """Take a trade out of the totals and mark it. What the exchange publishes it sends again itself (13.4)."""
    if trade_id != NULL and get(s, T_LAST) != NO_LAST_PRICE and get(s, T_TRADE_ID) == trade_id:
        put(s, T_BUSTED, 1)
    older = get(s, T_NEWEST)
    while older != 0 and trade_id != NULL:
        entry = get(t, LOG) + 8 * LOG_ENTRY * (older - 1)
        if get(entry, L_TRADE_ID) == trade_id and get(entry, L_BUSTED) == 0:
            price = get(entry, L_PRICE)
            put(entry, L_BUSTED, 1)
            put(s, T_BUSTS, get(s, T_BUSTS) + 1)
            _add_to_totals(s, price, get(entry, L_SIZE), -1)
            if price == get(s, T_FIRST) or price == get(s, T_HIGH) or price == get(s, T_LOW):
                _recompute_prices(t, s)
            return
        older = get(entry, L_OLDER)
    put(s, T_UNKNOWN_BUSTS, get(s, T_UNKNOWN_BUSTS) + 1)


@inlined
def _reset_slot(s, kind):
    if get(s, S_KEY) == HEAD:
        return
    if kind == NEW_SESSION or kind == RESET_ALL or kind == INSTRUMENT_DELETED:
        for word in range(T_LAST, T_BUSTED + 1):
            put(s, word, 0)
    if kind == NEW_SESSION or kind == INSTRUMENT_DELETED:  # no snapshot and no channel reset restores our own totals
        _clear_totals(s)


@inlined
def _apply_operation(t, op):
    """What comes between trades; False when there is no slot for a last price."""
    kind, instrument_id = get(op, O_KIND), get(op, O_ID)
    if kind == SET_LAST_PRICE or kind == CLEAR_LAST_PRICE:
        number = _find_or_add_venue(t, instrument_id, get(op, O_VENUE))
        if number == NO_SLOT:
            return False
        s = slot_at(t, number)
        put(s, T_LAST, FROM_STATISTIC if kind == SET_LAST_PRICE else NO_LAST_PRICE)
        for i in range(O_PRICE, OPERATION):
            put(s, T_PRICE + i - O_PRICE, get(op, i) if kind == SET_LAST_PRICE else 0)
        put(s, T_BUSTED, 0)
    elif instrument_id == ALL_INSTRUMENTS:
        for number in range(get(t, SLOT_COUNT)):
            _reset_slot(slot_at(t, number), kind)
    else:
        number = find(t, instrument_id, np.int64(HEAD), np.int64(0))
        while number != NO_SLOT:
            _reset_slot(slot_at(t, number), kind)
            number = get(slot_at(t, number), S_NEXT)
    return True


@inlined
def _find_or_add_venue(t, instrument_id, venue):
    before = get(t, SLOT_COUNT)
    number = find_or_add(t, instrument_id, np.int64(venue), np.int64(0))
    if number != NO_SLOT and get(t, SLOT_COUNT) != before:
        _clear_totals(slot_at(t, number))
    return number


@kernel
def run_tape(t):
    """Run rows ROW … and operations OP …; returns 0 when slots or log are full (grow, call again), else 1."""
    rows, ids, order, ops, op_count = get(t, ROWS), get(t, IDS), get(t, ORDER), get(t, OPS), get(t, OP_COUNT)
    row, op = get(t, ROW), get(t, OP)
    full = False
    while not full and (row < rows or op < op_count):
        if op < op_count and (row == rows or get(ops, OPERATION * op + O_ORDER) <= get(order, row)):
            full = not _apply_operation(t, ops + 8 * OPERATION * op)
            op += 0 if full else 1
            continue
        number = _find_or_add_venue(t, get(ids, row), np.int64(load_u8(get(t, VENUES), row)))
        if number == NO_SLOT or get(t, LOG_COUNT) == get(t, LOG_CAPACITY):
            full = True
            continue
        s = slot_at(t, number)
        if load_u8(get(t, ACTIONS), row) == DELETED:
            _bust(t, s, get(get(t, TRADE_IDS), row))
        else:
            _add_trade(t, s, row)
        row += 1
    put(t, ROW, row)
    put(t, OP, op)
    return 0 if full else 1


DROPPED, KEPT = -1, 0  # of an entry of the log, before it has a new number


@inlined
def _mark_kept(t, numbers):
    """Which trades can still be busted: those of the session of their slot."""
    for entry in range(get(t, LOG_COUNT)):
        store_i64(numbers, 8 * entry, DROPPED)
    for number in range(get(t, SLOT_COUNT)):
        s = slot_at(t, number)
        older = get(s, T_NEWEST) if get(s, S_KEY) != HEAD else np.int64(0)
        while older != 0:
            entry = get(t, LOG) + 8 * LOG_ENTRY * (older - 1)
            if get(entry, L_BUSTED) == 0:
                store_i64(numbers, 8 * (older - 1), KEPT)
            older = get(entry, L_OLDER)


@inlined
def _first_kept(t, numbers, limit):
    """The first entry to keep, if at most `limit` are kept: the newest ones."""
    first, kept = get(t, LOG_COUNT), 0
    while first > 0 and kept < limit:
        first -= 1
        kept += 1 if load_i64(numbers, 8 * first) == KEPT else 0
    return first


@inlined
def _relink_slot(t, s, numbers, first):
    """Link the entries that are kept to each other; the prices of older ones go to the slot."""
    newest, newer, leaving = np.int64(0), np.int64(0), np.int64(NULL)
    older = get(s, T_NEWEST)
    while older != 0:
        entry = get(t, LOG) + 8 * LOG_ENTRY * (older - 1)
        if load_i64(numbers, 8 * (older - 1)) != DROPPED:
            if older - 1 >= first:
                if newer == 0:
                    newest = older
                else:
                    put(newer, L_OLDER, older)
                newer = entry
            elif get(entry, L_PRICE) != NULL:
                leaving = get(entry, L_PRICE)
                _widen(s, T_LEFT_HIGH, T_LEFT_LOW, leaving, leaving)
        older = get(entry, L_OLDER)
    if newer != 0:
        put(newer, L_OLDER, 0)
    put(s, T_NEWEST, newest)
    if get(s, T_LEFT_FIRST) == NULL:
        put(s, T_LEFT_FIRST, leaving)


@kernel
def compact_log(t, numbers, limit):
    """Keep of the log the trades that can still be busted, at most `limit`. `numbers` has an int64 for each entry."""
    _mark_kept(t, numbers)
    first, kept = _first_kept(t, numbers, limit), 0
    for number in range(get(t, SLOT_COUNT)):
        if get(slot_at(t, number), S_KEY) != HEAD:
            _relink_slot(t, slot_at(t, number), numbers, first)
    for position in range(first, get(t, LOG_COUNT)):
        if load_i64(numbers, 8 * position) == KEPT:
            source, target = get(t, LOG) + 8 * LOG_ENTRY * position, get(t, LOG) + 8 * LOG_ENTRY * kept
            older = get(source, L_OLDER)
            for word in range(LOG_ENTRY):
                put(target, word, get(source, word))
            put(target, L_OLDER, load_i64(numbers, 8 * (older - 1)) if older != 0 else 0)
            kept += 1
            store_i64(numbers, 8 * position, np.int64(kept))  # from 1, as links are
    for number in range(get(t, SLOT_COUNT)):
        s = slot_at(t, number)
        if get(s, S_KEY) != HEAD and get(s, T_NEWEST) != 0:
            put(s, T_NEWEST, load_i64(numbers, 8 * (get(s, T_NEWEST) - 1)))
    put(t, LOG_COUNT, kept)
    return kept
