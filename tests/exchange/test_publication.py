"""Channels tick by tick, with a clock of the test: heartbeats, loops and their pace, resets, news, and UDP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import ChannelClient, rows_of

from umdf.errors import ConfigError, UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import (
    FAST,
    INCREMENTAL,
    INSTRUMENTS,
    MBP,
    POSITION,
    SBE,
    SNAPSHOTS,
    STREAMS,
    TOB,
    ChannelSettings,
    Members,
)
from umdf.exchange.publish.control_records import control_records, silences
from umdf.exchange.publish.direct_fast_encoder import DirectFastEncoder
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.publish.publication import Publication
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.publish.sinks import Packets, TeeSink, UdpSink
from umdf.exchange.truth.book_history import BookHistory
from umdf.sync.raw_units import UnitKind
from umdf.transport.udp_sender import UdpDestination, UdpSender

SECOND, MS = 1_000_000_000, 1_000_000
START = 20_770 * 86_400 * SECOND + 13 * 3_600 * SECOND


class Exchange:
    """A market whose clock the test moves, published on some channels."""

    def __init__(self, *channels: ChannelSettings, news: tuple[NewsItem, ...] = (), history: Any = None) -> None:
        settings = BulkSettings(10_000, 40, rate=2_000)
        self.listing = generate_listing(settings, np.random.default_rng(5))
        self.market = Market(self.listing, settings)
        self.market.start(START)
        self.market.table[k.HEARTBEAT_NS] = 1 << 60
        self.market.instruments[:40, k.I_STATE] = k.OPEN
        self.clients = [ChannelClient(channel) for channel in channels]
        kinds = {SBE: SbePublisher, FAST: FastPublisher}
        publishers = [
            kinds[client.settings.protocol](client.settings, self.listing, client.sinks, history, news)
            for client in self.clients
        ]
        self.publication = Publication(publishers, self.market, self._phases)
        self.now = START

    def _phases(self) -> Any:
        records = control_records(k.GROUP_PHASE, np.full(len(self.listing.groups), self.now))
        records[:, k.ID], records[:, k.AUX] = np.arange(len(records)), k.OPEN
        return records

    def run(self, seconds: float, *, trades: bool = False, tick_ms: int = 5) -> None:
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now += tick_ms * MS
            if trades:
                self.market.run_order_flow(5_000, self.now)
            self.publication.publish(self.market.take_records(), self.now)


def times_of(client: ChannelClient, stream: str) -> Any:
    return np.array(client.sinks[stream].ts_ns)


@pytest.mark.parametrize(("protocol", "heartbeat_ms", "interval"), [(SBE, 0, 1), (FAST, 0, 10), (FAST, 2_000, 2)])
def test_heartbeats_follow_each_interval_of_silence(protocol: str, heartbeat_ms: int, interval: int) -> None:
    exchange = Exchange(ChannelSettings(72, protocol, heartbeat_ms=heartbeat_ms))
    exchange.run(35.5, tick_ms=50)
    times = times_of(exchange.clients[0], INCREMENTAL)
    assert len(times) == 35 // interval and (np.diff(times) == interval * SECOND).all()


def test_heartbeats_between_records_of_one_batch_are_at_their_places() -> None:
    times, before = silences(np.array([10, 25, 26, 60]), 0, 95, 10)
    assert times.tolist() == [20, 36, 46, 56, 70, 80, 90] and before.tolist() == [1, 3, 3, 3, 4, 4, 4]
    assert len(silences(np.array([], np.int64), 0, 9, 10)[0]) == 0
    assert silences(np.array([], np.int64), 0, 10, 10)[0].tolist() == [10]


@pytest.mark.parametrize("protocol", [SBE, FAST])
def test_loops_keep_their_pace_and_hold_every_member_once(protocol: str) -> None:
    settings = ChannelSettings(72, protocol, snapshots_per_s=50, definitions_per_s=200, loop_pause_ms=500)
    exchange = Exchange(settings)
    exchange.run(13)
    client = exchange.clients[0]
    headers = [header for header, _ in client.snapshots()]
    loops = len(headers) / 40  # each takes 0.8 s, and 0.5 s of pause
    assert 9 <= loops <= 11
    for first in range(0, 40 * int(loops), 40):
        loop = headers[first : first + 40]
        assert len({header["instrument_id"] for header in loop}) == 40 == loop[0]["total_snapshots"]
    units = client.units(INSTRUMENTS)
    definitions = client.events(units.take(units.kind == UnitKind.DATA)).rows("definition")
    counts = np.bincount(np.unique(definitions.column("instrument_id"), return_inverse=True)[1])
    assert len(counts) == 40 and counts.min() >= 17 and counts.max() <= counts.min() + 1
    ends = np.unique(definitions.unit[definitions.column("is_last") == 1])
    assert len(ends) == counts.min()


def test_a_channel_has_its_members_only_in_all_streams() -> None:
    exchange = Exchange(ChannelSettings(72, SBE, members=Members(types=("FUT",)), snapshots_per_s=1_000))
    exchange.run(2, trades=True)
    client, listing = exchange.clients[0], exchange.listing
    members = {int(n) for n, kind in zip(listing.security_id, listing.security_types, strict=True) if kind == "FUT"}
    assert {header["instrument_id"] for header, _ in client.snapshots()} == members
    units = client.units()
    sent = client.events(units.take(units.kind == UnitKind.DATA)).rows("mbo").column("instrument_id")
    assert set(sent.tolist()) <= members and len(sent)


def test_empty_books_can_be_left_out_of_the_snapshots() -> None:
    channels = [ChannelSettings(72, SBE, sends_empty_books=sends, snapshots_per_s=2_000) for sends in (True, False)]
    exchange = Exchange(*channels)
    exchange.market.run_order_flow(100, START + SECOND)
    exchange.run(0.1)
    full, short = (list(client.snapshots()) for client in exchange.clients)
    assert len(full) == 40 == full[0][0]["total_snapshots"]
    assert 0 < len(short) < 40 and len(short) == short[0][0]["total_snapshots"]
    assert [entries for _, entries in full if entries] == [entries for _, entries in short if entries]


@pytest.mark.parametrize("channel", [
    ChannelSettings(72, SBE), ChannelSettings(72, FAST), ChannelSettings(74, FAST, book_type=MBP, depth=4),
    ChannelSettings(77, FAST, book_type=TOB),
])  # fmt: skip
def test_a_channel_reset_sends_all_books_again(channel: ChannelSettings) -> None:
    history = BookHistory()
    exchange = Exchange(channel, replace(channel, channel=99), history=history)
    exchange.run(0.5, trades=True)
    before = history.last_sequence(channel.protocol, channel.channel)
    exchange.publication.reset_channel(channel.protocol, channel.channel, exchange.now)
    after = history.last_sequence(channel.protocol, channel.channel)
    exchange.run(0.5, trades=True)
    client, ids = exchange.clients[0], exchange.listing.security_id.tolist()
    last = history.last_sequence(channel.protocol, channel.channel)
    assert before < after < last
    assert history.last_sequence(channel.protocol, 99) < last, "another channel is not reset"
    compared = 0
    for sequence, books in client.at([before, after, last], ids):
        for instrument, instrument_id in enumerate(ids):
            book = history.book_at(channel.protocol, instrument, sequence, channel.channel)
            depth = client.declared_depth
            levels = [
                (side, level.price, level.size, level.orders) for side in "BA" for level in book.levels(side, depth)
            ]
            orders = [(side, order.price, order.size, order.order_id)
                      for side, found in (("B", book.bids), ("A", book.asks)) for order in found]  # fmt: skip
            assert rows_of(books.book(instrument_id)) == (orders if depth is None else levels)
            compared += len(orders)
    assert compared > 100


@pytest.mark.parametrize("protocol", [SBE, FAST])
def test_numbers_start_again_with_a_new_week(protocol: str) -> None:
    exchange = Exchange(ChannelSettings(72, protocol))
    exchange.run(0.3, trades=True)
    exchange.publication.start_week(exchange.now)
    exchange.run(0.3, trades=True)
    units = exchange.clients[0].units()
    data = units.take(units.kind == UnitKind.DATA)
    restart = np.flatnonzero(np.diff(data.sequence) < 0)
    assert len(restart) == 1 and data.sequence[restart[0] + 1] == 1
    assert data.sequence[-1] == len(data) - restart[0] - 1
    if protocol == SBE:
        assert data.epoch[0] == 273 and data.epoch[-1] == 274
        assert {int(header["last_sequence"]) for header, _ in exchange.clients[0].snapshots()}
    else:
        assert (units.kind == UnitKind.RESET).sum() == 1


@pytest.mark.parametrize("protocol", [SBE, FAST])
def test_the_news_channel_has_news_only(protocol: str) -> None:
    text = "Notícia: " + "ação " * 400
    news = (NewsItem("Opening", "of the engine"), NewsItem("Global", text, channels=(90,), news_id=7, language="pt"))
    exchange = Exchange(ChannelSettings(90, protocol, is_news_channel=True), ChannelSettings(72, protocol), news=news)
    exchange.market.append(k.NEWS, None, id=0)
    for part in range(1, len(news[1].parts) + 1):
        exchange.market.append(k.NEWS, None, id=1, position=part)
    exchange.run(1.5, trades=True)
    found = []
    for client in exchange.clients:
        units = client.units()
        events = client.events(units.take(units.kind == UnitKind.DATA))
        found.append(events)
        assert max(map(len, client.sinks[INCREMENTAL].payloads)) <= 1_420
    global_news, engine_news = (events.rows("news") for events in found)
    # FIX/FAST has no parts, but chunks.
    parts = [1, 2, 3] if protocol == SBE else [1]
    assert len(engine_news) == 1 and len(global_news) == len(parts) and len(news[1].parts) == 3
    offsets, data = global_news.texts["text"]
    assert bytes(data).decode() == text and len(offsets) == len(parts) + 1
    if protocol == SBE:
        assert global_news.column("part_number").tolist() == parts
    assert not len(found[0].rows("mbo")) and len(found[1].rows("mbo"))
    for stream in (SNAPSHOTS, INSTRUMENTS):
        assert not exchange.clients[0].sinks[stream].payloads


@pytest.mark.parametrize("channel", [
    ChannelSettings(72, FAST), ChannelSettings(72, FAST, POSITION), ChannelSettings(72, FAST, book_type=MBP, depth=3),
    ChannelSettings(72, FAST, POSITION, MBP, 3), ChannelSettings(72, FAST, book_type=TOB),
])  # fmt: skip
def test_direct_encoding_of_fast_writes_the_same_bytes(
    channel: ChannelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct_messages = 0
    encode = DirectFastEncoder.encode

    def counted(self: DirectFastEncoder, *arguments: Any) -> Any:
        nonlocal direct_messages
        encoded = encode(self, *arguments)
        direct_messages += 0 if encoded is None else len(encoded.start)
        return encoded

    monkeypatch.setattr(DirectFastEncoder, "encode", counted)
    exchange = Exchange(channel, channel)
    slow = exchange.publication.publishers[1]
    assert isinstance(slow, FastPublisher)
    slow.direct_encoder = None
    exchange.run(0.5, trades=True)
    market = exchange.market  # prices that need more than two decimals, an order without a price, one that is resent
    for number, price in enumerate((32_123_400_000, 32_123_456_789, k.NULL, -7_500_000)):
        columns = {"side": k.BID, "price": price, "size": 100, "id": 1 << 40 | number, "firm": 3, "position": 1}
        market.append(k.ADD, 1, **columns, insert=exchange.now, flags=k.RECOVERY | (k.IMPLIED if number else 0))
    exchange.run(0.01)
    both = [client.sinks[INCREMENTAL] for client in exchange.clients]
    assert both[0].payloads == both[1].payloads and both[0].ts_ns == both[1].ts_ns
    assert direct_messages > 50


def test_an_unknown_channel_is_refused() -> None:
    exchange = Exchange(ChannelSettings(72, SBE))
    with pytest.raises(UsageError, match="unknown channel: fast 72"):
        exchange.publication.reset_channel(FAST, 72, exchange.now)


# UDP, on the loopback of this machine.


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        found.bind(("127.0.0.1", 0))
        found.settimeout(5)
        yield found


def packets_of(payloads: list[bytes]) -> Packets:
    end = np.cumsum([len(payload) for payload in payloads])
    start = end - np.array([len(payload) for payload in payloads])
    numbers = np.arange(len(payloads))
    return Packets(np.frombuffer(b"".join(payloads), np.uint8), start, end, numbers, numbers, numbers)


@pytest.mark.parametrize("uses_batches", [True, False])
@pytest.mark.parametrize("count", [1, 64, 150])
def test_datagrams_are_the_packets(receiver: socket.socket, uses_batches: bool, count: int) -> None:
    payloads = [bytes([number & 255]) * (number + 1) for number in range(count)]
    sender = UdpSender(UdpDestination(*receiver.getsockname()), uses_batches)
    sink = TeeSink([UdpSink(sender)])
    sink.write(packets_of(payloads))
    assert [receiver.recv(2_048) for _ in payloads] == payloads
    assert (sender.sent, sender.dropped) == (count, 0)
    sink.close()


@pytest.mark.parametrize("uses_batches", [True, False])
def test_a_port_at_which_nobody_listens_loses_and_goes_on(receiver: socket.socket, uses_batches: bool) -> None:
    sender = UdpSender(UdpDestination(*receiver.getsockname()), uses_batches)
    UdpSink(sender).write(packets_of([b"heard"]))
    _, address = receiver.recvfrom(10)
    # Connected to another peer it takes nothing of this sender, and keeps the port from other processes.
    receiver.connect(("127.0.0.1", 9))
    for _ in range(3):
        UdpSink(sender).write(packets_of([b"lost"] * 99))
    # How many of them the system refuses depends on when it reports the first.
    assert sender.sent + sender.dropped == 298
    before = sender.dropped
    receiver.connect(address)
    UdpSink(sender).write(packets_of([b"heard"] * 100))
    assert [receiver.recv(10) for _ in range(100)] == [b"heard"] * 100
    assert sender.dropped == before
    sender.close()


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ({"address": "localhost", "port": 1}, "not an IPv4 address: localhost"),
        ({"address": "127.0.0.1", "port": 0}, "port out of range: 0"),
        ({"address": "224.0.0.1", "port": 1, "ttl": 256}, "multicast TTL out of range: 256"),
    ],
)
def test_destinations_that_cannot_be(destination: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        UdpDestination(**destination)


def test_multicast_stays_on_this_machine_by_default(receiver: socket.socket) -> None:
    port = receiver.getsockname()[1]
    group = socket.inet_aton("239.255.72.1") + socket.inet_aton("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as joined:
        joined.bind(("239.255.72.1", port))
        joined.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        joined.settimeout(5)
        sender = UdpSender(UdpDestination("239.255.72.1", port))
        assert sender.destination.ttl == 0
        UdpSink(sender).write(packets_of([b"a", b"b"]))
        assert [joined.recv(10), joined.recv(10)] == [b"a", b"b"]
        sender.close()


def test_both_lines_get_the_same_packets() -> None:
    client = ChannelClient(ChannelSettings(72, SBE))
    exchange = Exchange(ChannelSettings(72, SBE))
    other = ChannelClient(ChannelSettings(72, SBE))
    publisher = SbePublisher(
        ChannelSettings(72, SBE),
        exchange.listing,
        {stream: TeeSink([client.sinks[stream], other.sinks[stream]]) for stream in STREAMS},
    )
    Publication([publisher], exchange.market, exchange._phases).publish(exchange.market.take_records(), START + SECOND)
    assert client.sinks[SNAPSHOTS].payloads == other.sinks[SNAPSHOTS].payloads != []
