"""Reads a capture file with the kernels, chunk by chunk, in memory that does not grow with the file.

Invariant: every byte of the file belongs to its header, to a record, or is unread, with a warning that has its offset
and size. After damage, reading continues at the next plausible record. Only a file that cannot be opened or is not a
capture is an error. A record that is split between chunks is carried to the next chunk.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..buffers import Pool
from ..errors import CaptureError
from . import capture_kernel as k
from . import pcapng_kernel as ng
from .compression import decompressor
from .damage import Damage
from .input_file import open_input
from .resync_kernel import WINDOW, search_pcap, search_pcapng

PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", False),
    b"\x4d\x3c\xb2\xa1": ("<", True),
    b"\xa1\xb2\xc3\xd4": (">", False),
    b"\xa1\xb2\x3c\x4d": (">", True),
}
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
PCAP_HEADER_BYTES = 24
LIBPCAP_MAX_RECORD_BYTES = 256 << 10  # libpcap's limit; a file may declare more
UNLIMITED = np.iinfo(np.int64).max
MOST_DAMAGED = 10_000  # damaged places of a file: with more, searching is not worth the time

REASONS = {
    k.LENGTH_TOO_LARGE: "the record claims {} bytes",
    k.LENGTH_UNALIGNED: "the block claims {} bytes, not a multiple of 4",
    k.LENGTH_SHORT: "the block claims {} bytes, too few for its type",
    k.LENGTH_DIFFERS: "the block's two lengths differ, the second one is {}",
    k.BYTE_ORDER_UNKNOWN: "unknown byte-order magic {:#010x} in the section header",
    k.VERSION_UNKNOWN: "unsupported version {} of the section",
    k.ZERO_FILLED: "zeros instead of a record (probably a crash of the recorder)",
    k.TIME_FAR: "the record's time, second {}, is far from those around it",
    k.FRACTION_INSANE: "the record's fraction of a second is {}",
    k.LENGTH_UNLIKELY: "the record claims {} bytes, and no record follows",
}


def is_magic(start: bytes) -> bool:
    """Whether a file with this start may be a capture."""
    return any(known.startswith(start) for known in (*PCAP_MAGICS, PCAPNG_MAGIC))


@dataclass(frozen=True)
class Header:
    """Everything needed to read on from the start of any record."""

    kind: str  # pcap or pcapng
    big_endian: bool
    nanoseconds: bool = True
    link: int = 0
    longest: int = 0
    snap: int = 0
    interfaces: bytes = field(default=b"", repr=False)  # pcapng: rows of the kernel's table for this section so far


ByteObserver = Callable[[memoryview], object]  # receives the (decompressed) bytes as they are read


class CaptureReader:
    """A file, the chunk in memory, and the kernel's state table."""

    def __init__(
        self, source: str | PathLike[str] | io.BufferedReader, buffer_bytes: int, observer: ByteObserver | None = None
    ) -> None:
        self.path = source.name if isinstance(source, io.BufferedReader) else fspath(source)
        self._observer = observer
        self.warnings: list[Damage] = []
        self.is_finished = False
        self.header: Header | None = None
        self._buffer_bytes = max(buffer_bytes, 64)
        self._pool = Pool(max_buffers=3)
        self._is_exhausted = False
        self._remaining_bytes: int = UNLIMITED  # bytes of the split still to be read
        self.state = np.zeros(k.SLOTS, np.int64)
        self._state_address = self.state.ctypes.data
        self._interfaces = np.zeros(ng.MOST_INTERFACES * ng.INTERFACE_BYTES, np.uint8)
        self.state[k.INTERFACES] = self._interfaces.ctypes.data
        self.state[k.STOP] = UNLIMITED
        self.state[k.FIRST_UNKNOWN_OFFSET] = -1
        self.state[k.SECOND] = -1
        self.stop_at: int = UNLIMITED  # offset in the file
        self._known: list[Damage] = []  # damage known in advance
        self._file = source if isinstance(source, io.BufferedReader) else open_input(source)
        try:
            self.source = decompressor(self._file, self._file.peek(4)[:4])
        except BaseException as error:
            self._file.close()
            if not isinstance(error, OSError):
                raise
            raise CaptureError(
                f"{self.path}: {error.strerror or error}", "check the path and its permissions"
            ) from None

    def close(self) -> None:
        self.is_finished = True
        self._file.close()

    def read_header(self) -> None:
        """Read the first chunk and the file's header."""
        self._fill(self._allocate_buffer(self._buffer_bytes), 0)
        head = self.buffer[: min(PCAP_HEADER_BYTES, self.filled_bytes)].tobytes()
        magic = head[:4]
        if not head and not self.source.damage:
            raise CaptureError(f"{self.path}: the file is empty", "check that the capture was started and closed")
        if magic == PCAPNG_MAGIC:
            self._set_header(Header("pcapng", big_endian=head[8:12] == b"\x1a\x2b\x3c\x4d"))
            return
        if magic in PCAP_MAGICS and len(head) == PCAP_HEADER_BYTES:
            order, nanoseconds = PCAP_MAGICS[magic]
            snap, link = struct.unpack(order + "II", head[16:])
            longest = min(max(snap, LIBPCAP_MAX_RECORD_BYTES), k.MAX_BLOCK_BYTES)
            # Only 16 bits are the type; the upper ones describe a frame checksum, which IP lengths exclude.
            self._set_header(Header("pcap", order == ">", nanoseconds, link & 0xFFFF, longest, snap))
            self.state[k.POSITION] = self.state[k.READ_BYTES] = PCAP_HEADER_BYTES
        elif is_magic(magic):
            reason = self.source.damage or f"the file ends inside its header, after {len(head)} bytes"
            self._warn(0, reason, self.filled_bytes)
            self.is_finished = True
        else:
            raise CaptureError(
                f"{self.path}: not a capture file (it starts with {magic.hex(' ')})",
                "supported: pcap and pcapng, plain or compressed with gzip or zstd",
            )

    def start_split(
        self, header: Header, offset: int, end: int, records: int, damage: Sequence[Damage] | None = None
    ) -> None:
        """Read the first chunk of a split that starts with a record, with known `damage`."""
        try:
            self._file.seek(offset)
        except OSError as error:
            raise CaptureError(
                f"cannot split {self.path}: {error.strerror or error}", "save it to a regular file first"
            ) from None
        self._remaining_bytes = end - offset
        self.state[k.FILE_OFFSET] = offset
        self.state[k.RECORDS] = records
        self._set_header(header)
        if damage is not None:
            self.state[k.TRUSTED] = 1
            self._known = sorted(damage, key=lambda one: -one.offset)
            self.stop_at = self._known[-1].offset if self._known else UNLIMITED
        self._fill(self._allocate_buffer(self._buffer_bytes), 0)

    def _set_header(self, header: Header) -> None:
        self.header = header
        self.state[k.SWAPPED] = header.big_endian
        self.state[k.TICK_NS] = 1 if header.nanoseconds else 1000
        self.state[k.LINK] = header.link
        self.state[k.MAX_RECORD_BYTES] = header.longest
        self.state[k.SNAP] = header.snap
        self.state[k.FRACTIONS] = 1_000_000_000 if header.nanoseconds else 1_000_000
        self.state[k.INTERFACE_COUNT] = len(header.interfaces) // ng.INTERFACE_BYTES
        self._interfaces[: len(header.interfaces)] = np.frombuffer(header.interfaces, np.uint8)
        is_pcap = header.kind == "pcap"
        self._read_records, self._search = (k.walk_pcap, search_pcap) if is_pcap else (ng.walk_pcapng, search_pcapng)
        self._step = 1 if is_pcap else 4  # records start anywhere, blocks at multiples of 4

    def current_header(self) -> Header:
        """Everything needed to continue from the record at which reading stopped."""
        header = cast(Header, self.header)
        if header.kind == "pcap":
            return header
        interfaces = self._interfaces[: int(self.state[k.INTERFACE_COUNT]) * ng.INTERFACE_BYTES].tobytes()
        return Header("pcapng", bool(self.state[k.SWAPPED]), interfaces=interfaces)

    @property
    def filled_bytes(self) -> int:
        return int(self.state[k.FILLED])

    @property
    def offset(self) -> int:
        """The current offset in the file."""
        return int(self.state[k.FILE_OFFSET] + self.state[k.POSITION])

    def read_records(self) -> int:
        """Read records; returns why it stopped."""
        self.state[k.STOP] = min(self.stop_at - int(self.state[k.FILE_OFFSET]), UNLIMITED)
        return self._read_records(self._state_address)

    def go_on(self, why: int) -> None:
        """Provide what the reader needs to continue; the old bytes of the chunk must no longer be in use."""
        if why == k.NEED_MORE:
            self._refill()
        elif why == k.STOPPED and self._known and self.offset == self._known[-1].offset:
            known = self._known.pop()
            self.warnings.append(known)
            self.state[k.POSITION] += known.unread_bytes
            self.stop_at = self._known[-1].offset if self._known else UNLIMITED
        elif why in REASONS:
            self._recover(REASONS[why].format(int(self.state[k.NEEDED])))

    def _refill(self) -> None:
        """Load the next chunk, after the start of a record that was split; or finish."""
        needed = int(self.state[k.NEEDED])
        if not self._is_exhausted:
            self._more(needed)
            return
        carried, damage = self.filled_bytes - int(self.state[k.POSITION]), self.source.damage
        if carried > 0:
            at_end = damage or f"the file ends inside a record, after {carried} of at least {needed} bytes"
            self._recover(f"the record claims {needed} bytes, more than there are", at_end)
            return
        self.is_finished = True
        if damage:
            self._warn(self.offset, damage)

    def _recover(self, reason: str, reason_at_end: str = "") -> None:
        """Find the next record after the damage at the current offset; the bytes between are unread."""
        damaged_at, state = self.offset, self.state
        self._forget_block()
        state[k.POSITION] += self._step
        search = self._search
        if len(self.warnings) >= MOST_DAMAGED:
            search = self._skip
            reason = f"{reason}, after {MOST_DAMAGED:,} other damaged places; the rest of the file is not read"
        while (why := search(self._state_address)) == k.NEED_MORE and not self._is_exhausted:
            self._more(2 * WINDOW)
        if why == k.NEED_MORE:
            reason, self.is_finished = reason_at_end or reason, True
            state[k.POSITION] = self.filled_bytes
        self._warn(damaged_at, reason, self.offset - damaged_at)

    def _skip(self, _: int) -> int:
        """A search that finds nothing."""
        self.state[k.POSITION] = self.filled_bytes
        return k.NEED_MORE

    def _forget_block(self) -> None:
        """pcapng: the interface that a damaged block would have described stays unknown."""
        state, position = self.state, int(self.state[k.POSITION])
        if self._step == 1 or self.filled_bytes - position < 4:
            return
        kind = int.from_bytes(self.buffer[position : position + 4].tobytes(), "big" if state[k.SWAPPED] else "little")
        known = int(state[k.INTERFACE_COUNT])
        if kind == ng.SECTION:
            state[k.INTERFACE_COUNT] = 0
        elif kind == ng.INTERFACE and known < ng.MOST_INTERFACES:
            row = self._interfaces[known * ng.INTERFACE_BYTES :][: ng.INTERFACE_BYTES].view(np.int64)
            row[:] = (ng.NO_LINK, 0, 1, 0, 0, 0)
            state[k.INTERFACE_COUNT] = known + 1

    def _more(self, needed: int) -> None:
        """Another chunk, with the rest of this one. Twice what is needed, so that large lengths cost few reads."""
        state = self.state
        position, filled = int(state[k.POSITION]), self.filled_bytes
        carried = max(filled - position, 0)
        chunk = self._allocate_buffer(max(self._buffer_bytes, 2 * needed if needed > self._buffer_bytes // 2 else 0))
        for skipped in range(position - filled, 0, -len(chunk)):  # skipped bytes
            self._fill(chunk[:skipped], 0)
        chunk[:carried] = self.buffer[filled - carried : filled]
        state[k.FILE_OFFSET] += position
        state[k.POSITION] = 0
        self._fill(chunk, carried)

    def _allocate_buffer(self, size: int) -> NDArray[np.uint8]:
        return self._pool.acquire(size).array[:size]

    def _fill(self, buffer: NDArray[np.uint8], carried: int) -> None:
        view = buffer.data
        end = min(len(buffer), carried + self._remaining_bytes)
        at = carried
        while at < end:
            got = self.source.readinto(view[at:end])
            if got == 0:
                self._is_exhausted = True
                break
            if self._observer is not None:
                self._observer(view[at : at + got])
            at += got
        self._remaining_bytes -= at - carried
        self._is_exhausted = self._is_exhausted or self._remaining_bytes == 0
        self.buffer = buffer
        self.state[k.BUFFER] = buffer.ctypes.data
        self.state[k.FILLED] = at
        self.state[k.DRAINED] = self._is_exhausted

    def _warn(self, offset: int, reason: str, unread_bytes: int = 0) -> None:
        self.warnings.append(Damage(self.path, offset, reason, unread_bytes))
