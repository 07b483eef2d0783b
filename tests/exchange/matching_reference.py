"""Matching of one instrument in plain Python: slow, one fill at a time, and obviously what the rules say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from exchange.auction_reference import auction

OPEN, RESERVED, CLOSING_CALL, PAUSE, CLOSE, FORBIDDEN = 17, 21, 101, 2, 4, 18
AUCTIONS = (RESERVED, CLOSING_CALL)
LIMIT, MARKET, MARKET_TO_LIMIT, MOA, MOC = range(5)
PERCENT = 10**11  # of a whole, in the unit of bands


class Refused(Exception):  # noqa: N818
    """Its argument is what the error of the engine begins with."""


@dataclass
class Resting:
    side: int
    price: int | None
    size: int  # displayed
    hidden: int
    display: int
    firm: int
    stp_id: int
    last_day: int
    entered_ns: int
    order_id: int = 0

    @property
    def total(self) -> int:
        return self.size + self.hidden


@dataclass
class Trade:
    price: int
    size: int
    buyer: int
    seller: int
    trade_id: int = 0
    moves_last: bool = True


@dataclass
class Band:
    low: int
    high: int
    percent_of: int | None = None


@dataclass
class Outcome:
    traded: int = 0
    cancelled: int = 0
    rests: bool = False
    started_auction: bool = False


@dataclass
class ReferenceBook:
    tick: int
    lot: int
    capacity: int
    previous_close: int
    state: int = CLOSE
    sides: tuple[list[Resting], list[Resting]] = field(default_factory=lambda: ([], []))  # the best order first
    waiting: list[Resting] = field(default_factory=list)
    trades: list[Trade] = field(default_factory=list)  # that are not busted
    bands: dict[str, Band] = field(default_factory=dict)
    max_size: int | None = None
    last: int | None = None
    opening: int | None = None

    # Rules

    def insert(self, order: Resting) -> None:
        """Behind all with the same or a better price; orders without a price come first (9.1)."""
        orders = self.sides[order.side]
        position = sum(self._rank(other) <= self._rank(order) for other in orders)
        orders.insert(position, order)

    def _rank(self, order: Resting) -> tuple[bool, int]:
        price = order.price or 0
        return order.price is not None, -price if order.side == 0 else price

    @staticmethod
    def cross(side: int, price: int | None, other: int | None) -> bool:
        if price is None or other is None:
            return True
        return price >= other if side == 0 else price <= other

    def opposite(self, side: int, price: int | None) -> list[Resting]:
        """The orders of the other side that an order could trade with."""
        return [order for order in self.sides[1 - side] if self.cross(side, price, order.price)]

    def within(self, kind: str, price: int) -> bool:
        band = self.bands.get(kind)
        if band is None:
            return True
        low, high = band.low, band.high
        if band.percent_of is not None:
            reference = self.last if self.last is not None else self.previous_close
            if band.percent_of == 2 and self.state in AUCTIONS and self.theoretical:
                reference = self.theoretical[0]
            low, high = reference + reference * low // PERCENT, reference + reference * high // PERCENT
        return low <= price <= high

    theoretical: tuple[int, int, int] | None = None  # as last published

    def check_size(self, size: int) -> None:
        if size <= 0 or size > 100_000 * self.lot:
            raise Refused("invalid size")
        if size % self.lot:
            raise Refused("size is not a multiple of the lot")
        if self.max_size is not None and size > self.max_size:
            raise Refused("size is above the quantity band")

    def check_price(self, price: int) -> None:
        if price % self.tick:
            raise Refused("price is not on a tick")
        for kind, name in (("hard", "hard limits"), ("static", "static limits"), ("rejection", "rejection band")):
            if not self.within(kind, price):
                raise Refused(f"price is outside the {name}")

    def check_meeting(self, order: Resting) -> bool:
        """Refuse self-trades; whether the order would trade outside of the auction band."""
        meets = self.opposite(order.side, order.price)
        starts_auction, left = False, order.total
        if self.state == OPEN:
            for other in meets:
                if left <= 0 or (order.stp_id and other.stp_id == order.stp_id):
                    break
                starts_auction |= not self.within("auction", other.price or 0)
                left -= other.total
        concerned = meets if self.state != OPEN or starts_auction else meets[:1]
        if order.stp_id and any(other.stp_id == order.stp_id for other in concerned):
            raise Refused("self-trade prevention")
        return starts_auction

    # Orders

    def enter(self, order: Resting, order_type: int) -> Outcome:
        if self.state not in (OPEN, *AUCTIONS):
            raise Refused("the state of the instrument does not allow it")
        if order_type in (MARKET, MARKET_TO_LIMIT) and self.state != OPEN:
            raise Refused("order type not allowed")
        if order_type == MOA and self.state == OPEN:
            raise Refused("order type not allowed")
        if order_type == LIMIT and order.price is None:
            raise Refused("an order without a price")
        if order_type != LIMIT and order.price is not None:
            raise Refused("this order has no price")
        if order_type != LIMIT and order.display:
            raise Refused("invalid display size")
        self.check_size(order.total)
        if order.display and not (0 < order.display < order.total and order.display % self.lot == 0):
            raise Refused("invalid display size")
        if order.price is not None:
            self.check_price(order.price)
        if order_type == MOC and self.state != CLOSING_CALL:
            self.waiting.append(order)
            return Outcome(rests=True)
        if order_type != MARKET and len(self.sides[order.side]) == self.capacity:
            raise Refused("the side of the book is full")
        if self.state == OPEN and order_type != LIMIT and not self.sides[1 - order.side]:
            raise Refused("nothing to trade with")
        return self._place(order, order_type, self.check_meeting(order))

    def _place(self, order: Resting, order_type: int, starts_auction: bool) -> Outcome:
        outcome = Outcome(started_auction=starts_auction)
        if starts_auction:
            self.state = RESERVED
        if self.state == OPEN:
            left, last_price = order.total, None
            while left and (meets := self.opposite(order.side, order.price)):
                best = meets[0]
                if order.stp_id and best.stp_id == order.stp_id:
                    outcome.cancelled, left = left, 0
                    break
                size = min(left, best.size)
                last_price = best.price
                self._trade(best.price or 0, size, order, best)
                outcome.traded, left, best.size = outcome.traded + size, left - size, best.size - size
                if best.size == 0:
                    self._leave_or_refill(best, order.entered_ns)
            if left and order_type == MARKET:
                outcome.cancelled, left = left, 0
            if left and order_type == MARKET_TO_LIMIT:
                order.price = last_price
            if not left:
                return outcome
            order.size, order.hidden = left, 0
        order.size, order.hidden = self._shown(order, order.total)
        self.insert(order)
        outcome.rests = True
        return outcome

    def _shown(self, order: Resting, total: int) -> tuple[int, int]:
        shown = min(order.display, total) if order.display else total
        return shown, total - shown

    def _leave_or_refill(self, order: Resting, now_ns: int) -> None:
        self.sides[order.side].remove(order)
        if order.hidden:
            order.size, order.hidden = self._shown(order, order.hidden)
            order.entered_ns = now_ns
            self.insert(order)

    def _trade(self, price: int, size: int, one: Resting, other: Resting) -> None:
        buyer, seller = (one, other) if one.side == 0 else (other, one)
        self.add_trade(Trade(price, size, buyer.firm, seller.firm))

    def add_trade(self, trade: Trade) -> None:
        self.trades.append(trade)
        self.last = trade.price
        self.opening = trade.price if self.opening is None else self.opening

    def amend(self, order: Resting, price: int | None, size: int | None, now_ns: int) -> Outcome:
        if self.state not in (OPEN, *AUCTIONS):
            raise Refused("the state of the instrument does not allow it")
        size = order.total if size is None else size
        if order in self.waiting:
            if price is not None:
                raise Refused("this order has no price")
            self.check_size(size)
            order.size = size
            return Outcome(rests=True)
        self.check_size(size)
        if order.price is None and price is not None:
            raise Refused("this order has no price")
        new_price = order.price if price is None else price
        if new_price is not None:
            self.check_price(new_price)
        display = order.display if order.display < size else 0
        starts_auction = False
        if new_price != order.price:
            trial = Resting(order.side, new_price, size, 0, display, order.firm, order.stp_id, order.last_day, now_ns)
            starts_auction = self.check_meeting(trial)
        elif size <= order.total:
            cut = order.total - size
            from_hidden = min(cut, order.hidden)
            order.hidden, order.size = order.hidden - from_hidden, order.size - (cut - from_hidden)
            return Outcome(rests=True)
        self.sides[order.side].remove(order)
        order.price, order.size, order.hidden, order.display, order.entered_ns = new_price, size, 0, display, now_ns
        return self._place(order, LIMIT, starts_auction)

    def cancel(self, order: Resting) -> int:
        if self.state not in (OPEN, *AUCTIONS, PAUSE):
            raise Refused("the state of the instrument does not allow it")
        return self.remove(order)

    def remove(self, order: Resting) -> int:
        (self.waiting if order in self.waiting else self.sides[order.side]).remove(order)
        return order.total

    # Auctions and states

    def auction(self) -> tuple[frozenset[int], int, dict[int, int]] | None:
        """The prices (ticks) that an auction may have, its volume, and what is left over."""
        bids, asks = (
            [(None if o.price is None else o.price // self.tick, o.size) for o in orders] for orders in self.sides
        )
        reference = self.last if self.last is not None else self.previous_close
        found = auction(bids, asks, reference // self.tick)
        return None if found is None else (found.prices, found.volume, found.imbalance)

    def uncross(self, next_price: Callable[[], int], now_ns: int) -> None:
        """Trade at one price, which is told as several can be right; then what disclosed orders display next."""
        while (found := self.auction()) is not None:
            prices, volume, _ = found
            price = next_price()
            assert price // self.tick in prices
            refills: list[Resting] = []
            while volume:
                bid, ask = self.sides[0][0], self.sides[1][0]
                size = min(bid.size, ask.size, volume)
                self._trade(price, size, bid, ask)
                volume, bid.size, ask.size = volume - size, bid.size - size, ask.size - size
                for order in (bid, ask):
                    if order.size == 0:
                        self.sides[order.side].remove(order)
                        refills += [order] if order.hidden else []
            for order in sorted(refills, key=lambda order: order.side):
                order.size, order.hidden = self._shown(order, order.hidden)
                order.entered_ns = now_ns
                self.insert(order)
            if not refills:
                break

    def drop_market_orders(self) -> int:
        dropped = [order for orders in self.sides for order in orders if order.price is None]
        return sum(self.remove(order) for order in dropped)

    def trigger_waiting(self, now_ns: int) -> int:
        cancelled = 0
        for order in self.waiting[:]:
            self.waiting.remove(order)
            try:
                if len(self.sides[order.side]) == self.capacity:
                    raise Refused
                self.check_meeting(order)
                order.entered_ns = now_ns
                self.insert(order)
            except Refused:
                cancelled += order.total
        return cancelled

    # Statistics

    @property
    def volume(self) -> int:
        return sum(trade.size for trade in self.trades)

    @property
    def turnover(self) -> int:
        return sum(trade.price // 100_000 * trade.size for trade in self.trades)
