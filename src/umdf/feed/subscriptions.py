"""What a user asked for: rows of a family, levels of books, or what happened to a channel; all or some symbols."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.book.views import Level
from umdf.errors import UsageError, did_you_mean
from umdf.feed.channel_feed import ChannelFeed
from umdf.feed.client import ChannelReport
from umdf.feed.events import (
    BookChanged,
    EpochStarted,
    FeedEvent,
    GapOpened,
    RecorderStopped,
    StateChanged,
    TrustChanged,
)
from umdf.feed.feed_lines import ChannelKey
from umdf.market.families import COMMON, NULL, Column
from umdf.market.news import NewsAssembler
from umdf.market.rows import Events, Rows, strings_of
from umdf.sync.trust import Trust

FAMILIES = ("mbo", "trades", "statistics", "status", "imbalance", "price_band", "definition", "news")
LEVELS = {"mbp_1": 1, "mbp_10": 10}
REPORTS: dict[str, tuple[type, ...]] = {
    "gaps": (GapOpened,),
    "trust": (TrustChanged,),
    "state": (StateChanged, EpochStarted, RecorderStopped),
}
BOOKS, NEWS = "books", "news"
OF_ROWS = ("ts_event", "rpt_seq", "flags")  # the common columns that are in `values`
SCHEMAS = (*FAMILIES, *LEVELS, BOOKS, *REPORTS)


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A row of a family, with the columns that its table in a lake has; NULL is None, prices are in units of 1e-9,
    financial volumes of 1e-4."""

    schema: str
    channel: ChannelKey
    instrument_id: int | None
    symbol: str | None
    sequence: int
    ts_send: int
    ts_recv: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LiveLevels:
    """The best levels of a book after it changed."""

    schema: str
    channel: ChannelKey
    instrument_id: int
    symbol: str | None
    sequence: int
    ts_recv: int
    bids: tuple[Level, ...]
    asks: tuple[Level, ...]
    trust: Trust


LiveItem = LiveRow | LiveLevels | FeedEvent
Callback = Callable[[Any], None]


def check_schema(schema: str) -> str:
    if schema not in SCHEMAS:
        close = difflib.get_close_matches(schema, SCHEMAS, 1)
        hint = did_you_mean(close) if close else f"available: {', '.join(SCHEMAS)}"
        raise UsageError(f"unknown schema: {schema}", hint)
    return schema


@dataclass
class Subscription:
    """Items wait here until they are taken, unless a callback takes each at once."""

    schema: str
    symbols: frozenset[str]  # empty: all
    callback: Callback | None = None
    waiting: deque[Any] = field(default_factory=deque)
    _ids: dict[ChannelKey, tuple[int, frozenset[int]]] = field(default_factory=dict)
    _news: dict[ChannelKey, NewsAssembler] = field(default_factory=dict)

    def offer(self, report: ChannelReport) -> None:
        self._pass_on(self._items(report))

    @property
    def wants_changes(self) -> bool:
        """Whether it is about changes of books, which are reported as packets are received."""
        return self.schema == BOOKS or self.schema in LEVELS

    def offer_changes(self, feed: ChannelFeed, changes: list[BookChanged]) -> None:
        """Changes of books, as packets are received."""
        if self.wants_changes:
            self._pass_on(self._selected(feed, changes))

    def _selected(self, feed: ChannelFeed, changes: list[BookChanged]) -> Iterator[Any]:
        ids = self._wanted_ids(feed)
        for change in changes:
            if ids is None or change.instrument_id in ids:
                yield change if self.schema == BOOKS else _levels(feed, change, self.schema)

    def _pass_on(self, items: Iterator[Any]) -> None:
        for item in items:
            if self.callback is not None:
                self.callback(item)
            else:
                self.waiting.append(item)

    def _items(self, report: ChannelReport) -> Iterator[Any]:
        feed = report.feed
        if self.schema in REPORTS:
            for event in report.events:
                if isinstance(event, REPORTS[self.schema]) and self._includes(getattr(event, "symbol", None)):
                    yield event
            return
        ids = self._wanted_ids(feed)
        for events in report.batches:
            if self.schema in FAMILIES:
                rows = read_rows(feed, events, self.schema, ids)
                yield from rows if self.schema != NEWS else self._joined(feed, rows)
                continue
            yield from self._selected(feed, feed.book_changes(events))

    def _joined(self, feed: ChannelFeed, rows: Iterator[LiveRow]) -> Iterator[LiveRow]:
        """News in whole texts: a row for each, at its last part."""
        assembler = self._news.setdefault(feed.key, NewsAssembler())
        for row in rows:
            for news in assembler.add(row.values):
                yield replace(row, values={**news.row, "text": news.text, "is_complete": news.is_complete})

    def _includes(self, symbol: str | None) -> bool:
        return not self.symbols or symbol is None or symbol in self.symbols

    def _wanted_ids(self, feed: ChannelFeed) -> frozenset[int] | None:
        """IDs of the symbols on a channel; None: all. Definitions may come at any time."""
        if not self.symbols:
            return None
        instruments = feed.channel.state.instruments
        known = self._ids.get(feed.key)
        if known is None or known[0] != instruments.changes:
            found = (instruments.id_of(symbol) for symbol in self.symbols)
            known = instruments.changes, frozenset(number for number in found if number is not None)
            self._ids[feed.key] = known
        return known[1]


def _levels(feed: ChannelFeed, change: BookChanged, schema: str) -> LiveLevels:
    book, trust = feed.channel.book(change.instrument_id), feed.channel.book_trust(change.instrument_id)
    bids, asks = book.mbp(LEVELS[schema]) if book is not None else ((), ())
    identity = schema, change.channel, change.instrument_id, change.symbol, change.sequence, change.ts_recv
    return LiveLevels(*identity, bids, asks, trust)


def read_rows(feed: ChannelFeed, events: Events, family: str, ids: frozenset[int] | None) -> Iterator[LiveRow]:
    """The rows of a family, of some instruments or all."""
    rows = events.rows(family)
    if not len(rows):
        return
    instrument_ids, units = rows.column("instrument_id"), events.units
    chosen: NDArray[Any] = np.arange(len(rows))
    if ids is not None:
        chosen = np.flatnonzero(np.isin(instrument_ids, list(ids)))
        if not len(chosen):
            return
        rows = rows.take(chosen)
    columns = _row_values(rows)
    for row in range(len(rows)):
        unit, number = int(rows.unit[row]), int(rows.column("instrument_id")[row])
        values = {name: column[row] for name, column in columns.items()}
        place = int(units.sequence[unit]), int(units.ts_send[unit]), int(units.ts_recv[unit])
        is_known = number != NULL
        symbol = feed.symbol_of(number) if is_known else None
        yield LiveRow(family, feed.key, number if is_known else None, symbol, *place, values)


def _row_values(rows: Rows) -> dict[str, Sequence[Any]]:
    """Every column of the family, also those that a protocol does not have."""
    found: dict[str, Sequence[Any]] = {}
    for column in (*(each for each in COMMON if each.name in OF_ROWS), *rows.family.columns):
        if column.name in rows.texts:
            found[column.name] = [text or None for text in strings_of(rows.texts[column.name])]
        elif column.name not in rows.columns and column.nullable:
            found[column.name] = [None] * len(rows)
        else:
            found[column.name] = _numbers(column, rows.column(column.name).tolist())
    return found


def _numbers(column: Column, values: list[Any]) -> list[Any]:
    if column.type == "char":
        return [chr(value) if value else None for value in values]
    return [None if value == column.null else value for value in values] if column.nullable else values
