"""A channel through gaps, late joins, snapshots and restarts: nothing wrong is shown as right."""

from __future__ import annotations

import numpy as np

from umdf.market.families import FAMILIES, NEW, NULL, SNAPSHOT
from umdf.market.rows import Events, RepeatingGroup, Rows, Units
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.rpt_seq_kernel import SHORT_HISTORY
from umdf.sync.snapshots import Snapshots, find_snapshots
from umdf.sync.trust import TrustLevel

PETR4, VALE3 = 5, 6
TICK = 10_000_000


def rows(family: str, found: list[dict[str, int]]) -> Rows:
    kind = FAMILIES[family]
    names = {name for row in found for name in row}
    known = {name: kind.column(name) for name in names}
    columns = {name: np.array([row.get(name, of.null) for row in found], of.dtype) for name, of in known.items()}
    zeros = np.zeros(len(found), np.uint16)
    return Rows(kind, np.arange(len(found), dtype=np.uint32), zeros, zeros, columns)


def events(first: int, *orders: tuple[int, int, int], epoch: int = 1) -> Events:
    """New bids (instrument, rpt_seq, order id), a packet each, from this sequence on."""
    found = [
        {
            "action": ord("A"),
            "side": ord("B"),
            "update_action": NEW,
            "instrument_id": instrument,
            "rpt_seq": rpt_seq,
            "order_id": order_id,
            "price": order_id * TICK,
            "size": 100,
            "flags": 128,
        }
        for instrument, rpt_seq, order_id in orders
    ]
    numbers = first + np.arange(len(orders))
    channel, epochs = np.full(len(orders), 72, np.int16), np.full(len(orders), epoch)
    return Events(Units(channel, epochs, numbers, numbers * 1000, numbers * 1000), {"mbo": rows("mbo", found)})


def snapshot(instrument: int, last: int, rpt_seq: int, *order_ids: int, epoch: int = NULL) -> Snapshots:
    """A snapshot with these bids, as of the sequence `last`."""
    start = {"action": ord("R"), "side": ord("N"), "rpt_seq": rpt_seq}
    entries = [
        {"action": ord("A"), "side": ord("B"), "update_action": NEW, "order_id": i, "price": i * TICK, "size": 100}
        for i in order_ids
    ]
    book = rows("mbo", [row | {"instrument_id": instrument, "flags": SNAPSHOT} for row in (start, *entries)])
    header = {"instrument_id": instrument, "last_sequence": last, "last_rpt_seq": rpt_seq, "last_seq_version": epoch}
    units = Units(*[np.zeros(len(book), np.int64)] * 5)
    return find_snapshots(Events(units, {"snapshot": rows("snapshot", [header]), "mbo": book}))


def bids(channel: Channel, instrument: int) -> list[int | None]:
    book = channel.book(instrument)
    assert book is not None
    return [order.order_id for level in book.bids for order in level.orders]


def started(first: int = 1, *orders: tuple[int, int, int]) -> Channel:
    """A channel whose first unit has this sequence, with these bids."""
    channel = Channel(72)
    channel.start_epoch(1, first, 0)
    channel.apply(events(first, *orders))
    return channel


def trust(channel: Channel, instrument: int) -> tuple[TrustLevel, str | None]:
    found = channel.book_trust(instrument)
    return found.level, found.reason


def empty_book(sequence: int, instrument: int) -> Events:
    row = {"action": ord("R"), "side": ord("N"), "instrument_id": instrument, "flags": 128}
    number = np.array([sequence])
    return Events(Units(np.array([72], np.int16), number * 0 + 1, number, number, number), {"mbo": rows("mbo", [row])})


def channel_reset(sequence: int) -> Events:
    return empty_book(sequence, NULL)


def definitions(channel: int, *instruments: int) -> Events:
    """Of instruments with books of orders on this channel."""
    count = len(instruments)
    feeds = {"channel": np.full(count, channel, np.int16), "depth": np.zeros(count, np.int32)}
    found = rows("definition", [{"instrument_id": number, "action": ord("A")} for number in instruments])
    found.lists["feeds"] = RepeatingGroup(np.arange(count + 1, dtype=np.int32), feeds)
    return Events(Units(*[np.zeros(count, np.int64)] * 5), {"definition": found})


def test_a_book_whose_first_update_is_known_is_healthy():
    channel = started(1, (PETR4, 1, 10), (PETR4, 2, 11))
    assert trust(channel, PETR4) == (TrustLevel.HEALTHY, None)
    assert bids(channel, PETR4) == [11, 10]


def test_a_book_that_starts_in_the_middle_is_stale_until_a_snapshot_comes():
    channel = started(500, (PETR4, 40, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE and "starts at rpt_seq 40" in str(trust(channel, PETR4)[1])
    channel.apply_snapshots(snapshot(PETR4, 500, 40, 3, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert bids(channel, PETR4) == [10, 3]


def test_an_instrument_that_was_never_heard_of_since_a_late_start_is_unverified():
    channel = started(500, (PETR4, 1, 10))
    assert trust(channel, VALE3) == (TrustLevel.UNVERIFIED, "nothing was received before sequence 500")


def test_updates_that_waited_follow_their_snapshot_once():
    channel = started(500, (PETR4, 40, 10), (VALE3, 1, 77), (PETR4, 41, 11))
    assert channel.book(PETR4) is None or bids(channel, PETR4) == []
    channel.apply_snapshots(snapshot(PETR4, 499, 39, 3))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert bids(channel, PETR4) == [11, 10, 3]
    assert bids(channel, VALE3) == [77]


def test_a_snapshot_from_before_the_join_leaves_the_hole_between():
    channel = started(500, (VALE3, 1, 77))
    channel.apply_snapshots(snapshot(PETR4, 450, 39, 3))
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
    channel.apply(events(501, (PETR4, 41, 11)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE  # 40 was in the hole
    channel.apply_snapshots(snapshot(PETR4, 501, 41, 3, 11))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_snapshot_that_is_ahead_waits_for_its_number():
    channel = started(500, (PETR4, 40, 10))
    channel.apply_snapshots(snapshot(PETR4, 502, 42, 12))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply(events(501, (PETR4, 41, 11), (PETR4, 42, 12), (PETR4, 43, 13)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert bids(channel, PETR4) == [13, 12]


def test_snapshots_that_there_is_no_room_for_are_as_good_as_lost():
    channel = started(1, *((PETR4, number, number) for number in range(1, 41)))
    channel.open_gap(Gap(1, 41, 41, 0))
    channel._queue.max_bytes = 3_000
    for ahead in range(50, 60):
        channel.apply_snapshots(snapshot(100 + ahead, ahead, 1, 7))
    channel.apply_snapshots(snapshot(PETR4, 60, 41, *range(1, 42)))
    assert channel.dropped_snapshots >= 5 and sum(each.nbytes for each in channel._queue._snapshots) <= 3_000
    channel.apply(events(42, *((VALE3, number, number) for number in range(1, 20))))
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED  # its snapshot was dropped, or is not due
    assert trust(channel, 150)[0] == TrustLevel.UNVERIFIED
    for instrument in (PETR4, 150):  # the next loop
        channel.apply_snapshots(snapshot(instrument, 60, 41, *range(1, 42)))
        assert trust(channel, instrument)[0] == TrustLevel.HEALTHY


def test_a_snapshot_that_was_dropped_still_shows_a_loss_at_the_end():
    channel = started(1, (PETR4, 1, 10))
    channel._queue.max_bytes = 0
    channel.apply_snapshots(snapshot(PETR4, 4, 3, 10, 11))
    assert channel.dropped_snapshots == 1 and not channel._queue
    channel.finish()
    assert [(gap.first, gap.last) for gap in channel.gaps.opened] == [(2, 4)]


def test_at_the_end_a_snapshot_that_is_ahead_shows_a_loss():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.apply_snapshots(snapshot(PETR4, 9, 3, 10, 11, 12))
    channel.finish()
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [12, 11, 10]
    assert trust(channel, VALE3)[0] == TrustLevel.UNVERIFIED


def test_after_a_gap_an_instrument_is_unverified_until_its_updates_follow_on():
    first = [(PETR4, number, number) for number in range(1, SHORT_HISTORY + 2)]
    channel = started(1, *first, (VALE3, 1, 20))
    last = channel.sequence
    channel.open_gap(Gap(1, last + 1, last + 1, 0))
    assert all(f"sequence {last + 1}" in str(trust(channel, number)[1]) for number in (PETR4, VALE3))
    channel.apply(events(last + 2, (PETR4, SHORT_HISTORY + 2, 90)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert trust(channel, VALE3)[0] == TrustLevel.UNVERIFIED


def test_few_updates_that_follow_on_do_not_prove_that_no_empty_book_was_lost():
    channel = started(1, (PETR4, 1, 10), (PETR4, 2, 11))
    channel.open_gap(Gap(1, 3, 5, 0))  # J, and two orders with RptSeq 1 and 2
    for number in range(3, SHORT_HISTORY + 5):
        channel.apply(events(number + 3, (PETR4, number, number + 20)))
        assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
    channel.apply_snapshots(snapshot(PETR4, channel.sequence, SHORT_HISTORY + 4, 30, 31, 32))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [32, 31, 30]


def test_a_unit_with_two_contents_leaves_what_it_concerns_stale_until_a_snapshot():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20), (PETR4, 2, 11))
    channel.contradict(3, events(3, (PETR4, 2, 12)))
    assert trust(channel, PETR4) == (TrustLevel.STALE, "an update came with two contents: one of the lines was damaged")
    channel.apply(events(4, (PETR4, 3, 13), (VALE3, 2, 21)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE and bids(channel, PETR4) == [11, 10]
    channel.apply_snapshots(snapshot(PETR4, 3, 2, 10, 12))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [13, 12, 10]


def test_a_gap_that_affected_an_instrument_makes_its_book_stale_and_it_stays_as_it_was():
    channel = started(1, (PETR4, 1, 10))
    channel.open_gap(Gap(1, 2, 2, 0))
    channel.apply(events(3, (PETR4, 3, 12)))
    assert trust(channel, PETR4) == (TrustLevel.STALE, "rpt_seq 3 after 1")
    assert bids(channel, PETR4) == [10]
    channel.apply_snapshots(snapshot(PETR4, 3, 3, 10, 11, 12))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and channel.recovered == 1


def test_an_empty_book_lost_in_a_gap_does_not_make_lower_numbers_old():
    channel = started(1, (PETR4, 1, 10), (PETR4, 2, 11), (PETR4, 3, 12))
    channel.open_gap(Gap(1, 4, 4, 0))  # J and the first resent order
    channel.apply(events(5, (PETR4, 2, 30)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, 5, 2, 29, 30))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [30, 29]


def test_an_empty_book_recovers_the_book_but_not_the_statistics_that_a_lost_reset_may_have_cleared():
    channel = started(1, (PETR4, 1, 10))
    channel.open_gap(Gap(1, 2, 2, 0))
    channel.apply(empty_book(3, PETR4))
    channel.apply(events(4, (PETR4, 1, 30)))
    assert bids(channel, PETR4) == [30]
    assert "statistics" in str(trust(channel, PETR4)[1])
    channel.apply_snapshots(snapshot(PETR4, 4, 1, 30))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_channel_reset_empties_every_book_and_answers_every_gap():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.open_gap(Gap(1, 3, 3, 0))
    channel.apply(events(4, (VALE3, 9, 21)))
    channel.apply(channel_reset(5))
    assert [trust(channel, number)[0] for number in (PETR4, VALE3, 99)] == [TrustLevel.HEALTHY] * 3
    channel.apply(events(6, (PETR4, 1, 30)))
    assert bids(channel, PETR4) == [30] and bids(channel, VALE3) == []


def test_a_late_unit_recovers_the_book_that_lacked_it():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.open_gap(Gap(1, 3, 3, 0))
    channel.apply(events(4, (PETR4, 3, 12), (PETR4, 4, 13)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_late(events(3, (PETR4, 2, 11)))
    assert [trust(channel, number)[0] for number in (PETR4, VALE3)] == [TrustLevel.HEALTHY] * 2
    assert bids(channel, PETR4) == [13, 12, 11, 10]


def test_half_of_a_gap_that_comes_late_leaves_the_other_half():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.open_gap(Gap(1, 3, 4, 0))
    channel.apply(events(5, (PETR4, 4, 13)))
    channel.apply_late(events(4, (PETR4, 3, 12)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE and trust(channel, VALE3)[0] == TrustLevel.UNVERIFIED
    channel.apply_late(events(3, (PETR4, 2, 11)))
    assert [trust(channel, number)[0] for number in (PETR4, VALE3)] == [TrustLevel.HEALTHY] * 2
    assert bids(channel, PETR4) == [13, 12, 11, 10]


def test_a_late_unit_of_an_instrument_that_is_deleted_by_now_does_not_create_it_again():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.open_gap(Gap(1, 3, 3, 0))
    deletion = events(4, (PETR4, 2, 2))
    deletion.families = {"definition": rows("definition", [{"instrument_id": PETR4, "action": ord("D")}])}
    channel.apply(deletion)
    assert channel.instrument_ids() == {VALE3}
    channel.apply_late(events(3, (PETR4, 2, 11)))
    assert channel.instrument_ids() == {VALE3} and not channel.gaps.is_missing(3)


def test_a_snapshot_from_before_a_deletion_does_not_create_the_instrument_again():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    deletion = events(3, (PETR4, 2, 2))
    deletion.families = {"definition": rows("definition", [{"instrument_id": PETR4, "action": ord("D")}])}
    channel.apply(deletion)
    channel.apply_snapshots(snapshot(PETR4, 2, 1, 10))
    assert channel.instrument_ids() == {VALE3}


def test_a_snapshot_recovers_nothing_if_updates_after_it_were_dropped_for_lack_of_memory():
    channel = started(500, (PETR4, 40, 10))
    channel._updates.waiting.max_bytes = 5_000
    for number in range(41, 140):
        channel.apply(events(460 + number, (PETR4, number, number)))
    dropped = channel._updates.waiting.dropped_until(PETR4)
    assert 500 < dropped < channel.sequence == 599
    channel.apply_snapshots(snapshot(PETR4, dropped - 1, dropped - 461, 7))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, dropped, dropped - 460, 7))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4)[0] == 139


def test_a_snapshot_from_before_updates_that_were_all_dropped_recovers_nothing():
    channel = started(500, (PETR4, 40, 10))
    channel._updates.waiting.max_bytes = 0
    channel.apply(events(501, (PETR4, 41, 41), (PETR4, 42, 42)))
    channel.apply_snapshots(snapshot(PETR4, 501, 41, 7))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, 502, 42, 8))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [8]


def test_an_impossible_update_makes_the_book_stale_and_what_follows_waits():
    channel = started(1, (PETR4, 1, 10))
    twice = events(2, (PETR4, 2, 10), (PETR4, 3, 11))  # order 10 is already there
    channel.apply(twice)
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, 2, 2, 9, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [11, 10, 9]


def test_a_snapshot_shows_that_a_gap_did_not_affect_an_instrument():
    channel = started(1, (PETR4, 1, 10))
    channel.open_gap(Gap(1, 2, 4, 0))
    channel.apply_snapshots(snapshot(PETR4, 3, 1, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED  # 4 is not covered
    channel.apply_snapshots(snapshot(PETR4, 4, 1, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_snapshot_older_than_the_book_is_not_used():
    channel = started(1, (PETR4, 1, 10), (PETR4, 2, 11))
    channel.open_gap(Gap(1, 3, 3, 0))
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 10))
    assert bids(channel, PETR4) == [11, 10] and trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED


def test_after_a_new_epoch_nothing_of_the_old_one_is_certain():
    channel = started(1, (PETR4, 1, 10), (VALE3, 1, 20))
    channel.start_epoch(2, 1, 5)
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
    channel.apply(events(1, (PETR4, 1, 30), (VALE3, 9, 21), epoch=2))
    # The book is known, the statistics of the session are not: they come with the snapshot.
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, "a message was lost that may have reset its statistics")
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 30))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and bids(channel, PETR4) == [30]
    assert trust(channel, VALE3)[0] == TrustLevel.STALE


def test_an_incomplete_snapshot_is_not_used():
    channel = started(500, (VALE3, 1, 20))
    found = snapshot(PETR4, 500, 5, 1)
    found.is_complete[:] = False
    channel.apply_snapshots(found)
    assert channel.book(PETR4) is None


def test_snapshots_do_not_touch_a_healthy_book():
    channel = started(1, (PETR4, 1, 10))
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 99))
    assert bids(channel, PETR4) == [10] and channel.recovered == 0


def test_a_lending_book_is_shown_and_goes_with_its_instrument():
    channel = Channel(61)
    channel.start_epoch(1, 1, 0)
    lent = events(1, (PETR4, 1, 10))
    lent.rows("mbo").columns["venue"] = np.array([ord("L")], np.uint8)
    channel.apply_instruments(definitions(61, PETR4))
    channel.apply(lent)
    assert bids(channel, PETR4) == [10] and trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    deletion = rows("definition", [{"instrument_id": PETR4, "action": ord("D")}])
    channel.apply(Events(events(2, (PETR4, 2, 11)).units, {"definition": deletion}))
    assert channel.book(PETR4) is None


def test_books_that_definitions_create_have_trust_of_their_own():
    many = range(1, 300)
    channel = Channel(72)
    channel.start_epoch(1, 1, 0)
    channel.apply_instruments(definitions(72, *many))
    for rpt_seq in (1, 2):
        channel.apply(events(channel.sequence + 1, *((number, rpt_seq, 10 * number + rpt_seq) for number in many)))
        assert len(channel.trust.states) == channel.books.arenas.book_capacity >= len(many)
    assert {trust(channel, number) for number in many} == {(TrustLevel.HEALTHY, None)}


def test_trades_before_a_late_start_are_missing_from_books_that_are_created_after_a_channel_reset():
    channel = started(500)
    channel.apply(channel_reset(500))
    channel.apply_instruments(definitions(72, PETR4))
    channel.apply_snapshots(snapshot(VALE3, 500, 0))
    assert channel.trades_incomplete(PETR4) and channel.trades_incomplete(VALE3)
