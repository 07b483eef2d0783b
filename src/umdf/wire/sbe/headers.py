"""The headers of Binary packets, which can be read without decoding the messages (reference 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.wire.sbe.headers_kernel import gather_headers


@dataclass(frozen=True, eq=False)
class PacketHeaders:
    """A row for each packet; zeros for one that is too short to have a header, or too long for UDP."""

    sending_time: NDArray[np.uint64]
    sequence: NDArray[np.uint32]
    seq_version: NDArray[np.uint16]
    channel: NDArray[np.uint8]


def read_packet_headers(buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> PacketHeaders:
    """The headers of the packets buffer[start[i]:end[i]]."""
    assert start.flags.c_contiguous and end.flags.c_contiguous and len(start) == len(end)
    packets = len(start)
    sending_time, sequence = np.empty(packets, np.uint64), np.empty(packets, np.uint32)
    seq_version, channel = np.empty(packets, np.uint16), np.empty(packets, np.uint8)
    columns = map(buffer_address, (sending_time, sequence, seq_version, channel))
    source = buffer_address(buffer), len(buffer), buffer_address(start), buffer_address(end), packets
    # They may be read long after decoding: the decoder's checks may no longer hold.
    if gather_headers(*source, *columns) != packets:
        raise ValueError("a packet lies outside the buffer")
    return PacketHeaders(sending_time, sequence, seq_version, channel)
