"""Instruments that are added, modified, deleted or expire during the day (7): in the listing, the market and the
journal at once."""

from __future__ import annotations

from datetime import date

import numpy as np

from umdf.exchange.instruments.instrument_spec import FORBIDDEN, InstrumentSpec
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.session.trading_session import REJOINS, SEPARATES, TradingSession


class IntradayChanges:
    def __init__(self, market: Market, session: TradingSession) -> None:
        self._market, self._session, self._listing = market, session, market.listing

    def add(self, spec: InstrumentSpec) -> int:
        """Add an instrument: its row."""
        index = self._listing.add(spec)
        self._market.load_instruments(np.array([index]))
        self.announce(index)
        return index

    def announce(self, index: int) -> None:
        """Publish a row of the listing that nobody knows yet: its definition, then its first status, before which its
        state is unknown (7.1). A user-defined strategy starts Forbidden (certification E4.1)."""
        phase = self._session.phase_of(index)
        self._market.instruments[index, k.I_PHASE] = phase
        self._publish(index, "A")
        if self._listing.instruments[index].is_user_defined:
            self._session.change_state(index, FORBIDDEN, SEPARATES)
        else:
            self._session.change_state(index, phase, REJOINS)

    def modify(self, symbol: str, spec: InstrumentSpec) -> None:
        index = self._listing.modify(symbol, spec)
        self._market.load_instruments(np.array([index]))
        self._publish(index, "M")
        self._market.derive_implied(np.array([index]), self._session.flush)

    def delete(self, symbol: str) -> list[int]:
        """Delete an instrument, what depends on it, and their books (7.3): the rows."""
        return self._remove(self._listing.delete(symbol))

    def expire(self, today: date) -> list[int]:
        """Delete what has matured before a day: the rows."""
        return self._remove(self._listing.expire(today))

    def _remove(self, rows: list[int]) -> list[int]:
        for index in rows:
            self._publish(index, "D")
            row = self._market.instruments[index]
            row[k.I_STATE] = row[k.I_BIDS] = row[k.I_ASKS] = k.UNKNOWN
            row[k.I_EVENT] = k.NULL
            row[k.I_STATISTICS :] = 0
        return rows

    def _publish(self, index: int, action: str) -> None:
        total, number = int(self._market.is_listed.sum()), int(self._listing.definition_number[index])
        self._market.append(k.DEFINITION, index, id=index, code=ord(action), size=total, position=0, other=number)
