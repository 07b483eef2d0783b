"""Whatever happens to a day on its way, the lake shows nothing wrong as right, and trusts the same books as the live
session: the scenarios of tests/sync/trust_scenarios.py, recorded, ingested, and read back from the tables.

UMDF_SEED=7 repeats one seed, for every kind of channel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import rows_of
from lake.captures import ALL, ingest, rows
from lake.wire_order import epochs_of
from sync.recorded_days import FLOWS, Client, RecordedChannel, Sent
from sync.test_trust_scenarios import BATCH, END, NOTHING, kinds_of, recorded, seeds
from sync.trust_scenarios import SCENARIOS

from umdf.lake.books.state_columns import decode_states, restore_books
from umdf.lake.books.state_record import EVENT_FLAGS
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.market.families import LAST, MAYBE_BAD_BOOK
from umdf.sync import update_gate_kernel as k
from umdf.sync.trust import TrustLevel
from umdf.transport.pcap_writer import PcapWriter

pytestmark = pytest.mark.xdist_group("lake-trust-scenarios")
Sized = Callable[[int, int], int]
STREAMS = {"A": "incremental", "B": "incremental", "snapshots": "snapshot", "instruments": "instruments"}
TABLES = ALL - {"mbp_10", "bbo_1s", "bbo_1m", "tbbo", "ohlcv_1h", "ohlcv_1d"}
UNKNOWN_STATES = (None, 20)
# The others in soak. They cover points 1, 5 to 8, 10, 16, 18 to 20 and 22 of issue 20.
IN_SHORT_RUN = {
    "loss of a burst",
    "loss of an Empty Book",
    "loss of group phases",
    "loss of definitions",
    "loss, and snapshots with holes",
    "end of the incremental stream while snapshots go on",
    "loss of group phases, and snapshots that are late",
    "unknown update actions",
    "chunks that are overtaken by far",
    "new numbering, and late snapshots of the old one",
    "packets that overtake each other by far",
    "line A restarts alone",
    "join with an older snapshot",
    "late join without snapshots",
    "snapshots of an older epoch",
    "loss of a channel reset and what follows",
    "new numbering, whose reset is lost on one line",
}


def ingest_packets(day: RecordedChannel, packets: list[Sent], directory: Path) -> Path:
    """Ingest a capture of each multicast group; returns the lake."""
    directory.mkdir(exist_ok=True)
    config: dict[tuple[str, int], dict[str, Any]] = {}
    files = []
    for number, flow in enumerate(FLOWS):
        own = [packet for packet in packets if packet.flow == flow]
        if not own:
            continue
        group = (f"224.0.20.{number}", 20_001)
        about = {"protocol": day.settings.protocol, "channel": day.settings.channel, "stream": STREAMS[flow]}
        config[group] = about | ({"line": flow} if STREAMS[flow] == "incremental" else {})
        end = np.cumsum([len(packet.content) for packet in own])
        start, ts = np.append(0, end[:-1]), np.array([packet.ts for packet in own])
        files.append(directory / f"{flow}.pcap")
        with PcapWriter(files[-1]) as writer:
            buffer = np.frombuffer(b"".join(packet.content for packet in own), np.uint8)
            writer.write_batch(buffer, start, end, ts, ("10.0.0.1", 1), group)
    ingest(directory / "lake", files, tables=TABLES, channel_config=config)
    return directory / "lake"


@cache
def trade_counts(day: RecordedChannel, directory: Path) -> dict[int, int]:
    """Of the whole day, of which nothing was lost: a live client counts those of a session only."""
    root = ingest_packets(day, day.packets(), directory / f"whole-{id(day)}")
    return {row["instrument_id"]: row["trade_count"] or 0 for row in rows(root, "day_statistics")}


def final_books(root: Path) -> dict[int, tuple[TrustLevel, tuple[Any, ...]]]:
    """Trust and content of each instrument's book at the end."""
    table = open_snapshot(root).arrow_table("book_state")
    states = decode_states(table.filter(np.asarray(table.column("flags")) & EVENT_FLAGS == 0))
    books, found = restore_books(states), {}
    is_stale, is_unverified, is_lending = (states.header[name] for name in ("stale", "unverified", "lending"))
    for row, number in enumerate(states.instrument_id.tolist()):
        if not is_lending[row]:
            doubt = TrustLevel.UNVERIFIED if is_unverified[row] else TrustLevel.HEALTHY
            level = TrustLevel.STALE if is_stale[row] else doubt
            found[number] = level, tuple(rows_of(books.book(number)))
    return found


def wrong_rows(root: Path, day: RecordedChannel) -> list[str]:
    """The rows of `mbp_1` that are shown as right and are not: the last one of each packet, unless that ends within an
    event, of which nothing is shown."""
    ranks = epochs_of(root)

    def last_rows(table: str) -> dict[tuple[int, int, int], dict[str, Any]]:
        found: dict[tuple[int, int, int], dict[str, Any]] = {}
        for row in rows(root, table):
            place = row["instrument_id"], ranks[row["seq_version"]], row["sequence"]
            found[place] = max(row, found.get(place, row), key=message_of)
        return found

    updates, found = last_rows("mbo"), list[str]()
    for (number, numbering, sequence), row in last_rows("mbp_1").items():
        update = updates.get((number, numbering, sequence), row)
        is_whole = update["flags"] & LAST or message_of(update) <= message_of(row)
        if is_whole and not row["flags"] & MAYBE_BAD_BOOK and day.is_end_of_packet(sequence, numbering):
            shown, right = best_of_row(row), best_of_view(day, number, sequence, numbering)
            if shown != right:
                found.append(f"{number} at {sequence}: shown {shown}, right {right}")
    return found


def message_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["msg_index"], row["entry_index"]


def best_of_row(row: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(row[f"{side}_px_00"], row[f"{side}_sz_00"]) for side in ("bid", "ask") if row[f"{side}_sz_00"]]


def best_of_view(day: RecordedChannel, number: int, sequence: int, numbering: int) -> list[tuple[Any, Any]]:
    view = day.truth(number, sequence, numbering) or NOTHING
    best = []
    for side in "BA":
        levels = [(price, size) for of, price, size, _ in view.book if of == side]
        if levels:
            best.append((levels[0][0], sum(size for price, size in levels if price == levels[0][0])))
    return best


def wrong_values(root: Path, day: RecordedChannel, trades: dict[int, int]) -> list[str]:
    """What the tables show as right and is not."""
    found = wrong_rows(root, day)
    for number, (level, book) in final_books(root).items():
        right = day.truth(number, END)
        if level == TrustLevel.HEALTHY and right is not None and book != right.book:
            found.append(f"{number} book at the end: shown {book}, right {right.book}")
    for row in rows(root, "day_statistics"):
        number, right = row["instrument_id"], day.truth(row["instrument_id"], END)
        if not row["flags"] & MAYBE_BAD_BOOK and (row["trade_count"] or 0) != trades.get(number, 0):
            found.append(f"{number} trades: shown {row['trade_count']}, right {trades.get(number, 0)}")
        if right is not None and row["last_state"] not in (*UNKNOWN_STATES, right.state):
            found.append(f"{number} state: shown {row['last_state']}, right {right.state}")
    return found


def live_trust(day: RecordedChannel, packets: list[Sent]) -> dict[int, TrustLevel]:
    """Of each book at the end, as the session that received the same packets has it."""
    client = Client(day.settings)
    for first in range(0, len(packets), BATCH):
        client.feed(packets[first : first + BATCH])
    client.session.finish()
    channel, found = client.channel, {}
    for number in day.ids:
        book = channel.trust.number_of(number, lending=False)
        if book >= 0:
            verified = max(channel._updates.trust.empty_until, int(channel.trust.states[book, k.S_VERIFIED]))
            found[number] = channel.trust.trust_of(book, channel.gaps.first_after(verified)).level
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_tables_show_as_right_is_right(
    name: str, sized: Sized, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario, is_short = SCENARIOS[name], bool(sized(1, 0)) and "UMDF_SEED" not in os.environ
    if is_short and name not in IN_SHORT_RUN:
        pytest.skip("only at full size: make soak")
    for seed in seeds(sized):
        for kind in kinds_of(name, is_short=is_short):
            day, where = recorded(scenario.day)[kind], f"{kind}, seed {seed}"
            packets = scenario.apply(day, Random(f"{name}/{seed}"))
            if packets is None:
                continue
            root = ingest_packets(day, packets, tmp_path / where)
            whole = tmp_path_factory.getbasetemp() / "whole"
            whole.mkdir(exist_ok=True)
            assert not (wrong := wrong_values(root, day, trade_counts(day, whole))), f"{where}: {wrong}"
            existing = [number for number in day.ids if day.truth(number, END) is not None]
            books, live = final_books(root), live_trust(day, packets)
            levels = {number: (live.get(number), books[number][0] if number in books else None) for number in existing}
            assert not {number: pair for number, pair in levels.items() if len({*pair}) > 1}, where
