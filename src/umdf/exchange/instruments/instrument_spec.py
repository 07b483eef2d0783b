"""The definition of one instrument, as the catalogue has it: what a SecurityList or SecurityDefinition says, and how
much it trades. Prices are int64 in 1e-9; instruments refer to each other by symbol."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from umdf.exchange.instruments.instrument_types import TYPE_RULES, InstrumentType, TypeRule

UNIT = 1_000_000_000  # 1 in 1e-9
BUY, SELL = 1, 2  # 624
INDIVIDUAL = 3  # 1378
FORBIDDEN = 18  # 326, of a new user-defined strategy (certification E4.1)


@dataclass(frozen=True)
class Leg:
    symbol: str
    side: int  # 624
    ratio: int = UNIT  # 623


@dataclass(frozen=True)
class Underlying:
    """Of an index also its weight in percent (6919) and theoretical quantity (37021)."""

    symbol: str
    percent: int | None = None
    quantity: int | None = None


@dataclass(frozen=True)
class InstrumentSpec:
    symbol: str
    type: InstrumentType
    security_id: int
    asset: str
    group: str  # 1151, three letters at most
    security_type: str  # 167
    sub_type: int  # 762
    product: int  # 460
    cfi_code: str
    tick: int
    reference_price: int
    decimals: int = 2  # 5151
    lot: int = 100
    lot_type: int = 2  # 1093: 1 odd, 2 round, 0 none
    isin: str = ""
    description: str = ""
    currency: str = "BRL"
    settl_currency: str = ""
    strike_currency: str = ""
    segment: int | None = None  # 1300
    maturity: date | None = None
    maturity_code: int | None = None  # 200: yyyymm, yyyymmdd or, for week w, yyyymm9w
    settl_month: int | None = None  # 667
    strike: int | None = None
    put_or_call: int | None = None  # 201: 0 put, 1 call
    exercise_style: int | None = None  # 1194
    multiplier: int | None = None
    divisor: int | None = None  # 37012; of an index its reducer
    issue_date: date | None = None
    start_date: date | None = None
    end_date: date | None = None
    settl_days: int | None = None  # 63
    price_type: int | None = None  # 423
    shares_issued: int | None = None
    governance: int | None = None  # 37011, Binary's numbers
    corporate_action: int | None = None  # 37010
    min_cross_qty: int | None = None
    match_type: int | None = None  # 37015
    strategy_type: str = ""  # 7534
    multi_leg_model: int | None = None  # 1377: 0 exchange-defined, 1 user-defined
    price_method: int | None = None  # 1378
    legs: tuple[Leg, ...] = ()
    is_implied: bool = False  # 1144: implied orders can be created for it
    underlyings: tuple[Underlying, ...] = ()
    attributes: tuple[tuple[int, int], ...] = ()  # 871 and 872
    is_anonymous: bool = False  # without 288 and 289
    interest: float = 1e6  # how much it trades: 1 is the most, 10 about a tenth
    follows: str = ""  # the instrument that it moves with: the front of its chain, its underlying
    beta: float = 1.0  # ticks for each tick of that

    @property
    def rule(self) -> TypeRule:
        return TYPE_RULES[self.type]

    @property
    def reference_ticks(self) -> int:
        return round(self.reference_price / self.tick)

    @property
    def has_leg_trades(self) -> bool:
        """Whether the engine makes prices for the legs of a strategy's trades (1378)."""
        return self.price_method == INDIVIDUAL

    @property
    def is_user_defined(self) -> bool:
        return self.multi_leg_model == 1
