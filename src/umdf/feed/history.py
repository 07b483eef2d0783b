"""Messages of a channel from the Historical Replayer, part by part (4.1.5): for charts, not for recovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span
from umdf.transport.channels_file import ReplayerAddresses
from umdf.transport.tcp import TcpLoop
from umdf.wire.fix.replay_messages import MAX_REQUEST_MESSAGES

POLL_S = 0.05
TIMEOUT_MS = 10_000  # its answers are slow (4.1.5)


def fetch_history(
    replayer: ReplayerAddresses, span: Span, now_ns: Callable[[], int] = time.time_ns
) -> Iterator[ReplayedMessages | ReplayFailure]:
    """The messages of a span in order of their requests, and what is not available: all that is left, once there is no
    session with the replayer."""
    client = ReplayClient(ReplayClientSettings(replayer.comp_id, replayer.replayer_id, timeout_ms=TIMEOUT_MS))
    loop, attempt = TcpLoop(clock_ns=now_ns), 0
    try:
        for first in range(span.first, span.last + 1, MAX_REQUEST_MESSAGES):
            client.request(Span(span.channel, first, min(first + MAX_REQUEST_MESSAGES - 1, span.last)), now_ns())
            while not client.is_idle:
                if client.wants_connection(now_ns()):
                    client.open(now_ns())
                    loop.connect(replayer.addresses[attempt % len(replayer.addresses)], client)
                    attempt += 1
                client.tick(now_ns())
                loop.poll(POLL_S)
                if client.is_answering:
                    attempt = 0  # A is preferred, also after B has been lost (5.2)
                yield from client.take_outcomes()
            yield from client.take_outcomes()
            following = first + MAX_REQUEST_MESSAGES
            if not client.is_active and following <= span.last:
                yield ReplayFailure(Span(span.channel, following, span.last), client.last_error)
                return
    finally:
        client.log_out(now_ns())
        loop.poll(POLL_S)
        loop.close()
