"""The MDEntries (268) of X and W → rows of their families.

First the few columns that determine the kind of each entry, for all entries; then, family by family, the columns of
the selected rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool, buffer_address
from umdf.market import families as e
from umdf.market.fast import mapping_table as t
from umdf.market.fast import select_kernel as s
from umdf.market.fast.conversion_plan import ConversionPlan, TemplateTags, text_rows
from umdf.market.fast.default_values import ENTRY_DEFAULTS
from umdf.market.rows import MemoryColumns, Rows
from umdf.wire.fast.decode.batch import Batch

Numbers = NDArray[Any]

FAMILIES = ("mbo", "trades", "statistics", "status", "imbalance", "price_band", "control")  # as the kernel numbers them
# Present in every batch, whatever the template has.
REQUIRED_COLUMNS = {
    "mbo": (
        *("price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert", "venue"),
        *("update_action", "entry_type", "ts_event"),
    ),
}
# Columns that determine the kind of an entry, with the value of an absent one. The first takes the flags of all.
_KIND_COLUMNS = {
    "quoted": (t.TagRule("flags", t.QUOTE_CONDITION, conversion=t.WORDS), e.Column("", "i32", ""), 0),
    "conditions": (t.TagRule("conditions", t.TRADE_CONDITION, conversion=t.WORDS), e.Column("", "i32", ""), 0),
    "entry_type": (t.TagRule("entry_type", t.ENTRY_TYPE), e.Column("", "char", ""), 0),
    "settl_flag": (t.TagRule("", t.OPEN_CLOSE_SETTL_FLAG), e.Column("", "i8", ""), e.NULL_I8),
    "update_action": (t.TagRule("update_action", t.UPDATE_ACTION), e.Column("", "i8", ""), e.NULL_I8),
    "rpt_seq": (t.TagRule("rpt_seq", t.RPT_SEQ), e.Column("", "i64", ""), e.NULL),
    "instrument_id": (
        t.TagRule("instrument_id", t.SECURITY_ID, groups=(t.ENTRIES, t.BODY)),
        e.Column("", "i64", ""),
        e.NULL,
    ),
}
_CONDITION_CODES = {
    t.LAST_NOT_TRADE: s.IS_LAST_PRICE,
    t.FLAG_THEORETICAL: s.IS_THEORETICAL,
    t.NO_INSTRUMENT: s.NO_INSTRUMENT,
}
# Of the kernel that selects entries, the arguments that are such columns.
_KIND_ARGUMENTS = {
    s.ENTRY_TYPES: "entry_type",
    s.CONDITIONS: "conditions",
    s.SETTL_FLAGS: "settl_flag",
    s.INSTRUMENTS: "instrument_id",
    s.RPT_SEQS: "rpt_seq",
    s.ACTIONS: "update_action",
    s.QUOTE_FLAGS: "quoted",
}
# Output of the kernel for each selected row, in its order.
_SELECTION_DTYPES = {
    "entry": np.dtype(np.int32),
    "body": np.dtype(np.int32),
    "sub": np.dtype(np.int32),
    "kind": np.dtype(np.uint8),
    "entry_index": np.dtype(np.uint16),
    "flags": np.dtype(np.int32),
    "unit": np.dtype(np.uint32),
}


def _entry_type_kinds() -> Numbers:
    """For each letter of 269: its kind, its alternative kind, and the condition for that."""
    table = np.zeros((256, 3), np.int64)
    for number, kind in enumerate(t.ENTRY_KINDS):
        if kind.entry_type:
            line = table[ord(kind.entry_type)]
            if kind.condition:
                line[1:] = number, _CONDITION_CODES[kind.condition]
            else:
                line[0] = number
    return table


def _families_of_kinds() -> Numbers:
    own = {"": s.NO_FAMILY, "mbo": s.MBO_ONLY, **{name: number for number, name in enumerate(FAMILIES) if number}}
    return np.array([own[kind.family] for kind in t.ENTRY_KINDS], np.int64)


_ENTRY_TYPE_KINDS, _FAMILIES_OF_KINDS = _entry_type_kinds(), _families_of_kinds()
_STAT_TYPES = np.array([kind.stat_type for kind in t.ENTRY_KINDS], np.int16)
# 279 as a byte → action of entries that are not of a book.
_ACTION_OF_UPDATE = np.full(256, ord("A"), np.uint8)
_ACTION_OF_UPDATE[[e.DELETE, e.DELETE_THRU, e.DELETE_FROM]] = ord("C")


@dataclass
class EntrySelection:
    """The entries that the rows of a family come from; -1: none."""

    entry: Numbers
    body: Numbers
    sub: Numbers
    kind: Numbers
    entry_index: Numbers
    flags: Numbers
    unit: Numbers
    is_identity: bool  # row i is entry i

    def __len__(self) -> int:
        return len(self.entry)


@dataclass(frozen=True)
class BoundEntries:
    """The arguments of the kernels that map the entries of one message, and where its rows of the family mbo are."""

    kind_plan: int
    mbo_plan: int
    select: int
    stamp: int
    sub_offsets: int  # 0: the template has no underlyings
    taken: list[tuple[int, int, int]]  # columns of the entries that rows have too: from, to, bytes of a value
    selection: EntrySelection
    columns: MemoryColumns
    alive: tuple[object, ...]  # what has to exist as long as kernels use it


class EntryRows:
    """Maps the entries of one template to rows."""

    def __init__(self, tags: TemplateTags, is_snapshot: bool) -> None:
        self.tags, self.is_snapshot = tags, is_snapshot
        self.unknown: Counter[str] = Counter()
        self._pools = {name: Pool() for name in FAMILIES}
        self._kind_plan, self._header_plan = ConversionPlan(tags), ConversionPlan(tags)
        for name, (rule, column, absent) in _KIND_COLUMNS.items():
            self._kind_plan.add(name, column, rule, absent, required=True)
        for name, tag in (("instrument_id", t.SECURITY_ID), ("rpt_seq", t.RPT_SEQ)):
            self._header_plan.add(name, e.MBO.column(name), t.TagRule(name, tag, groups=(t.BODY,)), required=True)
        self._plans = {name: ConversionPlan(tags) for name in FAMILIES}
        self._shared_columns: dict[str, list[str]] = {name: [] for name in FAMILIES}  # shared with the kind plan
        for name, plan in self._plans.items():
            self._add_columns(name, plan)
        for name in ("action", "side"):
            self._plans["mbo"].reserve(name, e.MBO.column(name))
        self._arguments = np.zeros(s.ARGUMENTS, np.int64)
        self._arguments_address, self._arguments_view = int(self._arguments.ctypes.data), self._arguments.data
        self._counts = np.zeros(s.COUNTERS, np.int64)
        self._targets = np.zeros((s.FAMILIES, s.TARGET), np.int64)
        self._reserve_entries(64)
        self._reserve_instruments(16)
        self._stamp = 1
        fixed = {
            s.IS_SNAPSHOT: int(is_snapshot),
            s.ENTRY_TYPE_KINDS: _ENTRY_TYPE_KINDS.ctypes.data,
            s.FAMILY_OF: _FAMILIES_OF_KINDS.ctypes.data,
            s.COUNTS: self._counts.ctypes.data,
            s.TARGETS: self._targets.ctypes.data,
            s.EXCHANGE_LAST: e.CONDITIONS["U"],
            s.IMPLIED_CONDITION: e.CONDITIONS["IM"],
            s.IMPLIED: e.IMPLIED,
            s.THEORETICAL: t.THEORETICAL,
            s.LAST_FLAG: e.LAST,
            s.SNAPSHOT_FLAG: e.SNAPSHOT,
            s.COMPOSITE: t.COMPOSITE,
            s.TRADE: t.TRADE,
            s.HEADER: t.SNAPSHOT_HEADER,
            s.UNKNOWN: t.UNKNOWN,
        }
        for argument, value in fixed.items():
            self._arguments[argument] = value

    def _add_columns(self, name: str, plan: ConversionPlan) -> None:
        for rule in t.ENTRY_RULES[name]:
            column = e.FAMILIES[name].column(rule.column)
            # Those of statistics may be absent, which the bits that determine the kind never are.
            if rule.column in _KIND_COLUMNS and not (rule.column == "conditions" and column.nullable):
                if rule.column not in self._shared_columns[name]:
                    self._shared_columns[name].append(rule.column)
                continue
            absent = ord(rule.absent) if rule.absent else None
            if any(default.column == rule.column for default in ENTRY_DEFAULTS.get(name, ())):
                absent = s.NOT_SENT
            always = absent is not None or rule.column in REQUIRED_COLUMNS.get(name, ()) or rule.column == "ts_event"
            plan.add(rule.column, column, rule, absent, always)

    def rows(self, batch: Batch, sent: Numbers) -> dict[str, Rows]:
        """The rows by family; `sent` is SendingTime of each message of this template. Their `unit` is the message's
        number in the batch, their `msg_index` is for the caller to fill."""
        root, item = self.tags.lists[t.ENTRIES]
        entries, offsets = self.tags.entry_count(batch, t.ENTRIES), batch.offsets(root, item)
        if len(self._owners) < entries:
            self._reserve_entries(2 * entries)
        longest = s.find_owners(buffer_address(offsets), len(sent), self._arguments_view[s.OWNERS])
        kind_columns = self._kind_plan.run(entries, {t.ENTRIES: None, t.BODY: self._owners}, flags="quoted")
        selections = self._select(batch, entries, offsets, longest, kind_columns)
        families = {name: self._family_rows(batch, name, rows, kind_columns, sent) for name, rows in selections.items()}
        if self.is_snapshot and "mbo" in families:
            self._fill_snapshot_headers(families["mbo"].columns, selections["mbo"])
        return families

    def bind(self, batch: Batch, capacity: int, sent: Numbers) -> BoundEntries:
        """As `rows`, of one message at a time, for a kernel (`live_rows_kernel`) that runs the same steps itself, for
        the family mbo. `batch` is the memory that messages are decoded into."""
        assert not self.is_snapshot
        plan, shared = self._plans["mbo"], self._shared_columns["mbo"]
        for name in shared:
            plan.reserve(name, e.MBO.column(name))
        self._reserve_entries(capacity)
        self._owners[:] = 0
        self._reserve_instruments(capacity)
        kind_columns, kind_plan = self._kind_plan.bind(
            capacity, {t.ENTRIES: None, t.BODY: self._owners}, flags="quoted"
        )
        selections = {name: self._allocate_selection(at, capacity, False) for at, name in enumerate(FAMILIES)}
        rows, message_numbers = selections["mbo"], np.zeros(1, np.int32)
        index = {t.ENTRIES: rows.entry, t.UNDERLYINGS: rows.sub, t.BODY: rows.body}
        columns, mbo_plan = plan.bind(capacity, index, kinds=rows.kind, flags=rows.flags, sent=sent)
        columns["flags"] = rows.flags
        root, item = self.tags.lists[t.ENTRIES]
        arguments = self._arguments
        arguments[s.MESSAGES], arguments[s.MESSAGE_NUMBERS] = 1, buffer_address(message_numbers)
        arguments[s.OFFSETS] = buffer_address(batch.offsets(root, item))
        for argument, name in _KIND_ARGUMENTS.items():
            arguments[argument] = kind_columns.address(name)
        subs = self.tags.lists.get(t.UNDERLYINGS)
        sub_offsets = buffer_address(batch.offsets(*subs)) if subs else 0
        taken = [(kind_columns.address(name), columns.address(name), e.MBO.column(name).dtype.itemsize)
                 for name in shared]  # fmt: skip
        alive = batch, kind_columns, columns, selections, message_numbers, sent
        return BoundEntries(
            kind_plan, mbo_plan, self._arguments_address, self._stamp, sub_offsets, taken, rows, columns, alive
        )

    def _reserve_entries(self, entries: int) -> None:
        """Memory for what is known of each entry during one batch."""
        self._owners = np.empty(entries, np.int32)  # its message
        self._kinds, self._marks = np.empty(entries, np.uint8), np.empty(entries, np.uint8)
        for argument, array in ((s.OWNERS, self._owners), (s.KINDS, self._kinds), (s.MARKS, self._marks)):
            self._arguments[argument] = buffer_address(array)

    def _reserve_instruments(self, longest: int) -> None:
        """Memory for the instruments of one message."""
        size = 1 << (2 * longest).bit_length()
        self._max_entries, self._seen_instruments = longest, np.zeros((2 * size, 2), np.int64)
        self._arguments[s.SEEN], self._arguments[s.SEEN_MASK] = buffer_address(self._seen_instruments), size - 1

    def _select(
        self, batch: Batch, entries: int, offsets: Numbers, longest: int, kind_columns: MemoryColumns
    ) -> dict[str, EntrySelection]:
        arguments = self._arguments_view
        if longest > self._max_entries:
            self._reserve_instruments(2 * longest)
        message_numbers = batch.message(self.tags.root)
        subs = self.tags.lists.get(t.UNDERLYINGS)
        underlying_offsets = (
            batch.offsets(*subs) if subs and batch.rows[self.tags.groups[t.UNDERLYINGS].index] else None
        )
        arguments[s.OFFSETS], arguments[s.MESSAGE_NUMBERS] = buffer_address(offsets), buffer_address(message_numbers)
        for argument, name in _KIND_ARGUMENTS.items():
            arguments[argument] = kind_columns.address(name)
        arguments[s.MESSAGES], arguments[s.ENTRIES] = len(offsets) - 1, entries
        arguments[s.SUB_OFFSETS] = 0 if underlying_offsets is None else buffer_address(underlying_offsets)
        self._counts[:] = 0
        self._stamp = s.classify_entries(self._arguments_address, self._stamp)
        counts = self._counts.tolist()
        if counts[s.UNKNOWN_ENTRIES]:
            self._count_unknown(batch, self._kinds[:entries])
        selections: dict[str, EntrySelection] = {}
        for number, family in enumerate(FAMILIES):
            if counts[number]:
                is_identity = number == s.MBO and counts[number] == entries and not self.is_snapshot
                selections[family] = self._allocate_selection(number, counts[number], is_identity)
        self._counts[:] = 0
        s.select_entries(self._arguments_address)
        return selections

    def _allocate_selection(self, number: int, rows: int, is_identity: bool) -> EntrySelection:
        stride = (4 * rows + 63) & -64
        memory = self._pools[FAMILIES[number]].acquire(stride * len(_SELECTION_DTYPES))
        self._targets[number] = [memory.address + stride * place for place in range(len(_SELECTION_DTYPES))]
        arrays = [
            np.ndarray(rows, dtype, memory.array, stride * place)
            for place, dtype in enumerate(_SELECTION_DTYPES.values())
        ]
        return EntrySelection(*arrays, is_identity=is_identity)

    def _count_unknown(self, batch: Batch, kinds: Numbers) -> None:
        source = self.tags.find(t.ENTRY_TYPE, t.ENTRIES)
        if source is not None:
            text = text_rows(batch, source, np.flatnonzero(kinds == t.UNKNOWN))
            if text is not None:
                ends, content = text[0].tolist(), text[1].tobytes()
                self.unknown.update(content[a:b].decode("utf-8", "replace") for a, b in pairwise(ends))

    def _family_rows(
        self,
        batch: Batch,
        name: str,
        selection: EntrySelection,
        kind_columns: MemoryColumns,
        sent: Numbers,
    ) -> Rows:
        entry = None if selection.is_identity else selection.entry
        index = {t.ENTRIES: entry, t.UNDERLYINGS: selection.sub, t.BODY: selection.body}
        plan, rows = self._plans[name], len(selection)
        columns = plan.run(rows, index, kinds=selection.kind, flags=selection.flags, sent=sent)
        columns["flags"] = selection.flags
        for column in self._shared_columns[name]:
            if entry is None:
                columns.share(column, kind_columns)
            else:
                columns[column] = _take_entries(kind_columns[column], entry, _KIND_COLUMNS[column][2])
        self._add_derived(name, selection, kind_columns, columns)
        texts = plan.run_texts(batch, index)
        no_index = np.zeros(rows, np.uint16)
        return Rows(e.FAMILIES[name], selection.unit, no_index, selection.entry_index, columns, texts)

    def _add_derived(
        self, name: str, selection: EntrySelection, kind_columns: MemoryColumns, columns: MemoryColumns
    ) -> None:
        """The columns that follow from the kind of an entry and from 279."""
        rows = len(selection)
        if name == "mbo":
            sources, targets = ("update_action", "price", "size"), ("action", "side")
            kinds = buffer_address(selection.kind)
            s.book_actions(kinds, *map(columns.address, sources), rows, *map(columns.address, targets), t.BID)
        elif name in ("trades", "statistics", "imbalance"):
            columns["action"] = _ACTION_OF_UPDATE[kind_columns["update_action"][selection.entry].view(np.uint8)]
        if name == "statistics":
            columns["stat_type"] = _STAT_TYPES[selection.kind]
        elif name == "trades":
            columns["side"] = np.full(rows, ord("N"), np.uint8)
        elif name == "imbalance":
            bits = columns["conditions"]
            buyers, sellers = bits & e.CONDITIONS["P"] != 0, bits & e.CONDITIONS["Q"] != 0
            columns["side"] = np.where(buyers, ord("B"), np.where(sellers, ord("A"), ord("N"))).astype(np.uint8)
        elif name == "control":
            columns["kind"] = np.full(rows, ord("R"), np.uint8)
        actions = columns.address("action") if "action" in columns else 0
        for default in ENTRY_DEFAULTS.get(name, ()):
            if default.condition == "kind":
                condition = buffer_address(selection.kind)
            else:
                condition = columns.address(default.condition)
            arguments = columns.address(default.column), rows, default.value, condition, default.equals, actions
            s.fill_defaults(*arguments)

    def _fill_snapshot_headers(self, columns: MutableMapping[str, Numbers], selection: EntrySelection) -> None:
        """The clearing row at the start of a snapshot: its instrument and RptSeq are in the body."""
        headers = np.flatnonzero(selection.kind == t.SNAPSHOT_HEADER)
        body = np.ascontiguousarray(selection.body[headers])
        for name, values in self._header_plan.run(len(headers), {t.BODY: body}).items():
            columns[name][headers] = values


def _take_entries(values: Numbers, entry: Numbers, absent: int) -> Numbers:
    """Values of the selected entries; -1: none."""
    if not len(values):
        return np.full(len(entry), absent, values.dtype)
    taken = values[entry]
    taken[entry < 0] = absent
    return taken
