"""FIX 4.4 messages as bytes: encoding, and framing of a byte stream. No session and no I/O.

    framer = FixFramer()
    for message in framer.feed(data): ...      # FixMessage, or GarbledBytes for what was skipped
    data = encode_message("BW", [(1346, "r1"), ...])

A data field may hold SOH bytes, so messages are framed by BodyLength (9), and a data field is as long as the length
field before it says. Tag 95 is both the length of RawData (96) and a member of NoApplSeqNums (10054): the 95 directly
before 96 is the length. Fields keep their order and repeat, so a message is a list of fields, never a flat map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from umdf.errors import EncodeError

SOH = b"\x01"
BEGIN_STRING = b"FIX.4.4"
MAX_MESSAGE_BYTES = 256 << 10  # a report with RawData has at most about 60 KB, plus its group
MAX_DATA_FIELDS = 16  # of a message; each is looked up among all lengths before it
# Length fields of the data fields that a session may carry, by data field.
LENGTH_OF_DATA = {96: 95, 91: 90, 89: 93, 213: 212, 349: 348, 351: 350, 353: 352, 355: 354, 357: 356, 359: 358}
_HEAD = re.compile(rb"8=([^\x01]{1,16})\x019=(\d{1,9})\x01")
_PLAIN_FIELD = re.compile(rb"([1-9]\d{0,8})=([^\x01]*)\x01")  # without a value: the session rejects it
_DATA_FIELD = re.compile(rb"(?:\A|\x01)(" + b"|".join(b"%d" % tag for tag in LENGTH_OF_DATA) + rb")=")
_TRAILER, _TRAILER_BYTES = re.compile(rb"10=\d{3}\x01"), 7
_MAX_HEAD_BYTES = len(b"8=") + 16 + len(b"\x019=") + 9 + 1

FieldValue = str | int | bytes
Fields = Iterable[tuple[int, FieldValue]]


@dataclass(frozen=True, slots=True)
class FixMessage:
    """The fields between BodyLength and CheckSum, in order; the first is MsgType (35)."""

    fields: tuple[tuple[int, bytes], ...]
    begin_string: bytes = BEGIN_STRING
    empty_tag: int = 0  # the first one without a value, which FIX does not allow

    @property
    def msg_type(self) -> str:
        return self.text(35)

    def get(self, tag: int) -> bytes | None:
        """The first value of a tag."""
        return next((value for number, value in self.fields if number == tag), None)

    def text(self, tag: int) -> str:
        """The first value of a tag, empty if it is absent."""
        return (self.get(tag) or b"").decode("latin-1")

    def integer(self, tag: int) -> int | None:
        """The first value of a tag as a number; None if it is absent or not a number."""
        return parse_integer(self.get(tag))

    def group(self, count_tag: int, members: frozenset[int]) -> list[dict[int, bytes]] | None:
        """The entries of a repeating group, in whatever order their fields are; None if the count is wrong.

        A tag that repeats starts an entry, and a field that is no member ends the group.
        """
        tags, values = self._columns
        at = tags.index(count_tag) + 1 if count_tag in tags else 0
        count = parse_integer(values[at - 1]) if at else None
        if count is None:
            return None
        # Usually all entries have the same fields in the same order.
        first = tags[at : _end_of_entry(tags, at)]
        end = at + count * len(first)
        # A count that the message cannot hold is not multiplied out: it may be any number.
        is_possible = first and count > 0 and end <= len(tags) and members.issuperset(first)
        if is_possible and tags[at:end] == first * count and not _goes_on(tags, end, members):
            steps = range(at, end, len(first))
            return [dict(zip(first, values[step : step + len(first)], strict=True)) for step in steps]
        return self._irregular_group(at, count, members)

    def _irregular_group(self, at: int, count: int, members: frozenset[int]) -> list[dict[int, bytes]] | None:
        entries: list[dict[int, bytes]] = []
        following = [*self.fields[at:], (0, b""), (0, b"")]
        for (tag, value), (next_tag, _) in pairwise(following):
            if tag not in members or LENGTH_OF_DATA.get(next_tag) == tag:
                break
            if not entries or tag in entries[-1]:
                entries.append({})
            entries[-1][tag] = value
        return entries if len(entries) == count else None

    @property
    def _columns(self) -> tuple[list[int], list[bytes]]:
        return [tag for tag, _ in self.fields], [value for _, value in self.fields]


@dataclass(frozen=True, slots=True)
class GarbledBytes:
    """Bytes that are no message; the session ignores them, and their sequence number counts as not received."""

    size: int
    reason: str


def _end_of_entry(tags: list[int], at: int) -> int:
    """Where the second entry of a group begins: its first field comes again."""
    return tags.index(tags[at], at + 1) if at < len(tags) and tags[at] in tags[at + 1 :] else len(tags)


def _goes_on(tags: list[int], end: int, members: frozenset[int]) -> bool:
    """Whether what follows could belong to the group; the length of a data field does not."""
    following = tags[end : end + 2]
    if not following or following[0] not in members:
        return False
    return len(following) < 2 or LENGTH_OF_DATA.get(following[1]) != following[0]


def parse_integer(value: bytes | None) -> int | None:
    # int() accepts more than FIX does: spaces, underscores, other digits.
    if value is None or not value.removeprefix(b"-").isdigit() or len(value) > 18:
        return None
    return int(value)


class EncodedGroup(bytes):
    """The count of a repeating group and its entries as they are sent, without the last SOH."""


def checksum(data: bytes) -> int:
    return int(np.frombuffer(data, np.uint8).sum(dtype=np.uint64)) & 0xFF


def utc_timestamp(now_ns: int) -> str:
    """UTCTimestamp with milliseconds."""
    moment = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    return f"{moment:%Y%m%d-%H:%M:%S}.{now_ns // 1_000_000 % 1_000:03d}"


def encode_message(msg_type: str, fields: Fields) -> bytes:
    """A whole message. `fields` follow MsgType in this order; the length of a data field is not added."""
    body = b"35=%s\x01" % msg_type.encode("latin-1") + b"".join(_encode_field(*field) for field in fields)
    message = b"8=%s\x019=%d\x01" % (BEGIN_STRING, len(body)) + body
    return message + b"10=%03d\x01" % checksum(message)


def _encode_field(tag: int, value: FieldValue) -> bytes:
    data = value if isinstance(value, bytes) else str(value).encode("latin-1")
    if not data or (SOH in data and tag not in LENGTH_OF_DATA and not isinstance(value, EncodedGroup)):
        raise EncodeError(
            f"value of tag {tag} cannot be sent: {data[:40]!r}", "use at least one character, without SOH"
        )
    return b"%d=%s\x01" % (tag, data)


class FixFramer:
    """Finds messages in a byte stream. Memory is bounded by the longest message."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = bytearray()
        self._max_message_bytes = max_message_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[FixMessage | GarbledBytes]:
        """Messages that are complete now."""
        self._buffer += data
        while self._buffer:
            found = self._next()
            if found is None:
                return
            yield found

    def _next(self) -> FixMessage | GarbledBytes | None:
        buffer = self._buffer
        if not buffer.startswith(b"8="[: len(buffer)]):
            return self._skip_to_begin(1, "no BeginString")
        head = _HEAD.match(bytes(buffer[:_MAX_HEAD_BYTES]))
        if head is None:
            if len(buffer) < _MAX_HEAD_BYTES and _may_be_head(buffer):
                return None
            return self._skip_to_begin(2, "BeginString (8) and BodyLength (9) expected")
        begin_string, body, size = bytes(head[1]), head.end(), head.end() + int(head[2]) + _TRAILER_BYTES
        if size > self._max_message_bytes:
            return self._skip_to_begin(2, f"BodyLength {size - body - _TRAILER_BYTES} is too long")
        if len(buffer) < size:
            return None
        trailer = size - _TRAILER_BYTES
        if buffer[trailer - 1] != 1 or not _TRAILER.fullmatch(buffer, trailer, size):
            return self._skip_to_begin(2, "BodyLength (9) does not lead to CheckSum (10)")
        message = bytes(buffer[:size])
        if checksum(message[:trailer]) != int(message[trailer + 3 : -1]):
            return self._drop(size, "wrong CheckSum (10)")
        fields = parse_fields(message[body:trailer])
        if fields is None or fields[0][0] != 35 or not fields[0][1]:
            return self._drop(size, "no sequence of tag=value fields that starts with MsgType (35)")
        del buffer[:size]
        may_have_empty = message.find(b"=\x01", body, trailer) >= 0  # or RawData has these bytes
        empty_tag = next((tag for tag, value in fields if not value), 0) if may_have_empty else 0
        return FixMessage(fields, begin_string, empty_tag)

    def _drop(self, size: int, reason: str) -> GarbledBytes:
        del self._buffer[:size]
        return GarbledBytes(size, reason)

    def _skip_to_begin(self, first: int, reason: str) -> GarbledBytes:
        """Drop everything before what may be the next message."""
        found = self._buffer.find(b"8=FIX", first)
        if found < 0:  # its first bytes may be there already
            found = next(
                (at for at in range(max(first, len(self._buffer) - 4), len(self._buffer))
                 if b"8=FIX".startswith(self._buffer[at:])),
                len(self._buffer),
            )  # fmt: skip
        return self._drop(found, reason)


def _may_be_head(buffer: bytearray) -> bool:
    """Whether more bytes can make this the start of a message."""
    begin, separator, rest = bytes(buffer).partition(SOH)
    if not separator:
        return len(begin) <= len(b"8=") + 16
    return b"9=".startswith(rest) or (rest.startswith(b"9=") and rest[2:].isdigit() and len(rest) <= 11)


def parse_fields(body: bytes) -> tuple[tuple[int, bytes], ...] | None:
    """The fields of a body; None if it is not a sequence of fields."""
    fields: list[tuple[int, bytes]] = []
    at = data_fields = 0
    while at < len(body):
        found = _DATA_FIELD.search(body, max(at - 1, 0))
        stop = len(body) if found is None else found.start(1)
        plain = _PLAIN_FIELD.findall(body, at, stop)
        if sum(len(tag) + len(value) + 2 for tag, value in plain) != stop - at:
            return None
        fields += [(int(tag), value) for tag, value in plain]
        at = stop
        if found is not None:
            data_fields += 1
            if data_fields > MAX_DATA_FIELDS:
                return None
            tag = int(found[1])
            end = _data_end(body, found.end(), [value for number, value in fields if number == LENGTH_OF_DATA[tag]])
            if end is None:
                return None
            fields.append((tag, body[found.end() : end]))
            at = end + 1
    return tuple(fields) or None


def _data_end(body: bytes, start: int, lengths: list[bytes]) -> int | None:
    """Where a data field ends: by the length directly before it, or by an earlier one if that cannot be (any order)."""
    for value in reversed(lengths):
        end = start + (parse_integer(value) or 0)
        if start < end < len(body) and body[end] == 1:
            return end
    return None
