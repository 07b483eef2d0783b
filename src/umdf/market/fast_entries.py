"""The MDEntries (268) of X and W → rows of their families.

First, for all entries, the few columns that say what kind each is; then, family by family, the columns of the rows
that were chosen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool, address_of
from umdf.market import events as e
from umdf.market import fast_select_kernel as s
from umdf.market import fast_table as t
from umdf.market.fast_columns import Places, Plan, text_rows
from umdf.market.rows import Rows
from umdf.wire.fast.batch import Batch

Numbers = NDArray[Any]

FAMILIES = ("mbo", "trades", "statistics", "status", "imbalance", "price_band", "control")  # as the kernel numbers them
# These are there in every batch, whatever the template has.
ALWAYS = {
    "mbo": (
        *("price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert", "stream"),
        *("update_action", "entry_type", "ts_event"),
    ),
}
# What says the kind of an entry, with what stands for an absent one. The first takes the flags of all.
_TELLING = {
    "quoted": (t.Rule("flags", t.QUOTE_CONDITION, how=t.WORDS), e.Column("", "i32", ""), 0),
    "conditions": (t.Rule("conditions", t.TRADE_CONDITION, how=t.WORDS), e.Column("", "i32", ""), 0),
    "entry_type": (t.Rule("entry_type", t.ENTRY_TYPE), e.Column("", "char", ""), 0),
    "settl_flag": (t.Rule("", t.OPEN_CLOSE_SETTL_FLAG), e.Column("", "i8", ""), e.NULL_I8),
    "update_action": (t.Rule("update_action", t.UPDATE_ACTION), e.Column("", "i8", ""), e.NULL_I8),
    "rpt_seq": (t.Rule("rpt_seq", t.RPT_SEQ), e.Column("", "i64", ""), e.NULL),
    "instrument_id": (
        t.Rule("instrument_id", t.SECURITY_ID, groups=(t.ENTRIES, t.BODY)),
        e.Column("", "i64", ""),
        e.NULL,
    ),
}
_WHEN = {
    t.LAST_NOT_TRADE: s.NO_TRADE,
    t.FLAG_THEORETICAL: s.IS_THEORETICAL,
    t.NO_INSTRUMENT: s.NO_INSTRUMENT,
}
# What is written about each chosen row, in the order of the kernel.
_SELECTION = {
    "entry": np.dtype(np.int32),
    "body": np.dtype(np.int32),
    "sub": np.dtype(np.int32),
    "kind": np.dtype(np.uint8),
    "place": np.dtype(np.uint16),
    "flags": np.dtype(np.int32),
}


def _letter_kinds() -> Numbers:
    """For each letter of 269 its kind, the other kind it may have, and when it has that."""
    table = np.zeros((256, 3), np.int64)
    for number, kind in enumerate(t.KINDS):
        if kind.entry_type:
            line = table[ord(kind.entry_type)]
            if kind.when:
                line[1:] = number, _WHEN[kind.when]
            else:
                line[0] = number
    return table


def _family_of() -> Numbers:
    own = {"": s.NOWHERE, "mbo": s.MBO_ONLY, **{name: number for number, name in enumerate(FAMILIES) if number}}
    return np.array([own[kind.family] for kind in t.KINDS], np.int64)


_LETTER_KINDS, _FAMILY_OF = _letter_kinds(), _family_of()
_STAT_TYPES = np.array([kind.stat_type for kind in t.KINDS], np.int16)
# 279 as a byte → action of what is not a book entry.
_SET_OR_DELETED = np.full(256, ord("A"), np.uint8)
_SET_OR_DELETED[[e.DELETE, e.DELETE_THRU, e.DELETE_FROM]] = ord("C")


@dataclass
class Chosen:
    """Which entries the rows of a family come from; -1 is none."""

    entry: Numbers
    body: Numbers
    sub: Numbers
    kind: Numbers
    place: Numbers
    flags: Numbers
    all_entries: bool  # row i is entry i

    def __len__(self) -> int:
        return len(self.entry)


class EntryRows:
    """Makes the rows of one template's entries."""

    def __init__(self, places: Places, is_snapshot: bool) -> None:
        self.places, self.is_snapshot = places, is_snapshot
        self.unknown: Counter[str] = Counter()
        self._pools = {name: Pool() for name in FAMILIES}
        self._telling, self._header = Plan(places), Plan(places)
        for name, (rule, column, absent) in _TELLING.items():
            self._telling.add(name, column, rule, absent, always=True)
        for name, tag in (("instrument_id", t.SECURITY_ID), ("rpt_seq", t.RPT_SEQ)):
            self._header.add(name, e.MBO.column(name), t.Rule(name, tag, groups=(t.BODY,)), always=True)
        self._plans = {name: Plan(places) for name in FAMILIES}
        self._shared: dict[str, list[str]] = {name: [] for name in FAMILIES}  # columns that tell the kind, too
        for name, plan in self._plans.items():
            self._add_columns(name, plan)
        self._arguments = np.zeros(s.ARGUMENTS, np.int64)
        self._counts = np.zeros(s.FAMILIES, np.int64)
        self._targets = np.zeros((s.FAMILIES, s.TARGET), np.int64)
        self._seen = np.zeros((2, 2), np.int64)
        self._stamp = 1
        fixed = {
            s.IS_SNAPSHOT: int(is_snapshot),
            s.LETTER_KINDS: _LETTER_KINDS.ctypes.data,
            s.FAMILY_OF: _FAMILY_OF.ctypes.data,
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
            s.HEADER: t.HEADER,
        }
        for place, value in fixed.items():
            self._arguments[place] = value

    def _add_columns(self, name: str, plan: Plan) -> None:
        for rule in t.ENTRY_RULES[name]:
            column = e.FAMILIES[name].column(rule.column)
            # Those of statistics may be absent, which the bits that tell the kind never are.
            if rule.column in _TELLING and not (rule.column == "conditions" and column.nullable):
                if rule.column not in self._shared[name]:
                    self._shared[name].append(rule.column)
                continue
            absent = ord(rule.absent) if rule.absent else None
            always = bool(rule.absent) or rule.column in ALWAYS.get(name, ()) or rule.column == "ts_event"
            plan.add(rule.column, column, rule, absent, always)

    def rows(self, batch: Batch, sent: Numbers) -> dict[str, Rows]:
        """The rows by family; `sent` is SendingTime of each message of this template. Their `unit` is the message's
        number in the batch, their `msg_index` is for the caller to fill."""
        root, item = self.places.lists[t.ENTRIES]
        entries, offsets = self.places.rows(batch, t.ENTRIES), batch.offsets(root, item)
        owners = np.repeat(np.arange(len(sent), dtype=np.int32), np.diff(offsets))
        telling = self._telling.run(batch, entries, {t.ENTRIES: None, t.BODY: owners}, flags="quoted")
        chosen = self._choose(batch, entries, offsets, telling)
        number = batch.message(root)
        made = {name: self._family(batch, name, rows, telling, sent, number) for name, rows in chosen.items()}
        if self.is_snapshot and "mbo" in made:
            self._put_headers(batch, made["mbo"].columns, chosen["mbo"])
        return made

    def _choose(self, batch: Batch, entries: int, offsets: Numbers, telling: dict[str, Numbers]) -> dict[str, Chosen]:
        arguments, longest = self._arguments, int(np.diff(offsets).max(initial=1))
        kinds, marks = np.empty(entries, np.uint8), np.empty(entries, np.uint8)
        size = 1 << (2 * longest).bit_length()
        if self._seen.shape[0] < 2 * size:
            self._seen = np.zeros((2 * size, 2), np.int64)
        subs = self.places.lists.get(t.UNDERLYINGS)
        below = batch.offsets(*subs) if subs and batch.rows[self.places.groups[t.UNDERLYINGS].index] else None
        for place, array in (
            (s.OFFSETS, offsets),
            (s.LETTERS, telling["entry_type"]),
            (s.CONDITIONS, telling["conditions"]),
            (s.SETTL_FLAGS, telling["settl_flag"]),
            (s.INSTRUMENTS, telling["instrument_id"]),
            (s.RPT_SEQS, telling["rpt_seq"]),
            (s.ACTIONS, telling["update_action"]),
            (s.QUOTED, telling["quoted"]),
            (s.KINDS, kinds),
            (s.MARKS, marks),
            (s.SEEN, self._seen),
        ):
            arguments[place] = address_of(array)
        arguments[s.MESSAGES], arguments[s.ENTRIES] = len(offsets) - 1, entries
        arguments[s.SEEN_MASK] = self._seen.shape[0] // 2 - 1
        arguments[s.SUB_OFFSETS] = 0 if below is None else address_of(below)
        self._counts[:] = 0
        self._stamp = s.classify(arguments.ctypes.data, self._stamp)
        self._note_unknown(batch, kinds)
        chosen: dict[str, Chosen] = {}
        for number, (family, rows) in enumerate(zip(FAMILIES, self._counts.tolist(), strict=True)):
            if rows:
                arrays = self._selection(family, rows)
                self._targets[number] = [address_of(array) for array in arrays.values()]
                one_to_one = number == s.MBO and rows == entries and not self.is_snapshot
                chosen[family] = Chosen(**arrays, all_entries=one_to_one)
        self._counts[:] = 0
        s.select(arguments.ctypes.data)
        return chosen

    def _selection(self, family: str, rows: int) -> dict[str, Numbers]:
        memory, at, arrays = self._pools[family].take(sum(64 + rows * d.itemsize for d in _SELECTION.values())), 0, {}
        for name, dtype in _SELECTION.items():
            arrays[name] = memory.array[at : at + rows * dtype.itemsize].view(dtype)
            at += -(-rows * dtype.itemsize // 64) * 64
        return arrays

    def _note_unknown(self, batch: Batch, kinds: Numbers) -> None:
        place = self.places.find(t.ENTRY_TYPE, t.ENTRIES)
        strange = np.flatnonzero(kinds == t.UNKNOWN)
        if place is not None and len(strange):
            text = text_rows(batch, place, strange)
            if text is not None:
                ends, content = text[0].tolist(), text[1].tobytes()
                self.unknown.update(content[a:b].decode("utf-8", "replace") for a, b in pairwise(ends))

    def _family(
        self, batch: Batch, name: str, chosen: Chosen, telling: dict[str, Numbers], sent: Numbers, number: Numbers
    ) -> Rows:
        entry = None if chosen.all_entries else chosen.entry
        index = {t.ENTRIES: entry, t.UNDERLYINGS: chosen.sub, t.BODY: chosen.body}
        plan, rows = self._plans[name], len(chosen)
        made = plan.run(batch, rows, index, kinds=chosen.kind, flags=chosen.flags, sent=sent)
        made["flags"] = chosen.flags
        for column in self._shared[name]:
            made[column] = telling[column] if entry is None else _taken(telling[column], entry, _TELLING[column][2])
        self._derive(name, chosen, telling, made)
        texts = plan.run_texts(batch, index)
        return Rows(e.FAMILIES[name], number[chosen.body], np.zeros(rows, np.uint16), chosen.place, made, texts)

    def _derive(self, name: str, chosen: Chosen, telling: dict[str, Numbers], made: dict[str, Numbers]) -> None:
        """What follows from the kind of an entry and from 279."""
        rows = len(chosen)
        if name == "mbo":
            made["action"], made["side"] = np.empty(rows, np.uint8), np.empty(rows, np.uint8)
            sources = chosen.kind, made["update_action"], made["price"], made["size"]
            s.book_actions(*map(address_of, sources), rows, address_of(made["action"]), address_of(made["side"]), t.BID)
        elif name in ("trades", "statistics", "imbalance"):
            made["action"] = _SET_OR_DELETED[telling["update_action"][chosen.entry].view(np.uint8)]
        if name == "statistics":
            made["stat_type"] = _STAT_TYPES[chosen.kind]
        elif name == "trades":
            made["side"] = np.full(rows, ord("N"), np.uint8)
        elif name == "imbalance":
            bits = made["conditions"]
            buyers, sellers = bits & e.CONDITIONS["P"] != 0, bits & e.CONDITIONS["Q"] != 0
            made["side"] = np.where(buyers, ord("B"), np.where(sellers, ord("A"), ord("N"))).astype(np.uint8)
        elif name == "control":
            made["kind"] = np.full(rows, ord("R"), np.uint8)

    def _put_headers(self, batch: Batch, columns: dict[str, Numbers], chosen: Chosen) -> None:
        """The clearing row at the start of a snapshot: its instrument and RptSeq stand in the body."""
        headers = np.flatnonzero(chosen.kind == t.HEADER)
        body = np.ascontiguousarray(chosen.body[headers])
        for name, values in self._header.run(batch, len(headers), {t.BODY: body}).items():
            columns[name][headers] = values


def _taken(values: Numbers, entry: Numbers, absent: int) -> Numbers:
    """Values of the chosen entries; -1 is none."""
    if not len(values):
        return np.full(len(entry), absent, values.dtype)
    taken = values[entry]
    taken[entry < 0] = absent
    return taken
