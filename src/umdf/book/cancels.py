"""Completes cancels without a price (Binary before version 11, template 51) with what they removed from the book."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umdf.book.outcomes import REMOVED_DTYPE, Outcomes
from umdf.market.families import FROM_BOOK, NULL
from umdf.market.rows import Rows

NOTHING_REMOVED = np.empty(0, REMOVED_DTYPE)


def removed_from(
    outcomes: Outcomes, numbers: NDArray[np.int64] | None, is_known: NDArray[np.bool_]
) -> NDArray[np.void]:
    """What cancels have removed from known books: another book may not be the exchange's. `numbers` (None: from 0) and
    `is_known` are those of the rows that were applied; `row` of the result is such a number."""
    if outcomes.removed is None:
        return NOTHING_REMOVED
    at = outcomes.removed["row"] - outcomes.first_row
    removed = outcomes.removed[is_known[at]]  # a copy
    removed["row"] = at[is_known[at]] if numbers is None else numbers[at[is_known[at]]]
    return removed


def complete_cancels(rows: Rows, parts: Sequence[NDArray[np.void]]) -> None:
    """Give rows of the family mbo the price and size of what they have removed; `row` is their index. What the exchange
    sent stays; orders that had no price either (market on auction, market on close) are left as they are."""
    if not parts or not sum(map(len, parts)):
        return
    removed, price, size = np.concatenate(parts), rows.column("price"), rows.column("size")
    chosen = removed["row"]
    is_lacking = ((price[chosen] == NULL) & (removed["price"] != NULL)) | (size[chosen] == NULL)
    chosen, removed = chosen[is_lacking], removed[is_lacking]
    columns = {name: rows.column(name).copy() for name in ("price", "size", "prev_size", "flags")}
    columns["price"][chosen] = removed["price"]
    columns["size"][chosen] = np.where(size[chosen] == NULL, removed["size"], size[chosen])
    columns["prev_size"][chosen] = removed["size"]
    columns["flags"][chosen] |= FROM_BOOK
    rows.columns.update(columns)
