"""Conversion plans of FAST templates: where each tag is, and how it becomes a column; built once, run for every batch.

A plan is a table of lines for the kernel (`convert_kernel`). All of it is fixed when the plan is built, except
addresses: those of the decoder's columns change only when the decoder moves them.
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
from umdf.market.rows import Text
from umdf.wire.fast.decode.batch import Batch
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
        self._layouts: list[Any] = []  # how the decoder's memory was laid out when the addresses were found
        self._bases: list[int] = []
        self._addresses = np.zeros((1, 3), np.int64)

    def find(self, tag: int, *groups: int) -> TagSource | None:
        """The place of a tag in the first of these groups that has it."""
        return next((self._sources[group, tag] for group in groups if (group, tag) in self._sources), None)

    def constant_value(self, tag: int) -> Value | None:
        source = self.find(tag, t.BODY)
        return source.item.value if source and isinstance(source.item, Constant) else None

    def entry_count(self, batch: Batch, group: int) -> int:
        """The number of entries of a group; 0 if the template has no such group."""
        return int(batch.rows[self.groups[group].index]) if group in self.groups else 0

    def address_index(self, source: TagSource) -> int:
        """The line of `addresses` assigned to this tag."""
        if source not in self._addressed:
            self._addressed.append(source)
            self._layouts = []
        return self._addressed.index(source) + 1

    def addresses(self, batch: Batch) -> Numbers:
        """Of each numbered place: values (of a text: offsets), exponents (of a text: bytes), validity; 0 is none."""
        stores = [batch._stores.get(node.index) for node in self.groups.values()]
        layouts = [store[0] if store else None for store in stores]
        bases = [store[1].address if store and store[1] else 0 for store in stores]
        has_moved = any(one is not other for one, other in zip(layouts, self._layouts, strict=False))
        if has_moved or bases != self._bases or len(layouts) != len(self._layouts):
            self._layouts, self._bases = layouts, bases
            self._update_addresses(layouts, bases)
        return self._addresses

    def _update_addresses(self, layouts: list[Any], bases: list[int]) -> None:
        stores = dict(zip((node.index for node in self.groups.values()), zip(layouts, bases, strict=True), strict=True))
        addresses = [(0, 0, 0)]
        for source in self._addressed:
            layout, base = stores[source.node.index]
            addresses.append((0, 0, 0) if layout is None or not base else _source_addresses(source, layout, base))
        self._addresses = np.array(addresses, np.int64)


def _source_addresses(source: TagSource, layout: Any, base: int) -> tuple[int, int, int]:
    item = source.item
    bitmap = 0 if item.bit == ALWAYS_PRESENT else base + layout.bitmaps + item.bit * layout.capacity // 8
    if isinstance(item, Constant):
        return 0, 0, bitmap
    exponents = source.exponents
    second = (
        base + layout.texts[item.number] if item.is_text else base + layout.values[exponents.number] if exponents else 0
    )
    return base + layout.values[item.number], second, bitmap


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
        self._instructions: list[list[int]] = []
        self._groups: list[int] = []  # of each line
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._target_dtypes: dict[str, np.dtype[np.generic]] = {}  # targets; those in brackets are not returned
        self._address_fixups: list[
            tuple[int, int, str]
        ] = []  # line, word, and the target or time whose address it holds
        self._pool = Pool()
        self._table = np.zeros((0, k.INSTRUCTION), np.int64)
        self._last_addresses: object = None

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
        elif required and name not in self._target_dtypes:
            self._add_fill(name, column, column.null if absent is None else absent)

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
        if "ts_event" in self._target_dtypes and name != "ts_event":
            self._add_missing_days(days, "ts_event", _OWN_ROWS)
        self._add_missing_days(days, "sent", t.BODY)
        self._add_conversion(name, column, time, (k.TIME_OF_DAY, 0, 0), rule.kind_mask, None)
        self._address_fixups.append((len(self._instructions) - 1, k.PARAM, days))

    def _add_conversion(
        self,
        name: str,
        column: Column,
        source: TagSource,
        operation: tuple[int, int, int],
        kind_mask: int,
        absent: int | None,
    ) -> None:
        is_repeated = name in self._target_dtypes
        instruction = self._new_instruction(operation[0], name, column.dtype, source.group)
        instruction[k.KIND_MASK], instruction[k.KEEP_PREVIOUS] = kind_mask, is_repeated
        instruction[k.ABSENT], instruction[k.NULL] = column.null if absent is None else absent, column.null
        instruction[k.PARAM], instruction[k.COUNT] = operation[1:]
        if isinstance(source.item, Constant):
            instruction[k.TYPE] = k.INT64
        else:
            instruction[k.TYPE] = k.TEXT if source.item.is_text else k.TYPES[source.item.type]
        self._sources[-1] = self.tags.address_index(source)

    def _add_fill(self, name: str, column: Column, value: int) -> None:
        self._new_instruction(k.ALL_ABSENT, name, column.dtype, t.BODY)[k.ABSENT] = value

    def _add_missing_days(self, name: str, time: str, group: int) -> None:
        self._new_instruction(k.DAY_OF, name, DAYS_COLUMN.dtype, group)
        self._address_fixups.append((len(self._instructions) - 1, k.SOURCE, time))

    def _new_instruction(self, op: int, name: str, dtype: np.dtype[np.generic], group: int) -> list[int]:
        instruction = [0] * k.INSTRUCTION
        self._target_dtypes.setdefault(name, dtype)
        instruction[k.OP], instruction[k.WIDTH] = op, dtype.itemsize
        self._instructions.append(instruction)
        self._groups.append(group)
        self._sources.append(0)
        self._targets.append(list(self._target_dtypes).index(name))
        return instruction

    def _freeze(self) -> None:
        """Convert the added lines into arrays, once."""
        self._table = np.array(self._instructions, np.int64).reshape(-1, k.INSTRUCTION)
        self._source_numbers, self._target_numbers = (
            np.array(self._sources, np.int64),
            np.array(self._targets, np.int64),
        )
        self._known_groups = list(dict.fromkeys(self._groups))
        self._group_numbers = np.array([self._known_groups.index(group) for group in self._groups], np.int64)
        self._widths = np.array([dtype.itemsize for dtype in self._target_dtypes.values()], np.int64)
        self._has_kind_mask = self._table[:, k.KIND_MASK] != t.ALL_KINDS

    def run(
        self,
        batch: Batch,
        rows: int,
        index: Mapping[int, Numbers | None],
        *,
        kinds: Numbers | None = None,
        flags: Numbers | str | None = None,
        sent: Numbers | None = None,
    ) -> dict[str, Numbers]:
        """The columns. `index` selects rows for each group (None: the same rows); `flags` are of the
        rows, or the name of a column of the plan that holds them."""
        if len(self._table) != len(self._instructions):
            self._freeze()
        if not self._instructions:
            return {}
        table = self._table
        sizes = (rows * self._widths + 63) & -64
        ends = np.cumsum(sizes)
        memory = self._pool.acquire(int(ends[-1]))
        starts = memory.address + ends - sizes
        addresses = self.tags.addresses(batch)
        if addresses is not self._last_addresses:
            self._last_addresses = addresses
            table[:, k.SOURCE : k.BITMAP + 1] = addresses[self._source_numbers]
        table[:, k.TARGET] = starts[self._target_numbers]
        row_indexes = [None if group == _OWN_ROWS else index[group] for group in self._known_groups]
        table[:, k.INDEX] = np.array([0 if one is None else buffer_address(one) for one in row_indexes])[
            self._group_numbers
        ]
        if kinds is not None:
            table[:, k.KINDS] = np.where(self._has_kind_mask, buffer_address(kinds), 0)
        if isinstance(flags, str):
            table[:, k.FLAGS] = starts[list(self._target_dtypes).index(flags)]
            table[0, k.FLAGS] = 0  # its own column comes first
        else:
            table[:, k.FLAGS] = 0 if flags is None else buffer_address(flags)
        for instruction, word, name in self._address_fixups:
            if name == "sent":
                table[instruction, word] = 0 if sent is None else buffer_address(sent)
            else:
                table[instruction, word] = starts[list(self._target_dtypes).index(name)]
        k.convert_columns(table.ctypes.data, len(table), rows)
        first = (ends - sizes).tolist()
        return {
            name: memory.array[at : at + rows * dtype.itemsize].view(dtype)
            for at, (name, dtype) in zip(first, self._target_dtypes.items(), strict=True)
            if not name.startswith("[")
        }

    def run_texts(self, batch: Batch, index: Mapping[int, Numbers | None]) -> dict[str, Text]:
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
