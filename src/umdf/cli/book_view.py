"""An instrument of a replayed capture, as `umdf book` prints it: ladder, statistics, state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from umdf.book.views import ENTRY_DTYPE, Book, Level
from umdf.market.families import NULL, PRICE_EXPONENT
from umdf.market.phase_tables import PHASES
from umdf.market.state import InstrumentView
from umdf.market.statistics_view import mark_trades_seen
from umdf.sync.channel import Channel
from umdf.sync.session import Session
from umdf.sync.trust import Trust, unverified
from umdf.units import fix_date, fix_decimal, utc_text
from umdf.wire.packet import Protocol as WireProtocol

EMPTY_BOOK = Book(0, False, None, None, False, None, np.empty(0, ENTRY_DTYPE))  # of an instrument without book messages
STATISTICS = ("statistic", "price", "size", "at (UTC)", "more")
IMPLIED_COLUMNS = frozenset(
    "flags stat_type entry_type venue open_close_settl_flag settl_price_type price_band_type conditions trade_date "
    "is_trade".split()
)
MARKET_ORDER = "MO"  # market on auction or on close: such an order has no price (9.1)


@dataclass(frozen=True)
class BookView:
    protocol: WireProtocol
    channel: Channel
    instrument_id: int
    symbol: str | None
    deleted_at: int | None = None  # sequence

    @property
    def view(self) -> InstrumentView:
        return self.channel.state.instrument(self.instrument_id)

    @property
    def book(self) -> Book:
        return self.channel.book(self.instrument_id) or EMPTY_BOOK

    @property
    def trust(self) -> Trust:
        return self._deletion or self.channel.book_trust(self.instrument_id)

    @property
    def state_trust(self) -> Trust:
        return self._deletion or self.channel.state_trust(self.instrument_id)

    @property
    def definition_trust(self) -> Trust:
        return self._deletion or self.channel.definition_trust(self.instrument_id)

    @property
    def _deletion(self) -> Trust | None:
        at = self.deleted_at
        return None if at is None else unverified(f"the instrument was deleted at sequence {at}")

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """With the trades that were seen: whether some of the session may be missing."""
        is_incomplete = self.channel.trades_incomplete(self.instrument_id)
        return mark_trades_seen(self.view.statistics, incomplete=is_incomplete)

    def summary(self) -> dict[str, Any]:
        view, book = self.view, self.book
        bid, ask = (side[0] if side else None for side in (book.bids, book.asks))
        return {
            "protocol": self.protocol.name.lower(),
            "channel": self.channel.number,
            "symbol": self.symbol or str(self.instrument_id),
            "instrument_id": self.instrument_id,
            "state": state_name(view.state),
            "bid_size": bid and bid.size,
            "bid": bid and price_text(bid.price),
            "ask": ask and price_text(ask.price),
            "ask_size": ask and ask.size,
            "last": _last(view),
            "orders": sum(level.count or 0 for level in (*book.bids, *book.asks)),
            "rpt_seq": book.rpt_seq,
            "trust": self.trust.level,
            "stale": self.trust.reason,
            "state_stale": self.state_trust.reason,
            "definition_stale": self.definition_trust.reason,
        }

    def as_json(self, depth: int, orders: bool) -> dict[str, Any]:
        view, book, channel = self.view, self.book, self.channel
        return {
            "symbol": self.symbol,
            "instrument_id": self.instrument_id,
            "protocol": self.protocol.name.lower(),
            "channel": channel.number,
            "seq_version": channel.epoch,
            "sequence": channel.sequence,
            "ts_send": None if channel.ts_send == NULL else channel.ts_send,
            "rpt_seq": book.rpt_seq,
            "trust": self.trust.level,
            "stale": self.trust.reason,
            "state": {
                "state": view.state,
                "state_name": state_name(view.state),
                "group_phase": view.phase,
                "separated": view.separated,
                "trading_session": view.session,
                "ts_open": view.ts_open,
                "since": view.since,
                "trust": self.state_trust.level,
                "stale": self.state_trust.reason,
            },
            "definition": {"trust": self.definition_trust.level, "stale": self.definition_trust.reason},
            "bids": [_level(level, orders) for level in _top_levels(book.bids, depth)],
            "asks": [_level(level, orders) for level in _top_levels(book.asks, depth)],
            "statistics": self.statistics,
        }

    def heading_lines(self) -> list[str]:
        view, channel, protocol = self.view, self.channel, "Binary" if self.protocol == WireProtocol.SBE else "FIX/FAST"
        when = "" if channel.ts_send == NULL else f", {utc_text(channel.ts_send)} UTC"
        phase, state = phase_name(view.phase), state_name(view.state)
        lines = [
            f"{self.symbol or '?'} ({self.instrument_id}), channel {channel.number}, {protocol}",
            f"at sequence {channel.sequence}{when}; rpt_seq {self.book.rpt_seq}",
            f"state {state}, group {phase}{', separated from its group' if view.separated else ''}",
        ]
        if not self.trust.is_healthy:
            lines.append(f"{self.trust.level.upper()}: {self.trust.reason}")
        elif not self.state_trust.is_healthy:
            lines.append(f"state {self.state_trust.level.upper()}: {self.state_trust.reason}")
        if self.deleted_at is None and not self.definition_trust.is_healthy:
            lines.append(f"definition {self.definition_trust.level.upper()}: {self.definition_trust.reason}")
        return lines

    def ladder_rows(self, depth: int) -> list[list[str]]:
        book = self.book
        rows = []
        for bid, ask in zip_longest(_top_levels(book.bids, depth), _top_levels(book.asks, depth)):
            bid_cells = [_text(bid.count), str(bid.size), price_text(bid.price)] if bid else ["", "", ""]
            ask_cells = [price_text(ask.price), str(ask.size), _text(ask.count)] if ask else ["", "", ""]
            rows.append(bid_cells + ask_cells)
        return rows

    def order_rows(self, depth: int) -> list[list[str]]:
        return [
            [
                side,
                price_text(level.price),
                _text(order.order_id),
                str(order.size),
                _text(order.firm),
                _time(order.ts_insert),
            ]
            for side, levels in (("bid", self.book.bids), ("ask", self.book.asks))
            for level in _top_levels(levels, depth)
            for order in level.orders
        ]

    def statistics_rows(self) -> list[list[str]]:
        """Rows with the columns of STATISTICS; what the name implies is left out."""
        rows = []
        for name, values in self.statistics.items():
            fields = {key: value for key, value in values.items() if value is not None and key not in IMPLIED_COLUMNS}
            price, size, when = fields.pop("price", ""), fields.pop("size", ""), fields.pop("ts_event", None)
            more = ", ".join(
                f"{key} {_date(value) if key.endswith('date') else value}" for key, value in fields.items()
            )
            rows.append([name, str(price), str(size), _time(when)[11:26], more])
        return rows


def instrument_views(session: Session) -> list[BookView]:
    """Every instrument of every channel, by channel and symbol."""
    views = []
    for (protocol, _), channel in session.channels.items():
        instruments = channel.state.instruments
        ids = {*instruments.ids(), *channel.instrument_ids()}
        views += [BookView(protocol, channel, number, instruments.symbol_of(number)) for number in ids]
    return sorted(views, key=lambda view: (view.channel.number, view.symbol or "", view.instrument_id))


def deleted_views(session: Session) -> list[BookView]:
    """Instruments that were deleted during the session, by ID: nothing is known of them any more."""
    return [
        BookView(protocol, channel, number, None, at)
        for (protocol, _), channel in session.channels.items()
        for number, at in sorted(channel.deleted.items())
        if number not in channel.state.instruments.ids()
    ]


def state_name(code: int) -> str:
    """The name of an instrument's state; 21 is `reserved`, which for a group is `pre-open` (11.1, 11.2)."""
    return PHASES[code][1] if code in PHASES else str(code)


def phase_name(code: int) -> str:
    """The name of a group's phase."""
    return PHASES[code][0] if code in PHASES else str(code)


def price_text(price: int | None) -> str:
    return MARKET_ORDER if price is None else fix_decimal(price, PRICE_EXPONENT)


def _last(view: InstrumentView) -> str | None:
    return next(
        (v["price"] for name, v in view.statistics.items() if name.startswith(("last trade", "last price published"))),
        None,
    )


def _top_levels(levels: tuple[Level, ...], depth: int) -> tuple[Level, ...]:
    return levels[:depth] if depth else levels


def _level(level: Level, orders: bool) -> dict[str, Any]:
    price = None if level.price is None else fix_decimal(level.price, PRICE_EXPONENT)
    fields: dict[str, Any] = {"price": price, "size": level.size, "count": level.count}
    if orders:
        fields["orders"] = [
            {"order_id": order.order_id, "size": order.size, "firm": order.firm, "ts_insert": order.ts_insert}
            for order in level.orders
        ]
    return fields


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _date(days: int) -> str:
    text = fix_date(days)
    return f"{text[:4]}-{text[4:6]}-{text[6:]}"


def _time(ns: int | None) -> str:
    return "" if ns is None else utc_text(ns)
