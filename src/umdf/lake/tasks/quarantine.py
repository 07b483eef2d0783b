"""Unusable input, with reasons: packets, messages, and damaged ranges of files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.lake.commit.ledger import file_id
from umdf.transport.capture import PacketBatch
from umdf.transport.damage import Damage

if TYPE_CHECKING:
    from umdf.lake.tasks.flow_packets import FlowPackets


class QuarantineEntry(NamedTuple):
    """An unusable packet or message."""

    source: int
    offset: int
    ts_recv: int
    number: int  # 0 if it has none
    reason: str
    content: bytes


def quarantine_entries(
    source: int, batch: PacketBatch, packets: FlowPackets, is_selected: NDArray[np.bool_]
) -> list[QuarantineEntry]:
    """Entries for those of the selected packets that have a reason."""
    entries = []
    for row in np.flatnonzero(is_selected).tolist():
        if reason := packets.reasons.get(row, ""):
            location = int(batch.offset[row]), int(batch.ts_ns[row]), int(packets.number[row])
            entries.append(QuarantineEntry(source, *location, reason, batch.payload(row)))
    return entries


def damage_of(survey: dict[str, Any]) -> list[Damage]:
    """Damage of a file, from its survey."""
    return [Damage(survey["path"], *each) for each in survey["warnings"]]


def damage_rows(surveys: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Damage of files as rows of `quarantine`."""
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
