"""The instruments of a bulk capture: stocks, options on them, futures, and strategies of two futures.

It has more instruments than requested: the others are listed during the day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.market.rows import RepeatingGroup, Text, text_column

STOCK, OPTION, FUTURE, STRATEGY = range(4)
TYPES = ("CS", "OPT", "FUT", "MLEG")
SUB_TYPES = (1, 2, 3, 90)
PRODUCTS = (5, 5, 4, 16)
CFI_CODES = ("ESVUFR", "OCASPS", "FXXXXX", "MMXXXX")
TYPE_SHARES = (0.66, 0.22, 0.10, 0.02)  # of the instruments
GROUP_LETTERS = "SOFM"
MAX_GROUPS = (6, 3, 2, 1)  # of each type
TICKS = (10_000_000, 10_000_000, 5_000_000_000, 500_000_000)  # 0.01, 0.01, 5, 0.5, in 1e-9
LOTS = (100, 100, 1, 1)
REFERENCE_TICKS = ((600, 9_000), (200, 900), (20_000, 28_000), (400, 900))  # at the start of the day
FEW_INSTRUMENTS, TOP_INSTRUMENTS, TOP_SHARE_FEW, TOP_SHARE_MANY = 200, 20, 0.96, 0.60
SBE_BYTES = {"block": 12, "group": 3, "leg": 38, "underlying": 28, "attribute": 2, "text": 2}
MONTHS = "FGHJKMNQUVXZ"


@dataclass(frozen=True)
class Listing:
    """A row for each instrument; those from `initial_count` on are listed during the day."""

    initial_count: int
    security_id: NDArray[np.int64]
    type: NDArray[np.int64]
    group: NDArray[np.int64]
    groups: list[str]
    tick: NDArray[np.int64]
    lot: NDArray[np.int64]
    reference_ticks: NDArray[np.int64]
    legs: NDArray[np.int64]  # two of each strategy, -1 elsewhere
    underlying: NDArray[np.int64]  # of each option, -1 elsewhere
    symbols: list[str]
    activity: NDArray[np.float64]  # share of the order flow
    trading_date: int

    def __len__(self) -> int:
        return len(self.security_id)

    def by_activity(self) -> list[int]:
        return np.argsort(-self.activity[: self.initial_count], kind="stable").tolist()

    def definition(
        self, indices: NDArray[np.int64], lot: NDArray[np.int64]
    ) -> tuple[dict[str, Any], dict[str, Text], dict[str, RepeatingGroup]]:
        """Columns, texts and lists of the family `definition`."""
        kind, stock, future = self.type[indices], self.type[indices] == STOCK, self.type[indices] == FUTURE
        option, strategy, count = self.type[indices] == OPTION, self.type[indices] == STRATEGY, len(indices)
        null, none32, none16, none8 = -(1 << 63), -(1 << 31), -(1 << 15), -(1 << 7)
        price = self.reference_ticks[indices] * self.tick[indices]
        maturity_date = self.trading_date + 60
        columns: dict[str, Any] = {
            "instrument_id": self.security_id[indices],
            "security_sub_type": np.array(SUB_TYPES, np.int32)[kind],
            "product": np.array(PRODUCTS, np.int16)[kind],
            "tick": self.tick[indices],
            "tick_denominator": np.full(count, 2, np.int16),
            "strike_price": np.where(option, price * 10, null),
            "contract_multiplier": np.where(future, 200_000_000, null),  # 0.20
            "maturity_date": np.where(option | future, maturity_date, none32).astype(np.int32),
            "maturity_month_year": np.where(option | future, 202701, none32).astype(np.int32),
            "issue_date": np.full(count, self.trading_date - 400, np.int32),
            "ts_validity": np.full(count, (self.trading_date + 90) * 86_400 * SECOND_NS, np.int64),
            "exercise_style": np.where(option, 1, none8).astype(np.int8),
            "put_or_call": np.where(option, indices % 2, none8).astype(np.int8),
            "market_segment_id": np.full(count, 1, np.int32),
            "multi_leg_model": np.where(strategy, 0, none8).astype(np.int8),
            "implied_market_indicator": self.has_implied_orders[indices].astype(np.int8),
            "min_order_qty": lot,
            "max_order_qty": lot * 100_000,
            "min_trade_vol": lot,
            "shares_issued": np.where(stock, 1_000_000_000, null),
            "security_match_type": np.full(count, none16, np.int16),
        }
        names = [self.symbols[i] for i in indices.tolist()]
        texts = {
            "symbol": text_column(list(names)),
            "security_exchange": text_column(["BVMF"] * count),
            "security_group": text_column([self.groups[group] for group in self.group[indices].tolist()]),
            "asset": text_column([name[:4] for name in names]),
            "security_type": text_column([TYPES[i] for i in kind.tolist()]),
            "isin": text_column([f"BR{name[:4]:X<4}A{i:05}" for i, name in zip(indices.tolist(), names, strict=True)]),
            "cfi_code": text_column([CFI_CODES[i] for i in kind.tolist()]),
            "description": text_column(list(self._descriptions(indices))),
            "currency": text_column(["BRL"] * count),
            "country": text_column(["BR"] * count),
        }
        return columns, texts, {"legs": self._legs(indices), "underlyings": self._underlyings(indices)}

    def _descriptions(self, indices: NDArray[np.int64]) -> list[str]:
        return [f"{self.symbols[i]} {TYPES[self.type[i]]}" for i in indices.tolist()]

    @property
    def has_implied_orders(self) -> NDArray[np.bool_]:
        """Strategies and their legs have implied orders (14)."""
        implied = self.type == STRATEGY
        implied[self.legs[self.legs >= 0]] = True
        return implied

    def sbe_message_bytes(self, indices: NDArray[np.int64], block: int) -> NDArray[np.int64]:
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

    def _legs(self, indices: NDArray[np.int64]) -> RepeatingGroup:
        legs = self.legs[indices][self.legs[indices][:, 0] >= 0].reshape(-1)
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(2 * (self.legs[indices, 0] >= 0), out=offsets[1:])
        columns = {
            "leg_id": self.security_id[legs],
            "leg_ratio": np.full(len(legs), 1_000_000_000, np.int64),
            "leg_side": np.tile(np.array([2, 1], np.int8), len(legs) // 2),
        }
        names = text_column([self.symbols[leg] for leg in legs.tolist()])
        return RepeatingGroup(
            offsets, columns, {"leg_symbol": names, "leg_security_type": text_column(["FUT"] * len(legs))}
        )

    def _underlyings(self, indices: NDArray[np.int64]) -> RepeatingGroup:
        underlyings = self.underlying[indices][self.underlying[indices] >= 0]
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(self.underlying[indices] >= 0, out=offsets[1:])
        names = text_column([self.symbols[i] for i in underlyings.tolist()])
        return RepeatingGroup(offsets, {"underlying_id": self.security_id[underlyings]}, {"underlying_symbol": names})


def generate_listing(settings: BulkSettings, random: np.random.Generator) -> Listing:
    listed = settings.instruments
    count = listed + 1 + listed // 1_000
    kind = np.searchsorted(np.cumsum(TYPE_SHARES), (np.arange(count) + 0.5) / count).clip(0, STRATEGY)
    kind[-2:] = STOCK  # listed during the day
    kind[[0, 1, 2]], kind[3] = FUTURE, STRATEGY  # even if there are few instruments
    reference = np.array([random.integers(*REFERENCE_TICKS[i]) for i in kind.tolist()], np.int64)
    groups, group = _groups(kind)
    futures, stocks = np.flatnonzero(kind == FUTURE), np.flatnonzero(kind == STOCK)
    legs = np.full((count, 2), -1, np.int64)
    for i in np.flatnonzero(kind == STRATEGY).tolist():
        legs[i] = futures[i % (len(futures) - 1)], futures[i % (len(futures) - 1) + 1]
    underlying = np.where(kind == OPTION, stocks[np.arange(count) % len(stocks)], -1)
    return Listing(
        listed,
        100_000_000 + 7_919 * np.arange(count) + random.integers(0, 1_000, count),
        kind,
        group,
        groups,
        np.array(TICKS, np.int64)[kind],
        np.array(LOTS, np.int64)[kind],
        reference,
        legs,
        underlying,
        [_symbol(i, kind.tolist()) for i in range(count)],
        _activity(count, random),
        settings.trading_date,
    )


def _groups(kind: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    names: list[str] = []
    group = np.zeros(len(kind), np.int64)
    for i, letter in enumerate(GROUP_LETTERS):
        members = np.flatnonzero(kind == i)
        group_count = max(1, min(MAX_GROUPS[i], len(members) // 8))
        group[members] = len(names) + np.arange(len(members)) % group_count
        names += [f"{letter}{number}" for number in range(1, group_count + 1)]
    return names, group


def _symbol(i: int, kind: list[int]) -> str:
    letters = "".join(chr(65 + i // 26**power % 26) for power in (3, 2, 1, 0))
    return {
        STOCK: f"{letters}3",
        OPTION: f"{letters}{chr(65 + i % 12)}{i % 900 + 100}",
        FUTURE: f"{letters[1:]}{MONTHS[i % 12]}27",
        STRATEGY: f"{letters[1:]}F27{letters[1:]}G27",
    }[kind[i]]


def _activity(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """The top 20 have almost all of the flow if instruments are few, by Zipf's law within and below them."""
    rank = np.arange(1, count + 1)
    top, rest = rank <= TOP_INSTRUMENTS, rank > TOP_INSTRUMENTS
    weight = np.zeros(count)
    weight[top] = rank[top] ** -0.75
    share = 1.0 if not rest.any() else TOP_SHARE_FEW if count <= FEW_INSTRUMENTS else TOP_SHARE_MANY
    weight[top] *= share / weight[top].sum()
    if rest.any():
        weight[rest] = 1.0 / rank[rest]
        weight[rest] *= (1 - share) / weight[rest].sum()
    return weight[random.permutation(count)]
