"""The arenas of `memory_layout_kernel`, and how they grow: by doubling, between two calls of a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.book.arena_kernel import rehash_books, rehash_orders
from umdf.book.ladder_kernel import BODY_BYTES
from umdf.book.ladder_rows_kernel import LADDER_BODY
from umdf.buffers import Memory, buffer_address

MAX_ORDER_HASH_LOAD = 9, 16  # of the order hash: orders, slots
BOOK_HASH_SLOTS = 8  # slots of the book hash for each book: a wrong guess about the second slot costs more than memory

_SIDE_DTYPE = np.dtype([("block", "i8"), ("count", "i4"), ("capacity", "i4")])
BOOK_DTYPE = np.dtype(
    {
        "names": (
            "max_order_id rpt_seq bids asks book_type depth declared_depth changed_sides stale stale_row "
            "stale_received stale_expected lending alive instrument_id".split()
        ),
        "formats": ["i8", "i8", _SIDE_DTYPE, _SIDE_DTYPE, *["i4"] * 4, *["i8"] * 4, "i4", "i4", "i8"],
        "offsets": [
            k.B_MAX_ORDER_ID, k.B_RPT_SEQ, k.B_SIDES, k.B_SIDES + k.SIDE_BYTES, k.B_BOOK_TYPE, k.B_DEPTH,
            k.B_DECLARED_DEPTH, k.B_CHANGED_SIDES, k.B_STALE, k.B_STALE_ROW, k.B_STALE_RECEIVED, k.B_STALE_EXPECTED,
            k.B_LENDING, k.B_ALIVE, k.B_INSTRUMENT,
        ],
        "itemsize": k.BOOK_BYTES,
    }
)  # fmt: skip


class Arenas:
    """The table of the kernels and the memory that it leads to."""

    def __init__(self, orders: int, levels: int, books: int) -> None:
        self.table = np.zeros(k.TABLE_WORDS, np.int64)
        self.table_view = self.table.data  # the same, far quicker for one at a time
        self.address = buffer_address(self.table)
        self._memories: dict[int, Memory] = {}
        self.table[[k.ORDER_FREE_LIST, k.LEVEL_FREE_LIST, k.BOOK_FREE_LIST, k.SAVED_LADDER_ROW]] = -1
        self.table[k.LADDER_VERSION], self._ladder_settings = 1, (0, "", 0)
        self.order_capacity = self.level_capacity = self.book_capacity = 0
        self.grow_orders(orders)
        self.grow_levels(levels)
        self.grow_books(books)
        self.grow_blocks(books * 2 * (k.ENTRY_BYTES << k.MIN_BLOCK_POWER))
        self._growers = {
            k.ORDERS_FULL: lambda: self.grow_orders(2 * self.order_capacity),
            k.LEVELS_FULL: lambda: self.grow_levels(2 * self.level_capacity),
            k.BOOKS_FULL: lambda: self.grow_books(2 * self.book_capacity),
            k.BLOCKS_FULL: lambda: self.grow_blocks(2 * int(self.table[k.BLOCKS_CAPACITY])),
        }

    def grow(self) -> None:
        """Enlarge what the kernel left in FULL."""
        self._growers[self.table_view[k.FULL]]()
        if self.table_view[k.DEPTH] > 0:
            self.reserve_ladders(*self._ladder_settings[:2])

    @property
    def headers(self) -> NDArray[np.void]:
        """The books as the kernels see them, by number; not all are alive."""
        fresh = int(self.table[k.BOOK_HIGH_WATER])
        return self._memories[k.BOOKS].array[: k.BOOK_BYTES * fresh].view(BOOK_DTYPE)

    @property
    def order_bytes(self) -> int:
        """All memory that belongs to orders: their records and their hash."""
        return sum(self._memories[word].nbytes for word in (k.ORDERS, k.COLD_ORDERS, k.HASH))

    def prefault(self) -> None:
        """Have the system provide the memory of empty books now, for callers that count nanoseconds. It is only
        written: memory that is read first comes in small pages."""
        assert self.table[k.BOOK_HIGH_WATER] == 0
        for memory in self._memories.values():
            memory.array[:] = 0

    def reserve_ladders(self, depth: int, per: str) -> None:
        """Memory for what `ladder_rows_kernel` keeps of every book, valid while nothing else changes the books."""
        self.table_view[k.DEPTH], settings = depth, (depth, per, self.book_capacity)
        if settings == self._ladder_settings:
            return
        self._ladder_settings = settings
        self.table_view[k.LADDER_VERSION] += 1  # what was pending, if `per` was another, is in no ladder
        ladders = (LADDER_BODY + BODY_BYTES * depth) * self.book_capacity
        self._reallocate(k.LADDERS, ladders + 2 * BODY_BYTES * depth, zeroed=True)
        self.table_view[k.SAVED_LADDER] = self.table_view[k.LADDERS] + ladders

    @property
    def pending(self) -> NDArray[np.int64]:
        """The numbers of the books that changed since the last end of an event, in that order."""
        return self._memories[k.PENDING].array.view(np.int64)[: int(self.table[k.PENDING_COUNT])]

    @pending.setter
    def pending(self, numbers: NDArray[np.int64]) -> None:
        self._memories[k.PENDING].array.view(np.int64)[: len(numbers)] = numbers
        self.table[k.PENDING_COUNT] = len(numbers)

    def remove_book(self, number: int) -> None:
        """Build the book hash again, without a book that is gone."""
        self.pending = self.pending[self.pending != number]
        self._memories[k.BOOK_HASH].array[:] = 0
        rehash_books(self.address)

    def _reallocate(self, word: int, nbytes: int, used: int = 0, *, zeroed: bool = False) -> Memory:
        """Larger memory for the arena whose address is at this place, with the same first `used` bytes."""
        memory = Memory(nbytes)
        if zeroed:
            memory.array[:] = 0
        if used:
            memory.array[:used] = self._memories[word].array[:used]
        self._memories[word] = memory
        self.table[word] = memory.address
        return memory

    def grow_orders(self, orders: int) -> None:
        """The hash is never fuller than LARGEST_LOAD: a search ends soon, and eight slots are one cache line."""
        most, of = MAX_ORDER_HASH_LOAD
        bits = max((orders * of // most).bit_length(), 2)
        capacity, fresh = (1 << bits) * most // of, int(self.table[k.ORDER_HIGH_WATER])
        self._reallocate(k.ORDERS, k.ORDER_BYTES * capacity, k.ORDER_BYTES * fresh)
        self._reallocate(k.COLD_ORDERS, k.COLD_BYTES * capacity, k.COLD_BYTES * fresh)
        old, slots = self._memories.get(k.HASH), int(self.table[k.HASH_MASK]) + 1
        self._reallocate(k.HASH, k.HASH_BYTES << bits, zeroed=True)
        self.table[k.HASH_SHIFT], self.table[k.HASH_MASK] = 64 - bits, (1 << bits) - 1
        if old is not None:
            rehash_orders(self.address, old.address, slots)
        self.table[k.ORDERS_AVAILABLE] += capacity - self.order_capacity
        self.order_capacity = capacity

    def grow_levels(self, levels: int) -> None:
        self._reallocate(k.LEVELS, k.LEVEL_BYTES * levels, k.LEVEL_BYTES * int(self.table[k.LEVEL_HIGH_WATER]))
        self.table[k.LEVELS_AVAILABLE] += levels - self.level_capacity
        self.level_capacity = levels

    def grow_books(self, books: int) -> None:
        fresh, bits = int(self.table[k.BOOK_HIGH_WATER]), max((BOOK_HASH_SLOTS * books - 1).bit_length(), 1)
        self._reallocate(k.BOOKS, k.BOOK_BYTES * books, k.BOOK_BYTES * fresh)
        self._reallocate(k.PENDING, 8 * books, 8 * int(self.table[k.PENDING_COUNT]))
        self._reallocate(k.BOOK_HASH, k.BOOK_SLOT_BYTES << bits, zeroed=True)
        self.table[k.BOOK_HASH_SHIFT], self.table[k.BOOK_HASH_MASK] = 64 - bits, (1 << bits) - 1
        rehash_books(self.address)
        self.table[k.BOOKS_AVAILABLE] += books - self.book_capacity
        self.book_capacity = books

    def grow_blocks(self, nbytes: int) -> None:
        self._reallocate(k.BLOCKS, nbytes, int(self.table[k.BLOCKS_USED]))
        self.table[k.BLOCKS_CAPACITY] = nbytes
