"""The books of a channel as plain arrays, to be stored and brought back.

`books` has a row for each book, `entries` the orders or levels of all of them, one book after the other, best first.
Every column is an array that Arrow takes as it is. A book that comes back goes on exactly as if it had never left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
BOOK_COLUMNS = (
    "instrument_id lending rpt_seq book_type depth declared_depth stale stale_row stale_received stale_expected "
    "changed_sides"
).split()
ENTRY_COLUMNS = "price size order_id firm ts_insert count side implied".split()


@dataclass(eq=False)
class BooksState:
    rows_applied: int
    books: Columns  # of BOOK_COLUMNS; also `entry_count`, and `pending`: the place in the queue of the end of the event
    entries: Columns  # of ENTRY_COLUMNS


def record_columns(records: NDArray[np.void], names: Sequence[str]) -> Columns:
    return {name: np.ascontiguousarray(records[name]) for name in names}
