"""Definitions and news as FAST messages: the two families with lists and long texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.families import DEFINITION, NULL, NULL_I16, NULL_I32
from umdf.market.fast import mapping_table as t
from umdf.market.fast.node_builder import NodeBuilder
from umdf.market.rows import Events, RepeatingGroup, Rows, Text, strings_of, text_column
from umdf.wire.fast.arrow import arrow_schema
from umdf.wire.fast.layout import Layout
from umdf.wire.fast.templates import Instruction, Segment, Sequence

Numbers = NDArray[Any]


def put_definitions(body: NodeBuilder, rows: Rows, owner: Numbers) -> None:
    """Fill SecurityLists; `owner` is the message of each row."""
    offsets = np.zeros(body.rows + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=body.rows), out=offsets[1:])
    entries = body.child(t.INSTRUMENTS, len(rows))
    for rule in t.DEFINITION_RULES:
        node, slots = (body, owner) if rule.groups == (t.BODY,) else (entries, None)
        if rule.column in rows.columns:
            node.put(rule, DEFINITION.column(rule.column), rows.columns[rule.column], slots)
        elif rule.column in rows.texts:
            node.put_text(rule, rows.texts[rule.column], None, slots)
    for name, (group, rules) in t.DEFINITION_LISTS.items():
        group_rows = _alternate_ids(rows) if name == "alternate_ids" else rows.lists.get(name)
        if group_rows is not None and entries.has_list(group):
            child = entries.child(group, int(group_rows.offsets[-1]))
            _put_list_columns(child, name, rules, group_rows)
            entries.put_list(group, group_rows.offsets, child, empty_is_absent=True)
    _put_feeds(entries, rows.lists.get("feeds") or RepeatingGroup(np.zeros(len(rows) + 1, np.int32), {}))
    body.put_list(t.INSTRUMENTS, offsets, entries)


def _put_list_columns(child: NodeBuilder, name: str, rules: tuple[t.TagRule, ...], group: RepeatingGroup) -> None:
    columns = {column.name: column for column in DEFINITION.lists[name]}
    for rule in rules:
        if rule.column in group.columns:
            child.put(rule, columns[rule.column], group.columns[rule.column])
        elif rule.column in group.texts:
            child.put_text(rule, group.texts[rule.column])


def _alternate_ids(rows: Rows) -> RepeatingGroup | None:
    """The alternate ids; the ISIN is one of them, even if only its own column has it."""
    group = rows.lists.get("alternate_ids")
    if group is not None or "isin" not in rows.texts:
        return group
    has_isin = np.diff(rows.texts["isin"][0]) > 0
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(has_isin, out=offsets[1:])
    isins = [isin for isin in strings_of(rows.texts["isin"]) if isin]
    return RepeatingGroup(
        offsets, {}, {"alternate_id": text_column(list(isins)), "id_source": text_column([t.ISIN_SOURCE] * len(isins))}
    )


def _put_feeds(entries: NodeBuilder, feeds: RepeatingGroup) -> None:
    """One channel (1351) each, with its feed type and depth (1141) if it has any."""
    count = int(feeds.offsets[-1])
    depth = feeds.columns.get("depth", np.full(count, NULL_I32, np.int32))
    types = strings_of(feeds.texts["feed_type"]) if "feed_type" in feeds.texts else [""] * count
    channels = entries.child(t.CHANNELS, count)
    kinds = np.where((depth == NULL_I32) | (depth == 0), "MBO", np.where(depth == 1, "TOB", "MBP")).tolist()
    numbers = feeds.columns.get("channel", np.full(count, NULL_I16, np.int16)).tolist()
    names: Text = text_column(
        [None if n == NULL_I16 else f"{kind}{n:03}" for kind, n in zip(kinds, numbers, strict=True)]
    )
    channels.put_text(t.FEED_RULES[0], names)
    has_feed_type = (depth != NULL_I32) | np.array([bool(kind) for kind in types], np.bool_)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(has_feed_type, out=offsets[1:])
    inner = channels.child(t.FEED_TYPES, int(offsets[-1]))
    columns = {column.name: column for column in DEFINITION.lists["feeds"]}
    inner.put(t.FEED_RULES[2], columns["depth"], np.where(depth[has_feed_type] == NULL_I32, 0, depth[has_feed_type]))
    inner.put_text(
        t.FEED_RULES[1], text_column([kind for kind, there in zip(types, has_feed_type.tolist(), strict=True) if there])
    )
    channels.put_list(t.FEED_TYPES, offsets, inner, empty_is_absent=True)
    entries.put_list(t.CHANNELS, feeds.offsets, channels)


def news_messages(layout: Layout, template_id: int, events: Events, rows: Rows) -> pa.RecordBatch:
    """News are few: a dictionary each. Text that is not ASCII is in the encoded fields, and plain in the others."""
    body = NodeBuilder(layout, layout.roots[template_id], len(rows))
    for rule in t.BODY_RULES["news"]:
        if rule.column in rows.columns:
            body.put(rule, rows.family.column(rule.column), rows.columns[rule.column])
        elif rule.column in rows.texts:
            body.put_text(rule, rows.texts[rule.column])
    units = events.units
    for rule, values in (
        (t.TagRule("sequence", t.MSG_SEQ_NUM), units.sequence),
        (t.TagRule("ts_send", 52), units.ts_send),
    ):
        body.put(rule, rows.family.column(rule.column), values[rows.unit])
    segment = layout.roots[template_id].segment
    bodies = pa.RecordBatch.from_pydict(body.finish()).to_pylist() if body.arrays or len(rows) else []
    headlines, texts = (strings_of(rows.texts[name]) if name in rows.texts else [] for name in ("headline", "text"))
    related = rows.lists.get("related")
    messages = []
    for number, message in enumerate(bodies):
        message["message"] = int(rows.unit[number])
        if headlines and headlines[number]:
            message |= _plain_and_encoded(segment, t.HEADLINES, headlines[number])
        if texts and texts[number]:
            lines = _find_sequence(segment, t.TEXT_LINES)
            message[lines.name] = [_plain_and_encoded(lines.body, t.TEXTS, line) for line in texts[number].split("\n")]
        if related is not None:
            first, last = related.offsets[number], related.offsets[number + 1]
            ids = related.columns["related_id"][first:last]
            if len(ids):
                instruments = _find_sequence(segment, t.INSTRUMENTS)
                field_names = {tag: _field_name(instruments.body, tag) for tag in (t.SECURITY_ID, 207)}
                message[instruments.name] = [
                    {
                        field_names[t.SECURITY_ID]: None if value == NULL else value & (1 << 64) - 1,
                        field_names[207]: "BVMF",
                    }
                    for value in ids.tolist()
                ]
        messages.append(message)
    schema = arrow_schema(layout, template_id)
    present = {name for cells in messages for name in cells}
    return pa.RecordBatch.from_pylist(messages, schema=pa.schema([f for f in schema if f.name in present]))


def _plain_and_encoded(segment: Segment, tags: tuple[int, ...], text: str) -> dict[str, Any]:
    """A text as plain ASCII, and encoded if that loses something; in whichever of the two the template has."""
    encoded, plain, length = (_field_name(segment, tag) for tag in tags)
    if not encoded or (plain and text.isascii()):
        return {plain: text}
    fields: dict[str, Any] = {encoded: text}
    if plain:
        fields[plain] = text.encode("ascii", "replace").decode()
    if length:
        fields[length] = len(text.encode())
    return fields


def _find_sequence(segment: Segment, tag: int) -> Sequence:
    return next(i for i in segment.instructions if isinstance(i, Sequence) and i.length.id == tag)


def _field_name(segment: Segment, tag: int) -> str:
    found: list[Instruction] = [i for i in segment.instructions if i.id == tag]
    return found[0].name if found else ""
