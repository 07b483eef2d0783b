"""Opens the exchange of a certification: its channels, its replayers, the days before, the morning of the script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from umdf.certify.profile import COMP_ID, DAY_START, WEEK_START, Combination, PortOf, exchange_settings
from umdf.certify.selection import Selection
from umdf.certify.stage import Stage
from umdf.certify.week import play_week
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.outputs import OpenLine, sinks_of, udp_lines
from umdf.exchange.replayer.replayers import Replayers
from umdf.transport.channels_file import ChannelAddresses, ReplayerAddresses


@dataclass(frozen=True)
class OpenedExchange:
    stage: Stage
    channels: tuple[ChannelAddresses, ...]  # for the client
    replayers: Mapping[str, ReplayerAddresses]


@contextmanager
def open_exchange(
    combination: Combination, directory: Path, selection: Selection, port_of: PortOf, interface: str
) -> Iterator[OpenedExchange]:
    """`directory` gets the history of the replayers; the week is played if any step requests earlier days."""
    needs_week = combination.has_replayer and any(section.needs_week for section in selection.sections)
    start = WEEK_START if needs_week else DAY_START - timedelta(days=1)
    settings = exchange_settings(combination, directory, port_of, start=start, interface=interface)
    openers: list[OpenLine] = []
    with ExitStack() as stack:
        replayers = None
        if settings.replayers:
            replayers = Replayers(settings.history, settings.replayers, lambda: exchange.now_ns)
            stack.callback(replayers.stop)
            openers.append(replayers.open_line)
        exchange = Exchange(settings, sinks_of(settings, openers, [udp_lines(ttl=0)]))
        stack.callback(exchange.close)
        addresses: dict[str, ReplayerAddresses] = {}
        if replayers is not None:
            replayers.start()
            for name, server in replayers.servers.items():
                addresses[name] = ReplayerAddresses(COMP_ID, server.settings.comp_id, (server.address,))
        stage = Stage(exchange, combination)
        play_week(stage)
        yield OpenedExchange(stage, settings.addresses, addresses)


def packets_sent(exchange: Exchange) -> dict[tuple[int, str], int]:
    """By channel and stream."""
    return {
        (publisher.settings.channel, stream): packets
        for publisher in exchange.publication.publishers
        for stream, _, _, packets in publisher.sequences()
    }
