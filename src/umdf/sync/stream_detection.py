"""Detects which stream of which channel a multicast group carries, from its packets.

    survey = StreamSurvey(templates)
    survey.add(packets, names)      # all packets of all files, or the first ones of each
    survey.streams()                # one stream per group:port

A Binary packet has a channel number; a FAST message has not, so its streams are matched by content: two incremental
streams with the same messages are the lines of one channel, and a snapshot or instrument stream belongs to the
incremental stream with the same instruments.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umdf.market.fast.events import FastEventMapper
from umdf.sync import template_scan_kernel as k
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.templates import CONSTANT, Field, Template, TemplateSet
from umdf.wire.packet import ChunkParser, detect_protocols
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.reassembly import Limits, Messages, Reassembler
from umdf.wire.sbe.headers import read_packet_headers

MSG_TYPE = 35
MAX_SAMPLED_MESSAGES = 2_000  # messages of a FAST stream that are decoded


class StreamKind(IntEnum):
    INCREMENTAL = 0
    SNAPSHOT = 1
    INSTRUMENTS = 2


# What a message indicates about its stream. Statuses and statistics come on snapshot and incremental streams, a
# definition on the instrument stream and, intraday, on the incremental one (7).
NOTHING, BOOK, SNAPSHOT, DEFINITION = range(4)
KINDS_OF_TEMPLATES = {
    **dict.fromkeys((9, 11, 50, 51, 52, 53, 54, 55, 56, 57), BOOK),
    **dict.fromkeys((30, 71), SNAPSHOT),
    **dict.fromkeys((4, 12), DEFINITION),
}
KINDS_OF_TYPES = {"X": BOOK, "W": SNAPSHOT, "y": DEFINITION}
_COUNTER_FIELDS = ("speaks", "kinds", "channels", "feeds", "digests")
STREAM_KIND_PRIORITY = (
    (SNAPSHOT, StreamKind.SNAPSHOT),
    (BOOK, StreamKind.INCREMENTAL),
    (DEFINITION, StreamKind.INSTRUMENTS),
)  # the first one seen
MAX_COUNTED_PACKETS = 1 << 16  # packets of a Binary group per file: the others will be similar
SNAPSHOT_NOISE_RATIO = 50  # a snapshot header precedes some ten statistics, never as many as this


class FramedBytes(Protocol):
    """Packets or messages in a buffer, each from `start` to `end`."""

    @property
    def buffer(self) -> NDArray[np.uint8]: ...
    @property
    def start(self) -> NDArray[np.int64]: ...
    @property
    def end(self) -> NDArray[np.int64]: ...


class CapturedPackets(FramedBytes, Protocol):
    """The part of a capture's batch that this package needs; `flow` is a row of `names`."""

    @property
    def ts_ns(self) -> NDArray[np.int64]: ...
    @property
    def flow(self) -> NDArray[np.uint16]: ...


@dataclass(frozen=True)
class DetectedStream:
    name: Hashable  # group and port
    protocol: Speaks
    kind: StreamKind
    channel: int  # of Binary packets; FAST: 1180 of its instruments, or else a negative number
    packets: int
    is_recovered: bool = False  # what was requested from a replayer: no line of the exchange


@dataclass
class _FlowEvidence:
    """What is known about one multicast group so far."""

    speaks: Counter[int] = field(default_factory=Counter)
    kinds: Counter[int] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    digests: dict[int, int] = field(default_factory=dict)  # MsgSeqNum → content
    instruments: set[int] = field(default_factory=set)
    feeds: Counter[int] = field(default_factory=Counter)
    sampled: int = 0
    packets: int = 0

    @property
    def protocol(self) -> Speaks:
        sbe, fast = self.speaks[Speaks.SBE], self.speaks[Speaks.FAST]
        return Speaks.UNKNOWN if not sbe + fast else Speaks.SBE if sbe >= fast else Speaks.FAST

    @property
    def kind(self) -> StreamKind:
        # A damaged packet may look like anything: a few snapshots among many updates are not a snapshot stream.
        is_few = self.kinds[SNAPSHOT] * SNAPSHOT_NOISE_RATIO < self.kinds[BOOK]
        seen = (role for kind, role in STREAM_KIND_PRIORITY if self.kinds[kind] and not (kind == SNAPSHOT and is_few))
        return next(seen, StreamKind.INCREMENTAL)


def message_type(template: Template) -> str:
    """The MsgType (35) of a template: IDs and names differ between files."""
    for item in template.body.instructions:
        if isinstance(item, Field) and item.id == MSG_TYPE and item.operator.kind == CONSTANT:
            return str(item.operator.initial)
    return ""


_DECODERS: dict[str, tuple[Decoder, FastEventMapper]] = {}  # by the digest of the templates


def _decoder_for(templates: TemplateSet) -> tuple[Decoder, FastEventMapper]:
    """Created at the first FAST message: many files have none, and it takes 30 ms."""
    if templates.digest not in _DECODERS:
        decoder = Decoder(templates, generated=())  # a few messages are not worth compiling for
        _DECODERS[templates.digest] = decoder, FastEventMapper(decoder.layout)
    return _DECODERS[templates.digest]


class StreamSurvey:
    """Collects evidence from packets of many multicast groups, in any order."""

    def __init__(self, templates: TemplateSet) -> None:
        self._templates = templates
        self._framer = ChunkParser()
        self._reassembler = Reassembler(Limits(restart_distance=4))
        self._kinds = np.zeros(1 << 16, np.uint8)
        self._kinds[list(KINDS_OF_TEMPLATES)] = list(KINDS_OF_TEMPLATES.values())
        self._types = {number: message_type(template) for number, template in templates.by_id.items()}
        self._evidence: dict[Hashable, _FlowEvidence] = {}

    def add(self, packets: CapturedPackets, names: list[Hashable], protocol: NDArray[np.uint8] | None = None) -> None:
        """`protocol`: the result of `detect_protocols` for each packet, if known already."""
        seen = [self._evidence.setdefault(name, _FlowEvidence()) for name in names]
        if protocol is None:
            protocol = detect_protocols(packets.buffer, packets.start, packets.end)
        for flow, found in enumerate(seen):
            mine = packets.flow == flow
            found.packets += int(mine.sum())
            found.speaks.update(dict(enumerate(np.bincount(protocol[mine], minlength=len(Speaks)).tolist())))
        self._add_sbe(packets, np.flatnonzero(protocol == Speaks.SBE), seen)
        self._add_fast(packets, np.flatnonzero(protocol == Speaks.FAST), seen)

    def _add_sbe(self, packets: CapturedPackets, rows: NDArray[np.int64], seen: list[_FlowEvidence]) -> None:
        wanted = np.array([sum(found.channels.values()) < MAX_COUNTED_PACKETS for found in seen], np.bool_)
        rows = rows[wanted[packets.flow[rows]]]
        if not len(rows):
            return
        start, end, flow = packets.start[rows], packets.end[rows], packets.flow[rows]
        counts = np.zeros((len(seen), 4), np.int64)
        arrays = (array.ctypes.data for array in (packets.buffer, start, end))
        k.count_templates(*arrays, len(rows), flow.ctypes.data, self._kinds.ctypes.data, counts.ctypes.data, 4)
        channel = read_packet_headers(packets.buffer, start, end).channel
        for number in np.unique(flow).tolist():
            seen[number].kinds.update(dict(enumerate(counts[number].tolist())))
            found, often = np.unique(channel[flow == number], return_counts=True)
            seen[number].channels.update(dict(zip(found.tolist(), often.tolist(), strict=True)))

    def _add_fast(self, packets: CapturedPackets, rows: NDArray[np.int64], seen: list[_FlowEvidence]) -> None:
        flow = packets.flow[rows]
        wanted = np.isin(flow, [n for n in np.unique(flow).tolist() if seen[n].sampled < MAX_SAMPLED_MESSAGES])
        rows = rows[wanted]
        if not len(rows):
            return
        flow = packets.flow[rows]
        frames = self._framer.parse(packets.buffer, packets.start[rows], packets.end[rows])
        for messages in self._reassembler.add(frames, flow, packets.ts_ns[rows])[:2]:
            self._sample(messages, flow[messages.packet], seen)

    def _sample(self, messages: Messages, flow: NDArray[np.uint16], seen: list[_FlowEvidence]) -> None:
        template = peek_templates(messages)
        for number in np.unique(flow).tolist():
            found, mine = seen[number], np.flatnonzero(flow == number)
            for template_id, often in Counter(template[mine].tolist()).items():
                found.kinds[KINDS_OF_TYPES.get(self._types.get(template_id, ""), NOTHING)] += often
            mine = mine[: max(0, MAX_SAMPLED_MESSAGES - found.sampled)]
            found.sampled += len(mine)
            start, end = messages.start[mine], messages.end[mine]
            for sequence, a, b in zip(messages.msg_seq_num[mine].tolist(), start.tolist(), end.tolist(), strict=True):
                found.digests.setdefault(sequence, zlib.crc32(messages.buffer.data[a:b]))
            decoder, mapper = _decoder_for(self._templates)
            events = mapper.events(decoder.decode(messages.buffer, start, end))
            for rows in events.families.values():
                found.instruments.update(np.unique(rows.column("instrument_id")).tolist())
            feeds = events.rows("definition").lists.get("feeds")
            if feeds is not None:
                found.feeds.update(feeds.columns["channel"].tolist())

    def export(self) -> list[dict[str, Any]]:
        """The evidence as JSON-compatible values: separate surveys of many files are combined by `merge`."""
        return [
            {
                "name": name,
                "packets": seen.packets,
                "sampled": seen.sampled,
                "instruments": sorted(seen.instruments),
                **{key: sorted(getattr(seen, key).items()) for key in _COUNTER_FIELDS},
            }
            for name, seen in self._evidence.items()
        ]

    def merge(self, flows: list[dict[str, Any]]) -> None:
        for flow in flows:
            name = tuple(flow["name"]) if isinstance(flow["name"], list) else flow["name"]
            evidence = self._evidence.setdefault(name, _FlowEvidence())
            evidence.packets += flow["packets"]
            evidence.sampled += flow["sampled"]
            evidence.instruments.update(flow["instruments"])
            for key in ("speaks", "kinds", "channels", "feeds"):
                getattr(evidence, key).update(dict(flow[key]))
            for number, digest in flow["digests"]:  # in place: a copy for each of many surveys would be quadratic
                evidence.digests.setdefault(number, digest)

    def streams(self) -> list[DetectedStream]:
        """Every multicast group that carries one of the protocols."""
        known = {name: seen for name, seen in self._evidence.items() if seen.protocol != Speaks.UNKNOWN}
        fast = {name: seen for name, seen in known.items() if seen.protocol == Speaks.FAST}
        channels = _fast_channels(fast)
        return [
            DetectedStream(
                name, seen.protocol, seen.kind, channels.get(name, _most_common(seen.channels)), seen.packets
            )
            for name, seen in known.items()
        ]


def peek_templates(messages: FramedBytes) -> NDArray[np.uint32]:
    """The template ID at the start of each FAST message."""
    template = np.empty(len(messages.start), np.uint32)
    start, end = np.ascontiguousarray(messages.start), np.ascontiguousarray(messages.end)
    addresses = messages.buffer.ctypes.data, start.ctypes.data, end.ctypes.data
    k.peek_templates(*addresses, len(template), template.ctypes.data)
    return template


def _most_common(counts: Counter[int]) -> int:
    return counts.most_common(1)[0][0] if counts else 0


def _fast_channels(streams: dict[Hashable, _FlowEvidence]) -> dict[Hashable, int]:
    """Streams that belong together get one channel number: that of their instruments (1180), if they agree on one that
    no other group has, or else -1, -2 …"""
    groups: list[list[_FlowEvidence]] = []
    group_numbers: dict[Hashable, int] = {}
    for role in StreamKind:  # incremental streams first: the others are matched with them
        for name, seen in streams.items():
            if seen.kind == role:
                group_numbers[name] = _find_group(seen, groups, by_content=role == StreamKind.INCREMENTAL)
                groups[group_numbers[name]].append(seen)
    named = [{n for seen in group for n in seen.feeds} for group in groups]
    numbers = [next(iter(names)) if len(names) == 1 else 0 for names in named]
    channel_numbers = [
        number if number and numbers.count(number) == 1 else -1 - at for at, number in enumerate(numbers)
    ]
    return {name: channel_numbers[at] for name, at in group_numbers.items()}


def _find_group(evidence: _FlowEvidence, groups: list[list[_FlowEvidence]], by_content: bool) -> int:
    """The group of streams that has most in common with it; a new one if there is none."""

    def shared(other: _FlowEvidence) -> int:
        if by_content and other.kind == StreamKind.INCREMENTAL:
            both = evidence.digests.keys() & other.digests.keys()
            same = sum(evidence.digests[n] == other.digests[n] for n in both)
            return same if 2 * same > len(both) else 0  # heartbeats may be equal by chance
        return len(evidence.instruments & other.instruments)

    best, best_score = len(groups), 0
    for at, group in enumerate(groups):
        score = max(shared(other) for other in group)
        if score > best_score:
            best, best_score = at, score
    if best == len(groups):
        groups.append([])
    return best
