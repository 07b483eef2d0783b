"""Columns → messages again, row by row: for display and tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from umdf.wire.fast.decode.batch import Batch
from umdf.wire.fast.layout import Column, Node, RowItem
from umdf.wire.fast.message import Message
from umdf.wire.fast.templates import (
    BYTES,
    CONSTANT,
    DECIMAL,
    Decimal,
    DynamicRef,
    Group,
    Segment,
    Sequence,
    TemplateSet,
)


def messages_of(batch: Batch) -> dict[int, Message]:
    """Every message among the rows, by its number in the batch; nested messages are inside theirs."""
    rows = _BatchRows(batch)
    messages: dict[int, Message] = {}
    for template_id, root in batch.layout.roots.items():
        if not batch.rows[root.index]:
            continue
        for row, number in enumerate(batch.message(root).tolist()):
            if (template_id, row) not in rows.inner:
                messages[number] = rows.message(template_id, row)
    return dict(sorted(messages.items()))


class _BatchRows:
    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.lists = {node.index: self.columns(node) for node in batch.layout.nodes if batch.rows[node.index]}
        self.templates: TemplateSet = batch.layout.templates
        self.inner: set[tuple[int, int]] = set()  # rows of nested messages, by template id
        for node in batch.layout.nodes:
            for column in node.columns if batch.rows[node.index] else ():
                if isinstance(column.field, DynamicRef) and not column.name.endswith(".row"):
                    ids = self.lists[node.index][column.name]
                    rows = self.lists[node.index][f"{column.name}.row"]
                    self.inner |= {pair for pair in zip(ids, rows, strict=True) if pair[0] is not None}

    def columns(self, node: Node) -> dict[str, list[Any]]:
        """Each column as a list, None where it is absent."""
        return {item.name: self.values(node, item) for item in node.items}

    def values(self, node: Node, item: RowItem) -> list[Any]:
        batch, present = self.batch, self.batch.present(node, item).tolist()
        if isinstance(item, Column) and item.is_text:
            offsets, content = batch.text(node, item)
            ends, whole = offsets.tolist(), content.tobytes()
            cut = [whole[first:last] for first, last in pairwise(ends)]
            values: list[Any] = [_text(part, item.type) for part in cut]
        elif isinstance(item, Column):
            values = batch.values(node, item).tolist()
        else:
            values = [True] * len(present)
        return [value if there else None for value, there in zip(values, present, strict=True)]

    def message(self, template_id: int, row: int) -> Message:
        root = self.batch.layout.roots[template_id]
        return Message(root.template, self.segment(root, root.segment, row, ""))

    def segment(self, node: Node, segment: Segment, row: int, prefix: str) -> dict[str, Any]:
        found = {}
        for instruction in segment.instructions:
            name, columns = prefix + instruction.name, self.lists[node.index]
            value: Any = None
            if isinstance(instruction, Group):
                if not instruction.optional or columns[name][row]:
                    value = self.segment(node, instruction.body, row, f"{name}.")
            elif columns[name][row] is None:
                continue
            elif isinstance(instruction, Sequence):
                item = next(item for item in node.lists if item.name == name)
                first, last = self.batch.offsets(node, item)[row : row + 2].tolist()
                child = self.batch.layout.nodes[item.child]
                value = [self.segment(child, child.segment, entry, "") for entry in range(first, last)]
            elif isinstance(instruction, DynamicRef):
                value = self.message(columns[name][row], columns[f"{name}.row"][row])
            elif instruction.operator.kind == CONSTANT:
                value = instruction.operator.initial
            elif instruction.type == DECIMAL:
                value = Decimal(columns[f"{name}.exponent"][row], columns[name][row])
            else:
                value = columns[name][row]
            if value is not None:
                found[instruction.name] = value
        return found


def _text(content: bytes, type: str) -> str | bytes:
    return content if type == BYTES else content.decode("utf-8", "surrogateescape")
