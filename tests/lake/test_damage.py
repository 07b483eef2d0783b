"""Bad input, bad disks, strangers in the lake: a clear error or rows of `quarantine`, and the rest of the day lands."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lake.captures import ALL, files_of, hashes, ingest, rows
from lake.damaged_days import PROTOCOLS, UndamagedDay, captures_in, differing, flip, line, market, payloads, sound_days

from umdf.cli.app import run as umdf
from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer, restore
from umdf.lake.report.day_report import day_report
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.tasks import packet_accounts
from umdf.lake.tasks.protocols import WRONG_CHECKSUM
from umdf.transport.capture import open_capture

pytestmark = pytest.mark.xdist_group("lake-damage")
TABLES = ",".join(sorted(ALL))


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def sound(tmp: Path, sized: Callable[[int, int], int]) -> UndamagedDay:
    return sound_days(tmp, sized(6_000, 40_000))


@pytest.fixture
def mine(sound: UndamagedDay, tmp_path: Path) -> Path:
    """The Binary day's captures, to be damaged."""
    shutil.copytree(sound["sbe"][0] / "capture", tmp_path / "capture")
    return tmp_path / "capture"


# Captures


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def _overwritten(path: Path) -> None:
    """Whole records, so that no packet is half of itself."""
    raw = bytearray(path.read_bytes())
    with open_capture(path) as capture:
        starts = [int(start) for batch in capture for start in batch.offset]
    first, last = starts[len(starts) // 2], starts[len(starts) // 2 + 40]
    raw[first:last] = bytes(last - first)
    path.write_bytes(raw)


def _packed_and_cut(path: Path) -> None:
    packed = gzip.compress(path.read_bytes(), 1)
    path.with_name(path.name + ".gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()


def _text(path: Path) -> None:
    path.write_text("Time, Source, Length\n" * 100)


@pytest.mark.parametrize("damage", [_cut, _overwritten, _packed_and_cut, _text])
def test_what_a_damaged_file_of_one_line_lacks_comes_from_the_other_line(
    sound: UndamagedDay, mine: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    name = line(mine, "A").name
    damage(line(mine, "A"))
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    reports = [path for path, _ in outcome.unusable] + outcome.damaged
    assert reports and all(name in words for words in reports)
    assert outcome.gaps == 0
    quarantine = rows(tmp_path / "lake", "quarantine")
    assert len(quarantine) == len(reports) and all(row["file_id"] and row["reason"] for row in quarantine)
    # Other lines were first, and the damaged file has fewer packets; what happened in the market is all there.
    of_files = {"packets", "quality", "quarantine", "ledger"}
    found, expected = market(tmp_path / "lake"), market(sound["sbe"][1])
    assert {name for name in found if found[name] != expected[name]} <= of_files
    assert ingest(tmp_path / "lake", captures_in(mine)).commit is None  # reported once


def test_what_both_lines_have_lost_is_one_gap_and_nothing_else_is_missing(
    sound: UndamagedDay, mine: Path, tmp_path: Path
) -> None:
    for name in "AB":
        _cut(line(mine, name))
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    assert len(outcome.damaged) == 2
    [gap] = rows(tmp_path / "lake", "gaps")
    low, high = gap["first_sequence"], gap["last_sequence"]
    whole, found = (
        {(row["sequence"], row["msg_index"]) for row in rows(root, "mbo")}
        for root in (sound["sbe"][1], tmp_path / "lake")
    )
    assert {key for key in whole if not low <= key[0] <= high} == found
    assert whole - found and gap["missing"] == high - low + 1


def test_nothing_usable_at_all_is_no_failure_and_the_files_are_known(tmp_path: Path) -> None:
    inputs = [tmp_path / name for name in ("notes.pcap", "zeros.pcap", "half.pcap.zst", "header.pcapng")]
    for path, content in zip(inputs, (b"notes", bytes(5_000), b"\x28\xb5\x2f\xfd\x00", b"\n\r\r\n"), strict=True):
        path.write_bytes(content)
    outcome = ingest(tmp_path / "lake", inputs)
    assert len(outcome.unusable) + len(outcome.damaged) == len(inputs) and outcome.rows.get("mbo", 0) == 0
    assert len(rows(tmp_path / "lake", "quarantine")) == len(inputs)
    assert ingest(tmp_path / "lake", inputs).known == len(inputs)


def _flipped(capture: Path, target: Path, seed: int) -> list[Path]:
    """A copy of captures with a few bits wrong in two packets of a hundred, in every stream."""
    chance = random.Random(seed)
    shutil.copytree(capture, target)
    for path in captures_in(target):
        raw, places = bytearray(path.read_bytes()), payloads(path)
        for start, end in chance.sample(places, max(len(places) // 50, 1)):
            for _ in range(chance.randint(1, 3)):
                flip(raw, start, chance.randrange(start, end), chance.randrange(8))
        path.write_bytes(raw)
    return captures_in(target)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flipped_bits_are_never_a_crash_and_no_datagram_is_forgotten(
    sound: UndamagedDay, tmp_path: Path, protocol: str, sized: Callable[[int, int], int]
) -> None:
    """No checksum covers these messages, so a wrong price is a price; but what is reported must add up."""
    captured, clean = sound[protocol]
    for seed in range(sized(1, 12)):
        root = tmp_path / f"lake-{seed}"
        outcome = ingest(root, _flipped(captured / "capture", tmp_path / f"capture-{seed}", seed))
        assert outcome.commit == 1 and not outcome.unusable and len(outcome.days) == 1
        # A number and the message are both wrong, in a file of two packets: then nothing tells.
        assert (
            outcome.missing_sequences < 20 and sum(row["disposition"] == "late" for row in rows(root, "packets")) <= 2
        )
        packets, quarantine = rows(root, "packets"), rows(root, "quarantine")
        assert len(packets) + outcome.unrecognised == open_snapshot(clean).rows("packets")
        places = {(row["file_id"], row["file_offset"]) for row in packets}
        assert len(places) == len(packets)
        assert quarantine and all(row["reason"] for row in quarantine)
        assert {(row["file_id"], row["file_offset"]) for row in quarantine} <= places
        assert sum(row["packets"] for row in rows(root, "quality")) == len(packets)
        assert lake_status.verify(root, deep=True) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flipped_bits_come_to_the_same_tables_however_the_work_is_cut(
    sound: UndamagedDay, tmp_path: Path, protocol: str, sized: Callable[[int, int], int]
) -> None:
    for seed in range(sized(1, 12)):
        inputs = _flipped(sound[protocol][0] / "capture", tmp_path / f"capture-{seed}", seed)
        ingest(tmp_path / f"lake-{seed}", inputs)
        ingest(tmp_path / f"cut-{seed}", inputs[::-1], span_sequences=400, split_bytes=90_000, rows_per_task=700)
        assert differing(tmp_path / f"lake-{seed}", tmp_path / f"cut-{seed}") == set(), seed


def _impossible(path: Path, record: int) -> int:
    """A record that claims 4 GB; how many bytes it has."""
    raw = bytearray(path.read_bytes())
    with open_capture(path) as capture:
        starts = [int(start) for batch in capture for start in batch.offset]
    raw[starts[record] + 8 : starts[record] + 12] = b"\xf0\xff\xff\xff"
    path.write_bytes(raw)
    return starts[record + 1] - starts[record]


def test_an_impossible_record_on_both_lines_costs_one_record_each(
    sound: UndamagedDay, mine: Path, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    unread = [_impossible(line(mine, name), record) for name, record in (("A", 20), ("B", 30))]
    outcome = ingest(root, captures_in(mine), split_bytes=20_000)
    assert outcome.unread_bytes == sum(unread) and outcome.gaps == 0
    reports = zip(unread, sorted(outcome.damaged, key=lambda words: "-B.pcap" in words), strict=True)
    assert all(f"; {size:,} bytes unread, up to offset" in words for size, words in reports)
    assert sorted(row["size_bytes"] for row in rows(root, "quarantine")) == sorted(unread)
    assert open_snapshot(root).rows("packets") == open_snapshot(sound["sbe"][1]).rows("packets") - 2
    assert f"{sum(unread):,} bytes of the capture files could not be read." in day_report(root).summary
    of_lines = {"packets", "quality", "quarantine", "ledger"}
    found, expected = market(root), market(sound["sbe"][1])
    assert {name for name in found if found[name] != expected[name]} <= of_lines


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_checksum_is_a_corrupt_datagram_and_the_other_line_has_it(
    sound: UndamagedDay, tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, clean = sound[protocol]
    shutil.copytree(captured / "capture", tmp_path / "capture")
    monkeypatch.setattr(packet_accounts, "MAX_QUARANTINE_ROWS", 10)
    struck, root = 0, tmp_path / "lake"
    for path in (tmp_path / "capture").glob("*incremental-A.pcap"):
        raw, places = bytearray(path.read_bytes()), payloads(path)
        for start, end in places[3::7]:
            flip(raw, start, (start + end) // 2, 3, is_checked=True)
            struck += 1
        path.write_bytes(raw)
    outcome = ingest(root, captures_in(tmp_path / "capture"), split_bytes=20_000)
    assert outcome.gaps == 0 and not outcome.damaged
    packets, quarantine = rows(root, "packets"), rows(root, "quarantine")
    assert sum(row["disposition"] == "corrupt" for row in packets) == struck
    assert sum(row["corrupt"] for row in rows(root, "quality")) == struck
    assert len(packets) == open_snapshot(clean).rows("packets")
    kept = [row for row in quarantine if row["reason"] == WRONG_CHECKSUM]
    more = [row for row in quarantine if row["reason"] != WRONG_CHECKSUM]
    assert all(row["line"] == "A" and row["trading_date"] and row["content"] for row in kept)
    assert outcome.not_stored == struck - len(kept) > 0
    assert [row["reason"] for row in more] == [
        f"{outcome.not_stored:,} more are not kept here: {outcome.not_stored:,} × {WRONG_CHECKSUM}"
    ]
    found, expected = market(root), market(clean)
    assert {name for name in found if found[name] != expected[name]} <= {"packets", "quality", "quarantine", "ledger"}


# Places


def complaint(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Exit code and the one line that is said."""
    code = umdf([*map(str, words)])
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return code, said.err


def test_places_that_cannot_be_used_are_one_clear_error_and_stay_as_they_are(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    cases: dict[str, Sequence[str | Path]] = {
        "no such file or directory": (tmp_path / "gone", "--lake", lake),
        "no captures in ": (tmp_path / "empty", "--lake", lake),
        "is not empty and not a umdf lake": (mine, "--lake", mine),
        "is not a directory": (mine, "--lake", captures_in(mine)[0]),
        "unknown table: trade": (mine, "--lake", lake, "--tables", "trade"),
    }
    (tmp_path / "empty").mkdir()
    for message, words in cases.items():
        code, said = complaint(capsys, "ingest", *words, "--no-spark")
        assert code in (2, 3) and message in said
        assert not lake.exists()


def test_a_lake_of_another_version_is_left_alone(
    sound: UndamagedDay, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(sound["sbe"][1], root)
    said = json.loads((root / "lake.json").read_text())
    before = sorted(root.rglob("*"))
    for content, message in (
        (json.dumps({**said, "layout": 99, "producer": "umdf 7.0"}), "has layout 99 (umdf 7.0), this is umdf "),
        ("{", "lake.json is damaged"),
    ):
        (root / "lake.json").write_text(content)
        code, complained = complaint(capsys, "ingest", mine, "--lake", root, "--no-spark")
        assert code != 0 and message in complained
        with pytest.raises(UmdfError):
            open_snapshot(root)
    assert sorted(root.rglob("*")) == before
    (root / "lake.json").write_text(json.dumps(said))
    assert hashes(root) == hashes(sound["sbe"][1])


def test_a_foreign_change_of_a_table_stops_the_writer_until_it_is_restored_and_not_readers(
    sound: UndamagedDay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import deltalake

    captured, whole = sound["sbe"]
    inputs, root = files_of(captured), tmp_path / "lake"
    ingest(root, inputs[:4])
    before = hashes(root)
    stolen = open_snapshot(root).arrow_table("ohlcv_1m")
    deltalake.write_deltalake(str(root / "ohlcv_1m"), stolen, mode="append")
    code, said = complaint(capsys, "ingest", *inputs, "--lake", root, "--no-spark", "--tables", TABLES)
    assert code not in (0, 1) and "ohlcv_1m" in said and "restore" in said
    assert hashes(root) == before
    with open_writer(root, check=False) as writer:
        restore(writer, "ohlcv_1m")
    ingest(root, inputs)
    assert differing(root, whole) == set()
    assert [status.changed_by for status in lake_status.status(root).tables if status.changed_by] == []


def test_a_missing_file_of_a_table_is_reported_and_the_day_can_be_rebuilt(sound: UndamagedDay, tmp_path: Path) -> None:
    captured, whole = sound["sbe"]
    inputs, root = files_of(captured), tmp_path / "lake"
    ingest(root, inputs[:4])
    open_snapshot(root).files("mbo")[0].unlink()
    [damage] = lake_status.verify(root)
    assert (damage.table, damage.reason) == ("mbo", "is missing")
    ingest(root, inputs)
    assert differing(root, whole) == set() and lake_status.verify(root, deep=True) == []


# Our own mistakes


class TamperingRunner(LocalRunner):
    """Changes the tasks of one step before they run."""

    def __init__(self, function: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        super().__init__(1)
        self.function, self.change = function, change

    def __call__(self, tasks: Sequence[Any], function: str, **more: Any) -> list[dict[str, Any]]:
        return super().__call__(self.change([*tasks]) if function == self.function else tasks, function, **more)


def _out_of_order(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [task | {"staged": task["staged"][::-1]} for task in tasks]


def _twice(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [task | {"staged": task["staged"] * 2} for task in tasks]


def _split(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As if buckets had been dealt by another rule in one of the spans."""

    def moved(staged: dict[str, Any]) -> dict[str, Any]:
        return staged | {"rows": {str((int(bucket) + 1) % 65): count for bucket, count in staged["rows"].items()}}

    return [task | {"staged": [moved(task["staged"][0]), *task["staged"][1:]]} for task in tasks]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_out_of_order, r"rows of instrument \d+ are out of order in \w+"),
        (_twice, r"rows of instrument \d+ are out of order in \w+"),
        (_split, r"instrument \d+ are in bucket \d+ instead of \d+"),
    ],
)
def test_rows_of_an_instrument_that_come_split_or_out_of_order_fail_the_whole_ingest(
    sound: UndamagedDay, tmp_path: Path, change: Any, message: str
) -> None:
    captured, whole = sound["sbe"]
    meddling = TamperingRunner("umdf.lake.tasks.books_task:run", change)
    with pytest.raises(UmdfError, match=message):
        ingest(tmp_path, files_of(captured), meddling, span_sequences=1_000)
    assert open_snapshot(tmp_path).number == 0 and Counter(rows(tmp_path, "mbo")) == Counter()
    ingest(tmp_path, files_of(captured))
    assert differing(tmp_path, whole) == set() and lake_status.status(tmp_path).orphans.files == 0


def test_a_capture_that_vanishes_or_grows_in_the_middle_is_one_clear_error(
    sound: UndamagedDay, mine: Path, tmp_path: Path
) -> None:
    inputs = captures_in(mine)
    target = line(mine, "B")
    kept = target.read_bytes()

    def gone(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        target.unlink()
        return tasks

    with pytest.raises(UmdfError, match=target.name):
        ingest(tmp_path / "lake", inputs, TamperingRunner("umdf.lake.tasks.decode_task:run", gone))
    target.write_bytes(kept)
    assert open_snapshot(tmp_path / "lake").number == 0
    ingest(tmp_path / "lake", inputs)
    assert differing(tmp_path / "lake", sound["sbe"][1]) == set()
