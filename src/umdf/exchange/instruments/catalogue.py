"""The generator of catalogues: how many instruments of each type, and the parts put together.

The best known come first (PETR4, VALE3, WIN, DOL …); names and prices of the others are invented.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

import numpy as np

from umdf.errors import UsageError
from umdf.exchange.instruments import equities, futures, other_markets, strategies
from umdf.exchange.instruments.instrument_spec import InstrumentSpec
from umdf.exchange.instruments.instrument_types import InstrumentType as T

MIN_INSTRUMENTS, MAX_INSTRUMENTS, FEWEST_OF_TYPE = 100, 20_000, 3
# Shares of the instruments. Options are the rest, most of what an exchange lists.
ALL_MARKETS: Mapping[T, float] = {
    T.STOCK: 0.10, T.FUTURE: 0.06, T.STRATEGY: 0.06, T.ODD_LOT: 0.08, T.ETF: 0.02, T.FX_SPOT: 0.002,
    T.FIXED_INCOME: 0.05, T.FORWARD: 0.05, T.INDEX: 0.01, T.LENDING: 0.05, T.INDICATOR: 0.002,
}  # fmt: skip
# A bulk day is one channel with orders in all its instruments; small ones have the basic types only.
# Stocks are the rest.
BULK: Mapping[T, float] = {
    T.FUTURE: 0.10, T.STRATEGY: 0.02, T.OPTION: 0.22, T.ODD_LOT: 0.04, T.ETF: 0.01, T.FX_SPOT: 0.002,
    T.FIXED_INCOME: 0.02, T.FORWARD: 0.02,
}  # fmt: skip
BASIC_TYPES, MIN_SHARE_COUNT = (T.FUTURE, T.STRATEGY, T.OPTION), 4
GROUP_LETTERS = "SOFMLEXDTNBI"  # by type
USER_DEFINED_GROUP = "U1"
MAX_GROUPS = (6, 9, 4, 2, 2, 1, 1, 2, 2, 1, 2, 1)
FEWEST_OF_GROUP = 8


def generate_catalogue(count: int, seed: int, today: date) -> list[InstrumentSpec]:
    """Instruments of all markets."""
    if not MIN_INSTRUMENTS <= count <= MAX_INSTRUMENTS:
        hint = f"use {MIN_INSTRUMENTS} to {MAX_INSTRUMENTS}"
        raise UsageError(f"number of instruments out of range: {count}", hint)
    random = np.random.default_rng([seed, 0])
    counts = {kind: max(FEWEST_OF_TYPE, round(count * share)) for kind, share in ALL_MARKETS.items()}
    counts[T.OPTION] = count - sum(counts.values())
    return numbered(_generate(count, counts, 0, today, random)[0], random)


def generate_bulk(count: int, later: int, today: date, random: np.random.Generator) -> list[InstrumentSpec]:
    """The instruments of a bulk day, and `later` stocks that are listed during it."""
    counts = {kind: round(count * share) for kind, share in BULK.items()}
    counts = {kind: n for kind, n in counts.items() if n >= MIN_SHARE_COUNT or kind in BASIC_TYPES}
    counts[T.FUTURE] = max(futures.MIN_CHAIN, counts[T.FUTURE])
    counts[T.STRATEGY] = max(1, counts[T.STRATEGY])
    counts[T.STOCK] = count - sum(counts.values())
    found, new = _generate(count, counts, later, today, random)
    return numbered([*found, *new], random)


def _generate(
    count: int, counts: dict[T, int], later: int, today: date, random: np.random.Generator
) -> tuple[list[InstrumentSpec], list[InstrumentSpec]]:
    """The instruments, and stocks that are not listed yet."""
    stock_count = counts[T.STOCK]
    listed = list(itertools.islice(equities.stocks(random), stock_count + later))
    stocks, new = listed[:stock_count], listed[stock_count:]
    contracts = list(itertools.islice(futures.futures(counts[T.FUTURE], today), counts[T.FUTURE]))
    options = list(itertools.islice(futures.options(stocks, counts[T.OPTION], today), counts[T.OPTION]))
    parts: dict[T, Iterator[InstrumentSpec]] = {
        T.STRATEGY: _strategies(contracts, options, T.INDEX in counts),
        T.ODD_LOT: equities.odd_lots(stocks),
        T.ETF: equities.funds(listed),
        T.FX_SPOT: futures.fx_spot(),
        T.FIXED_INCOME: other_markets.fixed_income(stocks, today),
        T.FORWARD: equities.forwards(stocks, today),
        T.LENDING: equities.lendings(stocks),
        T.INDEX: other_markets.indexes(stocks),
        T.INDICATOR: other_markets.indicators(),
    }
    others = [list(itertools.islice(part, counts.get(kind, 0))) for kind, part in parts.items()]
    found = other_markets.following_index([*contracts, *others[0], *stocks, *options, *itertools.chain(*others[1:])])
    return _filled(found, count, stocks, today), new


def _filled(found: list[InstrumentSpec], count: int, stocks: list[InstrumentSpec], today: date) -> list[InstrumentSpec]:
    """As many as asked for: where a market has fewer than its share, more options."""
    missing = count - len(found)
    if missing:
        known = {spec.symbol for spec in found}
        more = (s for s in futures.options(stocks, 4 * len(found), today) if s.symbol not in known)
        found += itertools.islice(more, missing)
    return found


def _strategies(
    contracts: Sequence[InstrumentSpec], options: Sequence[InstrumentSpec], is_all: bool
) -> Iterator[InstrumentSpec]:
    """Spreads; of all markets every third is a rollover or user-defined."""
    parts = [strategies.spreads(contracts)]
    if is_all:
        parts += [strategies.rollovers(contracts), strategies.user_defined(options)]
    return (spec for row in itertools.zip_longest(*parts) for spec in row if spec is not None)


def numbered(specs: list[InstrumentSpec], random: np.random.Generator) -> list[InstrumentSpec]:
    """With SecurityIDs, and in the groups of their types; the contracts of one asset are in the same group."""
    ids = 100_000_000 + 7_919 * np.arange(len(specs)) + random.integers(0, 1_000, len(specs))
    members = np.bincount([spec.type for spec in specs], minlength=len(T)).tolist()
    groups = [max(1, min(most, n // FEWEST_OF_GROUP)) for most, n in zip(MAX_GROUPS, members, strict=True)]
    assets: list[dict[str, int]] = [{} for _ in T]
    result = []
    for spec, security_id in zip(specs, ids.tolist(), strict=True):
        place = assets[spec.type].setdefault(spec.asset, len(assets[spec.type]))
        group = f"{GROUP_LETTERS[spec.type]}{1 + place % groups[spec.type]}"
        if spec.is_user_defined:  # of options: they trade when these do, not with the spreads of futures
            group = USER_DEFINED_GROUP
        result.append(replace(spec, security_id=security_id, group=group))
    return result
