"""Captures and raw streams → decoded messages of either protocol. Joins transport and wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli import reading_fast, reading_sbe
from umdf.cli.found import Decoded, Fault, Found
from umdf.errors import CaptureError
from umdf.transport.capture import Capture, PacketBatch, is_capture, open_capture
from umdf.transport.damage import told
from umdf.transport.input_file import is_pipe, open_input
from umdf.transport.raw_stream import RawStream, raw_stream
from umdf.wire.packet import FastStream, FlowProtocols, recognise
from umdf.wire.packet import Protocol as Speaks

Source = Capture | RawStream

AUTO = Speaks.UNKNOWN  # no choice made: by what the packets look like


@dataclass
class Tally:
    """What was found in all files, for the last lines of a command."""

    packets: int = 0
    messages: int = 0
    quarantined: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # messages that the schema does not know, by reason
    reported: Counter[str] = field(default_factory=Counter)  # oddities of messages that were decoded all the same
    unrecognised: int = 0
    damaged: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)  # said once: traffic that the schema was not written for

    @property
    def is_sound(self) -> bool:
        return not (self.quarantined or self.damaged)


@dataclass(frozen=True)
class Readers:
    """Makes the decoders when the first packet of their protocol comes: most files speak only one."""

    sbe: Callable[[], reading_sbe.SbeReader]
    fast: Callable[[], reading_fast.FastReader]


@dataclass(frozen=True)
class WrongChecksums:
    """Datagrams that nobody decodes."""

    path: str
    packets: PacketBatch
    count: int = 0  # messages

    def messages(self, names: bool) -> Iterator[Found]:
        return iter(())

    def tables(self, most: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        return iter(())

    def faults(self) -> Iterator[Fault]:
        for number, offset in zip(self.packets.number.tolist(), self.packets.offset.tolist(), strict=True):
            reason = f"the UDP checksum is wrong (the record is at offset {offset} of the file)"
            yield Fault(self.path, number, None, 0, None, None, None, reason)

    def skipped(self) -> Iterator[str]:
        return iter(())

    def reported(self) -> Iterator[str]:
        return iter(())


def open_source(path: Path) -> Source:
    """A capture, or a raw stream of framed FAST messages, told apart by content; `-` is stdin. Datagrams with a wrong
    checksum are in the batches, and marked."""
    if is_pipe(path):
        file = open_input(path)  # once, as nothing can be read again
        return open_capture(file, corrupt=True) if is_capture(file) else raw_stream(file, FastStream())
    try:
        return open_capture(path, corrupt=True)
    except CaptureError as error:
        try:
            return raw_stream(path, FastStream())
        except CaptureError:
            raise error from None


def decode_files(paths: Sequence[Path], readers: Readers, protocol: Speaks, tally: Tally) -> Iterator[Decoded]:
    """Decode files batch by batch. What is wrong with a file is in the tally when it has been read."""
    sbe: reading_sbe.SbeReader | None = None
    fast: reading_fast.FastReader | None = None
    for path in paths:
        with open_source(path) as source:
            flows = FlowProtocols()
            for packets in source:
                if packets.corrupt is not None:
                    yield WrongChecksums(str(path), packets.at(np.flatnonzero(packets.corrupt)))
                    packets = packets.at(np.flatnonzero(~packets.corrupt))
                speaks = _protocols(packets, flows) if protocol is AUTO else np.full(len(packets), protocol)
                tally.packets += len(packets)
                tally.unrecognised += int((speaks == Speaks.UNKNOWN).sum())
                chosen = np.flatnonzero(speaks == Speaks.SBE)
                if len(chosen):
                    sbe = sbe or readers.sbe()
                    decoded = sbe.decode(str(path), packets, chosen)
                    tally.notices = sbe.notices()
                    yield decoded
                chosen = np.flatnonzero(speaks == Speaks.FAST)
                if len(chosen):
                    fast = fast or readers.fast()
                    yield fast.decode(str(path), packets, chosen)
            if fast:
                tally.damaged += [f"{path}: {reason}" for reason in fast.finish()]
            tally.damaged += told(source.warnings)


def _protocols(packets: PacketBatch, flows: FlowProtocols) -> NDArray[np.uint8]:
    """By flow where a packet alone does not tell, so that a damaged one is quarantined where it belongs."""
    found = recognise(packets.buffer, packets.start, packets.end)
    verdict = flows.add(found, packets.flow)
    return np.where(found == Speaks.UNKNOWN, verdict[packets.flow], found)
