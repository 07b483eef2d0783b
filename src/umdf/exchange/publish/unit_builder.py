"""Records of the journal → units of one protocol (packets or messages), and the columns of each family.

What a column of a record means depends on its kind: see `publish.events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import unit_builder_kernel as w
from umdf.market.families import FAMILIES

Records = NDArray[np.int64]
FAMILY_NAMES = tuple(FAMILIES)
_BOOK_KINDS = (k.ADD, k.CHANGE, k.DELETE, k.DELETE_FROM, k.DELETE_THRU, k.EMPTY_BOOK, k.CHANNEL_RESET, k.SNAPSHOT_ORDER)
_STATISTIC_KINDS = (
    k.OPENING,
    k.THEORETICAL,
    k.CLOSING,
    k.SETTLEMENT,
    k.HIGH,
    k.LOW,
    k.EXECUTION,
    k.VOLUME,
    k.OPEN_INTEREST,
    k.INDEX_VALUE,
    k.VOLATILITY,
    k.COMPOSITE,
)
FAMILY_OF_KIND: Mapping[int, str] = {
    **dict.fromkeys(_BOOK_KINDS, "mbo"),
    **dict.fromkeys((k.TRADE, k.BUST), "trades"),
    **dict.fromkeys((*_STATISTIC_KINDS, k.LAST_PRICE), "statistics"),
    **dict.fromkeys((k.GROUP_PHASE, k.STATE), "status"),
    **dict.fromkeys((k.PRICE_BAND, k.QUANTITY_BAND), "price_band"),
    **dict.fromkeys((k.HEARTBEAT, k.SEQUENCE_RESET), "control"),
    k.EXECUTION_SUMMARY: "execution_summary",
    k.IMBALANCE: "imbalance",
    k.DEFINITION: "definition",
    k.NEWS: "news",
    k.SNAPSHOT_HEADER: "snapshot",
}


@dataclass(frozen=True, eq=False)
class FamilyColumns:
    """The records of one family: a row of `values` for each column of a record, and one for RptSeq."""

    values: NDArray[np.int64]
    unit: NDArray[np.uint32]
    msg_index: NDArray[np.uint16]
    entry_index: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.unit)

    def __getitem__(self, column: int) -> NDArray[np.int64]:
        return self.values[column]


@dataclass(frozen=True, eq=False)
class UnitBatch:
    """Records as units: the units with their sequences and times, and the columns of each family."""

    sequence: NDArray[np.int64]  # 0 where a unit has none
    ts_ns: NDArray[np.int64]
    families: dict[str, FamilyColumns]
    record_unit: NDArray[np.int64]  # the unit of each record, -1 where it is not sent


class UnitBuilder:
    """Builds the units of one protocol. `kinds` has the bytes (0: in the record) and the unit mode of each kind."""

    def __init__(self, kernel: Any, kinds: Mapping[int, tuple[int, int]], limits: Mapping[int, int]) -> None:
        self._kernel = kernel
        self._kinds = np.full((k.KINDS, w.KIND_BYTES // 8), -1, np.int64)
        for kind, (size, mode) in kinds.items():
            self._kinds[kind, :3] = FAMILY_NAMES.index(FAMILY_OF_KIND[kind]), size, mode
        self._table = np.zeros(w.ARGUMENT_COUNT, np.int64)
        for entry, value in limits.items():
            self._table[entry] = value
        self._table[w.L_KINDS] = self._kinds.ctypes.data
        self.has_family = self._kinds[:, w.K_FAMILY] >= 0  # whether a kind of record is sent
        self._pool = Pool(max_buffers=6)

    def build(
        self, records: Records, rpt_seq: Records, next_sequence: int, *, has_columns: bool = True
    ) -> tuple[UnitBatch, int]:
        """The records as units, numbered from `next_sequence`; and the sequence after the last. Without the columns of
        families if they are not needed."""
        families: dict[str, FamilyColumns] = {}
        family_entries = np.zeros((len(FAMILY_NAMES), w.FAMILY_BYTES // 8), np.int64)
        if has_columns:
            family = self._kinds[records[:, k.KIND], w.K_FAMILY]
            counts = np.bincount(family[family >= 0], minlength=len(FAMILY_NAMES))
            families = {name: self._allocate(int(count)) for name, count in zip(FAMILY_NAMES, counts, strict=True)}
            for entry, columns in zip(family_entries, families.values(), strict=True):
                arrays = (columns.values, columns.unit, columns.msg_index, columns.entry_index)
                entry[w.F_CAPACITY], entry[w.F_COLUMNS :] = len(columns), [part.ctypes.data for part in arrays]
        sequence, ts_ns = np.empty((2, max(len(records), 1)), np.int64)
        table = self._table
        table[w.L_JOURNAL], table[w.L_ROWS], table[w.L_FAMILIES] = (
            records.ctypes.data,
            len(records),
            family_entries.ctypes.data,
        )
        table[w.L_SEQUENCE], table[w.L_TS], table[w.L_NEXT] = sequence.ctypes.data, ts_ns.ctypes.data, next_sequence
        record_unit = np.full(len(records), -1, np.int64)
        table[w.L_RPT_SEQ], table[w.L_ROW_UNITS] = rpt_seq.ctypes.data, record_unit.ctypes.data
        units = int(self._kernel(table.ctypes.data))
        non_empty = {name: columns for name, columns in families.items() if len(columns)}
        return UnitBatch(sequence[:units], ts_ns[:units], non_empty, record_unit), int(table[w.L_NEXT])

    def _allocate(self, rows: int) -> FamilyColumns:
        memory = self._pool.acquire(rows * (8 * w.FAMILY_COLUMNS + 8)) if rows else None
        if memory is None:
            return FamilyColumns(
                np.empty((w.FAMILY_COLUMNS, 0), np.int64), *(np.empty(0, kind) for kind in ("u4", "u2", "u2"))
            )
        values = memory.array[: rows * 8 * w.FAMILY_COLUMNS].view(np.int64).reshape(w.FAMILY_COLUMNS, rows)
        rest = memory.array[rows * 8 * w.FAMILY_COLUMNS : rows * (8 * w.FAMILY_COLUMNS + 8)]
        return FamilyColumns(
            values,
            rest[: 4 * rows].view(np.uint32),
            rest[4 * rows : 6 * rows].view(np.uint16),
            rest[6 * rows :].view(np.uint16),
        )
