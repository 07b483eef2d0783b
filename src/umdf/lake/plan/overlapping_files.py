"""Files that recorded the same multicast group at the same time: whose packets are read first.

Invariant: the order of two files depends on their content only. Files that follow each other, as those of a recorder
do, do not overlap and cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from umdf.lake.tasks.survey import SEGMENT_FIELDS, SPLIT_FIELDS

if TYPE_CHECKING:
    from umdf.lake.plan.segments import MulticastGroup

FLOW, TS_FIRST, TS_LAST = (SEGMENT_FIELDS.index(name) for name in ("flow", "ts_first", "ts_last"))
FileOrder = tuple[int, str]  # first receive time, digest


class _SplitTimes(NamedTuple):
    """When the packets of a group in one split of a file were received."""

    order: FileOrder
    split: int
    ts_first: int
    ts_last: int


class OverlappingFiles:
    def __init__(self, surveys: Iterable[dict[str, Any]], paths: Mapping[str, str]) -> None:
        self._paths, self._surveys = paths, {survey["digest"]: survey for survey in surveys}
        self._orders: dict[tuple[str, MulticastGroup], FileOrder] = {}
        self._splits: dict[MulticastGroup, list[_SplitTimes]] = {}
        self._ends: dict[MulticastGroup, list[int]] = {}  # the latest time in this split and those before it
        by_group: dict[MulticastGroup, list[tuple[str, int, int, int]]] = defaultdict(list)
        for digest, survey in self._surveys.items():
            for (split, flow), times in _split_times(survey).items():
                by_group[tuple(survey["flows"][flow])].append((digest, split, *times))  # type: ignore[index]
        for group, found in by_group.items():
            for digest, _, ts_first, _ in found:
                order = ts_first, digest
                self._orders[digest, group] = min(self._orders.get((digest, group), order), order)
            self._splits[group] = sorted(_SplitTimes(self._orders[each[0], group], *each[1:]) for each in found)
            self._ends[group] = list(accumulate((each.ts_last for each in self._splits[group]), max))

    def order(self, digest: str, group: MulticastGroup) -> FileOrder:
        """Sorts the files of a group."""
        return self._orders[digest, group]

    def source_fields(self, digest: str, split: int, group: MulticastGroup) -> dict[str, Any]:
        """Fields of a task's source (umdf.lake.tasks.flow_packets.SplitSource)."""
        offset_ns = clock_offset(self._surveys[digest], group)
        return {"earlier": self._earlier(digest, split, group), "clock_offset_ns": offset_ns}

    def _earlier(self, digest: str, split: int, group: MulticastGroup) -> list[dict[str, Any]]:
        """The splits of files before this one that have packets of the group from the same time."""
        splits, order = self._splits[group], self._orders[digest, group]
        end = bisect_left(splits, order, key=lambda each: each.order)
        own = next(each for each in splits[end:] if each.split == split)
        found = []
        while end and self._ends[group][end - 1] >= own.ts_first:
            end -= 1
            if splits[end].ts_first <= own.ts_last and splits[end].ts_last >= own.ts_first:
                found.append(self._to_json(splits[end]))
        return found

    def precedes_known(self, group: MulticastGroup, new_digests: Collection[str]) -> bool:
        """Whether a new file has packets from the same time as a known one and comes before it."""
        newest_end = None
        for each in self._splits.get(group, ()):
            is_new = each.order[1] in new_digests
            if not is_new and newest_end is not None and each.ts_first <= newest_end:
                return True
            if is_new:
                newest_end = max(newest_end or each.ts_last, each.ts_last)
        return False

    def _to_json(self, split_times: _SplitTimes) -> dict[str, Any]:
        _, digest = split_times.order
        split = self._surveys[digest]["splits"][split_times.split]
        return {
            "digest": digest,
            "path": self._paths[digest],
            "split": {name: split[name] for name in SPLIT_FIELDS},
        }


def clock_offset(survey: dict[str, Any], group: MulticastGroup) -> int | None:
    """Offset of the clock that timed the packets of a group."""
    return next(
        (offset for flow, offset in survey.get("clock_offsets", ()) if tuple(survey["flows"][flow]) == group), None
    )


def _split_times(survey: dict[str, Any]) -> dict[tuple[int, int], tuple[int, int]]:
    """First and last receive time, by split and flow."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, split in enumerate(survey.get("splits", [])):
        for segment in split["segments"]:
            first, last = segment[TS_FIRST], segment[TS_LAST]
            low, high = found.get((number, segment[FLOW]), (first, last))
            found[number, segment[FLOW]] = min(low, first), max(high, last)
    return found
