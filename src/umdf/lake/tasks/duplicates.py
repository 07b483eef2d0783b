"""Copies of a unit on several lines: whether they are the same, and which of them is used if they are not.

Invariant: copies of a unit have the same bytes. If two packets have the same sequence but different send times, one
sequence is damaged in a way that its neighbours did not show (umdf.lake.tasks.damaged_headers). If two copies differ
otherwise, one is damaged: it is used only if something speaks for it and against all others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.tasks import duplicates_kernel as k
from umdf.lake.tasks.flow_packets import FlowPackets, PacketReader, SplitSource
from umdf.market.families import NULL
from umdf.transport.capture import PacketBatch

WRONG_SEQUENCE = "it has the number of another packet"
OVERRULED = "another copy of it has different bytes, and more speaks for that one"
CONTRADICTED = "another copy of it has different bytes, and nothing shows which one is right"
Numbers = NDArray[np.int64]
PacketLocation = tuple[str, int, int]  # digest, offset and sequence


class UnitCopy(NamedTuple):
    """A copy of a unit that has another one with different bytes."""

    location: PacketLocation
    line: int
    content: int  # a hash
    is_verified: bool  # its UDP checksum is right
    damage: str | None  # why it cannot be decoded


def unit_copies(
    reader: PacketReader,
    source: SplitSource,
    batch: PacketBatch,
    packets: FlowPackets,
    chosen: Numbers,
    content: Numbers,
) -> list[UnitCopy]:
    """Of these units of some packets."""
    if not len(chosen):
        return []
    units, row = packets.units.take(chosen).compacted(), packets.unit_packet_row[chosen]
    damage = reader.decode(units).corrupt
    is_verified = np.zeros(len(row), np.bool_) if batch.is_verified is None else batch.is_verified[row]
    columns = batch.offset[row], units.sequence, content, is_verified
    return [
        UnitCopy((source.digest, offset, sequence), source.line, key, verified, damage.get(unit))
        for unit, (offset, sequence, key, verified) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def refused_copies(copies: Iterable[UnitCopy], known: Collection[PacketLocation]) -> dict[PacketLocation, str]:
    """The copies that cannot be used, with reasons; `known` are refused already. Of different contents of a sequence
    the one is used that can be decoded, then the one whose checksum is right, then that of most lines. If several
    are equal in all of this, none is used: the sequence counts as lost."""
    by_sequence: dict[int, dict[int, list[UnitCopy]]] = defaultdict(lambda: defaultdict(list))
    for copy in copies:
        if copy.location not in known:
            by_sequence[copy.location[2]][copy.content].append(copy)
    refused: dict[PacketLocation, str] = {}
    for contents in by_sequence.values():
        ranks = {content: _rank(some) for content, some in contents.items()}
        best = [content for content, rank in ranks.items() if rank == max(ranks.values())]
        for content, some in contents.items():
            if len(contents) > 1 and (content not in best or len(best) > 1):
                reason = CONTRADICTED if content in best else OVERRULED
                refused |= {copy.location: copy.damage or reason for copy in some}
    return refused


def _rank(copies: list[UnitCopy]) -> tuple[bool, bool, int]:
    is_decodable, is_verified = copies[0].damage is None, any(copy.is_verified for copy in copies)
    return is_decodable, is_verified, len({copy.line for copy in copies})


class DuplicateTracker:
    """Tracks sequences from `base` on; all duplicates of the `conflicting` ones are recorded."""

    def __init__(self, base: int, count: int, conflicting: frozenset[int] = frozenset()) -> None:
        self.conflicting = set(conflicting)  # sequences whose duplicates have different send times
        self._base = base
        self._ts_send = np.full(count, NULL)
        self._copies: dict[int, dict[int, list[PacketLocation]]] = {number: {} for number in conflicting}  # by ts_send

    def add(self, digest: str, offset: Numbers, number: Numbers, ts_send: Numbers) -> None:
        """Not needed for FAST, which has no time here: a message also has its sequence in its body."""
        for row in np.flatnonzero(np.isin(number, [*self._copies])).tolist() if self._copies else ():
            copies = self._copies[int(number[row])].setdefault(int(ts_send[row]), [])
            copies.append((digest, int(offset[row]), int(number[row])))
        at = number - self._base
        known = self._ts_send[at]
        self._ts_send[at] = np.where(known == NULL, ts_send, known)
        self.conflicting.update(number[self._ts_send[at] != ts_send].tolist())

    def first_arrivals(self, number: Numbers, ts_recv: Numbers, line: NDArray[np.uint8]) -> Numbers:
        """Rows of the first arrival of each sequence from `base` on, by sequence."""
        first = np.full(len(self._ts_send), -1)
        k.first_arrivals(*map(buffer_address, (number, ts_recv, line)), len(number), self._base, buffer_address(first))
        return first[first >= 0]

    def misnumbered(self) -> frozenset[PacketLocation]:
        """Packets with a wrong sequence: the duplicate sent between its neighbours is right, or else the majority."""
        wrong: list[PacketLocation] = []
        for number, copies in self._copies.items():
            at = number - self._base
            early, late = (self._ts_send[row] if 0 <= row < len(self._ts_send) else NULL for row in (at - 1, at + 1))
            fitting_times = [sent for sent in copies if early <= sent and (late == NULL or sent <= late)]
            most_copies = max(map(len, copies.values()), default=0)
            right_times = (
                fitting_times
                if len(fitting_times) == 1
                else [sent for sent, some in copies.items() if len(some) == most_copies]
            )
            if len(right_times) == 1:
                wrong += [copy for sent, some in copies.items() if sent != right_times[0] for copy in some]
        return frozenset(wrong)


def first_arrivals_by_key(key: Numbers, ts_recv: Numbers, line: NDArray[np.uint8]) -> Numbers:
    """The first arrival of each key; of simultaneous ones, that of the first line."""
    order = np.lexsort((line, ts_recv, key))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = key[order][1:] != key[order][:-1]
    return order[begins]
