"""The headers of Binary packets, which can be read without decoding what is in them (reference 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.wire.sbe.headers_kernel import gather_headers


@dataclass(frozen=True, eq=False)
class Headers:
    """A row for each packet; zeros for one that is too short to have a header, or too long for UDP."""

    sending_time: NDArray[np.uint64]
    sequence: NDArray[np.uint32]
    seq_version: NDArray[np.uint16]
    channel: NDArray[np.uint8]


def read_headers(buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Headers:
    """The headers of the packets buffer[start[i]:end[i]], all of which lie inside the buffer."""
    assert start.flags.c_contiguous and end.flags.c_contiguous
    packets = len(start)
    columns = [np.empty(packets, kind) for kind in (np.uint64, np.uint32, np.uint16, np.uint8)]
    addresses = [array.ctypes.data for array in (buffer, start, end)]
    gather_headers(*addresses, packets, *(column.ctypes.data for column in columns))
    return Headers(*columns)
