"""One line of an incremental stream that is numbered alone, as after a restart of one site (FIX/FAST 4.2.8).

Binary: another sequence version. FIX/FAST: a SequenceReset, then number 1; MsgSeqNum (34) in the message is that of
the technical header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from umdf.exchange.network.faults import SECOND_NS, Renumbering
from umdf.exchange.publish.channel_settings import FAST

SBE_HEADER = struct.Struct("<BBHI")
FAST_HEADER = struct.Struct(">IHHH")
SEQUENCE_RESET = 122  # template id
VERSION_STEP = 100  # far from the versions that the exchange uses next
STOP = 0x80


class LineNumbering:
    def __init__(self, protocol: str, times: Sequence[Renumbering], start_ns: int) -> None:
        self._is_fast = protocol == FAST
        self._times = [(start_ns + round(t.from_s * SECOND_NS), start_ns + round(t.until_s * SECOND_NS)) for t in times]
        self._current: tuple[int, int] | None = None  # the time in which the line is numbered alone
        self._base: int | None = None  # what is subtracted from its numbers
        self._reset = b""  # the last SequenceReset of the stream (FIX/FAST)

    def before(self, content: bytes, ts_ns: int) -> list[bytes]:
        """What is sent before a packet: the SequenceReset with which the line's own numbering starts."""
        if self._is_fast:
            for message, _ in _messages(content):
                if template_id(message) == SEQUENCE_RESET:
                    self._reset, self._base = message, None  # another numbering, which all lines have
                    self._times = [time for time in self._times if time != self._current]
        now = next((time for time in self._times if time[0] <= ts_ns < time[1]), None)
        if now == self._current:
            return []
        self._current, self._base = now, None
        if now is None or not self._is_fast or not self._reset:
            return []
        found = next(_messages(content), None)
        number = 1 if found is None else found[1]
        message = with_sending_time(with_sequence(self._reset, number), ts_ns)
        return [FAST_HEADER.pack(number, 1, 1, len(message)) + message]

    def renumbered(self, content: bytes, ts_ns: int) -> bytes:
        if self._current is None:
            return content
        return self._fast(content) if self._is_fast else self._sbe(content)

    def _number(self, sequence: int) -> int:
        if self._base is None or sequence <= self._base:
            self._base = sequence - 1
        return sequence - self._base

    def _sbe(self, content: bytes) -> bytes:
        channel, reserved, version, sequence = SBE_HEADER.unpack_from(content)
        if not sequence:  # a heartbeat states the next number
            return b"" if self._base is None else self._heartbeat(content)
        header = SBE_HEADER.pack(channel, reserved, version + VERSION_STEP, self._number(sequence))
        return header + content[SBE_HEADER.size :]

    def _heartbeat(self, content: bytes) -> bytes:
        channel, reserved, version, _ = SBE_HEADER.unpack_from(content)
        at = 28  # nextSeqNo of Sequence_2: behind the packet, framing and message headers (16, 4 and 8 bytes)
        number = struct.unpack_from("<I", content, at)[0] - (self._base or 0)
        header = SBE_HEADER.pack(channel, reserved, version + VERSION_STEP, 0)
        return header + content[SBE_HEADER.size : at] + struct.pack("<I", max(number, 1)) + content[at + 4 :]

    def _fast(self, content: bytes) -> bytes:
        parts, at = list[bytes](), 0
        while at + FAST_HEADER.size <= len(content):
            sequence, chunks, current, size = FAST_HEADER.unpack_from(content, at)
            message, number = content[at + FAST_HEADER.size : at + FAST_HEADER.size + size], self._number(sequence)
            if current == 1:
                message = with_sequence(message, number)
            parts.append(FAST_HEADER.pack(number, chunks, current, len(message)) + message)
            at += FAST_HEADER.size + size
        return b"".join(parts)


def _messages(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The messages, or chunks, of a packet of FIX/FAST, each with its number."""
    at = 0
    while at + FAST_HEADER.size <= len(content):
        sequence, _, current, size = FAST_HEADER.unpack_from(content, at)
        if current == 1:
            yield content[at + FAST_HEADER.size : at + FAST_HEADER.size + size], sequence
        at += FAST_HEADER.size + size


def _end_of_field(message: bytes, at: int) -> int:
    while at < len(message) and not message[at] & STOP:
        at += 1
    return at + 1


def template_id(message: bytes) -> int:
    """Behind the presence map."""
    at = _end_of_field(message, 0)
    value = 0
    for byte in message[at : _end_of_field(message, at)]:
        value = value << 7 | byte & ~STOP
    return value


def with_sequence(message: bytes, sequence: int) -> bytes:
    """A message with another MsgSeqNum (34): the first field that is sent, in every template of the exchange."""
    first = _end_of_field(message, _end_of_field(message, 0))
    return message[:first] + _stop_bit_encoded(sequence) + message[_end_of_field(message, first) :]


def with_sending_time(reset: bytes, ts_ns: int) -> bytes:
    """A SequenceReset with another SendingTime (52), which is sent behind MsgSeqNum: each restart has its own."""
    first = _end_of_field(reset, _end_of_field(reset, _end_of_field(reset, 0)))
    moment = datetime.fromtimestamp(ts_ns // SECOND_NS, UTC)
    sent = int(f"{moment:%Y%m%d%H%M%S}{ts_ns // 1_000_000 % 1_000:03}")
    return reset[:first] + _stop_bit_encoded(sent) + reset[_end_of_field(reset, first) :]


def _stop_bit_encoded(value: int) -> bytes:
    groups = [value & 0x7F | STOP]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes(reversed(groups))
