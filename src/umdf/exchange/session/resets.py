"""Book reset and channel reset: what was there is emptied, then sent again (4.2.9, 13.9)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import BATCH_ROWS, Indices, Market
from umdf.exchange.session.trading_session import REJOINS, SEPARATES, TradingSession


def reset_book(market: Market, index: int) -> None:
    """Send Empty Book, then the book again (4.2.9)."""
    market.append(k.EMPTY_BOOK, index, flags=k.RECOVERY)
    row = market.instruments[index]
    if row[k.I_BIDS] + row[k.I_ASKS]:
        market.resend_book(index)


def reset_channel(
    market: Market, session: TradingSession, publish_statistics: Callable[[Indices], None], flush: Callable[[], None]
) -> None:
    """Reset the channel, then send all books, statistics, phases and states again (4.2.9, 13.9)."""
    market.append(k.CHANNEL_RESET, None, flags=k.RECOVERY | k.LAST)
    table, listed = market.instruments, np.flatnonzero(market.is_listed)
    for index in listed[table[listed, k.I_BIDS] + table[listed, k.I_ASKS] > 0].tolist():
        reset_book(market, index)
        if market.rows > BATCH_ROWS // 2:
            flush()
    publish_statistics(listed)
    for group, phase in enumerate(session.phases.tolist()):
        session.change_phase([group], phase)
    for index in listed.tolist():  # 1174 is always sent (Binary 9.2.3)
        event = SEPARATES if session.is_separated(index) else REJOINS
        session.change_state(index, int(table[index, k.I_STATE]), event)
        if market.rows > BATCH_ROWS // 2:
            flush()
