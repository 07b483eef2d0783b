"""A template's RecordBatch for the encode kernel: addresses of values and offsets, and a presence mask per row.

Nothing is copied but presence: a bit for everything optional, as `layout` numbers them. Columns that the kernel cannot
take row by row (no value where one must be, half a decimal) are not `is_regular`: the reference writer, given the same
rows by `message_values`, reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.wire.columns import exact
from umdf.wire.fast.encode.messages_kernel import set_mask_bits
from umdf.wire.fast.layout import DTYPES, TEXTS, Column, Constant, GroupPresence, Layout, ListColumn, Node
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import to_bytes
from umdf.wire.fast.templates import (
    BYTES,
    DECIMAL,
    INT32,
    INT64,
    Decimal,
    DynamicRef,
    Group,
    Segment,
    Sequence,
    Value,
)

Bitmap = NDArray[np.uint64]  # a bit for each row
RowSet = Bitmap | bool  # some rows, all or none of them
RowMessage = Callable[[int, int], Message]  # the message that a row of a template is
ARROW_TYPES = {type: pa.from_numpy_dtype(dtype) for type, dtype in DTYPES.items()} | dict.fromkeys(TEXTS, pa.binary())


class NodeColumns:
    """The columns of a node, and of the nodes below it. Addresses are as if the rows before the first were there too:
    a list's offsets count from the start of its entries, wherever a slice of it begins."""

    def __init__(self, layout: Layout, node: Node, arrays: Mapping[str, pa.Array], rows: int, first: int = 0) -> None:
        self.node = node
        self.rows = rows
        self.is_regular = True
        self.values: list[int] = []  # of each column the address of its values, or of a text's offsets
        self.content: list[int] = []  # of each column the address of a text's bytes
        self.offsets: list[int] = []  # of each list
        self.children: list[NodeColumns] = []
        self._first = first
        self._kept_arrays: list[pa.Array] = []
        self._present: dict[int, RowSet] = {}  # by bit
        # A column without any value may have any type.
        unused = {name: array for name, array in arrays.items() if array.null_count < rows}
        for item in node.items:
            array = unused.pop(item.name, None)
            if isinstance(item, Column):
                array = self._cast(item.name, array, item.type)
                self._add_column(item, array)
                self._add_presence(item.bit, item.field.optional, _validity_rows(array))
            elif isinstance(item, ListColumn):
                self._add_entries(layout, item, array)
                self._add_presence(item.bit, item.sequence.optional, _validity_rows(array))
            elif isinstance(item, GroupPresence):
                self._add_presence(item.bit, True, _true_rows(array, f"{node.path}.{item.name}"))
            elif isinstance(item.value, Decimal):
                exponents = unused.pop(f"{item.name}.exponent", None)
                self._check_constant(item, item.name, array, INT64, item.value.mantissa)
                self._check_constant(item, f"{item.name}.exponent", exponents, INT32, item.value.exponent)
                self.is_regular &= np.array_equal(_validity_rows(array), _validity_rows(exponents))
            else:
                self._check_constant(item, item.name, array, item.field.type, item.value)
        if unused:
            raise EncodeError(f"{node.path} has no field {min(unused)!r}")
        self._masks = self._presence_masks()
        self.masks = self._masks.ctypes.data - 8 * node.mask_words * first

    def _cast(self, name: str, array: pa.Array | None, type: str) -> pa.Array | None:
        kind = ARROW_TYPES[type]
        if array is None or (kind == pa.binary() and array.type == pa.string()):
            return array
        return exact(array, kind, f"{self.node.path}.{name}")

    def _check_constant(self, item: Constant, name: str, array: pa.Array | None, type: str, value: Value) -> None:
        """A constant may be missing, except to mark an optional one as present; if given, it must be the value."""
        array = self._cast(name, array, type)
        if array is not None:
            content = value if isinstance(value, int) else to_bytes(value)
            kind = ARROW_TYPES[type]
            same = pc.call_function("equal", [array.cast(kind), pa.scalar(content, kind)])
            self.is_regular &= pc.call_function("all", [same]).as_py()
        if item.field.optional:
            self._add_presence(item.bit, True, _validity_rows(array))

    def _add_column(self, column: Column, array: pa.Array | None) -> None:
        if array is None:
            self.values.append(0)
            self.content.append(0)
            return
        buffers = array.buffers()
        width = 4 if column.is_text else array.type.bit_width // 8
        self.values.append(buffers[1].address + width * (array.offset - self._first))
        self.content.append(buffers[2].address if column.is_text and buffers[2] is not None else 0)
        if column.is_text:
            self._check_offsets(array, 0 if buffers[2] is None else buffers[2].size, column.name)
        self._kept_arrays.append(array)

    def _add_entries(self, layout: Layout, item: ListColumn, array: Any) -> None:
        child = layout.nodes[item.child]
        if array is None:
            self.offsets.append(0)
            self.children.append(NodeColumns(layout, child, {}, 0))
            return
        name = f"{self.node.path}.{item.name}"
        if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
            array = exact(array, pa.list_(array.type.value_type), name)
        if not pa.types.is_list(array.type) or not pa.types.is_struct(array.type.value_type):
            raise EncodeError(f"{name} expects a list of structs, got {array.type}")
        self._check_offsets(array, len(array.values), item.name)
        offsets = array.buffers()[1].address + 4 * array.offset
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        entries = array.values.slice(first, last - first)
        given = {field.name: entries.field(number) for number, field in enumerate(entries.type)}
        self.offsets.append(offsets - 4 * self._first)
        self.children.append(NodeColumns(layout, child, given, len(entries), first))
        self.is_regular &= self.children[-1].is_regular and entries.null_count == 0
        self._kept_arrays += [array, entries]

    def _check_offsets(self, array: pa.Array, most: int, name: str) -> None:
        """Check the offsets, which the kernel trusts."""
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
        if offsets[0] < 0 or offsets[-1] > most or bool((offsets[1:] < offsets[:-1]).any()):
            raise EncodeError(f"{self.node.path}.{name} has offsets outside its values")

    def _add_presence(self, bit: int, optional: bool, present: RowSet) -> None:
        """The rows with a value. A decimal is checked twice, for mantissa and exponent; a mandatory field of a group
        has the group's bit."""
        if bit < 0:
            self.is_regular &= present is True or self.rows == 0
        elif optional and bit not in self._present:
            self._present[bit] = present
        elif optional:
            self.is_regular &= np.array_equal(self._present[bit], present)
        elif present is not True:
            group = self._present[bit]
            if isinstance(group, bool) or isinstance(present, bool):
                self.is_regular &= not np.any(group)
            else:
                self.is_regular &= not np.any(group & ~present)

    def _presence_masks(self) -> NDArray[np.uint64]:
        words = self.node.mask_words
        everywhere = sum(1 << bit for bit, present in self._present.items() if present is True)
        masks = np.empty((self.rows, words), np.uint64)
        masks[:] = [everywhere >> 64 * word & (1 << 64) - 1 for word in range(words)]
        for bit, present in self._present.items():
            if not isinstance(present, bool):
                one = np.array(1 << bit % 64, np.uint64).view(np.int64)
                set_mask_bits(masks.ctypes.data + 8 * (bit // 64), 8 * words, present.ctypes.data, self.rows, int(one))
        return masks

    def descendants(self) -> Iterator[NodeColumns]:
        yield self
        for child in self.children:
            yield from child.descendants()


def _validity_rows(array: pa.Array | None) -> RowSet:
    if array is None:
        return False
    return _bitmap_words(array.buffers()[0], array.offset, len(array)) if array.null_count else True


def _true_rows(array: pa.Array | None, name: str) -> RowSet:
    """Of an optional group: whether it is present."""
    if array is None:
        return False
    if not pa.types.is_boolean(array.type):
        raise EncodeError(f"{name} expects bool, got {array.type}")
    shown = _bitmap_words(array.buffers()[1], array.offset, len(array))
    return shown & _bitmap_words(array.buffers()[0], array.offset, len(array)) if array.null_count else shown


def _bitmap_words(buffer: pa.Buffer, offset: int, rows: int) -> Bitmap:
    """`rows` bits of a bitmap as whole words."""
    part = np.frombuffer(buffer, np.uint8)[offset // 8 : -(-(offset + rows) // 8)]
    if offset % 8:
        part = np.packbits(np.unpackbits(part, bitorder="little")[offset % 8 :][:rows], bitorder="little")
    words = np.zeros(-(-rows // 64), np.uint64)
    words.view(np.uint8)[: len(part)] = part
    if rows % 64:
        words[-1] &= np.uint64((1 << rows % 64) - 1)
    return words


def message_values(
    layout: Layout, node: Node, segment: Segment, cells: Mapping[str, Any], row_message: RowMessage, prefix: str = ""
) -> dict[str, Any]:
    """A row of Arrow values, converted for the reference writer."""
    values: dict[str, Any] = {}
    for instruction in segment.instructions:
        name = prefix + instruction.name
        cell: Any = cells.get(name)
        value: Any = None
        if isinstance(instruction, Group):
            if cell or not instruction.optional:
                value = message_values(layout, node, instruction.body, cells, row_message, f"{name}.")
        elif isinstance(instruction, Sequence):
            child = layout.nodes[next(item.child for item in node.lists if item.name == name)]
            if cell is not None:
                whole = child.segment
                value = [
                    None if entry is None else message_values(layout, child, whole, entry, row_message)
                    for entry in cell
                ]
        elif isinstance(instruction, DynamicRef):
            if cell is not None:
                value = row_message(cell, cells[f"{name}.row"])
        elif instruction.type == DECIMAL:
            exponent = cells.get(f"{name}.exponent")
            if (exponent is None) != (cell is None):
                raise EncodeError(f"{name}: D1: a decimal needs both its mantissa and its exponent")
            value = None if exponent is None else Decimal(exponent, cell)
        elif isinstance(cell, bytes) and instruction.type != BYTES:
            value = cell.decode("utf-8", "surrogateescape")
        else:
            value = cell
        if value is not None:
            values[instruction.name] = value
    return values
