"""Captures and raw streams → decoded messages of either protocol. Connects transport and wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli.decoding import fast_reader, sbe_reader
from umdf.cli.decoding.messages import DecodedBatch, DecodedMessage, QuarantineEntry
from umdf.errors import CaptureError
from umdf.transport.capture import Capture, PacketBatch, is_capture, open_capture
from umdf.transport.damage import damage_messages
from umdf.transport.input_file import is_pipe, open_input
from umdf.transport.raw_stream import RawStream, open_raw_stream
from umdf.wire.packet import FastFraming, FlowProtocols, detect_protocols
from umdf.wire.packet import Protocol as WireProtocol

Source = Capture | RawStream

AUTO = WireProtocol.UNKNOWN  # detect it from the packets


@dataclass
class DecodeCounts:
    """Counts over all files, for the summary of a command."""

    packets: int = 0
    messages: int = 0
    quarantined: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # messages that the schema does not have, by reason
    anomalies: Counter[str] = field(default_factory=Counter)  # of messages that were decoded nevertheless
    unrecognised: int = 0
    damaged: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)  # printed once: traffic of schema versions other than ours

    @property
    def is_undamaged(self) -> bool:
        return not (self.quarantined or self.damaged)


@dataclass(frozen=True)
class Readers:
    """Creates a decoder at the first packet of its protocol: most files have only one protocol."""

    sbe: Callable[[], sbe_reader.SbeReader]
    fast: Callable[[], fast_reader.FastReader]


@dataclass(frozen=True)
class ChecksumFailures:
    """Packets with a wrong UDP checksum, which are not decoded."""

    path: str
    packets: PacketBatch
    count: int = 0  # messages

    def messages(self, names: bool) -> Iterator[DecodedMessage]:
        return iter(())

    def tables(self, limit: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        return iter(())

    def quarantine(self) -> Iterator[QuarantineEntry]:
        for number, offset in zip(self.packets.number.tolist(), self.packets.offset.tolist(), strict=True):
            reason = f"wrong UDP checksum (record at file offset {offset})"
            yield QuarantineEntry(self.path, number, None, 0, None, None, None, reason)

    def skip_reasons(self) -> Iterator[str]:
        return iter(())

    def anomalies(self) -> Iterator[str]:
        return iter(())


def open_source(path: Path) -> Source:
    """Open a capture, or a raw stream of FAST chunks, detected by content; `-` is stdin. Packets with a wrong checksum
    are in the batches, and marked."""
    if is_pipe(path):
        file = open_input(path)  # once, as a pipe cannot be read again
        return open_capture(file, corrupt=True) if is_capture(file) else open_raw_stream(file, FastFraming())
    try:
        return open_capture(path, corrupt=True)
    except CaptureError as error:
        try:
            return open_raw_stream(path, FastFraming())
        except CaptureError:
            raise error from None


def decode_files(
    paths: Sequence[Path], readers: Readers, protocol: WireProtocol, counts: DecodeCounts
) -> Iterator[DecodedBatch]:
    """Decode files batch by batch. The damage of a file is in `counts` after it has been read."""
    sbe: sbe_reader.SbeReader | None = None
    fast: fast_reader.FastReader | None = None
    for path in paths:
        with open_source(path) as source:
            flows = FlowProtocols()
            for packets in source:
                if packets.corrupt is not None:
                    yield ChecksumFailures(str(path), packets.take(np.flatnonzero(packets.corrupt)))
                    packets = packets.take(np.flatnonzero(~packets.corrupt))
                protocols = _protocols(packets, flows) if protocol is AUTO else np.full(len(packets), protocol)
                counts.packets += len(packets)
                counts.unrecognised += int((protocols == WireProtocol.UNKNOWN).sum())
                rows = np.flatnonzero(protocols == WireProtocol.SBE)
                if len(rows):
                    sbe = sbe or readers.sbe()
                    decoded = sbe.decode(str(path), packets, rows)
                    counts.notices = sbe.notices()
                    yield decoded
                rows = np.flatnonzero(protocols == WireProtocol.FAST)
                if len(rows):
                    fast = fast or readers.fast()
                    yield fast.decode(str(path), packets, rows)
            if fast:
                counts.damaged += [f"{path}: {reason}" for reason in fast.finish()]
            counts.damaged += damage_messages(source.warnings)


def _protocols(packets: PacketBatch, flows: FlowProtocols) -> NDArray[np.uint8]:
    """The protocol of each packet; that of its flow if unclear, so that a damaged packet is quarantined there."""
    by_packet = detect_protocols(packets.buffer, packets.start, packets.end)
    by_flow = flows.add(by_packet, packets.flow)
    return np.where(by_packet == WireProtocol.UNKNOWN, by_flow[packets.flow], by_packet)
