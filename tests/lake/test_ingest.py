"""Captures into tables: what is in them is what happened, however the captures came."""

from __future__ import annotations

import errno
import gzip
import os
import random
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pytest
from lake.captures import ALL, NO_BOOKS, day, files_of, hashes, ingest, rows, truth
from lake.lake_commands import umdf, until

from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.parquet import file_writer
from umdf.lake.query.provenance import find_origin, parse_row
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.spark_runner import SparkRunner
from umdf.transport.capture import open_capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
PROTOCOLS = ("sbe", "fast")


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


@pytest.fixture(scope="module")
def clean(tmp: Path) -> dict[str, tuple[Path, Path]]:
    """A lossy day of each protocol, and the lake that it came to in one go."""
    made = {}
    for protocol in PROTOCOLS:
        captured, root = day(tmp, protocol=protocol, loss=0.01, seed=3), tmp / f"lake-{protocol}"
        ingest(root, files_of(captured))
        made[protocol] = captured, root
    return made


expected_hashes = cache(hashes)  # of a lake of `clean`, which no test changes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_row_of_a_clean_day_is_there(tmp: Path, tmp_path: Path, protocol: str) -> None:
    captured = day(tmp, protocol=protocol, seed=1)
    outcome = ingest(tmp_path, files_of(captured), tables=ALL)
    assert outcome.gaps == 0 and not outcome.damaged and not outcome.unusable and not outcome.unrecognised
    counts = truth(captured, "counts")
    snapshot = open_snapshot(tmp_path)
    for family in ("trades", "status", "news", "price_band", "imbalance", "execution_summary"):
        of_family = (pc.field("family") == family) & (pc.field("stream") == "incremental")
        assert snapshot.rows(family) == sum(counts.filter(of_family)["rows"].to_pylist()), family
    snapshots = counts.filter((pc.field("family") == "snapshot") & (pc.field("stream") == "snapshot"))
    assert snapshot.rows("snapshot") == snapshots["rows"].to_pylist()[0]
    listed = truth(captured, "instruments")["instrument_id"].to_pylist()
    assert {row["instrument_id"] for row in rows(tmp_path, "definition")} == set(listed)
    assert {row["verdict"] for row in rows(tmp_path, "book_check")} == {"equal"}
    assert lake_status.verify(tmp_path, deep=True) == []


def _runs(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that touch are one gap."""
    runs: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if runs and runs[-1][1] + 1 >= first:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_gaps_are_what_both_lines_lost(clean: dict[str, tuple[Path, Path]], protocol: str) -> None:
    captured, root = clean[protocol]
    lost = {line: [] for line in ("A", "B", "AB")}
    for row in truth(captured, "loss").to_pylist():
        lost[row["line"]].append((row["first_sequence"], row["last_sequence"]))
    gaps = rows(root, "gaps")
    assert lost["AB"]
    assert sorted((gap["first_sequence"], gap["last_sequence"]) for gap in gaps) == _runs(lost["AB"])
    assert {gap["cause"] for gap in gaps} == {"loss"}
    for gap in gaps:
        if gap["recovered_by"] is not None:
            assert gap["ts_recovered"] > gap["ts_opened"]
        if gap["recovered_by"] == "rpt_seq":
            assert gap["affected"] == 0 and gap["instruments"] == []
    assert {"snapshot"} <= {gap["recovered_by"] for gap in gaps}
    quality = {row["line"]: row for row in rows(root, "quality") if row["stream"] == "incremental"}
    for line in ("A", "B"):
        assert quality[line]["lost"] == sum(last - first + 1 for first, last in lost[line])
    missing = sum(last - first + 1 for first, last in _runs(lost["AB"]))
    seen = quality["A"]["last_sequence"] - quality["A"]["first_sequence"] + 1
    assert sum(row["first_arrivals"] for row in quality.values()) == seen - missing
    packets = [row for row in rows(root, "packets") if row["stream"] == "incremental"]
    assert {row["disposition"] for row in packets} <= {"used", "duplicate", "heartbeat"}
    for line, row in quality.items():
        assert row["packets"] == sum(packet["line"] == line for packet in packets)
        assert row["size_bytes"] == sum(packet["size_bytes"] for packet in packets if packet["line"] == line)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_order_of_files_splits_spans_and_packs_do_not_matter(
    clean: dict[str, tuple[Path, Path]], tmp_path: Path, protocol: str
) -> None:
    captured, root = clean[protocol]
    shuffled = files_of(captured)
    random.Random(5).shuffle(shuffled)
    with LocalRunner(2 if protocol == "sbe" else 1) as some:
        ingest(tmp_path, shuffled, some, span_sequences=700, split_bytes=200_000, rows_per_task=900)
    assert hashes(tmp_path) == expected_hashes(root)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_file_by_file_in_any_order_is_the_day_in_one_go(
    clean: dict[str, tuple[Path, Path]], tmp_path: Path, protocol: str
) -> None:
    captured, root = clean[protocol]
    one_by_one = files_of(captured)
    random.Random(2).shuffle(one_by_one)
    half = len(one_by_one) // 2
    for some in (one_by_one[:half], one_by_one[half : half + 1], one_by_one[half + 1 :]):
        ingest(tmp_path, some)
    assert hashes(tmp_path) == expected_hashes(root)
    again = tmp_path / "again.pcap"
    shutil.copy(one_by_one[0], again)
    outcome = ingest(tmp_path, [*files_of(captured), again])
    assert (outcome.new, outcome.known, outcome.commit) == (0, len(one_by_one) + 1, None)
    assert hashes(tmp_path) == expected_hashes(root)


def test_compressed_captures_give_the_same_tables(clean: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    import zstandard

    captured, root = clean["sbe"]
    packed = []
    for number, path in enumerate(files_of(captured)):
        target = tmp_path / f"{path.name}.{'gz' if number % 2 else 'zst'}"
        raw = path.read_bytes()
        target.write_bytes(gzip.compress(raw, 1) if number % 2 else zstandard.compress(raw))
        packed.append(target)
    half = len(packed) // 2
    ingest(tmp_path / "lake", packed[half:])
    ingest(tmp_path / "lake", packed[:half])
    found, expected = hashes(tmp_path / "lake", files_too=False), expected_hashes(root, files_too=False)
    assert {name for name in found if found[name] != expected[name]} == {"ledger"}
    assert not list((tmp_path / "lake" / "_lake" / "work").glob("*"))


def test_two_channels_on_two_wires_do_not_disturb_each_other(
    clean: dict[str, tuple[Path, Path]], tmp: Path, tmp_path: Path
) -> None:
    fast = day(tmp, 6_000, 20, protocol="fast", loss=0.01, seed=4, channel=60)
    both = tmp_path / "both"
    outcome = ingest(both, [*files_of(fast), *files_of(clean["sbe"][0])])
    assert [channel for channel, _ in outcome.days] == [60, 72]
    ingest(tmp_path / "fast", files_of(fast))
    for channel, alone in ((72, clean["sbe"][1]), (60, tmp_path / "fast")):
        found, expected = hashes(both, channel_id=channel), hashes(alone, channel_id=channel)
        assert {name for name in found if found[name] != expected[name]} == {"ledger"}
    with pytest.raises(UmdfError, match="channel 72 is present in both SBE and FAST"):
        ingest(both, files_of(clean["fast"][0]))


def test_days_come_in_any_order_and_one_file_may_have_two(tmp: Path, tmp_path: Path) -> None:
    days = [day(tmp, seed=seed, trading_date=20_770 + seed) for seed in (1, 2)]
    ingest(tmp_path / "one", [*files_of(days[1]), *files_of(days[0])], tables=ALL)
    for captured in days:
        ingest(tmp_path / "two", files_of(captured))
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    whole = []
    for kind in ("incremental-A", "incremental-B", "snapshot-A", "instruments-A"):
        target = tmp_path / f"{kind}.pcap"
        parts = [path.read_bytes() for captured in days for path in files_of(captured) if kind in path.name]
        target.write_bytes(parts[0] + b"".join(part[24:] for part in parts[1:]))
        whole.append(target)
    ingest(tmp_path / "whole", whole)
    found, expected = hashes(tmp_path / "whole", files_too=False), hashes(tmp_path / "one", files_too=False)
    assert {name for name in found if found[name] != expected[name]} == {"ledger"}


def test_damaged_files_are_reported_and_the_rest_of_the_day_is_ingested(tmp: Path, tmp_path: Path) -> None:
    captured = day(tmp, seed=1)
    mine = tmp_path / "capture"
    shutil.copytree(captured / "capture", mine)
    cut = next(mine.glob("*incremental-A.pcap"))
    cut.write_bytes(cut.read_bytes()[:-100])
    garbage = mine / "notes.pcap"
    garbage.write_bytes(b"this is no capture at all, but a few notes")
    (mine / "empty.pcap").write_bytes(b"")
    inputs = sorted(mine.glob("*.pcap"))
    outcome = ingest(tmp_path / "lake", inputs)
    assert {Path(path).name for path, _ in outcome.unusable} == {"notes.pcap", "empty.pcap"}
    assert len(outcome.damaged) == 1 and cut.name in outcome.damaged[0] and "ends inside a record" in outcome.damaged[0]
    assert outcome.gaps == 0  # line B has what is cut
    reasons = [row["reason"] for row in rows(tmp_path / "lake", "quarantine")]
    assert len(reasons) == 3
    ingest(tmp_path / "whole", files_of(captured))
    found, expected = hashes(tmp_path / "lake", files_too=False), hashes(tmp_path / "whole", files_too=False)
    assert found["trades"] == expected["trades"] and found["ohlcv_1m"] == expected["ohlcv_1m"]
    assert ingest(tmp_path / "lake", inputs).commit is None


def _damage_packet(path: Path, sequence: int, damage: Callable[[bytearray, int, int], None]) -> None:
    """Change the Binary packet with this number in a capture."""
    with open_capture(path) as capture:
        for batch in capture:
            for row in range(len(batch)):
                payload = batch.payload(row)
                if int.from_bytes(payload[4:8], "little") == sequence:
                    raw = bytearray(path.read_bytes())
                    at = raw.index(payload, int(batch.offset[row]))
                    damage(raw, at, at + len(payload))
                    raw[at - 2 : at] = bytes(2)  # no checksum tells of it
                    path.write_bytes(raw)
                    return
    raise AssertionError(sequence)


def _wrong_length(raw: bytearray, start: int, end: int) -> None:
    raw[start + 16 : start + 18] = b"\xff\x7f"


def _no_such_template(raw: bytearray, start: int, end: int) -> None:
    raw[start + 22 : start + 24] = b"\xe7\x03"


def test_a_corrupt_packet_is_taken_from_the_other_line_or_is_a_gap(tmp: Path, tmp_path: Path) -> None:
    captured = day(tmp, seed=1, roll_s=600)
    mine = tmp_path / "capture"
    shutil.copytree(captured / "capture", mine)
    lines = [next(mine.glob(f"*incremental-{line}.pcap")) for line in "AB"]
    _damage_packet(lines[0], 500, _wrong_length)
    for line in lines:
        _damage_packet(line, 700, _wrong_length)
        _damage_packet(line, 900, _no_such_template)
    outcome = ingest(tmp_path / "lake", sorted(mine.glob("*.pcap")))
    assert (outcome.gaps, outcome.missing_sequences) == (1, 1)
    [gap] = rows(tmp_path / "lake", "gaps")
    assert gap["first_sequence"] == gap["last_sequence"] == 700
    packets = {
        (row["line"], row["sequence"]): row["disposition"]
        for row in rows(tmp_path / "lake", "packets")
        if row["stream"] == "incremental"
    }
    assert packets["A", 500] == packets["A", 700] == packets["B", 700] == "corrupt" and packets["B", 500] == "used"
    reasons = [row["reason"] for row in rows(tmp_path / "lake", "quarantine")]
    assert sum("exceeds the packet" in reason for reason in reasons) == 3
    assert sum("template 999 is not in the schema" in reason for reason in reasons) == 1
    assert {
        row["line"]: row["corrupt"] for row in rows(tmp_path / "lake", "quality") if row["stream"] == "incremental"
    } == {
        "A": 2,
        "B": 1,
    }


def test_rebuilding_a_day_needs_its_older_files(tmp: Path, tmp_path: Path) -> None:
    captured = day(tmp, seed=1)
    mine = tmp_path / "capture"
    shutil.copytree(captured / "capture", mine)
    inputs = sorted(mine.glob("*.pcap"))
    ingest(tmp_path / "lake", inputs[:-1], tables=NO_BOOKS)
    moved = tmp_path / "elsewhere.pcap"
    inputs[0].rename(moved)
    with pytest.raises(UmdfError, match=r"no longer exists; it is needed.*; pass its current path along"):
        ingest(tmp_path / "lake", inputs[-1:], tables=NO_BOOKS)
    assert ingest(tmp_path / "lake", [inputs[-1], moved], tables=NO_BOOKS).commit == 2
    ingest(tmp_path / "whole", files_of(captured), tables=NO_BOOKS)
    assert hashes(tmp_path / "lake") == hashes(tmp_path / "whole")


def test_a_table_left_out_later_is_not_left_behind(clean: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    captured, root = clean["sbe"]
    inputs = files_of(captured)
    ingest(tmp_path, inputs[:-2])
    ingest(tmp_path, inputs[-2:], tables=frozenset({"gaps"}))
    assert hashes(tmp_path) == expected_hashes(root)


def test_a_full_disk_is_one_clear_error_and_nothing_is_seen(
    clean: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, root = clean["sbe"]
    whole, left = file_writer._sink, [3]

    def full(path: Path) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(file_writer, "_sink", full)
        with pytest.raises(UmdfError, match=r"no space left on the disk; free some space, then run the command again"):
            ingest(tmp_path, files_of(captured))
    assert open_snapshot(tmp_path).number == 0
    assert ingest(tmp_path, files_of(captured)).commit == 1
    assert hashes(tmp_path) == expected_hashes(root) and lake_status.status(tmp_path).orphans.files == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_leads_back_to_its_packet(clean: dict[str, tuple[Path, Path]], protocol: str) -> None:
    _, root = clean[protocol]
    for name in ("trades", "mbo", "definition", "snapshot"):
        for row in random.Random(1).sample(rows(root, name), 3):
            key = ":".join(str(row[part]) for part in ("channel_id", "seq_version", "sequence", "msg_index"))
            origin = find_origin(root, *parse_row(f"{name}:{key}"))
            with open_capture(origin.path) as capture:
                [(payload, ts)] = [
                    (batch.payload(int(at)), int(batch.ts_ns[at]))
                    for batch in capture
                    for at in np.flatnonzero(batch.number == origin.packet)
                ]
            assert ts == origin.ts_recv == origin.row["ts_recv"]
            if protocol == "sbe":
                assert int.from_bytes(payload[4:8], "little") == row["sequence"]
            else:
                assert int.from_bytes(payload[:4], "big") <= row["sequence"]
    with pytest.raises(UmdfError, match="no row 72:1:2"):
        find_origin(root, *parse_row("trades:72:1:2"))
    with pytest.raises(UmdfError, match="invalid row: mbo:72"):
        parse_row("mbo:72")


@pytest.mark.parametrize("moment", range(10))
def test_a_killed_ingest_leaves_nothing_half_done(
    clean: dict[str, tuple[Path, Path]], tmp_path: Path, moment: int, soak: bool
) -> None:
    if moment and not soak:
        pytest.skip("one moment at reduced size, all ten at full size: make soak")
    captured, root = clean["sbe"]
    how = [] if soak else ["--no-spark"]
    wanted = random.Random(moment).randrange(1, 30)  # files of tables that are there when it dies
    words = ["ingest", captured / "capture", "--lake", tmp_path, *how, "--tables", ",".join(ALL)]
    with umdf(f"killed-{moment}", *words) as ingesting:
        until(lambda: ingesting.ended or len(list(tmp_path.glob("*/*/*/*.parquet"))) >= wanted, 120, 0.005)
        os.killpg(ingesting.process.pid, signal.SIGKILL)
        ingesting.process.wait()
        # Spark's workers are no part of the group. What they write until they notice is for the next writer to sweep.
        assert until(lambda: not ingesting.family(), 60)
    assert not (tmp_path / "lake.json").exists() or open_snapshot(tmp_path).number in (0, 1)
    ingest(tmp_path, files_of(captured))
    assert hashes(tmp_path) == expected_hashes(root)
    status = lake_status.status(tmp_path)
    assert status.orphans.files == 0 and status.pending is None
    assert not [path for path in (tmp_path / "_lake" / "work").glob("ingest-*")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spark_makes_what_plain_processes_make_and_another_engine_reads_it(
    spark: SparkSession, clean: dict[str, tuple[Path, Path]], tmp_path: Path, protocol: str
) -> None:
    import polars

    captured, root = clean[protocol]
    ingest(tmp_path, files_of(captured), SparkRunner(spark), span_sequences=900, rows_per_task=900)
    assert hashes(tmp_path) == expected_hashes(root)
    snapshot = open_snapshot(tmp_path)
    for name in ("mbo", "trades", "packets", "ohlcv_1m", "gaps"):
        second, ours = polars.read_delta(str(tmp_path / name)), snapshot.arrow_table(name)
        assert second.height == ours.num_rows
        column = next(name for name in ("sequence", "volume", "missing") if name in ours.schema.names)
        assert second[column].sum() == sum(filter(None, ours[column].to_pylist()))
