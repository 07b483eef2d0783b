"""Where the packets of a stream go: a sink. Files are one (`rolling_captures`), UDP is one, several are one
(`TeeSink`), a network that loses packets wraps others (`faulty_lines`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umdf.transport.udp_sender import UdpSender

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


class TeeSink:
    """The same packets to several sinks, in order: the lines of a stream, or a network and files."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def write(self, packets: Packets) -> None:
        for sink in self._sinks:
            sink.write(packets)

    def advance(self, now_ns: int) -> None:
        for sink in self._sinks:
            sink.advance(now_ns)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


class UdpSink:
    """Packets to the network, at once."""

    def __init__(self, sender: UdpSender) -> None:
        self._sender = sender

    def write(self, packets: Packets) -> None:
        self._sender.send(packets.buffer, packets.start, packets.end)

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        self._sender.close()
