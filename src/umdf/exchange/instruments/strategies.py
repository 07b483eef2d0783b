"""Strategies: spreads of neighbouring maturities, rollovers, and user-defined ones of two and more legs.

The price of a strategy is what its bought legs cost less what its sold legs bring, at its reference too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from umdf.exchange.instruments.equities import CENT, ELECTRONIC
from umdf.exchange.instruments.futures import FUTURES_SEGMENT, OPTIONS_SEGMENT
from umdf.exchange.instruments.instrument_spec import BUY, INDIVIDUAL, SELL, UNIT, InstrumentSpec, Leg
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.isin import numbered_isin

STRATEGY, FINANCIAL_ROLLOVER, AGRICULTURAL_ROLLOVER, USER_DEFINED = 90, 140, 141, 1108  # 762
MULTILEG = 16  # 460
EXCHANGE, USER = 0, 1  # 1377
ROLLED = {"DOL": "DR1", "WDO": "WD1", "IND": "IR1", "WIN": "WI1", "BGI": "BR1", "CCM": "CR1", "ICF": "KR1"}
AGRICULTURAL = ("BGI", "CCM", "ICF")


def spreads(futures: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """WINZ26G27: neighbouring maturities of an asset, the nearer sold, the farther bought."""
    pairs = [(near, far) for near, far in itertools.pairwise(futures) if near.asset == far.asset]
    for number, (near, far) in enumerate(sorted(pairs, key=lambda pair: pair[0].interest)):
        yield InstrumentSpec(
            near.symbol + far.symbol[len(far.asset) :], InstrumentType.STRATEGY, 0, near.asset, "", "MLEG", STRATEGY,
            MULTILEG, "KFXXXX", near.tick // 5, far.reference_price - near.reference_price,
            decimals=near.decimals + (near.tick // 5 * 10**near.decimals % UNIT > 0), lot=near.lot,
            isin=numbered_isin(near.asset, 20_000 + number), description=f"{near.symbol}-{far.symbol} SPREAD",
            currency=near.currency, segment=FUTURES_SEGMENT, maturity=near.maturity, maturity_code=near.maturity_code,
            strategy_type="FSP", multi_leg_model=EXCHANGE, price_method=INDIVIDUAL, attributes=(ELECTRONIC,),
            legs=(Leg(near.symbol, SELL), Leg(far.symbol, BUY)), is_implied=True, interest=5 * near.interest,
        )  # fmt: skip


def rollovers(futures: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """DR1Z26F27: out of a contract and into the next; subtype 140 or 141, without a strike (12.3)."""
    for spread in spreads([contract for contract in futures if contract.asset in ROLLED]):
        code, asset = spread.symbol[len(spread.asset) :], ROLLED[spread.asset]
        agricultural = spread.asset in AGRICULTURAL
        yield replace(
            spread, symbol=asset + code, asset=asset, strategy_type="ROL", interest=3 * spread.interest,
            is_implied=False, sub_type=AGRICULTURAL_ROLLOVER if agricultural else FINANCIAL_ROLLOVER,
            isin=numbered_isin(asset, 25_000 + int.from_bytes(code.encode()) % 9_973),
            description=spread.description.replace("SPREAD", "ROLLOVER"),
        )  # fmt: skip


def user_defined(options: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """UDS00001: spreads of two options of one series, and butterflies of three. They start Forbidden."""
    series: defaultdict[tuple[object, ...], list[InstrumentSpec]] = defaultdict(list)
    for option in options:
        series[option.asset, option.maturity, option.put_or_call].append(option)
    ladders = [sorted(ladder, key=lambda option: option.strike or 0) for ladder in series.values()]
    number = itertools.count(1)
    for ladder in ladders:
        for low, middle, high in zip(ladder, ladder[1:], ladder[2:], strict=False):
            yield _user_defined(next(number), (Leg(low.symbol, BUY), Leg(middle.symbol, SELL)), (low, middle))
            wings = Leg(low.symbol, BUY), Leg(middle.symbol, SELL, 2 * UNIT), Leg(high.symbol, BUY)
            yield _user_defined(next(number), wings, (low, middle, high))


def _user_defined(number: int, legs: tuple[Leg, ...], options: tuple[InstrumentSpec, ...]) -> InstrumentSpec:
    first = options[0]
    price = sum(
        (1 if leg.side == BUY else -1) * leg.ratio // UNIT * option.reference_price
        for leg, option in zip(legs, options, strict=True)
    )
    return InstrumentSpec(
        f"UDS{number:05}", InstrumentType.STRATEGY, 0, first.asset, "", "MLEG", USER_DEFINED, MULTILEG, "KOXXXX", CENT,
        price, lot=100, isin="", description=" ".join(f"{'SB'[leg.side == BUY]} {leg.symbol}" for leg in legs),
        segment=OPTIONS_SEGMENT, maturity=first.maturity, maturity_code=first.maturity_code, strategy_type="UDS",
        multi_leg_model=USER, price_method=INDIVIDUAL, legs=legs, attributes=(ELECTRONIC,), interest=3_000.0 + number,
    )  # fmt: skip
