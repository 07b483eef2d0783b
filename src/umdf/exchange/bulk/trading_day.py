"""The day of a bulk capture: phases, scheduled events during trading, and the looping streams.

    instruments ─► pre-open (21): uncrossing ─► open (17): trading, with SCHEDULED_EVENTS ─►
    closing call (101, stocks) ─► close (4): closing prices ─► session change (1174=4) ─► settlement prices

SCHEDULED_EVENTS lists what happens once, and when; the rest is the order flow of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange.bulk.daily_statistics import FINAL, PREVIEW, DailyStatistics
from umdf.exchange.bulk.looping_streams import LoopingStreams
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.catalogue import STOCK
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import BATCH_ROWS, Market
from umdf.exchange.matching.trade_kernel import BUST_REQUESTED
from umdf.exchange.publish.channel_settings import INCREMENTAL
from umdf.exchange.publish.publisher import JournalBatch

SESSION_START_S = 12 * 3600 + 45 * 60  # UTC: 09:45 in São Paulo
PRE_OPEN, CLOSING_CALL = 0.04, 0.02  # of the messages
LIVE_BATCH_NS, NO_DEADLINE_NS = 100_000_000, 1 << 62
LOOP_PART_NS = 200_000_000  # of the market between two parts of a snapshot loop, which is never silent for long
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174
CLEARED_BY_SESSION_CHANGE = (
    k.S_OPENING,
    k.S_THEORETICAL,
    k.S_HIGH,
    k.S_LOW,
    k.S_EXECUTION,
    k.S_VOLUME,
    k.S_LAST,
)  # 11.3

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
        self._phases = np.zeros(len(self.listing.groups), np.int64)
        self._loops = LoopingStreams(market, self._phases, publish)
        self._snapshot_interval = max(settings.messages // settings.snapshot_loops, 20 * settings.instruments)
        self._next_snapshot_loop = 0
        self._statistics = DailyStatistics(market, self.flush)

    def run(self) -> None:
        market, settings = self.market, self.settings
        market.start(settings.midnight_ns + SESSION_START_S * SECOND_NS)
        all_indices = np.arange(settings.instruments)
        market.instruments[all_indices, k.I_STATE] = k.CLOSE
        self._resend_definitions(0)
        self._silence(2.5)
        self._change_phase(range(len(self._phases)), k.RESERVED)
        self._statistics.publish_limits(all_indices)
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

    # Phases and states

    def _change_phase(self, groups: Any, phase: int, event: int = k.NULL) -> None:
        for group in groups:
            self._phases[group] = phase
            members = self.listing.group == group
            table = self.market.instruments
            listed = members & (table[:, k.I_STATE] != k.UNKNOWN)
            self.market.append(k.GROUP_PHASE, None, id=group, aux=phase, code=event)
            table[listed, k.I_PHASE] = phase
            following = listed & (table[:, k.I_EVENT] != SEPARATES)
            table[following, k.I_STATE], table[following, k.I_STATE_TS] = phase, self.market.now

    def _change_state(self, index: int, state: int, event: int, opens_at: int = k.NULL) -> None:
        self.market.append(k.STATE, index, aux=state, code=event, insert=opens_at)
        row = self.market.instruments[index]
        row[k.I_STATE], row[k.I_EVENT], row[k.I_STATE_TS] = state, event, self.market.now

    def _groups_of(self, *types: int) -> list[int]:
        return sorted(set(self.listing.group[np.isin(self.listing.type, types)].tolist()))

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
            self._statistics.publish_periodic()
            self.flush()
            if self._loops.is_active or self.messages >= self._next_snapshot_loop:
                if not self._loops.is_active:
                    self._next_snapshot_loop = self.messages + self._snapshot_interval
                self._send_snapshots()

    def _open(self) -> None:
        for group in range(len(self._phases)):
            self.market.uncross(group, k.RESERVED, self.flush)
            self._change_phase([group], k.OPEN)
        self.market.append(k.NEWS, None, id=0)
        self._statistics.start()

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
        self._change_state(index, k.RESERVED, SEPARATES, self.market.now + 60 * SECOND_NS)

    def _pause(self, index: int) -> None:
        self._change_state(index, k.PAUSE, SEPARATES)

    def _rejoin(self, index: int) -> None:
        """Return to the phase of the group; an auction ends with its trades."""
        if self.market.instruments[index, k.I_STATE] == k.RESERVED:
            self.market.uncross_one(index, self.flush)
        self._change_state(index, int(self._phases[self.listing.group[index]]), REJOINS)

    def _bust(self, index: int) -> None:
        """Request that one of the next trades is busted."""
        if self.market.instruments[index, k.I_BUST_ID] == 0:
            self.market.instruments[index, k.I_BUST_ID] = BUST_REQUESTED

    def _send_definition(self, index: int, action: str) -> None:
        total, lot = int(self.market.is_listed.sum()), int(self.listing.lot[index])
        self.market.append(k.DEFINITION, index, id=index, code=ord(action), size=total, position=0, other=lot)

    def _add(self, _: int) -> None:
        """Add instruments; their state is unknown until the first status (7.1)."""
        for index in range(self.settings.instruments, len(self.listing)):
            self._send_definition(index, "A")
            group = self.listing.group[index]
            self.market.instruments[index, k.I_PHASE] = self._phases[group]
            self._change_state(index, int(self._phases[group]), REJOINS)

    def _modify(self, index: int) -> None:
        self.listing.lot[index] *= 2
        self._send_definition(index, "M")

    def _delete(self, _: int) -> None:
        """Delete an instrument, and its book with it (7.3): no leg or underlying of another one."""
        listing = self.listing
        related = {*listing.legs.flatten().tolist(), *listing.underlying.tolist()}
        index = next(index for index in listing.by_activity()[DELETED_RANK:] if index not in related)
        self._send_definition(index, "D")
        row = self.market.instruments[index]
        row[k.I_STATE] = row[k.I_BIDS] = row[k.I_ASKS] = k.UNKNOWN
        row[k.I_STATISTICS :] = 0

    def _delete_side(self, index: int) -> None:
        """Delete all bids of an instrument at once (Delete Thru, 9.2)."""
        self.market.append(k.DELETE_THRU, index, side=k.BID)
        self.market.instruments[index, k.I_BIDS] = 0

    def _reset_book(self, index: int) -> None:
        """Send Empty Book, then the book again (4.2.9)."""
        self.market.append(k.EMPTY_BOOK, index, flags=k.RECOVERY)
        row = self.market.instruments[index]
        if row[k.I_BIDS] + row[k.I_ASKS]:
            self.market.resend_book(index)

    def _reset_channel(self, _: int) -> None:
        """Reset the channel, then send all books, statistics and states again (4.2.9, 13.9)."""
        if not self.settings.channel_reset:
            return
        market, table = self.market, self.market.instruments
        market.append(k.CHANNEL_RESET, None, flags=k.RECOVERY | k.LAST)
        listed = np.flatnonzero(table[:, k.I_STATE] != k.UNKNOWN)
        for index in listed[table[listed, k.I_BIDS] + table[listed, k.I_ASKS] > 0].tolist():
            self._reset_book(index)
            if market.rows > BATCH_ROWS // 2:
                self.flush()
        self._statistics.publish_again(listed)
        self._republish_phases()
        for index in listed.tolist():  # 1174 is always sent (Binary 9.2.3)
            event = SEPARATES if table[index, k.I_EVENT] == SEPARATES else REJOINS
            self._change_state(index, int(table[index, k.I_STATE]), event)
            if market.rows > BATCH_ROWS // 2:
                self.flush()

    def _republish_phases(self) -> None:
        for group, phase in enumerate(self._phases.tolist()):
            self._change_phase([group], phase)

    def _preview_settlement(self, _: int) -> None:
        self._statistics.settle(PREVIEW)

    def _close(self) -> None:
        """Final closing call of the stocks, close of all, closing prices."""
        market, stocks = self.market, self._groups_of(STOCK)
        others = [group for group in range(len(self._phases)) if group not in stocks]
        self.flush()
        market.append(k.NEWS, None, id=1)
        self._change_phase(stocks, k.FINAL_CLOSING_CALL)
        self._change_phase(others, k.CLOSE)
        self._trade_share(CLOSING_CALL)
        market.uncross(-1, k.FINAL_CLOSING_CALL, self.flush)
        market.bust_pending(self.flush)
        self._change_phase(stocks, k.CLOSE)
        self._statistics.publish_closing()
        self.flush()
        self._finish_snapshot_loop()

    def _after_close(self) -> None:
        market = self.market
        self._silence(4.1)
        self._change_phase(range(len(self._phases)), k.CLOSE, SESSION_CHANGE)
        for statistic in CLEARED_BY_SESSION_CHANGE:
            market.statistic_values(statistic)[:, k.V_PRESENT] = 0
        market.clear_session(np.arange(len(self.listing)))
        self._silence(1.5)
        self._statistics.settle(FINAL)
        self._send_snapshot_loop()
        self._resend_definitions(0)
        self._silence(3.4)
        self.flush()
