"""Snapshots of single instruments within a snapshot stream, and whether they are complete.

A Binary snapshot of an instrument spans packets: a header (30), its orders (71), its statistics, its status. It can be
used only if as many entries arrived as its header states (totNumStats includes the status). A FAST snapshot is one
message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.rows import Events, Rows

STATISTICS = ("statistics", "imbalance", "price_band", "status")  # what totNumStats counts
CLEAR, BID, ASK, LENDING = ord("R"), ord("B"), ord("A"), ord("L")


@dataclass(frozen=True, eq=False)
class Snapshots:
    """One row per snapshot that starts in some events, in order."""

    events: Events
    header: Rows  # family snapshot
    is_complete: NDArray[np.bool_]
    complete_unit: NDArray[np.int64]  # the unit of the last part of each

    def __len__(self) -> int:
        return len(self.header)

    @property
    def instrument_id(self) -> NDArray[np.int64]:
        return self.header.column("instrument_id")

    @property
    def last_sequence(self) -> NDArray[np.int64]:
        return self.header.column("last_sequence")

    @property
    def last_epoch(self) -> NDArray[np.int64]:
        """lastSequenceVersion; NULL if absent."""
        return self.header.column("last_seq_version")

    @cached_property
    def is_lending(self) -> NDArray[np.bool_]:
        """Whether each is a snapshot of a lending book (1500=L)."""
        book, found = self.events.rows("mbo"), np.zeros(len(self) + 1, np.bool_)
        rows = np.flatnonzero(book.column("venue") == LENDING)
        found[_snapshot_of(self.header, book)[rows]] = True
        return found[:-1]

    def only(self, is_selected: NDArray[np.bool_]) -> Snapshots:
        """The same with only these complete."""
        return Snapshots(self.events, self.header, self.is_complete & is_selected, self.complete_unit)

    def compacted(self) -> Snapshots:
        """The complete ones, without the others and their batch."""
        at, events = np.flatnonzero(self.is_complete), self.events_of(self.is_complete)
        used = np.unique(np.concatenate([rows.unit for rows in events.families.values()]))
        events = events.compacted()
        units = np.searchsorted(used, self.complete_unit[at])
        return Snapshots(events, events.rows("snapshot"), self.is_complete[at], units)

    @property
    def incomplete_from(self) -> int:
        """The unit in which the last snapshot starts, if it is not complete yet; otherwise the number of units."""
        if not len(self) or self.is_complete[-1]:
            return len(self.events.units)
        return int(self.header.unit[-1])

    def events_of(self, is_selected: NDArray[np.bool_]) -> Events:
        """All rows of these snapshots: book rows from the clearing row on, statistics, states."""
        masks = {}
        for name, rows in self.events.families.items():
            if name != "control":
                at = _snapshot_of(self.header, rows)
                masks[name] = (at >= 0) & is_selected[at]
        return self.events.take(masks)


@dataclass(frozen=True, eq=False)
class GroupPhases:
    """Phases of groups on a snapshot stream. They have no sequence of their own: they are as of some sequence between
    those of the snapshots before (`after`) and behind (`until`) them, because a snapshot stream never goes back."""

    events: Events  # family status, rows without instrument
    after: int
    until: int


def find_snapshots(events: Events) -> Snapshots:
    """The snapshots that start in these events of one snapshot stream, in wire order."""
    header = events.rows("snapshot")
    count = len(header)
    bids, offers, stats = np.zeros((3, count + 1), np.int64)
    book = events.rows("mbo")
    at = _snapshot_of(header, book)
    complete_unit = header.unit.astype(np.int64)
    np.maximum.at(complete_unit, at[at >= 0], book.unit[at >= 0].astype(np.int64))
    side, is_order = book.column("side"), book.column("action") != CLEAR
    for found, which in ((bids, BID), (offers, ASK)):
        np.add.at(found, at[is_order & (side == which)], 1)
    for name in STATISTICS:
        rows = events.rows(name)
        at = _snapshot_of(header, rows)
        np.add.at(stats, at, 1)
        np.maximum.at(complete_unit, at[at >= 0], rows.unit[at >= 0].astype(np.int64))
    is_complete = np.ones(count, np.bool_)
    for found, total in ((bids, "total_bids"), (offers, "total_offers"), (stats, "total_stats")):
        stated = header.column(total)
        is_complete &= (stated == NULL) | (stated == found[:count])
    return Snapshots(events, header, is_complete, complete_unit)


def _snapshot_of(header: Rows, rows: Rows) -> NDArray[np.int64]:
    """For each row its snapshot, by position in the stream and instrument; -1 for none."""
    if not len(header) or not len(rows):
        return np.full(len(rows), -1, np.int64)
    at = np.searchsorted(header.wire_order, rows.wire_order, side="right") - 1
    mine = rows.column("instrument_id") == header.column("instrument_id")[at]
    return np.where(mine & (at >= 0), at, -1)
