"""Nothing wrong is shown as right: Binary days that are damaged packet by packet, against the lake of the whole day."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake.captures import day, files_of, hashes, ingest, rows
from lake.damaged_days import market
from lake.second_epoch import FILE_HEADER, PACKET, PAYLOAD, RECORD, SECOND_NS

from umdf.lake.books.replay import BookReplay, ReplayResult
from umdf.lake.commit.day_continuity import continued_days
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.query.lake import Lake
from umdf.lake.report.day_report import COMPLETE, day_report
from umdf.lake.tasks.gather import LONE_RESTART
from umdf.market.families import JOINED, LAST, MAYBE_BAD_BOOK

TEMPLATE, GROUP_PHASE, EMPTY_BOOK, NEXT_SEQUENCE, LAST_VERSION = 6, 10, 9, 12, 32
SNAPSHOT_HEADER = 30
ORDER_TEMPLATES, INDICATOR = (50, 51), 12 + 8  # MatchEventIndicator
DAY_NS = 86_400 * SECOND_NS
KEY = ("seq_version", "sequence", "msg_index", "entry_index", "instrument_id")


class Packet:
    """One record of a capture, which a test may change."""

    def __init__(self, path: Path, head: bytes, frame: bytes) -> None:
        self.path, self.frame = path, bytearray(frame)
        seconds, nanoseconds, _, _ = RECORD.unpack(head)
        self.ts = seconds * SECOND_NS + nanoseconds
        _, _, self.version, self.number, self.sent = PACKET.unpack_from(self.frame, PAYLOAD)

    @property
    def line(self) -> str:
        return next((name for name in ("incremental-A", "incremental-B", "snapshot") if name in self.path.name), "list")

    @property
    def messages(self) -> list[tuple[int, int]]:
        """Where each message is, and its template."""
        found, at = [], PAYLOAD + PACKET.size
        while at + 12 <= len(self.frame) and (length := struct.unpack_from("<H", self.frame, at)[0]):
            found.append((at, struct.unpack_from("<H", self.frame, at + TEMPLATE)[0]))
            at += length
        return found

    @property
    def templates(self) -> set[int]:
        return {template for _, template in self.messages}

    def write(self) -> bytes:
        PACKET.pack_into(self.frame, PAYLOAD, self.frame[PAYLOAD], 0, self.version, self.number, self.sent)
        self.frame[PAYLOAD - 2 : PAYLOAD] = bytes(2)  # without a checksum
        head = RECORD.pack(self.ts // SECOND_NS, self.ts % SECOND_NS, len(self.frame), len(self.frame))
        return head + bytes(self.frame)


def packets_of(captured: Path) -> list[Packet]:
    found = []
    for path in files_of(captured):
        content, at = path.read_bytes(), FILE_HEADER
        while at < len(content):
            end = at + RECORD.size + RECORD.unpack_from(content, at)[2]
            found.append(Packet(path, content[at : at + RECORD.size], content[at + RECORD.size : end]))
            at = end
    return found


def written(packets: list[Packet], target: Path) -> list[Path]:
    target.mkdir(parents=True)
    contents: dict[str, bytes] = {}
    for packet in packets:
        name = packet.path.name
        contents[name] = contents.get(name, packet.path.read_bytes()[:FILE_HEADER]) + packet.write()
    for name, content in contents.items():
        (target / name).write_bytes(content)
    return sorted(target.iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tmp = tmp_path_factory.mktemp("whole")
    captured = day(tmp, 4_000, 12, seed=5, roll_s=600)
    ingest(tmp / "lake", files_of(captured))
    return captured, tmp / "lake"


def is_bad(row: dict[str, Any]) -> bool:
    return bool(row["flags"] & MAYBE_BAD_BOOK)


def damaged(whole: tuple[Path, Path], tmp: Path, change: Callable[[list[Packet]], list[Packet]]) -> Path:
    ingest(tmp / "lake", written(change(packets_of(whole[0])), tmp / "capture"))
    return tmp / "lake"


def check_nothing_wrong_is_unmarked(whole: tuple[Path, Path], root: Path) -> None:
    """Of every row that is not marked, the lake of the whole day says the same."""
    clean = whole[1]
    for name, columns in (
        ("mbp_1", ("bid_px_00", "bid_sz_00", "ask_px_00", "ask_sz_00")),
        ("trades", ("price", "size", "trade_id")),
    ):
        expected = {tuple(row[key] for key in KEY): row for row in rows(clean, name)}
        for row in rows(root, name):
            twin = expected.get(tuple(row[key] for key in KEY))
            if not is_bad(row) and twin is not None:
                assert [row[column] for column in columns] == [twin[column] for column in columns], (name, row)
    expected = {(row["instrument_id"], row["ts_interval"]): row for row in rows(clean, "ohlcv_1s")}
    for row in rows(root, "ohlcv_1s"):
        if not is_bad(row):
            assert row["volume"] == expected[row["instrument_id"], row["ts_interval"]]["volume"], row
    expected = {row["instrument_id"]: row for row in rows(clean, "day_statistics")}
    for row in rows(root, "day_statistics"):
        true = expected[row["instrument_id"]]
        assert is_bad(row) or (row["volume"], row["trade_count"]) == (true["volume"], true["trade_count"])
        assert is_bad(row) or row["last_state"] in (None, true["last_state"])


def incremental_gaps(root: Path) -> list[tuple[int, int, str, str | None]]:
    names = ("first_sequence", "last_sequence", "cause", "recovered_by")
    found = [row for row in rows(root, "gaps") if row["stream"] == "incremental"]
    return sorted(tuple(row[name] for name in names) for row in found)


def last_number(packets: list[Packet]) -> int:
    return max(packet.number for packet in packets if "incremental" in packet.line)


def test_late_start_is_a_join_that_snapshots_heal(whole: tuple[Path, Path], tmp_path: Path) -> None:
    begin = last_number(packets_of(whole[0])) // 2

    def change(packets: list[Packet]) -> list[Packet]:
        ts = min(p.ts for p in packets if "incremental" in p.line and p.number == begin)
        return [p for p in packets if p.line == "list" or p.ts >= ts]

    root = damaged(whole, tmp_path, change)
    assert incremental_gaps(root) == [(1, begin - 1, "join", "snapshot")]
    check_nothing_wrong_is_unmarked(whole, root)
    joined_bars, bars = ([row for row in rows(root, "ohlcv_1s") if is_bad(row) == bad] for bad in (True, False))
    assert bars and all(row["flags"] & JOINED for row in joined_bars)
    assert all(row["flags"] & JOINED and is_bad(row) for row in rows(root, "day_statistics"))


def test_a_snapshot_from_before_a_join_recovers_nothing(whole: tuple[Path, Path], tmp_path: Path) -> None:
    begin = last_number(packets_of(whole[0])) // 2

    def change(packets: list[Packet]) -> list[Packet]:
        ts = min(p.ts for p in packets if "incremental" in p.line and p.number == begin)
        old_loop = [p for p in packets if p.line == "snapshot" and p.ts < ts - SECOND_NS]
        return [p for p in packets if p.line == "list" or ("incremental" in p.line and p.ts >= ts)] + old_loop

    root = damaged(whole, tmp_path, change)
    check_nothing_wrong_is_unmarked(whole, root)
    assert incremental_gaps(root)[0][3] is None
    assert any(is_bad(row) for row in rows(root, "mbo"))


def test_a_heartbeat_reveals_a_loss_before_a_silence(whole: tuple[Path, Path], tmp_path: Path) -> None:
    last = last_number(packets_of(whole[0]))
    root = damaged(
        whole, tmp_path, lambda packets: [p for p in packets if "incremental" not in p.line or p.number <= last - 20]
    )
    assert [gap[:3] for gap in incremental_gaps(root)] == [(last - 19, last, "loss")]
    check_nothing_wrong_is_unmarked(whole, root)


def test_heartbeat_that_later_packets_contradict_is_damaged(whole: tuple[Path, Path], tmp_path: Path) -> None:
    def change(packets: list[Packet]) -> list[Packet]:
        heartbeats = [p for p in packets if p.line == "incremental-A" and not p.number]
        for packet in heartbeats[: len(heartbeats) // 2]:
            struct.pack_into("<I", packet.frame, PAYLOAD + PACKET.size + NEXT_SEQUENCE, 3_000_000_000)
        return packets

    root = damaged(whole, tmp_path, change)
    assert incremental_gaps(root) == [] and market(root).items() >= market_without_packets(whole[1]).items()


def market_without_packets(root: Path) -> dict[str, str]:
    """Without what says how each line fared."""
    return {name: value for name, value in market(root).items() if name not in ("packets", "quality", "quarantine")}


@pytest.mark.parametrize("line", ["incremental-A", "incremental-B"])
def test_line_that_restarts_its_numbering_alone_is_set_aside(
    whole: tuple[Path, Path], tmp_path: Path, line: str
) -> None:
    middle = last_number(packets_of(whole[0])) // 2

    def change(packets: list[Packet]) -> list[Packet]:
        ts = min(p.ts for p in packets if p.line == line and p.number == middle)
        for packet in packets:
            if packet.line == line and packet.ts >= ts:
                packet.version += 1
                packet.number = max(packet.number - middle + 1, 0)
        return packets

    root = damaged(whole, tmp_path, change)
    assert market_without_packets(root) == market_without_packets(whole[1])
    assert {row["reason"] for row in rows(root, "quarantine")} == {LONE_RESTART}
    [notice] = ingest(tmp_path / "again", sorted((tmp_path / "capture").iterdir())).notices
    assert notice.startswith(f"line {line[-1]} of channel 72 restarted its numbering alone on 2026-11-13")
    assert day_report(root).verdict == COMPLETE


@pytest.mark.parametrize("keeps_snapshots", [True, False])
def test_lost_group_phase_leaves_no_state_that_is_wrong(
    whole: tuple[Path, Path], tmp_path: Path, keeps_snapshots: bool
) -> None:
    """All group phases of the second half are lost, on both lines."""
    middle = last_number(packets_of(whole[0])) // 2

    def change(packets: list[Packet]) -> list[Packet]:
        kept = [p for p in packets if keeps_snapshots or p.line != "snapshot"]
        return [p for p in kept if "incremental" not in p.line or p.number < middle or GROUP_PHASE not in p.templates]

    root = damaged(whole, tmp_path, change)
    assert incremental_gaps(root)
    check_nothing_wrong_is_unmarked(whole, root)
    if not keeps_snapshots:
        assert any(row["last_state"] is None for row in rows(root, "day_statistics"))


def test_lost_empty_books_leave_no_frozen_books(whole: tuple[Path, Path], tmp_path: Path) -> None:
    assert any(EMPTY_BOOK in p.templates for p in packets_of(whole[0]))
    root = damaged(
        whole,
        tmp_path,
        lambda packets: [p for p in packets if p.line != "snapshot" and EMPTY_BOOK not in p.templates],
    )
    check_nothing_wrong_is_unmarked(whole, root)
    assert any(is_bad(row) for row in rows(root, "mbp_1"))


def test_snapshots_of_an_older_epoch_are_not_used(whole: tuple[Path, Path], tmp_path: Path) -> None:
    middle = last_number(packets_of(whole[0])) // 2

    def change(packets: list[Packet]) -> list[Packet]:
        for packet in packets:
            for at, template in packet.messages if packet.line == "snapshot" else []:
                if template == SNAPSHOT_HEADER:
                    place = at + 12 + LAST_VERSION
                    struct.pack_into("<H", packet.frame, place, struct.unpack_from("<H", packet.frame, place)[0] - 1)
        return [p for p in packets if "incremental" not in p.line or not middle <= p.number < middle + 30]

    root = damaged(whole, tmp_path, change)
    assert {row["verdict"] for row in rows(root, "book_check")} == {"other_epoch"}
    check_nothing_wrong_is_unmarked(whole, root)


def test_days_of_one_numbering_continue_each_other_in_any_order(whole: tuple[Path, Path], tmp_path: Path) -> None:
    """The first half of the day is sent a day earlier: the second day begins far above 1."""
    middle = last_number(packets_of(whole[0])) // 2
    packets = packets_of(whole[0])
    ts = min(p.ts for p in packets if "incremental" in p.line and p.number == middle)
    first, second = [p for p in packets if p.ts < ts], [p for p in packets if p.ts >= ts or p.line == "list"]
    second_files = written(second, tmp_path / "second")
    for packet in first:
        packet.ts, packet.sent = packet.ts - DAY_NS, packet.sent - DAY_NS
    first_files = written(first, tmp_path / "first")
    for name, parts in (("in-order", (first_files, second_files)), ("reversed", (second_files, first_files))):
        for part in parts:
            ingest(tmp_path / name, part)
    ignored = {"ledger", "packets", "quarantine"}
    one, other = (hashes(tmp_path / name, files_too=False) for name in ("in-order", "reversed"))
    assert {name for name in one if one[name] != other[name]} <= ignored
    snapshot = open_snapshot(tmp_path / "reversed")
    [(continued, channel)] = continued_days(snapshot)
    bars = Lake(tmp_path / "reversed").get_range("ohlcv_1d", None, exclude_stale=True).to_arrow()
    assert channel == 72 and continued in bars.column("trading_date").to_pylist()


def test_a_snapshot_within_an_event_leaves_the_books_apart(
    whole: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event's end is marked on another instrument, and the next update of the first is lost: its event has no end
    when a snapshot is compared with it, and the rows that follow in the task are those of another book."""
    checked, updates = defaultdict(list), defaultdict(list)
    for row in rows(whole[1], "book_check"):
        checked[row["instrument_id"]].append(row["last_sequence"])
    for row in rows(whole[1], "mbo"):
        updates[row["instrument_id"]].append(row["sequence"])
    unmarked, lost = set[int](), set[int]()
    for row in rows(whole[1], "mbp_1"):
        number, sequence = row["instrument_id"], row["sequence"]
        following = min((at for at in updates[number] if at > sequence), default=sequence)
        if any(sequence <= at < following for at in checked[number]):
            unmarked.add(sequence)
            lost.add(following)

    def change(packets: list[Packet]) -> list[Packet]:
        for packet in packets:
            for at, template in packet.messages:
                if packet.number in unmarked and template in ORDER_TEMPLATES and "incremental" in packet.line:
                    packet.frame[at + INDICATOR] &= ~LAST
        return [packet for packet in packets if "incremental" not in packet.line or packet.number not in lost]

    results: list[tuple[BookReplay, ReplayResult]] = []
    apply = BookReplay.apply

    def applied(self: BookReplay, *rows: Any, **more: Any) -> ReplayResult:
        results.append((self, apply(self, *rows, **more)))
        return results[-1][1]

    monkeypatch.setattr(BookReplay, "apply", applied)
    check_nothing_wrong_is_unmarked(whole, damaged(whole, tmp_path, change))
    for replay, result in results:
        assert replay.ids[result.ladder_book >> 1].tolist() == result.ladders["instrument_id"].tolist()
