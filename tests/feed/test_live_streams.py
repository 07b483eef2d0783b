"""Streams that fall silent, a backup site, templates that change during the session, the lending channel."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from feed.live_exchange import CheckedClient, LiveMarket
from feed.live_truth import SECOND_NS, Follower, LiveDay, is_line, without, write_day
from lake.second_epoch import renumbered

from umdf import schemas
from umdf.exchange.publish.channel_settings import FAST, ChannelSettings, Members
from umdf.feed.channel_feed import FeedSettings
from umdf.feed.channel_states import FeedState
from umdf.feed.events import EpochStarted, GapOpened
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.feed.line_silence import LineSilence
from umdf.transport.udp_receiver import FlowCounts, ReceivedPackets

AT_ONCE, CHANGES_AFTER = 60, 400


@pytest.fixture(scope="module")
def whole_day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    return write_day(tmp_path_factory.mktemp("whole") / "day")


def batches(day: LiveDay) -> list[ReceivedPackets]:
    return list(day.packets(iter(lambda: AT_ONCE, None)))


def ends_right(follower: Follower) -> None:
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()


@pytest.mark.parametrize("stream", ["snapshot", "instruments"])
@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_a_looping_stream_that_falls_silent_delays_recovery_and_nothing_else(
    protocol: str, stream: str, tmp_path: Path
) -> None:
    """It is silent for the middle of a day with losses: no book is wrong, and when it comes again all are healthy."""
    day = write_day(tmp_path / "day", protocol, loss=0.05)
    follower, all_batches = Follower(day, FeedSettings(keeps_joined=True)), batches(day)
    for number, packets in enumerate(all_batches):
        if len(all_batches) // 4 < number < len(all_batches) // 2:
            packets = without(packets, is_line(packets, stream, "A"))
        follower.receive(packets)
    ends_right(follower)
    assert follower.compared > 150 and FeedState.SILENT not in follower.states


def test_a_line_that_nothing_was_received_on_is_told() -> None:
    now, counts = [0], dict[FeedLine, FlowCounts]()
    lines = {line: FeedLine(ChannelKey("sbe", 72), "incremental", line) for line in "AB"}
    silence = LineSilence(lambda: now[0])

    def notices(packets_a: int, packets_b: int) -> list[str]:
        now[0] += 2 * SECOND_NS
        counts[lines["A"]], counts[lines["B"]] = (FlowCounts(n, 0, 0, 0) for n in (packets_a, packets_b))
        return silence.notices(counts, set(lines.values()), {ChannelKey("sbe", 72): 3.0})

    assert notices(1, 1) == [] and notices(2, 1) == []
    assert notices(3, 1) == ["nothing was received for 4 s on sbe 72 incremental B"]
    assert notices(4, 2) == []
    # A line that is left is not silent, nor is one that was joined a moment ago.
    now[0] += 60 * SECOND_NS
    assert silence.notices(counts, set(), {ChannelKey("sbe", 72): 3.0}) == []
    assert silence.notices(counts, set(lines.values()), {ChannelKey("sbe", 72): 3.0}) == []


def test_a_backup_site_goes_on_with_the_numbering_of_the_primary(whole_day: LiveDay) -> None:
    """The backup site is line B, and silent as long as the primary one sends."""
    follower, all_batches = Follower(whole_day), batches(whole_day)
    for number, packets in enumerate(all_batches):
        silent_line = "B" if number < len(all_batches) // 2 else "A"
        follower.receive(without(packets, is_line(packets, "incremental", silent_line)))
    ends_right(follower)
    assert not any(isinstance(event, GapOpened) for event in follower.events) and follower.feed.totals.epochs == 1
    lines = follower.feed.totals.lines
    assert lines["A"].delivered > 100 and lines["B"].delivered > 100


def test_a_backup_site_with_a_numbering_of_its_own_starts_an_epoch(whole_day: LiveDay, tmp_path: Path) -> None:
    """4.2.8: the primary site falls silent in the middle of the day, and the backup begins with another version."""
    primary = batches(whole_day)
    first_ns, last_ns = int(primary[0].ts_ns[0]), int(primary[-1].ts_ns[-1])
    backup = LiveDay(
        renumbered(whole_day.directory, tmp_path, last_ns - first_ns + 5 * SECOND_NS), "sbe", whole_day.history, []
    )
    follower = Follower(whole_day)
    for packets in primary[: len(primary) // 2]:
        follower.receive(without(packets, is_line(packets, "incremental", "B")))
    follower.tick(follower.now_ns + 4 * SECOND_NS)
    assert follower.feed.state == FeedState.SILENT and follower.feed.untrusted_count > 10
    for packets in batches(backup):
        follower.receive(without(packets, is_line(packets, "incremental", "A")))
    ends_right(follower)
    epochs = [event.epoch for event in follower.events if isinstance(event, EpochStarted)]
    assert len(epochs) == 2 and epochs[1] == epochs[0] + 1
    assert follower.states[-2:] == [FeedState.SYNCHRONIZING, FeedState.LIVE]


def rewritten(packets: ReceivedPackets, sequence: slice, at: int, before: bytes, after: bytes) -> int:
    """Write other bytes at a place of the incremental packets after a sequence; returns how many were changed."""
    count = 0
    for row in np.flatnonzero(is_line(packets, "incremental", "A") | is_line(packets, "incremental", "B")).tolist():
        packet = packets.buffer[packets.start[row] : packets.end[row]]
        number = int.from_bytes(packet[sequence].tobytes(), "big" if sequence.start == 0 else "little")
        if number > CHANGES_AFTER and packet[at : at + len(before)].tobytes() == before:
            packet[at : at + len(before)], count = np.frombuffer(after, np.uint8), count + 1
    return count


@pytest.mark.full_size  # code of the new template file is compiled
def test_another_fast_template_in_the_middle_of_the_session_changes_no_book(tmp_path: Path) -> None:
    """The exchange begins to send its incremental messages with another template ID of the same file."""
    day = write_day(tmp_path / "day", "fast")
    text = (Path(schemas.__file__).parent / "fast" / "umdf-fast.xml").read_text()
    found = re.search(r'  <template name="\w+_152" id="152".*?</template>\n', text, re.DOTALL)
    assert found is not None
    copy = found.group().replace("_152", "_252").replace('"152"', '"252"')
    (tmp_path / "templates.xml").write_text(text.replace(found.group(), found.group() + copy))
    day.channels = [replace(channel, schema=tmp_path / "templates.xml") for channel in day.channels]
    follower, changed = Follower(day), 0
    for packets in batches(day):  # behind the technical header: a presence map of a byte, 152 as two bytes
        packets = replace(packets, buffer=packets.buffer.copy())
        changed += rewritten(packets, slice(0, 4), 11, b"\x01\x98", b"\x01\xfc")
        follower.receive(packets)
    ends_right(follower)
    assert changed > 100 and not any(isinstance(event, GapOpened) for event in follower.events)


def test_another_binary_schema_version_in_the_middle_of_the_session_changes_no_book(whole_day: LiveDay) -> None:
    """3.3: a newer version only adds fields; the client says that it does not know it."""
    follower, changed = Follower(whole_day), 0
    for packets in batches(whole_day):  # schema 2, version 16, of the first message of a packet
        packets = replace(packets, buffer=packets.buffer.copy())
        changed += rewritten(packets, slice(4, 8), 24, b"\x02\x00\x10\x00", b"\x02\x00\x11\x00")
        follower.receive(packets)
    ends_right(follower)
    assert changed > 100 and not any(isinstance(event, GapOpened) for event in follower.events)
    assert any("17" in notice for notice in follower.feed.session.notices())


def test_the_books_of_the_lending_channel_are_those_of_the_exchange_and_are_shown() -> None:
    market = LiveMarket(
        (ChannelSettings(61, FAST, members=Members(("SECLOAN",))),), instruments=400, messages_per_s=4_000
    )
    market.run_alone(31)
    with CheckedClient(market) as client:
        client.run_until(lambda: client.compared > 20, 100_000_000)
        client.catch_up()
        client.assert_equal_to_the_exchange()
        (feed,) = client.feeds
        shown = {number: feed.channel.book(number) for number in feed.instrument_ids()}
        books = [book for book in shown.values() if book is not None and book.lending and len(book.entries)]
        assert len(books) > 3 and client.live.status()[0].untrusted == 0
        symbol = feed.symbol_of(books[0].instrument_id)
        assert symbol is not None
        book = client.live.book(symbol)
        assert book is not None and book.mbp(5) == books[0].mbp(5)
