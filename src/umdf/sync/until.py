"""A moment of a stream, by sequence or by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Until:
    """A moment: everything up to a sequence, or up to a sending time."""

    sequence: int | None = None
    ts_send: int | None = None

    def includes(self, sequence: NDArray[np.int64], ts_send: NDArray[np.int64]) -> NDArray[np.bool_]:
        return sequence <= self.sequence if self.sequence is not None else ts_send <= (self.ts_send or 0)

    def includes_one(self, sequence: int, ts_send: int) -> bool:
        return sequence <= self.sequence if self.sequence is not None else ts_send <= (self.ts_send or 0)
