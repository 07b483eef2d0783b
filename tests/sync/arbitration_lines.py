"""Units as the reference of arbitration sees them, and what it knows of each line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NEAR, RESTART_DISTANCE, IN_A_ROW, REMEMBERED, MAX_REVEALS, ROW_BYTES = 1_000, 64, 8, 65_536, 64, 256
DATA, HEARTBEAT, RESET, RECOVERED = 0, 1, 2, 3
LATE_NS = 1_000_000_000
A, B, C = 0, 1, 2
VERSION, NEXT_VERSION, MS = 7, 8, 1_000_000


class Unit(NamedTuple):
    line: int
    kind: int
    epoch: int
    sequence: int
    next_sequence: int
    ts_recv: int
    content_key: int
    content: bytes

    @property
    def number(self) -> int:
        return self.sequence if self.kind == DATA else self.next_sequence - 1

    @property
    def first(self) -> int:
        """What a channel that starts with this unit expects first."""
        return max(1, self.number + (self.kind != DATA))

    @property
    def cost(self) -> int:
        return ROW_BYTES + (len(self.content) if self.kind == DATA else 0)


@dataclass(eq=False)
class Line:
    epoch: int | None = None
    position: int = 0
    seen: int = 0
    first: int = 1
    reset_key: int = 0
    candidate: Unit | None = None
    conflicts: int = 0
    agreements: int = 0
    is_misaligned: bool = False
    before: int = 0  # its position before its numbering restarted
    restarted_at: int = 0


@dataclass(eq=False)
class Held:
    unit: Unit
    arrival: int
    copy: Unit | None = None  # with other content
    is_contradicted: bool = False


def data(number: int, ms: float, line: int = A, epoch: int = VERSION, name: str = "x") -> Unit:
    content = f"{name}{number}".encode()
    return Unit(line, DATA, epoch, number, 0, int(ms * MS), 1 + sum(content) * 1_000 + number, content)


def heartbeat(following: int, ms: float, line: int = A, epoch: int = VERSION) -> Unit:
    return Unit(line, HEARTBEAT, epoch, 0, following, int(ms * MS), int(ms * MS) + 1, b"")


def reset(ms: float, line: int = A) -> Unit:
    return Unit(line, RESET, 0, 1, 1, int(ms * MS), int(ms * MS) + 1, b"reset")


def requested(number: int, ms: float, name: str = "x") -> Unit:
    """What a replayer returns."""
    return data(number, ms, C, name=name)._replace(kind=RECOVERED)
