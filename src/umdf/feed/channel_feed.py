"""One channel, received live: a session of its own, its state, and what it reports. No I/O and no clock.

    feed.receive(packets, rows)     # of this channel's lines
    feed.advance(now_ns)            # everything that is due by now
    feed.take_events()              # and feed.take_batches(): market data
    feed.wanted_lines()             # what should be joined

Invariant: nothing here decides what is right. Trust is that of `sync`; the state follows it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.book.live import PacketReader
from umdf.feed.channel_states import JOINED_STREAMS, TRANSITIONS, FeedState, Signal
from umdf.feed.early_books import EarlyBooks, MessageReader
from umdf.feed.events import BookChanged, EpochStarted, FeedEvent, GapOpened, StateChanged, TrustChanged
from umdf.feed.feed_lines import PROTOCOLS, FeedLine, channel_key, feed_lines, session_streams
from umdf.market.families import NULL
from umdf.market.rows import Events
from umdf.sync import session as sessions
from umdf.sync.arbitration.arbiter import ArbitrationResult, StepKind
from umdf.sync.channel import Channel
from umdf.sync.stream_detection import CapturedPackets
from umdf.sync.trust import HEALTHY, Trust, TrustLevel
from umdf.transport.channels_file import ChannelAddresses
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.sbe.layout import Layout
from umdf.wire.sbe.schema import Schema

SILENT_HEARTBEATS = 3  # 4.1.1, 4.2.7
UNUSED_UNITS = 4  # so many show that a numbering does not go on
LAST = 128  # of the flags: the end of an event
# Trust of all instruments is read again so often while something is wrong: at most a tenth of the time.
CHECK_NS, CHECK_NS_PER_INSTRUMENT = 100_000_000, 50_000


@dataclass(frozen=True)
class FeedSettings:
    keeps_joined: bool = False  # the instrument and snapshot streams, although nothing is missing
    wait_ms: int = 20  # for the other line, before a hole is a gap (13.7)


@dataclass
class LineQuality:
    """Units of one incremental line, summed up."""

    delivered: int = 0  # came first, or alone
    duplicates: int = 0
    late: int = 0
    quarantined: int = 0
    set_aside: int = 0
    conflicts: int = 0


@dataclass
class ChannelTotals:
    units: int = 0  # delivered in order
    missing: int = 0  # sequences of gaps, when they were opened
    filled: int = 0
    gaps: int = 0
    epochs: int = 0
    early: int = 0  # packets that were applied to books as they were received
    early_stops: dict[str, int] = field(default_factory=dict)  # by reason: the session had to process everything first
    lines: dict[str, LineQuality] = field(default_factory=dict)


class ChannelFeed:
    def __init__(
        self,
        addresses: ChannelAddresses,
        schema: Schema,
        templates: TemplateSet,
        settings: FeedSettings | None = None,
    ) -> None:
        self.addresses, self.key = addresses, channel_key(addresses)
        self.settings = settings or FeedSettings()
        self.state, self.totals = FeedState.WAITING, ChannelTotals()
        self.lines = feed_lines(addresses)
        self._streams = session_streams(addresses)
        self.session = sessions.Session(
            self._streams,
            schema,
            templates,
            observer=self._observe,
            arbitrations=self._count,
            silence_s=SILENT_HEARTBEATS * addresses.heartbeat_s,
            may_follow_failover=True,  # the client may start at any time
        )
        self._session_key = PROTOCOLS[self.key.protocol], self.key.number
        # A channel of news alone has no instruments to wait for.
        self._has_list = "instruments" in addresses.streams and addresses.book != "none"
        self._is_list_complete = not self._has_list
        self._events: list[FeedEvent] = []
        self._batches: list[Events] = []
        self._untrusted: dict[int, Trust] = {}  # instruments that are not healthy
        self._is_new_epoch = False
        self._has_news = False  # something that may change trust has happened since the last check
        self._next_check_ns = 0
        self._place: tuple[int | None, int] = None, 0  # the epoch and sequence of the stream
        self._moved_ns = self._unused_units = 0  # when it last moved, and units since then that did not continue it
        self.latency_ns: int | None = None  # of the last unit, from sending to receiving
        self.early: EarlyBooks | None = None
        self._reported_early = range(0)  # sequences of these batches whose changes of books were reported before
        self._schema, self._templates = schema, templates

    @property
    def channel(self) -> Channel:
        return self.session.channels[self._session_key]

    @property
    def untrusted_count(self) -> int:
        """Instruments that were not healthy when it was last checked."""
        return len(self._untrusted)

    @property
    def last_seen_ns(self) -> int:
        return self.session.arbiter(self._session_key).last_seen

    @property
    def dropped(self) -> int:
        """Packets, or parts of them, that are not of this channel or cannot be framed."""
        return self.session.dropped(self._session_key)

    # Input.

    def start_early_books(self) -> None:
        """Have books updated as packets are received: see `EarlyBooks`."""
        if self.early is None:
            is_binary = self.key.protocol == "sbe"
            reader = PacketReader(Layout(self._schema)) if is_binary else MessageReader(self._templates)
            self.early = EarlyBooks(self.session, self._session_key, reader)
            self.early.arm()

    def line_number(self, line: FeedLine) -> int:
        return self.session.streams[line][0]

    def receive(self, packets: CapturedPackets, names: Sequence[Hashable], rows: NDArray[np.int64]) -> None:
        """Rows of received packets, which are named by their lines. Nothing is applied until `advance`."""
        self.session.add(packets, list(names), rows)

    def advance(self, now_ns: int) -> None:
        """Apply everything that is in order, and do what is due by now."""
        if self.early is not None:
            self._count_early(self.early)
            self.early.disarm()
        self.session.advance(now_ns)
        channel = self.channel
        if self._is_new_epoch:
            self._is_new_epoch, self._has_news = False, True
            self._signal(Signal.EPOCH_STARTED, now_ns)
        self._report_gaps(channel)
        self._follow_numbering(channel, now_ns)
        last_seen = self.last_seen_ns
        if last_seen:
            silent_s = (now_ns - last_seen) / 1e9
            is_silent = silent_s > SILENT_HEARTBEATS * self.addresses.heartbeat_s
            channel.silent_s = silent_s if is_silent else None
            self._signal(Signal.FELL_SILENT if is_silent else Signal.RECEIVED, now_ns)
        self._has_news |= self.state != FeedState.LIVE
        if self.state != FeedState.WAITING and now_ns >= self._next_check_ns:
            self._check_trust(channel, now_ns)
        if self.early is not None:
            self._reported_early = self.early.reported
            self.early.arm()

    def _follow_numbering(self, channel: Channel, now_ns: int) -> None:
        """Heartbeats of FIX/FAST are numbered, so a stream that does not move while something is received is not of
        this numbering any more. Where a client joined far above 1, its units look like late ones of before."""
        place = channel.epoch, channel.sequence
        if place != self._place:
            self._place, self._moved_ns, self._unused_units = place, now_ns, 0
        is_still = now_ns - self._moved_ns > 1e9 * SILENT_HEARTBEATS * self.addresses.heartbeat_s
        is_started = self.key.protocol == "fast" and channel.epoch is not None
        if is_started and is_still and self._unused_units >= UNUSED_UNITS:
            self.session.restart_numbering(self._session_key)
            self._moved_ns, self._unused_units = now_ns, 0

    # Output.

    def take_events(self) -> list[FeedEvent]:
        taken, self._events = self._events, []
        return taken

    def take_batches(self) -> list[Events]:
        """Events of the incremental stream, in the order in which they were applied."""
        taken, self._batches = self._batches, []
        return taken

    def wanted_lines(self) -> set[FeedLine]:
        """The lines that should be received now."""
        is_all = self.settings.keeps_joined
        return {line for line in self.lines if is_all or line.kind in JOINED_STREAMS[self.state]}

    def instrument_ids(self) -> set[int]:
        return {*self.channel.state.instruments.ids(), *self.channel.instrument_ids()}

    def symbol_of(self, instrument_id: int) -> str | None:
        return self.channel.state.instruments.symbol_of(instrument_id)

    # What happened.

    def _signal(self, signal: Signal, now_ns: int) -> None:
        after = TRANSITIONS[self.state].get(signal)
        if after is not None:
            self._events.append(StateChanged(self.key, self.state, after, now_ns))
            self.state = after
            self._next_check_ns = now_ns

    def _report_gaps(self, channel: Channel) -> None:
        opened, totals = channel.gaps.opened, self.totals
        for gap in opened[totals.gaps :]:
            totals.missing += gap.last - gap.first + 1
            self._events.append(GapOpened(self.key, gap))
            self._has_news, self._next_check_ns = True, 0
        totals.gaps, totals.filled = len(opened), channel.gaps.filled_count

    def _check_trust(self, channel: Channel, now_ns: int) -> None:
        """Report what has changed. Books that become stale without a gap are found here too, a little later."""
        ids = self.instrument_ids()
        self._next_check_ns = now_ns + CHECK_NS + CHECK_NS_PER_INSTRUMENT * len(ids)
        if not self._has_news and not channel.trust.has_stale():
            return
        found = channel.untrusted()
        if self.state in (FeedState.LIVE, FeedState.RECOVERING, FeedState.SILENT):
            for number in sorted(found.keys() | self._untrusted.keys()):
                before, after = self._untrusted.get(number, HEALTHY), found.get(number, HEALTHY)
                if before.level != after.level:
                    self._events.append(TrustChanged(self.key, number, self.symbol_of(number), before, after))
        self._untrusted, self._has_news = found, False
        # Once it was complete: instruments that are deleted later leave fewer than the list had.
        self._is_list_complete |= channel.state.instruments.is_complete
        # Phases and states too: a lost change of a phase shows in no book, and only snapshots answer it (11.4).
        # Definitions: only the missing units or the instrument stream answer (7.2, 7.3).
        has_definition_gap = self._has_list and channel.definition_gap() is not None
        if found or has_definition_gap or channel.has_uncertain_state():
            self._signal(Signal.UNTRUSTED, now_ns)
        elif self._is_list_complete and channel.silent_s is None and channel.epoch is not None:
            self._signal(Signal.HEALTHY, now_ns)

    def _count(self, _: sessions.ChannelKey, result: ArbitrationResult) -> None:
        self.totals.units += len(result.units)
        for step in result.steps:
            if step.kind == StepKind.EPOCH:
                self.totals.epochs += 1
                self._events.append(EpochStarted(self.key, step.epoch, step.first))
                self._is_new_epoch = True
        for number, delivered in enumerate(np.bincount(result.units.line).tolist()):
            if delivered:
                self._quality(number).delivered += delivered
        for number, counts in result.line_counts.items():
            self._unused_units += counts.late + counts.set_aside + counts.conflicts + counts.quarantined
            quality = self._quality(number)
            for name, value in vars(counts).items():
                setattr(quality, name, getattr(quality, name) + value)

    def _count_early(self, early: EarlyBooks) -> None:
        self.totals.early = early.units
        stops = self.totals.early_stops
        if early.stops > sum(stops.values()):
            reason = early.stop_reason.name.lower()
            stops[reason] = stops.get(reason, 0) + 1

    def _quality(self, line_number: int) -> LineQuality:
        line = self._streams[line_number].name
        assert isinstance(line, FeedLine)
        return self.totals.lines.setdefault(line.line, LineQuality())

    def _observe(self, _: sessions.ChannelKey, events: Events) -> None:
        self._batches.append(events)
        # A new instrument may have a book that is not known: it may also have been listed before the client joined.
        self._has_news |= "definition" in events.families
        units = events.units
        if len(units) and units.ts_send[-1] != NULL:
            self.latency_ns = int(units.ts_recv[-1] - units.ts_send[-1])

    def book_changes(self, events: Events) -> list[BookChanged]:
        """The books that a batch changed, in the order of their last updates, without those that were reported as they
        were received. A stale book does not change."""
        rows, early = events.rows("mbo"), self._reported_early
        if early and len(rows):
            sequences = events.units.sequence[rows.unit]
            rows = rows.take((sequences < early.start) | (sequences >= early.stop))
        ids = rows.column("instrument_id")
        _, last_from_end = np.unique(ids[::-1], return_index=True)
        changes: dict[int, BookChanged] = {}
        for row in np.sort(len(ids) - 1 - last_from_end).tolist():
            unit, is_last = int(rows.unit[row]), bool(int(rows.column("flags")[row]) & LAST)
            sequence, ts_recv = int(events.units.sequence[unit]), int(events.units.ts_recv[unit])
            # A channel reset states no instrument: it empties all books (4.2.9).
            numbers = [int(ids[row])] if ids[row] != NULL else sorted(self.channel.instrument_ids())
            for number in numbers:
                if self.channel.book_trust(number).level != TrustLevel.STALE:
                    changed = BookChanged(self.key, number, self.symbol_of(number), sequence, ts_recv, is_last)
                    changes[number] = changed
        return list(changes.values())

    def early_changes(self) -> list[BookChanged]:
        """The books that were changed as packets were received, since it was last called."""
        if self.early is None:
            return []
        symbol_of = self.channel.state.instruments.symbol_of
        return [
            BookChanged(self.key, number, symbol_of(number), sequence, ts_recv, flags & LAST != 0)
            for number, sequence, ts_recv, flags in self.early.take_changes()
        ]
