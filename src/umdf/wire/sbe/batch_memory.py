"""What a batch of decoded packets lives in: the columns of every node, and the kernel's tables that lead to them.

A decoder has several of these. It takes one that nothing refers to any more, so that a batch that is still in use
costs the next one nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, ReferenceWatch
from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.column_store import ColumnStore, StoreLayout, VarDataStore
from umdf.wire.sbe.layout import Layout

MIN_COUNT_BYTES = 4096  # of the number of messages in each packet


class RowLists:
    """Where the rows of a pass start: lists that are in use only while the kernel runs, so all batches share them."""

    def __init__(self, layout: Layout) -> None:
        sizes = 2 * layout.node_table[:, k.N_MAX_PENDING]  # places, and the tags of messages
        self._first = np.cumsum(sizes) - sizes
        self._row_offsets = np.empty(int(sizes.sum()), np.uint32)
        self._meta = np.empty(len(self._row_offsets), np.int64)

    def set_addresses(self, nodes: NDArray[np.int64]) -> None:
        nodes[:, k.N_ROW_OFFSETS] = self._row_offsets.ctypes.data + 4 * self._first
        nodes[:, k.N_META] = self._meta.ctypes.data + 8 * self._first


class BatchMemory:
    """The tables and columns of one batch."""

    def __init__(self, layout: Layout, lists: RowLists, validity: bool) -> None:
        self.nodes, self.columns, self.parts = layout.node_table.copy(), layout.columns.copy(), layout.parts.copy()
        self.rows = self.nodes[:, k.N_ROWS]
        lists.set_addresses(self.nodes)
        self._lists = lists
        self._stores = [ColumnStore(node) for node in layout.nodes]
        self._data = [VarDataStore() for _ in layout.data]
        self._data_used, self._data_capacity, self._data_address = np.zeros((3, len(layout.data) + 1), np.int64)
        self._data_saved = np.zeros(2 * len(layout.data) + 1, np.int64)
        self._stack = np.zeros(4 * (k.MAX_DEPTH + 2), np.int64)
        self.quarantine = np.empty((256, k.QUARANTINE_ROW), np.int64)
        self.message_counts = Memory(MIN_COUNT_BYTES)
        self.arguments = np.zeros(k.ARGUMENTS, np.int64)
        for place, array in (
            (k.NODES, self.nodes),
            (k.COLUMNS, self.columns),
            (k.PARTS, self.parts),
            (k.NODE_OF_TEMPLATE, layout.node_of_template),
            (k.DATA_USED, self._data_used),
            (k.DATA_CAPACITY, self._data_capacity),
            (k.DATA_ADDRESS, self._data_address),
            (k.DATA_SAVED, self._data_saved),
            (k.QUARANTINE, self.quarantine),
            (k.STACK, self._stack),
        ):
            self.arguments[place] = array.ctypes.data
        schema = layout.schema
        self.arguments[k.NODE_COUNT], self.arguments[k.DATA_COUNT] = len(layout.nodes), len(layout.data)
        self.arguments[k.SCHEMA_ID], self.arguments[k.VALIDITY] = schema.id, validity
        self.arguments[k.QUARANTINE_CAPACITY] = len(self.quarantine)
        self.arguments[k.OLDEST], self.arguments[k.NEWEST] = schema.oldest, schema.version
        self.arguments[k.MESSAGES] = self.message_counts.address
        self.arguments_address: int = self.arguments.ctypes.data
        self.arguments_view: memoryview = self.arguments.data
        # For the conversion to events, which reads the addresses of columns from these tables.
        self.table_addresses: tuple[int, int, int] = (
            self.nodes.ctypes.data,
            self.columns.ctypes.data,
            self.parts.ctypes.data,
        )

    def memories(self) -> Iterator[Memory]:
        """Everything that a view of the batch may refer to."""
        yield self.message_counts
        yield from (store.memory for store in (*self._stores, *self._data) if store.memory is not None)

    def store_of(self, node: int) -> tuple[StoreLayout, Memory]:
        """The layout and memory of a node that has had rows."""
        store = self._stores[node]
        return store.layout, store.allocated

    def data(self, number: int) -> Memory | None:
        return self._data[number].memory

    def reserve_packets(self, packets: int) -> None:
        self.message_counts = Memory(4 * packets)
        self.arguments[k.MESSAGES] = self.message_counts.address

    def grow(self, full: int) -> None:
        """Enlarge what the kernel found full."""
        if full >= 0:
            store = self._stores[full]
            store.grow(int(self.rows[full]))
            self._set_addresses(store)
        elif full == k.QUARANTINE_FULL:
            self.quarantine = np.concatenate([self.quarantine, np.empty_like(self.quarantine)])
            self.arguments[k.QUARANTINE] = self.quarantine.ctypes.data
            self.arguments[k.QUARANTINE_CAPACITY] = len(self.quarantine)
        else:
            number = k.DATA_FULL - full
            self._data_address[number] = self._data[number].grow(int(self._data_used[number]))
            self._data_capacity[number] = self._data[number].capacity

    def _set_addresses(self, store: ColumnStore) -> None:
        """Pass the addresses of this node's columns to the kernel."""
        base, table, node = store.allocated.address, store.layout, self.nodes[store.node.index]
        node[k.N_CAPACITY] = table.capacity
        if store.node.parent is None:
            node[k.N_PACKET], node[k.N_INDEX] = base + table.packet, base + table.index
        columns = self.columns[node[k.N_COLUMNS] : node[k.N_COLUMNS_END]]
        columns[:, k.C_VALUES] = [base + at for at in table.values]
        columns[:, k.C_TEXT] = [base + at for at in table.text]
        columns[:, k.C_BITMAP] = [base + at for at in table.bitmaps]
        self.parts[node[k.N_PARTS] : node[k.N_PARTS_END], k.P_OFFSETS] = [base + at for at in table.offsets]


class MemorySlot:
    """Holds the memory of a batch, and knows whether anything else refers to it."""

    def __init__(self, layout: Layout, lists: RowLists, validity: bool) -> None:
        self.memory = BatchMemory(layout, lists, validity)
        self.watch()

    def watch(self) -> None:
        """Take the references of now, when no batch has the memory, as those of memory that is free."""
        self._watch = ReferenceWatch(self.memory, self.memory.memories())
        self._watch.start()

    def is_free(self) -> bool:
        return self._watch.is_unchanged()
