"""Histories of events written by hand: one row a message, in the order of the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from umdf.market.families import COMMON, FAMILIES, UNIT_COLUMNS, Column
from umdf.market.rows import Events, RepeatingGroup, Rows, Units, text_column

EventRow = tuple[str, Mapping[str, Any]]  # a family, and the values of a row; chars are written as strings
PRICE = 10**9
MORNING_NS = 1_794_571_200 * 10**9  # 2026-11-13 12:00 UTC


def build_events(*rows: EventRow, ts_send: int = MORNING_NS) -> Events:
    """A batch of rows, each in a message and packet of its own."""
    count = len(rows)
    units = Units(
        np.full(count, 72, np.int16),
        np.ones(count, np.int64),
        np.arange(1, count + 1),
        ts_send + np.arange(count, dtype=np.int64),
        np.full(count, -(1 << 63), np.int64),
    )
    families = {}
    for name in FAMILIES:
        places = [place for place, (family, _) in enumerate(rows) if family == name]
        if places:
            families[name] = _rows(name, places, [rows[place][1] for place in places])
    return Events(units, families)


def _rows(name: str, places: list[int], given: list[Mapping[str, Any]]) -> Rows:
    family, zeros = FAMILIES[name], np.zeros(len(given), np.uint16)
    known = {column.name: column for column in (*COMMON, *family.columns)}
    assert all(key in known or key in family.lists for row in given for key in row), given
    own = [column for column in known.values() if column.name not in (*UNIT_COLUMNS, "msg_index", "entry_index")]
    columns, texts = _columns(own, given)
    lists = {}
    for item, fields in family.lists.items():
        entries = [row.get(item, []) for row in given]
        if any(entries):
            offsets = np.cumsum([0, *map(len, entries)]).astype(np.int32)
            lists[item] = RepeatingGroup(offsets, *_columns(list(fields), [entry for row in entries for entry in row]))
    return Rows(family, np.array(places, np.uint32), zeros, zeros.copy(), columns, texts, lists)


def _columns(columns: list[Column], given: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    numbers, texts = {}, {}
    for column in columns:
        if column.is_text:
            texts[column.name] = text_column([row.get(column.name) for row in given])
            continue
        values = [row.get(column.name) for row in given]
        null = column.null if column.nullable else 0
        codes = [null if v is None else ord(v) if isinstance(v, str) else v for v in values]
        numbers[column.name] = np.array(codes, column.dtype)
    return numbers, texts


def trade(instrument_id: int, price: int, size: int, trade_id: int, **more: Any) -> EventRow:
    values = {"instrument_id": instrument_id, "price": price * PRICE, "size": size, "trade_id": trade_id}
    return "trades", {"action": "A", "side": "N", "venue": "E", "conditions": 0, **values, **more}


def bust(instrument_id: int, trade_id: int, **more: Any) -> EventRow:
    return "trades", {
        "action": "C",
        "side": "N",
        "venue": "E",
        "instrument_id": instrument_id,
        "trade_id": trade_id,
        **more,
    }


def statistic(instrument_id: int, stat_type: int, price: int | None = None, **more: Any) -> EventRow:
    values = {"instrument_id": instrument_id, "stat_type": stat_type, "venue": "E", "action": "A"}
    return "statistics", {**values, "price": None if price is None else price * PRICE, **more}


def status(instrument_id: int | None = None, **more: Any) -> EventRow:
    return "status", {"instrument_id": instrument_id, **more}


def define(instrument_id: int, symbol: str, group: str | None = "XX", **more: Any) -> EventRow:
    values = {"instrument_id": instrument_id, "symbol": symbol, "security_group": group, "action": "A"}
    return "definition", {**values, **more}
