"""RptSeq of one published channel: it counts the updates of each instrument that the channel sends.

Binary has no trade volume and no index value, FIX/FAST no execution summary and no RptSeq in a status, so that
their numbers differ.
RptSeq restarts after an Empty Book and a channel reset, which have none themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import rpt_seq_kernel as r

COUNTED_BY_BOTH = (
    k.ADD, k.CHANGE, k.DELETE, k.DELETE_FROM, k.DELETE_THRU, k.TRADE, k.BUST, k.OPENING, k.THEORETICAL, k.CLOSING,
    k.SETTLEMENT, k.HIGH, k.LOW, k.EXECUTION, k.OPEN_INTEREST, k.LAST_PRICE, k.IMBALANCE, k.PRICE_BAND, k.QUANTITY_BAND,
)  # fmt: skip
COUNTED_BY_SBE = (*COUNTED_BY_BOTH, k.EXECUTION_SUMMARY, k.STATE)
COUNTED_BY_FAST = (*COUNTED_BY_BOTH, k.VOLUME, k.INDEX_VALUE, k.VOLATILITY, k.COMPOSITE)


class RptSeqCounter:
    """Numbers the records of a channel's streams, in the order in which they are published."""

    def __init__(self, counted: tuple[int, ...], instruments: int) -> None:
        self._modes = np.full(k.KINDS, r.NOTHING, np.int64)
        self._modes[list(counted)] = r.COUNTED
        self._modes[[k.EMPTY_BOOK, k.CHANNEL_RESET, k.SNAPSHOT_HEADER]] = r.RESTART, r.RESTART_ALL, r.LAST_COUNTED
        self._counters = np.zeros(instruments, np.int64)

    def number(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """RptSeq of each record, NULL where it has none; of a snapshot the one that it includes."""
        numbers = np.empty(len(records), np.int64)
        r.number_records(
            records.ctypes.data, len(records), self._modes.ctypes.data, self._counters.ctypes.data,
            len(self._counters), numbers.ctypes.data,
        )  # fmt: skip
        return numbers
