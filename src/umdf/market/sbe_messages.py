"""Events → Binary messages: the table of `sbe_table`, backwards.

    messages = SbeMessages(schema)
    encoded = Encoder(schema).encode(*messages.messages(events))

A packet for each unit, a RecordBatch for each template. What Binary has no message for is left out and counted; what a
field cannot hold is an EncodeError. An absent value whose field must be sent becomes 0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.market.events import FAMILIES, NULL, Column
from umdf.market.rows import Events, Numbers, Rows
from umdf.market.sbe_rules import ABSENT, PRESENT, Test
from umdf.market.sbe_table import RULES, WRITTEN_ELSEWHERE
from umdf.market.sbe_writers import Draft, Writer
from umdf.wire.sbe.layout import Layout, Node
from umdf.wire.sbe.schema import Message, Schema

ALL = slice(None)


class SbeMessages:
    """Not for several threads at once."""

    def __init__(self, schema: Schema, version: int | None = None) -> None:
        self.layout = Layout(schema)
        self.version = schema.version if version is None else version
        self.left_out: Counter[str] = Counter()  # of the last call: rows by family that Binary has no message for
        self._writers: dict[str, list[Writer]] = {name: [] for name in FAMILIES}
        for rule in RULES:
            root = self.layout.roots.get(rule.template)
            if rule.when and root is not None and _since(root) <= self.version:
                self._writers[rule.family].append(Writer(self.layout, rule, self.version))

    def messages(self, events: Events) -> tuple[dict[str, Numbers], list[pa.RecordBatch]]:
        """The headers of the packets, and the messages as `Encoder.encode` takes them."""
        self.left_out.clear()
        drafts: list[Draft] = []
        for name, rows in events.families.items():
            if len(rows):
                drafts += self._drafts(name, rows)
        _without_twins(drafts)
        _number(drafts, len(events.units))
        units = events.units
        headers = {
            "channel": units.channel_id,
            "seq_version": units.seq_version,
            "sequence": units.sequence,
            "sending_time": np.where(units.ts_send == NULL, 0, units.ts_send).view(np.uint64),
        }
        return headers, [draft.record_batch() for draft in drafts if len(draft.packet)]

    def _drafts(self, name: str, rows: Rows) -> list[Draft]:
        writers = self._writers[name]
        choice = np.zeros(len(rows), np.uint8)
        for number in range(len(writers), 0, -1):  # the first that fits has the last word
            for test in writers[number - 1].rule.when:
                choice[_holds(rows, test)] = number
        for test in WRITTEN_ELSEWHERE.get(name, ()):
            choice[_holds(rows, test)] = 255
        counts = np.bincount(choice, minlength=256).tolist()
        if counts[0]:
            self.left_out[name] = counts[0]
        drafts = []
        for number, writer in enumerate(writers, 1):
            if counts[number]:
                every = counts[number] == len(rows)
                drafts.append(writer.draft(rows, ALL if every else np.flatnonzero(choice == number)))
        return drafts


def _since(root: Node) -> int:
    return root.block.since if isinstance(root.block, Message) else 0


def _holds(rows: Rows, test: Test) -> Any:
    """Where a test of the table holds."""
    found: Any = np.ones(len(rows), bool)
    for name, wanted in test.items():
        column = rows.family.column(name)
        if column.is_text:
            is_there = np.diff(rows.texts[name][0]) > 0 if name in rows.texts else np.zeros(len(rows), bool)
            found &= is_there if wanted is PRESENT else ~is_there
        elif name not in rows.columns and wanted in (ABSENT, PRESENT):
            found &= wanted is ABSENT
        else:
            found &= _is(rows.column(name), column, wanted)
    return found


def _is(values: Numbers, column: Column, wanted: Any) -> Any:
    if wanted is ABSENT:
        return values == column.null
    if wanted is PRESENT:
        return values != column.null
    if column.name == "flags":
        return values & wanted != 0
    if isinstance(wanted, int):
        return values == wanted
    found = values == ord(wanted[0])
    for char in wanted[1:]:
        found |= values == ord(char)
    return found


def _without_twins(drafts: list[Draft]) -> None:
    """A channel reset is a row of two families and one message."""
    seen: dict[int, Draft] = {}
    for draft in drafts:
        twin = seen.setdefault(draft.template, draft)
        if twin is not draft:
            draft.keep(~np.isin(draft.order, twin.order))


def _number(drafts: list[Draft], packets: int) -> None:
    """Places in the packets from 0 without gaps: as they are where they are so already, else by the order of events."""
    if not drafts:
        return
    packet = np.concatenate([draft.packet for draft in drafts])
    index = np.concatenate([draft.msg_index for draft in drafts])
    counts = np.bincount(packet, minlength=packets)
    first = np.concatenate([[0], np.cumsum(counts)])
    taken = np.zeros(len(packet) + 1, bool)
    if not (index >= counts[packet]).any():
        taken[first[packet] + index] = True
        if taken[:-1].all():
            return
    order = np.argsort(np.concatenate([draft.order for draft in drafts]), kind="stable")
    index = np.empty(len(packet), np.uint16)
    index[order] = np.arange(len(packet)) - first[packet[order]]
    at = 0
    for draft in drafts:
        draft.msg_index = index[at : at + len(draft.packet)]
        at += len(draft.packet)
