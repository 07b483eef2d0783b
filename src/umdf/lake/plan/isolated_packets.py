"""Isolated packets of a file: other files decide whether their sequence is plausible.

A survey finds a damaged header by comparing it with the packets around it in the same file
(umdf.lake.tasks.damaged_headers). That is impossible if a file or split has only one or two packets of an epoch.

Invariant: such a sequence counts if another split, of any line, has one near it; otherwise, if there is anything to
compare with, the packet is quarantined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.tasks.damaged_headers import MAX_FIRST_SEQUENCE, MAX_OVERTAKING
from umdf.market.families import NULL

if TYPE_CHECKING:
    from umdf.lake.plan.segments import MulticastGroup, Segment

UnconfirmedPackets = list[tuple["Segment", int, int]]  # with the packet's offset and sequence


def exclude_unconfirmed(
    segments: Sequence[Segment], stream_lines: Mapping[MulticastGroup, Any]
) -> tuple[list[Segment], UnconfirmedPackets]:
    """The segments of a channel without unconfirmed sequences, and the unconfirmed packets."""
    by_date: dict[int, list[Segment]] = defaultdict(list)
    for part in segments:
        if part.first != NULL and stream_lines[part.group].stream == "incremental":
            by_date[part.date].append(part)
    found, unconfirmed = [], []
    for part in segments:
        others = by_date[part.date]
        wrong = []
        if part.few and stream_lines[part.group].stream == "incremental" and any(not other.few for other in others):
            wrong = [(offset, number) for offset, number in part.few if not _is_confirmed(part, number, others)]
        unconfirmed += [(part, *each) for each in wrong]
        confirmed = [number for _, number in part.few if number not in {number for _, number in wrong}]
        if wrong:
            range_ = {"first": min(confirmed, default=NULL), "last": max(confirmed, default=NULL)}
            marks = [mark for mark in part.marks if mark[0] in confirmed]
            part = part._replace(marks=marks, **range_)  # type: ignore[arg-type]
        found.append(part)
    return found, unconfirmed


def _is_confirmed(part: Segment, number: int, others: Sequence[Segment]) -> bool:
    near = (
        other.first - MAX_OVERTAKING <= number <= other.last + MAX_OVERTAKING
        for other in others
        if other is not part and other.epoch == part.epoch
    )
    return (
        number <= MAX_FIRST_SEQUENCE
        or any(near)
        or any(0 < abs(number - other) <= MAX_OVERTAKING for _, other in part.few)
    )
