"""A bulk capture, staged in this process as the first steps of an ingest do it, for tests of the books task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from umdf.cli.replay import expand_captures, replay
from umdf.lake.hashing import logical_hash
from umdf.lake.tasks import books_task
from umdf.lake.tasks.staging import BUCKETS, NO_INSTRUMENT, StagedWriter
from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.session import ChannelKey
from umdf.sync.snapshots import Snapshots
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.loader import load as load_schema

ALL_BUCKETS = [*range(BUCKETS), NO_INSTRUMENT]


@dataclass
class Day:
    """What the streams of the one channel in a capture held."""

    channel_id: int = 0
    protocol: str = ""
    trading_date: int = 0
    incremental: list[Events] = field(default_factory=list)
    snapshots: list[Snapshots] = field(default_factory=list)
    definitions: list[Events] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    limits: tuple[int, int] = (0, 1 << 62)

    @property
    def epochs(self) -> list[dict[str, int]]:
        found: dict[int, dict[str, int]] = {}
        for events in self.incremental:
            for version in np.unique(events.units.seq_version).tolist():
                units = events.units.take(events.units.seq_version == version)
                one = found.setdefault(version, {"seq_version": version, "ts_recv": int(units.ts_recv[0])})
                one["last"] = min(int(units.sequence[-1]), self.limits[1])
        return list(found.values())

    @property
    def timeline(self) -> dict[str, Any]:
        gaps = [{"seq_version": g.epoch, "first": g.first, "last": g.last, "ts_recv": g.ts_recv} for g in self.gaps]
        return {"gaps": gaps, "epochs": self.epochs}

    def part(self, first: int, last: int) -> Day:
        """Numbers `first` to `last` of the (one) epoch, and the snapshots that hold everything up to one of them; all
        gaps so far."""
        cut = Day(self.channel_id, self.protocol, self.trading_date, definitions=self.definitions)
        for events in self.incremental:
            inside = (events.units.sequence >= first) & (events.units.sequence <= last)
            rows = {name: inside[rows.unit] for name, rows in events.families.items()}
            cut.incremental.append(Events(events.units, events.take(rows).families))
        for found in self.snapshots:
            chosen = found.is_complete & (found.last_sequence >= first) & (found.last_sequence <= last)
            cut.snapshots.append(found.only(chosen))
        cut.gaps = [gap for gap in self.gaps if gap.first <= last]
        cut.limits = (first, last)
        return cut


def day_of(directory: Path, trading_date: int) -> Day:
    """Decode every stream of a capture."""
    day = Day(trading_date=trading_date)

    class RecordingChannel(Channel):
        def apply_snapshots(self, snapshots: Snapshots, received: object = None) -> None:
            day.snapshots.append(snapshots)

        def apply_instruments(self, events: Events) -> None:
            day.definitions.append(events.take({"definition": np.ones(len(events.rows("definition")), np.bool_)}))

        def open_gap(self, gap: Gap) -> None:
            day.gaps.append(gap)

        def apply(self, events: Events) -> None:
            if len(events.units):
                day.incremental.append(events)

        def apply_late(self, events: Events) -> None:
            raise AssertionError("the lines of a bulk capture are in order")

    def keep(key: ChannelKey, events: Events) -> None:
        day.protocol, day.channel_id = key[0].name.lower(), key[1]

    with mock.patch("umdf.sync.session.Channel", RecordingChannel):
        replay(expand_captures([directory / "capture"]), load_schema(), load_templates(), None, keep)
    return day


def staged_files(parts: Sequence[Events], directory: Path, name: str, spans: int = 1) -> list[dict[str, Any]]:
    """Stage events in so many spans, cut by the numbers of their units."""
    if not parts:
        return []
    total = sum(len(events.units) for events in parts)
    cuts = [total * span // spans for span in range(1, spans + 1)]
    found, done, writers = [], 0, [StagedWriter(directory, f"{name}-{span}") for span in range(spans)]
    for events in parts:
        number = done + np.arange(len(events.units))
        span = np.searchsorted(cuts, number, side="right")
        for one in np.unique(span).tolist():
            chosen = {family: (span == one)[rows.unit] for family, rows in events.families.items()}
            writers[one].add(events.take(chosen))
        done += len(events.units)
    for writer in writers:
        found += [staged.to_json() for staged in writer.close()]
    return found


def arguments_of(day: Day, root: Path, stage: Path, *, spans: int = 1, **more: Any) -> dict[str, Any]:
    root.mkdir(parents=True, exist_ok=True)
    return {
        "root": str(root),
        "stamp": [1, 1],
        "channel_id": day.channel_id,
        "protocol": day.protocol,
        "trading_date": day.trading_date,
        "buckets": ALL_BUCKETS,
        "staged": staged_files(day.incremental, stage, "incremental", spans),
        "snapshots": staged_files([found.events_of(found.is_complete) for found in day.snapshots], stage, "snapshot"),
        "definitions": staged_files(day.definitions, stage, "definition"),
        "timeline": day.timeline,
        "state_in": None,
        "tables": [*books_task.TABLES],
        **more,
    }


def states_of(root: Path, manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """The books that some tasks left for the next run."""
    paths = (path for manifest in manifests for path in manifest["open"].get("book_state", []))
    return [str(root / "book_state" / path) for path in paths]


def read(
    root: Path, manifests: Sequence[Mapping[str, Any]], table: str, earlier: Sequence[Mapping[str, Any]] = ()
) -> pa.Table:
    """The rows of a table that some tasks have written, and those of earlier runs that are final."""
    paths = [root / table / file["path"] for manifest in manifests for file in manifest["files"].get(table, [])]
    for manifest in earlier:
        final = {file["path"] for file in manifest["files"].get(table, [])} - set(manifest["open"].get(table, []))
        paths += [root / table / path for path in sorted(final)]
    return pa.concat_tables([pq.ParquetFile(path).read() for path in paths]) if paths else pa.table({})


def hashes(
    root: Path,
    manifests: Sequence[Mapping[str, Any]],
    tables: Sequence[str],
    earlier: Sequence[Mapping[str, Any]] = (),
) -> dict[str, str]:
    return {table: logical_hash(read(root, manifests, table, earlier)) for table in tables}
