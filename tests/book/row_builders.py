"""Rows of the family mbo written by hand: a dict for each, with only what it carries; prices as text or as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from umdf.book.engine import MBO_COLUMNS
from umdf.market.families import MBO
from umdf.market.rows import Rows

Row = Mapping[str, Any]
PETR = 9001  # an instrument


def rows(*written: Row) -> Rows:
    """Each row as {column: value}; chars as text, prices like "10.58" or in units of 1e-9; absent is NULL."""
    return rows_of(written)


def rows_of(written: Iterable[Row]) -> Rows:
    wanted = list(written)
    columns = {}
    for name in MBO_COLUMNS:
        column = MBO.column(name)
        null = column.null if column.nullable else 0
        columns[name] = np.array([_value(name, row.get(name), null) for row in wanted], column.dtype)
    count = len(wanted)
    return Rows(MBO, np.zeros(count, np.uint32), np.zeros(count, np.uint16), np.arange(count, dtype=np.uint16), columns)


def _value(name: str, value: Any, null: int) -> int:
    if value is None:
        return null
    if name == "price":
        return price(value)
    return ord(value) if isinstance(value, str) else int(value)


def price(value: str | int) -> int:
    return int(Decimal(value).scaleb(9)) if isinstance(value, str) else value


def order(
    action: str, side: str, order_id: int | None, px: str | int | None, size: int | None, **more: Any
) -> dict[str, Any]:
    """One order of PETR."""
    return {
        "instrument_id": PETR, "action": action, "side": side, "order_id": order_id, "price": px, "size": size, **more
    }  # fmt: skip


def level(action: str, side: str, px: str | None, size: int | None, count: int | None, **more: Any) -> dict[str, Any]:
    """One price of PETR."""
    return {
        "instrument_id": PETR, "action": action, "side": side, "price": px, "size": size, "order_count": count, **more
    }  # fmt: skip
