"""Stocks, exchange-traded funds, odd lots, forwards and lending contracts: the well-known tickers first, others
invented."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np

from umdf.exchange.instruments.instrument_spec import UNIT, InstrumentSpec, Underlying
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.isin import isin_of
from umdf.exchange.instruments.symbols import invented_names

CENT = UNIT // 100
ELECTRONIC, BLOCK, GTC = (24, 1), (24, 3), (34, 1)  # 871 and 872
EQUITY_CASH, EQUITY_ODD_LOT, EQUITY_FORWARD = 1, 2, 4  # 1300
NEW_MARKET, LEVEL_2, LEVEL_1 = 4, 2, 1  # 37011
# Symbol and price in cents.
STOCKS = (
    ("PETR4", 3_245), ("VALE3", 6_512), ("ITUB4", 3_987), ("BBDC4", 1_873), ("BBAS3", 2_218), ("B3SA3", 1_342),
    ("ABEV3", 1_265), ("PETR3", 3_478), ("WEGE3", 4_126), ("ITSA4", 1_154), ("MGLU3", 915), ("PRIO3", 4_033),
    ("SUZB3", 5_077), ("RENT3", 3_859), ("GGBR4", 1_846), ("JBSS3", 3_560), ("BBDC3", 1_622), ("ELET3", 5_214),
    ("RADL3", 2_040), ("LREN3", 1_588), ("CSNA3", 812), ("USIM5", 634), ("EQTL3", 3_521), ("VIVT3", 3_270),
    ("RAIL3", 1_723), ("SBSP3", 12_085), ("CMIG4", 1_108), ("HAPV3", 3_402), ("EMBR3", 8_150), ("BRFS3", 2_096),
    ("KLBN11", 1_874), ("TAEE11", 3_687), ("BPAC11", 4_720), ("SANB11", 2_915), ("BOVA11", 13_140), ("SMAL11", 10_455),
)  # fmt: skip
FUNDS = ("BOVA11", "SMAL11", "IVVB11", "BOVV11", "HASH11", "XINA11", "DIVO11", "ECOO11", "FIND11", "GOVE11", "MATB11",
         "PIBB11", "ISUS11", "BRAX11", "SPXI11")  # fmt: skip
# The suffix of a ticker: security type, subtype, CFI code, the end of its ISIN, governance.
SHARE_CLASSES = {
    "3": ("CS", 1003, "ESVUFR", "ACNOR", NEW_MARKET),
    "4": ("PS", 1004, "EPNNPR", "ACNPR", LEVEL_1),
    "5": ("PS", 1005, "EPNNPR", "ACNPA", LEVEL_1),
    "11": ("CS", 1116, "EMXXXR", "CDAM1", LEVEL_2),
}
FORWARD_DAYS = (30, 60, 90)


def stocks(random: np.random.Generator) -> Iterator[InstrumentSpec]:
    rank = 0
    for symbol, cents in STOCKS:
        rank += 1
        yield fund(symbol, cents, rank) if symbol in FUNDS else _share(symbol, cents, rank)
    for name in invented_names("CVCC", {symbol[:4] for symbol, _ in STOCKS}):
        for suffix in "34":
            rank += 1
            yield _share(name + suffix, int(random.integers(600, 9_000)), rank)


def _share(symbol: str, cents: int, rank: int) -> InstrumentSpec:
    security_type, sub_type, cfi_code, isin, governance = SHARE_CLASSES[symbol[4:]]
    return InstrumentSpec(
        symbol, InstrumentType.STOCK, 0, symbol[:4], "", security_type, sub_type, 5, cfi_code, CENT, cents * CENT,
        isin=isin_of(symbol, isin), description=f"{symbol[:4]} {_share_name(symbol[4:])}", segment=EQUITY_CASH,
        settl_days=2, shares_issued=1_000_000_000, governance=governance, corporate_action=100 + rank % 50,
        attributes=(ELECTRONIC, BLOCK, GTC), interest=float(rank),
    )  # fmt: skip


def _share_name(suffix: str) -> str:
    return {"3": "ON NM", "4": "PN N1", "5": "PNA N1", "11": "UNT N2"}[suffix]


def fund(symbol: str, cents: int, rank: int) -> InstrumentSpec:
    """An exchange-traded fund."""
    return InstrumentSpec(
        symbol, InstrumentType.ETF, 0, symbol[:4], "", "ETF", 1106, 5, "CEOGES", CENT, cents * CENT, lot=10,
        isin=isin_of(symbol, "CTF00"), description=f"{symbol[:4]} CI", segment=EQUITY_CASH, settl_days=2,
        shares_issued=100_000_000, corporate_action=100, attributes=(ELECTRONIC, GTC), interest=float(rank),
    )  # fmt: skip


def funds(listed: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """Funds that are not among the stocks yet."""
    known = {spec.symbol for spec in listed}
    invented = (name + "11" for name in invented_names("VCCV", {spec.asset for spec in listed}))
    for rank, symbol in enumerate(itertools.chain(FUNDS, invented), 60):
        if symbol not in known:
            yield fund(symbol, 5_000 + rank * 977 % 9_000, rank)


def odd_lots(listed: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """PETR4F beside PETR4: the same security in lots of one."""
    for spec in listed:
        if spec.type == InstrumentType.STOCK:
            yield replace(
                spec, symbol=spec.symbol + "F", type=InstrumentType.ODD_LOT, lot=1, lot_type=1, segment=EQUITY_ODD_LOT,
                description=spec.description + " FRAC", attributes=(ELECTRONIC, GTC), interest=40 * spec.interest,
                follows=spec.symbol,
            )  # fmt: skip


def forwards(listed: Sequence[InstrumentSpec], today: date) -> Iterator[InstrumentSpec]:
    """PETR4T30: a forward (termo) of 30 days on a stock."""
    for spec, days in itertools.product((s for s in listed if s.type == InstrumentType.STOCK), FORWARD_DAYS):
        yield replace(
            spec, symbol=f"{spec.symbol}T{days}", type=InstrumentType.FORWARD, security_type="FORWARD", sub_type=1100,
            cfi_code="JESXFP", reference_price=round(spec.reference_ticks * (1 + 0.0004 * days)) * CENT,
            description=f"{spec.description} TERMO {days}", segment=EQUITY_FORWARD, settl_days=days,
            maturity=today + timedelta(days), underlyings=(Underlying(spec.symbol),), attributes=(ELECTRONIC,),
            shares_issued=None, governance=None, corporate_action=None, interest=600 * spec.interest,
            follows=spec.symbol,
        )  # fmt: skip


def lendings(listed: Sequence[InstrumentSpec]) -> Iterator[InstrumentSpec]:
    """PETR4BTB: lending of a stock; its price is the rate in percent (13.1)."""
    for number, spec in enumerate(s for s in listed if s.type in (InstrumentType.STOCK, InstrumentType.ETF)):
        yield InstrumentSpec(
            spec.symbol + "BTB", InstrumentType.LENDING, 0, spec.asset, "", "SECLOAN", 1110, 5, "LSXXXX", CENT,
            (40 + number * 37 % 400) * CENT, lot=1, lot_type=0, description=f"{spec.symbol} EMPRESTIMO",
            underlyings=(Underlying(spec.symbol),), interest=900 * spec.interest,
        )  # fmt: skip
