"""Events in memory: the columns of each family, between a decoder and its consumers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, buffer_address
from umdf.market.families import FAMILIES, Family

Numbers = NDArray[Any]
RowSelection = NDArray[Any]  # rows: their numbers, or a mask
Text = tuple[NDArray[np.int32], NDArray[np.uint8]]  # Arrow's offsets (rows + 1 of them), and the bytes


ColumnPlaces = Mapping[str, tuple[int, np.dtype[Any], int | None]]  # index in memory, type, value if always the same


class ConstantColumns:
    """Columns of one value, shared by many rows and so read-only."""

    def __init__(self) -> None:
        self._known: dict[tuple[np.dtype[Any], int], tuple[Numbers, int]] = {}

    def array(self, dtype: np.dtype[Any], value: int, count: int) -> Numbers:
        return self._find(dtype, value, count)[0][:count]

    def address(self, dtype: np.dtype[Any], value: int, count: int) -> int:
        """The address of `count` such values; valid until a longer column of this value is wanted."""
        return self._find(dtype, value, count)[1]

    def _find(self, dtype: np.dtype[Any], value: int, count: int) -> tuple[Numbers, int]:
        found = self._known.get((dtype, value))
        if found is None or len(found[0]) < count:
            array = np.full(max(1024, 2 * count), value).astype(dtype)
            array.flags.writeable = False
            found = self._known[dtype, value] = array, array.ctypes.data
        return found


class MemoryColumns(MutableMapping[str, Numbers]):
    """Columns in one memory, a stride apart. They become arrays when they are asked for: most callers need a few of
    them, and of a single packet the arrays would cost more than the values."""

    __slots__ = ("_arrays", "_constants", "_first_row", "_memory", "_places", "_rows", "_stride")

    def __init__(
        self,
        places: ColumnPlaces,
        rows: int,
        memory: Memory,
        stride: int,
        first_row: int = 0,
        constants: ConstantColumns | None = None,
    ) -> None:
        self._places, self._rows, self._memory, self._stride = places, rows, memory, stride
        self._first_row, self._constants = first_row, constants  # `constants` has the columns of one value
        self._arrays: dict[str, Numbers | MemoryColumns] = {}

    def __getitem__(self, name: str) -> Numbers:
        array = self._arrays.get(name)
        if type(array) is np.ndarray:
            return array
        if array is not None:
            array = self._arrays[name] = array[name]
        else:
            index, dtype, value = self._places[name]
            if value is not None and self._constants is not None:
                array = self._constants.array(dtype, value, self._rows)
            else:
                at = index * self._stride + self._first_row * dtype.itemsize
                array = np.ndarray(self._rows, dtype, self._memory.array, at)
            self._arrays[name] = array
        return array

    def get(self, name: str, default: Any = None) -> Any:
        if name in self._places or name in self._arrays:
            return self[name]
        return default

    def address(self, name: str) -> int:
        """The address of a column, for kernels; valid while these columns exist."""
        array = self._arrays.get(name)
        if array is None:
            index, dtype, value = self._places[name]
            if value is None or self._constants is None:
                return self._memory.address + index * self._stride + self._first_row * dtype.itemsize
            return self._constants.address(dtype, value, self._rows)
        return buffer_address(array) if isinstance(array, np.ndarray) else array.address(name)

    def addresses(self, wanted: Mapping[str, tuple[np.dtype[Any], int]], absent: ConstantColumns) -> list[int] | None:
        """The addresses of several columns; one that is not here is of its null value. None: a column was replaced by
        one of another type or size."""
        found: list[int] = []
        for name, (dtype, null) in wanted.items():
            array = self._arrays.get(name)
            if type(array) is np.ndarray and not (
                array.dtype == dtype and array.flags.c_contiguous and len(array) == self._rows
            ):
                return None
            if array is None and name not in self._places:
                found.append(absent.address(dtype, null, self._rows))
            else:
                found.append(self.address(name))
        return found

    def share(self, name: str, columns: MemoryColumns) -> None:
        """Have a column of the same name of other columns, of the same rows."""
        self._arrays[name] = columns

    def __setitem__(self, name: str, values: Numbers) -> None:
        self._arrays[name] = values

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._places = {each: place for each, place in self._places.items() if each != name}
        self._arrays.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._places, *self._arrays]))

    def __len__(self) -> int:
        return len({*self._places, *self._arrays})


@dataclass(eq=False)
class Units:
    """The numbered units that events came in: SBE packets or FAST messages."""

    channel_id: Numbers  # int16
    seq_version: Numbers  # int64
    sequence: Numbers  # int64
    ts_send: Numbers  # int64
    ts_recv: Numbers  # int64

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, rows: slice | RowSelection) -> Units:
        columns = (self.channel_id, self.seq_version, self.sequence, self.ts_send, self.ts_recv)
        return Units(*(column[rows] for column in columns))


@dataclass(eq=False)
class Rows:
    """Rows of one family in wire order. A missing column is NULL in every row.

    `unit` is the row of `Units` that an event came in; (unit, msg_index, entry_index) is the order among all families.
    """

    family: Family
    unit: NDArray[np.uint32]
    msg_index: NDArray[np.uint16]
    entry_index: NDArray[np.uint16]
    columns: MutableMapping[str, Numbers]  # with the family's types; includes ts_event, instrument_id, rpt_seq, flags
    texts: dict[str, Text] = field(default_factory=dict)
    lists: dict[str, RepeatingGroup] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def wire_order(self) -> NDArray[np.int64]:
        """A number for each row that grows in wire order, over all families of a batch."""
        return self.unit.astype(np.int64) << 32 | self.msg_index.astype(np.int64) << 16 | self.entry_index

    def column(self, name: str) -> Numbers:
        """A column of numbers; one of NULLs if the protocol has none."""
        values = self.columns.get(name)
        if values is None:
            column = self.family.column(name)
            values = np.full(len(self), column.null if column.nullable else 0, column.dtype)
        return values

    def take(self, rows: RowSelection) -> Rows:
        """These rows (numbers or a mask), in this order."""
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Rows(
            self.family,
            self.unit[numbers],
            self.msg_index[numbers],
            self.entry_index[numbers],
            {name: values[numbers] for name, values in self.columns.items()},
            {name: take_text(text, numbers) for name, text in self.texts.items()},
            {name: entries.take(numbers) for name, entries in self.lists.items()},
        )


@dataclass(eq=False)
class RepeatingGroup:
    """Repeating groups of some rows: row i has the entries offsets[i] … offsets[i + 1] - 1."""

    offsets: NDArray[np.int32]
    columns: dict[str, Numbers]
    texts: dict[str, Text] = field(default_factory=dict)

    def take(self, rows: RowSelection) -> RepeatingGroup:
        """The entries of these rows."""
        offsets, entries = take_ranges(self.offsets, rows)
        columns = {name: values[entries] for name, values in self.columns.items()}
        return RepeatingGroup(offsets, columns, {name: take_text(text, entries) for name, text in self.texts.items()})


@dataclass(eq=False)
class Events:
    """All events of a batch, by family; families without rows are left out."""

    units: Units
    families: Mapping[str, Rows]

    def rows(self, name: str) -> Rows:
        """The rows of a family, perhaps none."""
        found = self.families.get(name)
        return empty_rows(FAMILIES[name]) if found is None else found

    def take(self, selections: Mapping[str, RowSelection]) -> Events:
        """The families of `selections`, each with these rows (numbers or a mask)."""
        kept = {name: self.families[name].take(rows) for name, rows in selections.items() if name in self.families}
        return Events(self.units, {name: rows for name, rows in kept.items() if len(rows)})

    def of_units(self, units: NDArray[Any]) -> Events:
        """The events of some units (their numbers, rising, or a mask), with only those units."""
        if units.dtype != np.bool_ and len(units) == len(self.units):
            return self
        is_chosen = np.zeros(len(self.units), np.bool_)
        is_chosen[units] = True
        if is_chosen.all():
            return self
        number = np.cumsum(is_chosen) - 1
        kept = self.take({name: is_chosen[rows.unit] for name, rows in self.families.items()})
        for rows in kept.families.values():
            rows.unit = number[rows.unit].astype(np.uint32)
        return Events(self.units.take(is_chosen), kept.families)

    def compacted(self) -> Events:
        """The same rows with only their own units: after `take`, a few rows no longer keep the columns of a batch."""
        used = np.unique(np.concatenate([rows.unit for rows in self.families.values()]))
        families = {}
        for name, rows in self.families.items():
            unit, place = np.searchsorted(used, rows.unit).astype(np.uint32), (rows.msg_index, rows.entry_index)
            families[name] = Rows(rows.family, unit, *place, rows.columns, rows.texts, rows.lists)
        return Events(self.units.take(used), families)

    @property
    def nbytes(self) -> int:
        total = 5 * 8 * len(self.units)
        for rows in self.families.values():
            total += 8 * len(rows) + sum(column.nbytes for column in rows.columns.values())
            total += sum(offsets.nbytes + content.nbytes for offsets, content in rows.texts.values())
        return total


def merge_events(parts: Sequence[Events]) -> Events:
    """Events of several batches of one epoch as one batch in wire order. Families with repeating groups are omitted."""
    if len(parts) == 1:
        return parts[0]
    columns = (np.concatenate([getattr(part.units, name) for part in parts]) for name in Units.__dataclass_fields__)
    units = Units(*columns)
    order = np.argsort(units.sequence, kind="stable")
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    first_units = np.cumsum([0, *(len(part.units) for part in parts)])
    families: dict[str, Rows] = {}
    for name in {name for part in parts for name in part.families}:
        some = [
            (part.families[name], first)
            for part, first in zip(parts, first_units, strict=False)
            if name in part.families
        ]
        rows = _concat_rows([rows for rows, _ in some])
        rows.unit = rank[np.concatenate([rows.unit.astype(np.int64) + first for rows, first in some])]
        families[name] = rows.take(np.argsort(rows.wire_order, kind="stable"))
    return Events(units.take(order), families)


def _concat_rows(parts: list[Rows]) -> Rows:
    names = sorted({name for rows in parts for name in rows.columns})
    texts = sorted({name for rows in parts for name in rows.texts})
    return Rows(
        parts[0].family,
        np.concatenate([rows.unit for rows in parts]),
        np.concatenate([rows.msg_index for rows in parts]),
        np.concatenate([rows.entry_index for rows in parts]),
        {name: np.concatenate([rows.column(name) for rows in parts]) for name in names},
        {name: _concat_texts([rows.texts.get(name, _no_text(len(rows))) for rows in parts]) for name in texts},
    )


def _no_text(count: int) -> Text:
    return np.zeros(count + 1, np.int32), np.empty(0, np.uint8)


def _concat_texts(parts: list[Text]) -> Text:
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in parts])
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, np.concatenate([content[offsets[0] : offsets[-1]] for offsets, content in parts])


def take_ranges(offsets: NDArray[np.int32], rows: RowSelection) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Of ranges by their offsets: the offsets of some of them joined, and the indices of their content."""
    first, size = offsets[rows].astype(np.int64), np.diff(offsets)[rows]
    new_offsets = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=new_offsets[1:])
    return new_offsets, np.arange(int(new_offsets[-1])) + np.repeat(first - new_offsets[:-1], size)


def take_text(text: Text, rows: RowSelection) -> Text:
    offsets, byte_rows = take_ranges(text[0], rows)
    return offsets, text[1][byte_rows]


_NO_UNITS, _NO_INDICES = np.empty(0, np.uint32), np.empty(0, np.uint16)


def empty_rows(family: Family) -> Rows:
    return Rows(family, _NO_UNITS, _NO_INDICES, _NO_INDICES, {})


def no_units() -> Units:
    return Units(*[np.empty(0, np.int64)] * 5)


def text_column(strings: list[str | None]) -> Text:
    """A text column of some strings; None is an empty one."""
    parts = [(string or "").encode() for string in strings]
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(parts), np.uint8)


def strings_of(text: Text) -> list[str]:
    """The strings of a text column."""
    offsets, content = text[0].tolist(), text[1].tobytes()
    return [content[a:b].decode("utf-8", "replace") for a, b in pairwise(offsets)]
