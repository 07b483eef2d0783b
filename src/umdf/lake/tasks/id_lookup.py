"""Lookups by instrument ID, positions in sorted arrays, and selection of records: much faster than with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.tasks import id_lookup_kernel as k

Numbers = NDArray[np.int64]


def count_by_id(ids: Numbers) -> tuple[Numbers, Numbers]:
    """Distinct IDs, and the number of rows of each."""
    ids = np.ascontiguousarray(ids, np.int64)
    table, found, counts = np.zeros(2 * k.SLOTS, np.int64), np.empty(k.MAX_IDS, np.int64), np.empty(k.MAX_IDS, np.int64)
    count = k.count_ids(
        buffer_address(ids), len(ids), buffer_address(table), buffer_address(found), buffer_address(counts)
    )
    return np.unique(ids, return_counts=True) if count < 0 else (found[:count], counts[:count])


def indices_of_ids(known: Numbers, ids: Numbers) -> NDArray[np.int32]:
    """The index of each ID in `known`, which is sorted and contains it."""
    if len(known) > k.MAX_IDS:
        return np.searchsorted(known, ids).astype(np.int32)
    known, ids = np.ascontiguousarray(known, np.int64), np.ascontiguousarray(ids, np.int64)
    table, indices = np.zeros(2 * k.SLOTS, np.int64), np.empty(len(ids), np.int32)
    k.find_ids(
        buffer_address(known), len(known), buffer_address(ids), len(ids), buffer_address(table), buffer_address(indices)
    )
    return indices


def distinct_values(*columns: NDArray[np.int32]) -> list[int]:
    """The distinct values of some columns, sorted; mostly there is one."""
    found: set[int] = set()
    for column in columns:
        if len(column):
            low, high = int(column.min()), int(column.max())
            found |= {low} if low == high else set(np.unique(column).tolist())
    return sorted(found)


def take_records(records: NDArray[np.void], rows: NDArray[Any]) -> NDArray[np.void]:
    """The records at some rows, copied as bytes: numpy would copy them field by field."""
    if not len(records):
        return records[rows]
    content = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    return np.take(content, rows, axis=0).reshape(-1).view(records.dtype)


def last_at_or_before(keys: Numbers, values: Numbers) -> Numbers:
    """For each value the index of the last key (sorted) that is not larger; -1 if there is none."""
    keys, values = np.ascontiguousarray(keys, np.int64), np.ascontiguousarray(values, np.int64)
    indices = np.empty(len(values), np.int64)
    k.last_at_or_before(buffer_address(keys), len(keys), buffer_address(values), len(values), buffer_address(indices))
    return indices
