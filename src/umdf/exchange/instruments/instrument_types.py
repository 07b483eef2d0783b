"""The types of instruments: what follows from a type, for definitions, statistics and the generated order flow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class InstrumentType(IntEnum):
    STOCK = 0
    OPTION = 1
    FUTURE = 2
    STRATEGY = 3
    ODD_LOT = 4
    ETF = 5
    FX_SPOT = 6
    FIXED_INCOME = 7
    FORWARD = 8
    INDEX = 9
    LENDING = 10
    INDICATOR = 11


@dataclass(frozen=True)
class TypeRule:
    """`venue` is 1500. How far from its reference orders go (a share of it), and how much its price moves in a second.

    Binary has no template for what lending and indices publish: they belong on FIX/FAST channels (13.1, 10.10).
    """

    venue: str = "E"
    has_orders: bool = True
    is_settled: bool = False  # 10.6: derivatives and indices
    has_open_interest: bool = False  # 10.8
    is_equity: bool = False
    is_fast_only: bool = False
    bound_share: float = 0.125
    volatility: float = 4e-4


TYPE_RULES: dict[InstrumentType, TypeRule] = {
    InstrumentType.STOCK: TypeRule(is_equity=True),
    InstrumentType.OPTION: TypeRule(has_open_interest=True, bound_share=0.4, volatility=0),
    InstrumentType.FUTURE: TypeRule(is_settled=True, has_open_interest=True, bound_share=0.08, volatility=2e-4),
    InstrumentType.STRATEGY: TypeRule(volatility=1e-4),
    InstrumentType.ODD_LOT: TypeRule(is_equity=True),
    InstrumentType.ETF: TypeRule(is_equity=True),
    InstrumentType.FX_SPOT: TypeRule(bound_share=0.04, volatility=1e-4),
    InstrumentType.FIXED_INCOME: TypeRule(bound_share=0.05, volatility=5e-5),
    InstrumentType.FORWARD: TypeRule("T", is_equity=True),
    InstrumentType.INDEX: TypeRule("N", has_orders=False, is_settled=True, is_fast_only=True),
    InstrumentType.LENDING: TypeRule("L", has_open_interest=True, is_fast_only=True, bound_share=0.3),
    InstrumentType.INDICATOR: TypeRule(has_orders=False),
}


def types_where(attribute: str) -> tuple[int, ...]:
    """The types for which a rule says yes."""
    return tuple(int(kind) for kind, rule in TYPE_RULES.items() if getattr(rule, attribute))
