"""The recording of a run in a lake, beside the run: its gaps, its checks of books, its books at the end."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
from lake.captures import rows
from simulation.whole_system import FollowedChannel, Simulation

from umdf.cli.app import run
from umdf.exchange.publish.channel_settings import MBO
from umdf.feed.events import EpochStarted, GapOpened
from umdf.lake.books.state_columns import decode_states, restore_books
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.market.families import LAST, NULL, SNAPSHOT
from umdf.transport.channels_file import format_channels
from umdf.transport.recording import closed_files

pc: Any = pyarrow.compute  # its functions are made at run time


def ingested_differences(simulation: Simulation, directory: Path) -> list[str]:
    """What the lake has otherwise than the client, or than the exchange where it says that it is right."""
    channels, lake = directory / "channels.toml", directory / "lake"
    channels.write_text(format_channels(simulation.scenario.settings.addresses, {}))
    files = list(map(str, closed_files(directory / "recording")))
    ingest = ["--lake", str(lake), "--channels", str(channels), "--no-spark"]
    if run(["ingest", *files, *ingest]) != 0:
        # What a replayer that lies has returned is another recording of line A: an error, until it is left out.
        faults = simulation.scenario.settings.faults
        assert faults is not None and faults.replayer_corruption > 0
        files = [each for each in files if "incremental-R" not in each]
        assert run(["ingest", *files, *ingest]) == 0
    found, states = list[str](), open_snapshot(lake).arrow_table("book_state")
    lost: dict[int, set[int]] = {channel.feed.key.number: set() for channel in simulation.channels.values()}
    for gap in rows(lake, "gaps"):
        if gap["stream"] == "incremental" and gap["cause"] == "loss":
            lost[gap["channel_id"]] |= set(range(gap["first_sequence"], gap["last_sequence"] + 1))
    for check in rows(lake, "book_check"):
        if check["verdict"] == "different":
            found.append(f"a snapshot contradicts the lake's book: {check}")
    for channel in simulation.channels.values():
        number, totals = channel.publisher.settings.channel, channel.feed.totals
        own = [event for event in simulation.events if getattr(event, "channel", None) == channel.feed.key]
        live = {
            sequence
            for event in own
            if isinstance(event, GapOpened)
            for sequence in range(event.gap.first, event.gap.last + 1)
        }
        # Where the client joins, a late packet may come before the first one that it believes.
        joined = next(event.first for event in own if isinstance(event, EpochStarted))
        lost[number] = {sequence for sequence in lost[number] if sequence >= joined}
        only_lake = lost[number] - live - _quarantined(lake, number, channel.feed.key.protocol)
        if only_lake or len(lost[number]) < len(live) - totals.filled:
            only_live = sorted(live - lost[number])
            found.append(f"{number}: {sorted(only_lake)} are missing in the lake alone, {only_live} live, {totals}")
        if channel.publisher.settings.book_type == MBO:
            found += _book_differences(channel, states.filter(pc.equal(states["channel_id"], number)))
    return found


def _quarantined(lake: Path, channel: int, protocol: str) -> set[int]:
    """The numbers of packets that the lake has put aside. It judges a header by those around it on its line, so that a
    single packet that comes 300 ms late at 10,000 a second is no proof of itself: what was in it is missing, and said
    to be. The client had two such packets in a row, which confirm each other."""
    header = struct.Struct("<4xI" if protocol == "sbe" else ">I")
    contents = [row["content"] for row in rows(lake, "quarantine") if row["channel_id"] == channel]
    return {header.unpack_from(content)[0] for content in contents if len(content) >= header.size}


def _book_differences(channel: FollowedChannel, states: pa.Table) -> list[str]:
    ends = states.filter(pc.equal(pc.bit_wise_and(states["flags"], SNAPSHOT | LAST), 0))
    books, found = restore_books(decode_states(ends)), list[str]()
    for row in range(len(channel.ids)):
        number = int(channel.ids[row])
        book, right = books.book(number) if number else None, channel.truth.rows(row)
        shown = [
            (side, NULL if level.price is None else level.price, order.size, order.order_id)
            for side, levels in (("B", book.bids), ("A", book.asks))
            for level in levels
            for order in level.orders
        ] if book is not None else []  # fmt: skip
        if shown != right and channel.publisher.is_member[row]:
            found.append(f"{channel.feed.key} {number} in the lake: {shown[:4]} is not {right[:4]}")
    return found
