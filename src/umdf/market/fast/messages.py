"""Events → FAST messages, as columns for the encoder, by the same table that the decoder uses.

A unit is a message: entries of X, one W, one f, y, B, 0 or 4. The rows T and N of mbo and the clearing row of a
snapshot repeat what other families contain, so they produce nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.market import families as e
from umdf.market.fast import mapping_table as t
from umdf.market.fast.conversion_plan import TemplateTags
from umdf.market.fast.definition_messages import news_messages, put_definitions
from umdf.market.fast.node_builder import CONDITION_WORDS, NodeBuilder
from umdf.market.rows import Events, Rows, Units
from umdf.wire.fast.layout import Layout
from umdf.wire.fast.templates import TemplateSet

Numbers = NDArray[Any]

_A, _B, _C, _M, _N, _R, _T = (ord(letter) for letter in "ABCMNRT")
_QUOTE_FLAGS = sum(t.QUOTE_CONDITIONS.values())
# 279 of events that do not store it.
_ACTIONS = np.zeros(256, np.int64)
_ACTIONS[[_A, _M, _C, _R]] = e.NEW, e.CHANGE, e.DELETE, e.DELETE_THRU
_ENTRY_TYPES = np.array([ord(kind.entry_type or "\0") for kind in t.ENTRY_KINDS], np.uint8)
_KIND_OF_STATISTIC = {kind.stat_type: number for number, kind in enumerate(t.ENTRY_KINDS) if kind.stat_type}
_NUMBER_COLUMN = e.Column("", "i64", "")
_SENDING_TIME_RULE = t.TagRule("ts_send", t.SENDING_TIME, groups=(t.BODY,))
_SEQUENCE_RULE = t.TagRule("sequence", t.MSG_SEQ_NUM, groups=(t.BODY,))


@dataclass
class _FamilyEntries:
    """Rows of one family that are entries of one template's messages."""

    rows: Rows
    row_numbers: Numbers  # which rows
    kinds: Numbers
    slots: Numbers  # the index of each among the entries
    is_entry: Numbers  # of a composite underlying only the first row is an entry; all of other kinds


class FastMessageMapper:
    """Maps events to messages of one generation, chosen by the template ids: 152, 153 and 1149 by price and priority,
    145, 147 and 149 by position."""

    def __init__(
        self,
        templates: TemplateSet,
        incremental: int = 152,
        snapshot: int = 153,
        security_list: int = 1149,
        *,
        security_status: int = 142,
        news: int = 143,
        heartbeat: int = 144,
        sequence_reset: int = 122,
        channel_reset: int = 81,
    ) -> None:
        self.layout = Layout(templates)
        self.incremental, self.snapshot, self.security_list = incremental, snapshot, security_list
        self.security_status, self.news, self.channel_reset = security_status, news, channel_reset
        self.heartbeat, self.sequence_reset = heartbeat, sequence_reset
        ids = (incremental, snapshot, security_list, security_status, news, heartbeat, sequence_reset, channel_reset)
        missing = [template_id for template_id in ids if template_id not in self.layout.roots]
        if missing:
            raise EncodeError(f"unknown template {missing[0]}", "pass the template IDs of your file")
        rpt_seq = TemplateTags(self.layout, self.layout.roots[incremental]).find(t.RPT_SEQ, t.ENTRIES)
        self._needs_rpt_seq = rpt_seq is not None and not rpt_seq.field.optional

    def messages(self, events: Events) -> dict[int, pa.RecordBatch]:
        """The messages by template id, for `umdf.wire.fast.encode.encoder.Encoder.encode`; `message` is the unit."""
        template = self._templates_of_units(events)
        batches: dict[int, pa.RecordBatch] = {}
        for template_id in (self.incremental, self.channel_reset, self.snapshot):
            units = np.flatnonzero(template == template_id)
            if len(units):
                batches[template_id] = self._entry_messages(events, template_id, template, units)
        control = events.rows("control")
        kinds = control.column("kind")
        for template_id, kind in ((self.heartbeat, "H"), (self.sequence_reset, "S")):
            self._add_single_row_messages(batches, template_id, events, control, np.flatnonzero(kinds == ord(kind)))
        status = events.rows("status")
        standalone = np.flatnonzero(template[status.unit] == self.security_status)
        self._add_single_row_messages(batches, self.security_status, events, status, standalone)
        definition_rows, news_rows = events.rows("definition"), events.rows("news")
        if len(definition_rows):
            units = np.unique(definition_rows.unit)
            body = self._body(self.security_list, events.units, units)
            put_definitions(body, definition_rows, np.searchsorted(units, definition_rows.unit))
            batches[self.security_list] = _batch(units, body)
        if len(news_rows):
            batches[self.news] = news_messages(self.layout, self.news, events, news_rows)
        return batches

    def _templates_of_units(self, events: Events) -> Numbers:
        """The template of each unit's message; 0 if it has none."""
        template = np.zeros(len(events.units), np.int64)
        for family in ("trades", "statistics", "imbalance", "price_band"):
            template[events.rows(family).unit] = self.incremental
        mbo = events.rows("mbo")
        action, side = mbo.column("action"), mbo.column("side")
        changes = (action != _T) & (action != _N)
        template[mbo.unit[changes]] = self.incremental
        empties = changes & (action == _R) & (side == _N)
        if empties.any():
            self._assign_channel_resets(template, mbo, empties)
        template[events.rows("status").unit] = np.where(
            template[events.rows("status").unit] == self.incremental, self.incremental, self.security_status
        )
        template[events.rows("snapshot").unit] = self.snapshot
        return template

    def _assign_channel_resets(self, template: Numbers, mbo: Rows, empties: Numbers) -> None:
        """An Empty Book has no RptSeq (4.2.9), and that of a channel no instrument: if the template of X requires
        them, the template of the channel reset is used."""
        needs_reset = empties & (self._needs_rpt_seq | (mbo.column("instrument_id") == e.NULL))
        reset_units = np.zeros(len(template), np.bool_)
        reset_units[mbo.unit[needs_reset]] = True
        template[reset_units] = self.channel_reset

    def _entry_messages(self, events: Events, template_id: int, template: Numbers, units: Numbers) -> pa.RecordBatch:
        is_snapshot = template_id == self.snapshot
        body = self._body(template_id, events.units, units)
        message_index = np.zeros(len(template), np.int64)  # of a unit among those of this template
        message_index[units] = np.arange(len(units))
        families, owners, count = _assign_slots(
            list(self._family_entries(events, template == template_id, is_snapshot)), message_index
        )
        offsets = np.zeros(len(units) + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=len(units)), out=offsets[1:])
        entries = body.child(t.ENTRIES, count)
        for family in families:
            _put_entries(entries, body, family, message_index, is_snapshot)
        if is_snapshot:
            rows = events.rows("snapshot")
            _put_rules(body, t.BODY_RULES["snapshot"], rows, None, message_index[rows.unit])
        body.put_list(t.ENTRIES, offsets, entries)
        return _batch(units, body)

    def _family_entries(self, events: Events, is_selected: Numbers, is_snapshot: bool) -> Iterator[_FamilyEntries]:
        none = np.zeros(0, np.int64)
        for family in ("mbo", "trades", "statistics", "status", "imbalance", "price_band"):
            rows = events.rows(family)
            if not len(rows):
                continue
            is_entry = is_selected[rows.unit]
            kinds, first = _kinds(rows), np.ones(len(rows), np.bool_)
            if family == "mbo":
                action = rows.column("action")
                is_entry &= (action != _T) & (action != _N)
                if is_snapshot:  # the clearing row represents the snapshot itself
                    is_entry &= rows.entry_index > 0
            elif family == "statistics":
                same = (rows.wire_order[1:] == rows.wire_order[:-1]) & (kinds[1:] == t.COMPOSITE)
                first[1:] = ~same
            row_numbers = np.flatnonzero(is_entry)
            if len(row_numbers):
                yield _FamilyEntries(rows, row_numbers, kinds[row_numbers], none, first[row_numbers])

    def _add_single_row_messages(
        self, batches: dict[int, pa.RecordBatch], template_id: int, events: Events, rows: Rows, row_numbers: Numbers
    ) -> None:
        """Messages that are one row: 0, 4 and f."""
        if len(row_numbers):
            units = rows.unit[row_numbers].astype(np.int64)
            body = self._body(template_id, events.units, units)
            _put_rules(body, t.BODY_RULES[rows.family.name], rows, row_numbers, None)
            batches[template_id] = _batch(units, body)

    def _body(self, template_id: int, units: Units, unit_numbers: Numbers) -> NodeBuilder:
        body = NodeBuilder(self.layout, self.layout.roots[template_id], len(unit_numbers))
        for rule, values in ((_SEQUENCE_RULE, units.sequence), (_SENDING_TIME_RULE, units.ts_send)):
            column = next(column for column in e.COMMON if column.name == rule.column)
            body.put(rule, column, values[unit_numbers])
        return body


def _kinds(rows: Rows) -> Numbers:
    """The number of each row's kind of entry."""
    name = rows.family.name
    if name == "mbo":
        empty = np.where(rows.column("instrument_id") == e.NULL, t.CHANNEL_RESET, t.EMPTY_BOOK)
        side = rows.column("side")
        return np.where(side == _B, t.BID, np.where(side == _A, t.OFFER, empty))
    if name == "statistics":
        known = np.zeros(1 << 16, np.int64)
        for stat_type, kind in _KIND_OF_STATISTIC.items():
            known[stat_type] = kind
        return known[rows.column("stat_type")]
    if name == "price_band":
        quantity = rows.column("entry_type") == ord("h")
        return np.where(quantity, t.KIND_NUMBERS["quantity band"], t.KIND_NUMBERS["price band"])
    kind = {"trades": t.TRADE, "imbalance": t.IMBALANCE, "status": t.KIND_NUMBERS["state"]}[name]
    return np.full(len(rows), kind)


def _assign_slots(families: list[_FamilyEntries], message_index: Numbers) -> tuple[list[_FamilyEntries], Numbers, int]:
    """Give each row its slot; returns also the place of each slot's message, and how many slots there are."""
    orders = [family.rows.wire_order[family.row_numbers] for family in families]
    firsts = [order[piece.is_entry] for order, piece in zip(orders, families, strict=True)]
    if len(firsts) == 1:
        merged = firsts[0]
    else:
        merged = np.sort(np.concatenate([np.zeros(0, np.int64), *firsts]), kind="stable")
    if len(merged) > 1 and not (merged[1:] > merged[:-1]).all():
        raise EncodeError("two events have the same message and entry index")
    for piece, order in zip(families, orders, strict=True):
        is_identity = len(families) == 1 and len(order) == len(merged)
        piece.slots = np.arange(len(order)) if is_identity else np.searchsorted(merged, order)
    return families, message_index[merged >> 32], len(merged)


def _put_entries(
    entries: NodeBuilder, body: NodeBuilder, family: _FamilyEntries, message_index: Numbers, is_snapshot: bool
) -> None:
    rows, name = family.rows, family.rows.family.name
    row_numbers, slots, kinds = family.row_numbers, family.slots, family.kinds
    if not family.is_entry.all():
        row_numbers, slots, kinds = row_numbers[family.is_entry], slots[family.is_entry], kinds[family.is_entry]
    entries.put_chars(t.ENTRY_TYPE, _ENTRY_TYPES[kinds], slots)
    if entries.has(t.UPDATE_ACTION):
        _put_update_action(entries, rows, row_numbers, kinds, slots)
    derived = {t.ENTRY_TYPE, t.UPDATE_ACTION, t.TRADE_CONDITION}
    rules = [rule for rule in t.ENTRY_RULES[name] if rule.tag not in derived and t.UNDERLYINGS not in rule.groups]
    for rule in rules:
        if is_snapshot and rule.column == "rpt_seq":
            continue
        if rule.groups == (t.BODY,) and rule.kind_mask == t.ALL_KINDS:
            _put_rule(body, rule, rows, row_numbers, message_index[rows.unit[row_numbers]])
            continue
        if t.ENTRIES not in rule.groups or not (entries.has(rule.tag) or entries.has(rule.time_tag)):
            continue
        on = (rule.kind_mask >> kinds & 1).astype(np.bool_) if rule.kind_mask != t.ALL_KINDS else np.ones(1, np.bool_)
        if on.all():
            _put_rule(entries, rule, rows, row_numbers, slots)
        elif on.any():
            _put_rule(entries, rule, rows, row_numbers[on], slots[on])
    if "flags" in rows.columns:
        entries.put_words(
            t.QUOTE_CONDITION, rows.columns["flags"][row_numbers] & _QUOTE_FLAGS, t.QUOTE_CONDITIONS, slots
        )
    _put_conditions(entries, rows, row_numbers, kinds, slots, is_snapshot)
    theoretical = slots[kinds == t.KIND_NUMBERS["theoretical opening"]]
    if len(theoretical):  # 286 distinguishes it from an opening price
        flag = t.TagRule("", t.OPEN_CLOSE_SETTL_FLAG)
        entries.put(flag, _NUMBER_COLUMN, np.full(len(theoretical), t.THEORETICAL), theoretical)
    if (family.kinds == t.COMPOSITE).any() and entries.has_list(t.UNDERLYINGS):
        _put_underlyings(entries, family)


def _put_update_action(entries: NodeBuilder, rows: Rows, row_numbers: Numbers, kinds: Numbers, slots: Numbers) -> None:
    sent = np.zeros(len(row_numbers), np.int64)
    if "action" in rows.columns:
        sent = _ACTIONS[rows.columns["action"][row_numbers]]
        sent[(kinds == t.EMPTY_BOOK) | (kinds == t.CHANNEL_RESET)] = e.NEW
    if "update_action" in rows.columns:
        raw = rows.columns["update_action"][row_numbers]
        sent = np.where(raw == e.NULL_I8, sent, raw)
    entries.put(t.TagRule("update_action", t.UPDATE_ACTION), _NUMBER_COLUMN, sent, slots)


def _put_conditions(
    entries: NodeBuilder, rows: Rows, row_numbers: Numbers, kinds: Numbers, slots: Numbers, is_snapshot: bool
) -> None:
    """277, also where it distinguishes two kinds."""
    if rows.family.name not in ("trades", "statistics", "imbalance"):
        return
    bits = rows.column("conditions")[row_numbers].astype(np.int64)
    bits[bits == e.NULL_I32] = 0
    if not is_snapshot:
        bits[kinds == t.LAST_PRICE] |= e.CONDITIONS["U"]
    if rows.family.name == "imbalance":
        side = rows.column("side")[row_numbers]
        bits[side == _B] |= e.CONDITIONS["P"]
        bits[side == _A] |= e.CONDITIONS["Q"]
    entries.put_words(t.TRADE_CONDITION, bits & sum(CONDITION_WORDS.values()), CONDITION_WORDS, slots)


def _put_underlyings(entries: NodeBuilder, family: _FamilyEntries) -> None:
    inner = family.kinds == t.COMPOSITE
    row_numbers, slots = family.row_numbers[inner], family.slots[inner]
    offsets = np.zeros(entries.rows + 1, np.int64)
    np.cumsum(np.bincount(slots, minlength=entries.rows), out=offsets[1:])
    child = entries.child(t.UNDERLYINGS, len(row_numbers))
    for rule in t.ENTRY_RULES["statistics"]:
        if rule.groups == (t.UNDERLYINGS,):
            _put_rule(child, rule, family.rows, row_numbers, None)
    entries.put_list(t.UNDERLYINGS, offsets, child, empty_is_absent=True)


def _put_rules(
    node: NodeBuilder, rules: tuple[t.TagRule, ...], rows: Rows, row_numbers: Numbers | None, slots: Numbers | None
) -> None:
    for rule in rules:
        _put_rule(node, rule, rows, row_numbers, slots)


def _put_rule(
    node: NodeBuilder, rule: t.TagRule, rows: Rows, row_numbers: Numbers | None, slots: Numbers | None
) -> None:
    column = rows.family.column(rule.column)
    if column.is_text:
        if rule.column in rows.texts:
            node.put_text(rule, rows.texts[rule.column], row_numbers, slots)
    elif rule.column in rows.columns:
        values = rows.columns[rule.column]
        node.put(rule, column, values if row_numbers is None else values[row_numbers], slots)


def _batch(units: Numbers, body: NodeBuilder) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"message": pa.array(units, pa.int64()), **body.finish()})
