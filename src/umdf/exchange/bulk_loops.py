"""The looping streams of a bulk capture: the list of instruments, and snapshots of all books.

A loop of snapshots goes out in parts, each of the market as it is then, so that a loop has several sequence numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_market import Indices, Lines, Market
from umdf.exchange.bulk_publisher import INSTRUMENTS, SNAPSHOTS, Piece

PARTS = 4  # of a loop


class Loops:
    """What has been said on the incremental stream must be handed over before any of these is called."""

    def __init__(self, market: Market, phase: Indices, publish: Callable[[Piece], None]) -> None:
        self._market, self._phase, self._publish = market, phase, publish
        self._at = self._total = 0  # the next instrument of the loop at hand; snapshots in it

    @property
    def is_going_on(self) -> bool:
        return self._total > 0

    def list_instruments(self) -> None:
        """All definitions, and the mark that the loop starts again."""
        which, listing = np.flatnonzero(self._market.alive), self._market.listing
        lines = self._lines(
            k.DEFINITION,
            len(which),
            id=which,
            instrument=listing.security_id[which],
            code=ord("A"),
            size=len(which),
            other=listing.lot[which],  # as it is now: it may change before this is encoded
            position=np.arange(len(which)) == len(which) - 1,
        )
        lines = np.concatenate([lines, self._lines(k.SEQUENCE_RESET)])
        self._publish(Piece(INSTRUMENTS, lines, self._market.now, starts_loop=True))

    def go_on(self) -> None:
        """The next part of a loop of snapshots, perhaps the first of a new one."""
        market, starts, pieces = self._market, not self.is_going_on, list[Lines]()
        if starts:
            self._at, self._total = 0, int(market.alive.sum())
            groups = np.arange(len(self._phase))
            pieces.append(self._lines(k.GROUP_PHASE, len(groups), id=groups, aux=self._phase, flags=k.SNAPSHOT))
        total, count = self._total, len(market.listing)
        lines, self._at = market.snapshots(self._at, min(self._at + -(-count // PARTS), count))
        pieces.append(lines)
        if self._at == count:
            pieces.append(self._lines(k.SEQUENCE_RESET))
            self._total = 0
        self._publish(Piece(SNAPSHOTS, np.concatenate(pieces), market.now, starts, total))

    def _lines(self, kind: int, count: int = 1, **columns: Any) -> Lines:
        """Lines that move nothing."""
        lines = np.full((count, k.LINE), k.NULL, np.int64)
        lines[:, k.KIND], lines[:, k.SIDE], lines[:, k.FLAGS] = kind, k.NEITHER, 0
        lines[:, k.TS] = self._market.now
        for name, values in columns.items():
            lines[:, getattr(k, name.upper())] = values
        return lines
