"""Columns of events → the columns that a FAST template takes, by the types of the tags in the template.

Nothing is rounded: what a template cannot hold is an EncodeError. Times are truncated to milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.market.families import CONDITIONS, PRICE_EXPONENT, VOLUME_EXPONENT, Column
from umdf.market.fast import mapping_table as t
from umdf.market.fast.digits_kernel import write_digits
from umdf.market.rows import Text
from umdf.wire.fast.arrow import TYPES
from umdf.wire.fast.layout import Column as WireColumn
from umdf.wire.fast.layout import Layout, ListColumn, Node
from umdf.wire.fast.templates import DECIMAL, DEFAULT, UINT64, Field

Numbers = NDArray[Any]
Mask = NDArray[np.bool_]

DEFAULT_EXPONENT = -2  # what MDEntryPx has by default
DAY_NS, MS_NS = 86_400_000_000_000, 1_000_000
_EXPONENT = {"price": PRICE_EXPONENT, "volume": VOLUME_EXPONENT}
_TIME_DIGITS = 9  # hhmmssSSS


class NodeBuilder:
    """The columns of one node of a template, filled tag by tag."""

    def __init__(self, layout: Layout, node: Node, rows: int) -> None:
        self.layout, self.node, self.rows = layout, node, rows
        self.arrays: dict[str, pa.Array] = {}
        self._columns_by_tag = {
            c.field.id: c for c in node.columns if isinstance(c.field, Field) and not _is_exponent(c)
        }
        self._lists_by_tag = {item.sequence.length.id: item for item in node.lists}
        self._numbers: dict[int, tuple[Numbers, Mask]] = {}
        self._exponents: dict[int, Numbers] = {}
        self._chars: dict[int, Numbers] = {}
        self._texts: dict[int, tuple[Numbers, pa.Array]] = {}
        self._zero_padded_tags: set[int] = set()

    def has(self, tag: int) -> bool:
        return tag in self._columns_by_tag

    def has_list(self, tag: int) -> bool:
        return tag in self._lists_by_tag

    def child(self, tag: int, rows: int) -> NodeBuilder:
        """The entries of a sequence."""
        return NodeBuilder(self.layout, self.layout.nodes[self._lists_by_tag[tag].child], rows)

    def put_list(self, tag: int, offsets: Numbers, entries: NodeBuilder, empty_is_absent: bool = False) -> None:
        item: ListColumn = self._lists_by_tag[tag]
        mask = pa.array(np.diff(offsets) == 0) if empty_is_absent and item.sequence.optional else None
        self.arrays[item.name] = pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), entries.struct(), mask=mask
        )

    def put(self, rule: t.TagRule, column: Column, values: Numbers, slots: Numbers | None = None) -> None:
        """The values of a column of events; `slots` are their indices among the rows of the node."""
        valid = values != column.null
        if not valid.all():
            values, slots = values[valid], np.flatnonzero(valid) if slots is None else slots[valid]
        if not len(values):
            return
        if column.type == "ns" and rule.time_tag:
            days, rest = np.divmod(values, DAY_NS)
            self._put_numbers(rule.tag, _to_yyyymmdd(days), slots)
            self._put_numbers(rule.time_tag, _to_hhmmssmmm(rest), slots)
            self._zero_padded_tags.add(rule.time_tag)
        elif column.type == "ns":
            days, rest = np.divmod(values, DAY_NS)
            self._put_numbers(rule.tag, _to_yyyymmdd(days) * 10**_TIME_DIGITS + _to_hhmmssmmm(rest), slots)
        elif column.type == "date":
            self._put_numbers(rule.tag, _to_yyyymmdd(values), slots)
        elif column.type == "char":
            self.put_chars(rule.tag, values, slots, rule.absent)
        elif rule.conversion == t.CODES:
            names = {number: name for name, number in t.CODE_TABLES[rule.tag].items()}
            self._put_names(rule.tag, values, slots, lambda value: names.get(value, str(value)))
        elif rule.tag == t.SETTL_TYPE:
            self._put_names(rule.tag, values, slots, lambda value: f"{t.DAYS_PREFIX}{value}" if value else "0")
        elif column.type in _EXPONENT:
            self._put_decimals(rule.tag, values, _EXPONENT[column.type], slots)
        else:
            self._put_numbers(rule.tag, values, slots)

    def put_text(
        self, rule: t.TagRule, text: Text, text_rows: Numbers | None = None, slots: Numbers | None = None
    ) -> None:
        """An empty text is an absent one; `text_rows` selects rows of the text."""
        if rule.tag not in self._columns_by_tag:
            return
        lengths = np.diff(text[0])
        offsets, content = pa.py_buffer(np.ascontiguousarray(text[0])), pa.py_buffer(np.ascontiguousarray(text[1]))
        array = pa.Array.from_buffers(pa.binary(), len(lengths), [None, offsets, content])
        present_rows = np.flatnonzero(lengths if text_rows is None else lengths[text_rows])
        if len(present_rows):
            texts = array.take(pa.array(present_rows if text_rows is None else text_rows[present_rows]))
            self._put_text(rule.tag, present_rows if slots is None else slots[present_rows], texts)

    def put_words(self, tag: int, bits: Numbers, words: Mapping[str, int], slots: Numbers) -> None:
        """Bits as space-separated words, in the order of the table."""
        rows_with_bits = np.flatnonzero(bits)
        if tag not in self._columns_by_tag or not len(rows_with_bits):
            return
        sets, which = np.unique(bits[rows_with_bits], return_inverse=True)
        texts = [" ".join(word for word, bit in words.items() if bits & bit) for bits in sets.tolist()]
        self._put_text(
            tag, slots[rows_with_bits], pa.array([text.encode() for text in texts], pa.binary()).take(pa.array(which))
        )

    def put_chars(self, tag: int, values: Numbers, slots: Numbers | None = None, absent: str = "") -> None:
        column = self._columns_by_tag.get(tag)
        if column is None:
            return
        # A value that absence means too is sent only if it is the template's default, which takes no bytes.
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

    def _put_names(self, tag: int, values: Numbers, slots: Numbers | None, name_of: Callable[[int], str]) -> None:
        """Numbers that have names in the feed: only in definitions, so they are few."""
        if tag in self._columns_by_tag:
            slots = np.arange(self.rows) if slots is None else slots
            self._put_text(tag, slots, pa.array([name_of(value).encode() for value in values.tolist()], pa.binary()))

    def _put_text(self, tag: int, slots: Numbers, array: pa.Array) -> None:
        if tag in self._texts:
            before, texts = self._texts[tag]
            slots, array = np.concatenate([before, slots]), pa.concat_arrays([texts, array])
        self._texts[tag] = slots, array

    def _put_numbers(self, tag: int, values: Numbers, slots: Numbers | None) -> None:
        if tag not in self._columns_by_tag:
            return
        if tag not in self._numbers:
            self._numbers[tag] = np.zeros(self.rows, np.int64), np.zeros(self.rows, np.bool_)
        held, valid = self._numbers[tag]
        if slots is None:
            held[:], valid[:] = values, True
            return
        before, known = held[slots], valid[slots]
        held[slots], valid[slots] = values, True
        # Several rows may give a value for one message, but it must be the same.
        if self.node.parent is None and ((known & (before != values)) | (held[slots] != values)).any():
            raise EncodeError(f"{self.node.path}: one message cannot have two values of tag {tag}")

    def _put_decimals(self, tag: int, values: Numbers, exponent: int, slots: Numbers | None) -> None:
        column = self._columns_by_tag.get(tag)
        if column is None:
            return
        assert isinstance(column.field, Field)
        if column.field.type != DECIMAL:
            whole, rest = np.divmod(values, 10**-exponent)
            if rest.any():
                raise EncodeError(f"{self.node.path}.{column.name} must be an integer")
            self._put_numbers(tag, whole, slots)
            return
        mantissas, exponents = split_decimals(values, exponent)
        self._put_numbers(tag, mantissas, slots)
        held = self._exponents.setdefault(tag, np.zeros(self.rows, np.int32))
        held[slice(None) if slots is None else slots] = exponents

    def finish(self) -> dict[str, pa.Array]:
        """The columns by name."""
        for tag, (values, valid) in self._numbers.items():
            column = self._columns_by_tag[tag]
            if column.is_text:
                self.arrays[column.name] = digit_array(
                    values, valid, _TIME_DIGITS if tag in self._zero_padded_tags else 0
                )
                continue
            typed = values.view(np.uint64) if column.type == UINT64 else values
            self.arrays[column.name] = _array(typed, valid)
            if isinstance(column.field, Field) and column.field.type == DECIMAL:
                exponents = self._exponents.get(tag, np.zeros(self.rows, np.int32))
                self.arrays[f"{column.name}.exponent"] = _array(exponents, valid)
        for tag, values in self._chars.items():
            self.arrays[self._columns_by_tag[tag].name] = _char_array(values)
        for tag, (slots, array) in self._texts.items():
            column = self._columns_by_tag[tag]
            source_rows = np.full(self.rows, -1, np.int64)
            source_rows[slots] = np.arange(len(slots))
            texts = array.take(pa.array(source_rows, mask=source_rows < 0))
            # A text of digits where this template has a number.
            self.arrays[column.name] = texts if column.is_text else texts.cast(pa.string()).cast(TYPES[column.type])
        self._add_defaults()
        return self.arrays

    def _add_defaults(self) -> None:
        """Mandatory fields that no event has get the template's value."""
        for column in self._columns_by_tag.values():
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


def split_decimals(values: Numbers, exponent: int) -> tuple[Numbers, Numbers]:
    """Mantissas and exponents: two decimals if they suffice, otherwise as few as needed."""
    mantissas, rest = np.divmod(values, 10 ** (DEFAULT_EXPONENT - exponent))
    exponents = np.full(len(values), DEFAULT_EXPONENT, np.int32)
    inexact_rows = np.flatnonzero(rest)
    for next_exponent in range(DEFAULT_EXPONENT - 1, exponent - 1, -1):
        if not len(inexact_rows):
            break
        mantissas[inexact_rows], rest = np.divmod(values[inexact_rows], 10 ** (next_exponent - exponent))
        exponents[inexact_rows] = next_exponent
        inexact_rows = inexact_rows[rest != 0]
    return mantissas, exponents


def digit_array(values: Numbers, valid: Mask, width: int) -> pa.Array:
    """Numbers as text, with zeros in front up to a width."""
    rows = len(values)
    values, is_present = np.ascontiguousarray(values, np.int64), np.ascontiguousarray(valid)
    offsets, content = np.empty(rows + 1, np.int32), np.empty(20 * rows + 20, np.uint8)
    used = write_digits(
        values.ctypes.data, is_present.ctypes.data, rows, width, offsets.ctypes.data, content.ctypes.data
    )
    validity = None if is_present.all() else pa.py_buffer(np.packbits(is_present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(content[:used])])


def _char_array(values: Numbers) -> pa.Array:
    """One letter per row; none if it is 0."""
    valid = values != 0
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, pa.py_buffer(offsets), pa.py_buffer(values[valid].astype(np.uint8))]
    )


@lru_cache(maxsize=16)
def _yyyymmdd_table(first: int, last: int) -> Numbers:
    dates = np.arange(first, last + 1).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = months.astype("datetime64[Y]")
    year, month = years.astype(np.int64) + 1970, (months - years).astype(np.int64) + 1
    return year * 10_000 + month * 100 + (dates - months).astype(np.int64) + 1


def _to_yyyymmdd(days: Numbers) -> Numbers:
    """Days since 1970 as YYYYMMDD."""
    first, last = int(days.min()), int(days.max())
    if not -719_162 <= first <= last <= 2_932_896:  # years 1 to 9999
        raise EncodeError("date outside years 1 to 9999")
    return _yyyymmdd_table(first, last)[days - first]


def _to_hhmmssmmm(ns: Numbers) -> Numbers:
    """Nanoseconds of a day as hhmmssSSS."""
    ms = ns // MS_NS
    seconds, ms = np.divmod(ms, 1000)
    minutes, seconds = np.divmod(seconds, 60)
    hours, minutes = np.divmod(minutes, 60)
    return ((hours * 100 + minutes) * 100 + seconds) * 1000 + ms


CONDITION_WORDS = {word: bit for word, bit in CONDITIONS.items() if len(word) <= 2}  # those that have words in 277
