"""What could not be used, and why: datagrams, messages of them, and stretches of damaged files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.lake.ledger import file_id
from umdf.transport.capture import PacketBatch
from umdf.transport.damage import Damage

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


def damage_of(survey: dict[str, Any]) -> list[Damage]:
    """What is wrong with a file, by its survey."""
    return [Damage(survey["path"], *each) for each in survey["warnings"]]


def damage_rows(surveys: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same as rows of `quarantine`."""
    return [
        {
            "file_id": file_id(survey["digest"]),
            "file_offset": damage.offset,
            "reason": damage.reason,
            "size_bytes": damage.unread_bytes or None,
        }
        for survey in surveys
        for damage in damage_of(survey)
    ]
