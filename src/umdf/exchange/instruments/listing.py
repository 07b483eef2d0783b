"""What an exchange lists, as columns for the kernels and definitions for the publishers; it changes during the day.

A row is an instrument, and stays one when it is deleted. Rows for new instruments are reserved ahead: the arrays of
everybody else have `capacity` rows.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.catalogue import generate_bulk
from umdf.exchange.instruments.definitions import Definitions
from umdf.exchange.instruments.instrument_spec import BUY, UNIT, InstrumentSpec
from umdf.exchange.instruments.instrument_types import TYPE_RULES, InstrumentType
from umdf.exchange.instruments.journal_details import JournalDetails
from umdf.exchange.instruments.maturities import EPOCH

Columns = NDArray[np.int64]
NULL = -(1 << 63)
MIN_BOUND, MAX_SPREAD_BOUND = 16, 60  # ticks
FEW_INSTRUMENTS, TOP_INSTRUMENTS, TOP_SHARE_FEW, TOP_SHARE_MANY = 200, 20, 0.96, 0.60
MAX_LEGS = 4  # of a strategy whose trades print its legs
# Of the volatility of a stock, what is its own and what all stocks of its index share; their squares add up to 1.
OWN_SHARE, SHARED_SHARE = 0.8, 0.6
INTEREST_NOISE = 0.4  # standard deviation of its logarithm: no two days are alike


class Listing:
    """The columns have `capacity` rows, of which the first `len` are in use: the others have no type and no group.
    Those from `initial_count` on are listed later in a bulk day."""

    security_id: Columns
    type: Columns
    group: Columns
    tick: Columns
    lot: Columns
    reference_ticks: Columns
    bound_ticks: Columns  # how far from the reference orders go
    driver: Columns  # whose fair price it follows: its own, if it follows none
    beta: Columns  # how much it follows, 2^-16
    volatility: Columns  # of the fair price, in 2^-16 ticks in a second
    market: Columns  # the index whose walk a stock shares, -1: none
    market_beta: Columns  # how much, 2^-32
    legs: Columns  # up to four of a strategy, first one that is bought once; -1 elsewhere
    leg_ratios: Columns  # below 0 where sold
    is_implied: Columns  # strategies that have implied orders (14)
    has_leg_trades: Columns
    underlying: Columns  # the first, -1 where there is none
    venue: Columns  # 1500
    is_anonymous: Columns
    definition_number: Columns  # the newest of each

    def __init__(
        self,
        specs: Sequence[InstrumentSpec],
        trading_date: int,
        random: np.random.Generator,
        *,
        capacity: int = 0,
        initial_count: int | None = None,
        volatility_scale: float = 1.0,
    ) -> None:
        self._volatility_scale = volatility_scale
        self.trading_date, self.capacity = trading_date, max(capacity, len(specs))
        self.initial_count = len(specs) if initial_count is None else initial_count
        self.instruments: list[InstrumentSpec] = []
        self.groups: list[str] = list(dict.fromkeys(spec.group for spec in specs))
        self.details = JournalDetails()
        self.definitions = Definitions(trading_date, lambda symbol: self.instruments[self._newest[symbol]])
        self._index_of: dict[str, int] = {}
        self._newest: dict[str, int] = {}  # with what is deleted: its definition may still have to be published
        for name in Listing.__annotations__:
            shape = (self.capacity, MAX_LEGS) if name in ("legs", "leg_ratios") else self.capacity
            setattr(self, name, np.full(shape, -1, np.int64))
        # Of every row, and NULL at the end: what concerns no instrument has index -1.
        self.instrument_ids = np.full(self.capacity + 1, NULL, np.int64)
        for spec in specs:
            self._append(spec)
        self._find_markets()
        for index in range(len(specs)):
            self._fill(index)
        self.activity = np.zeros(self.capacity)
        self.activity[: len(specs)] = _activity(specs, random)

    def __len__(self) -> int:
        return len(self.instruments)

    @property
    def symbols(self) -> list[str]:
        return [instrument.symbol for instrument in self.instruments]

    @property
    def security_types(self) -> list[str]:
        return [instrument.security_type for instrument in self.instruments]

    @property
    def channel_types(self) -> list[str]:
        """SecurityType; of a user-defined strategy that of its first leg, on whose channel it is (E4.1)."""
        return [
            self.instruments[self._index_of[spec.legs[0].symbol]].security_type
            if spec.is_user_defined and spec.legs[0].symbol in self._index_of else spec.security_type
            for spec in self.instruments
        ]  # fmt: skip

    def index_of(self, symbol: str) -> int:
        index = self._index_of.get(symbol)
        if index is None:
            raise UsageError(f"unknown instrument: {symbol}", "use a symbol of the catalogue")
        return index

    def by_activity(self) -> list[int]:
        return np.argsort(-self.activity[: self.initial_count], kind="stable").tolist()

    def of_types(self, types: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(self.type, types)

    # Changes during the day (7)

    def add(self, spec: InstrumentSpec) -> int:
        """Add an instrument: its row."""
        if spec.symbol in self._index_of:
            raise UsageError(f"{spec.symbol} is listed already", "modify it, or use another symbol")
        if len(self) == self.capacity:
            raise UsageError(f"no room for {spec.symbol}: {self.capacity} instruments", "reserve more at the start")
        self._check_references(spec)
        if spec.group not in self.groups:
            self.groups.append(spec.group)
        index = self._append(spec)
        self._fill(index)
        return index

    def modify(self, symbol: str, spec: InstrumentSpec) -> int:
        """Change the definition of an instrument, but not what identifies it: its row."""
        index = self.index_of(symbol)
        old = self.instruments[index]
        if (spec.symbol, spec.security_id, spec.type, spec.group) != (old.symbol, old.security_id, old.type, old.group):
            raise UsageError(f"{symbol} keeps its symbol, SecurityID, type and group", "delete it and add another one")
        self._check_references(spec)
        self.instruments[index] = spec
        self.definition_number[index] = self.definitions.add(spec)
        self._fill(index)
        return index

    def delete(self, symbol: str) -> list[int]:
        """Delete an instrument, and with it its lending contracts and the strategies that it is a leg of: their rows,
        dependent ones first."""
        return self._delete([self.index_of(symbol)])

    def expire(self, today: date) -> list[int]:
        """Delete what has matured before a day, and what depends on it: the rows."""
        return self._delete(
            [
                row for row in self._index_of.values()
                if (maturity := self.instruments[row].maturity) is not None and maturity < today
            ]
        )  # fmt: skip

    def _delete(self, rows: list[int]) -> list[int]:
        symbols = {self.instruments[row].symbol for row in rows}
        dependents = [
            row for symbol, row in self._index_of.items()
            if symbol not in symbols and self._depends_on(self.instruments[row], symbols)
        ]  # fmt: skip
        for row in (*dependents, *rows):
            del self._index_of[self.instruments[row].symbol]
        return [*dependents, *rows]

    @staticmethod
    def _depends_on(spec: InstrumentSpec, symbols: Set[str]) -> bool:
        if spec.type == InstrumentType.LENDING:
            return any(underlying.symbol in symbols for underlying in spec.underlyings)
        return any(leg.symbol in symbols for leg in spec.legs)

    def _check_references(self, spec: InstrumentSpec) -> None:
        for name in (*(leg.symbol for leg in spec.legs), *(underlying.symbol for underlying in spec.underlyings)):
            if name not in self._index_of:
                raise UsageError(f"{spec.symbol} refers to an unknown instrument: {name}", "add that first")

    # Rows

    def _find_markets(self) -> None:
        """The indexes that others follow, as futures do: their stocks share a walk, and they are the sum of these."""
        rows = {self._index_of[spec.follows] for spec in self.instruments if spec.follows in self._index_of}
        indexes = [row for row in sorted(rows) if self.instruments[row].type == InstrumentType.INDEX]
        self._market_of: dict[str, str] = {}
        entries: list[tuple[int, int]] = []
        self.basket_places = np.zeros((self.capacity, 2), np.int64)  # of an index: its first of `baskets`, their number
        for row in indexes:
            index = self.instruments[row]
            self.basket_places[row] = len(entries), len(index.underlyings)
            for underlying in index.underlyings:
                self._market_of.setdefault(underlying.symbol, index.symbol)
                stock = self.instruments[self.index_of(underlying.symbol)]
                points = (underlying.quantity or 0) * stock.tick / (index.divisor or UNIT)  # for a tick of the stock
                entries.append((self.index_of(stock.symbol), round(points / index.tick * (1 << 16))))
        self.baskets = np.array([*entries, (-1, 0)], np.int64)  # rows, and weights in 2^-16 ticks for a tick of each

    def _append(self, spec: InstrumentSpec) -> int:
        index = len(self.instruments)
        self.instruments.append(spec)
        self._index_of[spec.symbol] = self._newest[spec.symbol] = index
        self.definition_number[index] = self.definitions.add(spec)
        return index

    def _fill(self, index: int) -> None:
        """The columns of a row, from its spec."""
        spec = self.instruments[index]
        rule, reference = spec.rule, spec.reference_ticks
        bound = max(int(reference * rule.bound_share), MIN_BOUND)
        market = self._index_of.get(self._market_of.get(spec.symbol, ""), -1)
        of_index = reference / self.instruments[market].reference_ticks if market >= 0 else 0.0
        share = OWN_SHARE if market >= 0 else SHARED_SHARE if self.basket_places[index, 1] else 1.0
        volatility = share * rule.volatility * self._volatility_scale * abs(reference)
        values = {
            "security_id": spec.security_id,
            "type": int(spec.type),
            "group": self.groups.index(spec.group),
            "tick": spec.tick,
            "lot": spec.lot,
            "reference_ticks": reference,
            "bound_ticks": min(bound, MAX_SPREAD_BOUND) if spec.legs else bound,
            "driver": self._index_of.get(spec.follows, index),
            "beta": round(spec.beta * (1 << 16)),
            "volatility": int(volatility * (1 << 16)),
            "market": market,
            "market_beta": round(of_index * (1 << 32)),
            "underlying": self._index_of.get(spec.underlyings[0].symbol, -1) if spec.underlyings else -1,
            "venue": ord(rule.venue),
            "is_anonymous": int(spec.is_anonymous),
            "is_implied": int(spec.is_implied),
            "has_leg_trades": int(spec.has_leg_trades),
        }
        for name, value in values.items():
            getattr(self, name)[index] = value
        self.instrument_ids[index] = spec.security_id
        if len(spec.legs) <= MAX_LEGS and all(leg.ratio % UNIT == 0 for leg in spec.legs):
            legs = sorted(spec.legs, key=lambda leg: (leg.side, leg.ratio) != (BUY, UNIT))
            for place, leg in enumerate(legs):
                self.legs[index, place] = self.index_of(leg.symbol)
                self.leg_ratios[index, place] = leg.ratio // UNIT * (1 if leg.side == BUY else -1)


def generate_listing(settings: BulkSettings, random: np.random.Generator) -> Listing:
    """The listing of a bulk day; the last instruments are listed during the day."""
    listed = settings.instruments
    specs = generate_bulk(listed, 1 + listed // 1_000, EPOCH + timedelta(settings.trading_date), random)
    return Listing(specs, settings.trading_date, random, initial_count=listed)


def _activity(specs: Sequence[InstrumentSpec], random: np.random.Generator) -> NDArray[np.float64]:
    """Shares of the order flow: the top 20 have almost all of it if instruments are few, by Zipf's law within and below
    them. What has no orders has none."""
    interest = np.array([spec.interest for spec in specs]) * np.exp(random.normal(0, INTEREST_NOISE, len(specs)))
    interest[[not TYPE_RULES[spec.type].has_orders for spec in specs]] = np.inf
    count = int(np.isfinite(interest).sum())
    rank = np.arange(1, count + 1)
    top, rest = rank <= TOP_INSTRUMENTS, rank > TOP_INSTRUMENTS
    weight = np.zeros(count)
    weight[top] = rank[top] ** -0.75
    share = 1.0 if not rest.any() else TOP_SHARE_FEW if count <= FEW_INSTRUMENTS else TOP_SHARE_MANY
    weight[top] *= share / weight[top].sum()
    if rest.any():
        weight[rest] = 1.0 / rank[rest]
        weight[rest] *= (1 - share) / weight[rest].sum()
    activity = np.zeros(len(specs))
    activity[np.argsort(interest, kind="stable")[:count]] = weight
    return activity
