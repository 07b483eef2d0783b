"""A session with a TCP Replayer, whose every message is kept as evidence; and the source of recovery that uses it."""

from __future__ import annotations

from collections.abc import Callable

from umdf.certify.observation import SeenMessage
from umdf.feed.feed_lines import ChannelKey
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span
from umdf.feed.replay_source import rebuilt_packets
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import ReplayerAddresses
from umdf.transport.tcp import TcpLoop
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fix.message import FixFramer, FixMessage

STREAM = "replay"
POLL_S = 0.01
TIMEOUT_MS = 2_000
DATA_TAGS = (96,)  # RawData: bytes


class RecordingClient(ReplayClient):
    """Keeps what the replayer sends."""

    def __init__(self, settings: ReplayClientSettings) -> None:
        super().__init__(settings)
        self.received: list[FixMessage] = []
        self._framer = FixFramer()

    def receive(self, data: bytes, now_ns: int) -> None:
        self.received += [message for message in self._framer.feed(data) if isinstance(message, FixMessage)]
        super().receive(data, now_ns)


class ReplaySession:
    """Polled by its owner; `take` and `request` make it a recovery source of `umdf.Live`."""

    def __init__(self, replayer: ReplayerAddresses, now_ns: Callable[[], int]) -> None:
        settings = ReplayClientSettings(replayer.comp_id, replayer.replayer_id, timeout_ms=TIMEOUT_MS, retries=1)
        self._replayer, self._now_ns = replayer, now_ns
        self._client, self._loop = RecordingClient(settings), TcpLoop(clock_ns=now_ns)
        self._failures: list[ReplayFailure] = []

    def request(self, channel: ChannelKey, gap: Gap) -> None:
        self.request_span(Span(channel.number, gap.first, gap.last))

    def cancel(self, channel: ChannelKey) -> None:
        """What snapshots or a new epoch have made useless."""
        self._client.cancel(channel.number)

    def request_span(self, span: Span) -> None:
        self._client.request(span, self._now_ns())

    @property
    def is_active(self) -> bool:
        return self._client.is_active

    @property
    def is_idle(self) -> bool:
        return self._client.is_idle

    def poll(self) -> None:
        now_ns = self._now_ns()
        if self._client.wants_connection(now_ns):
            self._client.open(now_ns)
            self._loop.connect(self._replayer.addresses[0], self._client)
        self._client.tick(now_ns)
        self._loop.poll(POLL_S)

    def take(self) -> list[ReceivedPackets]:
        """What has been replayed, as packets."""
        found = []
        for outcome in self._client.take_outcomes():
            if isinstance(outcome, ReplayedMessages):
                found.append(rebuilt_packets(outcome, self._now_ns()))
            else:
                self._failures.append(outcome)
        return found

    def take_messages(self) -> list[SeenMessage]:
        """What the replayer has sent since the last call; raw data in base 16."""
        messages, self._client.received = self._client.received, []
        return [
            SeenMessage(0, STREAM, message.integer(34) or 0, tuple(_text_fields(message)), _bytes_of(message))
            for message in messages
        ]

    def close(self) -> None:
        self._client.log_out(self._now_ns())
        self._loop.poll(POLL_S)
        self._loop.close()


def _text_fields(message: FixMessage) -> list[tuple[int, str]]:
    return [
        (tag, value.hex() if tag in DATA_TAGS else value.decode("utf-8", "backslashreplace"))
        for tag, value in message.fields
    ]


def _bytes_of(message: FixMessage) -> bytes:
    """Its fields as they were received; the framing is that of every FIX message."""
    return b"".join(b"%d=%b\x01" % (tag, value) for tag, value in message.fields)
