"""Receives the datagrams of many lines in a thread of its own.

    with UdpReceiver(settings) as receiver:
        receiver.join("incremental A", LineAddress("A", "224.0.20.72", 20_001, "10.1.0.5"))
        for packets in receiver.take(timeout_s=0.1): ...

For who cannot wait for another thread, `receive_here` receives in the caller's own; the receiver's thread then only
stands in when that has not been called for a while.

Invariant: what a socket had no room for is counted. The thread waits in the kernel without the GIL; if nobody takes its
packets, it stops when `max_waiting` batches wait, and the sockets' buffers fill.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ..buffers import Memory, Pool
from ..errors import ConfigError
from . import udp_receiver_kernel as k
from .channels_file import LineAddress

SO_RCVBUFFORCE, IP_MULTICAST_ALL = 33, 49  # of Linux; not in the socket module
COLUMNS = 4  # start, end, ts_ns, flow
POLL_TIMEOUT_MS = 1_000
NO_ROOM_S = 0.005
STAND_IN_S = 0.02  # the sockets' buffers hold more than comes in twice this time


@dataclass(frozen=True)
class ReceiverSettings:
    buffer_bytes: int = 4 << 20  # that each socket asks for
    batch_rows: int = 4096
    batch_bytes: int = 2 << 20
    max_waiting: int = 32  # batches that nobody has taken


@dataclass(frozen=True, eq=False)
class ReceivedPackets:
    """Datagrams in one buffer, one row each, in order of arrival at each socket."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ts_ns: NDArray[np.int64]  # receive time of the kernel, UNIX
    flow: NDArray[np.uint16]  # row of `names`
    names: list[Hashable]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: slice | NDArray[np.int64]) -> ReceivedPackets:
        """These rows, with the same buffer."""
        start, end, ts_ns, flow = self.start[rows], self.end[rows], self.ts_ns[rows], self.flow[rows]
        return ReceivedPackets(self.buffer, start, end, ts_ns, flow, self.names)


@dataclass(frozen=True)
class FlowCounts:
    """What has happened on one line so far."""

    packets: int
    bytes: int
    lost: int  # arrived at this machine, but the socket's buffer was full
    buffer_bytes: int  # granted


class UdpReceiver:
    def __init__(self, settings: ReceiverSettings | None = None) -> None:
        self.settings = settings or ReceiverSettings()
        self.names: list[Hashable] = []
        self.truncated = 0  # datagrams longer than any frame
        self._sockets: list[socket.socket | None] = []  # by flow; None after it was left
        self._granted: list[int] = []
        self._wake_end, self._woken_end = socket.socketpair()
        self._waiting: queue.SimpleQueue[ReceivedPackets | BaseException] = queue.SimpleQueue()
        self._room = threading.Semaphore(self.settings.max_waiting)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closing = self._is_direct = False
        self._turn = threading.Lock()  # held by who receives, once `receive_here` has been called
        self._own: Memory | None = None  # what `receive_here` has received
        self._collected: list[ReceivedPackets] = []
        self._last_call_s = 0.0  # of the kernel, by `receive_here`
        self._pool = Pool(self.settings.max_waiting)
        self._table = np.zeros(k.SLOTS, np.int64)
        self._memory = [np.zeros(k.BURST * size, np.uint8) for size in
                        (k.MESSAGE_BYTES, k.IOVEC_BYTES, k.DATAGRAM_BYTES, k.CONTROL_BYTES)]  # fmt: skip
        messages, iovecs, scratch, controls = (memory.ctypes.data for memory in self._memory)
        k.prepare_messages(messages, iovecs, scratch, controls)
        self._table[[k.MESSAGES, k.SCRATCH, k.CONTROLS]] = messages, scratch, controls
        self._table[k.TIMEOUT_MS] = POLL_TIMEOUT_MS
        self._table[[k.CAPACITY, k.ROW_CAPACITY]] = self.settings.batch_bytes, self.settings.batch_rows
        self._table_address, self._table_view = self._table.ctypes.data, self._table.data
        self._totals = np.zeros((3, 0), np.int64)  # by flow: packets, bytes, lost
        self._left = threading.Event()  # the thread has left its loop for `receive_here`
        self._watch_sockets()
        self._thread = threading.Thread(target=self._run, name="udp-receiver", daemon=True)
        self._thread.start()

    def __enter__(self) -> UdpReceiver:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def join(self, name: Hashable, line: LineAddress) -> None:
        """Receive a line: join its multicast group, or bind its unicast address."""
        found = _open_socket(line, self.settings.buffer_bytes)
        # Linux doubles the size for its own bookkeeping, and reports the double (socket(7)).
        granted = found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

        def add() -> None:
            self._granted.append(granted)
            self._sockets.append(found)
            self.names.append(name)
            self._totals = np.column_stack([self._totals, np.zeros(3, np.int64)])
            self._watch_sockets()

        self._do(add)

    def leave(self, name: Hashable) -> None:
        """Receive a line no longer; what has been received can still be taken."""

        def remove() -> None:
            for flow, (known, found) in enumerate(zip(self.names, self._sockets, strict=True)):
                if known == name and found is not None:
                    found.close()
                    self._sockets[flow] = None
            self._watch_sockets()

        self._do(remove)

    def take(self, timeout_s: float) -> list[ReceivedPackets]:
        """Everything that has been received; waits for the first."""
        batches: list[ReceivedPackets] = []
        try:
            batch = self._waiting.get(timeout=timeout_s)
            while True:
                self._room.release()
                if isinstance(batch, BaseException):
                    raise batch
                batches.append(batch)
                batch = self._waiting.get_nowait()
        except queue.Empty:
            return batches

    def receive_here(self, kernel: Callable[..., int], timeout_ms: int, *arguments: int) -> int:
        """Receive in this thread, behind what has been received so and was not taken yet: calls a kernel like `receive`
        with the address of the argument table, and returns its result. From then on all calls come from one thread."""
        if not self._is_direct:
            self._become_direct()
        with self._turn:
            if self._own is None:
                self._own = self._prepare_memory()
            self._table_view[k.TIMEOUT_MS] = timeout_ms
            result = 0 if self._is_closing else kernel(self._table_address, *arguments)
            self._after_call()
        return result

    def take_received(self) -> list[ReceivedPackets]:
        """What `receive_here` has received, and what the thread has while it was not called."""
        with self._turn:
            self._collect_own()
            collected, self._collected = self._collected, []
        if not self._waiting.empty():  # an error in the thread
            collected += self.take(0)
        return collected

    @property
    def is_collected(self) -> bool:
        """Whether the thread has stood in, so that something was received elsewhere than in `receive_here`."""
        return bool(self._collected)

    @property
    def received_here(self) -> int:
        """Packets that `receive_here` has received, and that were not taken."""
        return self._table_view[k.ROWS] if self._own is not None else 0

    def _become_direct(self) -> None:
        self._is_direct = True
        self._wake_end.send(b"\0")
        self._left.wait()
        if not self._waiting.empty():
            self._collected = self.take(0)

    def _collect_own(self) -> None:
        own, self._own = self._own, None
        if own is not None and self._table_view[k.ROWS]:
            self._collected.append(self._packets_in(own))

    def _after_call(self) -> None:
        self._last_call_s = time.monotonic()
        if self._polls[6] or self._polls[7]:  # revents of the waking socket
            self._polls[6:8] = 0
            self._woken_end.recv(64)

    def counts(self) -> dict[Hashable, FlowCounts]:
        """By name; a line that was left and joined again counts on."""
        result: dict[Hashable, FlowCounts] = {}
        for name, (packets, size, lost), granted in zip(
            self.names, self._totals.T.tolist(), self._granted, strict=True
        ):
            before = result.get(name, FlowCounts(0, 0, 0, 0))
            result[name] = FlowCounts(packets + before.packets, size + before.bytes, lost + before.lost, granted)
        return result

    def notices(self) -> list[str]:
        """What should be changed on this machine."""
        wanted, least = self.settings.buffer_bytes, min(self._granted, default=self.settings.buffer_bytes)
        if least >= wanted:
            return []
        return [
            f"receive buffers are {least >> 10} KiB instead of {wanted >> 10} KiB: bursts may be lost; "
            f"allow more with `sysctl -w net.core.rmem_max={wanted}`"
        ]

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._room.release()
        self._wake_end.send(b"\0")
        self._thread.join()
        for found in (*self._sockets, self._wake_end, self._woken_end):
            if found is not None:
                found.close()

    # In the thread.

    def _do(self, command: Callable[[], None]) -> None:
        """Have the thread run it, between two calls of the kernel; or run it, if the thread only stands in."""
        if self._is_direct:
            with self._turn:
                command()
            return
        done = threading.Event()
        self._commands.put(lambda: (command(), done.set())[0])
        self._wake_end.send(b"\0")
        while not done.wait(0.1) and self._thread.is_alive():
            pass

    def _watch_sockets(self) -> None:
        watched = [(flow, found) for flow, found in enumerate(self._sockets) if found is not None]
        self._polls = np.zeros(k.POLL_BYTES * (1 + len(watched)), np.uint8)
        self._flows = np.array([-1, *(flow for flow, _ in watched)], np.int64)
        self._lost = np.zeros(max(1, len(self._sockets)), np.int64)
        self._lost[: self._totals.shape[1]] = self._totals[2]
        sockets = [self._woken_end, *(found for _, found in watched)]
        for entry, found in enumerate(sockets):
            k.prepare_poll(self._polls.ctypes.data, entry, found.fileno())
        self._table[[k.POLLS, k.POLL_COUNT]] = self._polls.ctypes.data, len(sockets)
        self._table[[k.FLOWS, k.LOST]] = self._flows.ctypes.data, self._lost.ctypes.data

    def _run(self) -> None:
        try:
            while not self._is_closing and not self._is_direct:
                # While nobody takes packets, lines can still be left: who leaves one may be who should take them.
                has_room = self._room.acquire(timeout=NO_ROOM_S)
                batch = self._receive() if has_room else None
                if batch is not None:
                    self._waiting.put(batch)
                elif has_room:
                    self._room.release()
                while not self._commands.empty():
                    self._commands.get()()
            self._left.set()
            self._stand_in()
        except BaseException as error:  # raised by `take`
            self._waiting.put(error)

    def _stand_in(self) -> None:
        """Receive while nobody else does."""
        while not self._is_closing:
            time.sleep(STAND_IN_S)
            while self._must_stand_in() and self._turn.acquire(blocking=False):
                try:
                    self._collect_own()
                    self._table_view[k.TIMEOUT_MS] = 0
                    since_s, batch = self._last_call_s, self._receive()
                    self._last_call_s = since_s
                    self._collected += [] if batch is None else [batch]
                finally:
                    self._turn.release()
                if batch is None:
                    break

    def _must_stand_in(self) -> bool:
        has_room = len(self._collected) < self.settings.max_waiting and not self._is_closing
        return has_room and time.monotonic() - self._last_call_s > STAND_IN_S

    def _prepare_memory(self) -> Memory:
        settings, table = self.settings, self._table
        column_bytes = 8 * settings.batch_rows
        memory = self._pool.acquire(COLUMNS * column_bytes + settings.batch_bytes)
        table[k.START : k.FLOW + 1] = memory.address + column_bytes * np.arange(COLUMNS)
        table[k.BUFFER] = memory.address + COLUMNS * column_bytes
        table[k.ROWS] = table[k.USED] = 0
        return memory

    def _receive(self) -> ReceivedPackets | None:
        memory = self._prepare_memory()
        rows = k.receive(self._table_address)
        self._after_call()
        return self._packets_in(memory) if rows > 0 else None

    def _packets_in(self, memory: Memory) -> ReceivedPackets:
        """The rows that the table says are there."""
        table, rows = self._table, int(self._table[k.ROWS])
        column_bytes = 8 * self.settings.batch_rows
        columns = memory.array[: COLUMNS * column_bytes].view(np.int64).reshape(COLUMNS, -1)[:, :rows]
        start, end, ts_ns, flow = columns
        flows = len(self._sockets)
        self._totals[0] += np.bincount(flow, minlength=flows)
        self._totals[1] += np.bincount(flow, end - start, minlength=flows).astype(np.int64)
        self._totals[2] = self._lost[:flows]
        self.truncated = int(table[k.TRUNCATED])
        buffer = memory.array[COLUMNS * column_bytes :][: table[k.USED]]
        return ReceivedPackets(buffer, start, end, ts_ns, flow.astype(np.uint16), self.names)


def _open_socket(line: LineAddress, buffer_bytes: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        try:
            found.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes)
        except OSError:  # only with CAP_NET_ADMIN
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        found.setsockopt(socket.SOL_SOCKET, k.SO_TIMESTAMPNS, 1)
        found.setsockopt(socket.SOL_SOCKET, k.SO_RXQ_OVFL, 1)
        if line.is_multicast:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)  # only groups that this socket joins
        found.bind((line.address, line.port))
        if line.is_multicast:
            group = IPv4Address(line.address).packed + IPv4Address(line.interface).packed
            found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    except OSError as error:
        found.close()
        where = f"{line} on interface {line.interface}" if line.is_multicast else str(line)
        raise ConfigError(f"cannot receive {where}: {error.strerror}", "check the addresses in --channels") from None
    return found
