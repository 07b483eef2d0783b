"""The parts of a rule of the Binary table (`mapping_table`), and how its names are found in a schema.

Invariant: nothing here or in the table knows an offset, a width, an exponent or a null value; the schema has them.
A field that the schema does not have is an absent column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umdf.market.families import NULL, PRICE_EXPONENT
from umdf.wire.sbe.layout import Layout, Node
from umdf.wire.sbe.loader import load
from umdf.wire.sbe.schema import Block, Data, Field, Group

Code = int | str
NANOSECONDS = 9
# Templates of older versions, and their successors (same tags, other types), by the schema's history.
SUCCESSORS = {4: 12, 20: 22}
# Before version 15, mDEntryTimestamp was in the place of transactTime (60).
FORMER_TAGS = {"transactTime": 37033}


@dataclass(frozen=True)
class FieldSource:
    """Where a column comes from: a field of the message (or of its group's entry)."""

    field: str


@dataclass(frozen=True)
class Copy(FieldSource):
    """A number, a char or a text as sent."""

    or_null: bool = False  # the null value of the field's type means absent, even if the schema requires the field


@dataclass(frozen=True)
class Scale(FieldSource):
    """A decimal as a price (units of 1e-9), a time in nanoseconds."""


@dataclass(frozen=True)
class EnumName(FieldSource):
    """An enum's code as the name that the schema gives it; a code without a name as its digits."""


@dataclass(frozen=True)
class MonthYear(FieldSource):
    """Year, month and day as yyyymm or yyyymmdd; week w of the month as yyyymm9w."""


@dataclass(frozen=True)
class CodeMap(FieldSource):
    """The wire's code as ours. The first code with some meaning is the one that is written back."""

    codes: Mapping[Any, Any]
    other: Code = "N"  # of a code that is not among them
    absent: Code | None = None  # where the field is absent; None: as `other`
    shift: int = 0  # bits of the wire's code that do not count


@dataclass(frozen=True)
class Bits(FieldSource):
    """Bits of a set as bits of ours: bit number → our bit."""

    bits: Mapping[int, int]
    always: int = 0
    unknown: int = 0  # our bit for what is not among them


@dataclass(frozen=True)
class Combine(FieldSource):
    """Several fields that together become one set of ours."""

    parts: tuple[FieldSource, ...] = ()


@dataclass(frozen=True)
class Constant(FieldSource):
    """The same value in every row."""

    value: Code = 0


ABSENT, PRESENT = object(), object()  # conditions of a test on a column
RowTest = Mapping[str, Any]  # column → ABSENT, PRESENT, the allowed chars, a number; of flags: a bit that is set


@dataclass(frozen=True)
class GroupRule:
    """A repeating group as a list of its family, or (without a group) one entry from fields of the message itself."""

    group: str
    columns: Mapping[str, FieldSource]


@dataclass(frozen=True)
class TemplateRule:
    """Messages of one template ⇄ rows of one family."""

    template: int
    family: str
    columns: Mapping[str, FieldSource]
    when: tuple[RowTest, ...] = ()  # events → messages: one of these holds; none: another family writes the message
    group: str = ""  # the rows are the entries of this group
    required_field: str = ""  # only messages that carry this field make rows
    lists: Mapping[str, GroupRule] = field(default_factory=dict)
    constants: Mapping[str, Code] = field(default_factory=dict)  # events → messages: fields that no event has


def constant(value: Code) -> Constant:
    return Constant("", value)


def code_number(value: Code) -> int:
    """A code as a number: a char by its character."""
    return ord(value) if isinstance(value, str) else value


def find_node(layout: Layout, template: int, group: str = "") -> Node | None:
    """The node of a template, or of one of its groups, where the schema has it."""
    root = layout.roots.get(template)
    if root is None or not group:
        return root
    ours = _packaged_message(template)
    found = _find_part(root.block.groups, group, ours.groups if ours else ())
    return layout.nodes[root.children[root.block.groups.index(found)]] if isinstance(found, Group) else None


def find_field(template: int, node: Node, name: str) -> Field | None:
    """A field by its name, in any case; else by the tag that our own schema gives the name."""
    found = _find_part(node.block.fields, name, _packaged_block(template, node).fields)
    if found is None and name in FORMER_TAGS:
        found = next((field for field in node.block.fields if field.tag == FORMER_TAGS[name]), None)
    return found  # type: ignore[return-value]


def find_data(template: int, node: Node, name: str) -> int | None:
    """The number of variable data among the node's."""
    found = _find_part(node.block.data, name, _packaged_block(template, node).data)
    return node.block.data.index(found) if isinstance(found, Data) else None


def scale_factor(field: Field) -> int:
    """What a mantissa or a time is multiplied by; 0 where it is too fine for our units."""
    if field.time_unit is not None:
        return 10 ** (NANOSECONDS - field.time_unit)
    power = (field.exponent or 0) - PRICE_EXPONENT
    return 10**power if power >= 0 else 0


def scaled_bounds(factor: int) -> tuple[int, int]:
    """The least and the largest number whose product with the factor has a place beside NULL."""
    if not factor:
        return 0, -1
    limit = ((1 << 63) - 1) // factor
    return max(-limit, NULL + 1), limit


def _find_part(parts: Any, name: str, packaged_parts: Any) -> Field | Data | Group | None:
    lower_name = name.lower()
    for part in parts:
        if part.name.lower() == lower_name:
            return part
    tag = next((part.tag for part in packaged_parts if part.name == name), None)
    return next((part for part in parts if part.tag == tag), None) if tag is not None else None


def _packaged_message(template: int) -> Block | None:
    return load().messages.get(SUCCESSORS.get(template, template))


def _packaged_block(template: int, node: Node) -> Block:
    message = _packaged_message(template)
    if message is None:
        return node.block
    if isinstance(node.block, Group):
        return next((group for group in message.groups if group.tag == node.block.tag), node.block)
    return message
