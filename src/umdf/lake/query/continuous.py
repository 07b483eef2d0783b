"""Continuous contracts: which contract `DOL.c.0` or `WIN.v.1` is on each trading date.

The roll rule, applied once for each trading date D, never using later information:

- candidates are the futures (167 = FUT) of the asset in the first complete instrument list of D (893 ends it) that can
  still be traded on D: their maturity (541) is D or later, and their trading (6938) does not end before D;
- `.c.N` ranks them by maturity: c.0 is the nearest;
- `.v.N` ranks them by volume (`day_statistics.volume`) on the last trading date of the lake before D; equal volumes by
  maturity. The first date of a lake has no earlier one, so it has no `.v.N`, and no rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError, UsageError, did_you_mean
from umdf.lake.query.arrays import distinct_texts, filter_rows, int64_values, is_in
from umdf.lake.query.name_lookup import close_matches
from umdf.lake.query.symbols import InstrumentCatalog, contracts_of_parent
from umdf.lake.query.table_reader import InstrumentFilter, partition_of, query_of, read_rows
from umdf.lake.query.times import TimeRange, format_dates, to_trading_date

CONTINUOUS_SYMBOL = re.compile(r"(?P<asset>.+)\.(?P<rule>[cv])\.(?P<rank>\d{1,3})")
HINT = "use ASSET.c.N (N-th nearest maturity, from 0) or ASSET.v.N (N-th most traded), for example DOL.c.0"
FUTURE = "FUT"
ROLL_SCHEMA = pa.schema(
    [
        ("trading_date", pa.date32()),
        ("continuous", pa.utf8()),
        ("symbol", pa.utf8()),
        ("channel_id", pa.int16()),
        ("instrument_id", pa.int64()),
        ("maturity_date", pa.date32()),
        ("volume", pa.int64()),
        ("volume_date", pa.date32()),
    ]
)


@dataclass(frozen=True)
class Contract:
    symbol: str
    maturity: date
    listings: tuple[tuple[int | None, int], ...]  # channel, instrument: a contract can be on several


@dataclass(frozen=True)
class Roll:
    """The contract of a continuous symbol on a trading date."""

    trading_date: date
    continuous: str
    symbol: str
    maturity_date: date
    listings: tuple[tuple[int | None, int], ...]
    volume: int | None = None  # used for the ranking
    volume_date: date | None = None


def resolve_rolls(
    catalog: InstrumentCatalog, symbols: Sequence[str], days: Sequence[date], span: TimeRange
) -> list[Roll]:
    """For each symbol, every date on which it has a contract."""
    known = {name: _parse_symbol(name) for name in symbols}
    found: list[Roll] = []
    for day in days:
        definitions = catalog.definitions([day], with_details=True)
        candidates = {asset: candidates_on(definitions, asset, day) for asset, _, _ in known.values()}
        previous_date = max((each for each in catalog.dates if each < day), default=None)
        for name, (asset, rule, rank) in known.items():
            ranked = candidates[asset]
            volumes: dict[str, int] = {}
            if rule == "v":
                volumes = volumes_on(catalog, previous_date) if previous_date else {}
                ranked = rank_by_volume(ranked, volumes) if previous_date else []
            if rank < len(ranked):
                one = ranked[rank]
                ranked_by = (volumes.get(one.symbol, 0), previous_date) if rule == "v" else (None, None)
                found.append(Roll(day, name, one.symbol, one.maturity, one.listings, *ranked_by))
    for name, (asset, rule, rank) in known.items():
        if not span.is_empty and not any(roll.continuous == name for roll in found):
            raise _no_contract_error(catalog, name, asset, rule, rank, days, span)
    return found


def roll_table(catalog: InstrumentCatalog, symbols: Sequence[str], span: TimeRange) -> pa.Table:
    """The same as rows, one per channel that has the contract."""
    days = [day for day in catalog.dates if span.includes_date(day)]
    rows = [
        {**vars(roll), "channel_id": channel, "instrument_id": number}
        for roll in resolve_rolls(catalog, symbols, days, span)
        for channel, number in roll.listings
    ]
    return pa.Table.from_pylist(rows, ROLL_SCHEMA)


def _parse_symbol(name: str) -> tuple[str, str, int]:
    match = CONTINUOUS_SYMBOL.fullmatch(name)
    if match is None:
        raise UsageError(f"invalid continuous symbol: {name!r}", HINT)
    return match["asset"], match["rule"], int(match["rank"])


def candidates_on(definitions: pa.Table, asset: str, day: date) -> list[Contract]:
    """The contracts of an asset that can be traded on a date, the nearest maturity first."""
    listings: dict[tuple[date, str], set[tuple[int | None, int]]] = {}
    ends = _list_ends(definitions)
    for row in contracts_of_parent(definitions, f"{asset}.{FUTURE}").to_pylist():
        maturity, validity = row["maturity_date"], row["ts_validity"]
        if maturity is None or maturity < day or (validity is not None and to_trading_date(validity - 1) < day):
            continue
        end = ends.get(row["channel_id"])
        if row["symbol"] is None or (end is not None and row["ts_recv"] is not None and row["ts_recv"] > end):
            continue
        listings.setdefault((maturity, row["symbol"]), set()).add((row["channel_id"], row["instrument_id"]))
    return [
        Contract(symbol, maturity, tuple(sorted(own, key=str))) for (maturity, symbol), own in sorted(listings.items())
    ]


def _list_ends(definitions: pa.Table) -> dict[Any, int]:
    """When the first instrument list of each channel was complete; later definitions may have been listed later."""
    last = filter_rows(definitions, int64_values(definitions.column("is_last")) == 1)
    found = last.group_by("channel_id").aggregate([("ts_recv", "min")]).to_pylist()
    return {row["channel_id"]: row["ts_recv_min"] for row in found}


def volumes_on(catalog: InstrumentCatalog, day: date) -> dict[str, int]:
    """Volume of each symbol on a date. Several channels have the same trades, so they are not added."""
    adds = catalog.snapshot.adds("day_statistics", trading_date=day)
    parts = {partition_of(add): InstrumentFilter() for add in adds}
    rows = read_rows(catalog.snapshot, query_of("day_statistics", filters=parts), ["symbol", "volume"])
    found: dict[str, int] = {}
    for symbol, volume in zip(*(rows.column(name).to_pylist() for name in ("symbol", "volume")), strict=True):
        if symbol is not None:
            found[symbol] = max(found.get(symbol, 0), volume or 0)
    return found


def rank_by_volume(candidates: Sequence[Contract], volumes: dict[str, int]) -> list[Contract]:
    return sorted(candidates, key=lambda one: (-volumes.get(one.symbol, 0), one.maturity, one.symbol))


def _no_contract_error(
    catalog: InstrumentCatalog, name: str, asset: str, rule: str, rank: int, days: Sequence[date], span: TimeRange
) -> UmdfError:
    listed = catalog.definitions(days, with_details=True)
    max_contracts = max(
        (len(candidates_on(catalog.definitions([day], with_details=True), asset, day)) for day in days), default=0
    )
    if not max_contracts:
        futures = filter_rows(listed, is_in(listed.column("security_type"), [FUTURE]))
        close = close_matches(asset, distinct_texts(futures.column("asset")))
        hint = did_you_mean(f"{each}.{rule}.{rank}" for each in close) if close else HINT
        return UmdfError(f"no futures of {asset!r} {span}", hint)
    if rule == "v" and list(days) == catalog.dates[:1]:
        reason = f"{name} is ranked by the previous day's volume, which the lake does not have (it starts on {days[0]})"
        return UmdfError(reason, f"use {asset}.c.{rank}, or ingest the day before")
    return UmdfError(f"{name}: {asset} has only {max_contracts} contracts {span}", f"dates: {format_dates(list(days))}")
