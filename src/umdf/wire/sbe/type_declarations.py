"""The `<types>` of an SBE file: what the name of a type means.

A type is resolved once, when it is first needed, so declarations may be in any order. Nothing is raised here: every
fault is recorded with its line, and a type that has one resolves to None, so it is reported once and not per field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from umdf.errors import Fault
from umdf.wire.sbe.schema import CONSTANT, OPTIONAL, REQUIRED, SIZES
from umdf.xmltree import Node

MAX_LENGTH = 65535  # bytes of a block or a text: the limit of the headers' 16-bit lengths
MAX_MEMBERS = 64  # of a composite, those of nested ones included
MAX_NESTING = 8  # composites within composites
TIME_UNITS = (0, 3, 6, 9)

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def bounds(primitive: str) -> tuple[int, int]:
    """The least and the largest value of a primitive; a char is a byte."""
    bits = 8 * SIZES[primitive]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if primitive.startswith("int") else (0, (1 << bits) - 1)


def default_null(primitive: str) -> int:
    """The default null value (reference 3.5)."""
    if primitive == "char":
        return 0
    least, most = bounds(primitive)
    return least if least < 0 else most


@dataclass(frozen=True)
class Slot:
    """A value on the wire. `null` is the value for absent, `optional` whether absence is allowed."""

    name: str
    primitive: str
    offset: int = 0
    length: int = 1
    null: int | None = None
    optional: bool = False

    @property
    def end(self) -> int:
        return self.offset + SIZES[self.primitive] * self.length


@dataclass(frozen=True)
class ResolvedType:
    """A resolved type: slots on the wire, or a constant that takes none."""

    name: str
    slots: tuple[Slot, ...]
    constant: int | str | None = None
    constants: Mapping[str, int | str] = field(default_factory=dict)  # of a composite: members that are not sent
    values: Mapping[str, int | str] = field(default_factory=dict)  # of an enum: name → code
    codes: Mapping[int | str, str] = field(default_factory=dict)  # of an enum: code → name
    bits: Mapping[int, str] = field(default_factory=dict)  # of a set: bit → name
    encoding: str = ""
    semantic: str = ""
    description: str = ""

    @property
    def end(self) -> int:
        return max((slot.end for slot in self.slots), default=0)


class AttributeReader:
    """Reads attributes and records their faults."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []

    def fault(self, node: Node, reason: str) -> None:
        self.faults.append(Fault(self.file, node.line, node.describe(), reason))

    def required_text(self, node: Node, key: str) -> str | None:
        """A required attribute."""
        value = node.get(key)
        if value is None or not value.strip():
            self.fault(node, f"needs the attribute {key}")
            return None
        return value

    def parse_integer(self, node: Node, text: str, least: int, most: int, what: str) -> int | None:
        if not _INTEGER.fullmatch(text.strip()):
            self.fault(node, f'{what} must be an integer, not "{text[:40]}"')
            return None
        value = int(text)
        if not least <= value <= most:
            self.fault(node, f"{what} is {value}; it must be from {least} to {most}")
            return None
        return value

    def optional_integer(self, node: Node, key: str, least: int, most: int) -> int | None:
        """An optional attribute."""
        text = node.get(key)
        return None if text is None else self.parse_integer(node, text, least, most, key)

    def required_integer(self, node: Node, key: str, least: int, most: int) -> int | None:
        return None if self.required_text(node, key) is None else self.optional_integer(node, key, least, most)

    def presence(self, node: Node) -> str | None:
        """The presence that the element itself states; None if it states none."""
        value = node.get("presence")
        if value not in (None, REQUIRED, OPTIONAL, CONSTANT):
            self.fault(node, f'presence is "{value}"; it must be {REQUIRED}, {OPTIONAL} or {CONSTANT}')
            return None
        return value


class TypeRegistry:
    """Every declared type, by name, and the primitives."""

    def __init__(self, reader: AttributeReader, nodes: list[Node]) -> None:
        self._reader = reader
        self._nodes: dict[str, Node] = {}
        self._resolved: dict[str, ResolvedType | None] = {}
        self._resolving: list[str] = []
        for node in nodes:
            name = reader.required_text(node, "name")
            if name in self._nodes:
                reader.fault(node, f"declared before, on line {self._nodes[name].line}")
            elif name:
                self._nodes[name] = node

    def resolve_all(self) -> None:
        """Resolve everything, so that a fault in a type that no message uses is found too."""
        for name in self._nodes:
            self._resolve_name(name)

    def resolve(self, name: str | None, user: Node) -> ResolvedType | None:
        """The type of that name. None if it is unknown (a fault of the user) or broken (a fault noted before)."""
        if name is None:
            return None
        if name in self._nodes:
            if name in self._resolving:
                self._reader.fault(user, f"type {name} is part of itself")
                return None
            return self._resolve_name(name)
        if name in SIZES:
            return ResolvedType(name, (Slot("", name, null=default_null(name)),))
        self._reader.fault(user, _unknown_type_reason(name))
        return None

    def enum_value(self, reference: str, user: Node) -> int | str | None:
        """The value of `Enum.NAME`."""
        name, _, value = reference.partition(".")
        enum = self.resolve(name, user) if value else None
        if enum is not None and value in enum.values:
            return enum.values[value]
        if enum is not None or not value:
            self._reader.fault(user, f'valueRef "{reference}" names no value of an enum')
        return None

    def _resolve_name(self, name: str) -> ResolvedType | None:
        if name not in self._resolved:
            self._resolving.append(name)
            self._resolved[name] = self._resolve_node(self._nodes[name])
            self._resolving.pop()
        return self._resolved[name]

    def _resolve_node(self, node: Node) -> ResolvedType | None:
        kinds = {"type": self._simple_type, "enum": self._enum, "set": self._set, "composite": self._composite}
        if node.tag not in kinds:
            self._reader.fault(node, "is not a type declaration (type, composite, enum, set)")
            return None
        faults_before = len(self._reader.faults)
        declared = kinds[node.tag](node)
        if declared is None or len(self._reader.faults) > faults_before:
            return None
        return replace(
            declared,
            name=node.get("name") or "",
            semantic=node.get("semanticType") or declared.semantic,
            description=node.get("description") or declared.description,
        )

    def _simple_type(self, node: Node) -> ResolvedType | None:
        reader, primitive = self._reader, self._reader.required_text(node, "primitiveType")
        if primitive is None:
            return None
        if primitive not in SIZES:
            reader.fault(node, _unknown_type_reason(primitive))
            return None
        length = reader.optional_integer(node, "length", 0, MAX_LENGTH)
        null = reader.optional_integer(node, "nullValue", *bounds(primitive))
        presence = reader.presence(node)
        encoding = node.get("characterEncoding") or ""
        if presence == CONSTANT:
            return ResolvedType("", (), constant=self._constant(node, primitive, length), encoding=encoding)
        null = default_null(primitive) if null is None else null
        slot = Slot("", primitive, 0, 1 if length is None else length, null, presence == OPTIONAL)
        return ResolvedType("", (slot,), encoding=encoding)

    def _constant(self, node: Node, primitive: str, length: int | None) -> int | str | None:
        reader, reference = self._reader, node.get("valueRef")
        if reference is not None:
            found = self.enum_value(reference, node)
            return None if found is None else self.checked_constant(node, found, primitive)
        if not node.text:
            reader.fault(node, "is constant but has no value")
            return None
        if primitive != "char":
            return reader.parse_integer(node, node.text, *bounds(primitive), "the constant")
        if length is not None and len(node.text) > length:
            reader.fault(node, f'the constant "{node.text[:40]}" is longer than length {length}')
        return node.text

    def checked_constant(self, node: Node, value: int | str, primitive: str) -> int | str | None:
        """A constant taken from an enum, if its type can hold it."""
        if isinstance(value, str) != (primitive == "char"):
            self._reader.fault(node, f"the constant {value!r} is not a valid {primitive}")
            return None
        if isinstance(value, str):
            return value
        return self._reader.parse_integer(node, str(value), *bounds(primitive), "the constant")

    def _encoding_slot(self, node: Node) -> Slot | None:
        """The number that carries an enum or a set: a primitive, or a declared type whose null value counts."""
        declared = self.resolve(self._reader.required_text(node, "encodingType"), node)
        if declared is None:
            return None
        simple = len(declared.slots) == 1 and not (declared.values or declared.bits or declared.constants)
        if not simple or declared.slots[0].length != 1:
            self._reader.fault(node, f"encodingType {declared.name} is not a single number or char")
            return None
        return declared.slots[0]

    def _enum(self, node: Node) -> ResolvedType | None:
        slot = self._encoding_slot(node)
        if slot is None:
            return None
        values: dict[str, int | str] = {}
        codes: dict[int | str, str] = {}
        for child in self._children(node, "validValue"):
            name, code = self._reader.required_text(child, "name"), self._code(child, slot.primitive)
            if name is not None and code is not None:  # names and codes may come twice: the first one counts
                values.setdefault(name, code)
                codes.setdefault(code, name)
        return ResolvedType("", (slot,), values=values, codes=codes)

    def _code(self, node: Node, primitive: str) -> int | str | None:
        if primitive != "char":
            return self._reader.parse_integer(node, node.text, *bounds(primitive), "the value")
        if len(node.text) != 1 or not node.text.isascii():
            self._reader.fault(node, f'the value must be one ASCII character, not "{node.text[:40]}"')
            return None
        return node.text

    def _set(self, node: Node) -> ResolvedType | None:
        slot = self._encoding_slot(node)
        if slot is None:
            return None
        if not slot.primitive.startswith("uint"):
            self._reader.fault(node, f"a set needs an unsigned encodingType, not {slot.primitive}")
            return None
        bits: dict[int, str] = {}
        for child in self._children(node, "choice"):
            name = self._reader.required_text(child, "name")
            bit = self._reader.parse_integer(child, child.text, 0, 8 * SIZES[slot.primitive] - 1, "the bit")
            if name is not None and bit is not None:
                bits.setdefault(bit, name)
        if not bits:
            self._reader.fault(node, "has no choices")
        # No bits set is a value, so nothing means absent: a set that the sender lacks lies beyond the sent block.
        return ResolvedType("", (replace(slot, null=None, optional=False),), bits=bits)

    def _children(self, node: Node, tag: str) -> list[Node]:
        for child in node:
            if child.tag != tag:
                self._reader.fault(child, f"does not belong in <{node.tag}>")
        return [child for child in node if child.tag == tag]

    def _composite(self, node: Node) -> ResolvedType | None:
        reader = self._reader
        if len(self._resolving) > MAX_NESTING:
            reader.fault(node, f"composites nested deeper than {MAX_NESTING}")
            return None
        slots: list[Slot] = []
        constants: dict[str, int | str] = {}
        names: set[str] = set()
        last = ResolvedType("", ())
        has_faults = False
        for child in node:
            name = reader.required_text(child, "name")
            member = (
                self.resolve(reader.required_text(child, "type"), child)
                if child.tag == "ref"
                else self._resolve_node(child)
            )
            offset = reader.optional_integer(child, "offset", 0, MAX_LENGTH)
            if name is None or member is None:
                has_faults = True  # already recorded
                continue
            if name in names:
                reader.fault(child, "a second member of that name")
            names.add(name)
            if member.constant is not None:
                constants[name] = member.constant
                continue
            if member.constants:  # its exponent or unit would be lost, and a price be shown unscaled
                reader.fault(child, f"{member.name or name} has constants: it cannot be inside another composite")
            end = slots[-1].end if slots else 0
            start = end if offset is None else offset
            if start < end:
                reader.fault(child, f"offset {start} is inside the member before it, which ends at {end}")
            slots += [replace(s, name=f"{name}.{s.name}".rstrip("."), offset=start + s.offset) for s in member.slots]
            last = member
            if len(slots) > MAX_MEMBERS or slots[-1].end > MAX_LENGTH:
                reader.fault(child, f"a composite has at most {MAX_MEMBERS} members and {MAX_LENGTH} bytes")
                return None
        if has_faults:
            return None
        if not slots:
            reader.fault(node, "has no member that is sent")
            return None
        if len(slots) > 1:
            return ResolvedType("", tuple(slots), constants=constants, encoding=last.encoding)
        return replace(last, slots=tuple(slots), constants=constants)


def _unknown_type_reason(name: str) -> str:
    if name in ("float", "double"):
        return f"type {name} is not supported: this feed has no floating-point fields"
    return f"type {name} is unknown"
