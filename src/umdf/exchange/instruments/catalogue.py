"""The instruments that a simulated day lists: stocks, options on them, chains of futures, and spreads of two of them.

The best known come first (PETR4, VALE3, WIN, DOL …); names and prices of the others are invented.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np

from umdf.exchange.instruments import maturities as m

STOCK, OPTION, FUTURE, STRATEGY = range(4)
OPTION_SHARE, FUTURE_SHARE, STRATEGY_SHARE = 0.22, 0.10, 0.02  # of the instruments; the rest are stocks
MIN_CHAIN, MAX_CHAIN = 3, 11  # maturities of an asset
MONTHLY_CARRY = 0.012  # by which a contract is dearer than one a month before
CENT = 10_000_000  # in 1e-9
EVEN_MONTHS, QUARTERS = "GJMQVZ", "HMUZ"
# Asset, price, tick (both in 1e-4), months, day of maturity, contract multiplier (1e-2).
ASSETS: tuple[tuple[str, int, int, str, m.DayRule, int], ...] = (
    ("WIN", 1_310_000_000, 50_000, EVEN_MONTHS, m.wednesday_near_fifteenth, 20),
    ("DOL", 53_500_000, 5_000, m.MONTHS, m.first_business_day, 5_000),
    ("WDO", 53_500_000, 5_000, m.MONTHS, m.first_business_day, 1_000),
    ("DI1", 135_000, 50, m.MONTHS, m.first_business_day, 100),
    ("IND", 1_310_000_000, 50_000, EVEN_MONTHS, m.wednesday_near_fifteenth, 100),
    ("BGI", 3_300_000, 500, m.MONTHS, m.last_business_day, 33_000),
    ("CCM", 720_000, 100, "FHKNUX", m.fifteenth, 45_000),
    ("WSP", 68_000_000, 2_500, QUARTERS, m.third_friday, 250),
    ("BIT", 4_800_000_000, 100_000, m.MONTHS, m.last_friday, 10),
    ("ICF", 3_900_000, 500, "HKNUZ", m.fifteenth, 10_000),
    ("EUR", 62_000_000, 5_000, m.MONTHS, m.first_business_day, 5_000),
    ("SJC", 250_000, 100, "FHKNQUX", m.fifteenth, 45_000),
)
# Symbol and price in cents.
STOCKS = (
    ("PETR4", 3_245), ("VALE3", 6_512), ("ITUB4", 3_987), ("BBDC4", 1_873), ("BBAS3", 2_218), ("B3SA3", 1_342),
    ("ABEV3", 1_265), ("PETR3", 3_478), ("WEGE3", 4_126), ("ITSA4", 1_154), ("MGLU3", 915), ("PRIO3", 4_033),
    ("SUZB3", 5_077), ("RENT3", 3_859), ("GGBR4", 1_846), ("JBSS3", 3_560), ("BBDC3", 1_622), ("ELET3", 5_214),
    ("RADL3", 2_040), ("LREN3", 1_588), ("CSNA3", 812), ("USIM5", 634), ("EQTL3", 3_521), ("VIVT3", 3_270),
    ("RAIL3", 1_723), ("SBSP3", 12_085), ("CMIG4", 1_108), ("HAPV3", 3_402), ("EMBR3", 8_150), ("BRFS3", 2_096),
    ("KLBN11", 1_874), ("TAEE11", 3_687), ("BPAC11", 4_720), ("SANB11", 2_915), ("BOVA11", 13_140), ("SMAL11", 10_455),
)  # fmt: skip
CONSONANTS, VOWELS = "BCDFGHJKLMNPQRSTVWXZ", "AEIOU"


@dataclass
class Instrument:
    symbol: str
    type: int
    asset: str
    tick: int  # 1e-9
    reference_ticks: int
    interest: float  # how much it trades: 1 is the most, 10 about a tenth
    lot: int = 100
    maturity: date | None = None
    strike_ticks: int = 0
    is_call: bool = False
    multiplier: int = 0  # 1e-9
    legs: tuple[int, int] = (-1, -1)  # sold, bought
    underlying: int = -1
    driver: int = -1  # the instrument that it moves with: the front of its chain, its underlying; -1 is itself
    follows: float = 1.0  # ticks for each tick of that


def generate(count: int, later: int, today: date, random: np.random.Generator) -> list[Instrument]:
    """`count` instruments, and `later` stocks that are listed during the day."""
    futures = max(MIN_CHAIN, round(count * FUTURE_SHARE))
    strategies, options = max(1, round(count * STRATEGY_SHARE)), round(count * OPTION_SHARE)
    stocks = count - futures - strategies - options
    found = list(itertools.islice(_futures(futures, today), futures))
    found += list(itertools.islice(_spreads(found), strategies))
    stock_list = list(itertools.islice(_stocks(random), stocks + later))
    first_stock = len(found)
    found += stock_list[:stocks]
    found += list(itertools.islice(_options(stock_list[:stocks], first_stock, options, today), options))
    return found + stock_list[stocks:]


def _names(letters: str, known: set[str]) -> Iterator[str]:
    """Names of a pattern: C is a consonant, V a vowel."""
    choices = [CONSONANTS if letter == "C" else VOWELS for letter in letters]
    for number in itertools.count():
        name, rest = "", number * 7_919  # scattered, so that neighbours differ
        for choice in choices:
            name, rest = name + choice[rest % len(choice)], rest // len(choice)
        if name not in known:
            known.add(name)
            yield name


def _futures(count: int, today: date) -> Iterator[Instrument]:
    chain = min(max(MIN_CHAIN, count // 4), MAX_CHAIN)
    known = {asset[0] for asset in ASSETS}
    invented = ((name, 1_000_000 + 7_000 * i, 500, m.MONTHS, m.fifteenth, 10_000)
                for i, name in enumerate(_names("CVC", known)))  # fmt: skip
    first = 0
    for rank, (asset, price, tick, months, rule, multiplier) in enumerate(itertools.chain(ASSETS, invented), 1):
        for number, day in enumerate(itertools.islice(m.next_maturities(today, months, rule), chain)):
            carried = price * (1 + MONTHLY_CARRY * (day - today).days / 30)
            yield Instrument(
                asset + m.contract_code(day), FUTURE, asset, tick * 100_000, round(carried / tick),
                rank * 2.0 * 4**number, 1, day, multiplier=multiplier * 10_000_000, driver=first,
            )  # fmt: skip
        first += chain


def _spreads(futures: list[Instrument]) -> Iterator[Instrument]:
    """Spreads of neighbouring maturities: the nearer is sold, the farther bought."""
    pairs = [(i, i + 1) for i in range(len(futures) - 1) if futures[i].asset == futures[i + 1].asset]
    for sold, bought in sorted(pairs, key=lambda pair: futures[pair[0]].interest):
        near, far = futures[sold], futures[bought]
        tick = near.tick // 5
        ticks = 5 * (far.reference_ticks - near.reference_ticks)
        symbol = near.symbol + far.symbol[len(far.asset) :]
        interest = 5 * near.interest
        yield Instrument(symbol, STRATEGY, near.asset, tick, ticks, interest, 1, near.maturity, legs=(sold, bought))


def _stocks(random: np.random.Generator) -> Iterator[Instrument]:
    rank = 0
    for symbol, cents in STOCKS:
        rank += 1
        yield Instrument(symbol, STOCK, symbol[:4], CENT, cents, float(rank))
    for name in _names("CVCC", {symbol[:4] for symbol, _ in STOCKS}):
        for suffix in "34":
            rank += 1
            yield Instrument(name + suffix, STOCK, name, CENT, int(random.integers(600, 9_000)), float(rank))


def _options(stocks: list[Instrument], first_stock: int, count: int, today: date) -> Iterator[Instrument]:
    """Calls and puts of three maturities on the best known stocks, the strikes nearest to the price first."""
    days = list(itertools.islice(m.next_maturities(today, m.MONTHS, m.third_friday), 3))
    written = stocks[: max(1, min(len(stocks), count // 12))]
    known: set[str] = set()
    for distance in itertools.count():
        for (number, stock), day, is_call in itertools.product(enumerate(written), days, (True, False)):
            step = (distance + 1) // 2 * (1 if distance % 2 else -1)
            strike = round(stock.reference_ticks * (1 + 0.025 * step) / 10) * 10
            letter = (m.CALLS if is_call else m.PUTS)[day.month - 1]
            code = strike // 10
            while (symbol := f"{stock.asset}{letter}{code}") in known:
                code += 1
            known.add(symbol)
            intrinsic = max(stock.reference_ticks - strike if is_call else strike - stock.reference_ticks, 0)
            time_value = 0.4 * 0.02 * stock.reference_ticks * math.sqrt((day - today).days)
            yield Instrument(
                symbol, OPTION, stock.asset, CENT, max(60, round(intrinsic + time_value / (1 + abs(step)))),
                (number + 3) * 4.0 * (1 + distance), 100, day, strike, is_call, underlying=first_stock + number,
                follows=0.5 if is_call else -0.5, driver=first_stock + number,
            )  # fmt: skip
