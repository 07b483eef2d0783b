"""The live exchange and the live client over real sockets, with loss on the way and the replayers beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from feed.free_ports import free_udp_ports
from lake.captures import ingest, rows
from lake.day_truth import final_orders as orders_in_lake

from umdf.exchange.live.outputs import sinks_of, udp_lines
from umdf.exchange.live.replayer_settings import client_addresses
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.live.settings import ExchangeSettings, read_settings
from umdf.exchange.network.faults import Faults, Outage
from umdf.exchange.replayer.replayers import Replayers
from umdf.exchange.replayer.server import ReplayerSettings
from umdf.exchange.replayer.service import Switch
from umdf.exchange.truth.tables import final_orders
from umdf.feed.channel_feed import ChannelTotals
from umdf.feed.channel_states import FeedState
from umdf.feed.events import FeedEvent, GapOpened
from umdf.feed.live import Live
from umdf.feed.replay_client import ReplayCounts, ReplayFailure
from umdf.market.families import NULL
from umdf.transport.capture import open_capture
from umdf.transport.channels_file import LOOPBACK, REPLAYER, format_channels

EXAMPLE = Path(__file__).parents[2] / "examples" / "exchange.toml"
MS = 1_000_000
DEADLINE_S = 60.0


def fast_channel(directory: Path, faults: Faults, messages_per_s: int) -> ExchangeSettings:
    """The FIX/FAST channel of the example, on ports that nobody has."""
    settings = replace(read_settings(EXAMPLE), instruments=100, messages_per_s=messages_per_s)
    number = next(at for at, channel in enumerate(settings.channels) if channel.protocol == "fast")
    addresses = settings.addresses[number]
    ports = iter(free_udp_ports(sum(map(len, addresses.streams.values()))))
    streams = {
        stream: tuple(replace(line, port=next(ports)) for line in lines) for stream, lines in addresses.streams.items()
    }
    return replace(
        settings,
        channels=(settings.channels[number],),
        addresses=(replace(addresses, streams=streams, heartbeat_s=1_000),),
        faults=faults,
        replayers={REPLAYER: ReplayerSettings((LOOPBACK, 0), "REPLAYER", available_after_ms=5)},
        history=directory / "history",
    )


def true_orders(running: RunningMarket) -> dict[int, list[tuple[int, int, int]]]:
    """Price, id and size of every order, bids first, the best first, of each instrument of the channel."""
    orders = final_orders(running.market)
    columns = [orders[name] for name in ("instrument_id", "side", "position", "price", "order_id", "size")]
    rows = zip(*(c.tolist() if isinstance(c, np.ndarray) else c.to_pylist() for c in columns), strict=True)
    members = set(running.listing.security_id[running.settings.channels[0].members.of(running.listing)].tolist())
    found: dict[int, list[tuple[int, int, int]]] = {number: [] for number in members}
    for number, _, _, price, order_id, size in sorted(rows, key=lambda row: (row[0], row[1] != "B", row[2])):
        if number in members:
            found[number].append((NULL if price is None else price, order_id, size))
    return found


@dataclass
class Result:
    """What the client had when it was live again."""

    totals: ChannelTotals
    counts: ReplayCounts
    failures: list[ReplayFailure]
    recovered: int  # books, by snapshots
    gaps: list[FeedEvent] = field(default_factory=list)

    @property
    def longest_gap(self) -> int:
        return max(event.gap.last - event.gap.first + 1 for event in self.gaps if isinstance(event, GapOpened))


def run_to_the_end(directory: Path, settings: ExchangeSettings, busy_s: float, *switches: Switch) -> Result:
    """An exchange and a client until everything is healthy; then the client's books, and those in a lake of its
    recording, are the exchange's."""
    clock: list[RunningMarket] = []
    replayers = Replayers(settings.history, settings.replayers, lambda: clock[0].now_ns)
    for switch in switches:
        replayers.switch(REPLAYER, switch, on=True)
    running = RunningMarket(settings, sinks_of(settings, [replayers.open_line], [udp_lines(0)]))
    clock.append(running)
    replayers.start()
    server = replayers.servers[REPLAYER]
    where = {REPLAYER: client_addresses(replace(settings.replayers[REPLAYER], address=server.address))}
    (directory / "channels.toml").write_text(format_channels(settings.addresses, where))
    gaps: list[FeedEvent] = []
    with Live(directory / "channels.toml", record=directory / "recording") as live:
        live.subscribe(schema="gaps", callback=gaps.append)
        (feed,), replay = live.client.feeds.values(), live.replay
        assert replay is not None
        end_ns, deadline = running.now_ns + round(busy_s * 1_000) * MS, time.monotonic() + DEADLINE_S
        while running.now_ns < end_ns:
            running.advance(running.now_ns + 20 * MS)
            live.poll(0.001)
        # Quiet: the flow has ended, and a snapshot loop answers what remains.
        running.settings = replace(settings, messages_per_s=0)

        def has_ended() -> bool:
            is_answered = replay.counts.messages + len(replay.failures) > 0
            last = next(row[2] for row in running.publication.publishers[0].sequences() if row[0] == "incremental")
            return bool(gaps) and feed.state == FeedState.LIVE and is_answered and feed.channel.sequence == last

        while not has_ended() and time.monotonic() < deadline:
            running.advance(running.now_ns + 500 * MS)
            live.poll(0.02)
        assert has_ended(), (feed.state, feed.totals, replay.counts, replay.last_error)
        books = {number: feed.channel.book(number) for number in feed.instrument_ids()}
        result = Result(feed.totals, replay.counts, list(replay.failures), feed.channel.recovered, gaps)
    running.close()
    replayers.stop()
    truth = true_orders(running)
    for number, orders in truth.items():
        book = books.get(number)
        columns = [] if book is None else [book.entries[name].tolist() for name in ("price", "order_id", "size")]
        assert sorted(zip(*columns, strict=True)) == sorted(orders), number
    ingest(directory / "lake", sorted((directory / "recording").glob("*.pcap")))
    lost = [
        gap for gap in rows(directory / "lake", "gaps") if gap["cause"] == "loss" and gap["stream"] == "incremental"
    ]
    assert sum(gap["missing"] for gap in lost) == result.totals.missing - result.totals.filled  # live = lake
    in_lake: dict[int, list[tuple[int, int, int]]] = {number: [] for number in truth}
    for (number, _), orders in orders_in_lake(directory / "lake").items():
        in_lake[number] += [(NULL if price is None else price, order, size) for price, size, order, *_ in orders]
    assert {number: sorted(orders) for number, orders in in_lake.items()} == {n: sorted(o) for n, o in truth.items()}
    return result


def test_gaps_on_the_network_are_filled_by_the_replayer_and_recorded(tmp_path: Path, sized) -> None:
    settings = fast_channel(tmp_path, Faults(loss=0.05, common_loss=0.005), 400)
    result = run_to_the_end(tmp_path, settings, sized(8, 600))
    assert result.counts.messages > 0 and result.totals.filled >= result.totals.missing * 0.9
    recovered = list((tmp_path / "recording").glob("*-incremental-R.pcap*"))
    with open_capture(recovered[0]) as capture:
        assert sum(len(batch.start) for batch in capture) >= result.counts.messages


LONG_GAP = Faults(outages=(Outage("incremental", "", 1.0, 2.8),))


@pytest.mark.parametrize("switches", [(), (Switch.NOT_AUTHORIZED,)], ids=["replayed", "refused"])
def test_a_gap_of_a_thousand_messages_is_recovered_by_the_replayer_or_by_snapshots(tmp_path: Path, switches) -> None:
    settings = replace(fast_channel(tmp_path, LONG_GAP, 1_000), start=datetime(2026, 11, 16, 10, 30))
    result = run_to_the_end(tmp_path, settings, 3.3, *switches)
    assert result.longest_gap >= 1_000
    if switches:
        assert result.counts.messages == result.totals.filled == 0 and result.failures and result.recovered > 0
    else:
        assert result.totals.filled == result.totals.missing and not result.failures
