"""Symbols of a channel-day's instruments for the DataFrame source, found before its partitions are read.

The one rule is the lake's: an instrument's symbol is that of its last definition of the day, in every row of the day.
Definitions come on the instrument stream and, intraday, among the updates (7); there the few packets that hold one are
picked out without decoding the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.gather import Source, datagrams_of
from umdf.lake.loop_task import INSTRUMENTS, LoopStream
from umdf.lake.plan import ChannelDay
from umdf.lake.wires import SBE, WIRES, Wire
from umdf.market.arrow import record_batch
from umdf.market.rows import Events
from umdf.sync import streams_kernel as k
from umdf.sync.pieces import Pieces
from umdf.sync.streams import DEFINITION, KINDS_OF_TEMPLATES, KINDS_OF_TYPES, SAMPLED, message_type, peek_templates
from umdf.wire.fast.loader import load as load_templates

DELETED = "D"
KINDS = 4  # of messages, as streams are told by them


@dataclass(frozen=True)
class Symbols:
    """Of instruments, sorted by their ids."""

    ids: NDArray[np.int64]
    symbols: pa.Array  # the first is NULL, for everyone else

    @classmethod
    def of(cls, known: dict[int, str | None]) -> Symbols:
        ids = sorted(known)
        return cls(np.array(ids, np.int64), pa.array([None, *(known[number] for number in ids)], pa.utf8()))

    def of_rows(self, instrument_id: NDArray[np.int64]) -> pa.Array:
        if not len(self.ids):
            return pa.nulls(len(instrument_id), pa.utf8())
        place = np.minimum(np.searchsorted(self.ids, instrument_id), len(self.ids) - 1)
        return self.symbols.take(pa.array(np.where(self.ids[place] == instrument_id, place + 1, 0)))

    def __iter__(self) -> Iterator[str]:
        return (symbol for symbol in self.symbols.to_pylist() if symbol is not None)


Told = tuple[tuple[int, int, int], int, str | None]  # where it stands in the stream, instrument, symbol
Memory = dict[Any, list[Told]]  # of splits that were read
Plain = Callable[[dict[str, Any]], dict[str, Any]]  # a source with its file unpacked


def symbols_of(day: ChannelDay, surveys: Sequence[dict[str, Any]], memory: Memory, plain: Plain) -> Symbols:
    """`memory` has what splits said before, and gets what they say now."""
    known: dict[int, str | None] = {}
    for said in _listed(day, memory, plain):
        known |= {number: symbol for _, number, symbol in said}
    rank = {epoch: number for number, (epoch, _, _) in enumerate(day.epochs)}
    intraday = [told for said in _intraday(day, surveys, memory, plain) for told in said if told[0][0] in rank]
    for _, number, symbol in sorted(intraday, key=lambda told: (rank[told[0][0]], *told[0][1:])):
        known[number] = symbol
    return Symbols.of(known)


def _listed(day: ChannelDay, memory: Memory, plain: Plain) -> Iterator[list[Told]]:
    """Of the instrument stream, split by split."""
    for task in day.loops:
        if task["role"] == INSTRUMENTS:
            splits = [*task["before"], *task["sources"]]
            for number in range(len(task["before"]), len(splits)):
                key = _key(day, splits[number])
                if key not in memory:
                    before = [plain(source) for source in splits[max(number - 1, 0) : number]]
                    alone = {"sources": [plain(splits[number])], "before": before, "after": []}
                    memory[key] = [told for events in LoopStream(task | alone).definitions() for told in _told(events)]
                yield memory[key]


def _key(day: ChannelDay, source: dict[str, Any]) -> tuple[Any, ...]:
    epochs = tuple(map(tuple, source["epochs"]))
    return day.channel, day.date, source["digest"], source["split"]["offset"], tuple(source["flow"]), epochs


def _told(events: Events) -> list[Told]:
    if not len(events.rows("definition")):
        return []
    batch = record_batch(events, "definition")
    names = ("seq_version", "sequence", "msg_index", "instrument_id", "symbol", "action")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return [(place, number, symbol) for *place, number, symbol, action in rows if action != DELETED]  # type: ignore[misc]


def _intraday(day: ChannelDay, surveys: Sequence[dict[str, Any]], memory: Memory, plain: Plain) -> Iterator[list[Told]]:
    """Definitions among the updates, of all lines: copies say the same."""
    may_have = {
        (survey["digest"], *stream["name"])
        for survey in surveys
        for stream in survey.get("streams", [])
        if dict(stream["kinds"]).get(DEFINITION) or stream["sampled"] >= SAMPLED
    }
    splits = {_key(day, said): said for task in day.decode for said in task["sources"]}
    before: dict[int, dict[str, Any]] = {}  # by line: the split that was passed over last
    wire = WIRES[day.protocol](day.channel, day.date)  # one for all: a message may go on in the next split
    for key, said in splits.items():
        if key not in memory and (said["digest"], *said["flow"]) in may_have:
            warm = before.pop(said["line"], None)
            if warm is not None:
                list(_defined(wire, day, Source.from_json(plain(warm))))
            memory[key] = list(_defined(wire, day, Source.from_json(plain(said))))
        else:
            before[said["line"]] = said
        yield memory.get(key, [])


def _defined(wire: Wire, day: ChannelDay, source: Source) -> Iterator[Told]:
    for batch in datagrams_of(source):
        found = wire.read(batch, source)
        wanted = _has_definition(found.pieces, day.protocol)
        if found.elsewhere is not None:
            wanted &= ~found.elsewhere[found.piece_row]
        if wanted.any():
            decoded = wire.decode(found.pieces.at(wanted))
            sound = ~np.isin(decoded.events.rows("definition").unit, list(decoded.corrupt))
            yield from _told(decoded.events.at({"definition": sound}))


def _has_definition(pieces: Pieces, protocol: str) -> NDArray[np.bool_]:
    if protocol != SBE:
        return np.isin(peek_templates(pieces), _fast_definitions())  # type: ignore[arg-type]
    counts, place = np.zeros((len(pieces), KINDS), np.int64), np.arange(len(pieces), dtype=np.uint16)
    start, end = np.ascontiguousarray(pieces.start), np.ascontiguousarray(pieces.end)
    addresses = (array.ctypes.data for array in (pieces.buffer, start, end))
    kinds = _sbe_kinds()
    k.count_templates(*addresses, len(pieces), place.ctypes.data, kinds.ctypes.data, counts.ctypes.data, KINDS)
    return counts[:, DEFINITION] > 0


@cache
def _sbe_kinds() -> NDArray[np.uint8]:
    kinds = np.zeros(1 << 16, np.uint8)
    kinds[list(KINDS_OF_TEMPLATES)] = list(KINDS_OF_TEMPLATES.values())
    return kinds


@cache
def _fast_definitions() -> list[int]:
    templates = load_templates().by_id.items()
    return [number for number, template in templates if KINDS_OF_TYPES.get(message_type(template)) == DEFINITION]
