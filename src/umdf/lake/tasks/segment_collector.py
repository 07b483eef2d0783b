"""What a survey notes of a file: by split, flow, epoch and date, its sequences and the packets that are refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.tasks.damaged_headers import Headers
from umdf.market.calendar import local_dates
from umdf.market.families import NULL

Numbers = NDArray[np.int64]
MAX_LISTED_PACKETS = 2  # sequences that are listed individually: the plan compares them with other files

NO_CHANNEL = -1  # of packets without a channel number

SegmentKey = tuple[int, int, int, int | None, int]  # split, flow, channel, epoch and date


class SegmentCollector:
    """Segments and refused packets, by split."""

    def __init__(self) -> None:
        self._segments: dict[SegmentKey, list[Any]] = {}
        self._few: dict[SegmentKey, list[tuple[int, int]]] = defaultdict(list)
        self._announced: dict[SegmentKey, tuple[int, int]] = {}
        self._quarantined: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)

    def split_summary(self, split: int) -> dict[str, Any]:
        found = [
            [*key[1:], *values, few if len(few := self._few[key]) <= MAX_LISTED_PACKETS else [], self._announced.get(key)]
            for key, values in self._segments.items()
            if key[0] == split
        ]
        return {"segments": found, "refused": self._quarantined[split]}

    def add_valid(self, flow: int, headers: Headers) -> None:
        for rows, date in _group_by_date(headers):
            part = headers.take(rows) if len(rows) < len(headers.number) else headers
            epoch = int(part.epoch[0])
            key = int(part.split[0]), flow, int(part.channel[0]), None if epoch == NULL else epoch, date
            self._add(key, part, part.number[part.number > 0])
            if (heartbeats := np.flatnonzero(part.announced)).size:
                last = heartbeats[-1]
                self._announced[key] = int(part.announced[last]), int(part.ts_recv[last])

    def add_damaged(self, flow: int, headers: Headers, neighbours: Headers, is_known: bool = True) -> None:
        """`neighbours`: for each, the header of a valid neighbour."""
        if not len(headers.number):
            return
        dates = local_dates(neighbours.sent)
        for row, date in enumerate(dates.tolist()):
            offset, number, split = (int(column[row]) for column in (headers.offset, headers.number, headers.split))
            channel, epoch = (
                (int(neighbours.channel[row]), int(neighbours.epoch[row])) if is_known else (NO_CHANNEL, NULL)
            )
            self._quarantined[split].append((flow, offset, number, date))
            part = headers.take(slice(row, row + 1))
            self._add((split, flow, channel, None if epoch == NULL else epoch, date), part, part.number[:0])

    def _add(self, key: SegmentKey, headers: Headers, numbers: Numbers) -> None:
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (NULL, NULL)
        ts_recv, packets = headers.ts_recv, int(headers.weight.sum())
        new: list[Any] = [low, high, packets, int(ts_recv.min()), int(ts_recv.max())]
        marks = [(high, new[4])] if high != NULL else []
        old, few = self._segments.get(key), self._few[key]
        if len(few) <= MAX_LISTED_PACKETS:
            numbered = headers.number > 0 if len(numbers) else slice(0)
            few += zip(
                headers.offset[numbered][: MAX_LISTED_PACKETS + 1].tolist(),
                numbers[: MAX_LISTED_PACKETS + 1].tolist(),
                strict=True,
            )
        if old is not None:
            firsts = [n for n in (old[0], low) if n != NULL]
            new[0], new[1] = min(firsts, default=NULL), max(old[1], high)
            new[2], new[3], new[4] = old[2] + packets, min(old[3], new[3]), max(old[4], new[4])
            marks = old[5] + marks
        self._segments[key] = [*new, marks]


def _group_by_date(headers: Headers) -> Iterator[tuple[Numbers, int]]:
    """Rows by split, channel, epoch and date; nearly always a single group."""
    if not len(headers.number):
        return
    lowest, highest = local_dates(np.array([headers.sent.min(), headers.sent.max()])).tolist()
    columns = [headers.split, headers.channel, headers.epoch]
    if lowest == highest and all((column == column[0]).all() for column in columns):
        yield np.arange(len(headers.number)), lowest
        return
    dates = local_dates(headers.sent)
    stacked = np.stack([column.astype(np.int64) for column in (*columns, dates)])
    starts = np.flatnonzero(np.append(True, (stacked[:, 1:] != stacked[:, :-1]).any(axis=0)))
    runs: dict[tuple[int, ...], list[Numbers]] = defaultdict(list)  # runs of neighbours in the same group
    for values, low, high in zip(stacked[:, starts].T.tolist(), starts, [*starts[1:], stacked.shape[1]], strict=True):
        runs[tuple(values)].append(np.arange(low, high))
    for values, row_ranges in sorted(runs.items()):
        yield np.concatenate(row_ranges), values[-1]
