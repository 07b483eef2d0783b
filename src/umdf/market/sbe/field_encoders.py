"""Columns of events → fields of Binary messages: each kind of source of the table, backwards.

An encoder converts rows to the field's values on the wire, and a mask of absent ones. Values that the field cannot hold
are an EncodeError with column and value, for the caller to correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.market.families import Column
from umdf.market.rows import Numbers, Rows, strings_of
from umdf.market.sbe.mapping_rules import (
    Bits,
    Code,
    CodeMap,
    Combine,
    Copy,
    EnumName,
    FieldSource,
    MonthYear,
    Scale,
    code_number,
    scale_factor,
)
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import null_bits

PickedRows = NDArray[np.int64] | slice  # which rows
EncodedValues = tuple[Numbers, Any]  # of the wire's type, and where they are missing (an array of bool, or False)
FieldEncoder = Callable[[Rows, PickedRows], EncodedValues]


def leaf_sources(source: FieldSource) -> Iterator[FieldSource]:
    """A source, or those that it is made of."""
    if isinstance(source, Combine):
        for part in source.parts:
            yield from leaf_sources(part)
    else:
        yield source


def field_encoder(source: FieldSource, column: Column, wire: WireColumn) -> FieldEncoder | None:
    """The conversion of the column to the wire; None if there is none."""
    for kind, make in _ENCODER_FACTORIES.items():
        if isinstance(source, kind):
            return make(source, column, wire)
    return None


def _is_missing(values: Numbers, column: Column) -> Any:
    return values == column.null if column.nullable else False


def _cast_to_wire(values: Numbers, missing: Any, column: Column, wire: WireColumn) -> EncodedValues:
    """Numbers in the wire's type; missing ones as its null value (0 if it has none)."""
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


def _copy_encoder(source: FieldSource, column: Column, wire: WireColumn) -> FieldEncoder:
    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        values = rows.column(column.name)[picked]
        return _cast_to_wire(values, _is_missing(values, column), column, wire)

    return encode


def _scale_encoder(source: FieldSource, column: Column, wire: WireColumn) -> FieldEncoder | None:
    factor = scale_factor(wire.field)
    if factor == 1:
        return _copy_encoder(source, column, wire)
    if not factor:
        return None

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        values = rows.column(column.name)[picked]
        missing = values == column.null
        mantissas = values // factor
        inexact = mantissas * factor != values
        inexact &= ~missing
        if inexact.any():
            value = int(values[inexact][0])
            raise EncodeError(f"{column.name} {value} has more decimals than {wire.field.name} (units of {factor})")
        return _cast_to_wire(mantissas, missing, column, wire)

    return encode


def _code_encoder(source: CodeMap, column: Column, wire: WireColumn) -> FieldEncoder:
    codes_by_value: dict[int, int] = {}
    for code, ours in source.codes.items():
        codes_by_value.setdefault(code_number(ours), code_number(code) << source.shift)
    if column.type != "char":
        return _bit_code_encoder(codes_by_value, column, wire)
    codes, known = np.zeros(256, wire.dtype), np.zeros(256, bool)
    for ours, code in codes_by_value.items():
        codes[ours], known[ours] = code, True

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        values = rows.column(column.name)[picked]
        return codes[values], ~known[values]

    return encode


def _bit_code_encoder(codes: dict[int, int], column: Column, wire: WireColumn) -> FieldEncoder:
    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        values = rows.column(column.name)[picked]
        out = np.full(len(values), np.int64(null_bits(wire)).astype(wire.dtype))
        missing = np.ones(len(values), bool)
        for bit, code in codes.items():
            found = (values & bit != 0) & _is_present(values, column)
            out[found], missing[found] = code, False
        return out, missing

    return encode


def _is_present(values: Numbers, column: Column) -> Any:
    return values != column.null if column.nullable else True


def _bits_encoder(source: Bits, column: Column, wire: WireColumn) -> FieldEncoder:
    shifts: dict[int, int] = {}  # how far → our bits that go so far
    for bit, ours in source.bits.items():
        shift = ours.bit_length() - 1 - bit
        shifts[shift] = shifts.get(shift, 0) | ours

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        values = rows.column(column.name)[picked]
        values = np.where(_is_present(values, column), values, 0) if column.nullable else values
        out = np.zeros(len(values), np.int64)
        for far, mask in shifts.items():
            moved = (values & mask).astype(np.int64)
            out |= moved >> far if far >= 0 else moved << -far
        return out.astype(wire.dtype), False

    return encode


def _enum_name_encoder(source: FieldSource, column: Column, wire: WireColumn) -> FieldEncoder:
    codes = {name: code_number(code) for code, name in wire.field.codes.items()}

    def code(name: str) -> int:
        return codes[name] if name in codes else int(name) if name.isdecimal() else -1

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        if column.name not in rows.texts:
            return np.zeros(len(rows.unit[picked]), wire.dtype), True
        names = strings_of(rows.texts[column.name])
        found = {name: code(name) for name in set(names)}
        numbers = np.array([found[name] for name in names], np.int64)[picked]
        return _cast_to_wire(np.maximum(numbers, 0), numbers < 0, column, wire)

    return encode


def _month_year_encoder(source: FieldSource, column: Column, wire: WireColumn) -> FieldEncoder:
    part = wire.part.name

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
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
        return _cast_to_wire(parts.get(part, np.zeros_like(values)), False, column, wire)

    return encode


_ENCODER_FACTORIES: dict[type[FieldSource], Callable[[Any, Column, WireColumn], FieldEncoder | None]] = {
    Copy: _copy_encoder,
    Scale: _scale_encoder,
    CodeMap: _code_encoder,
    Bits: _bits_encoder,
    EnumName: _enum_name_encoder,
    MonthYear: _month_year_encoder,
}


def constant_encoder(value: Code, wire: WireColumn) -> FieldEncoder:
    """The same value in every message."""

    def encode(rows: Rows, picked: PickedRows) -> EncodedValues:
        return np.full(len(rows.unit[picked]), code_number(value), wire.dtype), False

    return encode
