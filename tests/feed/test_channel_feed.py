"""The core of the client, with an injected clock and without sockets: whatever is lost, no healthy book is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from feed.live_truth import SECOND_NS, Follower, LiveDay, is_line, without, write_day
from lake.second_epoch import renumbered

from umdf.book.views import Book
from umdf.feed.channel_feed import FeedSettings
from umdf.feed.channel_states import JOINED_STREAMS, TRANSITIONS, FeedState, Signal
from umdf.feed.client import ChannelReport, FeedClient
from umdf.feed.events import EpochStarted, GapOpened, StateChanged, TrustChanged
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.feed.tap import TapRecord
from umdf.sync.stream_detection import StreamKind
from umdf.sync.trust import TrustLevel


@pytest.fixture(scope="module", params=["sbe", "fast"])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    """With 5 % loss on each line, some of it on both, and a channel reset."""
    return write_day(tmp_path_factory.mktemp(request.param) / "day", request.param, loss=0.05)


@pytest.fixture(scope="module")
def whole_day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    return write_day(tmp_path_factory.mktemp("whole") / "day")


def sizes(seed: int, most: int = 60) -> Iterator[int]:
    choose = random.Random(seed)
    while True:
        yield choose.randint(1, most)


def test_losses_are_recovered_and_no_healthy_book_is_ever_wrong(day: LiveDay) -> None:
    follower = Follower(day)
    for packets in day.packets(sizes(1)):
        follower.receive(packets)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()
    assert follower.compared > 300 and follower.untrusted > 10
    assert follower.states[:2] == [FeedState.SYNCHRONIZING, FeedState.LIVE]
    gaps = [event.gap for event in follower.events if isinstance(event, GapOpened)]
    assert len(gaps) == follower.feed.totals.gaps >= 2
    assert sum(gap.last - gap.first + 1 for gap in gaps) == follower.feed.totals.missing


@pytest.mark.parametrize("whole", ["sbe", "fast"])
def test_a_numbering_that_begins_with_1_shows_no_book_before_a_snapshot_or_an_update(
    whole: str, tmp_path: Path
) -> None:
    """It may be that of a failover, before which there were books; nothing on the wire tells it from a week's."""
    follower = Follower(write_day(tmp_path / "day", whole))
    for packets in follower.day.packets(sizes(1, 8)):
        follower.receive(packets)
        if follower.feed.channel.sequence > 5:
            break
    channel = follower.feed.channel
    shown = [number for number in follower.day.instrument_ids if channel.book_trust(number).is_healthy]
    assert not shown
    reasons = {str(channel.book_trust(number).reason) for number in follower.day.instrument_ids}
    assert all("has started" in reason or "reset its statistics" in reason for reason in reasons), reasons


def test_a_late_join_is_recovered_by_snapshots(day: LiveDay) -> None:
    batches = list(day.packets(sizes(2)))
    start, end = int(batches[0].ts_ns[0]), int(batches[-1].ts_ns[-1])
    follower = Follower(day)
    for packets in batches:
        late = without(packets, packets.ts_ns < start + (end - start) // 3)
        if len(late):
            follower.receive(late)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()
    assert follower.feed.channel.recovered >= 10


def test_a_dead_line_changes_nothing_but_the_counts(whole_day: LiveDay) -> None:
    follower, cut = Follower(whole_day), None
    for number, packets in enumerate(whole_day.packets(sizes(3))):
        cut = cut or (int(packets.ts_ns[0]) if number == 40 else None)
        if cut is not None:
            packets = without(packets, is_line(packets, "incremental", "A"))
        follower.receive(packets)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()
    assert not any(isinstance(event, GapOpened) for event in follower.events)
    lines = follower.feed.totals.lines
    assert lines["A"].delivered < lines["B"].delivered


def test_a_failover_starts_an_epoch_and_is_recovered(whole_day: LiveDay, tmp_path: Path) -> None:
    """The feed starts again with another sequence version: everything known of the books is void (4.2.8)."""
    first = list(whole_day.packets(sizes(4)))
    last_ns = int(first[-1].ts_ns[-1])
    later_ns = last_ns - int(first[0].ts_ns[0]) + 2 * SECOND_NS
    second = LiveDay(renumbered(whole_day.directory, tmp_path, later_ns), "sbe", whole_day.history, [])
    follower = Follower(whole_day)
    for packets in (*first[: len(first) // 2], *second.packets(sizes(5))):
        follower.receive(packets)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()
    epochs = [event.epoch for event in follower.events if isinstance(event, EpochStarted)]
    assert len(epochs) == 2 and epochs[1] == epochs[0] + 1
    after = follower.states[follower.states.index(FeedState.LIVE) + 1 :]
    assert FeedState.SYNCHRONIZING in after and after[-1] == FeedState.LIVE


def test_silence_makes_every_book_unverified_until_something_comes(whole_day: LiveDay) -> None:
    batches = list(whole_day.packets())
    follower = Follower(whole_day)
    for packets in batches:
        follower.receive(packets)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    follower.assert_all_right()
    follower.tick(follower.now_ns + 3 * SECOND_NS)
    assert follower.feed.state == FeedState.SILENT
    number = whole_day.instrument_ids[0]
    trust = follower.feed.channel.book_trust(number)
    assert trust.level == TrustLevel.UNVERIFIED and "nothing was received" in str(trust.reason)
    changed = [event for event in follower.events if isinstance(event, TrustChanged)]
    assert {event.instrument_id for event in changed} >= follower.feed.instrument_ids()
    batch = [each for each in batches if is_line(each, "incremental", "A").any()][-1]
    line = batch.take(np.flatnonzero(is_line(batch, "incremental", "A"))[-1:])
    again = type(line)(line.buffer, line.start, line.end, np.array([follower.now_ns]), line.flow, line.names)
    follower.receive(again)
    follower.tick(follower.now_ns + SECOND_NS // 2)
    assert follower.states[-3:] == [FeedState.SILENT, FeedState.RECOVERING, FeedState.LIVE]


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_streams_are_left_when_synchronized_and_joined_again_to_heal(protocol: str, tmp_path: Path) -> None:
    day = write_day(tmp_path / "day", protocol)
    follower, kept = Follower(day), Follower(day, FeedSettings(keeps_joined=True))
    wanted: dict[FeedState, set[StreamKind]] = {}
    batches, draw = list(day.packets(sizes(6))), np.random.default_rng(6)
    for packets in batches:
        if FeedState.LIVE in wanted:
            is_incremental = is_line(packets, "incremental", "A") | is_line(packets, "incremental", "B")
            packets = without(packets, is_incremental & (draw.random(len(packets)) < 0.2))
        for each in (follower, kept):
            each.receive(packets)
        wanted[follower.feed.state] = {line.kind for line in follower.feed.wanted_lines()}
        assert kept.feed.wanted_lines() == set(kept.feed.lines)
    assert wanted[FeedState.LIVE] == {StreamKind.INCREMENTAL}
    assert wanted[FeedState.RECOVERING] == set(StreamKind)


def test_hostile_packets_are_dropped_and_disturb_no_book(whole_day: LiveDay) -> None:
    choose = random.Random(9)
    clean, follower = Follower(whole_day), Follower(whole_day)
    for packets in whole_day.packets(sizes(7)):
        clean.receive(packets)
        follower.receive(packets)
        junk = [choose.randbytes(choose.choice((0, 1, 15, 16, 60, 1400))) for _ in range(3)]
        damaged = bytearray(packets.buffer[packets.start[0] : packets.end[0]].tobytes())
        for _ in range(6):
            damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
        foreign = b"\x63" + packets.buffer[packets.start[0] + 1 : packets.end[0]].tobytes()  # of channel 99
        parts = [*junk, foreign, bytes(damaged[: choose.randrange(len(damaged))])]
        buffer = np.frombuffer(b"".join(parts), np.uint8).copy()
        end = np.cumsum([len(part) for part in parts]).astype(np.int64)
        start = end - np.array([len(part) for part in parts])
        flow = np.array([choose.randrange(len(packets.names)) for _ in parts], np.uint16)
        times = np.full(len(parts), packets.ts_ns[-1])
        follower.receive(type(packets)(buffer, start, end, times, flow, packets.names))
    for each in (clean, follower):
        each.tick(each.now_ns + SECOND_NS // 2)
        each.assert_all_right()
    assert follower.feed.totals.units == clean.feed.totals.units
    assert clean.feed.dropped == 0 and follower.feed.dropped > 100


def test_a_tap_is_the_whole_history_of_all_books(day: LiveDay) -> None:
    records: list[TapRecord] = []
    client = FeedClient(day.channels, tap=records.append)
    (feed,), reports, sent, now_ns = client.feeds.values(), list[ChannelReport](), list[bytes](), 0
    for packets in day.packets(sizes(8)):
        client.receive(packets)
        now_ns = int(packets.ts_ns[-1])
        reports += client.advance(now_ns)
        sent += [packets.buffer[a:b].tobytes() for a, b in zip(packets.start, packets.end, strict=True)]
    reports += client.advance(now_ns + 1_000 * SECOND_NS)  # silence
    assert [record.data for record in records if record.line is not None] == sent
    books: dict[int, Book | None] = {}
    for record in records:
        assert record.before.keys() == record.after.keys()
        for number, before in record.before.items():
            assert content(books.get(number)) == content(before), (number, record.line)
        books |= record.after
    for number in feed.instrument_ids():
        assert content(books.get(number)) == content(feed.channel.book(number)), number
    # Everything that the client reports is in one record.
    assert [event for record in records for event in record.events] == [e for each in reports for e in each.events]
    units = sum(len(events.units) for record in records for events in record.applied)
    assert units == feed.totals.units == sum(len(events.units) for each in reports for events in each.batches)
    assert {event.state for event in records[-1].events if isinstance(event, StateChanged)} == {FeedState.SILENT}
    assert records[-1].line is None
    streams = {record.line.stream for record in records if record.line and record.before}
    assert streams == {"incremental", "snapshot"}


def test_a_tap_shows_the_messages_of_each_packet(day: LiveDay) -> None:
    records: list[TapRecord] = []
    client = FeedClient(day.channels, tap=records.append)
    for packets in day.packets(sizes(9)):
        client.receive(packets)
    shown: dict[str, int] = {}
    for record in records:
        assert record.line is not None
        for message in record.messages:
            shown[message.name] = shown.get(message.name, 0) + 1
            assert dict(message.fix())[34] == str(message.sequence)
    assert sum(shown.values()) > len(records) // 2 and len(shown) > 5
    # A packet in order is applied at once, and its messages are what it does.
    alone = [record for record in records if len(record.applied) == 1 and len(record.messages) == 1
             and len(record.applied[0].units) == 1 and len(record.applied[0].rows("mbo")) == 1]  # fmt: skip
    assert len(alone) > 20
    for record in alone:
        (message,), (applied,) = record.messages, record.applied
        tags = dict(message.fix())
        assert applied.units.sequence.tolist() == [message.sequence]
        if 48 in tags:  # a channel reset names no instrument
            assert applied.rows("mbo").column("instrument_id").tolist() == [int(tags[48])] == list(record.after)


def content(book: Book | None) -> object:
    return book and (book.rpt_seq, book.entries.tobytes())


def test_packets_of_unknown_lines_are_counted(whole_day: LiveDay) -> None:
    client = FeedClient(whole_day.channels)
    packets = next(whole_day.packets())
    other = FeedLine(ChannelKey("sbe", 99), "incremental", "A")
    client.receive(type(packets)(packets.buffer, packets.start, packets.end, packets.ts_ns, packets.flow * 0, [other]))
    assert client.unknown == len(packets) and client.advance(int(packets.ts_ns[-1])) == []


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(JOINED_STREAMS) == set(FeedState)
    reached = {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(FeedState) - {FeedState.WAITING}
    assert {signal for row in TRANSITIONS.values() for signal in row} == set(Signal)


def test_the_result_does_not_depend_on_the_sizes_of_batches(day: LiveDay) -> None:
    checksums: list[dict[int, int]] = []
    for most in (7, 2_000):
        follower = Follower(day, FeedSettings(keeps_joined=True))
        for packets in day.packets(sizes(most, most)):
            follower.receive(packets)
        follower.tick(follower.now_ns + SECOND_NS // 2)
        follower.assert_all_right()
        checksums.append({number: book.checksum for number in day.instrument_ids
                          if (book := follower.feed.channel.book(number)) is not None})  # fmt: skip
        assert sum(isinstance(event, StateChanged) for event in follower.events) > 1
    assert checksums[0] == checksums[1] and len(checksums[0]) > 10
