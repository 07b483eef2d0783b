"""Numba source for one template: the same decoding as the interpreter's, written out field by field.

Generated code handles the usual case only. For any other message (an error, a report, an empty string, a
value beyond 63 bits, memory full, too near the end of the buffer) it returns that message's number and keeps
nothing of it; the interpreter decodes it, so the two cannot disagree on errors. Previous values are local variables, as
dictionaries are reset before each message; a text's are its first eight bytes, its address and its length.
"""

from __future__ import annotations

from collections.abc import Iterator

from umdf.wire.fast.decode.codegen_fields import (
    MAX_WORD_TEXT,
    CodeScope,
    FieldEmitter,
    as_bytes,
    indented,
    set_presence,
    set_presence_from_state,
    store_value,
    values_variable,
)
from umdf.wire.fast.decode.skip_runs import FieldCode, SkipEmitter, insert_skips
from umdf.wire.fast.layout import ALWAYS_PRESENT, Column, Layout, ListColumn, Node
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

MAX_PRESENCE_BITS = 62  # presence bits of one segment, the template id included
MIN_SKIPPED_FIELDS = 2
MAX_NODES, MIN_ITEMS = 8, 40
MAX_INTEGERS = 300  # integers of a template; ten bytes each may be read beyond the end (see TEXT_RESERVE)

HEADER = '''"""{name}: generated, do not edit. Digest of what it depends on: {digest}"""

import numpy as np

from umdf.kernels import kernel, load_i64, load_u8, load_u64, store_i32, store_i64, store_u32, store_u64
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.codegen_kernel import (
    ascii_mandatory,
    ascii_optional,
    delta_mandatory,
    delta_optional,
    read_presence_map,
    repeat_text,
    signed_mandatory,
    signed_optional,
    unicode_mandatory,
    unicode_optional,
    unsigned_mandatory,
    unsigned_optional,
    vector_mandatory,
    vector_optional,
)
from umdf.wire.fast.decode.stop_bit_kernel import STOP_BITS
from umdf.wire.fast.decode.tables_kernel import put, word

U = np.uint64
'''


def is_worth_generating(layout: Layout, root: Node) -> bool:
    """Whether generated code is worth ten seconds of compilation: for frequent messages with many fields (market data),
    not for those with a dozen groups that are sent once a day (security lists)."""
    nodes = list(layout.descendants(root))
    return len(nodes) <= MAX_NODES and any(len(node.items) >= MIN_ITEMS for node in nodes[1:])


def can_generate(root: Node) -> bool:
    """Whether generated code supports a template: the kinds in the exchange's files."""
    slots = [
        operated.operator.slot for operated in _operated_fields(root.segment) if operated.operator.slot is not None
    ]
    tokens = sum(1 for _ in _operated_fields(root.segment))
    return len(slots) == len(set(slots)) and tokens <= MAX_INTEGERS and _is_supported_segment(root.segment, 1)


def _operated_fields(segment: Segment) -> Iterator[Field]:
    for instruction in segment.instructions:
        if isinstance(instruction, Field):
            yield from instruction.parts if instruction.has_part_operators else (instruction,)
        elif isinstance(instruction, Sequence):
            yield instruction.length
            yield from _operated_fields(instruction.body)
        elif isinstance(instruction, Group):
            yield from _operated_fields(instruction.body)


def _is_supported_segment(segment: Segment, bits: int = 0) -> bool:
    return segment.bits + bits <= MAX_PRESENCE_BITS and all(
        _is_supported(instruction) for instruction in segment.instructions
    )


def _is_supported(instruction: Field | Group | Sequence | DynamicRef) -> bool:
    if isinstance(instruction, Group):
        return _is_supported_segment(instruction.body)
    if isinstance(instruction, Sequence):
        return (
            _is_supported_segment(instruction.body)
            and instruction.body.min_bytes > 0
            and _is_supported(instruction.length)
        )
    if isinstance(instruction, DynamicRef):
        return False
    kind, initial = instruction.operator.kind, instruction.operator.initial
    if instruction.has_part_operators:
        exponent, mantissa = instruction.parts
        return mantissa.bits == 0 and all(
            part.operator.kind != CONSTANT and _is_supported(part) for part in (exponent, mantissa)
        )
    if kind == CONSTANT or instruction.type in RANGES:
        return True
    if instruction.type == DECIMAL:
        return False
    return kind in (NONE, DEFAULT, COPY) and (initial is None or len(as_bytes(initial)) <= MAX_WORD_TEXT)


class Generator:
    """The source of one template."""

    def __init__(self, layout: Layout, root: Node) -> None:
        self.layout, self.root = layout, root
        self.nodes = list(layout.descendants(root))
        self.fields = FieldEmitter()
        self.maps = 0
        self.counts = 0

    def source(self) -> str:
        scope = CodeScope(self.root, f"r{self.root.index}", "m0", 1, iter(self.root.items))
        body = self.segment(self.root.segment, scope)
        template_id = self.root.template.id
        assert template_id is not None
        encoded_id = _encode_unsigned(template_id)
        lines = [
            "@kernel",
            "def decode(t):",
            f'    """{self.root.template.name}: from message FIRST on; returns the first that is not as usual."""',
            "    buffer, starts, ends = word(t, k.BUFFER), word(t, k.STARTS), word(t, k.ENDS)",
            "    nodes, texts = word(t, k.NODES), word(t, k.TEXTS)",
            "    columns, lists = word(t, k.COLUMNS), word(t, k.LISTS)",
            *indented(self.prologue()),
            f"    safe = word(t, k.BUFFER_SIZE) - {64 + 10 * self.fields.integers}",
            "    max_repeated_bytes = min(k.MAX_REPEATED_BYTES, word(t, k.MAX_COMBINED_BYTES))",
            "    max_entries = word(t, k.MAX_ENTRIES)",
            "    free_bytes = np.int64(-1)",
            "    for message in range(word(t, k.FIRST), word(t, k.MESSAGES)):",
            "        start, stop = load_i64(starts, 8 * message), load_i64(ends, 8 * message)",
            "        if start < 0 or stop < start or stop > safe:",
            "            return message",
            "        b, end, repeated_bytes, unusual = buffer + start, stop - start, np.int64(0), np.int64(0)",
            "        if end > max_entries:",
            "            return message",
            "        if free_bytes < end + k.TEXT_RESERVE:",
            *indented(self.free_text_bytes(), 3),
            f"            if free_bytes < end + k.TEXT_RESERVE or r{self.root.index} >= c{self.root.index}:",
            "                return message",
            "        c = np.int64(load_u8(b, 0))",
            f"        m0, p = read_presence_map(b, np.int64(0), {self.root.segment.bits + 1})",
            "        if p == 0 or (c & 64) == 0:",
            "            return message",
            *indented(_check_template_id(encoded_id), 2),
            f"        p += {len(encoded_id)}",
            *indented(self.fields.reset_lines, 2),
            *indented(self.zero_masks(self.root), 2),
            *indented(body, 2),
            "        if p != end or unusual != 0:",
            "            return message",
            f"        store_u32(n{self.root.index}_message, 4 * r{self.root.index}, np.uint32(message))",
            *indented(self.close_row(self.root), 2),
            *indented(self.commit(), 2),
            "        free_bytes -= end + repeated_bytes",
            f"        if r{self.root.index} >= c{self.root.index}:",
            "            free_bytes = np.int64(-1)",
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
                    number = self.layout.first_column(node) + column.number
                    lines.append(f"{values_variable(node, column)} = word(columns, {number})")
            lines += [f"l{item.number} = word(lists + {item.number} * 8 * k.LIST, k.L_OFFSETS)" for item in node.lists]
        return lines

    def free_text_bytes(self) -> list[str]:
        texts = [column.text for node in self.nodes for column in node.texts]
        return [
            "free_bytes = np.int64(1 << 40)",
            *(f"free_bytes = min(free_bytes, word(t{x}, k.T_CAPACITY) - q{x})" for x in texts),
        ]

    def commit(self) -> list[str]:
        texts = [column.text for node in self.nodes for column in node.texts]
        return [
            *(f"put(n{node.index}, k.N_ROWS, r{node.index})" for node in self.nodes),
            *(f"put(t{x}, k.T_USED, q{x})" for x in texts),
        ]

    def zero_masks(self, node: Node) -> list[str]:
        return [f"n{node.index}_mask{word} = U(0)" for word in range(node.mask_words)]

    def close_row(self, node: Node) -> list[str]:
        i, words = node.index, node.mask_words
        return [
            *(f"store_u64(n{i}_masks, 8 * ({words} * r{i} + {w}), n{i}_mask{w})" for w in range(words)),
            *(f"store_i32(o{column.text}, 4 * r{i} + 4, np.int32(q{column.text}))" for column in node.texts),
            *(f"store_i32(l{item.number}, 4 * r{i} + 4, np.int32(r{item.child}))" for item in node.lists),
            f"r{i} += 1",
        ]

    def segment(self, segment: Segment, scope: CodeScope) -> list[str]:
        codes = []
        for instruction in segment.instructions:
            if isinstance(instruction, Sequence):
                codes.append(self.sequence(instruction, scope))
            elif isinstance(instruction, Group):
                codes.append(self.group(instruction, scope))
            else:
                assert isinstance(instruction, Field)
                codes.append(self.field(instruction, scope))
        return insert_skips(codes, _skip_emitter(scope.map), MIN_SKIPPED_FIELDS)

    def presence_map(self, needed: int) -> tuple[str, list[str]]:
        """The lines that read a new presence map; none if there is none."""
        self.maps += 1
        name = f"m{self.maps}"
        if not needed:
            return name, []
        return name, [f"{name}, p = read_presence_map(b, p, {needed})", "if p == 0:", "    return message"]

    def group(self, group: Group, scope: CodeScope) -> FieldCode[str]:
        bit = next(scope.items).bit if group.optional else ALWAYS_PRESENT
        sent = scope.next_bit() if group.optional else 0
        name, lines = self.presence_map(group.body.bits)
        inner = CodeScope(scope.node, scope.row, name, 0, scope.items)
        lines += self.segment(group.body, inner)
        if not group.optional:
            return FieldCode(lines)
        lines = [f"if {scope.map} & U({sent:#x}):", *indented([*set_presence(scope, bit), *lines])]
        return FieldCode(lines, True, 0, sent)

    def sequence(self, sequence: Sequence, scope: CodeScope) -> FieldCode[str]:
        item = next(scope.items)
        assert isinstance(item, ListColumn)
        child = self.layout.nodes[item.child]
        self.counts += 1
        count = f"count{self.counts}"
        i = child.index
        name, opened = self.presence_map(sequence.body.bits)
        inner = CodeScope(child, f"r{i}", name, 0, iter(child.items))
        entry = [
            "if p >= end:",
            "    return message",
            *opened,
            *self.zero_masks(child),
            *self.segment(sequence.body, inner),
            "if unusual != 0 or repeated_bytes > max_repeated_bytes:",
            "    return message",
            *self.close_row(child),
        ]
        counted = [
            *(set_presence(scope, item.bit) if sequence.optional else []),
            f"{count} = x",
            f"if unusual != 0 or {count} * {sequence.body.min_bytes} > end - p or r{i} + {count} > c{i}:",
            "    return message",
            f"for _ in range({count}):",
            *indented(entry),
        ]
        if sequence.optional:
            counted = ["if s == 1:", *indented(counted)]
        return self.fields.integer(sequence.length, scope, counted)

    def field(self, instruction: Field, scope: CodeScope) -> FieldCode[str]:
        item = next(scope.items)
        bit = item.bit if instruction.optional else ALWAYS_PRESENT
        if instruction.operator.kind == CONSTANT:
            if not instruction.optional:
                return FieldCode([])
            sent = scope.next_bit()
            return FieldCode([f"if {scope.map} & U({sent:#x}):", *indented(set_presence(scope, bit))], True, 0, sent)
        assert isinstance(item, Column)
        if item.is_text:
            return self.fields.text(instruction, scope, item, bit)
        if not instruction.has_part_operators:
            return self.fields.integer(
                instruction, scope, [*set_presence_from_state(scope, bit), store_value(scope, item)]
            )
        exponents = next(scope.items)
        assert isinstance(exponents, Column)
        exponent, mantissa = instruction.parts
        digits = self.fields.integer(mantissa, scope, [*set_presence(scope, bit), store_value(scope, item)]).lines
        shown = [store_value(scope, exponents), *digits]
        return self.fields.integer(
            exponent, scope, ["if s == 1:", *indented(shown)] if exponent.optional else shown, 63
        )


def _encode_unsigned(value: int) -> bytes:
    groups = bytearray([value & 0x7F | 0x80])
    while value := value >> 7:
        groups.insert(0, value & 0x7F)
    return bytes(groups)


def _check_template_id(encoded_id: bytes) -> list[str]:
    compared = " or ".join(f"load_u8(b, p + {at}) != {byte}" for at, byte in enumerate(encoded_id))
    return [f"if {compared}:", "    return message"]


def _skip_emitter(map: str) -> SkipEmitter[str]:
    """Lines that run only if a test finds that one of them is needed."""

    def emit_skip(run: list[FieldCode[str]], lines: list[str]) -> list[str]:
        bits, nulls = sum(unit.bit for unit in run), sum(unit.nulls for unit in run)
        present = [f"({map} & U({bits:#x})) != 0"] if bits else []
        for at in range(0, nulls, 8):
            wanted = (1 << 8 * min(8, nulls - at)) - 1
            present.append(f"((load_u64(b, p + {at}) ^ STOP_BITS) & U({wanted:#x})) != 0")
        absent = ["else:", f"    p += {nulls}"] if nulls else []
        return [f"if {' or '.join(present)}:", *indented(lines), *absent]

    return emit_skip
