"""The exchange while it plays the script: its chosen instruments, the Closing price, and its orders by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from umdf.certify.observation import BID
from umdf.certify.profile import Combination
from umdf.errors import UsageError
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import Order
from umdf.exchange.session.trading_session import TRANSITIONS

SECOND_NS, MS_NS = 1_000_000_000, 1_000_000
TICK_NS, WAIT_STEP_NS = 50 * MS_NS, 10 * SECOND_NS  # what is due in between is done
BUYER, SELLER = 3, 85  # firms
WIDE_BAND = 100  # ticks on both sides: wider than any order of the script
MAIN, STRATEGY, MEMBER, INDEX = "main", "strategy", "member", "index"


class Stage:
    def __init__(self, exchange: Exchange, combination: Combination) -> None:
        self.exchange, self.combination = exchange, combination
        self.after_advance: Callable[[], None] = lambda: None  # the client takes what has come
        self.orders: dict[str, int] = {}  # by the name that a step has given
        self._has_narrow_band = False
        self.days: dict[int, tuple[int, int]] = {}  # by days ago: what channel 72 has sent while it traded

    # The instruments

    def symbol(self, role: str) -> str:
        symbols = self.combination.symbols
        return {MAIN: symbols.main, STRATEGY: symbols.strategy, MEMBER: symbols.member, INDEX: symbols.index}[role]

    def is_listed(self, role: str) -> bool:
        try:
            self.exchange.engine.index_of(self.symbol(role))
        except UsageError:
            return False
        return True

    def security_id(self, role: str) -> int:
        """0 before a strategy has been created."""
        listing = self.exchange.listing
        return int(listing.security_id[listing.index_of(self.symbol(role))]) if self.is_listed(role) else 0

    def group(self, role: str = MAIN) -> str:
        listing = self.exchange.listing
        return listing.instruments[listing.index_of(self.symbol(role))].group if self.is_listed(role) else ""

    @property
    def leg_ids(self) -> tuple[int, ...]:
        listing = self.exchange.listing
        return tuple(int(listing.security_id[listing.index_of(leg)]) for leg in self.combination.symbols.legs)

    @property
    def closing_price(self) -> int:
        """What the script starts from, in 1e-9."""
        return self._of_instrument(MAIN, k.I_PREVIOUS_CLOSE)

    def price(self, ticks: int, role: str = MAIN) -> int:
        """The Closing price and some ticks."""
        return self._of_instrument(role, k.I_PREVIOUS_CLOSE) + ticks * self._of_instrument(role, k.I_TICK)

    def best_price(self, side: int) -> int:
        rows = self.side(side)
        if not rows or rows[0].price is None:
            raise UsageError("the side has no best price", "seed the start book first")
        return rows[0].price

    def side(self, side: int, role: str = MAIN) -> list[Order]:
        book = self.exchange.book(self.symbol(role))
        return book.bids if side == BID else book.asks

    def _of_instrument(self, role: str, column: int) -> int:
        return int(self.exchange.market.instruments[self.exchange.engine.index_of(self.symbol(role)), column])

    # Time

    def advance(self, seconds: float, step_ns: int = TICK_NS) -> None:
        end_ns = self.exchange.now_ns + round(seconds * SECOND_NS)
        while self.exchange.now_ns < end_ns:
            self.exchange.advance(min(end_ns, self.exchange.now_ns + step_ns))
            self.after_advance()

    def last_sequence(self, channel: int) -> int:
        """Of the incremental stream of a channel."""
        for publisher in self.exchange.publication.publishers:
            if publisher.settings.channel == channel:
                return publisher.sequences()[0][2]
        raise UsageError(f"unknown channel: {channel}", "use one of the combination")

    # Orders

    def enter(self, name: str, role: str, side: int, price: int | None, size: int, **options: object) -> None:
        firm = BUYER if side == BID else SELLER
        result = self.exchange.enter(self.symbol(role), side, price, size, firm=firm, **options)  # type: ignore[arg-type]
        if name and result.order_id is not None:
            self.orders[name] = result.order_id

    def clear_books(self) -> None:
        """Delete every order of every instrument, in whatever state."""
        for index, symbol in enumerate(self.exchange.listing.symbols):
            if self.exchange.market.is_listed[index]:
                self.exchange.engine.clear_book(symbol, self.exchange.now_ns)
        self.orders.clear()

    # Phases

    @property
    def phase(self) -> int:
        return self.exchange.session.phase_of(self.exchange.engine.index_of(self.symbol(MAIN)))

    @property
    def is_after_market(self) -> bool:
        group = self.exchange.listing.groups.index(self.group())
        return bool(self.exchange.session.is_after_market[group])

    def change_phase(self, phase: int, *, after_market: bool = False) -> None:
        self.exchange.change_phase([self.combination.segment], phase, after_market=after_market)

    def go_to_phase(self, phase: int, *, after_market: bool = False) -> None:
        """Reach a phase by way of those that must be between, with empty books."""
        if self.phase == phase and self.is_after_market == after_market:
            return
        if after_market and not self.is_after_market:
            self.go_to_phase(k.CLOSE)
        for each in _path(self.phase, phase):
            self.change_phase(each, after_market=after_market)

    def set_auction_band(self, low: int, high: int) -> None:
        """In ticks above the Closing price."""
        self.exchange.set_band(self.symbol(MAIN), "auction", self.price(low), self.price(high))
        self._has_narrow_band = True

    def widen_auction_band(self) -> None:
        if self._has_narrow_band:
            self.set_auction_band(-WIDE_BAND, WIDE_BAND)
            self._has_narrow_band = False

    def rejoin(self) -> None:
        """The chosen instrument follows its group again."""
        if self.exchange.session.is_separated(self.exchange.engine.index_of(self.symbol(MAIN))):
            self.exchange.change_state(self.symbol(MAIN), self.phase)


def _path(before: int, after: int) -> list[int]:
    """The phases from one to another, without it."""
    waiting, seen = deque([(before, list[int]())]), {before}
    while waiting:
        at, path = waiting.popleft()
        for each in sorted(TRANSITIONS[at]):
            if each == after:
                return [*path, each]
            if each not in seen:
                seen.add(each)
                waiting.append((each, [*path, each]))
    return []
