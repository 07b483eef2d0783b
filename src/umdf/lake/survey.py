"""Step 0 of an ingest: what is in a capture file, and where. A task for each new file.

A survey says which groups the file has, what speaks there, and for every split of some 32 MB which numbers of which
numbering and date are in it, so that a later task reads only what it needs. It depends on the file's content alone, so
it is kept in the lake by the file's digest. The one rule: a file that is no capture is a value, not an error.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import CaptureError
from umdf.lake.durable import write_fault
from umdf.lake.ledger import digest_of
from umdf.lake.tasks import Place
from umdf.market.calendar import local_dates
from umdf.market.events import NULL
from umdf.market.fast_events import FastEvents
from umdf.sync.streams import Survey, message_type, peek_templates
from umdf.transport.capture import PacketBatch, Split, index, open_capture
from umdf.transport.capture_walk import Header
from umdf.transport.compression import decompressor
from umdf.wire.fast.decode import Decoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import FlowProtocols, Framer, Protocol, recognise
from umdf.wire.sbe.headers import read_headers

SPLIT_BYTES = 32 << 20
COPY_BYTES = 1 << 20
FURTHEST = 1 << 20  # from the middle of a batch: a number further away is damage, not a gap
NEIGHBOURS = 1_000  # numbers that packets overtake each other by at most
SEQUENCE_RESET = "4"
FORMAT = 2  # of a survey that is kept

Numbers = NDArray[np.int64]
# What a split has of one flow, numbering and date. FAST says no numbering: there it is the reset seen last, if any.
# `marks` are (number, ts_recv), one a batch: up to that number all had come by then.
SEGMENT = ("flow", "channel", "epoch", "date", "first", "last", "packets", "ts_first", "ts_last", "marks")


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"path", "known": digests of that size, "unpacked": directory, "split_bytes"} → a survey, or that it is known."""
    path = task["path"]
    digest, size = digest_of(path)
    about = {"path": path, "digest": digest, "size_bytes": size, "mtime_ns": os.stat(path).st_mtime_ns}
    if digest in task["known"]:
        return about | {"known": True}
    try:
        readable, packed, damage = unpack(path, digest, Path(task["unpacked"]))
        return about | {"format": FORMAT, "packed": packed, **_survey(readable, damage, task["split_bytes"])}
    except CaptureError as error:
        reason = error.reason.removeprefix(f"{path}: ")
        return about | {"format": FORMAT, "packed": "", "no_capture": True, "warnings": [(0, reason)]}


def unpack(path: str, digest: str, directory: Path) -> tuple[str, str, str]:
    """A file that can be read from anywhere in it: its path, how it was compressed, and what was wrong with that."""
    try:
        with open(path, "rb") as file:
            source = decompressor(file, file.peek(4)[:4])
            if not source.name:
                return path, "", ""
            target = directory / f"{digest.partition(':')[2]}.pcap"
            directory.mkdir(parents=True, exist_ok=True)
            chunk = memoryview(bytearray(COPY_BYTES))
            with target.open("wb") as plain:
                while got := source.readinto(chunk):
                    plain.write(chunk[:got])
            return str(target), source.name, source.damage
    except OSError as error:
        raise write_fault(directory, error) from error


def split_of(said: dict[str, Any], path: str) -> Split:
    header = said["header"]
    if header is not None:
        header = Header(**{**header, "interfaces": bytes.fromhex(header["interfaces"])})
    return Split(path, said["offset"], said["end"], said["number"], header)


def _survey(path: str, damage: str, split_bytes: int) -> dict[str, Any]:
    survey, walk, splits = Survey(_templates()), _Walk(), []
    warnings: list[tuple[int, str]] = [(0, damage)] if damage else []
    counts: dict[str, int] = defaultdict(int)
    for split in index(path, split_bytes):
        with open_capture(split) as capture:
            for batch in capture:
                names: list[Hashable] = [(flow.dest, flow.dest_port) for flow in batch.flows]
                survey.take(batch, names)
                walk.take(batch, names)
        for name, count in vars(capture.counts).items():
            counts[name] += count
        warnings += [(warning.offset, warning.reason) for warning in capture.warnings]
        header = split.header and {**vars(split.header), "interfaces": split.header.interfaces.hex()}
        about = {"offset": split.offset, "end": split.end, "number": split.number, "header": header}
        splits.append(about | walk.end_split())
    return {
        "warnings": warnings,
        "counts": dict(counts),
        "flows": list(walk.flows),
        "streams": survey.export(),
        "resets": walk.resets,
        "splits": splits,
    }


@cache
def _templates() -> Any:
    return load_templates()


@cache
def _fast_reader() -> tuple[Decoder, FastEvents, list[int]]:
    """For a few messages of a batch, which are not worth compiling for; and the templates of SequenceReset."""
    decoder = Decoder(_templates(), generated=())
    resets = [n for n, template in _templates().by_id.items() if message_type(template) == SEQUENCE_RESET]
    return decoder, FastEvents(decoder.layout), resets


class _Walk:
    """Numbers by split, flow, numbering and date."""

    def __init__(self) -> None:
        self.flows: dict[Hashable, int] = {}
        self.resets: list[tuple[int, int, int]] = []  # flow, ts_recv, ts_send
        self._protocols = FlowProtocols()
        self._framer = Framer()
        self._last_reset: dict[int, int | None] = defaultdict(lambda: None)
        self._segments: dict[tuple[int, int, int | None, int], list[Any]] = {}
        self._packets: dict[int, int] = defaultdict(int)

    def end_split(self) -> dict[str, Any]:
        found = [[*key, *values] for key, values in self._segments.items()]
        packets = sorted(self._packets.items())
        self._segments, self._packets = {}, defaultdict(int)
        return {"segments": found, "packets": packets}

    def take(self, batch: PacketBatch, names: list[Hashable]) -> None:
        protocol = recognise(batch.buffer, batch.start, batch.end)
        verdict = self._protocols.add(protocol, batch.flow)
        for number in np.unique(batch.flow).tolist():
            flow = self.flows.setdefault(names[number], len(self.flows))
            mine = np.flatnonzero(batch.flow == number)
            self._packets[flow] += len(mine)
            rows = mine[protocol[mine] == verdict[number]]
            if len(rows) and verdict[number] == Protocol.SBE:
                self._take_sbe(flow, batch, rows)
            elif len(rows) and verdict[number] == Protocol.FAST:
                self._take_fast(flow, batch, rows)

    def _take_sbe(self, flow: int, batch: PacketBatch, rows: Numbers) -> None:
        headers = read_headers(batch.buffer, batch.start[rows], batch.end[rows])
        sequence = headers.sequence.astype(np.int64)
        date, epoch, channel = local_dates(headers.sending_time.view(np.int64)), headers.seq_version, headers.channel
        sound = np.flatnonzero(~lone(sequence, channel, epoch, date))
        rows, sequence, channel, epoch, date = rows[sound], sequence[sound], channel[sound], epoch[sound], date[sound]
        # Loops of snapshots are numbered again and again, and heartbeats not at all: they count as packets of their
        # date all the same.
        for chosen in _alike(channel, epoch, date):
            numbered = sequence[chosen]
            numbered = numbered[numbered > 0]
            key = flow, int(channel[chosen[0]]), int(epoch[chosen[0]]), int(date[chosen[0]])
            self._note(key, numbered, len(chosen), batch.ts_ns[rows[chosen]])

    def _take_fast(self, flow: int, batch: PacketBatch, rows: Numbers) -> None:
        frames = self._framer.frames(batch.buffer, batch.start[rows], batch.end[rows])
        if not len(frames):
            return
        decoder, mapper, resets = _fast_reader()
        whole = np.flatnonzero(frames.no_chunks == 1)
        is_reset = np.zeros(len(frames), np.bool_)
        is_reset[whole] = np.isin(peek_templates(frames)[whole], resets)  # type: ignore[arg-type]

        def sent(some: Numbers) -> Numbers:
            return mapper.events(decoder.decode(batch.buffer, frames.start[some], frames.end[some])).units.ts_send

        date = np.full(len(frames), np.iinfo(np.int32).min, np.int32)
        if len(whole):
            ends = local_dates(_known(sent(whole[[0, -1]])))
            date[:] = ends[0]
            if ends[0] != ends[1]:
                times = _known(sent(whole))
                date[:] = local_dates(times)[np.maximum(np.searchsorted(whole, np.arange(len(frames)), "right") - 1, 0)]
        ts_recv, number = batch.ts_ns[rows][frames.packet], frames.msg_seq_num.astype(np.int64)
        for first, last in pairwise([*sorted({0, *np.flatnonzero(is_reset).tolist()}), len(frames)]):
            if is_reset[first]:
                self._last_reset[flow] = int(sent(np.array([first]))[0])
                self.resets.append((flow, int(ts_recv[first]), int(self._last_reset[flow] or 0)))
                first += 1
            part = np.arange(first, last)
            for chosen in _alike(date[part]):
                at = part[chosen]
                at = at[~lone(number[at])]
                packets = len(np.unique(frames.packet[at]))
                key = flow, 0, self._last_reset[flow], int(date[at[0]])
                self._note(key, number[at], packets, ts_recv[at])

    def _note(self, key: tuple[int, int, int | None, int], numbers: Numbers, packets: int, ts_recv: Numbers) -> None:
        if len(numbers):
            middle = int(np.median(numbers))
            numbers = numbers[np.abs(numbers - middle) < FURTHEST]
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (NULL, NULL)
        new: list[Any] = [low, high, packets, int(ts_recv.min()), int(ts_recv.max())]
        marks = [(high, new[4])] if high != NULL else []
        old = self._segments.get(key)
        if old is not None:
            firsts = [n for n in (old[0], low) if n != NULL]
            new[0], new[1] = min(firsts, default=NULL), max(old[1], high)
            new[2], new[3], new[4] = old[2] + packets, min(old[3], new[3]), max(old[4], new[4])
            marks = old[5] + marks
        self._segments[key] = [*new, marks]


def lone(number: Numbers, *columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Packets whose header fits neither the packet before nor the one after, though those fit each other: damage."""
    found = np.zeros(len(number), np.bool_)
    if len(number) < 3:
        return found
    for column in columns:
        before, here, after = column[:-2], column[1:-1], column[2:]
        found[1:-1] |= (before == after) & (here != before)
    counted = np.flatnonzero(number > 0)
    if len(counted) > 2:
        before, here, after = number[counted[:-2]], number[counted[1:-1]], number[counted[2:]]
        far = (np.abs(here - before) > NEIGHBOURS) & (np.abs(here - after) > NEIGHBOURS)
        found[counted[1:-1]] |= far & (np.abs(after - before) <= NEIGHBOURS)
    return found


def _known(times: Numbers) -> Numbers:
    """A message that cannot be decoded has the time of its neighbour."""
    there = np.flatnonzero(times != NULL)
    if not len(there):
        return times
    return times[there[np.maximum(np.searchsorted(there, np.arange(len(times)), "right") - 1, 0)]]


def _alike(*columns: NDArray[Any]) -> Iterator[Numbers]:
    """Rows with the same values; nearly always that is all of them."""
    if all((column == column[:1]).all() for column in columns):
        if len(columns[0]):
            yield np.arange(len(columns[0]))
        return
    _, which = np.unique(np.stack([column.astype(np.int64) for column in columns]), axis=1, return_inverse=True)
    for value in range(int(which.max()) + 1):
        yield np.flatnonzero(which.ravel() == value)
