"""Lines of the journal → events of one wire: units (packets or messages) and the columns of each family.

What a column of a line means depends on its kind; COLUMNS says it, family by family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool
from umdf.exchange import bulk_layout_kernel as w
from umdf.exchange import bulk_places_kernel as k
from umdf.market.events import FAMILIES

Lines = NDArray[np.int64]
FAMILY_NAMES = tuple(FAMILIES)
_BOOK = (k.ADD, k.CHANGE, k.DELETE, k.DELETE_FROM, k.DELETE_THRU, k.EMPTY_BOOK, k.CHANNEL_RESET, k.SNAPSHOT_ORDER)
_STATISTICS = (k.OPENING, k.THEORETICAL, k.CLOSING, k.SETTLEMENT, k.HIGH, k.LOW, k.EXECUTION, k.VOLUME, k.INTEREST)
FAMILY_OF_KIND: Mapping[int, str] = {
    **dict.fromkeys(_BOOK, "mbo"),
    **dict.fromkeys((k.TRADE, k.BUST), "trades"),
    **dict.fromkeys((*_STATISTICS, k.LAST_PRICE), "statistics"),
    **dict.fromkeys((k.GROUP_PHASE, k.STATE), "status"),
    **dict.fromkeys((k.PRICE_BAND, k.QUANTITY_BAND), "price_band"),
    **dict.fromkeys((k.HEARTBEAT, k.SEQUENCE_RESET), "control"),
    k.SUMMARY: "execution_summary",
    k.IMBALANCE: "imbalance",
    k.DEFINITION: "definition",
    k.NEWS: "news",
    k.SNAPSHOT_HEADER: "snapshot",
}


@dataclass(frozen=True, eq=False)
class Columns:
    """The lines of one family: a row of `values` for each column of a line."""

    values: NDArray[np.int64]
    unit: NDArray[np.uint32]
    msg_index: NDArray[np.uint16]
    entry_index: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.unit)

    def __getitem__(self, column: int) -> NDArray[np.int64]:
        return self.values[column]


@dataclass(frozen=True, eq=False)
class Laid:
    """Lines laid out: the units with their numbers and times, and the columns of each family."""

    sequence: NDArray[np.int64]  # 0 where a unit has no number
    ts_ns: NDArray[np.int64]
    families: dict[str, Columns]


class LayOut:
    """Lays lines out for one wire. `kinds` says how each kind is sent: bytes (0: the line says it), and how."""

    def __init__(self, kernel: Any, kinds: Mapping[int, tuple[int, int]], limits: Mapping[int, int]) -> None:
        self._kernel = kernel
        self._kinds = np.full((k.KINDS, w.KIND_BYTES // 8), -1, np.int64)
        for kind, (size, how) in kinds.items():
            self._kinds[kind, :3] = FAMILY_NAMES.index(FAMILY_OF_KIND[kind]), size, how
        self._table = np.zeros(w.LAYOUT, np.int64)
        for place, value in limits.items():
            self._table[place] = value
        self._table[w.L_KINDS] = self._kinds.ctypes.data
        self._pool = Pool(most_kept=6)

    def lay_out(self, lines: Lines, following: int) -> tuple[Laid, int]:
        """The lines as units, numbered from `following` on; and the number after the last."""
        family = self._kinds[lines[:, k.KIND], w.K_FAMILY]
        counts = np.bincount(family[family >= 0], minlength=len(FAMILY_NAMES))
        families = {name: self._columns(int(count)) for name, count in zip(FAMILY_NAMES, counts, strict=True)}
        places = np.zeros((len(FAMILY_NAMES), w.FAMILY_BYTES // 8), np.int64)
        for place, columns in zip(places, families.values(), strict=True):
            parts = (columns.values, columns.unit, columns.msg_index, columns.entry_index)
            place[w.F_CAPACITY], place[w.F_COLUMNS :] = len(columns), [part.ctypes.data for part in parts]
        sequence, ts_ns = np.empty((2, max(len(lines), 1)), np.int64)
        table = self._table
        table[w.L_JOURNAL], table[w.L_ROWS], table[w.L_FAMILIES] = lines.ctypes.data, len(lines), places.ctypes.data
        table[w.L_SEQUENCE], table[w.L_TS], table[w.L_NEXT] = sequence.ctypes.data, ts_ns.ctypes.data, following
        units = int(self._kernel(table.ctypes.data))
        there = {name: columns for name, columns in families.items() if len(columns)}
        return Laid(sequence[:units], ts_ns[:units], there), int(table[w.L_NEXT])

    def _columns(self, rows: int) -> Columns:
        memory = self._pool.take(rows * (8 * k.LINE + 8)) if rows else None
        if memory is None:
            return Columns(np.empty((k.LINE, 0), np.int64), *(np.empty(0, kind) for kind in ("u4", "u2", "u2")))
        values = memory.array[: rows * 8 * k.LINE].view(np.int64).reshape(k.LINE, rows)
        rest = memory.array[rows * 8 * k.LINE : rows * (8 * k.LINE + 8)]
        return Columns(
            values,
            rest[: 4 * rows].view(np.uint32),
            rest[4 * rows : 6 * rows].view(np.uint16),
            rest[6 * rows :].view(np.uint16),
        )
