"""The instruments of a bulk capture as columns, and their definitions.

It has more instruments than requested: the others are listed during the day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.catalogue import OPTION, STOCK, STRATEGY, Instrument, generate
from umdf.exchange.instruments.maturities import EPOCH
from umdf.market.rows import RepeatingGroup, Text, text_column

Columns = NDArray[np.int64]
TYPES = ("CS", "OPT", "FUT", "MLEG")
SUB_TYPES = (1, 2, 3, 90)
PRODUCTS = (5, 5, 4, 16)
CFI_CODES = ("ESVUFR", "OCASPS", "FXXXXX", "MMXXXX")
GROUP_LETTERS = "SOFM"
MAX_GROUPS = (6, 3, 2, 1)  # of each type
# How far from the reference orders go: a share of it in 1e-3 by type, and the fewest and the most ticks.
BOUND_SHARES, MIN_BOUND, MAX_SPREAD_BOUND = (125, 400, 80, 125), 16, 60
VOLATILITIES = (4e-4, 0, 2e-4, 1e-4)  # of the price in a second, by type; an option moves with its underlying
FEW_INSTRUMENTS, TOP_INSTRUMENTS, TOP_SHARE_FEW, TOP_SHARE_MANY = 200, 20, 0.96, 0.60
INTEREST_NOISE = 0.4  # standard deviation of its logarithm: no two days are alike
SBE_BYTES = {"block": 12, "group": 3, "leg": 38, "underlying": 28, "attribute": 2, "text": 2}
NULL, NULL_32, NULL_16, NULL_8 = -(1 << 63), -(1 << 31), -(1 << 15), -(1 << 7)
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Listing:
    """A row for each instrument; those from `initial_count` on are listed during the day."""

    initial_count: int
    security_id: Columns
    type: Columns
    group: Columns
    groups: list[str]
    tick: Columns
    lot: Columns
    reference_ticks: Columns
    bound_ticks: Columns  # how far from the reference orders go
    driver: Columns  # whose fair price it follows: its own, if it follows none
    beta: Columns  # how much it follows, 2^-16
    volatility: Columns  # of the fair price, in 2^-16 ticks in a second
    legs: Columns  # two of each strategy, -1 elsewhere
    underlying: Columns  # of each option, -1 elsewhere
    maturity: Columns  # days since 1970, NULL_32 where there is none
    maturity_month: Columns  # yyyymm
    instruments: list[Instrument]
    activity: NDArray[np.float64]  # share of the order flow
    trading_date: int

    def __len__(self) -> int:
        return len(self.security_id)

    @property
    def symbols(self) -> list[str]:
        return [instrument.symbol for instrument in self.instruments]

    @property
    def security_types(self) -> list[str]:
        return [TYPES[kind] for kind in self.type.tolist()]

    def by_activity(self) -> list[int]:
        return np.argsort(-self.activity[: self.initial_count], kind="stable").tolist()

    def definition(
        self, indices: Columns, lot: Columns
    ) -> tuple[dict[str, Any], dict[str, Text], dict[str, RepeatingGroup]]:
        """Columns, texts and lists of the family `definition`."""
        kind, stock = self.type[indices], self.type[indices] == STOCK
        option, strategy, count = self.type[indices] == OPTION, self.type[indices] == STRATEGY, len(indices)
        instruments = [self.instruments[i] for i in indices.tolist()]
        strike = np.array([instrument.strike_ticks for instrument in instruments]) * self.tick[indices]
        multiplier = np.array([instrument.multiplier for instrument in instruments])
        calls = np.array([instrument.is_call for instrument in instruments])
        columns: dict[str, Any] = {
            "instrument_id": self.security_id[indices],
            "security_sub_type": np.array(SUB_TYPES, np.int32)[kind],
            "product": np.array(PRODUCTS, np.int16)[kind],
            "tick": self.tick[indices],
            "tick_denominator": np.full(count, 2, np.int16),
            "strike_price": np.where(option, strike, NULL),
            "contract_multiplier": np.where(multiplier > 0, multiplier, NULL),
            "maturity_date": self.maturity[indices].astype(np.int32),
            "maturity_month_year": self.maturity_month[indices].astype(np.int32),
            "issue_date": np.full(count, self.trading_date - 400, np.int32),
            "ts_validity": np.full(count, (self.trading_date + 90) * 86_400 * SECOND_NS, np.int64),
            "exercise_style": np.where(option, 1, NULL_8).astype(np.int8),
            "put_or_call": np.where(option, calls, NULL_8).astype(np.int8),
            "market_segment_id": np.full(count, 1, np.int32),
            "multi_leg_model": np.where(strategy, 0, NULL_8).astype(np.int8),
            "implied_market_indicator": self.has_implied_orders[indices].astype(np.int8),
            "min_order_qty": lot,
            "max_order_qty": lot * 100_000,
            "min_trade_vol": lot,
            "shares_issued": np.where(stock, 1_000_000_000, NULL),
            "security_match_type": np.full(count, NULL_16, np.int16),
        }
        texts = {
            "symbol": text_column([instrument.symbol for instrument in instruments]),
            "security_exchange": text_column(["BVMF"] * count),
            "security_group": text_column([self.groups[group] for group in self.group[indices].tolist()]),
            "asset": text_column([instrument.asset for instrument in instruments]),
            "security_type": text_column([TYPES[i] for i in kind.tolist()]),
            "isin": text_column([_isin(self.instruments[i].asset, i) for i in indices.tolist()]),
            "cfi_code": text_column([CFI_CODES[i] for i in kind.tolist()]),
            "description": text_column(list(self._descriptions(indices))),
            "currency": text_column(["BRL"] * count),
            "country": text_column(["BR"] * count),
        }
        return columns, texts, {"legs": self._legs(indices), "underlyings": self._underlyings(indices)}

    def _descriptions(self, indices: Columns) -> list[str]:
        return [f"{self.instruments[i].symbol} {TYPES[self.type[i]]}" for i in indices.tolist()]

    @property
    def has_implied_orders(self) -> NDArray[np.bool_]:
        """Strategies and their legs have implied orders (14)."""
        implied = self.type == STRATEGY
        implied[self.legs[self.legs >= 0]] = True
        return implied

    def sbe_message_bytes(self, indices: Columns, block: int) -> Columns:
        """The bytes of each definition as a Binary message with a block of `block` bytes."""
        description_bytes = np.array([len(text) for text in self._descriptions(indices)])
        legs = 2 * (self.legs[indices, 0] >= 0)
        fixed = SBE_BYTES["block"] + block + 3 * SBE_BYTES["group"] + SBE_BYTES["text"]
        return (
            fixed
            + legs * SBE_BYTES["leg"]
            + (self.underlying[indices] >= 0) * SBE_BYTES["underlying"]
            + description_bytes
        )

    def _legs(self, indices: Columns) -> RepeatingGroup:
        legs = self.legs[indices][self.legs[indices][:, 0] >= 0].reshape(-1)
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(2 * (self.legs[indices, 0] >= 0), out=offsets[1:])
        columns = {
            "leg_id": self.security_id[legs],
            "leg_ratio": np.full(len(legs), 1_000_000_000, np.int64),
            "leg_side": np.tile(np.array([2, 1], np.int8), len(legs) // 2),
        }
        names = text_column([self.instruments[leg].symbol for leg in legs.tolist()])
        return RepeatingGroup(
            offsets, columns, {"leg_symbol": names, "leg_security_type": text_column(["FUT"] * len(legs))}
        )

    def _underlyings(self, indices: Columns) -> RepeatingGroup:
        underlyings = self.underlying[indices][self.underlying[indices] >= 0]
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(self.underlying[indices] >= 0, out=offsets[1:])
        names = text_column([self.instruments[i].symbol for i in underlyings.tolist()])
        return RepeatingGroup(offsets, {"underlying_id": self.security_id[underlyings]}, {"underlying_symbol": names})


def generate_listing(settings: BulkSettings, random: np.random.Generator) -> Listing:
    listed = settings.instruments
    today = EPOCH + timedelta(settings.trading_date)
    instruments = generate(listed, 1 + listed // 1_000, today, random)
    count = len(instruments)

    def column(values: list[Any]) -> Columns:
        return np.array(values, np.int64)

    kind, reference = column([i.type for i in instruments]), column([i.reference_ticks for i in instruments])
    groups, group = _groups(kind, instruments)
    bound = np.maximum(reference * np.array(BOUND_SHARES)[kind] // 1_000, MIN_BOUND)
    bound[kind == STRATEGY] = bound[kind == STRATEGY].clip(max=MAX_SPREAD_BOUND)
    driver = column([number if i.driver < 0 else i.driver for number, i in enumerate(instruments)])
    beta = column([round(i.follows * (1 << 16)) for i in instruments])
    maturity = [i.maturity for i in instruments]
    return Listing(
        listed,
        100_000_000 + 7_919 * np.arange(count) + random.integers(0, 1_000, count),
        kind,
        group,
        groups,
        column([i.tick for i in instruments]),
        column([i.lot for i in instruments]),
        reference,
        bound,
        driver,
        beta,
        (np.array(VOLATILITIES)[kind] * reference * (1 << 16)).astype(np.int64),
        column([i.legs for i in instruments]),
        column([i.underlying for i in instruments]),
        column([NULL_32 if day is None else (day - EPOCH).days for day in maturity]),
        column([NULL_32 if day is None else 100 * day.year + day.month for day in maturity]),
        instruments,
        _activity(np.array([i.interest for i in instruments]), random),
        settings.trading_date,
    )


def _groups(kind: Columns, instruments: list[Instrument]) -> tuple[list[str], Columns]:
    """Groups of each type; the contracts of one asset are in the same one."""
    names: list[str] = []
    group = np.zeros(len(kind), np.int64)
    for i, letter in enumerate(GROUP_LETTERS):
        members = np.flatnonzero(kind == i)
        group_count = max(1, min(MAX_GROUPS[i], len(members) // 8))
        number_of: dict[str, int] = {}
        for member in members.tolist():
            number = number_of.setdefault(instruments[member].asset, len(number_of))
            group[member] = len(names) + number % group_count
        names += [f"{letter}{number}" for number in range(1, group_count + 1)]
    return names, group


def _activity(interest: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """The top 20 have almost all of the flow if instruments are few, by Zipf's law within and below them."""
    count = len(interest)
    rank = np.arange(1, count + 1)
    top, rest = rank <= TOP_INSTRUMENTS, rank > TOP_INSTRUMENTS
    weight = np.zeros(count)
    weight[top] = rank[top] ** -0.75
    share = 1.0 if not rest.any() else TOP_SHARE_FEW if count <= FEW_INSTRUMENTS else TOP_SHARE_MANY
    weight[top] *= share / weight[top].sum()
    if rest.any():
        weight[rest] = 1.0 / rank[rest]
        weight[rest] *= (1 - share) / weight[rest].sum()
    activity = np.zeros(count)
    activity[np.argsort(interest * np.exp(random.normal(0, INTEREST_NOISE, count)), kind="stable")] = weight
    return activity


def _isin(asset: str, number: int) -> str:
    """BR, the issuer, a number in base 36 and the check digit (ISO 6166)."""
    code = ""
    for _ in range(5):
        number, digit = divmod(number, 36)
        code = DIGITS[digit] + code
    body = f"BR{asset:X<4}{code}"
    digits = [int(digit) for letter in body for digit in str(DIGITS.index(letter))]
    total = sum(sum(divmod(digit * 2, 10)) if i % 2 == 0 else digit for i, digit in enumerate(reversed(digits)))
    return body + str(-total % 10)
