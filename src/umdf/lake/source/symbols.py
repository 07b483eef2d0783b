"""Symbols of a channel-day's instruments for the DataFrame source, found before its partitions are read.

Invariant, as in the lake: an instrument's symbol is that of its last definition of the day, in every row of the day.
Definitions come on the instrument stream and, intraday, on the incremental stream (7); there the few packets that have
one are found without decoding the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.plan.planner import ChannelDay
from umdf.lake.tasks.flow_packets import SplitSource, read_packets
from umdf.lake.tasks.looping_stream_task import INSTRUMENTS, LoopingStream
from umdf.lake.tasks.protocols import PROTOCOLS, SBE, FeedProtocol
from umdf.market.arrow import record_batch
from umdf.market.rows import Events
from umdf.sync import template_scan_kernel as k
from umdf.sync.raw_units import RawUnits
from umdf.sync.stream_detection import (
    DEFINITION,
    KINDS_OF_TEMPLATES,
    KINDS_OF_TYPES,
    MAX_SAMPLED_MESSAGES,
    message_type,
    peek_templates,
)
from umdf.wire.fast.loader import load as load_templates

DELETED = "D"
MESSAGE_KINDS = 4  # kinds of messages that distinguish streams


@dataclass(frozen=True)
class SymbolTable:
    """Symbols of instruments, sorted by ID."""

    ids: NDArray[np.int64]
    symbols: pa.Array  # the first is NULL, for all other instruments

    @classmethod
    def from_dict(cls, known: dict[int, str | None]) -> SymbolTable:
        ids = sorted(known)
        return cls(np.array(ids, np.int64), pa.array([None, *(known[number] for number in ids)], pa.utf8()))

    def lookup(self, instrument_id: NDArray[np.int64]) -> pa.Array:
        if not len(self.ids):
            return pa.nulls(len(instrument_id), pa.utf8())
        index = np.minimum(np.searchsorted(self.ids, instrument_id), len(self.ids) - 1)
        return self.symbols.take(pa.array(np.where(self.ids[index] == instrument_id, index + 1, 0)))

    def __iter__(self) -> Iterator[str]:
        return (symbol for symbol in self.symbols.to_pylist() if symbol is not None)


SymbolRecord = tuple[tuple[int, int, int], int, str | None]  # position in the stream, instrument, symbol
SymbolCache = dict[Any, list[SymbolRecord]]  # by split
Decompress = Callable[[dict[str, Any]], dict[str, Any]]  # a source with its file decompressed


def resolve_symbols(
    day: ChannelDay, surveys: Sequence[dict[str, Any]], cache: SymbolCache, decompress: Decompress
) -> SymbolTable:
    """`cache` has the records of splits that were read before; those read now are added."""
    known: dict[int, str | None] = {}
    for records in _listed_symbols(day, cache, decompress):
        known |= {number: symbol for _, number, symbol in records}
    rank = {epoch: number for number, (epoch, _, _) in enumerate(day.epochs)}
    intraday = [
        record
        for records in _intraday_symbols(day, surveys, cache, decompress)
        for record in records
        if record[0][0] in rank
    ]
    for _, number, symbol in sorted(intraday, key=lambda record: (rank[record[0][0]], *record[0][1:])):
        known[number] = symbol
    return SymbolTable.from_dict(known)


def _listed_symbols(day: ChannelDay, cache: SymbolCache, decompress: Decompress) -> Iterator[list[SymbolRecord]]:
    """Symbols from the instrument stream, split by split."""
    for task in day.looping_tasks:
        if task["stream"] == INSTRUMENTS:
            splits = [*task["before"], *task["sources"]]
            for number in range(len(task["before"]), len(splits)):
                key = _split_key(day, splits[number])
                if key not in cache:
                    before = [decompress(source) for source in splits[max(number - 1, 0) : number]]
                    alone = {"sources": [decompress(splits[number])], "before": before, "after": []}
                    cache[key] = [
                        record
                        for events in LoopingStream(task | alone).definitions()
                        for record in _symbol_records(events)
                    ]
                yield cache[key]


def _split_key(day: ChannelDay, source: dict[str, Any]) -> tuple[Any, ...]:
    epochs = tuple(map(tuple, source["epochs"]))
    return day.channel, day.date, source["digest"], source["split"]["offset"], tuple(source["flow"]), epochs


def _symbol_records(events: Events) -> list[SymbolRecord]:
    if not len(events.rows("definition")):
        return []
    batch = record_batch(events, "definition")
    names = ("seq_version", "sequence", "msg_index", "instrument_id", "symbol", "action")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return [(place, number, symbol) for *place, number, symbol, action in rows if action != DELETED]  # type: ignore[misc]


def _intraday_symbols(
    day: ChannelDay, surveys: Sequence[dict[str, Any]], cache: SymbolCache, decompress: Decompress
) -> Iterator[list[SymbolRecord]]:
    """Symbols from the incremental stream, of all lines: duplicates are identical."""
    may_have = {
        (survey["digest"], *stream["name"])
        for survey in surveys
        for stream in survey.get("streams", [])
        if dict(stream["kinds"]).get(DEFINITION) or stream["sampled"] >= MAX_SAMPLED_MESSAGES
    }
    splits = {_split_key(day, source): source for task in day.decode_tasks for source in task["sources"]}
    before: dict[int, dict[str, Any]] = {}  # by line: the last split that was skipped
    protocol = PROTOCOLS[day.protocol](day.channel, day.date)  # shared: a message may continue in the next split
    for key, split in splits.items():
        if key not in cache and (split["digest"], *split["flow"]) in may_have:
            previous_split = before.pop(split["line"], None)
            if previous_split is not None:
                list(_definition_records(protocol, day, SplitSource.from_json(decompress(previous_split))))
            cache[key] = list(_definition_records(protocol, day, SplitSource.from_json(decompress(split))))
        else:
            before[split["line"]] = split
        yield cache.get(key, [])


def _definition_records(protocol: FeedProtocol, day: ChannelDay, source: SplitSource) -> Iterator[SymbolRecord]:
    for batch in read_packets(source):
        found = protocol.read(batch, source)
        has_definition = _has_definition(found.units, day.protocol)
        if found.is_other_date is not None:
            has_definition &= ~found.is_other_date[found.unit_packet_row]
        if has_definition.any():
            decoded = protocol.decode(found.units.take(has_definition))
            is_intact = ~np.isin(decoded.events.rows("definition").unit, list(decoded.corrupt))
            yield from _symbol_records(decoded.events.take({"definition": is_intact}))


def _has_definition(units: RawUnits, protocol: str) -> NDArray[np.bool_]:
    if protocol != SBE:
        return np.isin(peek_templates(units), _fast_definitions())
    counts, place = np.zeros((len(units), MESSAGE_KINDS), np.int64), np.arange(len(units), dtype=np.uint16)
    start, end = np.ascontiguousarray(units.start), np.ascontiguousarray(units.end)
    addresses = (array.ctypes.data for array in (units.buffer, start, end))
    kinds = _sbe_kinds()
    k.count_templates(*addresses, len(units), place.ctypes.data, kinds.ctypes.data, counts.ctypes.data, MESSAGE_KINDS)
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
