"""Copies of a packet on several lines: whether they are the same.

The one rule: copies of a Binary packet were sent at the same time. Where two packets have one number and were not, the
number of one of them is damaged, in a way that its neighbours did not show (umdf.lake.misfits).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import address_of
from umdf.lake import copies_kernel as k
from umdf.market.events import NULL

FALSE_NUMBER = "it has the number of another packet"
Numbers = NDArray[np.int64]
Copy = tuple[str, int, int]  # digest, offset and number


class Copies:
    """Of the numbers from `base` on; `doubtful` are those of which every copy is wanted."""

    def __init__(self, base: int, room: int, doubtful: frozenset[int] = frozenset()) -> None:
        self.doubtful = set(doubtful)  # numbers whose copies were sent at different times
        self._base = base
        self._sent = np.full(room, NULL)
        self._of: dict[int, dict[int, list[Copy]]] = {number: {} for number in doubtful}  # by ts_send

    def take(self, digest: str, offset: Numbers, number: Numbers, ts_send: Numbers) -> None:
        """FAST says no time here: a message has its number in its body, too."""
        for row in np.flatnonzero(np.isin(number, [*self._of])).tolist() if self._of else ():
            copies = self._of[int(number[row])].setdefault(int(ts_send[row]), [])
            copies.append((digest, int(offset[row]), int(number[row])))
        at = number - self._base
        known = self._sent[at]
        self._sent[at] = np.where(known == NULL, ts_send, known)
        self.doubtful.update(number[self._sent[at] != ts_send].tolist())

    def first(self, number: Numbers, came: Numbers, line: NDArray[np.uint8]) -> Numbers:
        """`first_copies` of numbers from `base` on, by their number."""
        first = np.full(len(self._sent), -1)
        k.first_copies(*map(address_of, (number, came, line)), len(number), self._base, address_of(first))
        return first[first >= 0]

    def false(self) -> frozenset[Copy]:
        """Of the numbers in doubt: that copy is right that was sent between its neighbours, or else most of them."""
        wrong: list[Copy] = []
        for number, copies in self._of.items():
            at = number - self._base
            early, late = (self._sent[place] if 0 <= place < len(self._sent) else NULL for place in (at - 1, at + 1))
            fits = [sent for sent in copies if early <= sent and (late == NULL or sent <= late)]
            often = max(map(len, copies.values()), default=0)
            right = fits if len(fits) == 1 else [sent for sent, some in copies.items() if len(some) == often]
            if len(right) == 1:
                wrong += [copy for sent, some in copies.items() if sent != right[0] for copy in some]
        return frozenset(wrong)


def first_copies(key: Numbers, came: Numbers, line: NDArray[np.uint8]) -> Numbers:
    """Of the copies of each key that which came first; of those that came together that of the first line."""
    order = np.lexsort((line, came, key))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = key[order][1:] != key[order][:-1]
    return order[begins]
