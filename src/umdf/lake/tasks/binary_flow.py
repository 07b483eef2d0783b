"""The packets of one Binary multicast group in a survey: their headers, and which of them are valid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.lake.recording.capture_clock import ClockSamples
from umdf.lake.tasks.damaged_headers import (
    MAX_LAG_DIFFERENCE_WITHOUT_CLOCK_NS,
    MAX_OVERTAKING,
    NO_HEADERS,
    HeaderChecker,
    Headers,
    concat_headers,
    mask_foreign_headers,
    mask_wrong_sequences,
)
from umdf.lake.tasks.segment_collector import MAX_LISTED_PACKETS, SegmentCollector
from umdf.market.families import NULL
from umdf.transport.capture import PacketBatch
from umdf.wire.sbe.headers import read_packet_headers

PACKET_HEADER = 16  # bytes of a Binary packet header (5.1)
# A heartbeat: packet header, message size, message header, nextSeqNo.
SEQUENCE_TEMPLATE, TEMPLATE_OFFSET, NEXT_SEQUENCE_OFFSET, HEARTBEAT_BYTES = 2, 22, 28, 32

Numbers = NDArray[np.int64]


def binary_headers(batch: PacketBatch, rows: Numbers, split: int) -> Headers:
    start, end = batch.start[rows], batch.end[rows]
    headers = read_packet_headers(batch.buffer, start, end)
    number = headers.sequence.astype(np.int64)
    return Headers(
        number,
        headers.channel,
        headers.seq_version,
        headers.sending_time.view(np.int64),
        batch.ts_ns[rows],
        batch.offset[rows],
        np.full(len(rows), split, np.int32),
        np.ones(len(rows), np.int8),
        (end - start < PACKET_HEADER) | has_wrong_checksum(batch, rows),
        _announced_sequences(batch, start, end, number),
        np.zeros(len(rows), np.int64),
    )


def _announced_sequences(batch: PacketBatch, start: Numbers, end: Numbers, number: Numbers) -> Numbers:
    """The last sequence that was sent before each heartbeat (Sequence_2: nextSeqNo); 0 for other packets."""
    announced = np.zeros(len(number), np.int64)
    rows = np.flatnonzero((number == 0) & (end - start >= HEARTBEAT_BYTES))
    if len(rows):
        content = np.ascontiguousarray(batch.buffer[start[rows, None] + np.arange(HEARTBEAT_BYTES)])
        is_sequence = content[:, TEMPLATE_OFFSET : TEMPLATE_OFFSET + 2].copy().view("<u2")[:, 0] == SEQUENCE_TEMPLATE
        next_sequence = content[:, NEXT_SEQUENCE_OFFSET:].copy().view("<u4")[:, 0].astype(np.int64)
        announced[rows] = np.where(is_sequence, np.maximum(next_sequence - 1, 0), 0)
    return announced


def has_wrong_checksum(batch: PacketBatch, rows: Numbers) -> NDArray[np.bool_]:
    """Which of these have a wrong UDP checksum."""
    return np.zeros(len(rows), np.bool_) if batch.corrupt is None else batch.corrupt[rows]


class BinaryFlow:
    """Sequences are compared among packets that have one, ignoring the heartbeats between them."""

    def __init__(self, number: int, collector: SegmentCollector) -> None:
        self.number, self.collector, self.packets = number, collector, 0
        self.undecided: Headers | None = None  # all packets so far, while it is unknown whether the flow is Binary
        self.lags: list[float] = []  # samples of send time minus receive time
        self.clock = ClockSamples()
        self._identity_checker, self._sequence_checker = (
            HeaderChecker(mask_foreign_headers),
            HeaderChecker(mask_wrong_sequences),
        )
        self._last = NO_HEADERS  # the last valid packet
        self._waiting: list[Headers] = []  # refused before there was a valid packet
        self._last_seen = self._last_announced = (NULL, 0)  # epoch and sequence: of a packet, of a heartbeat

    def add(self, new: Headers) -> None:
        self.packets += len(new.number)
        self._add_checked(*self._identity_checker.add(new))

    def finish(self, usual_lag: float) -> None:
        """`usual_lag`: the lag of other flows, for a flow that is too short to have its own."""
        headers, bad = (
            self._identity_checker.add(None)
            if self.undecided is None
            else (self.undecided, mask_foreign_headers(self.undecided))
        )
        if self.packets <= MAX_LISTED_PACKETS:
            lag = headers.sent.astype(np.float64) - headers.ts_recv
            bad |= (np.abs(lag - usual_lag) > MAX_LAG_DIFFERENCE_WITHOUT_CLOCK_NS) & (headers.ts_recv > 0)
        self._add_checked(headers, bad)
        self._add_numbered(*self._sequence_checker.add(None))
        if self._waiting:
            refused = concat_headers(self._waiting)
            self.collector.add_damaged(self.number, refused, refused._replace(sent=refused.ts_recv), is_known=False)

    def _add_checked(self, headers: Headers, is_damaged: NDArray[np.bool_]) -> None:
        valid = headers
        if is_damaged.any():
            good, rows = np.flatnonzero(~is_damaged), np.flatnonzero(is_damaged)
            valid, damaged = headers.take(good), headers.take(rows)
            known = concat_headers([self._last, valid])
            neighbour_rows = np.searchsorted(good, rows) - 1 + len(self._last.number)
            if len(known.number):
                self.collector.add_damaged(self.number, damaged, known.take(np.maximum(neighbour_rows, 0)))
            else:
                self._waiting.append(damaged)
        if not len(valid.number):
            return
        if self._waiting:
            waiting = concat_headers(self._waiting)
            self.collector.add_damaged(self.number, waiting, valid.take(np.zeros(len(waiting.number), np.int64)))
            self._waiting = []
        self._last = valid.take(slice(-1, None))
        some = self.clock.choose(len(valid.number))
        self.clock.add(valid.ts_recv[some], valid.sent[some])
        if len(self.lags) < MAX_LISTED_PACKETS and self.packets > MAX_LISTED_PACKETS:
            self.lags.append(float(self._last.sent[0]) - float(self._last.ts_recv[0]))
        numbered = valid.number > 0
        plausible = self._plausible_heartbeats(valid)
        if not numbered.all():
            self.collector.add_valid(self.number, plausible.take(~numbered))
            valid = valid.take(numbered)
        self._add_numbered(*self._sequence_checker.add(valid))

    def _plausible_heartbeats(self, headers: Headers) -> Headers:
        """Headers whose announced sequences are near the last one seen, or near those of the previous heartbeat: a
        single heartbeat that is far from both is damaged."""
        announced, number, epoch = headers.announced, headers.number, headers.epoch
        rows = np.flatnonzero(announced)
        seen_rows = np.maximum.accumulate(np.where(number > 0, np.arange(len(number)), -1))
        seen = [np.append(column, self._last_seen[n])[seen_rows[rows]] for n, column in enumerate((epoch, number))]
        heartbeats = [np.append(self._last_announced[n], column[rows]) for n, column in enumerate((epoch, announced))]
        is_near = np.zeros(len(rows), np.bool_)
        for of_epoch, known in (seen, [column[:-1] for column in heartbeats]):
            is_near |= (of_epoch == epoch[rows]) & (np.abs(announced[rows] - known) <= MAX_OVERTAKING)
        self._last_announced = int(heartbeats[0][-1]), int(heartbeats[1][-1])
        if seen_rows[-1] >= 0:
            self._last_seen = int(epoch[seen_rows[-1]]), int(number[seen_rows[-1]])
        plausible = np.zeros(len(number), np.int64)
        plausible[rows[is_near]] = announced[rows[is_near]]
        return headers._replace(announced=plausible)

    def _add_numbered(self, headers: Headers, is_damaged: NDArray[np.bool_]) -> None:
        if is_damaged.any():
            damaged, headers = headers.take(is_damaged), headers.take(~is_damaged)
            self.collector.add_damaged(self.number, damaged, damaged)
        self.collector.add_valid(self.number, headers)
