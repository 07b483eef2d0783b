"""Datagrams, and messages of them, that could not be used: what is kept of them, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.transport.capture import PacketBatch

if TYPE_CHECKING:
    from umdf.lake.gather import Found


class Refused(NamedTuple):
    """A datagram, or a message of it, that could not be used."""

    source: int
    offset: int
    ts_recv: int
    number: int  # 0 where it has none
    reason: str
    content: bytes


def refused_of(source: int, batch: PacketBatch, found: Found, some: NDArray[np.bool_]) -> list[Refused]:
    """Those of some datagrams for which there is a reason."""
    refused = []
    for row in np.flatnonzero(some).tolist():
        if reason := found.reasons.get(row, ""):
            about = int(batch.offset[row]), int(batch.ts_ns[row]), int(found.number[row])
            refused.append(Refused(source, *about, reason, batch.payload(row)))
    return refused
