"""The bulk market: the memory that the kernels work on, and what is said by hand (phases, bands, settlement prices …).

Everything that happens is a line of the journal; `take` hands the lines over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool
from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_auction_kernel import uncross_all, withdraw_all
from umdf.exchange.bulk_flow_kernel import bust_all, flow
from umdf.exchange.bulk_listing import Listing
from umdf.exchange.bulk_settings import POSITION, SECOND_NS, BulkSettings
from umdf.exchange.bulk_snapshot_kernel import send_again, snapshots

Lines = NDArray[np.int64]  # LINE columns
Indices = NDArray[np.int64]

BATCH_ROWS = 32_768
DEATHS = 1 << 18
LEAST_ORDERS, MOST_ORDERS = 32, 1_024  # of a side
FIRST_ORDER_ID, FIRST_IMPLIED_ID = 1_000_000_000, 1 << 62
STEP_NS = 2_000  # between things said by hand
# Log-linear between these. Trades, replacements and full books end the long ones early: seen are 1 ms, 20 ms, 9–19 s.
LIFETIMES_NS = ((0.0, 1e4), (0.1, 1e6), (0.5, 2.2e7), (0.8, 1.7e10), (1.0, 9e10))
ARRIVALS_PER_MESSAGE, NORMAL_SHARE = 0.55, 0.35  # measured; the rate outside of bursts, of the mean


class Market:
    def __init__(self, listing: Listing, settings: BulkSettings) -> None:
        self.listing = listing
        count = len(listing)
        capacity = np.clip((listing.weight * 8_192).astype(np.int64), LEAST_ORDERS, MOST_ORDERS)
        self.margin = 8 * int(capacity.max()) + 1_024
        self._pool = Pool(most_kept=8)
        self._journal: Memory = self._pool.take((BATCH_ROWS + self.margin) * k.LINE_BYTES)
        self.table = np.zeros(k.ARGUMENTS, np.int64)
        self.instruments = np.zeros((count, k.INSTRUMENT_WORDS), np.int64)
        self.orders = np.zeros((int(2 * capacity.sum()) + 1, k.ORDER_BYTES // 8), np.int64)
        self._tables = _quantile_tables()
        self._picks = _picks(listing)
        self._deaths = np.zeros((2, DEATHS, k.DEATH_BYTES // 8), np.int64)
        self._scratch = np.zeros(4_096, np.uint8)
        self._list(listing, capacity)
        table = self.table
        table[k.RNG] = np.random.default_rng([settings.seed, 1]).integers(1, 1 << 62)
        table[k.MARGIN], table[k.INSTRUMENTS], table[k.COUNT] = self.margin, self.instruments.ctypes.data, count
        table[k.ORDERS], table[k.SCRATCH] = self.orders.ctypes.data, self._scratch.ctypes.data
        table[k.NEAR], table[k.FAR] = self._deaths[0].ctypes.data, self._deaths[1].ctypes.data
        table[k.DEATHS_CAPACITY], table[k.PICKS] = DEATHS, self._picks.ctypes.data
        for place, values in zip((k.LIFETIMES, k.GAPS, k.DEPTHS), self._tables, strict=True):
            table[place] = values.ctypes.data
        table[k.ORDER_ID], table[k.IMPLIED_ID] = FIRST_ORDER_ID, FIRST_IMPLIED_ID
        table[k.POSITION_GENERATION] = settings.generation == POSITION
        table[k.HEARTBEAT_NS] = SECOND_NS
        table[k.BASE_GAP] = table[k.MEAN_GAP] = int(SECOND_NS / (settings.rate * ARRIVALS_PER_MESSAGE * NORMAL_SHARE))
        self._point()

    def _list(self, listing: Listing, capacity: Indices) -> None:
        table = self.instruments
        table[:, k.I_ID], table[:, k.I_TICK], table[:, k.I_LOT] = listing.security_id, listing.tick, listing.lot
        table[:, k.I_REFERENCE], table[:, k.I_GROUP] = listing.reference, listing.group
        table[:, k.I_TYPE], table[:, k.I_CAPACITY] = listing.type, capacity
        table[:, k.I_AT] = 2 * (np.cumsum(capacity) - capacity)
        table[:, k.I_IMPLIED] = listing.implied
        table[:, k.I_LEG_1], table[:, k.I_LEG_2] = listing.legs[:, 0], listing.legs[:, 1]
        table[:, k.I_PREVIOUS] = listing.reference * listing.tick
        table[:, k.I_EVENT] = k.NULL
        self.clear_session(np.arange(len(listing)))

    def clear_session(self, which: Indices) -> None:
        """Figures of the session start again."""
        table = self.instruments
        table[which, k.I_LAST], table[which, k.I_HIGH] = k.NULL, k.NULL
        table[which, k.I_LOW] = np.iinfo(np.int64).max
        for place in (k.I_QUANTITY, k.I_TURNOVER, k.I_TRADES, k.I_OPENED, k.I_BUST_ID, k.I_VOLUME_TRADES):
            table[which, place] = 0

    def _point(self) -> None:
        self.table[k.JOURNAL], self.table[k.ROWS] = self._journal.address, 0
        self.table[k.CAPACITY] = self._journal.nbytes // k.LINE_BYTES

    # Time and lines

    @property
    def now(self) -> int:
        return int(self.table[k.LAST_TS])

    @property
    def rows(self) -> int:
        return int(self.table[k.ROWS])

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which instruments are listed now."""
        return self.instruments[:, k.I_STATE] != k.UNKNOWN

    def start(self, ts_ns: int) -> None:
        """The clock, and the first arrival."""
        self.table[[k.LAST_TS, k.NEXT_ARRIVAL, k.REGIME_END]] = ts_ns

    def take(self) -> Lines:
        """The lines so far; the journal goes on in other memory."""
        lines = self._journal.array[: self.rows * k.LINE_BYTES].view(np.int64).reshape(-1, k.LINE)
        self._journal = self._pool.take((BATCH_ROWS + self.margin) * k.LINE_BYTES)
        self._point()
        return lines

    def beat(self, until_ns: int) -> None:
        """Heartbeats of the silence up to a time."""
        interval = int(self.table[k.HEARTBEAT_NS])
        while self.now + interval <= until_ns:
            self.line(k.HEARTBEAT, None, step_ns=interval)

    def silence(self, seconds: float) -> None:
        """Nothing happens but heartbeats; orders and arrivals wait."""
        until = self.now + int(seconds * SECOND_NS)
        self.beat(until)
        self.table[k.LAST_TS] = until
        self.table[[k.NEXT_ARRIVAL, k.REGIME_END, k.SILENT_UNTIL]] = until

    def line(self, kind: int, index: int | None, *, step_ns: int = STEP_NS, **columns: int) -> None:
        """One line said by hand; columns by their names in `bulk_places_kernel`, in small letters."""
        which = np.array([] if index is None else [index], np.int64)
        self._put(kind, which, 1, step_ns, {name: np.array([value]) for name, value in columns.items()})

    def lines(self, kind: int, which: Indices, *, step_ns: int = STEP_NS, **columns: Any) -> None:
        """A line for each of some instruments; flags are LAST if nothing else is said."""
        room = (self._journal.nbytes // k.LINE_BYTES) - self.rows
        assert len(which) <= room, "take the journal first"
        self._put(kind, which, len(which), step_ns, columns)

    def _put(self, kind: int, which: Indices, count: int, step_ns: int, columns: dict[str, Any]) -> None:
        made = np.full((count, k.LINE), k.NULL, np.int64)
        made[:, k.KIND], made[:, k.SIDE], made[:, k.FLAGS] = kind, k.NEITHER, 0 if kind == k.HEARTBEAT else k.LAST
        made[:, k.TS] = self.now + step_ns * np.arange(1, count + 1)
        if len(which):
            made[:, k.INSTRUMENT] = self.instruments[which, k.I_ID]
            for wire, place, column in ((k.ON_SBE, k.I_RPT_SBE, k.RPT_SBE), (k.ON_FAST, k.I_RPT_FAST, k.RPT_FAST)):
                if COUNTED.get(kind, 0) & wire:
                    self.instruments[which, place] += 1
                    made[:, column] = self.instruments[which, place]
        for name, values in columns.items():
            made[:, getattr(k, name.upper())] = values
        rows = self.rows
        self._journal.array[rows * k.LINE_BYTES : (rows + count) * k.LINE_BYTES] = made.reshape(-1).view(np.uint8)
        self.table[k.ROWS] = rows + count
        if count:
            self.table[k.LAST_TS] = made[-1, k.TS]

    def publish(self, statistic: int, kind: int, which: Indices, **columns: Any) -> None:
        """A statistic of some instruments, which is remembered."""
        self.lines(kind, which, **columns)
        value = self.statistic(statistic)
        value[which, : k.V_TS] = k.NULL
        value[which, k.V_KIND], value[which, k.V_SIDE], value[which, k.V_PRESENT] = kind, k.NEITHER, 1
        value[which, k.V_TS] = self.now
        for name, values in columns.items():
            if name != "flags":
                value[which, getattr(k, f"V_{name.upper()}")] = values

    def statistic(self, statistic: int) -> NDArray[np.int64]:
        """The values of one statistic, of all instruments."""
        first = k.I_STATISTICS + statistic * k.VALUE
        return self.instruments[:, first : first + k.VALUE]

    # What the kernels do

    def trade(self, rows: int, until_ns: int) -> None:
        """Orders and trades: about so many lines more, and not beyond a time."""
        self.table[k.QUOTA], self.table[k.UNTIL] = self.rows + rows, until_ns
        flow(self.table.ctypes.data)

    def uncross(self, group: int, state: int, conditions: int, hand_over: Callable[[], None]) -> None:
        self._over(uncross_all, group, state, conditions, hand_over)

    def withdraw(self, group: int, state: int, hand_over: Callable[[], None]) -> None:
        self._over(withdraw_all, group, state, 0, hand_over)

    def bust(self, hand_over: Callable[[], None]) -> None:
        self._over(bust_all, -1, 0, 0, hand_over)

    def _over(self, step: Any, group: int, state: int, conditions: int, hand_over: Callable[[], None]) -> None:
        """Over all instruments; whenever the journal is full, it is handed over."""
        table, first = self.table, 0
        while first < len(self.listing):
            table[k.FIRST], table[k.STOP], table[k.GROUP] = first, len(self.listing), group
            table[k.CONDITIONS] = state << 32 | conditions
            first = int(step(table.ctypes.data))
            if first < len(self.listing):
                hand_over()

    def send_again(self, index: int) -> None:
        self.table[k.FIRST] = index
        assert send_again(self.table.ctypes.data) >= 0, "take the journal first"

    def snapshots(self, first: int, stop: int) -> tuple[Lines, int]:
        """Snapshots of instruments from `first` on, and the first that is not among them."""
        table, memory = self.table.copy(), self._pool.take((BATCH_ROWS + self.margin) * k.LINE_BYTES)
        table[k.JOURNAL], table[k.ROWS], table[k.CAPACITY] = memory.address, 0, memory.nbytes // k.LINE_BYTES
        table[k.FIRST], table[k.STOP] = first, stop
        reached = int(snapshots(table.ctypes.data))
        rows = int(table[k.ROWS])
        return memory.array[: rows * k.LINE_BYTES].view(np.int64).reshape(-1, k.LINE), reached


# Which lines move RptSeq, of those that are said by hand.
_EVERYWHERE = (k.OPENING, k.CLOSING, k.SETTLEMENT, k.HIGH, k.LOW, k.EXECUTION, k.INTEREST, k.LAST_PRICE, k.IMBALANCE)
COUNTED = {
    **dict.fromkeys((*_EVERYWHERE, k.THEORETICAL, k.PRICE_BAND, k.QUANTITY_BAND, k.DELETE_THRU), k.ON_BOTH),
    k.STATE: k.ON_SBE,
    k.VOLUME: k.ON_FAST,
}


def _quantile_tables() -> tuple[NDArray[np.int64], ...]:
    """Lifetimes; gaps between arrivals in 2^-20 of their mean; how deep in the book, which is also how large."""
    share = (np.arange(k.QUANTILES) + 0.5) / k.QUANTILES
    points = np.array(LIFETIMES_NS)
    lifetimes = np.exp(np.interp(share, points[:, 0], np.log(points[:, 1])))
    gaps, depths = -np.log(1 - share) * (1 << 20), -np.log(1 - share) * 5
    return lifetimes.astype(np.int64), gaps.astype(np.int64), depths.astype(np.int64)


def _picks(listing: Listing) -> NDArray[np.int32]:
    """Every instrument as often as it is active, and each at least once."""
    often = np.maximum((listing.weight * (k.PICK_COUNT - len(listing))).astype(np.int64), 0) + 1
    often[int(listing.weight.argmax())] += k.PICK_COUNT - int(often.sum())
    return np.repeat(np.arange(len(listing), dtype=np.int32), often)
