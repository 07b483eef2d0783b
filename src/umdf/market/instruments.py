"""Which instruments there are, and what is known of each: now, and at any moment before.

The one rule: a definition replaces the one before it whole (7.2: the exchange sends all characteristics), and the
same definition again, from the cyclic list or a retransmission, changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.market.current import Numbering
from umdf.market.events import DEFINITION, NULL, Column
from umdf.market.rows import List, Numbers, Rows, Text, Units, strings_of

NO_STRIKE = {90, 140, 141}  # strategies and rollovers among the options: a strike of zero is none (12.3)
EXCHANGE = "BVMF"  # where nothing else is said: Binary's constant
ALWAYS = NULL  # since when the start-of-day list holds: before everything
# About the list and the message, not about the instrument.
_NOT_COMPARED = {"action", "total_instruments", "is_last"}
_COLUMNS = tuple(column for column in DEFINITION.columns if column.name not in _NOT_COMPARED)
_PLACE = {name: i for i, name in enumerate([*(column.name for column in _COLUMNS), *DEFINITION.lists])}

Group = tuple[str, str]  # 1151 and 207: group codes repeat amongst exchanges (11 NOTE)


@dataclass(frozen=True, slots=True)
class Definition:
    """All characteristics of an instrument, by the names of the family; None where absent."""

    instrument_id: int
    values: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[_PLACE[name]]

    @property
    def symbol(self) -> str | None:
        return self["symbol"]

    @property
    def strike_price(self) -> int | None:
        return self["strike_price"]

    @property
    def group(self) -> Group | None:
        code = self["security_group"]
        return None if code is None else (code, self["security_exchange"] or EXCHANGE)

    @property
    def legs(self) -> tuple[dict[str, Any], ...]:
        return self["legs"]

    @property
    def underlyings(self) -> tuple[dict[str, Any], ...]:
        return self["underlyings"]

    def as_dict(self) -> dict[str, Any]:
        return {"instrument_id": self.instrument_id} | dict(zip(_PLACE, self.values, strict=True))


@dataclass(slots=True)
class Changed:
    """What some definitions changed. A caller drops the books and the state of what was deleted (7.3)."""

    added: list[int] = field(default_factory=list)
    modified: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Versions:
    """Every definition that an instrument had, and since when; None is deleted."""

    since: list[int] = field(default_factory=list)
    definitions: list[Definition | None] = field(default_factory=list)


class Instruments:
    """The instruments of a channel."""

    def __init__(self) -> None:
        self._now: dict[int, Definition] = {}
        self._versions: dict[int, Versions] = {}
        self._by_symbol: dict[str, int] = {}
        self._members: dict[Group, dict[int, None]] = {}
        self._symbols: tuple[Numbering, pa.Array] | None = None
        self.total: int | None = None  # 393, as sent last
        self.is_last_seen = False

    def __len__(self) -> int:
        return len(self._now)

    def __contains__(self, instrument_id: int) -> bool:
        return instrument_id in self._now

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_symbols": None}  # made again when asked for

    @property
    def is_complete(self) -> bool:
        """Whether the whole list was seen: as many instruments as 393 says; without it, up to 893."""
        return self.is_last_seen if self.total is None else len(self._now) >= self.total

    def apply(self, rows: Rows, units: Units, first: int = 0, last: int | None = None, *, intraday: bool) -> Changed:
        """Take in definition rows first … last - 1: of the list, or (intraday) of the incremental stream."""
        chosen, changed = slice(first, len(rows) if last is None else last), Changed()
        actions, ids = rows.column("action")[chosen].tolist(), rows.column("instrument_id")[chosen].tolist()
        sent = units.ts_send[rows.unit[chosen]].tolist()
        for action, instrument_id, ts, values in zip(actions, ids, sent, _values(rows, chosen), strict=True):
            if action == ord("D"):
                self._delete(instrument_id, ts, changed)
            else:
                is_first = not intraday and instrument_id not in self._versions
                self._put(Definition(instrument_id, values), ALWAYS if is_first else ts, changed)
        self._note_list(rows, chosen)
        if changed.added or changed.modified or changed.deleted:
            self._symbols = None
        return changed

    def _put(self, new: Definition, since: int, changed: Changed) -> None:
        old = self._now.get(new.instrument_id)
        if old is not None and old.values == new.values:
            return
        versions = self._versions.setdefault(new.instrument_id, Versions())
        if versions.since:
            since = max(since, versions.since[-1])  # the wire's order is the order
        (changed.added if old is None else changed.modified).append(new.instrument_id)
        versions.since.append(since)
        versions.definitions.append(new)
        if old is not None:
            self._leave(old)
        self._now[new.instrument_id] = new
        if new.symbol is not None:
            self._by_symbol[new.symbol] = new.instrument_id
        if new.group is not None:
            self._members.setdefault(new.group, {})[new.instrument_id] = None

    def _delete(self, instrument_id: int, since: int, changed: Changed) -> None:
        old = self._now.pop(instrument_id, None)
        if old is None:
            return
        self._leave(old)
        changed.deleted.append(instrument_id)
        versions = self._versions[instrument_id]
        versions.since.append(max(since, versions.since[-1]))
        versions.definitions.append(None)

    def _leave(self, old: Definition) -> None:
        if old.symbol is not None and self._by_symbol.get(old.symbol) == old.instrument_id:
            del self._by_symbol[old.symbol]
        if old.group is not None:
            self._members[old.group].pop(old.instrument_id, None)

    def _note_list(self, rows: Rows, chosen: slice) -> None:
        totals, ends = rows.columns.get("total_instruments"), rows.columns.get("is_last")
        if totals is not None:
            given = totals[chosen]
            given = given[given != NULL]
            self.total = int(given[-1]) if len(given) else self.total
        if ends is not None and (ends[chosen] == 1).any():
            self.is_last_seen = True

    # What is asked of them.

    def get(self, instrument_id: int) -> Definition | None:
        return self._now.get(instrument_id)

    def ids(self) -> list[int]:
        return sorted(self._now)

    def as_of(self, instrument_id: int, ts_ns: int) -> Definition | None:
        """The definition that held at a moment; the start-of-day list holds from before everything."""
        versions = self._versions.get(instrument_id)
        place = 0 if versions is None else bisect_right(versions.since, ts_ns)
        return versions.definitions[place - 1] if versions is not None and place else None

    def id_of(self, symbol: str) -> int | None:
        return self._by_symbol.get(symbol)

    def symbol_of(self, instrument_id: int) -> str | None:
        definition = self._now.get(instrument_id)
        return None if definition is None else definition.symbol

    def symbols_of(self, ids: Numbers) -> pa.Array:
        """The symbols of a column of instruments, as they are now."""
        if self._symbols is None:
            known = self.ids()
            symbols = pa.array([None, *(self._now[instrument_id].symbol for instrument_id in known)], pa.utf8())
            self._symbols = Numbering(np.array(known, np.int64)), symbols
        numbering, symbols = self._symbols
        return symbols.take(pa.array(numbering.of(ids) + 1))

    def group_of(self, instrument_id: int) -> Group | None:
        definition = self._now.get(instrument_id)
        return None if definition is None else definition.group

    def members(self, group: Group) -> Iterable[int]:
        return self._members.get(group, {}).keys()

    def groups(self) -> list[Group]:
        return sorted(group for group, members in self._members.items() if members)

    def depth_of(self, instrument_id: int, channel: int) -> int | None:
        """264 of an instrument on a channel: 0 order depth, 1 top of book, else levels; None where nothing is said."""
        definition = self._now.get(instrument_id)
        feeds = () if definition is None else definition["feeds"]
        return next((feed["depth"] or 0 for feed in feeds if feed["channel"] == channel), None)


def _values(rows: Rows, chosen: slice) -> Sequence[tuple[Any, ...]]:
    """The values of each row, by column and then list: what is compared, and what a Definition holds."""
    count = len(range(*chosen.indices(len(rows))))
    columns: list[Sequence[Any]] = [_column(column, rows.columns, rows.texts, chosen, count) for column in _COLUMNS]
    strike, sub_type = _PLACE["strike_price"], _PLACE["security_sub_type"]
    kinds = columns[sub_type]
    columns[strike] = [None if kind in NO_STRIKE else price for price, kind in zip(columns[strike], kinds, strict=True)]
    for name, fields in DEFINITION.lists.items():
        columns.append(_entries(fields, rows.lists.get(name), chosen, count))
    return list(zip(*columns, strict=True))


def _column(
    column: Column, columns: dict[str, Numbers], texts: dict[str, Text], chosen: slice, count: int
) -> Sequence[Any]:
    if column.is_text:
        text = texts.get(column.name)
        if text is None:
            return [None] * count
        first, last, _ = chosen.indices(len(text[0]) - 1)
        return [string or None for string in strings_of((text[0][first : last + 1], text[1]))]
    values = columns.get(column.name)
    if values is None:
        return [None] * count
    values, null = values[chosen], column.null
    found = values.tolist()
    return [None if value == null else value for value in found] if (values == null).any() else found


def _entries(fields: tuple[Column, ...], found: List | None, chosen: slice, count: int) -> Sequence[Any]:
    if found is None:
        return [()] * count
    offsets = found.offsets[chosen.start : chosen.stop + 1].tolist()
    inside = slice(offsets[0], offsets[-1])
    columns = [_column(column, found.columns, found.texts, inside, offsets[-1] - offsets[0]) for column in fields]
    names = [column.name for column in fields]
    entries = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [tuple(entries[a - offsets[0] : b - offsets[0]]) for a, b in pairwise(offsets)]
