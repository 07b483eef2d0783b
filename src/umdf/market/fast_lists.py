"""Messages that are rows by themselves (f, W's own row, 0, 4), lists of instruments (y) and news (B)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.market import events as e
from umdf.market import fast_table as t
from umdf.market.fast_columns import Lines, Place, Places, text_rows
from umdf.market.rows import List, Rows, Text, strings_of, text_of
from umdf.wire.fast.batch import Batch

Numbers = NDArray[Any]


def convert(
    batch: Batch,
    places: Places,
    rules: tuple[t.Rule, ...],
    columns: tuple[e.Column, ...],
    rows: int,
    flags: Numbers | None,
    owner: Numbers | None = None,
) -> tuple[dict[str, Numbers], dict[str, Text]]:
    """The columns of some rules; rules of the body, where the rows are not its own, go by `owner`."""
    made: dict[str, Numbers] = {}
    texts: dict[str, Text] = {}
    types = {column.name: column for column in (*e.COMMON, *columns)}
    lines = Lines(batch, rows)
    for rule in rules:
        place, column = places.find(rule.tag, *rule.groups), types[rule.column]
        if place is None:
            continue
        index = owner if owner is not None and place.node is places.root else None
        if column.is_text:
            text = text_rows(batch, place, index)
            if text is not None:
                texts[rule.column] = text
            continue
        values = np.empty(rows, column.dtype)
        absent = None if column.nullable else 0
        if lines.add(place, column, values, index=index, flags=flags, how=rule.how, absent=absent):
            made[rule.column] = values
    lines.run()
    return made, texts


def _rows(family: e.Family, unit: Numbers, place: Numbers, made: Any, flags: Numbers) -> Rows:
    columns, texts = made
    return Rows(family, unit, np.zeros(len(unit), np.uint16), place, {**columns, "flags": flags}, texts)


def body_rows(batch: Batch, places: Places, name: str, flag: int) -> Rows:
    """A row for each message."""
    unit, family = batch.message(places.root), e.FAMILIES[name]
    flags = np.full(len(unit), flag, np.int32)
    made = convert(batch, places, t.BODY_RULES[name], family.columns, len(unit), flags)
    rows = _rows(family, unit.copy(), np.zeros(len(unit), np.uint16), made, flags)
    if name == "snapshot" and "depth" in rows.columns:
        depth = rows.columns["depth"]
        depth[depth == 0] = e.NULL_I32  # 1.3.3: 0 and absent both mean an order-depth book
    return rows


def control_rows(batch: Batch, places: Places, kind: str, sequence: Numbers) -> Rows:
    rows = body_rows(batch, places, "control", e.LAST)
    rows.columns["kind"] = np.full(len(rows), ord(kind), np.uint8)
    if kind == "H":  # a heartbeat takes a number of its own in this feed
        rows.columns["next_sequence"] = np.where(sequence == e.NULL, e.NULL, sequence + 1)
    return rows


def _owned(batch: Batch, places: Places, group: int) -> tuple[Numbers, Numbers]:
    """Of each entry of a group in the body: the row of its message, and its place there."""
    offsets = batch.offsets(*places.lists[group])
    counts = np.diff(offsets)
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return owner, np.minimum(np.arange(len(owner)) - offsets[owner], 65535).astype(np.uint16)


def definition_rows(batch: Batch, places: Places) -> Rows | None:
    """A row for each instrument of a SecurityList."""
    if t.INSTRUMENTS not in places.lists or not batch.rows[places.groups[t.INSTRUMENTS].index]:
        return None
    owner, place = _owned(batch, places, t.INSTRUMENTS)
    flags = np.full(len(owner), e.LAST, np.int32)
    made = convert(batch, places, t.DEFINITION_RULES, e.DEFINITION.columns, len(owner), flags, owner)
    rows = _rows(e.DEFINITION, batch.message(places.root)[owner], place, made, flags)
    rows.columns.setdefault("action", np.zeros(len(rows), np.uint8))
    for name, (group, rules) in t.DEFINITION_LISTS.items():
        if group in places.lists and batch.rows[places.groups[group].index]:
            offsets, count = batch.offsets(*places.lists[group]), int(batch.rows[places.groups[group].index])
            odd = np.zeros(count, np.int32)
            columns, texts = convert(batch, places, rules, e.DEFINITION.lists[name], count, odd)
            rows.lists[name] = List(offsets.copy(), columns, texts)
            _raise_flags(flags, offsets, odd)
    _feeds(batch, places, rows, flags)
    _isin(rows)
    return rows


def _raise_flags(flags: Numbers, offsets: Numbers, odd: Numbers) -> None:
    """A value in a list that did not fit is noted on the row."""
    where = np.flatnonzero(odd)
    if len(where):
        flags[np.searchsorted(offsets, where, side="right") - 1] |= e.OUT_OF_RANGE


def _feeds(batch: Batch, places: Places, rows: Rows, flags: Numbers) -> None:
    """Channels and their feed types as one list; a channel without feed types is one entry."""
    if t.CHANNELS not in places.lists or not batch.rows[places.groups[t.CHANNELS].index]:
        return
    channels, outer = int(batch.rows[places.groups[t.CHANNELS].index]), batch.offsets(*places.lists[t.CHANNELS])
    columns, odd = e.DEFINITION.lists["feeds"], np.zeros(channels, np.int32)
    numbers, _ = convert(batch, places, t.FEED_RULES[:1], columns, channels, odd)
    _raise_flags(flags, outer, odd)
    inner = np.zeros(channels + 1, np.int32)
    if t.FEED_TYPES in places.lists and batch.rows[places.groups[t.FEED_TYPES].index]:
        inner = batch.offsets(*places.lists[t.FEED_TYPES])
    sizes = np.diff(inner)
    each = np.maximum(sizes, 1)
    ends = np.concatenate([[0], np.cumsum(each)])
    channel = np.repeat(np.arange(channels), each)
    feed = np.arange(len(channel)) - ends[channel] + inner[channel]
    feed[sizes[channel] == 0] = -1
    held: dict[str, Numbers] = {name: values[channel] for name, values in numbers.items()}
    texts: dict[str, Text] = {}
    lines, odd = Lines(batch, len(feed)), np.zeros(len(feed), np.int32)
    index = feed.astype(np.int32)
    for rule in t.FEED_RULES[1:]:
        place = places.find(rule.tag, *rule.groups)
        column = next(column for column in columns if column.name == rule.column)
        if place is None:
            continue
        if column.is_text:
            text = text_rows(batch, place, index)
            if text is not None:
                texts[rule.column] = text
            continue
        values = np.empty(len(feed), column.dtype)
        if lines.add(place, column, values, index=index, flags=odd):
            held[rule.column] = values
    lines.run()
    rows.lists["feeds"] = List(ends[outer].astype(np.int32), held, texts)
    _raise_flags(flags, rows.lists["feeds"].offsets, odd)


def _isin(rows: Rows) -> None:
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


def news_rows(batch: Batch, places: Places) -> Rows:
    """A row for each message; its lines of text are joined."""
    rows = body_rows(batch, places, "news", e.LAST)
    headlines = _first_of(batch, places, t.BODY, t.HEADLINES)
    if headlines:
        rows.texts["headline"] = text_of(list(headlines))
    if t.LINES in places.lists:
        lines = _first_of(batch, places, t.LINES, t.TEXTS)
        if lines:
            ends = batch.offsets(*places.lists[t.LINES]).tolist()
            rows.texts["text"] = text_of(["\n".join(lines[a:b]) for a, b in zip(ends, ends[1:], strict=False)])
    related = places.find(t.SECURITY_ID, t.INSTRUMENTS)
    if related is not None and batch.rows[related.node.index]:
        count = int(batch.rows[related.node.index])
        rule, odd = t.Rule("related_id", t.SECURITY_ID, groups=(t.INSTRUMENTS,)), np.zeros(count, np.int32)
        columns, _ = convert(batch, places, (rule,), e.NEWS.lists["related"], count, odd)
        offsets = batch.offsets(*places.lists[t.INSTRUMENTS]).copy()
        rows.lists["related"] = List(offsets, columns)
        _raise_flags(rows.columns["flags"], offsets, odd)
    return rows


def _first_of(batch: Batch, places: Places, group: int, tags: tuple[int, ...]) -> list[str]:
    """Of each row the text of the first of these tags that it has."""
    rows = int(batch.rows[places.groups[group].index])
    chosen = [""] * rows
    for tag in tags[:2]:
        place: Place | None = places.find(tag, group)
        text = text_rows(batch, place, None) if place is not None else None
        if text is not None:
            chosen = [before or found for before, found in zip(chosen, strings_of(text), strict=True)]
    return chosen
