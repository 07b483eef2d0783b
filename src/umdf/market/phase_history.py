"""Which phase a group was in, as of which sequences of the incremental stream: its messages say when it changed, and
snapshot loops repeat it.

Invariant: all messages of the group that were received, from `forgotten` on, are here, so between two entries the phase
has changed only if a message was lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter

MAX_ENTRIES = 16  # what is compared with them is older than the last message by a few at most

IsUnbroken = Callable[[int, int], bool]  # whether nothing is missing behind a sequence and up to another one
_sequence = itemgetter(0)


@dataclass(slots=True)
class PhaseHistory:
    entries: list[tuple[int, int, bool]] = field(default_factory=list)  # sequence, phase, whether it changed there
    forgotten: int = -1  # the last sequence of which an entry was dropped

    def note(self, sequence: int, phase: int, *, is_change: bool) -> None:
        """A message changed the phase, or a snapshot of this sequence stated it."""
        entry = sequence, phase, is_change
        if entry not in self.entries:
            insort(self.entries, entry, key=_sequence)
        if len(self.entries) > MAX_ENTRIES:
            self.forgotten = self.entries.pop(0)[0]

    def note_shown(self, after: int, until: int, phase: int, is_unbroken: IsUnbroken) -> None:
        """A snapshot loop showed the phase as of one of these sequences. If it may have changed between them, nobody
        knows whether that was before or after it."""
        if is_unbroken(after, until) and not any(
            is_change and after < at <= until for at, _, is_change in self.entries
        ):
            for sequence in (after, until):
                self.note(sequence, phase, is_change=False)

    def forget_from(self, sequence: int) -> None:
        """What was noted with this sequence or later may be wrong."""
        at = bisect_left(self.entries, sequence, key=_sequence)
        if at < len(self.entries):
            self.forgotten = max(self.forgotten, self.entries[-1][0])
            del self.entries[at:]

    def last_until(self, sequence: int) -> int | None:
        """The phase of the last entry up to a sequence."""
        at = bisect_right(self.entries, sequence, key=_sequence)
        return self.entries[at - 1][1] if at else None

    def as_of(self, sequence: int, is_unbroken: IsUnbroken) -> int | None:
        """The phase, if it is certain: it did not change since the entry before, or until the one behind."""
        at = bisect_right(self.entries, sequence, key=_sequence)
        if at and is_unbroken(self.entries[at - 1][0], sequence):
            return self.entries[at - 1][1]
        if at < len(self.entries) and sequence >= self.forgotten:
            shown, phase, is_change = self.entries[at]
            if not is_change and is_unbroken(sequence, shown):
                return phase
        return None
