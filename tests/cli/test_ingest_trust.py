"""What a user reads about days that continue each other, contradicting and repeated recordings, and losses in loops."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake.test_trust import DAY_NS, packets_of, written

from umdf.cli.app import run
from umdf.transport.capture import open_capture

pytestmark = pytest.mark.xdist_group("cli-ingest-trust")
Shown = pytest.CaptureFixture[str]
Words = tuple[str | Path, ...]


@pytest.fixture
def umdf(capsys: Shown) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; its exit code, output and errors."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_day(tmp_path_factory.mktemp("day"), 5)


def write_day(out: Path, seed: int) -> Path:
    settings = ["--messages", "1000", "--instruments", "10", "--seed", str(seed)]
    assert run(["exchange", "capture", *settings, str(out)]) == 0
    return out / "capture"


def line(day: Path, name: str) -> Path:
    [found] = day.glob(f"*{name}*.pcap")
    return found


def cut(path: Path, target: Path, low: float, high: float) -> Path:
    """A part of a capture, by packets."""
    with open_capture(path) as capture:
        edges = [int(at) for batch in capture for at in batch.offset] + [path.stat().st_size]
    raw, count = path.read_bytes(), len(edges) - 1
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(raw[: edges[0]] + raw[edges[int(low * count)] : edges[int(high * count)]])
    return target


def table(umdf: Any, lake: Path, name: str) -> list[dict[str, Any]]:
    code, out, _ = umdf("query", lake, "--schema", name, "--json")
    assert code == 0
    return [json.loads(row) for row in out.splitlines()]


def test_contradicting_recordings_are_both_named_with_how_to_choose(umdf: Any, day: Path, tmp_path: Path) -> None:
    other, lake = write_day(tmp_path / "other", 6), tmp_path / "lake"
    assert umdf("ingest", day, "--lake", lake, "--no-spark")[0] == 0
    before = report(umdf, lake)
    code, _, error = umdf("ingest", other, "--lake", lake, "--no-spark")
    assert code == 3 and "are different recordings" in error and "umdf lake forget" in error
    assert any(str(path) in error for path in other.iterdir()) and any(str(path) in error for path in day.iterdir())
    assert report(umdf, lake) == before
    code, _, error = umdf("ingest", day, other, "--lake", tmp_path / "both", "--no-spark")
    assert code == 3 and "ingest only one of them" in error


def test_repeated_content_is_counted_once(umdf: Any, day: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for path in day.glob("*.pcap"):
        (zipped / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    parts = [cut(path, tmp_path / "parts" / path.name, 0.0, 0.6) for path in day.glob("*.pcap")]
    assert umdf("ingest", day, "--lake", tmp_path / "once", "--no-spark")[0] == 0
    for inputs in (parts, [zipped], [day]):
        assert umdf("ingest", *inputs, "--lake", tmp_path / "lake", "--no-spark")[0] == 0
    for name in ("mbo", "ohlcv_1m", "quality", "book_check"):
        once, often = (table(umdf, tmp_path / lake, name) for lake in ("once", "lake"))
        for row in (*once, *often):
            row.pop("clock_offset_ns", None)  # measured for each file
        assert once == often, name
    for about in ("summary", "checks", "gaps"):
        assert report(umdf, tmp_path / "once")[about] == report(umdf, tmp_path / "lake")[about]


def report(umdf: Any, lake: Path, date: str = "2026-11-13") -> dict[str, Any]:
    code, out, _ = umdf("report", lake, "--date", date, "--json")
    assert code == 0
    return json.loads(out)


def test_lost_snapshots_are_named_by_ingest_and_report(umdf: Any, day: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(day, tmp_path / "capture"))
    snapshots = line(directory, "snapshot")
    with open_capture(snapshots) as capture:
        edges = [int(at) for batch in capture for at in batch.offset] + [snapshots.stat().st_size]
    raw = snapshots.read_bytes()
    kept = [raw[edges[at] : edges[at + 1]] for at in range(len(edges) - 1) if at % 5 != 3]
    snapshots.write_bytes(raw[: edges[0]] + b"".join(kept))
    (directory / "manifest.jsonl").unlink()
    code, _, warned = umdf("ingest", directory, "--lake", tmp_path / "lake", "--no-spark")
    assert code == 0 and "sequence numbers of looping streams lost" in warned
    code, out, _ = umdf("report", tmp_path / "lake", "--out", tmp_path / "page.html")
    assert code == 0 and "snapshot and instrument streams lost" in out + (tmp_path / "page.html").read_text()


def test_tuesday_before_monday_gives_the_same_tables_and_report(umdf: Any, day: Path, tmp_path: Path) -> None:
    """Numbering is weekly: the second half of a day is a day that begins far above 1, the first is the day before."""
    packets = packets_of(day.parent)
    middle = max(packet.number for packet in packets if "incremental" in packet.line) // 2
    ts = min(packet.ts for packet in packets if "incremental" in packet.line and packet.number == middle)
    monday, tuesday = [p for p in packets if p.ts < ts], [p for p in packets if p.ts >= ts or p.line == "list"]
    written(tuesday, tmp_path / "tuesday")
    for packet in monday:
        packet.ts, packet.sent = packet.ts - DAY_NS, packet.sent - DAY_NS
    written(monday, tmp_path / "monday")
    found = []
    for order in (("monday", "tuesday"), ("tuesday", "monday")):
        lake = tmp_path / "-".join(order)
        for name in order:
            code, _, warned = umdf("ingest", tmp_path / name, "--lake", lake, "--no-spark")
            assert code == 0 and "lost" not in warned
        reports = [report(umdf, lake, date) for date in ("2026-11-12", "2026-11-13")]
        assert [each["verdict"] for each in reports] == ["complete", "complete"]
        facts = ("summary", "totals", "active", "activity", "gaps", "checks", "books", "bad_books")
        found.append([each[fact] for each in reports for fact in facts])
        found[-1] += [table(umdf, lake, name) for name in ("ohlcv_1m", "gaps", "quality")]
    assert found[0] == found[1]
    assert umdf("ingest", tmp_path / "tuesday", "--lake", tmp_path / "alone", "--no-spark")[0] == 0
    alone = report(umdf, tmp_path / "alone")
    assert alone["verdict"] == "joined" and "sequence numbers late" in " ".join(alone["summary"])
    assert {row["cause"] for row in table(umdf, tmp_path / "alone", "gaps")} == {"join"}
