"""The whole way from captures to tables, beside the truth, beside a day without loss, and beside the other wire.

What the steps do alone is tested elsewhere (test_ingest.py, test_books_task.py); here a lake is only read, and only
through its door.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from lake.captures import day, files_of, hashes, ingest, rows, truth
from lake.day_truth import check_is_the_truth, columns
from lake.wire_order import Key, Row, epochs_of, place_of

from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.ingest import TABLES
from umdf.lake.schemas import EVENT_SORT
from umdf.market.families import MAYBE_BAD_BOOK, SNAPSHOT
from umdf.sync.rpt_seq_kernel import SHORT_HISTORY

pytestmark = pytest.mark.xdist_group("lake-parity")
pc: Any = pyarrow.compute  # its functions are made at run time
DAYS: dict[str, Row] = {  # kinds of days, each with what is special in it
    "sbe": {},
    "fast": {"protocol": "fast"},
    "sbe-reset": {"channel_reset": True},
    "fast-reset": {"protocol": "fast", "channel_reset": True},
    "sbe-position": {"generation": "position"},
    "fast-position-A": {"protocol": "fast", "generation": "position", "lines": "A"},
}
QUICK = ("sbe", "fast-reset")  # the others: make soak
Made = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Made:
    """A day by its kind and loss, and the lake that it came to in one go; each made once."""
    tmp = tmp_path_factory.mktemp("parity")
    known: dict[Any, tuple[Path, Path]] = {}

    def make(kind: str, loss: float = 0.0, seed: int = 21) -> tuple[Path, Path]:
        if (kind, loss, seed) not in known:
            captured = day(tmp, sized(6_000, 80_000), sized(20, 60), loss=loss, seed=seed, **DAYS[kind])
            root = tmp / f"lake-{len(known)}"
            ingest(root, files_of(captured))
            known[kind, loss, seed] = captured, root
        return known[kind, loss, seed]

    return make


@pytest.fixture(params=DAYS)
def kind(request: pytest.FixtureRequest, soak: bool) -> str:
    if request.param not in QUICK and not soak:
        pytest.skip("only at full size: make soak")
    return request.param


# Tables are the truth


def test_trades_bars_and_books_of_a_clean_day_are_the_truth(made: Made, kind: str) -> None:
    check_is_the_truth(*made(kind))


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_the_last_prices_are_those_of_the_final_levels(made: Made, kind: str, loss: float) -> None:
    """By another way than the stored books: the last row of `mbp_1` of each instrument that is not in doubt."""
    captured, root = made(kind, loss)
    best: dict[int, dict[str, tuple[Any, ...]]] = defaultdict(dict)
    levels = truth(captured, "final_levels")
    for instrument_id, side, *level in columns(
        levels.filter(pc.equal(levels["level"], 1)), "instrument_id", "side", "price", "size", "order_count"
    ):
        best[instrument_id][side] = tuple(level)
    last: dict[int, Row] = {}
    epochs = epochs_of(root)
    for row in sorted(rows(root, "mbp_1"), key=lambda row: place_of(row, epochs)):
        last[row["instrument_id"]] = row
    doubtful = {one["instrument_id"] for one in last.values() if one["flags"] & MAYBE_BAD_BOOK}
    assert len(doubtful) < len(last) / 2
    in_open_gaps = _affected_by_open_gaps(root)
    for instrument_id, row in last.items():
        if instrument_id in doubtful or instrument_id in in_open_gaps:
            continue
        for side, word in (("B", "bid"), ("A", "ask")):
            shown = tuple(row[f"{word}_{part}_00"] for part in ("px", "sz", "ct"))
            expected = best[instrument_id].get(side, (None, None, None))
            assert shown == expected or (expected[0] is None and not shown[1]), (instrument_id, side)


@pytest.mark.parametrize("name", ["bbo_1s", "bbo_1m"])
def test_the_best_prices_of_an_interval_are_the_last_ones_before_its_end(made: Made, kind: str, name: str) -> None:
    _, root = made(kind)
    epochs, updates = epochs_of(root), defaultdict(list)
    for row in sorted(rows(root, "mbp_1"), key=lambda row: place_of(row, epochs)):
        if row["ts_event"] is not None:  # else the instrument was deleted
            updates[row["instrument_id"]].append(row)
    for bar in rows(root, name):
        earlier = [row for row in updates[bar["instrument_id"]] if row["ts_event"] < bar["ts_interval"]]
        for column in ("bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00", "bid_ct_00", "ask_ct_00"):
            assert bar[column] == (earlier[-1][column] if earlier else None), (bar["instrument_id"], bar["ts_interval"])


def _affected_by_open_gaps(root: Path) -> set[int]:
    return {number for gap in rows(root, "gaps") if gap["recovered_by"] is None for number in gap["instruments"] or ()}


# A day with loss beside the same day without

EVENTS = ("mbo", "trades", "statistics", "status", "price_band", "imbalance", "execution_summary", "news")
BOOKS = ("mbp_1", "mbp_10", "tbbo", "bbo_1s", "bbo_1m", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d")
NOT_THE_MARKET = {"ts_recv", "flags"}  # the other line may have been the first; flags are looked at apart


def by_key(root: Path, name: str) -> dict[Key, Row]:
    """With the instrument: one reset of a channel is a row of each of its books."""
    found = open_snapshot(root).arrow_table(name)
    key = ("instrument_id", "ts_interval") if "ts_interval" in found.schema.names else EVENT_SORT
    kept = {}
    for row in found.to_pylist():
        if not row["flags"] & SNAPSHOT:  # a book as a snapshot gave it: there is no such row in a day without loss
            place = tuple(row[part] for part in key)
            assert place not in kept, (name, place)
            kept[place] = row
    return kept


def _row_before(of_day: dict[Key, Row], key: Key) -> Row:
    """The last row of the same instrument and epoch."""
    return of_day[max(other for other in of_day if other[:2] == key[:2] and other < key)]


def _levels(row: Row) -> Row:
    return {name: value for name, value in row.items() if name[:4] in ("bid_", "ask_")}


def content(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in NOT_THE_MARKET}


class Gaps:
    """What a lake says it has lost."""

    def __init__(self, root: Path) -> None:
        self.rows = rows(root, "gaps")

    def has(self, row: Row) -> bool:
        return any(
            gap["first_sequence"] <= row["sequence"] <= gap["last_sequence"]
            for gap in self.rows
            if gap["seq_version"] == row["seq_version"]
        )

    def leave_in_doubt(self, row: Row, *, affected: bool = False) -> bool:
        """Whether a gap stood open when this was sent; `affected`: and its instrument is one of those it hit."""
        return any(
            gap["seq_version"] == row["seq_version"]
            and gap["last_sequence"] < row["sequence"]
            and (gap["ts_recovered"] is None or row.get("ts_send", row["ts_event"]) <= gap["ts_recovered"])
            and (not affected or gap["instruments"] is None or row["instrument_id"] in gap["instruments"])
            for gap in self.rows
        )

    def hit(self, instrument_id: int, since_ns: int) -> bool:
        return any(
            (gap["ts_opened"] is None or gap["ts_opened"] >= since_ns)
            and (gap["instruments"] is None or instrument_id in gap["instruments"])
            for gap in self.rows
        )


def test_rows_that_are_missing_are_those_that_gaps_name_and_no_others(made: Made, kind: str) -> None:
    (captured, lossy), (_, clean) = made(kind, 0.02), made(kind)
    gaps, lost = Gaps(lossy), 0
    for name in EVENTS:
        whole, found = by_key(clean, name), by_key(lossy, name)
        assert found.keys() <= whole.keys(), name
        for key, row in whole.items():
            assert (key not in found) == gaps.has(row), (name, key)
            if key in found:
                assert content(found[key]) == content(row), (name, key)
                assert found[key]["flags"] & ~MAYBE_BAD_BOOK == row["flags"] & ~MAYBE_BAD_BOOK, (name, key)
        lost += len(whole) - len(found)
        for key, row in found.items():
            if row["flags"] & MAYBE_BAD_BOOK:
                assert gaps.leave_in_doubt(row), (name, key)
    assert lost
    both = [
        (row["first_sequence"], row["last_sequence"])
        for row in truth(captured, "loss").to_pylist()
        if row["line"] == "AB"
    ]
    missing = sum(last - first + 1 for first, last in both)
    if DAYS[kind].get("lines") != "A":
        assert sum(gap["missing"] for gap in gaps.rows) == missing > 0


def test_what_a_lossy_day_shows_without_a_flag_is_right_and_what_it_does_not_show_is_covered(
    made: Made, kind: str
) -> None:
    (_, lossy), (_, clean) = made(kind, 0.02), made(kind)
    gaps = Gaps(lossy)
    for name in BOOKS:
        whole, found = by_key(clean, name), by_key(lossy, name)
        flagged = {key for key, row in found.items() if row["flags"] & MAYBE_BAD_BOOK}
        for key in found.keys() - flagged:
            shown = content(found[key])
            if name.startswith("mbp") and key not in whole:  # the levels did not change, but are trusted again
                assert _levels(found[key]) == _levels(_row_before(whole, key)), (name, key)
                continue
            if name.startswith("bbo") and shown["price"] is None:  # the last trade may have been lost
                shown |= {part: whole[key][part] for part in ("price", "size")}
            assert key in whole and shown == content(whole[key]), (name, key)
        assert len(flagged) < len(found) or name in ("ohlcv_1m", "ohlcv_1h", "ohlcv_1d", "bbo_1m"), name
        for key in whole.keys() - found.keys():
            row = whole[key]
            if name.startswith("ohlcv"):
                assert gaps.hit(row["instrument_id"], row["ts_interval"]), (name, key)
            else:
                assert gaps.has(row) or gaps.leave_in_doubt(row), (name, key)


def test_gaps_name_the_instruments_that_they_hit(made: Made, kind: str) -> None:
    """All of which something more comes. Of two gaps between the same two updates nobody can say which one it was."""
    (_, lossy), (_, clean) = made(kind, 0.02), made(kind)
    updates: dict[tuple[int, int], set[int]] = defaultdict(set)  # numbers by epoch and instrument, in both lakes
    true: dict[tuple[int, int], set[int]] = defaultdict(set)
    rpt_seqs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # the last of each sequence
    for name in EVENTS:
        for root, numbers in ((lossy, updates), (clean, true)):
            for row in rows(root, name):
                if row["rpt_seq"] is not None:
                    known, sequence = (row["seq_version"], row["instrument_id"]), row["sequence"]
                    numbers[known].add(sequence)
                    if root == lossy:
                        rpt_seqs[known][sequence] = max(row["rpt_seq"], rpt_seqs[known].get(sequence, 0))
    gaps = rows(lossy, "gaps")
    for gap in gaps:
        low, high = gap["first_sequence"], gap["last_sequence"]
        affected = set(gap["instruments"])
        assert gap["affected"] == len(affected)
        for (version, instrument_id), numbers in true.items():
            if version != gap["seq_version"]:
                continue
            came = updates[version, instrument_id]
            before = max((number for number in came if number < low), default=0)
            after = min((number for number in came if number > high), default=None)
            hit, lost = any(low <= number <= high for number in numbers), numbers - came
            if instrument_id in affected:
                # RptSeq proves nothing for a book that had few updates at this gap or an earlier one, until a snapshot:
                # it may count as affected.
                known = rpt_seqs[version, instrument_id].items()
                earlier = [other["first_sequence"] for other in gaps if other["first_sequence"] <= low]
                is_short = any(
                    max((each for each in known if each[0] < first), default=(0, 0))[1] <= SHORT_HISTORY
                    for first in earlier
                )
                is_hit = hit or any(before < number < (after or 1 << 62) for number in lost)
                assert is_hit or is_short, (gap, instrument_id)
            else:
                assert not hit or after is None, (gap, instrument_id)


# However it is cut, and whichever way it came


@pytest.mark.parametrize("way", range(4))
def test_random_cuts_orders_and_repeats_come_to_the_same_tables(
    made: Made, tmp_path: Path, kind: str, way: int, soak: bool
) -> None:
    """Files in any order and in several ingests, some of them again and under other names; any size of any task."""
    if way and not soak:
        pytest.skip("only at full size: make soak")
    captured, root = made(kind, 0.02)
    chance = random.Random(f"{kind} {way}")
    left, sent = files_of(captured), []
    chance.shuffle(left)
    while left:
        some = [left.pop() for _ in range(min(len(left), chance.randint(1, 8 if soak else 6)))]
        again = tmp_path / f"again-{len(sent)}.pcap"
        shutil.copy(chance.choice([*sent, *some]), again)
        sizes: Row = {
            "span_sequences": chance.choice((300, 1_000, 7_777, 1 << 20)),
            # The largest message must not cross more than two splits: chunks of FAST are looked for in the one before.
            "split_bytes": chance.choice((300_000 if soak else 50_000, 700_000, 32 << 20)),
            "rows_per_task": chance.choice((500, 4_000, 2_000_000)),
        }
        ingest(tmp_path / "lake", [*some, again, *chance.sample(sent, min(len(sent), 2))], **sizes)
        sent += some
    found, expected = hashes(tmp_path / "lake"), hashes(root)
    assert {name for name in found if found[name] != expected[name]} == set()


@pytest.mark.parametrize("alone", ["snapshot", "instruments", "incremental-B"])
@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_one_stream_alone_is_a_day_too_until_the_others_come(
    made: Made, tmp_path: Path, protocol: str, alone: str, soak: bool
) -> None:
    """Whose snapshots they are, FAST does not say: that becomes clear with the rest."""
    if (protocol, alone) != ("fast", "snapshot") and not soak:
        pytest.skip("only at full size: make soak")
    captured, root = made(protocol, 0.02) if soak else made("fast-reset", 0.02)
    inputs = files_of(captured)
    first = ingest(tmp_path, [path for path in inputs if alone in path.name])
    assert first.commit == 1 and first.rows["packets"] > 0
    ingest(tmp_path, inputs)
    found, expected = hashes(tmp_path), hashes(root)
    assert {name for name in found if found[name] != expected[name]} == set()


# A second engine


def test_another_engine_reads_the_same_counts_and_sums_of_every_table(made: Made) -> None:
    import polars

    _, root = made("sbe", 0.02)
    snapshot, compared = open_snapshot(root), 0
    for name in (*TABLES, "ledger"):
        if snapshot.version(name) is None:
            continue
        second = polars.read_delta(str(root / name))  # as Delta, by its own log: our list of files is not asked
        ours = snapshot.arrow_table(name)
        assert (second.columns, second.height) == (ours.schema.names, ours.num_rows), name
        for field in ours.schema:
            column, values = second[field.name], [value for value in ours[field.name].to_pylist() if value is not None]
            assert column.null_count() == ours[field.name].null_count, (name, field.name)
            if pa.types.is_integer(field.type) or pa.types.is_decimal(field.type):
                assert sum(value for value in column.to_list() if value is not None) == sum(values), (name, field.name)
            elif not pa.types.is_nested(field.type):
                assert sorted(column.drop_nulls().to_list()) == sorted(values), (name, field.name)
            compared += 1
    assert compared > 500
