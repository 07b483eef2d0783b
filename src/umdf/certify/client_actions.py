"""What the client does in a step. A client of a third party gets it as an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from umdf.certify.profile import MBO_CHANNEL
from umdf.certify.stage import Stage

UNKNOWN_CHANNEL = 255
LAST_MESSAGES = 20  # D3.2


@dataclass(frozen=True)
class ReplayRange:
    channel: int
    first: int
    last: int


class ClientConnections(Protocol):
    """What a client must be able to do."""

    def connect(self, *, starts_again: bool) -> None: ...

    def disconnect(self) -> None: ...

    def log_on_to_history(self) -> None: ...

    def request_history(self, wanted: ReplayRange) -> None: ...


class ClientAction(Protocol):
    @property
    def text(self) -> str: ...

    def perform(self, client: ClientConnections, stage: Stage) -> None: ...


@dataclass(frozen=True)
class Connect:
    """Join the channels: with everything still known, or as a client that starts again from nothing."""

    starts_again: bool = True

    @property
    def text(self) -> str:
        return "connects to the channel" + (", knowing nothing" if self.starts_again else " again")

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        client.connect(starts_again=self.starts_again)


@dataclass(frozen=True)
class Disconnect:
    @property
    def text(self) -> str:
        return "disconnects from the channel"

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        client.disconnect()


@dataclass(frozen=True)
class LogOnToHistory:
    @property
    def text(self) -> str:
        return "logs on to the Historical Replayer"

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        client.log_on_to_history()


@dataclass(frozen=True)
class RequestLastMessages:
    """D3.2: the 20 messages before the last one."""

    @property
    def text(self) -> str:
        return f"requests the {LAST_MESSAGES} messages before the last one"

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        last = stage.last_sequence(MBO_CHANNEL)
        client.request_history(ReplayRange(MBO_CHANNEL, last - LAST_MESSAGES, last - 1))


@dataclass(frozen=True)
class RequestDay:
    """Messages of an earlier day, whose range the exchange tells."""

    days_ago: int

    @property
    def text(self) -> str:
        return f"requests messages of {self.days_ago} day{'s' if self.days_ago > 1 else ''} ago"

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        client.request_history(ReplayRange(MBO_CHANNEL, *stage.days[self.days_ago]))


@dataclass(frozen=True)
class RequestUnknownChannel:
    @property
    def text(self) -> str:
        return f"requests messages of a channel that does not exist ({UNKNOWN_CHANNEL})"

    def perform(self, client: ClientConnections, stage: Stage) -> None:
        client.request_history(ReplayRange(UNKNOWN_CHANNEL, 1, LAST_MESSAGES))
