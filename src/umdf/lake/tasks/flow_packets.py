"""Packets of one flow of a split, as the reader of a protocol returns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umdf.lake.recording.capture_clock import is_clock_off
from umdf.lake.recording.repeated_packets import EarlierPackets
from umdf.lake.tasks.survey import split_of
from umdf.market.families import NULL
from umdf.sync.raw_units import RawUnits
from umdf.transport.capture import PacketBatch, open_capture

Numbers = NDArray[np.int64]

BATCH_PACKETS = 1 << 15

CHUNK_BYTES = 8 << 20

# Dispositions of a packet.
USED, DUPLICATE, LATE, HEARTBEAT, RESET, CORRUPT, UNKNOWN, PENDING = range(8)

DISPOSITIONS = ("used", "duplicate", "late", "heartbeat", "reset", "corrupt", "unknown")


@dataclass(frozen=True)
class SplitSource:
    """One flow of a split: a line of the channel."""

    line: int  # index among the channel's lines
    digest: str
    path: str
    flow: tuple[str, int]
    split: dict[str, Any]
    owns_unnumbered: bool = False  # this task accounts for packets without a sequence
    unnumbered_from: int = 0  # the split's first sequence, from which on it does
    is_fresh: bool = True  # the file is not in the lake yet
    epochs: tuple[tuple[int, int], ...] = ()  # FAST: from this ts_recv on, this epoch
    refused: tuple[tuple[int, int, int], ...] = ()  # offset, sequence and date of packets with damaged headers
    # Splits of other files with packets of this line from the same time, whose packets count: digest, path and split.
    earlier: tuple[dict[str, Any], ...] = ()
    clock_offset_ns: int | None = None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SplitSource:
        pairs = {name: tuple(tuple(each) for each in content[name]) for name in ("epochs", "refused")}
        others = {"flow": tuple(content["flow"]), "earlier": tuple(content["earlier"])}
        return cls(**{**content, **others, **pairs})

    @property
    def is_clock_off(self) -> bool:
        return is_clock_off(self.clock_offset_ns)

    def quarantined_at(self, offset: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """Which packets at these offsets are refused, and their dates."""
        is_quarantined, date = np.zeros(len(offset), np.bool_), np.full(len(offset), NULL)
        if self.refused:
            table = np.array(sorted(self.refused), np.int64)
            at = np.minimum(np.searchsorted(table[:, 0], offset), len(table) - 1)
            is_quarantined = table[at, 0] == offset
            date[is_quarantined] = table[at[is_quarantined], 2]
        return is_quarantined, date


@dataclass(frozen=True, eq=False)
class FlowPackets:
    """Some packets of one flow, as a reader returns them. Columns have one row per packet, or per message or chunk."""

    units: RawUnits  # units to decode; `line` is not set yet
    unit_packet_row: Numbers  # the packet that completed the unit
    number: Numbers  # sequence of the packet's first message; 0 if it has none
    epoch: Numbers
    ts_send: Numbers
    kind: NDArray[np.uint8]  # PENDING if arbitration decides, otherwise the disposition
    message_counts: NDArray[np.int32]  # messages, as far as known without decoding
    message_packet_row: Numbers
    message_sequence: Numbers
    message_key: Numbers  # distinguishes the chunks of one message
    reasons: dict[int, str] = field(default_factory=dict)  # for corrupt or unknown packets
    is_other_date: NDArray[np.bool_] | None = None  # packets of another date


class PacketReader(Protocol):
    """Reads packets of one protocol."""

    def read(self, batch: PacketBatch, source: SplitSource) -> FlowPackets: ...

    def decode(self, units: RawUnits) -> DecodedUnits: ...


class DecodedUnits(Protocol):
    @property
    def corrupt(self) -> dict[int, str]:
        """Units that cannot be decoded, and why."""
        ...


def read_packets(source: SplitSource) -> Iterator[PacketBatch]:
    """The packets of the source's flow, batch by batch, without those that an earlier file has too."""
    if not source.earlier:
        yield from _flow_packets(source.path, source.split, source.flow)
        return
    others = (_flow_packets(other["path"], other["split"], source.flow) for other in source.earlier)
    earlier = EarlierPackets(chain.from_iterable(others))
    for batch in _flow_packets(source.path, source.split, source.flow):
        new = earlier.without_repeats(batch)
        if len(new):
            yield new


def _flow_packets(path: str, split: dict[str, Any], wanted: tuple[str, int]) -> Iterator[PacketBatch]:
    with open_capture(
        split_of(split, path), batch_packets=BATCH_PACKETS, buffer_bytes=CHUNK_BYTES, corrupt=True
    ) as capture:
        for batch in capture:
            flow_numbers = [number for number, flow in enumerate(batch.flows) if (flow.dest, flow.dest_port) == wanted]
            is_selected = batch.flow == flow_numbers[0] if len(flow_numbers) == 1 else np.isin(batch.flow, flow_numbers)
            if is_selected.all():
                yield batch
            elif is_selected.any():
                yield batch.take(np.flatnonzero(is_selected))
