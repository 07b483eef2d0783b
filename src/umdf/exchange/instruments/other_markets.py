"""Fixed income, indexes with what they are made of, and economic indicators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from umdf.exchange.instruments.equities import CENT
from umdf.exchange.instruments.instrument_spec import UNIT, InstrumentSpec, Underlying
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.isin import numbered_isin

RFQ = (24, 17)  # 871 and 872
FIXED_INCOME_SEGMENT = 5  # 1300
DEBENTURE, CERTIFICATE_REAL_ESTATE, CERTIFICATE_AGRIBUSINESS = 1302, 1303, 1304  # 762
NON_TRADABLE_ETF_INDEX, NON_TRADABLE_INDEX, ECONOMIC_INDICATOR = 1104, 1107, 80
# Symbol, points in 1e-2, the most underlyings.
INDEXES = (
    ("IBOV", 13_142_055, 86), ("IBXX", 5_534_028, 100), ("SMLL", 218_874, 115), ("IBXL", 2_174_611, 50),
    ("IDIV", 921_533, 60), ("IFNC", 1_512_240, 30), ("IMAT", 582_096, 25), ("ICON", 289_347, 40),
    ("UTIL", 1_288_305, 20), ("IGCX", 2_105_577, 110), ("ITAG", 3_208_116, 110), ("MLCX", 240_377, 70),
    ("INDX", 2_598_102, 60), ("IEEX", 9_874_120, 18), ("IMOB", 96_733, 15), ("ISEE", 365_208, 40),
    ("IBRA", 531_994, 110),
)  # fmt: skip
ON_IBOV = {(InstrumentType.FUTURE, "WIN"), (InstrumentType.FUTURE, "IND"),
           (InstrumentType.ETF, "BOVA"), (InstrumentType.ETF, "BOVV")}  # fmt: skip
INDICATORS = (
    ("PTAX", 53_512),
    ("SELIC", 149_000),
    ("DI1DAY", 148_900),
    ("IPCA", 68_410),
    ("IGPM", 11_340),
    ("TR", 1_712),
)
POINT_UNIT = UNIT // 100


def fixed_income(stocks: Sequence[InstrumentSpec], today: date) -> Iterator[InstrumentSpec]:
    """PETR26, a debenture, and certificates: ordinary instruments, known by 460, 167 and 762 (13.2)."""
    kinds = (
        (DEBENTURE, "", "DBFUFR"),
        (CERTIFICATE_REAL_ESTATE, "R", "DAFUFR"),
        (CERTIFICATE_AGRIBUSINESS, "A", "DAFUFR"),
    )
    for series, (rank, stock) in itertools.product(range(1, 79), enumerate(dict.fromkeys(s.asset for s in stocks), 1)):
        sub_type, letter, cfi_code = kinds[(rank + series) % 3]
        maturity = date(today.year + 2 + (rank + series) % 8, 1 + rank % 12, 15)
        number = 100 * series + rank
        yield InstrumentSpec(
            f"{stock}{letter}{20 + series}", InstrumentType.FIXED_INCOME, 0, stock, "", "CORP", sub_type, 3, cfi_code,
            CENT, (98_000 + number * 61 % 4_000) * CENT, lot=1, isin=numbered_isin(stock, 30_000 + number),
            description=f"{stock} {series}A EMISSAO", segment=FIXED_INCOME_SEGMENT, maturity=maturity, price_type=2,
            issue_date=date(maturity.year - 7, maturity.month, 15), settl_days=1, attributes=(RFQ,),
            interest=400.0 * rank * series,
        )  # fmt: skip


def indexes(stocks: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """IBOV: Σ quantity × price of its underlyings, divided by its reducer; then the indexes of the funds (1104)."""
    names = itertools.chain(
        INDEXES, ((f"{s.asset}X", s.reference_ticks * 10, 20) for s in stocks if s.sub_type == 1106)
    )
    shares = [stock for stock in stocks if stock.type == InstrumentType.STOCK]
    for number, (symbol, points, most) in enumerate(names):
        # Each starts elsewhere, but IBOV and the broad ones with the most traded shares.
        first = 0 if most > 80 else number * 3 % max(1, len(shares) // 2)
        members = shares[first : first + most]
        if not members:
            return
        quantities = [5_000_000_000 // (place + 2) for place in range(len(members))]
        values = [quantity * stock.reference_price for quantity, stock in zip(quantities, members, strict=True)]
        reducer = max(1, round(sum(values) / (points * POINT_UNIT)))
        yield InstrumentSpec(
            symbol, InstrumentType.INDEX, 0, symbol[:6], "", "INDEX",
            NON_TRADABLE_INDEX if number < len(INDEXES) else NON_TRADABLE_ETF_INDEX, 7, "TIEXXX", POINT_UNIT,
            points * POINT_UNIT, lot=1, lot_type=0, isin=numbered_isin(symbol, 40_000 + number),
            description=f"{symbol} INDEX", divisor=reducer * UNIT,
            underlyings=tuple(
                Underlying(stock.symbol, round(100 * UNIT * value / sum(values)), quantity * UNIT)
                for stock, quantity, value in zip(members, quantities, values, strict=True)
            ),
        )  # fmt: skip


def following_index(specs: Sequence[InstrumentSpec]) -> list[InstrumentSpec]:
    """Futures and funds on IBOV move with it, if it is listed: the carry of a contract is in its reference price."""
    ibov = next((spec for spec in specs if spec.symbol == INDEXES[0][0] and spec.type == InstrumentType.INDEX), None)
    return [
        replace(spec, follows=ibov.symbol, beta=spec.reference_ticks / ibov.reference_ticks)
        if ibov is not None and (spec.type, spec.asset) in ON_IBOV else spec
        for spec in specs
    ]  # fmt: skip


def indicators() -> Iterator[InstrumentSpec]:
    """Economic indicators: their value is a reference price (10.9)."""
    for symbol, price in INDICATORS:
        yield InstrumentSpec(
            symbol, InstrumentType.INDICATOR, 0, symbol, "", "SPOT", ECONOMIC_INDICATOR, 15, "TRXXXX", UNIT // 10_000,
            price * UNIT // 10_000, decimals=4, lot=1, lot_type=0, description=f"{symbol} INDICATOR", segment=8,
        )  # fmt: skip
