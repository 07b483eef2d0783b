"""The live exchange and the live client over real sockets, with loss on the way and the replayers beside it."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from lake.captures import ingest, rows

from umdf.exchange.live.outputs import sinks_of, udp_lines
from umdf.exchange.live.replayer_settings import client_addresses
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.live.settings import ExchangeSettings, read_settings
from umdf.exchange.network.faults import Faults
from umdf.exchange.replayer.replayers import Replayers
from umdf.exchange.replayer.server import ReplayerSettings
from umdf.exchange.truth.tables import final_orders
from umdf.feed.channel_states import FeedState
from umdf.feed.events import GapOpened
from umdf.feed.live import Live
from umdf.market.families import NULL
from umdf.transport.capture import open_capture
from umdf.transport.channels_file import LOOPBACK, REPLAYER, format_channels

EXAMPLE = Path(__file__).parents[2] / "examples" / "exchange.toml"
MS = 1_000_000
DEADLINE_S = 60.0


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as own:
        own.bind((LOOPBACK, 0))
        return own.getsockname()[1]


def fast_channel(directory: Path) -> ExchangeSettings:
    """The FIX/FAST channel of the example, on ports that nobody has, with 5 % loss on each line and some on both."""
    settings = replace(read_settings(EXAMPLE), instruments=100, messages_per_s=400)
    number = next(at for at, channel in enumerate(settings.channels) if channel.protocol == "fast")
    addresses = settings.addresses[number]
    streams = {
        stream: tuple(replace(line, port=free_port(socket.SOCK_DGRAM)) for line in lines)
        for stream, lines in addresses.streams.items()
    }
    return replace(
        settings,
        channels=(settings.channels[number],),
        addresses=(replace(addresses, streams=streams, heartbeat_s=1_000),),
        faults=Faults(loss=0.05, common_loss=0.005),
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


def test_gaps_on_the_network_are_filled_by_the_replayer_and_recorded(tmp_path: Path, sized) -> None:
    settings = fast_channel(tmp_path)
    clock: list[RunningMarket] = []
    replayers = Replayers(settings.history, settings.replayers, lambda: clock[0].now_ns)
    running = RunningMarket(settings, sinks_of(settings, [replayers.open_line], [udp_lines(0)]))
    clock.append(running)
    replayers.start()
    server = replayers.servers[REPLAYER]
    where = {REPLAYER: client_addresses(replace(settings.replayers[REPLAYER], address=server.address))}
    (tmp_path / "channels.toml").write_text(format_channels(settings.addresses, where))
    gaps = []
    with Live(tmp_path / "channels.toml", record=tmp_path / "recording") as live:
        live.subscribe(schema="gaps", callback=gaps.append)
        (feed,), replay = live.client.feeds.values(), live.replay
        assert replay is not None
        end_ns, deadline = running.now_ns + sized(8, 600) * 1_000 * MS, time.monotonic() + DEADLINE_S
        while running.now_ns < end_ns:
            running.advance(running.now_ns + 20 * MS)
            live.poll(0.001)
        # Quiet: the flow has ended, and a snapshot loop answers what remains.
        running.settings = replace(settings, messages_per_s=0)
        while (feed.state != FeedState.LIVE or not replay.counts.messages) and time.monotonic() < deadline:
            running.advance(running.now_ns + 500 * MS)
            live.poll(0.02)
        totals, counts = feed.totals, replay.counts
        assert feed.state == FeedState.LIVE, (totals, counts, replay.last_error)
        books = {number: feed.channel.book(number) for number in feed.instrument_ids()}
    running.close()
    replayers.stop()
    assert [event for event in gaps if isinstance(event, GapOpened)] and counts.messages > 0
    assert totals.filled >= totals.missing * 0.9
    truth = true_orders(running)
    for number, orders in truth.items():
        book = books.get(number)
        columns = [] if book is None else [book.entries[name].tolist() for name in ("price", "order_id", "size")]
        assert sorted(zip(*columns, strict=True)) == sorted(orders), number
    recovered = list((tmp_path / "recording").glob("*-incremental-R.pcap*"))
    assert recovered
    with open_capture(recovered[0]) as capture:
        assert sum(len(batch.start) for batch in capture) >= counts.messages
    ingest(tmp_path / "lake", sorted((tmp_path / "recording").glob("*.pcap")))
    lost = [gap for gap in rows(tmp_path / "lake", "gaps") if gap["cause"] == "loss" and gap["stream"] == "incremental"]
    assert sum(gap["missing"] for gap in lost) == totals.missing - totals.filled  # live = lake
