"""Step 1 of an ingest, looping streams: snapshots that are whole, and definitions that change something.

A task has some splits of one stream. A Binary snapshot crosses packets: it belongs to the task in which it begins,
which reads on until it is whole. A FAST message of several chunks belongs to the task in which its last chunk is, which
has looked at the split before.
"""

from __future__ import annotations

import resource
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.accounts import Seen, loop_packets_file, loop_quality
from umdf.lake.files import Stamp
from umdf.lake.gather import Source, datagrams_of
from umdf.lake.repeats import Repeats
from umdf.lake.staging import StagedWriter
from umdf.lake.tasks import Place
from umdf.lake.wires import PACKET_HEADER, SBE, WIRES
from umdf.market.calendar import local_dates
from umdf.market.events import NULL
from umdf.market.rows import Events
from umdf.sync.pieces import Pieces, joined
from umdf.sync.snapshots import find_snapshots

SNAPSHOT, INSTRUMENTS = "snapshot", "instruments"


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"directory", "channel_id", "protocol", "role", "trading_date", "sources", "before", "after"} → manifest."""
    stream = _Stream(task)
    writer = StagedWriter(Path(task["directory"]), f"{task['role']}-{uuid.uuid4().hex}")
    for events in stream.snapshots() if task["role"] == SNAPSHOT else stream.definitions():
        writer.add(events)
    partition = {"trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py(), "channel_id": task["channel_id"]}
    where = (task["root"], Stamp(*task["stamp"]), partition, place)
    made = loop_packets_file(where, task, stream.seen) if "packets" in task["tables"] else None
    return {
        "channel_id": task["channel_id"],
        "protocol": task["protocol"],
        "role": task["role"],
        "trading_date": task["trading_date"],
        "staged": [staged.to_json() for staged in writer.close()],
        "files": {"packets": [made.to_json()]} if made else {},
        "line": task["lines"][stream.line],
        "quality": loop_quality(stream.seen, stream.messages),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    }


class _Stream:
    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.wire = WIRES[task["protocol"]](task["channel_id"], task["trading_date"])
        self.line = task["sources"][0]["line"]
        self.messages = 0
        self.seen: list[Seen] = []
        self._told = 0  # snapshots in the first packet of what is carried that were dealt with before

    def _pieces(self, which: str) -> Iterator[Pieces]:
        for source in map(Source.from_json, self.task[which]):
            for batch, rows in datagrams_of(source):
                found = self.wire.read(batch, rows, source)
                if which == "sources":
                    today = found.ts_send == NULL
                    today |= local_dates(found.ts_send) == self.task["trading_date"]
                    self.seen.append(Seen.of(batch, rows, source, found, today))
                pieces = found.pieces
                if found.elsewhere is not None:
                    pieces = pieces.at(~found.elsewhere[found.piece_row])
                if len(pieces):
                    yield pieces

    def _warm(self) -> None:
        """Chunks of messages that end here may have come before."""
        if self.task["protocol"] != SBE:
            for _ in self._pieces("before"):
                pass

    def snapshots(self) -> Iterator[Events]:
        self._warm()
        carry: Pieces | None = None
        for pieces in self._pieces("sources"):
            found, carry = self._found(carry, pieces)
            yield from found
        for pieces in self._pieces("after"):
            if carry is None:
                return
            found, carry = self._found(carry, pieces, only_first=True)
            yield from found

    def _found(
        self, carry: Pieces | None, pieces: Pieces, only_first: bool = False
    ) -> tuple[list[Events], Pieces | None]:
        """Snapshots that are whole by now, and packets of one that is not. A unit of the events is a piece."""
        carried = 0 if carry is None else len(carry)
        pieces = joined([carry, pieces]) if carry is not None else pieces
        decoded = self.wire.decode(pieces, snapshot=True)
        self.messages += int(decoded.messages[carried:].sum())
        events, today = decoded.events, local_dates(decoded.events.units.ts_send) == self.task["trading_date"]
        found = find_snapshots(events)
        chosen = found.complete & today[found.header.unit]
        chosen[: self._told] = False
        if only_first:
            chosen &= found.header.unit < carried
        parts = [found.of(chosen)] if chosen.any() else []
        status = events.rows("status")
        if len(status) and not only_first:  # the phases of groups stand for themselves
            of_groups = (status.column("instrument_id") == NULL) & (status.unit >= carried) & today[status.unit]
            parts.append(events.at({"status": of_groups}))
        is_over = only_first and len(found) - self._told != 1
        self._told = 0
        if is_over or found.open_from >= len(pieces):
            return parts, None
        self._told = int(np.count_nonzero(found.header.unit == found.open_from)) - 1
        return parts, pieces.at(np.arange(found.open_from, len(pieces))).packed()

    def definitions(self) -> Iterator[Events]:
        self._warm()
        repeats = Repeats()
        for pieces in self._pieces("sources"):
            if self.task["protocol"] == SBE:
                pieces = pieces.at(repeats.new_packets(pieces, PACKET_HEADER))
            if len(pieces):
                decoded = self.wire.decode(pieces)
                self.messages += int(decoded.messages.sum())
                yield repeats.new_definitions(_of_date(decoded.events, self.task["trading_date"]))


def _of_date(events: Events, trading_date: int) -> Events:
    today: NDArray[np.bool_] = local_dates(events.units.ts_send) == trading_date
    if today.all():
        return events
    return events.at({name: today[rows.unit] for name, rows in events.families.items()})
