"""Columns of events → fields of Binary messages: each kind of source of the table, backwards.

A reverser takes some rows and gives the field's values as the wire has them, and where there is none. Values that the
field cannot hold are the caller's to correct, so they are an EncodeError with column and value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.market.events import Column
from umdf.market.rows import Numbers, Rows, strings_of
from umdf.market.sbe_rules import AnyOf, Bits, Code, Coded, MonthYear, Named, Same, Scaled, Source, code_of, factor_of
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import null_bits

Picked = NDArray[np.int64] | slice  # which rows
Values = tuple[Numbers, Any]  # of the wire's type, and where they are missing (an array of bool, or False)
Reverser = Callable[[Rows, Picked], Values]


def single_sources(source: Source) -> Iterator[Source]:
    """A source, or those that it is made of."""
    if isinstance(source, AnyOf):
        for part in source.parts:
            yield from single_sources(part)
    else:
        yield source


def reverser(source: Source, column: Column, wire: WireColumn) -> Reverser | None:
    """How the column becomes the wire's; None where nothing can be said."""
    for kind, make in _MAKERS.items():
        if isinstance(source, kind):
            return make(source, column, wire)
    return None


def _missing(values: Numbers, column: Column) -> Any:
    return values == column.null if column.nullable else False


def _fitted(values: Numbers, missing: Any, column: Column, wire: WireColumn) -> Values:
    """Numbers in the wire's type; where they are missing, its null value (0 where it has none)."""
    kind = wire.dtype
    if kind.itemsize < values.dtype.itemsize or (kind.kind == "u" and kind.itemsize < 8 and values.dtype.kind == "i"):
        bounds = np.iinfo(kind.name)
        wrong = (values < bounds.min) | (values > bounds.max)
        wrong &= ~np.asarray(missing)
        if wrong.any():
            limits = f"{bounds.min} to {bounds.max}"
            raise EncodeError(f"{column.name} {values[wrong][0]} does not fit {wire.field.name}: {limits}")
    out = values.astype(kind)  # a copy; 64 bits keep their bits
    if missing is not False and missing.any():
        np.copyto(out, np.int64(null_bits(wire)).astype(kind), where=missing)
    return out, missing


def _same(source: Source, column: Column, wire: WireColumn) -> Reverser:
    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked]
        return _fitted(values, _missing(values, column), column, wire)

    return reverse


def _scaled(source: Source, column: Column, wire: WireColumn) -> Reverser | None:
    factor = factor_of(wire.field)
    if factor == 1:
        return _same(source, column, wire)
    if not factor:
        return None

    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked]
        missing = values == column.null
        mantissas = values // factor
        inexact = mantissas * factor != values
        inexact &= ~missing
        if inexact.any():
            value = int(values[inexact][0])
            raise EncodeError(f"{column.name} {value} has more decimals than {wire.field.name} (units of {factor})")
        return _fitted(mantissas, missing, column, wire)

    return reverse


def _coded(source: Coded, column: Column, wire: WireColumn) -> Reverser:
    backwards: dict[int, int] = {}
    for code, ours in source.codes.items():
        backwards.setdefault(code_of(ours), code_of(code) << source.shift)
    if column.type != "char":
        return _one_bit_each(backwards, column, wire)
    codes, known = np.zeros(256, wire.dtype), np.zeros(256, bool)
    for ours, code in backwards.items():
        codes[ours], known[ours] = code, True

    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked]
        return codes[values], ~known[values]

    return reverse


def _one_bit_each(codes: dict[int, int], column: Column, wire: WireColumn) -> Reverser:
    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked]
        out = np.full(len(values), np.int64(null_bits(wire)).astype(wire.dtype))
        missing = np.ones(len(values), bool)
        for bit, code in codes.items():
            found = (values & bit != 0) & _present(values, column)
            out[found], missing[found] = code, False
        return out, missing

    return reverse


def _present(values: Numbers, column: Column) -> Any:
    return values != column.null if column.nullable else True


def _bits(source: Bits, column: Column, wire: WireColumn) -> Reverser:
    shifts: dict[int, int] = {}  # how far → our bits that go so far
    for bit, ours in source.bits.items():
        far = ours.bit_length() - 1 - bit
        shifts[far] = shifts.get(far, 0) | ours

    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked]
        values = np.where(_present(values, column), values, 0) if column.nullable else values
        out = np.zeros(len(values), np.int64)
        for far, mask in shifts.items():
            moved = (values & mask).astype(np.int64)
            out |= moved >> far if far >= 0 else moved << -far
        return out.astype(wire.dtype), False

    return reverse


def _named(source: Source, column: Column, wire: WireColumn) -> Reverser:
    codes = {name: code_of(code) for code, name in wire.field.codes.items()}

    def code(name: str) -> int:
        return codes[name] if name in codes else int(name) if name.isdecimal() else -1

    def reverse(rows: Rows, picked: Picked) -> Values:
        if column.name not in rows.texts:
            return np.zeros(len(rows.unit[picked]), wire.dtype), True
        names = strings_of(rows.texts[column.name])
        found = {name: code(name) for name in set(names)}
        numbers = np.array([found[name] for name in names], np.int64)[picked]
        return _fitted(np.maximum(numbers, 0), numbers < 0, column, wire)

    return reverse


def _month_year(source: Source, column: Column, wire: WireColumn) -> Reverser:
    part = wire.part.name

    def reverse(rows: Rows, picked: Picked) -> Values:
        values = rows.column(column.name)[picked].astype(np.int64)
        missing = values == column.null
        values = np.where(missing, 0, values)
        with_day = values >= 1_000_000
        month, day = np.where(with_day, values // 100, values), np.where(with_day, values % 100, 0)
        parts = {
            "year": month // 100,
            "month": month % 100,
            "day": np.where(day > 90, 0, day),
            "week": np.where(day > 90, day - 90, 0),
        }
        return _fitted(parts.get(part, np.zeros_like(values)), False, column, wire)

    return reverse


_MAKERS: dict[type[Source], Callable[[Any, Column, WireColumn], Reverser | None]] = {
    Same: _same,
    Scaled: _scaled,
    Coded: _coded,
    Bits: _bits,
    Named: _named,
    MonthYear: _month_year,
}


def fixed(value: Code, wire: WireColumn) -> Reverser:
    """The same value in every message."""

    def reverse(rows: Rows, picked: Picked) -> Values:
        return np.full(len(rows.unit[picked]), code_of(value), wire.dtype), False

    return reverse
