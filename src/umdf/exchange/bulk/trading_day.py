"""The day of a bulk capture: phases, scheduled events during trading, and the looping streams.

    instruments ─► pre-open (21): uncrossing ─► open (17): trading, with SCHEDULED_EVENTS ─►
    closing call (101, stocks) ─► close (4): closing prices ─► session change (1174=4) ─► settlement prices

SCHEDULED_EVENTS lists what happens once, and when; the rest is the order flow of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from umdf.exchange.bulk.looping_streams import LoopingStreams
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.instrument_types import types_where
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import BATCH_ROWS, Market
from umdf.exchange.matching.trade_kernel import BUST_REQUESTED
from umdf.exchange.publish.channel_settings import INCREMENTAL
from umdf.exchange.publish.publisher import JournalBatch
from umdf.exchange.session.intraday_changes import IntradayChanges
from umdf.exchange.session.resets import reset_book, reset_channel
from umdf.exchange.session.trading_session import TradingSession
from umdf.exchange.statistics.statistics import FINAL, PREVIEW, Statistics

SESSION_START_S = 12 * 3600 + 45 * 60  # UTC: 09:45 in São Paulo
PRE_OPEN, CLOSING_CALL = 0.04, 0.02  # of the messages
LIVE_BATCH_NS, NO_DEADLINE_NS = 100_000_000, 1 << 62
LOOP_PART_NS = 200_000_000  # of the market between two parts of a snapshot loop, which is never silent for long
# Share of the trading phase that has passed, the event, and the rank of its instrument by activity.
SCHEDULED_EVENTS: tuple[tuple[float, str, int], ...] = (
    (0.05, "reserve", 2),
    (0.08, "rejoin", 2),
    (0.10, "bust", 0),
    (0.15, "pause", 4),
    (0.18, "rejoin", 4),
    (0.25, "reset_book", 1),
    (0.30, "add", 0),
    (0.35, "modify", 6),
    (0.40, "resend_definitions", 0),
    (0.45, "delete_side", 5),
    (0.55, "reset_channel", 0),
    (0.60, "preview_settlement", 0),
    (0.70, "delete", 0),
    (0.80, "resend_definitions", 0),
    (0.85, "reserve", 3),
    (0.90, "rejoin", 3),
)
DELETED_RANK = 4  # or the next that can be deleted: not one that is needed later


class TradingDay:
    def __init__(self, market: Market, settings: BulkSettings, publish: Callable[[JournalBatch], None]) -> None:
        self.market, self.settings, self._publish = market, settings, publish
        self.listing, self.messages = market.listing, 0
        self._session = TradingSession(market, self.flush)
        self._loops = LoopingStreams(market, self._session.phases, publish)
        self._snapshot_interval = max(settings.messages // settings.snapshot_loops, 20 * settings.instruments)
        self._next_snapshot_loop = 0
        self._changes = IntradayChanges(market, self._session)
        self._statistics = Statistics(market, self.flush)
        self._all_groups = range(len(self.listing.groups))

    def run(self) -> None:
        market, settings = self.market, self.settings
        market.start(settings.midnight_ns + SESSION_START_S * SECOND_NS)
        all_indices = np.arange(settings.instruments)
        market.instruments[all_indices, k.I_STATE] = k.CLOSE
        self._resend_definitions(0)
        self._silence(2.5)
        self._session.change_phase(self._all_groups, k.RESERVED)
        self._statistics.publish_start_of_day(all_indices)
        self._send_snapshot_loop()  # before the open, with what is known then
        self._trade_share(PRE_OPEN)
        self._send_snapshot_loop()
        self._silence(3.2)
        self._open()
        self._trading()
        self._close()
        self._after_close()

    # Journal batches

    def flush(self) -> None:
        """Publish the journal so far."""
        if self.market.rows:
            ts_ns, records = self.market.now, self.market.take_records()
            self.messages += len(records)
            self._publish(JournalBatch(INCREMENTAL, records, ts_ns))
            self._statistics.on_trades(records)

    def _silence(self, seconds: float) -> None:
        """Heartbeats only; at live pace each is published when it is due."""
        self._finish_snapshot_loop()
        self.market.silence(seconds, self.flush if self.settings.real_time else None)

    def _resend_definitions(self, _: int) -> None:
        self.flush()
        self._loops.send_definitions()

    def _send_snapshots(self) -> None:
        self.flush()
        self._loops.send_snapshots()

    def _finish_snapshot_loop(self) -> None:
        while self._loops.is_active:
            self._send_snapshots()

    def _send_snapshot_loop(self) -> None:
        self._finish_snapshot_loop()
        self._send_snapshots()
        self._finish_snapshot_loop()

    # The day

    def _trade_share(self, share: float) -> None:
        """Generate a share of the messages, batch by batch."""
        self._trade_until(self.messages + self.market.rows + int(self.settings.messages * share))

    def _trade_until(self, messages: int) -> None:
        market, batch = self.market, max(256, min(BATCH_ROWS, self.settings.messages // 100))
        deadline = market.now
        while (left := messages - self.messages - market.rows) > 0:
            step = LIVE_BATCH_NS if self.settings.real_time else LOOP_PART_NS if self._loops.is_active else 0
            deadline = max(deadline, market.now) + step
            market.run_order_flow(min(batch - market.rows, left), deadline if step else NO_DEADLINE_NS)
            if self.settings.real_time:
                market.heartbeat_until(deadline)
            self._statistics.advance(market.now)
            self.flush()
            if self._loops.is_active or self.messages >= self._next_snapshot_loop:
                if not self._loops.is_active:
                    self._next_snapshot_loop = self.messages + self._snapshot_interval
                self._send_snapshots()

    def _open(self) -> None:
        for group in self._all_groups:
            self.market.uncross(group, k.RESERVED, self.flush)
            self._session.change_phase([group], k.OPEN)
        self.market.append(k.NEWS, None, id=0)
        self._statistics.advance(self.market.now)

    def _trading(self) -> None:
        first_message = self.messages + self.market.rows
        length = max(int(self.settings.messages * (1 - CLOSING_CALL)) - first_message, 0)
        ranks = self.listing.by_activity()
        for share, name, rank in SCHEDULED_EVENTS:
            self._trade_until(first_message + int(length * share))
            if name in ("add", "delete", "reset_channel"):  # no snapshot loop may contain half of these
                self._finish_snapshot_loop()
            self.flush()
            getattr(self, f"_{name}")(ranks[rank % len(ranks)])
            self.flush()
        self._trade_until(first_message + length)

    def _reserve(self, index: int) -> None:
        """Start an auction of one instrument."""
        self._session.separate(index, k.RESERVED, self.market.now + 60 * SECOND_NS)

    def _pause(self, index: int) -> None:
        self._session.separate(index, k.PAUSE)

    def _rejoin(self, index: int) -> None:
        self._session.rejoin(index)

    def _bust(self, index: int) -> None:
        """Request that one of the next trades is busted."""
        if self.market.instruments[index, k.I_BUST_ID] == 0:
            self.market.instruments[index, k.I_BUST_ID] = BUST_REQUESTED

    def _add(self, _: int) -> None:
        for index in range(self.settings.instruments, len(self.listing)):
            self._changes.announce(index)

    def _modify(self, index: int) -> None:
        spec = self.listing.instruments[index]
        self._changes.modify(spec.symbol, replace(spec, min_cross_qty=10 * spec.lot))

    def _delete(self, _: int) -> None:
        """Delete an instrument: no leg or underlying of another one."""
        listing = self.listing
        related = {*listing.legs.flatten().tolist(), *listing.underlying.tolist()}
        index = next(index for index in listing.by_activity()[DELETED_RANK:] if index not in related)
        self._changes.delete(listing.instruments[index].symbol)

    def _delete_side(self, index: int) -> None:
        """Delete all bids of an instrument at once (Delete Thru, 9.2)."""
        self.market.append(k.DELETE_THRU, index, side=k.BID)
        self.market.instruments[index, k.I_BIDS] = 0
        self.market.derive_implied(np.array([index]), self.flush)

    def _reset_book(self, index: int) -> None:
        reset_book(self.market, index)

    def _reset_channel(self, _: int) -> None:
        if self.settings.channel_reset:
            reset_channel(self.market, self._session, self._statistics.publish_again, self.flush)

    def _preview_settlement(self, _: int) -> None:
        self._statistics.settle(PREVIEW)

    def _close(self) -> None:
        """Final closing call of the stocks, close of all, closing prices."""
        market, stocks = self.market, self._session.groups_of(*types_where("is_equity"))
        others = [group for group in self._all_groups if group not in stocks]
        self.flush()
        market.append(k.NEWS, None, id=1)
        self._session.change_phase(stocks, k.FINAL_CLOSING_CALL)
        self._session.change_phase(others, k.CLOSE)
        self._trade_share(CLOSING_CALL)
        market.uncross(-1, k.FINAL_CLOSING_CALL, self.flush)
        market.bust_pending(self.flush)
        self._session.change_phase(stocks, k.CLOSE)
        self._statistics.publish_closing(np.arange(len(self.listing)))
        self.flush()
        self._finish_snapshot_loop()

    def _after_close(self) -> None:
        self._silence(4.1)
        self._session.change_session(self._all_groups, k.CLOSE)
        self._silence(1.5)
        self._statistics.settle(FINAL)
        self._send_snapshot_loop()
        self._resend_definitions(0)
        self._silence(3.4)
        self.flush()
