"""One column of one rule → the steps that fill it (see `sbe_events_kernel`).

The schema decides: a field that is constant there, or not there at all, is a constant here; widths, null values and
exponents choose the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from umdf.market import sbe_events_kernel as k
from umdf.market.events import FAMILIES, NULL, Column
from umdf.market.sbe_rules import (
    Always,
    AnyOf,
    Bits,
    Coded,
    MonthYear,
    Named,
    Rule,
    Same,
    Source,
    bounds_of,
    code_of,
    factor_of,
    field_of,
    node_of,
)
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import Layout, Node, as_int64, null_bits
from umdf.wire.sbe.schema import Field

KINDS = {
    **{"char": k.U8, "uint8": k.U8, "uint16": k.U16, "uint32": k.U32, "uint64": k.I64},
    **{"int8": k.I8, "int16": k.I16, "int32": k.I32, "int64": k.I64},
}
Table = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Step:
    """An instruction without addresses."""

    op: int
    size: int
    absent: int = 0
    wire: WireColumn | None = None
    node: Node | None = None
    has_bitmap: bool = False
    nullable: int = 0
    null: int = 0
    low: int = 0
    high: int = -1
    factor: int = 1
    table: Table | None = None
    shift: int = 0
    mask: int = 0

    @property
    def constant(self) -> int | None:
        return self.absent if self.op == k.CONSTANT else None


@dataclass(frozen=True, eq=False)
class Found:
    """A field as a rule sees it."""

    field: Field
    node: Node
    wire: WireColumn | None  # None: constant in the schema
    has_bitmap: bool
    is_parents: bool  # it stands in the message, the rows are its group's entries


class Steps:
    """Makes the steps of one rule. `tracked` says of each column whether its presence needs a look (see `decode`)."""

    def __init__(self, layout: Layout, rule: Rule, tracked: dict[int, NDArray[np.int64]]) -> None:
        self._rule, self._tracked = rule, tracked
        self.root = layout.roots[rule.template]
        node = node_of(layout, rule.template, rule.group)
        assert node is not None
        self.node = node
        # Entries that are rows know their message; those of a list do not.
        self._nodes = (node, self.root) if rule.family in FAMILIES else (node,)

    def field(self, name: str) -> tuple[Node, Field] | None:
        """A field of the entry, or of its message."""
        for node in self._nodes:
            field = field_of(self._rule.template, node, name) if name else None
            if field is not None:
                return node, field
        return None

    def find(self, name: str) -> Found | None:
        """A field that this batch can have; a retired one that no row carries is not there."""
        found = self.field(name)
        if found is None:
            return None
        node, field = found
        wires = [(i, wire) for i, wire in enumerate(node.columns) if wire.field is field]
        if not wires:
            return Found(field, node, None, False, False)
        number, wire = wires[0]
        tracked = self._tracked.get(node.index)
        unusual = tracked is not None and bool(tracked[number])
        if wire.is_retired and not unusual:
            return None
        return Found(field, node, wire, unusual and wire.part.null is None, node is not self.node)

    def of(self, source: Source | None, column: Column, extra: int = 0) -> list[Step]:
        """What fills a column; `extra` are bits that every row has."""
        size = column.dtype.itemsize
        nothing = column.null if column.nullable else 0
        if source is None or isinstance(source, (Named, MonthYear)):
            return [Step(k.CONSTANT, size, nothing | extra)]
        if isinstance(source, Always):
            return [Step(k.CONSTANT, size, code_of(source.value) | extra)]
        if isinstance(source, AnyOf):
            steps = [step for part in source.parts for step in self.of(part, column)]
            for step in steps:
                extra |= step.constant or 0
            steps = [step for step in steps if step.constant is None]
            if extra or not steps:
                return [Step(k.CONSTANT, size, extra), *map(_adding, steps)]
            return [steps[0], *map(_adding, steps[1:])]
        found = self.find(source.field)
        if found is not None and found.is_parents and isinstance(source, (Bits, Coded)):
            found = None
        if isinstance(source, Bits):
            return self._bits(source, found, size, extra)
        if isinstance(source, Coded):
            return [_coded(source, found, size)]
        return [_number(found, column, nothing, isinstance(source, Same) and source.or_null)]

    def _bits(self, source: Bits, found: Found | None, size: int, extra: int) -> list[Step]:
        always = source.always | extra
        if found is None or found.wire is None:
            return [Step(k.CONSTANT, size, always)]
        wire, steps = found.wire, []
        for byte in range(wire.part.size):
            table = np.full(k.CODES, always if byte == 0 else 0, np.int64)
            for bit in range(8):
                is_set = np.arange(256) >> bit & 1
                table[:256] |= is_set * source.bits.get(8 * byte + bit, source.unknown)
            step = _by_table(found, size, table)
            if wire.part.size > 1:
                step = replace(step, op=k.LOOK_UP, shift=8 * byte, mask=255)
            steps.append(step)
        return [steps[0], *map(_adding, steps[1:])]


def _adding(step: Step) -> Step:
    """The same, adding its bits to what is there."""
    return replace(step, op=k.OR_4) if step.op == k.TABLE_4 else replace(step, op=k.LOOK_UP, absent=1)


def _coded(source: Coded, found: Found | None, size: int) -> Step:
    other = code_of(source.other)
    absent = other if source.absent is None else code_of(source.absent)
    codes = {code_of(code): code_of(ours) for code, ours in source.codes.items()}
    if found is None:
        return Step(k.CONSTANT, size, absent)
    if found.wire is None:
        assert found.field.constant is not None
        return Step(k.CONSTANT, size, codes.get(code_of(found.field.constant) >> source.shift, other))
    table = np.full(k.CODES, other, np.int64)
    for code, ours in codes.items():
        table[code] = ours
    table[k.ABSENT_CODE] = absent
    if not source.shift:
        return _by_table(found, size, table)
    return replace(_by_table(found, size, table), op=k.LOOK_UP, shift=source.shift)


def _by_table(found: Found, size: int, table: Table) -> Step:
    wire = found.wire
    assert wire is not None
    nullable, null = int(wire.part.null is not None), null_bits(wire)
    kind = KINDS[wire.part.primitive]
    quick = kind == k.U8 and not found.has_bitmap and not found.is_parents and size in (1, 4)
    if quick and nullable:
        table = table.copy()
        table[null & 255] = table[k.ABSENT_CODE]
    op = (k.TABLE_1 if size == 1 else k.TABLE_4) if quick else k.LOOK_UP
    return Step(op, size, 0, wire, found.node, found.has_bitmap, nullable, null, table=table)


def _number(found: Found | None, column: Column, nothing: int, or_null: bool) -> Step:
    size = column.dtype.itemsize
    if found is None:
        return Step(k.CONSTANT, size, nothing)
    wire = found.wire
    if wire is None:
        constant = found.field.constant
        fits = isinstance(constant, int) or (isinstance(constant, str) and len(constant) == 1)
        return Step(k.CONSTANT, size, code_of(constant) if fits and constant is not None else nothing)
    if wire.is_text or wire.part.name:  # one part of several (a decimal that sends its exponent) is not the value
        return Step(k.CONSTANT, size, nothing)
    kind = KINDS[wire.part.primitive]
    nullable, null = int(wire.part.null is not None), null_bits(wire)
    if or_null and wire.part.null_before is not None:
        nullable, null = 1, as_int64(wire.part.null_before)
    base = Step(k.MOVE, size, nothing, wire, found.node, found.has_bitmap, nullable, null)
    factor = _factor(found.field, column)
    if found.is_parents:
        return replace(base, op=k.SPREAD) if factor == 1 else Step(k.CONSTANT, size, nothing)
    if size == 1 and kind == k.U8 and factor == 1:
        return _small(found, column, nothing)
    if size == 8 and factor == 1 and not found.has_bitmap:
        if kind == k.I64:
            return replace(base, op=k.COPY_8 if nullable and null == NULL else k.NULL_8)
        if kind == k.U32:
            return replace(base, op=k.WIDEN_4, null=null if nullable else -1)
    low, high = _bounds(wire, column, factor)
    quick = size == 8 and kind == k.I64 and not found.has_bitmap and nothing == NULL
    return replace(base, op=k.SCALE_8 if quick else k.MOVE, low=low, high=high, factor=factor)


def _factor(field: Field, column: Column) -> int:
    return factor_of(field) if column.type in ("price", "ns") else 1


def _bounds(wire: WireColumn, column: Column, factor: int) -> tuple[int, int]:
    """What the column can hold of what the wire can send."""
    low, high = bounds_of(factor)
    if wire.part.primitive == "uint64" and factor != 1:
        low = max(low, 0)
    if column.type != "char":
        limits = np.iinfo(column.dtype.name)
        low, high = max(low, int(limits.min) + 1), min(high, int(limits.max))
    else:
        low, high = max(low, 0), min(high, 255)
    return low, high


def _small(found: Found, column: Column, nothing: int) -> Step:
    most = 255 if column.type == "char" else 127
    table = np.arange(k.CODES, dtype=np.int64)
    table[most + 1 :] = (nothing & 255) | k.NO_FIT
    table[k.ABSENT_CODE] = nothing & 255
    return _by_table(found, 1, table)
