"""Simultaneous auctions (15): those of two paired instruments start and end together.

    query(index)            its auction could end: nothing may change it, and the other instrument is asked
    T1                      the other one agrees if its own auction could end too, which then ends
    T2                      the reply: the auction ends, or has no end time until the other one asks
    start(index)            an auction of its own: the other instrument has one too, without an end time

A query and its reply take up to a second (15.2.1), half of it each way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umdf.errors import UsageError
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.session.trading_session import AUCTIONS, SEPARATES

if TYPE_CHECKING:
    from umdf.exchange.live.running_market import RunningMarket

NEVER = 1 << 62
HEADLINE = "Auction for instrument {symbol} - synchronization"
CLOSING_TEXT = "Call for instrument {symbol} -Reason: synchronization."  # as 15.3 and 15.4 print them
STARTING_TEXT = "Call for instrument {symbol} -Reason: synchronization"
NOTIFY, ASK, REPLY = range(3)


@dataclass(frozen=True)
class _Message:
    """What one instrument tells the other, or is told: `index` is the one whose auction starts or could end."""

    due_ns: int
    kind: int
    index: int
    is_agreed: bool = False


class SimultaneousAuctions:
    def __init__(self, running: RunningMarket, auction_ends: dict[int, int]) -> None:
        """`auction_ends` has the end times of auctions that instruments are in on their own."""
        self._running, self._market, self._session = running, running.market, running.session
        self._ends, self._other = auction_ends, dict[int, int]()
        self._own: set[int] = set()  # in an auction of their own, not that of a phase
        self._without_end: set[int] = set()  # could end as soon as the other one can
        self._messages: list[_Message] = []
        self._one_way_ns = running.settings.synchronization_ms * 500_000

    def pair(self, index: int, other: int) -> None:
        symbols = self._running.listing.symbols
        for one in (index, other):
            if one in self._other:
                raise UsageError(f"{symbols[one]} is paired with {symbols[self._other[one]]}", "use another instrument")
        if index == other:
            raise UsageError(f"one instrument: {symbols[index]}", "name two")
        self._other |= {index: other, other: index}

    def pairs(self) -> list[tuple[int, int]]:
        return [(index, other) for index, other in self._other.items() if index < other]

    @property
    def next_due_ns(self) -> int:
        return min((message.due_ns for message in self._messages), default=NEVER)

    def start(self, index: int) -> None:
        """An instrument is in an auction of its own now: its pair will be too (15.4)."""
        if index in self._other:
            self._own.add(index)
            if self._market.instruments[self._other[index], k.I_STATE] == k.OPEN:
                self._send(NOTIFY, index)

    def query(self, index: int) -> bool:
        """Ask whether the auction of an instrument, whose time has come, may end; False if it is in no pair. Until the
        reply everything that could change its theoretical price is rejected (15.2)."""
        if index not in self._other:
            return False
        row = self._market.instruments[index]
        row[k.I_SYNCHRONISM] = k.OF_INSTRUMENT if index in self._own else k.OF_PHASE
        if not self._session.is_separated(index):
            self._session.change_state(index, int(row[k.I_STATE]), SEPARATES)
            self._publish_news(index, CLOSING_TEXT)
        self._send(ASK, index)
        return True

    def run_due(self, now_ns: int) -> None:
        """Deliver the messages that are due."""
        while self._messages and min(self._messages, key=_due).due_ns <= now_ns:
            message = min(self._messages, key=_due)
            self._messages.remove(message)
            if self._market.instruments[message.index, k.I_STATE] == k.UNKNOWN:  # it has been deleted
                continue
            if message.kind == NOTIFY:
                self._start_without_end(self._other[message.index])
            elif message.kind == ASK:
                self._send(REPLY, message.index, self._agree(self._other[message.index]))
            else:
                self._take_reply(message)

    def forget(self, index: int) -> None:
        """The state of an instrument is set by hand: Market Surveillance asks nobody (15.1)."""
        self._without_end.discard(index)
        self._own.discard(index)
        self._market.instruments[index, k.I_SYNCHRONISM] = 0
        self._messages = [message for message in self._messages if message.index != index]

    def end_all(self, groups: Iterable[int]) -> None:
        """End the auctions of instruments of groups whose trading ends."""
        waiting = {*self._without_end, *(m.index for m in self._messages if m.kind != NOTIFY)}
        for index in sorted(waiting):
            if self._running.listing.group[index] in groups:
                self._end(index)

    def _send(self, kind: int, index: int, is_agreed: bool = False) -> None:
        self._messages.append(_Message(self._running.now_ns + self._one_way_ns, kind, index, is_agreed))

    def _start_without_end(self, index: int) -> None:
        if self._market.instruments[index, k.I_STATE] == k.OPEN:
            self._session.separate(index, k.RESERVED)
            self._without_end.add(index)
            self._publish_news(index, STARTING_TEXT)

    def _agree(self, index: int) -> bool:
        """Whether the auction of an instrument may end as well, which it does then. Out of an auction it agrees."""
        if self._market.instruments[index, k.I_STATE] not in AUCTIONS:
            return True
        is_asking = any(message.index == index and message.kind != NOTIFY for message in self._messages)
        if index not in self._without_end and not is_asking:
            return False
        self._end(index)
        return True

    def _take_reply(self, reply: _Message) -> None:
        self._market.instruments[reply.index, k.I_SYNCHRONISM] = 0
        if reply.is_agreed:
            self._end(reply.index)
        else:
            self._without_end.add(reply.index)
            self._publish_news(reply.index, CLOSING_TEXT)

    def _end(self, index: int) -> None:
        self.forget(index)
        self._session.rejoin(index)

    def _publish_news(self, index: int, text: str) -> None:
        symbol = self._running.listing.symbols[index]
        item = NewsItem(HEADLINE.format(symbol=symbol), text.format(symbol=symbol), related=(index,))
        self._running.add_news(item)


def _due(message: _Message) -> int:
    return message.due_ns
