"""Columns of events → the columns that a FAST template takes, by the type that the template gives each tag.

Nothing is rounded: what a template cannot hold is an EncodeError. Times are cut to the milliseconds that the feed has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.market import fast_table as t
from umdf.market.events import CONDITIONS, PRICE_EXPONENT, VOLUME_EXPONENT, Column
from umdf.market.fast_convert_kernel import write_digits
from umdf.market.rows import Text
from umdf.wire.fast.arrow import TYPES
from umdf.wire.fast.layout import Column as WireColumn
from umdf.wire.fast.layout import Layout, List, Node
from umdf.wire.fast.templates import DECIMAL, DEFAULT, UINT64, Field

Numbers = NDArray[Any]
Mask = NDArray[np.bool_]

SHORTEST_EXPONENT = -2  # what MDEntryPx has by default
DAY_NS, MS_NS = 86_400_000_000_000, 1_000_000
_EXPONENT = {"price": PRICE_EXPONENT, "volume": VOLUME_EXPONENT}
_TIME_DIGITS = 9  # hhmmssSSS


class Cells:
    """The columns of one node of a template, filled tag by tag."""

    def __init__(self, layout: Layout, node: Node, rows: int) -> None:
        self.layout, self.node, self.rows = layout, node, rows
        self.arrays: dict[str, pa.Array] = {}
        self._tags = {c.field.id: c for c in node.columns if isinstance(c.field, Field) and not _is_exponent(c)}
        self._lists = {item.sequence.length.id: item for item in node.lists}
        self._numbers: dict[int, tuple[Numbers, Mask]] = {}
        self._exponents: dict[int, Numbers] = {}
        self._chars: dict[int, Numbers] = {}
        self._texts: dict[int, tuple[Numbers, pa.Array]] = {}
        self._padded: set[int] = set()

    def has(self, tag: int) -> bool:
        return tag in self._tags

    def has_list(self, tag: int) -> bool:
        return tag in self._lists

    def child(self, tag: int, rows: int) -> Cells:
        """The entries of a sequence."""
        return Cells(self.layout, self.layout.nodes[self._lists[tag].child], rows)

    def put_list(self, tag: int, offsets: Numbers, entries: Cells, empty_is_absent: bool = False) -> None:
        item: List = self._lists[tag]
        mask = pa.array(np.diff(offsets) == 0) if empty_is_absent and item.sequence.optional else None
        self.arrays[item.name] = pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), entries.struct(), mask=mask
        )

    def put(self, rule: t.Rule, column: Column, values: Numbers, slots: Numbers | None = None) -> None:
        """The values of a column of events; `slots` says where they stand among the rows of the node."""
        valid = values != column.null
        if not valid.all():
            values, slots = values[valid], np.flatnonzero(valid) if slots is None else slots[valid]
        if not len(values):
            return
        if column.type == "ns" and rule.time_tag:
            days, rest = np.divmod(values, DAY_NS)
            self._put_numbers(rule.tag, _calendar(days), slots)
            self._put_numbers(rule.time_tag, _clock(rest), slots)
            self._padded.add(rule.time_tag)
        elif column.type == "ns":
            days, rest = np.divmod(values, DAY_NS)
            self._put_numbers(rule.tag, _calendar(days) * 10**_TIME_DIGITS + _clock(rest), slots)
        elif column.type == "date":
            self._put_numbers(rule.tag, _calendar(values), slots)
        elif column.type == "char":
            self.put_chars(rule.tag, values, slots, rule.absent)
        elif rule.how == t.CODES:
            names = {number: name for name, number in t.CODED[rule.tag].items()}
            self._put_names(rule.tag, values, slots, lambda value: names.get(value, str(value)))
        elif rule.tag == t.SETTL_TYPE:
            self._put_names(rule.tag, values, slots, lambda value: f"{t.DAYS_PREFIX}{value}" if value else "0")
        elif column.type in _EXPONENT:
            self._put_decimals(rule.tag, values, _EXPONENT[column.type], slots)
        else:
            self._put_numbers(rule.tag, values, slots)

    def put_text(self, rule: t.Rule, text: Text, chosen: Numbers | None = None, slots: Numbers | None = None) -> None:
        """An empty text is an absent one; `chosen` are the rows of the text that are meant."""
        if rule.tag not in self._tags:
            return
        lengths = np.diff(text[0])
        offsets, content = pa.py_buffer(np.ascontiguousarray(text[0])), pa.py_buffer(np.ascontiguousarray(text[1]))
        array = pa.Array.from_buffers(pa.binary(), len(lengths), [None, offsets, content])
        kept = np.flatnonzero(lengths if chosen is None else lengths[chosen])
        if len(kept):
            taken = array.take(pa.array(kept if chosen is None else chosen[kept]))
            self._put_text(rule.tag, kept if slots is None else slots[kept], taken)

    def put_words(self, tag: int, bits: Numbers, words: Mapping[str, int], slots: Numbers) -> None:
        """Bits as space-separated words, in the order of the table."""
        named = np.flatnonzero(bits)
        if tag not in self._tags or not len(named):
            return
        sets, which = np.unique(bits[named], return_inverse=True)
        texts = [" ".join(word for word, bit in words.items() if bits & bit) for bits in sets.tolist()]
        self._put_text(
            tag, slots[named], pa.array([text.encode() for text in texts], pa.binary()).take(pa.array(which))
        )

    def put_chars(self, tag: int, values: Numbers, slots: Numbers | None = None, absent: str = "") -> None:
        column = self._tags.get(tag)
        if column is None:
            return
        # A value that absence means as well is sent only where the template has it for nothing.
        operator = column.field.operator if isinstance(column.field, Field) else None
        if (
            absent
            and column.field.optional
            and not (operator and (operator.kind, operator.initial) == (DEFAULT, absent))
        ):
            kept = values != ord(absent)
            values, slots = values[kept], np.flatnonzero(kept) if slots is None else slots[kept]
        if not column.is_text:
            self._put_numbers(tag, values.astype(np.int64) - ord("0"), slots)
        elif len(values):
            held = self._chars.setdefault(tag, np.zeros(self.rows, np.uint8))
            held[slice(None) if slots is None else slots] = values

    def _put_names(self, tag: int, values: Numbers, slots: Numbers | None, named: Callable[[int], str]) -> None:
        """Numbers that the feed has names for: only definitions have them, so they are few."""
        if tag in self._tags:
            slots = np.arange(self.rows) if slots is None else slots
            self._put_text(tag, slots, pa.array([named(value).encode() for value in values.tolist()], pa.binary()))

    def _put_text(self, tag: int, slots: Numbers, array: pa.Array) -> None:
        if tag in self._texts:
            before, texts = self._texts[tag]
            slots, array = np.concatenate([before, slots]), pa.concat_arrays([texts, array])
        self._texts[tag] = slots, array

    def _put_numbers(self, tag: int, values: Numbers, slots: Numbers | None) -> None:
        if tag not in self._tags:
            return
        if tag not in self._numbers:
            self._numbers[tag] = np.zeros(self.rows, np.int64), np.zeros(self.rows, np.bool_)
        held, valid = self._numbers[tag]
        if slots is None:
            held[:], valid[:] = values, True
            return
        before, known = held[slots], valid[slots]
        held[slots], valid[slots] = values, True
        # Several rows may speak for one message, but with one voice.
        if self.node.parent is None and ((known & (before != values)) | (held[slots] != values)).any():
            raise EncodeError(f"{self.node.path}: one message cannot have two values of tag {tag}")

    def _put_decimals(self, tag: int, values: Numbers, exponent: int, slots: Numbers | None) -> None:
        column = self._tags.get(tag)
        if column is None:
            return
        assert isinstance(column.field, Field)
        if column.field.type != DECIMAL:
            whole, rest = np.divmod(values, 10**-exponent)
            if rest.any():
                raise EncodeError(f"{self.node.path}.{column.name} takes whole numbers only")
            self._put_numbers(tag, whole, slots)
            return
        mantissas, exponents = decimals(values, exponent)
        self._put_numbers(tag, mantissas, slots)
        held = self._exponents.setdefault(tag, np.zeros(self.rows, np.int32))
        held[slice(None) if slots is None else slots] = exponents

    def finish(self) -> dict[str, pa.Array]:
        """The columns by name."""
        for tag, (values, valid) in self._numbers.items():
            column = self._tags[tag]
            if column.is_text:
                self.arrays[column.name] = digits(values, valid, _TIME_DIGITS if tag in self._padded else 0)
                continue
            typed = values.view(np.uint64) if column.type == UINT64 else values
            self.arrays[column.name] = _array(typed, valid)
            if isinstance(column.field, Field) and column.field.type == DECIMAL:
                exponents = self._exponents.get(tag, np.zeros(self.rows, np.int32))
                self.arrays[f"{column.name}.exponent"] = _array(exponents, valid)
        for tag, values in self._chars.items():
            self.arrays[self._tags[tag].name] = _letters(values)
        for tag, (slots, array) in self._texts.items():
            column = self._tags[tag]
            place = np.full(self.rows, -1, np.int64)
            place[slots] = np.arange(len(slots))
            spread = array.take(pa.array(place, mask=place < 0))
            # A text of digits where this template has a number.
            self.arrays[column.name] = spread if column.is_text else spread.cast(pa.string()).cast(TYPES[column.type])
        self._add_defaults()
        return self.arrays

    def _add_defaults(self) -> None:
        """What must be there and no event speaks of is what the template has for it."""
        for column in self._tags.values():
            field = column.field
            assert isinstance(field, Field)
            initial = field.operator.initial if field.operator.kind == DEFAULT and not field.optional else None
            if column.name not in self.arrays and isinstance(initial, int | str):
                self.arrays[column.name] = pa.repeat(pa.scalar(initial, TYPES[column.type]), self.rows)

    def struct(self) -> pa.StructArray:
        arrays = self.finish()
        if not arrays:
            return pa.StructArray.from_buffers(pa.struct([]), self.rows, [None], children=[])
        return pa.StructArray.from_arrays(list(arrays.values()), list(arrays))


def _is_exponent(column: WireColumn) -> bool:
    return column.name.endswith(".exponent") and isinstance(column.field, Field) and column.field.type == DECIMAL


def _array(values: Numbers, valid: Mask) -> pa.Array:
    return pa.array(values) if valid.all() else pa.array(values, mask=~valid)


def decimals(values: Numbers, exponent: int) -> tuple[Numbers, Numbers]:
    """Mantissas and exponents: two decimals where they are enough, as few more as are needed elsewhere."""
    mantissas, rest = np.divmod(values, 10 ** (SHORTEST_EXPONENT - exponent))
    exponents = np.full(len(values), SHORTEST_EXPONENT, np.int32)
    left = np.flatnonzero(rest)
    for more in range(SHORTEST_EXPONENT - 1, exponent - 1, -1):
        if not len(left):
            break
        mantissas[left], rest = np.divmod(values[left], 10 ** (more - exponent))
        exponents[left] = more
        left = left[rest != 0]
    return mantissas, exponents


def digits(values: Numbers, valid: Mask, width: int) -> pa.Array:
    """Numbers as text, with zeros in front up to a width."""
    rows = len(values)
    values, kept = np.ascontiguousarray(values, np.int64), np.ascontiguousarray(valid)
    offsets, content = np.empty(rows + 1, np.int32), np.empty(20 * rows + 20, np.uint8)
    used = write_digits(values.ctypes.data, kept.ctypes.data, rows, width, offsets.ctypes.data, content.ctypes.data)
    validity = None if kept.all() else pa.py_buffer(np.packbits(kept, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(content[:used])])


def _letters(values: Numbers) -> pa.Array:
    """One letter a row; none where it is 0."""
    valid = values != 0
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, pa.py_buffer(offsets), pa.py_buffer(values[valid].astype(np.uint8))]
    )


@lru_cache(maxsize=16)
def _calendar_table(first: int, last: int) -> Numbers:
    dates = np.arange(first, last + 1).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = months.astype("datetime64[Y]")
    year, month = years.astype(np.int64) + 1970, (months - years).astype(np.int64) + 1
    return year * 10_000 + month * 100 + (dates - months).astype(np.int64) + 1


def _calendar(days: Numbers) -> Numbers:
    """Days since 1970 as YYYYMMDD."""
    first, last = int(days.min()), int(days.max())
    if not -719_162 <= first <= last <= 2_932_896:  # years 1 to 9999
        raise EncodeError("a date outside the years 1 to 9999")
    return _calendar_table(first, last)[days - first]


def _clock(ns: Numbers) -> Numbers:
    """Nanoseconds of a day as hhmmssSSS."""
    ms = ns // MS_NS
    seconds, ms = np.divmod(ms, 1000)
    minutes, seconds = np.divmod(seconds, 60)
    hours, minutes = np.divmod(minutes, 60)
    return ((hours * 100 + minutes) * 100 + seconds) * 1000 + ms


SPOKEN = {word: bit for word, bit in CONDITIONS.items() if len(word) <= 2}  # those that 277 has words for
