"""Which instruments a caller means: by symbol, by parent (all contracts of an asset), by number, by continuous name.

The one rule: an instrument is looked up in the definitions of each trading date and channel anew. A symbol can have
another number on another day, and one instrument can be on several channels (order depth, price depth): then the
answer has the rows of all of them, told apart by `channel_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from numbers import Integral
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError, UsageError
from umdf.lake.query.arrays import is_text, no_rows, numbers, rows_where, texts_in
from umdf.lake.query.names import among, near
from umdf.lake.query.reading import MARGIN_DAYS, Part, Wanted, part_of, question_of, read
from umdf.lake.query.times import Span, named_dates
from umdf.lake.report_day import dates_of
from umdf.lake.schemas import tables
from umdf.lake.snapshot import Snapshot

STYPES = ("raw", "parent", "continuous", "instrument_id")
STYPE_ALIASES = {"raw_symbol": "raw"}
PARENT_HINT = "say ASSET.TYPE, such as DOL.FUT, WIN.FUT or PETR.OPT"
# `.OPT` means options of every kind, as the exchange has a type for each kind of underlying.
PARENT_TYPES = {"OPT": ("OPT", "FOPT", "SOPT", "INDEXOPT")}
DELETED = "D"
LISTED = ("trading_date", "channel_id", "instrument_id", "symbol", "action")
MORE = ("asset", "security_type", "maturity_date", "ts_validity", "is_last", "ts_recv")


@dataclass(frozen=True)
class Selection:
    """The instruments of a range: what to read of each trading date and channel, and how it was called."""

    asked: tuple[str, ...]
    wanted: Mapping[Part, Wanted]
    names: Mapping[Part, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)  # of continuous contracts

    @property
    def is_continuous(self) -> bool:
        return bool(self.names)


class Catalogue:
    """What one commit of a lake says of its instruments, read when it is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._days: dict[date | None, pa.Table] = {}

    @cached_property
    def dates(self) -> list[date]:
        """Every trading date that a table of the lake has, the oldest first."""
        return dates_of(self.snapshot)

    @cached_property
    def defined(self) -> frozenset[Part]:
        """Those with definitions: elsewhere rows may have symbols, but nobody lists them."""
        return frozenset(map(part_of, self.snapshot.adds("definition")))

    def parts_in(self, span: Span, names: Iterable[str]) -> list[Part]:
        """Trading dates and channels of a span that some tables have; the lake must have at least one of its dates."""
        found = {part_of(add) for name in names if tables()[name].partition for add in self.snapshot.adds(name)}
        inside = [part for part in found if part[0] is None or span.has_date(part[0], MARGIN_DAYS)]
        if span.is_empty:
            return []
        if not any(day is not None and span.has_date(day) for day, _ in inside):
            self.check(span)
        return in_part_order(inside)

    def check(self, span: Span) -> None:
        if not self.dates:
            root = self.snapshot.home.root
            raise UmdfError(f"the lake {root} is empty", "`umdf ingest CAPTURES --lake DIR` fills it")
        if not span.is_empty and not any(map(span.has_date, self.dates)):
            raise UmdfError(f"the lake has nothing {span}", f"it has {named_dates(self.dates)}")

    def listed(self, days: Iterable[date | None], more: bool = False) -> pa.Table:
        """Definitions of some dates: LISTED, and with `more` also MORE."""
        names = [*LISTED, *MORE] if more else list(LISTED)
        found = []
        for day in sorted(set(days), key=lambda day: day or date.min):
            known = self._days.get(day)
            if known is None or not set(names) <= set(known.schema.names):
                self._days[day] = known = self._read(day, names)
            found.append(known.select(names))
        schema = pa.schema([tables()["definition"].schema.field(name) for name in names])
        return pa.concat_tables([no_rows(schema), *found])

    def _read(self, day: date | None, names: Sequence[str]) -> pa.Table:
        parts = [part for part in self.defined if part[0] == day]
        return read(
            self.snapshot, question_of("definition", wanted=dict.fromkeys(parts, Wanted())), names, ordered=False
        )

    def symbols(self, days: Iterable[date | None]) -> list[str]:
        return texts_in(self.listed(days).column("symbol"))

    def selection(self, symbols: Any, stype_in: str, span: Span, names: Iterable[str]) -> Selection | None:
        """The instruments that are meant, where these tables have something; None: all."""
        stype = among("stype_in", STYPE_ALIASES.get(stype_in, stype_in), STYPES)
        parts = self.parts_in(span, {*names, "definition"})
        if symbols is None:
            return None
        asked = asked_symbols(symbols, stype)
        if span.is_empty:
            return Selection(asked, {}, {(None, None): {}} if stype == "continuous" else {})
        return _RESOLVERS[stype](self, asked, parts, span)

    def selection_of(self, symbols: Any, stype_in: str, parts: list[Part]) -> Selection | None:
        """The instruments that are meant, of these trading dates and channels."""
        days = [day for day, _ in parts if day is not None]
        span = Span(min(days), date.fromordinal(max(days).toordinal() + 1))
        selection = self.selection(symbols, stype_in, span, ["definition"])
        if selection is None:
            return None
        wanted = {part: selection.wanted[part] for part in parts if part in selection.wanted}
        return replace(selection, wanted=wanted)


def in_part_order(parts: Iterable[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part[0] or date.min, part[1] or -1))


def asked_symbols(symbols: Any, stype: str) -> tuple[str, ...]:
    single = isinstance(symbols, (str, Integral))
    found = [symbols] if single else list(symbols) if isinstance(symbols, Iterable) else []
    numbers_too = stype == "instrument_id"
    for each in found:
        good = isinstance(each, str) or (numbers_too and isinstance(each, Integral) and not isinstance(each, bool))
        if not good or not str(each).strip():
            hint = "a text or a list of texts; numbers with stype_in='instrument_id'"
            raise UsageError(f"symbols: {each!r} is no symbol", f"give {hint}")
    if not found:
        raise UsageError("symbols: none is given", "name at least one, or leave them out for all")
    return tuple(dict.fromkeys(str(each).strip() for each in found))


def unknown_symbol(catalogue: Catalogue, name: str, span: Span) -> UmdfError:
    """It may be known on other dates, or by nearly the same name."""
    inside = [day for day in catalogue.dates if span.has_date(day)]
    listed = catalogue.listed(catalogue.dates)
    own = rows_where(listed, is_text(listed.column("symbol"), [name]))
    elsewhere = sorted(set(own.column("trading_date").to_pylist()))
    if elsewhere:
        return UmdfError(f"{name} is not listed {span}", f"it is on {named_dates(elsewhere)}")
    close = near(name, catalogue.symbols(inside) or catalogue.symbols(catalogue.dates))
    hint = f"did you mean {' or '.join(close)}?" if close else "lake.symbols() lists those that are known"
    return UmdfError(f"no symbol {name!r} in the lake", hint)


def _raw(catalogue: Catalogue, asked: tuple[str, ...], parts: list[Part], span: Span) -> Selection:
    listed = catalogue.listed({day for day, _ in parts})
    own = rows_where(listed, is_text(listed.column("symbol"), asked))
    for name in asked:
        if name not in set(own.column("symbol").to_pylist()) and set(parts) <= catalogue.defined:
            raise unknown_symbol(catalogue, name, span)
    ids, symbols = _ids_by_part(own), frozenset(asked)
    wanted = {}
    for part in parts:
        if part not in catalogue.defined:
            wanted[part] = Wanted(None, symbols)
        elif part in ids:
            wanted[part] = Wanted(ids[part], symbols)
    return Selection(asked, wanted)


def _parent(catalogue: Catalogue, asked: tuple[str, ...], parts: list[Part], span: Span) -> Selection:
    listed = catalogue.listed({day for day, _ in parts}, more=True)
    wanted: dict[Part, frozenset[int]] = {}
    for name in asked:
        own = of_parent(listed, name)
        if not own.num_rows:
            raise _unknown_parent(name, listed, span)
        for part, ids in _ids_by_part(own).items():
            wanted[part] = wanted.get(part, frozenset()) | ids
    return Selection(asked, {part: Wanted(ids) for part, ids in wanted.items()})


def of_parent(listed: pa.Table, name: str) -> pa.Table:
    """The definitions of a parent's contracts."""
    asset, dot, kind = name.rpartition(".")
    if not dot or not asset:
        raise UsageError(f"{name!r} is no parent symbol", PARENT_HINT)
    chosen = is_text(listed.column("asset"), [asset])
    chosen &= is_text(listed.column("security_type"), PARENT_TYPES.get(kind, (kind,)))
    return rows_where(listed, chosen & ~is_text(listed.column("action"), DELETED))


def _unknown_parent(name: str, listed: pa.Table, span: Span) -> UmdfError:
    pairs = listed.group_by(["asset", "security_type"]).aggregate([]).to_pylist()
    known = sorted(f"{pair['asset']}.{pair['security_type']}" for pair in pairs if pair["asset"])
    close = near(name, known)
    hint = f"did you mean {' or '.join(close)}?" if close else PARENT_HINT
    return UmdfError(f"no contracts of {name!r} are listed {span}", hint)


def _instrument_id(catalogue: Catalogue, asked: tuple[str, ...], parts: list[Part], span: Span) -> Selection:
    try:
        ids = frozenset(map(int, asked))
    except ValueError:
        wrong = next(each for each in asked if not each.lstrip("-").isdigit())
        hint = "leave stype_in out to ask by symbol"
        raise UsageError(f"symbols: {wrong!r} is no instrument number", hint) from None
    known = set(numbers(catalogue.listed({day for day, _ in parts}).column("instrument_id")).tolist())
    missing = sorted(ids - known)
    if missing:  # it may have rows without a definition
        question = question_of("day_statistics", span=span)
        known |= set(numbers(read(catalogue.snapshot, question, ["instrument_id"]).column(0)).tolist())
    for number in missing:
        if number not in known and known:
            raise UmdfError(
                f"no instrument {number} in the lake {span}", "lake.definitions() lists those that are known"
            )
    return Selection(asked, dict.fromkeys(parts, Wanted(ids)))


def _continuous(catalogue: Catalogue, asked: tuple[str, ...], parts: list[Part], span: Span) -> Selection:
    from umdf.lake.query.continuous import rolls

    rolled = rolls(catalogue, asked, [day for day in catalogue.dates if span.has_date(day, 1)], span)
    names: dict[Part, dict[int, tuple[str, ...]]] = {}
    for roll in rolled:
        for channel, number in roll.places:
            here = names.setdefault((roll.trading_date, channel), {})
            here[number] = (*here.get(number, ()), roll.continuous)
    return Selection(asked, {part: Wanted(frozenset(ids)) for part, ids in names.items()}, names)


_RESOLVERS = {"raw": _raw, "parent": _parent, "instrument_id": _instrument_id, "continuous": _continuous}


def _ids_by_part(rows: pa.Table) -> dict[Part, frozenset[int]]:
    found: dict[Part, set[int]] = {}
    keys = (rows.column(name).to_pylist() for name in ("trading_date", "channel_id", "instrument_id"))
    for day, channel, number in zip(*keys, strict=True):
        found.setdefault((day, channel), set()).add(number)
    return {part: frozenset(ids) for part, ids in found.items()}
