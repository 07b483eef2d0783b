"""The running trades: last price, and our own totals, of each instrument and venue.

Invariant: the totals are ours. What the exchange publishes (high, low, VWAP, volume) is kept apart in `statistics`, so
that each can be checked against the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.market.families import NULL
from umdf.market.latest_rows import Operations, SlotTable
from umdf.market.rows import Numbers, Rows
from umdf.market.statistics_kernel import (
    ACTIONS,
    HEAD,
    IDS,
    LOG,
    LOG_CAPACITY,
    LOG_COUNT,
    OP,
    OP_COUNT,
    OPS,
    ORDER,
    ROW,
    ROWS,
    S_ID,
    S_KEY,
)
from umdf.market.tape_kernel import (
    BUYERS,
    CONDITIONS,
    FROM_STATISTIC,
    LOG_ENTRY,
    PRICES,
    SELLERS,
    SIZES,
    T_BUSTED,
    T_CONDITIONS,
    T_COUNT,
    T_FIRST,
    T_LAST,
    T_NOTIONAL_HIGH,
    T_NOTIONAL_LOW,
    T_PRICE,
    T_QUANTITY,
    TAPE_ARGUMENTS,
    TAPE_SLOT,
    TIMES,
    TRADE_IDS,
    VENUES,
    compact_log,
    run_tape,
)

INITIAL_LOG_ROWS = 1024
# Trades that a bust can be matched with: those of the session, at most this many of a channel (84 MB). No channel has
# so many trades in a session; if one had, busts of the oldest would be counted as busts of unknown trades.
MAX_LOG_ROWS = 1 << 21
_COLUMNS = {
    ACTIONS: "action",
    VENUES: "venue",
    PRICES: "price",
    SIZES: "size",
    TIMES: "ts_event",
    TRADE_IDS: "trade_id",
    BUYERS: "buyer",
    SELLERS: "seller",
    CONDITIONS: "conditions",
    IDS: "instrument_id",
}


@dataclass(frozen=True, slots=True)
class LastPrice:
    """The last price: of a trade, or as the exchange published it (277=U, LastTradePrice_27, a snapshot)."""

    price: int
    size: int | None
    ts_event: int | None
    trade_id: int | None
    buyer: int | None
    seller: int | None
    conditions: int
    is_trade: bool
    is_busted: bool  # the trade was cancelled; its price stays until the exchange sends another (13.4)


@dataclass(frozen=True, slots=True)
class TradeTotals:
    """Totals of the trades seen, without busted ones."""

    trades: int
    quantity: int
    notional: int  # sum of price · size, in units of 1e-9
    first: int | None
    high: int | None
    low: int | None
    busts: int
    unknown_busts: int  # of trades that were never seen

    @property
    def vwap(self) -> int | None:
        """In units of 1e-9, rounded half to even."""
        if self.quantity <= 0:
            return None
        whole, rest = divmod(self.notional, self.quantity)
        return whole + (2 * rest > self.quantity or (2 * rest == self.quantity and whole & 1))


class Tape:
    """Last price and count of every (instrument, venue)."""

    def __init__(self, max_log_rows: int = MAX_LOG_ROWS) -> None:
        self._max_log_rows = max_log_rows
        self._slots = SlotTable(TAPE_SLOT, TAPE_ARGUMENTS)
        self._log: NDArray[np.int64] = np.zeros((INITIAL_LOG_ROWS, LOG_ENTRY), np.int64)

    def apply(self, rows: Rows, ops: Operations) -> None:
        """Apply trades, with the operations between them."""
        arguments, kept_alive = self._slots.arguments, []
        for argument, name in _COLUMNS.items():
            values = np.ascontiguousarray(rows.column(name), rows.family.column(name).dtype)
            kept_alive.append(values)
            arguments[argument] = buffer_address(values) if len(values) else 0
        order = rows.wire_order
        arguments[ORDER] = buffer_address(order) if len(order) else 0
        arguments[OPS] = buffer_address(ops) if len(ops) else 0
        arguments[ROWS], arguments[ROW], arguments[OP_COUNT], arguments[OP] = len(rows), 0, len(ops), 0
        done = 0
        while not done:
            self._slots.grow_if_full()
            if arguments[LOG_COUNT] == len(self._log):
                self._make_room()
            arguments[LOG], arguments[LOG_CAPACITY] = buffer_address(self._log), len(self._log)
            done = run_tape(self._slots.address)

    def _make_room(self) -> None:
        """Drop the trades that cannot be busted any more; have a larger log if most still can."""
        size = len(self._log)
        numbers = np.empty(size, np.int64)
        limit = size if size < self._max_log_rows else size // 2
        kept = compact_log(self._slots.address, buffer_address(numbers), limit)
        if kept > size // 2:
            self._log = np.concatenate([self._log, np.zeros_like(self._log)])

    def venues_of(self, instrument_id: int) -> dict[int, tuple[LastPrice | None, TradeTotals]]:
        """By venue (1500 as a code, 0 where none was sent)."""
        return {int(slot[S_KEY]): _read_slot(slot) for slot in self._slots.slots_of(instrument_id)}

    def all_venues(self) -> list[tuple[int, int, LastPrice | None, TradeTotals]]:
        """(instrument, venue, last, count), sorted."""
        used = self._slots.used_slots
        used = used[used[:, S_KEY] != HEAD]
        used = used[np.lexsort((used[:, S_KEY], used[:, S_ID]))]
        return [(int(slot[S_ID]), int(slot[S_KEY]), *_read_slot(slot)) for slot in used]

    def export(self) -> dict[str, Numbers]:
        return {
            "slots": self._slots.used_slots.copy(),
            "log": self._log[: int(self._slots.arguments[LOG_COUNT])].copy(),
        }

    def restore(self, state: dict[str, Numbers]) -> None:
        self._slots.restore(state["slots"])
        count = len(state["log"])
        self._log = np.zeros((max(INITIAL_LOG_ROWS, count), LOG_ENTRY), np.int64)
        self._log[:count] = state["log"]
        self._slots.arguments[LOG_COUNT] = count


def _read_slot(slot: NDArray[np.int64]) -> tuple[LastPrice | None, TradeTotals]:
    numbers = slot.tolist()
    optional = [None if number == NULL else number for number in numbers]
    last, (price, size, ts_event, trade_id, buyer, seller) = None, optional[T_PRICE : T_PRICE + 6]
    if numbers[T_LAST] and price is not None:
        is_trade, conditions = numbers[T_LAST] != FROM_STATISTIC, max(numbers[T_CONDITIONS], 0)
        last = LastPrice(price, size, ts_event, trade_id, buyer, seller, conditions, is_trade, bool(numbers[T_BUSTED]))
    notional = (numbers[T_NOTIONAL_HIGH] << 64) + (numbers[T_NOTIONAL_LOW] & (1 << 64) - 1)
    first, high, low = optional[T_FIRST : T_FIRST + 3]
    busts = numbers[T_FIRST + 3 : T_FIRST + 5]
    return last, TradeTotals(numbers[T_COUNT], numbers[T_QUANTITY], notional, first, high, low, *busts)
