"""Where the tags of a template stand, and the lines of the conversion table that read them.

The columns of a template are found once; a batch then only fills in addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, address_of
from umdf.market import fast_events_kernel as k
from umdf.market import fast_table as t
from umdf.market.events import CONDITIONS, FAMILIES, OUT_OF_RANGE, Column, Family
from umdf.market.rows import Text
from umdf.wire.fast.batch import Batch
from umdf.wire.fast.layout import Column as WireColumn
from umdf.wire.fast.layout import Constant, Layout, List, Node
from umdf.wire.fast.templates import DECIMAL, Decimal, Field, Value

Numbers = NDArray[Any]

SCALES = {"price": 9, "volume": 4}
DAYS = Column("", "date", "days of a date that has its time beside it")
SENT = Column("ts_send", "ns", "")
assert k.OUT_OF_RANGE == OUT_OF_RANGE


@dataclass(frozen=True)
class Place:
    """A tag of a template: a column of a node, or a constant."""

    node: Node
    item: WireColumn | Constant


class Places:
    """The tags of one template by group and number."""

    def __init__(self, layout: Layout, root: Node) -> None:
        self.root = root
        self.groups: dict[int, Node] = {t.BODY: root}
        self.lists: dict[int, tuple[Node, List]] = {}
        for node in layout.descendants(root):
            for item in node.lists:
                tag = item.sequence.length.id or item.sequence.id
                if tag is not None and tag not in self.groups:
                    self.groups[tag] = layout.nodes[item.child]
                    self.lists[tag] = node, item
        self._places: dict[tuple[int, int], Place] = {}
        for group, node in self.groups.items():
            for item in node.items:
                if isinstance(item, WireColumn | Constant) and isinstance(item.field, Field) and item.field.id:
                    self._places.setdefault((group, item.field.id), Place(node, item))

    def find(self, tag: int, *groups: int) -> Place | None:
        """The place of a tag in the first of these groups that has it."""
        return next((self._places[group, tag] for group in groups if (group, tag) in self._places), None)

    def constant(self, tag: int) -> Value | None:
        place = self.find(tag, t.BODY)
        return place.item.value if place and isinstance(place.item, Constant) else None


def words_table(words: Mapping[str, int], unknown: int | None) -> Numbers:
    """Words of up to eight bytes and what they stand for; the first line is what every other word means."""
    lines = [] if unknown is None else [(0, unknown)]
    lines += [(int.from_bytes(word.encode(), "little"), value) for word, value in words.items() if len(word) <= 8]
    return np.array(lines, np.int64)


WORD_TABLES = {
    t.TRADE_CONDITION: words_table(
        {word: bit for word, bit in CONDITIONS.items() if len(word) <= 2}, CONDITIONS["UNKNOWN"]
    ),
    # 276 has no bit for words that nobody knows: the flag says that there was more than the row can hold.
    t.QUOTE_CONDITION: words_table(t.QUOTE_CONDITIONS, OUT_OF_RANGE),
    **{tag: words_table(codes, None) for tag, codes in t.CODED.items()},
}


class Lines:
    """Lines of the conversion table for some rows; what they refer to stays alive with them."""

    def __init__(self, batch: Batch, rows: int) -> None:
        self.batch, self.rows = batch, rows
        self._lines: list[list[int]] = []
        self._alive: list[object] = []

    def run(self) -> None:
        if self._lines and self.rows:
            table = np.array(self._lines, np.int64)
            k.convert(table.ctypes.data, len(table), self.rows)
        self._lines, self._alive = [], []

    def add(
        self,
        place: Place,
        column: Column,
        target: Numbers,
        *,
        index: Numbers | None = None,
        kinds: Numbers | None = None,
        on: int = t.EVERY,
        keep: bool = False,
        absent: int | None = None,
        flags: Numbers | None = None,
        how: str = "",
        clock: Numbers | None = None,
    ) -> bool:
        """A line that reads a tag; False where no row of the batch has it, and nothing was added."""
        source = self._source(place)
        if source is None:
            return False
        address, kind, more, bitmap = source
        op, param, count = self._operation(place, column, how, clock)
        self._lines.append(
            [
                op,
                0 if index is None else address_of(index),
                0 if kinds is None or on == t.EVERY else address_of(kinds),
                on,
                keep,
                address_of(target),
                target.itemsize,
                column.null if absent is None else absent,
                column.null,
                address,
                kind,
                more,
                bitmap,
                param,
                count,
                0 if flags is None else address_of(flags),
            ]
        )
        self._alive += [index, kinds, target, flags, clock]
        return True

    def everywhere(self, place: Place) -> bool:
        """Whether every row of the batch has it."""
        rows = int(self.batch.rows[place.node.index])
        bitmap = self.batch.bitmap(place.node, place.item) if rows else None
        return bitmap is None or bool((bitmap[: rows // 8] == 255).all() and (rows % 8 == 0 or self._tail(bitmap, rows)))

    def _tail(self, bitmap: Numbers, rows: int) -> bool:
        ones = (1 << rows % 8) - 1
        return int(bitmap[rows // 8]) & ones == ones

    def days_of(self, ns: Numbers, target: Numbers, index: Numbers | None) -> None:
        """The day of a time, for dates that are not sent; without an index only where there is a time."""
        line = [0] * k.LINE
        line[k.OP], line[k.TARGET], line[k.WIDTH], line[k.KEEP] = k.DAY_OF, address_of(target), 4, index is None
        line[k.INDEX] = 0 if index is None else address_of(index)
        line[k.ABSENT] = line[k.NULL] = DAYS.null
        line[k.SOURCE] = address_of(ns)
        self._lines.append(line)
        self._alive += [ns, target, index]

    def _source(self, place: Place) -> tuple[int, int, int, int] | None:
        """Address and type of the values, address of bytes or exponents, address of the bitmap."""
        batch, node, item = self.batch, place.node, place.item
        if not batch.rows[node.index]:
            return None
        validity = batch.bitmap(node, item)
        if validity is not None and not validity.any():
            return None
        bitmap = 0 if validity is None else address_of(validity)
        if isinstance(item, Constant):
            return 0, k.INT64, 0, bitmap
        if item.is_text:
            offsets, content = batch.text(node, item)
            return address_of(offsets), k.TEXT, content.ctypes.data, bitmap
        exponents = 0
        if isinstance(item.field, Field) and item.field.type == DECIMAL:
            exponents = address_of(batch.values(node, node.columns[item.number + 1]))
        return address_of(batch.values(node, item)), k.TYPES[item.type], exponents, bitmap

    def _operation(self, place: Place, column: Column, how: str, clock: Numbers | None) -> tuple[int, int, int]:
        """What is done, and its two parameters."""
        item = place.item
        if isinstance(item, Constant):
            return k.FILL, constant_number(item.value, column), 0
        assert isinstance(item.field, Field)
        if clock is not None:
            return k.CLOCK, address_of(clock), 0
        if how in (t.WORDS, t.CODES):
            assert item.field.id is not None
            table = WORD_TABLES[item.field.id]
            return k.WORDS if how == t.WORDS else k.CODES, address_of(table), len(table)
        if column.type == "char":
            return k.CHAR, 0, 0
        if column.type == "date":
            return k.DATE, 0, 0
        if column.type == "ns":
            return k.STAMP, 0, 0
        if column.type in SCALES or item.field.type == DECIMAL:
            return k.DECIMAL, SCALES.get(column.type, 0), 0
        return k.NUMBER, int(how == t.DIGITS), 0


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


def text_rows(batch: Batch, place: Place, index: Numbers | None) -> Text | None:
    """A column of texts for the rows of an index (-1 is none); None where no row has any."""
    node, item = place.node, place.item
    rows = int(batch.rows[node.index])
    if not rows:
        return None
    present = batch.present(node, item)
    if not present.any():
        return None
    if isinstance(item, Constant):
        content = item.value if isinstance(item.value, bytes) else str(item.value).encode("utf-8", "surrogateescape")
        first, size = np.zeros(rows, np.int64), np.where(present, len(content), 0)
        whole = np.frombuffer(content, np.uint8)
    elif item.is_text:
        offsets, whole = batch.text(node, item)
        first, size = offsets[:-1].astype(np.int64), np.where(present, np.diff(offsets), 0)
    else:
        texts = [str(value).encode() for value in batch.values(node, item).tolist()]
        size = np.where(present, [len(text) for text in texts], 0)
        first = np.concatenate([[0], np.cumsum([len(text) for text in texts])[:-1]])
        whole = np.frombuffer(b"".join(texts), np.uint8)
    if index is not None:
        there = index >= 0
        first, size = first[np.where(there, index, 0)], np.where(there, size[np.where(there, index, 0)], 0)
    chosen = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=chosen[1:])
    return chosen, whole[np.arange(int(chosen[-1])) + np.repeat(first - chosen[:-1], size)]


class Block:
    """Columns for a number of rows, one behind the other in one piece of memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._used = memory, 0

    def take(self, rows: int, dtype: np.dtype[np.generic] | type) -> Numbers:
        kind = np.dtype(dtype)
        nbytes = rows * kind.itemsize
        part = self._memory.array[self._used : self._used + nbytes].view(kind)
        self._used += -(-nbytes // 64) * 64
        assert len(part) == rows, "more columns than there is room for"
        return part


def block_bytes(rows: int, widths: Iterable[int]) -> int:
    return sum(-(-rows * width // 64) * 64 for width in widths)


def column_of(family: str | Family, name: str) -> Column:
    return (FAMILIES[family] if isinstance(family, str) else family).column(name)
