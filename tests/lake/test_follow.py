"""A day in parts, micro-batch by micro-batch, is the day of one ingest: every table, by its logical hash.

Without Spark: how files reach `advance` is tested in test_stream.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from lake.captures import ALL, hashes, ingest
from lake.day_truth import check_is_the_truth
from lake.follow_days import FINISH, SECOND_NS, Made, Maker, behind, cut, follow, following
from lake.lake_order import epochs_of

from umdf.errors import UmdfError
from umdf.exchange.bulk_settings import TRADING_DATE
from umdf.lake import care
from umdf.lake.advance import Outcome
from umdf.lake.frontier import Follow
from umdf.lake.hashing import logical_hash
from umdf.lake.plan import Edge
from umdf.lake.snapshot import open_snapshot
from umdf.lake.writer import open_writer

pytestmark = pytest.mark.xdist_group("lake-follow")
pc: Any = pyarrow.compute  # its functions are made at run time
LOSSES, LINES, SIZES = (0.0, 0.02, 0.1), ("AB", "A"), (1, 2, 3, 7)
CASES = [(wire, loss, lines) for wire, loss, lines in product(("sbe", "fast"), LOSSES, LINES)]
QUICK = {("sbe", 0.02, "AB"): 1, ("fast", 0.1, "AB"): 3}  # with so many files in a micro-batch; the others: make soak
IN_ORDER = ("mbo", "trades", "mbp_1", "mbp_10", "tbbo", "statistics", "price_band", "imbalance", "news")
DAY, NEXT = (72, TRADING_DATE), (72, TRADING_DATE + 3)  # a Friday and the Monday after it
FEW = frozenset({"mbo", "trades", "packets", "gaps", "quality", "ohlcv_1m"})


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Maker:
    return Maker(tmp_path_factory.mktemp("follow"), sized(3_000, 20_000), sized(10, 40))


def up_to(table: pa.Table, edge: Edge, ranks: dict[int, int]) -> pa.Table:
    """The rows of a whole day that stand before its frontier."""
    rank = pa.array([ranks[version] for version in table["seq_version"].to_pylist()], pa.int64())
    here = pc.and_(pc.equal(rank, edge.rank), pc.less_equal(table["sequence"], edge.number))
    return table.filter(pc.or_(pc.less(rank, edge.rank), here))


def check_is_the_beginning(root: Path, made: Made, edge: Edge) -> None:
    """Events are there up to the frontier, each as it is at the end of the day, and none behind it."""
    snapshot, whole, ranks = open_snapshot(root), open_snapshot(made.root), epochs_of(made.root)
    for name in IN_ORDER:
        expected = up_to(whole.arrow_table(name), edge, ranks)
        assert logical_hash(snapshot.arrow_table(name)) == logical_hash(expected), (name, edge)
    assert care.verify(root) == []


@pytest.mark.parametrize("case", range(len(CASES)))
def test_micro_batches_come_to_the_tables_of_one_ingest(make: Maker, tmp_path: Path, case: int, soak: bool) -> None:
    wire, loss, lines = CASES[case]
    if CASES[case] not in QUICK and not soak:
        pytest.skip("only at full size: make soak")
    made = make(wire=wire, loss=loss, lines=lines, channel_reset=bool(case % 2))
    for size in SIZES if soak else [QUICK[CASES[case]]]:
        root, edges = tmp_path / str(size), [Edge(-1, 0, 0, 0, 0)]
        for outcome in following(root, cut(made.files, size)):
            assert outcome.made_again == []
            if outcome.open_days:
                edges.append(outcome.open_days[DAY])
                check_is_the_beginning(root, made, edges[-1])
        assert edges == sorted(edges) and len({edge[:2] for edge in edges}) > 3
        assert size > 1 or len(edges) > 30 or lines == "A"
        assert outcome.closed_days == [DAY]
        assert made.differing(root) == set()
        if not loss:
            check_is_the_truth(made.captured[0], root)
