"""The instruments of a channel and their definitions: now, and as of any earlier time.

Invariant: a definition completely replaces the previous one (7.2: the exchange sends all characteristics), and the
same definition again, from the cyclic list or a retransmission, changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.families import DEFINITION, NULL, Column
from umdf.market.latest_rows import InstrumentIndex
from umdf.market.rows import Numbers, RepeatingGroup, Rows, Text, Units, strings_of

SUB_TYPES_WITHOUT_STRIKE = {90, 140, 141}  # strategies and rollovers among the options: a strike of zero is none (12.3)
DEFAULT_EXCHANGE = "BVMF"  # the default: Binary's constant
SINCE_ALWAYS = NULL  # start of the start-of-day list: before everything
# About the list and the message, not about the instrument.
_NOT_COMPARED = {"action", "total_instruments", "is_last"}
_COLUMNS = tuple(column for column in DEFINITION.columns if column.name not in _NOT_COMPARED)
_VALUE_INDEX = {name: i for i, name in enumerate([*(column.name for column in _COLUMNS), *DEFINITION.lists])}

Group = tuple[str, str]  # 1151 and 207: group codes repeat amongst exchanges (11 NOTE)


@dataclass(frozen=True, slots=True)
class Definition:
    """All characteristics of an instrument, by the names of the family; None where absent."""

    instrument_id: int
    values: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[_VALUE_INDEX[name]]

    @property
    def symbol(self) -> str | None:
        return self["symbol"]

    @property
    def strike_price(self) -> int | None:
        return self["strike_price"]

    @property
    def group(self) -> Group | None:
        code = self["security_group"]
        return None if code is None else (code, self["security_exchange"] or DEFAULT_EXCHANGE)

    @property
    def legs(self) -> tuple[dict[str, Any], ...]:
        return self["legs"]

    @property
    def underlyings(self) -> tuple[dict[str, Any], ...]:
        return self["underlyings"]

    def as_dict(self) -> dict[str, Any]:
        return {"instrument_id": self.instrument_id} | dict(zip(_VALUE_INDEX, self.values, strict=True))


@dataclass(slots=True)
class DefinitionChanges:
    """What some definitions changed. A caller drops the books and the state of what was deleted (7.3)."""

    added: list[int] = field(default_factory=list)
    modified: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DefinitionHistory:
    """Every definition of an instrument, with its start; None: deleted."""

    since: list[int] = field(default_factory=list)
    definitions: list[Definition | None] = field(default_factory=list)


class Instruments:
    """The instruments of a channel."""

    def __init__(self) -> None:
        self._definitions: dict[int, Definition] = {}
        self._histories: dict[int, DefinitionHistory] = {}
        self._by_symbol: dict[str, int] = {}
        self._group_members: dict[Group, dict[int, None]] = {}
        self._symbol_index: tuple[InstrumentIndex, pa.Array] | None = None
        self.total_instruments: int | None = None  # 393, as sent last
        self.has_last_fragment = False
        self.changes = 0  # how often definitions have changed: what is derived from them is out of date then

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, instrument_id: int) -> bool:
        return instrument_id in self._definitions

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_symbol_index": None}  # built again when needed

    @property
    def is_complete(self) -> bool:
        """Whether the whole list was seen: as many instruments as in 393; without it, up to 893."""
        return (
            self.has_last_fragment
            if self.total_instruments is None
            else len(self._definitions) >= self.total_instruments
        )

    def apply(
        self, rows: Rows, units: Units, first: int = 0, last: int | None = None, *, intraday: bool
    ) -> DefinitionChanges:
        """Apply definition rows first … last - 1: of the list, or (intraday) of the incremental stream."""
        row_range, changes = slice(first, len(rows) if last is None else last), DefinitionChanges()
        actions, ids = rows.column("action")[row_range].tolist(), rows.column("instrument_id")[row_range].tolist()
        send_times = units.ts_send[rows.unit[row_range]].tolist()
        for action, instrument_id, ts, values in zip(
            actions, ids, send_times, _row_values(rows, row_range), strict=True
        ):
            if action == ord("D"):
                self._delete(instrument_id, ts, changes)
            else:
                is_first = not intraday and instrument_id not in self._histories
                self._set_definition(Definition(instrument_id, values), SINCE_ALWAYS if is_first else ts, changes)
        self.update_list_totals(rows, row_range)
        if changes.added or changes.modified or changes.deleted:
            self._symbol_index = None
            self.changes += 1
        return changes

    def differing(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of these definitions are not those that are known."""
        ids, known = rows.column("instrument_id").tolist(), self._definitions
        values = zip(ids, _row_values(rows, slice(0, len(rows))), strict=True)
        same = (number in known and known[number].values == found for number, found in values)
        return ~np.fromiter(same, np.bool_, len(rows))

    def _set_definition(self, new: Definition, since: int, changes: DefinitionChanges) -> None:
        old = self._definitions.get(new.instrument_id)
        if old is not None and old.values == new.values:
            return
        history = self._histories.setdefault(new.instrument_id, DefinitionHistory())
        if history.since:
            since = max(since, history.since[-1])  # in wire order
        (changes.added if old is None else changes.modified).append(new.instrument_id)
        history.since.append(since)
        history.definitions.append(new)
        if old is not None:
            self._unindex(old)
        self._definitions[new.instrument_id] = new
        if new.symbol is not None:
            self._by_symbol[new.symbol] = new.instrument_id
        if new.group is not None:
            self._group_members.setdefault(new.group, {})[new.instrument_id] = None

    def _delete(self, instrument_id: int, since: int, changes: DefinitionChanges) -> None:
        old = self._definitions.pop(instrument_id, None)
        if old is None:
            return
        self._unindex(old)
        changes.deleted.append(instrument_id)
        history = self._histories[instrument_id]
        history.since.append(max(since, history.since[-1]))
        history.definitions.append(None)

    def _unindex(self, old: Definition) -> None:
        if old.symbol is not None and self._by_symbol.get(old.symbol) == old.instrument_id:
            del self._by_symbol[old.symbol]
        if old.group is not None:
            self._group_members[old.group].pop(old.instrument_id, None)

    def update_list_totals(self, rows: Rows, row_range: slice = slice(None)) -> None:
        """393 and 893 of these definitions."""
        totals, ends = rows.columns.get("total_instruments"), rows.columns.get("is_last")
        if totals is not None:
            sent_totals = totals[row_range]
            sent_totals = sent_totals[sent_totals != NULL]
            self.total_instruments = int(sent_totals[-1]) if len(sent_totals) else self.total_instruments
        if ends is not None and (ends[row_range] == 1).any():
            self.has_last_fragment = True

    # Queries.

    def get(self, instrument_id: int) -> Definition | None:
        return self._definitions.get(instrument_id)

    def ids(self) -> list[int]:
        return sorted(self._definitions)

    def as_of(self, instrument_id: int, ts_ns: int) -> Definition | None:
        """The definition as of a time; the start-of-day list applies from the beginning of time."""
        history = self._histories.get(instrument_id)
        count = 0 if history is None else bisect_right(history.since, ts_ns)
        return history.definitions[count - 1] if history is not None and count else None

    def id_of(self, symbol: str) -> int | None:
        return self._by_symbol.get(symbol)

    def symbol_of(self, instrument_id: int) -> str | None:
        definition = self._definitions.get(instrument_id)
        return None if definition is None else definition.symbol

    def symbols_of(self, ids: Numbers) -> pa.Array:
        """The symbols of a column of instruments, as they are now."""
        if self._symbol_index is None:
            known = self.ids()
            symbols = pa.array([None, *(self._definitions[instrument_id].symbol for instrument_id in known)], pa.utf8())
            self._symbol_index = InstrumentIndex(np.array(known, np.int64)), symbols
        numbering, symbols = self._symbol_index
        return symbols.take(pa.array(numbering.lookup(ids) + 1))

    def group_of(self, instrument_id: int) -> Group | None:
        definition = self._definitions.get(instrument_id)
        return None if definition is None else definition.group

    def members(self, group: Group) -> Iterable[int]:
        return self._group_members.get(group, {}).keys()

    def groups(self) -> list[Group]:
        return sorted(group for group, members in self._group_members.items() if members)

    def depth_of(self, instrument_id: int, channel: int) -> int | None:
        """264 of an instrument on a channel: 0 order depth, 1 top of book, else levels; None if it was not sent."""
        definition = self._definitions.get(instrument_id)
        feeds = () if definition is None else definition["feeds"]
        return next((feed["depth"] or 0 for feed in feeds if feed["channel"] == channel), None)


def _row_values(rows: Rows, row_range: slice) -> Sequence[tuple[Any, ...]]:
    """The values of each row, by column and then list: they are compared, and become a Definition."""
    count = len(range(*row_range.indices(len(rows))))
    columns: list[Sequence[Any]] = [
        _column_values(column, rows.columns, rows.texts, row_range, count) for column in _COLUMNS
    ]
    strike, sub_type = _VALUE_INDEX["strike_price"], _VALUE_INDEX["security_sub_type"]
    kinds = columns[sub_type]
    columns[strike] = [
        None if kind in SUB_TYPES_WITHOUT_STRIKE else price for price, kind in zip(columns[strike], kinds, strict=True)
    ]
    for name, fields in DEFINITION.lists.items():
        columns.append(_group_entries(fields, rows.lists.get(name), row_range, count))
    return list(zip(*columns, strict=True))


def _column_values(
    column: Column, columns: Mapping[str, Numbers], texts: dict[str, Text], row_range: slice, count: int
) -> Sequence[Any]:
    if column.is_text:
        text = texts.get(column.name)
        if text is None:
            return [None] * count
        first, last, _ = row_range.indices(len(text[0]) - 1)
        return [string or None for string in strings_of((text[0][first : last + 1], text[1]))]
    values = columns.get(column.name)
    if values is None:
        return [None] * count
    values, null = values[row_range], column.null
    found = values.tolist()
    return [None if value == null else value for value in found] if (values == null).any() else found


def _group_entries(
    fields: tuple[Column, ...], group: RepeatingGroup | None, row_range: slice, count: int
) -> Sequence[Any]:
    if group is None:
        return [()] * count
    offsets = group.offsets[row_range.start : row_range.stop + 1].tolist()
    inside = slice(offsets[0], offsets[-1])
    columns = [
        _column_values(column, group.columns, group.texts, inside, offsets[-1] - offsets[0]) for column in fields
    ]
    names = [column.name for column in fields]
    entries = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [tuple(entries[a - offsets[0] : b - offsets[0]]) for a, b in pairwise(offsets)]
