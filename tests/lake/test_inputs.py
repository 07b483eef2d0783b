"""Inputs that grow, are replaced or are forgotten; and the channel configuration that they were ingested with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lake.captures import day, files_of, hashes, ingest, rows
from lake.followed_days import following

from umdf.errors import ConfigError, UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.admin.forget_input import find_input, forget_input
from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.ledger import LedgerEntry
from umdf.lake.commit.writer import open_writer
from umdf.lake.ingest import ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.parquet.data_files import FileAdd, FileStamp
from umdf.lake.plan.inputs import known_days
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import survey

CUT = 150_001  # bytes: inside a record
TABLES = frozenset({"packets", "quality", "gaps", "quarantine", "definition"})


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


@pytest.fixture
def files(tmp: Path, tmp_path: Path) -> list[Path]:
    """Copies of a day's files, which a test may change: both lines of one channel, its snapshots and instruments."""
    captured = day(tmp, 2_000, 10, roll_s=600, seed=3)
    return [Path(shutil.copy(path, tmp_path / path.name)) for path in files_of(captured)]


def line(files: list[Path], name: str) -> Path:
    [found] = [path for path in files if f"incremental-{name}" in path.name]
    return found


def cut(path: Path) -> Callable[[], None]:
    """A file as it is while it is being written; what is called then writes the rest."""
    content = path.read_bytes()
    path.write_bytes(content[:CUT])

    def finish() -> None:
        path.write_bytes(content)

    return finish


def rebuild(root: Path, **more: Any) -> IngestResult:
    with open_writer(root) as writer:
        return ingest_captures(
            [], writer, LocalRunner(1), IngestSettings(tables=TABLES, **more), rebuild=known_days(writer)
        )


def forget(root: Path, given: str | Path) -> IngestResult:
    with open_writer(root) as writer:
        return forget_input(writer, find_input(writer, str(given)), LocalRunner(1))


def tables_of(root: Path) -> dict[str, str]:
    """Every table that the tests write; of files without a day, too."""
    return {name: word for name, word in hashes(root).items() if name in TABLES or name == "ledger"}


def channels(root: Path, name: str = "packets") -> set[int]:
    return {row["channel_id"] for row in rows(root, name)}


# Growing


@pytest.mark.parametrize("how", ["given again", "rebuild", "another file", "stream"])
def test_a_file_that_was_ingested_while_it_was_written_is_added_whole_later(
    files: list[Path], tmp_path: Path, how: str
) -> None:
    first, other = line(files, "A"), line(files, "B")
    ingest(tmp_path / "whole", files, tables=TABLES)
    finish = cut(first)
    root, rest = tmp_path / "lake", [path for path in files if path != other]
    partial = ingest(root, rest, tables=TABLES)
    assert any("the file ends inside a record" in damage for damage in partial.damaged)
    [kept] = [row["digest"] for row in rows(root, "ledger") if row["path"] == str(first)]
    finish()
    if how == "given again":
        outcome = ingest(root, files, tables=TABLES)
        assert (outcome.new, outcome.known) == (2, len(files) - 2)
    elif how == "rebuild":
        outcome = rebuild(root)
        ingest(root, [other], tables=TABLES)
    elif how == "another file":
        outcome = ingest(root, [other], tables=TABLES)
    else:
        [outcome, _] = following(root, [[other, first]], tables=TABLES)
    assert outcome.grown == [str(first)]
    assert tables_of(root) == tables_of(tmp_path / "whole")
    assert not (root / "_lake" / "surveys" / f"{kept.partition(':')[2]}.json").exists()
    assert rebuild(root).grown == [] and lake_status.verify(root, deep=True) == []


def test_a_file_that_grows_twice_and_one_of_its_name_elsewhere(files: list[Path], tmp_path: Path) -> None:
    first, root = line(files, "A"), tmp_path / "lake"
    content = first.read_bytes()
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / first.name
    copy.write_bytes(content[: CUT // 2])
    for size in (0, 10, CUT, len(content)):
        first.write_bytes(content[:size])
        ingest(root, [copy, first], tables=TABLES)
    assert {(row["path"], row["size_bytes"]) for row in rows(root, "ledger")} == {
        (str(copy), CUT // 2),
        (str(first), len(content)),
    }, "a copy that is still there has not grown"


def test_a_file_whose_content_was_replaced_is_an_error_that_says_what_to_do(files: list[Path], tmp_path: Path) -> None:
    first, other, root = line(files, "A"), line(files, "B"), tmp_path / "lake"
    ingest(root, [first], tables=TABLES)
    before = tables_of(root)
    first.write_bytes(b"\0" + first.read_bytes() + b"more")
    for call in (lambda: rebuild(root), lambda: ingest(root, [other], tables=TABLES)):
        with pytest.raises(UmdfError, match=f"{first} has changed since it was ingested") as fault:
            call()
        assert "umdf lake forget LAKE sha256:" in fault.value.hint
    assert tables_of(root) == before
    forget(root, fault.value.hint.partition("LAKE ")[2].partition("`")[0])
    assert ingest(root, [other], tables=TABLES).commit == 3


def test_what_is_written_while_a_file_is_read_is_not_of_its_survey(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = line(files, "A")
    cut(path)()
    whole, walk_end = path.read_bytes(), survey.SurveyScan.end
    path.write_bytes(whole[:CUT])

    def grow(walk: survey.SurveyScan) -> None:
        path.write_bytes(whole)
        walk_end(walk)

    monkeypatch.setattr(survey.SurveyScan, "end", grow)
    task = {"path": str(path), "known": [], "decompressed": "", "split_bytes": 1 << 25}
    found = survey.run(task, TaskAttempt(0, 0))
    assert found["size_bytes"] == CUT and found["splits"][-1]["end"] == CUT
    path.write_bytes(whole[:CUT])
    monkeypatch.setattr(survey.SurveyScan, "end", walk_end)
    again = survey.run(task, TaskAttempt(0, 0))
    assert [found[name] for name in ("digest", "splits")] == [again[name] for name in ("digest", "splits")]


# Forgetting


def test_an_input_that_is_forgotten_leaves_the_lake_as_if_it_had_never_come(files: list[Path], tmp_path: Path) -> None:
    gone, root = line(files, "A"), tmp_path / "lake"
    cut(gone)  # it has a row in quarantine, of no day
    ingest(tmp_path / "without", [path for path in files if path != gone], tables=TABLES)
    ingest(root, files, tables=TABLES)
    gone.unlink()
    outcome = forget(root, gone)
    assert outcome.commit == 2 and len(outcome.days) == 1
    assert tables_of(root) == tables_of(tmp_path / "without")
    with pytest.raises(ConfigError, match="unknown input: ") as fault:
        forget(root, gone)
    assert "inputs are listed in the table ledger: " in fault.value.hint


def test_a_day_whose_inputs_are_all_forgotten_is_removed(files: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "lake"
    [first, second] = line(files, "A"), line(files, "B")
    ingest(root, [first, second], tables=TABLES)
    forget(root, first)
    assert channels(root) == {72}
    forget(root, second)
    assert all(open_snapshot(root).rows(name) == 0 for name in (*TABLES, "ledger"))
    assert ingest(root, files, tables=TABLES).new == len(files)
    ingest(tmp_path / "whole", files, tables=TABLES)
    assert tables_of(root) == tables_of(tmp_path / "whole")


def test_nothing_is_forgotten_if_another_input_of_the_day_is_gone(files: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "lake"
    ingest(root, files, tables=TABLES)
    before, needed = tables_of(root), line(files, "B")
    needed.unlink()
    with pytest.raises(UmdfError, match=f"{needed} no longer exists; it is needed"):
        forget(root, line(files, "A"))
    assert tables_of(root) == before and open_snapshot(root).number == 1
    assert forget(root, needed).commit == 2


def test_two_inputs_of_one_path_are_distinguished_by_their_digests(tmp_path: Path) -> None:
    entries = [LedgerEntry(f"sha256:{number:064x}", 100 + number, "/x.pcap") for number in (1, 2)]
    with open_writer(tmp_path) as writer:
        writer.commit(entries=entries)
        with pytest.raises(ConfigError, match=r"/x.pcap matches 2 inputs: sha256:0.*1 .*, sha256:0.*2 "):
            find_input(writer, "/x.pcap")
        assert [find_input(writer, entry.digest) for entry in entries] == entries
        writer.commit(entries=[other := LedgerEntry(f"sha256:{3:08x}{0:056x}", 7)])
        assert find_input(writer, "sha256:00000003") == find_input(writer, "00000003") == other


# The channel configuration


def named(tmp: Path, files: list[Path], channel: int) -> dict[tuple[str, int], dict[str, Any]]:
    task = {"known": [], "decompressed": str(tmp / "decompressed"), "split_bytes": 1 << 25}
    flows = [
        tuple(flow) for path in files for flow in survey.run(task | {"path": str(path)}, TaskAttempt(0, 0))["flows"]
    ]
    return {flow: {"group": flow[0], "port": flow[1], "channel": channel} for flow in flows}


@pytest.fixture(scope="module")
def fast(tmp: Path) -> list[Path]:
    return files_of(day(tmp, 2_000, 10, protocol="fast", roll_s=600, seed=3))


def test_a_lake_remembers_the_channel_configuration(fast: list[Path], tmp_path: Path) -> None:
    root, config = tmp_path / "lake", named(tmp_path, fast, 99)
    ingest(root, fast[:2], tables=TABLES, channel_config=config)
    ingest(tmp_path / "whole", fast, tables=TABLES, channel_config=config)
    rebuild(root)
    assert channels(root) == {99}
    list(following(root, [fast[2:3]], tables=TABLES))
    ingest(root, fast[3:], tables=TABLES)
    assert channels(root) == {99} and tables_of(root) == tables_of(tmp_path / "whole")
    known = rows(root, "ledger")
    assert len({row["channel_config"] for row in known}) == 1 and known[0]["channel_config"] is not None
    assert {row["flow"] for row in known} <= {f"{group}:{port}" for group, port in config}


@pytest.mark.parametrize("first", [{}, {"channel": 99}])
def test_another_configuration_is_refused_and_a_rebuild_takes_it(
    fast: list[Path], tmp_path: Path, first: dict[str, Any]
) -> None:
    """Whether the lake has its channels from a configuration or from what is in the files."""
    root, config = tmp_path / "lake", named(tmp_path, fast, 98)
    ingest(root, fast[:3], tables=TABLES, channel_config=named(tmp_path, fast, 99) if first else {})
    before = tables_of(root)
    with pytest.raises(
        ConfigError, match=f"is channel {99 if first else 72} in the lake, but channel 98 in --channels"
    ) as fault:
        ingest(root, fast[3:], tables=TABLES, channel_config=config)
    assert "umdf lake rebuild" in fault.value.hint and tables_of(root) == before
    rebuild(root, channel_config=config, is_config_replaced=True)
    ingest(root, fast[3:], tables=TABLES)
    ingest(tmp_path / "whole", fast, tables=TABLES, channel_config=config)
    assert tables_of(root) == tables_of(tmp_path / "whole")
    assert channels(root, "ledger") == {98}


def test_a_ledger_without_flows_is_read_and_not_rewritten(
    fast: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, write = tmp_path / "lake", ledger.write_entries

    def older(root: Path, stamp: FileStamp, added: Iterable[LedgerEntry]) -> FileAdd | None:
        return write(root, stamp, [replace(entry, flow=None) for entry in added])

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "write_entries", older)
        ingest(root, fast, tables=TABLES)
    rebuild(root)
    assert {row["flow"] for row in rows(root, "ledger")} == {None} and open_snapshot(root).number == 2


# Control


def test_control_of_a_binary_day_has_its_resets_and_heartbeats_are_in_packets(tmp: Path, tmp_path: Path) -> None:
    """A heartbeat of Binary has no number (5.1), so it is no event; in FAST it has one."""
    for protocol, kinds in (("sbe", {"R"}), ("fast", {"R", "H"})):
        captured = day(tmp, 2_000, 10, protocol=protocol, roll_s=600, seed=3, channel_reset=True)
        ingest(tmp_path / protocol, files_of(captured), tables=frozenset({"packets", "control"}))
        assert {row["kind"] for row in rows(tmp_path / protocol, "control")} == kinds
    assert {row["disposition"] for row in rows(tmp_path / "sbe", "packets")} >= {"heartbeat", "used"}
