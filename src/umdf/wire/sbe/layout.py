"""A schema as tables for the kernels, and as columns for users.

Every message's root block and every group is a *node*; its descendants follow it directly. Every wire part of every
field is a column. `decode_kernel` and `encode_kernel` are driven by the numbers of this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.schema import CONSTANT, Block, Data, Field, Group, Message, Part, Schema

NEVER_RETIRED = 1 << 62


@dataclass(frozen=True)
class Column:
    """One part of one field, as a column of its node."""

    name: str  # the field's name; `field.part` where a field has several parts
    field: Field
    part: Part

    @property
    def is_text(self) -> bool:
        return self.part.primitive == "char" and self.part.length > 1

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The column's numpy type; a single char is its code."""
        return np.dtype("uint8" if self.part.primitive == "char" else self.part.primitive)

    @property
    def is_retired(self) -> bool:
        """Retired in newer versions, where it has its null value: the kernel writes nothing while no row has it."""
        return self.field.until is not None and self.part.null is not None and not self.is_text


@dataclass(frozen=True)
class Node:
    """A block that makes rows: a message's root block (`parent` is None) or a group."""

    index: int
    path: str  # SecurityDefinition_12, SecurityDefinition_12.noLegs
    block: Block
    parent: int | None
    columns: tuple[Column, ...]
    first_column: int
    first_part: int
    children: tuple[int, ...]  # the nodes of its groups, in order
    data: tuple[int, ...]  # the numbers of its variable data, in order
    oldest: int  # the oldest version that the schema serves

    @property
    def full_block_length(self) -> int:
        """The least length of a block that holds every column."""
        return max((c.part.offset + c.part.size for c in self.columns), default=0)

    @property
    def min_fast_version(self) -> int:
        """From this version on every column that is still sent is in the block with a valid value, and no
        retired one."""
        sent = [max(c.field.since, self.oldest if c.part.null_before is not None else 0) for c in self.columns]
        gone = [c.field.until + 1 if c.is_retired else NEVER_RETIRED for c in self.columns if c.field.until is not None]
        return max(sent + gone, default=0)


class Layout:
    """The tables of one schema, without addresses."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        no_message = Message("", 0, (), (), ())
        self.nodes: list[Node] = [Node(k.NO_NODE, "", no_message, None, (), 0, 0, (), (), 0)]
        self.data: list[tuple[Node, Data]] = []
        self._columns = 0
        self._parts = 0
        self.roots: dict[int, Node] = {}  # by template id
        self.arrow_schemas: dict[int, Any] = {}  # kept here by `arrow`, so that they are freed with the layout
        for template_id, message in sorted(schema.messages.items()):
            self.roots[template_id] = self._add(message, message.name, None)
        self.root_indexes = [(template_id, node.index) for template_id, node in self.roots.items()]
        self.node_of_template = np.full(1 << 16, k.NO_NODE, np.uint32)  # by byte offset
        for template_id, node in self.roots.items():
            self.node_of_template[template_id] = 8 * k.NODE * node.index

    def _add(self, block: Block, path: str, parent: int | None) -> Node:
        index = len(self.nodes)
        columns = tuple(_columns(block))
        first_column, first_part = self._columns, self._parts
        self._columns += len(columns)
        self._parts += len(block.groups) + len(block.data)
        self.nodes.append(None)  # type: ignore[arg-type]  # its place, before its descendants'
        children = tuple(self._add(group, f"{path}.{group.name}", index).index for group in block.groups)
        data = tuple(range(len(self.data), len(self.data) + len(block.data)))
        oldest = self.schema.oldest
        node = Node(index, path, block, parent, columns, first_column, first_part, children, data, oldest)
        self.nodes[index] = node
        self.data += [(node, data) for data in block.data]
        return node

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        table = np.zeros((self._columns, k.COLUMN), np.int64)
        for node in self.nodes:
            for row, column in zip(table[node.first_column :], node.columns, strict=False):
                field, part = column.field, column.part
                row[k.C_OFFSET], row[k.C_SIZE] = part.offset, part.size
                row[k.C_KIND] = k.TEXT if column.is_text else k.FIXED
                row[k.C_NULLABLE] = part.null is not None
                row[k.C_NULL] = null_bits(column)
                row[k.C_SINCE], row[k.C_UNTIL] = field.since, NEVER_RETIRED if field.until is None else field.until
                row[k.C_RETIRED] = column.is_retired
                if part.null_before is not None:
                    row[k.C_STRICT_SINCE], row[k.C_NULL_BEFORE] = node.oldest, as_int64(part.null_before)
        return table

    @cached_property
    def parts(self) -> NDArray[np.int64]:
        table = np.zeros((max(self._parts, 1), k.PART), np.int64)
        for node in self.nodes:
            row = node.first_part
            for group, child in zip(node.block.groups, node.children, strict=True):
                table[row, : k.P_OFFSETS] = k.GROUP, child, group.length_size, group.count_size, group.since
                row += 1
            for data, number in zip(node.block.data, node.data, strict=True):
                table[row, : k.P_OFFSETS] = k.DATA, number, data.length_size, 0, data.since
                row += 1
        return table

    @cached_property
    def node_table(self) -> NDArray[np.int64]:
        table = np.zeros((len(self.nodes), k.NODE), np.int64)
        for node, row in zip(self.nodes, table, strict=True):
            row[k.N_COLUMNS], row[k.N_COLUMNS_END] = node.first_column, node.first_column + len(node.columns)
            parts = len(node.children) + len(node.data)
            row[k.N_PARTS], row[k.N_PARTS_END] = node.first_part, node.first_part + parts
            row[k.N_END] = self.last_descendant(node) + 1
            row[k.N_FULL_LENGTH], row[k.N_MIN_VERSION] = node.full_block_length, node.min_fast_version
            row[k.N_MAX_PENDING] = k.MESSAGES_PER_PASS if node.parent is None else k.ENTRIES_PER_PASS
            row[k.N_FRAMING] = k.NO_FRAMING
            message, plain = node.block, not parts and node.index != k.NO_NODE
            if isinstance(message, Message) and plain and self.schema.version >= node.min_fast_version:
                length = message.block_length
                header = (length, message.template_id, self.schema.id, self.schema.version)
                row[k.N_HEADER] = int.from_bytes(
                    b"".join(v.to_bytes(2, "little") for v in header), "little", signed=True
                )
                row[k.N_FRAMING] = k.MESSAGE_HEADER + length | k.SBE_LITTLE_ENDIAN << 16
        return table

    def last_descendant(self, node: Node) -> int:
        return self.last_descendant(self.nodes[node.children[-1]]) if node.children else node.index

    def part_name(self, part: int) -> str:
        """The name of a group or variable data in quarantine rows."""
        for node in self.nodes:
            names = [*(g.name for g in node.block.groups), *(d.name for d in node.block.data)]
            if node.first_part <= part < node.first_part + len(names):
                path = node.path.partition(".")[2]
                return ".".join(filter(None, [path, names[part - node.first_part]]))
        return ""

    def message_of(self, node: Node) -> Message:
        while node.parent is not None:
            node = self.nodes[node.parent]
        assert isinstance(node.block, Message)
        return node.block


def _columns(block: Block) -> Iterator[Column]:
    for field in block.sent_fields:
        assert field.presence != CONSTANT
        for part in field.parts:
            yield Column(f"{field.name}.{part.name}" if part.name else field.name, field, part)


def null_bits(column: Column) -> int:
    """The null value as the bits of an int64 (0 where the column has none)."""
    return as_int64(column.part.null or 0)


def as_int64(value: int) -> int:
    """64 bits, read as a signed number."""
    return value - (1 << 64) if value >= 1 << 63 else value


__all__ = ["Column", "Group", "Layout", "Node", "null_bits"]
