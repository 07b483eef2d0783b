"""The result of a decoder: the columns of the decoded messages, and the quarantine of the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.layout import ALWAYS_PRESENT, Column, ListColumn, Node, RowItem

if TYPE_CHECKING:
    import pyarrow as pa

    from umdf.buffers import Memory
    from umdf.wire.fast.decode.column_store import StoreLayout
    from umdf.wire.fast.decode.decoder import Decoder
    from umdf.wire.fast.message import Message

CODES = {
    **{number: f"R{number}" for number in range(1, 10)},
    **{10 + number: f"D{number}" for number in range(1, 13)},
    **{30 + number: f"T{number}" for number in range(1, 4)},
}
REASONS = {
    "R1": "an exponent outside -63 to 63",
    "R2": "invalid UTF-8",
    "R6": "overlong integer",
    "R7": "overlong presence map: it ends in seven zeros",
    "R8": "presence map with more bits than fields",
    "R9": "overlong string: zeros before its first character",
    "D2": "an integer outside its type",
    "D4": "the previous value is of another type",
    "D5": "mandatory, not sent, with neither a previous nor an initial value",
    "D6": "mandatory, not sent, and the previous value is empty",
    "D7": "delta or tail removes more characters than the previous value has",
    "D9": "unknown template",
    "T1": "the message ends inside a field",
    "T2": "exceeds the size limit",
    "T3": "trailing bytes after the message",
}

NO_STORE = None, None
NO_QUARANTINE = np.empty((0, k.QUARANTINE_ROW), np.int64)


@dataclass(frozen=True)
class QuarantineRow:
    """A quarantine row: a message that is not among the rows, or (R1 to R9) an anomaly of one that is."""

    message: int  # within the batch
    offset: int  # within the message; of the first, if there are several
    template_id: int | None
    field: str  # MDEntries[2].MDEntryPx
    code: str
    reason: str
    count: int = 1  # how often in the message

    @property
    def is_quarantined(self) -> bool:
        return not self.code.startswith("R")


class Batch:
    """The decoded columns; everything is computed on demand."""

    def __init__(self, decoder: Decoder, messages: int, rows: list[int]) -> None:
        self.layout = decoder.layout
        self.program = decoder.program
        self.messages = messages
        self.rows: NDArray[np.int64] = decoder._nodes[:, k.N_ROWS].copy()  # by node
        self._text_used = decoder._texts[:, k.T_USED].copy()
        self._stores = {store.node.index: (store.layout, store.memory) for store in decoder._used_stores}
        quarantined = decoder._arguments.item(k.QUARANTINE_ROWS)
        self._quarantine_lines = decoder._quarantine[:quarantined].copy() if quarantined else NO_QUARANTINE
        self._code = decoder._code_address
        self._reference_quarantine = decoder._reference_quarantine
        # The ids of the templates that have rows.
        self.templates = [template for template, index in self.layout.root_indexes if rows[index]]

    def store(self, node: int) -> tuple[StoreLayout | None, Memory | None]:
        """The layout and memory of a node; of one without rows, none."""
        return self._stores.get(node, NO_STORE)

    def table_bytes(self, node: Node, place: int, nbytes: int) -> NDArray[np.uint8]:
        """Bytes of a node's table, without a copy."""
        memory = self._stores[node.index][1]
        assert memory is not None
        return memory.array[place : place + nbytes]

    def message(self, node: Node) -> NDArray[np.uint32]:
        """For each row of a root node, its message within the batch."""
        assert node.parent is None
        return self.table_bytes(node, self._stores[node.index][0].message, 4 * int(self.rows[node.index])).view(
            np.uint32
        )

    def values(self, node: Node, column: Column) -> NDArray[np.generic]:
        """A column of numbers; values of rows without one are undefined."""
        assert not column.is_text
        place = self._stores[node.index][0].values[column.number]
        return self.table_bytes(node, place, column.dtype.itemsize * int(self.rows[node.index])).view(column.dtype)

    def text(self, node: Node, column: Column) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """A column of strings or byte vectors: Arrow's offsets, and the bytes."""
        table, rows = self._stores[node.index][0], int(self.rows[node.index])
        offsets = self.table_bytes(node, table.values[column.number], 4 * (rows + 1)).view(np.int32)
        return offsets, self.table_bytes(node, table.texts[column.number], int(self._text_used[column.text]))

    def offsets(self, node: Node, item: ListColumn) -> NDArray[np.int32]:
        """Of a sequence: row i has the entries offsets[i] … offsets[i + 1] - 1 of its node."""
        place = self._stores[node.index][0].lists[node.lists.index(item)]
        return self.table_bytes(node, place, 4 * (int(self.rows[node.index]) + 1)).view(np.int32)

    def bitmap(self, node: Node, item: RowItem) -> NDArray[np.uint8] | None:
        """Arrow's validity bitmap; None if every row has a value."""
        if item.bit == ALWAYS_PRESENT:
            return None
        table = self._stores[node.index][0]
        place = table.bitmaps + item.bit * table.capacity // 8
        return self.table_bytes(node, place, -(-int(self.rows[node.index]) // 8))

    def present(self, node: Node, item: RowItem) -> NDArray[np.bool_]:
        """For each row, whether it has a value."""
        rows, bitmap = int(self.rows[node.index]), self.bitmap(node, item) if self.rows[node.index] else None
        if bitmap is None:
            return np.ones(rows, np.bool_)
        return np.unpackbits(bitmap, count=rows, bitorder="little").view(np.bool_)

    def record_batch(self, template_id: int) -> pa.RecordBatch:
        """The messages of one template as Arrow, without a copy."""
        from umdf.wire.fast.arrow import record_batch  # pyarrow only where it is wanted

        return record_batch(self, self.layout.roots[template_id])

    def to_messages(self) -> dict[int, Message]:
        """Every message that is among the rows, by its number: for display and tests, not fast."""
        from umdf.wire.fast.decode.batch_messages import messages_of

        return messages_of(self)

    @cached_property
    def quarantine(self) -> list[QuarantineRow]:
        """The quarantine rows, in the order of the messages."""
        entries = [self._quarantine_row(line) for line in self._quarantine_lines]
        return sorted([*entries, *self._reference_quarantine], key=lambda entry: entry.message)

    def _quarantine_row(self, line: NDArray[np.int64]) -> QuarantineRow:
        path, code = "", CODES[int(line[k.Q_CODE])]
        if line[k.Q_INSTRUCTION]:
            path = self.program.code[(int(line[k.Q_INSTRUCTION]) - self._code) // (8 * k.INSTRUCTION)].path
        for index in line[k.Q_INDEXES :].view(np.uint32)[: line[k.Q_DEPTH]].tolist():
            path = path.replace("[]", f"[{index}]", 1)
        template = int(line[k.Q_TEMPLATE])
        return QuarantineRow(
            int(line[k.Q_MESSAGE]),
            int(line[k.Q_OFFSET]),
            template if template >= 0 else None,
            path,
            code,
            REASONS[code],
            int(line[k.Q_COUNT]),
        )
