"""The symbols and book depths of a channel's instruments, by column: all that the books need of the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.staging import Staged, read_staged
from umdf.market.events import NULL, NULL_I32
from umdf.market.rows import strings_of

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Listed:
    """What the newest definition of each instrument says of it; what was deleted keeps its symbol."""

    ids: Numbers  # sorted; a row of nobody stands behind them
    symbols: pa.Array
    depths: Numbers  # 264 on this channel; NULL where nothing is said

    def rows_of(self, ids: Numbers) -> Numbers:
        at = np.searchsorted(self.ids, ids)
        return np.where(np.append(self.ids, NULL)[at] == ids, at, len(self.ids))


def listed(staged: Sequence[Staged], buckets: Sequence[int], channel: int) -> Listed:
    rows = read_staged(staged, "definition", buckets).rows("definition")
    rows = rows.at(np.flatnonzero(rows.column("action") != ord("D"))) if len(rows) else rows
    if not len(rows):
        return Listed(np.empty(0, np.int64), pa.array([None], pa.utf8()), np.array([NULL]))
    ids = rows.column("instrument_id")
    known, newest = np.unique(ids[::-1], return_index=True)
    rows = rows.at(len(ids) - 1 - newest)
    text = rows.texts.get("symbol")
    symbols = [None] * len(known) if text is None else [one or None for one in strings_of(text)]
    depths, feeds = np.full(len(known) + 1, NULL), rows.lists.get("feeds")
    if feeds is not None:
        own = np.repeat(np.arange(len(known)), np.diff(feeds.offsets))
        here = np.flatnonzero(feeds.columns["channel"][: len(own)] == channel)[::-1]  # of several the first one stays
        depth = feeds.columns["depth"][here]
        depths[own[here]] = np.where(depth == NULL_I32, 0, depth)
    return Listed(known, pa.array([*symbols, None], pa.utf8()), depths)
