"""Opens an exchange with all its outputs: UDP, captures, replayers, the control socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umdf.errors import ConfigError
from umdf.exchange.live import schedule as s
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.operator_commands import answer
from umdf.exchange.live.outputs import Captures, OpenLine, sinks_of, udp_lines
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import SBE, STREAMS
from umdf.exchange.publish.publisher import MAX_SEQ_VERSION
from umdf.exchange.replayer.replayers import Replayers
from umdf.transport.control_socket import ControlServer


@dataclass(frozen=True)
class Outputs:
    captures: Path | None = None  # a directory that gets capture/
    sends_udp: bool = True
    control: Path | None = None


@dataclass(frozen=True)
class OpenedExchange:
    exchange: Exchange
    wait: Callable[[float], None]  # seconds; commands of the operator are answered meanwhile
    captures: Captures | None

    @property
    def summary(self) -> str:
        settings = self.exchange.settings
        start = s.local_datetime(self.exchange.now_ns).strftime("%Y-%m-%d %H:%M:%S")
        channels = ", ".join(f"{channel.protocol} {channel.channel}" for channel in settings.channels)
        return f"{int(self.exchange.market.is_listed.sum()):,} instruments from {start}; channels {channels}"

    def result(self) -> dict[str, Any]:
        """What it did, for people and scripts."""
        exchange, totals = self.exchange, self.captures.manifest.totals if self.captures else None
        packets = sum(row[3] for publisher in exchange.publication.publishers for row in publisher.sequences())
        return {
            "time": s.local_datetime(exchange.now_ns).isoformat(timespec="milliseconds"),
            "records": exchange.records,
            "trades": exchange.trade_count,
            "packets": packets,
            "files": totals.files if totals else 0,
            "bytes": totals.bytes if totals else 0,
        }


@contextmanager
def open_exchange(settings: ExchangeSettings, outputs: Outputs) -> Iterator[OpenedExchange]:
    """An exchange at its start; at the end everything is closed."""
    if not outputs.sends_udp and outputs.captures is None:
        raise ConfigError("nothing is published: neither UDP nor captures", "use --captures DIR, or leave --no-udp out")
    with ExitStack() as stack:
        wait: Callable[[float], None] = time.sleep
        server = ControlServer(outputs.control) if outputs.control is not None else None
        if server is not None:
            stack.callback(server.close)
        openers: list[OpenLine] = []
        udp: list[OpenLine] = []
        captures = None
        if outputs.captures is not None:
            captures = Captures(outputs.captures / "capture")
            openers.append(captures.open_line)
        if outputs.sends_udp:
            udp.append(udp_lines(settings.network.ttl))
            settings = _numbered_anew(settings, time.time_ns() // 1_000_000)
        replayers = None
        if settings.replayers:
            # The servers read the exchange's clock from threads of their own.
            replayers = Replayers(settings.history, settings.replayers, lambda: exchange.now_ns, faults=settings.faults)
            stack.callback(replayers.stop)
            openers.append(replayers.open_line)
        exchange = Exchange(settings, sinks_of(settings, openers, udp))
        stack.callback(exchange.close)
        if replayers is not None:
            stack.callback(replayers.stop)  # before the exchange closes the histories that they read
            exchange.replayers = replayers
            replayers.start()
        if server is not None:
            wait = _answering(server, exchange)
        yield OpenedExchange(exchange, wait, captures)


def _numbered_anew(settings: ExchangeSettings, now_ms: int) -> ExchangeSettings:
    """With other sequence versions than at any start before, so that a client that was there then sees a new numbering
    (Binary 5.1). Captures keep those of the settings: they are the same for the same seed."""

    def versions(place: int) -> dict[str, int]:
        return {stream: (now_ms + STREAMS.index(stream) + place) % MAX_SEQ_VERSION + 1 for stream in STREAMS}

    channels = (
        replace(channel, seq_versions=versions(len(STREAMS) * place)) if channel.protocol == SBE else channel
        for place, channel in enumerate(settings.channels)
    )
    return replace(settings, channels=tuple(channels))


def _answering(server: ControlServer, exchange: Exchange) -> Callable[[float], None]:
    return lambda seconds: server.wait(seconds, lambda line: answer(exchange, line))
