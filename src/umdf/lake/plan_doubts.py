"""Packets that stand alone in their file: whether their number is sound is told by the other files.

A survey tells a damaged header by the packets around it in the same file (umdf.lake.misfits). A file or a split that
has one or two packets of a numbering tells nothing. The one rule: such a number counts if another split, of whatever
line, has one near it; else, where there are others to go by at all, it is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.misfits import FRESH, NEAR
from umdf.market.events import NULL

if TYPE_CHECKING:
    from umdf.lake.segments import Group, Segment

Doubtful = list[tuple["Segment", int, int]]  # and the packet's offset and number


def settled(segments: Sequence[Segment], places: Mapping[Group, Any]) -> tuple[list[Segment], Doubtful]:
    """The segments of a channel without numbers that nothing confirms, and those."""
    by_date: dict[int, list[Segment]] = defaultdict(list)
    for part in segments:
        if part.first != NULL and places[part.group].role == "incremental":
            by_date[part.date].append(part)
    found, doubtful = [], []
    for part in segments:
        others = by_date[part.date]
        wrong = []
        if part.few and places[part.group].role == "incremental" and any(not other.few for other in others):
            wrong = [(offset, number) for offset, number in part.few if not _is_confirmed(part, number, others)]
        doubtful += [(part, *each) for each in wrong]
        left = [number for _, number in part.few if number not in {number for _, number in wrong}]
        if wrong:
            range_ = {"first": min(left, default=NULL), "last": max(left, default=NULL)}
            marks = [mark for mark in part.marks if mark[0] in left]
            part = part._replace(marks=marks, **range_)  # type: ignore[arg-type]
        found.append(part)
    return found, doubtful


def _is_confirmed(part: Segment, number: int, others: Sequence[Segment]) -> bool:
    near = (
        other.first - NEAR <= number <= other.last + NEAR
        for other in others
        if other is not part and other.epoch == part.epoch
    )
    return number <= FRESH or any(near) or any(0 < abs(number - other) <= NEAR for _, other in part.few)
