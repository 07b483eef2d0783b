"""Numba source for one template: the same decoding as the interpreter's, written out field by field.

Generated code handles what is usual and nothing else. Wherever a message is not (an error, a report, an empty string, a
value beyond 63 bits, no room, too near the end of the buffer) it returns that message's number with nothing of it
kept, and the interpreter takes it: so the two cannot disagree on errors. Previous values are local variables, because
dictionaries are forgotten before each message; a text's are its first eight bytes, its place and its length.
"""

from __future__ import annotations

from collections.abc import Iterator

from umdf.wire.fast.generate_fields import SHORT, Fields, Place, as_bytes, indented, mark, mark_if, store, values_of
from umdf.wire.fast.layout import ALWAYS, Column, Layout, List, Node
from umdf.wire.fast.skips import Ask, Unit, with_skips
from umdf.wire.fast.templates import (
    CONSTANT,
    COPY,
    DECIMAL,
    DEFAULT,
    NONE,
    RANGES,
    DynamicRef,
    Field,
    Group,
    Segment,
    Sequence,
)

MOST_BITS = 62  # presence bits of one segment, the template id included
FEWEST_SKIPPED = 2
MOST_NODES, MANY_ITEMS = 8, 40
MOST_TOKENS = 300  # integers of a template; ten bytes each may be read behind the end (see TEXT_RESERVE)

HEADER = '''"""{name}: generated, do not edit. Digest of what it depends on: {digest}"""

import numpy as np

from umdf.kernels import kernel, load_i64, load_u8, load_u64, store_i32, store_i64, store_u32, store_u64
from umdf.wire.fast import tables_kernel as k
from umdf.wire.fast.generated_kernel import (
    ascii_optional,
    ascii_sent,
    delta_optional,
    delta_sent,
    presence,
    repeat,
    signed_optional,
    signed_sent,
    unicode_optional,
    unicode_sent,
    unsigned_optional,
    unsigned_sent,
    vector_optional,
    vector_sent,
)
from umdf.wire.fast.read_kernel import STOPS
from umdf.wire.fast.tables_kernel import put, word

U = np.uint64
'''


def pays(layout: Layout, root: Node) -> bool:
    """Whether generated code is worth the ten seconds of its compilation: messages of many fields that come in masses,
    market data, and not those with a dozen groups that come once a day, security lists."""
    nodes = list(layout.descendants(root))
    return len(nodes) <= MOST_NODES and any(len(node.items) >= MANY_ITEMS for node in nodes[1:])


def can_generate(root: Node) -> bool:
    """Whether a template is of the kinds that generated code knows: those of the exchange's files."""
    slots = [operated.operator.slot for operated in _operated(root.segment) if operated.operator.slot is not None]
    tokens = sum(1 for _ in _operated(root.segment))
    return len(slots) == len(set(slots)) and tokens <= MOST_TOKENS and _known(root.segment, 1)


def _operated(segment: Segment) -> Iterator[Field]:
    for instruction in segment.instructions:
        if isinstance(instruction, Field):
            yield from instruction.parts if instruction.in_parts else (instruction,)
        elif isinstance(instruction, Sequence):
            yield instruction.length
            yield from _operated(instruction.body)
        elif isinstance(instruction, Group):
            yield from _operated(instruction.body)


def _known(segment: Segment, bits: int = 0) -> bool:
    return segment.bits + bits <= MOST_BITS and all(_is_known(instruction) for instruction in segment.instructions)


def _is_known(instruction: Field | Group | Sequence | DynamicRef) -> bool:
    if isinstance(instruction, Group):
        return _known(instruction.body)
    if isinstance(instruction, Sequence):
        return _known(instruction.body) and instruction.body.least_bytes > 0 and _is_known(instruction.length)
    if isinstance(instruction, DynamicRef):
        return False
    kind, initial = instruction.operator.kind, instruction.operator.initial
    if instruction.in_parts:
        exponent, mantissa = instruction.parts
        return mantissa.bits == 0 and all(
            part.operator.kind != CONSTANT and _is_known(part) for part in (exponent, mantissa)
        )
    if kind == CONSTANT or instruction.type in RANGES:
        return True
    if instruction.type == DECIMAL:
        return False
    return kind in (NONE, DEFAULT, COPY) and (initial is None or len(as_bytes(initial)) <= SHORT)


class Generator:
    """The source of one template."""

    def __init__(self, layout: Layout, root: Node) -> None:
        self.layout, self.root = layout, root
        self.nodes = list(layout.descendants(root))
        self.fields = Fields()
        self.maps = 0
        self.counts = 0

    def source(self) -> str:
        place = Place(self.root, f"r{self.root.index}", "m0", 1, iter(self.root.items))
        body = self.segment(self.root.segment, place)
        template_id = self.root.template.id
        assert template_id is not None
        coded = _stop_bits(template_id)
        lines = [
            "@kernel",
            "def decode(t):",
            f'    """{self.root.template.name}: from message FIRST on; returns the first that is not as usual."""',
            "    buffer, starts, ends = word(t, k.BUFFER), word(t, k.STARTS), word(t, k.ENDS)",
            "    nodes, texts = word(t, k.NODES), word(t, k.TEXTS)",
            "    columns, lists = word(t, k.COLUMNS), word(t, k.LISTS)",
            *indented(self.prologue()),
            f"    safe = word(t, k.BUFFER_SIZE) - {64 + 10 * self.fields.tokens}",
            "    most_made = min(k.MOST_REPEATED, word(t, k.MOST_COMBINED))",
            "    most = word(t, k.MOST_ENTRIES)",
            "    room = np.int64(-1)",
            "    for message in range(word(t, k.FIRST), word(t, k.MESSAGES)):",
            "        start, stop = load_i64(starts, 8 * message), load_i64(ends, 8 * message)",
            "        if start < 0 or stop < start or stop > safe:",
            "            return message",
            "        b, end, made, odd = buffer + start, stop - start, np.int64(0), np.int64(0)",
            "        if end > most:",
            "            return message",
            "        if room < end + k.TEXT_RESERVE:",
            *indented(self.find_room(), 3),
            f"            if room < end + k.TEXT_RESERVE or r{self.root.index} >= c{self.root.index}:",
            "                return message",
            "        c = np.int64(load_u8(b, 0))",
            f"        m0, p = presence(b, np.int64(0), {self.root.segment.bits + 1})",
            "        if p == 0 or (c & 64) == 0:",
            "            return message",
            *indented(_template_id(coded), 2),
            f"        p += {len(coded)}",
            *indented(self.fields.previous, 2),
            *indented(self.zero_masks(self.root), 2),
            *indented(body, 2),
            "        if p != end or odd != 0:",
            "            return message",
            f"        store_u32(n{self.root.index}_message, 4 * r{self.root.index}, np.uint32(message))",
            *indented(self.close(self.root), 2),
            *indented(self.commit(), 2),
            "        room -= end + made",
            f"        if r{self.root.index} >= c{self.root.index}:",
            "            room = np.int64(-1)",
            "    return word(t, k.MESSAGES)",
        ]
        return "\n".join(lines) + "\n"

    def prologue(self) -> list[str]:
        """All addresses, in local variables: nothing can be hoisted over a store to memory."""
        lines = []
        for node in self.nodes:
            i = node.index
            lines += [
                f"n{i} = nodes + {i} * 8 * k.NODE",
                f"r{i}, c{i} = word(n{i}, k.N_ROWS), word(n{i}, k.N_CAPACITY)",
                f"n{i}_masks, n{i}_message = word(n{i}, k.N_MASKS), word(n{i}, k.N_MESSAGE)",
            ]
            for column in node.columns:
                if column.is_text:
                    x = column.text
                    lines += [
                        f"t{x} = texts + {x} * 8 * k.TEXT",
                        f"o{x}, h{x}, q{x} = word(t{x}, k.T_OFFSETS), word(t{x}, k.T_BYTES), word(t{x}, k.T_USED)",
                    ]
                else:
                    lines.append(
                        f"{values_of(node, column)} = word(columns, {self.layout.first_column(node) + column.number})"
                    )
            lines += [f"l{item.number} = word(lists + {item.number} * 8 * k.LIST, k.L_OFFSETS)" for item in node.lists]
        return lines

    def find_room(self) -> list[str]:
        texts = [column.text for node in self.nodes for column in node.texts]
        return ["room = np.int64(1 << 40)", *(f"room = min(room, word(t{x}, k.T_CAPACITY) - q{x})" for x in texts)]

    def commit(self) -> list[str]:
        texts = [column.text for node in self.nodes for column in node.texts]
        return [
            *(f"put(n{node.index}, k.N_ROWS, r{node.index})" for node in self.nodes),
            *(f"put(t{x}, k.T_USED, q{x})" for x in texts),
        ]

    def zero_masks(self, node: Node) -> list[str]:
        return [f"n{node.index}_mask{word} = U(0)" for word in range(node.mask_words)]

    def close(self, node: Node) -> list[str]:
        i, words = node.index, node.mask_words
        return [
            *(f"store_u64(n{i}_masks, 8 * ({words} * r{i} + {w}), n{i}_mask{w})" for w in range(words)),
            *(f"store_i32(o{column.text}, 4 * r{i} + 4, np.int32(q{column.text}))" for column in node.texts),
            *(f"store_i32(l{item.number}, 4 * r{i} + 4, np.int32(r{item.child}))" for item in node.lists),
            f"r{i} += 1",
        ]

    def segment(self, segment: Segment, place: Place) -> list[str]:
        units = []
        for instruction in segment.instructions:
            if isinstance(instruction, Sequence):
                units.append(self.sequence(instruction, place))
            elif isinstance(instruction, Group):
                units.append(self.group(instruction, place))
            else:
                assert isinstance(instruction, Field)
                units.append(self.field(instruction, place))
        return with_skips(units, _ask(place.map), FEWEST_SKIPPED)

    def map(self, needed: int) -> tuple[str, list[str]]:
        """A new presence map and how it is read; nothing where there is none."""
        self.maps += 1
        name = f"m{self.maps}"
        if not needed:
            return name, []
        return name, [f"{name}, p = presence(b, p, {needed})", "if p == 0:", "    return message"]

    def group(self, group: Group, place: Place) -> Unit[str]:
        bit = next(place.items).bit if group.optional else ALWAYS
        sent = place.take_bit() if group.optional else 0
        name, lines = self.map(group.body.bits)
        inner = Place(place.node, place.row, name, 0, place.items)
        lines += self.segment(group.body, inner)
        if not group.optional:
            return Unit(lines)
        lines = [f"if {place.map} & U({sent:#x}):", *indented([*mark(place, bit), *lines])]
        return Unit(lines, True, 0, sent)

    def sequence(self, sequence: Sequence, place: Place) -> Unit[str]:
        item = next(place.items)
        assert isinstance(item, List)
        child = self.layout.nodes[item.child]
        self.counts += 1
        count = f"count{self.counts}"
        i = child.index
        name, opened = self.map(sequence.body.bits)
        inner = Place(child, f"r{i}", name, 0, iter(child.items))
        entry = [
            "if p >= end:",
            "    return message",
            *opened,
            *self.zero_masks(child),
            *self.segment(sequence.body, inner),
            "if odd != 0 or made > most_made:",
            "    return message",
            *self.close(child),
        ]
        counted = [
            *(mark(place, item.bit) if sequence.optional else []),
            f"{count} = x",
            f"if odd != 0 or {count} * {sequence.body.least_bytes} > end - p or r{i} + {count} > c{i}:",
            "    return message",
            f"for _ in range({count}):",
            *indented(entry),
        ]
        if sequence.optional:
            counted = ["if s == 1:", *indented(counted)]
        return self.fields.integer(sequence.length, place, counted)

    def field(self, instruction: Field, place: Place) -> Unit[str]:
        item = next(place.items)
        bit = item.bit if instruction.optional else ALWAYS
        if instruction.operator.kind == CONSTANT:
            if not instruction.optional:
                return Unit([])
            sent = place.take_bit()
            return Unit([f"if {place.map} & U({sent:#x}):", *indented(mark(place, bit))], True, 0, sent)
        assert isinstance(item, Column)
        if item.is_text:
            return self.fields.text(instruction, place, item, bit)
        if not instruction.in_parts:
            return self.fields.integer(instruction, place, [*mark_if(place, bit), store(place, item)])
        exponents = next(place.items)
        assert isinstance(exponents, Column)
        exponent, mantissa = instruction.parts
        digits = self.fields.integer(mantissa, place, [*mark(place, bit), store(place, item)]).lines
        shown = [store(place, exponents), *digits]
        return self.fields.integer(
            exponent, place, ["if s == 1:", *indented(shown)] if exponent.optional else shown, 63
        )


def _stop_bits(value: int) -> bytes:
    groups = bytearray([value & 0x7F | 0x80])
    while value := value >> 7:
        groups.insert(0, value & 0x7F)
    return bytes(groups)


def _template_id(coded: bytes) -> list[str]:
    compared = " or ".join(f"load_u8(b, p + {at}) != {byte}" for at, byte in enumerate(coded))
    return [f"if {compared}:", "    return message"]


def _ask(map: str) -> Ask[str]:
    """Lines behind the question whether any of them is needed."""

    def ask(run: list[Unit[str]], lines: list[str]) -> list[str]:
        bits, nulls = sum(unit.bit for unit in run), sum(unit.nulls for unit in run)
        present = [f"({map} & U({bits:#x})) != 0"] if bits else []
        for at in range(0, nulls, 8):
            wanted = (1 << 8 * min(8, nulls - at)) - 1
            present.append(f"((load_u64(b, p + {at}) ^ STOPS) & U({wanted:#x})) != 0")
        absent = ["else:", f"    p += {nulls}"] if nulls else []
        return [f"if {' or '.join(present)}:", *indented(lines), *absent]

    return ask
