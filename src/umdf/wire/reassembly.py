"""Chunks → whole FAST messages, in any order of arrival (messaging spec 4.2.4).

    taken = Reassembler().take(frames, key)     # key: of each datagram, its flow or its channel
    taken.direct        # messages of one chunk: where they stand in the frames' own buffer, no byte is copied
    taken.gathered      # messages of several chunks that are complete now, in a buffer of their own
    taken.drops         # messages that will never be, and why

Both groups have an `order` column, the row of the frame that completed the message: sorted by it, they are in order of
arrival.

The one rule: chunks of two messages are never mixed, and memory has limits on any input. MsgSeqNum comes again (it is
cyclical on the snapshot and instrument streams, 4.2.6), so nothing is gathered across a new numbering, nor for longer
than `Limits` says, and a chunk that contradicts one already there begins a new message. Where a loop is shorter than
`Limits.restart_distance` and quicker than `wait_ms`, set a smaller distance, and give each line a key of its own.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.errors import ConfigError
from umdf.wire import packet_kernel as k
from umdf.wire.packet import Frames

# What Python keeps beside the bytes themselves, rounded up; small chunks count for what they really take.
MESSAGE_BYTES, CHUNK_BYTES, DIGEST_BYTES = 1024, 192, 8

# Why a message was dropped.
WAITED = "it waited too long for its other chunks"
TOO_MANY = "too many messages of its key were open"
TOO_LARGE = "open messages took too much memory"
CONTRADICTED = "a chunk came again with other content"
RIVAL = "the same MsgSeqNum was completed with another NoChunks"
RESTARTED = "numbering began anew before its other chunks came"
ENDED = "the stream ended"


@dataclass(frozen=True)
class Limits:
    open_messages: int = 64  # of one key; the one that got no chunk for longest is dropped
    memory_bytes: int = 8 << 20  # of all keys, what Python needs to keep them included
    wait_frames: int = 4096  # of the same key, since the message's last chunk
    # Since the message's last chunk, where datagrams have times. A loss is believed after 20 ms (13.7).
    wait_ms: int = 100
    # A MsgSeqNum so far below the highest of its key begins a new numbering: further than datagrams overtake others.
    restart_distance: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ConfigError(f"{name} = {value}: a limit is at least 1", "leave it out for the default")


@dataclass(frozen=True)
class Drop:
    """A line of the journal: a message of which chunks came, but that is not given out."""

    key: int
    msg_seq_num: int
    chunks_seen: int
    no_chunks: int
    reason: str


@dataclass(frozen=True, eq=False)
class Messages:
    """Whole FAST messages, without their technical headers, a row each."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    packet: NDArray[np.uint32]  # the datagram of the last chunk that was missing
    msg_index: NDArray[np.uint16]  # and its place there
    msg_seq_num: NDArray[np.uint32]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


class Taken(NamedTuple):
    direct: Messages
    gathered: Messages
    drops: list[Drop]


class Identity(NamedTuple):
    key: int
    msg_seq_num: int
    no_chunks: int


class Moment(NamedTuple):
    arrival: int  # count of frames of the key
    numbering: int  # of the key
    ts_ns: int


@dataclass(slots=True)
class Open:
    """A message that lacks chunks. Nothing is set aside for those that NoChunks announces."""

    seen: Moment  # when its last chunk came
    chunks: dict[int, bytes] = field(default_factory=dict)
    held_bytes: int = MESSAGE_BYTES


@dataclass(slots=True)
class Done:
    """A message that was given out: its chunks can come again, on the other line, and must not open it again."""

    digests: array[int]
    seen: Moment

    @property
    def held_bytes(self) -> int:
        return MESSAGE_BYTES + DIGEST_BYTES * len(self.digests)


class Reassembler:
    """Gathers the chunks of any number of keys, from batch to batch. It can be pickled between batches."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.completed = 0  # messages of several chunks
        self.duplicates = 0  # chunks that were there already
        self.dropped: Counter[str] = Counter()  # messages, by reason
        self.held_bytes = 0
        self._open: OrderedDict[Identity, Open] = OrderedDict()  # the one longest without a new chunk first
        self._of_key: dict[int, OrderedDict[Identity, None]] = {}  # the same, of each key
        self._done: OrderedDict[Identity, Done] = OrderedDict()
        self._arrivals = np.zeros((0, k.ARRIVAL), np.int64)  # of each key
        self._now_ns = 0
        self._drops: list[Drop] = []

    def take(self, frames: Frames, key: NDArray[np.uint16], ts_ns: NDArray[np.int64] | None = None) -> Taken:
        """The messages that the frames complete. `key` and `ts_ns` have a row for each datagram."""
        assert len(key) == frames.packets and (ts_ns is None or len(ts_ns) == frames.packets)
        if frames.chunked == 0 and not self._open and not self._done:
            return Taken(_direct(frames, None), _gathered(frames, [], []), [])
        key = np.ascontiguousarray(key, np.uint16)
        arrived = self._count_arrivals(frames, key)
        rows = np.flatnonzero(frames.no_chunks > 1)
        packet = frames.packet[rows]
        times = np.zeros(len(rows), np.int64) if ts_ns is None else ts_ns[packet]
        columns = (key[packet], frames.msg_seq_num[rows], frames.no_chunks[rows], frames.current_chunk[rows])
        places = (frames.start[rows], frames.end[rows], rows, *arrived.T, times)
        whole: list[bytes] = []
        completing: list[int] = []
        view = frames.buffer.data
        for number, sequence, chunks, chunk, start, end, row, arrival, numbering, time in zip(
            *(column.tolist() for column in (*columns, *places)), strict=True
        ):
            self._now_ns = max(self._now_ns, time)
            now = Moment(arrival, numbering, self._now_ns)
            message = self._add(Identity(number, sequence, chunks), chunk, bytes(view[start:end]), now)
            if message is not None:
                whole.append(message)
                completing.append(row)
        if ts_ns is not None:
            self._now_ns = max(self._now_ns, int(ts_ns.max(initial=0)))
        self._sweep()
        direct = _direct(frames, np.flatnonzero(frames.no_chunks == 1) if len(rows) else None)
        return Taken(direct, _gathered(frames, whole, completing), self._told())

    def finish(self) -> list[Drop]:
        """No more will come: drop what is still open."""
        for identity in list(self._open):
            self._drop(identity, ENDED)
        for identity in list(self._done):
            self._forget(identity)
        return self._told()

    def _told(self) -> list[Drop]:
        drops, self._drops = self._drops, []
        return drops

    @property
    def open_messages(self) -> int:
        return len(self._open)

    def _count_arrivals(self, frames: Frames, key: NDArray[np.uint16]) -> NDArray[np.int64]:
        arrived = np.empty((frames.chunked, 2), np.int64)
        missing = (int(key.max()) + 1 if len(key) else 0) - len(self._arrivals)
        if missing > 0:
            self._arrivals = np.concatenate([self._arrivals, np.zeros((missing, k.ARRIVAL), np.int64)])
        arguments = np.zeros(k.ARGUMENTS, np.int64)
        arguments[k.PACKET], arguments[k.NO_CHUNKS] = frames.packet.ctypes.data, frames.no_chunks.ctypes.data
        arguments[k.MSG_SEQ_NUM], arguments[k.RESTART] = frames.msg_seq_num.ctypes.data, self.limits.restart_distance
        arguments[k.KEYS], arguments[k.ROWS] = key.ctypes.data, len(frames)
        arguments[k.ARRIVALS], arguments[k.ARRIVED] = self._arrivals.ctypes.data, arrived.ctypes.data
        found = k.count_arrivals(arguments.ctypes.data)
        assert found == frames.chunked
        return arrived

    def _add(self, identity: Identity, chunk: int, content: bytes, now: Moment) -> bytes | None:
        """Take one chunk; the whole message if it is complete by it."""
        if self._was_given_out(identity, chunk, content, now):
            self.duplicates += 1
            return None
        message = self._open.get(identity)
        if message is not None and (reason := self._why_over(message, now)):
            self._drop(identity, reason)
            message = None
        if message is not None and (before := message.chunks.get(chunk)) is not None:
            if before == content:
                self.duplicates += 1
                return None
            # Numbering has begun anew, or somebody lies: older chunks and newer ones do not make a message.
            self._drop(identity, CONTRADICTED)
            message = None
        if message is None:
            message = self._begin(identity, now)
        message.chunks[chunk] = content
        message.seen = now
        message.held_bytes += CHUNK_BYTES + len(content)
        self.held_bytes += CHUNK_BYTES + len(content)
        if len(message.chunks) == identity.no_chunks:
            return self._complete(identity, message)
        self._open.move_to_end(identity)
        self._of_key[identity.key].move_to_end(identity)
        self._make_room()
        return None

    def _was_given_out(self, identity: Identity, chunk: int, content: bytes, now: Moment) -> bool:
        done = self._done.get(identity)
        if done is None:
            return False
        if not self._why_over(done, now) and done.digests[chunk - 1] == _digest(content):
            return True
        self._forget(identity)
        return False

    def _why_over(self, message: Open | Done, now: Moment) -> str:
        """Why nothing that comes now can be a part of the message; empty if it can."""
        seen = message.seen
        if now.numbering != seen.numbering:
            return RESTARTED
        waited = now.arrival - seen.arrival > self.limits.wait_frames
        return WAITED if waited or now.ts_ns - seen.ts_ns > self.limits.wait_ms * 1_000_000 else ""

    def _begin(self, identity: Identity, now: Moment) -> Open:
        of_key = self._of_key.setdefault(identity.key, OrderedDict())
        if len(of_key) >= self.limits.open_messages:
            self._drop(next(iter(of_key)), TOO_MANY)
            of_key = self._of_key.setdefault(identity.key, of_key)
        of_key[identity] = None
        message = self._open[identity] = Open(now)
        self.held_bytes += message.held_bytes
        return message

    def _complete(self, identity: Identity, message: Open) -> bytes:
        self._remove(identity)
        rivals = list(self._of_key.get(identity.key, ()))
        for rival in rivals:
            if rival.msg_seq_num == identity.msg_seq_num:
                self._drop(rival, RIVAL)
        chunks = [message.chunks[chunk] for chunk in range(1, identity.no_chunks + 1)]
        done = Done(array("Q", map(_digest, chunks)), message.seen)
        self._done[identity] = done
        self.held_bytes += done.held_bytes
        self.completed += 1
        self._make_room()
        return b"".join(chunks)

    def _make_room(self) -> None:
        """Keep within the memory: what was given out goes first, then what got no chunk for longest."""
        while self.held_bytes > self.limits.memory_bytes:
            if self._done:
                self._forget(next(iter(self._done)))
            else:
                self._drop(next(iter(self._open)), TOO_LARGE)

    def _sweep(self) -> None:
        """Let go of what is over; each list has its oldest first."""
        for number, of_key in list(self._of_key.items()):
            now = self._moment(number)
            while of_key and (reason := self._why_over(self._open[next(iter(of_key))], now)):
                self._drop(next(iter(of_key)), reason)
        while self._done:
            identity, done = next(iter(self._done.items()))
            if not self._why_over(done, self._moment(identity.key)):
                break
            self._forget(identity)

    def _moment(self, key: int) -> Moment:
        return Moment(int(self._arrivals[key, k.A_COUNT]), int(self._arrivals[key, k.A_NUMBERING]), self._now_ns)

    def _drop(self, identity: Identity, reason: str) -> None:
        message = self._remove(identity)
        self.dropped[reason] += 1
        seen = len(message.chunks)
        self._drops.append(Drop(identity.key, identity.msg_seq_num, seen, identity.no_chunks, reason))

    def _remove(self, identity: Identity) -> Open:
        message = self._open.pop(identity)
        of_key = self._of_key[identity.key]
        del of_key[identity]
        if not of_key:
            del self._of_key[identity.key]
        self.held_bytes -= message.held_bytes
        return message

    def _forget(self, identity: Identity) -> None:
        self.held_bytes -= self._done.pop(identity).held_bytes


def _digest(content: bytes) -> int:
    """Tells a chunk from another one with its number; the same in every process."""
    return len(content) << 32 | zlib.crc32(content)


def _direct(frames: Frames, rows: NDArray[np.int64] | None) -> Messages:
    """The messages of one chunk, which are these rows, or all of them."""
    columns = (frames.start, frames.end, frames.packet, frames.msg_index, frames.msg_seq_num)
    if rows is None:
        return Messages(frames.buffer, *columns, np.arange(len(frames), dtype=np.int64))
    return Messages(frames.buffer, *(column[rows] for column in columns), rows)  # type: ignore[arg-type]


def _gathered(frames: Frames, whole: list[bytes], completing: list[int]) -> Messages:
    """The messages that were gathered, by the rows of the frames that completed them."""
    rows = np.array(completing, np.int64)
    end = np.cumsum([len(message) for message in whole], dtype=np.int64)
    start = end - np.array([len(message) for message in whole], np.int64)
    buffer = np.frombuffer(b"".join(whole), np.uint8)
    return Messages(buffer, start, end, frames.packet[rows], frames.msg_index[rows], frames.msg_seq_num[rows], rows)
