"""The memory that decoded rows live in: one table per node, which grows, and is reused when nothing refers to it."""

from __future__ import annotations

import numpy as np

from umdf.buffers import ALIGNMENT, Memory, Pool
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.layout import Node

INITIAL_ROWS = 256
INITIAL_TEXT_BYTES = 1 << 15
VALUE_SLACK = 8  # kernels store eight bytes, whatever the width of the column


class StoreLayout:
    """The positions of one node's columns in its memory: for a number of rows (a multiple of 64) and of text bytes."""

    def __init__(self, node: Node, capacity: int, text_capacity: dict[int, int]) -> None:
        self.capacity = capacity
        self.text_capacity = text_capacity  # by column
        self.nbytes = 0
        self.message = self._reserve(4 * capacity)
        self.masks = self._reserve(8 * capacity * node.mask_words)
        self.bitmaps = self._reserve(node.bits * capacity // 8)
        self.values: list[int] = []  # of a text: Arrow's offsets
        for column in node.columns:
            nbytes = 4 * (capacity + 1) if column.is_text else column.dtype.itemsize * capacity + VALUE_SLACK
            self.values.append(self._reserve(nbytes))
        self.lists = [self._reserve(4 * (capacity + 1)) for _ in node.lists]
        self.texts = {number: self._reserve(nbytes) for number, nbytes in text_capacity.items()}
        texts = [place for place, column in zip(self.values, node.columns, strict=True) if column.is_text]
        self.first_offsets = np.array([*texts, *self.lists], np.int64) // 4  # of texts and lists, in words of 4 bytes

    def _reserve(self, nbytes: int) -> int:
        at = self.nbytes
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return at

    def used_ranges(self, node: Node, rows: int, text_used: dict[int, int]) -> list[tuple[int, int]]:
        """The ranges (offset, bytes) that hold something after `rows` rows; bitmaps are made from masks later."""
        ranges = [(self.message, 4 * rows), (self.masks, 8 * rows * node.mask_words)]
        for place, column in zip(self.values, node.columns, strict=True):
            ranges.append((place, 4 * (rows + 1) if column.is_text else column.dtype.itemsize * rows))
        ranges += [(place, 4 * (rows + 1)) for place in self.lists]
        return ranges + [(place, text_used[number]) for number, place in self.texts.items()]


class ColumnStore:
    """The rows of one node. `memory` is empty until the first row comes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.layout = StoreLayout(node, 0, {column.number: 0 for column in node.texts})
        self.memory: Memory | None = None
        self._pool = Pool()

    def start_batch(self) -> bool:
        """Start a new batch; True if the memory has changed."""
        before = self.memory.address if self.memory else 0
        self.memory = None  # released, so that the pool can reuse it
        self.memory = self._pool.acquire(self.layout.nbytes)
        if self.memory.address == before:
            return False
        self._start_offsets()
        return True

    def _start_offsets(self) -> None:
        """Arrow's offsets start at 0; the kernels write only where each row ends."""
        assert self.memory is not None
        self.memory.array[: self.layout.nbytes].view(np.int32)[self.layout.first_offsets] = 0

    def grow_rows(self, rows: int, text_used: dict[int, int], needed: int) -> None:
        capacity = max(INITIAL_ROWS, 4 * self.layout.capacity, -(-(rows + needed) // 64) * 64)
        texts = {number: max(INITIAL_TEXT_BYTES, size) for number, size in self.layout.text_capacity.items()}
        self._move_to(StoreLayout(self.node, capacity, texts), rows, text_used)

    def grow_text(self, rows: int, text_used: dict[int, int], column: int, needed: int) -> None:
        texts = dict(self.layout.text_capacity)
        texts[column] = max(INITIAL_TEXT_BYTES, 4 * texts[column], text_used[column] + needed + k.TEXT_RESERVE)
        self._move_to(StoreLayout(self.node, max(INITIAL_ROWS, self.layout.capacity), texts), rows, text_used)

    def _move_to(self, table: StoreLayout, rows: int, text_used: dict[int, int]) -> None:
        old, memory = self.layout, self.memory
        self.layout, self.memory = table, self._pool.acquire(table.nbytes)
        if memory is None:
            self._start_offsets()
            return
        ranges = zip(
            old.used_ranges(self.node, rows, text_used), table.used_ranges(self.node, rows, text_used), strict=True
        )
        for (source, nbytes), (target, _) in ranges:
            self.memory.array[target : target + nbytes] = memory.array[source : source + nbytes]
