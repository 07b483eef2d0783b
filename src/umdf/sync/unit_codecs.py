"""How the two protocols become units, and units become events.

    codec = SbeUnits(decoder, versions, channel)
    units, packet = codec.read(buffer, start, end, ts_recv, line, is_looping=False)  # and the packet of each
    decoded = codec.decode(units)            # events, and the units that are damaged

Invariant: a damaged packet is never an exception. What shows in its framing is left out before the lines are merged, so
that another line's copy is used; what shows only when it is decoded is a damaged unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.market.families import NULL
from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events
from umdf.market.sbe.events import SbeEventMapper
from umdf.sync import raw_units_kernel as u
from umdf.sync.raw_units import RawUnits, UnitKind, concat_units, content_keys, empty_units
from umdf.sync.stream_detection import message_type, peek_templates
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import ChunkParser
from umdf.wire.reassembly import Limits, Messages, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.schema import OtherVersions

SEQUENCE_RESET = "4"
# Snapshot and instrument streams start again with every loop (4.2.6).
LOOPING_LIMITS = Limits(wait_ms=60_000, restart_distance=4)
# On the incremental stream a chunk may be overtaken by whole packets of other messages.
INCREMENTAL_LIMITS = Limits(wait_ms=1_000, restart_distance=1_000)
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DecodedUnits:
    events: Events
    damaged: NDArray[np.bool_]  # per unit


ReadUnits = tuple[RawUnits, Numbers]  # units, and the packet that completed each


class UnitCodec(Interface):
    states_no_epoch: bool  # numbers of two epochs cannot be told apart

    dropped: int  # packets, or parts of them, that are no units: not framed, or of another channel

    def read(
        self, buffer: Bytes, start: Numbers, end: Numbers, ts_recv: Numbers, line: int, *, is_looping: bool
    ) -> ReadUnits: ...

    def decode(self, units: RawUnits, *, snapshot: bool = False) -> DecodedUnits: ...


class SbeUnits:
    """Binary: a unit is a packet, with a sequence and a channel number."""

    states_no_epoch = False

    def __init__(self, decoder: SbeDecoder, versions: OtherVersions, channel: int) -> None:
        self._decoder, self._versions, self._channel = decoder, versions, channel
        self.dropped = 0
        self._mapper = SbeEventMapper(decoder.layout)

    def read(
        self, buffer: Bytes, start: Numbers, end: Numbers, ts_recv: Numbers, line: int, *, is_looping: bool
    ) -> ReadUnits:
        start, end, count = np.ascontiguousarray(start), np.ascontiguousarray(end), len(start)
        columns = np.empty((u.PACKET_COLUMNS, count), np.int64)
        source = buffer_address(buffer), len(buffer), buffer_address(start), buffer_address(end)
        if u.read_packets(*source, count, self._channel, buffer_address(columns)) != count:
            raise ValueError("a packet lies outside the buffer")
        sequence, epoch, next_sequence, key, kind, is_usable = columns
        usable = is_usable.astype(np.bool_)
        are_all, zeros = bool(usable.all()), np.zeros(count, np.uint16)
        if not are_all:
            self.dropped += count - int(usable.sum())
        if is_looping:
            usable &= sequence > 0
            are_all = bool(usable.all())
        content = buffer, start, end, sequence, epoch, ts_recv
        lines = np.full(count, line, np.uint16)
        units = RawUnits(*content, zeros, lines, kind.astype(np.uint8), next_sequence, key)
        if are_all:
            return units, np.arange(count)
        return units.take(usable), np.flatnonzero(usable)

    def decode(self, units: RawUnits, *, snapshot: bool = False) -> DecodedUnits:
        batch = self._decoder.decode(units.buffer, units.start, units.end)
        self._versions.add(batch.other_versions)
        events = self._mapper.events(batch, units.ts_recv, snapshot=snapshot)
        damaged = np.zeros(len(units), np.bool_)
        for entry in batch.quarantine:
            damaged[entry.packet] |= not entry.is_skipped
        return DecodedUnits(events, damaged)


class FastUnits:
    """FIX/FAST: a unit is a message; a packet holds messages or chunks. Nothing states the channel."""

    states_no_epoch = True

    def __init__(self, decoder: FastDecoder, templates: TemplateSet, channel: int) -> None:
        self._decoder, self._channel = decoder, channel
        self.dropped = 0
        self._mapper = FastEventMapper(decoder.layout)
        self._resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
        self._chunk_parser = ChunkParser()
        self._reassemblers: dict[int, Reassembler] = {}

    def read(
        self, buffer: Bytes, start: Numbers, end: Numbers, ts_recv: Numbers, line: int, *, is_looping: bool
    ) -> ReadUnits:
        limits = LOOPING_LIMITS if is_looping else INCREMENTAL_LIMITS
        reassembler = self._reassemblers.setdefault(line, Reassembler(limits))
        chunks = self._chunk_parser.parse(buffer, np.ascontiguousarray(start), np.ascontiguousarray(end))
        self.dropped += len(chunks.quarantine)
        reassembled = reassembler.add(chunks, np.zeros(len(start), np.uint16), ts_recv)
        parts = [self._units(found, ts_recv, line) for found in reassembled[:2] if len(found)]
        if not parts:
            return empty_units(), np.empty(0, np.int64)
        order = np.argsort(np.concatenate([found.order for found in reassembled[:2]]), kind="stable")
        packets = np.concatenate([found.packet for found in reassembled[:2]])[order].astype(np.int64)
        units = concat_units(parts).take(order)
        found, is_reset = peek_templates(units), np.zeros(len(units), np.bool_)
        for number in self._resets:
            is_reset |= found == number
        if is_reset.any() and is_looping:
            return units.take(~is_reset), packets[~is_reset]
        units.kind[is_reset], units.next_sequence[is_reset] = UnitKind.RESET, 1
        return units, packets

    def _units(self, messages: Messages, ts_recv: Numbers, line: int) -> RawUnits:
        count = len(messages)
        zeros, lines = np.zeros(count, np.int64), np.full(count, line, np.uint16)
        numbers = messages.msg_seq_num.astype(np.int64), zeros, ts_recv[messages.packet]
        keys = content_keys(messages.buffer, messages.start, messages.end)
        kinds = np.full(count, UnitKind.DATA, np.uint8)
        content = messages.buffer, messages.start, messages.end
        return RawUnits(*content, *numbers, messages.msg_index, lines, kinds, zeros.copy(), keys)

    def decode(self, units: RawUnits, *, snapshot: bool = False) -> DecodedUnits:
        batch = self._decoder.decode(units.buffer, units.start, units.end)
        events = self._mapper.events(batch, units.msg_index, units.ts_recv, channel_id=self._channel)
        stated = events.units.sequence
        damaged = (stated != units.sequence) & (stated != NULL)
        events.units.sequence[:], events.units.seq_version[:] = units.sequence, units.epoch
        for entry in batch.quarantine:
            damaged[entry.message] |= entry.is_quarantined
        return DecodedUnits(events, damaged)
