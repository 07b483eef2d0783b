"""Templates as instructions for the encode kernel: one table of int64 for a whole template set.

A SKIP before neighbouring fields that are often absent together writes the bits and NULLs of all of them at once;
inside it, there is one for each half. A template that holds what the kernel leaves to the reference writer (a dynamic
reference, a string with delta or tail) has no instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.program import OPERATORS
from umdf.wire.fast.encode import tables_kernel as e
from umdf.wire.fast.layout import TEXTS, Column, Layout, ListColumn, Node, RowItem
from umdf.wire.fast.templates import (
    CONSTANT,
    DECIMAL,
    DEFAULT,
    DELTA,
    NONE,
    RANGES,
    TAIL,
    Decimal,
    DynamicRef,
    Field,
    Group,
    Segment,
    Sequence,
)

MAX_INTEGER_BYTES = 10  # bytes
MAX_TEMPLATE_ID_BYTES = 5
MIN_SKIPPED_FIELDS = 3


@dataclass
class ProgramInstruction:
    op: int
    words: dict[int, int] = field(default_factory=dict)
    masks: Node | None = None  # of an OPEN
    column: tuple[Node, Column] | None = None  # whose values it reads
    exponents: tuple[Node, Column] | None = None
    offsets: tuple[Node, ListColumn] | None = None


@dataclass
class FieldCode:
    """The instructions of one field, group or sequence; where it can be skipped, its position in the row's mask and its
    encoding if absent: presence bits, and NULLs."""

    code: list[ProgramInstruction]
    bit: int = -1
    absence_encoding: tuple[int, int, int] | None = None  # how many presence bits, which, how many NULLs


class EncodeProgram:
    """The instructions of all templates, and where each starts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.code: list[ProgramInstruction] = []
        self.starts: dict[int, int] = {}
        self.constants = bytearray()  # initial values of strings and byte vectors
        self.max_presence_bits = 0  # of a presence map
        self.max_depth = 1
        for template_id, root in layout.roots.items():
            if not _needs_reference_writer(root.segment):
                self.starts[template_id] = len(self.code)
                body = self._body(root, root.segment, e.END_MESSAGE, iter(root.items), 1)
                body.insert(1, ProgramInstruction(e.TEMPLATE, {e.I_INITIAL: template_id}))
                self.code += body

    def _body(
        self, node: Node, segment: Segment, end: int, items: Iterator[RowItem], depth: int
    ) -> list[ProgramInstruction]:
        message = int(end == e.END_MESSAGE)
        bits, units = message, []
        self.max_presence_bits = max(self.max_presence_bits, message + segment.bits)
        self.max_depth = max(self.max_depth, depth)
        for instruction in segment.instructions:
            if bits + instruction.bits > e.WINDOW:
                units.append(FieldCode([ProgramInstruction(e.FLUSH)]))
                bits = 0
            bits += instruction.bits
            units.append(self._field_code(node, instruction, items, depth))
        need = MAX_TEMPLATE_ID_BYTES * message + (message + segment.bits) // 7 + 1
        need += sum(map(_max_bytes, segment.instructions))
        has_map = message or segment.has_presence_map
        words = {e.I_WORD: 8 * node.mask_words, e.I_LOW: int(has_map), e.I_HIGH: need}
        code = [line for run in _skippable_runs(units) for line in _with_skips(run)]
        return [ProgramInstruction(e.OPEN, words, masks=node), *code, ProgramInstruction(end)]

    def _field_code(
        self, node: Node, instruction: Field | Group | Sequence | DynamicRef, items: Iterator[RowItem], depth: int
    ) -> FieldCode:
        if isinstance(instruction, Group):
            bit = next(items).bit if instruction.optional else -1
            body = self._body(node, instruction.body, e.END_GROUP, items, depth + 1)
            code = [ProgramInstruction(e.GROUP, {**_bit_mask(bit), e.I_JUMP: len(body)}), *body]
            return FieldCode(code, bit, (1, 0, 0) if instruction.optional else None)
        item = next(items)
        bit = item.bit if instruction.optional else -1
        if isinstance(instruction, Sequence):
            assert isinstance(item, ListColumn)
            child = self.layout.nodes[item.child]
            body = self._body(child, instruction.body, e.END_ENTRY, iter(child.items), depth + 1)
            length = self._integer(instruction.length, e.COUNT, bit)
            length.words[e.I_JUMP] = 1 + len(body)
            opening = ProgramInstruction(e.SEQUENCE, {e.I_JUMP: len(body)})
            length.offsets = opening.offsets = node, item
            return FieldCode([length, opening, *body], bit, _absence_encoding(instruction.length))
        assert isinstance(instruction, Field)
        absent = _absence_encoding(instruction)
        if instruction.operator.kind == CONSTANT:
            return FieldCode([ProgramInstruction(e.BIT, _bit_mask(bit))] if instruction.optional else [], bit, absent)
        assert isinstance(item, Column)
        if instruction.type == DECIMAL:
            exponents = next(items)
            assert isinstance(exponents, Column)
            if not instruction.has_part_operators:
                line = ProgramInstruction(
                    e.WHOLE_DECIMAL, {**_bit_mask(bit), **self._operator_words(instruction)}, column=(node, item)
                )
                line.exponents = node, exponents
                return FieldCode([line], bit, absent)
            exponent, mantissa = (
                self._integer(part, role, bit)
                for part, role in zip(instruction.parts, (e.EXPONENT, e.COLUMN), strict=True)
            )
            exponent.words[e.I_JUMP] = 1
            exponent.column, mantissa.column = (node, exponents), (node, item)
            return FieldCode([exponent, mantissa], bit, _absence_encoding(instruction.parts[0]))
        if item.is_text:
            line = ProgramInstruction(e.TEXT, {**_bit_mask(bit), **self._operator_words(instruction)})
        else:
            line = self._integer(instruction, e.COLUMN, bit)
        line.column = node, item
        return FieldCode([line], bit, absent)

    def _integer(self, integer: Field, role: int, bit: int) -> ProgramInstruction:
        low, high = RANGES[integer.type]
        words = {e.I_ROLE: role, e.I_LOW: _signed(low), e.I_HIGH: _signed(high)}
        return ProgramInstruction(e.INTEGER, {**_bit_mask(bit), **self._operator_words(integer), **words})

    def _operator_words(self, field: Field) -> dict[int, int]:
        initial = field.operator.initial
        words = {
            e.I_OPERATOR: OPERATORS[field.operator.kind],
            e.I_OPTIONAL: int(field.optional),
            e.I_TYPE: k.TYPES.index(field.type),
            e.I_HAS_INITIAL: int(initial is not None),
            e.I_SLOT: field.operator.slot or 0,
        }
        if isinstance(initial, Decimal):
            words |= {e.I_INITIAL: initial.mantissa, e.I_MORE: initial.exponent}
        elif isinstance(initial, int):
            words[e.I_INITIAL] = _signed(initial)
        elif initial is not None:
            content = initial.encode("utf-8", "surrogateescape") if isinstance(initial, str) else initial
            words |= {e.I_INITIAL: len(self.constants), e.I_MORE: len(content)}
            self.constants += content
        return words

    def column_reads(self) -> list[ColumnReads]:
        """By node."""
        found = [ColumnReads() for _ in self.layout.nodes]
        for number, line in enumerate(self.code):
            at = e.INSTRUCTION * number
            if line.masks is not None:
                found[line.masks.index].add(at + e.I_VALUES, e.MASKS, 0)
            if line.column is not None:
                node, column = line.column
                found[node.index].add(at + e.I_VALUES, e.VALUES, column.number)
                if column.is_text:
                    found[node.index].add(at + e.I_CONTENT, e.CONTENT, column.number)
            if line.exponents is not None:
                node, column = line.exponents
                found[node.index].add(at + e.I_CONTENT, e.VALUES, column.number)
            if line.offsets is not None:
                node, item = line.offsets
                found[node.index].add(at + e.I_VALUES, e.OFFSETS, node.lists.index(item))
        return found

    def table(self) -> NDArray[np.int64]:
        """Numbers as placeholders for the addresses that `encode` sets: slots, initial texts."""
        table = np.zeros((len(self.code) + 1, e.INSTRUCTION), np.int64)
        for line, row in zip(self.code, table, strict=False):
            row[e.I_OP] = line.op
            for number, value in line.words.items():
                row[number] = value
            row[e.I_JUMP] *= 8 * e.INSTRUCTION
        return table


@dataclass
class ColumnReads:
    """The inputs of a node's instructions: words of the table, and the address that belongs there."""

    word_indexes: list[int] = field(default_factory=list)
    sources: list[tuple[int, int]] = field(default_factory=list)  # a kind of address, and its number in the node

    def add(self, word_index: int, kind: int, number: int) -> None:
        self.word_indexes.append(word_index)
        self.sources.append((kind, number))


def _needs_reference_writer(segment: Segment) -> bool:
    """Whether only the reference writer can encode it."""
    return any(
        isinstance(instruction, DynamicRef)
        or (isinstance(instruction, Group | Sequence) and _needs_reference_writer(instruction.body))
        or (isinstance(instruction, Field) and instruction.type in TEXTS and instruction.operator.kind in (DELTA, TAIL))
        for instruction in segment.instructions
    )


def _max_bytes(instruction: Field | Group | Sequence | DynamicRef) -> int:
    """Maximum bytes in its own segment, without the content of texts."""
    if isinstance(instruction, Field):
        return 2 * MAX_INTEGER_BYTES if instruction.type == DECIMAL else MAX_INTEGER_BYTES
    return MAX_INTEGER_BYTES if isinstance(instruction, Sequence) else 0


def _absence_encoding(instruction: Field) -> tuple[int, int, int] | None:
    """The encoding of an absent optional field, if it is always the same."""
    kind, initial = instruction.operator.kind, instruction.operator.initial
    if not instruction.optional or instruction.has_part_operators:
        return None
    if kind in (NONE, DELTA):
        return 0, 0, 1
    if kind == CONSTANT or (kind == DEFAULT and initial is None):
        return 1, 0, 0
    return (1, 1, 1) if kind == DEFAULT else None


def _skippable_runs(units: list[FieldCode]) -> Iterator[list[FieldCode]]:
    """Neighbours that one SKIP can cover: in the same word of the row's mask, with few enough bits and NULLs."""
    run: list[FieldCode] = []
    for unit in units:
        together = [*run, unit]
        if unit.absence_encoding is None or any(
            other.absence_encoding is None
            or other.bit // 64 != unit.bit // 64
            or sum(one.absence_encoding[2] for one in together if one.absence_encoding) > e.MAX_NULLS
            for other in run
        ):
            yield run
            run = [unit]
        else:
            run = together
    yield run


def _with_skips(run: list[FieldCode]) -> list[ProgramInstruction]:
    if len(run) < MIN_SKIPPED_FIELDS:
        return [line for unit in run for line in unit.code]
    half = len(run) // 2
    code = [*_with_skips(run[:half]), *_with_skips(run[half:])]
    bits = pattern = nulls = mask = 0
    for unit in run:
        assert unit.absence_encoding is not None
        count, which, null = unit.absence_encoding
        bits, pattern, nulls = bits + count, pattern << count | which, nulls + null
        mask |= 1 << unit.bit % 64
    words = {
        e.I_BIT: _signed(mask),
        e.I_WORD: 8 * (run[0].bit // 64),
        e.I_INITIAL: _signed(pattern),
        e.I_HIGH: bits,
        e.I_LOW: nulls,
        e.I_JUMP: len(code),
    }
    return [ProgramInstruction(e.SKIP, words), *code]


def _bit_mask(bit: int) -> dict[int, int]:
    return {e.I_BIT: _signed(1 << bit % 64), e.I_WORD: 8 * (bit // 64)} if bit >= 0 else {}


def _signed(value: int) -> int:
    """As the bits of an int64."""
    return value - (1 << 64) if value >= 1 << 63 else value
