"""Books of a channel that are updated as packets are received, before the session has processed them.

    early = EarlyBooks(session, key, PacketReader(layout))
    early.arm()                         # after the session has processed everything that was received
    early.apply(packet, size, line)     # in the order in which the session will get it; the receiver's kernel does this
    early.take_changes()                # books that were changed
    early.disarm()                      # before the session processes anything

Invariant: the session decides. Only what it will find to be the next update of a book that is neither stale nor in
doubt is applied here, and `arm` finds out where that can be known. The session gets every packet too; its updates that
are in the book already are recognised by RptSeq. Everything else it does (arbitration, trust, statistics, phases,
trades) is its own, and later.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.book.engine import MBO_COLUMNS, Books
from umdf.book.live import PacketReader
from umdf.book.outcomes import REMOVED_DTYPE
from umdf.buffers import buffer_address
from umdf.feed import early_books_kernel as e
from umdf.market.fast.live_rows import LiveRows
from umdf.sync.arbitration import state_kernel as w
from umdf.sync.arbitration.arbitration_kernel import LATE_NS
from umdf.sync.channel import Channel
from umdf.sync.session import ChannelKey, Session
from umdf.sync.stream_detection import message_type
from umdf.sync.unit_codecs import SEQUENCE_RESET
from umdf.wire.fast.templates import TemplateSet

# Binary messages that do nothing to books but what their rows say. Not among them: definitions, statuses and phases
# (7, 11), Empty Books, resets (4.2.9), News, heartbeats, and snapshots.
PLAIN_TEMPLATES = (15, 16, 17, 19, 21, 22, 24, 25, 27, 28, 29, 50, 51, 52, 53, 54, 55, 56, 57)
MAX_ENTRIES = 256  # of a FIX/FAST message; longer ones are left to the session


class StopReason(IntEnum):
    """Why updates were no longer applied at once (the numbers are those of the kernel)."""

    NONE = e.CONTINUES
    OTHER_EPOCH = e.OTHER_EPOCH
    NEW_LINE = e.NEW_LINE
    NOT_NEXT = e.NOT_NEXT
    OTHER_CONTENT = e.OTHER_CONTENT
    REVEALS_LOSS = e.REVEALS_LOSS
    NO_ROOM = e.NO_ROOM
    NOT_PLAIN = e.NOT_PLAIN
    REJECTED = e.REJECTED
    UNKNOWN_BOOK = e.UNKNOWN_BOOK
    NOT_HEALTHY = e.IN_DOUBT
    NOT_FOLLOWING = e.NOT_FOLLOWING
    NEEDS_MEMORY = e.NEEDS_MEMORY
    IMPOSSIBLE = e.IMPOSSIBLE


class MessageReader:
    """The tables that kernels read the messages of a FIX/FAST channel with, and the memory of the rows of one message:
    what `PacketReader` is for Binary."""

    def __init__(self, templates: TemplateSet) -> None:
        self._rows = rows = LiveRows(templates, MAX_ENTRIES)
        resets = [number for number, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
        self.readers = np.zeros((len(rows.tables()) + len(resets), e.READER_WORDS), np.int64)
        for reader, (template, address) in zip(self.readers, rows.tables(), strict=False):
            columns = [rows.columns[template].address(name) for name in MBO_COLUMNS]
            reader[:] = template, address, *columns
        self.readers[len(rows.tables()) :, e.READER_TEMPLATE] = resets

    def attach(self, books: Books) -> None:
        """Nothing: kernels name the columns of each message."""


class EarlyBooks:
    """Of one channel."""

    def __init__(self, session: Session, key: ChannelKey, reader: PacketReader | MessageReader) -> None:
        """`reader`: of the channel's protocol."""
        self._session, self._key = session, key
        self.reports_changes = False  # from the next `arm` on
        self._reader = reader
        self._table = np.zeros(e.TABLE_WORDS, np.int64)
        self._table_view = self._table.data
        self._keys = np.zeros((e.REMEMBERED, 2), np.int64)
        self._plain, self._lines = np.zeros(e.TEMPLATES, np.uint8), np.zeros(e.MAX_LINES, np.int64)
        self._plain[list(PLAIN_TEMPLATES)] = 1
        self._changes = np.zeros((e.MAX_CHANGES, e.CHANGE_WORDS), np.int64)
        self._removed = np.zeros(e.MAX_REMOVED, REMOVED_DTYPE)
        self._table[e.CHANNEL] = key[1]
        for word, array in ((e.KEYS, self._keys), (e.PLAIN, self._plain), (e.LINES, self._lines)):
            self._table[word] = buffer_address(array)
        if isinstance(reader, MessageReader):
            self._table[[e.READERS, e.READER_COUNT]] = buffer_address(reader.readers), len(reader.readers)
        self.address = buffer_address(self._table)
        self._channel: Channel | None = None  # that the table is about, and the states of its books
        self._states: NDArray[np.int64] | None = None

    def arm(self) -> bool:
        """Allow updates to be applied, if the session has nothing pending and knows where the stream is; returns
        whether they are."""
        channel, table = self._session.channels[self._key], self._table
        words = self._session.arbiter(self._key).words
        table[[e.FIRST, e.NEXT]] = 0
        is_waiting = words[w.HELD + w.S_ALIVE] or words[w.ASIDE + w.S_ALIVE] or words[w.REVEAL_COUNT]
        next_sequence = int(words[w.EXPECTED])
        epoch = channel.epoch
        if is_waiting or epoch is None or words[w.EPOCH] != epoch or channel.sequence != next_sequence - 1:
            return False
        count = int(words[w.LINE_COUNT])
        lines = words[w.LINES : w.HEADER_WORDS].reshape(-1, w.LINE_WORDS)[:count]
        # FIX/FAST: late units of the numbering that a line had before look like the next of this one for a while.
        has_restarted = (lines[:, w.L_BEFORE] != 0) & (words[w.CLOCK] - lines[:, w.L_RESTART_NS] <= LATE_NS)
        if lines[:, w.L_MISALIGNED].any() or (self._is_fast and has_restarted.any()):
            return False
        self._lines[:] = 0
        known = lines[(lines[:, w.L_EPOCH] == words[w.EPOCH]) & (lines[:, w.L_ID] < e.MAX_LINES)]
        self._lines[known[:, w.L_ID]] = 1
        self._channel, self._states = channel, channel.trust.all_states()
        self._reader.attach(channel.books)
        books = channel.books.arenas.table
        books[k.DEPTH], books[k.REMOVED], books[k.REMOVED_COUNT] = 0, buffer_address(self._removed), 0
        table[[e.EPOCH, e.FIRST, e.NEXT, e.LATEST_GAP]] = (
            epoch,
            next_sequence,
            next_sequence,
            channel.gaps.latest,
        )
        table[e.SENT_FROM] = self._session.sent_from(self._key)
        table[e.BOOKS], table[e.STATES] = channel.books.arenas.address, buffer_address(self._states)
        table[e.ARBITER], table[e.CHANGE_COUNT] = buffer_address(words), 0
        table[e.CHANGES] = buffer_address(self._changes) if self.reports_changes else 0
        table[e.REASON], table[e.IS_ARMED] = e.CONTINUES, 1
        return True

    def disarm(self) -> None:
        """Before the session processes what was received."""
        self._table[e.IS_ARMED] = 0
        if self._channel is None:
            return
        channel, self._channel, self._states = self._channel, None, None
        words = channel.books.arenas.table
        if words[k.REMOVED_COUNT]:
            channel.note_early(self._removed[: words[k.REMOVED_COUNT]])
        words[k.REMOVED] = words[k.REMOVED_COUNT] = 0

    def take_changes(self) -> list[list[int]]:
        """The books that were changed since it was last called, one change for each book of a unit: the instrument,
        the sequence, the receive time, and the flags of the last update."""
        count = self._table_view[e.CHANGE_COUNT]
        if not count:
            return []
        self._table_view[e.CHANGE_COUNT] = 0
        return self._changes[:count].tolist()

    @property
    def _is_fast(self) -> bool:
        return isinstance(self._reader, MessageReader)

    @property
    def is_armed(self) -> bool:
        return bool(self._table[e.IS_ARMED])

    @property
    def reported(self) -> range:
        """The sequences whose changes `take_changes` has, or has had, since it was armed."""
        first, following, changes = self._table[[e.FIRST, e.NEXT, e.CHANGES]].tolist()
        return range(first, following if changes else first)

    @property
    def units(self) -> int:
        """Applied at once: packets of Binary, messages of FIX/FAST."""
        return int(self._table[e.UNITS])

    @property
    def stops(self) -> int:
        return int(self._table[e.STOPS])

    @property
    def stop_reason(self) -> StopReason:
        """The last one, since it was armed."""
        return StopReason(int(self._table[e.REASON]))


def flow_table(flows: list[tuple[EarlyBooks, int] | bool]) -> NDArray[np.int64]:
    """For each flow of a receiver its channel and the number of its line, or whether the session needs it at once."""
    rows = [
        (flow[0].address, flow[1]) if isinstance(flow, tuple) else (0, e.AT_ONCE if flow else e.MAY_WAIT)
        for flow in flows
    ]
    return np.array(rows, np.int64).reshape(-1, e.FLOW_WORDS)
