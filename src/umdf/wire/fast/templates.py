"""The layout of FAST messages: the small checked model of a template file (see `loader`).

Everything is resolved here; nothing is looked up by name later: static template references are replaced by the
instructions of their template, initial values have their type, and each operator that remembers a value knows its
dictionary slot. Instructions carry the FIX tag as `id` (None where the file states none).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

INT32, UINT32, INT64, UINT64 = "int32", "uInt32", "int64", "uInt64"
DECIMAL, ASCII, UNICODE, BYTES = "decimal", "ascii", "unicode", "byteVector"

# The values an integer type holds, both ends included (6.2.1).
RANGES = {
    INT32: (-(1 << 31), (1 << 31) - 1),
    UINT32: (0, (1 << 32) - 1),
    INT64: (-(1 << 63), (1 << 63) - 1),
    UINT64: (0, (1 << 64) - 1),
}

NONE, CONSTANT, DEFAULT, COPY, INCREMENT, DELTA, TAIL = (
    "none",
    "constant",
    "default",
    "copy",
    "increment",
    "delta",
    "tail",
)
DICTIONARY_OPERATORS = frozenset({COPY, INCREMENT, DELTA, TAIL})  # the operators that use a dictionary
ANY = "any"  # the application type where no typeRef applies (6.1)


class Decimal(NamedTuple):
    """mantissa · 10^exponent, exactly as sent: 1.50 and 1.5 are different values."""

    exponent: int
    mantissa: int


Value = int | Decimal | str | bytes


@dataclass(frozen=True)
class Operator:
    kind: str = NONE
    initial: Value | None = None  # typed as the field; decimals are normalized (6.3.2)
    slot: int | None = None  # index into TemplateSet.slots; None where nothing is remembered

    @property
    def uses_dictionary(self) -> bool:
        return self.kind in DICTIONARY_OPERATORS


@dataclass(frozen=True)
class Field:
    """One value. Where a decimal has an operator for each part, `exponent` and `mantissa` are fields of their own
    (int32 with the presence of the decimal; int64, always mandatory; the tag is the decimal's) and `operator` has
    no meaning."""

    name: str
    id: int | None
    type: str
    optional: bool = False
    operator: Operator = Operator()
    exponent: Field | None = None
    mantissa: Field | None = None
    length_name: str = ""  # of a byteVector or unicode string: how its size is called, never sent apart (6.2.4)
    length_id: int | None = None

    @property
    def has_part_operators(self) -> bool:
        return self.exponent is not None

    @property
    def parts(self) -> tuple[Field, Field]:
        assert self.exponent is not None and self.mantissa is not None
        return self.exponent, self.mantissa

    @cached_property
    def bits(self) -> int:
        """The presence-map bits it may use (10.5.1); a mantissa's bit is present only if the exponent has a value."""
        if self.has_part_operators:
            return sum(part.bits for part in self.parts)
        kind = self.operator.kind
        return int(kind in (DEFAULT, COPY, INCREMENT, TAIL) or (kind == CONSTANT and self.optional))

    @cached_property
    def min_bytes(self) -> int:
        """The fewest bytes it can take in the stream, its presence bit not counted."""
        if self.has_part_operators:
            exponent, mantissa = self.parts
            return exponent.min_bytes + (0 if self.optional else mantissa.min_bytes)
        if self.operator.kind not in (NONE, DELTA):
            return 0
        two = self.type == DECIMAL or (self.operator.kind == DELTA and self.type in (ASCII, UNICODE, BYTES))
        return 2 if two and not self.optional else 1


@dataclass(frozen=True)
class Segment:
    """Instructions that share a presence map, in the order of the stream: a template's body, a group, an entry."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def bits(self) -> int:
        """The presence-map bits its instructions may use; a message or a dynamic reference has one more, in front."""
        return sum(instruction.bits for instruction in self.instructions)

    @property
    def has_presence_map(self) -> bool:
        """Of a group or an entry: without presence bits there is no map (6.2.5). A message always has one."""
        return self.bits > 0

    @cached_property
    def min_bytes(self) -> int:
        """The fewest bytes it can take as a group or an entry, presence map included; 0 is possible."""
        return self.has_presence_map + sum(instruction.min_bytes for instruction in self.instructions)

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}


@dataclass(frozen=True)
class Group:
    name: str
    id: int | None
    optional: bool
    body: Segment

    @property
    def bits(self) -> int:
        return int(self.optional)

    @property
    def min_bytes(self) -> int:
        return 0 if self.optional else self.body.min_bytes


@dataclass(frozen=True)
class Sequence:
    """Entries after a length. The length is a uInt32 field, optional as the sequence is; its name is "" if the
    file has none."""

    name: str
    id: int | None
    optional: bool
    length: Field
    body: Segment

    @property
    def bits(self) -> int:
        return self.length.bits

    @property
    def min_bytes(self) -> int:
        return self.length.min_bytes


@dataclass(frozen=True)
class DynamicRef:
    """A message inside the message, with its own presence map and template id (6.4)."""

    name: str  # templateRef, templateRef2 …: made by us, the file has none
    application_type: str  # the type in force here, for the "type" dictionaries of templates without a typeRef
    id: None = None
    optional: bool = False

    @property
    def bits(self) -> int:
        return 0

    @property
    def min_bytes(self) -> int:
        return 1  # the presence map


Instruction = Field | Group | Sequence | DynamicRef


@dataclass(frozen=True)
class Template:
    name: str
    id: int | None  # None: reachable only by static references
    application_type: str
    body: Segment


@dataclass(frozen=True)
class Slot:
    """One dictionary entry. Fields with the same dictionary and key share it."""

    dictionary: str  # global, template, type or user
    scope: str  # the template, the type, or the user's dictionary name; "" for global
    key: str
    part: str  # exponent, mantissa or length, where the key is one that we had to make up; "" otherwise
    types: tuple[str, ...]  # of all fields that use it: with more than one, a mismatch is possible (D4)


@dataclass(frozen=True)
class TemplateSet:
    source: str
    digest: str  # of all that follows: what generated code depends on; comments and layout of the file do not count
    templates: tuple[Template, ...]  # in the order of the file
    slots: tuple[Slot, ...]
    # For each application type in force at some dynamic reference: the templates as they read there. A template is
    # the same object as in `by_id` unless it keeps "type" dictionaries without a typeRef of its own.
    by_type: Mapping[str, Mapping[int, Template]] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[int, Template]:
        return {template.id: template for template in self.templates if template.id is not None}

    @cached_property
    def by_name(self) -> Mapping[str, Template]:
        return {template.name: template for template in self.templates}

    def templates_for_type(self, application_type: str) -> Mapping[int, Template]:
        """The templates that a dynamic reference can use where this application type applies."""
        return self.by_type.get(application_type, self.by_id)
