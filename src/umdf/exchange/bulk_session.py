"""The day of a bulk capture: phases, what happens during trading, and the loops of the other two streams.

    instruments ─► pre-open (21) ─► open (17): uncrossing ─► trading, with INCIDENTS ─► closing call (101, stocks)
    ─► close (4): closing prices ─► session change (1174=4) ─► settlement prices

What happens once and when is the table INCIDENTS; the rest is the order flow of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_listing import FUTURE, OPTION, STOCK
from umdf.exchange.bulk_loops import Loops
from umdf.exchange.bulk_market import BATCH_ROWS, Indices, Market
from umdf.exchange.bulk_match_kernel import BUST_WANTED
from umdf.exchange.bulk_publisher import INCREMENTAL, Piece
from umdf.exchange.bulk_settings import SECOND_NS, BulkSettings

OPENS_AT_S = 12 * 3600 + 45 * 60  # UTC: 09:45 in São Paulo
PRE_OPEN, CLOSING_CALL = 0.04, 0.02  # of the messages
LIVE_STEP_NS, FOREVER_NS = 100_000_000, 1 << 62
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174
EXCHANGE_LAST = 1 << 16  # 277=U
PREVIOUS_DAY, TODAY_SETTLES, FINAL, PREVIEW = 4, 1, 1 << 8, 2 << 8  # 286 and 731
HARD_LIMITS, REJECTION_BAND = 1, 3  # 6939
VOLUME_EVERY_NS, INTEREST_EVERY_NS = 30 * SECOND_NS, 60 * SECOND_NS  # 12.1, 12.2
RESET_BY_SESSION = (k.S_OPENING, k.S_THEORETICAL, k.S_HIGH, k.S_LOW, k.S_EXECUTION, k.S_VOLUME, k.S_LAST)  # 11.3

# Share of the trading that has gone by, what happens, and to whom: the instruments by how active they are.
INCIDENTS: tuple[tuple[float, str, int], ...] = (
    (0.05, "reserve", 2),
    (0.08, "rejoin", 2),
    (0.10, "bust", 0),
    (0.15, "pause", 4),
    (0.18, "rejoin", 4),
    (0.25, "reset_book", 1),
    (0.30, "add", 0),
    (0.35, "modify", 6),
    (0.40, "list_again", 0),
    (0.45, "withdraw_side", 5),
    (0.55, "reset_channel", 0),
    (0.60, "preview_settlement", 0),
    (0.70, "delete", 8),
    (0.80, "list_again", 0),
    (0.85, "reserve", 3),
    (0.90, "rejoin", 3),
)


class Session:
    def __init__(self, market: Market, settings: BulkSettings, publish: Callable[[Piece], None]) -> None:
        self.market, self.settings, self._publish = market, settings, publish
        self.listing, self.messages = market.listing, 0
        self._phase = np.zeros(len(self.listing.groups), np.int64)
        self._loops = Loops(market, self._phase, publish)
        self._loop_every = max(settings.messages // settings.snapshot_loops, 20 * settings.instruments)
        self._next_loop = self._next_volume = self._next_interest = 0

    def run(self) -> None:
        market, settings = self.market, self.settings
        market.start(settings.midnight_ns + OPENS_AT_S * SECOND_NS)
        everyone = np.arange(settings.instruments)
        market.instruments[everyone, k.I_STATE] = k.CLOSE
        self._list_again(0)
        self._silence(2.5)
        self._change_phase(range(len(self._phase)), k.RESERVED)
        self._announce_limits(everyone)
        self._whole_loop()  # before the open, with whatever is there
        self._trade(PRE_OPEN)
        self._silence(3.2)
        self._whole_loop()
        self._open()
        self._trading()
        self._close()
        self._after_close()

    # Pieces

    def hand_over(self) -> None:
        """What the market has said so far goes out."""
        if self.market.rows:
            ts_ns, lines = self.market.now, self.market.take()
            self.messages += len(lines)
            self._publish(Piece(INCREMENTAL, lines, ts_ns))

    def _silence(self, seconds: float) -> None:
        """Heartbeats only; at live pace each goes out when it is due."""
        steps = int(seconds) + 1 if self.settings.live_pace else 1
        for _ in range(steps):
            self.market.silence(seconds / steps)
            if steps > 1:
                self.hand_over()

    def _list_again(self, _: int) -> None:
        self.hand_over()
        self._loops.list_instruments()

    def _continue_loop(self) -> None:
        self.hand_over()
        self._loops.go_on()

    def _finish_loop(self) -> None:
        while self._loops.is_going_on:
            self._continue_loop()

    def _whole_loop(self) -> None:
        self._finish_loop()
        self._continue_loop()
        self._finish_loop()

    # Phases and states

    def _change_phase(self, groups: Any, phase: int, event: int = k.NULL) -> None:
        for group in groups:
            self._phase[group] = phase
            members = self.listing.group == group
            table = self.market.instruments
            alive = members & (table[:, k.I_STATE] != k.UNKNOWN)
            self.market.line(k.GROUP_PHASE, None, id=group, aux=phase, code=event)
            table[alive, k.I_PHASE] = phase
            follows = alive & (table[:, k.I_EVENT] != SEPARATES)
            table[follows, k.I_STATE], table[follows, k.I_STATE_TS] = phase, self.market.now

    def _change_state(self, index: int, state: int, event: int, opens_at: int = k.NULL) -> None:
        self.market.line(k.STATE, index, aux=state, code=event, insert=opens_at)
        row = self.market.instruments[index]
        row[k.I_STATE], row[k.I_EVENT], row[k.I_STATE_TS] = state, event, self.market.now

    def _groups(self, *types: int) -> list[int]:
        return sorted(set(self.listing.group[np.isin(self.listing.type, types)].tolist()))

    # The day

    def _announce_limits(self, which: Indices) -> None:
        market, listing = self.market, self.listing
        price = market.instruments[:, k.I_PREVIOUS]

        def of(*types: int) -> Indices:
            return which[np.isin(listing.type[which], types)]

        def band(share: int, at: Indices) -> Indices:
            ticks = listing.reference[at] * (100 + share) // 100
            return ticks * listing.tick[at]

        every, stocks, settled = which, of(STOCK), of(FUTURE, OPTION)
        hard = {"code": HARD_LIMITS, "price": band(-50, every), "aux": band(50, every)}
        rejection = {"code": REJECTION_BAND, "price": band(-20, stocks), "aux": band(20, stocks)}
        for statistic, kind, some, columns in (
            (k.S_CLOSING_BEFORE, k.CLOSING, every, {"price": price[every], "code": PREVIOUS_DAY}),
            (k.S_SETTLEMENT_BEFORE, k.SETTLEMENT, settled, {"price": price[settled], "code": PREVIOUS_DAY | FINAL}),
            (k.S_INTEREST, k.INTEREST, settled, {"size": 1_000 + settled % 9_000}),
            (k.S_HARD_LIMITS, k.PRICE_BAND, every, hard),
            (k.S_REJECTION, k.PRICE_BAND, stocks, rejection),
            (k.S_QUANTITY, k.QUANTITY_BAND, stocks, {"size": 100_000 + stocks, "other": 5_000_000}),
        ):
            self._publish_all(statistic, kind, some, columns)

    def _publish_all(self, statistic: int, kind: int, which: Indices, columns: dict[str, Any]) -> None:
        """However many they are."""
        for first in range(0, len(which), BATCH_ROWS // 2):
            part = slice(first, first + BATCH_ROWS // 2)
            self.hand_over()
            some = {name: values[part] if np.ndim(values) else values for name, values in columns.items()}
            self.market.publish(statistic, kind, which[part], **some)

    def _trade(self, share: float) -> None:
        """Some share of the messages, batch by batch."""
        self._trade_until(self.messages + self.market.rows + int(self.settings.messages * share))

    def _trade_until(self, messages: int) -> None:
        market, batch = self.market, max(256, min(BATCH_ROWS, self.settings.messages // 100))
        until = market.now
        while (left := messages - self.messages - market.rows) > 0:
            until = max(until, market.now) + LIVE_STEP_NS if self.settings.live_pace else FOREVER_NS
            market.trade(min(batch - market.rows, left), until)
            if self.settings.live_pace:
                market.beat(until)
            self._regularly()
            self.hand_over()
            if self._loops.is_going_on or self.messages >= self._next_loop:
                if not self._loops.is_going_on:
                    self._next_loop = self.messages + self._loop_every
                self._continue_loop()

    def _regularly(self) -> None:
        """Trade volume every 30 s, open interest every minute, of what has changed."""
        market, table = self.market, self.market.instruments
        traded = (table[:, k.I_TRADES] != table[:, k.I_VOLUME_TRADES]) & (table[:, k.I_STATE] != k.UNKNOWN)
        if market.now >= self._next_volume:
            self._next_volume = market.now + VOLUME_EVERY_NS
            which = np.flatnonzero(traded)
            figures = {"size": table[which, k.I_QUANTITY], "other": table[which, k.I_TRADES]}
            self._publish_all(k.S_VOLUME, k.VOLUME, which, {**figures, "aux": table[which, k.I_TURNOVER]})
            table[which, k.I_VOLUME_TRADES] = table[which, k.I_TRADES]
        if market.now >= self._next_interest:
            self._next_interest = market.now + INTEREST_EVERY_NS
            is_open = traded & (market.statistic(k.S_INTEREST)[:, k.V_PRESENT] != 0)
            which = np.flatnonzero(is_open)
            size = market.statistic(k.S_INTEREST)[which, k.V_SIZE] + table[which, k.I_TRADES] % 7
            self._publish_all(k.S_INTEREST, k.INTEREST, which, {"size": size})

    def _open(self) -> None:
        for group in range(len(self._phase)):
            self._change_phase([group], k.OPEN)
            self.market.uncross(group, k.OPEN, k.C_OPENING, self.hand_over)
        self.market.line(k.NEWS, None, id=0)
        self._next_volume, self._next_interest = self.market.now + VOLUME_EVERY_NS, self.market.now + INTEREST_EVERY_NS

    def _trading(self) -> None:
        begun = self.messages + self.market.rows
        length = max(int(self.settings.messages * (1 - CLOSING_CALL)) - begun, 0)
        ranks = self.listing.by_activity()
        for share, name, rank in INCIDENTS:
            self._trade_until(begun + int(length * share))
            if name in ("add", "delete", "reset_channel"):  # no loop sees half of these
                self._finish_loop()
            self.hand_over()
            getattr(self, f"_{name}")(ranks[rank % len(ranks)])
            self.hand_over()
        self._trade_until(begun + length)

    def _reserve(self, index: int) -> None:
        """An auction of one instrument."""
        self._change_state(index, k.RESERVED, SEPARATES, self.market.now + 60 * SECOND_NS)

    def _pause(self, index: int) -> None:
        self._change_state(index, k.PAUSE, SEPARATES)

    def _rejoin(self, index: int) -> None:
        """Back to the group's phase; an auction ends with its trades."""
        market, was = self.market, int(self.market.instruments[index, k.I_STATE])
        if was == k.RESERVED:
            market.withdraw(-1, k.RESERVED, self.hand_over)
        self._change_state(index, int(self._phase[self.listing.group[index]]), REJOINS)
        if was == k.RESERVED:
            market.instruments[index, k.I_STATE] = k.RESERVED  # so that only this one is meant
            market.uncross(-1, k.RESERVED, 0, self.hand_over)
            market.instruments[index, k.I_STATE] = self._phase[self.listing.group[index]]

    def _bust(self, index: int) -> None:
        """One of its next trades will be undone."""
        if self.market.instruments[index, k.I_BUST_ID] == 0:
            self.market.instruments[index, k.I_BUST_ID] = BUST_WANTED

    def _define(self, index: int, action: str) -> None:
        total, lot = int(self.market.alive.sum()), int(self.listing.lot[index])
        self.market.line(k.DEFINITION, index, id=index, code=ord(action), size=total, position=0, other=lot)

    def _add(self, _: int) -> None:
        """New instruments; their state is unknown until the first status (7.1)."""
        for index in range(self.settings.instruments, len(self.listing)):
            self._define(index, "A")
            group = self.listing.group[index]
            self.market.instruments[index, k.I_PHASE] = self._phase[group]
            self._change_state(index, int(self._phase[group]), REJOINS)

    def _modify(self, index: int) -> None:
        self.listing.lot[index] *= 2
        self._define(index, "M")

    def _delete(self, index: int) -> None:
        """The instrument goes, and its book with it (7.3)."""
        self._define(index, "D")
        row = self.market.instruments[index]
        row[k.I_STATE] = row[k.I_BIDS] = row[k.I_ASKS] = k.UNKNOWN
        row[k.I_STATISTICS :] = 0

    def _withdraw_side(self, index: int) -> None:
        """All bids of an instrument at once (Delete Thru, 9.2)."""
        self.market.line(k.DELETE_THRU, index, side=k.BID)
        self.market.instruments[index, k.I_BIDS] = 0

    def _reset_book(self, index: int) -> None:
        """Empty Book, and the book again (4.2.9); RptSeq starts again."""
        self.market.line(k.EMPTY_BOOK, index, flags=k.RECOVERY)
        row = self.market.instruments[index]
        row[k.I_RPT_SBE] = row[k.I_RPT_FAST] = 0
        if row[k.I_BIDS] + row[k.I_ASKS]:
            self.market.send_again(index)

    def _reset_channel(self, _: int) -> None:
        """All books, statistics and states again (4.2.9, 13.9)."""
        if not self.settings.channel_reset:
            return
        market, table = self.market, self.market.instruments
        market.line(k.CHANNEL_RESET, None, flags=k.RECOVERY | k.LAST)
        table[:, k.I_RPT_SBE] = table[:, k.I_RPT_FAST] = 0
        alive = np.flatnonzero(table[:, k.I_STATE] != k.UNKNOWN)
        for index in alive[table[alive, k.I_BIDS] + table[alive, k.I_ASKS] > 0].tolist():
            self._reset_book(index)
            if market.rows > BATCH_ROWS // 2:
                self.hand_over()
        for statistic in range(k.STATISTICS):
            self._say_again(statistic, alive)
        self._change_phases_again()
        for index in alive.tolist():
            self._change_state(index, int(table[index, k.I_STATE]), int(table[index, k.I_EVENT]))
            if market.rows > BATCH_ROWS // 2:
                self.hand_over()

    def _say_again(self, statistic: int, alive: Indices) -> None:
        values = self.market.statistic(statistic)
        which = alive[values[alive, k.V_PRESENT] != 0]
        for kind in np.unique(values[which, k.V_KIND]).tolist():
            for first in range(0, len(which), BATCH_ROWS // 2):
                some = which[first : first + BATCH_ROWS // 2]
                self.hand_over()
                rows = values[some]
                code = rows[:, k.V_CODE] | EXCHANGE_LAST if kind == k.LAST_PRICE else rows[:, k.V_CODE]
                self.market.lines(
                    kind,
                    some,
                    side=rows[:, k.V_SIDE],
                    price=rows[:, k.V_PRICE],
                    size=rows[:, k.V_SIZE],
                    id=rows[:, k.V_ID],
                    firm=rows[:, k.V_FIRM],
                    other=rows[:, k.V_OTHER],
                    code=code,
                    aux=rows[:, k.V_AUX],
                )

    def _change_phases_again(self) -> None:
        for group, phase in enumerate(self._phase.tolist()):
            self._change_phase([group], phase)

    def _preview_settlement(self, _: int) -> None:
        self._settle(PREVIEW)

    def _settle(self, how: int) -> None:
        table, types = self.market.instruments, np.isin(self.listing.type, (FUTURE, OPTION))
        which = np.flatnonzero(types & (table[:, k.I_STATE] != k.UNKNOWN))
        last = self.market.statistic(k.S_CLOSING)[which]
        price = np.where(last[:, k.V_PRESENT] != 0, last[:, k.V_PRICE], table[which, k.I_PREVIOUS])
        self._publish_all(k.S_SETTLEMENT, k.SETTLEMENT, which, {"price": price, "code": TODAY_SETTLES | how})

    def _close(self) -> None:
        """Final closing call of the stocks, close of all, closing prices."""
        market, table, stocks = self.market, self.market.instruments, self._groups(STOCK)
        others = [group for group in range(len(self._phase)) if group not in stocks]
        self.hand_over()
        market.line(k.NEWS, None, id=1)
        self._change_phase(stocks, k.FINAL_CLOSING_CALL)
        self._change_phase(others, k.CLOSE)
        self._trade(CLOSING_CALL)
        market.withdraw(-1, k.FINAL_CLOSING_CALL, self.hand_over)
        market.uncross(-1, k.FINAL_CLOSING_CALL, 0, self.hand_over)
        market.bust(self.hand_over)
        self._change_phase(stocks, k.CLOSE)
        which = np.flatnonzero((table[:, k.I_LAST] != k.NULL) & (table[:, k.I_STATE] != k.UNKNOWN))
        self._publish_all(k.S_CLOSING, k.CLOSING, which, {"price": table[which, k.I_LAST], "code": 0})
        self._next_volume = 0
        self._regularly()
        self.hand_over()
        self._finish_loop()

    def _after_close(self) -> None:
        market = self.market
        self._silence(4.1)
        self._change_phase(range(len(self._phase)), k.CLOSE, SESSION_CHANGE)
        for statistic in RESET_BY_SESSION:
            market.statistic(statistic)[:, k.V_PRESENT] = 0
        market.clear_session(np.arange(len(self.listing)))
        self._silence(1.5)
        self._settle(FINAL)
        self._silence(2.2)
        self._whole_loop()
        self._list_again(0)
        self._silence(1.2)
        self.hand_over()
