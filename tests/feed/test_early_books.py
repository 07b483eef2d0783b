"""Books that are updated as packets are received are the session's books, a little earlier; nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from feed.early_twins import Twins, content, numbers
from feed.live_truth import LiveDay, write_day

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.truth.book_history import BookHistory
from umdf.feed.channel_feed import FeedSettings
from umdf.feed.client import FeedClient
from umdf.feed.early_books import StopReason
from umdf.feed.feed_lines import FeedLine
from umdf.transport.udp_receiver import ReceivedPackets


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    """With 2 % loss on each line, some of it on both, and a channel reset."""
    return write_day(tmp_path_factory.mktemp("early") / "day", loss=0.02)


@pytest.fixture(scope="module")
def whole_day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    return write_day(tmp_path_factory.mktemp("early_whole") / "day", messages=4_000)


def with_faults(packets: ReceivedPackets, choose: random.Random) -> ReceivedPackets:
    """Some incremental packets come twice, late, damaged or cut, or are of another epoch, channel or far number."""
    is_incremental = [isinstance(name, FeedLine) and name.stream == "incremental" for name in packets.names]
    parts: list[tuple[bytes, int]] = []
    for row in range(len(packets)):
        data = bytearray(packets.buffer[packets.start[row] : packets.end[row]].tobytes())
        kind = choose.choice(("damaged", "cut", "epoch", "channel", "far", "twice", "late")) \
            if is_incremental[packets.flow[row]] and choose.random() < 0.03 else ""  # fmt: skip
        if kind == "damaged":
            data[choose.randrange(16, len(data))] ^= 1 << choose.randrange(8)
        elif kind == "cut":
            del data[choose.randrange(len(data)) :]
        elif kind == "epoch":
            data[2] ^= 1
        elif kind == "channel":
            data[0] ^= 1
        elif kind == "far":
            data[6] ^= 1
        parts.append((bytes(data), row))
        if kind == "twice":
            parts.append((bytes(data), row))
        elif kind == "late":
            parts.insert(max(0, len(parts) - choose.randint(2, 9)), parts.pop())
    rows = np.array([row for _, row in parts])
    ends = np.cumsum([len(data) for data, _ in parts])
    starts = np.concatenate([[0], ends[:-1]])
    buffer = np.frombuffer(b"".join(data for data, _ in parts), np.uint8)
    ts_ns = np.maximum.accumulate(packets.ts_ns[rows])
    return ReceivedPackets(buffer, starts, ends, ts_ns, packets.flow[rows], packets.names)


@pytest.mark.parametrize(("most", "seed"), [(1, 1), (5, 2), (40, 3)])
def test_early_books_are_those_of_the_exchange_and_everything_else_is_as_without(
    day: LiveDay, most: int, seed: int
) -> None:
    twins = Twins(day, settings=FeedSettings(keeps_joined=seed == 2))
    for packets in day.packets(numbers(seed, 60)):
        twins.receive(packets, numbers(seed, most))
    twins.finish()
    assert twins.early.units > 200 and twins.compared > 50
    assert StopReason.NOT_NEXT in twins.stops


def test_books_by_position_are_early_too_and_cancels_get_what_they_removed(tmp_path: Path) -> None:
    """Binary before version 11: cancels have no price (template 51)."""
    settings, history = BulkSettings(2_000, 20, generation="position", loss=0.01, seed=5), BookHistory()
    write_capture(settings, tmp_path / "day", history=history)
    ids = generate_listing(settings, np.random.default_rng([5, 0])).security_id.tolist()
    day, completed = LiveDay(tmp_path / "day", "sbe", history, ids), 0
    twins = Twins(day)
    for packets in day.packets(numbers(5, 60)):
        twins.receive(packets, numbers(5, 20))
        completed += twins.completed
    assert twins.early.units > 200 and twins.compared > 50 and completed > 50


def test_every_change_of_a_book_is_reported_once(whole_day: LiveDay) -> None:
    twins = Twins(whole_day)
    for packets in whole_day.packets(numbers(4, 200)):
        twins.receive(packets, numbers(4, 200))
    assert twins.early.units > 1_000
    last: list[dict[int, tuple[int, bool]]] = []
    for changes in (twins.changes, twins.plain_changes):
        assert len({(change.sequence, change.instrument_id) for change in changes}) == len(changes)
        last.append({change.instrument_id: (change.sequence, change.is_last) for change in changes})
    assert last[0] == last[1] and len(last[0]) > 10
    assert {(change.sequence, change.instrument_id) for change in twins.plain_changes} <= {
        (change.sequence, change.instrument_id) for change in twins.changes
    }  # one without early books reports those of a batch together


@pytest.mark.parametrize("seed", range(4))
def test_faults_of_the_network_change_nothing_but_that_the_session_is_needed(whole_day: LiveDay, seed: int) -> None:
    twins, choose = Twins(whole_day, is_truth_known=False), random.Random(seed)
    for packets in whole_day.packets(numbers(seed, 150)):
        twins.receive(with_faults(packets, choose), numbers(seed, 20))
    twins.finish()
    assert twins.early.units > 100 and StopReason.NOT_NEXT in twins.stops
    totals = twins.feed.totals
    assert totals.early == twins.early.units and sum(totals.early_stops.values()) == twins.early.stops
    assert totals.early_stops.keys() == {reason.name.lower() for reason in twins.stops if reason}


@pytest.mark.parametrize(
    ("at", "is_needed", "reason"),
    [(2, True, StopReason.OTHER_EPOCH), (5, True, StopReason.NOT_NEXT), (0, False, StopReason.NONE)],
)
def test_a_packet_of_another_epoch_number_or_channel_changes_no_book(
    whole_day: LiveDay, at: int, is_needed: bool, reason: StopReason
) -> None:
    """In its header; the session has to see it, but one of another channel may wait."""
    twins, batches = Twins(whole_day), whole_day.packets(iter(lambda: 50, None))
    while not (twins.early.is_armed and twins.early.units > 500):
        twins.receive(next(batches), iter(lambda: 50, None))
    packets = next(batches)
    sequences = np.array([int.from_bytes(packets.buffer[start + 4 : start + 8].tobytes(), "little")
                          for start in packets.start.tolist()])  # fmt: skip
    is_incremental = np.array([getattr(name, "stream", "") == "incremental" for name in packets.names])[packets.flow]
    (row, *_) = np.flatnonzero(is_incremental & (sequences == twins.feed.channel.sequence + 1))
    damaged = packets.take(np.array([row]))
    buffer = damaged.buffer.copy()
    buffer[damaged.start[0] + at] ^= 1
    damaged = ReceivedPackets(buffer, damaged.start, damaged.end, damaged.ts_ns, damaged.flow, damaged.names)
    before, books = twins.early.units, [content(twins.feed, number) for number in whole_day.instrument_ids]
    assert twins.client.apply_early(damaged) == is_needed and twins.early.stop_reason == reason
    assert twins.early.units == before
    assert [content(twins.feed, number) for number in whole_day.instrument_ids] == books


def test_a_tapped_client_has_no_early_books(whole_day: LiveDay) -> None:
    tapped = FeedClient(whole_day.channels, tap=lambda _: None)
    tapped.start_early_books()
    assert [feed.early for feed in tapped.feeds.values()] == [None]
