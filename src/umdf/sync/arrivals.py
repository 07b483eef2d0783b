"""Packets of several streams in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umdf.sync.arbitration.arbiter import FOREVER
from umdf.sync.raw_units import RawUnits, concat_units, empty_units

Arrival = tuple[int, int]  # receive time and number of a packet: packets are in this order


@dataclass(frozen=True, eq=False)
class PendingUnits:
    units: RawUnits
    arrivals: list[Arrival]


def in_order(parts: list[PendingUnits]) -> tuple[RawUnits, list[Arrival]]:
    """Units of several lines, in order of arrival."""
    if not parts:
        return empty_units(), []
    units = concat_units([part.units for part in parts])
    arrivals = [at for part in parts for at in part.arrivals]
    if len(parts) > 1 or (len(arrivals) > 1 and np.any(np.diff(units.ts_recv) < 0)):
        order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
        return units.take(np.array(order)), [arrivals[at] for at in order]
    return units, arrivals


def released(row: int, ns: int, arrivals: list[Arrival]) -> Arrival:
    """When something was released: by the arrival of a unit, or behind everything that came until a time ended."""
    return arrivals[row] if row >= 0 else (ns, FOREVER)
