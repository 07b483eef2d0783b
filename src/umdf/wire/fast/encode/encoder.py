"""Columns → messages: the inverse of `decode`, a whole batch at a time.

    encoder = Encoder(load())
    messages = encoder.encode({152: incrementals, 153: snapshots})    # RecordBatches with the columns that decode gives
    messages.buffer, messages.start, messages.end

A row is a message; its number in the column `message` gives the order among all templates: numbers are unique, but
need not be consecutive. Columns are found by name (`MDEntryPx` with `MDEntryPx.exponent`, `Group.field`, a list of
structs for a sequence); those of constants and of optional fields may be missing. An optional group is a column of
booleans; the content of a group that is absent is ignored.

The bytes are those of the reference `Writer`, which also encodes what the kernel does not: templates with a
dynamic reference or with a string that has delta or tail, everything where dictionaries are kept, and the rare single
message (a delta of more than 64 bits). It reports what is wrong with a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool
from umdf.errors import EncodeError
from umdf.wire.columns import exact, shown
from umdf.wire.fast.encode import tables_kernel as e
from umdf.wire.fast.encode.columns import NodeColumns, message_values
from umdf.wire.fast.encode.messages_kernel import encode_messages
from umdf.wire.fast.encode.program import EncodeProgram
from umdf.wire.fast.layout import Layout, Node, has_dynamic_reference
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import DynamicRef, TemplateSet

Offsets = NDArray[np.int64]
BYTES_PER_ROW = 96  # the size of the first buffer, for messages and entries alike


@dataclass(frozen=True)
class EncodedMessages:
    buffer: NDArray[np.uint8]
    start: Offsets
    end: Offsets


@dataclass
class _Table:
    """The messages of one template."""

    root: Node
    batch: pa.RecordBatch
    message: Offsets
    columns: NodeColumns
    start: int  # of its instructions; 0 if the reference writer encodes it


@dataclass
class NodeArrays:
    """The columns of a node that the caller has filled as the kernel reads them: addresses by the number of a column or
    list, 0 where there are none. `masks` has a presence mask for each row."""

    node: Node
    masks: int
    values: list[int] = field(init=False)
    content: list[int] = field(init=False)  # of texts; their `values` are offsets
    offsets: list[int] = field(init=False)  # of lists
    children: list[NodeArrays] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values, self.content = [0] * len(self.node.columns), [0] * len(self.node.columns)
        self.offsets = [0] * len(self.node.lists)

    def descendants(self) -> Iterator[NodeArrays]:
        yield self
        for child in self.children:
            yield from child.descendants()


class Encoder:
    """Encodes batches of messages by one template set. Not thread-safe: use one per thread."""

    def __init__(self, templates: TemplateSet, reset: Reset = "message") -> None:
        self.templates = templates
        self.layout = Layout(templates)
        self.reset: Reset = reset
        self._program = program = EncodeProgram(self.layout)
        self._writer = Writer(templates, reset)
        self._code = code = program.table()
        self._constants = np.frombuffer(bytes(program.constants) + b"\0", np.uint8)
        self._slots = np.zeros((len(templates.slots) + 1, e.SLOT), np.int64)
        self._stack = np.zeros(e.FRAME * program.max_depth, np.int64)
        width = program.max_presence_bits // 7 + 8
        self._scratch = np.zeros(width * (program.max_depth + 1), np.uint8)
        self._arguments = arguments = np.zeros(e.ARGUMENTS, np.int64)
        arguments[e.STACK], arguments[e.SCRATCH] = self._stack.ctypes.data, self._scratch.ctypes.data
        arguments[e.SCRATCH_WIDTH], arguments[e.EPOCH] = width, 1
        code[:, e.I_SLOT] = self._slots.ctypes.data + 8 * e.SLOT * code[:, e.I_SLOT]
        code[code[:, e.I_OP] == e.TEXT, e.I_INITIAL] += self._constants.ctypes.data
        self._reads = program.column_reads()
        self._pool = Pool()
        self._tables: dict[int, _Table] = {}  # of the current batch, by template id

    def encode(self, batches: Mapping[int, pa.RecordBatch]) -> EncodedMessages:
        """The messages (RecordBatches by template id) in the order of their numbers; an EncodeError, with row and
        field, if one cannot be encoded."""
        before = self._writer.dictionary.copy()
        try:
            self._tables = {template_id: self._table(batch, template_id) for template_id, batch in batches.items()}
            return self._write(*self._in_order())
        except EncodeError:
            self._writer.dictionary = before
            raise
        finally:
            self._tables = {}

    def encode_arrays(self, template_id: int, root: NodeArrays, messages: int, rows: int) -> EncodedMessages | None:
        """Messages of one template from columns that the caller has filled and checked, in order; `rows` counts entries
        too. None if the kernel does not encode one of them."""
        if self.reset != "message" or template_id not in self._program.starts:
            return None
        self._set_addresses(root)
        start = self._code.ctypes.data + 8 * e.INSTRUCTION * self._program.starts[template_id]
        return self._encode_rows(np.full(messages, start), np.arange(messages), rows, lambda _: None)

    def _in_order(self) -> tuple[list[_Table], Offsets, Offsets]:
        """The tables, and for each message its table's number and its row."""
        tables, outer = list(self._tables.values()), self._outer_rows()
        nothing = np.zeros(0, np.int64)
        numbers = np.concatenate([nothing, *(table.message[rows] for table, rows in zip(tables, outer, strict=True))])
        order = np.argsort(numbers, kind="stable")
        again = np.flatnonzero(np.diff(numbers[order]) == 0)
        if len(again):
            raise EncodeError(f"two rows have message {numbers[order][again[0]]}")
        owners = np.repeat(np.arange(len(tables)), [len(rows) for rows in outer])[order]
        return tables, owners, np.concatenate([nothing, *outer])[order]

    def _table(self, batch: pa.RecordBatch, template_id: int) -> _Table:
        root = self.layout.roots.get(template_id)
        if root is None:
            raise EncodeError(f"unknown template {template_id}")
        if not isinstance(batch, pa.RecordBatch):
            raise EncodeError(f"{root.path} expects a RecordBatch, got {shown(batch)}")
        try:
            batch.validate()
        except pa.ArrowInvalid as error:
            raise EncodeError(f"{root.path}: invalid RecordBatch: {error}") from None
        given = {name: batch.column(name) for name in batch.schema.names}
        number = given.pop("message", None)
        if number is None or number.null_count:
            raise EncodeError(f"{root.path}: column message is missing, or has no value in some row")
        message = exact(number, pa.int64(), f"{root.path}.message").to_numpy()
        columns = NodeColumns(self.layout, root, given, batch.num_rows)
        start = 0
        if self.reset == "message" and columns.is_regular and template_id in self._program.starts:
            start = self._code.ctypes.data + 8 * e.INSTRUCTION * self._program.starts[template_id]
            self._set_addresses(columns)
        return _Table(root, batch, message, columns, start)

    def _set_addresses(self, root: NodeColumns | NodeArrays) -> None:
        """Make the instructions of a template read these columns."""
        word_indexes: list[int] = []
        addresses: list[int] = []
        for columns in root.descendants():
            reads = self._reads[columns.node.index]
            word_indexes += reads.word_indexes
            sources = {e.MASKS: [columns.masks], e.VALUES: columns.values}
            sources |= {e.CONTENT: columns.content, e.OFFSETS: columns.offsets}
            addresses += [sources[kind][number] for kind, number in reads.sources]
        self._code.reshape(-1)[word_indexes] = addresses

    def _write(self, tables: list[_Table], owners: Offsets, rows: Offsets) -> EncodedMessages:
        starts = np.array([table.start for table in tables], np.int64)[owners] if len(rows) else rows
        total = sum(columns.rows for table in tables for columns in table.columns.descendants())

        def encode_one(message: int) -> bytes:
            return self._encode_with_reference(tables[owners[message]], int(rows[message]))

        encoded = self._encode_rows(starts, rows, total, encode_one)
        assert encoded is not None, "the reference writer encodes or raises"
        return encoded

    def _encode_rows(
        self, starts: Offsets, rows: Offsets, total: int, encode_one: Callable[[int], bytes | None]
    ) -> EncodedMessages | None:
        """Encode messages; those that the kernel leaves by `encode_one`, None if that does not either."""
        arguments, count = self._arguments, len(rows)
        memory = self._pool.acquire(BYTES_PER_ROW * total + e.SLACK)
        ends = np.zeros(count, np.int64)
        arguments[e.STARTS], arguments[e.ROWS], arguments[e.ENDS] = (a.ctypes.data for a in (starts, rows, ends))
        arguments[e.USED], arguments[e.MESSAGES] = 0, count
        at = 0
        while at < count:
            arguments[e.BUFFER], arguments[e.CAPACITY], arguments[e.FIRST] = memory.address, memory.nbytes, at
            at = encode_messages(arguments.ctypes.data)
            used = int(arguments[e.USED])
            if arguments[e.STATUS] == e.FULL:
                memory = self._grow(memory, used, 2 * memory.nbytes)
                arguments[e.EPOCH] += 1  # discards what the message has put into the dictionaries
            elif arguments[e.STATUS] == e.USE_REFERENCE:
                content = encode_one(at)
                if content is None:
                    arguments[e.EPOCH] += count
                    return None
                if used + len(content) > memory.nbytes:
                    memory = self._grow(memory, used, 2 * memory.nbytes + len(content))
                memory.array[used : used + len(content)] = np.frombuffer(content, np.uint8)
                ends[at] = arguments[e.USED] = used + len(content)
                at += 1
        arguments[e.EPOCH] += count
        start = np.zeros(count, np.int64)
        start[1:] = ends[:-1]
        return EncodedMessages(memory.array[: int(arguments[e.USED])], start, ends)

    def _grow(self, memory: Memory, used: int, nbytes: int) -> Memory:
        grown = self._pool.acquire(nbytes)
        grown.array[:used] = memory.array[:used]
        return grown

    def _encode_with_reference(self, table: _Table, row: int) -> bytes:
        """One message by the reference writer."""
        template_id = table.root.template.id
        assert template_id is not None
        try:
            return self._writer.encode_row(template_id, self._row_message(template_id, row).values)
        except EncodeError as error:
            raise EncodeError(f"{table.root.path}, row {row}: {error.reason}", error.hint) from None

    def _row_message(self, template_id: int, row: int) -> Message:
        """A row as a message, for the reference writer; nested messages are rows too."""
        table = self._tables.get(template_id)
        if table is None or row >= table.batch.num_rows:
            raise EncodeError(f"template {template_id} has no row {row}")
        cells = table.batch.slice(row, 1).to_pylist()[0]
        return Message(
            table.root.template, message_values(self.layout, table.root, table.root.segment, cells, self._row_message)
        )

    def _outer_rows(self) -> list[Offsets]:
        """Of each table, the rows of top-level messages."""
        inner_rows: set[tuple[int, int]] = set()
        for table in self._tables.values():
            if has_dynamic_reference(table.root.segment):
                for cells in table.batch.to_pylist():
                    inner_rows.update(self._inner_rows(table.root, cells))
        outer = []
        for template_id, table in self._tables.items():
            rows = np.arange(table.batch.num_rows)
            template_rows = [row for other, row in inner_rows if other == template_id]
            outer.append(np.setdiff1d(rows, template_rows) if template_rows else rows)
        return outer

    def _inner_rows(self, node: Node, cells: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
        """Template and row of the messages inside a row."""
        for column in node.columns:
            row = cells.get(f"{column.name}.row")
            if isinstance(column.field, DynamicRef) and row is not None:
                yield cells[column.name], row
        for item in node.lists:
            for entry in cells.get(item.name) or ():
                yield from self._inner_rows(self.layout.nodes[item.child], entry or {})
