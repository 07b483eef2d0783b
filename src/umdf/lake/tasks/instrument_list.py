"""The symbols, book depths and groups of a channel's instruments, as columns: all that is used of the definitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.families import NULL, NULL_I32
from umdf.market.instruments import DEFAULT_EXCHANGE, Group
from umdf.market.rows import Rows, strings_of

Numbers = NDArray[np.int64]
DELETED = ord("D")


@dataclass(frozen=True, eq=False)
class InstrumentList:
    """Values of each instrument's newest definition; a deleted instrument keeps its symbol."""

    ids: Numbers  # sorted; the columns have one more row, for unknown instruments
    symbols: pa.Array
    depths: Numbers  # 264 on this channel; NULL if absent
    groups: list[Group | None]

    def rows_of(self, ids: Numbers) -> Numbers:
        at = np.searchsorted(self.ids, ids)
        return np.where(np.append(self.ids, NULL)[at] == ids, at, len(self.ids))

    def symbols_of(self, ids: Numbers) -> pa.Array:
        return self.symbols.take(pa.array(self.rows_of(ids)))


def build_instrument_list(parts: Iterable[Rows], channel: int) -> InstrumentList:
    """From definitions in order."""
    active = [rows.take(np.flatnonzero(rows.column("action") != DELETED)) for rows in parts if len(rows)]
    ids = np.concatenate([np.empty(0, np.int64), *(rows.column("instrument_id") for rows in active)])
    known, newest = np.unique(ids[::-1], return_index=True)
    newest = len(ids) - 1 - newest
    symbols, codes, exchanges = (
        [text for rows in active for text in _texts(rows, name)]
        for name in ("symbol", "security_group", "security_exchange")
    )
    depths = np.concatenate([np.empty(0, np.int64), *(_depths(rows, channel) for rows in active)])
    symbol_array = pa.array([*(symbols[row] for row in newest.tolist()), None], pa.utf8())
    groups = [
        None if (code := codes[row]) is None else (code, exchanges[row] or DEFAULT_EXCHANGE) for row in newest.tolist()
    ]
    return InstrumentList(known, symbol_array, np.append(depths[newest], NULL), [*groups, None])


def _texts(rows: Rows, name: str) -> list[str | None]:
    text = rows.texts.get(name)
    return [None] * len(rows) if text is None else [one or None for one in strings_of(text)]


def _depths(rows: Rows, channel: int) -> Numbers:
    depths, feeds = np.full(len(rows), NULL), rows.lists.get("feeds")
    if feeds is not None:
        definition_rows = np.repeat(np.arange(len(rows)), np.diff(feeds.offsets))
        channel_rows = np.flatnonzero(feeds.columns["channel"][: len(definition_rows)] == channel)[
            ::-1
        ]  # the first one wins
        stated_depths = feeds.columns["depth"][channel_rows]
        depths[definition_rows[channel_rows]] = np.where(stated_depths == NULL_I32, 0, stated_depths)
    return depths
