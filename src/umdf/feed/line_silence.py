"""Lines on which nothing is received although they are joined: a dead line, or a stream that does not come.

A line sends at least a heartbeat (4.1.1), so three intervals without anything are a fault of that line, if others of
its channel are received; whether the channel is silent is decided by `ChannelFeed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.transport.udp_receiver import FlowCounts


class LineSilence:
    """Compares the counts of packets with those of the call before."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._seen: dict[FeedLine, tuple[int, int]] = {}  # packets, and when they were more than before

    def notices(
        self, counts: Mapping[Any, FlowCounts], joined: Set[FeedLine], limits_s: Mapping[ChannelKey, float]
    ) -> list[str]:
        """Warnings about joined lines that have been silent for longer than the limit of their channel."""
        now_ns, seen = self._now_ns(), self._seen
        self._seen = {}
        for line in joined:
            packets = counts[line].packets if line in counts else 0
            before = seen.get(line)
            self._seen[line] = before if before is not None and before[0] == packets else (packets, now_ns)
        silent_s = {line: (now_ns - since) / 1e9 for line, (_, since) in self._seen.items()}
        silent = {line for line in joined if silent_s[line] > limits_s[line.channel]}
        received = {line.channel for line in joined - silent}  # of a channel without any, the state says it
        return [
            f"nothing was received for {silent_s[line]:.0f} s on {line}"
            for line in sorted(silent, key=str)
            if line.channel in received
        ]
