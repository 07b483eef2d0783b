"""Writes UDP payloads to a pcap file with nanosecond times, as Ethernet frames with correct checksums.

Invariant: a batch is checked completely before any of it is written.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from os import PathLike, fspath
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import CaptureError, EncodeError
from . import pcap_writer_kernel as k

Endpoint = tuple[str, int]

BUFFER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 65_535 - 28  # maximum of IPv4
MAX_TS_NS = (1 << 32) * 1_000_000_000  # seconds are unsigned and 32 bits wide
MAX_FLOWS = 65_536
TTL, UDP = 64, 17


class PcapWriter:
    """A pcap file being written: `write` for one packet, `write_batch` and `write_flows` for many."""

    def __init__(self, target: str | PathLike[str] | BinaryIO, snaplen: int = 256 << 10) -> None:
        if not 1 <= snaplen < 1 << 32:
            raise EncodeError(f"invalid snap length: {snaplen}", "use at least 1")
        self._owns_file = isinstance(target, (str, PathLike))
        if isinstance(target, (str, PathLike)):
            try:
                self._file: BinaryIO = open(target, "wb")  # noqa: SIM115 (closed by close)
            except OSError as error:
                raise CaptureError(
                    f"cannot write {fspath(target)}: {error.strerror}", "check the path and its permissions"
                ) from None
        else:
            self._file = target
        self._buffer = np.empty(BUFFER_BYTES, np.uint8)
        self._table = np.zeros(k.SLOTS, np.int64)
        self._table[k.OUT], self._table[k.CAPACITY] = self._buffer.ctypes.data, BUFFER_BYTES
        self._table[k.SNAPLEN] = snaplen
        self._templates: dict[tuple[str, int, str, int], NDArray[np.uint8]] = {}
        self._closed = False
        self._file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1))

    def __enter__(self) -> PcapWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def write(self, ts_ns: int, payload: bytes, source: Endpoint, dest: Endpoint) -> None:
        self.write_batch(payload, [0], [len(payload)], [ts_ns], source, dest)

    def write_batch(self, buffer: Any, start: Any, end: Any, ts_ns: Any, source: Endpoint, dest: Endpoint) -> None:
        """Packets of one flow: the payloads are `buffer[start[i]:end[i]]`."""
        self.write_flows(buffer, start, end, ts_ns, np.zeros(len(start), np.uint16), [(*source, *dest)])

    def write_flows(
        self, buffer: Any, start: Any, end: Any, ts_ns: Any, flow: Any, flows: Sequence[tuple[str, int, str, int]]
    ) -> None:
        """Packets of several flows, as a PacketBatch has them; `flow` is the row of `flows` of each packet."""
        if self._closed:
            raise ValueError("the writer is closed")
        data = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
        starts, ends, times = (np.ascontiguousarray(column, np.int64) for column in (start, end, ts_ns))
        if not len(starts):
            return
        _check_batch(data, starts, ends, times, np.asarray(flow), len(flows))
        flow_rows = np.ascontiguousarray(flow, np.uint16)
        used_flows = [0] if len(flows) == 1 else np.unique(flow_rows).tolist()
        templates = np.empty((used_flows[-1] + 1, k.TEMPLATE_BYTES), np.uint8)
        for row in used_flows:
            templates[row] = self._template(*flows[row])
        table = self._table
        table[k.BUFFER], table[k.START], table[k.END] = data.ctypes.data, starts.ctypes.data, ends.ctypes.data
        table[k.TS_NS], table[k.FLOW], table[k.TEMPLATES] = (
            times.ctypes.data,
            flow_rows.ctypes.data,
            templates.ctypes.data,
        )
        table[k.FIRST], table[k.COUNT] = 0, len(flow_rows)
        while (row := k.write_records(table.ctypes.data)) < len(flow_rows):
            table[k.FIRST] = row
            self.flush()

    def flush(self) -> None:
        """Write all buffered data to the file."""
        try:
            self._file.write(self._buffer.data[: int(self._table[k.USED])])
            self._file.flush()
        except OSError as error:
            raise CaptureError(f"cannot write the capture: {error.strerror}", "check the free disk space") from None
        self._table[k.USED] = 0

    def close(self) -> None:
        """Flush, and close the file if it was opened here."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            if self._owns_file:
                with contextlib.suppress(OSError):  # already reported by flush
                    self._file.close()

    def _template(self, source: str, source_port: int, dest: str, dest_port: int) -> NDArray[np.uint8]:
        key = (source, source_port, dest, dest_port)
        if key not in self._templates:
            if len(self._templates) == MAX_FLOWS:
                self._templates.clear()
            self._templates[key] = np.frombuffer(_flow_template(*key), np.uint8)
        return self._templates[key]


def _flow_template(source: str, source_port: int, dest: str, dest_port: int) -> bytes:
    """The row of the kernel's table for a flow: headers with lengths and checksums of zero, and their sums."""
    try:
        sender, receiver = ip_address(source), ip_address(dest)
    except ValueError as error:
        raise EncodeError(f"{error}", "use an IPv4 or IPv6 address") from None
    if sender.version != receiver.version:
        raise EncodeError(f"{source} and {dest} are of different IP versions", "use two IPv4 or two IPv6 addresses")
    if not (0 <= source_port <= 0xFFFF and 0 <= dest_port <= 0xFFFF):
        raise EncodeError(f"ports {source_port} and {dest_port}: a port is 0 to 65535")
    addresses = sender.packed + receiver.packed
    ports = struct.pack(">HH", source_port, dest_port)
    if sender.version == 4:
        kind = 0x0800
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 0, 0, 0x4000, TTL, UDP, 0) + addresses  # 0x4000: do not fragment
    else:
        kind = 0x86DD
        ip = struct.pack(">IHBB", 6 << 28, 0, UDP, TTL) + addresses
    headers = _mac(receiver) + _mac(sender) + struct.pack(">H", kind) + ip + ports + bytes(4)
    sums = _sum_words(ip), _sum_words(addresses + struct.pack(">H", UDP) + ports)
    return headers.ljust(k.HEADER_BYTES, b"\0") + struct.pack("<qqq", len(headers), *sums)


def _mac(address: IPv4Address | IPv6Address) -> bytes:
    if not address.is_multicast:
        return b"\x02\x00" + address.packed[-4:]  # locally administered, from the address
    if address.version == 4:
        return b"\x01\x00\x5e" + bytes([address.packed[1] & 0x7F]) + address.packed[2:]  # RFC 1112 section 6.4
    return b"\x33\x33" + address.packed[-4:]  # RFC 2464 section 7


def _sum_words(data: bytes) -> int:
    return sum(struct.unpack(f"<{len(data) // 2}H", data))


def _check_batch(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    ts_ns: NDArray[np.int64],
    flow: NDArray[np.integer],
    flows: int,
) -> None:
    """Check the arguments, because the kernel trusts them."""
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise EncodeError("the buffer is not a contiguous byte array")
    if not len(start) == len(end) == len(ts_ns) == len(flow):
        raise EncodeError(f"columns have different lengths: {len(start)}, {len(end)}, {len(ts_ns)}, {len(flow)}")
    if start.min() < 0 or end.max() > len(data) or (end < start).any():
        raise EncodeError(f"payload outside the buffer of {len(data)} bytes")
    longest = int((end - start).max())
    if longest > MAX_PAYLOAD_BYTES:
        raise EncodeError(f"a payload of {longest} bytes does not fit into a UDP datagram of {MAX_PAYLOAD_BYTES}")
    if ts_ns.min() < 0 or ts_ns.max() >= MAX_TS_NS:
        raise EncodeError("timestamp out of range for pcap", "use nanoseconds since 1970")
    if flow.min() < 0 or flow.max() >= min(flows, MAX_FLOWS):
        raise EncodeError(f"flows {flow.min()} to {flow.max()} are not all among the {flows} flows")
