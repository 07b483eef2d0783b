"""Events → Binary messages: the table of `mapping_table`, backwards.

    messages = SbeMessageMapper(schema)
    encoded = Encoder(schema).encode(*messages.messages(events))

A packet for each unit, a RecordBatch for each template. Rows without a Binary message are left out and counted; a
value that its field cannot hold is an EncodeError. An absent value of a mandatory field becomes 0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.market.families import FAMILIES, NULL, Column
from umdf.market.rows import Events, Numbers, Rows
from umdf.market.sbe.mapping_rules import ABSENT, PRESENT, RowTest
from umdf.market.sbe.mapping_table import RULES, WRITTEN_BY_OTHERS
from umdf.market.sbe.message_writers import DraftMessages, MessageWriter
from umdf.wire.sbe.layout import Layout, Node
from umdf.wire.sbe.schema import Message, Schema

ALL_ROWS = slice(None)


class SbeMessageMapper:
    """Not thread-safe."""

    def __init__(self, schema: Schema, version: int | None = None) -> None:
        self.layout = Layout(schema)
        self.version = schema.version if version is None else version
        self.unmapped_rows: Counter[str] = Counter()  # of the last call: rows by family that Binary has no message for
        self._writers: dict[str, list[MessageWriter]] = {name: [] for name in FAMILIES}
        for rule in RULES:
            root = self.layout.roots.get(rule.template)
            if rule.when and root is not None and _since_version(root) <= self.version:
                self._writers[rule.family].append(MessageWriter(self.layout, rule, self.version))

    def messages(self, events: Events) -> tuple[dict[str, Numbers], list[pa.RecordBatch]]:
        """The headers of the packets, and the messages as `Encoder.encode` takes them."""
        self.unmapped_rows.clear()
        drafts: list[DraftMessages] = []
        for name, rows in events.families.items():
            if len(rows):
                drafts += self._drafts(name, rows)
        _drop_duplicates(drafts)
        _number_messages(drafts, len(events.units))
        units = events.units
        headers = {
            "channel": units.channel_id,
            "seq_version": units.seq_version,
            "sequence": units.sequence,
            "sending_time": np.where(units.ts_send == NULL, 0, units.ts_send).view(np.uint64),
        }
        return headers, [draft.record_batch() for draft in drafts if len(draft.packet)]

    def _drafts(self, name: str, rows: Rows) -> list[DraftMessages]:
        writers = self._writers[name]
        writer_numbers = np.zeros(len(rows), np.uint8)
        for number in range(len(writers), 0, -1):  # the first that matches wins
            for test in writers[number - 1].rule.when:
                writer_numbers[_matches(rows, test)] = number
        for test in WRITTEN_BY_OTHERS.get(name, ()):
            writer_numbers[_matches(rows, test)] = 255
        counts = np.bincount(writer_numbers, minlength=256).tolist()
        if counts[0]:
            self.unmapped_rows[name] = counts[0]
        drafts = []
        for number, writer in enumerate(writers, 1):
            if counts[number]:
                is_every_row = counts[number] == len(rows)
                drafts.append(
                    writer.draft(rows, ALL_ROWS if is_every_row else np.flatnonzero(writer_numbers == number))
                )
        return drafts


def _since_version(root: Node) -> int:
    return root.block.since if isinstance(root.block, Message) else 0


def _matches(rows: Rows, test: RowTest) -> Any:
    """The rows for which a test of the table holds."""
    found: Any = np.ones(len(rows), bool)
    for name, expected in test.items():
        column = rows.family.column(name)
        if column.is_text:
            is_there = np.diff(rows.texts[name][0]) > 0 if name in rows.texts else np.zeros(len(rows), bool)
            found &= is_there if expected is PRESENT else ~is_there
        elif name not in rows.columns and expected in (ABSENT, PRESENT):
            found &= expected is ABSENT
        else:
            found &= _column_matches(rows.column(name), column, expected)
    return found


def _column_matches(values: Numbers, column: Column, expected: Any) -> Any:
    if expected is ABSENT:
        return values == column.null
    if expected is PRESENT:
        return values != column.null
    if column.name == "flags":
        return values & expected != 0
    if isinstance(expected, int):
        return values == expected
    found = values == ord(expected[0])
    for char in expected[1:]:
        found |= values == ord(char)
    return found


def _drop_duplicates(drafts: list[DraftMessages]) -> None:
    """A channel reset is a row of two families and one message."""
    seen: dict[int, DraftMessages] = {}
    for draft in drafts:
        first = seen.setdefault(draft.template, draft)
        if first is not draft:
            draft.filter(~np.isin(draft.wire_order, first.wire_order))


def _number_messages(drafts: list[DraftMessages], packets: int) -> None:
    """Message indices in the packets, from 0 without gaps: unchanged if they are so, else by the order of events."""
    if not drafts:
        return
    packet = np.concatenate([draft.packet for draft in drafts])
    index = np.concatenate([draft.msg_index for draft in drafts])
    counts = np.bincount(packet, minlength=packets)
    first = np.concatenate([[0], np.cumsum(counts)])
    is_used = np.zeros(len(packet) + 1, bool)
    if not (index >= counts[packet]).any():
        is_used[first[packet] + index] = True
        if is_used[:-1].all():
            return
    order = np.argsort(np.concatenate([draft.wire_order for draft in drafts]), kind="stable")
    index = np.empty(len(packet), np.uint16)
    index[order] = np.arange(len(packet)) - first[packet[order]]
    at = 0
    for draft in drafts:
        draft.msg_index = index[at : at + len(draft.packet)]
        at += len(draft.packet)
