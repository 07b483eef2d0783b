"""A channel through gaps, late joins, snapshots and restarts: nothing wrong is shown as right."""

from __future__ import annotations

import numpy as np

from umdf.market.families import FAMILIES, MBO, NEW, NULL, SNAPSHOT
from umdf.market.rows import Events, RepeatingGroup, Rows, Units
from umdf.sync.arbitration import Gap
from umdf.sync.channel import Channel
from umdf.sync.snapshots import Snapshots, find_snapshots

PETR4, VALE3 = 5, 6
TICK = 10_000_000


def rows(family: str, found: list[dict[str, int]]) -> Rows:
    """One row a unit, in this order."""
    kind = FAMILIES[family]
    names = {name for row in found for name in row}
    columns = {name: np.array([row.get(name, kind.column(name).null) for row in found]) for name in names}
    typed = {name: values.astype(kind.column(name).dtype) for name, values in columns.items()}
    zeros = np.zeros(len(found), np.uint16)
    return Rows(kind, np.arange(len(found), dtype=np.uint32), zeros, zeros, typed)


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
    common = {"instrument_id": instrument, "flags": SNAPSHOT}
    start = {"action": ord("R"), "side": ord("N"), "rpt_seq": rpt_seq}
    entries = [
        {"action": ord("A"), "side": ord("B"), "update_action": NEW, "order_id": i, "price": i * TICK, "size": 100}
        for i in order_ids
    ]
    book = rows("mbo", [row | common for row in (start, *entries)])
    header = {"instrument_id": instrument, "last_sequence": last, "last_rpt_seq": rpt_seq, "last_seq_version": epoch}
    units = Units(*[np.zeros(len(book), np.int64)] * 5)
    return find_snapshots(Events(units, {"snapshot": rows("snapshot", [header]), "mbo": book}))


def bids(channel: Channel, instrument: int) -> list[int | None]:
    book = channel.book(instrument)
    assert book is not None
    return [order.order_id for level in book.bids for order in level.orders]


def test_a_book_whose_first_update_is_known_is_healthy():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10), (PETR4, 2, 11)))
    assert channel.distrust_reason(PETR4) is None
    assert bids(channel, PETR4) == [11, 10]


def test_a_book_that_starts_in_the_middle_is_stale_until_a_snapshot_comes():
    channel = Channel(72)
    channel.apply_incremental(events(500, (PETR4, 40, 10)))
    assert "starts at rpt_seq 40" in str(channel.distrust_reason(PETR4))
    channel.apply_snapshots(snapshot(PETR4, 500, 40, 3, 10))
    assert channel.distrust_reason(PETR4) is None
    assert bids(channel, PETR4) == [10, 3]


def test_what_came_after_an_older_snapshot_is_applied_again():
    channel = Channel(72)
    channel.apply_incremental(events(500, (PETR4, 40, 10), (VALE3, 1, 77), (PETR4, 41, 11)))
    channel.apply_snapshots(snapshot(PETR4, 499, 39, 3))
    assert channel.distrust_reason(PETR4) is None
    assert bids(channel, PETR4) == [11, 10, 3]
    assert bids(channel, VALE3) == [77]


def test_a_snapshot_that_is_ahead_waits_for_its_number():
    channel = Channel(72)
    channel.apply_incremental(events(500, (PETR4, 40, 10)))
    channel.apply_snapshots(snapshot(PETR4, 502, 42, 12))
    assert channel.distrust_reason(PETR4) is not None
    channel.apply_incremental(events(501, (PETR4, 41, 11), (PETR4, 42, 12), (PETR4, 43, 13)))
    assert channel.distrust_reason(PETR4) is None
    assert bids(channel, PETR4) == [13, 12]


def test_after_a_gap_an_instrument_is_in_doubt_until_its_updates_follow_on():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10), (VALE3, 1, 20)))
    channel.apply_gap(Gap(1, 3, 3, 0))
    assert "sequence 3" in str(channel.distrust_reason(PETR4)) and "sequence 3" in str(channel.distrust_reason(VALE3))
    channel.apply_incremental(events(4, (PETR4, 2, 11)))
    assert channel.distrust_reason(PETR4) is None
    assert channel.distrust_reason(VALE3) is not None


def test_a_gap_that_touched_an_instrument_makes_its_book_stale():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10)))
    channel.apply_gap(Gap(1, 2, 2, 0))
    channel.apply_incremental(events(3, (PETR4, 3, 12)))
    assert str(channel.distrust_reason(PETR4)) == "rpt_seq 3 after 1"
    channel.apply_snapshots(snapshot(PETR4, 3, 3, 10, 11, 12))
    assert channel.distrust_reason(PETR4) is None and channel.recovered == 1


def test_a_snapshot_from_before_the_gap_recovers_nothing():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10)))
    channel.apply_gap(Gap(1, 2, 2, 0))
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 10))
    assert channel.distrust_reason(PETR4) is not None
    channel.apply_snapshots(snapshot(PETR4, 2, 1, 10))
    assert channel.distrust_reason(PETR4) is None


def test_snapshots_do_not_touch_a_sound_book():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10)))
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 99))
    assert bids(channel, PETR4) == [10] and channel.recovered == 0


def test_numbering_that_begins_anew_starts_books_from_nothing():
    channel = Channel(72)
    channel.apply_incremental(events(1, (PETR4, 1, 10)))
    channel.apply_incremental(events(1, (PETR4, 1, 30), epoch=2))
    assert bids(channel, PETR4) == [30]
    channel.apply_snapshots(snapshot(VALE3, 1, 9, 50, epoch=1))  # of the numbering before: not to be used
    assert channel.book(VALE3) is None


def test_an_incomplete_snapshot_is_not_used():
    channel = Channel(72)
    found = snapshot(PETR4, 10, 5, 1)
    found.is_complete[:] = False
    channel.apply_snapshots(found)
    assert channel.book(PETR4) is None


def test_books_are_built_from_snapshots_alone():
    channel = Channel(72)
    channel.apply_snapshots(snapshot(PETR4, 10, 5, 1, 2))
    assert bids(channel, PETR4) == [2, 1]
    assert MBO.name == "mbo" and channel.distrust_reason(PETR4) is None


def test_a_lending_book_is_shown_and_goes_with_its_instrument():
    channel = Channel(61)
    lent = events(1, (PETR4, 1, 10))
    lent.rows("mbo").columns["venue"] = np.array([ord("L")], np.uint8)
    feeds = RepeatingGroup(np.array([0, 1], np.int32), {"channel": np.array([61], np.int16), "depth": np.array([0])})
    definition = rows("definition", [{"instrument_id": PETR4, "action": ord("A")}])
    definition.lists["feeds"] = feeds
    channel.apply_instruments(Events(lent.units, {"definition": definition}))
    channel.apply_incremental(lent)
    assert bids(channel, PETR4) == [10] and channel.distrust_reason(PETR4) is None
    deletion = rows("definition", [{"instrument_id": PETR4, "action": ord("D")}])
    channel.apply_incremental(Events(events(2, (PETR4, 2, 11)).units, {"definition": deletion}))
    assert channel.book(PETR4) is None
