"""Instruments by their ids, places in what is sorted, records at some rows: where numpy takes much longer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import address_of
from umdf.lake import instruments_kernel as k

Numbers = NDArray[np.int64]


def ids_and_counts(ids: Numbers) -> tuple[Numbers, Numbers]:
    """Ids, each once, and how many rows each has."""
    ids = np.ascontiguousarray(ids, np.int64)
    table, found, counts = np.zeros(2 * k.SLOTS, np.int64), np.empty(k.MOST, np.int64), np.empty(k.MOST, np.int64)
    count = k.count_ids(address_of(ids), len(ids), address_of(table), address_of(found), address_of(counts))
    return np.unique(ids, return_counts=True) if count < 0 else (found[:count], counts[:count])


def places_of(known: Numbers, ids: Numbers) -> NDArray[np.int32]:
    """The place of each id among those known, which are sorted and have it."""
    if len(known) > k.MOST:
        return np.searchsorted(known, ids).astype(np.int32)
    known, ids = np.ascontiguousarray(known, np.int64), np.ascontiguousarray(ids, np.int64)
    table, places = np.zeros(2 * k.SLOTS, np.int64), np.empty(len(ids), np.int32)
    k.find_ids(address_of(known), len(known), address_of(ids), len(ids), address_of(table), address_of(places))
    return places


def distinct(*columns: NDArray[np.int32]) -> list[int]:
    """The values of some columns, sorted: mostly there is one."""
    found: set[int] = set()
    for column in columns:
        if len(column):
            low, high = int(column.min()), int(column.max())
            found |= {low} if low == high else set(np.unique(column).tolist())
    return sorted(found)


def taken(records: NDArray[np.void], rows: NDArray[Any]) -> NDArray[np.void]:
    """Records at some rows, moved as bytes: numpy would move them field by field."""
    if not len(records):
        return records[rows]
    content = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    return np.take(content, rows, axis=0).reshape(-1).view(records.dtype)


def last_before(keys: Numbers, asked: Numbers) -> Numbers:
    """For each number the place of the last key (sorted) that is not larger; -1: there is none."""
    keys, asked = np.ascontiguousarray(keys, np.int64), np.ascontiguousarray(asked, np.int64)
    places = np.empty(len(asked), np.int64)
    k.last_before(address_of(keys), len(keys), address_of(asked), len(asked), address_of(places))
    return places
