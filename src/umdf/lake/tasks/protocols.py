"""The differences between the two protocols in an ingest: how packets are numbered, and how they become events.

Invariant: a damaged packet gets a disposition with a reason, and never raises an exception.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.tasks.binary_flow import PACKET_HEADER
from umdf.lake.tasks.damaged_headers import MAX_OVERTAKING
from umdf.lake.tasks.flow_packets import CORRUPT, HEARTBEAT, PENDING, RESET, UNKNOWN, FlowPackets, Numbers, SplitSource
from umdf.lake.tasks.survey_scan import SEQUENCE_RESET, UNKNOWN_TEMPLATE
from umdf.market.calendar import are_all_on_date, local_dates
from umdf.market.families import NULL
from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events
from umdf.market.sbe.events import SbeEventMapper
from umdf.sync.raw_units import RawUnits, concat_units, data_units, empty_units
from umdf.sync.stream_detection import message_type, peek_templates
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import ChunkParser, Chunks
from umdf.wire.reassembly import Limits, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.headers import read_packet_headers
from umdf.wire.sbe.loader import load as load_schema
from umdf.wire.sbe.schema import OtherVersions

SBE, FAST = "sbe", "fast"
# Of the first message of a Binary packet: after the packet header, the framing header and the block length (5.2).
TEMPLATE_ID_OFFSET, SEQUENCE_RESET_TEMPLATE = PACKET_HEADER + 4 + 2, 1
IMPLAUSIBLE_HEADER = "its header does not fit the packets around it"
WRONG_CHECKSUM = "its UDP checksum is wrong"
# The snapshot and instrument streams restart their sequences with every loop (4.2.6).
LOOPING_LIMITS = Limits(wait_ms=60_000, restart_distance=4)
# The incremental one does so only with a reset: a chunk may be overtaken by many messages.
INCREMENTAL_LIMITS = Limits(wait_ms=60_000, restart_distance=MAX_OVERTAKING)


@dataclass(eq=False)
class DecodedUnits:
    events: Events
    messages: NDArray[np.int32]  # per unit
    corrupt: dict[int, str] = field(default_factory=dict)  # unusable units, and why
    unknown: dict[int, str] = field(default_factory=dict)  # units with a message of an unknown template


class SbeProtocol:
    """Binary: a packet has a sequence and a channel number."""

    def __init__(self, channel: int, trading_date: int, is_looping: bool = False) -> None:
        self.channel, self.trading_date = channel, trading_date
        self.decoder, self.mapper = _sbe_codec()
        self.mapper.reset()
        self._versions = OtherVersions(self.decoder.layout.schema)

    def read(self, batch: PacketBatch, source: SplitSource) -> FlowPackets:
        start, end = batch.start, batch.end
        headers = read_packet_headers(batch.buffer, start, end)
        number, epoch = headers.sequence.astype(np.int64), headers.seq_version.astype(np.int64)
        kind = np.where(number > 0, np.uint8(PENDING), np.uint8(HEARTBEAT))  # heartbeats do not use up a sequence
        sent = headers.sending_time.view(np.int64)
        is_truncated, is_foreign = end - start < PACKET_HEADER, headers.channel != self.channel
        is_implausible, date = source.quarantined_at(batch.offset)
        has_wrong_checksum = _has_wrong_checksum(batch)
        is_truncated, is_foreign = is_truncated | has_wrong_checksum, is_foreign & ~has_wrong_checksum
        reasons: dict[int, str] = {}
        if is_truncated.any() or is_foreign.any() or is_implausible.any():
            for row in np.flatnonzero(is_implausible).tolist():
                reasons[row] = IMPLAUSIBLE_HEADER
            for row in np.flatnonzero(is_foreign).tolist():
                reasons[row] = f"a packet of channel {headers.channel[row]} among those of channel {self.channel}"
            for row in np.flatnonzero(is_truncated).tolist():
                reasons[row] = f"the packet header needs {PACKET_HEADER} bytes, the packet has {end[row] - start[row]}"
            reasons |= dict.fromkeys(np.flatnonzero(has_wrong_checksum).tolist(), WRONG_CHECKSUM)
            kind[is_foreign], kind[is_implausible], kind[is_truncated] = UNKNOWN, CORRUPT, CORRUPT
            number = np.where(is_truncated | is_foreign | is_implausible, 0, number)
            sent = np.where(is_truncated | is_implausible, NULL, sent)
        numbered = np.flatnonzero(number > 0)
        zeros = np.zeros(len(number), np.uint16)
        units = data_units(batch.buffer, start, end, number, epoch, batch.ts_ns, zeros, zeros)
        if len(numbered) < len(number):
            units = units.take(numbered)
        message_counts = np.zeros(len(batch), np.int32)
        message_columns = numbered, units.sequence, units.sequence
        # An epoch number may be reused every day: the date distinguishes its sequences.
        is_other_date = None
        if reasons or not are_all_on_date(sent, self.trading_date):
            dates = np.where(is_truncated, local_dates(batch.ts_ns), local_dates(sent))
            is_other_date = np.where(date != NULL, date, dates) != self.trading_date
        return FlowPackets(
            units, numbered, number, epoch, sent, kind, message_counts, *message_columns, reasons, is_other_date
        )

    def decode(self, units: RawUnits, *, snapshot: bool = False) -> DecodedUnits:
        batch = self.decoder.decode(units.buffer, units.start, units.end)
        self._versions.add(batch.other_versions)
        events = self.mapper.events(batch, units.ts_recv, snapshot=snapshot)
        decoded = DecodedUnits(events, batch.messages.astype(np.int32))
        for entry in batch.quarantine:
            (decoded.unknown if entry.is_skipped else decoded.corrupt).setdefault(entry.packet, _reason_text(entry))
        return decoded

    def notices(self) -> list[str]:
        """Warnings about everything that was decoded, each once."""
        return self._versions.notices()


class FastProtocol:
    """FIX/FAST: a packet holds messages or chunks; messages have sequences. Nothing states the channel."""

    def __init__(self, channel: int, trading_date: int, is_looping: bool = False) -> None:
        self.channel, self.trading_date = channel, trading_date
        self.decoder, self.mapper, self._resets = _fast_codec()
        self._chunk_parser = ChunkParser()
        limits = LOOPING_LIMITS if is_looping else INCREMENTAL_LIMITS
        self._reassemblers: dict[int, Reassembler] = defaultdict(lambda: Reassembler(limits))

    def read(self, batch: PacketBatch, source: SplitSource) -> FlowPackets:
        is_implausible, date = source.quarantined_at(batch.offset)
        has_wrong_checksum = _has_wrong_checksum(batch)
        units, packet_row, chunks = self._messages(batch, source, is_implausible | has_wrong_checksum)
        count = np.bincount(chunks.packet, minlength=len(batch)).astype(np.int32)
        kind = np.full(len(batch), PENDING, np.uint8)
        kind[count == 0] = CORRUPT
        message_columns = chunks.packet.astype(np.int64), chunks.msg_seq_num.astype(np.int64), chunks.current_chunk
        is_reset = np.isin(peek_templates(units), self._resets)
        reset_number = np.zeros(len(batch), np.int64)
        reset_number[packet_row[is_reset]] = units.sequence[is_reset]
        if is_reset.any():  # a reset belongs to no epoch
            reset = packet_row[is_reset] << 16 | units.msg_index[is_reset]
            kind[packet_row[is_reset]] = RESET
            others = ~np.isin(message_columns[0] << 16 | chunks.msg_index, reset)
            message_columns = message_columns[0][others], message_columns[1][others], message_columns[2][others]
            kind[message_columns[0]] = PENDING  # unless other messages of its packet do
            units, packet_row = units.take(~is_reset), packet_row[~is_reset]
        frame_row, numbers, chunk = message_columns
        number = np.zeros(len(batch), np.int64)
        number[frame_row[::-1]] = numbers[::-1]  # of its first message
        reasons = dict.fromkeys(np.flatnonzero(is_implausible).tolist(), IMPLAUSIBLE_HEADER)
        reasons |= {entry.packet: entry.reason for entry in chunks.quarantine}
        reasons |= dict.fromkeys(np.flatnonzero(has_wrong_checksum).tolist(), WRONG_CHECKSUM)
        kind[list(reasons)] = CORRUPT
        epoch = _epochs(batch.ts_ns, source, np.flatnonzero(reset_number))
        units.epoch[:] = epoch[packet_row]
        sent, keys = np.full(len(batch), NULL), numbers << 16 | chunk
        # Units with a sequence belong to the planned date; send times of others come from the survey, if known at all.
        date = np.where(date != NULL, date, local_dates(batch.ts_ns))
        is_other_date = (number == 0) & (date != self.trading_date)
        message_columns = frame_row, numbers, keys
        return FlowPackets(
            units, packet_row, number, epoch, sent, kind, count, *message_columns, reasons, is_other_date, reset_number
        )

    def _messages(
        self, batch: PacketBatch, source: SplitSource, is_quarantined: NDArray[np.bool_]
    ) -> tuple[RawUnits, Numbers, Chunks]:
        chunks = self._chunk_parser.parse(batch.buffer, batch.start, batch.end)
        if is_quarantined.any():
            chunks = _without_damaged(chunks, batch, source)
        ts_ns = batch.ts_ns
        reassembled = self._reassemblers[source.line].add(chunks, np.zeros(len(batch), np.uint16), ts_ns)
        parts_found = [found for found in reassembled[:2] if len(found)]
        if not parts_found:
            return empty_units(), np.empty(0, np.int64), chunks
        parts = []
        for found in parts_found:
            numbers, nothing = found.msg_seq_num.astype(np.int64), np.zeros(len(found), np.int64)
            lines = np.zeros(len(found), np.uint16)
            received = ts_ns[found.packet]
            columns = (found.start, found.end, numbers, nothing, received, found.msg_index, lines)
            parts.append(data_units(found.buffer, *columns))
        order = np.argsort(np.concatenate([found.order for found in parts_found]), kind="stable")
        packet = np.concatenate([found.packet for found in parts_found])[order].astype(np.int64)
        return concat_units(parts).take(order), packet, chunks

    def decode(self, units: RawUnits, *, snapshot: bool = False) -> DecodedUnits:
        batch = self.decoder.decode(units.buffer, units.start, units.end)
        events = self.mapper.events(batch, units.msg_index, units.ts_recv, channel_id=self.channel)
        decoded = DecodedUnits(events, np.ones(len(units), np.int32))
        stated = events.units.sequence
        for row in np.flatnonzero((stated != units.sequence) & (stated != NULL)).tolist():
            decoded.corrupt[row] = f"MsgSeqNum is {stated[row]}, the technical header says {units.sequence[row]}"
        events.units.sequence[:], events.units.seq_version[:] = units.sequence, units.epoch
        for entry in batch.quarantine:
            if entry.is_quarantined:
                entries = decoded.unknown if entry.code == UNKNOWN_TEMPLATE else decoded.corrupt
                entries.setdefault(entry.message, _reason_text(entry))
        return decoded

    def notices(self) -> list[str]:
        return []


FeedProtocol = SbeProtocol | FastProtocol

PROTOCOLS: dict[str, type[SbeProtocol] | type[FastProtocol]] = {SBE: SbeProtocol, FAST: FastProtocol}


def is_loop_end(units: RawUnits, protocol: str) -> NDArray[np.bool_]:
    """Which Binary packets are the last of their loop: SequenceReset_1 is alone in it. FAST resets are no units."""
    if protocol != SBE or not len(units):
        return np.zeros(len(units), np.bool_)
    at = np.minimum(units.start + TEMPLATE_ID_OFFSET, len(units.buffer) - 2)
    template = units.buffer[at].astype(np.int64) | units.buffer[at + 1].astype(np.int64) << 8
    return (template == SEQUENCE_RESET_TEMPLATE) & (units.end - units.start >= TEMPLATE_ID_OFFSET + 2)


def _reason_text(entry: Any) -> str:
    where = f", field {entry.field}" if entry.field else ""
    template = f" of template {entry.template_id}" if entry.template_id is not None else ""
    return f"at byte {entry.offset}{template}{where}: {entry.reason}"


def _has_wrong_checksum(batch: PacketBatch) -> NDArray[np.bool_]:
    return np.zeros(len(batch), np.bool_) if batch.corrupt is None else batch.corrupt


def _without_damaged(chunks: Chunks, batch: PacketBatch, source: SplitSource) -> Chunks:
    """Drop refused messages: a wrong sequence would look like a new loop to the reassembler."""
    damaged = {(at, number) for at, number, _ in source.refused}
    message_keys = zip(batch.offset[chunks.packet].tolist(), chunks.msg_seq_num.tolist(), strict=True)
    valid = (
        np.array([each not in damaged for each in message_keys], np.bool_) & ~_has_wrong_checksum(batch)[chunks.packet]
    )
    names = ("start", "end", "packet", "msg_seq_num", "no_chunks", "current_chunk", "msg_index")
    columns: dict[str, Any] = {name: getattr(chunks, name)[valid] for name in names}
    return replace(chunks, multi_chunk_rows=int((columns["no_chunks"] > 1).sum()), **columns)


def _epochs(ts_recv: Numbers, source: SplitSource, resets: Numbers) -> Numbers:
    """FAST messages do not state their epoch: it follows from the last reset before them (0 if there was none).
    `resets` are the packets that have one: it may have been received at the same time as packets before it."""
    since = np.array([ts for ts, _ in source.epochs], np.int64)
    epochs = np.array([0, *(epoch for _, epoch in source.epochs)], np.int64)
    epoch = np.searchsorted(since, ts_recv, side="right")
    for row in resets[np.isin(ts_recv[resets], since)].tolist():
        epoch[:row][ts_recv[:row] == ts_recv[row]] = np.searchsorted(since, ts_recv[row], side="left")
    return epochs[epoch]


# Decoders are expensive to create, and a worker runs many tasks.
@cache
def _sbe_codec() -> tuple[SbeDecoder, SbeEventMapper]:
    decoder = SbeDecoder(load_schema(), validity=False)
    return decoder, SbeEventMapper(decoder.layout)


@cache
def _fast_codec() -> tuple[FastDecoder, FastEventMapper, list[int]]:
    templates = load_templates()
    decoder = FastDecoder(templates)
    resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
    return decoder, FastEventMapper(decoder.layout), resets
