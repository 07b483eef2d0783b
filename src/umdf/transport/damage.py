"""Damaged parts of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_LISTED = 10  # damaged places of a file that are listed individually


@dataclass(frozen=True)
class Damage:
    """A damaged part of a file: the offset is that of the record in the (decompressed) file."""

    file: str
    offset: int
    reason: str
    unread_bytes: int = 0  # from there on

    def __str__(self) -> str:
        return f"{self.file}: at offset {self.offset}: {self.text}"

    @property
    def text(self) -> str:
        """The reason, and the number of unread bytes."""
        if not self.unread_bytes:
            return self.reason
        return f"{self.reason}; {self.unread_bytes:,} bytes unread, up to offset {self.offset + self.unread_bytes}"


def damage_messages(damages: Iterable[Damage]) -> list[str]:
    """One sentence per damaged place of a file; if there are many, for the first ones, and one for the rest."""
    every = list(damages)
    first, rest = every[:MAX_LISTED], every[MAX_LISTED:]
    if not rest:
        return [*map(str, first)]
    unread = sum(damage.unread_bytes for damage in every)
    more = f"{rest[0].file}: {len(rest):,} more damaged places, from offset {rest[0].offset} on"
    return [*map(str, first), f"{more}; {unread:,} bytes of the file unread in all"]
