"""Where the messages of a FAST line begin to be numbered anew, also if the SequenceReset that says so was lost (4.2.8).

FAST states no epoch. A line numbers anew if several messages in a row are near 1 and far below its position, and none
of them was merely late: nearby numbers must have come before, with other bytes. The distances are those of the
arbitration of live lines (umdf.sync.arbitration.lines_kernel).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.lake.tasks.damaged_headers import NO_HEADERS, Headers, concat_headers
from umdf.sync.arbitration.delivery_kernel import MISALIGNED_AFTER
from umdf.sync.arbitration.lines_kernel import MAX_DISTANCE, is_restart

Numbers = NDArray[np.int64]
UNKNOWN = 0  # a content that is not known
FOLLOWING = MISALIGNED_AFTER  # messages in a row that show a restart, fewer only at the end of a file


class NumberingRun(NamedTuple):
    """Messages of a line in a file, between two restarts of its numbering."""

    ts_recv: int  # of the first message
    ts_send: int  # the same, in the exchange's clock
    first: int  # the highest number of its first messages: single ones may be late
    ts_last: int
    last: int  # the highest number


class NumberingRuns:
    """Follows the valid messages of one line in a file, in order."""

    def __init__(self) -> None:
        self.runs: list[NumberingRun] = []
        self._contents = np.zeros(MAX_DISTANCE + 1, np.int64)  # of the current run, by number
        self._reset_epoch = 0  # of the current run: that of the last SequenceReset
        self._epoch = 0
        self._undecided = NO_HEADERS

    def add(self, new: Headers | None, lag_ns: int) -> Headers:
        """The messages that can be decided now, with the epochs of restarts without a SequenceReset; `lag_ns`: send
        minus receive time. None: there are no more."""
        parts = [part for part in (self._undecided, new) if part is not None and len(part.number)]
        if not parts:
            return NO_HEADERS
        every = concat_headers(parts) if len(parts) > 1 else parts[0]
        count, first = len(every.number), 0
        if new is not None:
            count = max(count - FOLLOWING, 0)
        headers, self._undecided = every.take(slice(0, count)), every.take(slice(count, None))
        following = every.number
        epoch = headers.epoch.copy()
        while first < count:
            if not self.runs or epoch[first] != self._reset_epoch:
                self._begin(headers, first, following, lag_ns)
                self._epoch = self._reset_epoch
            changes = np.flatnonzero(headers.epoch[first:] != self._reset_epoch)
            end = first + int(changes[0]) if len(changes) else count
            restart = self._find_restart(following[first:], headers.content[first:end])
            end = end if restart is None else first + restart
            self._extend(headers, first, end)
            epoch[first:end] = self._epoch
            if restart is not None:
                self._begin(headers, end, following, lag_ns)
                self._epoch = self.runs[-1].ts_send
                self._extend(headers, end, end + 1)
                epoch[end] = self._epoch
                end += 1
            first = end
        return headers._replace(epoch=epoch)

    def _begin(self, headers: Headers, row: int, following: Numbers, lag_ns: int) -> None:
        ts_recv, number = int(headers.ts_recv[row]), int(headers.number[row])
        first = int(following[row : row + FOLLOWING].max())
        self.runs.append(NumberingRun(ts_recv, ts_recv + lag_ns, first, ts_recv, number))
        self._contents[:], self._reset_epoch = UNKNOWN, int(headers.epoch[row])

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
        """The row where the line is numbered anew, if there is one; `number` has those that follow, too."""
        count = len(content)
        position = np.maximum.accumulate(np.append(self.runs[-1].last, number[:count]))[:-1]
        low = np.flatnonzero(is_restart(position, number[:count]))
        for row in low.tolist():
            here, before = int(number[row]), int(position[row])
            known = int(self._contents[here]) or _first_content(number[:row], content[:row], here)
            if known == UNKNOWN or content[row] == UNKNOWN:
                is_other = before - here > MAX_DISTANCE
            else:
                is_other = known != content[row]
            if is_other and all(is_restart(before, each) for each in number[row + 1 : row + FOLLOWING].tolist()):
                return row
        return None


def _first_content(number: Numbers, content: Numbers, wanted: int) -> int:
    rows = np.flatnonzero((number == wanted) & (content != UNKNOWN))
    return int(content[rows[0]]) if len(rows) else UNKNOWN
