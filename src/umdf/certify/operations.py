"""What the exchange does in a step, as named operations that read like the script.

Enter("B1.2", BID, 0)            a BID order for 100 at the Closing price, remembered as B1.2
Cancel("B1.2")
ChangePhase(OPEN)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from umdf.certify.observation import ASK, BID, SIDE_NAMES
from umdf.certify.stage import MAIN, MEMBER, WAIT_STEP_NS, WIDE_BAND, Stage
from umdf.errors import UsageError
from umdf.exchange.instruments.instrument_spec import BUY, SELL, Leg
from umdf.exchange.matching.orders import LIMIT, MOA, MOC
from umdf.exchange.session.trading_session import PHASE_NAMES, STATE_NAMES

BEST = "best"
SIZE = 100  # of the script's orders
TYPE_NAMES = {LIMIT: "", MOA: "MOA ", MOC: "MOC "}


@runtime_checkable
class Operation(Protocol):
    @property
    def text(self) -> str: ...

    def run(self, stage: Stage) -> None: ...


def _price_text(ticks: int | str | None) -> str:
    if ticks is None:
        return "without a price"
    if isinstance(ticks, str):
        return "at the best price"
    sign = "" if ticks == 0 else f" {'+' if ticks > 0 else '−'} {abs(ticks)} tick{'s' if abs(ticks) > 1 else ''}"
    return f"at the Closing price{sign}"


@dataclass(frozen=True)
class Enter:
    """An order; `price` is ticks above the Closing price, BEST, or None for an order without one."""

    name: str
    side: int
    price: int | str | None = 0
    size: int = SIZE
    order_type: int = LIMIT
    role: str = MAIN

    @property
    def text(self) -> str:
        kind = TYPE_NAMES[self.order_type]
        return f"sends a {kind}{SIDE_NAMES[self.side]} order for {self.size} {_price_text(self.price)}"

    def run(self, stage: Stage) -> None:
        price = self.price
        if isinstance(price, str):
            price = stage.best_price(self.side)
        elif price is not None:
            price = stage.price(price, self.role)
        stage.enter(self.name, self.role, self.side, price, self.size, order_type=self.order_type)


@dataclass(frozen=True)
class Cancel:
    """An order by its name, or the best one of a side."""

    what: str | int

    @property
    def text(self) -> str:
        return (
            f"cancels the best {SIDE_NAMES[self.what]} order"
            if isinstance(self.what, int)
            else f"cancels the order of {self.what}"
        )

    def run(self, stage: Stage) -> None:
        if isinstance(self.what, int):
            rows = stage.side(self.what)
            if not rows:
                raise UsageError(f"no {SIDE_NAMES[self.what]} order to cancel", "seed the start book first")
            stage.exchange.cancel(rows[0].order_id)
        else:
            stage.exchange.cancel(stage.orders[self.what])


@dataclass(frozen=True)
class Amend:
    name: str
    price: int | None = None  # ticks above the Closing price
    size: int | None = None

    @property
    def text(self) -> str:
        what = _price_text(self.price).removeprefix("at ") if self.price is not None else f"{self.size}"
        return f"changes the {'price' if self.price is not None else 'quantity'} of the order of {self.name} to {what}"

    def run(self, stage: Stage) -> None:
        price = None if self.price is None else stage.price(self.price)
        stage.exchange.amend(stage.orders[self.name], price=price, size=self.size)


@dataclass(frozen=True)
class ChangePhase:
    phase: int

    @property
    def text(self) -> str:
        return f"changes the phase of the group to {PHASE_NAMES[self.phase]}"

    def run(self, stage: Stage) -> None:
        stage.change_phase(self.phase, after_market=stage.is_after_market)


@dataclass(frozen=True)
class ChangeState:
    state: int
    role: str = MAIN

    @property
    def text(self) -> str:
        return f"changes the state of the instrument to {STATE_NAMES[self.state]}"

    def run(self, stage: Stage) -> None:
        stage.exchange.change_state(stage.symbol(self.role), self.state)


@dataclass(frozen=True)
class SetSpecialAuction:
    is_special: bool = True

    @property
    def text(self) -> str:
        return "marks the instrument as in a special auction" if self.is_special else "ends the special auction's mark"

    def run(self, stage: Stage) -> None:
        stage.exchange.set_special_auction(stage.symbol(MAIN), self.is_special)


@dataclass(frozen=True)
class SetAuctionBand:
    """An auction band that ends at a price: a trade above it starts an auction instead."""

    high: int  # ticks above the Closing price
    low: int = -WIDE_BAND

    @property
    def text(self) -> str:
        return f"sets an auction band that ends {_price_text(self.high)}"

    def run(self, stage: Stage) -> None:
        stage.set_auction_band(self.low, self.high)


@dataclass(frozen=True)
class EnterOnBehalf:
    """A trade that the marketplace enters (277=2)."""

    role: str = MAIN
    price: int = 0
    size: int = SIZE
    conditions: tuple[str, ...] = ("2",)

    @property
    def text(self) -> str:
        return "enters a trade on behalf" if self.role == MAIN else "enters a trade of an instrument of the index"

    def run(self, stage: Stage) -> None:
        price = stage.price(self.price, self.role)
        stage.exchange.enter_on_behalf(
            stage.symbol(self.role), price, self.size, buyer=3, seller=85, conditions=self.conditions
        )


@dataclass(frozen=True)
class TradeOfMember:
    """Two orders of a stock of the index that match."""

    ticks: int = 5

    @property
    def text(self) -> str:
        return "trades an instrument that is in the index"

    def run(self, stage: Stage) -> None:
        price = stage.price(self.ticks, MEMBER)
        stage.enter("", MEMBER, BID, price, SIZE)
        stage.enter("", MEMBER, ASK, price, SIZE)


@dataclass(frozen=True)
class PublishNews:
    headline: str = "Certificação"
    content: str = "Notícia de teste do roteiro de certificação."

    @property
    def text(self) -> str:
        return "sends News"

    def run(self, stage: Stage) -> None:
        stage.exchange.publish_news(self.headline, self.content)


@dataclass(frozen=True)
class ClearBooks:
    @property
    def text(self) -> str:
        return "deletes all orders"

    def run(self, stage: Stage) -> None:
        stage.clear_books()


@dataclass(frozen=True)
class CreateStrategy:
    """A user-defined spread of two legs; it lives in the group of its first leg."""

    @property
    def text(self) -> str:
        return "creates a user-defined spread of two legs"

    def run(self, stage: Stage) -> None:
        symbols = stage.combination.symbols
        legs = tuple(Leg(symbol, side) for symbol, side in zip(symbols.legs, (BUY, SELL), strict=True))
        description = " ".join(f"{'B' if leg.side == BUY else 'S'} {leg.symbol}" for leg in legs)
        stage.exchange.add_instrument(symbols.listed_strategy, symbols.strategy, legs=legs, description=description)


@dataclass(frozen=True)
class Wait:
    seconds: float

    @property
    def text(self) -> str:
        return f"sends nothing for {self.seconds:g} s"

    def run(self, stage: Stage) -> None:
        stage.advance(self.seconds, WAIT_STEP_NS)


@dataclass(frozen=True)
class GoToPhase:
    """Bring the group to a phase, by way of those between, with empty books: before a section."""

    phase: int
    after_market: bool | None = None  # None: as it is

    @property
    def text(self) -> str:
        tail = " of the after-market" if self.after_market else ""
        return f"brings the group to {PHASE_NAMES[self.phase]}{tail}, with empty books"

    def run(self, stage: Stage) -> None:
        after_market = stage.is_after_market if self.after_market is None else self.after_market
        stage.clear_books()
        stage.rejoin()
        stage.widen_auction_band()
        stage.go_to_phase(self.phase, after_market=after_market)
