"""The lines of generated code for single values (see `codegen`): integers of all operators, strings, byte vectors.

Names in the lines: b, p and end are the message and the offset in it; x is a value, n a length, s the state that came
with it (`codegen_kernel`); p1, s1 … are the previous value of dictionary slot 1 and whether it has one; w1, a1 and z1
a previous text's first eight bytes, address and length; h2 and q2 the bytes of text column 2 and how many are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from umdf.wire.fast.decode.skip_runs import FieldCode
from umdf.wire.fast.layout import ALWAYS_PRESENT, Column, Node, RowItem
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DEFAULT,
    DELTA,
    INCREMENT,
    NONE,
    RANGES,
    UNICODE,
    Field,
)

MAX_WORD_TEXT = 8  # the longest text that is one word
COLLECT_UNUSUAL = ["unusual |= s & 2"]  # checked when the entry is complete: until then the values read are harmless


@dataclass
class CodeScope:
    """The segment that a line belongs to: the node it writes to, and the presence map of its bits."""

    node: Node
    row: str
    map: str
    bit: int  # the next bit of the map, from the top
    items: Iterator[RowItem] = field(default_factory=lambda: iter(()))

    def next_bit(self) -> int:
        self.bit += 1
        return 1 << (64 - self.bit)


def as_bytes(value: object) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def indented(lines: list[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


def set_presence(scope: CodeScope, bit: int) -> list[str]:
    if bit == ALWAYS_PRESENT:
        return []
    return [f"n{scope.node.index}_mask{bit // 64} |= U({1 << bit % 64:#x})"]


def set_presence_from_state(scope: CodeScope, bit: int) -> list[str]:
    """Present or absent, by s."""
    return [] if bit == ALWAYS_PRESENT else [f"n{scope.node.index}_mask{bit // 64} |= U(s) << U({bit % 64})"]


class FieldEmitter:
    """Generates the lines of fields, and collects what they need at the start of a message."""

    def __init__(self) -> None:
        self.integers = 2  # integers: bounds how far beyond the end of a message is read
        self.reset_lines: list[str] = []  # the lines that reset all previous values

    # Integers. `then` are the lines for a value in x; that of an optional one may be absent: then s is 0.

    def integer(
        self, integer: Field, scope: CodeScope, then: list[str], max_magnitude: int | None = None
    ) -> FieldCode[str]:
        kind, optional, initial = integer.operator.kind, integer.optional, integer.operator.initial
        known = [f"x, s = np.int64({_signed(initial)}), 1"] if isinstance(initial, int) else []
        if kind == CONSTANT:
            if not optional:
                return FieldCode([*known, *then])
            bit = scope.next_bit()
            return FieldCode([f"if {scope.map} & U({bit:#x}):", *indented([*known, *then])], True, 0, bit)
        self.integers += 1
        if kind == NONE:
            return FieldCode([*self.stream_integer(integer, "x", max_magnitude), *then], optional, int(optional))
        if kind == DELTA:
            return FieldCode(self.delta(integer, then, max_magnitude), optional, int(optional))
        bit = scope.next_bit()
        test = f"if {scope.map} & U({bit:#x}):"
        if kind != DEFAULT:
            return FieldCode([test, *self.copy_or_increment(integer, then, max_magnitude)])
        if initial is None:
            return FieldCode(
                [test, *indented([*self.stream_integer(integer, "x", max_magnitude), *then])], True, 0, bit
            )
        return FieldCode([*known, test, *indented(self.stream_integer(integer, "x", max_magnitude)), *then])

    def stream_integer(self, integer: Field, name: str, max_magnitude: int | None) -> list[str]:
        """An integer in the stream. Of an exponent, only values that need no report are the usual case (6.2.2)."""
        low, high = RANGES[integer.type] if max_magnitude is None else (-max_magnitude, max_magnitude)
        limits = f"{low}, {min(high, _MAX_INT64)}" if low < 0 else f"{min(high, _MAX_INT64)}"
        call = f"{'signed' if low < 0 else 'unsigned'}_{_variant(integer)}(b, p, {limits})"
        return [f"{name}, p, s = {call}", *COLLECT_UNUSUAL]

    def copy_or_increment(self, integer: Field, then: list[str], max_magnitude: int | None) -> list[str]:
        """Copy and increment. Without an initial value, undefined and empty are the same: absent, or an error."""
        slot, initial = integer.operator.slot, integer.operator.initial
        value, has, step = f"p{slot}", f"s{slot}", int(integer.operator.kind == INCREMENT)
        # The first that is not sent is the initial value itself, so an increment starts one before it.
        first = initial - step if isinstance(initial, int) else 0
        self.reset_lines.append(f"{value} = np.int64({_signed(first % (1 << 64))})")
        always = initial is not None and not integer.optional
        lines = indented(self.stream_integer(integer, value, max_magnitude))
        if not always:
            self.reset_lines.append(f"{has} = {int(initial is not None)}")
            lines.append(f"    {has} = s")
        if step:
            low, high = RANGES[integer.type]
            lines += ["else:"]
            lines += [f"    {value} = np.int64({_signed(low)}) if {value} == {_signed(high)} else {value} + 1"]
        if not always and not integer.optional:
            lines += [f"unusual |= {has} ^ 1"]
        if max_magnitude is not None:
            lines += [f"if {value} < {-max_magnitude} or {value} > {max_magnitude}:", "    return message"]
        return [*lines, f"x, s = {value}, {'1' if always else has}", *then]

    def delta(self, integer: Field, then: list[str], max_magnitude: int | None) -> list[str]:
        slot, initial = integer.operator.slot, integer.operator.initial
        self.reset_lines.append(f"p{slot} = np.int64({_signed(initial) if isinstance(initial, int) else 0})")
        low, high = RANGES[integer.type] if max_magnitude is None else (-max_magnitude, max_magnitude)
        limits = f"{low}, {min(high, _MAX_INT64)}"
        return [
            f"p{slot}, p, s = delta_{_variant(integer)}(b, p, p{slot}, {limits})",
            *COLLECT_UNUSUAL,
            f"x = p{slot}",
            *then,
        ]

    # Strings and byte vectors. n is the length.

    def text(self, instruction: Field, scope: CodeScope, column: Column, bit: int) -> FieldCode[str]:
        kind, optional, initial = instruction.operator.kind, instruction.optional, instruction.operator.initial
        x, slot = column.text, instruction.operator.slot
        read = {ASCII: "ascii", UNICODE: "unicode", BYTES: "vector"}[instruction.type]
        if read != "ascii":
            self.integers += 1
        sent = [f"p, n, s = {read}_{_variant(instruction)}(b, p, end, h{x} + q{x})", *COLLECT_UNUSUAL]
        grown = [f"q{x} += n", *set_presence_from_state(scope, bit)]
        if kind == NONE:
            return FieldCode([*sent, *grown], optional, int(optional))
        presence_bit = scope.next_bit()
        test = f"if {scope.map} & U({presence_bit:#x}):"
        short = as_bytes(initial) if initial is not None else b""
        number = int.from_bytes(short, "little")
        if kind == DEFAULT:
            if initial is None:
                return FieldCode([test, *indented([*sent, *grown])], True, 0, presence_bit)
            default_lines = [
                f"store_u64(h{x}, q{x}, U({number:#x}))",
                f"n, s = np.int64({len(short)}), 1",
                "repeated_bytes += n",
            ]
            return FieldCode([test, *indented(sent), "else:", *indented(default_lines), *grown])
        has, first, at, length = f"s{slot}", f"w{slot}", f"a{slot}", f"z{slot}"
        self.reset_lines += [
            f"{first}, {at}, {length} = U({number:#x}), np.int64(0), np.int64({len(short)})",
            f"{has} = {int(initial is not None)}",
        ]
        keep = [f"{first}, {at}, {length}, {has} = load_u64(h{x}, q{x}), h{x} + q{x}, n, s"]
        repeat_lines = [
            f"repeated_bytes += {length}",
            "if repeated_bytes > max_repeated_bytes:",
            "    return message",
            f"repeat_text(h{x} + q{x}, {first}, {at}, {length})",
        ]
        lines = [test, *indented([*sent, *keep]), f"elif {has} == 1:", *indented(repeat_lines)]
        if not optional:
            return FieldCode([*lines, "else:", "    return message", f"q{x} += {length}"])
        marked = f"n{scope.node.index}_mask{bit // 64} |= U({has}) << U({bit % 64})"
        return FieldCode([*lines, f"if {has} == 1:", f"    q{x} += {length}", f"    {marked}"])


_MAX_INT64 = (1 << 63) - 1


def _variant(instruction: Field) -> str:
    return "optional" if instruction.optional else "mandatory"


def store_value(scope: CodeScope, column: Column) -> str:
    """For absent values too: the value of those is undefined."""
    if column.dtype.itemsize == 8:
        return f"store_i64({values_variable(scope.node, column)}, 8 * {scope.row}, x)"
    return f"store_u32({values_variable(scope.node, column)}, 4 * {scope.row}, np.uint32(x))"


def values_variable(node: Node, column: Column) -> str:
    return f"v{node.index}_{column.number}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
