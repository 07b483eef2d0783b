"""FIX/FAST messages one at a time → rows of the family mbo, by kernels alone (`live_rows_kernel`).

    live = LiveRows(templates, max_rows)
    live.tables()        # of each template that updates books: its id, and the argument of `read_message`
    live.columns[152]    # where the rows are afterwards

Decoder and mapping are those of batches: their plans are bound to memory that is reserved here, once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.market.fast import live_rows_kernel as k
from umdf.market.fast import mapping_table as t
from umdf.market.fast.conversion_plan import TemplateTags
from umdf.market.fast.events import TemplateMapper
from umdf.market.rows import MemoryColumns
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.templates import TemplateSet

MAX_MESSAGE_BYTES = 1 << 16


class LiveRows:
    """Of one channel. Not for several threads at once."""

    def __init__(self, templates: TemplateSet, max_rows: int) -> None:
        """Messages of more entries than `max_rows` are left to a batch."""
        self._decoder, self._max_rows = Decoder(templates, generated=()), max_rows
        self._alive: list[object] = []
        self._tables: dict[int, NDArray[np.int64]] = {}
        self.columns: dict[int, MemoryColumns] = {}
        for template_id, root in self._decoder.layout.roots.items():
            tags = TemplateTags(self._decoder.layout, root)
            if tags.constant_value(t.MSG_TYPE) == t.INCREMENTAL and t.ENTRIES in tags.lists:
                self._tables[template_id] = self._bind(template_id, TemplateMapper(tags, t.INCREMENTAL))

    def tables(self) -> list[tuple[int, int]]:
        return [(template_id, buffer_address(table)) for template_id, table in self._tables.items()]

    def _bind(self, template_id: int, mapper: TemplateMapper) -> NDArray[np.int64]:
        decoder, tags, table = self._decoder, mapper.tags, np.zeros(k.TABLE_WORDS, np.int64)
        assert mapper.entries is not None
        batch = decoder.reserve_message(template_id, MAX_MESSAGE_BYTES)
        tags.use_batch(batch)
        header, table[k.HEADER_PLAN] = mapper.header_plan.bind(1, {t.BODY: None})
        bound = mapper.entries.bind(batch, self._max_rows, header["ts_send"])
        rows, columns, taken = bound.selection, bound.columns, np.array(bound.taken, np.int64)
        places = np.zeros(self._max_rows, np.int64)
        words = {
            **{k.TEMPLATE: template_id, k.CAPACITY: self._max_rows, k.FIRST_KIND: t.BID},
            **{k.ENTRY_NODE: decoder.node_table(tags.groups[t.ENTRIES]), k.SUBS: bound.sub_offsets},
            **{k.KIND_PLAN: bound.kind_plan, k.MBO_PLAN: bound.mbo_plan, k.SELECT: bound.select, k.STAMP: bound.stamp},
            **{k.TAKEN: buffer_address(taken), k.TAKEN_COUNT: len(taken), k.PLACES: buffer_address(places)},
            **{k.ENTRY: buffer_address(rows.entry), k.KIND: buffer_address(rows.kind)},
            k.ENTRY_INDEX: buffer_address(rows.entry_index),
        }
        if bound.sub_offsets:
            words[k.SUB_NODE] = decoder.node_table(tags.groups[t.UNDERLYINGS])
        for word, name in ((k.SEQUENCE, "sequence"), (k.SENT, "ts_send")):
            words[word] = header.address(name)
        for word, name in ((k.UPDATES, "update_action"), (k.PRICES, "price"), (k.SIZES, "size"),
                           (k.ACTIONS, "action"), (k.SIDES, "side")):  # fmt: skip
            words[word] = columns.address(name)
        table[k.DECODER], table[k.BLOCK] = decoder.kernel_tables
        table[list(words)] = list(words.values())
        self.columns[template_id] = columns
        self._alive += [mapper, header, bound, taken, places]
        return table
