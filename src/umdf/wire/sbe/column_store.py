"""The memory that decoded rows live in: one table per node, which grows."""

from __future__ import annotations

from typing import Any

from umdf.buffers import ALIGNMENT, Memory
from umdf.errors import UmdfError
from umdf.wire.sbe.layout import Node

INITIAL_CAPACITY = 1024
BASE_HEADER_BYTES = 512
INITIAL_DATA_CAPACITY = 1 << 17  # more than the longest variable data that a packet can hold
MAX_DATA_CAPACITY = (1 << 31) - 1  # the limit of Arrow's offsets


class StoreLayout:
    """The positions of one node's columns in its memory, for a number of rows (a multiple of 64)."""

    def __init__(self, node: Node, capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        self.ipc_headers: dict[object, Any] = {}  # kept here by `arrow`, as they are this table's
        root = node.parent is None
        self.header_bytes = BASE_HEADER_BYTES + 64 * len(node.columns)  # space for Arrow's header (see `ipc_header`)
        self._reserve(self.header_bytes)
        self.packet = self._reserve(4 * capacity * root)
        self.index = self._reserve(2 * capacity * root)
        self.values: list[int] = []  # of a text: Arrow's offsets
        self.text: list[int] = []
        self.bitmaps: list[int] = []
        for column in node.columns:
            size = column.part.size
            self.values.append(self._reserve(4 * (capacity + 1) if column.is_text else size * capacity))
            self.text.append(self._reserve(size * capacity * column.is_text))
            self.bitmaps.append(self._reserve(capacity // 8))
        self.offsets = [self._reserve(4 * (capacity + 1)) for _ in (*node.children, *node.data)]

    def _reserve(self, nbytes: int) -> int:
        at = self.nbytes
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return at

    def used_ranges(self, node: Node, rows: int) -> list[tuple[int, int]]:
        """The ranges (offset, bytes) in use after `rows` rows."""
        root = node.parent is None
        ranges = [(self.packet, 4 * rows * root), (self.index, 2 * rows * root)]
        for i, column in enumerate(node.columns):
            size = column.part.size
            ranges.append((self.values[i], 4 * (rows + 1) if column.is_text else size * rows))
            ranges.append((self.text[i], size * rows * column.is_text))
            ranges.append((self.bitmaps[i], -(-rows // 8)))
        return ranges + [(place, 4 * (rows + 1)) for place in self.offsets]


class ColumnStore:
    """The rows of one node. `memory` is empty until the first row comes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.layout = StoreLayout(node, 0)
        self.memory: Memory | None = None

    @property
    def allocated(self) -> Memory:
        """The memory of a node that has had rows."""
        assert self.memory is not None
        return self.memory

    def grow(self, rows: int) -> None:
        """Four times the capacity, with the rows so far."""
        old, memory = self.layout, self.memory
        self.layout = StoreLayout(self.node, max(INITIAL_CAPACITY, 4 * old.capacity))
        self.memory = Memory(self.layout.nbytes)
        for place in self.layout.offsets:  # Arrow's offsets start at 0; the kernel writes only where each row ends
            self.memory.array[place : place + 4] = 0
        if memory is not None:
            ranges = zip(old.used_ranges(self.node, rows), self.layout.used_ranges(self.node, rows), strict=True)
            for (source, nbytes), (target, _) in ranges:
                self.memory.array[target : target + nbytes] = memory.array[source : source + nbytes]


class VarDataStore:
    """The bytes of one variable data field."""

    def __init__(self) -> None:
        self.capacity = 0
        self.memory: Memory | None = None

    def grow(self, used: int) -> int:
        """Four times the capacity, with the bytes so far; the new address."""
        if self.capacity == MAX_DATA_CAPACITY:
            raise UmdfError("a variable-length field exceeds 2 GiB in one batch", "decode fewer packets per batch")
        old = self.memory
        self.capacity = min(max(INITIAL_DATA_CAPACITY, 4 * self.capacity), MAX_DATA_CAPACITY)
        self.memory = Memory(self.capacity)
        if old is not None:
            self.memory.array[:used] = old.array[:used]
        return self.memory.address
