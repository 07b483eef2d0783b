"""What both lines lost, message by message of the kinds that matter most, in each protocol and generation: of every row
that is not marked, the lake of the undamaged day says the same (umdf.sync has the same cases for `umdf book`).

Packets are chosen by what the undamaged lake says is in them, so that the test needs no decoder of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake.captures import day, files_of, ingest, rows
from lake.damaged_days import drop_numbers
from lake.test_trust import check_nothing_wrong_is_unmarked, incremental_gaps, is_bad

pytestmark = pytest.mark.xdist_group("lake-losses")
KINDS = [(protocol, generation) for protocol in ("sbe", "fast") for generation in ("priority", "position")]
Made = Callable[[str, str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Made:
    """A day with a channel reset, and its lake; each made once."""
    tmp = tmp_path_factory.mktemp("losses")
    known: dict[tuple[str, str], tuple[Path, Path]] = {}

    def made(protocol: str, generation: str) -> tuple[Path, Path]:
        if (protocol, generation) not in known:
            captured = day(
                tmp, sized(2_500, 20_000), 10, protocol=protocol, generation=generation, channel_reset=True, seed=8,
                roll_s=600,
            )  # fmt: skip
            ingest(tmp / f"{protocol}-{generation}", files_of(captured))
            known[protocol, generation] = captured, tmp / f"{protocol}-{generation}"
        return known[protocol, generation]

    return made


def sequences(root: Path, table: str, is_wanted: Callable[[dict[str, Any]], bool]) -> list[int]:
    return sorted({row["sequence"] for row in rows(root, table) if not row["flags"] & 32 and is_wanted(row)})


def intraday_definitions(root: Path) -> set[int]:
    """Those of the incremental stream; the table has those of the instrument stream too."""
    arrivals = {row["ts_recv"] for row in rows(root, "packets") if row["stream"] == "incremental"}
    return {*sequences(root, "definition", lambda row: row["ts_recv"] in arrivals)}


def is_empty_book(row: dict[str, Any]) -> bool:
    return row["action"] == "R" and row["side"] == "N"


def last_of(root: Path) -> int:
    """The last sequence of the incremental stream; in FAST it is that of a heartbeat."""
    return max(row["last_sequence"] for row in rows(root, "quality") if row["stream"] == "incremental")


def with_hundred(first: int) -> set[int]:
    return {*range(first, first + 100)}


# The sequences that both lines lose; those of Empty Books with what is sent again after them.
LOSSES: dict[str, Callable[[Path], set[int]]] = {
    "empty books": lambda root: {
        number + at
        for number in sequences(root, "mbo", lambda row: is_empty_book(row) and row["instrument_id"] is not None)
        for at in range(40)
    },
    "empty books, not what is sent again": lambda root: {*sequences(root, "mbo", is_empty_book)},
    "channel reset": lambda root: with_hundred(sequences(root, "mbo", lambda row: row["instrument_id"] is None)[0]),
    "phases of groups": lambda root: {*sequences(root, "status", lambda row: row["instrument_id"] is None)[3:]},
    "statuses": lambda root: {*sequences(root, "status", lambda row: row["instrument_id"] is not None)[::2]},
    "definitions": lambda root: intraday_definitions(root),
    "trades": lambda root: {*sequences(root, "trades", lambda row: True)[::7]},
    "busts": lambda root: {*sequences(root, "trades", lambda row: row["action"] == "C")},
    "the begin": lambda root: {*range(1, sequences(root, "mbo", lambda row: True)[-1] // 3)},
    "the end, but for a heartbeat": lambda root: {*range(sequences(root, "mbo", lambda row: True)[-30], last_of(root))},
}
WITHOUT_SNAPSHOTS = ("phases of groups", "the begin", "channel reset")
CASES = [(loss, kind, True) for loss in LOSSES for kind in KINDS]
CASES += [(loss, kind, False) for loss in WITHOUT_SNAPSHOTS for kind in KINDS]


def is_quick(number: int) -> bool:
    """Each loss once in `make test`, in alternating kinds; all of them in `make soak`."""
    return number % len(KINDS) == number // len(KINDS) % len(KINDS)


@pytest.mark.parametrize(
    ("loss", "kind", "keeps_snapshots"),
    [pytest.param(*case, marks=() if is_quick(number) else pytest.mark.full_size) for number, case in enumerate(CASES)],
)
def test_what_both_lines_lost_leaves_nothing_wrong_unmarked(
    make: Made, tmp_path: Path, loss: str, kind: tuple[str, str], keeps_snapshots: bool
) -> None:
    captured, whole = make(*kind)
    numbers = LOSSES[loss](whole)
    files = drop_numbers(files_of(captured), tmp_path / "capture", kind[0], numbers)
    files = [path for path in files if keeps_snapshots or "snapshot" not in path.name]
    ingest(tmp_path / "lake", files)
    check_nothing_wrong_is_unmarked((captured, whole), tmp_path / "lake")
    lost = {n for first, last, *_ in incremental_gaps(tmp_path / "lake") for n in range(first, last + 1)}
    assert {number for number in numbers if number < last_of(tmp_path / "lake")} <= lost and numbers
    if not keeps_snapshots:
        assert any(is_bad(row) for row in rows(tmp_path / "lake", "day_statistics"))
