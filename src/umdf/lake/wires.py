"""What the two wires have of their own in an ingest: how datagrams are numbered, and how they become events.

The one rule: a damaged datagram is a kind of its own with a reason, never an exception.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.gather import CORRUPT, HEARTBEAT, MERGED, RESET, UNKNOWN, Found, Numbers, Source
from umdf.lake.survey_walk import NO_TEMPLATE, PACKET_HEADER, SEQUENCE_RESET
from umdf.market.calendar import are_all_of, local_dates
from umdf.market.events import NULL
from umdf.market.fast_events import FastEvents
from umdf.market.rows import Events
from umdf.market.sbe_events import SbeEvents
from umdf.sync.pieces import Pieces, joined, no_pieces
from umdf.sync.streams import message_type, peek_templates
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.decode import Decoder as FastDecoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import Framer, Frames
from umdf.wire.reassembly import Limits, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.headers import read_headers
from umdf.wire.sbe.loader import load as load_schema
from umdf.wire.sbe.schema import OtherVersions

SBE, FAST = "sbe", "fast"
MISFIT = "its header does not fit the packets around it"
WRONG_CHECKSUM = "its UDP checksum is wrong"
# Loops of snapshots and instruments begin again and again (4.2.6).
LOOPING = Limits(wait_ms=60_000, restart_distance=4)


@dataclass(eq=False)
class Decoded:
    events: Events
    messages: NDArray[np.int32]  # in each piece
    corrupt: dict[int, str] = field(default_factory=dict)  # pieces that cannot be used, and why
    unknown: dict[int, str] = field(default_factory=dict)  # pieces with a message that no schema knows


class SbeWire:
    """Binary: a datagram is a packet, which has a number and says its channel."""

    def __init__(self, channel: int, trading_date: int) -> None:
        self.channel, self.trading_date = channel, trading_date
        self.decoder, self.mapper = _sbe()
        self.mapper.reset()
        self._versions = OtherVersions(self.decoder.layout.schema)

    def read(self, batch: PacketBatch, source: Source) -> Found:
        start, end = batch.start, batch.end
        headers = read_headers(batch.buffer, start, end)
        number, epoch = headers.sequence.astype(np.int64), headers.seq_version.astype(np.int64)
        kind = np.where(number > 0, np.uint8(MERGED), np.uint8(HEARTBEAT))  # heartbeats use no number up
        sent = headers.sending_time.view(np.int64)
        cut, foreign = end - start < PACKET_HEADER, headers.channel != self.channel
        odd, date = source.refusals(batch.offset)
        corrupt = _corrupt(batch)
        cut, foreign = cut | corrupt, foreign & ~corrupt
        reasons: dict[int, str] = {}
        if cut.any() or foreign.any() or odd.any():
            for row in np.flatnonzero(odd).tolist():
                reasons[row] = MISFIT
            for row in np.flatnonzero(foreign).tolist():
                reasons[row] = f"a packet of channel {headers.channel[row]} among those of channel {self.channel}"
            for row in np.flatnonzero(cut).tolist():
                reasons[row] = f"the packet header needs {PACKET_HEADER} bytes, the packet has {end[row] - start[row]}"
            reasons |= dict.fromkeys(np.flatnonzero(corrupt).tolist(), WRONG_CHECKSUM)
            kind[foreign], kind[odd], kind[cut] = UNKNOWN, CORRUPT, CORRUPT
            number = np.where(cut | foreign | odd, 0, number)
            sent = np.where(cut | odd, NULL, sent)
        numbered = np.flatnonzero(number > 0)
        nothing = np.zeros(len(number), np.uint16)
        pieces = Pieces(batch.buffer, start, end, number, epoch, batch.ts_ns, nothing, nothing)
        if len(numbered) < len(number):
            pieces = pieces.at(numbered)
        frames = np.zeros(len(batch), np.int32)
        of_frames = numbered, pieces.sequence, pieces.sequence
        # A numbering may begin again with every day: the date tells its numbers apart.
        elsewhere = None
        if reasons or not are_all_of(sent, self.trading_date):
            dates = np.where(cut, local_dates(batch.ts_ns), local_dates(sent))
            elsewhere = np.where(date != NULL, date, dates) != self.trading_date
        return Found(pieces, numbered, number, epoch, sent, kind, frames, *of_frames, reasons, elsewhere)

    def decode(self, pieces: Pieces, *, snapshot: bool = False) -> Decoded:
        batch = self.decoder.decode(pieces.buffer, pieces.start, pieces.end)
        self._versions.add(batch.other_versions)
        events = self.mapper.events(batch, pieces.ts_recv, snapshot=snapshot)
        decoded = Decoded(events, batch.messages.astype(np.int32))
        for entry in batch.journal:
            (decoded.unknown if entry.skipped else decoded.corrupt).setdefault(entry.packet, _said(entry))
        return decoded

    def notices(self) -> list[str]:
        """What to say once about all that was decoded."""
        return self._versions.notices()


class FastWire:
    """FIX/FAST: a datagram holds messages or chunks of them; messages have numbers. The channel is told by nobody."""

    def __init__(self, channel: int, trading_date: int) -> None:
        self.channel, self.trading_date = channel, trading_date
        self.decoder, self.mapper, self._resets = _fast()
        self._framer = Framer()
        self._reassemblers: dict[int, Reassembler] = defaultdict(lambda: Reassembler(LOOPING))

    def read(self, batch: PacketBatch, source: Source) -> Found:
        refused, date = source.refusals(batch.offset)
        corrupt = _corrupt(batch)
        pieces, piece_row, frames = self._messages(batch, source, refused | corrupt)
        count = np.bincount(frames.packet, minlength=len(batch)).astype(np.int32)
        kind = np.full(len(batch), MERGED, np.uint8)
        kind[count == 0] = CORRUPT
        of_frames = frames.packet.astype(np.int64), frames.msg_seq_num.astype(np.int64), frames.current_chunk
        is_reset = np.isin(peek_templates(pieces), self._resets)  # type: ignore[arg-type]
        if is_reset.any():  # a reset stands in no numbering
            reset = piece_row[is_reset] << 16 | pieces.msg_index[is_reset]
            kind[piece_row[is_reset]] = RESET
            others = ~np.isin(of_frames[0] << 16 | frames.msg_index, reset)
            of_frames = of_frames[0][others], of_frames[1][others], of_frames[2][others]
            kind[of_frames[0]] = MERGED  # what else is in its datagram does
            pieces, piece_row = pieces.at(~is_reset), piece_row[~is_reset]
        frame_row, numbers, chunk = of_frames
        number = np.zeros(len(batch), np.int64)
        number[frame_row[::-1]] = numbers[::-1]  # of its first frame
        reasons = dict.fromkeys(np.flatnonzero(refused).tolist(), MISFIT)
        reasons |= {entry.packet: entry.reason for entry in frames.journal}
        reasons |= dict.fromkeys(np.flatnonzero(corrupt).tolist(), WRONG_CHECKSUM)
        kind[list(reasons)] = CORRUPT
        epoch = _epochs(batch.ts_ns, source)
        pieces.epoch[:] = epoch[piece_row]
        sent, keys = np.full(len(batch), NULL), numbers << 16 | chunk
        # Numbers are of the plan's date; when something without a number was sent, the survey says, or nobody.
        date = np.where(date != NULL, date, local_dates(batch.ts_ns))
        elsewhere = (number == 0) & (date != self.trading_date)
        of_frames = frame_row, numbers, keys
        return Found(pieces, piece_row, number, epoch, sent, kind, count, *of_frames, reasons, elsewhere)

    def _messages(
        self, batch: PacketBatch, source: Source, refused: NDArray[np.bool_]
    ) -> tuple[Pieces, Numbers, Frames]:
        frames = self._framer.frames(batch.buffer, batch.start, batch.end)
        if refused.any():
            frames = _without(frames, batch, source)
        ts_ns = batch.ts_ns
        taken = self._reassemblers[source.line].take(frames, np.zeros(len(batch), np.uint16), ts_ns)
        whole = [found for found in taken[:2] if len(found)]
        if not whole:
            return no_pieces(), np.empty(0, np.int64), frames
        parts = []
        for found in whole:
            numbers, nothing = found.msg_seq_num.astype(np.int64), np.zeros(len(found), np.int64)
            lines = np.zeros(len(found), np.uint16)
            received = ts_ns[found.packet]
            about = (found.start, found.end, numbers, nothing, received, found.msg_index, lines)
            parts.append(Pieces(found.buffer, *about))
        order = np.argsort(np.concatenate([found.order for found in whole]), kind="stable")
        packet = np.concatenate([found.packet for found in whole])[order].astype(np.int64)
        return joined(parts).at(order), packet, frames

    def decode(self, pieces: Pieces, *, snapshot: bool = False) -> Decoded:
        batch = self.decoder.decode(pieces.buffer, pieces.start, pieces.end)
        events = self.mapper.events(batch, pieces.msg_index, pieces.ts_recv, channel_id=self.channel)
        decoded = Decoded(events, np.ones(len(pieces), np.int32))
        said = events.units.sequence
        for row in np.flatnonzero((said != pieces.sequence) & (said != NULL)).tolist():
            decoded.corrupt[row] = f"MsgSeqNum is {said[row]}, the technical header says {pieces.sequence[row]}"
        events.units.sequence[:], events.units.seq_version[:] = pieces.sequence, pieces.epoch
        for entry in batch.journal:
            if entry.refused:
                refused = decoded.unknown if entry.code == NO_TEMPLATE else decoded.corrupt
                refused.setdefault(entry.message, _said(entry))
        return decoded

    def notices(self) -> list[str]:
        return []


Wire = SbeWire | FastWire

WIRES: dict[str, type[SbeWire] | type[FastWire]] = {SBE: SbeWire, FAST: FastWire}


def _said(entry: Any) -> str:
    where = f", field {entry.field}" if entry.field else ""
    template = f" of template {entry.template_id}" if entry.template_id is not None else ""
    return f"at byte {entry.offset}{template}{where}: {entry.reason}"


def _corrupt(batch: PacketBatch) -> NDArray[np.bool_]:
    return np.zeros(len(batch), np.bool_) if batch.corrupt is None else batch.corrupt


def _without(frames: Frames, batch: PacketBatch, source: Source) -> Frames:
    """Without messages that are refused: a number that is wrong would let the reassembler believe in a new loop."""
    wrong = {(at, number) for at, number, _ in source.refused}
    said = zip(batch.offset[frames.packet].tolist(), frames.msg_seq_num.tolist(), strict=True)
    sound = np.array([each not in wrong for each in said], np.bool_) & ~_corrupt(batch)[frames.packet]
    names = ("start", "end", "packet", "msg_seq_num", "no_chunks", "current_chunk", "msg_index")
    columns: dict[str, Any] = {name: getattr(frames, name)[sound] for name in names}
    return replace(frames, chunked=int((columns["no_chunks"] > 1).sum()), **columns)


def _epochs(ts_recv: Numbers, source: Source) -> Numbers:
    """FAST does not say to which numbering a message belongs: the last reset before it does (0 if none was seen)."""
    since = np.array([ts for ts, _ in source.epochs], np.int64)
    epochs = np.array([0, *(epoch for _, epoch in source.epochs)], np.int64)
    return epochs[np.searchsorted(since, ts_recv, side="right")]


# Decoders are dear to make, and a worker runs many tasks.
@cache
def _sbe() -> tuple[SbeDecoder, SbeEvents]:
    decoder = SbeDecoder(load_schema(), validity=False)
    return decoder, SbeEvents(decoder.layout)


@cache
def _fast() -> tuple[FastDecoder, FastEvents, list[int]]:
    templates = load_templates()
    decoder = FastDecoder(templates)
    resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
    return decoder, FastEvents(decoder.layout), resets
