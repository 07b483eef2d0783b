"""Numba source for one template: the same decoding as the interpreter's, written out field by field.

Generated code handles what is usual and nothing else. Wherever a message is not (an error, a report, an empty string, a
value beyond 63 bits, no room, too near the end of the buffer) it returns that message's number with nothing of it
kept, and the interpreter takes it: so the two cannot disagree on errors. Previous values are local variables, because
dictionaries are forgotten before each message; a text's are its first eight bytes, its place and its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from umdf.wire.fast.layout import ALWAYS, Column, Item, Layout, List, Node
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    COPY,
    DECIMAL,
    DEFAULT,
    DELTA,
    INCREMENT,
    NONE,
    RANGES,
    UNICODE,
    DynamicRef,
    Field,
    Group,
    Segment,
    Sequence,
)

MOST_BITS = 62  # presence bits of one segment, the template id's included
SHORT = 8  # the longest text that is one word
MOST_NULLS = 16
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
UNUSUAL = ["if s == 2:", "    return message"]


@dataclass
class Unit:
    """The lines of one field, group or sequence, and what it takes for it to be absent."""

    lines: list[str]
    bit: int = 0  # of the presence map, as a mask; 0 if it has none
    skippable: bool = False
    nulls: int = 0


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
        return mantissa.bits == 0 and all(part.operator.kind != CONSTANT and _is_known(part) for part in (exponent, mantissa))
    if kind == CONSTANT:
        return True
    if instruction.type in RANGES:
        return True
    if instruction.type == DECIMAL:
        return False
    return kind in (NONE, DEFAULT, COPY) and (initial is None or len(_bytes(initial)) <= SHORT)


def _bytes(value: object) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def _indented(lines: list[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


@dataclass
class _Place:
    """Where in the nest of segments a line stands: the node it writes to, and the map that its bits are in."""

    node: Node
    row: str
    map: str
    bit: int  # the next bit of the map, from the top
    items: Iterator[Item] = field(default_factory=lambda: iter(()))

    def take_bit(self) -> int:
        self.bit += 1
        return 1 << (64 - self.bit)


class Generator:
    """The source of one template."""

    def __init__(self, layout: Layout, root: Node) -> None:
        self.layout, self.root = layout, root
        self.nodes = list(layout.descendants(root))
        self.tokens = 2  # integers, for the worst that can be read behind the end
        self.previous: list[str] = []  # the lines that forget all previous values
        self.maps = 0
        self.counts = 0

    def source(self) -> str:
        place = _Place(self.root, f"r{self.root.index}", "m0", 1, iter(self.root.items))
        body = self.segment(self.root.segment, place)
        template_id = self.root.template.id
        assert template_id is not None
        coded = _stop_bits(template_id)
        lines = [
            "@kernel",
            "def decode(t):",
            f'    """{self.root.template.name}: from message FIRST on; returns the first that is not as usual."""',
            "    buffer, starts, ends = word(t, k.BUFFER), word(t, k.STARTS), word(t, k.ENDS)",
            "    nodes, texts, columns, lists = word(t, k.NODES), word(t, k.TEXTS), word(t, k.COLUMNS), word(t, k.LISTS)",
            *_indented(self.prologue()),
            f"    safe = word(t, k.BUFFER_SIZE) - {64 + 10 * self.tokens}",
            "    most_made = min(k.MOST_REPEATED, word(t, k.MOST_COMBINED))",
            "    most = word(t, k.MOST_ENTRIES)",
            "    room = np.int64(-1)",
            "    for message in range(word(t, k.FIRST), word(t, k.MESSAGES)):",
            "        start, stop = load_i64(starts, 8 * message), load_i64(ends, 8 * message)",
            "        if start < 0 or stop < start or stop > safe:",
            "            return message",
            "        b, end, made = buffer + start, stop - start, np.int64(0)",
            "        if end > most:",
            "            return message",
            "        if room < end + k.TEXT_RESERVE:",
            *_indented(self.find_room(), 3),
            f"            if room < end + k.TEXT_RESERVE or r{self.root.index} >= c{self.root.index}:",
            "                return message",
            "        c = np.int64(load_u8(b, 0))",
            f"        m0, p = presence(b, np.int64(0), {self.root.segment.bits + 1})",
            "        if p == 0 or (c & 64) == 0:",
            "            return message",
            *_indented(_template_id(coded), 2),
            f"        p += {len(coded)}",
            *_indented(self.previous, 2),
            *_indented(self.zero_masks(self.root), 2),
            *_indented(body, 2),
            "        if p != end:",
            "            return message",
            f"        store_u32(n{self.root.index}_message, 4 * r{self.root.index}, np.uint32(message))",
            *_indented(self.close(self.root), 2),
            *_indented(self.commit(), 2),
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
                    lines.append(f"{_values(node, column)} = word(columns, {self.layout.first_column(node) + column.number})")
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

    def mark(self, place: _Place, bit: int) -> list[str]:
        if bit == ALWAYS:
            return []
        return [f"n{place.node.index}_mask{bit // 64} |= U({1 << bit % 64:#x})"]

    def mark_if(self, place: _Place, bit: int) -> list[str]:
        """Present or not, as s says."""
        return [] if bit == ALWAYS else [f"n{place.node.index}_mask{bit // 64} |= U(s) << U({bit % 64})"]

    def segment(self, segment: Segment, place: _Place) -> list[str]:
        units = []
        for instruction in segment.instructions:
            if isinstance(instruction, Sequence):
                units.append(self.sequence(instruction, place))
            elif isinstance(instruction, Group):
                units.append(self.group(instruction, place))
            else:
                assert isinstance(instruction, Field)
                units.append(self.field(instruction, place))
        return _with_skips(units, place.map)

    def map(self, needed: int) -> tuple[str, list[str]]:
        """A new presence map and how it is read; nothing where there is none."""
        self.maps += 1
        name = f"m{self.maps}"
        if not needed:
            return name, []
        return name, [f"{name}, p = presence(b, p, {needed})", "if p == 0:", "    return message"]

    def group(self, group: Group, place: _Place) -> Unit:
        bit = next(place.items).bit if group.optional else ALWAYS
        sent = place.take_bit() if group.optional else 0
        name, lines = self.map(group.body.bits)
        inner = _Place(place.node, place.row, name, 0, place.items)
        lines += self.segment(group.body, inner)
        if not group.optional:
            return Unit(lines)
        lines = [f"if {place.map} & U({sent:#x}):", *_indented([*self.mark(place, bit), *lines])]
        return Unit(lines, sent, True)

    def sequence(self, sequence: Sequence, place: _Place) -> Unit:
        item = next(place.items)
        assert isinstance(item, List)
        child = self.layout.nodes[item.child]
        self.counts += 1
        count = f"count{self.counts}"
        i = child.index
        name, opened = self.map(sequence.body.bits)
        inner = _Place(child, f"r{i}", name, 0, iter(child.items))
        entry = [
            "if p >= end:",
            "    return message",
            *opened,
            *self.zero_masks(child),
            *self.segment(sequence.body, inner),
            *self.close(child),
            "if made > most_made:",
            "    return message",
        ]
        counted = [
            *(self.mark(place, item.bit) if sequence.optional else []),
            f"{count} = x",
            f"if {count} * {sequence.body.least_bytes} > end - p or r{i} + {count} > c{i}:",
            "    return message",
            f"for _ in range({count}):",
            *_indented(entry),
        ]
        if sequence.optional:
            counted = ["if s == 1:", *_indented(counted)]
        return self.integer(sequence.length, place, counted)

    def field(self, instruction: Field, place: _Place) -> Unit:
        item = next(place.items)
        bit = item.bit if instruction.optional else ALWAYS
        if instruction.operator.kind == CONSTANT:
            if not instruction.optional:
                return Unit([])
            sent = place.take_bit()
            return Unit([f"if {place.map} & U({sent:#x}):", *_indented(self.mark(place, bit))], sent, True)
        assert isinstance(item, Column)
        if item.is_text:
            return self.text(instruction, place, item, bit)
        if not instruction.in_parts:
            return self.integer(instruction, place, [*self.mark_if(place, bit), _store(place, item)])
        exponents = next(place.items)
        assert isinstance(exponents, Column)
        exponent, mantissa = instruction.parts
        digits = self.integer(mantissa, place, [*self.mark(place, bit), _store(place, item)]).lines
        shown = [_store(place, exponents), *digits]
        return self.integer(exponent, place, ["if s == 1:", *_indented(shown)] if exponent.optional else shown, 63)

    # Integers. `then` are the lines for a value in x; that of an optional one may be absent: then s is 0.

    def integer(self, integer: Field, place: _Place, then: list[str], most: int | None = None) -> Unit:
        kind, optional, initial = integer.operator.kind, integer.optional, integer.operator.initial
        known = [f"x, s = np.int64({_signed(initial)}), 1"] if isinstance(initial, int) else []
        if kind == CONSTANT:
            if not optional:
                return Unit([*known, *then])
            bit = place.take_bit()
            return Unit([f"if {place.map} & U({bit:#x}):", *_indented([*known, *then])], bit, True)
        self.tokens += 1
        if kind == NONE:
            return Unit([*self.sent(integer, "x", most), *then], 0, optional, int(optional))
        if kind == DELTA:
            return Unit(self.delta(integer, then, most), 0, optional, int(optional))
        bit = place.take_bit()
        test = f"if {place.map} & U({bit:#x}):"
        if kind != DEFAULT:
            return Unit([test, *self.remembered(integer, then, most)])
        if initial is None:
            return Unit([test, *_indented([*self.sent(integer, "x", most), *then])], bit, True)
        return Unit([*known, test, *_indented(self.sent(integer, "x", most)), *then])

    def sent(self, integer: Field, name: str, most: int | None) -> list[str]:
        """An integer in the stream. Of an exponent only what needs no report is usual (6.2.2)."""
        low, high = RANGES[integer.type] if most is None else (-most, most)
        limits = f"{low}, {min(high, _HIGHEST)}" if low < 0 else f"{min(high, _HIGHEST)}"
        call = f"{'signed' if low < 0 else 'unsigned'}_{_how(integer)}(b, p, {limits})"
        return [f"{name}, p, s = {call}", *UNUSUAL]

    def remembered(self, integer: Field, then: list[str], most: int | None) -> list[str]:
        """Copy and increment. Without an initial value, undefined and empty are the same: absent, or an error."""
        slot, initial = integer.operator.slot, integer.operator.initial
        value, has, step = f"p{slot}", f"s{slot}", int(integer.operator.kind == INCREMENT)
        # The first that is not sent is the initial value itself, so an increment starts one before it.
        first = initial - step if isinstance(initial, int) else 0
        self.previous.append(f"{value} = np.int64({_signed(first % (1 << 64))})")
        always = initial is not None and not integer.optional
        lines = _indented(self.sent(integer, value, most))
        if not always:
            self.previous.append(f"{has} = {int(initial is not None)}")
            lines.append(f"    {has} = s")
        if step:
            low, high = RANGES[integer.type]
            lines += ["else:"]
            lines += [f"    {value} = np.int64({_signed(low)}) if {value} == {_signed(high)} else {value} + 1"]
        if not always and not integer.optional:
            lines += [f"if {has} != 1:", "    return message"]
        if most is not None:
            lines += [f"if {value} < {-most} or {value} > {most}:", "    return message"]
        return [*lines, f"x, s = {value}, {'1' if always else has}", *then]

    def delta(self, integer: Field, then: list[str], most: int | None) -> list[str]:
        slot, initial = integer.operator.slot, integer.operator.initial
        self.previous.append(f"p{slot} = np.int64({_signed(initial) if isinstance(initial, int) else 0})")
        low, high = RANGES[integer.type] if most is None else (-most, most)
        limits = f"{low}, {min(high, _HIGHEST)}"
        return [
            f"p{slot}, p, s = delta_{_how(integer)}(b, p, p{slot}, {limits})",
            *UNUSUAL,
            f"x = p{slot}",
            *then,
        ]

    # Strings and byte vectors. n is the length.

    def text(self, instruction: Field, place: _Place, column: Column, bit: int) -> Unit:
        kind, optional, initial = instruction.operator.kind, instruction.optional, instruction.operator.initial
        x, slot = column.text, instruction.operator.slot
        read = {ASCII: "ascii", UNICODE: "unicode", BYTES: "vector"}[instruction.type]
        if read != "ascii":
            self.tokens += 1
        sent = [f"p, n, s = {read}_{_how(instruction)}(b, p, end, h{x} + q{x})", *UNUSUAL]
        grown = [f"q{x} += n", *self.mark_if(place, bit)]
        if kind == NONE:
            return Unit([*sent, *grown], 0, optional, int(optional))
        asked = place.take_bit()
        test = f"if {place.map} & U({asked:#x}):"
        short = _bytes(initial) if initial is not None else b""
        number = int.from_bytes(short, "little")
        if kind == DEFAULT:
            if initial is None:
                return Unit([test, *_indented([*sent, *grown])], asked, True)
            made = [f"store_u64(h{x}, q{x}, U({number:#x}))", f"n, s = np.int64({len(short)}), 1", "made += n"]
            return Unit([test, *_indented(sent), "else:", *_indented(made), *grown])
        has, first, at, length = f"s{slot}", f"w{slot}", f"a{slot}", f"z{slot}"
        self.previous += [
            f"{first}, {at}, {length} = U({number:#x}), np.int64(0), np.int64({len(short)})",
            f"{has} = {int(initial is not None)}",
        ]
        keep = [f"{first}, {at}, {length}, {has} = load_u64(h{x}, q{x}), h{x} + q{x}, n, s"]
        again = [
            f"made += {length}",
            "if made > most_made:",
            "    return message",
            f"repeat(h{x} + q{x}, {first}, {at}, {length})",
        ]
        lines = [test, *_indented([*sent, *keep]), f"elif {has} == 1:", *_indented(again)]
        if not optional:
            return Unit([*lines, "else:", "    return message", f"q{x} += {length}"])
        marked = f"n{place.node.index}_mask{bit // 64} |= U({has}) << U({bit % 64})"
        return Unit([*lines, f"if {has} == 1:", f"    q{x} += {length}", f"    {marked}"])


_HIGHEST = (1 << 63) - 1


def _how(instruction: Field) -> str:
    return "optional" if instruction.optional else "sent"


def _store(place: _Place, column: Column) -> str:
    """Of an absent value too: what stands there means nothing."""
    if column.dtype.itemsize == 8:
        return f"store_i64({_values(place.node, column)}, 8 * {place.row}, x)"
    return f"store_u32({_values(place.node, column)}, 4 * {place.row}, np.uint32(x))"


def _values(node: Node, column: Column) -> str:
    return f"v{node.index}_{column.number}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _stop_bits(value: int) -> bytes:
    groups = bytearray([value & 0x7F | 0x80])
    while value := value >> 7:
        groups.insert(0, value & 0x7F)
    return bytes(groups)


def _template_id(coded: bytes) -> list[str]:
    compared = " or ".join(f"load_u8(b, p + {at}) != {byte}" for at, byte in enumerate(coded))
    return [f"if {compared}:", "    return message"]


def _with_skips(units: list[Unit], map: str) -> list[str]:
    """Where several units are usually absent, one question finds out."""
    lines: list[str] = []
    for skippable, group in groupby((unit for unit in units if unit.lines), key=lambda unit: unit.skippable):
        run: list[Unit] = []
        for unit in group:
            if run and sum(u.nulls for u in run) + unit.nulls > MOST_NULLS:
                lines += _skip(run, skippable, map, outer=True)
                run = []
            run.append(unit)
        lines += _skip(run, skippable, map, outer=True)
    return lines


def _skip(run: list[Unit], skippable: bool, map: str, outer: bool) -> list[str]:
    lines: list[str] = []
    if outer and skippable:
        for _, part in groupby(run, key=lambda unit: unit.nulls):
            units = list(part)
            lines += _skip(units, len(units) < len(run), map, outer=False)
    else:
        lines = [line for unit in run for line in unit.lines]
    if not skippable or len(run) < 2:
        return lines
    bits, nulls = sum(unit.bit for unit in run), sum(unit.nulls for unit in run)
    present = [f"({map} & U({bits:#x})) != 0"] if bits else []
    for at in range(0, nulls, 8):
        wanted = (1 << 8 * min(8, nulls - at)) - 1
        place = f"p + {at}" if at else "p"
        present.append(f"((load_u64(b, {place}) ^ STOPS) & U({wanted:#x})) != 0")
    absent = ["else:", f"    p += {nulls}"] if nulls else []
    return [f"if {' or '.join(present)}:", *_indented(lines), *absent]


__all__ = ["BYTES", "Generator", "can_generate"]
