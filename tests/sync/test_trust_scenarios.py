"""Whatever happens to a day on its way, what is shown as right is right: on channels of every kind (trust_scenarios).

UMDF_SEED=7 repeats one seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from sync.recorded_days import (
    CHANNELS,
    PLAIN,
    RESTART,
    Client,
    RecordedChannel,
    View,
    record_day,
    restarted,
    view_of,
)
from sync.trust_scenarios import SCENARIOS

from umdf.sync.until import Until

pytestmark = pytest.mark.xdist_group("trust-scenarios")
Sized = Callable[[int, int], int]
NOTHING = View()
BATCH, END = 40, 1 << 40


@cache
def recorded(day: str) -> dict[str, RecordedChannel]:
    found = record_day(day)
    if day == RESTART:
        plain = recorded(PLAIN)
        return {name: restarted(plain[name], channel) for name, channel in found.items()}
    return found


def wrong_values(client: Client, day: RecordedChannel, first_epoch: int | None, moment: int = END) -> list[str]:
    """What is shown as right and is not."""
    channel, found = client.channel, list[str]()
    sequence = min(channel.sequence, moment)
    numbering = int(first_epoch is not None and channel.epoch != first_epoch)
    if not day.is_end_of_packet(sequence, numbering):  # what is right is known where packets end
        return []
    for number in day.ids:
        if not channel.book_trust(number).is_healthy:
            continue
        seen, right = view_of(channel, number), day.truth(number, sequence, numbering)
        ignored = set() if channel.state_trust(number).is_healthy else {"state"}
        if right is None:  # nothing tells that the message that deleted it, or created it, was lost
            right, ignored = NOTHING, {"state", "statistics", "last"}
        if channel.trades_incomplete(number):
            ignored |= {"trades"}
        found += [
            f"{number} {name}: shown {getattr(seen, name)}, right {getattr(right, name)}"
            for name in View._fields
            if name not in ignored and getattr(seen, name) != getattr(right, name)
        ]
    return found


def seeds(sized: Sized) -> list[int]:
    return [int(os.environ["UMDF_SEED"])] if "UMDF_SEED" in os.environ else list(range(sized(1, 20)))


def kinds_of(name: str, *, is_short: bool) -> list[str]:
    """In the short run one kind of channel, in turn."""
    kinds = [kind for kind, each in CHANNELS.items() if each.protocol in SCENARIOS[name].protocols]
    return [kinds[list(SCENARIOS).index(name) % len(kinds)]] if is_short else kinds


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_shown_as_right_is_right(name: str, sized: Sized) -> None:
    scenario, is_short = SCENARIOS[name], bool(sized(1, 0)) and "UMDF_SEED" not in os.environ
    for seed in seeds(sized):
        for kind in kinds_of(name, is_short=is_short):
            day, random = recorded(scenario.day)[kind], Random(f"{name}/{seed}")
            packets = scenario.apply(day, random)
            if packets is None:
                continue
            where, client, first_epoch = f"{kind}, seed {seed}", Client(day.settings), None
            for first in range(0, len(packets), BATCH):
                client.feed(packets[first : first + BATCH])
                first_epoch = client.channel.epoch if first_epoch is None else first_epoch
                wrong = wrong_values(client, day, first_epoch)
                assert not wrong, f"{where}, sequence {client.channel.sequence}: {wrong}"
            client.session.finish()
            assert not (wrong := wrong_values(client, day, first_epoch)), f"{where}, at the end: {wrong}"
            if scenario.heals:
                existing, channel = [n for n in day.ids if day.truth(n, END) is not None], client.channel
                for trust_of in (channel.state_trust, channel.definition_trust):
                    trusts = {number: trust_of(number) for number in existing}
                    doubted = {number: str(trust.reason) for number, trust in trusts.items() if not trust.is_healthy}
                    assert not doubted, where
                assert channel.state.instruments.ids() == sorted(existing), where
            if scenario.day != RESTART:  # what was at a moment: nothing of the future is shown
                moment = random.choice([packet.last for packet in day.sent if packet.last])
                client = Client(day.settings, Until(sequence=moment))
                client.feed(packets)
                client.session.finish()
                assert not (wrong := wrong_values(client, day, None, moment)), f"{where}, as of {moment}: {wrong}"
