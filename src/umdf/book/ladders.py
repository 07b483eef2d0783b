"""Rows of the best N levels: a record for each change of what they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from umdf.book.ladder_kernel import BODY_BYTES
from umdf.book.ladder_rows_kernel import R_BODY


@cache
def ladder_dtype(depth: int) -> np.dtype[np.void]:
    """`row` counts all rows that the books have seen; then bid_px_00 … as in the tables mbp_1 and mbp_10."""
    names = [("row", "i8"), ("instrument_id", "i8"), ("book", "i4"), ("flags", "i4")]
    for what, kind in (("px", "i8"), ("sz", "i8"), ("ct", "i4")):
        names += [(f"{side}_{what}_{level:02}", kind) for side in ("bid", "ask") for level in range(depth)]
    kind = np.dtype(names)
    assert kind.itemsize == R_BODY + BODY_BYTES * depth
    return kind


@dataclass(eq=False)
class Ladders:
    """Records, with columns as views of them. A level that is not there is NULL in all three columns."""

    depth: int
    records: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> NDArray[np.generic]:
        return self.records[name]

    def __iter__(self) -> Iterator[dict[str, int]]:
        """For people and tests."""
        names = self.records.dtype.names or ()
        return (dict(zip(names, record, strict=True)) for record in self.records.tolist())
