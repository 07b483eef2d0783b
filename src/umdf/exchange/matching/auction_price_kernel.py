"""The price of an auction. The specification states no rule; this is ours:

1. the most quantity, 2. the least left over, 3. the price nearest to a reference (the last trade, else the closing
price); and every order with a better price than the result is filled. Any tick between the lowest and the highest
limit price can be the result. Without a limit order there is none: nothing tells the price.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import MARKET_ORDER_KEY, NULL, O_KEY, O_SIZE, ORDER_BYTES
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

R_VOLUME, R_TICKS, R_IMBALANCE = 0, 1, 2  # the result; the imbalance is positive if buyers are left
RESULT_WORDS = 3
NO_TICKS = np.int64(NULL)


@inlined
def key_at(orders, index):
    return load_i64(orders, index * ORDER_BYTES + O_KEY * 8)


@inlined
def size_at(orders, index):
    return load_i64(orders, index * ORDER_BYTES + O_SIZE * 8)


@inlined
def best_limit_key(orders, index):
    """The key of the best limit order from `index` down; NO_TICKS if there is none."""
    while index >= 0 and key_at(orders, index) == MARKET_ORDER_KEY:
        index -= 1
    return key_at(orders, index) if index >= 0 else NO_TICKS


@inlined
def quantity_with_key(orders, index, left, key):
    """The quantity with a key, of the orders from `index` down, of which the first has `left`."""
    quantity, size = np.int64(0), left
    while index >= 0 and key_at(orders, index) >= key:
        if key_at(orders, index) == key:
            quantity += size
        index -= 1
        if index >= 0:
            size = size_at(orders, index)
    return quantity


@outlined
def find_auction_price(bids, bid_count, asks, ask_count, reference, result):
    """Store quantity, price in ticks and imbalance of an auction; the quantity is 0 if nothing trades."""
    bid, ask, volume = bid_count - 1, ask_count - 1, np.int64(0)
    bid_left = size_at(bids, bid) if bid >= 0 else np.int64(0)
    ask_left = size_at(asks, ask) if ask >= 0 else np.int64(0)
    bid_key, ask_key = NO_TICKS, NO_TICKS  # of the last orders that match
    while bid >= 0 and ask >= 0 and key_at(bids, bid) + key_at(asks, ask) >= 0:
        bid_key, ask_key = key_at(bids, bid), key_at(asks, ask)
        size = min(bid_left, ask_left)
        volume, bid_left, ask_left = volume + size, bid_left - size, ask_left - size
        if bid_left == 0:
            bid -= 1
            bid_left = size_at(bids, bid) if bid >= 0 else np.int64(0)
        if ask_left == 0:
            ask -= 1
            ask_left = size_at(asks, ask) if ask >= 0 else np.int64(0)
    best_bid, best_ask = best_limit_key(bids, bid_count - 1), best_limit_key(asks, ask_count - 1)
    store_i64(result, R_VOLUME * 8, 0)
    store_i64(result, R_IMBALANCE * 8, 0)
    if volume == 0 or (best_bid == NO_TICKS and best_ask == NO_TICKS):
        return
    # Every price from `lowest` to `highest` trades the most. NO_TICKS is below all keys, of both sides.
    worst_bid = key_at(bids, 0) if best_bid != NO_TICKS else -best_ask
    worst_ask = -key_at(asks, 0) if best_ask != NO_TICKS else best_bid
    highest, lowest = bid_key, -ask_key
    if bid_key == MARKET_ORDER_KEY:
        highest = max(best_bid, worst_ask)
    if ask_key == MARKET_ORDER_KEY:
        lowest = min(worst_bid, -best_ask) if best_ask != NO_TICKS else worst_bid
    next_bid, next_ask = best_limit_key(bids, bid), best_limit_key(asks, ask)  # the best limit orders left over
    left_bids = quantity_with_key(bids, bid, bid_left, next_bid) if next_bid != NO_TICKS else np.int64(0)
    left_asks = quantity_with_key(asks, ask, ask_left, next_ask) if next_ask != NO_TICKS else np.int64(0)
    low = max(lowest, next_bid + 1)
    high = min(highest, -next_ask - 1) if next_ask != NO_TICKS else highest
    if low <= high:  # no limit order is left over: the nearest to the reference
        ticks = min(max(reference, low), high)
    elif next_bid != NO_TICKS and next_bid >= highest:
        ticks = highest
    elif next_ask != NO_TICKS and -next_ask <= lowest:
        ticks = lowest
    else:  # bids and asks are left over, one tick apart
        nearer_to_bid = abs(reference - next_bid) <= abs(reference + next_ask)
        takes_bid = left_bids < left_asks or (left_bids == left_asks and nearer_to_bid)
        ticks = next_bid if takes_bid else -next_ask
    imbalance = quantity_with_key(bids, bid, bid_left, MARKET_ORDER_KEY)
    imbalance -= quantity_with_key(asks, ask, ask_left, MARKET_ORDER_KEY)
    if next_bid == ticks:
        imbalance += left_bids
    if next_ask == -ticks and next_ask != NO_TICKS:
        imbalance -= left_asks
    store_i64(result, R_VOLUME * 8, volume)
    store_i64(result, R_TICKS * 8, ticks)
    store_i64(result, R_IMBALANCE * 8, imbalance)


@kernel
def auction_price(bids, bid_count, asks, ask_count, reference, result):
    """`find_auction_price` for Python: sides as the market keeps them, the best order last."""
    find_auction_price(bids, bid_count, asks, ask_count, reference, result)
    return load_i64(result, R_VOLUME * 8)
