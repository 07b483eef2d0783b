"""Templates as instructions for the interpreter: one table of int64 for a whole template set.

Where several consecutive fields are usually absent, a SKIP before them tests all at once: whether their presence bits
are zero and the next bytes are NULL. A decimal in parts, as the exchange has them, is one PRICE, followed by its two
parts for the unusual case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.skip_runs import FieldCode, absence_encoding, insert_skips
from umdf.wire.fast.layout import ALWAYS_PRESENT, Column, Layout, ListColumn, Node, RowItem, has_dynamic_reference
from umdf.wire.fast.templates import (
    CONSTANT,
    DECIMAL,
    DEFAULT,
    DELTA,
    RANGES,
    Decimal,
    Field,
    Group,
    Segment,
    Sequence,
)

OPERATORS = {
    "none": k.NONE,
    "default": k.DEFAULT,
    "copy": k.COPY,
    "increment": k.INCREMENT,
    "delta": k.DELTA,
    "constant": k.CONSTANT,
    "tail": k.TAIL,
}
WINDOW = 57  # presence bits that the interpreter holds at once, at least
MIN_SKIPPED_FIELDS = 3


@dataclass
class ProgramInstruction:
    op: int
    path: str  # MDEntries[].MDEntryPx.exponent
    words: dict[int, int] = field(default_factory=dict)
    node: int = -1  # of its entry; known once the entry is complete
    column: Column | None = None  # whose values it writes
    exponents: Column | None = None


class Program:
    """The instructions of all templates, and where each starts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.code: list[ProgramInstruction] = []
        self.starts: dict[int, int] = {}
        self.constants = bytearray()  # initial values of strings and byte vectors
        for template_id, root in layout.roots.items():
            self.starts[template_id] = len(self.code)
            if not has_dynamic_reference(root.segment):
                items = iter(root.items)
                code = [*self._segment(root, root.segment, "", items, 1), _end(k.END_MESSAGE, "")]
                for line in code:
                    line.node = root.index if line.node < 0 else line.node
                self.code += code

    def _segment(
        self, node: Node, segment: Segment, path: str, items: Iterator[RowItem], bits: int
    ) -> list[ProgramInstruction]:
        """`bits` of the presence map are already used, by the template id."""
        codes: list[FieldCode[ProgramInstruction]] = []
        mask_word = 0
        needs_refill, refilled_at = bits + segment.bits > WINDOW, bits
        for instruction in segment.instructions:
            if needs_refill and bits + instruction.bits - refilled_at > WINDOW:
                codes.append(FieldCode([ProgramInstruction(k.REFILL, path, {k.I_LOW: bits})]))
                refilled_at = bits
            at = f"{path}.{instruction.name}".removeprefix(".")
            if isinstance(instruction, Sequence):
                code, bit = self._sequence(node, instruction, at, items)
            elif isinstance(instruction, Group):
                code, bit = self._group(node, instruction, at, items)
            else:
                assert isinstance(instruction, Field)
                code, bit = self._field(node, instruction, at, items)
            if bit // 64 > mask_word:
                # Presence bits come in the order of the instructions; the mask's words too.
                mask_word = bit // 64
                codes.append(_mask_word(mask_word, path))
            codes.append(code)
            words = [line.words[k.I_LOW] for line in code.lines if line.op == k.MASK_WORD and line.node < 0]
            inside = max(words, default=0)
            if inside > mask_word:  # an absent group does not get there
                mask_word = inside
                codes.append(_mask_word(mask_word, path))
            bits += instruction.bits
        return insert_skips(codes, _skip_instruction, MIN_SKIPPED_FIELDS)

    def _sequence(
        self, node: Node, sequence: Sequence, path: str, items: Iterator[RowItem]
    ) -> tuple[FieldCode[ProgramInstruction], int]:
        item = next(items)
        assert isinstance(item, ListColumn)
        child = self.layout.nodes[item.child]
        length = self._integer(sequence.length, path, k.COUNT)
        body = [_open_segment(sequence.body, f"{path}[]")]
        body += self._segment(child, sequence.body, f"{path}[]", iter(child.items), 0)
        body.append(_end(k.END_ENTRY, f"{path}[]"))
        words = {
            k.I_BIT: _bit_mask(item.bit if sequence.optional else ALWAYS_PRESENT),
            k.I_LOW: sequence.body.min_bytes,
            k.I_TEXT: item.child,
            k.I_JUMP: len(body),
        }
        for line in body:
            line.node = child.index if line.node < 0 else line.node
        unit = FieldCode(
            [length, ProgramInstruction(k.SEQUENCE, path, words), *body], *absence_encoding(sequence.length)
        )
        return unit, item.bit if sequence.optional else ALWAYS_PRESENT

    def _group(
        self, node: Node, group: Group, path: str, items: Iterator[RowItem]
    ) -> tuple[FieldCode[ProgramInstruction], int]:
        bit = next(items).bit if group.optional else ALWAYS_PRESENT
        body = [_open_segment(group.body, path)]
        body += self._segment(node, group.body, path, items, 0)
        body.append(_end(k.END_GROUP, path))
        words = {k.I_BIT: _bit_mask(bit), k.I_OPTIONAL: int(group.optional), k.I_JUMP: len(body)}
        return FieldCode([ProgramInstruction(k.GROUP, path, words), *body], group.optional), bit

    def _field(
        self, node: Node, instruction: Field, path: str, items: Iterator[RowItem]
    ) -> tuple[FieldCode[ProgramInstruction], int]:
        item = next(items)
        kind = instruction.operator.kind
        # A mandatory field of a group is present if the group is, and the group sets its own bit.
        bit = item.bit if instruction.optional else ALWAYS_PRESENT
        mask = {k.I_BIT: _bit_mask(bit)}
        skippable, nulls = absence_encoding(instruction)
        if kind == CONSTANT:
            code = [ProgramInstruction(k.BIT, path, mask)] if instruction.optional else []
        elif instruction.type == DECIMAL:
            exponents = next(items)
            assert isinstance(item, Column) and isinstance(exponents, Column)
            code = self._decimal(instruction, path, item, exponents, mask)
            if instruction.has_part_operators:
                exponent, mantissa = instruction.parts
                skippable, nulls = absence_encoding(exponent)
                skippable &= mantissa.bits == 0
        elif isinstance(item, Column) and item.is_text:
            words = {**mask, **self._operator_words(instruction), k.I_TEXT: item.text}
            code = [ProgramInstruction(k.TEXTUAL + OPERATORS[kind], path, words, column=item)]
        else:
            assert isinstance(item, Column)
            line = self._integer(instruction, path, k.COLUMN)
            line.words |= mask
            line.column = item
            code = [line]
        return FieldCode(code, skippable, nulls), bit

    def _decimal(
        self, decimal: Field, path: str, values: Column, exponents: Column, mask: dict[int, int]
    ) -> list[ProgramInstruction]:
        if not decimal.has_part_operators:
            words = {**mask, **self._operator_words(decimal)}
            op = k.DECIMAL + OPERATORS[decimal.operator.kind]
            return [ProgramInstruction(op, path, words, column=values, exponents=exponents)]
        exponent, mantissa = decimal.parts
        parts = [
            self._integer(exponent, f"{path}.exponent", k.EXPONENT),
            self._integer(mantissa, f"{path}.mantissa", k.COLUMN),
        ]
        parts[0].words |= {**mask, k.I_JUMP: 1, k.I_TEXT: mantissa.bits}
        parts[1].words |= mask
        parts[0].column, parts[1].column = exponents, values
        if exponent.operator.kind != DEFAULT or mantissa.operator.kind != DELTA:
            return parts
        words = {**mask, **self._operator_words(exponent), k.I_JUMP: 2}
        words |= {k.I_SLOT: mantissa.operator.slot or 0, k.I_LOW: _initial(mantissa)}
        return [ProgramInstruction(k.PRICE, path, words, column=values, exponents=exponents), *parts]

    def _integer(self, integer: Field, path: str, role: int) -> ProgramInstruction:
        low, high = RANGES[integer.type]
        op = k.INTEGER + 2 * OPERATORS[integer.operator.kind] + (low < 0)
        words = {**self._operator_words(integer), k.I_ROLE: role, k.I_LOW: low, k.I_HIGH: min(high, (1 << 63) - 1)}
        words |= {k.I_MORE: _signed(low), k.I_EXPONENTS: _signed(high)}  # for the increment of the last value
        return ProgramInstruction(op, path, words)

    def _operator_words(self, field: Field) -> dict[int, int]:
        initial = field.operator.initial
        words = {
            k.I_OPTIONAL: int(field.optional),
            k.I_TYPE: k.TYPES.index(field.type),
            k.I_HAS_INITIAL: int(initial is not None),
            k.I_SLOT: -1 if field.operator.slot is None else field.operator.slot,
        }
        if isinstance(initial, Decimal):
            words |= {k.I_INITIAL: initial.mantissa, k.I_MORE: initial.exponent}
        elif isinstance(initial, int):
            words[k.I_INITIAL] = _signed(initial)
        elif field.type in k.TYPES[k.ASCII :]:
            content = initial.encode("utf-8", "surrogateescape") if isinstance(initial, str) else initial or b""
            words |= {k.I_INITIAL: len(self.constants), k.I_MORE: len(content)}
            self.constants += content
        return words

    def table(self) -> NDArray[np.int64]:
        table = np.zeros((len(self.code) + 1, k.INSTRUCTION), np.int64)
        for line, row in zip(self.code, table, strict=False):
            row[k.I_OP] = line.op
            for number, value in line.words.items():
                row[number] = value
            row[k.I_JUMP] *= 8 * k.INSTRUCTION
            if line.column is not None and not line.column.is_text:
                row[k.I_SHIFT] = line.column.dtype.itemsize.bit_length() - 1
        return table


def _skip_instruction(
    run: list[FieldCode[ProgramInstruction]], code: list[ProgramInstruction]
) -> list[ProgramInstruction]:
    bits, nulls = sum(unit.nulls == 0 for unit in run), sum(unit.nulls for unit in run)
    words = {
        k.I_INITIAL: _signed(((1 << bits) - 1) << (64 - bits) if bits else 0),
        k.I_HIGH: bits,
        k.I_LOW: nulls,
        k.I_BIT: _null_bytes_mask(nulls),
        k.I_MORE: _null_bytes_mask(nulls - 8),
        k.I_EXPONENTS: _null_bytes_mask(nulls - 16),
        k.I_JUMP: len(code),
    }
    return [ProgramInstruction(k.SKIP, code[0].path, words), *code]


def _null_bytes_mask(count: int) -> int:
    """A mask of the given number of bytes, at most eight."""
    return _signed((1 << 8 * min(8, max(0, count))) - 1)


def _mask_word(number: int, path: str) -> FieldCode[ProgramInstruction]:
    return FieldCode([ProgramInstruction(k.MASK_WORD, path, {k.I_LOW: number})])


def _open_segment(segment: Segment, path: str) -> ProgramInstruction:
    return ProgramInstruction(k.OPEN, path, {k.I_LOW: segment.bits})


def _end(op: int, path: str) -> ProgramInstruction:
    return ProgramInstruction(op, path)


def _bit_mask(bit: int) -> int:
    return 0 if bit == ALWAYS_PRESENT else _signed(1 << bit % 64)


def _initial(integer: Field) -> int:
    return integer.operator.initial if isinstance(integer.operator.initial, int) else 0


def _signed(value: int) -> int:
    """As the bits of an int64."""
    return value - (1 << 64) if value >= 1 << 63 else value
