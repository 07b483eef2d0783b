"""How a capture file goes through the kernels: chunk by chunk, in memory that does not grow with the file.

The one rule: damage ends the walk with one warning that says where; only a file that cannot be opened or is no capture
is an error. A record that a chunk cuts is carried to the next chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..buffers import Pool
from ..errors import CaptureError
from . import capture_kernel as k
from .compression import decompressor

PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", False),
    b"\x4d\x3c\xb2\xa1": ("<", True),
    b"\xa1\xb2\xc3\xd4": (">", False),
    b"\xa1\xb2\x3c\x4d": (">", True),
}
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
PCAP_HEADER_BYTES = 24
USUAL_LONGEST = 256 << 10  # libpcap's own limit; a file may announce more
ENDLESS = np.iinfo(np.int64).max

REASONS = {
    k.LENGTH_INSANE: "the record claims {} bytes",
    k.LENGTH_UNALIGNED: "the block claims {} bytes, which is no multiple of 4",
    k.LENGTH_SHORT: "the block claims {} bytes, too few for its type",
    k.LENGTH_DIFFERS: "the block's two lengths differ, the second one is {}",
    k.NO_BYTE_ORDER: "the section has no byte order ({:#010x})",
    k.VERSION_UNKNOWN: "the section is of version {}, not 1",
    k.ZEROS: "there are zeros instead of a record, as a crash leaves them",
}


@dataclass(frozen=True)
class Damage:
    """What could not be read, and where: the offset is that of the record in the (decompressed) file."""

    file: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: at offset {self.offset}: {self.reason}"


@dataclass(frozen=True)
class Header:
    """All that must be known to read on from the start of any record."""

    kind: str  # pcap or pcapng
    big_endian: bool
    nanoseconds: bool = True
    link: int = 0
    longest: int = 0
    interfaces: bytes = field(default=b"", repr=False)  # pcapng: rows of the kernel's table, of this section so far


Watch = Callable[[memoryview], object]  # is shown what is read of a file (unpacked), as it is read


class Walk:
    """A file, the chunk in memory, and the kernel's table of what it knows."""

    def __init__(self, path: str | PathLike[str], chunk_bytes: int, watch: Watch | None = None) -> None:
        self.path = fspath(path)
        self._watch = watch
        self.warnings: list[Damage] = []
        self.ended = False
        self.header: Header | None = None
        self._chunk_bytes = max(chunk_bytes, 64)
        self._pool = Pool(most_kept=3)
        self._drained = False
        self._left: int = ENDLESS  # bytes of the span still to be read
        self.state = np.zeros(k.SLOTS, np.int64)
        self._state_address = self.state.ctypes.data
        self._interfaces = np.zeros(k.MOST_INTERFACES * k.INTERFACE_BYTES, np.uint8)
        self.state[k.INTERFACES] = self._interfaces.ctypes.data
        self.state[k.STOP] = ENDLESS
        self.state[k.FIRST_UNKNOWN] = -1
        try:
            self._file = open(self.path, "rb")  # noqa: SIM115 (closed by close)
            try:
                self.source = decompressor(self._file, self._file.peek(4)[:4])
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            hint = "check the path" if isinstance(error, FileNotFoundError) else "name a capture file that can be read"
            raise CaptureError(f"{self.path}: {error.strerror or error}", hint) from None

    def close(self) -> None:
        self.ended = True
        self._file.close()

    def begin(self) -> None:
        """Read the first chunk and the file's header."""
        self._fill(self._chunk(self._chunk_bytes), 0)
        head = self.buffer[: min(PCAP_HEADER_BYTES, self.filled)].tobytes()
        magic = head[:4]
        if not head and not self.source.damage:
            raise CaptureError(f"{self.path}: the file is empty", "was the capture started and closed?")
        if magic == PCAPNG_MAGIC:
            self._use(Header("pcapng", big_endian=head[8:12] == b"\x1a\x2b\x3c\x4d"))
            return
        if magic in PCAP_MAGICS and len(head) == PCAP_HEADER_BYTES:
            order, nanoseconds = PCAP_MAGICS[magic]
            snap, link = struct.unpack(order + "II", head[16:])
            longest = min(max(snap, USUAL_LONGEST), k.LONGEST_BLOCK)
            # Only 16 bits are the type; the upper ones tell of checksums behind the frame, which IP lengths leave out.
            self._use(Header("pcap", order == ">", nanoseconds, link & 0xFFFF, longest))
            self.state[k.POSITION] = PCAP_HEADER_BYTES
        elif any(known.startswith(magic) for known in (*PCAP_MAGICS, PCAPNG_MAGIC)):
            self._warn(0, self.source.damage or f"the file ends inside its header, after {len(head)} bytes")
            self.ended = True
        else:
            raise CaptureError(
                f"{self.path}: this is no capture file (it starts with {magic.hex(' ')})",
                "pcap and pcapng are read, plain or compressed by gzip or zstd",
            )

    def resume(self, header: Header, offset: int, end: int, records: int) -> None:
        """Read the first chunk of a span that starts with a record."""
        try:
            self._file.seek(offset)
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror or error}", "a split needs a regular file") from None
        self._left = end - offset
        self.state[k.FILE_OFFSET] = offset
        self.state[k.RECORDS] = records
        self._use(header)
        self._fill(self._chunk(self._chunk_bytes), 0)

    def _use(self, header: Header) -> None:
        self.header = header
        self.state[k.SWAPPED] = header.big_endian
        self.state[k.TICK_NS] = 1 if header.nanoseconds else 1000
        self.state[k.LINK] = header.link
        self.state[k.LONGEST] = header.longest
        self.state[k.INTERFACES_KNOWN] = len(header.interfaces) // k.INTERFACE_BYTES
        self._interfaces[: len(header.interfaces)] = np.frombuffer(header.interfaces, np.uint8)
        self._walk = k.walk_pcap if header.kind == "pcap" else k.walk_pcapng

    def header_here(self) -> Header:
        """What must be known to go on from the record at which the walk has ended."""
        header = cast(Header, self.header)
        if header.kind == "pcap":
            return header
        known = self._interfaces[: int(self.state[k.INTERFACES_KNOWN]) * k.INTERFACE_BYTES].tobytes()
        return Header("pcapng", bool(self.state[k.SWAPPED]), interfaces=known)

    @property
    def filled(self) -> int:
        return int(self.state[k.FILLED])

    @property
    def offset(self) -> int:
        """Where in the file the walk stands."""
        return int(self.state[k.FILE_OFFSET] + self.state[k.POSITION])

    def walk(self) -> int:
        """Walk on and say why the walk has ended; damage ends it for good."""
        why = self._walk(self._state_address)
        if why in REASONS:
            self._warn(self.offset, REASONS[why].format(int(self.state[k.NEEDED])))
            self.ended = True
        return why

    def refill(self) -> None:
        """The next chunk, with the start of the record that the last one has cut; or the end of the walk."""
        position, filled, needed = (int(self.state[slot]) for slot in (k.POSITION, k.FILLED, k.NEEDED))
        carried = filled - position
        if not self._drained:
            chunk = self._chunk(max(self._chunk_bytes, needed))
            chunk[:carried] = self.buffer[position:filled]
            self.state[k.FILE_OFFSET] += position
            self.state[k.POSITION] = 0
            self._fill(chunk, carried)
            if self.filled > carried:
                return
        self.ended = True
        if self.source.damage:
            self._warn(self.offset, self.source.damage)
        elif carried:
            self._warn(self.offset, f"the file ends inside a record, after {carried} of at least {needed} bytes")

    def _chunk(self, size: int) -> NDArray[np.uint8]:
        return self._pool.take(size).array[:size]

    def _fill(self, chunk: NDArray[np.uint8], carried: int) -> None:
        view = chunk.data
        end = min(len(chunk), carried + self._left)
        at = carried
        while at < end:
            got = self.source.readinto(view[at:end])
            if got == 0:
                self._drained = True
                break
            if self._watch is not None:
                self._watch(view[at : at + got])
            at += got
        self._left -= at - carried
        self._drained = self._drained or self._left == 0
        self.buffer = chunk
        self.state[k.BUFFER] = chunk.ctypes.data
        self.state[k.FILLED] = at

    def _warn(self, offset: int, reason: str) -> None:
        self.warnings.append(Damage(self.path, offset, reason))
