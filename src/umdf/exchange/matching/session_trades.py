"""The trades of the session, from the journal: what is left of statistics when a trade is busted or amended (13.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UsageError
from umdf.exchange.matching import memory_layout_kernel as k

Records = NDArray[np.int64]
T_INSTRUMENT, T_ID, T_PRICE, T_SIZE, T_BUYER, T_SELLER, T_TS, T_CODE, T_FLAGS = range(9)
COLUMNS = [k.INSTRUMENT, k.ID, k.PRICE, k.SIZE, k.FIRM, k.OTHER, k.TS, k.CODE, k.FLAGS]


@dataclass(frozen=True)
class SessionTrade:
    trade_id: int
    price: int
    size: int
    buyer: int
    seller: int
    ts_ns: int
    conditions: int
    flags: int

    @property
    def implied_flag(self) -> int:
        """IMPLIED if it has resulted from an implied order: its bust has it too (Binary 9.2.27)."""
        return self.flags & k.IMPLIED


class SessionTrades:
    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []
        self._busted: set[tuple[int, int]] = set()  # index of the instrument, trade id

    def clear(self) -> None:
        """A new session begins: trade ids are unique within one."""
        self._parts.clear()
        self._busted.clear()

    def follow(self, records: Records) -> None:
        """Take over trades and busts of the journal."""
        trades = records[records[:, k.KIND] == k.TRADE]
        if len(trades):
            self._parts.append(trades[:, COLUMNS])
        busts = records[records[:, k.KIND] == k.BUST]
        self._busted.update(zip(busts[:, k.INSTRUMENT].tolist(), busts[:, k.ID].tolist(), strict=True))

    def of(self, index: int) -> NDArray[np.int64]:
        """The trades of an instrument that are not busted, in their order."""
        trades = [part[part[:, T_INSTRUMENT] == index] for part in self._parts]
        rows = np.concatenate([np.zeros((0, len(COLUMNS)), np.int64), *trades])
        busted = [trade_id for instrument, trade_id in self._busted if instrument == index]
        return rows[~np.isin(rows[:, T_ID], busted)]

    def find(self, index: int, trade_id: int) -> SessionTrade:
        rows = self.of(index)
        rows = rows[rows[:, T_ID] == trade_id]
        if not len(rows):
            raise UsageError(f"unknown trade: {trade_id}", "use a trade of this session that is not busted")
        return SessionTrade(*rows[0, T_ID:].tolist())
