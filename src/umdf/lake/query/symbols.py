"""Selects instruments: by symbol, by parent (all contracts of an asset), by instrument ID, by continuous symbol.

Invariant: an instrument is looked up in the definitions of each channel-day separately. A symbol can have another ID
on another day, and one instrument can be on several channels (order depth, price depth): then the result has the rows
of all of them, distinguished by `channel_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from numbers import Integral
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError, UsageError, did_you_mean
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.query.arrays import distinct_texts, empty_table, filter_rows, int64_values, is_in
from umdf.lake.query.name_lookup import MAX_NAMES_LISTED, check_choice, close_matches
from umdf.lake.query.table_reader import MARGIN_DAYS, InstrumentFilter, Partition, partition_of, query_of, read_rows
from umdf.lake.query.times import TimeRange, format_dates
from umdf.lake.report.lake_day import trading_dates
from umdf.lake.schemas import tables

SYMBOL_TYPES = ("raw", "parent", "continuous", "instrument_id")
SYMBOL_TYPE_ALIASES = {"raw_symbol": "raw"}
PARENT_HINT = "use ASSET.TYPE, for example DOL.FUT, WIN.FUT or PETR.OPT"
# `.OPT` means all options: the exchange has a type for each kind of underlying.
PARENT_TYPES = {"OPT": ("OPT", "FOPT", "SOPT", "INDEXOPT")}
DELETED = "D"
DEFINITION_COLUMNS = ("trading_date", "channel_id", "instrument_id", "symbol", "action")
DETAIL_COLUMNS = ("asset", "security_type", "maturity_date", "ts_validity", "is_last", "ts_recv")


@dataclass(frozen=True)
class Selection:
    """The instruments of a range: a filter per channel-day, and the requested names."""

    requested: tuple[str, ...]
    filters: Mapping[Partition, InstrumentFilter]
    # For continuous contracts.
    continuous_names: Mapping[Partition, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def is_continuous(self) -> bool:
        return bool(self.continuous_names)


class InstrumentCatalog:
    """The instruments of one commit of a lake, read when first needed."""

    def __init__(self, snapshot: LakeSnapshot) -> None:
        self.snapshot = snapshot
        self._definitions_by_date: dict[date | None, pa.Table] = {}

    @cached_property
    def dates(self) -> list[date]:
        """All trading dates of the lake, oldest first."""
        return trading_dates(self.snapshot)

    @cached_property
    def defined_partitions(self) -> frozenset[Partition]:
        """Channel-days with definitions: elsewhere rows may have symbols, but no list of them."""
        return frozenset(map(partition_of, self.snapshot.adds("definition")))

    def partitions_in(self, span: TimeRange, names: Iterable[str]) -> list[Partition]:
        """Channel-days of a range that some tables have; an error if the lake has none of its dates."""
        found = {partition_of(add) for name in names if tables()[name].partition for add in self.snapshot.adds(name)}
        inside = [part for part in found if part[0] is None or span.includes_date(part[0], MARGIN_DAYS)]
        if span.is_empty:
            return []
        if not any(day is not None and span.includes_date(day) for day, _ in inside):
            self.check_has_dates(span)
        return sort_partitions(inside)

    def check_has_dates(self, span: TimeRange) -> None:
        if not self.dates:
            root = self.snapshot.paths.root
            raise UmdfError(f"the lake {root} is empty", f"load captures with `umdf ingest CAPTURE… --lake {root}`")
        if not span.is_empty and not any(map(span.includes_date, self.dates)):
            raise UmdfError(f"no data {span}", f"available dates: {format_dates(self.dates)}")

    def definitions(self, days: Iterable[date | None], with_details: bool = False) -> pa.Table:
        """Definitions of some dates: DEFINITION_COLUMNS, and with `with_details` also DETAIL_COLUMNS."""
        names = [*DEFINITION_COLUMNS, *DETAIL_COLUMNS] if with_details else list(DEFINITION_COLUMNS)
        found = []
        for day in sorted(set(days), key=lambda day: day or date.min):
            known = self._definitions_by_date.get(day)
            if known is None or not set(names) <= set(known.schema.names):
                self._definitions_by_date[day] = known = self._read_definitions(day, names)
            found.append(known.select(names))
        schema = pa.schema([tables()["definition"].schema.field(name) for name in names])
        return pa.concat_tables([empty_table(schema), *found])

    def _read_definitions(self, day: date | None, names: Sequence[str]) -> pa.Table:
        parts = [part for part in self.defined_partitions if part[0] == day]
        return read_rows(
            self.snapshot,
            query_of("definition", filters=dict.fromkeys(parts, InstrumentFilter())),
            names,
            ordered=False,
        )

    def symbols(self, days: Iterable[date | None]) -> list[str]:
        return distinct_texts(self.definitions(days).column("symbol"))

    def select(self, symbols: Any, stype_in: str, span: TimeRange, names: Iterable[str]) -> Selection | None:
        """The selected instruments, on channel-days that these tables have; None: all."""
        stype = check_choice("stype_in", SYMBOL_TYPE_ALIASES.get(stype_in, stype_in), SYMBOL_TYPES)
        parts = self.partitions_in(span, {*names, "definition"})
        if symbols is None:
            return None
        asked = parse_symbols(symbols, stype)
        if span.is_empty:
            return Selection(asked, {}, {(None, None): {}} if stype == "continuous" else {})
        return _RESOLVERS[stype](self, asked, parts, span)

    def select_in(self, symbols: Any, stype_in: str, parts: list[Partition]) -> Selection | None:
        """The selected instruments of these channel-days."""
        days = [day for day, _ in parts if day is not None]
        span = TimeRange(min(days), date.fromordinal(max(days).toordinal() + 1))
        selection = self.select(symbols, stype_in, span, ["definition"])
        if selection is None:
            return None
        wanted = {part: selection.filters[part] for part in parts if part in selection.filters}
        return replace(selection, filters=wanted)


def sort_partitions(parts: Iterable[Partition]) -> list[Partition]:
    return sorted(parts, key=lambda part: (part[0] or date.min, part[1] or -1))


def parse_symbols(symbols: Any, stype: str) -> tuple[str, ...]:
    single = isinstance(symbols, (str, Integral))
    found = [symbols] if single else list(symbols) if isinstance(symbols, Iterable) else []
    allows_ids = stype == "instrument_id"
    for each in found:
        is_symbol = isinstance(each, str) or (allows_ids and isinstance(each, Integral) and not isinstance(each, bool))
        if not is_symbol or not str(each).strip():
            hint = "use a string or a list of strings, or numbers with stype_in='instrument_id'"
            raise UsageError(f"invalid symbol: {each!r}", hint)
    if not found:
        raise UsageError("symbols is empty", "omit it for all symbols")
    return tuple(dict.fromkeys(str(each).strip() for each in found))


def unknown_symbol_error(catalog: InstrumentCatalog, name: str, span: TimeRange) -> UmdfError:
    """The symbol may be listed on other dates, or be misspelt."""
    inside = [day for day in catalog.dates if span.includes_date(day)]
    listed = catalog.definitions(catalog.dates)
    own = filter_rows(listed, is_in(listed.column("symbol"), [name]))
    elsewhere = sorted(set(own.column("trading_date").to_pylist()))
    if elsewhere:
        return UmdfError(f"{name} is not listed {span}", f"it is listed on {format_dates(elsewhere)}")
    known = catalog.symbols(inside) or catalog.symbols(catalog.dates)
    close = close_matches(name, known)
    some = ", ".join(list(known)[:MAX_NAMES_LISTED])
    hint = did_you_mean(close) if close else f"there are {some} …; `day_statistics` has them all in the column symbol"
    return UmdfError(f"unknown symbol: {name!r}", hint)


def _resolve_raw(
    catalog: InstrumentCatalog, asked: tuple[str, ...], parts: list[Partition], span: TimeRange
) -> Selection:
    definitions = catalog.definitions({day for day, _ in parts})
    own = filter_rows(definitions, is_in(definitions.column("symbol"), asked))
    for name in asked:
        if name not in set(own.column("symbol").to_pylist()) and set(parts) <= catalog.defined_partitions:
            raise unknown_symbol_error(catalog, name, span)
    ids, symbols = _ids_by_partition(own), frozenset(asked)
    wanted = {}
    for part in parts:
        if part not in catalog.defined_partitions:
            wanted[part] = InstrumentFilter(None, symbols)
        elif part in ids:
            wanted[part] = InstrumentFilter(ids[part], symbols)
    return Selection(asked, wanted)


def _resolve_parent(
    catalog: InstrumentCatalog, asked: tuple[str, ...], parts: list[Partition], span: TimeRange
) -> Selection:
    definitions = catalog.definitions({day for day, _ in parts}, with_details=True)
    wanted: dict[Partition, frozenset[int]] = {}
    for name in asked:
        own = contracts_of_parent(definitions, name)
        if not own.num_rows:
            raise _unknown_parent_error(name, definitions, span)
        for part, ids in _ids_by_partition(own).items():
            wanted[part] = wanted.get(part, frozenset()) | ids
    return Selection(asked, {part: InstrumentFilter(ids) for part, ids in wanted.items()})


def contracts_of_parent(definitions: pa.Table, name: str) -> pa.Table:
    """The definitions of the contracts of a parent."""
    asset, dot, kind = name.rpartition(".")
    if not dot or not asset:
        raise UsageError(f"invalid parent symbol: {name!r}", PARENT_HINT)
    chosen = is_in(definitions.column("asset"), [asset])
    chosen &= is_in(definitions.column("security_type"), PARENT_TYPES.get(kind, (kind,)))
    return filter_rows(definitions, chosen & ~is_in(definitions.column("action"), DELETED))


def _unknown_parent_error(name: str, listed: pa.Table, span: TimeRange) -> UmdfError:
    pairs = listed.group_by(["asset", "security_type"]).aggregate([]).to_pylist()
    known = sorted(f"{pair['asset']}.{pair['security_type']}" for pair in pairs if pair["asset"])
    close = close_matches(name, known)
    hint = did_you_mean(close) if close else PARENT_HINT
    return UmdfError(f"no contracts of {name!r} are listed {span}", hint)


def _resolve_instrument_id(
    catalog: InstrumentCatalog, asked: tuple[str, ...], parts: list[Partition], span: TimeRange
) -> Selection:
    try:
        ids = frozenset(map(int, asked))
    except ValueError:
        wrong = next(each for each in asked if not each.lstrip("-").isdigit())
        hint = "omit stype_in to select by symbol"
        raise UsageError(f"invalid instrument ID: {wrong!r}", hint) from None
    known = set(int64_values(catalog.definitions({day for day, _ in parts}).column("instrument_id")).tolist())
    missing = sorted(ids - known)
    if missing:  # an instrument may have rows without a definition
        question = query_of("day_statistics", span=span)
        known |= set(int64_values(read_rows(catalog.snapshot, question, ["instrument_id"]).column(0)).tolist())
    for number in missing:
        if number not in known and known:
            raise UmdfError(f"unknown instrument ID {span}: {number}", "list them with lake.definitions()")
    return Selection(asked, dict.fromkeys(parts, InstrumentFilter(ids)))


def _resolve_continuous(
    catalog: InstrumentCatalog, asked: tuple[str, ...], parts: list[Partition], span: TimeRange
) -> Selection:
    from umdf.lake.query.continuous import resolve_rolls

    rolled = resolve_rolls(catalog, asked, [day for day in catalog.dates if span.includes_date(day, 1)], span)
    names: dict[Partition, dict[int, tuple[str, ...]]] = {}
    for roll in rolled:
        for channel, number in roll.listings:
            partition_names = names.setdefault((roll.trading_date, channel), {})
            partition_names[number] = (*partition_names.get(number, ()), roll.continuous)
    return Selection(asked, {part: InstrumentFilter(frozenset(ids)) for part, ids in names.items()}, names)


_RESOLVERS = {
    "raw": _resolve_raw,
    "parent": _resolve_parent,
    "instrument_id": _resolve_instrument_id,
    "continuous": _resolve_continuous,
}


def _ids_by_partition(rows: pa.Table) -> dict[Partition, frozenset[int]]:
    found: dict[Partition, set[int]] = {}
    keys = (rows.column(name).to_pylist() for name in ("trading_date", "channel_id", "instrument_id"))
    for day, channel, number in zip(*keys, strict=True):
        found.setdefault((day, channel), set()).add(number)
    return {part: frozenset(ids) for part, ids in found.items()}
