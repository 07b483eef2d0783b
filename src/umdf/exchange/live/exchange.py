"""The exchange with all that its operator can do: orders, trades, phases, states, instruments, news, resets.

    exchange = Exchange(settings, open_sinks)
    exchange.advance(now_ns)
    exchange.enter("PETR4", BID, 32_450_000_000, 500, firm=3)

Every method takes effect at the exchange's own time. What cannot be done is a UsageError, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np

from umdf.errors import UsageError, one_of
from umdf.exchange.instruments.instrument_spec import BUY, UNIT, InstrumentSpec
from umdf.exchange.live import schedule as s
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import DAY, LIMIT, EntryResult, OrderBook
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.replayer.replayers import Replayers
from umdf.exchange.replayer.service import Switch
from umdf.exchange.session.trading_session import AUCTIONS, PHASE_NAMES, STATE_NAMES, TRANSITIONS
from umdf.exchange.statistics.statistics import FINAL, PREVIEW, UPDATED

SPECIAL_AUCTION = 8  # 37015 (certification B3.1)
MAX_SYMBOL = 20
MIDPOINTS = {"last": 0, "theoretical": 2}  # 37008
PERCENT_BANDS = ("auction", "rejection")
SETTLEMENTS = {"preview": PREVIEW, "final": FINAL, "updated": UPDATED}
STEPS = (*s.DAY_STEPS, s.STOP_WEEK, s.START_WEEK)


class Exchange(RunningMarket):
    replayers: Replayers | None = None

    # Orders and trades

    def enter(
        self,
        symbol: str,
        side: int,
        price: int | None,
        size: int,
        *,
        firm: int,
        order_type: int = LIMIT,
        time_in_force: str = DAY,
        expire_date: int | None = None,
        display_size: int | None = None,
        stp_id: int | None = None,
    ) -> EntryResult:
        """Enter an order; prices are in 1e-9, None is an order without one (MARKET, MOA, MOC)."""
        if expire_date is not None and 0 <= expire_date < self.trading.trading_date:
            last, today = (s.EPOCH + timedelta(day) for day in (expire_date, self.trading.trading_date))
            raise UsageError(f"the last day of the order is over: {last}", f"use {today} or later")
        options = {"order_type": order_type, "time_in_force": time_in_force, "expire_date": expire_date}
        options |= {"display_size": display_size, "stp_id": stp_id}
        return self.engine.enter(symbol, side, price, size, firm=firm, ts_ns=self.now_ns, **options)

    def amend(self, order_id: int, *, price: int | None = None, size: int | None = None) -> EntryResult:
        """Change price or size; what is not given stays."""
        return self.engine.amend(order_id, price=price, size=size, ts_ns=self.now_ns)

    def cancel(self, order_id: int) -> int:
        """Cancel an order; its quantity."""
        return self.engine.cancel(order_id, self.now_ns)

    def mass_cancel(self, *, firm: int | None = None, symbol: str | None = None) -> int:
        """Cancel the orders of a firm, of an instrument, or of both; their quantity."""
        if firm is None and symbol is None:
            raise UsageError("neither a firm nor an instrument", "name one of them")
        return self.engine.mass_cancel(firm=firm, symbol=symbol, ts_ns=self.now_ns)

    def cross(self, symbol: str, price: int, size: int, *, buyer: int, seller: int) -> int:
        """A trade on which two parties have agreed; its id."""
        return self.engine.cross(symbol, price, size, buyer=buyer, seller=seller, ts_ns=self.now_ns)

    def enter_on_behalf(
        self, symbol: str, price: int, size: int, *, buyer: int, seller: int, conditions: Iterable[str] = ("2",)
    ) -> int:
        """A trade that the marketplace enters; its id."""
        parties = {"buyer": buyer, "seller": seller, "ts_ns": self.now_ns}
        return self.engine.enter_on_behalf(symbol, price, size, conditions=conditions, **parties)

    def bust(self, symbol: str, trade_id: int) -> None:
        """Bust a trade of the session."""
        self.engine.bust(symbol, trade_id, self.now_ns)

    def amend_trade(self, symbol: str, trade_id: int, *, price: int, size: int) -> int:
        """Enter a trade instead of another, which is busted; its id."""
        return self.engine.amend_trade(symbol, trade_id, price=price, size=size, ts_ns=self.now_ns)

    def book(self, symbol: str) -> OrderBook:
        return self.engine.book(symbol)

    # Phases and states

    def change_phase(self, groups: Sequence[str], phase: int, *, after_market: bool = False) -> None:
        """Change the phase of groups, named by their code or by a market (equities, derivatives). An auction ends with
        its trades; in the closing call of any market, market-on-close orders enter the books (script B5)."""
        indices = self._groups_of(groups)
        for group in indices:
            before = int(self.session.phases[group])
            if phase not in TRANSITIONS[before]:
                allowed = one_of(PHASE_NAMES[after].lower().replace(" ", "-") for after in sorted(TRANSITIONS[before]))
                raise UsageError(
                    f"group {self.listing.groups[group]} cannot change from {PHASE_NAMES[before]} to "
                    f"{PHASE_NAMES.get(phase, phase)}",
                    f"use {allowed}",
                )
        self.trading.change_phase(indices, phase, after_market=after_market)

    def change_state(self, symbol: str, state: int, *, opens_in_s: float | None = None) -> None:
        """Give an instrument a state of its own, or that of its group again. A Reserved state with a time ends then."""
        index = self.engine.index_of(symbol)
        if state not in STATE_NAMES:
            raise UsageError(
                f"unknown state: {state}", f"use {one_of(f'{name} ({n})' for n, name in STATE_NAMES.items())}"
            )
        phase = self.session.phase_of(index)
        if state == k.OPEN and phase != k.OPEN:
            raise UsageError(f"{symbol} cannot be Open: its group is in {PHASE_NAMES[phase]}", "open the group first")
        if opens_in_s is not None and state != k.RESERVED:
            raise UsageError("only a Reserved state has an opening time", "leave it out")
        self.trading.change_state(index, state, None if opens_in_s is None else self.now_ns + round(opens_in_s * 1e9))

    def pair(self, symbol: str, other: str) -> None:
        """Let the auctions of two instruments start and end together (15)."""
        self.trading.simultaneous.pair(self.engine.index_of(symbol), self.engine.index_of(other))

    def extend_auction(self, symbol: str, seconds: float) -> str:
        """Move the end of an auction; the new end."""
        end_ns = self.trading.extend_auction(self.engine.index_of(symbol), round(seconds * 1e9))
        return s.local_datetime(end_ns).isoformat(timespec="milliseconds")

    def close_auction(self, symbol: str) -> None:
        """End the auction of an instrument now, without asking the one that it is paired with (15.1)."""
        index = self.engine.index_of(symbol)
        if int(self.market.instruments[index, k.I_STATE]) not in AUCTIONS or not self.session.is_separated(index):
            raise UsageError(f"{symbol} is in no auction of its own", "change the phase of its group")
        self.trading.change_state(index, self.session.phase_of(index))

    def set_special_auction(self, symbol: str, is_special: bool = True) -> None:
        """Mark an instrument as in a special auction, or not (SecurityList with 37015=8, script B3.1)."""
        self.modify_instrument(symbol, match_type=SPECIAL_AUCTION if is_special else None)

    def set_band(self, symbol: str, kind: str, low: int, high: int, *, percent_of: str | None = None) -> None:
        """Set a price band (hard, auction, rejection, static) in prices, or in 1e-9 percent of the last or theoretical
        price; or with `quantity` the quantity band: the daily average and the largest order."""
        if percent_of is not None and kind not in PERCENT_BANDS:
            raise UsageError(f"a {kind} band has no percentage", f"leave it out, or use {one_of(PERCENT_BANDS)} (10.9)")
        midpoint = None if percent_of is None else MIDPOINTS[percent_of]
        self.engine.set_band(symbol, kind, low, high, ts_ns=self.now_ns, percent_of=midpoint)

    def run_step(self, name: str) -> None:
        """Do a step of the schedule now: morning, settlement, end_of_day, stop_week or start_week."""
        if name not in STEPS:
            raise UsageError(f"unknown step: {name}", f"use {one_of(STEPS)}")
        if (name == s.START_WEEK) == self.trading.is_up:
            is_what = "up already" if self.trading.is_up else "down"
            raise UsageError(f"the platform is {is_what}", f"use {s.STOP_WEEK if self.trading.is_up else s.START_WEEK}")
        self.trading.run_step(s.Step(self.now_ns, name))

    # Statistics

    def settle(self, kind: str, symbol: str | None = None, price: int | None = None) -> None:
        """Publish settlement prices (10.6): a preview, final ones, or updated ones of the previous day; of everything,
        or of one instrument, with a price of its own if that is given."""
        if price is not None and symbol is None:
            raise UsageError("a settlement price without an instrument", "name one")
        if symbol is not None:
            self.engine.index_of(symbol)
        self.statistics.settle(SETTLEMENTS[kind], symbol, price)

    def report_volume(self, symbol: str, venue: str, quantity: int, trades: int, turnover: int) -> None:
        """Publish the volume of another venue (12.4): O, exercise of options, or X, ex-pit; the turnover is in 1e-4."""
        self.engine.index_of(symbol)
        if min(quantity, trades, turnover) < 0:
            raise UsageError("negative volume", "use 0 or more")
        self.statistics.report_volume(symbol, venue, quantity, trades, turnover)

    def publish_volatility(self, symbol: str, short_price: int, long_price: int, delta: int) -> None:
        """Publish the prices of the short and the long option and the delta, in 1e-9 (10.11)."""
        self.engine.index_of(symbol)
        self.statistics.publish_volatility(symbol, short_price, long_price, delta)

    def publish_composite(self, symbol: str) -> None:
        """Publish the prices of its underlyings that the value of an index has (269=D)."""
        self.engine.index_of(symbol)
        self.statistics.publish_composite(symbol)

    # Instruments

    def add_instrument(self, like: str, symbol: str, **changes: Any) -> int:
        """List an instrument like another one; its SecurityID. It follows its group; a user-defined strategy is
        Forbidden at first (E4.1). The price of a strategy is that of its legs."""
        spec = self._spec(like)
        if legs := changes.get("legs"):
            if not spec.legs or len(legs) < 2:
                what = "is no strategy" if not spec.legs else "has one leg"
                raise UsageError(f"{symbol} {what}", "name a strategy that it is like, and two legs or more")
            changes["reference_price"] = sum(
                (1 if leg.side == BUY else -1) * (leg.ratio * self._spec(leg.symbol).reference_price // UNIT)
                for leg in legs
            )
        security_id = max(instrument.security_id for instrument in self.listing.instruments) + 1
        new = replace(spec, symbol=symbol, security_id=security_id, isin="", **changes)
        self._check_spec(new)
        self.changes.add(new)
        return security_id

    def migrate(self, symbols: Sequence[str]) -> None:
        """Move instruments to another segment: their orders are sent again with new ids (9.1)."""
        for symbol in symbols:
            self.engine.index_of(symbol)
        self.engine.restate_orders(self.now_ns, symbols, new_ids=True)

    def modify_instrument(self, symbol: str, **changes: Any) -> None:
        """Change the definition of an instrument: its lot, its description …"""
        new = replace(self._spec(symbol), **changes)
        self._check_spec(new)
        self.changes.modify(symbol, new)

    def delete_instrument(self, symbol: str) -> list[str]:
        """Delete an instrument, its book, and what depends on it: the symbols (7.3)."""
        self._spec(symbol)
        rows = self.changes.delete(symbol)
        self.trading.forget(rows)
        return [self.listing.symbols[index] for index in rows]

    def _spec(self, symbol: str) -> InstrumentSpec:
        return self.listing.instruments[self.engine.index_of(symbol)]

    @staticmethod
    def _check_spec(spec: InstrumentSpec) -> None:
        if not 1 <= len(spec.symbol) <= MAX_SYMBOL or not spec.symbol.isascii() or not spec.symbol.isalnum():
            raise UsageError(f"invalid symbol: {spec.symbol}", f"use up to {MAX_SYMBOL} letters and digits")
        if spec.lot < 1:
            raise UsageError(f"invalid lot: {spec.lot}", "use 1 or more")

    # Channels

    def reset_book(self, symbol: str) -> None:
        """Send Empty Book, then the book again, on every channel (4.2.9)."""
        self.trading.reset_book(self.engine.index_of(symbol))

    def reset_channel(self, protocol: str, channel: int) -> None:
        """Reset a channel: books, statistics and states are sent again (4.2.9, 13.9)."""
        self.publication.find(protocol, channel)
        self.flush()
        self.publication.reset_channel(protocol, channel, self.now_ns)

    def reset_sequences(self, protocol: str, channel: int) -> None:
        """Number a channel from 1 again: a failover (FIX/FAST: SequenceReset; Binary: the next sequence version)."""
        self.publication.find(protocol, channel)
        self.flush()
        self.publication.reset_sequences(protocol, channel, self.now_ns)

    def publish_news(
        self,
        headline: str,
        text: str,
        *,
        channels: Sequence[int] = (),
        symbols: Sequence[str] = (),
        source: int = 3,
        news_id: int | None = None,
        language: str = "",
        url: str = "",
    ) -> None:
        """Publish news about some instruments (146) or none: on the named channels; else on those of the markets of
        the instruments (legacy 12.3: derivatives news on all derivatives channels); else on all that carry orders."""
        known = {channel.channel for channel in self.settings.channels}
        for channel in channels:
            if channel not in known:
                raise UsageError(f"unknown channel: {channel}", f"use {one_of(map(str, sorted(known)))}")
        if not headline:
            raise UsageError("news without a headline", "give one")
        related = tuple(self.engine.index_of(symbol) for symbol in symbols)
        chosen = tuple(channels) or self._channels_of_markets(related)
        self.add_news(NewsItem(headline, text, chosen, source, news_id, language, url, related))

    def _channels_of_markets(self, instruments: Sequence[int]) -> tuple[int, ...]:
        """The channels that carry instruments of the same markets as some."""
        found: set[int] = set()
        group = self.listing.group
        for market in s.MARKETS:
            groups = self.trading.groups_of_market(market)
            if np.isin(group[list(instruments)], groups).any():
                of_market = np.isin(group, groups)
                publishers = self.publication.publishers
                found |= {each.settings.channel for each in publishers if (each.is_member & of_market).any()}
        return tuple(sorted(found))

    # Replayers

    def switch_replayer(self, name: str, switch: Switch, is_on: bool) -> None:
        """Answer every request of a replayer in one of the ways that only an operator can cause, or as usual again."""
        if self.replayers is None or name not in self.replayers.servers:
            raise UsageError(f"the exchange has no {name}", f"add [{name}] to its file")
        self.replayers.switch(name, switch, on=is_on)

    # What is going on

    def status(self) -> dict[str, Any]:
        """The time, phases, counts, and the sequences of each channel."""
        phases = self.session.phases.tolist()
        table = self.market.instruments
        return {
            "time": s.local_datetime(self.now_ns).isoformat(timespec="milliseconds"),
            "is_up": self.trading.is_up,
            "instruments": int(self.market.is_listed.sum()),
            "phases": {name: PHASE_NAMES[phase] for name, phase in zip(self.listing.groups, phases, strict=True)},
            "records": self.records,
            "trades": int(table[:, k.I_TRADES].sum()),
            "orders": int((table[:, k.I_BIDS] + table[:, k.I_ASKS]).sum()),
            "separated": [self.listing.symbols[index] for index in self.session.separated().tolist()],
            "pairs": [[self.listing.symbols[index] for index in pair] for pair in self.trading.simultaneous.pairs()],
            "channels": [
                {
                    "channel": publisher.settings.channel,
                    "protocol": publisher.protocol,
                    "book": publisher.settings.book_type.lower(),
                    "packets": {stream: packets for stream, _, _, packets in publisher.sequences()},
                    "last_sequence": {stream: last for stream, _, last, _ in publisher.sequences()},
                }
                for publisher in self.publication.publishers
            ],
        }

    def _groups_of(self, names: Sequence[str]) -> list[int]:
        found: list[int] = []
        for name in names:
            if name in s.MARKETS:
                found += self.trading.groups_of_market(name)
            elif name in self.listing.groups:
                found.append(self.listing.groups.index(name))
            else:
                known = ", ".join((*s.MARKETS, *self.listing.groups[:10]))
                raise UsageError(f"unknown group: {name}", f"use a code or a market: {known} …")
        if not found:
            raise UsageError("no group", f"name a group or a market: {one_of(s.MARKETS)}")
        return found
