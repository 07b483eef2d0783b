"""What a line of the Binary table (`sbe_table`) is made of, and how its names are found in a schema.

The one rule: nothing here or in the table knows an offset, a width, an exponent or a null value; the schema says them.
A field that the schema does not have is an absent column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umdf.market.events import NULL, PRICE_EXPONENT
from umdf.wire.sbe.layout import Layout, Node
from umdf.wire.sbe.loader import load
from umdf.wire.sbe.schema import Block, Data, Field, Group

Code = int | str
NANOSECONDS = 9
# Templates of older versions, and the one that says the same today (same tags, other types): history of the schema.
SUCCESSORS = {4: 12, 20: 22}
# Before version 15, mDEntryTimestamp stood where transactTime (60) stands now.
FORMER_TAGS = {"transactTime": 37033}


@dataclass(frozen=True)
class Source:
    """Where a column comes from: a field of the message (or of its group's entry)."""

    field: str


@dataclass(frozen=True)
class Same(Source):
    """A number, a char or a text as it is sent."""

    or_null: bool = False  # the null value of the field's type is no value, even where the schema requires the field


@dataclass(frozen=True)
class Scaled(Source):
    """A decimal as a price (units of 1e-9), a time in nanoseconds."""


@dataclass(frozen=True)
class Named(Source):
    """An enum's code as the name that the schema gives it; a code without a name as its digits."""


@dataclass(frozen=True)
class MonthYear(Source):
    """Year, month and day as yyyymm or yyyymmdd; week w of the month as yyyymm9w."""


@dataclass(frozen=True)
class Coded(Source):
    """The wire's code as ours. The first code with some meaning is the one that is written back."""

    codes: Mapping[Any, Any]
    other: Code = "N"  # of a code that is not among them
    absent: Code | None = None  # where the field is absent; None: as `other`
    shift: int = 0  # bits of the wire's code that do not count


@dataclass(frozen=True)
class Bits(Source):
    """Bits of a set as bits of ours: bit number → our bit."""

    bits: Mapping[int, int]
    always: int = 0
    unknown: int = 0  # our bit for what is not among them


@dataclass(frozen=True)
class AnyOf(Source):
    """Several fields that make one set of ours together."""

    parts: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Always(Source):
    """The same value in every row."""

    value: Code = 0


ABSENT, PRESENT = object(), object()  # what a test can ask of a column
Test = Mapping[str, Any]  # column → ABSENT, PRESENT, the allowed chars, a number; of flags: a bit that is set


@dataclass(frozen=True)
class ListRule:
    """A repeating group as a list of its family, or (without a group) one entry from fields of the message itself."""

    group: str
    columns: Mapping[str, Source]


@dataclass(frozen=True)
class Rule:
    """Messages of one template ⇄ rows of one family."""

    template: int
    family: str
    columns: Mapping[str, Source]
    when: tuple[Test, ...] = ()  # events → messages: one of these holds; none: another family writes the message
    group: str = ""  # the rows are the entries of this group
    only_with: str = ""  # only messages that carry this field make rows
    lists: Mapping[str, ListRule] = field(default_factory=dict)
    fixed: Mapping[str, Code] = field(default_factory=dict)  # events → messages: fields that no event has


def always(value: Code) -> Always:
    return Always("", value)


def code_of(value: Code) -> int:
    """A code as a number: a char by its character."""
    return ord(value) if isinstance(value, str) else value


def node_of(layout: Layout, template: int, group: str = "") -> Node | None:
    """The node of a template, or of one of its groups, where the schema has it."""
    root = layout.roots.get(template)
    if root is None or not group:
        return root
    ours = _ours(template)
    found = _named(root.block.groups, group, ours.groups if ours else ())
    return layout.nodes[root.children[root.block.groups.index(found)]] if isinstance(found, Group) else None


def field_of(template: int, node: Node, name: str) -> Field | None:
    """A field by its name, in any case; else by the tag that our own schema gives the name."""
    found = _named(node.block.fields, name, _our_block(template, node).fields)
    if found is None and name in FORMER_TAGS:
        found = next((field for field in node.block.fields if field.tag == FORMER_TAGS[name]), None)
    return found  # type: ignore[return-value]


def data_of(template: int, node: Node, name: str) -> int | None:
    """The number of variable data among the node's."""
    found = _named(node.block.data, name, _our_block(template, node).data)
    return node.block.data.index(found) if isinstance(found, Data) else None


def factor_of(found: Field) -> int:
    """What a mantissa or a time is multiplied by; 0 where it is too fine for our units."""
    if found.time_unit is not None:
        return 10 ** (NANOSECONDS - found.time_unit)
    power = (found.exponent or 0) - PRICE_EXPONENT
    return 10**power if power >= 0 else 0


def bounds_of(factor: int) -> tuple[int, int]:
    """The least and the largest number whose product with the factor has a place beside NULL."""
    if not factor:
        return 0, -1
    most = ((1 << 63) - 1) // factor
    return max(-most, NULL + 1), most


def _named(parts: Any, name: str, ours: Any) -> Field | Data | Group | None:
    wanted = name.lower()
    for part in parts:
        if part.name.lower() == wanted:
            return part
    tag = next((part.tag for part in ours if part.name == name), None)
    return next((part for part in parts if part.tag == tag), None) if tag is not None else None


def _ours(template: int) -> Block | None:
    return load().messages.get(SUCCESSORS.get(template, template))


def _our_block(template: int, node: Node) -> Block:
    ours = _ours(template)
    if ours is None:
        return node.block
    if isinstance(node.block, Group):
        return next((group for group in ours.groups if group.tag == node.block.tag), node.block)
    return ours
