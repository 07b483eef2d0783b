"""The state of a session, to be stored: a session of the same streams that restores it goes on exactly where the stored
one stopped.

    content = store_session(session)
    session = Session(streams, schema, templates, until, observer)    # as the stored one was created
    restore_session(session, content)

Everything that the session knows is in it: books, trust, gaps, phases, definitions, statistics, what waits, and the
arbitration of lines. What was cleared or dropped before is not.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from umdf.book.engine import Books
from umdf.book.state import BooksState
from umdf.errors import UmdfError
from umdf.market import instruments, phase_history, phases, rows, state, statistics
from umdf.market.families import FAMILIES, Family
from umdf.sync import (
    arrivals,
    channel,
    gaps,
    gated_updates,
    look_ahead,
    phase_trust,
    raw_units,
    session,
    snapshot_queue,
    snapshot_stream,
    snapshots,
    trust,
    waiting_updates,
)
from umdf.sync.arbitration import arbiter
from umdf.sync.definitions import definition_trust, list_loops
from umdf.sync.session import Session
from umdf.sync.state.plain_values import HINT, Classes, Functions, restore, store
from umdf.sync.stream_detection import DetectedStream
from umdf.sync.unit_codecs import FastUnits, UnitCodec
from umdf.wire import reassembly
from umdf.wire.packet import Protocol


def _plain_trust(found: trust.BookTrust) -> list[Any]:
    """Only of the books that there are, which have other numbers when they come back."""
    numbers = np.flatnonzero(found._books.arenas.headers["alive"])
    found._grow()
    return [found._books, found.states[numbers], found.is_incomplete, found.empty_until, found.created]


def _trust_of(plain: list[Any]) -> trust.BookTrust:
    books, states, *rest = plain
    found = trust.BookTrust(books)
    found._grow()
    found.states[np.flatnonzero(books.arenas.headers["alive"])] = states
    [found.is_incomplete, found.empty_until, found.created] = rest
    return found


def _statistics_of(plain: dict[str, Any]) -> statistics.Statistics:
    found = statistics.Statistics()
    found.restore(plain)
    return found


def _instruments_of(plain: dict[str, Any]) -> instruments.Instruments:
    found = instruments.Instruments()
    vars(found).update(plain)
    return found


ALL_ATTRIBUTES = (
    arbiter.ArbiterState, arbiter.ArbitrationSettings, arrivals.PendingUnits, BooksState, channel.Channel,
    definition_trust.DefinitionTrust, gaps.Gap, gaps.GapCause, gaps.GapLedger, gaps.LossTimes,
    gated_updates.GatedUpdates,
    instruments.Definition, instruments.DefinitionHistory, list_loops.InstrumentList, list_loops.ListLoops,
    list_loops._Loop, look_ahead.LookAhead, phase_history.PhaseHistory, phase_trust.PhaseTrust, phases.Phases,
    phases._StoredState, phases.Status, Protocol,
    raw_units.RawUnits, reassembly.Arrival, reassembly.CompletedMessage, reassembly.DroppedMessage, reassembly.Limits,
    reassembly.MessageKey, reassembly.OpenMessage, reassembly.Reassembler, rows.Events, rows.RepeatingGroup, rows.Rows,
    rows.Units, snapshot_queue.SnapshotQueue, snapshot_queue._Waiting, snapshot_stream.EarlySnapshots,
    snapshot_stream.ReceivedPhases, snapshot_stream.ReceivedSnapshot, snapshot_stream.SnapshotHeader,
    snapshot_stream.SnapshotStream, snapshots.GroupPhases, snapshots.Snapshots, state.MarketState,
    waiting_updates.WaitingUpdates, waiting_updates._Chunk,
)  # fmt: skip
CLASSES: Classes = dict.fromkeys(ALL_ATTRIBUTES) | {
    arbiter.LineArbiter: Functions(arbiter.LineArbiter.to_state, arbiter.LineArbiter.from_state),
    array: Functions(lambda found: [found.typecode, found.tolist()], lambda plain: array(*plain)),
    Books: Functions(Books.state, lambda plain: Books.from_state(plain, requires_full_history=True)),
    Family: Functions(lambda family: family.name, FAMILIES.__getitem__),
    instruments.Instruments: Functions(instruments.Instruments.__getstate__, _instruments_of),
    rows.MemoryColumns: Functions(dict, dict),
    statistics.Statistics: Functions(statistics.Statistics.export, _statistics_of),
    trust.BookTrust: Functions(_plain_trust, _trust_of),
}


def store_session(found: Session) -> bytes:
    """Call it between `advance` and `add`, or at any other time."""
    value = {
        "streams": _described(found),
        "now_ns": found._now_ns,
        "packets": found._packets,
        "other_versions": found._versions.range,
        "inputs": [(*key, _fields(feed), _codec_state(feed.codec)) for key, feed in found._inputs.items()],
    }
    return store(value, CLASSES)


def restore_session(found: Session, content: bytes) -> None:
    """`found` was created with the same streams and settings as the stored session, and has received nothing."""
    value = restore(content, CLASSES)
    if value["streams"] != _described(found):
        raise UmdfError("the stored state is of other streams", HINT)
    found._now_ns, found._packets, found._versions.range = value["now_ns"], value["packets"], value["other_versions"]
    for protocol, number, fields, codec in value["inputs"]:
        feed = found._inputs[protocol, number]
        for name, each in fields.items():
            setattr(feed, name, each)
        feed.codec.dropped = codec["dropped"]
        if isinstance(feed.codec, FastUnits):
            feed.codec._reassemblers = codec["reassemblers"]


def _described(found: Session) -> list[tuple[Any, ...]]:
    def described(stream: DetectedStream) -> tuple[Any, ...]:
        return stream.name, int(stream.protocol), int(stream.kind), stream.channel, stream.is_recovered

    return [described(stream) for _, stream in found.streams.values()]


def _fields(feed: session._ChannelInput) -> dict[str, Any]:
    return {name: value for name, value in vars(feed).items() if name != "codec"}


def _codec_state(codec: UnitCodec) -> dict[str, Any]:
    reassemblers = codec._reassemblers if isinstance(codec, FastUnits) else {}
    return {"dropped": codec.dropped, "reassemblers": reassemblers}
