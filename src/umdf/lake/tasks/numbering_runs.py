"""Where the messages of a FAST line begin to be numbered anew, also if the SequenceReset that says so was lost (4.2.8).

FAST states no epoch. A line numbers anew if messages far below its position follow each other, are near 1, and are not
known: those that come again later have the bytes that they had before. The distances are those of the arbitration of
live lines (umdf.sync.arbitration_lines_kernel).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.lake.tasks.damaged_headers import Headers
from umdf.sync.arbitration_lines_kernel import MAX_DISTANCE, RESTART_DISTANCE

Numbers = NDArray[np.int64]
UNKNOWN = 0  # a content that is not known


class NumberingRun(NamedTuple):
    """Messages of a line in a file, between two restarts of its numbering."""

    ts_recv: int  # of the first message
    ts_send: int  # the same, in the exchange's clock
    first: int
    ts_last: int
    last: int  # the highest number


def is_restart(position: int, number: int) -> bool:
    """Whether messages from this number on may be a new numbering of a line that is at `position`."""
    return number <= MAX_DISTANCE and number < position - RESTART_DISTANCE


class NumberingRuns:
    """Follows the valid messages of one line in a file, in order."""

    def __init__(self) -> None:
        self.runs: list[NumberingRun] = []
        self._contents = np.zeros(MAX_DISTANCE + 1, np.int64)  # of the current run, by number
        self._reset_epoch = 0  # of the current run: that of the last SequenceReset
        self._epoch = 0

    def add(self, headers: Headers, lag_ns: int) -> Headers:
        """The same with the epochs of restarts without a SequenceReset; `lag_ns`: send minus receive time."""
        count, first = len(headers.number), 0
        if not count:
            return headers
        number, epoch = headers.number, headers.epoch.copy()
        while first < count:
            if not self.runs or epoch[first] != self._reset_epoch:
                self._begin(headers, first, lag_ns, int(headers.epoch[first]))
                self._epoch = self._reset_epoch
            changes = np.flatnonzero(headers.epoch[first:] != self._reset_epoch)
            end = first + int(changes[0]) if len(changes) else count
            restart = self._find_restart(number[first:end], headers.content[first:end])
            end = end if restart is None else first + restart
            self._extend(headers, first, end)
            epoch[first:end] = self._epoch
            if restart is not None:
                self._begin(headers, end, lag_ns, self._reset_epoch)
                self._epoch = self.runs[-1].ts_send
                self._extend(headers, end, end + 1)
                epoch[end] = self._epoch
                end += 1
            first = end
        return headers._replace(epoch=epoch)

    def _begin(self, headers: Headers, row: int, lag_ns: int, reset_epoch: int) -> None:
        ts_recv, number = int(headers.ts_recv[row]), int(headers.number[row])
        self.runs.append(NumberingRun(ts_recv, ts_recv + lag_ns, number, ts_recv, number))
        self._contents[:], self._reset_epoch = UNKNOWN, reset_epoch

    def _extend(self, headers: Headers, first: int, end: int) -> None:
        if end == first:
            return
        number, content = headers.number[first:end], headers.content[first:end]
        low = np.flatnonzero((content != UNKNOWN) & (number <= MAX_DISTANCE))[::-1]  # the first copy counts
        if len(low):
            new = low[self._contents[number[low]] == UNKNOWN]
            self._contents[number[new]] = content[new]
        run = self.runs[-1]
        last, ts_last = max(run.last, int(number.max())), max(run.ts_last, int(headers.ts_recv[first:end].max()))
        self.runs[-1] = run._replace(last=last, ts_last=ts_last)

    def _find_restart(self, number: Numbers, content: Numbers) -> int | None:
        """The row where the line is numbered anew, if there is one."""
        position = np.maximum.accumulate(np.append(self.runs[-1].last, number))
        below = np.flatnonzero((number <= MAX_DISTANCE) & (number < position[:-1] - RESTART_DISTANCE))
        for row in below.tolist():
            known = int(self._contents[number[row]]) or _first_content(number[:row], content[:row], int(number[row]))
            is_known = known != UNKNOWN and known == content[row]
            is_followed = row + 1 == len(number) or is_restart(int(position[row]), int(number[row + 1]))
            if not is_known and is_followed:
                return row
        return None


def _first_content(number: Numbers, content: Numbers, wanted: int) -> int:
    rows = np.flatnonzero((number == wanted) & (content != UNKNOWN))
    return int(content[rows[0]]) if len(rows) else UNKNOWN
