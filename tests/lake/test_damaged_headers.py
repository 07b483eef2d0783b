"""One wrong bit in a header: refused where its neighbours are, and what is said of the market does not change.

Line B has a copy of everything, so with one line damaged every table but those about lines is that of the sound day.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.captures import files_of, ingest, rows
from lake.damaged_days import UndamagedDay, captures_in, differing, flip, market, payloads, sound_days

from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.ledger import digest_of, file_id
from umdf.lake.ingest_result import IngestResult
from umdf.lake.runtime.spark_tasks import TaskAttempt as Task
from umdf.lake.tasks import survey
from umdf.transport.capture import open_capture
from umdf.transport.pcap_writer import PcapWriter

pytestmark = pytest.mark.xdist_group("lake-headers")
NOON = 1_794_574_800 * 10**9


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> UndamagedDay:
    return sound_days(tmp_path_factory.mktemp("headers"), 6_000)


@pytest.fixture
def mine(sound: UndamagedDay, tmp_path: Path) -> Path:
    """The Binary day's captures, to be damaged."""
    shutil.copytree(sound["sbe"][0] / "capture", tmp_path / "capture")
    return tmp_path / "capture"


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
    raw, places, offsets = bytearray(path.read_bytes()), payloads(path), _offsets(path)
    for spot in spots:
        flip(raw, places[spot][0], places[spot][0] + bit[0], bit[1])
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
    root: Path, clean: Path, path: Path, offsets: Sequence[int], outcome: IngestResult, dispositions: frozenset[str]
) -> None:
    assert len(outcome.days) == 1 and outcome.gaps == 0 and outcome.missing_sequences == 0
    identity = file_id(digest_of(path)[0])
    packets, quarantine = rows(root, "packets"), rows(root, "quarantine")
    struck = [row for row in packets if row["file_id"] == identity and row["file_offset"] in offsets]
    assert len(struck) == len(offsets) and {row["disposition"] for row in struck} <= dispositions
    assert len(packets) == open_snapshot(clean).rows("packets")
    assert {(row["file_id"], row["file_offset"]) for row in quarantine} == {(identity, offset) for offset in offsets}
    assert all(row["reason"] and row["trading_date"] for row in quarantine)
    others = Counter(row["disposition"] for row in packets) - Counter(row["disposition"] for row in struck)
    sound = Counter(row["disposition"] for row in rows(clean, "packets"))
    assert others["late"] == sound["late"] == 0 and others["used"] == sound["used"]
    expected = market(clean)
    assert [name for name, table in market(root).items() if name not in OF_LINES and table != expected[name]] == []


OF_LINES = {"packets", "quality", "quarantine"}
OF_A_LOOP = {"snapshot": {"gaps", "snapshot", "book_check"}, "instruments": {"gaps"}}
CORRUPT = frozenset({"corrupt"})


def _second(directory: Path) -> Path:
    """The second file of line A: the first one begins with heartbeats."""
    return sorted(directory.glob("*incremental-A.pcap"))[1]


# Each of the bits and each of the spots once; all of them with all at full size.
QUICK = dict(zip(BITS, [*SPOTS, "first two", "last"], strict=True))
FAST_QUICK = dict(zip(FAST_BITS, SPOTS, strict=False))


def sooner(fields: Iterable[str]) -> list[Any]:
    """The first two in `make test`, all in `make soak`."""
    named = list(fields)
    return [*named[:2], *(pytest.param(name, marks=pytest.mark.full_size) for name in named[2:])]


@pytest.mark.parametrize("field", sooner(BITS))
def test_a_damaged_header_is_refused_where_its_neighbours_are_and_makes_no_gap_numbering_day_or_lateness(
    sound: UndamagedDay, tmp_path: Path, field: str, soak: bool
) -> None:
    for spot in SPOTS if soak else [QUICK[field]]:
        mine, root = tmp_path / spot, tmp_path / f"lake {spot}"
        shutil.copytree(sound["sbe"][0] / "capture", mine)
        target = _second(mine)
        offsets = _strike(target, SPOTS[spot](len(payloads(target))), BITS[field])
        outcome = ingest(root, captures_in(mine))
        _assert_only_these_are_refused(root, sound["sbe"][1], target, offsets, outcome, CORRUPT)
        if soak or spot == "first two":
            ingest(tmp_path / f"cut {spot}", captures_in(mine)[::-1], span_sequences=300, split_bytes=40_000)
            assert differing(root, tmp_path / f"cut {spot}") == set(), spot


@pytest.mark.parametrize("field", sooner(["far number", "channel", "numbering", "days away"]))
def test_a_damaged_header_that_is_alone_in_its_file_is_found_by_the_other_files(
    sound: UndamagedDay, mine: Path, tmp_path: Path, field: str
) -> None:
    target = _second(mine)
    alone = _lone(target, len(payloads(target)) // 3)
    offsets = _strike(alone, [0], BITS[field])
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    dispositions = frozenset({"unknown"}) if field == "channel" else CORRUPT
    _assert_only_these_are_refused(tmp_path / "lake", sound["sbe"][1], alone, offsets, outcome, dispositions)


@pytest.mark.parametrize(("stream", "field"), [("snapshot", "far number"), ("instruments", "years away")])
def test_a_damaged_header_of_a_loop_has_its_rows_too(
    sound: UndamagedDay, mine: Path, tmp_path: Path, field: str, stream: str
) -> None:
    target = max(mine.glob(f"*{stream}-A.pcap"), key=lambda path: path.stat().st_size)
    [offset] = _strike(target, [len(payloads(target)) // 2], BITS[field])
    outcome = ingest(tmp_path / "lake", captures_in(mine))
    assert len(outcome.days) == 1 and outcome.gaps == 0
    place = file_id(digest_of(target)[0]), offset
    for name in ("packets", "quarantine"):
        found = [row for row in rows(tmp_path / "lake", name) if (row["file_id"], row["file_offset"]) == place]
        assert len(found) == 1 and found[0].get("disposition", "corrupt") == "corrupt"
    assert len(rows(tmp_path / "lake", "packets")) == open_snapshot(sound["sbe"][1]).rows("packets")
    expected = market(sound["sbe"][1])
    changed = {name for name, table in market(tmp_path / "lake").items() if table != expected[name]}
    assert changed - OF_LINES <= OF_A_LOOP[stream]
    # The loop lacks one number, which a later loop repeats; the incremental stream lacks nothing.
    [gap] = rows(tmp_path / "lake", "gaps")
    assert (gap["stream"], gap["missing"], gap["recovered_by"]) == (stream, 1, "loop")


@pytest.mark.parametrize("field", sooner(FAST_BITS))
def test_a_damaged_technical_header_makes_no_gap_numbering_day_or_lateness(
    sound: UndamagedDay, tmp_path: Path, field: str, soak: bool
) -> None:
    for spot in SPOTS if soak else [FAST_QUICK[field]]:
        mine, root = tmp_path / spot, tmp_path / f"lake {spot}"
        shutil.copytree(sound["fast"][0] / "capture", mine)
        target = _second(mine)
        _strike(target, SPOTS[spot](len(payloads(target))), FAST_BITS[field])
        outcome = ingest(root, captures_in(mine))
        assert len(outcome.days) == 1 and outcome.gaps == 0, spot
        packets = rows(root, "packets")
        assert len(packets) == open_snapshot(sound["fast"][1]).rows("packets")
        assert all(row["disposition"] != "late" for row in packets), spot
        clean = market(sound["fast"][1])
        assert {name for name, table in market(root).items() if table != clean[name]} <= OF_LINES, spot


def test_small_splits_lose_no_snapshot_whose_chunks_lie_in_many_of_them(sound: UndamagedDay, tmp_path: Path) -> None:
    captured, whole = sound["fast"]
    ingest(tmp_path / "lake", files_of(captured), split_bytes=2_500, span_sequences=1_000)
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
        task = {"path": str(path), "known": [], "decompressed": "", "split_bytes": 1_000}
        found = survey.run(task, Task(0, 0))
        assert [split["refused"] for split in found["splits"] if split["refused"]] == [], name
        counted = [segment for split in found["splits"] for segment in split["segments"]]
        assert sum(segment[6] for segment in counted) == len(packets), name
