"""A day in parts, micro-batch by micro-batch, is the day of one ingest: every table, by its logical hash.

Without Spark: how files reach `ingest_captures` is tested in test_stream.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from lake.captures import ALL, hashes, ingest
from lake.day_truth import check_is_the_truth
from lake.followed_days import SECOND_NS, Made, Maker, behind, check_is_the_beginning, cut, follow, following
from lake.second_epoch import renumbered

from umdf.errors import UmdfError
from umdf.exchange.bulk.settings import TRADING_DATE
from umdf.lake.admin.compaction import compact
from umdf.lake.books.derived_levels import derive_mbp_10
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer
from umdf.lake.hashing import logical_hash
from umdf.lake.ingest import ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.plan.planner import DayPosition
from umdf.lake.runtime.local_runner import LocalRunner

pytestmark = pytest.mark.xdist_group("lake-follow")
LOSSES, LINES, SIZES = (0.0, 0.02, 0.1), ("AB", "A"), (1, 2, 3, 7)
CASES = [(protocol, loss, lines) for protocol, loss, lines in product(("sbe", "fast"), LOSSES, LINES)]
QUICK = {("sbe", 0.02, "AB"): 9, ("fast", 0.1, "AB"): 7}  # with so many files in a micro-batch; the others: make soak
DAY, NEXT = (72, TRADING_DATE), (72, TRADING_DATE + 3)  # a Friday and the Monday after it
FEW = frozenset({"mbo", "trades", "packets", "gaps", "quality", "ohlcv_1m"})


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Maker:
    return Maker(tmp_path_factory.mktemp("follow"), sized(3_000, 8_000), sized(10, 20))


def stream_of(path: Path) -> str:
    """incremental-A and the like."""
    return path.stem.partition("-072-")[2]


def largest(files: Sequence[Path], stream: str) -> Path:
    """A file with numbers in it, and with others before and behind it."""
    return max((path for path in files if stream in path.name), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_micro_batches_come_to_the_tables_of_one_ingest(make: Maker, tmp_path: Path, case: int, soak: bool) -> None:
    protocol, loss, lines = CASES[case]
    if CASES[case] not in QUICK and not soak:
        pytest.skip("only at full size: make soak")
    made = make(protocol=protocol, loss=loss, lines=lines, channel_reset=bool(case % 2))
    size = SIZES[(case + case // 4) % 4] if soak else QUICK[CASES[case]]
    batches, streams = cut(made.files, size), {stream_of(path) for path in made.files}
    seen, edges, last = set[str](), list[DayPosition](), IngestResult()
    for number, last in enumerate(following(tmp_path, batches)):
        new = {stream_of(path) for path in batches[number]} - seen if number < len(batches) else set[str]()
        seen |= new
        assert last.rebuilt_days == [] or new, "only for a group of which nothing was known"
        edges = [] if last.rebuilt_days else edges
        if DAY in last.open_days:
            edges.append(last.open_days[DAY])
            if seen == streams:  # before, nobody could know what there is to wait for
                check_is_the_beginning(tmp_path, made, edges[-1])
    assert edges == sorted(edges) and len({edge[:2] for edge in edges}) > 3
    assert size > 1 or lines == "A" or len(batches) >= 30
    assert last.closed_days == [DAY] and last.open_days == {}
    assert made.differing(tmp_path) == set()


def test_a_day_with_a_second_numbering(make: Maker, tmp_path: Path, sized: Callable[[int, int], int]) -> None:
    """Numbers begin anew in the middle of the day: line B comes to that only after line A has gone on for a while.

    The events say that they are those of a minute ago, and bars of that minute were final: the day is rebuilt.
    """
    first = make(loss=0.02)
    later = renumbered(first.captured[0], tmp_path / "later", sized(60, 90) * SECOND_NS)
    made = Made([*first.captured, later], tmp_path / "batch")
    ingest(made.root, made.files)
    edges, again = list[DayPosition](), 0
    for outcome in following(tmp_path / "lake", cut(behind(made.files, "incremental-B", 5), sized(18, 3))):
        again += len(outcome.rebuilt_days)
        if outcome.open_days:
            edges.append(outcome.open_days[DAY])
            check_is_the_beginning(tmp_path / "lake", made, edges[-1])
    assert edges == sorted(edges) and {edge.rank for edge in edges} >= {0, 1}
    assert any(edge.rank == 1 and edge.number < 1_000 for edge in edges), "and not only at its end"
    assert again
    assert made.differing(tmp_path / "lake") == set()


@pytest.mark.full_size
def test_a_numbering_that_comes_behind_a_later_one_makes_the_day_again(
    make: Maker, tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    first = make(loss=0.02)
    later = renumbered(first.captured[0], tmp_path / "later", sized(30, 90) * SECOND_NS)
    made = Made([*first.captured, later], tmp_path / "batch")
    ingest(made.root, made.files)
    after = [path for path in made.files if later in path.parents]
    half = len(after) // 2
    follow(tmp_path / "lake", cut(after[:half], half // 2), finish=False)
    outcomes = follow(tmp_path / "lake", [first.files, after[half:]])
    assert outcomes[0].rebuilt_days == [DAY]
    assert made.differing(tmp_path / "lake") == set()
    snapshot = open_snapshot(made.root)
    derived = derive_mbp_10(snapshot.arrow_table("mbo"), snapshot.arrow_table("book_state"))
    stored = snapshot.arrow_table("mbp_10").drop_columns(["trading_date", "channel_id"])
    assert logical_hash(derived.select(stored.schema.names)) == logical_hash(stored)


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_a_followed_day_without_loss_is_the_truth(make: Maker, tmp_path: Path, protocol: str) -> None:
    made = make(protocol=protocol, channel_reset=protocol == "sbe")
    assert len(follow(tmp_path, cut(made.files, 7))) > 4
    check_is_the_truth(made.captured[0], tmp_path)
    assert made.differing(tmp_path) == set()


# Lines that lag, and lines that fall silent


def reached(made: Made, files: Sequence[Path], line: str) -> int:
    """The last number that a line has in some files, as the ledger of the whole day says."""
    names = {path.name for path in files}
    ledger = open_snapshot(made.root).arrow_table("ledger").to_pylist()
    mine = [row for row in ledger if (row["stream"], row["line"]) == ("incremental", line)]
    return max((row["last_sequence"] or 0 for row in mine if Path(row["path"]).name in names), default=0)


def test_the_frontier_waits_for_a_line_that_lags(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    batches = cut(behind(made.files, "incremental-B", 9), 6)
    came: list[Path] = []
    for files, outcome in zip(batches, following(tmp_path, batches, finish=False, tables=FEW), strict=True):
        first = not reached(made, came, "B")
        came += files
        assert outcome.rebuilt_days == [] or first, "only when B was not known yet"
        assert outcome.open_days[DAY].number <= reached(made, came, "B") or first, outcome.open_days
    assert outcome.open_days[DAY].number > 100
    follow(tmp_path, [])
    assert made.differing(tmp_path) & FEW == set()


def test_a_silent_line_is_not_waited_for_and_when_it_comes_the_day_is_rebuilt(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    batches = cut(behind(made.files, "incremental-B", 24), 8)
    came, edges, again = list[Path](), list[int](), list[int]()
    patient = FollowSettings(line_timeout_ns=3 * SECOND_NS)
    for number, outcome in enumerate(following(tmp_path, batches, patient)):
        came += batches[number] if number < len(batches) else []
        again += [number] if outcome.rebuilt_days else []
        edges += [outcome.open_days[DAY].number - reached(made, came, "B")] if outcome.open_days else []
        assert outcome.rebuilt_days in ([], [DAY])
    assert max(edges) > 100, "it went on without the line"
    assert again and len(again) < len(batches), "it learns to be patient"
    assert made.differing(tmp_path) == set()


# A file that is late, or comes again


@pytest.mark.parametrize("stream", ["incremental-A", "incremental-B", "snapshot", "instruments"])
@pytest.mark.parametrize("when", ["in the middle", "at the end", "after the end"])
def test_a_late_file_makes_its_day_again(make: Maker, tmp_path: Path, stream: str, when: str, soak: bool) -> None:
    if (stream, when) not in (("incremental-A", "in the middle"), ("snapshot", "at the end")) and not soak:
        pytest.skip("only at full size: make soak")
    made = make(loss=0.02, lines="A" if stream == "incremental-A" else "AB")
    late = largest(made.files[: len(made.files) // 2], stream)
    others = [path for path in made.files if path != late]
    at = {"in the middle": 5 * len(others) // 6}.get(when, len(others))
    follow(tmp_path, cut(others[:at], 12), finish=when == "after the end")
    [came, *_] = rest = follow(tmp_path, [[late], *cut(others[at:], 9)])
    assert came.rebuilt_days == [DAY] and came.new == 1
    assert [outcome.rebuilt_days for outcome in rest[1:]] == [[]] * (len(rest) - 1)
    assert made.differing(tmp_path) == set()


@pytest.mark.parametrize("line", ["A", pytest.param("B", marks=pytest.mark.full_size)])
def test_a_late_file_of_nothing_but_heartbeats_is_not_lost(make: Maker, tmp_path: Path, line: str) -> None:
    made = make(loss=0.02)
    ledger = open_snapshot(made.root).arrow_table("ledger").to_pylist()
    beats = {Path(row["path"]).name for row in ledger if row["stream"] == "incremental" and not row["last_sequence"]}
    late = [path for path in made.files if path.name in beats and path.stem.endswith(line)][2]
    [*_, first] = follow(tmp_path, [[path for path in made.files if path != late]], finish=False, tables=FEW)
    times = [row["ts_first"] for row in ledger if Path(row["path"]).name == late.name]
    assert first.open_days[DAY].ts_unnumbered > max(times)
    [came, _] = follow(tmp_path, [[late]], tables=FEW)
    assert came.rebuilt_days == [DAY]
    assert made.differing(tmp_path) & FEW == set()


@pytest.mark.full_size
def test_a_file_that_comes_again_is_known_by_whatever_name(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    half = made.files[: len(made.files) // 2]
    [first] = follow(tmp_path / "lake", [half], finish=False, tables=FEW)
    copy = shutil.copy(half[-1], tmp_path / "other.pcap")
    before, edge = hashes(tmp_path / "lake"), first.open_days[DAY]
    for files in ([half[0]], half, [copy], []):
        [outcome] = follow(tmp_path / "lake", [files], finish=False, tables=FEW)
        assert (outcome.commit, outcome.new, outcome.known) == (None, 0, len(files))
    assert hashes(tmp_path / "lake") == before
    [outcome] = follow(tmp_path / "lake", [[copy, made.files[len(half)]]], finish=False, tables=FEW)
    assert (outcome.new, outcome.known, outcome.rebuilt_days) == (1, 1, []) and outcome.open_days[DAY] >= edge


def test_a_day_cannot_be_rebuilt_from_a_missing_file(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    files = [Path(shutil.copy(path, tmp_path / path.name)) for path in made.files]
    late = largest(files, "incremental-A")
    follow(tmp_path / "lake", [[path for path in files if path != late]], finish=False, tables=FEW)
    before, gone = hashes(tmp_path / "lake"), files[5]
    kept = gone.rename(tmp_path / "elsewhere.pcap")
    with pytest.raises(UmdfError, match=f"{gone.name} no longer exists") as fault:
        follow(tmp_path / "lake", [[late]], tables=FEW)
    assert "pass its current path along" in fault.value.hint
    assert hashes(tmp_path / "lake") == before
    follow(tmp_path / "lake", [[late, kept]], tables=FEW)
    assert made.differing(tmp_path / "lake") & FEW == set()


# Dates


@pytest.mark.parametrize("wait_s", [120, pytest.param(5 * 24 * 3600, marks=pytest.mark.full_size)])
def test_a_day_is_over_when_every_line_that_counts_has_passed_it(make: Maker, tmp_path: Path, wait_s: int) -> None:
    made = make({}, {"trading_date": NEXT[1], "seed": 6}, loss=0.02)
    friday, monday = ([path for path in made.files if captured in path.parents] for captured in made.captured)
    # Line A and the instruments are in the next day when the last files of line B and of the snapshots come.
    late = "incremental-B", "snapshot"
    held = [next(path for path in reversed(friday) if word in path.name) for word in late]
    early = [path for path in monday[:20] if not any(word in path.name for word in late)]
    rest = [path for path in monday if path not in early]
    batches = [*cut([path for path in friday if path not in held] + early, 8), *cut(held + rest, 8)]
    closed, again = list[int](), list[int]()
    outcomes = following(tmp_path, batches, FollowSettings(line_timeout_ns=wait_s * SECOND_NS))
    for number, outcome in enumerate(outcomes):
        closed += [number] if DAY in outcome.closed_days else []
        again += [number] if DAY in outcome.rebuilt_days else []
        assert NEXT not in outcome.rebuilt_days or held[-1] in batches[number], "Monday is new to line B then"
        states = open_snapshot(tmp_path).arrow_table("channel_state").to_pylist()
        assert {(72, (row["trading_date"] - date(1970, 1, 1)).days) for row in states} == set(outcome.open_days)
        if number == len(batches):
            assert outcome.closed_days == [NEXT]
    came = next(number for number, files in enumerate(batches) if held[-1] in files)
    assert came < len(batches) - 1
    if wait_s == 120:  # by Monday nobody waits for the rest of Friday any more
        assert len(closed) == 2 and closed[0] < came == closed[1] == again[-1]
    else:
        assert len(closed) == 1 and came <= closed[0] < len(batches), "by itself, and not too early"
        assert all(number < 2 for number in again)
    assert made.differing(tmp_path) == set()


@pytest.mark.full_size
def test_a_late_file_of_a_day_that_was_over_makes_only_that_day_again(make: Maker, tmp_path: Path) -> None:
    made = make({}, {"trading_date": NEXT[1], "seed": 6}, loss=0.02)
    late = largest([path for path in made.files if made.captured[0] in path.parents], "incremental-A")
    outcomes = follow(tmp_path, cut([path for path in made.files if path != late], 20), finish=False, tables=FEW)
    assert DAY in [day for outcome in outcomes for day in outcome.closed_days]
    [came, last] = follow(tmp_path, [[late]], tables=FEW)
    assert (came.rebuilt_days, came.closed_days, came.days) == ([DAY], [DAY], [DAY])
    assert list(came.open_days) == [NEXT] and last.days == last.closed_days == [NEXT]
    assert made.differing(tmp_path) & FEW == set()


@pytest.mark.full_size
def test_channels_go_on_by_themselves(make: Maker, tmp_path: Path) -> None:
    made = make({}, {"channel": 73, "protocol": "fast", "seed": 7}, loss=0.02)
    one, other = ([path for path in made.files if f"-{channel:03d}-" in path.name] for channel in (72, 73))
    mixed = [path for pair in zip(one, other, strict=False) for path in pair]
    mixed += [path for path in made.files if path not in mixed]
    outcomes = follow(tmp_path, [[], *cut(mixed[:12], 4), *cut(mixed[12:], 24)])
    assert {day for outcome in outcomes for day in outcome.open_days} >= {DAY, (73, TRADING_DATE)}
    assert sorted(outcomes[-1].closed_days) == [DAY, (73, TRADING_DATE)]
    assert made.differing(tmp_path) == set()


# Beside other writers of the lake


def test_an_ingest_takes_over_a_day_that_a_stream_has_left(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    follow(tmp_path, cut(made.files[:24], 12), finish=False)
    assert open_snapshot(tmp_path).rows("channel_state") == 1
    assert ingest(tmp_path, made.files[:24]).commit is None  # it knows them, and the stream may still go on
    assert open_snapshot(tmp_path).rows("channel_state") == 1
    ingest(tmp_path, made.files)
    assert made.differing(tmp_path) == set()


@pytest.mark.parametrize("finish", [False, pytest.param(True, marks=pytest.mark.full_size)])
def test_a_stream_takes_over_a_day_of_which_an_ingest_had_a_part(make: Maker, tmp_path: Path, finish: bool) -> None:
    made = make(loss=0.02)
    ingest(tmp_path, made.files[:24])
    outcomes = follow(tmp_path, cut(made.files, 12), finish=finish)
    assert [outcome.rebuilt_days for outcome in outcomes[:4]] == [[], [], [DAY], []]
    assert outcomes[0].commit is outcomes[1].commit is None
    if not finish:
        with open_writer(tmp_path) as writer:
            ingest_captures([], writer, LocalRunner(1), IngestSettings(tables=ALL), rebuild=[DAY])
    assert made.differing(tmp_path) == set()


def test_a_lake_that_is_compacted_meanwhile_goes_on(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    follow(tmp_path, cut(made.files[:30], 6), finish=False)
    with open_writer(tmp_path) as writer:
        assert compact(writer)
    follow(tmp_path, cut(made.files[30:], 6))
    assert made.differing(tmp_path) == set()


@pytest.mark.full_size
def test_tables_that_are_requested_later_have_the_whole_day(make: Maker, tmp_path: Path) -> None:
    made = make(loss=0.02)
    follow(tmp_path, cut(made.files[:24], 12), finish=False, tables=frozenset({"trades"}))
    follow(tmp_path, cut(made.files[24:36], 6), finish=False, tables=frozenset({"quality"}))
    follow(tmp_path, cut(made.files[36:], 12))
    assert made.differing(tmp_path) == set()


# Whatever comes


@pytest.mark.parametrize("way", range(20))
def test_any_order_and_any_cut_with_repeats_and_compaction_comes_to_the_same_tables(
    make: Maker, tmp_path: Path, way: int, soak: bool
) -> None:
    if way and not soak:
        pytest.skip("only at full size: make soak")
    chance = random.Random(way)
    protocol, loss = chance.choice(("sbe", "fast")), chance.choice(LOSSES)
    made = make(protocol=protocol, loss=loss, lines=chance.choice(LINES), channel_reset=chance.random() < 0.5)
    far = chance.choice((2, 8, 100))
    places = {path: at + chance.random() * far for at, path in enumerate(made.files)}
    order = sorted(made.files, key=lambda path: places[path])
    how = FollowSettings(chance.choice((0, SECOND_NS, 5 * SECOND_NS)), chance.choice((1, 3, 120)) * SECOND_NS)
    sizes: dict[str, Any] = {
        "span_sequences": chance.choice((300, 1 << 20)),
        "rows_per_task": chance.choice((500, 10**6)),
    }
    while order:
        size = chance.choice((1, 2, 3, 7) if soak else (7, 12))
        some, order = order[:size], order[size:]
        follow(
            tmp_path, [[*some, chance.choice(made.files[: len(made.files) - len(order)])]], how, finish=False, **sizes
        )
        if chance.random() < 0.1:
            with open_writer(tmp_path) as writer:
                compact(writer)
    follow(tmp_path, [], **sizes)
    assert made.differing(tmp_path) == set()
