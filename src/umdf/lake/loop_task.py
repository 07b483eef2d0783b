"""Step 1 of an ingest, looping streams: snapshots that are whole, and definitions that change something.

A task has some splits of one stream. A Binary snapshot crosses packets: it belongs to the task in which it begins,
which reads on until it is whole. A FAST message of several chunks belongs to the task in which its last chunk is, which
has looked at the split before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.accounts import Seen, Where, loop_packets_file, loop_quality, not_kept, quarantine_file
from umdf.lake.files import FileAdd, Stamp
from umdf.lake.gather import Source, datagrams_of
from umdf.lake.refusals import Refused, refused_of
from umdf.lake.repeats import Repeats
from umdf.lake.staging import writer_of
from umdf.lake.tasks import Place
from umdf.lake.wires import PACKET_HEADER, SBE, WIRES
from umdf.market.calendar import local_dates
from umdf.market.events import NULL
from umdf.market.rows import Events, Rows, Units
from umdf.sync.pieces import Pieces, joined
from umdf.sync.snapshots import find_snapshots

SNAPSHOT, INSTRUMENTS = "snapshot", "instruments"


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"directory", "channel_id", "protocol", "role", "trading_date", "sources", "before", "after"} → manifest."""
    stream = LoopStream(task)
    writer = writer_of(task, task["role"])
    for events in stream.snapshots() if task["role"] == SNAPSHOT else stream.definitions():
        writer.add(events)
    partition = {"trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py(), "channel_id": task["channel_id"]}
    where = (task["root"], Stamp(*task["stamp"]), partition, place, task.get("packed", True))
    made = {
        "packets": loop_packets_file(where, task, stream.seen) if "packets" in task["tables"] else None,
        "quarantine": stream.quarantine_file(where) if "quarantine" in task["tables"] else None,
    }
    return {
        "channel_id": task["channel_id"],
        "protocol": task["protocol"],
        "role": task["role"],
        "trading_date": task["trading_date"],
        "staged": [staged.to_json() for staged in writer.close()],
        "files": {name: [file.to_json()] for name, file in made.items() if file},
        "line": task["lines"][stream.line],
        "quality": loop_quality(stream.seen, stream.messages),
        "held": stream.held,
        "not_kept": not_kept(stream.refused) if made["quarantine"] else 0,
        "notices": stream.wire.notices(),
    }


class LoopStream:
    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.wire = WIRES[task["protocol"]](task["channel_id"], task["trading_date"])
        self.line = task["sources"][0]["line"]
        self.messages = 0
        self.seen: list[Seen] = []
        self.refused: list[Refused] = []
        self.held: list[list[int]] = []  # numbering, number and ts_recv of the lowest that is held by a new snapshot
        self._told = 0  # snapshots in the first packet of what is carried that were dealt with before

    def _pieces(self, which: str) -> Iterator[tuple[Pieces, bool]]:
        """And whether they are of a file that is new."""
        for number, source in enumerate(map(Source.from_json, self.task[which])):
            for batch in datagrams_of(source):
                found = self.wire.read(batch, source)
                if which == "sources" and source.is_fresh:
                    today = np.ones(len(batch), np.bool_) if found.elsewhere is None else ~found.elsewhere
                    self.seen.append(Seen.of(batch, source, found, today))
                    self.refused += refused_of(number, batch, found, today)
                pieces = found.pieces
                if found.elsewhere is not None:
                    pieces = pieces.at(~found.elsewhere[found.piece_row])
                if len(pieces):
                    yield pieces, source.is_fresh

    def quarantine_file(self, where: Where) -> FileAdd | None:
        return quarantine_file(where, self.task, [*map(Source.from_json, self.task["sources"])], None, self.refused)

    def _warm(self) -> None:
        """Chunks of messages that end here may have come before."""
        if self.task["protocol"] != SBE:
            for _ in self._pieces("before"):
                pass

    def snapshots(self) -> Iterator[Events]:
        self._warm()
        carry: Pieces | None = None
        for pieces, is_fresh in self._pieces("sources"):
            found, carry = self._found(carry, pieces, is_fresh)
            yield from found
        for pieces, is_fresh in self._pieces("after"):
            if carry is None:
                return
            found, carry = self._found(carry, pieces, is_fresh, only_first=True)
            yield from found

    def _found(
        self, carry: Pieces | None, pieces: Pieces, is_fresh: bool, only_first: bool = False
    ) -> tuple[list[Events], Pieces | None]:
        """Snapshots that are whole by now, and packets of one that is not. A unit of the events is a piece."""
        carried = 0 if carry is None else len(carry)
        pieces = joined([carry, pieces]) if carry is not None else pieces
        decoded = self.wire.decode(pieces, snapshot=True)
        if is_fresh and not only_first:
            self.messages += int(decoded.messages[carried:].sum())
        events, today = decoded.events, local_dates(decoded.events.units.ts_send) == self.task["trading_date"]
        found = find_snapshots(events)
        chosen = found.complete & today[found.header.unit]
        chosen[: self._told] = False
        if only_first:
            chosen &= found.header.unit < carried
        parts = [found.of(chosen)] if chosen.any() else []
        if is_fresh and chosen.any():
            self._note_held(found.header.at(chosen), events.units)
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

    def _note_held(self, header: Rows, units: Units) -> None:
        version, last = header.column("last_seq_version"), header.column("last_sequence")
        lowest = np.unique(version[np.argsort(last, kind="stable")], return_index=True)[1]
        at = np.argsort(last, kind="stable")[lowest]
        came = units.ts_recv[header.unit]
        self.held += [[int(column[row]) for column in (version, last, came)] for row in at]

    def definitions(self) -> Iterator[Events]:
        self._warm()
        repeats, size = Repeats(), dict[tuple[int, int], int]()
        for pieces, is_fresh in self._pieces("sources"):
            if not is_fresh:
                continue
            new = np.ones(len(pieces), np.bool_)
            if self.task["protocol"] == SBE:
                new = repeats.new_packets(pieces, PACKET_HEADER)
            numbers = zip(pieces.epoch.tolist(), pieces.sequence.tolist(), strict=True)
            messages = iter(())
            if new.any():
                decoded = self.wire.decode(pieces.at(new))
                messages = iter(decoded.messages.tolist())
                yield repeats.new_definitions(_of_date(decoded.events, self.task["trading_date"]))
            for number, is_new in zip(numbers, new.tolist(), strict=True):
                size[number] = next(messages) if is_new else size[number]
                self.messages += size[number]


def _of_date(events: Events, trading_date: int) -> Events:
    today: NDArray[np.bool_] = local_dates(events.units.ts_send) == trading_date
    if today.all():
        return events
    return events.at({name: today[rows.unit] for name, rows in events.families.items()})
