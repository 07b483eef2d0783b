"""The live client beside the live exchange, over real sockets with losses: whatever happens, it ends with the
exchange's books, statistics and states, and no healthy book ever differs from the exchange's at that sequence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

from feed.live_exchange import MS, SECOND_NS, CheckedClient, LiveMarket, addresses_of

from umdf.exchange.live import schedule as s
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.network.faults import Faults, Outage
from umdf.exchange.publish.channel_settings import FAST, MBP, PRIORITY, SBE, TOB, ChannelSettings, Members
from umdf.feed.channel_states import FeedState
from umdf.feed.events import EpochStarted
from umdf.transport.channels_file import format_channels
from umdf.transport.recording import closed_files

Sized = Callable[[int, int], int]
EQUITIES = Members(("CS", "PS", "ETF"))
LOSSES = Faults(loss=0.05, common_loss=0.005)
BY_ORDER = (ChannelSettings(72, SBE, members=EQUITIES), ChannelSettings(72, FAST, members=EQUITIES))
BY_PRICE = (
    ChannelSettings(73, FAST, PRIORITY, MBP, 5, EQUITIES),
    ChannelSettings(74, FAST, PRIORITY, TOB, 0, EQUITIES),
)
OPENING_S = 31  # from the start of the exchange


def test_a_client_that_joins_late_over_lossy_lines_ends_with_everything_of_the_exchange(sized: Sized) -> None:
    market = LiveMarket(BY_ORDER + BY_PRICE, LOSSES, instruments=sized(100, 1_000))
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(sized(3, 150))
        client.run_until(lambda: client.compared > 500 and client.untrusted > 50, 20 * MS)  # orders come in bursts
        client.catch_up()
        client.assert_equal_to_the_exchange()
        assert all(feed.channel.recovered for feed in client.feeds)
        assert sum(feed.totals.gaps for feed in client.feeds) > 3


def test_a_channel_reset_new_instruments_and_a_failover_are_followed(sized: Sized) -> None:
    market = LiveMarket(BY_ORDER, LOSSES)
    exchange, listing = market.exchange, market.exchange.listing
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(1)
        for _ in range(sized(1, 50)):
            like = next(x.symbol for x in listing.instruments if x.symbol == "PETR4")
            added = exchange.add_instrument(like, f"NEW{listing.capacity - len(listing)}")
            client.run(0.5)
            for protocol in (SBE, FAST):
                exchange.reset_channel(protocol, 72)
            client.run(0.5)
            exchange.delete_instrument(listing.symbols[listing.security_id.tolist().index(added)])
            client.run(0.5)
            for protocol in (SBE, FAST):
                exchange.reset_sequences(protocol, 72)
            client.run(1)
            client.catch_up()
            client.assert_equal_to_the_exchange()
        epochs = {event.channel for event in client.events if isinstance(event, EpochStarted)}
        assert epochs == {feed.key for feed in client.feeds}
        assert all(feed.totals.epochs >= 2 for feed in client.feeds)


def test_a_dead_line_costs_nothing_but_the_losses_of_the_other(sized: Sized) -> None:
    market = LiveMarket(BY_ORDER, Faults(outages=(Outage("incremental", "A", OPENING_S + 1),)))
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(sized(3, 60))
        lines = [feed.totals.lines for feed in client.feeds]
        client.run_until(lambda: all(each["B"].delivered > each["A"].delivered for each in lines), 20 * MS)
        client.catch_up()
        client.assert_equal_to_the_exchange()
        assert all(feed.totals.gaps == 0 for feed in client.feeds)


def test_a_phase_that_both_lines_have_lost_comes_with_the_snapshots() -> None:
    """No update of a book shows that it is missing: the channel heals until the snapshot stream has told the phase."""
    lost_s = OPENING_S + 20
    market = LiveMarket(BY_ORDER, Faults(outages=(Outage("incremental", "", lost_s, lost_s + 0.2),)))
    lost_ns = market.exchange.now_ns + lost_s * SECOND_NS
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(2)
        client.catch_up()
        client.run((lost_ns - market.exchange.now_ns) / SECOND_NS, 500 * MS)
        market.exchange.change_phase([s.EQUITIES], k.PAUSE)
        client.run(0.2)
        client.catch_up()
        client.assert_equal_to_the_exchange()
        assert all(feed.totals.gaps for feed in client.feeds)


def test_definitions_that_both_lines_have_lost_come_with_the_instrument_stream() -> None:
    """One was modified (7.2), one deleted (7.3): no book shows it."""
    lost_s = OPENING_S + 20
    market = LiveMarket(BY_ORDER, Faults(outages=(Outage("incremental", "", lost_s, lost_s + 0.2),)))
    lost_ns = market.exchange.now_ns + lost_s * SECOND_NS
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(2)
        client.catch_up()
        client.run((lost_ns - market.exchange.now_ns) / SECOND_NS, 500 * MS)
        market.exchange.modify_instrument("PETR4", lot=77)
        market.exchange.delete_instrument("VALE3")
        client.run_until(lambda: all(feed.state == FeedState.RECOVERING for feed in client.feeds), 20 * MS)
        trusts = [client.live.definition_trust("PETR4", feed.key.number) for feed in client.feeds]
        assert not any(trust.is_healthy for trust in trusts)
        client.catch_up()
        client.assert_equal_to_the_exchange()
        for feed in client.feeds:
            instruments = feed.channel.state.instruments
            definition = instruments.get(instruments.id_of("PETR4") or 0)
            assert definition is not None and definition["min_order_qty"] == 77
            assert instruments.id_of("VALE3") is None


WEEK = s.Timetable(
    {s.EQUITIES: {"pre_open": "10:00", "open": "10:02", "pre_close": "10:07", "close": "10:08"},
     s.DERIVATIVES: {"pre_open": "09:58", "open": "10:01", "close": "10:10"}},
    {"morning": "09:00", "settlement": "10:20", "end_of_day": "10:30"},
)  # fmt: skip


def test_the_next_trading_day_and_the_next_week_are_followed(sized: Sized) -> None:
    """Thursday, Friday, and Monday after the weekend, in which the numbering begins again (4.2.8)."""
    loops: dict[str, Any] = {"heartbeat_ms": 600_000, "loop_pause_ms": 3_600_000, "snapshots_per_s": 100_000}
    channels = tuple(ChannelSettings(72, protocol, members=EQUITIES, **loops) for protocol in (SBE, FAST))
    market = LiveMarket(
        channels, LOSSES, start=datetime(2026, 11, 19, 10, 2), timetable=WEEK, messages_per_s=sized(4, 100)
    )
    with CheckedClient(market) as client:

        def until(day: int, time: str, step_s: float) -> None:
            end_ns = s.local_ns(date(2026, 11, day), s.time_of("", time))
            while market.exchange.now_ns < end_ns:
                client.run(min(step_s, (end_ns - market.exchange.now_ns) / SECOND_NS), int(step_s * SECOND_NS))

        for day in (19, 20, 23):
            until(day, "10:02", 600)
            until(day, "10:06", 2)
            client.catch_up(600 * SECOND_NS)
            client.assert_equal_to_the_exchange()
        assert [feed.totals.epochs for feed in client.feeds] == [2, 2]
        assert client.compared > 100


def test_a_client_that_was_killed_starts_again_and_its_recording_goes_on(tmp_path: Path) -> None:
    market = LiveMarket(BY_ORDER, LOSSES)
    recording, file = tmp_path / "recording", tmp_path / "channels.toml"
    file.write_text(format_channels(market.settings.addresses))
    market.run_alone(OPENING_S)
    words = [sys.executable, "-m", "umdf", "feed", "--channels", str(file), "--record", str(recording), "--json"]
    live_channels: set[str] = set()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        reader = threading.Thread(target=_read_live_channels, args=(killed.stdout, live_channels), daemon=True)
        reader.start()
        while len(live_channels) < len(BY_ORDER):
            assert killed.poll() is None
            market.run_alone(0.02)
            reader.join(0.002)
        killed.send_signal(signal.SIGKILL)
    market.run_alone(1)
    with CheckedClient(market, record=recording) as client:
        assert client.live.recorder is not None and client.live.recorder.closed_for_others
        client.run(1)
        client.catch_up()
        client.assert_equal_to_the_exchange()
    assert not list(recording.glob("*.part")) and len(closed_files(recording)) > 2 * len(BY_ORDER)


def _read_live_channels(lines: object, found: set[str]) -> None:
    for line in lines:  # type: ignore[attr-defined]
        record = json.loads(line)
        if record["type"] == "state" and record["text"].endswith("live"):
            found.add(record["protocol"])


def test_streams_of_multicast_groups_are_left_and_joined_again() -> None:
    """On the loopback interface with a TTL of 0: nothing leaves this machine."""
    market = LiveMarket(BY_ORDER, LOSSES, addresses=addresses_of(BY_ORDER, "239.255.82.70"))
    market.run_alone(OPENING_S)
    with CheckedClient(market) as client:
        client.run(1)
        client.catch_up()
        assert len(client.live.client.wanted_lines()) == 4, "both lines of two incremental streams"
        client.run_until(lambda: client.feeds[0].state == FeedState.RECOVERING, 20 * MS)
        assert set(client.feeds[0].lines) <= client.live.client.wanted_lines()
        client.catch_up()
        client.assert_equal_to_the_exchange()
