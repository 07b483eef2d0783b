"""What a survey notes while it goes through a file: by split, flow, numbering and date, which numbers there are.

The one rule: a packet is sound or refused here, once for all. What is refused has no part in any number, numbering or
date; it is written down with its place and the date of its neighbours, and the reader of the split refuses just that.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.misfits import LAG_NS, NO_CLOCK_NS, NOTHING, Headers, Judge, far_numbers, joined, misnumbered, strangers
from umdf.market.calendar import local_dates
from umdf.market.events import NULL
from umdf.market.fast_events import FastEvents
from umdf.market.rows import Units
from umdf.sync.streams import message_type, peek_templates
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.decode import Decoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import FlowProtocols, Framer, Frames, Protocol
from umdf.wire.sbe.headers import read_headers

PACKET_HEADER = 16  # bytes of a Binary packet header (5.1)
SEQUENCE_RESET = "4"
NO_TEMPLATE = "D9"  # a message that the templates do not know
FEW = 2  # numbers that are written down one by one: a plan compares them with what other files have
UNDECIDED = 64  # packets of a flow that are kept until it is clear what it speaks
SAMPLED, REMEMBERED, TRUSTED = 9, 33, 3  # times of FAST messages: looked at in a batch, kept, enough to be believed
ANY_CHANNEL = -1  # of packets that say none

Numbers = NDArray[np.int64]
Key = tuple[int, int, int, int | None, int]  # split, flow, channel, numbering and date


@cache
def templates() -> TemplateSet:
    return load_templates()


@cache
def _fast_reader() -> tuple[Decoder, FastEvents, list[int]]:
    """For a few messages of a batch, which are not worth compiling for; and the templates of SequenceReset."""
    decoder = Decoder(templates(), generated=())
    resets = [n for n, template in templates().by_id.items() if message_type(template) == SEQUENCE_RESET]
    return decoder, FastEvents(decoder.layout), resets


class Notes:
    """Segments and refused packets, by split."""

    def __init__(self) -> None:
        self._segments: dict[Key, list[Any]] = {}
        self._few: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self._refused: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)

    def of_split(self, split: int) -> dict[str, Any]:
        found = [
            [*key[1:], *values, few if len(few := self._few[key]) <= FEW else []]
            for key, values in self._segments.items()
            if key[0] == split
        ]
        return {"segments": found, "refused": self._refused[split]}

    def sound(self, flow: int, headers: Headers) -> None:
        for chosen, date in _dated(headers):
            some = headers.at(chosen) if len(chosen) < len(headers.number) else headers
            epoch = int(some.epoch[0])
            key = int(some.split[0]), flow, int(some.channel[0]), None if epoch == NULL else epoch, date
            self._note(key, some, some.number[some.number > 0])

    def refuse(self, flow: int, headers: Headers, like: Headers, is_known: bool = True) -> None:
        """`like`: for each, the header of a sound neighbour."""
        if not len(headers.number):
            return
        dates = local_dates(like.sent)
        for row, date in enumerate(dates.tolist()):
            offset, number, split = (int(column[row]) for column in (headers.offset, headers.number, headers.split))
            channel, epoch = (int(like.channel[row]), int(like.epoch[row])) if is_known else (ANY_CHANNEL, NULL)
            self._refused[split].append((flow, offset, number, date))
            some = headers.at(slice(row, row + 1))
            self._note((split, flow, channel, None if epoch == NULL else epoch, date), some, some.number[:0])

    def _note(self, key: Key, headers: Headers, numbers: Numbers) -> None:
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (NULL, NULL)
        ts_recv, packets = headers.ts_recv, int(headers.weight.sum())
        new: list[Any] = [low, high, packets, int(ts_recv.min()), int(ts_recv.max())]
        marks = [(high, new[4])] if high != NULL else []
        old, few = self._segments.get(key), self._few[key]
        if len(few) <= FEW:
            numbered = headers.number > 0 if len(numbers) else slice(0)
            few += zip(headers.offset[numbered][: FEW + 1].tolist(), numbers[: FEW + 1].tolist(), strict=True)
        if old is not None:
            firsts = [n for n in (old[0], low) if n != NULL]
            new[0], new[1] = min(firsts, default=NULL), max(old[1], high)
            new[2], new[3], new[4] = old[2] + packets, min(old[3], new[3]), max(old[4], new[4])
            marks = old[5] + marks
        self._segments[key] = [*new, marks]


class Walk:
    """All packets of a file, in their order."""

    def __init__(self) -> None:
        self.flows: dict[Hashable, int] = {}
        self.notes = Notes()
        self._protocols = FlowProtocols()
        self._packets: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._binary: dict[int, _BinaryFlow] = {}
        self._fast: dict[int, _FastFlow] = {}
        self._undecided: dict[int, list[Headers]] = defaultdict(list)

    @property
    def resets(self) -> list[tuple[int, int, int]]:
        """Flow, ts_recv and ts_send of each SequenceReset of FAST."""
        return [(number, *reset) for number, flow in self._fast.items() for reset in flow.resets]

    def take(self, batch: PacketBatch, names: list[Hashable], split: int, protocol: NDArray[np.uint8]) -> None:
        """`protocol`: what `recognise` says of each packet."""
        present = np.flatnonzero(np.bincount(batch.flow, minlength=len(names))).tolist()
        own = np.zeros(len(names), np.int64)  # flows are numbered anew in every split
        own[present] = [self.flows.setdefault(names[number], len(self.flows)) for number in present]
        flows = own[batch.flow]
        verdict = self._protocols.add(protocol, flows)  # type: ignore[arg-type]
        for flow in dict.fromkeys(own[present].tolist()):
            rows = np.flatnonzero(flows == flow)
            self._packets[split][flow] += len(rows)
            if verdict[flow] == Protocol.FAST:
                corrupt = _corrupt(batch, rows)
                if corrupt.any():
                    self._fast_flow(flow).refuse(_binary_headers(batch, rows[corrupt], split))
                    rows = rows[~corrupt]
                if flow in self._undecided:
                    self._fast_flow(flow).refuse(joined(self._undecided.pop(flow)))
                self._fast_flow(flow).take(batch, rows, split)
                continue
            headers = _binary_headers(batch, rows, split)
            if verdict[flow] == Protocol.SBE:
                self._binary_flow(flow).take(joined([*self._undecided.pop(flow, []), headers]))
            elif sum(len(part.number) for part in self._undecided[flow]) < UNDECIDED:
                self._undecided[flow].append(headers.at(slice(0, UNDECIDED)))

    def _binary_flow(self, number: int) -> _BinaryFlow:
        return self._binary.setdefault(number, _BinaryFlow(number, self.notes))

    def _fast_flow(self, number: int) -> _FastFlow:
        return self._fast.setdefault(number, _FastFlow(number, self.notes))

    def end(self) -> None:
        """There are no more packets."""
        for flow, parts in self._undecided.items():
            # Heartbeats are headers and nothing else, so nothing tells what they are; the others are damaged.
            self._binary_flow(flow).unsure = joined(parts)
        lags: list[float] = []
        for flow in sorted(self._binary.values(), key=lambda flow: -flow.packets):
            flow.end(float(np.median(lags)) if lags else 0.0)
            lags += flow.lags
        for flow in self._fast.values():
            flow.end()

    def of_split(self, split: int) -> dict[str, Any]:
        return self.notes.of_split(split) | {"packets": sorted(self._packets[split].items())}


def _binary_headers(batch: PacketBatch, rows: Numbers, split: int) -> Headers:
    start, end = batch.start[rows], batch.end[rows]
    said = read_headers(batch.buffer, start, end)
    return Headers(
        said.sequence.astype(np.int64),
        said.channel,
        said.seq_version,
        said.sending_time.view(np.int64),
        batch.ts_ns[rows],
        batch.offset[rows],
        np.full(len(rows), split, np.int32),
        np.ones(len(rows), np.int8),
        (end - start < PACKET_HEADER) | _corrupt(batch, rows),
    )


def _corrupt(batch: PacketBatch, rows: Numbers) -> NDArray[np.bool_]:
    """Of which the UDP checksum is wrong."""
    return np.zeros(len(rows), np.bool_) if batch.corrupt is None else batch.corrupt[rows]


class _BinaryFlow:
    """Numbers are compared among packets that have one: between two of them any number of heartbeats may lie."""

    def __init__(self, number: int, notes: Notes) -> None:
        self.number, self.notes, self.packets = number, notes, 0
        self.unsure: Headers | None = None  # if it is one of this kind at all, this is all of it
        self.lags: list[float] = []  # one or two, of many: how much later than sent packets are received
        self._strangers, self._numbers = Judge(strangers), Judge(misnumbered)
        self._last = NOTHING  # the sound packet that came last
        self._waiting: list[Headers] = []  # refused before there was one

    def take(self, new: Headers) -> None:
        self.packets += len(new.number)
        self._told(*self._strangers.take(new))

    def end(self, usual_lag: float) -> None:
        """`usual_lag`: what other flows say, for one that is too short to say anything."""
        headers, bad = self._strangers.take(None) if self.unsure is None else (self.unsure, strangers(self.unsure))
        if self.packets <= FEW:
            lag = headers.sent.astype(np.float64) - headers.ts_recv
            bad |= (np.abs(lag - usual_lag) > NO_CLOCK_NS) & (headers.ts_recv > 0)
        self._told(headers, bad)
        self._numbered(*self._numbers.take(None))
        if self._waiting:
            refused = joined(self._waiting)
            self.notes.refuse(self.number, refused, refused._replace(sent=refused.ts_recv), is_known=False)

    def _told(self, headers: Headers, bad: NDArray[np.bool_]) -> None:
        sound = headers
        if bad.any():
            good, rows = np.flatnonzero(~bad), np.flatnonzero(bad)
            sound, refused = headers.at(good), headers.at(rows)
            known = joined([self._last, sound])
            like = np.searchsorted(good, rows) - 1 + len(self._last.number)
            if len(known.number):
                self.notes.refuse(self.number, refused, known.at(np.maximum(like, 0)))
            else:
                self._waiting.append(refused)
        if not len(sound.number):
            return
        if self._waiting:
            waiting = joined(self._waiting)
            self.notes.refuse(self.number, waiting, sound.at(np.zeros(len(waiting.number), np.int64)))
            self._waiting = []
        self._last = sound.at(slice(-1, None))
        if len(self.lags) < FEW and self.packets > FEW:
            self.lags.append(float(self._last.sent[0]) - float(self._last.ts_recv[0]))
        numbered = sound.number > 0
        if not numbered.all():
            self.notes.sound(self.number, sound.at(~numbered))
            sound = sound.at(numbered)
        self._numbered(*self._numbers.take(sound))

    def _numbered(self, headers: Headers, bad: NDArray[np.bool_]) -> None:
        if bad.any():
            refused, headers = headers.at(bad), headers.at(~bad)
            self.notes.refuse(self.number, refused, refused)
        self.notes.sound(self.number, headers)


class _FastFlow:
    """Messages are numbered, and say neither their channel nor their numbering: the reset seen last does."""

    def __init__(self, number: int, notes: Notes) -> None:
        self.number, self.notes = number, notes
        self.resets: list[tuple[int, int]] = []
        self._framer = Framer()
        self._numbers = Judge(far_numbers)
        self._epoch, self._previous = NULL, 0
        self._lags: deque[float] = deque(maxlen=REMEMBERED)

    def refuse(self, headers: Headers) -> None:
        """Datagrams without any message."""
        nothing = np.zeros(len(headers.number), np.int64)
        like = headers._replace(epoch=nothing + self._epoch, channel=nothing, sent=headers.ts_recv + self._lag())
        self.notes.refuse(self.number, headers._replace(number=nothing), like)

    def take(self, batch: PacketBatch, rows: Numbers, split: int) -> None:
        frames = self._framer.frames(batch.buffer, batch.start[rows], batch.end[rows])
        whole, ts_recv = np.flatnonzero(frames.no_chunks == 1), batch.ts_ns[rows]
        self._sample(frames, whole, ts_recv)
        empty = np.ones(len(rows), np.bool_)
        empty[frames.packet] = False
        if empty.any():
            self.refuse(_binary_headers(batch, rows[empty], split))
        if not len(frames):
            return
        sent = self._sent(frames, whole, ts_recv)
        first = np.ones(len(frames), np.int8)
        first[1:] = frames.packet[1:] != frames.packet[:-1]
        nothing = np.zeros(len(frames), np.int64)
        headers = Headers(
            frames.msg_seq_num.astype(np.int64),
            nothing,
            nothing + self._epoch,
            sent,
            ts_recv[frames.packet],
            batch.offset[rows][frames.packet],
            np.full(len(frames), split, np.int32),
            first,
            nothing.astype(np.bool_),
        )
        resets = whole[np.isin(peek_templates(frames)[whole], _fast_reader()[2])]  # type: ignore[arg-type]
        for row in resets.tolist():
            self._reset(frames, row, headers)
        numbered = headers.number > 0
        numbered[self._misnumbered(frames, headers)] = False
        if not numbered.all():
            self.notes.refuse(self.number, headers.at(~numbered), headers.at(~numbered))
        if len(resets):  # they stand in no numbering
            self.notes.sound(self.number, headers.at(resets)._replace(number=nothing[resets]))
            numbered[resets] = False
        if not numbered.all():
            headers = headers.at(numbered)
        self._numbered(*self._numbers.take(headers))

    def end(self) -> None:
        self._numbered(*self._numbers.take(None))

    def _numbered(self, headers: Headers, bad: NDArray[np.bool_]) -> None:
        if bad.any():
            refused, headers = headers.at(bad), headers.at(~bad)
            self.notes.refuse(self.number, refused, refused)
        self.notes.sound(self.number, headers)

    def _misnumbered(self, frames: Frames, headers: Headers) -> Numbers:
        """A message says its number, too: where numbers are out of order, it must be whole and say the same."""
        number = headers.number
        before = np.concatenate([[self._previous], number[:-1]])
        self._previous = int(number[-1])
        doubtful = np.flatnonzero((frames.no_chunks == 1) & (number != before) & (number != before + 1))
        if not len(doubtful):
            return doubtful
        decoder, mapper, _ = _fast_reader()
        batch = decoder.decode(frames.buffer, frames.start[doubtful], frames.end[doubtful])
        said = mapper.events(batch).units.sequence
        wrong = (said != NULL) & (said != number[doubtful])
        refused = [entry for entry in batch.journal if entry.refused]
        wrong[[entry.message for entry in refused if entry.code != NO_TEMPLATE]] = True
        headers.is_cut[doubtful[[entry.message for entry in refused if entry.code == NO_TEMPLATE]]] = True
        return doubtful[wrong]

    def _reset(self, frames: Frames, row: int, headers: Headers) -> None:
        """A numbering begins, if that is what the message really is."""
        decoder, mapper, _ = _fast_reader()
        batch = decoder.decode(frames.buffer, frames.start[row : row + 1], frames.end[row : row + 1])
        units = mapper.events(batch).units
        sent, said, expected = int(units.ts_send[0]), int(units.sequence[0]), int(headers.sent[row])
        is_sound = not any(entry.refused for entry in batch.journal) and said in (NULL, int(headers.number[row]))
        if is_sound and abs(sent - expected) <= LAG_NS:
            self._epoch = sent
            headers.epoch[row:] = sent
            self.resets.append((int(headers.ts_recv[row]), sent))
        else:
            some = headers.at(slice(row, row + 1))
            self.notes.refuse(self.number, some, some)

    # When a message was sent is in the message, and to decode them all would take too long. It came a little later,
    # by a clock that may be wrong but not now so and now so: what a few of them say is enough, except at midnight.

    def _lag(self) -> int:
        if len(self._lags) < TRUSTED:
            return 0
        lag = int(np.median(self._lags))
        return lag if abs(lag) > LAG_NS else 0

    def _sample(self, frames: Frames, whole: Numbers, ts_recv: Numbers) -> None:
        if len(whole):
            some = whole[np.unique(np.linspace(0, len(whole) - 1, SAMPLED).astype(np.int64))]
            sent = _units(frames, some).ts_send
            known = sent != NULL
            self._lags.extend((sent[known].astype(np.float64) - ts_recv[frames.packet[some[known]]]).tolist())

    def _sent(self, frames: Frames, whole: Numbers, ts_recv: Numbers) -> Numbers:
        """About when; just before and after midnight just when."""
        expected = ts_recv[frames.packet] + self._lag()
        at_midnight = local_dates(expected - LAG_NS) != local_dates(expected + LAG_NS)
        doubtful = whole[at_midnight[whole]]
        if len(doubtful):
            sent = _units(frames, doubtful).ts_send
            sound = np.abs(sent.astype(np.float64) - expected[doubtful]) <= LAG_NS
            expected[doubtful[sound]] = sent[sound]
        return expected


def _units(frames: Frames, some: Numbers) -> Units:
    decoder, mapper, _ = _fast_reader()
    return mapper.events(decoder.decode(frames.buffer, frames.start[some], frames.end[some])).units


def _dated(headers: Headers) -> Iterator[tuple[Numbers, int]]:
    """Rows of the same split, channel, numbering and date; nearly always that is all of them."""
    if not len(headers.number):
        return
    lowest, highest = local_dates(np.array([headers.sent.min(), headers.sent.max()])).tolist()
    columns = [headers.split, headers.channel, headers.epoch]
    if lowest == highest and all((column == column[0]).all() for column in columns):
        yield np.arange(len(headers.number)), lowest
        return
    dates = local_dates(headers.sent)
    stacked = np.stack([column.astype(np.int64) for column in (*columns, dates)])
    starts = np.flatnonzero(np.append(True, (stacked[:, 1:] != stacked[:, :-1]).any(axis=0)))
    runs: dict[tuple[int, ...], list[Numbers]] = defaultdict(list)  # of neighbours that are alike
    for values, low, high in zip(stacked[:, starts].T.tolist(), starts, [*starts[1:], stacked.shape[1]], strict=True):
        runs[tuple(values)].append(np.arange(low, high))
    for values, places in sorted(runs.items()):
        yield np.concatenate(places), values[-1]
