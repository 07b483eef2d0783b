"""Where the packets of a stream go: a sink. Files are one (`rolling_captures`), a network that loses packets wraps
others (`faulty_lines`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Packets:
    buffer: NDArray[np.uint8]
    start: Numbers
    end: Numbers
    ts_ns: Numbers  # when they are sent; behind a network, when they arrive
    first_sequence: Numbers  # of the first message (FAST) or of the packet (Binary), 0 where it has none
    last_sequence: Numbers

    def __len__(self) -> int:
        return len(self.start)

    def at(self, ts_ns: Numbers) -> Packets:
        """The same packets at other times."""
        return replace(self, ts_ns=ts_ns)

    def select(self, chosen: Any) -> Packets:
        """Some of the packets, by mask or index."""
        columns = ("start", "end", "ts_ns", "first_sequence", "last_sequence")
        return replace(self, **{name: getattr(self, name)[chosen] for name in columns})


class Sink(Protocol):
    def write(self, packets: Packets) -> None:
        """Take packets, in order of time."""
        ...

    def advance(self, now_ns: int) -> None:
        """Do what is due by the time of the exchange, although there are no packets."""
        ...

    def close(self) -> None: ...
