"""Where the tags of a template stand, and plans to convert them: made once, run for every batch.

A plan is a table of lines for the kernel (`fast_events_kernel`). All of it is fixed when the plan is made, except
addresses: those of the decoder's columns change only when the decoder moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Pool, address_of
from umdf.market import fast_events_kernel as k
from umdf.market import fast_table as t
from umdf.market.events import CONDITIONS, OUT_OF_RANGE, Column
from umdf.market.rows import Text
from umdf.wire.fast.batch import Batch
from umdf.wire.fast.layout import ALWAYS, Constant, Layout, List, Node
from umdf.wire.fast.layout import Column as WireColumn
from umdf.wire.fast.templates import DECIMAL, Decimal, Field, Value

Numbers = NDArray[Any]

SCALES = {"price": 9, "volume": 4}
_OWN_ROWS = -1  # the group of lines that read another column of their plan
DAYS = Column("", "date", "days of a date that has its time beside it")
assert k.OUT_OF_RANGE == OUT_OF_RANGE


@dataclass(frozen=True)
class Place:
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
        """Of a decimal: the column behind its mantissa."""
        if isinstance(self.item, WireColumn) and self.field.type == DECIMAL:
            return self.node.columns[self.item.number + 1]
        return None


class Places:
    """The tags of one template by group and number, and where a batch has them."""

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
                    self._places.setdefault((group, item.field.id), Place(group, node, item))
        self._numbered: list[Place] = []
        self._tables: list[Any] = []  # how the decoder's memory was laid out when the addresses were found
        self._bases: list[int] = []
        self._addresses = np.zeros((1, 3), np.int64)

    def find(self, tag: int, *groups: int) -> Place | None:
        """The place of a tag in the first of these groups that has it."""
        return next((self._places[group, tag] for group in groups if (group, tag) in self._places), None)

    def constant(self, tag: int) -> Value | None:
        place = self.find(tag, t.BODY)
        return place.item.value if place and isinstance(place.item, Constant) else None

    def rows(self, batch: Batch, group: int) -> int:
        """How many entries of a group there are; 0 too if the template has no such group."""
        return int(batch.rows[self.groups[group].index]) if group in self.groups else 0

    def number(self, place: Place) -> int:
        """The line of `addresses` that this place has from now on."""
        if place not in self._numbered:
            self._numbered.append(place)
            self._tables = []
        return self._numbered.index(place) + 1

    def addresses(self, batch: Batch) -> Numbers:
        """Of each numbered place: values (of a text: offsets), exponents (of a text: bytes), validity; 0 is none."""
        stores = [batch._stores.get(node.index) for node in self.groups.values()]
        tables = [store[0] if store else None for store in stores]
        bases = [store[1].address if store and store[1] else 0 for store in stores]
        moved = any(one is not other for one, other in zip(tables, self._tables, strict=False))
        if moved or bases != self._bases or len(tables) != len(self._tables):
            self._tables, self._bases = tables, bases
            self._find(tables, bases)
        return self._addresses

    def _find(self, tables: list[Any], bases: list[int]) -> None:
        places = dict(zip((node.index for node in self.groups.values()), zip(tables, bases, strict=True), strict=True))
        lines = [(0, 0, 0)]
        for place in self._numbered:
            table, base = places[place.node.index]
            lines.append((0, 0, 0) if table is None or not base else _addresses(place, table, base))
        self._addresses = np.array(lines, np.int64)


def _addresses(place: Place, table: Any, base: int) -> tuple[int, int, int]:
    item = place.item
    bitmap = 0 if item.bit == ALWAYS else base + table.bitmaps + item.bit * table.capacity // 8
    if isinstance(item, Constant):
        return 0, 0, bitmap
    more = place.exponents
    behind = base + table.texts[item.number] if item.is_text else base + table.values[more.number] if more else 0
    return base + table.values[item.number], behind, bitmap


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


def _operation(place: Place, column: Column, how: str) -> tuple[int, int, int]:
    """What is done with a value, and its two parameters."""
    item, tag = place.item, place.field.id
    if isinstance(item, Constant):
        return k.FILL, constant_number(item.value, column), 0
    if how in (t.WORDS, t.CODES) and tag is not None:
        table = WORD_TABLES[tag]
        return k.WORDS if how == t.WORDS else k.CODES, address_of(table), len(table)
    if column.type in ("char", "date", "ns"):
        return {"char": k.CHAR, "date": k.DATE, "ns": k.STAMP}[column.type], 0, 0
    if column.type in SCALES or place.field.type == DECIMAL:
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


class Plan:
    """How some columns of events are made of the tags of a template."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.texts: dict[str, Place] = {}
        self._lines: list[list[int]] = []
        self._groups: list[int] = []  # of each line
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._names: dict[str, np.dtype[np.generic]] = {}  # targets; those in brackets are not shown
        self._later: list[tuple[int, int, str]] = []  # line, word, and the target or time whose address it holds
        self._pool = Pool()
        self._table = np.zeros((0, k.LINE), np.int64)
        self._seen: object = None

    def add(self, name: str, column: Column, rule: t.Rule, absent: int | None = None, always: bool = False) -> None:
        """A column by a rule. Where the template has no such tag there is none, unless it must `always` be there."""
        place = self.places.find(rule.tag, *rule.groups)
        if rule.time_tag:
            self._add_moment(name, column, rule, always)
        elif column.is_text:
            if place is not None:
                self.texts[name] = place
        elif place is not None:
            self._line(name, column, place, _operation(place, column, rule.how), rule.on, absent)
        elif always and name not in self._names:
            self._fill(name, column, column.null if absent is None else absent)

    def _add_moment(self, name: str, column: Column, rule: t.Rule, always: bool) -> None:
        """A date and its time. A date that is missing is that of the event; one of the event, that of SendingTime."""
        date, clock = self.places.find(rule.tag, *rule.groups), self.places.find(rule.time_tag, *rule.groups)
        days = f"[days of {name}]"
        if clock is None:
            if always:
                self._fill(name, column, column.null)
            return
        if date is None:
            self._fill(days, DAYS, k.NOT_SENT)
        else:
            self._line(days, DAYS, date, (k.DATE, 0, 0), t.EVERY, k.NOT_SENT)
        if "ts_event" in self._names and name != "ts_event":
            self._days_of(days, "ts_event", _OWN_ROWS)
        self._days_of(days, "sent", t.BODY)
        self._line(name, column, clock, (k.CLOCK, 0, 0), rule.on, None)
        self._later.append((len(self._lines) - 1, k.PARAM, days))

    def _line(
        self, name: str, column: Column, place: Place, operation: tuple[int, int, int], on: int, absent: int | None
    ) -> None:
        again = name in self._names
        line = self._new(operation[0], name, column.dtype, place.group)
        line[k.ON], line[k.KEEP] = on, again
        line[k.ABSENT], line[k.NULL] = column.null if absent is None else absent, column.null
        line[k.PARAM], line[k.COUNT] = operation[1:]
        if isinstance(place.item, Constant):
            line[k.TYPE] = k.INT64
        else:
            line[k.TYPE] = k.TEXT if place.item.is_text else k.TYPES[place.item.type]
        self._sources[-1] = self.places.number(place)

    def _fill(self, name: str, column: Column, value: int) -> None:
        self._new(k.NOTHING, name, column.dtype, t.BODY)[k.ABSENT] = value

    def _days_of(self, name: str, time: str, group: int) -> None:
        self._new(k.DAY_OF, name, DAYS.dtype, group)
        self._later.append((len(self._lines) - 1, k.SOURCE, time))

    def _new(self, op: int, name: str, dtype: np.dtype[np.generic], group: int) -> list[int]:
        line = [0] * k.LINE
        self._names.setdefault(name, dtype)
        line[k.OP], line[k.WIDTH] = op, dtype.itemsize
        self._lines.append(line)
        self._groups.append(group)
        self._sources.append(0)
        self._targets.append(list(self._names).index(name))
        return line

    def _settle(self) -> None:
        """Turn what was added into arrays, once."""
        self._table = np.array(self._lines, np.int64).reshape(-1, k.LINE)
        self._source_numbers, self._target_numbers = (
            np.array(self._sources, np.int64),
            np.array(self._targets, np.int64),
        )
        self._known_groups = list(dict.fromkeys(self._groups))
        self._group_numbers = np.array([self._known_groups.index(group) for group in self._groups], np.int64)
        self._widths = np.array([dtype.itemsize for dtype in self._names.values()], np.int64)
        self._limited = self._table[:, k.ON] != t.EVERY

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
        """The columns. `index` says for each group which of its rows is meant (None: the same); `flags` are of the
        rows, or the name of a column of the plan that holds them."""
        if len(self._table) != len(self._lines):
            self._settle()
        if not self._lines:
            return {}
        table = self._table
        sizes = (rows * self._widths + 63) & -64
        ends = np.cumsum(sizes)
        memory = self._pool.take(int(ends[-1]))
        starts = memory.address + ends - sizes
        addresses = self.places.addresses(batch)
        if addresses is not self._seen:
            self._seen = addresses
            table[:, k.SOURCE : k.BITMAP + 1] = addresses[self._source_numbers]
        table[:, k.TARGET] = starts[self._target_numbers]
        held = [None if group == _OWN_ROWS else index[group] for group in self._known_groups]
        table[:, k.INDEX] = np.array([0 if one is None else address_of(one) for one in held])[self._group_numbers]
        if kinds is not None:
            table[:, k.KINDS] = np.where(self._limited, address_of(kinds), 0)
        if isinstance(flags, str):
            table[:, k.FLAGS] = starts[list(self._names).index(flags)]
            table[0, k.FLAGS] = 0  # its own column comes first
        else:
            table[:, k.FLAGS] = 0 if flags is None else address_of(flags)
        for line, word, name in self._later:
            if name == "sent":
                table[line, word] = 0 if sent is None else address_of(sent)
            else:
                table[line, word] = starts[list(self._names).index(name)]
        k.convert(table.ctypes.data, len(table), rows)
        first = (ends - sizes).tolist()
        return {
            name: memory.array[at : at + rows * dtype.itemsize].view(dtype)
            for at, (name, dtype) in zip(first, self._names.items(), strict=True)
            if not name.startswith("[")
        }

    def run_texts(self, batch: Batch, index: Mapping[int, Numbers | None]) -> dict[str, Text]:
        found = {name: text_rows(batch, place, index[place.group]) for name, place in self.texts.items()}
        return {name: text for name, text in found.items() if text is not None}


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
