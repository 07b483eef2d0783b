"""Templates as instructions for the interpreter: one table of int64 for a whole template set.

Where several fields in a row are usually absent, a SKIP in front of them asks once for all: their presence bits are
zero and the next bytes are NULL. A decimal in parts, as the exchange has them, is one PRICE, followed by its two parts
for the unusual.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast import tables_kernel as k
from umdf.wire.fast.layout import ALWAYS, Column, Item, Layout, List, Node, has_dynamic_reference
from umdf.wire.fast.skips import Unit, is_absent_by, with_skips
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
FEWEST_SKIPPED = 3


@dataclass
class Instruction:
    op: int
    place: str  # MDEntries[].MDEntryPx.exponent
    words: dict[int, int] = field(default_factory=dict)
    node: int = -1  # of the entry it stands in; known once the entry is complete
    column: Column | None = None  # whose values it writes
    exponents: Column | None = None


class Program:
    """The instructions of all templates, and where each starts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.code: list[Instruction] = []
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

    def _segment(self, node: Node, segment: Segment, place: str, items: Iterator[Item], bits: int) -> list[Instruction]:
        """`bits` of the presence map are used by what stands in front: the template id."""
        units: list[Unit[Instruction]] = []
        mask_word = 0
        wide, held = bits + segment.bits > WINDOW, bits
        for instruction in segment.instructions:
            if wide and bits + instruction.bits - held > WINDOW:
                units.append(Unit([Instruction(k.REFILL, place, {k.I_LOW: bits})]))
                held = bits
            at = f"{place}.{instruction.name}".removeprefix(".")
            if isinstance(instruction, Sequence):
                unit, bit = self._sequence(node, instruction, at, items)
            elif isinstance(instruction, Group):
                unit, bit = self._group(node, instruction, at, items)
            else:
                assert isinstance(instruction, Field)
                unit, bit = self._field(node, instruction, at, items)
            if bit // 64 > mask_word:
                # Presence bits come in the order of the instructions; the mask's words too.
                mask_word = bit // 64
                units.append(_mask_word(mask_word, place))
            units.append(unit)
            words = [line.words[k.I_LOW] for line in unit.lines if line.op == k.MASK_WORD and line.node < 0]
            inside = max(words, default=0)
            if inside > mask_word:  # an absent group does not get there
                mask_word = inside
                units.append(_mask_word(mask_word, place))
            bits += instruction.bits
        return with_skips(units, _ask, FEWEST_SKIPPED)

    def _sequence(
        self, node: Node, sequence: Sequence, place: str, items: Iterator[Item]
    ) -> tuple[Unit[Instruction], int]:
        item = next(items)
        assert isinstance(item, List)
        child = self.layout.nodes[item.child]
        length = self._integer(sequence.length, place, k.COUNT)
        body = [_open(sequence.body, f"{place}[]")]
        body += self._segment(child, sequence.body, f"{place}[]", iter(child.items), 0)
        body.append(_end(k.END_ENTRY, f"{place}[]"))
        words = {
            k.I_BIT: _mask(item.bit if sequence.optional else ALWAYS),
            k.I_LOW: sequence.body.least_bytes,
            k.I_TEXT: item.child,
            k.I_JUMP: len(body),
        }
        for line in body:
            line.node = child.index if line.node < 0 else line.node
        unit = Unit([length, Instruction(k.SEQUENCE, place, words), *body], *is_absent_by(sequence.length))
        return unit, item.bit if sequence.optional else ALWAYS

    def _group(self, node: Node, group: Group, place: str, items: Iterator[Item]) -> tuple[Unit[Instruction], int]:
        bit = next(items).bit if group.optional else ALWAYS
        body = [_open(group.body, place)]
        body += self._segment(node, group.body, place, items, 0)
        body.append(_end(k.END_GROUP, place))
        words = {k.I_BIT: _mask(bit), k.I_OPTIONAL: int(group.optional), k.I_JUMP: len(body)}
        return Unit([Instruction(k.GROUP, place, words), *body], group.optional), bit

    def _field(
        self, node: Node, instruction: Field, place: str, items: Iterator[Item]
    ) -> tuple[Unit[Instruction], int]:
        item = next(items)
        kind = instruction.operator.kind
        # What is mandatory in a group is there if the group is, whose bit the group sets itself.
        bit = item.bit if instruction.optional else ALWAYS
        mask = {k.I_BIT: _mask(bit)}
        skippable, nulls = is_absent_by(instruction)
        if kind == CONSTANT:
            code = [Instruction(k.BIT, place, mask)] if instruction.optional else []
        elif instruction.type == DECIMAL:
            exponents = next(items)
            assert isinstance(item, Column) and isinstance(exponents, Column)
            code = self._decimal(instruction, place, item, exponents, mask)
            if instruction.in_parts:
                exponent, mantissa = instruction.parts
                skippable, nulls = is_absent_by(exponent)
                skippable &= mantissa.bits == 0
        elif isinstance(item, Column) and item.is_text:
            words = {**mask, **self._operated(instruction), k.I_TEXT: item.text}
            code = [Instruction(k.TEXTUAL + OPERATORS[kind], place, words, column=item)]
        else:
            assert isinstance(item, Column)
            line = self._integer(instruction, place, k.COLUMN)
            line.words |= mask
            line.column = item
            code = [line]
        return Unit(code, skippable, nulls), bit

    def _decimal(
        self, decimal: Field, place: str, values: Column, exponents: Column, mask: dict[int, int]
    ) -> list[Instruction]:
        if not decimal.in_parts:
            words = {**mask, **self._operated(decimal)}
            op = k.DECIMAL + OPERATORS[decimal.operator.kind]
            return [Instruction(op, place, words, column=values, exponents=exponents)]
        exponent, mantissa = decimal.parts
        parts = [
            self._integer(exponent, f"{place}.exponent", k.EXPONENT),
            self._integer(mantissa, f"{place}.mantissa", k.COLUMN),
        ]
        parts[0].words |= {**mask, k.I_JUMP: 1, k.I_TEXT: mantissa.bits}
        parts[1].words |= mask
        parts[0].column, parts[1].column = exponents, values
        if exponent.operator.kind != DEFAULT or mantissa.operator.kind != DELTA:
            return parts
        words = {**mask, **self._operated(exponent), k.I_JUMP: 2}
        words |= {k.I_SLOT: mantissa.operator.slot or 0, k.I_LOW: _initial(mantissa)}
        return [Instruction(k.PRICE, place, words, column=values, exponents=exponents), *parts]

    def _integer(self, integer: Field, place: str, role: int) -> Instruction:
        low, high = RANGES[integer.type]
        op = k.INTEGER + 2 * OPERATORS[integer.operator.kind] + (low < 0)
        words = {**self._operated(integer), k.I_ROLE: role, k.I_LOW: low, k.I_HIGH: min(high, (1 << 63) - 1)}
        words |= {k.I_MORE: _signed(low), k.I_EXPONENTS: _signed(high)}  # for the increment of the last value
        return Instruction(op, place, words)

    def _operated(self, operated: Field) -> dict[int, int]:
        initial = operated.operator.initial
        words = {
            k.I_OPTIONAL: int(operated.optional),
            k.I_TYPE: k.TYPES.index(operated.type),
            k.I_HAS_INITIAL: int(initial is not None),
            k.I_SLOT: -1 if operated.operator.slot is None else operated.operator.slot,
        }
        if isinstance(initial, Decimal):
            words |= {k.I_INITIAL: initial.mantissa, k.I_MORE: initial.exponent}
        elif isinstance(initial, int):
            words[k.I_INITIAL] = _signed(initial)
        elif operated.type in k.TYPES[k.ASCII :]:
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


def _ask(run: list[Unit[Instruction]], code: list[Instruction]) -> list[Instruction]:
    bits, nulls = sum(unit.nulls == 0 for unit in run), sum(unit.nulls for unit in run)
    words = {
        k.I_INITIAL: _signed(((1 << bits) - 1) << (64 - bits) if bits else 0),
        k.I_HIGH: bits,
        k.I_LOW: nulls,
        k.I_BIT: _nulls(nulls),
        k.I_MORE: _nulls(nulls - 8),
        k.I_EXPONENTS: _nulls(nulls - 16),
        k.I_JUMP: len(code),
    }
    return [Instruction(k.SKIP, code[0].place, words), *code]


def _nulls(count: int) -> int:
    """A word with ones where so many bytes, at most eight, stand."""
    return _signed((1 << 8 * min(8, max(0, count))) - 1)


def _mask_word(number: int, place: str) -> Unit[Instruction]:
    return Unit([Instruction(k.MASK_WORD, place, {k.I_LOW: number})])


def _open(segment: Segment, place: str) -> Instruction:
    return Instruction(k.OPEN, place, {k.I_LOW: segment.bits})


def _end(op: int, place: str) -> Instruction:
    return Instruction(op, place)


def _mask(bit: int) -> int:
    return 0 if bit == ALWAYS else _signed(1 << bit % 64)


def _initial(integer: Field) -> int:
    return integer.operator.initial if isinstance(integer.operator.initial, int) else 0


def _signed(value: int) -> int:
    """As the bits of an int64."""
    return value - (1 << 64) if value >= 1 << 63 else value
