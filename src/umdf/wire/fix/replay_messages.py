"""The application messages of the replayers (FIX/FAST reference 2.1): request, acknowledgment, raw data, report.

`fields` of a message are what `FixSession.send` takes; `parse_…` return it, or the field that is missing or wrong.
Field order on the wire: 95 and 96 before the group 10054, 1181 first in each of its entries; any order is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from umdf.wire.fix.message import EncodedGroup, FieldValue, FixMessage, parse_integer
from umdf.wire.fix.session_messages import (
    GROUP_COUNT_INCORRECT,
    VALUE_INCORRECT,
    WrongField,
    missing_field,
    not_a_number,
)

REQUEST, ACKNOWLEDGMENT, RAW_DATA, REPORT = "BW", "BX", "URDR", "BY"
RETRANSMISSION = 0  # the only ApplReqType (1347)
MAX_REQUEST_MESSAGES = 2_000
_APPLICATIONS, _SEQUENCES = 1351, 10054
_REQUEST_GROUP = frozenset({1355, 1182, 1183})
_ACKNOWLEDGMENT_GROUP = _REQUEST_GROUP | {1354, 35021}
_REPORT_GROUP = frozenset({1355, 1357, 1354})
_SEQUENCE_GROUP = frozenset({1181, 1350, 10055, 95})


class ResponseType(IntEnum):
    """ApplRespType (1348)."""

    ACCEPTED = 0
    UNKNOWN_APPLICATION = 1
    NOT_ACCEPTED = 2
    IN_PROGRESS = 3
    TOO_MANY_APPLICATIONS = 4
    UNAVAILABLE = 7


class ResponseError(IntEnum):
    """ApplRespError (1354); 0 to 4 in an acknowledgment, 1 and 5 to 7 in a report, 8 in both."""

    UNKNOWN_APPLICATION = 0
    MESSAGES_GONE = 1
    INVALID_RANGE = 3
    TOO_MANY_MESSAGES = 4
    NEWEST_NOT_AVAILABLE = 5
    OLDEST_NOT_AVAILABLE = 6
    BOTH_ENDS_NOT_AVAILABLE = 7
    NO_RESOURCES = 8


class ResponseStatus(IntEnum):
    """ApplResponseStatus (35021)."""

    SUCCESS = 0
    NOT_AUTHORIZED = 1
    INVALID_RANGE = 2
    IN_PROGRESS = 3
    UNAVAILABLE = 4


class ReportType(IntEnum):
    """ApplReportType (1426)."""

    COMPLETED = 3
    ERROR = 4


@dataclass(frozen=True)
class ChannelRange:
    """A channel as a request names it (1355), and the sequences from first to last."""

    channel: str
    first: int
    last: int


@dataclass(frozen=True)
class ReplayRequest:
    request_id: str
    ranges: tuple[ChannelRange, ...]  # the exchange serves one

    def fields(self) -> list[tuple[int, FieldValue]]:
        group = [part for one in self.ranges for part in _range_fields(one)]
        return [(1346, self.request_id), (1347, RETRANSMISSION), (_APPLICATIONS, len(self.ranges)), *group]


@dataclass(frozen=True)
class Acknowledgment:
    response_id: str
    request_id: str
    response_type: int
    range: ChannelRange | None = None
    error: int | None = None
    status: int | None = None

    def fields(self) -> list[tuple[int, FieldValue]]:
        fields: list[tuple[int, FieldValue]] = [(1353, self.response_id), (1346, self.request_id)]
        fields += [(1347, RETRANSMISSION), (1348, self.response_type)]
        if self.range is not None:
            fields += [(_APPLICATIONS, 1), *_range_fields(self.range)]
            fields += [(tag, value) for tag, value in ((1354, self.error), (35021, self.status)) if value is not None]
        return fields


@dataclass(frozen=True)
class ReplayedMessage:
    sequence: int
    previous_sequence: int  # 0: the first of the answer
    data: bytes  # FAST, without technical header


@dataclass(frozen=True)
class RawData:
    request_id: str
    response_id: str
    channel: str
    total: int  # messages of the whole answer
    messages: tuple[ReplayedMessage, ...]

    def fields(self) -> list[tuple[int, FieldValue]]:
        data = b"".join([message.data for message in self.messages])
        return [
            (1346, self.request_id), (1353, self.response_id), (1180, self.channel), (1352, "Y"), (95, len(data)),
            (96, data), (911, self.total), (_SEQUENCES, self._group()),
        ]  # fmt: skip

    def _group(self) -> EncodedGroup:
        parts, offset = [b"%d" % len(self.messages)], 0
        for message in self.messages:
            size = len(message.data)
            numbers = message.sequence, message.previous_sequence, offset, size
            parts.append(b"1181=%d\x011350=%d\x0110055=%d\x0195=%d" % numbers)
            offset += size
        return EncodedGroup(b"\x01".join(parts))


@dataclass(frozen=True)
class Report:
    report_id: str
    report_type: int
    request_id: str
    response_id: str
    channel: str
    last_sequence: int | None = None
    error: int | None = None

    def fields(self) -> list[tuple[int, FieldValue]]:
        optional = ((1357, self.last_sequence), (1354, self.error))
        return [
            (1356, self.report_id), (1426, self.report_type), (1347, RETRANSMISSION), (1346, self.request_id),
            (1353, self.response_id), (_APPLICATIONS, 1), (1355, self.channel),
            *((tag, value) for tag, value in optional if value is not None),
        ]  # fmt: skip


def _range_fields(one: ChannelRange) -> list[tuple[int, FieldValue]]:
    return [(1355, one.channel), (1182, one.first), (1183, one.last)]


def parse_request(message: FixMessage) -> ReplayRequest | WrongField:
    request_id, request_type = message.text(1346), message.integer(1347)
    if not request_id:
        return missing_field(1346)
    if request_type is None:
        return not_a_number(1347, message.get(1347))
    if request_type != RETRANSMISSION:
        return WrongField(VALUE_INCORRECT, 1347, "ApplReqType is not 0")
    entries = message.group(_APPLICATIONS, _REQUEST_GROUP)
    if not entries:
        return _wrong_count(message, _APPLICATIONS)
    ranges = []
    for entry in entries:
        channel, first, last = entry.get(1355, b""), _number(entry, 1182), _number(entry, 1183)
        if not channel:
            return missing_field(1355)
        if first is None or last is None:
            tag = 1182 if first is None else 1183
            return not_a_number(tag, entry.get(tag))
        ranges.append(ChannelRange(channel.decode("latin-1"), first, last))
    return ReplayRequest(request_id, tuple(ranges))


def parse_acknowledgment(message: FixMessage) -> Acknowledgment | WrongField:
    response_type = message.integer(1348)
    if not message.text(1346) or response_type is None:
        return missing_field(1348 if message.text(1346) else 1346)
    entries = message.group(_APPLICATIONS, _ACKNOWLEDGMENT_GROUP)
    entry = entries[0] if entries else {}
    channel, first, last = entry.get(1355), _number(entry, 1182), _number(entry, 1183)
    one = ChannelRange(channel.decode("latin-1"), first or 0, last or 0) if channel else None
    # The status stands in the group in the reference's table; some engines write it behind.
    status = _number(entry, 35021) if 35021 in entry else message.integer(35021)
    return Acknowledgment(
        message.text(1353), message.text(1346), response_type, one, _number(entry, 1354), status
    )  # fmt: skip


def parse_raw_data(message: FixMessage) -> RawData | WrongField:
    data, total = message.get(96), message.integer(911)
    if data is None or total is None:
        return missing_field(96 if data is None else 911)
    entries = message.group(_SEQUENCES, _SEQUENCE_GROUP)
    if not entries:
        return _wrong_count(message, _SEQUENCES)
    messages = []
    for entry in entries:
        sequence, previous = _number(entry, 1181), _number(entry, 1350)
        offset, size = _number(entry, 10055), _number(entry, 95)
        if sequence is None or offset is None or size is None or size < 1 or not 0 <= offset <= len(data) - size:
            text = f"an entry lies outside of RawData: {sequence} at {offset}, {size} bytes"
            return WrongField(VALUE_INCORRECT, _SEQUENCES, text)
        messages.append(ReplayedMessage(sequence, previous or 0, data[offset : offset + size]))
    return RawData(message.text(1346), message.text(1353), message.text(1180), total, tuple(messages))


def parse_report(message: FixMessage) -> Report | WrongField:
    report_type = message.integer(1426)
    if not message.text(1346) or report_type is None:
        return missing_field(1426 if message.text(1346) else 1346)
    entries = message.group(_APPLICATIONS, _REPORT_GROUP)
    entry = entries[0] if entries else {}
    return Report(
        message.text(1356), report_type, message.text(1346), message.text(1353),
        entry.get(1355, b"").decode("latin-1"), _number(entry, 1357), _number(entry, 1354),
    )  # fmt: skip


def _wrong_count(message: FixMessage, tag: int) -> WrongField:
    if message.get(tag) is None:
        return missing_field(tag)
    return WrongField(GROUP_COUNT_INCORRECT, tag, f"tag {tag} is not the number of its entries")


def _number(entry: dict[int, bytes], tag: int) -> int | None:
    return parse_integer(entry.get(tag))


def replayed(items: Iterable[tuple[int, bytes]], previous: int = 0) -> tuple[ReplayedMessage, ...]:
    """Messages with the sequence of each one's predecessor in the answer."""
    messages = []
    for sequence, data in items:
        messages.append(ReplayedMessage(sequence, previous, data))
        previous = sequence
    return tuple(messages)
