"""The same packets in several files count once; different packets with the same numbers are refused."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
import zstandard
from lake.captures import day, files_of, hashes, ingest, rows
from lake.damaged_days import captures_in, flip, market, payloads

from umdf.errors import CaptureError
from umdf.lake.recording.contradictions import MIN_CONTRADICTIONS
from umdf.lake.tasks.duplicates import CONTRADICTED, OVERRULED, UnitCopy, refused_copies
from umdf.market.families import MAYBE_BAD_BOOK
from umdf.transport.capture import open_capture

pytestmark = pytest.mark.xdist_group("lake-repeated")
PROTOCOLS = ("sbe", "fast")


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repeated")


@pytest.fixture(scope="module", params=PROTOCOLS)
def single(request: pytest.FixtureRequest, tmp: Path) -> tuple[Path, Path]:
    """A day in few files, and its lake."""
    captured, root = day(tmp, 3_000, 12, protocol=request.param, seed=5, roll_s=3_600), tmp / f"lake-{request.param}"
    ingest(root, files_of(captured))
    return captured, root


def contents(root: Path) -> dict[str, str]:
    """Of every table but the list of files."""
    return {name: found for name, found in hashes(root, files_too=False).items() if name != "ledger"}


def cut(path: Path, target: Path, low: float, high: float) -> Path:
    """The packets of a part of a capture."""
    with open_capture(path) as capture:
        offsets = [int(offset) for batch in capture for offset in batch.offset]
    raw, edges = path.read_bytes(), [*offsets, path.stat().st_size]
    first, last = int(low * len(offsets)), int(high * len(offsets))
    target.write_bytes(raw[: offsets[0]] + raw[edges[first] : edges[last]])
    return target


def parts_of(captured: Path, directory: Path, low: float, high: float) -> list[Path]:
    directory.mkdir()
    return [cut(path, directory / f"part-{path.name}", low, high) for path in files_of(captured)]


BEGIN, END = (pytest.param(*part, marks=pytest.mark.full_size) for part in ((0.0, 0.6), (0.5, 1.0)))


@pytest.mark.parametrize(("low", "high"), [BEGIN, (0.3, 0.7), END])
def test_a_part_and_the_whole_are_counted_once(
    single: tuple[Path, Path], tmp_path: Path, low: float, high: float
) -> None:
    captured, expected = single
    parts, whole = parts_of(captured, tmp_path / "parts", low, high), files_of(captured)
    for name, order in {"part first": (parts, whole), "whole first": (whole, parts)}.items():
        root = tmp_path / name
        for files in order:
            ingest(root, files, split_bytes=100_000)
        assert contents(root) == contents(expected), name
        assert len({row["digest"] for row in rows(root, "ledger")}) == 2 * len(whole)


def test_overlapping_parts_are_the_whole(single: tuple[Path, Path], tmp_path: Path) -> None:
    captured, expected = single
    parts = [
        path
        for number, (low, high) in enumerate(((0.0, 0.5), (0.4, 0.8), (0.7, 1.0)))
        for path in parts_of(captured, tmp_path / str(number), low, high)
    ]
    ingest(tmp_path / "lake", parts, split_bytes=100_000, span_sequences=200)
    assert contents(tmp_path / "lake") == contents(expected)


def test_a_capture_is_known_whatever_its_compression(single: tuple[Path, Path], tmp_path: Path) -> None:
    captured, expected = single
    zipped, packed = [], []
    for path in files_of(captured):
        zipped.append(tmp_path / f"{path.name}.gz")
        zipped[-1].write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        packed.append(tmp_path / f"{path.name}.zst")
        packed[-1].write_bytes(zstandard.compress(path.read_bytes()))
    root, count = tmp_path / "lake", len(zipped)
    first = ingest(root, zipped)
    assert (first.new, first.known) == (count, 0)
    for files in (packed, files_of(captured)):
        again = ingest(root, files)
        assert (again.new, again.known, again.commit) == (0, count, None)
    both = ingest(tmp_path / "both", [*zipped, *packed])
    assert (both.new, both.known) == (count, count)
    assert contents(root) == contents(tmp_path / "both") == contents(expected)
    assert all(row["content_digest"] for row in rows(root, "ledger"))
    assert not any(row["content_digest"] for row in rows(expected, "ledger"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_recordings_with_the_same_numbers_are_refused(tmp: Path, tmp_path: Path, protocol: str) -> None:
    one, other = (files_of(day(tmp, 3_000, 12, protocol=protocol, seed=seed, roll_s=3_600)) for seed in (5, 6))
    root = tmp_path / "lake"
    ingest(root, one)
    before = hashes(root)
    with pytest.raises(CaptureError, match="different recordings") as error:
        ingest(root, other)
    named = [path for path in (*one, *other) if str(path) in error.value.reason]
    assert [path in one for path in named] in ([True, False], [False, True])
    assert hashes(root) == before
    in_lake = {row["digest"] for row in rows(root, "ledger") if Path(row["path"]) in named}
    assert f"umdf lake forget {root} {in_lake.pop()[:19]}`" in error.value.hint
    with pytest.raises(CaptureError, match="different recordings") as error:
        ingest(tmp_path / "both", [*one, *other])
    assert error.value.hint == "ingest only one of them"


def test_two_recordings_of_different_lines_are_refused(tmp: Path, tmp_path: Path) -> None:
    one, other = (files_of(day(tmp, 3_000, 12, seed=seed, roll_s=3_600)) for seed in (5, 6))
    mixed = [path for path in one if "incremental-A" in path.name]
    mixed += [path for path in other if "incremental-B" in path.name]
    with pytest.raises(CaptureError, match="different recordings"):
        ingest(tmp_path / "lake", mixed)


OF_LINES = {"packets", "quality", "quarantine"}


def damage(directory: Path, line: str, count: int, *, keeps_checksums: bool = True) -> set[int]:
    """Flip a bit near the end of some packets of a line, which then have no checksum; the positions of those packets.
    Otherwise none of the line has one."""
    path = next(directory.glob(f"*incremental-{line}*.pcap"))
    raw, places = bytearray(path.read_bytes()), payloads(path)
    struck = {*range(40, 40 + 10 * count, 10)} if count else set[int]()
    for at, (start, end) in enumerate(places):
        if at in struck:
            flip(raw, start, end - 1, 0)
        elif not keeps_checksums:
            raw[start - 2 : start] = bytes(2)
    path.write_bytes(raw)
    return struck


@pytest.mark.parametrize("line", ["A", "B"])
def test_of_copies_that_differ_the_one_with_a_right_checksum_counts(
    single: tuple[Path, Path], tmp_path: Path, line: str
) -> None:
    captured, expected = single
    shutil.copytree(captured / "capture", tmp_path / "capture")
    damage(tmp_path / "capture", line, MIN_CONTRADICTIONS - 1)
    result = ingest(tmp_path / "lake", captures_in(tmp_path / "capture"))
    quarantine = rows(tmp_path / "lake", "quarantine")
    [notice] = result.notices
    assert f"differ (lines A and B): {len(quarantine)} of " in notice and len(quarantine) >= MIN_CONTRADICTIONS - 2
    assert {row["line"] for row in quarantine} == {line}
    found, clean = market(tmp_path / "lake"), market(expected)
    assert {name for name in found if found[name] != clean[name]} <= OF_LINES


def test_copies_that_differ_are_a_gap_if_nothing_shows_which_one_is_right(
    single: tuple[Path, Path], tmp_path: Path
) -> None:
    captured, expected = single
    shutil.copytree(captured / "capture", tmp_path / "capture")
    damage(tmp_path / "capture", "A", 0, keeps_checksums=False)
    damage(tmp_path / "capture", "B", 6, keeps_checksums=False)
    root = tmp_path / "lake"
    ingest(root, captures_in(tmp_path / "capture"))
    quarantine = rows(root, "quarantine")
    lost = {n for row in rows(root, "gaps") for n in range(row["first_sequence"], row["last_sequence"] + 1)}
    contradicted = {row["sequence"] for row in quarantine if row["reason"] == CONTRADICTED}
    undecodable = {row["sequence"] for row in quarantine} - contradicted
    assert (
        contradicted and contradicted <= lost and not undecodable & lost and len(contradicted | undecodable) >= 5
    )  # one may be a heartbeat
    assert {row["sequence"] for row in rows(root, "mbo")} & contradicted == set()
    key = ("sequence", "msg_index", "entry_index")
    clean = {tuple(row[name] for name in key): row for row in rows(expected, "mbo")}
    columns = ("instrument_id", "order_id", "price", "size", "rpt_seq")
    for row in rows(root, "mbo"):
        twin = clean[tuple(row[name] for name in key)]
        assert row["flags"] & MAYBE_BAD_BOOK or [row[name] for name in columns] == [twin[name] for name in columns]


@pytest.mark.parametrize(
    ("copies", "refused"),
    [
        ([(0, 1, False, None), (1, 2, True, None)], [(0, OVERRULED)]),
        ([(0, 1, True, "damaged"), (1, 2, False, None)], [(0, "damaged")]),
        ([(0, 1, False, None), (1, 2, False, None)], [(0, CONTRADICTED), (1, CONTRADICTED)]),
        ([(0, 1, True, None), (1, 2, True, None)], [(0, CONTRADICTED), (1, CONTRADICTED)]),
        ([(0, 1, False, None), (0, 1, False, None), (1, 2, False, None)], [(n, CONTRADICTED) for n in range(3)]),
        ([(0, 1, False, None), (1, 2, False, None), (2, 2, False, None)], [(0, OVERRULED)]),
        ([(0, 1, False, None), (1, 1, False, None)], []),
    ],
)
def test_which_copy_is_used(copies: list[tuple[int, int, bool, str | None]], refused: list[tuple[int, str]]) -> None:
    """Line, content, whether its checksum is right, and why it cannot be decoded."""
    every = [UnitCopy(("file", at, 7), *copy) for at, copy in enumerate(copies)]
    assert refused_copies(every, ()) == {("file", at, 7): reason for at, reason in refused}
