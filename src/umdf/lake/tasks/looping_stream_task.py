"""Step 1 of an ingest, looping streams: complete snapshots, and definitions that change something.

A task has some splits of one stream. A Binary snapshot spans packets: it belongs to the task in which it starts,
which reads on until it is complete. A FAST message of several chunks belongs to the task that has its last chunk, and
that task also reads the split before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.parquet.data_files import FileAdd, FileStamp
from umdf.lake.recording.capture_clock import flag_untrusted_times
from umdf.lake.recording.loop_losses import LoopTracker
from umdf.lake.recording.repeated_packets import content_hashes
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks.flow_packets import FlowPackets, Numbers, SplitSource, read_packets
from umdf.lake.tasks.packet_accounts import (
    FileTarget,
    LoopingPackets,
    line_clock_offset,
    looping_quality,
    overflow_count,
    write_looping_packets,
    write_quarantine,
)
from umdf.lake.tasks.protocols import PACKET_HEADER, PROTOCOLS, SBE, is_loop_end
from umdf.lake.tasks.quarantine import QuarantineEntry, quarantine_entries
from umdf.lake.tasks.staging import staged_writer
from umdf.lake.tasks.unchanged_definitions import DefinitionFilter
from umdf.market.calendar import local_dates
from umdf.market.families import NULL
from umdf.market.rows import Events, Rows, Units
from umdf.sync.raw_units import RawUnits, concat_units
from umdf.sync.snapshots import find_snapshots

SNAPSHOT, INSTRUMENTS = "snapshot", "instruments"
KEPT_NEWEST = 8


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"directory", "channel_id", "protocol", "stream", "trading_date", "sources", "before", "after"} → result."""
    stream = LoopingStream(task)
    writer = staged_writer(task, task["stream"])
    for events in stream.snapshots() if task["stream"] == SNAPSHOT else stream.definitions():
        writer.add(events)
    partition = {"trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py(), "channel_id": task["channel_id"]}
    target = (task["root"], FileStamp(*task["stamp"]), partition, attempt, task.get("is_compressed", True))
    files = {
        "packets": write_looping_packets(target, task, stream.packets) if "packets" in task["tables"] else None,
        "quarantine": stream.write_quarantine(target) if "quarantine" in task["tables"] else None,
    }
    return {
        "channel_id": task["channel_id"],
        "protocol": task["protocol"],
        "stream": task["stream"],
        "trading_date": task["trading_date"],
        "staged": [staged.to_json() for staged in writer.close()],
        "files": {name: [file.to_json()] for name, file in files.items() if file},
        "line": task["lines"][stream.line],
        "quality": looping_quality(stream.packets, stream.messages)
        | {
            "clock_offset_ns": line_clock_offset(map(SplitSource.from_json, task["sources"]), stream.line),
            "incomplete_snapshots": stream.incomplete_snapshots,
            "loops": [loop.to_json() for loop in stream.loops.loops()],
        },
        "held": stream.held_sequences,
        "newest": stream.newest_snapshots,
        "not_stored": overflow_count(stream.quarantined) if files["quarantine"] else 0,
        "notices": stream.protocol.notices(),
    }


class LoopingStream:
    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.protocol = PROTOCOLS[task["protocol"]](task["channel_id"], task["trading_date"], is_looping=True)
        self.line = task["sources"][0]["line"]
        self.messages = 0
        self.packets: list[LoopingPackets] = []
        self.quarantined: list[QuarantineEntry] = []
        self.held_sequences: list[list[int]] = []  # epoch, sequence and ts_recv of the oldest new snapshot, by epoch
        self.newest_snapshots: list[list[int]] = []  # the same of the last snapshots
        self.loops, self.incomplete_snapshots = LoopTracker(task["protocol"] == SBE), 0
        self._emitted = 0  # snapshots in the first carried packet that were emitted before
        self._is_off = np.empty(0, np.bool_)  # carried packets that were timed by a clock that is off

    def _units(self, source_key: str) -> Iterator[tuple[RawUnits, SplitSource]]:
        """Units, and where they are from."""
        for number, source in enumerate(map(SplitSource.from_json, self.task[source_key])):
            for batch in read_packets(source):
                flow_packets = self.protocol.read(batch, source)
                if source_key == "sources" and source.is_fresh:
                    is_today = (
                        np.ones(len(batch), np.bool_)
                        if flow_packets.is_other_date is None
                        else ~flow_packets.is_other_date
                    )
                    self.packets.append(LoopingPackets.from_batch(batch, source, flow_packets, is_today))
                    self.quarantined += quarantine_entries(number, batch, flow_packets, is_today)
                units = flow_packets.units
                if source_key == "sources" and source.is_fresh:
                    self._track_loops(flow_packets, batch.ts_ns)
                if flow_packets.is_other_date is not None:
                    units = units.take(~flow_packets.is_other_date[flow_packets.unit_packet_row])
                if len(units):
                    yield units, source

    def _track_loops(self, packets: FlowPackets, ts_recv: Numbers) -> None:
        units, packet_row = packets.units, packets.unit_packet_row
        sent = packets.ts_send[packet_row]
        ts = np.where(sent == NULL, units.ts_recv, sent)
        content = content_hashes(units.buffer, units.start, units.end, units.sequence)
        is_end = is_loop_end(units, self.task["protocol"])
        # A FAST reset is no unit: the loop ends with the unit before it.
        has_reset = packets.reset_number if packets.reset_number is not None else np.zeros(len(sent), np.int64)
        resets = np.flatnonzero(has_reset)
        edges = np.searchsorted(packet_row, resets, side="right").tolist()
        ends = [*zip(ts_recv[resets].tolist(), has_reset[resets].tolist(), strict=True), None]
        for (low, high), end in zip(pairwise([0, *edges, len(units)]), ends, strict=True):
            own = np.arange(low, high)
            if packets.is_other_date is not None:
                own = own[~packets.is_other_date[packet_row[own]]]
            self.loops.add(units.epoch[own], units.sequence[own], ts[own], content[own], is_end[own])
            if end is not None:
                self.loops.end_loop(*end)

    def write_quarantine(self, target: FileTarget) -> FileAdd | None:
        return write_quarantine(
            target, self.task, [*map(SplitSource.from_json, self.task["sources"])], None, self.quarantined
        )

    def _prime_reassembly(self) -> None:
        """Read the splits before: messages that end in this task may have started there."""
        if self.task["protocol"] != SBE:
            for _ in self._units("before"):
                pass

    def snapshots(self) -> Iterator[Events]:
        self._prime_reassembly()
        carry: RawUnits | None = None
        for units, source in self._units("sources"):
            found, carry = self._complete_snapshots(carry, units, source)
            yield from found
        for units, source in self._units("after"):
            if carry is None:
                return
            found, carry = self._complete_snapshots(carry, units, source, only_first=True)
            yield from found

    def _complete_snapshots(
        self, carry: RawUnits | None, units: RawUnits, source: SplitSource, only_first: bool = False
    ) -> tuple[list[Events], RawUnits | None]:
        """Snapshots that are complete now, and the packets of one that is not, to be carried over."""
        carried, is_fresh = 0 if carry is None else len(carry), source.is_fresh
        is_off = np.append(self._is_off[:carried], np.full(len(units), source.is_clock_off))
        units = concat_units([carry, units]) if carry is not None else units
        decoded = self.protocol.decode(units, snapshot=True)
        if is_off.any():
            flag_untrusted_times(decoded.events, is_off)
        if is_fresh and not only_first:
            self.messages += int(decoded.messages[carried:].sum())
        events, is_today = decoded.events, local_dates(decoded.events.units.ts_send) == self.task["trading_date"]
        found = find_snapshots(events)
        is_selected = found.is_complete & is_today[found.header.unit]
        is_selected[: self._emitted] = False
        if only_first:
            is_selected &= found.header.unit < carried
        parts = [found.events_of(is_selected)] if is_selected.any() else []
        if is_fresh:
            is_incomplete = ~found.is_complete & is_today[found.header.unit]
            is_incomplete[: self._emitted] = False
            is_incomplete[-1:] = False  # it may still be continued
            if only_first:
                is_incomplete &= found.header.unit < carried
            self.incomplete_snapshots += int(is_incomplete.sum())
        if is_selected.any():
            self._record_held(found.header.take(is_selected), events.units, is_fresh=is_fresh)
        status = events.rows("status")
        if len(status) and not only_first:  # phases of groups are not part of a snapshot
            is_group_phase = (status.column("instrument_id") == NULL) & (status.unit >= carried) & is_today[status.unit]
            parts.append(events.take({"status": is_group_phase}))
        is_over = only_first and len(found) - self._emitted != 1
        self._emitted = 0
        if is_over or found.incomplete_from >= len(units):
            return parts, None
        self._emitted = int(np.count_nonzero(found.header.unit == found.incomplete_from)) - 1
        self._is_off = is_off[found.incomplete_from :]
        return parts, units.take(np.arange(found.incomplete_from, len(units))).compacted()

    def _record_held(self, header: Rows, units: Units, *, is_fresh: bool) -> None:
        version, last = header.column("last_seq_version"), header.column("last_sequence")
        fields = np.stack([version, last, units.ts_recv[header.unit]], axis=1)
        self.newest_snapshots = [*self.newest_snapshots, *fields[-KEPT_NEWEST:].tolist()][-KEPT_NEWEST:]
        if is_fresh:
            order = np.argsort(last, kind="stable")
            lowest = np.unique(version[order], return_index=True)[1]
            self.held_sequences += fields[order[lowest]].tolist()

    def definitions(self) -> Iterator[Events]:
        self._prime_reassembly()
        deduplicator, messages_by_unit = DefinitionFilter(), dict[tuple[int, int], int]()
        for units, source in self._units("sources"):
            if not source.is_fresh:
                continue
            is_new_unit = np.ones(len(units), np.bool_)
            if self.task["protocol"] == SBE:
                is_new_unit = deduplicator.changed_packets(units, PACKET_HEADER)
            numbers = zip(units.epoch.tolist(), units.sequence.tolist(), strict=True)
            messages = iter(())
            if is_new_unit.any():
                decoded = self.protocol.decode(units.take(is_new_unit))
                messages = iter(decoded.messages.tolist())
                if source.is_clock_off:
                    flag_untrusted_times(decoded.events, np.ones(len(decoded.messages), np.bool_))
                yield deduplicator.changed_definitions(_events_of_date(decoded.events, self.task["trading_date"]))
            for number, is_new in zip(numbers, is_new_unit.tolist(), strict=True):
                messages_by_unit[number] = next(messages) if is_new else messages_by_unit[number]
                self.messages += messages_by_unit[number]


def _events_of_date(events: Events, trading_date: int) -> Events:
    is_today: NDArray[np.bool_] = local_dates(events.units.ts_send) == trading_date
    if is_today.all():
        return events
    return events.take({name: is_today[rows.unit] for name, rows in events.families.items()})
