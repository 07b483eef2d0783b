"""The bulk market: the memory that the kernels work on, and what is said by hand (phases, bands, settlement prices …).

Everything that happens is a line of the journal; `take` hands the lines over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool
from umdf.exchange.bulk import memory_layout_kernel as k
from umdf.exchange.bulk.auction_kernel import delete_all_theoretical, uncross_all
from umdf.exchange.bulk.listing import Listing
from umdf.exchange.bulk.order_flow_kernel import bust_all_pending, run_order_flow
from umdf.exchange.bulk.settings import POSITION, SECOND_NS, BulkSettings
from umdf.exchange.bulk.snapshot_kernel import append_snapshots, resend_book

Records = NDArray[np.int64]  # LINE columns
Indices = NDArray[np.int64]

BATCH_ROWS = 32_768
MAX_EXPIRIES = 1 << 18
MIN_ORDERS, MAX_ORDERS = 32, 1_024  # of a side
FIRST_ORDER_ID, FIRST_IMPLIED_ID = 1_000_000_000, 1 << 62
EVENT_SPACING_NS = 2_000  # between things said by hand
# Log-linear between these. Trades, replacements and full books end the long ones early: seen are 1 ms, 20 ms, 9–19 s.
LIFETIMES_NS = ((0.0, 1e4), (0.1, 1e6), (0.5, 2.2e7), (0.8, 1.7e10), (1.0, 9e10))
ARRIVALS_PER_MESSAGE, NORMAL_SHARE = 0.55, 0.35  # measured; the rate outside of bursts, of the mean


class Market:
    def __init__(self, listing: Listing, settings: BulkSettings) -> None:
        self.listing = listing
        count = len(listing)
        capacity = np.clip((listing.activity * 8_192).astype(np.int64), MIN_ORDERS, MAX_ORDERS)
        self.margin = 8 * int(capacity.max()) + 1_024
        self._pool = Pool(max_buffers=8)
        self._journal: Memory = self._pool.acquire((BATCH_ROWS + self.margin) * k.RECORD_BYTES)
        self.table = np.zeros(k.ARGUMENTS, np.int64)
        self.instruments = np.zeros((count, k.INSTRUMENT_WORDS), np.int64)
        self.orders = np.zeros((int(2 * capacity.sum()) + 1, k.ORDER_BYTES // 8), np.int64)
        self._quantiles = _quantile_tables()
        self._weighted_instruments = _weighted_indices(listing)
        self._expiries = np.zeros((2, MAX_EXPIRIES, k.EXPIRY_BYTES // 8), np.int64)
        self._scratch = np.zeros(4_096, np.uint8)
        self._fill_instruments(listing, capacity)
        table = self.table
        table[k.RNG] = np.random.default_rng([settings.seed, 1]).integers(1, 1 << 62)
        table[k.MARGIN], table[k.INSTRUMENTS], table[k.COUNT] = self.margin, self.instruments.ctypes.data, count
        table[k.ORDERS], table[k.SCRATCH] = self.orders.ctypes.data, self._scratch.ctypes.data
        table[k.NEAR_EXPIRIES], table[k.FAR_EXPIRIES] = self._expiries[0].ctypes.data, self._expiries[1].ctypes.data
        table[k.EXPIRY_CAPACITY], table[k.WEIGHTED_INSTRUMENTS] = MAX_EXPIRIES, self._weighted_instruments.ctypes.data
        for counter, values in zip((k.LIFETIMES, k.INTERARRIVALS, k.DEPTHS), self._quantiles, strict=True):
            table[counter] = values.ctypes.data
        table[k.ORDER_ID], table[k.IMPLIED_ID] = FIRST_ORDER_ID, FIRST_IMPLIED_ID
        table[k.POSITION_GENERATION] = settings.generation == POSITION
        table[k.HEARTBEAT_NS] = SECOND_NS
        table[k.BASE_INTERARRIVAL] = table[k.MEAN_INTERARRIVAL] = int(
            SECOND_NS / (settings.rate * ARRIVALS_PER_MESSAGE * NORMAL_SHARE)
        )
        self._attach_journal()

    def _fill_instruments(self, listing: Listing, capacity: Indices) -> None:
        table = self.instruments
        table[:, k.I_ID], table[:, k.I_TICK], table[:, k.I_LOT] = listing.security_id, listing.tick, listing.lot
        table[:, k.I_REFERENCE], table[:, k.I_GROUP] = listing.reference_ticks, listing.group
        table[:, k.I_TYPE], table[:, k.I_CAPACITY] = listing.type, capacity
        table[:, k.I_ORDERS_OFFSET] = 2 * (np.cumsum(capacity) - capacity)
        table[:, k.I_IMPLIED] = listing.has_implied_orders
        table[:, k.I_LEG_1], table[:, k.I_LEG_2] = listing.legs[:, 0], listing.legs[:, 1]
        table[:, k.I_PREVIOUS_CLOSE] = listing.reference_ticks * listing.tick
        table[:, k.I_EVENT] = k.NULL
        self.clear_session(np.arange(len(listing)))

    def clear_session(self, indices: Indices) -> None:
        """Figures of the session start again."""
        table = self.instruments
        table[indices, k.I_LAST], table[indices, k.I_HIGH] = k.NULL, k.NULL
        table[indices, k.I_LOW] = np.iinfo(np.int64).max
        for counter in (k.I_QUANTITY, k.I_TURNOVER, k.I_TRADES, k.I_OPENED, k.I_BUST_ID, k.I_VOLUME_TRADES):
            table[indices, counter] = 0

    def _attach_journal(self) -> None:
        self.table[k.JOURNAL], self.table[k.ROWS] = self._journal.address, 0
        self.table[k.CAPACITY] = self._journal.nbytes // k.RECORD_BYTES

    # Time and lines

    @property
    def now(self) -> int:
        return int(self.table[k.LAST_TS])

    @property
    def rows(self) -> int:
        return int(self.table[k.ROWS])

    @property
    def is_listed(self) -> NDArray[np.bool_]:
        """Which instruments are listed now."""
        return self.instruments[:, k.I_STATE] != k.UNKNOWN

    def start(self, ts_ns: int) -> None:
        """The clock, and the first arrival."""
        self.table[[k.LAST_TS, k.NEXT_ARRIVAL, k.REGIME_END]] = ts_ns

    def take_records(self) -> Records:
        """The lines so far; the journal goes on in other memory."""
        records = self._journal.array[: self.rows * k.RECORD_BYTES].view(np.int64).reshape(-1, k.RECORD_COLUMNS)
        self._journal = self._pool.acquire((BATCH_ROWS + self.margin) * k.RECORD_BYTES)
        self._attach_journal()
        return records

    def heartbeat_until(self, until_ns: int) -> None:
        """Heartbeats of the silence up to a time."""
        interval = int(self.table[k.HEARTBEAT_NS])
        while self.now + interval <= until_ns:
            self.append(k.HEARTBEAT, None, spacing_ns=interval)

    def silence(self, seconds: float) -> None:
        """Nothing happens but heartbeats; orders and arrivals wait."""
        until = self.now + int(seconds * SECOND_NS)
        self.heartbeat_until(until)
        self.table[k.LAST_TS] = until
        self.table[[k.NEXT_ARRIVAL, k.REGIME_END, k.SILENT_UNTIL]] = until

    def append(self, kind: int, index: int | None, *, spacing_ns: int = EVENT_SPACING_NS, **columns: int) -> None:
        """One line said by hand; columns by their names in `bulk_places_kernel`, in small letters."""
        indices = np.array([] if index is None else [index], np.int64)
        self._append_records(kind, indices, 1, spacing_ns, {name: np.array([value]) for name, value in columns.items()})

    def append_each(self, kind: int, indices: Indices, *, spacing_ns: int = EVENT_SPACING_NS, **columns: Any) -> None:
        """A line for each of some instruments; flags are LAST if nothing else is said."""
        room = (self._journal.nbytes // k.RECORD_BYTES) - self.rows
        assert len(indices) <= room, "take the journal first"
        self._append_records(kind, indices, len(indices), spacing_ns, columns)

    def _append_records(
        self, kind: int, indices: Indices, count: int, spacing_ns: int, columns: dict[str, Any]
    ) -> None:
        records = np.full((count, k.RECORD_COLUMNS), k.NULL, np.int64)
        records[:, k.KIND], records[:, k.SIDE], records[:, k.FLAGS] = (
            kind,
            k.NO_SIDE,
            0 if kind == k.HEARTBEAT else k.LAST,
        )
        records[:, k.TS] = self.now + spacing_ns * np.arange(1, count + 1)
        if len(indices):
            records[:, k.INSTRUMENT] = self.instruments[indices, k.I_ID]
            for protocol, counter, column in (
                (k.ON_SBE, k.I_RPT_SBE, k.RPT_SBE),
                (k.ON_FAST, k.I_RPT_FAST, k.RPT_FAST),
            ):
                if RPT_SEQ_COUNTED_BY.get(kind, 0) & protocol:
                    self.instruments[indices, counter] += 1
                    records[:, column] = self.instruments[indices, counter]
        for name, values in columns.items():
            records[:, getattr(k, name.upper())] = values
        rows = self.rows
        self._journal.array[rows * k.RECORD_BYTES : (rows + count) * k.RECORD_BYTES] = records.reshape(-1).view(
            np.uint8
        )
        self.table[k.ROWS] = rows + count
        if count:
            self.table[k.LAST_TS] = records[-1, k.TS]

    def publish_statistic(self, statistic: int, kind: int, indices: Indices, **columns: Any) -> None:
        """A statistic of some instruments, which is remembered."""
        self.append_each(kind, indices, **columns)
        value = self.statistic_values(statistic)
        value[indices, : k.V_TS] = k.NULL
        value[indices, k.V_KIND], value[indices, k.V_SIDE], value[indices, k.V_PRESENT] = kind, k.NO_SIDE, 1
        value[indices, k.V_TS] = self.now
        for name, values in columns.items():
            if name != "flags":
                value[indices, getattr(k, f"V_{name.upper()}")] = values

    def statistic_values(self, statistic: int) -> NDArray[np.int64]:
        """The values of one statistic, of all instruments."""
        first = k.I_STATISTICS + statistic * k.STATISTIC_WORDS
        return self.instruments[:, first : first + k.STATISTIC_WORDS]

    # What the kernels do

    def run_order_flow(self, rows: int, until_ns: int) -> None:
        """Orders and trades: about so many lines more, and not beyond a time."""
        self.table[k.ROW_TARGET], self.table[k.UNTIL] = self.rows + rows, until_ns
        run_order_flow(self.table.ctypes.data)

    def uncross(self, group: int, state: int, conditions: int, flush: Callable[[], None]) -> None:
        self._over_instruments(uncross_all, group, state, conditions, flush)

    def delete_theoretical(self, group: int, state: int, flush: Callable[[], None]) -> None:
        self._over_instruments(delete_all_theoretical, group, state, 0, flush)

    def bust_pending(self, flush: Callable[[], None]) -> None:
        self._over_instruments(bust_all_pending, -1, 0, 0, flush)

    def _over_instruments(
        self, kernel: Any, group: int, state: int, conditions: int, flush: Callable[[], None]
    ) -> None:
        """Over all instruments; whenever the journal is full, it is handed over."""
        table, first = self.table, 0
        while first < len(self.listing):
            table[k.FIRST], table[k.STOP], table[k.GROUP] = first, len(self.listing), group
            table[k.CONDITIONS] = state << 32 | conditions
            first = int(kernel(table.ctypes.data))
            if first < len(self.listing):
                flush()

    def resend_book(self, index: int) -> None:
        self.table[k.FIRST] = index
        assert resend_book(self.table.ctypes.data) >= 0, "take the journal first"

    def snapshots(self, first: int, stop: int) -> tuple[Records, int]:
        """Snapshots of instruments from `first` on, and the first that is not among them."""
        table, memory = self.table.copy(), self._pool.acquire((BATCH_ROWS + self.margin) * k.RECORD_BYTES)
        table[k.JOURNAL], table[k.ROWS], table[k.CAPACITY] = memory.address, 0, memory.nbytes // k.RECORD_BYTES
        table[k.FIRST], table[k.STOP] = first, stop
        next_index = int(append_snapshots(table.ctypes.data))
        rows = int(table[k.ROWS])
        return memory.array[: rows * k.RECORD_BYTES].view(np.int64).reshape(-1, k.RECORD_COLUMNS), next_index


# Which lines move RptSeq, of those that are said by hand.
_COUNTED_BY_BOTH = (
    k.OPENING,
    k.CLOSING,
    k.SETTLEMENT,
    k.HIGH,
    k.LOW,
    k.EXECUTION,
    k.OPEN_INTEREST,
    k.LAST_PRICE,
    k.IMBALANCE,
)
RPT_SEQ_COUNTED_BY = {
    **dict.fromkeys((*_COUNTED_BY_BOTH, k.THEORETICAL, k.PRICE_BAND, k.QUANTITY_BAND, k.DELETE_THRU), k.ON_BOTH),
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


def _weighted_indices(listing: Listing) -> NDArray[np.int32]:
    """Every instrument as often as it is active, and each at least once."""
    repeats = np.maximum((listing.activity * (k.WEIGHTED_COUNT - len(listing))).astype(np.int64), 0) + 1
    repeats[int(listing.activity.argmax())] += k.WEIGHTED_COUNT - int(repeats.sum())
    return np.repeat(np.arange(len(listing), dtype=np.int32), repeats)
