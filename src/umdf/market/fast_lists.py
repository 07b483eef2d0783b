"""Messages that are rows by themselves (f, W's own row, 0, 4), lists of instruments (y) and news (B)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.market import events as e
from umdf.market import fast_table as t
from umdf.market.fast_columns import Places, Plan, text_rows
from umdf.market.rows import List, Rows, Text, strings_of, text_of
from umdf.wire.fast.batch import Batch

Numbers = NDArray[Any]


class Converter:
    """The columns of some rules."""

    def __init__(self, places: Places, rules: tuple[t.Rule, ...], columns: tuple[e.Column, ...]) -> None:
        self.plan = Plan(places)
        types = {column.name: column for column in (*e.COMMON, *columns)}
        for rule in rules:
            column = types[rule.column]
            self.plan.add(rule.column, column, rule, None if column.nullable else 0)

    def run(
        self, batch: Batch, rows: int, flags: Numbers, index: Mapping[int, Numbers | None] | None = None
    ) -> tuple[dict[str, Numbers], dict[str, Text]]:
        """Without an index, the rows are those of the tags' own group."""
        places = index or dict.fromkeys(self.plan.places.groups)
        return self.plan.run(batch, rows, places, flags=flags), self.plan.run_texts(batch, places)


class BodyRows:
    """A row for each message."""

    def __init__(self, places: Places, name: str, flag: int, control: str = "") -> None:
        self.places, self.family, self._flag, self._control = places, e.FAMILIES[name], flag, control
        self._converter = Converter(places, t.BODY_RULES[name], self.family.columns)

    def rows(self, batch: Batch, sequence: Numbers) -> Rows:
        unit = batch.message(self.places.root).copy()
        flags = np.full(len(unit), self._flag, np.int32)
        columns, texts = self._converter.run(batch, len(unit), flags)
        columns["flags"], none = flags, np.zeros(len(unit), np.uint16)
        if self.family is e.SNAPSHOT_FAMILY and "depth" in columns:
            # 1.3.3: 0 and absent both mean an order-depth book.
            columns["depth"][columns["depth"] == 0] = e.NULL_I32
        if self._control:
            columns["kind"] = np.full(len(unit), ord(self._control), np.uint8)
        if self._control == "H":  # a heartbeat takes a number of its own in this feed
            columns["next_sequence"] = np.where(sequence == e.NULL, e.NULL, sequence + 1)
        return Rows(self.family, unit, none, none.copy(), columns, texts)


class DefinitionRows:
    """A row for each instrument of a SecurityList."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._own = Converter(places, t.DEFINITION_RULES, e.DEFINITION.columns)
        lists, feeds = e.DEFINITION.lists, e.DEFINITION.lists["feeds"]
        self._lists = {
            name: (group, Converter(places, rules, lists[name])) for name, (group, rules) in t.DEFINITION_LISTS.items()
        }
        self._channels, self._feeds = (Converter(places, part, feeds) for part in (t.FEED_RULES[:1], t.FEED_RULES[1:]))

    def rows(self, batch: Batch, sequence: Numbers) -> Rows | None:
        places = self.places
        if not places.rows(batch, t.INSTRUMENTS):
            return None
        offsets = batch.offsets(*places.lists[t.INSTRUMENTS])
        owner = np.repeat(np.arange(len(sequence), dtype=np.int32), np.diff(offsets))
        place = np.minimum(np.arange(len(owner)) - offsets[owner], 65535).astype(np.uint16)
        flags = np.full(len(owner), e.LAST, np.int32)
        columns, texts = self._own.run(batch, len(owner), flags, {t.INSTRUMENTS: None, t.BODY: owner})
        columns["flags"] = flags
        columns.setdefault("action", np.zeros(len(owner), np.uint8))
        unit = batch.message(places.root)[owner]
        rows = Rows(e.DEFINITION, unit, np.zeros(len(owner), np.uint16), place, columns, texts)
        for name, (group, converter) in self._lists.items():
            count = places.rows(batch, group)
            if count:
                rows.lists[name] = self._list(batch, group, converter, count, flags)
        self._put_feeds(batch, rows, flags)
        _put_isin(rows)
        return rows

    def _list(self, batch: Batch, group: int, converter: Converter, count: int, flags: Numbers) -> List:
        odd = np.zeros(count, np.int32)
        columns, texts = converter.run(batch, count, odd)
        offsets = batch.offsets(*self.places.lists[group]).copy()
        _raise_flags(flags, offsets, odd)
        return List(offsets, columns, texts)

    def _put_feeds(self, batch: Batch, rows: Rows, flags: Numbers) -> None:
        """Channels and their feed types as one list; a channel without feed types is one entry of it."""
        places, count = self.places, self.places.rows(batch, t.CHANNELS)
        if not count:
            return
        channels = self._list(batch, t.CHANNELS, self._channels, count, flags)
        inner = np.zeros(count + 1, np.int32)
        if places.rows(batch, t.FEED_TYPES):
            inner = batch.offsets(*places.lists[t.FEED_TYPES])
        sizes = np.diff(inner)
        each = np.maximum(sizes, 1)
        ends = np.concatenate([[0], np.cumsum(each)])
        channel = np.repeat(np.arange(count), each)
        feed = (np.arange(len(channel)) - ends[channel] + inner[channel]).astype(np.int32)
        feed[sizes[channel] == 0] = -1
        odd = np.zeros(len(feed), np.int32)
        columns, texts = self._feeds.run(batch, len(feed), odd, {t.FEED_TYPES: feed, t.BODY: None})
        columns |= {name: values[channel] for name, values in channels.columns.items()}
        rows.lists["feeds"] = List(ends[channels.offsets].astype(np.int32), columns, texts)
        _raise_flags(flags, rows.lists["feeds"].offsets, odd)


def _raise_flags(flags: Numbers, offsets: Numbers, odd: Numbers) -> None:
    """A value in a list that did not fit is noted on the row."""
    where = np.flatnonzero(odd)
    if len(where):
        flags[np.searchsorted(offsets, where, side="right") - 1] |= e.OUT_OF_RANGE


def _put_isin(rows: Rows) -> None:
    """The first alternate id of source 4 is the ISIN."""
    ids = rows.lists.get("alternate_ids")
    if ids is None or not {"alternate_id", "id_source"} <= set(ids.texts):
        return
    offsets, content = ids.texts["id_source"]
    padded = np.concatenate([content, np.zeros(1, np.uint8)])
    found = np.flatnonzero((np.diff(offsets) == 1) & (padded[offsets[:-1]] == ord(t.ISIN_SOURCE)))
    if len(found):
        owners = np.searchsorted(ids.offsets, found, side="right") - 1
        isins: list[str | None] = [None] * len(rows)
        texts = strings_of(ids.texts["alternate_id"])
        for row, number in zip(owners.tolist()[::-1], found.tolist()[::-1], strict=True):
            isins[row] = texts[number]
        rows.texts["isin"] = text_of(isins)


class NewsRows:
    """A row for each News; its lines of text are joined."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._body = BodyRows(places, "news", e.LAST)
        related = t.Rule("related_id", t.SECURITY_ID, groups=(t.INSTRUMENTS,))
        self._related = Converter(places, (related,), e.NEWS.lists["related"])

    def rows(self, batch: Batch, sequence: Numbers) -> Rows:
        places, rows = self.places, self._body.rows(batch, sequence)
        headlines = self._texts(batch, t.BODY, t.HEADLINES)
        if any(headlines):
            rows.texts["headline"] = text_of(list(headlines))
        if places.rows(batch, t.LINES):
            lines, ends = self._texts(batch, t.LINES, t.TEXTS), batch.offsets(*places.lists[t.LINES]).tolist()
            rows.texts["text"] = text_of(["\n".join(lines[first:last]) for first, last in pairwise(ends)])
        count = places.rows(batch, t.INSTRUMENTS)
        if count:
            odd = np.zeros(count, np.int32)
            columns, _ = self._related.run(batch, count, odd)
            offsets = batch.offsets(*places.lists[t.INSTRUMENTS]).copy()
            rows.lists["related"] = List(offsets, columns)
            _raise_flags(rows.columns["flags"], offsets, odd)
        return rows

    def _texts(self, batch: Batch, group: int, tags: tuple[int, ...]) -> list[str]:
        """Of each row the encoded text, or the plain one."""
        chosen = [""] * self.places.rows(batch, group)
        for tag in tags[:2]:
            place = self.places.find(tag, group)
            text = text_rows(batch, place, None) if place is not None else None
            if text is not None:
                chosen = [before or found for before, found in zip(chosen, strings_of(text), strict=True)]
        return chosen
