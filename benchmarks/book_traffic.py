"""The events of the book benchmarks: 500 instruments, most events in few of them, near the best prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import book_traffic_kernel as g
from umdf.market.families import MBO
from umdf.market.rows import Rows

INSTRUMENTS = 500
MAX_LIVE_ORDERS = 20_000  # orders of one instrument


@dataclass(eq=False)
class Traffic:
    columns: dict[str, NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.columns["action"])

    @property
    def book_events(self) -> int:
        """Events without trades and others that only increment rpt_seq."""
        return int(np.isin(self.columns["action"], (g.A, g.C, g.M)).sum())

    def batches(self, size: int) -> list[Rows]:
        return [self.rows(first, first + size) for first in range(0, len(self), size)]

    def rows(self, first: int = 0, last: int | None = None) -> Rows:
        columns = {name: values[first:last] for name, values in self.columns.items()}
        count = len(columns["action"])
        return Rows(MBO, np.zeros(count, np.uint32), np.zeros(count, np.uint16), np.zeros(count, np.uint16), columns)


def generate_traffic(events: int, seed: int = 7) -> Traffic:
    columns: dict[str, NDArray[np.generic]] = {
        column.name: np.full(events, column.null, column.dtype) for column in MBO.columns if not column.is_text
    }
    for name in ("instrument_id", "rpt_seq", "flags"):
        columns[name] = np.zeros(events, MBO.column(name).dtype)
    columns["firm"] = np.random.default_rng(seed).integers(1, 200, events)
    columns["venue"][:] = ord("E")
    shares = np.cumsum(1 / np.arange(1, INSTRUMENTS + 1))
    memory = {
        g.SHARES: (shares / shares[-1] * 2**53).astype(np.int64),
        g.LIVE_COUNTS: np.zeros(INSTRUMENTS, np.int32),
        g.LIVE_ORDERS: np.empty(INSTRUMENTS * MAX_LIVE_ORDERS * g.LIVE_ORDER_BYTES, np.uint8),
        g.MIDDLE: np.arange(INSTRUMENTS, dtype=np.int64) * g.TICK * 100 + 10_000 * g.TICK,
        g.NEXT_ID: np.full(INSTRUMENTS, 1_000_000_000, np.int64),
        g.RPT_SEQ: np.zeros(INSTRUMENTS, np.int64),
    }
    names = "action side price size order_id prev_size instrument_id rpt_seq flags ts_insert".split()
    table = np.zeros(g.ARGUMENT_COUNT, np.int64)
    table[[g.EVENTS, g.INSTRUMENTS, g.MAX_LIVE_ORDERS, g.STATE]] = events, INSTRUMENTS, MAX_LIVE_ORDERS, seed
    for entry, array in memory.items():
        table[entry] = array.ctypes.data
    for entry, name in zip(range(g.ACTION, g.ARGUMENT_COUNT), names, strict=True):
        table[entry] = columns[name].ctypes.data
    g.generate_events(table.ctypes.data)
    return Traffic(columns)
