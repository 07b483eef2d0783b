"""Whether copies of a unit in different files are the same: two recordings of different sessions are not.

Damage changes single copies, and no others near them (umdf.lake.tasks.duplicates decides which copy counts). Where many
sequences have different contents in two files, these are no copies of one feed, and merging them would be arbitrary.

Invariant: counts of tasks can be added, because each compares only the sequences of its own span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

MIN_CONTRADICTIONS = 16  # fewer are damage
# Which share of the compared sequences is too much for damage: between files of one line, and of two lines.
MAX_SHARE, MAX_SHARE_OTHER_LINE = 0.01, 0.5
_NO_SOURCE = -1


class Comparison(NamedTuple):
    """How many sequences two files have in common, and how many of these have different contents."""

    digest: str
    other_digest: str
    line: int
    other_line: int
    compared: int
    different: int

    @property
    def is_systematic(self) -> bool:
        share = MAX_SHARE if self.line == self.other_line else MAX_SHARE_OTHER_LINE
        return self.different >= MIN_CONTRADICTIONS and self.different > share * self.compared


class ContentComparer:
    """Compares every copy of a sequence with the first one that was read."""

    def __init__(self, first: int, last: int, sources: Sequence[tuple[str, int]]) -> None:
        """`sources`: digest and line of each."""
        self._first, self._last, self._sources = first, last, sources
        self._hash = np.zeros(last - first + 1, np.int64)
        self._source = np.full(last - first + 1, _NO_SOURCE, np.int32)
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}  # by both sources: compared, different

    def add(self, source: int, sequence: Numbers, content: Numbers) -> None:
        """`content`: a hash of each unit."""
        is_own = (sequence >= self._first) & (sequence <= self._last)
        if not is_own.all():
            sequence, content = sequence[is_own], content[is_own]
        at = sequence - self._first
        first_source = self._source[at]
        is_new = first_source == _NO_SOURCE
        if is_new.any():
            self._hash[at[is_new]], self._source[at[is_new]] = content[is_new], source
        if is_new.all():
            return
        is_different = self._hash[at] != content
        compared = np.bincount(first_source[~is_new], minlength=len(self._sources))
        different = np.bincount(first_source[~is_new & is_different], minlength=len(self._sources))
        for other in np.flatnonzero(compared).tolist():
            counts = self._counts.get((other, source), (0, 0))
            self._counts[other, source] = counts[0] + int(compared[other]), counts[1] + int(different[other])

    def comparisons(self) -> list[Comparison]:
        """Of different files."""
        return add_comparisons(
            Comparison(
                self._sources[one][0], self._sources[other][0], self._sources[one][1], self._sources[other][1], *counts
            )
            for (one, other), counts in self._counts.items()
            if self._sources[one][0] != self._sources[other][0]
        )


def add_comparisons(parts: Iterable[Comparison]) -> list[Comparison]:
    """One comparison for each pair of files and lines."""
    totals: dict[tuple[str, str, int, int], tuple[int, int]] = {}
    for part in parts:
        sides = sorted([(part.line, part.digest), (part.other_line, part.other_digest)])
        pair = sides[0][1], sides[1][1], sides[0][0], sides[1][0]
        compared, different = totals.get(pair, (0, 0))
        totals[pair] = compared + part.compared, different + part.different
    return [Comparison(*pair, *counts) for pair, counts in sorted(totals.items())]
