"""One column of one rule → the steps that fill it (see `convert_kernel`).

The schema decides: a field that is constant or missing there is a constant here; widths, null values and
exponents choose the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import FAMILIES, NULL, Column
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe.mapping_rules import (
    Bits,
    CodeMap,
    Combine,
    Constant,
    Copy,
    EnumName,
    FieldSource,
    MonthYear,
    TemplateRule,
    code_number,
    find_field,
    find_node,
    scale_factor,
    scaled_bounds,
)
from umdf.wire.sbe.layout import Column as WireColumn
from umdf.wire.sbe.layout import Layout, Node, as_int64, null_bits
from umdf.wire.sbe.schema import Field

KINDS = {
    **{"char": k.U8, "uint8": k.U8, "uint16": k.U16, "uint32": k.U32, "uint64": k.I64},
    **{"int8": k.I8, "int16": k.I16, "int32": k.I32, "int64": k.I64},
}
CodeTable = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Instruction:
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
    table: CodeTable | None = None
    shift: int = 0
    mask: int = 0

    @property
    def constant(self) -> int | None:
        return self.absent if self.op == k.CONSTANT else None


@dataclass(frozen=True, eq=False)
class ResolvedField:
    """A field, from the point of view of a rule."""

    field: Field
    node: Node
    wire: WireColumn | None  # None: constant in the schema
    has_bitmap: bool
    is_in_message: bool  # it is in the message, the rows are its group's entries


class InstructionBuilder:
    """Builds the steps of one rule. `tracked`: whether the presence of each column must be checked (see `decode`)."""

    def __init__(self, layout: Layout, rule: TemplateRule, tracked: dict[int, NDArray[np.int64]]) -> None:
        self._rule, self._tracked = rule, tracked
        self.root = layout.roots[rule.template]
        node = find_node(layout, rule.template, rule.group)
        assert node is not None
        self.node = node
        # Entries that are rows know their message; those of a list do not.
        self._nodes = (node, self.root) if rule.family in FAMILIES else (node,)

    def schema_field(self, name: str) -> tuple[Node, Field] | None:
        """A field of the entry, or of its message."""
        for node in self._nodes:
            field = find_field(self._rule.template, node, name) if name else None
            if field is not None:
                return node, field
        return None

    def resolve(self, name: str) -> ResolvedField | None:
        """A field that this batch may have; a retired one that no row carries is absent."""
        found = self.schema_field(name)
        if found is None:
            return None
        node, field = found
        wires = [(i, wire) for i, wire in enumerate(node.columns) if wire.field is field]
        if not wires:
            return ResolvedField(field, node, None, False, False)
        number, wire = wires[0]
        tracked = self._tracked.get(node.index)
        is_tracked = tracked is not None and bool(tracked[number])
        if wire.is_retired and not is_tracked:
            return None
        return ResolvedField(field, node, wire, is_tracked and wire.part.null is None, node is not self.node)

    def instructions(self, source: FieldSource | None, column: Column, extra_bits: int = 0) -> list[Instruction]:
        """What fills a column; `extra_bits` are bits that every row has."""
        size = column.dtype.itemsize
        absent = column.null if column.nullable else 0
        if source is None or isinstance(source, (EnumName, MonthYear)):
            return [Instruction(k.CONSTANT, size, absent | extra_bits)]
        if isinstance(source, Constant):
            return [Instruction(k.CONSTANT, size, code_number(source.value) | extra_bits)]
        if isinstance(source, Combine):
            results = [result for part in source.parts for result in self.instructions(part, column)]
            for step in results:
                extra_bits |= step.constant or 0
            results = [step for step in results if step.constant is None]
            if extra_bits or not results:
                return [Instruction(k.CONSTANT, size, extra_bits), *map(_or_bits, results)]
            return [results[0], *map(_or_bits, results[1:])]
        found = self.resolve(source.field)
        if found is not None and found.is_in_message and isinstance(source, (Bits, CodeMap)):
            found = None
        if isinstance(source, Bits):
            return self._bit_instructions(source, found, size, extra_bits)
        if isinstance(source, CodeMap):
            return [_code_instruction(source, found, size)]
        return [_number_instruction(found, column, absent, isinstance(source, Copy) and source.or_null)]

    def _bit_instructions(
        self, source: Bits, found: ResolvedField | None, size: int, extra_bits: int
    ) -> list[Instruction]:
        always = source.always | extra_bits
        if found is None or found.wire is None:
            return [Instruction(k.CONSTANT, size, always)]
        wire, instructions = found.wire, []
        for byte in range(wire.part.size):
            table = np.full(k.CODES, always if byte == 0 else 0, np.int64)
            for bit in range(8):
                is_set = np.arange(256) >> bit & 1
                table[:256] |= is_set * source.bits.get(8 * byte + bit, source.unknown)
            instruction = _lookup_instruction(found, size, table)
            if wire.part.size > 1:
                instruction = replace(instruction, op=k.LOOK_UP, shift=8 * byte, mask=255)
            instructions.append(instruction)
        return [instructions[0], *map(_or_bits, instructions[1:])]


def _or_bits(instruction: Instruction) -> Instruction:
    """The same, adding its bits to the existing ones."""
    return (
        replace(instruction, op=k.OR_4) if instruction.op == k.TABLE_4 else replace(instruction, op=k.LOOK_UP, absent=1)
    )


def _code_instruction(source: CodeMap, found: ResolvedField | None, size: int) -> Instruction:
    other = code_number(source.other)
    absent = other if source.absent is None else code_number(source.absent)
    codes = {code_number(code): code_number(ours) for code, ours in source.codes.items()}
    if found is None:
        return Instruction(k.CONSTANT, size, absent)
    if found.wire is None:
        assert found.field.constant is not None
        return Instruction(k.CONSTANT, size, codes.get(code_number(found.field.constant) >> source.shift, other))
    table = np.full(k.CODES, other, np.int64)
    for code, ours in codes.items():
        table[code] = ours
    table[k.ABSENT_CODE] = absent
    if not source.shift:
        return _lookup_instruction(found, size, table)
    return replace(_lookup_instruction(found, size, table), op=k.LOOK_UP, shift=source.shift)


def _lookup_instruction(found: ResolvedField, size: int, table: CodeTable) -> Instruction:
    wire = found.wire
    assert wire is not None
    nullable, null = int(wire.part.null is not None), null_bits(wire)
    kind = KINDS[wire.part.primitive]
    is_simple = kind == k.U8 and not found.has_bitmap and not found.is_in_message and size in (1, 4)
    if is_simple and nullable:
        table = table.copy()
        table[null & 255] = table[k.ABSENT_CODE]
    op = (k.TABLE_1 if size == 1 else k.TABLE_4) if is_simple else k.LOOK_UP
    return Instruction(op, size, 0, wire, found.node, found.has_bitmap, nullable, null, table=table)


def _number_instruction(found: ResolvedField | None, column: Column, absent: int, or_null: bool) -> Instruction:
    size = column.dtype.itemsize
    if found is None:
        return Instruction(k.CONSTANT, size, absent)
    wire = found.wire
    if wire is None:
        constant = found.field.constant
        fits = isinstance(constant, int) or (isinstance(constant, str) and len(constant) == 1)
        return Instruction(k.CONSTANT, size, code_number(constant) if fits and constant is not None else absent)
    if wire.is_text or wire.part.name:  # one part of several (a decimal that sends its exponent) is not the value
        return Instruction(k.CONSTANT, size, absent)
    kind = KINDS[wire.part.primitive]
    nullable, null = int(wire.part.null is not None), null_bits(wire)
    if or_null and wire.part.null_before is not None:
        nullable, null = 1, as_int64(wire.part.null_before)
    base = Instruction(k.MOVE, size, absent, wire, found.node, found.has_bitmap, nullable, null)
    factor = _factor(found.field, column)
    if found.is_in_message:
        return replace(base, op=k.REPEAT) if factor == 1 else Instruction(k.CONSTANT, size, absent)
    if size == 1 and kind == k.U8 and factor == 1:
        return _byte_instruction(found, column, absent)
    if size == 8 and factor == 1 and not found.has_bitmap:
        if kind == k.I64:
            return replace(base, op=k.COPY_8 if nullable and null == NULL else k.NULL_8)
        if kind == k.U32:
            return replace(base, op=k.WIDEN_4, null=null if nullable else -1)
    low, high = _bounds(wire, column, factor)
    is_simple = size == 8 and kind == k.I64 and not found.has_bitmap and absent == NULL
    return replace(base, op=k.SCALE_8 if is_simple else k.MOVE, low=low, high=high, factor=factor)


def _factor(field: Field, column: Column) -> int:
    return scale_factor(field) if column.type in ("price", "ns") else 1


def _bounds(wire: WireColumn, column: Column, factor: int) -> tuple[int, int]:
    """The range of wire values that fits the column."""
    low, high = scaled_bounds(factor)
    if wire.part.primitive == "uint64" and factor != 1:
        low = max(low, 0)
    if column.type != "char":
        limits = np.iinfo(column.dtype.name)
        low, high = max(low, int(limits.min) + 1), min(high, int(limits.max))
    else:
        low, high = max(low, 0), min(high, 255)
    return low, high


def _byte_instruction(found: ResolvedField, column: Column, absent: int) -> Instruction:
    max_code = 255 if column.type == "char" else 127
    table = np.arange(k.CODES, dtype=np.int64)
    table[max_code + 1 :] = (absent & 255) | k.OUT_OF_RANGE_CODE
    table[k.ABSENT_CODE] = absent & 255
    return _lookup_instruction(found, 1, table)
