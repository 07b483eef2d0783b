"""The day of a bulk capture: phases, scheduled events during trading, and the looping streams.

    instruments ─► pre-open (21) ─► open (17): uncrossing ─► trading, with SCHEDULED_EVENTS ─►
    closing call (101, stocks) ─► close (4): closing prices ─► session change (1174=4) ─► settlement prices

SCHEDULED_EVENTS lists what happens once, and when; the rest is the order flow of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange.bulk import memory_layout_kernel as k
from umdf.exchange.bulk.listing import FUTURE, OPTION, STOCK
from umdf.exchange.bulk.looping_streams import LoopingStreams
from umdf.exchange.bulk.market import BATCH_ROWS, Indices, Market
from umdf.exchange.bulk.matching_kernel import BUST_REQUESTED
from umdf.exchange.bulk.publish.publisher import INCREMENTAL, JournalBatch
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings

SESSION_START_S = 12 * 3600 + 45 * 60  # UTC: 09:45 in São Paulo
PRE_OPEN, CLOSING_CALL = 0.04, 0.02  # of the messages
LIVE_BATCH_NS, NO_DEADLINE_NS = 100_000_000, 1 << 62
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174
EXCHANGE_LAST = 1 << 16  # 277=U
PREVIOUS_DAY, TODAY, FINAL, PREVIEW = 4, 1, 1 << 8, 2 << 8  # 286 and 731
HARD_LIMITS, REJECTION_BAND = 1, 3  # 6939
VOLUME_EVERY_NS, INTEREST_EVERY_NS = 30 * SECOND_NS, 60 * SECOND_NS  # 12.1, 12.2
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
    (0.70, "delete", 8),
    (0.80, "resend_definitions", 0),
    (0.85, "reserve", 3),
    (0.90, "rejoin", 3),
)


class TradingDay:
    def __init__(self, market: Market, settings: BulkSettings, publish: Callable[[JournalBatch], None]) -> None:
        self.market, self.settings, self._publish = market, settings, publish
        self.listing, self.messages = market.listing, 0
        self._phases = np.zeros(len(self.listing.groups), np.int64)
        self._loops = LoopingStreams(market, self._phases, publish)
        self._snapshot_interval = max(settings.messages // settings.snapshot_loops, 20 * settings.instruments)
        self._next_snapshot_loop = self._next_volume = self._next_interest = 0

    def run(self) -> None:
        market, settings = self.market, self.settings
        market.start(settings.midnight_ns + SESSION_START_S * SECOND_NS)
        all_indices = np.arange(settings.instruments)
        market.instruments[all_indices, k.I_STATE] = k.CLOSE
        self._resend_definitions(0)
        self._silence(2.5)
        self._change_phase(range(len(self._phases)), k.RESERVED)
        self._publish_limits(all_indices)
        self._send_snapshot_loop()  # before the open, with what is known then
        self._trade_share(PRE_OPEN)
        self._silence(3.2)
        self._send_snapshot_loop()
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
        steps = int(seconds) + 1 if self.settings.real_time else 1
        for _ in range(steps):
            self.market.silence(seconds / steps)
            if steps > 1:
                self.flush()

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

    def _publish_limits(self, indices: Indices) -> None:
        market, listing = self.market, self.listing
        price = market.instruments[:, k.I_PREVIOUS_CLOSE]

        def of(*types: int) -> Indices:
            return indices[np.isin(listing.type[indices], types)]

        def band(share: int, at: Indices) -> Indices:
            ticks = listing.reference_ticks[at] * (100 + share) // 100
            return ticks * listing.tick[at]

        all_indices, stocks, settled = indices, of(STOCK), of(FUTURE, OPTION)
        hard = {"code": HARD_LIMITS, "price": band(-50, all_indices), "aux": band(50, all_indices)}
        rejection = {"code": REJECTION_BAND, "price": band(-20, stocks), "aux": band(20, stocks)}
        for statistic, kind, part_indices, columns in (
            (k.S_PREVIOUS_CLOSING, k.CLOSING, all_indices, {"price": price[all_indices], "code": PREVIOUS_DAY}),
            (k.S_PREVIOUS_SETTLEMENT, k.SETTLEMENT, settled, {"price": price[settled], "code": PREVIOUS_DAY | FINAL}),
            (k.S_OPEN_INTEREST, k.OPEN_INTEREST, settled, {"size": 1_000 + settled % 9_000}),
            (k.S_HARD_LIMITS, k.PRICE_BAND, all_indices, hard),
            (k.S_REJECTION_BAND, k.PRICE_BAND, stocks, rejection),
            (k.S_QUANTITY_BAND, k.QUANTITY_BAND, stocks, {"size": 100_000 + stocks, "other": 5_000_000}),
        ):
            self._publish_in_batches(statistic, kind, part_indices, columns)

    def _publish_in_batches(self, statistic: int, kind: int, indices: Indices, columns: dict[str, Any]) -> None:
        """Publish a statistic of any number of instruments."""
        for first in range(0, len(indices), BATCH_ROWS // 2):
            part = slice(first, first + BATCH_ROWS // 2)
            self.flush()
            part_indices = {name: values[part] if np.ndim(values) else values for name, values in columns.items()}
            self.market.publish_statistic(statistic, kind, indices[part], **part_indices)

    def _trade_share(self, share: float) -> None:
        """Generate a share of the messages, batch by batch."""
        self._trade_until(self.messages + self.market.rows + int(self.settings.messages * share))

    def _trade_until(self, messages: int) -> None:
        market, batch = self.market, max(256, min(BATCH_ROWS, self.settings.messages // 100))
        until = market.now
        while (left := messages - self.messages - market.rows) > 0:
            until = max(until, market.now) + LIVE_BATCH_NS if self.settings.real_time else NO_DEADLINE_NS
            market.run_order_flow(min(batch - market.rows, left), until)
            if self.settings.real_time:
                market.heartbeat_until(until)
            self._publish_periodic_statistics()
            self.flush()
            if self._loops.is_active or self.messages >= self._next_snapshot_loop:
                if not self._loops.is_active:
                    self._next_snapshot_loop = self.messages + self._snapshot_interval
                self._send_snapshots()

    def _publish_periodic_statistics(self) -> None:
        """Publish what changed: trade volume every 30 s, open interest every minute."""
        market, table = self.market, self.market.instruments
        traded = (table[:, k.I_TRADES] != table[:, k.I_VOLUME_TRADES]) & (table[:, k.I_STATE] != k.UNKNOWN)
        if market.now >= self._next_volume:
            self._next_volume = market.now + VOLUME_EVERY_NS
            indices = np.flatnonzero(traded)
            volumes = {"size": table[indices, k.I_QUANTITY], "other": table[indices, k.I_TRADES]}
            self._publish_in_batches(k.S_VOLUME, k.VOLUME, indices, {**volumes, "aux": table[indices, k.I_TURNOVER]})
            table[indices, k.I_VOLUME_TRADES] = table[indices, k.I_TRADES]
        if market.now >= self._next_interest:
            self._next_interest = market.now + INTEREST_EVERY_NS
            is_open = traded & (market.statistic_values(k.S_OPEN_INTEREST)[:, k.V_PRESENT] != 0)
            indices = np.flatnonzero(is_open)
            size = market.statistic_values(k.S_OPEN_INTEREST)[indices, k.V_SIZE] + table[indices, k.I_TRADES] % 7
            self._publish_in_batches(k.S_OPEN_INTEREST, k.OPEN_INTEREST, indices, {"size": size})

    def _open(self) -> None:
        for group in range(len(self._phases)):
            self._change_phase([group], k.OPEN)
            self.market.uncross(group, k.OPEN, k.C_OPENING, self.flush)
        self.market.append(k.NEWS, None, id=0)
        self._next_volume, self._next_interest = self.market.now + VOLUME_EVERY_NS, self.market.now + INTEREST_EVERY_NS

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
        market, old_state = self.market, int(self.market.instruments[index, k.I_STATE])
        if old_state == k.RESERVED:
            market.delete_theoretical(-1, k.RESERVED, self.flush)
        self._change_state(index, int(self._phases[self.listing.group[index]]), REJOINS)
        if old_state == k.RESERVED:
            market.instruments[index, k.I_STATE] = k.RESERVED  # so that only this one is selected
            market.uncross(-1, k.RESERVED, 0, self.flush)
            market.instruments[index, k.I_STATE] = self._phases[self.listing.group[index]]

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

    def _delete(self, index: int) -> None:
        """Delete an instrument, and its book with it (7.3)."""
        self._send_definition(index, "D")
        row = self.market.instruments[index]
        row[k.I_STATE] = row[k.I_BIDS] = row[k.I_ASKS] = k.UNKNOWN
        row[k.I_STATISTICS :] = 0

    def _delete_side(self, index: int) -> None:
        """Delete all bids of an instrument at once (Delete Thru, 9.2)."""
        self.market.append(k.DELETE_THRU, index, side=k.BID)
        self.market.instruments[index, k.I_BIDS] = 0

    def _reset_book(self, index: int) -> None:
        """Send Empty Book, then the book again (4.2.9); RptSeq restarts."""
        self.market.append(k.EMPTY_BOOK, index, flags=k.RECOVERY)
        row = self.market.instruments[index]
        row[k.I_RPT_SBE] = row[k.I_RPT_FAST] = 0
        if row[k.I_BIDS] + row[k.I_ASKS]:
            self.market.resend_book(index)

    def _reset_channel(self, _: int) -> None:
        """Reset the channel, then send all books, statistics and states again (4.2.9, 13.9)."""
        if not self.settings.channel_reset:
            return
        market, table = self.market, self.market.instruments
        market.append(k.CHANNEL_RESET, None, flags=k.RECOVERY | k.LAST)
        table[:, k.I_RPT_SBE] = table[:, k.I_RPT_FAST] = 0
        listed = np.flatnonzero(table[:, k.I_STATE] != k.UNKNOWN)
        for index in listed[table[listed, k.I_BIDS] + table[listed, k.I_ASKS] > 0].tolist():
            self._reset_book(index)
            if market.rows > BATCH_ROWS // 2:
                self.flush()
        for statistic in range(k.STATISTICS):
            self._republish_statistic(statistic, listed)
        self._republish_phases()
        for index in listed.tolist():
            self._change_state(index, int(table[index, k.I_STATE]), int(table[index, k.I_EVENT]))
            if market.rows > BATCH_ROWS // 2:
                self.flush()

    def _republish_statistic(self, statistic: int, listed: Indices) -> None:
        values = self.market.statistic_values(statistic)
        indices = listed[values[listed, k.V_PRESENT] != 0]
        for kind in np.unique(values[indices, k.V_KIND]).tolist():
            for first in range(0, len(indices), BATCH_ROWS // 2):
                part_indices = indices[first : first + BATCH_ROWS // 2]
                self.flush()
                rows = values[part_indices]
                code = rows[:, k.V_CODE] | EXCHANGE_LAST if kind == k.LAST_PRICE else rows[:, k.V_CODE]
                self.market.append_each(
                    kind,
                    part_indices,
                    side=rows[:, k.V_SIDE],
                    price=rows[:, k.V_PRICE],
                    size=rows[:, k.V_SIZE],
                    id=rows[:, k.V_ID],
                    firm=rows[:, k.V_FIRM],
                    other=rows[:, k.V_OTHER],
                    code=code,
                    aux=rows[:, k.V_AUX],
                )

    def _republish_phases(self) -> None:
        for group, phase in enumerate(self._phases.tolist()):
            self._change_phase([group], phase)

    def _preview_settlement(self, _: int) -> None:
        self._settle(PREVIEW)

    def _settle(self, price_type: int) -> None:
        table, types = self.market.instruments, np.isin(self.listing.type, (FUTURE, OPTION))
        indices = np.flatnonzero(types & (table[:, k.I_STATE] != k.UNKNOWN))
        last = self.market.statistic_values(k.S_CLOSING)[indices]
        price = np.where(last[:, k.V_PRESENT] != 0, last[:, k.V_PRICE], table[indices, k.I_PREVIOUS_CLOSE])
        self._publish_in_batches(k.S_SETTLEMENT, k.SETTLEMENT, indices, {"price": price, "code": TODAY | price_type})

    def _close(self) -> None:
        """Final closing call of the stocks, close of all, closing prices."""
        market, table, stocks = self.market, self.market.instruments, self._groups_of(STOCK)
        others = [group for group in range(len(self._phases)) if group not in stocks]
        self.flush()
        market.append(k.NEWS, None, id=1)
        self._change_phase(stocks, k.FINAL_CLOSING_CALL)
        self._change_phase(others, k.CLOSE)
        self._trade_share(CLOSING_CALL)
        market.delete_theoretical(-1, k.FINAL_CLOSING_CALL, self.flush)
        market.uncross(-1, k.FINAL_CLOSING_CALL, 0, self.flush)
        market.bust_pending(self.flush)
        self._change_phase(stocks, k.CLOSE)
        indices = np.flatnonzero((table[:, k.I_LAST] != k.NULL) & (table[:, k.I_STATE] != k.UNKNOWN))
        self._publish_in_batches(k.S_CLOSING, k.CLOSING, indices, {"price": table[indices, k.I_LAST], "code": 0})
        self._next_volume = 0
        self._publish_periodic_statistics()
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
        self._settle(FINAL)
        self._silence(2.2)
        self._send_snapshot_loop()
        self._resend_definitions(0)
        self._silence(1.2)
        self.flush()
