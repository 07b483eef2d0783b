"""Packets that stand alone in their file: whether their sequence is sound is decided by the other files.

A survey finds a damaged header by the packets around it in the same file (umdf.lake.tasks.damaged_headers). A file or a
split that has one or two packets of an epoch decides nothing.

Invariant: such a sequence counts if another split, of whatever line, has one near it; else, where there are others to
go by at all, it is quarantined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.tasks.damaged_headers import MAX_FIRST_SEQUENCE, MAX_OVERTAKING
from umdf.market.families import NULL

if TYPE_CHECKING:
    from umdf.lake.plan.segments import MulticastGroup, Segment

UnconfirmedPackets = list[tuple["Segment", int, int]]  # and the packet's offset and number


def exclude_unconfirmed(
    segments: Sequence[Segment], stream_lines: Mapping[MulticastGroup, Any]
) -> tuple[list[Segment], UnconfirmedPackets]:
    """The segments of a channel without numbers that nothing confirms, and those."""
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
