"""The rules of arbitration, one by one. Times are in ms; the content of a unit tells its number."""

from __future__ import annotations

import pytest
from sync.arbitration_feed import Feed, many
from sync.arbitration_lines import NEXT_VERSION, VERSION, A, B, C, Unit, data, heartbeat, requested, reset
from sync.arbitration_streams import MS, raw_units

from umdf.sync.arbitration import lines_kernel as lines_kernel
from umdf.sync.arbitration.arbiter import (
    LineArbiter,
    QuarantinedUnit,
    QuarantineReason,
    StepKind,
)


@pytest.fixture
def binary() -> Feed:
    return Feed(LineArbiter(wait_ms=20, line_timeout_ms=30_000))


@pytest.fixture
def fast() -> Feed:
    return Feed(LineArbiter(wait_ms=20, line_timeout_ms=30_000, has_versions=False))


# Order and holes


def test_each_number_comes_once_and_the_first_arrival_is_kept(binary: Feed):
    log = binary.add(data(5, 1, A), data(5, 2, B), data(6, 3, B), data(6, 4, A))
    assert log == ["EPOCH 5 of 7", "JOIN 5", "x5", "x6"]
    assert binary.results[0].units.line.tolist() == [A, B]
    assert binary.results[0].units.epoch.tolist() == [VERSION, VERSION]
    assert binary.total("duplicates") == 2 and binary.results[0].line_counts.keys() == {A, B}


def test_a_stream_that_begins_with_1_is_no_join(binary: Feed):
    assert binary.add(data(1, 1), data(2, 1)) == ["EPOCH 1 of 7", "x1", "x2"]


def test_a_packet_lost_on_one_line_is_no_gap(binary: Feed):
    assert binary.add(*many(1, 2, 1), data(4, 2)) == ["EPOCH 1 of 7", "x1", "x2"]
    assert binary.arbiter.waiting_count == 1
    assert binary.add(*many(1, 4, 3, B)) == ["x3", "x4"]


def test_a_hole_is_a_gap_after_the_wait_since_the_first_unit_beyond_it(binary: Feed):
    binary.add(*many(1, 2, 1), data(9, 2), data(5, 10, B))
    assert binary.add(data(6, 22)) == []  # a unit of that very time may still come
    assert binary.add(data(7, 22.1)) == ["GAP 3-4", "x5", "x6", "GAP 7-8", "x9", "x7*"]  # 9 was beyond both holes
    gaps = [step for step in binary.results[-1].steps if step.kind == StepKind.GAP]
    assert [(gap.first, gap.last, gap.ts_recv) for gap in gaps] == [(3, 4, 2 * MS), (7, 8, 2 * MS)]


def test_time_alone_ends_the_wait(binary: Feed):
    binary.add(*many(1, 2, 1), data(4, 2))
    assert binary.add(now=22) == []
    assert binary.add(now=22.1) == ["GAP 3", "x4"]


def test_a_late_unit_is_delivered_at_once_and_the_whole_gap_reported_as_filled(binary: Feed):
    binary.add(*many(1, 2, 1), data(6, 2), now=50)
    assert binary.add(data(4, 60, B)) == ["x4*"]
    assert binary.add(data(3, 61, B), data(4, 61, B)) == ["x3*"]
    assert binary.add(data(5, 62, A)) == ["x5*", "GAP_FILLED 3-5"]
    assert (binary.total("late"), binary.total("duplicates")) == (3, 1)


def test_the_oldest_gap_expires_if_too_many_are_open():
    feed = Feed(LineArbiter(max_open_gaps=2))
    feed.add(*many(1, 2, 1), data(4, 1), data(6, 1), data(8, 1), now=50)
    assert feed.add(data(3, 60), data(5, 60), data(7, 60)) == ["x5*", "GAP_FILLED 5", "x7*", "GAP_FILLED 7"]
    assert feed.total("late") == 3


def test_a_unit_before_the_join_is_late(binary: Feed):
    binary.add(data(50, 1), data(51, 1))
    assert binary.add(data(49, 1, B)) == [] and binary.total("late") == 1


def test_memory_is_bounded_by_giving_up_the_hole():
    feed = Feed(LineArbiter(max_held_bytes=1_000))  # 256 bytes and its content for each unit
    assert feed.add(*many(1, 2, 1), *many(4, 7, 1)) == [
        "EPOCH 1 of 7",
        "x1",
        "x2",
        "GAP 3",
        *(f"x{n}" for n in range(4, 8)),
    ]
    assert feed.arbiter.waiting_count == 0


def test_finish_turns_every_hole_into_a_gap(binary: Feed):
    binary.add(*many(1, 2, 1), data(4, 2), data(6, 2), heartbeat(9, 2))
    assert binary.finish() == ["GAP 3", "x4", "GAP 5", "x6", "GAP 7-8"]
    assert binary.finish() == []


# Heartbeats


def test_a_heartbeat_reveals_a_loss_before_silence(binary: Feed):
    binary.add(*many(1, 3, 1), heartbeat(6, 2), heartbeat(7, 15))
    assert binary.add(now=22.1) == ["GAP 4-5"]
    assert binary.add(now=35.1) == ["GAP 6"]
    assert binary.add(data(7, 36)) == ["x7"]


def test_heartbeats_of_another_epoch_reveal_nothing_until_it_is_current(binary: Feed):
    binary.add(*many(1, 3, 1, A), *many(1, 3, 1, B))
    assert binary.add(heartbeat(5, 2, A, NEXT_VERSION), heartbeat(5, 3, A, NEXT_VERSION), data(4, 50, B), now=60) == [
        "x4"
    ]
    assert binary.add(heartbeat(5, 61, B, NEXT_VERSION), now=90) == ["EPOCH 1 of 8", "GAP 1-4"]


def test_a_channel_that_only_sends_heartbeats_is_joined(binary: Feed):
    assert binary.add(heartbeat(100, 1), heartbeat(100, 1_001)) == ["EPOCH 100 of 7", "JOIN 100"]
    assert binary.add(data(100, 1_002)) == ["x100"]


# Plausibility


@pytest.mark.parametrize(
    "damaged",
    [data(11, 2, epoch=999), data(4_000_000_000, 2), data(2_000, 2), heartbeat(70_000, 2), heartbeat(12, 2, A, 999)],
    ids=["version", "number", "near miss", "heartbeat", "heartbeat version"],
)
def test_a_damaged_header_moves_nothing(binary: Feed, damaged: Unit):
    binary.add(*many(1, 10, 1))
    assert binary.add(damaged, data(11, 3), data(12, 3), now=90) == ["x11", "x12"]
    where = damaged.number, damaged.epoch, 2 * MS
    assert binary.results[-1].quarantined == [QuarantinedUnit(A, *where, QuarantineReason.CONTINUED)]
    assert binary.total("quarantined") == 1


def test_a_damaged_number_far_behind_fills_no_gap(binary: Feed):
    binary.add(*many(1, 2, 1), *many(4, 3_000, 1), now=50)
    assert binary.add(data(3, 60, name="wrong"), data(3_001, 61)) == ["x3001"]


def test_a_large_loss_is_accepted_when_a_second_unit_confirms_it(binary: Feed):
    binary.add(*many(1, 10, 1))
    assert binary.add(data(5_000, 2), now=90) == []
    assert binary.add(data(5_001, 100), now=121) == ["GAP 11-4999", "x5000", "x5001"]


def test_the_same_packet_again_confirms_nothing_on_another_line_neither(binary: Feed):
    binary.add(*many(1, 10, 1))
    assert binary.add(data(5_000, 2), data(5_000, 3), data(11, 4)) == ["x11"]
    assert binary.add(data(4_000_000_000, 5, A), data(4_000_000_000, 6, B), data(12, 7)) == ["x12"]
    assert binary.add(data(5_000, 8, A), data(5_000, 9, B), now=90) == []
    assert binary.add(data(5_001, 91, A), now=120) == ["GAP 13-4999", "x5000", "x5001"]


def test_a_channel_joins_with_the_first_packet_that_both_lines_have(binary: Feed):
    assert binary.add(data(5_000, 1, A), data(5_000, 2, B)) == ["EPOCH 5000 of 7", "JOIN 5000", "x5000"]


def test_a_damaged_first_unit_is_no_start(binary: Feed):
    log = binary.add(data(90_000, 1), data(20, 2), data(21, 3))
    assert log == ["EPOCH 20 of 7", "JOIN 20", "x20", "x21"]
    assert binary.results[-1].quarantined[0].reason == QuarantineReason.UNCONFIRMED


def test_the_only_unit_of_all_is_delivered_at_the_end(binary: Feed):
    assert binary.add(data(20, 1)) == []
    assert binary.finish() == ["EPOCH 20 of 7", "JOIN 20", "x20"]


def test_what_both_lines_have_is_delivered_at_the_end(binary: Feed):
    binary.add(*many(1, 10, 1), data(9_000, 2, A), data(9_000, 3, B))
    assert binary.finish() == ["GAP 11-8999", "x9000"]


def test_unconfirmed_candidates_are_quarantined_at_the_end(binary: Feed):
    binary.add(*many(1, 10, 1), data(9_000, 2))
    assert binary.finish() == [] and binary.results[-1].quarantined[0].reason == QuarantineReason.ENDED


def test_far_behind_in_the_same_version_is_never_a_new_position(binary: Feed):
    binary.add(*many(1, 3_000, 1))
    assert binary.add(data(5, 2), data(6, 2), data(7, 2), data(3_001, 3)) == ["x3001"]
    assert binary.total("duplicates") == 3


def test_a_further_line_may_fill_old_gaps(binary: Feed):
    binary.add(*many(1, 2, 1), *many(5, 3_000, 1), now=50)
    assert binary.add(data(3, 60, C), data(4, 60, C)) == ["x3*", "x4*", "GAP_FILLED 3-4"]
    assert binary.add(data(3_001, 61)) == ["x3001"]


# Epochs


def test_a_restart_of_the_only_line_starts_an_epoch_at_once_and_expects_1(binary: Feed):
    binary.add(*many(1, 10, 1), data(12, 1))
    new = [data(3, 2, A, NEXT_VERSION, "y"), data(4, 2, A, NEXT_VERSION, "y")]
    assert binary.add(*new, now=2) == ["GAP 11", "x12", "EPOCH 1 of 8"]
    assert binary.add(now=30) == ["GAP 1-2", "y3", "y4"]
    assert set(binary.results[-1].units.epoch.tolist()) == {NEXT_VERSION}


def test_a_line_that_restarts_alone_is_set_aside_while_the_other_continues(binary: Feed):
    binary.add(*many(1, 10, 1, A), *many(1, 10, 1, B))
    assert binary.add(*many(1, 3, 2, A, NEXT_VERSION, "y"), data(11, 3, B), data(4, 4, A, NEXT_VERSION, "y")) == ["x11"]
    assert binary.total("set_aside") == 4
    follows = [f"y{n}" for n in range(1, 6)]
    assert binary.add(*many(1, 5, 5, B, NEXT_VERSION, "y")) == ["EPOCH 1 of 8", *follows]  # both moved


def test_a_silent_line_does_not_keep_the_old_epoch(binary: Feed):
    binary.add(*many(1, 10, 1, A), *many(1, 10, 1, B))
    assert binary.add(*many(1, 2, 2, A, NEXT_VERSION, "y"), now=30_000) == []
    assert binary.add(data(3, 30_001, A, NEXT_VERSION, "y")) == []  # B is still alive
    assert binary.add(data(4, 30_001.1, A, NEXT_VERSION, "y")) == ["EPOCH 1 of 8", "y1", "y2", "y3", "y4"]


def test_a_line_that_comes_back_is_used_again(binary: Feed):
    binary.add(*many(1, 10, 1, A), *many(1, 10, 1, B), *many(1, 3, 2, A, NEXT_VERSION, "y"))
    assert binary.add(data(11, 3, A), data(11, 4, B)) == ["x11"]
    assert binary.results[-1].units.line.tolist() == [A]


def test_an_epoch_that_returns_delivers_nothing_twice(binary: Feed):
    binary.add(*many(1, 10, 1), *many(1, 2, 2, A, NEXT_VERSION, "y"))
    assert binary.add(*many(9, 12, 3)) == ["EPOCH 11 of 7", "x11", "x12"]


def test_what_is_set_aside_is_bounded():
    feed = Feed(LineArbiter(max_aside_bytes=1_000))
    feed.add(*many(1, 10, 1, A), *many(1, 10, 1, B), *many(1, 9, 2, A, NEXT_VERSION, "y"))
    assert feed.add(*many(9, 10, 3, B, NEXT_VERSION, "y"), now=60) == [
        "EPOCH 1 of 8",
        "GAP 1-6",
        "y7",
        "y8",
        "y9",
        "y10",
    ]


def test_resets_of_both_lines_join_one_epoch(fast: Feed):
    assert fast.add(*many(1, 10, 1, A), *many(1, 10, 1, B))[0] == "EPOCH 1 of 0"
    assert fast.add(reset(2, A), *many(1, 2, 2, A, name="y"), data(11, 2, B)) == ["x11"]
    assert fast.add(reset(3, B), *many(1, 3, 3, B, name="y")) == ["EPOCH 1 of 1", "y1", "y2", "y3"]
    assert fast.add(data(3, 4, A, name="y"), data(4, 4, A, name="y")) == ["y4"]


def test_what_was_requested_fills_gaps_and_nothing_else(fast: Feed):
    fast.add(*many(1, 2, 1), *many(5, 6, 2), data(7, 30))
    assert fast.add(requested(3, 31), requested(3, 32), requested(6, 33), requested(9, 34)) == ["x3*"]
    assert fast.add(requested(4, 35), data(8, 36)) == ["x4*", "GAP_FILLED 3-4", "x8"]


def test_a_replayer_does_not_hold_up_a_restart_and_fills_gaps_of_the_new_epoch(fast: Feed):
    fast.add(*many(1, 5, 1), *many(7, 8, 2), data(9, 30))
    assert fast.add(requested(6, 31)) == ["x6*", "GAP_FILLED 6"]
    log = fast.add(reset(32), *many(1, 2, 33, name="y"), data(4, 34, name="y"), data(5, 60, name="y"))
    assert log == ["EPOCH 1 of 1", "y1", "y2", "GAP 3", "y4", "y5"]
    assert fast.add(requested(3, 61, name="y")) == ["y3*", "GAP_FILLED 3"]


def test_a_unit_that_is_late_behind_a_reset_is_no_jump_of_the_new_numbering(fast: Feed):
    fast.add(*many(498, 500, 1))
    fast.add(reset(2), *many(1, 2, 3, name="y"))
    assert fast.add(data(499, 100), data(500, 101), data(3, 102, name="y")) == ["y3"]
    assert fast.total("late") == 2
    assert fast.add(data(500, 1_100, name="y"), data(501, 1_101, name="y"), now=1_200) == ["GAP 4-499", "y500", "y501"]


def test_copies_that_come_far_too_late_are_no_restart(fast: Feed):
    fast.add(*many(1, 3_000, 1))
    fast.add(*many(1, 3_000, 2, B))
    assert fast.add(data(5, 3), data(9, 3), data(5, 4, B), data(7, 4, B), data(3_001, 5)) == ["x3001"]
    assert fast.total("duplicates") == 3_004


def test_units_of_gaps_that_come_far_too_late_are_no_restart_unless_they_follow_each_other(fast: Feed):
    fast.add(*many(1, 2, 1), *many(11, 3_000, 1), now=50)
    assert fast.add(data(9, 60), data(5, 60), data(3_001, 61)) == ["x3001"]
    log = fast.add(data(3, 62, name="y"), data(4, 62, name="y"), data(5, 62, name="y"), now=90)
    assert log == ["EPOCH 1 of 1", "GAP 1-2", "y3", "y4", "y5"]


def test_a_repeated_reset_is_no_other_reset(fast: Feed):
    fast.add(*many(1, 10, 1))
    log = fast.add(reset(2), data(1, 2, name="y"), reset(2), data(2, 2, name="y"))
    assert log == ["EPOCH 1 of 1", "y1", "y2"]


@pytest.mark.parametrize("position", [1_501, 70_000])
def test_renumbered_messages_after_a_lost_reset_are_delivered_in_a_new_epoch(fast: Feed, position: int):
    fast.add(*many(position - 400, position, 1))
    assert fast.add(*many(1, 500, 2, name="y")) == ["EPOCH 1 of 1", *(f"y{n}" for n in range(1, 501))]


def test_a_lost_reset_is_found_by_content_close_to_the_position(fast: Feed):
    fast.add(*many(1, 500, 1))
    assert fast.add(*many(1, 500, 2, name="y")) == ["EPOCH 1 of 1", *(f"y{n}" for n in range(1, 501))]


# Conflicts


def test_a_number_with_two_contents_is_reported_and_both_are_delivered(binary: Feed):
    binary.add(*many(1, 10, 1))
    assert binary.add(data(10, 2, B, name="z"), data(10, 3, B, name="z"), data(11, 4)) == ["GAP 10", "z10*", "x11"]
    assert binary.total("conflicts") == 2


def test_a_contradiction_of_a_unit_that_waits_is_reported_with_it(binary: Feed):
    binary.add(*many(1, 10, 1), data(12, 2, A))
    assert binary.add(data(12, 3, B, name="z"), data(11, 4)) == ["x11", "x12", "GAP 12", "z12*"]


def test_a_line_that_always_contradicts_is_set_aside_until_it_agrees(binary: Feed):
    binary.add(*many(1, 20, 1, A))
    binary.add(*many(1, 9, 2, B, name="z"))
    assert (binary.total("conflicts"), binary.total("set_aside")) == (8, 1)
    assert binary.add(data(21, 3, B)) == []
    assert binary.add(*many(10, 17, 3, B), data(21, 4, B)) == ["x21"]


def test_contents_are_remembered_for_65_536_numbers(binary: Feed):
    binary.add(*many(1, 65_537, 1, A), *many(1, 20, 2, C, name="z"))
    assert binary.total("conflicts") == 8  # from 2 on, until the line is misaligned
    assert binary.total("duplicates") == 1


def test_unknown_content_contradicts_nothing(binary: Feed):
    binary.add(*many(1, 10, 1))
    assert binary.add(data(10, 2, B, name="z")._replace(content_key=0)) == []
    assert binary.total("duplicates") == 1


# Around it


def test_a_state_continues_where_it_was_stored(binary: Feed):
    binary.add(*many(1, 10, 1, A), data(10, 1, B), data(12, 2), data(1, 2, B, NEXT_VERSION, "y"))
    state = binary.arbiter.to_state()
    for arbiter in (binary.arbiter, LineArbiter.from_state(state), LineArbiter.from_state(state)):
        feed = Feed(arbiter)
        assert feed.add(data(11, 3, A), *many(2, 3, 3, B, NEXT_VERSION, "y")) == ["x11", "x12"]
        assert feed.total("set_aside") == 3


def test_more_lines_than_it_can_follow_are_quarantined(binary: Feed):
    binary.add(*many(1, 10, 1))
    log = binary.add(*(data(11, 2, line) for line in range(1, 70)), data(12, 3))
    assert log == ["x11", "x12"]
    assert {unit.reason for unit in binary.results[-1].quarantined} == {QuarantineReason.TOO_MANY_LINES}


def test_columns_of_any_layout_are_accepted(binary: Feed):
    units = raw_units([unit for number in range(1, 5) for unit in (data(number, 1), data(number, 1, B))])
    binary.results.append(binary.arbiter.arbitrate(units.take(slice(0, None, 2)), 2 * MS))
    assert binary.log() == ["EPOCH 1 of 7", "x1", "x2", "x3", "x4"]


def test_units_outside_their_buffer_have_no_bytes(binary: Feed):
    units = raw_units(many(1, 3, 1))
    units.end[2] = 10**9
    assert binary.arbiter.arbitrate(units, MS).units.end.tolist()[2] == 0


def test_the_reasons_are_those_of_the_kernel():
    assert all(getattr(lines_kernel, reason.name) == reason for reason in QuarantineReason)
