"""Bad input, bad disks, strangers in the lake: a clear error or rows of `quarantine`, and the rest of the day lands."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.captures import ALL, day, files_of, hashes, ingest, rows

from umdf.cli.app import run as umdf
from umdf.errors import UmdfError
from umdf.lake import care, survey
from umdf.lake.advance import Outcome
from umdf.lake.ledger import digest_of, file_id
from umdf.lake.plain_run import PlainRunner
from umdf.lake.snapshot import open_snapshot
from umdf.lake.tasks import Place as Task
from umdf.lake.writer import open_writer, restore
from umdf.transport.capture import open_capture
from umdf.transport.pcap_writer import PcapWriter

pytestmark = pytest.mark.xdist_group("lake-damage")
WIRES = ("sbe", "fast")
TABLES = ",".join(sorted(ALL))
NOON = 1_794_574_800 * 10**9


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def sound(tmp: Path, sized: Callable[[int, int], int]) -> dict[str, tuple[Path, Path]]:
    """A clean day of each wire, and its lake."""
    made = {}
    for wire in WIRES:
        captured, root = day(tmp, sized(6_000, 40_000), 20, wire=wire, seed=31), tmp / f"lake-{wire}"
        ingest(root, files_of(captured))
        made[wire] = captured, root
    return made


Sound = dict[str, tuple[Path, Path]]


@pytest.fixture
def mine(sound: Sound, tmp_path: Path) -> Path:
    """The Binary day's captures, to be damaged."""
    shutil.copytree(sound["sbe"][0] / "capture", tmp_path / "capture")
    return tmp_path / "capture"


def captures_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if ".pcap" in path.name)


def differing(one: Path, other: Path) -> set[str]:
    found, expected = hashes(one, files_too=False), hashes(other, files_too=False)
    return {name for name in found if found[name] != expected[name]}


def line(directory: Path, name: str) -> Path:
    """The largest file of a line."""
    return max(directory.glob(f"*incremental-{name}.pcap"), key=lambda path: path.stat().st_size)


# Captures


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def _overwritten(path: Path) -> None:
    """Whole records, so that no packet is half of itself: none has a checksum that would tell."""
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


@pytest.mark.parametrize("spoil", [_cut, _overwritten, _packed_and_cut, _text])
def test_what_one_line_has_lost_in_a_spoilt_file_the_other_line_has(
    sound: Sound, mine: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    name = line(mine, "A").name
    spoil(line(mine, "A"))
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    told = [path for path, _ in outcome.unusable] + outcome.damaged
    assert told and all(name in words for words in told)
    assert outcome.gaps == 0
    quarantine = rows(tmp_path / "lake", "quarantine")
    assert len(quarantine) == len(told) and all(row["file_id"] and row["reason"] for row in quarantine)
    # Other lines were first, and the spoilt file has fewer packets; what happened in the market is all there.
    of_files = {"packets", "quality", "quarantine", "ledger"}
    market = {name: table for name, table in _market(tmp_path / "lake").items() if name not in of_files}
    assert market == {name: table for name, table in _market(sound["sbe"][1]).items() if name not in of_files}
    assert ingest(tmp_path / "lake", captures_in(mine)).commit is None  # told once


def _market(root: Path) -> dict[str, str]:
    """Hashes without the time of arrival, which is that of the first line."""
    from umdf.lake.hashing import logical_hash

    snapshot = open_snapshot(root)
    return {name: logical_hash(snapshot.arrow_table(name), {"ts_recv"}) for name in sorted(ALL - {"book_state"})}


def test_what_both_lines_have_lost_is_one_gap_and_nothing_else_is_missing(
    sound: Sound, mine: Path, tmp_path: Path
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


def _payloads(path: Path) -> list[tuple[int, int]]:
    """Where the datagrams are in a capture."""
    raw, found = path.read_bytes(), []
    with open_capture(path) as capture:
        for batch in capture:
            for row in range(len(batch)):
                payload = batch.payload(row)
                start = raw.index(payload, int(batch.offset[row]))
                found.append((start, start + len(payload)))
    return found


def _flipped(capture: Path, target: Path, seed: int) -> list[Path]:
    """A copy of captures with a few bits wrong in two packets of a hundred, in every stream."""
    chance = random.Random(seed)
    shutil.copytree(capture, target)
    for path in captures_in(target):
        raw, places = bytearray(path.read_bytes()), _payloads(path)
        for start, end in chance.sample(places, max(len(places) // 50, 1)):
            for _ in range(chance.randint(1, 3)):
                raw[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
    return captures_in(target)


@pytest.mark.parametrize("wire", WIRES)
def test_flipped_bits_are_never_a_crash_and_no_datagram_is_forgotten(
    sound: Sound, tmp_path: Path, wire: str, sized: Callable[[int, int], int]
) -> None:
    """No checksum covers a message, so a wrong price is a price; but what is told must add up."""
    captured, clean = sound[wire]
    for seed in range(sized(1, 12)):
        root = tmp_path / f"lake-{seed}"
        outcome = ingest(root, _flipped(captured / "capture", tmp_path / f"capture-{seed}", seed))
        assert outcome.commit == 1 and not outcome.unusable and len(outcome.days) == 1
        assert outcome.missing < 20 and all(row["verdict"] != "late" for row in rows(root, "packets"))
        packets, quarantine = rows(root, "packets"), rows(root, "quarantine")
        assert len(packets) + outcome.unrecognised == open_snapshot(clean).rows("packets")
        places = {(row["file_id"], row["file_offset"]) for row in packets}
        assert len(places) == len(packets)
        assert quarantine and all(row["reason"] for row in quarantine)
        assert {(row["file_id"], row["file_offset"]) for row in quarantine} <= places
        assert sum(row["packets"] for row in rows(root, "quality")) == len(packets)
        assert care.verify(root, deep=True) == []


@pytest.mark.parametrize("wire", WIRES)
def test_flipped_bits_come_to_the_same_tables_however_the_work_is_cut(
    sound: Sound, tmp_path: Path, wire: str, sized: Callable[[int, int], int]
) -> None:
    for seed in range(sized(1, 12)):
        inputs = _flipped(sound[wire][0] / "capture", tmp_path / f"capture-{seed}", seed)
        ingest(tmp_path / f"lake-{seed}", inputs)
        ingest(tmp_path / f"cut-{seed}", inputs[::-1], span_numbers=400, split_bytes=90_000, rows_a_task=700)
        assert differing(tmp_path / f"lake-{seed}", tmp_path / f"cut-{seed}") == set(), seed


# One header. What is said of the market must not change, because line B has a copy of everything.

BITS = {  # byte and bit in a Binary packet header: channel, SequenceVersion, SequenceNumber, SendingTime (5.1)
    "channel": (0, 3),
    "numbering": (2, 5),
    "near number": (4, 5),
    "far number": (6, 5),
    "years away": (15, 1),
    "days away": (14, 3),
    "hours away": (13, 5),
}
FAST_BITS = {"near number": (3, 5), "far number": (1, 5), "chunks": (5, 0), "length": (9, 3)}
SPOTS: dict[str, Callable[[int], list[int]]] = {
    "first": lambda count: [0],
    "last": lambda count: [count - 1],
    "first two": lambda count: [0, 1],
    "two in a row": lambda count: [count // 2, count // 2 + 1],
    "every tenth": lambda count: list(range(5, count, 10)),
}


def _strike(path: Path, spots: Sequence[int], bit: tuple[int, int]) -> list[int]:
    """Flip a bit in these packets; where their records are."""
    raw, places, offsets = bytearray(path.read_bytes()), _payloads(path), _offsets(path)
    for spot in spots:
        raw[places[spot][0] + bit[0]] ^= 1 << bit[1]
    path.write_bytes(raw)
    return [offsets[spot] for spot in spots]


def _offsets(path: Path) -> list[int]:
    with open_capture(path) as capture:
        return [int(offset) for batch in capture for offset in batch.offset]


def _lone(path: Path, spot: int) -> Path:
    """Move a packet to a file of its own."""
    raw, offsets = path.read_bytes(), [*_offsets(path), path.stat().st_size]
    low, high = offsets[spot], offsets[spot + 1]
    path.write_bytes(raw[:low] + raw[high:])
    alone = path.with_name("alone-" + path.name)
    alone.write_bytes(raw[: offsets[0]] + raw[low:high])
    return alone


def _assert_only_these_are_refused(
    root: Path, clean: Path, path: Path, offsets: Sequence[int], outcome: Outcome, told: frozenset[str]
) -> None:
    assert len(outcome.days) == 1 and outcome.gaps == 0 and outcome.missing == 0
    identity = file_id(digest_of(path)[0])
    packets, quarantine = rows(root, "packets"), rows(root, "quarantine")
    struck = [row for row in packets if row["file_id"] == identity and row["file_offset"] in offsets]
    assert len(struck) == len(offsets) and {row["verdict"] for row in struck} <= told
    assert len(packets) == open_snapshot(clean).rows("packets")
    assert {(row["file_id"], row["file_offset"]) for row in quarantine} == {(identity, offset) for offset in offsets}
    assert all(row["reason"] and row["trading_date"] for row in quarantine)
    others = Counter(row["verdict"] for row in packets) - Counter(row["verdict"] for row in struck)
    sound = Counter(row["verdict"] for row in rows(clean, "packets"))
    assert others["late"] == sound["late"] == 0 and others["used"] == sound["used"]
    assert [
        name for name, table in _market(root).items() if name not in OF_LINES and table != _market(clean)[name]
    ] == []


OF_LINES = {"packets", "quality", "quarantine"}
CORRUPT = frozenset({"corrupt"})


def _second(directory: Path) -> Path:
    """The second file of line A: the first one begins with heartbeats."""
    return sorted(directory.glob("*incremental-A.pcap"))[1]


# Each of the bits and each of the spots once; all of them with all at full size.
QUICK = dict(zip(BITS, [*SPOTS, "first two", "last"], strict=True))
FAST_QUICK = dict(zip(FAST_BITS, SPOTS, strict=False))


@pytest.mark.parametrize("field", BITS)
def test_a_damaged_header_is_refused_where_its_neighbours_are_and_makes_no_gap_numbering_day_or_lateness(
    sound: Sound, tmp_path: Path, field: str, soak: bool
) -> None:
    for spot in SPOTS if soak else [QUICK[field]]:
        mine, root = tmp_path / spot, tmp_path / f"lake {spot}"
        shutil.copytree(sound["sbe"][0] / "capture", mine)
        target = _second(mine)
        offsets = _strike(target, SPOTS[spot](len(_payloads(target))), BITS[field])
        outcome = ingest(root, captures_in(mine))
        _assert_only_these_are_refused(root, sound["sbe"][1], target, offsets, outcome, CORRUPT)
        if soak or spot == "first two":
            ingest(tmp_path / f"cut {spot}", captures_in(mine)[::-1], span_numbers=300, split_bytes=40_000)
            assert differing(root, tmp_path / f"cut {spot}") == set(), spot


@pytest.mark.parametrize("field", ["channel", "numbering", "far number", "days away"])
def test_a_damaged_header_that_is_alone_in_its_file_is_told_by_the_other_files(
    sound: Sound, mine: Path, tmp_path: Path, field: str
) -> None:
    target = _second(mine)
    alone = _lone(target, len(_payloads(target)) // 3)
    offsets = _strike(alone, [0], BITS[field])
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    told = frozenset({"unknown"}) if field == "channel" else CORRUPT
    _assert_only_these_are_refused(tmp_path / "lake", sound["sbe"][1], alone, offsets, outcome, told)


@pytest.mark.parametrize(("stream", "field"), [("snapshot", "far number"), ("instruments", "years away")])
def test_a_damaged_header_of_a_loop_has_its_rows_too(
    sound: Sound, mine: Path, tmp_path: Path, field: str, stream: str
) -> None:
    target = max(mine.glob(f"*{stream}-A.pcap"), key=lambda path: path.stat().st_size)
    [offset] = _strike(target, [len(_payloads(target)) // 2], BITS[field])
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    assert len(outcome.days) == 1 and outcome.gaps == 0
    place = file_id(digest_of(target)[0]), offset
    for name in ("packets", "quarantine"):
        found = [row for row in rows(tmp_path / "lake", name) if (row["file_id"], row["file_offset"]) == place]
        assert len(found) == 1 and found[0].get("verdict", "corrupt") == "corrupt"
    assert len(rows(tmp_path / "lake", "packets")) == open_snapshot(sound["sbe"][1]).rows("packets")
    of_updates = {"mbo", "trades", "statistics", "status", "mbp_1", "ohlcv_1m", "gaps"}
    changed = {name for name, table in _market(tmp_path / "lake").items() if table != _market(sound["sbe"][1])[name]}
    assert changed & of_updates == set()


@pytest.mark.parametrize("field", FAST_BITS)
def test_a_damaged_technical_header_makes_no_gap_numbering_day_or_lateness(
    sound: Sound, tmp_path: Path, field: str, soak: bool
) -> None:
    for spot in SPOTS if soak else [FAST_QUICK[field]]:
        mine, root = tmp_path / spot, tmp_path / f"lake {spot}"
        shutil.copytree(sound["fast"][0] / "capture", mine)
        target = _second(mine)
        _strike(target, SPOTS[spot](len(_payloads(target))), FAST_BITS[field])
        outcome = ingest(root, captures_in(mine))
        assert len(outcome.days) == 1 and outcome.gaps == 0, spot
        packets = rows(root, "packets")
        assert len(packets) == open_snapshot(sound["fast"][1]).rows("packets")
        assert all(row["verdict"] != "late" for row in packets), spot
        clean = _market(sound["fast"][1])
        assert {name for name, table in _market(root).items() if table != clean[name]} <= OF_LINES, spot


def test_small_splits_lose_no_snapshot_whose_chunks_lie_in_many_of_them(sound: Sound, tmp_path: Path) -> None:
    captured, whole = sound["fast"]
    ingest(tmp_path / "lake", files_of(captured), split_bytes=2_500, span_numbers=1_000)
    assert differing(tmp_path / "lake", whole) == set()
    assert len(rows(whole, "snapshot")) > 20


def test_a_loss_a_reset_or_a_new_day_is_no_damage_even_if_it_is_the_last_thing_in_a_file(tmp_path: Path) -> None:
    """The other way round: what is sound is never refused."""
    day_ns, step = 86_400 * 10**9, 10**7
    ends = {
        "loss": [(7, 500_000, 0), (7, 500_001, 0)],
        "reset": [(8, 1, 0)],
        "day": [(7, 101, day_ns), (7, 102, day_ns)],
        "late": [(7, 101, 0), (7, 60, -40 * step), (7, 102, 0)],
        "again": [(7, 100, -step), (7, 101, 0)],
        "both": [(7, 100, -step), (7, 102, 0)],
    }
    for name, more in ends.items():
        packets = [(7, number, 0) for number in range(50, 101)] + more
        path = tmp_path / f"{name}.pcap"
        at = [NOON + step * place + max(shift, 0) for place, (_, _, shift) in enumerate(packets)]
        sent = [NOON + step * place + shift for place, (_, _, shift) in enumerate(packets)]
        payloads = [
            struct.pack("<BBHIQ", 72, 0, epoch, number, sent[place]) + struct.pack("<HHHHHH", 16, 0xEB50, 4, 11, 2, 9)
            for place, (epoch, number, _) in enumerate(packets)
        ]
        end = np.cumsum([len(payload) for payload in payloads])
        buffer = np.frombuffer(b"".join(payloads), np.uint8)
        with PcapWriter(path) as writer:
            places = end - [len(payload) for payload in payloads], end, np.array(at, np.int64)
            writer.write_batch(buffer, *places, ("10.0.0.1", 1), ("224.0.20.72", 20_001))
        task = {"path": str(path), "known": [], "unpacked": "", "split_bytes": 1_000}
        found = survey.run(task, Task(0, 0))
        assert [split["refused"] for split in found["splits"] if split["refused"]] == [], name
        counted = [segment for split in found["splits"] for segment in split["segments"]]
        assert sum(segment[6] for segment in counted) == len(packets), name


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
        "no capture in this directory": (tmp_path / "empty", "--lake", lake),
        "is neither empty nor a lake": (mine, "--lake", mine),
        "is not a directory": (mine, "--lake", captures_in(mine)[0]),
        "no table": (mine, "--lake", lake, "--tables", "trade"),
    }
    (tmp_path / "empty").mkdir()
    for message, words in cases.items():
        code, said = complaint(capsys, "ingest", *words, "--plain")
        assert code in (2, 3) and message in said
        assert not lake.exists()


def test_a_lake_of_another_version_is_left_alone(
    sound: Sound, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(sound["sbe"][1], root)
    said = json.loads((root / "lake.json").read_text())
    before = sorted(root.rglob("*"))
    for content, message in (
        (json.dumps({**said, "layout": 99, "producer": "umdf 7.0"}), "was made by a newer umdf (umdf 7.0, layout 99)"),
        ("{", "lake.json is damaged"),
    ):
        (root / "lake.json").write_text(content)
        code, complained = complaint(capsys, "ingest", mine, "--lake", root, "--plain")
        assert code != 0 and message in complained
        with pytest.raises(UmdfError):
            open_snapshot(root)
    assert sorted(root.rglob("*")) == before
    (root / "lake.json").write_text(json.dumps(said))
    assert hashes(root) == hashes(sound["sbe"][1])


def test_a_table_that_a_stranger_has_touched_stops_the_writer_until_it_is_mended_and_readers_do_not_notice(
    sound: Sound, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import deltalake

    captured, whole = sound["sbe"]
    inputs, root = files_of(captured), tmp_path / "lake"
    ingest(root, inputs[:4])
    before = hashes(root)
    stolen = open_snapshot(root).arrow_table("ohlcv_1m")
    deltalake.write_deltalake(str(root / "ohlcv_1m"), stolen, mode="append")
    code, said = complaint(capsys, "ingest", *inputs, "--lake", root, "--plain", "--tables", TABLES)
    assert code not in (0, 1) and "ohlcv_1m" in said and "restore" in said
    assert hashes(root) == before
    with open_writer(root, check=False) as writer:
        restore(writer, "ohlcv_1m")
    ingest(root, inputs)
    assert differing(root, whole) == set()
    assert [status.changed_by for status in care.status(root).tables if status.changed_by] == []


def test_a_file_of_a_table_that_is_gone_is_told_and_the_day_can_be_made_again(sound: Sound, tmp_path: Path) -> None:
    captured, whole = sound["sbe"]
    inputs, root = files_of(captured), tmp_path / "lake"
    ingest(root, inputs[:4])
    open_snapshot(root).files("mbo")[0].unlink()
    [damage] = care.verify(root)
    assert (damage.table, damage.reason) == ("mbo", "is missing")
    ingest(root, inputs)
    assert differing(root, whole) == set() and care.verify(root, deep=True) == []


# Our own mistakes


class Meddling(PlainRunner):
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
        (_split, r"instrument \d+ is split: it is of bucket \d+ and has rows in \d+"),
    ],
)
def test_rows_of_an_instrument_that_come_split_or_out_of_order_fail_the_whole_ingest(
    sound: Sound, tmp_path: Path, change: Any, message: str
) -> None:
    captured, whole = sound["sbe"]
    meddling = Meddling("umdf.lake.books_task:run", change)
    with pytest.raises(UmdfError, match=message):
        ingest(tmp_path, files_of(captured), meddling, span_numbers=1_000)
    assert open_snapshot(tmp_path).number == 0 and Counter(rows(tmp_path, "mbo")) == Counter()
    ingest(tmp_path, files_of(captured))
    assert differing(tmp_path, whole) == set() and care.status(tmp_path).orphans.files == 0


def test_a_capture_that_vanishes_or_grows_in_the_middle_is_one_clear_error(
    sound: Sound, mine: Path, tmp_path: Path
) -> None:
    inputs = captures_in(mine)
    target = line(mine, "B")
    kept = target.read_bytes()

    def gone(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        target.unlink()
        return tasks

    with pytest.raises(UmdfError, match=target.name):
        ingest(tmp_path / "lake", inputs, Meddling("umdf.lake.decode_task:run", gone))
    target.write_bytes(kept)
    assert open_snapshot(tmp_path / "lake").number == 0
    ingest(tmp_path / "lake", inputs)
    assert differing(tmp_path / "lake", sound["sbe"][1]) == set()
