"""`umdf book` on captures: what a user sees, at any moment, on sound and on poor input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from umdf.cli.app import run
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings

SYMBOL = "WINZ26"
Shown = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("day")
    write_capture(BulkSettings(20_000, 40, protocol="both", seed=3), out)
    return out / "capture"


def shown(capsys: Shown, *command: str | Path) -> list[dict[str, Any]]:
    assert run([*map(str, command), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_both_protocols_show_the_same_ladder(day: Path, capsys: Shown):
    sbe, fast = shown(capsys, "book", day, "--symbols", SYMBOL, "--depth", "0", "--orders")
    assert (sbe["protocol"], fast["protocol"]) == ("sbe", "fast")
    assert sbe["stale"] is None and fast["stale"] is None
    assert sbe["bids"] and sbe["asks"]
    for side in ("bids", "asks"):
        for ours, theirs in zip(sbe[side], fast[side], strict=True):
            assert [o["order_id"] for o in ours["orders"]] == [o["order_id"] for o in theirs["orders"]]
            assert (ours["price"], ours["size"], ours["count"]) == (theirs["price"], theirs["size"], theirs["count"])
    assert sbe["state"]["state_name"] == "close"


def test_at_a_sequence_and_at_its_time_the_book_is_the_same(day: Path, capsys: Shown):
    by_number = shown(capsys, "book", day, "--symbols", SYMBOL, "--at", "3000")[0]
    assert by_number["sequence"] == 3000
    seconds, ns = divmod(by_number["ts_send"], 1_000_000_000)
    clock = f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ns:09}"
    by_time = shown(capsys, "book", day, "--symbols", SYMBOL, "--at", clock)[0]
    assert by_time["bids"] == by_number["bids"] and by_time["asks"] == by_number["asks"]


def test_depth_limits_the_levels(day: Path, capsys: Shown):
    assert len(shown(capsys, "book", day, "--symbols", SYMBOL, "--depth", "2")[0]["bids"]) == 2


def test_several_symbols_are_shown_in_their_order(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = next(row["symbol"] for row in shown(capsys, "book", day) if row["symbol"] != SYMBOL)
    books = shown(capsys, "book", day, "--symbols", f"{other}, {SYMBOL}", "--depth", "1")
    assert [book["symbol"] for book in books] == [other, other, SYMBOL, SYMBOL]  # in both protocols


def test_without_symbol_every_instrument_has_a_line(day: Path, capsys: Shown):
    lines = shown(capsys, "book", day)
    assert len([line for line in lines if line["protocol"] == "sbe"]) == 40
    assert all(line["stale"] is None for line in lines)
    assert run(["book", str(day)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 81


def test_the_text_has_ladder_and_statistics(day: Path, capsys: Shown):
    assert run(["book", str(day), "--symbols", SYMBOL, "--at", "4000", "--orders", "--depth", "1"]) == 0
    text = capsys.readouterr().out
    assert "at sequence 4000" in text and "state open" in text
    assert "orders\tsize\tbid\task\tsize\torders" in text and "opening price" in text


def test_before_the_first_packet_there_is_nothing(day: Path, capsys: Shown):
    book = shown(capsys, "book", day, "--symbols", SYMBOL, "--at", "00:01")[0]
    assert (book["bids"], book["asks"], book["statistics"]) == ([], [], {})
    assert book["state"]["state_name"] == "unknown"


def test_increments_from_the_middle_are_stale(day: Path, tmp_path: Path, capsys: Shown):
    """One line without its snapshots: what is shown says that it cannot be trusted."""
    [line] = [path for path in day.glob("*sbe*incremental-A.pcap")]
    content = line.read_bytes()
    at, skipped = 24, 0
    while skipped < 2_000:
        at += 16 + int.from_bytes(content[at + 8 : at + 12], "little")
        skipped += 1
    (tmp_path / "late.pcap").write_bytes(content[:24] + content[at:])
    books = shown(capsys, "book", tmp_path / "late.pcap")
    assert sum(book["stale"] is not None for book in books) > 10


def test_a_definition_that_may_have_changed_unseen_is_unverified(day: Path, tmp_path: Path, capsys: Shown):
    """Packets are lost on both lines, and lists of instruments end; the book recovers, the definition does not."""
    lost_ns = 0
    for path in sorted(day.glob("*sbe*.pcap"), key=lambda path: "incremental" not in path.name):
        content, kept, at, number = path.read_bytes(), bytearray(), 24, 0
        while at < len(content):
            seconds, ns, length = (
                int.from_bytes(content[at + place : at + place + 4], "little") for place in (0, 4, 8)
            )
            is_lost = "incremental" in path.name and 3_000 <= number < 3_005
            lost_ns = seconds * 10**9 + ns if is_lost else lost_ns
            if not is_lost and not ("instrument" in path.name and seconds * 10**9 + ns > lost_ns):
                kept += content[at : at + 16 + length]
            at, number = at + 16 + length, number + 1
        (tmp_path / path.name).write_bytes(content[:24] + kept)
    [sound] = shown(capsys, "book", tmp_path, "--symbols", SYMBOL, "--at", "2500")
    assert sound["definition"] == {"trust": "healthy", "stale": None}
    [book] = shown(capsys, "book", tmp_path, "--symbols", SYMBOL)
    reason = "its definition may have changed: sequences "
    assert book["trust"] == "healthy" and book["definition"]["trust"] == "unverified"
    assert book["definition"]["stale"].startswith(reason)
    stale = [line["definition_stale"] or "" for line in shown(capsys, "book", tmp_path)]
    assert sum(each.startswith(reason) for each in stale) > 30  # some are defined again by later updates
    assert run(["book", str(tmp_path), "--symbols", SYMBOL]) == 0
    assert f"definition UNVERIFIED: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--symbols", "WINZ2"], 3, "unknown instrument: WINZ2; did you mean "),
        (["--at", "noon"], 2, "invalid --at: noon; use a sequence number or a time"),
    ],
)
def test_an_unknown_instrument_or_time_is_a_one_line_error(
    day: Path, capsys: Shown, arguments: list[str], code: int, said: str
):
    assert run(["book", str(day), *arguments]) == code
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


def test_an_instrument_that_was_deleted_says_so(day: Path, capsys: Shown):
    truth = pq.read_table(day.parent / "truth" / "instruments.parquet").to_pylist()
    (number,) = [row["instrument_id"] for row in truth if not row["is_listed"]]
    for row in shown(capsys, "book", day, "--symbols", str(number)):
        assert row["bids"] == row["asks"] == []
        assert "deleted at sequence" in row["stale"]


def test_a_capture_without_umdf_packets_is_a_warning(tmp_path: Path, capsys: Shown):
    (tmp_path / "empty.pcap").write_bytes(bytes.fromhex("4d3cb2a1020004000000000000000000ffff000001000000"))
    assert run(["book", str(tmp_path / "empty.pcap")]) == 0
    assert "no UMDF packets found" in capsys.readouterr().err
