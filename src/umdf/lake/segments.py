"""Which stream a group carries, and what a file has of each: the words that surveys and plans share.

The one rule: what a group is depends on the content of all files together, or on the configuration, never on names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

from umdf.errors import ConfigError
from umdf.lake.ledger import Entry
from umdf.lake.survey import SEGMENT
from umdf.lake.survey_walk import ANY_CHANNEL, templates
from umdf.market.events import NULL, NULL_I32
from umdf.sync.streams import Role, Survey

PROTOCOLS = {1: "sbe", 2: "fast"}
ROLES = {Role.INCREMENTAL: "incremental", Role.SNAPSHOT: "snapshot", Role.INSTRUMENTS: "instruments"}
LINES = "ABCDEFGH"
EPOCH_DAY = date(1970, 1, 1)

Group = tuple[str, int]  # address and port
Day = tuple[int, int]  # channel and trading date


class Place(NamedTuple):
    """What a group is."""

    protocol: str
    role: str
    channel: int
    line: int  # among those of its channel and role


class Segment(NamedTuple):
    """Numbers of one group, numbering and date in one split of a file."""

    survey: dict[str, Any]
    split: int
    group: Group
    epoch: int | None
    date: int
    first: int
    last: int
    packets: int
    ts_first: int
    ts_last: int
    marks: list[list[int]]  # (number, ts_recv)
    few: list[list[int]]  # (offset, number), where there are one or two

    @property
    def order(self) -> tuple[int, str, int]:
        return self.ts_first, self.survey["digest"], self.split


def streams_of(surveys: Iterable[dict[str, Any]], named: Mapping[Group, Mapping[str, Any]]) -> dict[Group, Place]:
    """Every group that carries a stream: by what is in it, or as it is named in the configuration."""
    whole = Survey(templates())
    for survey in sorted(surveys, key=lambda survey: survey["digest"]):
        whole.absorb(survey.get("streams", []))
    found: dict[Group, tuple[str, str, int]] = {}
    for stream in whole.streams():
        group: Any = stream.name
        said = named.get(group, {})
        protocol, role = said.get("protocol", PROTOCOLS[int(stream.speaks)]), said.get("stream", ROLES[stream.role])
        found[group] = protocol, role, int(said.get("channel", stream.channel))
    _refuse_two_wires(found)
    together: dict[tuple[str, str, int], list[Group]] = defaultdict(list)
    for group, about in found.items():
        together[about].append(group)
    places = {}
    for about, groups in together.items():
        for line, group in enumerate(sorted(groups, key=lambda group: (_line(named, group), _order(group)))):
            places[group] = Place(*about, line)
    return places


def _line(named: Mapping[Group, Mapping[str, Any]], group: Group) -> str:
    return named.get(group, {}).get("line", "")


def _order(group: Group) -> tuple[int, int]:
    return int(ip_address(group[0])), group[1]


def _refuse_two_wires(found: Mapping[Group, tuple[str, str, int]]) -> None:
    wires: dict[int, set[str]] = defaultdict(set)
    for protocol, _, channel in found.values():
        wires[channel].add(protocol)
    both = sorted(channel for channel, speaks in wires.items() if len(speaks) > 1)
    if both:
        raise ConfigError(
            f"channel {both[0]} is there in Binary and in FIX/FAST, and both number their messages in their own way",
            "ingest them into two lakes, or give one of them another channel number with --config",
        )


def segments_of(survey: dict[str, Any], places: Mapping[Group, Place]) -> list[Segment]:
    """What a file has of known streams."""
    return [segment for segment, is_own in _segments(survey, places) if is_own]


def strangers_of(survey: dict[str, Any], places: Mapping[Group, Place]) -> list[Segment]:
    """Packets in a known group that say another channel, or none: they have to be accounted for, and that is all."""
    nothing = {"epoch": None, "first": NULL, "last": NULL, "marks": [], "few": []}
    return [segment._replace(**nothing) for segment, is_own in _segments(survey, places) if not is_own]


def _segments(survey: dict[str, Any], places: Mapping[Group, Place]) -> Iterator[tuple[Segment, bool]]:
    """And whether they are of the group's channel."""
    for number, split in enumerate(survey.get("splits", [])):
        for values in split["segments"]:
            said = dict(zip(SEGMENT, values, strict=True))
            group: Group = tuple(survey["flows"][said.pop("flow")])  # type: ignore[assignment]
            place, channel = places.get(group), said.pop("channel")
            if place is not None and said["date"] != NULL_I32:
                is_own = channel != ANY_CHANNEL and (place.protocol != "sbe" or place.channel == channel)
                yield Segment(survey, number, group, **said), is_own


def days_of(survey: dict[str, Any], places: Mapping[Group, Place]) -> set[Day]:
    return {(places[segment.group].channel, segment.date) for segment in segments_of(survey, places)}


def days_with(survey: dict[str, Any], places: Mapping[Group, Place]) -> set[Day]:
    """Days for which a file has something, if they are there: strangers do not make a day."""
    strange = {(places[segment.group].channel, segment.date) for segment in strangers_of(survey, places)}
    return days_of(survey, places) | strange


def date_of(days: int) -> date:
    return EPOCH_DAY + timedelta(days)


def entries_of(survey: dict[str, Any], places: Mapping[Group, Place], config: str | None = None) -> list[Entry]:
    """The file's rows of the ledger; `config` is the digest of the channel configuration."""
    about = survey["digest"], survey["size_bytes"], survey["path"]
    parts: dict[tuple[Group, int, int | None], list[Segment]] = defaultdict(list)
    for segment in segments_of(survey, places):
        epoch = segment.epoch if places[segment.group].protocol == "sbe" else None
        parts[segment.group, segment.date, epoch].append(segment)
    return [
        Entry(
            *about,
            date_of(day),
            places[group].channel,
            LINES[places[group].line],
            places[group].role,
            epoch,
            min((part.first for part in found if part.first != NULL), default=None),
            max((part.last for part in found if part.last != NULL), default=None),
            sum(part.packets for part in found),
            min(part.ts_first for part in found),
            max(part.ts_last for part in found),
            flow_of(group),
            config,
        )
        for (group, day, epoch), found in sorted(parts.items(), key=lambda part: str(part[0]))
    ] or [Entry(*about)]


def flow_of(group: Group) -> str:
    return f"{group[0]}:{group[1]}"
