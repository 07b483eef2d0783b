"""A bulk capture on one wire: lines of the journal → events → messages → packets, stream by stream.

The incremental stream is published on every line, the looping streams on the first one only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange import bulk_layout_kernel as w
from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_copies import Copies
from umdf.exchange.bulk_events import EventMaker
from umdf.exchange.bulk_files import Flow, Manifest, Series
from umdf.exchange.bulk_layout import Laid, LayOut, Lines
from umdf.exchange.bulk_listing import Listing
from umdf.exchange.bulk_settings import SECOND_NS, BulkSettings
from umdf.exchange.bulk_truth import Truth
from umdf.market.rows import Events

INCREMENTAL, SNAPSHOTS, INSTRUMENTS = "incremental", "snapshot", "instruments"
STREAMS = (INCREMENTAL, SNAPSHOTS, INSTRUMENTS)
SEND_NS = 5_000  # from the engine to the wire
LOOP_STEP_NS, LOOP_PAUSE_NS = 20_000, 2_000_000  # between the packets of a looping stream, and between its pieces
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Some lines of one stream. A loop of a looping stream may come in several pieces."""

    stream: str
    lines: Lines
    ts_ns: int
    starts_loop: bool = False
    total: int = 0  # snapshots in the loop


@dataclass(frozen=True)
class Packets:
    buffer: NDArray[np.uint8]
    start: Numbers
    end: Numbers
    ts_ns: Numbers
    first: Numbers  # number of the first message or of the packet, 0 where there is none
    last: Numbers


class Publisher(ABC):
    """What both wires have in common."""

    wire: str
    rpt_seq: int  # column of a line
    versions: dict[str, int]  # sequence version of each stream
    layout_versions: dict[str, Any]  # of schema or templates

    def __init__(self, settings: BulkSettings, listing: Listing, manifest: Manifest, truth: Truth) -> None:
        self.settings, self.listing = settings, listing
        self._events = EventMaker(settings, listing, self.rpt_seq)
        self._following: dict[str, int] = dict.fromkeys(STREAMS, 1)
        self._loop_ts: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self._copies: dict[str, Copies] = {stream: self._stream(stream, manifest, truth) for stream in STREAMS}
        self._layouts: dict[str, LayOut] = {stream: self._layout(stream) for stream in STREAMS}
        self.counts: Counter[tuple[str, str]] = Counter()

    def _stream(self, stream: str, manifest: Manifest, truth: Truth) -> Copies:
        settings = self.settings
        lines = settings.lines if stream == INCREMENTAL else settings.lines[:1]
        series = [
            Series(manifest, self.flow(stream, line), settings.roll_bytes, settings.roll_s * SECOND_NS)
            for line in lines
        ]
        salt = [settings.seed, 2, self.wire == "fast", STREAMS.index(stream)]
        return Copies(self.wire, series, truth, settings.loss, np.random.default_rng([int(part) for part in salt]))

    def flow(self, stream: str, line: str) -> Flow:
        """Groups and ports: each stream and line has its own."""
        wire, side, place = int(self.wire == "fast"), "AB".index(line), STREAMS.index(stream)
        dest = f"224.0.{20 + 10 * wire + side}.{self.settings.channel}", 20_001 + 1_000 * wire + 100 * side + place
        source = f"10.{wire}.{side}.1", 40_001 + place
        return Flow(self.wire, self.settings.channel, stream, line, source, dest)

    @property
    def flows(self) -> list[Flow]:
        return [series.flow for copies in self._copies.values() for series in copies.series]

    @abstractmethod
    def _layout(self, stream: str) -> LayOut: ...

    @abstractmethod
    def _encode(self, events: Events) -> Any:
        """Something with buffer, start and end, a row for each unit."""

    @abstractmethod
    def _packets(self, encoded: Any, laid: Laid, ts_ns: Numbers, stream: str) -> Packets: ...

    @abstractmethod
    def _prepare(self, piece: Piece) -> None:
        """Fill in what only this wire knows about some lines, before they are laid out."""

    def publish(self, piece: Piece) -> None:
        stream = piece.stream
        if piece.starts_loop:
            self._following[stream] = 1
        self._prepare(piece)
        laid, following = self._layouts[stream].lay_out(piece.lines, self._following[stream])
        self._number(laid, piece)
        self._following[stream] = following
        ts_ns = laid.ts_ns + SEND_NS if stream == INCREMENTAL else self._loop_times(piece, len(laid.sequence))
        events = self._events.events(laid, self.versions[stream], ts_ns)
        for family, rows in events.families.items():
            self.counts[stream, family] += len(rows)
        self._write(piece, self._packets(self._encode(events), laid, ts_ns, stream))

    def _loop_times(self, piece: Piece, count: int) -> Numbers:
        """A looping stream sends at its own pace, also while the market stands still."""
        first = max(piece.ts_ns, self._loop_ts[piece.stream] + LOOP_PAUSE_NS)
        times = first + LOOP_STEP_NS * np.arange(count)
        self._loop_ts[piece.stream] = first + LOOP_STEP_NS * count
        return times

    def _write(self, piece: Piece, packets: Packets) -> None:
        stream = piece.stream
        numbers = (packets.first, packets.last) if stream == INCREMENTAL else (None, None)
        self._copies[stream].write(packets.buffer, packets.start, packets.end, packets.ts_ns, *numbers)
        for copies in self._copies.values():
            copies.close_if_old(piece.ts_ns)

    def _number(self, laid: Laid, piece: Piece) -> None:
        """Headers of snapshots say what they hold, heartbeats what comes next."""
        headers, control = laid.families.get("snapshot"), laid.families.get("control")
        if headers is not None:
            headers[k.ID][:] = self._following[INCREMENTAL] - 1
            headers[k.CODE][:] = self.versions[INCREMENTAL] or k.NULL
            headers[k.AUX][:] = piece.total
        if control is not None:
            before = np.maximum.accumulate(np.append(self._following[piece.stream] - 1, laid.sequence))[1:]
            control[k.ID][:] = before[control.unit] + 1

    def sequences(self) -> list[tuple[str, int, int, int]]:
        """Stream, first and last number of it, packets."""
        return [(stream, 1, self._following[stream] - 1, self._copies[stream].packets) for stream in STREAMS]

    def close(self) -> None:
        for copies in self._copies.values():
            copies.close()


def limits(**values: int) -> dict[int, int]:
    return {getattr(w, f"L_{name.upper()}"): value for name, value in values.items()}
