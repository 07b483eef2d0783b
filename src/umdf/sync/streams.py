"""Which stream of which channel a multicast group carries, from what is in its packets.

    survey = Survey(templates)
    survey.take(packets)            # all packets of all files, or the first ones of each
    survey.streams()                # a Stream for each group:port

A Binary packet says its channel; a FAST message does not, so its streams are put together by what they share: two
incremental streams with the same messages are the lines of one channel, and a snapshot or instrument stream belongs to
the incremental one that is about the same instruments.
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

from umdf.market.fast_events import FastEvents
from umdf.sync import streams_kernel as k
from umdf.sync.pieces import Pieces
from umdf.wire.fast.decode import Decoder
from umdf.wire.fast.templates import CONSTANT, Field, Template, TemplateSet
from umdf.wire.packet import Framer, recognise
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.reassembly import Limits, Messages, Reassembler
from umdf.wire.sbe.headers import read_headers

MSG_TYPE = 35
SAMPLED = 2_000  # messages of a FAST stream that are looked into


class Role(IntEnum):
    INCREMENTAL = 0
    SNAPSHOT = 1
    INSTRUMENTS = 2


# What a message says about the stream that carries it. Statuses and statistics come on snapshots and incrementals
# alike, a definition on the instrument stream and, intraday, on the incremental one (7).
NOTHING, BOOK, SNAPSHOT, DEFINITION = range(4)
KINDS_OF_TEMPLATES = {
    **dict.fromkeys((9, 11, 50, 51, 52, 53, 54, 55, 56, 57), BOOK),
    **dict.fromkeys((30, 71), SNAPSHOT),
    **dict.fromkeys((4, 12), DEFINITION),
}
KINDS_OF_TYPES = {"X": BOOK, "W": SNAPSHOT, "y": DEFINITION}
_COUNTED = ("speaks", "kinds", "channels", "feeds", "digests")
ROLES = ((SNAPSHOT, Role.SNAPSHOT), (BOOK, Role.INCREMENTAL), (DEFINITION, Role.INSTRUMENTS))  # the first that is seen
ENOUGH = 1 << 16  # packets of a Binary group, in one file: the rest will be like them
FEW = 50  # a snapshot's header stands before some ten of its statistics, never before so many


class Datagrams(Protocol):
    """What a capture's batch is, as far as this room cares; `flow` is a row of `names`."""

    @property
    def buffer(self) -> NDArray[np.uint8]: ...
    @property
    def start(self) -> NDArray[np.int64]: ...
    @property
    def end(self) -> NDArray[np.int64]: ...
    @property
    def ts_ns(self) -> NDArray[np.int64]: ...
    @property
    def flow(self) -> NDArray[np.uint16]: ...


@dataclass(frozen=True)
class Stream:
    name: Hashable  # group and port
    speaks: Speaks
    role: Role
    channel: int  # what Binary says; of FAST the 1180 of its instruments, else a negative number of our own
    packets: int


@dataclass
class _Seen:
    """What is known of one group so far."""

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
    def role(self) -> Role:
        # A damaged packet may look like anything: a few snapshots among many updates do not make a snapshot stream.
        is_few = self.kinds[SNAPSHOT] * FEW < self.kinds[BOOK]
        seen = (role for kind, role in ROLES if self.kinds[kind] and not (kind == SNAPSHOT and is_few))
        return next(seen, Role.INCREMENTAL)


def message_type(template: Template) -> str:
    """The MsgType (35) that a template is for: ids and names differ between files."""
    for item in template.body.instructions:
        if isinstance(item, Field) and item.id == MSG_TYPE and item.operator.kind == CONSTANT:
            return str(item.operator.initial)
    return ""


_READERS: dict[str, tuple[Decoder, FastEvents]] = {}  # by the digest of the templates


def _reader(templates: TemplateSet) -> tuple[Decoder, FastEvents]:
    """Made when the first FAST message is seen: many files have none, and it takes 30 ms."""
    if templates.digest not in _READERS:
        decoder = Decoder(templates, generated=())  # a few messages are not worth compiling for
        _READERS[templates.digest] = decoder, FastEvents(decoder.layout)
    return _READERS[templates.digest]


class Survey:
    """Looks at packets of many groups, in any order."""

    def __init__(self, templates: TemplateSet) -> None:
        self._templates = templates
        self._framer = Framer()
        self._reassembler = Reassembler(Limits(restart_distance=4))
        self._kinds = np.zeros(1 << 16, np.uint8)
        self._kinds[list(KINDS_OF_TEMPLATES)] = list(KINDS_OF_TEMPLATES.values())
        self._types = {number: message_type(template) for number, template in templates.by_id.items()}
        self._seen: dict[Hashable, _Seen] = {}

    def take(self, packets: Datagrams, names: list[Hashable], protocol: NDArray[np.uint8] | None = None) -> None:
        """`protocol`: what `recognise` says of each packet, if that is known already."""
        seen = [self._seen.setdefault(name, _Seen()) for name in names]
        if protocol is None:
            protocol = recognise(packets.buffer, packets.start, packets.end)
        for flow, found in enumerate(seen):
            mine = packets.flow == flow
            found.packets += int(mine.sum())
            found.speaks.update(dict(enumerate(np.bincount(protocol[mine], minlength=len(Speaks)).tolist())))
        self._take_sbe(packets, np.flatnonzero(protocol == Speaks.SBE), seen)
        self._take_fast(packets, np.flatnonzero(protocol == Speaks.FAST), seen)

    def _take_sbe(self, packets: Datagrams, rows: NDArray[np.int64], seen: list[_Seen]) -> None:
        wanted = np.array([sum(found.channels.values()) < ENOUGH for found in seen], np.bool_)
        rows = rows[wanted[packets.flow[rows]]]
        if not len(rows):
            return
        start, end, flow = packets.start[rows], packets.end[rows], packets.flow[rows]
        counts = np.zeros((len(seen), 4), np.int64)
        arrays = (array.ctypes.data for array in (packets.buffer, start, end))
        k.count_templates(*arrays, len(rows), flow.ctypes.data, self._kinds.ctypes.data, counts.ctypes.data, 4)
        channel = read_headers(packets.buffer, start, end).channel
        for number in np.unique(flow).tolist():
            seen[number].kinds.update(dict(enumerate(counts[number].tolist())))
            found, often = np.unique(channel[flow == number], return_counts=True)
            seen[number].channels.update(dict(zip(found.tolist(), often.tolist(), strict=True)))

    def _take_fast(self, packets: Datagrams, rows: NDArray[np.int64], seen: list[_Seen]) -> None:
        flow = packets.flow[rows]
        wanted = np.isin(flow, [n for n in np.unique(flow).tolist() if seen[n].sampled < SAMPLED])
        rows = rows[wanted]
        if not len(rows):
            return
        flow = packets.flow[rows]
        frames = self._framer.frames(packets.buffer, packets.start[rows], packets.end[rows])
        for messages in self._reassembler.take(frames, flow, packets.ts_ns[rows])[:2]:
            self._sample(messages, flow[messages.packet], seen)

    def _sample(self, messages: Messages, flow: NDArray[np.uint16], seen: list[_Seen]) -> None:
        template = peek_templates(messages)
        for number in np.unique(flow).tolist():
            found, mine = seen[number], np.flatnonzero(flow == number)
            for template_id, often in Counter(template[mine].tolist()).items():
                found.kinds[KINDS_OF_TYPES.get(self._types.get(template_id, ""), NOTHING)] += often
            mine = mine[: max(0, SAMPLED - found.sampled)]
            found.sampled += len(mine)
            start, end = messages.start[mine], messages.end[mine]
            for sequence, a, b in zip(messages.msg_seq_num[mine].tolist(), start.tolist(), end.tolist(), strict=True):
                found.digests.setdefault(sequence, zlib.crc32(messages.buffer.data[a:b]))
            decoder, mapper = _reader(self._templates)
            events = mapper.events(decoder.decode(messages.buffer, start, end))
            for rows in events.families.values():
                found.instruments.update(np.unique(rows.column("instrument_id")).tolist())
            feeds = events.rows("definition").lists.get("feeds")
            if feeds is not None:
                found.feeds.update(feeds.columns["channel"].tolist())

    def export(self) -> list[dict[str, Any]]:
        """What was seen, as plain values: surveys of many files, made apart, become one with `absorb`."""
        return [
            {
                "name": name,
                "packets": seen.packets,
                "sampled": seen.sampled,
                "instruments": sorted(seen.instruments),
                **{key: sorted(getattr(seen, key).items()) for key in _COUNTED},
            }
            for name, seen in self._seen.items()
        ]

    def absorb(self, exported: list[dict[str, Any]]) -> None:
        for said in exported:
            name = tuple(said["name"]) if isinstance(said["name"], list) else said["name"]
            seen = self._seen.setdefault(name, _Seen())
            seen.packets += said["packets"]
            seen.sampled += said["sampled"]
            seen.instruments.update(said["instruments"])
            for key in ("speaks", "kinds", "channels", "feeds"):
                getattr(seen, key).update(dict(said[key]))
            for number, digest in said["digests"]:  # in place: a copy for each of many surveys would be quadratic
                seen.digests.setdefault(number, digest)

    def streams(self) -> list[Stream]:
        """Every group that carries one of the protocols."""
        known = {name: seen for name, seen in self._seen.items() if seen.protocol != Speaks.UNKNOWN}
        fast = {name: seen for name, seen in known.items() if seen.protocol == Speaks.FAST}
        channels = _fast_channels(fast)
        return [
            Stream(name, seen.protocol, seen.role, channels.get(name, _most(seen.channels)), seen.packets)
            for name, seen in known.items()
        ]


def peek_templates(messages: Messages | Pieces) -> NDArray[np.uint32]:
    """The template id that each message starts with."""
    template = np.empty(len(messages), np.uint32)
    start, end = np.ascontiguousarray(messages.start), np.ascontiguousarray(messages.end)
    addresses = messages.buffer.ctypes.data, start.ctypes.data, end.ctypes.data
    k.peek_templates(*addresses, len(messages), template.ctypes.data)
    return template


def _most(counts: Counter[int]) -> int:
    return counts.most_common(1)[0][0] if counts else 0


def _fast_channels(streams: dict[Hashable, _Seen]) -> dict[Hashable, int]:
    """Streams that belong together get one number: what their instruments name as their channel (1180), if they agree
    on one that nobody else has, else -1, -2 …"""
    groups: list[list[_Seen]] = []
    of: dict[Hashable, int] = {}
    for role in Role:  # the incremental ones first: the others are put to them
        for name, seen in streams.items():
            if seen.role == role:
                of[name] = _group_of(seen, groups, by_content=role == Role.INCREMENTAL)
                groups[of[name]].append(seen)
    named = [{n for seen in group for n in seen.feeds} for group in groups]
    numbers = [next(iter(names)) if len(names) == 1 else 0 for names in named]
    own = [number if number and numbers.count(number) == 1 else -1 - at for at, number in enumerate(numbers)]
    return {name: own[at] for name, at in of.items()}


def _group_of(seen: _Seen, groups: list[list[_Seen]], by_content: bool) -> int:
    """The group that shares most with it; a new one if none shares anything."""

    def shared(other: _Seen) -> int:
        if by_content and other.role == Role.INCREMENTAL:
            both = seen.digests.keys() & other.digests.keys()
            same = sum(seen.digests[n] == other.digests[n] for n in both)
            return same if 2 * same > len(both) else 0  # a heartbeat may be the same by chance
        return len(seen.instruments & other.instruments)

    best, most = len(groups), 0
    for at, group in enumerate(groups):
        score = max(shared(other) for other in group)
        if score > most:
            best, most = at, score
    if best == len(groups):
        groups.append([])
    return best
