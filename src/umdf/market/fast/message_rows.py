"""Messages that are rows by themselves (f, W's own row, 0, 4), lists of instruments (y) and news (B)."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.market import families as e
from umdf.market.fast import mapping_table as t
from umdf.market.fast.conversion_plan import ConversionPlan, TemplateTags, text_rows
from umdf.market.fast.default_values import DEFAULT_LANGUAGE
from umdf.market.rows import RepeatingGroup, Rows, Text, strings_of, text_column
from umdf.wire.fast.decode.batch import Batch

Numbers = NDArray[Any]


class RuleConverter:
    """The columns of some rules."""

    def __init__(self, tags: TemplateTags, rules: tuple[t.TagRule, ...], columns: tuple[e.Column, ...]) -> None:
        self.plan = ConversionPlan(tags)
        types = {column.name: column for column in (*e.COMMON, *columns)}
        for rule in rules:
            column = types[rule.column]
            absent = ord(rule.absent) if rule.absent else None if column.nullable else 0
            self.plan.add(rule.column, column, rule, absent, required=bool(rule.absent))

    def run(
        self, batch: Batch, rows: int, flags: Numbers, index: Mapping[int, Numbers | None] | None = None
    ) -> tuple[MutableMapping[str, Numbers], dict[str, Text]]:
        """Without an index, the rows are those of the tags' own group."""
        indexes = index or dict.fromkeys(self.plan.tags.groups)
        return self.plan.run(rows, indexes, flags=flags), self.plan.run_texts(batch, indexes)


class BodyRows:
    """A row for each message."""

    def __init__(self, tags: TemplateTags, name: str, flag: int, control: str = "") -> None:
        self.tags, self.family, self._flag, self._control = tags, e.FAMILIES[name], flag, control
        self._converter = RuleConverter(tags, t.BODY_RULES[name], self.family.columns)

    def rows(self, batch: Batch, sequence: Numbers) -> Rows:
        unit = batch.message(self.tags.root).copy()
        flags = np.full(len(unit), self._flag, np.int32)
        columns, texts = self._converter.run(batch, len(unit), flags)
        columns["flags"], none = flags, np.zeros(len(unit), np.uint16)
        if self.family is e.SNAPSHOT_FAMILY and "depth" in columns:
            # 1.3.3: 0 and absent both mean an order-depth book.
            columns["depth"][columns["depth"] == 0] = e.NULL_I32
        if self._control:
            columns["kind"] = np.full(len(unit), ord(self._control), np.uint8)
        if self._control == "H":  # a heartbeat has its own sequence in this feed
            columns["next_sequence"] = np.where(sequence == e.NULL, e.NULL, sequence + 1)
        return Rows(self.family, unit, none, none.copy(), columns, texts)


class DefinitionRows:
    """A row for each instrument of a SecurityList."""

    def __init__(self, tags: TemplateTags) -> None:
        self.tags = tags
        self._converter = RuleConverter(tags, t.DEFINITION_RULES, e.DEFINITION.columns)
        lists, feeds = e.DEFINITION.lists, e.DEFINITION.lists["feeds"]
        self._group_converters = {
            name: (group, RuleConverter(tags, rules, lists[name]))
            for name, (group, rules) in t.DEFINITION_LISTS.items()
        }
        self._channels, self._feeds = (
            RuleConverter(tags, part, feeds) for part in (t.FEED_RULES[:1], t.FEED_RULES[1:])
        )

    def rows(self, batch: Batch, sequence: Numbers) -> Rows | None:
        tags = self.tags
        if not tags.entry_count(batch, t.INSTRUMENTS):
            return None
        offsets = batch.offsets(*tags.lists[t.INSTRUMENTS])
        owner = np.repeat(np.arange(len(sequence), dtype=np.int32), np.diff(offsets))
        entry_index = np.minimum(np.arange(len(owner)) - offsets[owner], 65535).astype(np.uint16)
        flags = np.full(len(owner), e.LAST, np.int32)
        columns, texts = self._converter.run(batch, len(owner), flags, {t.INSTRUMENTS: None, t.BODY: owner})
        columns["flags"] = flags
        columns.setdefault("action", np.zeros(len(owner), np.uint8))
        unit = batch.message(tags.root)[owner]
        rows = Rows(e.DEFINITION, unit, np.zeros(len(owner), np.uint16), entry_index, columns, texts)
        for name, (group, converter) in self._group_converters.items():
            count = tags.entry_count(batch, group)
            if count:
                rows.lists[name] = self._group(batch, group, converter, count, flags)
        self._add_feeds(batch, rows, flags)
        _add_isin(rows)
        return rows

    def _group(self, batch: Batch, group: int, converter: RuleConverter, count: int, flags: Numbers) -> RepeatingGroup:
        entry_flags = np.zeros(count, np.int32)
        columns, texts = converter.run(batch, count, entry_flags)
        offsets = batch.offsets(*self.tags.lists[group]).copy()
        _flag_owners(flags, offsets, entry_flags)
        return RepeatingGroup(offsets, dict(columns), texts)

    def _add_feeds(self, batch: Batch, rows: Rows, flags: Numbers) -> None:
        """Channels and their feed types as one list; a channel without feed types is one entry of it."""
        tags, count = self.tags, self.tags.entry_count(batch, t.CHANNELS)
        if not count:
            return
        channels = self._group(batch, t.CHANNELS, self._channels, count, flags)
        inner = np.zeros(count + 1, np.int32)
        if tags.entry_count(batch, t.FEED_TYPES):
            inner = batch.offsets(*tags.lists[t.FEED_TYPES])
        sizes = np.diff(inner)
        entry_counts = np.maximum(sizes, 1)
        ends = np.concatenate([[0], np.cumsum(entry_counts)])
        channel = np.repeat(np.arange(count), entry_counts)
        feed = (np.arange(len(channel)) - ends[channel] + inner[channel]).astype(np.int32)
        feed[sizes[channel] == 0] = -1
        entry_flags = np.zeros(len(feed), np.int32)
        columns, texts = self._feeds.run(batch, len(feed), entry_flags, {t.FEED_TYPES: feed, t.BODY: None})
        columns.update({name: values[channel] for name, values in channels.columns.items()})
        rows.lists["feeds"] = RepeatingGroup(ends[channels.offsets].astype(np.int32), dict(columns), texts)
        _flag_owners(flags, rows.lists["feeds"].offsets, entry_flags)


def _flag_owners(flags: Numbers, offsets: Numbers, entry_flags: Numbers) -> None:
    """Flag a row if a value in its list did not fit."""
    where = np.flatnonzero(entry_flags)
    if len(where):
        flags[np.searchsorted(offsets, where, side="right") - 1] |= e.OUT_OF_RANGE


def _add_isin(rows: Rows) -> None:
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
        rows.texts["isin"] = text_column(isins)


class NewsRows:
    """A row for each News; its lines of text are joined."""

    def __init__(self, tags: TemplateTags) -> None:
        self.tags = tags
        self._body = BodyRows(tags, "news", e.LAST)
        related = t.TagRule("related_id", t.SECURITY_ID, groups=(t.INSTRUMENTS,))
        self._related = RuleConverter(tags, (related,), e.NEWS.lists["related"])

    def rows(self, batch: Batch, sequence: Numbers) -> Rows:
        tags, rows = self.tags, self._body.rows(batch, sequence)
        languages = strings_of(rows.texts["language"]) if "language" in rows.texts else [""] * len(rows)
        rows.texts["language"] = text_column([language or DEFAULT_LANGUAGE for language in languages])
        headlines = self._texts(batch, t.BODY, t.HEADLINES)
        if any(headlines):
            rows.texts["headline"] = text_column(list(headlines))
        if tags.entry_count(batch, t.TEXT_LINES):
            lines, ends = self._texts(batch, t.TEXT_LINES, t.TEXTS), batch.offsets(*tags.lists[t.TEXT_LINES]).tolist()
            rows.texts["text"] = text_column(["\n".join(lines[first:last]) for first, last in pairwise(ends)])
        count = tags.entry_count(batch, t.INSTRUMENTS)
        if count:
            entry_flags = np.zeros(count, np.int32)
            columns, _ = self._related.run(batch, count, entry_flags)
            offsets = batch.offsets(*tags.lists[t.INSTRUMENTS]).copy()
            rows.lists["related"] = RepeatingGroup(offsets, dict(columns))
            _flag_owners(rows.columns["flags"], offsets, entry_flags)
        return rows

    def _texts(self, batch: Batch, group: int, tags: tuple[int, ...]) -> list[str]:
        """Of each row the encoded text, or the plain one."""
        texts = [""] * self.tags.entry_count(batch, group)
        for tag in tags[:2]:
            source = self.tags.find(tag, group)
            text = text_rows(batch, source, None) if source is not None else None
            if text is not None:
                texts = [before or found for before, found in zip(texts, strings_of(text), strict=True)]
        return texts
