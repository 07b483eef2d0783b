"""Books, trades, statistics and states rebuilt from bulk captures equal the generator's own bookkeeping, exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from parity.truth import RebuiltChannels, columns, compare, newest_settlements, orders_of, snapshots_of

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.market.families import LAST_PRICE
from umdf.sync.channel import Channel
from umdf.sync.session import Until

Sized = Callable[[int, int], int]
KINDS = [("sbe", "priority"), ("sbe", "position"), ("fast", "priority"), ("fast", "position")]


# The third day has a channel reset.
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full_size), 3])
@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=[f"{w}-{g}" for w, g in KINDS])
def test_a_clean_day_is_rebuilt_exactly(tmp_path: Path, sized: Sized, protocol: str, generation: str, seed: int):
    messages, instruments = sized(10_000, 5_000_000 if seed == 1 else 500_000), sized(30, 1_000)
    write_capture(
        BulkSettings(messages, instruments, protocol, generation, channel_reset=seed == 3, seed=seed), tmp_path
    )
    rebuilt = RebuiltChannels(tmp_path)
    assert not rebuilt.replayed.damaged
    [(key, channel)] = rebuilt.replayed.session.channels.items()
    assert not channel.gaps.opened
    stale = {number: reason for number in channel.instrument_ids() if (reason := channel.book_trust(number).reason)}
    assert not stale
    for name, (found, true) in compare(rebuilt, key, channel).items():
        assert true or name == "busts", name  # a short day may have none
        assert found == true, name


@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=[f"{w}-{g}" for w, g in KINDS])
def test_with_loss_nothing_wrong_is_shown_as_right(tmp_path: Path, sized: Sized, protocol: str, generation: str):
    """Every book that is not stale equals the truth; what the gaps say is what both lines lost."""
    messages, instruments = sized(20_000, 1_000_000), sized(30, 1_000)
    write_capture(BulkSettings(messages, instruments, protocol, generation, loss=0.01, seed=7), tmp_path)
    rebuilt = RebuiltChannels(tmp_path)
    [(key, channel)] = rebuilt.replayed.session.channels.items()
    both = [
        row for row in columns(rebuilt.truth("loss"), ("line", "first_sequence", "last_sequence")) if row[0] == "AB"
    ]
    assert [(gap.first, gap.last) for gap in channel.gaps.opened] == _runs(both)
    sound = {number for number in channel.instrument_ids() if channel.book_trust(number).is_healthy}
    assert len(sound) > len(channel.instrument_ids()) // 4  # healed from snapshots, most of them
    found, true = compare(rebuilt, key, channel)["orders"]
    assert [row for row in found if row[0] in sound] == [row for row in true if row[0] in sound]


STATISTIC = ("instrument_id", "stat_type", "open_close_settl_flag", "settl_price_type", "price", "size")


@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=[f"{w}-{g}" for w, g in KINDS])
def test_books_from_incrementals_equal_the_snapshots(tmp_path: Path, sized: Sized, protocol: str, generation: str):
    """At the number that a loop of snapshots says, books and statistics without snapshots are the same."""
    write_capture(BulkSettings(sized(6_000, 40_000), sized(20, 40), protocol, generation, seed=5), tmp_path)
    found = [snapshots for _, snapshots in snapshots_of(tmp_path)]
    moments = sorted({int(last) for part in found for last in part.last_sequence[part.is_complete]})
    for moment in moments[:: max(1, len(moments) // sized(2, 4))]:
        rebuilt = RebuiltChannels(tmp_path, ("instruments", "incremental"), Until(sequence=moment))
        [channel] = rebuilt.replayed.session.channels.values()
        compared = 0
        for part in found:
            chosen = part.is_complete & (part.last_sequence == moment)
            if chosen.any():
                said = Channel(channel.number)
                said.state.instruments = channel.state.instruments
                said.start_epoch(int(part.last_epoch[0]), moment + 1, 0)  # a snapshot is used once it is reached
                said.apply_snapshots(part.only(chosen))
                assert said.instrument_ids() >= set(part.instrument_id[chosen].tolist())
                ours = [row for row in orders_of(channel) if row[0] in said.instrument_ids()]
                assert ours == orders_of(said)
                assert _statistics(channel, said) == _statistics(said, said)
                compared += int(chosen.sum())
        assert compared


def _statistics(channel: Channel, of: Channel) -> list[tuple[object, ...]]:
    """Published statistics; of the last price what it is, not whether a trade or the exchange has set it."""
    tables = channel.state.to_tables()
    published = [row for row in columns(newest_settlements(tables["statistics"]), STATISTIC) if row[1] != LAST_PRICE]
    rows = published + columns(tables["last"], ("instrument_id", "price", "size"))
    return sorted((row for row in rows if row[0] in of.instrument_ids()), key=str)


def _runs(rows: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """Ranges that touch are one gap."""
    runs: list[tuple[int, int]] = []
    for _, first, last in sorted(rows, key=lambda row: row[1]):
        if runs and runs[-1][1] + 1 >= first:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs
