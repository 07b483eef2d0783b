"""Days that are followed as their files are closed, beside the same days in one ingest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
from lake.captures import ALL, day, hashes, ingest
from lake.wire_order import epochs_of

from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer
from umdf.lake.hashing import logical_hash
from umdf.lake.ingest import ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.plan.planner import DayPosition
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.market.families import SNAPSHOT
from umdf.transport.recording import closed_files

SECOND_NS = 10**9
FINISH = FollowSettings(finish=True)
pc: Any = pyarrow.compute  # its functions are made at run time
IN_ORDER = ("mbo", "trades", "mbp_1", "mbp_10", "tbbo", "statistics", "price_band", "imbalance", "news")


@dataclass(frozen=True)
class Made:
    """Captures, and the lake that they came to in one ingest."""

    captured: list[Path]
    root: Path

    @property
    def files(self) -> list[Path]:
        """In the order in which they were closed."""
        return [path for captured in self.captured for path in closed_files(captured / "capture")]

    @cached_property
    def expected(self) -> dict[str, str]:
        return hashes(self.root)

    @cached_property
    def in_order(self) -> dict[str, pa.Table]:
        snapshot = open_snapshot(self.root)
        return {name: snapshot.arrow_table(name) for name in IN_ORDER}

    @cached_property
    def epochs(self) -> dict[int, int]:
        return epochs_of(self.root)

    def differing(self, root: Path) -> set[str]:
        """The tables of a lake that are not those of the ingest; and whether it is done with every day."""
        found = hashes(root)
        return {name for name in found if found[name] != self.expected[name]} | (
            {"channel_state"} if open_snapshot(root).rows("channel_state") else set()
        )


class Maker:
    """Days by what is special in them, each made once."""

    def __init__(self, tmp: Path, messages: int, instruments: int) -> None:
        self._tmp, self._size, self._known = tmp, (messages, instruments), dict[str, Made]()

    def __call__(self, *days: dict[str, Any], **common: Any) -> Made:
        key = repr((days, sorted(common.items())))
        if key not in self._known:
            about = [{"roll_s": 1, "rate": 500, "seed": 5, **common, **each} for each in days or ({},)]
            captured = [day(self._tmp, *self._size, **each) for each in about]
            made = Made(captured, self._tmp / f"lake-{len(self._known)}")
            ingest(made.root, made.files)
            self._known[key] = made
        return self._known[key]


def cut(files: Sequence[Path], size: int) -> list[list[Path]]:
    return [list(files[at : at + size]) for at in range(0, len(files), size)]


def behind(files: Sequence[Path], word: str, by: int) -> list[Path]:
    """The files with that word in their names come so many places later."""
    places = {path: at + (by + 0.5 if word in path.name else 0) for at, path in enumerate(files)}
    return sorted(files, key=lambda path: places[path])


def up_to(table: pa.Table, edge: DayPosition, ranks: dict[int, int]) -> pa.Table:
    """The rows of a whole day that stand before its frontier. A snapshot after a silence belongs behind the last number
    before it, but is not known until it is received."""
    versions = pa.array([*ranks], table["seq_version"].type)
    rank = pc.take(pa.array([*ranks.values()], pa.int64()), pc.index_in(table["seq_version"], versions))
    here = pc.and_(pc.equal(rank, edge.rank), pc.less_equal(table["sequence"], edge.number))
    if "flags" in table.schema.names:
        is_snapshot = pc.not_equal(pc.bit_wise_and(table["flags"], SNAPSHOT), 0)
        is_later = pc.greater(table["ts_recv"].cast(pa.int64()), edge.ts_unnumbered)
        is_at_edge = pc.equal(table["sequence"], edge.number)
        here = pc.and_not(here, pc.and_(is_at_edge, pc.and_(is_snapshot, is_later)))
    return table.filter(pc.or_(pc.less(rank, edge.rank), here))


def check_is_the_beginning(root: Path, made: Made, edge: DayPosition) -> None:
    """Events are there up to the frontier, each as it is at the end of the day, and none behind it."""
    snapshot = open_snapshot(root)
    for name, whole in made.in_order.items():
        expected = up_to(whole, edge, made.epochs)
        assert logical_hash(snapshot.arrow_table(name)) == logical_hash(expected), (name, edge)
    assert lake_status.verify(root) == []


def following(
    root: Path,
    batches: Iterable[Sequence[Path]],
    how: FollowSettings | None = None,
    *,
    finish: bool = True,
    tables: frozenset[str] = ALL,
    **more: Any,
) -> Iterator[IngestResult]:
    """One micro-batch after the other, as they are asked for."""
    run, how = LocalRunner(1), how or FollowSettings()
    with open_writer(root, "stream") as writer:
        for files in batches:
            yield ingest_captures(files, writer, run, IngestSettings(tables=tables, follow=how, **more))
        if finish:
            yield ingest_captures([], writer, run, IngestSettings(tables=tables, follow=FINISH, **more))


def follow(*words: Any, **more: Any) -> list[IngestResult]:
    return list(following(*words, **more))
