"""Conversion plans of FAST templates: where each tag is, and how it becomes a column; built once, run for every batch.

A plan is a table of instructions for the kernel (`convert_kernel`), fixed when the plan is built; a batch supplies a
few addresses, from which the kernel computes all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool, buffer_address
from umdf.market.families import CONDITIONS, OUT_OF_RANGE, Column
from umdf.market.fast import convert_kernel as k
from umdf.market.fast import mapping_table as t
from umdf.market.rows import ColumnPlaces, MemoryColumns, Text
from umdf.wire.fast.decode.batch import Batch
from umdf.wire.fast.decode.column_store import StoreLayout
from umdf.wire.fast.layout import ALWAYS_PRESENT, Constant, Layout, ListColumn, Node
from umdf.wire.fast.layout import Column as WireColumn
from umdf.wire.fast.templates import DECIMAL, Decimal, Field, Value

Numbers = NDArray[Any]

SCALES = {"price": 9, "volume": 4}
_OWN_ROWS = -1  # the group of lines that read another column of their plan
DAYS_COLUMN = Column("", "date", "days of a date that has its time beside it")
assert k.OUT_OF_RANGE == OUT_OF_RANGE


@dataclass(frozen=True)
class TagSource:
    """A tag of a template: a column of a node, or a constant."""

    group: int
    node: Node
    item: WireColumn | Constant

    @property
    def field(self) -> Field:
        assert isinstance(self.item.field, Field)
        return self.item.field

    @property
    def exponents(self) -> WireColumn | None:
        """Of a decimal: the column after its mantissa."""
        if isinstance(self.item, WireColumn) and self.field.type == DECIMAL:
            return self.node.columns[self.item.number + 1]
        return None


class TemplateTags:
    """The tags of one template by group and number, and where a batch has them."""

    def __init__(self, layout: Layout, root: Node) -> None:
        self.root = root
        self.groups: dict[int, Node] = {t.BODY: root}
        self.lists: dict[int, tuple[Node, ListColumn]] = {}
        for node in layout.descendants(root):
            for item in node.lists:
                tag = item.sequence.length.id or item.sequence.id
                if tag is not None and tag not in self.groups:
                    self.groups[tag] = layout.nodes[item.child]
                    self.lists[tag] = node, item
        self._sources: dict[tuple[int, int], TagSource] = {}
        for group, node in self.groups.items():
            for item in node.items:
                if isinstance(item, WireColumn | Constant) and isinstance(item.field, Field) and item.field.id:
                    self._sources.setdefault((group, item.field.id), TagSource(group, node, item))
        self._addressed: list[TagSource] = []
        self._nodes = [node.index for node in self.groups.values()]
        self._group_numbers = {group: number for number, group in enumerate(self.groups)}
        self._layouts: list[Any] = [None] * len(self._nodes)  # as the offsets were found
        self.group_memory = np.zeros(len(self._nodes), np.int64)  # of the batch in use
        self.tag_offsets = np.zeros((1, k.TAG), np.int64)

    def find(self, tag: int, *groups: int) -> TagSource | None:
        """The place of a tag in the first of these groups that has it."""
        return next((self._sources[group, tag] for group in groups if (group, tag) in self._sources), None)

    def constant_value(self, tag: int) -> Value | None:
        source = self.find(tag, t.BODY)
        return source.item.value if source and isinstance(source.item, Constant) else None

    def entry_count(self, batch: Batch, group: int) -> int:
        """The number of entries of a group; 0 if the template has no such group."""
        return int(batch.rows[self.groups[group].index]) if group in self.groups else 0

    def tag_number(self, source: TagSource) -> int:
        """The line of `tag_offsets` assigned to this tag."""
        if source not in self._addressed:
            self._addressed.append(source)
            self._layouts = [None] * len(self._nodes)
        return self._addressed.index(source)

    def use_batch(self, batch: Batch) -> None:
        """Find the columns of a batch; conversion plans read this batch until the next one."""
        for number, node in enumerate(self._nodes):
            layout, memory = batch.store(node)
            self.group_memory[number] = 0 if memory is None else memory.address
            if layout is not None and layout is not self._layouts[number]:
                self._update_offsets(number, layout)

    def _update_offsets(self, group: int, layout: StoreLayout) -> None:
        if len(self.tag_offsets) < len(self._addressed):
            self.tag_offsets = np.zeros((len(self._addressed), k.TAG), np.int64)
        self._layouts[group] = layout
        for number, source in enumerate(self._addressed):
            if self._group_numbers[source.group] == group:
                self.tag_offsets[number] = group, *_source_offsets(source, layout)


def _source_offsets(source: TagSource, layout: StoreLayout) -> tuple[int, int, int]:
    """Of a tag in its node's memory: values (of a text: offsets), exponents (of a text: bytes), validity; -1: none."""
    item = source.item
    bitmap = -1 if item.bit == ALWAYS_PRESENT else layout.bitmaps + item.bit * layout.capacity // 8
    if isinstance(item, Constant):
        return -1, -1, bitmap
    exponents = source.exponents
    second = layout.texts[item.number] if item.is_text else layout.values[exponents.number] if exponents else -1
    return layout.values[item.number], second, bitmap


def word_table(words: Mapping[str, int], unknown: int | None) -> Numbers:
    """Words of up to eight bytes and their values; the first line is the value of all other words."""
    rows = [] if unknown is None else [(0, unknown)]
    rows += [(int.from_bytes(word.encode(), "little"), value) for word, value in words.items() if len(word) <= 8]
    return np.array(rows, np.int64)


WORD_TABLES = {
    t.TRADE_CONDITION: word_table(
        {word: bit for word, bit in CONDITIONS.items() if len(word) <= 2}, CONDITIONS["UNKNOWN"]
    ),
    # 276 has no bit for unknown words: the flag marks that the row could not hold everything.
    t.QUOTE_CONDITION: word_table(t.QUOTE_CONDITIONS, OUT_OF_RANGE),
    **{tag: word_table(codes, None) for tag, codes in t.CODE_TABLES.items()},
}


def _operation(source: TagSource, column: Column, conversion: str) -> tuple[int, int, int]:
    """The operation on a value, and its two parameters."""
    item, tag = source.item, source.field.id
    if isinstance(item, Constant):
        return k.FILL, constant_number(item.value, column), 0
    if conversion in (t.WORDS, t.CODES) and tag is not None:
        table = WORD_TABLES[tag]
        return k.WORDS if conversion == t.WORDS else k.CODES, buffer_address(table), len(table)
    if column.type in ("char", "date", "ns"):
        return {"char": k.CHAR, "date": k.DATE, "ns": k.TIMESTAMP}[column.type], 0, 0
    if column.type in SCALES or source.field.type == DECIMAL:
        return k.DECIMAL, SCALES.get(column.type, 0), 0
    return k.NUMBER, int(conversion == t.DIGITS), 0


def constant_number(value: Value, column: Column) -> int:
    """A constant of the template as a number of a column; its NULL if it is none."""
    if column.type == "char":
        text = str(value)
        return ord(text) if len(text) == 1 and text.isascii() else column.null
    if isinstance(value, Decimal):
        exponent, value = value.exponent + SCALES.get(column.type, 0), value.mantissa
        return value * 10**exponent if exponent >= 0 else column.null
    if isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdigit()):
        return int(value) * 10 ** SCALES.get(column.type, 0)
    return column.null


class ConversionPlan:
    """How some event columns are computed from the tags of a template."""

    def __init__(self, tags: TemplateTags) -> None:
        self.tags = tags
        self.texts: dict[str, TagSource] = {}
        self._lines: list[list[int]] = []
        self._groups: list[int] = []  # of rows: their numbers are those of the index
        self._columns: dict[str, np.dtype[np.generic]] = {}  # those in brackets are not returned
        self._pool = Pool()
        self._places: ColumnPlaces = {}
        self._instructions = np.zeros((0, k.INSTRUCTION), np.int64)
        self._arguments = np.zeros(k.ARGUMENTS, np.int64)
        self._arguments_address, self._arguments_view = int(self._arguments.ctypes.data), self._arguments.data

    def add(
        self, name: str, column: Column, rule: t.TagRule, absent: int | None = None, required: bool = False
    ) -> None:
        """Add a column by a rule; none if the template has no such tag, unless it is `required`."""
        source = self.tags.find(rule.tag, *rule.groups)
        if rule.time_tag:
            self._add_timestamp(name, column, rule, required)
        elif column.is_text:
            if source is not None:
                self.texts[name] = source
        elif source is not None:
            self._add_conversion(
                name, column, source, _operation(source, column, rule.conversion), rule.kind_mask, absent
            )
        elif required and name not in self._columns:
            self._add_fill(name, column, column.null if absent is None else absent)

    def reserve(self, name: str, column: Column) -> None:
        """Add a column that the caller fills."""
        self._columns.setdefault(name, column.dtype)

    def _add_timestamp(self, name: str, column: Column, rule: t.TagRule, required: bool) -> None:
        """A date and its time. A missing date is the event's; the event's missing date is that of SendingTime."""
        date, time = self.tags.find(rule.tag, *rule.groups), self.tags.find(rule.time_tag, *rule.groups)
        days = f"[days of {name}]"
        if time is None:
            if required:
                self._add_fill(name, column, column.null)
            return
        if date is None:
            self._add_fill(days, DAYS_COLUMN, k.NOT_SENT)
        else:
            self._add_conversion(days, DAYS_COLUMN, date, (k.DATE, 0, 0), t.ALL_KINDS, k.NOT_SENT)
        if "ts_event" in self._columns and name != "ts_event":
            self._add_missing_days(days, self._column_number("ts_event"), _OWN_ROWS)
        self._add_missing_days(days, k.SENT_COLUMN, t.BODY)
        line = self._add_conversion(name, column, time, (k.TIME_OF_DAY, 0, 0), rule.kind_mask, None)
        line[k.LINKED_WORD], line[k.LINKED_COLUMN] = k.PARAM, self._column_number(days)

    def _add_conversion(
        self,
        name: str,
        column: Column,
        source: TagSource,
        operation: tuple[int, int, int],
        kind_mask: int,
        absent: int | None,
    ) -> list[int]:
        is_repeated = name in self._columns
        line = self._add_line(operation[0], name, column.dtype, source.group)
        line[k.KIND_MASK] = k.EVERY_KIND if kind_mask == t.ALL_KINDS else kind_mask
        line[k.KEEP_PREVIOUS] = is_repeated
        line[k.ABSENT], line[k.NULL] = column.null if absent is None else absent, column.null
        line[k.PARAM], line[k.COUNT] = operation[1:]
        if isinstance(source.item, Constant):
            line[k.TYPE] = k.INT64
        else:
            line[k.TYPE] = k.TEXT if source.item.is_text else k.TYPES[source.item.type]
        line[k.SOURCE_NUMBER] = self.tags.tag_number(source)
        return line

    def _add_fill(self, name: str, column: Column, value: int) -> None:
        self._add_line(k.ALL_ABSENT, name, column.dtype, t.BODY)[k.ABSENT] = value

    def _add_missing_days(self, name: str, times: int, group: int) -> None:
        line = self._add_line(k.DAY_OF, name, DAYS_COLUMN.dtype, group)
        line[k.LINKED_WORD], line[k.LINKED_COLUMN] = k.SOURCE, times

    def _add_line(self, op: int, name: str, dtype: np.dtype[np.generic], group: int) -> list[int]:
        """An instruction without addresses."""
        line = [0] * k.INSTRUCTION
        self._columns.setdefault(name, dtype)
        if group not in self._groups:
            self._groups.append(group)
        line[k.OP], line[k.WIDTH], line[k.KIND_MASK] = op, dtype.itemsize, k.EVERY_KIND
        line[k.SOURCE_NUMBER], line[k.LINKED_COLUMN] = k.NO_TAG, k.NO_COLUMN
        line[k.TARGET_NUMBER], line[k.GROUP_NUMBER] = self._column_number(name), self._groups.index(group)
        self._lines.append(line)
        return line

    def _column_number(self, name: str) -> int:
        return list(self._columns).index(name)

    def _freeze(self) -> None:
        """Convert the added lines into arrays, once."""
        self._instructions = np.array(self._lines, np.int64).reshape(-1, k.INSTRUCTION)
        self._group_index = np.zeros(len(self._groups), np.int64)
        self._group_index_view = self._group_index.data
        self._places = {
            name: (number, dtype, None)
            for number, (name, dtype) in enumerate(self._columns.items())
            if not name.startswith("[")
        }
        arguments, tags = self._arguments, self.tags
        arguments[k.INSTRUCTIONS], arguments[k.INSTRUCTION_COUNT] = self._instructions.ctypes.data, len(self._lines)
        arguments[k.GROUP_MEMORY], arguments[k.GROUP_INDEX] = (
            tags.group_memory.ctypes.data,
            self._group_index.ctypes.data,
        )

    def run(
        self,
        rows: int,
        index: Mapping[int, Numbers | None],
        *,
        kinds: Numbers | None = None,
        flags: Numbers | str | None = None,
        sent: Numbers | None = None,
    ) -> MemoryColumns:
        """The columns of the batch that the tags use. `index` selects rows for each group (None: the same rows);
        `flags` are of the rows, or the name of a column of the plan that holds them."""
        columns, arguments = self.bind(rows, index, kinds=kinds, flags=flags, sent=sent)
        if self._lines:
            k.convert_columns(arguments)
        return columns

    def bind(
        self,
        rows: int,
        index: Mapping[int, Numbers | None],
        *,
        kinds: Numbers | None = None,
        flags: Numbers | str | None = None,
        sent: Numbers | None = None,
    ) -> tuple[MemoryColumns, int]:
        """As `run`, for a kernel that calls `convert_columns` itself, any number of times, with up to so many ROWS:
        the columns, and its argument."""
        if len(self._instructions) != len(self._lines):
            self._freeze()
        stride = (8 * rows + 63) & -64
        memory = self._pool.acquire(stride * len(self._columns))
        if self._lines:
            view = self._arguments_view
            for number, group in enumerate(self._groups):
                selected = None if group == _OWN_ROWS else index[group]
                self._group_index_view[number] = 0 if selected is None else buffer_address(selected)
            view[k.TAGS] = buffer_address(self.tags.tag_offsets)
            view[k.FLAGS_COLUMN] = self._places[flags][0] if isinstance(flags, str) else k.NO_COLUMN
            view[k.ROWS], view[k.MEMORY], view[k.STRIDE] = rows, memory.address, stride
            view[k.ROW_KINDS] = 0 if kinds is None else buffer_address(kinds)
            view[k.ROW_FLAGS] = 0 if flags is None or isinstance(flags, str) else buffer_address(flags)
            view[k.SENT] = 0 if sent is None else buffer_address(sent)
        return MemoryColumns(self._places, rows, memory, stride), self._arguments_address

    def run_texts(self, batch: Batch, index: Mapping[int, Numbers | None]) -> dict[str, Text]:
        if not self.texts:
            return {}
        texts = {name: text_rows(batch, place, index[place.group]) for name, place in self.texts.items()}
        return {name: text for name, text in texts.items() if text is not None}


def text_rows(batch: Batch, source: TagSource, index: Numbers | None) -> Text | None:
    """A text column for the rows of an index (-1: none); None if no row has a text."""
    node, item = source.node, source.item
    rows = int(batch.rows[node.index])
    if not rows:
        return None
    present = batch.present(node, item)
    if not present.any():
        return None
    if isinstance(item, Constant):
        content = item.value if isinstance(item.value, bytes) else str(item.value).encode("utf-8", "surrogateescape")
        first, size = np.zeros(rows, np.int64), np.where(present, len(content), 0)
        content_bytes = np.frombuffer(content, np.uint8)
    elif item.is_text:
        offsets, content_bytes = batch.text(node, item)
        first, size = offsets[:-1].astype(np.int64), np.where(present, np.diff(offsets), 0)
    else:
        texts = [str(value).encode() for value in batch.values(node, item).tolist()]
        size = np.where(present, [len(text) for text in texts], 0)
        first = np.concatenate([[0], np.cumsum([len(text) for text in texts])[:-1]])
        content_bytes = np.frombuffer(b"".join(texts), np.uint8)
    if index is not None:
        is_present = index >= 0
        first, size = (
            first[np.where(is_present, index, 0)],
            np.where(is_present, size[np.where(is_present, index, 0)], 0),
        )
    new_offsets = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=new_offsets[1:])
    return new_offsets, content_bytes[np.arange(int(new_offsets[-1])) + np.repeat(first - new_offsets[:-1], size)]
