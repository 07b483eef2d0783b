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

    def __init__(self, base: int, size: int, own: range, sources: Sequence[tuple[str, int]]) -> None:
        """Sequences from `base` on; those in `own` are counted. `sources`: digest and line of each."""
        self._base, self._own, self._sources = base, own, sources
        self._hash = np.zeros(size, np.int64)
        self._source = np.full(size, _NO_SOURCE, np.int32)
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}  # by both sources: compared, different
        self.contradicted = set[int]()  # sequences whose copies differ

    def add(self, source: int, sequence: Numbers, content: Numbers) -> None:
        """`content`: a hash of each unit."""
        at = sequence - self._base
        first_source = self._source[at]
        is_new = first_source == _NO_SOURCE
        if is_new.any():
            self._hash[at[is_new]], self._source[at[is_new]] = content[is_new], source
        is_different = self._hash[at] != content
        if is_different.any():
            self.contradicted.update(sequence[is_different].tolist())
        counted = ~is_new & (sequence >= self._own.start) & (sequence < self._own.stop)
        if not counted.any():
            return
        compared = np.bincount(first_source[counted], minlength=len(self._sources))
        different = np.bincount(first_source[counted & is_different], minlength=len(self._sources))
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
