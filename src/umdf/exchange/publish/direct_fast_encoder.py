"""Direct encoding of orders and price levels as X messages (35=X) of FIX/FAST: what most ticks consist of.

It writes the same bytes as `EventBuilder` and the mapping table (a test compares them), in a fraction of the time: the
columns that the encode kernel reads are filled by a kernel, without events and Arrow between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import direct_fast_encoder_kernel as d
from umdf.exchange.publish.channel_settings import MBO, POSITION, TOB, ChannelSettings
from umdf.exchange.publish.unit_builder import UnitBatch
from umdf.market import families as e
from umdf.market.fast import mapping_table as t
from umdf.wire.fast.encode.encoder import EncodedMessages, Encoder, NodeArrays
from umdf.wire.fast.layout import Column
from umdf.wire.fast.templates import DECIMAL, INT32, INT64, UINT32, UINT64, Field

Numbers = NDArray[np.int64]
TAGS = {
    d.ACTION_COLUMN: t.UPDATE_ACTION, d.TYPE_COLUMN: t.ENTRY_TYPE, d.SECURITY_COLUMN: t.SECURITY_ID,
    d.RPT_SEQ_COLUMN: t.RPT_SEQ, d.QUOTE_COLUMN: t.QUOTE_CONDITION, d.PRICE_COLUMN: 270, d.ORDERS_COLUMN: 346,
    d.DATE_COLUMN: t.ENTRY_DATE, d.TIME_COLUMN: t.ENTRY_TIME, d.SIZE_COLUMN: 271, d.INSERT_DATE_COLUMN: 37016,
    d.INSERT_TIME_COLUMN: 37017, d.ORDER_ID_COLUMN: 37, d.BUYER_COLUMN: 288, d.SELLER_COLUMN: 289,
    d.PREV_SIZE_COLUMN: 37780, d.POSITION_COLUMN: 290,
}  # fmt: skip
NUMBER_BYTES = {UINT32: 4, INT32: 4, INT64: 8, UINT64: 8}
KINDS = (k.ADD, k.CHANGE, k.DELETE)
OTHER_QUOTE_FLAGS = sum(t.QUOTE_CONDITIONS.values()) & ~(k.IMPLIED | k.RECOVERY)
FIRST_ROWS = 1_024


class DirectFastEncoder:
    def __init__(self, settings: ChannelSettings, encoder: Encoder, template_id: int, listing: Listing) -> None:
        self._encoder, self._template_id = encoder, template_id
        self._instrument_ids, self._types = listing.security_id, listing.type
        self._root = encoder.layout.roots[template_id]
        self._entry = encoder.layout.nodes[next(i.child for i in self._root.lists if i.sequence.length.id == t.ENTRIES)]
        excluded = {d.POSITION_COLUMN} if settings.generation != POSITION else {d.PREV_SIZE_COLUMN}
        excluded |= {d.ORDERS_COLUMN} if settings.book_type == MBO else set()
        self._columns = self._find_columns(excluded)
        self._body = {c.field.id: c for c in self._root.columns if isinstance(c.field, Field)}
        known = [*self._columns.values(), self._body[t.MSG_SEQ_NUM], self._body[t.SENDING_TIME]]
        mandatory = [column for column in (*self._root.columns, *self._entry.columns) if column.bit < 0]
        # Whether the template is one that the kernel can fill: otherwise nothing is encoded directly.
        is_usable = all(column in known for column in mandatory)
        is_usable &= (self._body[t.MSG_SEQ_NUM].type, self._body[t.SENDING_TIME].type) == (UINT32, UINT64)
        is_usable &= all(
            column.is_text if number in d.TEXT_COLUMNS else column.type in NUMBER_BYTES
            for number, column in self._columns.items()
        )
        self._is_supported = np.zeros(k.KINDS, bool)
        self._is_supported[list(KINDS)] = is_usable
        self._actions = np.zeros(k.KINDS, np.int64)
        self._actions[list(KINDS)] = e.NEW, e.OVERLAY if settings.book_type == TOB else e.CHANGE, e.DELETE
        self._table = np.zeros(d.ARGUMENT_COUNT, np.int64)
        self._table[d.D_ACTIONS], self._table[d.D_MASK_WORDS] = self._actions.ctypes.data, self._entry.mask_words
        self._rows = 0

    def _find_columns(self, excluded: set[int]) -> dict[int, Column]:
        by_tag = {c.field.id: c for c in self._entry.columns if isinstance(c.field, Field) and not _is_exponent(c)}
        found = {number: by_tag[tag] for number, tag in TAGS.items() if tag in by_tag and number not in excluded}
        price = found[d.PRICE_COLUMN].field
        exponents = [column for column in self._entry.columns if _is_exponent(column) and column.field is price]
        if exponents:
            found[d.EXPONENT_COLUMN] = exponents[0]
        return found

    def _reserve(self, rows: int) -> None:
        """Have memory for so many entries and messages, and say where it is."""
        if rows <= self._rows:
            return
        self._rows = max(rows, 2 * self._rows, FIRST_ROWS)
        self._kept: list[NDArray[Any]] = []
        columns = np.zeros((d.COLUMNS, d.COLUMN_BYTES // 8), np.int64)
        entry = NodeArrays(self._entry, self._new(8 * self._entry.mask_words))
        for number, column in self._columns.items():
            size = 4 if column.is_text else NUMBER_BYTES[column.type]
            entry.values[column.number] = address = self._new(size)
            bit = (1 << column.bit % 64) if column.bit >= 0 else 0
            signed = bit - (1 << 64) if bit >= 1 << 63 else bit
            columns[number, :4] = address, size, 8 * (max(column.bit, 0) // 64), signed
            if column.is_text:
                entry.content[column.number] = columns[number, d.C_CONTENT] = self._new(d.TEXT_BYTES)
        root = NodeArrays(self._root, self._new(8 * self._root.mask_words))
        sequences, times, offsets = self._new(4), self._new(8), self._new(4)
        root.values[self._body[t.MSG_SEQ_NUM].number] = sequences
        root.values[self._body[t.SENDING_TIME].number] = times
        root.offsets = [offsets if item.child == self._entry.index else 0 for item in self._root.lists]
        root.children = [entry]
        table = self._table
        table[d.D_COLUMNS], table[d.D_MASKS], table[d.D_ENTRIES] = columns.ctypes.data, entry.masks, offsets
        table[d.D_SEQUENCES], table[d.D_TIMES] = sequences, times
        self._kept.append(columns)
        self._arrays = root

    def _new(self, row_bytes: int) -> int:
        memory = np.zeros(row_bytes * (self._rows + 1), np.uint8)
        self._kept.append(memory)
        return memory.ctypes.data

    def supports(self, records: Numbers) -> bool:
        """Whether every record is of a kind that can be encoded directly; offers of lending have more fields (13.1)."""
        return (
            bool(self._is_supported[records[:, k.KIND]].all())
            and not (records[:, k.FLAGS] & OTHER_QUOTE_FLAGS).any()
            and not (self._types[records[:, k.INSTRUMENT]] == InstrumentType.LENDING).any()
        )

    def encode(self, records: Numbers, rpt_seq: Numbers, units: UnitBatch, ts_ns: Numbers) -> EncodedMessages | None:
        """A message for each unit; None if a value is one that only the reference writer encodes."""
        records, table = np.ascontiguousarray(records), self._table
        self._reserve(len(records))
        ids, ts_ns = np.ascontiguousarray(self._instrument_ids, np.int64), np.ascontiguousarray(ts_ns)
        table[d.D_RECORDS], table[d.D_ROWS], table[d.D_IDS] = records.ctypes.data, len(records), ids.ctypes.data
        table[d.D_UNITS], table[d.D_RPT_SEQ] = units.record_unit.ctypes.data, rpt_seq.ctypes.data
        table[d.D_SEQUENCE], table[d.D_TS] = units.sequence.ctypes.data, ts_ns.ctypes.data
        messages = int(d.fill_columns(table.ctypes.data))
        return self._encoder.encode_arrays(self._template_id, self._arrays, messages, messages + len(records))


def _is_exponent(column: Column) -> bool:
    return column.name.endswith(".exponent") and isinstance(column.field, Field) and column.field.type == DECIMAL
