"""Messages with a dynamic template reference (6.4): read by the reference reader, written to the same columns.

A message inside a message is a row of its own template's node, before the row that refers to it by template id
(column `templateRef`) and row number (`templateRef.row`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.batch import QuarantineRow
from umdf.wire.fast.decode.column_store import ColumnStore
from umdf.wire.fast.layout import Layout, Node
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import Reset, to_bytes
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.transfer_encoding import FastError, Limits, Report
from umdf.wire.fast.templates import CONSTANT, DECIMAL, DynamicRef, Group, Segment, Sequence

Grow = Callable[[Node, int | None, int], None]  # a node, one of its text columns or its rows, and how much is needed


class ReferenceRows:
    """Reads single messages and appends their rows; nothing is appended of one with an error."""

    def __init__(
        self,
        layout: Layout,
        reset: Reset,
        limits: Limits,
        stores: list[ColumnStore],
        nodes: NDArray[np.int64],
        texts: NDArray[np.int64],
        grow: Grow,
    ) -> None:
        self.layout, self.limits, self.stores = layout, limits, stores
        self.reset: Reset = reset
        self.nodes, self.texts, self.grow = nodes, texts, grow
        self.reader = Reader(layout.templates, reset, limits)

    def decode(self, number: int, template_id: int | None, data: bytes) -> list[QuarantineRow]:
        """Read one message; returns its quarantine rows."""
        try:
            message, end = self.reader.decode(data)
            if end < len(data):
                error = FastError("T3", end, "", "trailing bytes after the message")
                error.reports = message.reports
                raise error
        except FastError as error:
            self.reader = Reader(self.layout.templates, self.reset, self.limits)
            faults = [*count_reports(error.reports), (error.code, error.offset, error.field, error.reason, 1)]
            return [
                QuarantineRow(number, at, template_id, field, code, why, count)
                for code, at, field, why, count in faults
            ]
        self.add(number, message)
        return [
            QuarantineRow(number, at, message.template.id, field, code, reason, count)
            for code, at, field, reason, count in count_reports(message.reports)
        ]

    def add(self, number: int, message: Message) -> tuple[int, int]:
        """Append a message after those inside it; its template id and row."""
        inner = {
            id(inside): self.add(number, inside) for inside in _inner_messages(message.template.body, message.values)
        }
        template_id = message.template.id
        assert template_id is not None
        root = self.layout.roots[template_id]
        row = self.append(root, message.template.body, message.values, inner)
        store = self.stores[root.index]
        self.store(store, store.layout.message, 4, row, number)
        return template_id, row

    def append(
        self, node: Node, segment: Segment, values: Mapping[str, Any], inner: Mapping[int, tuple[int, int]]
    ) -> int:
        """Append one row, its entries first."""
        cells: dict[str, Any] = {}
        self.collect(node, segment, values, "", inner, cells)
        store = self.stores[node.index]
        row = int(self.nodes[node.index, k.N_ROWS])
        if row >= store.layout.capacity:
            self.grow(node, None, 1)
        texts = {column.number: to_bytes(cells.get(column.name, b"")) for column in node.texts}
        for column in node.texts:
            used, content = int(self.texts[column.text, k.T_USED]), texts[column.number]
            if used + len(content) + k.TEXT_SLACK > store.layout.text_capacity[column.number]:
                self.grow(node, column.number, len(content))
        mask = sum(1 << bit for bit in {item.bit for item in node.items if item.bit >= 0 and item.name in cells})
        for word in range(node.mask_words):
            self.store(store, store.layout.masks, 8, row * node.mask_words + word, mask >> 64 * word & (1 << 64) - 1)
        for column in node.columns:
            value = cells.get(column.name)
            if column.is_text:
                used = self.append_text(store, column.number, column.text, texts[column.number])
                self.store(store, store.layout.values[column.number], 4, row + 1, used)
            elif value is not None:
                size = column.dtype.itemsize
                self.store(store, store.layout.values[column.number], size, row, value % (1 << 8 * size))
        for item, place in zip(node.lists, store.layout.lists, strict=True):
            self.store(store, place, 4, row + 1, int(self.nodes[item.child, k.N_ROWS]))
        self.nodes[node.index, k.N_ROWS] = row + 1
        return row

    def collect(
        self,
        node: Node,
        segment: Segment,
        values: Mapping[str, Any],
        prefix: str,
        inner: Mapping[int, tuple[int, int]],
        cells: dict[str, Any],
    ) -> None:
        """The value of each item of a row; entries are appended on the way."""
        for instruction in segment.instructions:
            value, name = values.get(instruction.name), prefix + instruction.name
            if value is None:
                continue
            cells[name] = value
            if isinstance(instruction, Sequence):
                child = self.layout.nodes[next(item.child for item in node.lists if item.name == name)]
                for entry in value:
                    self.append(child, instruction.body, entry, inner)
            elif isinstance(instruction, Group):
                self.collect(node, instruction.body, value, f"{name}.", inner, cells)
            elif isinstance(instruction, DynamicRef):
                cells[name], cells[f"{name}.row"] = inner[id(value)]
            elif instruction.type == DECIMAL and instruction.operator.kind != CONSTANT:
                cells[f"{name}.exponent"], cells[name] = value

    def append_text(self, store: ColumnStore, column: int, text: int, content: bytes) -> int:
        """Append to a text column, which has the capacity; returns its new size in bytes."""
        assert store.memory is not None
        used = int(self.texts[text, k.T_USED])
        at = store.layout.texts[column] + used
        store.memory.array[at : at + len(content)] = np.frombuffer(content, np.uint8)
        self.texts[text, k.T_USED] = used + len(content)
        return used + len(content)

    def store(self, store: ColumnStore, place: int, size: int, index: int, value: int) -> None:
        assert store.memory is not None
        at = place + size * index
        store.memory.array[at : at + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def count_reports(reports: list[Report]) -> list[tuple[str, int, str, str, int]]:
    """Each code once, where it came first, and how often."""
    counts: dict[str, int] = {}
    for report in reports:
        counts[report.code] = counts.get(report.code, 0) + 1
    firsts = {report.code: report for report in reversed(reports)}
    return [(code, firsts[code].offset, firsts[code].field, firsts[code].reason, n) for code, n in counts.items()]


def _inner_messages(segment: Segment, values: Mapping[str, Any]) -> Iterator[Message]:
    """The messages directly inside a message."""
    for instruction in segment.instructions:
        value = values.get(instruction.name)
        if value is None:
            continue
        if isinstance(instruction, DynamicRef):
            yield value
        elif isinstance(instruction, Group):
            yield from _inner_messages(instruction.body, value)
        elif isinstance(instruction, Sequence):
            for entry in value:
                yield from _inner_messages(instruction.body, entry)
