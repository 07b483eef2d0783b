"""Books that follow a Binary incremental stream packet by packet, with as little as possible between wire and book.

    live = Live(books, layout)
    rows = live.apply(address, size)            # what `books.apply` would do with the packet's rows
    live.outcomes(rows)

Snapshots do not come this way: their orders stand in groups. `apply` then returns None and has done nothing; decode
such a packet as a batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.book import live_kernel as v
from umdf.book import memory_layout_kernel as k
from umdf.book.apply_kernel import apply_without_ladders
from umdf.book.engine import MBO_COLUMNS, Books
from umdf.buffers import buffer_address
from umdf.market.families import MBO, NULL
from umdf.market.sbe import live_plan_kernel as p
from umdf.market.sbe.live_plan import build_live_plan
from umdf.market.sbe.mapping_table import RULES
from umdf.wire.sbe.layout import Layout

NUMBER_FIELDS = {
    v.X_INSTRUMENT: (p.L_INSTRUMENT_ID, 8),
    v.X_SIZE: (p.L_SIZE, 8),
    v.X_ORDER_ID: (p.L_ORDER_ID, 8),
    v.X_PREV_SIZE: (p.L_PREV_SIZE, 8),
    v.X_TS_INSERT: (p.L_TS_INSERT, 8),
    v.X_FIRM: (p.L_FIRM, 4),
    v.X_RPT_SEQ: (p.L_RPT_SEQ, 4),
    v.X_PRICE: (p.L_PRICE, 8),
}
CODE_FIELDS = {
    v.X_ACTION: p.L_ACTION,
    v.X_SIDE: p.L_SIDE,
    v.X_FLAGS: p.L_FLAGS,
    v.X_MORE_FLAGS: p.L_MORE_FLAGS,
}
ABSENT = -1
NO_U32_NULL = -1  # no number of 32 bits is it


class PacketReader:
    """The tables that kernels read packets with, and the memory of the rows of one packet."""

    def __init__(self, layout: Layout) -> None:
        self._plan, self._shapes = _build_shapes(layout)
        self._columns = [_scratch(name) for name in MBO_COLUMNS]
        self._outcomes, self._places = np.zeros(v.SCRATCH_ROWS, np.int8), np.zeros(v.SCRATCH_ROWS, np.int64)
        self._table = np.zeros(v.V_WORDS, np.int64)
        self._table[v.V_PLACES] = buffer_address(self._places)
        self._table[v.V_COLUMNS : v.V_COLUMNS + len(MBO_COLUMNS)] = [buffer_address(column) for column in self._columns]
        self._table[v.V_OUTCOMES], self._table[v.V_SCHEMA] = buffer_address(self._outcomes), layout.schema.id
        self._table[v.V_PLAN], self._table[v.V_SHAPES] = buffer_address(self._plan), buffer_address(self._shapes)

    def attach(self, books: Books) -> None:
        """Have kernels that read a packet for these books use this memory; until the books are applied to otherwise."""
        table = books.arenas.table
        table[k.LIVE_TABLE] = buffer_address(self._table)
        table[k.COLUMNS : k.COLUMNS + len(MBO_COLUMNS)] = self._table[v.V_COLUMNS : v.V_COLUMNS + len(MBO_COLUMNS)]

    @property
    def rejected(self) -> int:
        """Packets, ends of packets and messages so far that could not be framed; a decoder quarantines them."""
        return int(self._table[v.V_REJECTED])


class PacketApplier(PacketReader):
    """Applies packets to some books. The books can be used in any other way in between."""

    def __init__(self, books: Books, layout: Layout) -> None:
        super().__init__(layout)
        self.books = books
        self._books_table = books.arenas.table
        self._books_table[k.LIVE_TABLE] = buffer_address(self._table)
        self.address = books.arenas.address  # with `live_kernel.apply_packet`, for callers that count nanoseconds

    def apply(self, packet: int, size: int) -> int | None:
        """Apply the packet of `size` bytes at an address; how many rows it made, or None if it needs a batch."""
        self._books_table[k.LIVE_TABLE] = buffer_address(self._table)
        return self.finish(v.apply_packet(packet, size, self.address))

    def finish(self, outcome: int) -> int | None:
        """The outcome of `apply_packet`, after everything has grown that had to."""
        if outcome >= 0:
            return outcome
        if outcome == v.NEEDS_BATCH:
            return None
        table, arenas = self._books_table, self.books.arenas
        rows, next_row = int(table[k.ROWS]), v.NEEDS_GROWTH_AT - outcome
        table[k.OUTCOMES] = buffer_address(self._outcomes)
        while next_row < rows:
            arenas.grow()
            table[k.FIRST] = next_row
            next_row = apply_without_ladders(arenas.address)
        table[k.ROW_BASE] += rows
        return rows

    def outcomes(self, rows: int) -> NDArray[np.int8]:
        """The outcomes of the rows of the last packet; valid until the next one."""
        return self._outcomes[:rows]


def _scratch(name: str) -> NDArray[np.generic]:
    column = MBO.column(name)
    return np.full(v.SCRATCH_ROWS, column.null if column.nullable else 0, column.dtype)


def _build_shapes(layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The plan, with a table of constants behind it, and how each template is read."""
    plan = build_live_plan(layout)
    shapes = np.zeros((p.TEMPLATES, v.SHAPE), np.int64)
    constants: dict[int, int] = {}
    for template, node in layout.roots.items():
        if template >= p.TEMPLATES:
            continue
        shape, entry = shapes[template], int(plan[template])
        grouped = any(rule.template == template and rule.family == "mbo" and rule.group for rule in RULES)
        if grouped or (entry and (node.children or node.data)):
            shape[v.X_METHOD] = v.BY_BATCH
        elif entry:
            shape[v.X_METHOD] = v.BY_SHAPE if _fill_shape(shape, plan, entry, constants) else v.BY_PLAN
            shape[v.X_ROW_CONDITION], shape[v.X_FULL_LENGTH], shape[v.X_MIN_VERSION] = plan[entry : entry + p.E_COLUMNS]
            shape[v.X_ENTRY] = entry
            action = [c for c in node.columns if c.name == "mDUpdateAction" and c.part.size == 1 and not c.field.since]
            shape[v.X_UPDATE_ACTION] = action[0].part.offset if action else ABSENT
    tables = [np.full(p.CODES, value, np.int64) for value in constants]
    return np.concatenate([plan, *tables]), shapes


def _fill_shape(shape: NDArray[np.int64], plan: NDArray[np.int64], entry: int, constants: dict[int, int]) -> bool:
    """Offsets and null values of a template in its expected shape; False where that is not so simple."""
    version, known = plan[entry + p.E_MIN_VERSION], plan[entry + p.E_FULL_LENGTH]
    fields = plan[entry + p.E_COLUMNS :][: p.F_FIELDS * p.LIVE_COLUMNS].reshape(p.LIVE_COLUMNS, p.F_FIELDS)
    is_sent = (fields[:, p.F_KIND] != p.CONSTANT) & (fields[:, p.F_UNTIL] >= version)
    if known < 8 or is_sent[p.L_POSITION]:  # eight bytes are read whether or not a column is there
        return False
    for word, (which, size) in NUMBER_FIELDS.items():
        field = fields[which]
        shape[word : word + 2] = ABSENT, NULL
        if not is_sent[which]:
            if field[p.F_ABSENT] != NULL:
                return False
            continue
        is_price = word == v.X_PRICE
        if field[p.F_KIND] != p.NUMBER or field[p.F_SIZE] != size or (field[p.F_FACTOR] != 1 and not is_price):
            return False
        null = int(field[p.F_NULL]) if field[p.F_NULL_BEFORE] > version else (NULL if size == 8 else NO_U32_NULL)
        shape[word : word + 2] = field[p.F_OFFSET], null
        if is_price:
            shape[[v.X_LOW, v.X_HIGH, v.X_FACTOR]] = field[[p.F_LOW, p.F_HIGH, p.F_FACTOR]]
    for word, which in CODE_FIELDS.items():
        field = fields[which]
        if is_sent[which]:
            if (
                field[p.F_KIND] != p.CODED
                or field[p.F_SIZE] != 1
                or field[p.F_SIGNED]
                or field[p.F_NULL_BEFORE] > version
            ):
                return False
            shape[word : word + 2] = field[p.F_OFFSET], field[p.F_TABLE]
        else:
            number = constants.setdefault(int(field[p.F_ABSENT]), len(constants))
            shape[word : word + 2] = 0, len(plan) + p.CODES * number
    return True
