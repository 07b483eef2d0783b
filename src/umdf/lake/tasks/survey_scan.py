"""Scans a file for its survey: sequences by split, flow, epoch and date.

Invariant: each packet is accepted or refused here, once and for all. A refused packet affects no sequence, epoch or
date; it is recorded with its position and the date of its neighbours, and readers of the split refuse exactly those.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.recording.capture_clock import ClockSamples, clock_offsets
from umdf.lake.tasks.binary_flow import BinaryFlow, binary_headers, has_wrong_checksum
from umdf.lake.tasks.damaged_headers import (
    MAX_LAG_DIFFERENCE_NS,
    HeaderChecker,
    Headers,
    concat_headers,
    mask_far_sequences,
)
from umdf.lake.tasks.numbering_runs import MAX_DISTANCE, UNKNOWN, NumberingRuns
from umdf.lake.tasks.segment_collector import SegmentCollector
from umdf.market.calendar import local_dates
from umdf.market.families import NULL
from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Units
from umdf.sync.raw_units import content_keys
from umdf.sync.stream_detection import message_type, peek_templates
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import ChunkParser, Chunks, FlowProtocols, Protocol

SEQUENCE_RESET = "4"
UNKNOWN_TEMPLATE = "D9"  # a message of an unknown template
MAX_UNDECIDED_PACKETS = 64  # packets of a flow that are kept until its protocol is known
# Send times of FAST messages: samples per batch, samples kept, samples needed.
SAMPLES_PER_BATCH, MAX_LAG_SAMPLES, MIN_LAG_SAMPLES = (9, 33, 3)
DECODED_EVERY = 4_096  # FAST messages that are decoded to compare clocks

Numbers = NDArray[np.int64]


@cache
def templates() -> TemplateSet:
    return load_templates()


@cache
def _fast_reader() -> tuple[Decoder, FastEventMapper, list[int]]:
    """A decoder for a few messages of a batch, not worth compiling for; and the templates of SequenceReset."""
    decoder = Decoder(templates(), generated=())
    resets = [n for n, template in templates().by_id.items() if message_type(template) == SEQUENCE_RESET]
    return decoder, FastEventMapper(decoder.layout), resets


class SurveyScan:
    """Scans all packets of a file, in order."""

    def __init__(self) -> None:
        self.flows: dict[Hashable, int] = {}
        self.collector = SegmentCollector()
        self._protocols = FlowProtocols()
        self._packets: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._binary: dict[int, BinaryFlow] = {}
        self._fast: dict[int, _FastFlow] = {}
        self._undecided: dict[int, list[Headers]] = defaultdict(list)

    @property
    def resets(self) -> list[tuple[int, int, int]]:
        """Flow, ts_recv and ts_send of each SequenceReset of FAST."""
        return [(number, *reset) for number, flow in self._fast.items() for reset in flow.resets]

    @property
    def runs(self) -> list[tuple[int, ...]]:
        """The flow of each numbering run of FAST, and its fields (umdf.lake.tasks.numbering_runs)."""
        return [(number, *run) for number, flow in self._fast.items() for run in flow.runs.runs]

    @property
    def clock_offsets(self) -> list[tuple[int, int]]:
        """Flow and offset of its clock (umdf.lake.recording.capture_clock)."""
        return clock_offsets({number: flow.clock for number, flow in (*self._binary.items(), *self._fast.items())})

    def add(self, batch: PacketBatch, names: list[Hashable], split: int, protocol: NDArray[np.uint8]) -> None:
        """`protocol`: the result of `detect_protocols` for each packet."""
        present = np.flatnonzero(np.bincount(batch.flow, minlength=len(names))).tolist()
        own = np.zeros(len(names), np.int64)  # flows are renumbered in every split
        own[present] = [self.flows.setdefault(names[number], len(self.flows)) for number in present]
        flows = own[batch.flow]
        flow_protocols = self._protocols.add(protocol, flows)  # type: ignore[arg-type]
        for flow in dict.fromkeys(own[present].tolist()):
            rows = np.flatnonzero(flows == flow)
            self._packets[split][flow] += len(rows)
            if flow_protocols[flow] == Protocol.FAST:
                corrupt = has_wrong_checksum(batch, rows)
                if corrupt.any():
                    self._fast_flow(flow).add_damaged(binary_headers(batch, rows[corrupt], split))
                    rows = rows[~corrupt]
                if flow in self._undecided:
                    self._fast_flow(flow).add_damaged(concat_headers(self._undecided.pop(flow)))
                self._fast_flow(flow).add(batch, rows, split)
                continue
            headers = binary_headers(batch, rows, split)
            if flow_protocols[flow] == Protocol.SBE:
                self._binary_flow(flow).add(concat_headers([*self._undecided.pop(flow, []), headers]))
            elif sum(len(part.number) for part in self._undecided[flow]) < MAX_UNDECIDED_PACKETS:
                self._undecided[flow].append(headers.take(slice(0, MAX_UNDECIDED_PACKETS)))

    def _binary_flow(self, number: int) -> BinaryFlow:
        return self._binary.setdefault(number, BinaryFlow(number, self.collector))

    def _fast_flow(self, number: int) -> _FastFlow:
        return self._fast.setdefault(number, _FastFlow(number, self.collector))

    def end(self) -> None:
        """Call it after the last packet."""
        for flow, parts in self._undecided.items():
            # Heartbeats are bare headers, which do not show their protocol; other packets are damaged.
            self._binary_flow(flow).undecided = concat_headers(parts)
        lags: list[float] = []
        for flow in sorted(self._binary.values(), key=lambda flow: -flow.packets):
            flow.finish(float(np.median(lags)) if lags else 0.0)
            lags += flow.lags
        for flow in self._fast.values():
            flow.finish()

    def split_summary(self, split: int) -> dict[str, Any]:
        return self.collector.split_summary(split) | {"packets": sorted(self._packets[split].items())}


def _low_contents(chunks: Chunks) -> Numbers:
    """Hashes of the messages (the first chunk of each) with numbers that may follow a restart of the numbering."""
    contents = np.full(len(chunks), UNKNOWN, np.int64)
    low = np.flatnonzero((chunks.msg_seq_num <= MAX_DISTANCE) & (chunks.current_chunk == 1))
    if len(low):
        contents[low] = content_keys(chunks.buffer, chunks.start[low], chunks.end[low])
    return contents


class _FastFlow:
    """Messages have sequences, but neither channel nor epoch: the epoch is the last reset seen."""

    def __init__(self, number: int, collector: SegmentCollector) -> None:
        self.number, self.collector = number, collector
        self.resets: list[tuple[int, int]] = []
        self.clock = ClockSamples(every=DECODED_EVERY)
        self._chunk_parser = ChunkParser()
        self._sequence_checker = HeaderChecker(mask_far_sequences)
        self._epoch, self._previous = NULL, 0
        self.runs = NumberingRuns()
        self._lags: deque[float] = deque(maxlen=MAX_LAG_SAMPLES)

    def add_damaged(self, headers: Headers) -> None:
        """Packets without any message."""
        zeros = np.zeros(len(headers.number), np.int64)
        neighbours = headers._replace(epoch=zeros + self._epoch, channel=zeros, sent=headers.ts_recv + self._lag())
        self.collector.add_damaged(self.number, headers._replace(number=zeros), neighbours)

    def add(self, batch: PacketBatch, rows: Numbers, split: int) -> None:
        chunks = self._chunk_parser.parse(batch.buffer, batch.start[rows], batch.end[rows])
        whole, ts_recv = np.flatnonzero(chunks.no_chunks == 1), batch.ts_ns[rows]
        self._sample_lags(chunks, whole, ts_recv)
        is_empty = np.ones(len(rows), np.bool_)
        is_empty[chunks.packet] = False
        if is_empty.any():
            self.add_damaged(binary_headers(batch, rows[is_empty], split))
        if not len(chunks):
            return
        sent = self._send_times(chunks, whole, ts_recv)
        first = np.ones(len(chunks), np.int8)
        first[1:] = chunks.packet[1:] != chunks.packet[:-1]
        zeros = np.zeros(len(chunks), np.int64)
        headers = Headers(
            chunks.msg_seq_num.astype(np.int64),
            zeros,
            zeros + self._epoch,
            sent,
            ts_recv[chunks.packet],
            batch.offset[rows][chunks.packet],
            np.full(len(chunks), split, np.int32),
            first,
            zeros.astype(np.bool_),
            zeros,
            _low_contents(chunks),
        )
        resets = whole[np.isin(peek_templates(chunks)[whole], _fast_reader()[2])]
        for row in resets.tolist():
            self._start_epoch(chunks, row, headers)
        numbered = headers.number > 0
        numbered[self._misnumbered_rows(chunks, headers)] = False
        if not numbered.all():
            self.collector.add_damaged(self.number, headers.take(~numbered), headers.take(~numbered))
        if len(resets):  # they belong to no epoch
            self.collector.add_valid(self.number, headers.take(resets)._replace(number=zeros[resets]))
            numbered[resets] = False
        if not numbered.all():
            headers = headers.take(numbered)
        self._add_numbered(*self._sequence_checker.add(headers))

    def finish(self) -> None:
        self._add_numbered(*self._sequence_checker.add(None))
        self.collector.add_valid(self.number, self.runs.add(None, self._median_lag()))

    def _add_numbered(self, headers: Headers, is_damaged: NDArray[np.bool_]) -> None:
        if is_damaged.any():
            damaged, headers = headers.take(is_damaged), headers.take(~is_damaged)
            self.collector.add_damaged(self.number, damaged, damaged)
        self.collector.add_valid(self.number, self.runs.add(headers, self._median_lag()))

    def _misnumbered_rows(self, chunks: Chunks, headers: Headers) -> Numbers:
        """A message also contains its sequence and when it was sent: if sequences are out of order, it must decode,
        contain the same, and be of this epoch."""
        number = headers.number
        before = np.concatenate([[self._previous], number[:-1]])
        self._previous = int(number[-1])
        doubtful = np.flatnonzero((chunks.no_chunks == 1) & (number != before) & (number != before + 1))
        if not len(doubtful):
            return doubtful
        decoder, mapper, _ = _fast_reader()
        batch = decoder.decode(chunks.buffer, chunks.start[doubtful], chunks.end[doubtful])
        units = mapper.events(batch).units
        wrong = (units.sequence != NULL) & (units.sequence != number[doubtful])
        # What was sent before a SequenceReset and comes after it would be a jump of the new numbering.
        wrong |= (units.ts_send != NULL) & (units.ts_send < headers.epoch[doubtful])
        rejected = [entry for entry in batch.quarantine if entry.is_quarantined]
        wrong[[entry.message for entry in rejected if entry.code != UNKNOWN_TEMPLATE]] = True
        headers.is_cut[doubtful[[entry.message for entry in rejected if entry.code == UNKNOWN_TEMPLATE]]] = True
        return doubtful[wrong]

    def _start_epoch(self, chunks: Chunks, row: int, headers: Headers) -> None:
        """Start an epoch, if the message really is a valid reset."""
        decoder, mapper, _ = _fast_reader()
        batch = decoder.decode(chunks.buffer, chunks.start[row : row + 1], chunks.end[row : row + 1])
        units = mapper.events(batch).units
        sent, stated, expected = int(units.ts_send[0]), int(units.sequence[0]), int(headers.sent[row])
        is_valid = not any(entry.is_quarantined for entry in batch.quarantine) and stated in (
            NULL,
            int(headers.number[row]),
        )
        if is_valid and abs(sent - expected) <= MAX_LAG_DIFFERENCE_NS:
            self._epoch = sent
            headers.epoch[row:] = sent
            self.resets.append((int(headers.ts_recv[row]), sent))
        else:
            some = headers.take(slice(row, row + 1))
            self.collector.add_damaged(self.number, some, some)

    # The send time is inside the message, and decoding all of them would take too long. The receive time is a little
    # later, in a clock that may be wrong but steady: so a few samples are enough, except around midnight.

    def _lag(self) -> int:
        lag = self._median_lag()
        return lag if abs(lag) > MAX_LAG_DIFFERENCE_NS else 0

    def _median_lag(self) -> int:
        return int(np.median(self._lags)) if len(self._lags) >= MIN_LAG_SAMPLES else 0

    def _sample_lags(self, chunks: Chunks, whole: Numbers, ts_recv: Numbers) -> None:
        if len(whole):
            some = whole[np.unique(np.linspace(0, len(whole) - 1, SAMPLES_PER_BATCH).astype(np.int64))]
            sent = _units(chunks, some).ts_send
            known = sent != NULL
            self._lags.extend((sent[known].astype(np.float64) - ts_recv[chunks.packet[some[known]]]).tolist())
            some = whole[self.clock.choose(len(whole))]
            sent = _units(chunks, some).ts_send
            self.clock.add(ts_recv[chunks.packet[some[sent != NULL]]], sent[sent != NULL])

    def _send_times(self, chunks: Chunks, whole: Numbers, ts_recv: Numbers) -> Numbers:
        """Approximate send times; exact ones around midnight."""
        expected = ts_recv[chunks.packet] + self._lag()
        at_midnight = local_dates(expected - MAX_LAG_DIFFERENCE_NS) != local_dates(expected + MAX_LAG_DIFFERENCE_NS)
        doubtful = whole[at_midnight[whole]]
        if len(doubtful):
            sent = _units(chunks, doubtful).ts_send
            valid = np.abs(sent.astype(np.float64) - expected[doubtful]) <= MAX_LAG_DIFFERENCE_NS
            expected[doubtful[valid]] = sent[valid]
        return expected


def _units(chunks: Chunks, some: Numbers) -> Units:
    decoder, mapper, _ = _fast_reader()
    return mapper.events(decoder.decode(chunks.buffer, chunks.start[some], chunks.end[some])).units
