"""The replayers of a running exchange: histories of all FIX/FAST channels, and the servers that read them.

replayers = Replayers(directory, settings_by_name, clock_ns, log)
replayers.open_line(channel, stream, line)   # a sink for line A of an incremental stream in FIX/FAST
replayers.start() … replayers.stop()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from umdf.exchange.network.faults import Faults
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL
from umdf.exchange.publish.sinks import Sink
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.retention import Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings, Switch
from umdf.transport.channels_file import ChannelAddresses, LineAddress


class Replayers:
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, ReplayerSettings],
        clock_ns: Callable[[], int],
        log: Callable[[str], None] = lambda _: None,
        *,
        faults: Faults | None = None,
    ) -> None:
        """`clock_ns` is the time of the exchange, in which messages were sent."""
        self._directory, self._histories = directory, dict[str, ChannelHistory]()
        self.servers: dict[str, ReplayerServer] = {}
        for name, own in settings.items():
            served = ReplaySettings(own.available_after_ms)
            service = ReplayService(self._histories, served, Profile(own.retention), clock_ns)
            self.servers[name] = ReplayerServer(own, service, log, faults=faults)

    def open_line(self, channel: ChannelAddresses, stream: str, line: LineAddress) -> Sink | None:
        """Keeps what is sent there, if replayers serve it: both lines are the same (5.2)."""
        if channel.protocol != FAST or stream != INCREMENTAL or line.line != "A":
            return None
        history = ChannelHistory(self._directory / f"channel-{channel.number:03}")
        self._histories[str(channel.number)] = history
        return HistorySink(history)

    def switch(self, name: str, switch: Switch, *, on: bool) -> None:
        """Answer every request of a replayer in one of the ways that only an operator can cause."""
        switches = self.servers[name].service.settings.switches
        switches.add(switch) if on else switches.discard(switch)

    def start(self) -> None:
        for server in self.servers.values():
            server.start()

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()
