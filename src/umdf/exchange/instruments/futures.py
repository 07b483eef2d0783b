"""Chains of futures, spot FX, and the options on stocks: monthly, weekly and daily maturities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from umdf.exchange.instruments import maturities as m
from umdf.exchange.instruments.equities import CENT, ELECTRONIC, GTC
from umdf.exchange.instruments.instrument_spec import UNIT, InstrumentSpec, Underlying
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.isin import numbered_isin
from umdf.exchange.instruments.symbols import invented_names

MIN_CHAIN, MAX_CHAIN = 3, 11  # maturities of an asset
MONTHLY_CARRY = 0.012  # by which a contract is dearer than one a month before
EVEN_MONTHS, QUARTERS = "GJMQVZ", "HMUZ"
FUTURES_SEGMENT, FX_SEGMENT, OPTIONS_SEGMENT = 6, 7, 3  # 1300
EUROPEAN, AMERICAN = 0, 1
WEEK = 90  # yyyymm9w: 200 of a weekly option
PRICE_UNIT = UNIT // 10_000


@dataclass(frozen=True)
class Asset:
    """What futures are on; price and tick in 1e-4, the multiplier in 1e-2."""

    name: str
    price: int
    tick: int
    months: str
    day: m.DayRule
    multiplier: int
    sub_type: int = 60  # 762: agricultural
    product: int = 2
    cfi_code: str = "FCACSX"
    currency: str = "BRL"
    lot: int = 1
    twin: str = ""  # an earlier asset that is the same in another size: their prices move together


ASSETS = (
    Asset("WIN", 1_310_000_000, 50_000, EVEN_MONTHS, m.wednesday_near_fifteenth, 20, 130, 7, "FFICSX"),
    Asset("DOL", 53_500_000, 5_000, m.MONTHS, m.first_business_day, 5_000, 40, 4, "FFCCSX", lot=5),
    Asset("WDO", 53_500_000, 5_000, m.MONTHS, m.first_business_day, 1_000, 130, 4, "FFCCSX", twin="DOL"),
    Asset("DI1", 135_000, 50, m.MONTHS, m.first_business_day, 100, 30, 3, "FFNCSX", lot=5),
    Asset(
        "IND", 1_310_000_000, 50_000, EVEN_MONTHS, m.wednesday_near_fifteenth, 100, 20, 7, "FFICSX", lot=5, twin="WIN"
    ),
    Asset("BGI", 3_300_000, 500, m.MONTHS, m.last_business_day, 33_000),
    Asset("CCM", 720_000, 100, "FHKNUX", m.fifteenth, 45_000),
    Asset("WSP", 68_000_000, 2_500, QUARTERS, m.third_friday, 250, 20, 7, "FFICSX", "USD"),
    Asset("BIT", 4_800_000_000, 100_000, m.MONTHS, m.last_friday, 10, 160, 2, "FFVCSX"),
    Asset("ICF", 3_900_000, 500, "HKNUZ", m.fifteenth, 10_000, currency="USD"),
    Asset("EUR", 62_000_000, 5_000, m.MONTHS, m.first_business_day, 5_000, 40, 4, "FFCCSX"),
    Asset("SJC", 250_000, 100, "FHKNQUX", m.fifteenth, 45_000, currency="USD"),
)


def futures(count: int, today: date) -> Iterator[InstrumentSpec]:
    chain = min(max(MIN_CHAIN, count // 4), MAX_CHAIN)
    known = {asset.name for asset in ASSETS}
    invented = (
        Asset(name, 1_000_000 + 7_000 * i, 500, m.MONTHS, m.fifteenth, 10_000)
        for i, name in enumerate(invented_names("CVC", known))
    )
    number, fronts = itertools.count(), dict[str, str]()
    for rank, asset in enumerate(itertools.chain(ASSETS, invented), 1):
        for place, day in enumerate(itertools.islice(m.next_maturities(today, asset.months, asset.day), chain)):
            symbol = asset.name + m.contract_code(day)
            carried = asset.price * (1 + MONTHLY_CARRY * (day - today).days / 30)
            front = fronts.setdefault(asset.name, fronts.get(asset.twin, symbol))
            yield InstrumentSpec(
                symbol, InstrumentType.FUTURE, 0, asset.name, "", "FUT", asset.sub_type, asset.product, asset.cfi_code,
                asset.tick * PRICE_UNIT, round(carried / asset.tick) * asset.tick * PRICE_UNIT,
                decimals=_decimals(asset.tick), lot=asset.lot, isin=numbered_isin(asset.name, 1_000 + next(number)),
                description=f"{asset.name} FUT {day:%b%y}".upper(), currency=asset.currency,
                settl_currency="BRL", segment=FUTURES_SEGMENT, maturity=day, maturity_code=100 * day.year + day.month,
                settl_month=100 * day.year + day.month, multiplier=asset.multiplier * UNIT // 100,
                attributes=(ELECTRONIC, GTC), interest=rank * 2.0 * 4**place, follows="" if symbol == front else front,
            )  # fmt: skip


def _decimals(tick: int) -> int:
    """The decimals of a tick in 1e-4."""
    return next(decimals for decimals in range(5) if tick * 10**decimals % 10_000 == 0)


def fx_spot() -> Iterator[InstrumentSpec]:
    """USDBRLD2: spot FX, settled in two days, anonymous (Binary and FIX/FAST 288, 289: not sent in FX)."""
    rates = {"USD": 53_500, "EUR": 62_000, "GBP": 71_400, "JPY": 360, "CHF": 66_100, "CAD": 38_900, "AUD": 35_100}
    pairs = itertools.product((2, 1, 0), rates.items())
    for rank, (days, (currency, price)) in enumerate(pairs, 20):
        yield InstrumentSpec(
            f"{currency}BRLD{days}", InstrumentType.FX_SPOT, 0, currency, "", "SPOT", 4, 4, "IFXXXP", 5 * PRICE_UNIT,
            price // 5 * 5 * PRICE_UNIT, decimals=4, lot=1_000, lot_type=2, isin=numbered_isin(currency, rank),
            description=f"{currency}/BRL SPOT D+{days}", settl_currency=currency, segment=FX_SEGMENT,
            settl_days=days, attributes=(ELECTRONIC,), is_anonymous=True, interest=20.0 * rank,
        )  # fmt: skip


@dataclass(frozen=True)
class _Maturity:
    day: date
    code: int  # 200
    suffix: str
    style: int


def options(stocks: Sequence[InstrumentSpec], count: int, today: date) -> Iterator[InstrumentSpec]:
    """Calls and puts on the best known stocks, the strikes nearest to the price first; of the first stocks also weekly
    and daily ones."""
    monthly = [
        _Maturity(day, 100 * day.year + day.month, "", AMERICAN)
        for day in itertools.islice(m.next_maturities(today, m.MONTHS, m.third_friday), 3)
    ]
    short = [*_weekly(today), *_daily(today)]
    written = stocks[: max(1, min(len(stocks), count // 12))]
    known: set[str] = set()
    for distance in itertools.count():
        for number, stock in enumerate(written):
            ahead = [*monthly, *short] if number < len(written) // 4 else monthly
            for maturity, is_call in itertools.product(ahead, (1, 0)):
                yield _option(stock, number, maturity, is_call, distance, today, known)


def _weekly(today: date) -> Iterator[_Maturity]:
    """The next Fridays that are not the monthly maturity: W and the week of the month."""
    friday = today + timedelta((m.FRIDAY - today.weekday() - 1) % 7 + 1)
    for day in (friday + timedelta(7 * week) for week in range(3)):
        if day != m.third_friday(day.year, day.month):
            week = (day.day + 6) // 7
            yield _Maturity(day, 10_000 * day.year + 100 * day.month + WEEK + week, f"W{week}", EUROPEAN)


def _daily(today: date) -> Iterator[_Maturity]:
    """The next business days: D and the day of the month."""
    days = (today + timedelta(ahead) for ahead in range(1, 7))
    for day in itertools.islice((day for day in days if m.is_business_day(day)), 3):
        yield _Maturity(day, 10_000 * day.year + 100 * day.month + day.day, f"D{day.day:02}", EUROPEAN)


def _option(
    stock: InstrumentSpec, number: int, maturity: _Maturity, is_call: int, distance: int, today: date, known: set[str]
) -> InstrumentSpec:
    step = (distance + 1) // 2 * (1 if distance % 2 else -1)
    strike = max(round(stock.reference_ticks * (1 + 0.025 * step) / 10) * 10, 10)
    letter = (m.CALLS if is_call else m.PUTS)[maturity.day.month - 1]
    code = strike // 10
    while (symbol := f"{stock.asset}{letter}{code}{maturity.suffix}") in known:
        code += 1
    known.add(symbol)
    intrinsic = max(stock.reference_ticks - strike if is_call else strike - stock.reference_ticks, 0)
    time_value = 0.4 * 0.02 * stock.reference_ticks * math.sqrt((maturity.day - today).days)
    price = max(60, round(intrinsic + time_value / (1 + abs(step))))
    return InstrumentSpec(
        symbol, InstrumentType.OPTION, 0, stock.asset, "", "OPT", stock.sub_type, 5,
        f"O{'PC'[is_call]}{'EA'[maturity.style]}SPS", CENT, price * CENT, isin=numbered_isin(stock.asset, len(known)),
        description=f"{stock.asset} {'CALL' if is_call else 'PUT'} {strike / 100:.2f} {maturity.day:%d/%m/%y}",
        strike_currency="BRL", segment=OPTIONS_SEGMENT, maturity=maturity.day, maturity_code=maturity.code,
        strike=strike * CENT, put_or_call=is_call, exercise_style=maturity.style, multiplier=UNIT, settl_days=1,
        underlyings=(Underlying(stock.symbol),), attributes=(ELECTRONIC, GTC),
        interest=(number + 3) * 4.0 * (1 + distance), follows=stock.symbol, beta=0.5 if is_call else -0.5,
    )  # fmt: skip
