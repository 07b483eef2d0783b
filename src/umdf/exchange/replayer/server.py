"""A replayer on a TCP port. One server and one session of a client serve all channels (13.7)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from weakref import WeakSet

import numpy as np

from umdf.exchange.network.faults import Faults
from umdf.exchange.network.faulty_replayer import FaultyReplayer
from umdf.exchange.replayer.connection import CompIds, ReplayerConnection, ReplayerId
from umdf.exchange.replayer.retention import SESSION
from umdf.exchange.replayer.service import AVAILABLE_AFTER_MS, ReplayService
from umdf.transport.tcp import Address, Connection, TcpLimits, TcpLoop


@dataclass(frozen=True)
class ReplayerSettings:
    address: Address
    comp_id: str
    clients: frozenset[str] = frozenset()  # CompIDs that may log on; empty: everyone
    retention: str = SESSION
    available_after_ms: int = AVAILABLE_AFTER_MS
    max_sessions: int = 512


@dataclass
class ReplayerServer:
    """Serves in a thread of its own until `stop`."""

    settings: ReplayerSettings
    service: ReplayService
    log: Callable[[str], None] = lambda _: None
    clock_ns: Callable[[], int] = time.time_ns
    faults: Faults | None = None  # on the way to every client
    _stop: Event = field(default_factory=Event)
    _connections: WeakSet[ReplayerConnection] = field(default_factory=WeakSet)

    def __post_init__(self) -> None:
        settings = self.settings
        replayer, comp_ids = ReplayerId(settings.comp_id, settings.clients), CompIds(settings.clients)
        self._loop = TcpLoop(TcpLimits(max_connections=settings.max_sessions), self.clock_ns)

        faults, start_ns, numbers = self.faults, self.clock_ns(), itertools.count()

        def connection() -> Connection:
            own = ReplayerConnection(replayer, comp_ids, self.service, self.clock_ns(), self.log)
            self._connections.add(own)
            if faults is None or not faults.harms_replayer:
                return own
            return FaultyReplayer(own, np.random.default_rng([next(numbers)]), faults, start_ns)

        self.address = self._loop.listen(settings.address, connection)
        self._thread = Thread(target=self._loop.run, args=(self._stop,), name="replayer", daemon=True)

    @property
    def session_count(self) -> int:
        return self._loop.connection_count

    @property
    def is_serving(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._loop.wake()
        if self._thread.ident is not None:  # it was started; it may have ended by now
            self._thread.join()
            for connection in self._connections:
                connection.session.log_out("the replayer stops", self.clock_ns())
            self._loop.poll(0)
        self._loop.close()
