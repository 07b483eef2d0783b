"""A template set as columns for users, and as tables for the kernels.

A message's body and the entries of every sequence are *nodes*; a node's descendants follow it directly. Groups are
flattened into their node: the fields of group `G` are columns `G.field`. A decimal is two columns, its
mantissa under its own name and `name.exponent`. Constants take no column; where they are optional their presence is a
bit of the row, as is that of every optional field, group and sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DECIMAL,
    INT32,
    INT64,
    UINT32,
    UNICODE,
    DynamicRef,
    Field,
    Group,
    Segment,
    Sequence,
    Template,
    TemplateSet,
    Value,
)

ALWAYS_PRESENT = -1  # the presence bit of columns that every row has
TEXTS = (ASCII, UNICODE, BYTES)
DTYPES = {"int32": "int32", "uInt32": "uint32", "int64": "int64", "uInt64": "uint64"}


@dataclass(frozen=True)
class Column:
    """Values of a node's rows; the value of a row without the bit is undefined."""

    name: str
    field: Field | DynamicRef
    type: str
    bit: int
    number: int  # within the node
    text: int = -1  # of a string or byte vector: its number within the template set

    @property
    def is_text(self) -> bool:
        return self.type in TEXTS

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(DTYPES[self.type])


@dataclass(frozen=True)
class Constant:
    name: str
    field: Field
    value: Value
    bit: int


@dataclass(frozen=True)
class GroupPresence:
    """An optional group: whether it is present."""

    name: str
    group: Group
    bit: int


@dataclass(frozen=True)
class ListColumn:
    """A sequence: its entries are the rows of another node."""

    name: str
    sequence: Sequence
    bit: int
    child: int
    number: int  # within the template set


RowItem = Column | Constant | GroupPresence | ListColumn


@dataclass
class Node:
    index: int
    path: str  # MDIncrementalRefresh_152, MDIncrementalRefresh_152.MDEntries
    segment: Segment
    template: Template
    parent: int | None
    columns: list[Column] = field(default_factory=list)
    lists: list[ListColumn] = field(default_factory=list)
    items: list[RowItem] = field(default_factory=list)  # everything it shows, in the order of the template
    bits: int = 0

    @property
    def mask_words(self) -> int:
        return max(1, -(-self.bits // 64))

    @property
    def texts(self) -> list[Column]:
        return [column for column in self.columns if column.is_text]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


class Layout:
    """The nodes of a template set; `program` turns them into instructions for the kernels."""

    def __init__(self, templates: TemplateSet) -> None:
        self.templates = templates
        self.nodes: list[Node] = []
        self.text_columns: list[tuple[Node, Column]] = []
        self.lists: list[tuple[Node, ListColumn]] = []
        self.roots: dict[int, Node] = {}  # by template id
        for template_id, template in sorted(templates.by_id.items()):
            self.roots[template_id] = self._add_node(template.body, template.name, template, None)
        self.root_indexes = [(template_id, node.index) for template_id, node in self.roots.items()]

    def _add_node(self, segment: Segment, path: str, template: Template, parent: int | None) -> Node:
        node = Node(len(self.nodes), path, segment, template, parent)
        self.nodes.append(node)
        self._add_segment(node, segment, "", ALWAYS_PRESENT)
        # A node's texts and lists are adjacent, before those of its descendants.
        for number, column in enumerate(node.columns):
            if column.is_text:
                numbered = replace(column, text=len(self.text_columns))
                self.text_columns.append((node, numbered))
                node.columns[number] = numbered
                node.items[node.items.index(column)] = numbered
        for number, item in enumerate(node.lists):
            node.lists[number] = replace(item, number=len(self.lists))
            node.items[node.items.index(item)] = node.lists[number]
            self.lists.append((node, node.lists[number]))
        for number, item in enumerate(node.lists):
            child = self._add_node(item.sequence.body, f"{path}.{item.name}", template, node.index)
            node.lists[number] = replace(item, child=child.index)
            node.items[node.items.index(item)] = node.lists[number]
            self.lists[item.number] = node, node.lists[number]
        return node

    def _add_segment(self, node: Node, segment: Segment, prefix: str, group_bit: int) -> None:
        for instruction in segment.instructions:
            name, bit = prefix + instruction.name, group_bit
            if instruction.optional:
                bit, node.bits = node.bits, node.bits + 1
            if isinstance(instruction, Sequence):
                node.lists.append(ListColumn(name, instruction, bit, -1, -1))
                node.items.append(node.lists[-1])
            elif isinstance(instruction, Group):
                if instruction.optional:
                    node.items.append(GroupPresence(name, instruction, bit))
                self._add_segment(node, instruction.body, f"{name}.", bit)
            elif isinstance(instruction, DynamicRef):
                self._add_column(node, name, instruction, UINT32, bit)
                self._add_column(node, f"{name}.row", instruction, UINT32, bit)
            elif instruction.operator.kind == CONSTANT:
                assert instruction.operator.initial is not None
                node.items.append(Constant(name, instruction, instruction.operator.initial, bit))
            elif instruction.type == DECIMAL:
                self._add_column(node, name, instruction, INT64, bit)
                self._add_column(node, f"{name}.exponent", instruction, INT32, bit)
            else:
                self._add_column(node, name, instruction, instruction.type, bit)

    def _add_column(self, node: Node, name: str, instruction: Field | DynamicRef, type: str, bit: int) -> None:
        node.columns.append(Column(name, instruction, type, bit, len(node.columns)))
        node.items.append(node.columns[-1])

    def first_column(self, node: Node) -> int:
        """The number of a node's first column within the template set."""
        return sum(len(before.columns) for before in self.nodes[: node.index])

    def descendants(self, node: Node) -> Iterator[Node]:
        """The node and all below it."""
        yield node
        for item in node.lists:
            yield from self.descendants(self.nodes[item.child])

    def node_table(self) -> NDArray[np.int64]:
        table = np.zeros((len(self.nodes), k.NODE), np.int64)
        for node, row in zip(self.nodes, table, strict=True):
            row[k.N_MASK_WORDS], row[k.N_BITS] = node.mask_words, node.bits
        return table


def has_dynamic_reference(segment: Segment) -> bool:
    return any(
        isinstance(instruction, DynamicRef)
        or (isinstance(instruction, Group | Sequence) and has_dynamic_reference(instruction.body))
        for instruction in segment.instructions
    )
