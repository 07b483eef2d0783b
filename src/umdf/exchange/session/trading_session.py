"""Phases of groups and states of instruments: their changes and auctions, as records of the journal.

An auction is uncrossed before the change that ends it (11.1). An instrument that separates from its group (1174=101)
keeps its own state until it rejoins it (1174=102).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Indices, Market

SESSION_CHANGE, SEPARATES, REJOINS = k.SESSION_CHANGE, k.SEPARATES, k.REJOINS  # 1174
PRE_CLOSE, FORBIDDEN = k.PRE_CLOSE, k.FORBIDDEN  # 18: of a group, of an instrument (11.1)
AUCTIONS = (k.RESERVED, k.FINAL_CLOSING_CALL)
PHASE_NAMES: dict[int, str] = {
    k.UNKNOWN: "none", k.CLOSE: "Close", k.RESERVED: "Pre-open", k.OPEN: "Open", k.PAUSE: "Pause",
    k.FINAL_CLOSING_CALL: "Final closing call", PRE_CLOSE: "Pre-close",
}  # fmt: skip
STATE_NAMES: dict[int, str] = {
    k.CLOSE: "Close", k.RESERVED: "Reserved", k.OPEN: "Open", k.PAUSE: "Pause",
    k.FINAL_CLOSING_CALL: "Final closing call", FORBIDDEN: "Forbidden",
}  # fmt: skip
# The phases that may follow each phase: a day opens by an auction, and a closing call is its last trading (11.2).
TRANSITIONS: dict[int, frozenset[int]] = {
    k.UNKNOWN: frozenset({k.CLOSE}),
    k.CLOSE: frozenset({k.RESERVED, k.PAUSE}),
    k.RESERVED: frozenset({k.OPEN, k.PAUSE, PRE_CLOSE, k.CLOSE}),
    k.OPEN: frozenset({k.PAUSE, k.RESERVED, k.FINAL_CLOSING_CALL, PRE_CLOSE, k.CLOSE}),
    k.PAUSE: frozenset({k.OPEN, k.RESERVED, k.FINAL_CLOSING_CALL, PRE_CLOSE, k.CLOSE}),
    k.FINAL_CLOSING_CALL: frozenset({PRE_CLOSE, k.CLOSE}),
    PRE_CLOSE: frozenset({k.CLOSE, k.RESERVED, k.PAUSE}),
}
CLEARED_BY_SESSION_CHANGE = (
    k.S_OPENING,
    k.S_THEORETICAL,
    k.S_HIGH,
    k.S_LOW,
    k.S_EXECUTION,
    k.S_VOLUME,
    k.S_LAST,
    k.S_INDEX_VALUE,
    k.S_VOLATILITY,
    k.S_EXERCISE_VOLUME,
    k.S_EX_PIT_VOLUME,
)  # 11.3


class TradingSession:
    def __init__(self, market: Market, flush: Callable[[], None]) -> None:
        self._market, self.flush, self._listing = market, flush, market.listing
        self.phases = np.zeros(len(self._listing.groups), np.int64)  # of the groups; 0: none yet
        self.is_after_market = np.zeros(len(self._listing.groups), bool)  # 336=6

    def phase_of(self, index: int) -> int:
        """The phase of the group of an instrument."""
        return int(self.phases[self._listing.group[index]])

    def is_separated(self, index: int) -> bool:
        return bool(self._market.instruments[index, k.I_EVENT] == SEPARATES)

    def separated(self) -> Indices:
        """The listed instruments that have a state of their own."""
        listed = np.flatnonzero(self._market.is_listed)
        return listed[self._market.instruments[listed, k.I_EVENT] == SEPARATES]

    def groups_of(self, *types: int) -> list[int]:
        return sorted(set(self._listing.group[np.isin(self._listing.type, types)].tolist()))

    def listed(self, group: int) -> Indices:
        """The listed instruments of a group."""
        return np.flatnonzero((self._listing.group == group) & self._market.is_listed)

    # Changes

    def change_phase(
        self, groups: Iterable[int], phase: int, event: int = k.NULL, *, after_market: bool = False
    ) -> None:
        """Change the phase of groups, and the state of the instruments that follow it."""
        table = self._market.instruments
        for group in groups:
            self.phases[group] = phase
            self.is_after_market[group] = after_market
            listed = self.listed(group)
            following = listed[table[listed, k.I_EVENT] != SEPARATES]
            if phase != k.OPEN:
                self._market.withdraw_implied(following, self.flush)
            flags = k.LAST | (k.AFTER_MARKET if after_market else 0)
            self._market.append(k.GROUP_PHASE, None, id=group, aux=phase, code=event, flags=flags)
            table[listed, k.I_PHASE] = phase
            table[following, k.I_STATE], table[following, k.I_STATE_TS] = phase, self._market.now
            if phase == k.OPEN:
                self._market.derive_implied(following, self.flush)

    def change_state(self, index: int, state: int, event: int, opens_at: int = k.NULL) -> None:
        """Change the state of an instrument. Implied orders are there while a strategy and its legs are Open (14)."""
        if state != k.OPEN:
            self._market.withdraw_implied(np.array([index]), self.flush)
        self._market.append(k.STATE, index, aux=state, code=event, insert=opens_at)
        row = self._market.instruments[index]
        row[k.I_STATE], row[k.I_EVENT], row[k.I_STATE_TS] = state, event, self._market.now
        if state == k.OPEN:
            self._market.derive_implied(np.array([index]), self.flush)

    def separate(self, index: int, state: int, opens_at: int = k.NULL) -> None:
        """Give an instrument a state of its own; an auction that it leaves ends with its trades."""
        self._end_auction(index, state)
        self.change_state(index, state, SEPARATES, opens_at)

    def rejoin(self, index: int) -> None:
        """Return to the phase of the group; an auction that it leaves ends with its trades."""
        self._end_auction(index, self.phase_of(index))
        self.change_state(index, self.phase_of(index), REJOINS)

    def _end_auction(self, index: int, state: int) -> None:
        before = self._market.instruments[index, k.I_STATE]
        if before in AUCTIONS and before != state:
            self._market.uncross_one(index, self.flush)

    def change_session(self, groups: Iterable[int], phase: int) -> None:
        """End the day: the statistics of the session are reset (1174=4, 11.3)."""
        groups = list(groups)
        self.change_phase(groups, phase, SESSION_CHANGE)
        members = np.isin(self._listing.group, groups)
        for statistic in CLEARED_BY_SESSION_CHANGE:
            self._market.statistic_values(statistic)[members, k.V_PRESENT] = 0
        self._market.clear_session(np.flatnonzero(members))

    def end_auctions(self, group: int) -> None:
        """Uncross the instruments of a group that follow its phase, which is an auction (11.1)."""
        table, listed = self._market.instruments, self.listed(group)
        following = (table[listed, k.I_EVENT] != SEPARATES) & np.isin(table[listed, k.I_STATE], AUCTIONS)
        has_orders = table[listed, k.I_BIDS] + table[listed, k.I_ASKS] > 0
        for index in listed[following & has_orders].tolist():
            self._market.uncross_one(index, self.flush)
