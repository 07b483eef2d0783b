"""A replayer behind a network with faults: a connection that wraps the connection to it.

It is slow, refuses, answers wrongly, not at all, or is down. What a FIX session needs stays right: a message that does
not come is a heartbeat instead, so that the numbers of the session go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from umdf.exchange.network.faults import MS_NS, REPLAYER_STREAM, SECOND_NS, Faults
from umdf.transport.tcp import Connection
from umdf.wire.fix import replay_messages as m
from umdf.wire.fix.message import FieldValue, FixFramer, FixMessage, encode_message

HEARTBEAT = "0"
HEADER_TAGS = frozenset({49, 56, 34, 52, 43, 122})
OTHER_CHANNEL = "254"


class FaultyReplayer:
    def __init__(self, connection: Connection, random: np.random.Generator, faults: Faults, start_ns: int) -> None:
        self._connection, self._random, self._faults, self._start_ns = connection, random, faults, start_ns
        self._framer = FixFramer()
        self._delayed: deque[tuple[int, bytes]] = deque()  # when it is sent
        self._refused: set[str] = set()  # requests

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed and not self._delayed

    @property
    def has_work(self) -> bool:
        return self._connection.has_work

    def receive(self, data: bytes, now_ns: int) -> None:
        self._connection.receive(data, now_ns)

    def tick(self, now_ns: int) -> None:
        if is_replayer_down(self._faults, self._start_ns, now_ns):
            self.close("the replayer is down")
        else:
            self._connection.tick(now_ns)

    def take_output(self, now_ns: int) -> bytes:
        is_over = now_ns - self._start_ns >= self._faults.ends_s * SECOND_NS
        due_ns = now_ns + (0 if is_over else round(self._faults.replayer_delay_ms * MS_NS))
        for message in self._framer.feed(self._connection.take_output(now_ns)):
            if isinstance(message, FixMessage):
                self._delayed.append((due_ns, _encoded(message if is_over else self._changed(message))))
        parts = list[bytes]()
        while self._delayed and self._delayed[0][0] <= now_ns:
            parts.append(self._delayed.popleft()[1])
        return b"".join(parts)

    def close(self, reason: str) -> None:
        self._delayed.clear()
        if not self._connection.is_closed:
            self._connection.close(reason)

    def _changed(self, message: FixMessage) -> FixMessage:
        faults, random, request_id = self._faults, self._random, message.text(1346)
        if message.msg_type == m.ACKNOWLEDGMENT and message.integer(1348) == m.ResponseType.ACCEPTED:
            if random.random() >= faults.replayer_refusals:
                return message
            self._refused.add(request_id)
            refusal = m.Acknowledgment(
                message.text(1353), request_id, m.ResponseType.UNAVAILABLE, None, None, m.ResponseStatus.UNAVAILABLE
            )
            return _with_body(message, m.ACKNOWLEDGMENT, refusal.fields())
        if message.msg_type not in (m.RAW_DATA, m.REPORT):
            return message
        if request_id in self._refused or random.random() < faults.replayer_loss:
            return _with_body(message, HEARTBEAT, [])
        raw = m.parse_raw_data(message) if message.msg_type == m.RAW_DATA else None
        if isinstance(raw, m.RawData) and random.random() < faults.replayer_corruption:
            return _with_body(message, m.RAW_DATA, wrong_answer(raw, random).fields())
        return message


def is_replayer_down(faults: Faults, start_ns: int, now_ns: int) -> bool:
    seconds = (now_ns - start_ns) / SECOND_NS
    found = (outage for outage in faults.outages if outage.stream == REPLAYER_STREAM)
    return seconds < faults.ends_s and any(outage.from_s <= seconds < outage.until_s for outage in found)


def wrong_answer(raw: m.RawData, random: np.random.Generator) -> m.RawData:
    """What was not requested, or is not what it is said to be."""
    messages = raw.messages
    kind = int(random.integers(4))
    if kind == 0:  # contents under other numbers
        shifted = [messages[(at + 1) % len(messages)].data for at in range(len(messages))]
        if len(messages) == 1:
            return replace(raw, messages=(replace(messages[0], sequence=messages[0].sequence + 1),))
        changed = (replace(message, data=data) for message, data in zip(messages, shifted, strict=True))
        return replace(raw, messages=tuple(changed))
    if kind == 1:
        return replace(raw, channel=OTHER_CHANNEL)
    if kind == 2:  # numbers that nobody asked for
        return replace(raw, messages=tuple(replace(each, sequence=each.sequence + 5_000) for each in messages))
    shorter = tuple(replace(each, data=each.data[: max(1, len(each.data) - 3)]) for each in messages)
    return replace(raw, messages=shorter)


def _with_body(message: FixMessage, msg_type: str, fields: Sequence[tuple[int, FieldValue]]) -> FixMessage:
    header = [(tag, value) for tag, value in message.fields if tag in HEADER_TAGS]
    body = [(tag, value if isinstance(value, bytes) else str(value).encode("latin-1")) for tag, value in fields]
    return replace(message, fields=((35, msg_type.encode("latin-1")), *header, *body))


def _encoded(message: FixMessage) -> bytes:
    # Without fields that have no value: some replayers send them, and they cannot be encoded.
    return encode_message(message.msg_type, [field for field in message.fields[1:] if field[1]])
