"""One side of a book of the bulk market: a sorted array of orders. The best order is last, where most changes are."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from umdf.exchange.matching.memory_layout_kernel import (
    I_BIDS,
    I_CAPACITY,
    I_ORDERS_OFFSET,
    I_TICK,
    MARKET_ORDER_KEY,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    ORDER_BYTES,
    ORDERS,
)
from umdf.kernels import inlined, load_i64, store_i64


def _memmove() -> Any:
    @intrinsic
    def move(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte, long, name = ir.IntType(8).as_pointer(), ir.IntType(64), "llvm.memmove.p0i8.p0i8.i64"
            kind = ir.FunctionType(ir.VoidType(), [byte, byte, long, ir.IntType(1)])
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            pointers = [builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte)]
            builder.call(function, [*pointers, args[2], ir.IntType(1)(0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return move


memmove = _memmove()  # size bytes from source to target, which may overlap


@inlined
def side_address(t, instrument, side):
    """The address of the orders of a side (0 bids, 1 asks)."""
    offset = load_i64(instrument, I_ORDERS_OFFSET * 8) + side * load_i64(instrument, I_CAPACITY * 8)
    return load_i64(t, ORDERS * 8) + offset * ORDER_BYTES


@inlined
def order_count(instrument, side):
    return load_i64(instrument, (I_BIDS + side) * 8)


@inlined
def set_order_count(instrument, side, count):
    store_i64(instrument, (I_BIDS + side) * 8, count)


@inlined
def price_of(instrument, side, key):
    if key == MARKET_ORDER_KEY:
        return np.int64(NULL)
    return (key if side == 0 else -key) * load_i64(instrument, I_TICK * 8)


@inlined
def find_order(orders, count, key, order_id):
    """The index of an order, or the index at which it would be inserted."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        order = orders + middle * ORDER_BYTES
        found_key = load_i64(order, O_KEY * 8)
        if found_key < key or (found_key == key and load_i64(order, O_ID * 8) > order_id):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def is_order_at(orders, count, index, key, order_id):
    order = orders + index * ORDER_BYTES
    return index < count and load_i64(order, O_KEY * 8) == key and load_i64(order, O_ID * 8) == order_id


@inlined
def locate(t, instrument, side, key, order_id):
    """The index of an order in its side, -1 if it is not there."""
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    index = find_order(orders, count, key, order_id)
    return index if is_order_at(orders, count, index, key, order_id) else np.int64(-1)


@inlined
def insert(t, instrument, side, key, order_id, size, reserve, firm, ts, display, terms):
    """Insert an order and return its position, 1 at the top. The side must not be full."""
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    index = find_order(orders, count, key, order_id)
    order = orders + index * ORDER_BYTES
    memmove(order + ORDER_BYTES, order, (count - index) * ORDER_BYTES)
    store_i64(order, O_KEY * 8, key)
    store_i64(order, O_ID * 8, order_id)
    store_i64(order, O_SIZE * 8, size)
    store_i64(order, O_RESERVE * 8, reserve)
    store_i64(order, O_FIRM * 8, firm)
    store_i64(order, O_INSERT * 8, ts)
    store_i64(order, O_DISPLAY * 8, display)
    store_i64(order, O_TERMS * 8, terms)
    set_order_count(instrument, side, count + 1)
    return count + 1 - index


@inlined
def remove(t, instrument, side, index):
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    order = orders + index * ORDER_BYTES
    memmove(order, order + ORDER_BYTES, (count - 1 - index) * ORDER_BYTES)
    set_order_count(instrument, side, count - 1)
