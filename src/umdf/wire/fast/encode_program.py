"""Templates as instructions for the encode kernel: one table of int64 for a whole template set.

In front of neighbours that are often absent together stands a SKIP, which writes the bits and NULLs of all of them at
once; inside it, one for each half. A template that holds what the kernel leaves to the plain writer (a dynamic
reference, a string with delta or tail) has no instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast import encode_tables_kernel as e
from umdf.wire.fast import tables_kernel as k
from umdf.wire.fast.layout import TEXTS, Column, Item, Layout, List, Node
from umdf.wire.fast.program import OPERATORS
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

LONGEST_INTEGER = 10  # bytes
LONGEST_TEMPLATE_ID = 5
FEWEST_SKIPPED = 3


@dataclass
class Instruction:
    op: int
    words: dict[int, int] = field(default_factory=dict)
    masks: Node | None = None  # of an OPEN
    column: tuple[Node, Column] | None = None  # whose values it reads
    exponents: tuple[Node, Column] | None = None
    offsets: tuple[Node, List] | None = None


@dataclass
class Unit:
    """The instructions of one field, group or sequence; where it can be skipped, its place in the row's mask and what
    stands in the stream if it is absent: presence bits, and NULLs."""

    code: list[Instruction]
    bit: int = -1
    absent: tuple[int, int, int] | None = None  # how many presence bits, which, how many NULLs


class EncodeProgram:
    """The instructions of all templates, and where each starts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.code: list[Instruction] = []
        self.starts: dict[int, int] = {}
        self.constants = bytearray()  # initial values of strings and byte vectors
        self.most_bits = 0  # of a presence map
        self.deepest = 1
        for template_id, root in layout.roots.items():
            if not _is_plain(root.segment):
                self.starts[template_id] = len(self.code)
                body = self._body(root, root.segment, e.END_MESSAGE, iter(root.items), 1)
                body.insert(1, Instruction(e.TEMPLATE, {e.I_INITIAL: template_id}))
                self.code += body

    def _body(self, node: Node, segment: Segment, end: int, items: Iterator[Item], depth: int) -> list[Instruction]:
        message = int(end == e.END_MESSAGE)
        bits, units = message, []
        self.most_bits = max(self.most_bits, message + segment.bits)
        self.deepest = max(self.deepest, depth)
        for instruction in segment.instructions:
            if bits + instruction.bits > e.WINDOW:
                units.append(Unit([Instruction(e.FLUSH)]))
                bits = 0
            bits += instruction.bits
            units.append(self._unit(node, instruction, items, depth))
        need = LONGEST_TEMPLATE_ID * message + (message + segment.bits) // 7 + 1
        need += sum(map(_longest, segment.instructions))
        has_map = message or segment.has_presence_map
        words = {e.I_WORD: 8 * node.mask_words, e.I_LOW: int(has_map), e.I_HIGH: need}
        code = [line for run in _runs(units) for line in _with_skips(run)]
        return [Instruction(e.OPEN, words, masks=node), *code, Instruction(end)]

    def _unit(
        self, node: Node, instruction: Field | Group | Sequence | DynamicRef, items: Iterator[Item], depth: int
    ) -> Unit:
        if isinstance(instruction, Group):
            bit = next(items).bit if instruction.optional else -1
            body = self._body(node, instruction.body, e.END_GROUP, items, depth + 1)
            code = [Instruction(e.GROUP, {**_mask(bit), e.I_JUMP: len(body)}), *body]
            return Unit(code, bit, (1, 0, 0) if instruction.optional else None)
        item = next(items)
        bit = item.bit if instruction.optional else -1
        if isinstance(instruction, Sequence):
            assert isinstance(item, List)
            child = self.layout.nodes[item.child]
            body = self._body(child, instruction.body, e.END_ENTRY, iter(child.items), depth + 1)
            length = self._integer(instruction.length, e.COUNT, bit)
            length.words[e.I_JUMP] = 1 + len(body)
            opening = Instruction(e.SEQUENCE, {e.I_JUMP: len(body)})
            length.offsets = opening.offsets = node, item
            return Unit([length, opening, *body], bit, _absent(instruction.length))
        assert isinstance(instruction, Field)
        absent = _absent(instruction)
        if instruction.operator.kind == CONSTANT:
            return Unit([Instruction(e.BIT, _mask(bit))] if instruction.optional else [], bit, absent)
        assert isinstance(item, Column)
        if instruction.type == DECIMAL:
            powers = next(items)
            assert isinstance(powers, Column)
            if not instruction.in_parts:
                line = Instruction(e.FIXED, {**_mask(bit), **self._operated(instruction)}, column=(node, item))
                line.exponents = node, powers
                return Unit([line], bit, absent)
            exponent, mantissa = (
                self._integer(part, role, bit)
                for part, role in zip(instruction.parts, (e.EXPONENT, e.COLUMN), strict=True)
            )
            exponent.words[e.I_JUMP] = 1
            exponent.column, mantissa.column = (node, powers), (node, item)
            return Unit([exponent, mantissa], bit, _absent(instruction.parts[0]))
        if item.is_text:
            line = Instruction(e.TEXT, {**_mask(bit), **self._operated(instruction)})
        else:
            line = self._integer(instruction, e.COLUMN, bit)
        line.column = node, item
        return Unit([line], bit, absent)

    def _integer(self, integer: Field, role: int, bit: int) -> Instruction:
        low, high = RANGES[integer.type]
        words = {e.I_ROLE: role, e.I_LOW: _signed(low), e.I_HIGH: _signed(high)}
        return Instruction(e.INTEGER, {**_mask(bit), **self._operated(integer), **words})

    def _operated(self, operated: Field) -> dict[int, int]:
        initial = operated.operator.initial
        words = {
            e.I_OPERATOR: OPERATORS[operated.operator.kind],
            e.I_OPTIONAL: int(operated.optional),
            e.I_TYPE: k.TYPES.index(operated.type),
            e.I_HAS_INITIAL: int(initial is not None),
            e.I_SLOT: operated.operator.slot or 0,
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

    def reads(self) -> list[Reads]:
        """By node."""
        found = [Reads() for _ in self.layout.nodes]
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
        """Numbers stand where `encode` puts addresses: slots, initial texts."""
        table = np.zeros((len(self.code) + 1, e.INSTRUCTION), np.int64)
        for line, row in zip(self.code, table, strict=False):
            row[e.I_OP] = line.op
            for number, value in line.words.items():
                row[number] = value
            row[e.I_JUMP] *= 8 * e.INSTRUCTION
        return table


@dataclass
class Reads:
    """What the instructions of a node read: words of the table, and which address belongs there."""

    places: list[int] = field(default_factory=list)
    sources: list[tuple[int, int]] = field(default_factory=list)  # a kind of address, and its number in the node

    def add(self, place: int, kind: int, number: int) -> None:
        self.places.append(place)
        self.sources.append((kind, number))


def _is_plain(segment: Segment) -> bool:
    """Whether the kernel leaves it to the plain writer."""
    return any(
        isinstance(instruction, DynamicRef)
        or (isinstance(instruction, Group | Sequence) and _is_plain(instruction.body))
        or (isinstance(instruction, Field) and instruction.type in TEXTS and instruction.operator.kind in (DELTA, TAIL))
        for instruction in segment.instructions
    )


def _longest(instruction: Field | Group | Sequence | DynamicRef) -> int:
    """Bytes in its own segment at most, the content of a text apart."""
    if isinstance(instruction, Field):
        return 2 * LONGEST_INTEGER if instruction.type == DECIMAL else LONGEST_INTEGER
    return LONGEST_INTEGER if isinstance(instruction, Sequence) else 0


def _absent(instruction: Field) -> tuple[int, int, int] | None:
    """What stands in the stream for an optional field that is absent, if that is always the same."""
    kind, initial = instruction.operator.kind, instruction.operator.initial
    if not instruction.optional or instruction.in_parts:
        return None
    if kind in (NONE, DELTA):
        return 0, 0, 1
    if kind == CONSTANT or (kind == DEFAULT and initial is None):
        return 1, 0, 0
    return (1, 1, 1) if kind == DEFAULT else None


def _runs(units: list[Unit]) -> Iterator[list[Unit]]:
    """Neighbours that one SKIP may pass over: in the same word of the row's mask, with few enough bits and NULLs."""
    run: list[Unit] = []
    for unit in units:
        together = [*run, unit]
        if unit.absent is None or any(
            other.absent is None
            or other.bit // 64 != unit.bit // 64
            or sum(one.absent[2] for one in together if one.absent) > e.MOST_NULLS
            for other in run
        ):
            yield run
            run = [unit]
        else:
            run = together
    yield run


def _with_skips(run: list[Unit]) -> list[Instruction]:
    if len(run) < FEWEST_SKIPPED:
        return [line for unit in run for line in unit.code]
    half = len(run) // 2
    code = [*_with_skips(run[:half]), *_with_skips(run[half:])]
    bits = pattern = nulls = mask = 0
    for unit in run:
        assert unit.absent is not None
        count, which, null = unit.absent
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
    return [Instruction(e.SKIP, words), *code]


def _mask(bit: int) -> dict[int, int]:
    return {e.I_BIT: _signed(1 << bit % 64), e.I_WORD: 8 * (bit // 64)} if bit >= 0 else {}


def _signed(value: int) -> int:
    """As the bits of an int64."""
    return value - (1 << 64) if value >= 1 << 63 else value
