"""Our own client as it is certified: `umdf.Live` over real sockets, with everything it receives kept as evidence."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from umdf.book.views import Book, Level
from umdf.certify.client_actions import ReplayRange
from umdf.certify.observation import BookRow, BookState, SeenMessage
from umdf.certify.replay_session import ReplaySession
from umdf.feed.channel_feed import ChannelFeed, FeedSettings
from umdf.feed.feed_lines import FeedLine, feed_lines
from umdf.feed.live import Live
from umdf.feed.replay_client import Span
from umdf.feed.tap import TapRecord
from umdf.transport.channels_file import HISTORICAL_REPLAYER, REPLAYER, ChannelAddresses, ReplayerAddresses

POLL_S = 0.002
PATIENCE_S = 5.0  # of real time, for what has been sent to arrive
GAP_S = 0.06  # of real time: a hole waits for the other line before it is a gap (13.7)
Sent = Callable[[], Mapping[tuple[int, str], int]]  # packets that the exchange has sent, by channel and stream


class OurClient:
    def __init__(
        self, channels: Sequence[ChannelAddresses], replayers: Mapping[str, ReplayerAddresses], sent: Sent
    ) -> None:
        self._channels, self._sent, self._now_ns = list(channels), sent, time.time_ns
        self._live: Live | None = None
        self._is_connected, self._may_have_gap = False, False
        self._sent_before: dict[FeedLine, int] = {}
        self._taken: Counter[Hashable] = Counter()  # packets, by line
        self._records: list[TapRecord] = []  # of the step
        self._books: dict[tuple[int, int], list[BookState]] = defaultdict(list)
        self._replayers = replayers
        self._replays = {name: ReplaySession(where, self._now_ns) for name, where in replayers.items()}
        self._history_is_open = False
        self.troubles: list[str] = []  # of the network or the replayers, since the step began

    # Connections

    def connect(self, *, starts_again: bool) -> None:
        if starts_again or self._live is None:
            if self._live is not None:
                self._live.close()
            self._sent_before, self._taken = self._sent_so_far(), Counter()
            sources = [self._replays[REPLAYER]] if REPLAYER in self._replays else []
            settings = FeedSettings(keeps_joined=True)
            self._live = Live(self._channels, settings=settings, sources=sources, tap=self._on_tap)
        elif not self._is_connected:
            for line, sent in self._sent_so_far().items():
                self._sent_before[line] = sent - self._taken[line]
                self._live.receiver.join(line, self._feed_of(line).lines[line])
            self._may_have_gap = True
        self._is_connected = True

    def disconnect(self) -> None:
        assert self._live is not None
        self.settle()
        for feed in self._live.client.feeds.values():
            for line in feed.lines:
                self._live.receiver.leave(line)
        self._is_connected = False

    def log_on_to_history(self) -> None:
        if self._history_is_open:
            self._replays[HISTORICAL_REPLAYER].close()
        session = ReplaySession(self._replayers[HISTORICAL_REPLAYER], self._now_ns)
        self._replays[HISTORICAL_REPLAYER], self._history_is_open = session, True
        self._wait(lambda: session.is_active, "no logon to the Historical Replayer")

    def request_history(self, wanted: ReplayRange) -> None:
        if not self._history_is_open:
            self.log_on_to_history()
        session = self._replays[HISTORICAL_REPLAYER]
        session.request_span(Span(wanted.channel, wanted.first, wanted.last))
        self._wait(lambda: session.is_idle, "no complete answer of the Historical Replayer")
        session.take()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
        for session in self._replays.values():
            session.close()

    # Receiving

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take what has come."""
        if self._live is None:
            return
        batches = self._live.receiver.take(timeout_s) if timeout_s else self._live.receiver.take(1e-6)
        for packets in batches:
            for flow, count in enumerate(np.bincount(packets.flow).tolist()):
                self._taken[packets.names[flow]] += count
        self._live.process(batches, self._now_ns())
        replayer = self._replays.get(REPLAYER)
        if replayer is not None and not replayer.is_idle:
            replayer.poll()
        if self._history_is_open:
            self._replays[HISTORICAL_REPLAYER].poll()

    def settle(self) -> None:
        """Receive everything that has been sent, and recover what is missing."""
        if self._live is None or not self._is_connected:
            return
        self._wait(self._has_everything, "packets were lost on the way")
        if self._may_have_gap:
            self._may_have_gap = False
            until = time.monotonic() + GAP_S
            while time.monotonic() < until:
                self.poll(POLL_S)
            self._wait(lambda: self._replays[REPLAYER].is_idle, "no complete answer of the Replayer")
            self.poll(POLL_S)

    def _wait(self, is_done: Callable[[], bool], trouble: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_done():
            self.poll(POLL_S)
            if time.monotonic() > until:
                self.troubles.append(f"{trouble} within {PATIENCE_S:g} s")
                return

    def _has_everything(self) -> bool:
        assert self._live is not None
        return not self._missing()

    def _missing(self) -> dict[FeedLine, int]:
        """Packets that have been sent and not taken, by line."""
        sent = self._sent_so_far()
        missing = {line: count - self._sent_before[line] - self._taken[line] for line, count in sent.items()}
        return {line: count for line, count in missing.items() if count > 0}

    def _sent_so_far(self) -> dict[FeedLine, int]:
        sent = self._sent()
        return {line: sent[line.channel.number, line.stream] for line in self._lines()}

    def _lines(self) -> list[FeedLine]:
        return [line for channel in self._channels for line in feed_lines(channel)]

    # Evidence

    def begin_step(self) -> None:
        self._records.clear()
        self._books.clear()
        self.troubles.clear()
        for session in self._replays.values():
            session.take_messages()

    def mark_books(self, channel: int, security_id: int) -> None:
        """Remember a book as it is before a step."""
        self._books[channel, security_id] = [self.book(channel, security_id)]

    def books(self, channel: int, security_id: int) -> tuple[BookState, ...]:
        """The book before the step, after each packet, and now."""
        found = self._books[channel, security_id] or [BookState()]
        last = self.book(channel, security_id)
        return tuple(found if found[-1] == last else [*found, last])

    def book(self, channel: int, security_id: int) -> BookState:
        feed = self._feed(channel)
        return BookState() if feed is None else state_of(feed.channel.book(security_id))

    def messages(self, channel: int, streams: Sequence[str]) -> tuple[SeenMessage, ...]:
        """What came on some streams of a channel since the step began."""
        return tuple(
            SeenMessage(channel, record.line.stream, message.sequence, tuple(message.fix()), record.data)
            for record in self._records
            if record.line is not None and record.line.channel.number == channel and record.line.stream in streams
            for message in record.messages
        )

    def replies(self) -> tuple[SeenMessage, ...]:
        return tuple(message for session in self._replays.values() for message in session.take_messages())

    def _on_tap(self, record: TapRecord) -> None:
        self._records.append(record)
        for security_id, book in record.after.items():
            states = self._books.get((record.feed.key.number, security_id))
            if states is not None:
                state = state_of(book)
                if state != states[-1]:
                    states.append(state)

    def _feed(self, channel: int) -> ChannelFeed | None:
        feeds = self._live.client.feeds.values() if self._live is not None else ()
        return next((feed for feed in feeds if feed.key.number == channel), None)

    def _feed_of(self, line: FeedLine) -> ChannelFeed:
        assert self._live is not None
        return self._live.client.feeds[line.channel]


def state_of(book: Book | None) -> BookState:
    """The rows of a book, in its order."""
    return (
        BookState()
        if book is None
        else BookState(*(_rows(levels, book.depth is None) for levels in (book.bids, book.asks)))
    )


def _rows(levels: Sequence[Level], has_orders: bool) -> tuple[BookRow, ...]:
    if not has_orders:
        return tuple(BookRow(level.price, level.size, None, level.count) for level in levels)
    return tuple(BookRow(level.price, order.size, order.order_id) for level in levels for order in level.orders)
