"""A session that is stored and restored goes on as one that was not: at any place of faulty streams.

UMDF_SEED=7 repeats one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from sync.recorded_days import CHANNELS, view_of
from sync.recorded_days import Client as RecordedClient
from sync.test_trust_model import SEEDS, Client, report, scenario
from sync.test_trust_scenarios import recorded
from sync.trust_scenarios import SCENARIOS

from umdf.errors import UmdfError
from umdf.sync.channel import Channel
from umdf.sync.session import Session
from umdf.sync.state.plain_values import restore, store
from umdf.sync.state.session_state import restore_session, store_session

Sized = Callable[[int, int], int]
# Of every kind of what waits: updates, snapshots that are ahead, units of a line set aside, chunks, late units.
FAULTS = (
    "many losses",
    "packets that overtake each other by far",
    "late Empty Book",
    "late join, late snapshots",
    "new numbering, whose reset is lost on one line",
)


def stored_and_restored(session: Session, new: Session) -> Channel:
    restore_session(new, store_session(session))
    [channel] = new.channels.values()
    return channel


def counts(channel: Channel) -> tuple[Any, ...]:
    """What a channel counts, and where it is."""
    gaps = channel.gaps.opened, channel.gaps.filled_count
    return channel.epoch, channel.sequence, channel.ts_send, channel.recovered, channel.messages, gaps, channel.deleted


def test_a_session_goes_on_where_it_was_stored(sized: Sized) -> None:
    for seed in SEEDS or range(sized(3, 300)):
        case, random = scenario(seed), Random(seed)
        whole, cut, first = Client(), Client(), 0
        while first < len(case.received):
            size = random.choice((1, 1, 3, 20))
            for client in (whole, cut):
                client.feed(case.received[first : first + size])
            first += size
            if random.random() < 0.3:
                new = Client()
                new.channel = stored_and_restored(cut.session, new.session)
                cut = new
            where = f"seed {seed}, packet {first}"
            assert counts(cut.channel) == counts(whole.channel), where
            if whole.channel.epoch is not None:
                assert report(cut.channel) == report(whole.channel), where
        for client in (whole, cut):
            client.session.finish()
        assert report(cut.channel) == report(whole.channel), f"seed {seed}, at the end"


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("kind", CHANNELS)
def test_sessions_of_every_kind_go_on(kind: str, name: str, sized: Sized) -> None:
    if sized(1, 0) and (list(CHANNELS).index(kind) + FAULTS.index(name)) % len(FAULTS):
        pytest.skip("only at full size: make soak")
    day, random = recorded(SCENARIOS[name].day)[kind], Random(name)
    packets = SCENARIOS[name].apply(day, random)
    if packets is None:
        pytest.skip(f"{kind} sends nothing that {name!r} concerns")
    whole, cut, first = RecordedClient(day.settings), RecordedClient(day.settings), 0
    while first < len(packets):
        size = random.randint(1, 60)
        for client in (whole, cut):
            client.feed(packets[first : first + size])
        first += size
        if random.random() < 0.3:
            new = RecordedClient(day.settings)
            new.channel = stored_and_restored(cut.session, new.session)
            cut = new
        assert shown(cut.channel, day.ids) == shown(whole.channel, day.ids), first
    for client in (whole, cut):
        client.session.finish()
    assert shown(cut.channel, day.ids) == shown(whole.channel, day.ids)


def shown(channel: Channel, ids: list[int]) -> tuple[Any, ...]:
    def trusts(number: int) -> tuple[Any, ...]:
        return channel.book_trust(number), channel.state_trust(number), channel.definition_trust(number)

    instruments = channel.state.instruments
    return counts(channel), [
        (instruments.get(number), view_of(channel, number), trusts(number), channel.trades_incomplete(number))
        for number in ids
    ]


def test_a_damaged_state_and_one_of_other_streams_are_refused() -> None:
    content = store_session(Client().session)
    with pytest.raises(UmdfError, match="damaged"):
        restore_session(Client().session, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UmdfError, match="other streams"):
        restore_session(RecordedClient(CHANNELS["fast"]).session, content)


def test_a_state_of_another_version_of_the_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = store([1, "a"], {})
    assert restore(content, {}) == [1, "a"]
    monkeypatch.setattr("umdf.sync.state.plain_values.source_digest", lambda: "another")
    with pytest.raises(UmdfError, match="another version"):
        restore(content, {})


def test_what_is_shared_is_shared_again_and_what_is_unknown_is_refused() -> None:
    shared, numbers = {1: "a", (2, None): b"b"}, np.array([1.5, -3.0])
    found = restore(store([shared, shared, {frozenset({3}): numbers}], {}), {})
    assert found[0] == shared and found[0] is found[1]
    assert np.array_equal(found[2][frozenset({3})], numbers)
    with pytest.raises(TypeError, match="cannot be stored"):
        store([object()], {})
