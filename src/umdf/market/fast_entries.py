"""The MDEntries (268) of X and W → rows of their families.

First, for all entries, the few columns that say what kind each is; then, family by family, the columns of the rows
that were chosen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool, address_of
from umdf.market import events as e
from umdf.market import fast_select_kernel as s
from umdf.market import fast_table as t
from umdf.market.fast_columns import DAYS, Block, Lines, Places, block_bytes, text_rows
from umdf.market.rows import Rows
from umdf.wire.fast.batch import Batch

Numbers = NDArray[Any]

FAMILIES = ("mbo", "trades", "statistics", "status", "imbalance", "price_band", "control")  # as the kernel numbers them
# These are there in every batch, whatever was sent.
ALWAYS = {
    "mbo": (
        *("price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert", "stream"),
        *("update_action", "entry_type", "ts_event"),
    ),
    "trades": ("conditions",),
    "imbalance": ("conditions",),
}
# What says the kind of an entry, with what stands for an absent one.
_TELLING = {
    "quoted": (t.Rule("flags", t.QUOTE_CONDITION, how=t.WORDS), e.Column("", "i32", ""), 0),
    "conditions": (t.Rule("conditions", t.TRADE_CONDITION, how=t.WORDS), e.Column("", "i32", ""), 0),
    "entry_type": (t.Rule("entry_type", t.ENTRY_TYPE), e.Column("", "char", ""), 0),
    "settl_flag": (t.Rule("", t.OPEN_CLOSE_SETTL_FLAG), e.Column("", "i8", ""), e.NULL_I8),
    "update_action": (t.Rule("update_action", t.UPDATE_ACTION), e.Column("", "i8", ""), e.NULL_I8),
    "rpt_seq": (t.Rule("rpt_seq", t.RPT_SEQ), e.Column("", "i64", ""), e.NULL),
    "instrument_id": (t.Rule("instrument_id", t.SECURITY_ID, groups=(t.ENTRIES, t.BODY)), e.Column("", "i64", ""), e.NULL),
}
_WHEN = {"": s.ALWAYS, t.LAST_NOT_TRADE: s.NO_TRADE, t.FLAG_THEORETICAL: s.IS_THEORETICAL, t.NO_INSTRUMENT: s.NO_INSTRUMENT}
_SELECTION = {"entry": np.int32, "body": np.int32, "sub": np.int32, "kind": np.uint8, "place": np.uint16, "flags": np.int32}


@cache
def _widths(name: str) -> tuple[int, ...]:
    """Of the selection, the units, some days and all columns of a family."""
    columns = [column for column in (*e.COMMON, *e.FAMILIES[name].columns) if not column.is_text]
    selection = [np.dtype(dtype).itemsize for dtype in _SELECTION.values()]
    return (4, 4, *selection, *(column.dtype.itemsize for column in columns))


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
    block: Block  # room for the columns

    def __len__(self) -> int:
        return len(self.entry)


class EntryRows:
    """Makes the rows of one template's entries."""

    def __init__(self, places: Places, is_snapshot: bool) -> None:
        self.places, self.is_snapshot = places, is_snapshot
        self.unknown: Counter[str] = Counter()
        self._pools = {name: Pool() for name in ("telling", *FAMILIES)}
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

    def rows(self, batch: Batch, sent: Numbers) -> dict[str, Rows]:
        """The rows by family; `sent` is SendingTime of each message of this template. Their `unit` is the message's
        number in the batch, their `msg_index` is for the caller to fill."""
        node, (root, item) = self.places.groups[t.ENTRIES], self.places.lists[t.ENTRIES]
        entries, offsets = int(batch.rows[node.index]), batch.offsets(root, item)
        owners = np.repeat(np.arange(len(sent), dtype=np.int32), np.diff(offsets))
        telling = self._telling(batch, entries, owners)
        chosen = self._choose(batch, entries, offsets, telling)
        number = batch.message(root)
        made = {name: self._family(batch, name, rows, telling, sent, number) for name, rows in chosen.items()}
        if self.is_snapshot and "mbo" in made:
            self._headers(batch, made["mbo"], chosen["mbo"])
        return made

    def _telling(self, batch: Batch, entries: int, owners: Numbers) -> dict[str, Numbers]:
        """One row more than there are entries: what -1 stands for."""
        rows = entries + 1
        widths = [column.dtype.itemsize for _, column, _ in _TELLING.values()]
        block = Block(self._pools["telling"].take(block_bytes(rows, [*widths, 1, 1])))
        lines, telling = Lines(batch, entries), {}
        for name, (rule, column, absent) in _TELLING.items():
            values = telling[name] = block.take(rows, column.dtype)
            values[-1] = absent
            place = self.places.find(rule.tag, *rule.groups)
            index = owners if place and place.node is self.places.root else None
            flags = telling["quoted"] if name != "quoted" else None
            if place is None or not lines.add(
                place, column, values, index=index, absent=absent, flags=flags, how=rule.how
            ):
                values[:] = absent
        lines.run()
        telling["kind"], telling["marks"] = block.take(rows, np.uint8), block.take(rows, np.uint8)
        return telling

    def _choose(self, batch: Batch, entries: int, offsets: Numbers, telling: dict[str, Numbers]) -> dict[str, Chosen]:
        arguments, longest = self._arguments, int(np.diff(offsets).max(initial=1))
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
            (s.KINDS, telling["kind"]),
            (s.MARKS, telling["marks"]),
            (s.SEEN, self._seen),
        ):
            arguments[place] = address_of(array)
        arguments[s.MESSAGES], arguments[s.ENTRIES] = len(offsets) - 1, entries
        arguments[s.SEEN_MASK] = self._seen.shape[0] // 2 - 1
        arguments[s.SUB_OFFSETS] = 0 if below is None else address_of(below)
        self._counts[:] = 0
        self._stamp = s.classify(arguments.ctypes.data, self._stamp)
        self._note_unknown(batch, telling["kind"][:entries])
        counted, chosen = self._counts.tolist(), {}
        for number, (family, rows) in enumerate(zip(FAMILIES, counted, strict=True)):
            if rows:
                block = Block(self._pools[family].take(block_bytes(rows, _widths(family))))
                arrays = {name: block.take(rows, dtype) for name, dtype in _SELECTION.items()}
                self._targets[number] = [array.ctypes.data for array in arrays.values()]
                one_to_one = number == s.MBO and rows == entries and not self.is_snapshot
                chosen[family] = Chosen(**arrays, all_entries=one_to_one, block=block)
        self._counts[:] = 0
        s.select(arguments.ctypes.data)
        return chosen

    def _note_unknown(self, batch: Batch, kinds: Numbers) -> None:
        place = self.places.find(t.ENTRY_TYPE, t.ENTRIES)
        strange = np.flatnonzero(kinds == t.UNKNOWN)
        if place is not None and len(strange):
            text = text_rows(batch, place, strange)
            if text is not None:
                ends, content = text[0].tolist(), text[1].tobytes()
                self.unknown.update(content[a:b].decode("utf-8", "replace") for a, b in zip(ends, ends[1:], strict=False))

    def _family(
        self, batch: Batch, name: str, chosen: Chosen, telling: dict[str, Numbers], sent: Numbers, number: Numbers
    ) -> Rows:
        family, rows, always = e.FAMILIES[name], len(chosen), ALWAYS.get(name, ())
        block = chosen.block
        made: dict[str, Numbers] = {"flags": chosen.flags}
        taken: dict[str, Numbers] = {}
        texts, lines = {}, Lines(batch, rows)
        days = block.take(rows, np.int32)
        index = {t.ENTRIES: None if chosen.all_entries else chosen.entry, t.UNDERLYINGS: chosen.sub, t.BODY: chosen.body}
        for rule in t.ENTRY_RULES[name]:
            if rule.column in telling and not (name == "statistics" and rule.column == "conditions"):
                if rule.groups == (t.BODY,):  # of the start of a snapshot, see `_headers`
                    continue
                held = telling[rule.column]
                made[rule.column] = held[:rows] if chosen.all_entries else held[chosen.entry]
                continue
            column = family.column(rule.column)
            place = self.places.find(rule.tag, *rule.groups)
            if place is None and not (rule.time_tag or rule.absent or rule.column in always):
                continue
            group = next((g for g, node in self.places.groups.items() if place and node is place.node), t.ENTRIES)
            if column.is_text:
                text = text_rows(batch, place, index[group] if index[group] is not None else chosen.entry) if place else None
                if text is not None:
                    texts[rule.column] = text
                continue
            if rule.time_tag:
                self._time(lines, rule, column, made, block, days, chosen, index, sent)
                continue
            keep = rule.column in made
            absent = ord(rule.absent) if rule.absent else None
            if rule.column not in taken:
                taken[rule.column] = block.take(rows, column.dtype)
            fresh = taken[rule.column]
            added = place is not None and lines.add(
                place,
                column,
                fresh,
                index=index[group],
                kinds=chosen.kind,
                on=rule.on,
                keep=keep,
                absent=absent,
                flags=chosen.flags,
                how=rule.how,
            )
            if added:
                made[rule.column] = fresh
            elif not keep and (rule.column in always or rule.absent):
                fresh[:] = column.null if absent is None else absent
                made[rule.column] = fresh
        lines.run()
        self._derive(name, chosen, telling, made)
        unit = np.take(number, chosen.body, out=block.take(rows, np.uint32), mode="clip")
        return Rows(family, unit, np.zeros(rows, np.uint16), chosen.place, made, texts)

    def _time(
        self,
        lines: Lines,
        rule: t.Rule,
        column: e.Column,
        made: dict[str, Numbers],
        block: Block,
        days: Numbers,
        chosen: Chosen,
        index: dict[int, Numbers | None],
        sent: Numbers,
    ) -> None:
        """A date and its time. A date that is missing is that of the event, and of SendingTime if that is missing too."""
        date, clock = self.places.find(rule.tag, t.ENTRIES), self.places.find(rule.time_tag, t.ENTRIES)
        target = block.take(len(chosen), column.dtype)
        if date is None or not lines.everywhere(date):
            lines.days_of(sent, days, chosen.body)
            if "ts_event" in made:
                lines.days_of(made["ts_event"], days, None)
        if date is not None:
            lines.add(date, DAYS, days, index=index[t.ENTRIES], keep=True, flags=chosen.flags)
        if clock is not None and lines.add(
            clock,
            column,
            target,
            index=index[t.ENTRIES],
            kinds=chosen.kind,
            on=rule.on,
            flags=chosen.flags,
            clock=days,
        ):
            made[rule.column] = target
        elif rule.column == "ts_event" or rule.column in ALWAYS.get("mbo", ()):
            target[:] = column.null
            made[rule.column] = target

    def _derive(self, name: str, chosen: Chosen, telling: dict[str, Numbers], made: dict[str, Numbers]) -> None:
        """What follows from the kind of an entry and from 279."""
        rows = len(chosen)
        if name == "mbo":
            made["action"], made["side"] = chosen.block.take(rows, np.uint8), chosen.block.take(rows, np.uint8)
            sources = chosen.kind, made["update_action"], made["price"], made["size"]
            s.book_actions(*map(address_of, sources), rows, address_of(made["action"]), address_of(made["side"]), t.BID)
        elif name in ("trades", "statistics", "imbalance"):
            updates = telling["update_action"][chosen.entry]
            made["action"] = _SET_OR_DELETED[updates.view(np.uint8)]
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

    def _headers(self, batch: Batch, rows: Rows, chosen: Chosen) -> None:
        """The clearing row at the start of a snapshot: its instrument and RptSeq stand in the body."""
        headers = np.flatnonzero(chosen.kind == t.HEADER)
        for tag, name in ((t.SECURITY_ID, "instrument_id"), (t.RPT_SEQ, "rpt_seq")):
            place = self.places.find(tag, t.BODY)
            values = np.full(len(headers), e.NULL, np.int64)
            lines = Lines(batch, len(headers))
            if place is not None:
                lines.add(place, e.MBO.column(name), values, index=np.ascontiguousarray(chosen.body[headers]))
                lines.run()
            rows.columns[name] = rows.columns[name].copy()
            rows.columns[name][headers] = values
