"""Loops of an instrument stream that were received completely, so that what they lack does not exist (4.2.5, 7.3).

Invariant: parts of two loops are never taken for one. Only units of one line with consecutive numbers from 1 to the one
with the end (893) are a loop, sent one after the other, all with the same number of instruments (393), if they state
it, and with as many instruments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from umdf.market.families import NULL
from umdf.sync.raw_units import RawUnits
from umdf.sync.unit_codecs import DecodedUnits


@dataclass(frozen=True)
class InstrumentList:
    """All instruments of a channel, as one loop had them."""

    ts_send: int  # of its first unit, as is the receive time
    ts_recv: int
    instrument_ids: frozenset[int]


@dataclass
class _Loop:
    epoch: int
    ts_send: int
    ts_recv: int
    number: int = 0  # of its last unit
    ts_last: int = NULL  # when that was sent
    total: int = NULL  # 393
    instrument_ids: set[int] = field(default_factory=set)

    def add(self, ids: list[int], totals: list[int]) -> bool:
        """Definitions of a unit. Returns whether they can be of this loop."""
        self.instrument_ids.update(ids)
        stated = {*totals, self.total} - {NULL}
        self.total = max(stated, default=NULL)
        return len(stated) <= 1

    @property
    def has_all(self) -> bool:
        return self.total in (NULL, len(self.instrument_ids))


class ListLoops:
    """Of one channel."""

    def __init__(self) -> None:
        self._open: dict[int, _Loop] = {}  # by line

    def read(self, units: RawUnits, decoded: DecodedUnits) -> list[tuple[int, InstrumentList]]:
        """The lists that these units complete, each with the unit that does."""
        rows, found = decoded.events.rows("definition"), list[tuple[int, InstrumentList]]()
        bounds = np.searchsorted(rows.unit, np.arange(len(units) + 1)).tolist()
        names = ("instrument_id", "total_instruments", "is_last")
        ids, totals, ends = (rows.column(name).tolist() for name in names)
        columns = (units.line, units.sequence, units.epoch, decoded.events.units.ts_send, units.ts_recv)
        values = zip(*(column.tolist() for column in (*columns, decoded.damaged)), strict=True)
        for unit, (line, number, epoch, ts_send, ts_recv, is_damaged) in enumerate(values):
            if number == 1:
                self._open[line] = _Loop(epoch, ts_send, ts_recv)
            loop = self._open.get(line)
            if loop is None or (number <= loop.number and epoch == loop.epoch):
                continue  # delivered twice
            is_next = number == loop.number + 1 and epoch == loop.epoch and ts_send >= loop.ts_last
            own = slice(bounds[unit], bounds[unit + 1])
            if is_damaged or not is_next or not loop.add(ids[own], totals[own]):
                del self._open[line]
                continue
            loop.number, loop.ts_last = number, ts_send
            if 1 in ends[own]:
                del self._open[line]
                if loop.has_all:
                    found.append((unit, InstrumentList(loop.ts_send, loop.ts_recv, frozenset(loop.instrument_ids))))
        return found
