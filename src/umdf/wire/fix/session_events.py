"""What a FIX session reports to its owner."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.wire.fix.message import FixMessage


@dataclass(frozen=True)
class SessionStart:
    peer_id: str


@dataclass(frozen=True)
class ApplicationMessage:
    """An application message, in sequence."""

    message: FixMessage


@dataclass(frozen=True)
class Rejection:
    """The peer has rejected a message that was sent to it (Reject)."""

    msg_type: str  # of that message (372); empty if the peer does not state it
    reason: str


@dataclass(frozen=True)
class SessionEnd:
    reason: str
    is_regular: bool = False  # by a logout of either side


SessionEvent = SessionStart | ApplicationMessage | Rejection | SessionEnd
