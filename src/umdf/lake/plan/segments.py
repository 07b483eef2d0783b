"""Which stream a multicast group carries, and which segments of it a file has: shared by surveys and plans.

Invariant: the stream of a group depends on the content of all files together, or on the configuration, never on file
names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

from umdf.errors import ConfigError
from umdf.lake.commit.ledger import LedgerEntry
from umdf.lake.plan.overlapping_files import clock_offset
from umdf.lake.tasks.segment_collector import NO_CHANNEL
from umdf.lake.tasks.survey import SEGMENT_FIELDS
from umdf.lake.tasks.survey_scan import templates
from umdf.market.families import NULL, NULL_I32
from umdf.sync.stream_detection import StreamKind, StreamSurvey

PROTOCOLS = {1: "sbe", 2: "fast"}
STREAMS = {
    StreamKind.INCREMENTAL: "incremental",
    StreamKind.SNAPSHOT: "snapshot",
    StreamKind.INSTRUMENTS: "instruments",
}
LINES = "ABCDEFGH"
EPOCH_DAY = date(1970, 1, 1)

MulticastGroup = tuple[str, int]  # address and port
ChannelDayKey = tuple[int, int]  # channel and trading date


class StreamLine(NamedTuple):
    """The stream and line that a multicast group carries."""

    protocol: str
    stream: str
    channel: int
    line: int  # index among those of its channel and stream


class Segment(NamedTuple):
    """The packets of one multicast group, epoch and date in one split of a file."""

    survey: dict[str, Any]
    split: int
    group: MulticastGroup
    epoch: int | None
    date: int
    first: int
    last: int
    packets: int
    ts_first: int
    ts_last: int
    marks: list[list[int]]  # (sequence, ts_recv)
    few: list[list[int]]  # (offset, sequence), if there are only one or two
    announced: tuple[int, int] | None  # what the last heartbeat says was sent: sequence, ts_recv

    @property
    def order(self) -> tuple[int, str, int]:
        return self.ts_first, self.survey["digest"], self.split


def assign_streams(
    surveys: Iterable[dict[str, Any]], config: Mapping[MulticastGroup, Mapping[str, Any]]
) -> dict[MulticastGroup, StreamLine]:
    """Every multicast group that carries a stream: detected from its content, or named in the configuration."""
    stream_survey = StreamSurvey(templates())
    for survey in sorted(surveys, key=lambda survey: survey["digest"]):
        stream_survey.merge(survey.get("streams", []))
    found: dict[MulticastGroup, tuple[str, str, int]] = {}
    for stream in stream_survey.streams():
        group: Any = stream.name
        configured = config.get(group, {})
        protocol, stream_name = (
            configured.get("protocol", PROTOCOLS[int(stream.protocol)]),
            configured.get("stream", STREAMS[stream.kind]),
        )
        found[group] = protocol, stream_name, int(configured.get("channel", stream.channel))
    _refuse_two_protocols(found)
    groups_by_stream: dict[tuple[str, str, int], list[MulticastGroup]] = defaultdict(list)
    for group, about in found.items():
        groups_by_stream[about].append(group)
    stream_lines = {}
    for about, groups in groups_by_stream.items():
        for line, group in enumerate(
            sorted(groups, key=lambda group: (_configured_line(config, group), _address_order(group)))
        ):
            stream_lines[group] = StreamLine(*about, line)
    return stream_lines


def _configured_line(config: Mapping[MulticastGroup, Mapping[str, Any]], group: MulticastGroup) -> str:
    return config.get(group, {}).get("line", "")


def _address_order(group: MulticastGroup) -> tuple[int, int]:
    return int(ip_address(group[0])), group[1]


def _refuse_two_protocols(found: Mapping[MulticastGroup, tuple[str, str, int]]) -> None:
    protocols: dict[int, set[str]] = defaultdict(set)
    for protocol, _, channel in found.values():
        protocols[channel].add(protocol)
    both = sorted(channel for channel, channel_protocols in protocols.items() if len(channel_protocols) > 1)
    if both:
        raise ConfigError(
            f"channel {both[0]} is present in both SBE and FAST, which number units differently",
            "use two lakes, or give one another channel number with --channels",
        )


def segments_of(survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine]) -> list[Segment]:
    """The segments of known streams in a file."""
    return [segment for segment, is_own in _segments(survey, stream_lines) if is_own]


def foreign_segments(survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine]) -> list[Segment]:
    """Packets of a known group with another channel number, or none: they are only accounted for."""
    nothing = {"epoch": None, "first": NULL, "last": NULL, "marks": [], "few": [], "announced": None}
    return [segment._replace(**nothing) for segment, is_own in _segments(survey, stream_lines) if not is_own]


def _segments(
    survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine]
) -> Iterator[tuple[Segment, bool]]:
    """Each segment, and whether it belongs to its group's channel."""
    for number, split in enumerate(survey.get("splits", [])):
        for values in split["segments"]:
            # An older survey has no `announced`.
            fields: dict[str, Any] = dict(zip(SEGMENT_FIELDS, [*values, None], strict=False))
            group: MulticastGroup = tuple(survey["flows"][fields.pop("flow")])  # type: ignore[assignment]
            stream_line, channel = stream_lines.get(group), fields.pop("channel")
            if stream_line is not None and fields["date"] != NULL_I32:
                is_own = channel != NO_CHANNEL and (stream_line.protocol != "sbe" or stream_line.channel == channel)
                yield Segment(survey, number, group, **fields), is_own


def days_of(survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine]) -> set[ChannelDayKey]:
    return {(stream_lines[segment.group].channel, segment.date) for segment in segments_of(survey, stream_lines)}


def days_touched_by(survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine]) -> set[ChannelDayKey]:
    """Days of a file, and those of foreign packets, which matter only if the day exists."""
    foreign_days = {
        (stream_lines[segment.group].channel, segment.date) for segment in foreign_segments(survey, stream_lines)
    }
    return days_of(survey, stream_lines) | foreign_days


def date_of(days: int) -> date:
    return EPOCH_DAY + timedelta(days)


def ledger_entries_of(
    survey: dict[str, Any], stream_lines: Mapping[MulticastGroup, StreamLine], config: str | None = None
) -> list[LedgerEntry]:
    """The ledger entries of a file; `config` is the digest of the channel configuration."""
    file_fields, content = (survey["digest"], survey["size_bytes"], survey["path"]), survey.get("content_digest")
    parts: dict[tuple[MulticastGroup, int, int | None], list[Segment]] = defaultdict(list)
    for segment in segments_of(survey, stream_lines):
        epoch = segment.epoch if stream_lines[segment.group].protocol == "sbe" else None
        parts[segment.group, segment.date, epoch].append(segment)
    return [
        LedgerEntry(
            *file_fields,
            date_of(day),
            stream_lines[group].channel,
            LINES[stream_lines[group].line],
            stream_lines[group].stream,
            epoch,
            min((part.first for part in found if part.first != NULL), default=None),
            max((part.last for part in found if part.last != NULL), default=None),
            sum(part.packets for part in found),
            min(part.ts_first for part in found),
            max(part.ts_last for part in found),
            flow_text(group),
            config,
            content,
            clock_offset(survey, group),
        )
        for (group, day, epoch), found in sorted(parts.items(), key=lambda part: str(part[0]))
    ] or [LedgerEntry(*file_fields, content_digest=content)]


def flow_text(group: MulticastGroup) -> str:
    return f"{group[0]}:{group[1]}"


def trading_dates(survey: dict[str, Any]) -> set[int]:
    return {segment[3] for split in survey.get("splits", []) for segment in split["segments"]}


def partition_of(day: ChannelDayKey) -> dict[str, Any]:
    return {"trading_date": date_of(day[1]), "channel_id": day[0]}
