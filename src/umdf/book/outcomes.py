"""The outcome of a row, and why a book is stale: the codes of the kernels, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.market.families import NULL

NO_CHANGE, ADDED, CHANGED, DELETED, CLEARED = k.NO_CHANGE, k.ADDED, k.CHANGED, k.DELETED, k.CLEARED
REPLACED, ALREADY_APPLIED = k.REPLACED, k.ALREADY_APPLIED
OUTCOMES = {
    NO_CHANGE: "nothing to do",
    ADDED: "added",
    CHANGED: "changed",
    DELETED: "deleted",
    CLEARED: "cleared",
    REPLACED: "replaced",
    ALREADY_APPLIED: "already in the book",
}

# Below zero: impossible. {received} is what the row (or the feed) had, {expected} what the book had.
REASONS = {
    k.UNKNOWN_ORDER: "order {received} is not in the book",
    k.DUPLICATE_ORDER: "order {received} is already in the book, with size {expected}",
    k.SIDE_MISMATCH: "the order is on the other side",
    k.PRICE_MISMATCH: "the price {received:price} is not the entry's own (order or position {expected})",
    k.SIZE_MISMATCH: "the previous size {received} is not the size in the book, {expected}",
    k.UNKNOWN_PRICE: "the price {received:price} is not among the {expected} of the side",
    k.DUPLICATE_PRICE: "the price {received:price} is already in the book, with size {expected}",
    k.BAD_POSITION: "position {received} in a side of {expected}",
    k.GENERATION_MISMATCH: "position {received} in a book by price",
    k.NO_ORDER_ID: "an order without id at {received:price}",
    k.BAD_SIZE: "a size of {received} (order, position or number of orders: {expected})",
    k.BAD_SIDE: "unknown side {received}",
    k.UNKNOWN_ACTION: "unknown action {received}",
    k.NO_INSTRUMENT: "a row of a book without instrument",
    k.AMBIGUOUS_LEVEL: "an overlay removes one of {received} levels and does not say which",
    k.RPT_SEQ_GAP: "rpt_seq {received} after {expected}",
    k.MESSAGES_LOST: "messages are known to be lost",
    k.CONTRADICTED: "an update came with two contents: one of the lines was damaged",
    k.VALUE_OUT_OF_RANGE: "a price or a size that is out of range",
}


REMOVED_DTYPE = np.dtype([("row", "i8"), ("price", "i8"), ("size", "i8")])
assert REMOVED_DTYPE.itemsize == k.REMOVED_BYTES


@dataclass(eq=False)
class Outcomes:
    """The outcome of each row of a call; `first_row` is the number of the first among all rows applied so far."""

    codes: NDArray[np.int8]
    first_row: int
    removed: NDArray[np.void] | None = None  # REMOVED_DTYPE: what cancels without a price have removed; None: nothing

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def failed(self) -> NDArray[np.int64]:
        """The rows that were impossible."""
        return np.flatnonzero(self.codes < 0)


@dataclass(frozen=True)
class Stale:
    """Why a book is not to be trusted, since which row (counted over all rows that the books have seen)."""

    reason: int
    row: int
    received: int
    expected: int

    def __str__(self) -> str:
        if self.reason == k.RPT_SEQ_GAP and self.expected == 0:
            return f"it starts at rpt_seq {self.received}: what came before is not known"
        received = _format_number(self.received)
        text = REASONS[self.reason].replace(
            "{received:price}", "none" if self.received == NULL else f"{self.received / 1e9:.9g}"
        )
        return text.format(received=received, expected=_format_number(self.expected))


def _format_number(value: int) -> str:
    return "none" if value in (NULL, k.NULL_I32) else str(value)
