"""Chunks → whole FAST messages, in any order of arrival (messaging spec 4.2.4).

    messages = Reassembler().add(chunks, key)   # key: of each packet, its flow or its channel
    messages.single_chunk       # messages of one chunk: their offsets in the chunks' own buffer, no byte is copied
    messages.multi_chunk        # messages of several chunks that are complete now, in a buffer of their own
    messages.dropped            # messages that will never be complete, and why

Both have an `order` column, the row of the chunk that completed the message: sorted by it, they are in order of
arrival.

Invariant: chunks of two messages are never mixed, and memory is bounded on any input. MsgSeqNum repeats (it is
cyclical on the snapshot and instrument streams, 4.2.6), so nothing is gathered across a new epoch, nor for longer
than `Limits` allows, and a chunk that contradicts an earlier one begins a new message. If a loop is shorter than
`Limits.restart_distance` and faster than `wait_ms`, set a smaller distance, and give each line a key of its own.
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
from umdf.wire.packet import Chunks

# Python's overhead per message and chunk, rounded up, so that small chunks count with their real size.
MESSAGE_OVERHEAD_BYTES, CHUNK_OVERHEAD_BYTES, DIGEST_BYTES = 1024, 192, 8

# Why a message was dropped.
TIMED_OUT = "it waited too long for its other chunks"
TOO_MANY_OPEN = "too many messages of its key were open"
OUT_OF_MEMORY = "open messages took too much memory"
CONTRADICTED = "a chunk came again with other content"
CONFLICTING_NO_CHUNKS = "the same MsgSeqNum was completed with another NoChunks"
EPOCH_CHANGED = "numbering began anew before its other chunks came"
STREAM_ENDED = "the stream ended"


@dataclass(frozen=True)
class Limits:
    open_messages: int = 64  # of one key; the one that got no chunk for longest is dropped
    memory_bytes: int = 8 << 20  # of all keys, including Python's overhead
    wait_chunks: int = 4096  # of the same key, since the message's last chunk
    # Since the message's last chunk, where packets have times. A loss is believed after 20 ms (13.7).
    wait_ms: int = 100
    # A MsgSeqNum so far below the highest of its key begins a new epoch: further than packets overtake others.
    restart_distance: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ConfigError(f"invalid {name}: {value}", "use at least 1, or omit it for the default")


@dataclass(frozen=True)
class DroppedMessage:
    """A quarantine row: a message that was never complete."""

    key: int
    msg_seq_num: int
    chunks_received: int
    no_chunks: int
    reason: str


@dataclass(frozen=True, eq=False)
class Messages:
    """Whole FAST messages, without their technical headers, a row each."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    packet: NDArray[np.uint32]  # the packet of the last chunk that was missing
    msg_index: NDArray[np.uint16]  # and its index there
    msg_seq_num: NDArray[np.uint32]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


class ReassembledMessages(NamedTuple):
    single_chunk: Messages
    multi_chunk: Messages
    dropped: list[DroppedMessage]


class MessageKey(NamedTuple):
    key: int
    msg_seq_num: int
    no_chunks: int


class Arrival(NamedTuple):
    chunk_count: int  # count of frames of the key
    epoch: int  # of the key
    ts_ns: int


@dataclass(slots=True)
class OpenMessage:
    """An incomplete message. No memory is reserved for the chunks that NoChunks announces."""

    last_arrival: Arrival  # when its last chunk came
    chunks: dict[int, bytes] = field(default_factory=dict)
    held_bytes: int = MESSAGE_OVERHEAD_BYTES


@dataclass(slots=True)
class CompletedMessage:
    """A delivered message: its chunks may arrive again, on the other line, and must not open it again."""

    digests: array[int]
    last_arrival: Arrival

    @property
    def held_bytes(self) -> int:
        return MESSAGE_OVERHEAD_BYTES + DIGEST_BYTES * len(self.digests)


class Reassembler:
    """Gathers the chunks of any number of keys, from batch to batch. It can be pickled between batches."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.completed = 0  # messages of several chunks
        self.duplicates = 0  # chunks that had already arrived
        self.dropped_by_reason: Counter[str] = Counter()  # messages, by reason
        self.held_bytes = 0
        self._open: OrderedDict[MessageKey, OpenMessage] = OrderedDict()  # the one longest without a new chunk first
        self._open_by_key: dict[int, OrderedDict[MessageKey, None]] = {}  # the same, of each key
        self._completed: OrderedDict[MessageKey, CompletedMessage] = OrderedDict()
        self._key_states = np.zeros((0, k.KEY_STATE), np.int64)  # of each key
        self._now_ns = 0
        self._dropped: list[DroppedMessage] = []

    def add(
        self, chunks: Chunks, key: NDArray[np.uint16], ts_ns: NDArray[np.int64] | None = None
    ) -> ReassembledMessages:
        """The messages that the chunks complete. `key` and `ts_ns` have a row for each packet."""
        assert len(key) == chunks.packets and (ts_ns is None or len(ts_ns) == chunks.packets)
        if chunks.multi_chunk_rows == 0 and not self._open and not self._completed:
            return ReassembledMessages(_single_chunk_messages(chunks, None), _multi_chunk_messages(chunks, [], []), [])
        key = np.ascontiguousarray(key, np.uint16)
        chunk_arrivals = self._count_chunk_arrivals(chunks, key)
        rows = np.flatnonzero(chunks.no_chunks > 1)
        packet = chunks.packet[rows]
        times = np.zeros(len(rows), np.int64) if ts_ns is None else ts_ns[packet]
        columns = (key[packet], chunks.msg_seq_num[rows], chunks.no_chunks[rows], chunks.current_chunk[rows])
        chunk_columns = (chunks.start[rows], chunks.end[rows], rows, *chunk_arrivals.T, times)
        messages: list[bytes] = []
        completing_rows: list[int] = []
        view = chunks.buffer.data
        for number, sequence, no_chunks, chunk, start, end, row, arrival, numbering, time in zip(
            *(column.tolist() for column in (*columns, *chunk_columns)), strict=True
        ):
            self._now_ns = max(self._now_ns, time)
            now = Arrival(arrival, numbering, self._now_ns)
            message = self._add_chunk(MessageKey(number, sequence, no_chunks), chunk, bytes(view[start:end]), now)
            if message is not None:
                messages.append(message)
                completing_rows.append(row)
        if ts_ns is not None:
            self._now_ns = max(self._now_ns, int(ts_ns.max(initial=0)))
        self._expire()
        direct = _single_chunk_messages(chunks, np.flatnonzero(chunks.no_chunks == 1) if len(rows) else None)
        return ReassembledMessages(
            direct, _multi_chunk_messages(chunks, messages, completing_rows), self._take_dropped()
        )

    def finish(self) -> list[DroppedMessage]:
        """No more chunks will arrive: drop the open messages."""
        for identity in list(self._open):
            self._drop(identity, STREAM_ENDED)
        for identity in list(self._completed):
            self._forget_completed(identity)
        return self._take_dropped()

    def _take_dropped(self) -> list[DroppedMessage]:
        drops, self._dropped = self._dropped, []
        return drops

    @property
    def open_messages(self) -> int:
        return len(self._open)

    def _count_chunk_arrivals(self, chunks: Chunks, key: NDArray[np.uint16]) -> NDArray[np.int64]:
        chunk_arrivals = np.empty((chunks.multi_chunk_rows, 2), np.int64)
        missing = (int(key.max()) + 1 if len(key) else 0) - len(self._key_states)
        if missing > 0:
            self._key_states = np.concatenate([self._key_states, np.zeros((missing, k.KEY_STATE), np.int64)])
        arguments = np.zeros(k.ARGUMENTS, np.int64)
        arguments[k.PACKET], arguments[k.NO_CHUNKS] = chunks.packet.ctypes.data, chunks.no_chunks.ctypes.data
        arguments[k.MSG_SEQ_NUM], arguments[k.RESTART_DISTANCE] = (
            chunks.msg_seq_num.ctypes.data,
            self.limits.restart_distance,
        )
        arguments[k.KEYS], arguments[k.ROWS] = key.ctypes.data, len(chunks)
        arguments[k.KEY_STATES], arguments[k.CHUNK_ARRIVALS] = self._key_states.ctypes.data, chunk_arrivals.ctypes.data
        found = k.count_chunk_arrivals(arguments.ctypes.data)
        assert found == chunks.multi_chunk_rows
        return chunk_arrivals

    def _add_chunk(self, identity: MessageKey, chunk: int, content: bytes, now: Arrival) -> bytes | None:
        """Add one chunk; returns the message if it is now complete."""
        if self._is_duplicate(identity, chunk, content, now):
            self.duplicates += 1
            return None
        message = self._open.get(identity)
        if message is not None and (reason := self._expiry_reason(message, now)):
            self._drop(identity, reason)
            message = None
        if message is not None and (before := message.chunks.get(chunk)) is not None:
            if before == content:
                self.duplicates += 1
                return None
            # A new epoch has begun, or the data is wrong: older chunks and newer ones do not make a message.
            self._drop(identity, CONTRADICTED)
            message = None
        if message is None:
            message = self._open_message(identity, now)
        message.chunks[chunk] = content
        message.last_arrival = now
        message.held_bytes += CHUNK_OVERHEAD_BYTES + len(content)
        self.held_bytes += CHUNK_OVERHEAD_BYTES + len(content)
        if len(message.chunks) == identity.no_chunks:
            return self._complete(identity, message)
        self._open.move_to_end(identity)
        self._open_by_key[identity.key].move_to_end(identity)
        self._evict()
        return None

    def _is_duplicate(self, identity: MessageKey, chunk: int, content: bytes, now: Arrival) -> bool:
        done = self._completed.get(identity)
        if done is None:
            return False
        if not self._expiry_reason(done, now) and done.digests[chunk - 1] == _digest(content):
            return True
        self._forget_completed(identity)
        return False

    def _expiry_reason(self, message: OpenMessage | CompletedMessage, now: Arrival) -> str:
        """The reason why no later chunk can belong to the message; empty if one can."""
        seen = message.last_arrival
        if now.epoch != seen.epoch:
            return EPOCH_CHANGED
        waited = now.chunk_count - seen.chunk_count > self.limits.wait_chunks
        return TIMED_OUT if waited or now.ts_ns - seen.ts_ns > self.limits.wait_ms * 1_000_000 else ""

    def _open_message(self, identity: MessageKey, now: Arrival) -> OpenMessage:
        of_key = self._open_by_key.setdefault(identity.key, OrderedDict())
        if len(of_key) >= self.limits.open_messages:
            self._drop(next(iter(of_key)), TOO_MANY_OPEN)
            of_key = self._open_by_key.setdefault(identity.key, of_key)
        of_key[identity] = None
        message = self._open[identity] = OpenMessage(now)
        self.held_bytes += message.held_bytes
        return message

    def _complete(self, identity: MessageKey, message: OpenMessage) -> bytes:
        self._remove(identity)
        others = list(self._open_by_key.get(identity.key, ()))
        for other in others:
            if other.msg_seq_num == identity.msg_seq_num:
                self._drop(other, CONFLICTING_NO_CHUNKS)
        chunks = [message.chunks[chunk] for chunk in range(1, identity.no_chunks + 1)]
        done = CompletedMessage(array("Q", map(_digest, chunks)), message.last_arrival)
        self._completed[identity] = done
        self.held_bytes += done.held_bytes
        self.completed += 1
        self._evict()
        return b"".join(chunks)

    def _evict(self) -> None:
        """Stay within the memory limit: drop delivered messages first, then those longest without a chunk."""
        while self.held_bytes > self.limits.memory_bytes:
            if self._completed:
                self._forget_completed(next(iter(self._completed)))
            else:
                self._drop(next(iter(self._open)), OUT_OF_MEMORY)

    def _expire(self) -> None:
        """Remove what has expired; each list has its oldest first."""
        for number, of_key in list(self._open_by_key.items()):
            now = self._current_arrival(number)
            while of_key and (reason := self._expiry_reason(self._open[next(iter(of_key))], now)):
                self._drop(next(iter(of_key)), reason)
        while self._completed:
            identity, done = next(iter(self._completed.items()))
            if not self._expiry_reason(done, self._current_arrival(identity.key)):
                break
            self._forget_completed(identity)

    def _current_arrival(self, key: int) -> Arrival:
        return Arrival(int(self._key_states[key, k.K_CHUNKS]), int(self._key_states[key, k.K_EPOCH]), self._now_ns)

    def _drop(self, identity: MessageKey, reason: str) -> None:
        message = self._remove(identity)
        self.dropped_by_reason[reason] += 1
        seen = len(message.chunks)
        self._dropped.append(DroppedMessage(identity.key, identity.msg_seq_num, seen, identity.no_chunks, reason))

    def _remove(self, identity: MessageKey) -> OpenMessage:
        message = self._open.pop(identity)
        of_key = self._open_by_key[identity.key]
        del of_key[identity]
        if not of_key:
            del self._open_by_key[identity.key]
        self.held_bytes -= message.held_bytes
        return message

    def _forget_completed(self, identity: MessageKey) -> None:
        self.held_bytes -= self._completed.pop(identity).held_bytes


def _digest(content: bytes) -> int:
    """Distinguishes chunks with the same number; the same in every process."""
    return len(content) << 32 | zlib.crc32(content)


def _single_chunk_messages(chunks: Chunks, rows: NDArray[np.int64] | None) -> Messages:
    """The messages of one chunk: these rows, or all of them."""
    columns = (chunks.start, chunks.end, chunks.packet, chunks.msg_index, chunks.msg_seq_num)
    if rows is None:
        return Messages(chunks.buffer, *columns, np.arange(len(chunks), dtype=np.int64))
    return Messages(chunks.buffer, *(column[rows] for column in columns), rows)  # type: ignore[arg-type]


def _multi_chunk_messages(chunks: Chunks, messages: list[bytes], completing_rows: list[int]) -> Messages:
    """The messages that were gathered, by the rows of the frames that completed them."""
    rows = np.array(completing_rows, np.int64)
    end = np.cumsum([len(message) for message in messages], dtype=np.int64)
    start = end - np.array([len(message) for message in messages], np.int64)
    buffer = np.frombuffer(b"".join(messages), np.uint8)
    return Messages(buffer, start, end, chunks.packet[rows], chunks.msg_index[rows], chunks.msg_seq_num[rows], rows)
