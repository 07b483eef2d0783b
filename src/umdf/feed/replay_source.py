"""The TCP Replayer as a source of recovery: gaps of FIX/FAST come back as packets of line R.

What is replayed has no technical header; it is rebuilt, so that the messages take the same way as received ones, and
are recorded with them. A thread of its own keeps the session up; address A is preferred, then B (5.2).
"""

from __future__ import annotations

import queue
import struct
import time
from collections.abc import Callable
from threading import Event, Thread

import numpy as np

from umdf.feed.feed_lines import RECOVERED_LINE, ChannelKey, FeedLine
from umdf.feed.replay_client import (
    ReplayClient,
    ReplayClientSettings,
    ReplayCounts,
    ReplayedMessages,
    ReplayFailure,
    Span,
)
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import ReplayerAddresses
from umdf.transport.tcp import TcpLoop
from umdf.transport.udp_receiver import ReceivedPackets

TECHNICAL_HEADER = struct.Struct(">IHHH")  # MsgSeqNum, NoChunks, CurrentChunk, MsgLength
MAX_CHUNK_BYTES = 1_400
POLL_S = 0.02
LOGOUT_POLLS = 10


class ReplaySource:
    """Requests of `Live` go in, packets come out; both from the thread of `Live`."""

    def __init__(
        self,
        replayer: ReplayerAddresses,
        settings: ReplayClientSettings | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._addresses, self._now_ns = replayer.addresses, now_ns
        self._client = ReplayClient(settings or ReplayClientSettings(replayer.comp_id, replayer.replayer_id))
        self._loop, self._attempt = TcpLoop(clock_ns=now_ns), 0
        self._requests: queue.SimpleQueue[Span | int] = queue.SimpleQueue()  # an int: a channel to cancel
        self._outcomes: queue.SimpleQueue[ReplayedMessages | ReplayFailure] = queue.SimpleQueue()
        self.failures: list[ReplayFailure] = []  # what a snapshot has to recover
        self._stop = Event()
        self._thread = Thread(target=self._run, name="replay-client", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> ReplayCounts:
        return self._client.counts

    @property
    def is_connected(self) -> bool:
        return self._client.is_active

    @property
    def last_error(self) -> str:
        return self._client.last_error

    def notices(self) -> list[str]:
        """Why gaps are left to snapshots at the moment."""
        if self.is_connected or not self.last_error:
            return []
        return [f"no session with the TCP Replayer, gaps are left to snapshots: {self.last_error}"]

    def request(self, channel: ChannelKey, gap: Gap) -> None:
        """Request a gap. The replayers serve FIX/FAST only; Binary recovers from snapshots."""
        if channel.protocol == "fast":
            self._requests.put(Span(channel.number, gap.first, gap.last))
            self._loop.wake()

    def cancel(self, channel: ChannelKey) -> None:
        """A new epoch has begun: what was requested of the one before is of no use, and its numbers come again."""
        if channel.protocol == "fast":
            self._requests.put(channel.number)
            self._loop.wake()

    def take(self) -> list[ReceivedPackets]:
        """What has come, and is still useful: messages fill their gaps like those of a late line."""
        found: list[ReceivedPackets] = []
        while True:
            try:
                outcome = self._outcomes.get_nowait()
            except queue.Empty:
                return found
            if isinstance(outcome, ReplayedMessages):
                found.append(rebuilt_packets(outcome, self._now_ns()))
            else:
                self.failures.append(outcome)

    def close(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._loop.wake()
        self._thread.join()
        self._loop.close()  # not in the thread: it may end before it is woken

    def _run(self) -> None:
        while not self._stop.is_set():
            self._step()
        self._client.log_out(self._now_ns())
        for _ in range(LOGOUT_POLLS):
            if self._client.is_closed:
                break
            self._loop.poll(POLL_S)

    def _step(self) -> None:
        now_ns = self._now_ns()
        while not self._requests.empty():
            wanted = self._requests.get()
            self._client.cancel(wanted) if isinstance(wanted, int) else self._client.request(wanted, now_ns)
        if self._client.wants_connection(now_ns):
            # A is tried first, also after B has been lost.
            address = self._addresses[self._attempt % len(self._addresses)]
            self._attempt += 1
            self._client.open(now_ns)
            self._loop.connect(address, self._client)
        self._client.tick(now_ns)
        self._loop.poll(POLL_S)
        if self._client.is_answering:
            self._attempt = 0
        for outcome in self._client.take_outcomes():
            self._outcomes.put(outcome)


def rebuilt_packets(replayed: ReplayedMessages, ts_ns: int) -> ReceivedPackets:
    """Replayed messages as packets of line R, each with the technical header that it was sent with."""
    parts: list[bytes] = []
    for sequence, data in replayed.messages:
        chunks = [data[first : first + MAX_CHUNK_BYTES] for first in range(0, len(data), MAX_CHUNK_BYTES)]
        for number, chunk in enumerate(chunks, 1):
            parts.append(TECHNICAL_HEADER.pack(sequence & 0xFFFFFFFF, len(chunks), number, len(chunk)) + chunk)
    end = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    start = end - np.fromiter(map(len, parts), np.int64, len(parts))
    line = FeedLine(ChannelKey("fast", replayed.channel), "incremental", RECOVERED_LINE)
    buffer = np.frombuffer(b"".join(parts), np.uint8)
    times = np.full(len(parts), ts_ns, np.int64)
    return ReceivedPackets(buffer, start, end, times, np.zeros(len(parts), np.uint16), [line])
