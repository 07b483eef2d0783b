"""A trading week of the live exchange as captures, and what was true at several moments of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.live import schedule as s
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.outputs import Captures, sinks_of
from umdf.exchange.live.settings import read_settings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID, GTC, GTD
from umdf.exchange.publish.channel_settings import INCREMENTAL
from umdf.exchange.publish.publisher import SEND_DELAY_NS
from umdf.exchange.truth.book_history import BookHistory

SECOND, MINUTE = 10**9, 60 * 10**9
CHANNEL = 72
PROTOCOLS = ("sbe", "fast")
SETTINGS = """
[exchange]
instruments = 100
seed = {seed}
start = "2026-11-16 08:00:00"                 # a Monday
messages_per_s = {rate}
[schedule]
morning = "09:00"
settlement = "10:20"
end_of_day = "10:30"
holidays = ["2026-11-18"]
[schedule.equities]
pre_open = "10:00"
open = "10:02"
closing_call = "10:05"
pre_close = "10:07"
close = "10:08"
after_market_pre_open = "10:12"
after_market_open = "10:13"
after_market_close = "10:15"
[schedule.derivatives]
pre_open = "09:58"
open = "10:01"
close = "10:10"
"""
CHANNEL_SETTINGS = """
[[channel]]
number = 72
protocol = "{protocol}"
generation = "{generation}"
types = ["CS", "PS", "FUT", "MLEG"]
heartbeat_s = 3600
loop_pause_ms = 7200000
snapshots_per_s = 100000
"""


@dataclass(frozen=True)
class Moment:
    """What the exchange itself said when nothing was under way."""

    name: str
    ts_recv: int  # of the last packet until then, at most
    place: dict[str, tuple[int, int]]  # by protocol: the last sequence, and its epoch
    states: dict[int, tuple[int, int]]  # of listed instruments: phase of the group, state


@dataclass
class LiveWeek:
    """Monday to the Monday after it, with all that an operator may do."""

    directory: Path
    seed: int
    rate: float
    generation: str
    history: BookHistory = field(default_factory=BookHistory)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        file = self.directory / "exchange.toml"
        channels = (CHANNEL_SETTINGS.format(protocol=each, generation=self.generation) for each in PROTOCOLS)
        file.write_text(SETTINGS.format(seed=self.seed, rate=self.rate) + "".join(channels))
        settings = read_settings(file)
        captures = Captures(self.directory / "capture", roll_s=86_400)
        self.exchange = Exchange(settings, sinks_of(settings, [captures.open_line]), self.history)
        self._run()
        self.exchange.close()

    def _run(self) -> None:
        exchange, chance = self.exchange, random.Random(self.seed)
        listing = exchange.listing
        stocks = [listing.symbols[i] for i in listing.by_activity() if listing.type[i] == InstrumentType.STOCK]
        quiet, busy = stocks[-1], stocks[0]
        spec = listing.instruments[listing.index_of(quiet)]

        self._advance_to(16, "10:03")
        far = spec.reference_price - 10 * spec.tick
        exchange.enter(quiet, BID, far, 300, firm=3, time_in_force=GTC)
        friday = s.days_since_1970(date(2026, 11, 19))
        exchange.enter(quiet, ASK, far + 20 * spec.tick, 400, firm=4, time_in_force=GTD, expire_date=friday)
        self._trade_and_correct(quiet, spec.reference_price, spec.lot)
        self._keep("Monday, open")
        self._advance_to(16, "10:22")
        self._keep("Monday, settled")
        self._advance_to(17, "10:03")
        self._keep("Tuesday, open")
        exchange.reset_book(busy)
        for protocol in PROTOCOLS:
            exchange.reset_channel(protocol, CHANNEL)
        exchange.migrate([quiet])
        exchange.change_state(quiet, k.PAUSE)
        self._advance_to(17, "10:04")
        self._keep("Tuesday, after a channel reset")
        exchange.change_state(quiet, k.OPEN)
        self._advance_to(18, "12:00")  # a holiday
        self._keep("Wednesday")
        self._advance_to(19, "10:03")
        exchange.add_instrument(quiet, "NOVA3")
        exchange.enter("NOVA3", BID, far, 500, firm=7, time_in_force=GTC)
        self._advance_to(19, "10:04")
        self._keep("Thursday, before a failover")
        for protocol in PROTOCOLS:
            exchange.reset_sequences(protocol, CHANNEL)
        self._advance_to(19, f"10:0{chance.randint(6, 9)}")
        self._keep("Thursday, after a failover")
        exchange.delete_instrument("NOVA3")
        self._advance_to(20, "21:00")
        self._keep("Friday, over")
        self._advance_to(22, "18:00")
        self._keep("Sunday")
        self._advance_to(23, "10:04")
        self._keep("the next Monday, open")

    def _trade_and_correct(self, symbol: str, price: int, lot: int) -> None:
        """A trade on behalf, one that is amended, one that is busted."""
        exchange = self.exchange
        _, amended, busted = (
            exchange.enter_on_behalf(symbol, price, lots * lot, buyer=3, seller=8) for lots in (2, 3, 4)
        )
        exchange.amend_trade(symbol, amended, price=price, size=lot)
        exchange.bust(symbol, busted)

    def _advance_to(self, day: int, time: str) -> None:
        end_ns = s.local_ns(date(2026, 11, day), s.time_of("", time))
        while self.exchange.now_ns < end_ns:
            step_ns = 5 * SECOND if self.exchange.trading.is_trading else 10 * MINUTE
            self.exchange.advance(min(self.exchange.now_ns + step_ns, end_ns))

    def _keep(self, name: str) -> None:
        exchange = self.exchange
        exchange.advance(exchange.now_ns + SECOND)
        ts_recv = max(exchange.now_ns, exchange.market.now) + SEND_DELAY_NS
        table, phases = self.exchange.market.instruments, self.exchange.session.phases
        group = self.exchange.listing.group
        self.moments.append(
            Moment(
                name,
                ts_recv,
                {
                    publisher.protocol: (publisher.epoch, publisher._last_sequence[INCREMENTAL])
                    for publisher in self.exchange.publication.publishers
                },
                {
                    int(table[index, k.I_ID]): (int(phases[group[index]]), int(table[index, k.I_STATE]))
                    for index in self.members().tolist()
                },
            )
        )
        exchange.advance(exchange.now_ns + SECOND)

    def members(self) -> NDArray[np.int64]:
        """The listed instruments of the channel."""
        (publisher, _) = self.exchange.publication.publishers
        count = len(self.exchange.listing)
        return np.flatnonzero(publisher.is_member[:count] & self.exchange.market.is_listed[:count])

    def files(self, protocol: str) -> list[Path]:
        return sorted((self.directory / "capture").glob(f"*-{protocol}-*.pcap"))

    def records(self, protocol: str, *kinds: int) -> Iterator[tuple[int, int, list[int]]]:
        """What a channel has sent of some kinds of records: epoch, sequence, record."""
        for epoch, number, sequences in self.history._batches[protocol, CHANNEL]:
            records = self.history._records[number]
            chosen = np.isin(records[:, k.KIND], kinds)
            of_members = chosen & np.isin(records[:, k.INSTRUMENT], self._rows_ever)
            for sequence, record in zip(
                self.history._sequences[sequences][of_members].tolist(), records[of_members].tolist(), strict=True
            ):
                yield epoch, sequence, record

    @property
    def _rows_ever(self) -> NDArray[np.int64]:
        (publisher, _) = self.exchange.publication.publishers
        return np.flatnonzero(publisher.is_member)

    def books_at(self, protocol: str, index: int, place: tuple[int, int]) -> dict[str, list[Any]]:
        """Both sides: price, size, order id, firm."""
        epoch, sequence = place
        book = self.history.book_at(protocol, index, sequence, CHANNEL, epoch)
        sides = (("B", book.bids), ("A", book.asks))
        return {name: [(o.price, o.size, o.order_id, o.firm) for o in orders] for name, orders in sides}
