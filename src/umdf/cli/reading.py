"""Captures → decoded batches: what `decode` and `explain` both start from. Joins transport and wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import ConfigError
from umdf.transport.capture import PacketBatch, open_capture
from umdf.wire.packet import FlowProtocols, Protocol, recognise
from umdf.wire.sbe.decode import Batch, Decoder, Entry
from umdf.wire.sbe.schema import Schema


class ProtocolChoice(StrEnum):
    AUTO = "auto"
    SBE = "sbe"
    FAST = "fast"


@dataclass
class Tally:
    """What was found in all files, for the last line of a command."""

    packets: int = 0
    messages: int = 0
    quarantined: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    unrecognised: int = 0
    damaged: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.quarantined or self.damaged)


@dataclass(frozen=True)
class Decoded:
    """Some SBE packets of a capture, and what they hold."""

    path: str
    packets: PacketBatch
    chosen: NDArray[np.int64]  # the packets of `batch`, by row of `packets`
    batch: Batch

    def number(self, packet: int) -> int:
        """The frame's number in its file, as Wireshark counts."""
        return int(self.packets.number[self.chosen[packet]])


def quarantine(decoded: Decoded, entry: Entry) -> dict[str, Any]:
    """A quarantined message, as it is reported."""
    found = {"file": decoded.path, "packet": decoded.number(entry.packet), "msg_index": entry.msg_index}
    found |= {"offset": entry.offset, "template_id": entry.template_id, "version": entry.version}
    found |= {"field": entry.field or None, "reason": entry.reason}
    return found


def decode_files(paths: Sequence[Path], schema: Schema, protocol: ProtocolChoice, tally: Tally) -> Iterator[Decoded]:
    """Decode captures batch by batch. What is wrong with a file is kept in the tally when it has been read."""
    if protocol is ProtocolChoice.FAST:
        raise ConfigError("FIX/FAST is not decoded yet", "only Binary UMDF (--protocol sbe) is, in this version")
    decoder = Decoder(schema)
    for path in paths:
        with open_capture(path) as capture:
            flows = FlowProtocols()
            for packets in capture:
                speaks = np.full(len(packets), Protocol.SBE)
                if protocol is ProtocolChoice.AUTO:
                    # By flow, so that a damaged packet is quarantined where it belongs and does not just vanish.
                    found = recognise(packets.buffer, packets.start, packets.end)
                    verdict = flows.add(found, packets.flow)
                    speaks = np.where(found == Protocol.UNKNOWN, verdict[packets.flow], found)
                chosen = np.flatnonzero(speaks == Protocol.SBE)
                tally.packets += len(packets)
                tally.unrecognised += len(packets) - len(chosen)
                if len(chosen):
                    batch = decoder.decode(packets.buffer, packets.start[chosen], packets.end[chosen])
                    yield Decoded(str(path), packets, chosen, batch)
            tally.damaged += [str(damage) for damage in capture.warnings]
