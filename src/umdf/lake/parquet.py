"""Parquet files of flat tables, ten times as fast as Arrow writes them.

    file = FlatFile(sink, schema, ("instrument_id", "symbol"))
    file.write(rows)
    file.close()
    file.bounds["symbol"]  ->  how many are NULL, the smallest, the largest

The format is Apache Parquet's, and nothing special of it: one page a column and row group, of deltas or of the codes of
a dictionary, which every reader knows. Columns are integers, dates, decimals and texts; what has lists, bytes or floats
is Arrow's to write (`is_flat`). Every page has its checksum. Row groups say of the columns that readers filter on how
many values are NULL, the smallest and the largest, so that they can be skipped.

The one rule: a column's bytes are made by one kernel; here are only the headers around them. A NULL in a column that
must have values is refused: without levels there is no place for it in the file.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf import __version__
from umdf.buffers import address_of
from umdf.errors import UmdfError
from umdf.lake import parquet_kernel as k
from umdf.lake.thrift import YES, Value, byte, fields, items, long, number, text, varint

ROW_GROUP_ROWS = 1 << 17
LARGE = 1 << 15  # bytes that are written at once
LONG_TEXT_BYTES = 128  # a longer text is no bound of a row group: the footer would grow by it
MAGIC = b"PAR1"
CREATED_BY = f"umdf version {__version__}"
INT32, INT64, BYTE_ARRAY, FIXED = 1, 2, 6, 7  # physical types
PLAIN, RLE, DELTAS, DICTIONARY = 0, 3, 5, 8  # encodings
UNPACKED, ZSTD = 0, 6  # codecs
DATA_PAGE, DICTIONARY_PAGE = 0, 2
REQUIRED, OPTIONAL = 0, 1
Bounds = tuple[int, Any, Any]  # how many are NULL, the smallest, the largest (None if there is none)


class _Type(NamedTuple):
    physical: int
    converted: int | None = None
    logical: Value | None = None


def _whole(bits: int) -> Value:
    return fields((10, fields((1, byte(bits)), (2, YES))))


_TYPES = {
    pa.int64(): _Type(INT64),
    pa.int32(): _Type(INT32),
    pa.int16(): _Type(INT32, 16, _whole(16)),
    pa.int8(): _Type(INT32, 15, _whole(8)),
    pa.date32(): _Type(INT32, 6, fields((6, fields()))),
    pa.utf8(): _Type(BYTE_ARRAY, 0, fields((1, fields()))),
}


def is_flat(schema: pa.Schema) -> bool:
    return all(_plain(each.type) in _TYPES or pa.types.is_decimal128(each.type) for each in schema)


def required_fault(table: str, column: str, absent: int, rows: int) -> UmdfError:
    about = f"{absent} of {rows} rows have NULL in {column}, which every row must have"
    return UmdfError(f"rows for {table} do not fit: {about}", "this is a bug: please report it")


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of a column in the file: a dictionary is how we hand it over, not what it is."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _decimal_bytes(kind: Any) -> int:
    """As few as hold every number of its digits."""
    return (int(10**kind.precision).bit_length() + 8) // 8


class FlatFile:
    """Writes one file, row group by row group. `bounded` names the columns that readers filter on, `growing` those of
    which neighbours are near each other, and `packed` those that are given to zstd; `table` is for errors."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        bounded: Sequence[str] = (),
        *,
        growing: frozenset[str] = frozenset(),
        packed: frozenset[str] = frozenset(),
        table: str = "a file",
    ) -> None:
        self.table = table
        self.bounds: dict[str, Bounds] = {}
        self.rows = 0
        self._columns = _columns(schema, growing, packed)
        self._bounded = frozenset(bounded)
        self._groups: list[Value] = []
        self._file, self._at = sink, 0
        self._waiting: list[bytes] = []
        self._put(MAGIC)

    def write(self, rows: pa.Table) -> None:
        arrays = [_joined(rows.column(column.name)) for column in self._columns]
        for column, array in zip(self._columns, arrays, strict=True):
            if array.null_count and not column.is_nullable:
                raise required_fault(self.table, column.name, array.null_count, len(array))
        for first in range(0, rows.num_rows, ROW_GROUP_ROWS):
            count = min(ROW_GROUP_ROWS, rows.num_rows - first)
            begun, found = self._at, []
            for column, array in zip(self._columns, arrays, strict=True):
                part = array if count == len(array) else array.slice(first, count)
                found.append(self._chunk(column, part))
            sizes = (2, long(sum(loose for _, loose in found))), (3, long(count))
            places = (5, long(begun)), (6, long(self._at - begun))
            self._groups.append(fields((1, items([chunk for chunk, _ in found])), *sizes, *places))
            self.rows += count
            self._flush()

    def _put(self, content: Any) -> None:
        """What is small waits for more; it may be of memory that is used again."""
        size = memoryview(content).nbytes
        self._at += size
        if size < LARGE:
            self._waiting.append(bytes(content))
        else:
            self._flush()
            self._file.write(content)

    def _flush(self) -> None:
        self._file.write(b"".join(self._waiting))
        self._waiting.clear()

    def close(self) -> None:
        """The footer, and the end."""
        root = fields((4, text("schema")), (5, number(len(self._columns))))
        footer = fields(
            (1, number(2)),
            (2, items([root, *(column.element for column in self._columns)])),
            (3, long(self.rows)),
            (4, items(self._groups)),
            (6, text(CREATED_BY)),
            (7, items([fields((1, fields()))] * len(self._columns))),
        )[1]
        self._put(footer + len(footer).to_bytes(4, "little") + MAGIC)
        self._flush()

    def _chunk(self, column: _Column, array: pa.Array) -> tuple[Value, int]:
        """The pages of a column; what the footer says of them, and their size before zstd."""
        made = _encoded(column, array)
        begun, loose = self._at, 0
        if made.dictionary is not None:
            head = fields((1, number(made.distinct)), (2, number(PLAIN)))
            loose += self._page(column, DICTIONARY_PAGE, made.dictionary, (7, head))
        data_at = self._at
        head = fields((1, number(len(array))), (2, number(made.encoding)), (3, number(RLE)), (4, number(RLE)))
        loose += self._page(column, DATA_PAGE, made.data, (5, head))
        about = fields(
            (5, long(len(array))),
            (6, long(loose)),
            (7, long(self._at - begun)),
            (9, long(data_at)),
            (11, long(begun) if made.dictionary is not None else None),
            (12, self._statistics(column, made, len(array)) if column.name in self._bounded else None),
            begun=(4, column.about[made.encoding]),
        )
        return fields((2, long(begun)), (3, about)), loose

    def _page(self, column: _Column, kind: int, content: Any, head: tuple[int, Value]) -> int:
        """Write it; its size before zstd."""
        packed = _zstd().compress(content, asbytes=True) if column.is_packed else content
        loose, size = memoryview(content).nbytes, memoryview(packed).nbytes
        checksum = (4, number(_signed(zlib.crc32(packed))))
        said = fields((1, number(kind)), (2, number(loose)), (3, number(size)), checksum, head)[1]
        self._put(said)
        self._put(packed)
        return loose + len(said)

    def _statistics(self, column: _Column, made: _Made, rows: int) -> Value:
        absent, low, high = rows - made.present, made.low, made.high
        before = self.bounds.get(column.name, (0, None, None))
        lows, highs = ([each for each in pair if each is not None] for pair in ((before[1], low), (before[2], high)))
        self.bounds[column.name] = (before[0] + absent, min(lows, default=None), max(highs, default=None))
        if low is None or high is None:
            return fields((3, long(absent)))
        least, most = column.bytes_of(low), column.bytes_of(high)
        if len(least) > LONG_TEXT_BYTES or len(most) > LONG_TEXT_BYTES:
            return fields((3, long(absent)))
        return fields((3, long(absent)), (5, text(most)), (6, text(least)), (7, YES), (8, YES))


@dataclass(frozen=True, eq=False)
class _Column:
    name: str
    type: _Type
    is_nullable: bool
    is_growing: bool
    is_packed: bool
    element: Value  # in the schema of the footer
    about: dict[int, bytes]  # how the footer begins to tell of its pages, by their encoding

    def bytes_of(self, value: Any) -> bytes:
        """As PLAIN writes it, but for the length of a text."""
        if isinstance(value, str):
            return value.encode()
        return value.to_bytes(8 if self.type.physical == INT64 else 4, "little", signed=True)


def _column(each: pa.Field, is_growing: bool, is_packed: bool) -> _Column:
    kind: Any = _plain(each.type)
    of_decimal: tuple[tuple[int, Value], ...] = ()
    if pa.types.is_decimal128(kind):
        digits = (1, number(kind.scale)), (2, number(kind.precision))
        found = _Type(FIXED, 5, fields((5, fields(*digits))))
        of_decimal = (7, number(kind.scale)), (8, number(kind.precision))
    else:
        found = _TYPES[kind]
    element = fields(
        (1, number(found.physical)),
        (2, number(_decimal_bytes(kind)) if of_decimal else None),
        (3, number(OPTIONAL if each.nullable else REQUIRED)),
        (4, text(each.name)),
        (6, None if found.converted is None else number(found.converted)),
        *of_decimal,
        (10, found.logical),
    )
    about = {}
    for encoding in (PLAIN, DELTAS, DICTIONARY):
        used = [PLAIN, RLE, encoding] if encoding == DICTIONARY else [RLE, encoding]
        said = fields(
            (1, number(found.physical)),
            (2, items([number(encoding) for encoding in used])),
            (3, items([text(each.name)])),
            (4, number(ZSTD if is_packed else UNPACKED)),
        )
        about[encoding] = said[1][:-1]
    return _Column(each.name, found, each.nullable, is_growing, is_packed, element, about)


@cache
def _columns(schema: pa.Schema, growing: frozenset[str], packed: frozenset[str]) -> list[_Column]:
    return [_column(each, each.name in growing, each.name in packed) for each in schema]


@dataclass(frozen=True, eq=False)
class _Made:
    """A column as bytes. They are of memory that the next column uses again."""

    data: Any
    encoding: int
    present: int
    dictionary: Any = None
    distinct: int = 0
    low: Any = None
    high: Any = None


class _Scratch(threading.local):
    """Memory for one column at a time."""

    def __init__(self) -> None:
        self.work = np.empty(2 * (ROW_GROUP_ROWS + 8) + k.BLOCK, np.int64)
        self.table = np.zeros(2 * k.SLOTS + k.SPAN, np.int64)
        self.dictionary = np.empty(k.MOST, np.int64)
        self.out = np.empty(9 * ROW_GROUP_ROWS + 4096, np.uint8)
        self.results = np.zeros(k.RESULTS, np.int64)
        self.places = [address_of(each) for each in (self.work, self.table, self.dictionary, self.out, self.results)]
        self.stamp = 0


@cache
def _scratch() -> _Scratch:
    return _Scratch()


@cache
def _zstd() -> pa.Codec:
    return pa.Codec("zstd")


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """As one array; a text as a dictionary, whose codes alone tell what is NULL."""
    if pa.types.is_dictionary(column.type) and not _has_usable_codes(column):
        column = column.cast(pa.utf8())
    array: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    is_text = array.type == pa.utf8() and array.null_count < len(array)
    return array.dictionary_encode() if is_text else array


def _has_usable_codes(column: pa.ChunkedArray) -> bool:
    """Signed, as the kernel reads them; wide enough for the texts of all chunks; and missing where a text is NULL."""
    kind: Any = column.type
    is_wide = column.num_chunks == 1 or kind.index_type.bit_width >= 32
    has_texts = kind.value_type == pa.utf8() and not any(chunk.dictionary.null_count for chunk in column.chunks)
    return pa.types.is_signed_integer(kind.index_type) and is_wide and has_texts


def _signed(value: int) -> int:
    """The 32 bits of a number as the headers have them."""
    return value - (1 << 32) if value >> 31 else value


def _encoded(column: _Column, array: Any) -> _Made:
    if column.type.physical == FIXED:
        return _decimals(column, array)
    if array.null_count == len(array):
        return _Made(_levels(array), PLAIN, 0)
    texts = array.dictionary if isinstance(array, pa.DictionaryArray) else None
    numbers = array if texts is None else array.indices
    bitmap, values = numbers.buffers()
    width, here = numbers.type.bit_width // 8, _scratch()
    here.stamp += 1
    work, table, dictionary, out, results = here.places
    size = k.put_column(
        values.address + width * numbers.offset,
        width,
        bitmap.address if bitmap is not None and numbers.null_count else 0,
        numbers.offset,
        len(numbers),
        column.is_nullable,
        k.DELTAS if column.is_growing and texts is None else k.CODES,
        work,
        table,
        here.stamp,
        dictionary,
        out,
        results,
    )
    present, low, high, distinct = here.results.tolist()
    data = here.out[:size]
    if not present:
        return _Made(data, PLAIN, 0)
    found = here.dictionary[:distinct]
    if texts is not None and not distinct:  # too many of them
        strings = texts.take(numbers.drop_null())
        low, high = min(strings.to_pylist()), max(strings.to_pylist())
        levels = _levels(array) if column.is_nullable else b""
        return _Made(levels + _plain_texts(strings), PLAIN, present, low=low, high=high)
    if texts is not None:
        used = texts.take(pa.array(found))
        strings = used.to_pylist()
        return _Made(data, DICTIONARY, present, _plain_texts(used), distinct, min(strings), max(strings))
    if not distinct:
        return _Made(data, DELTAS, present, low=low, high=high)
    shown = found if column.type.physical == INT64 else found.astype(np.int32)
    return _Made(data, DICTIONARY, present, shown, distinct, low, high)


def _plain_texts(texts: pa.Array) -> bytes:
    """Each behind its length."""
    parts = []
    for value in texts.cast(pa.binary()).to_pylist():
        parts += [len(value).to_bytes(4, "little"), value]
    return b"".join(parts)


def _decimals(column: _Column, array: Any) -> _Made:
    """As they are, the most significant byte first."""
    rows, levels = len(array), b""
    kept = array.drop_null() if array.null_count else array
    if column.is_nullable:
        levels = _levels(array)
    _, values = kept.buffers()
    wide: NDArray[np.uint8] = np.frombuffer(values, np.uint8).reshape(-1, 16)[kept.offset : kept.offset + len(kept)]
    content = np.ascontiguousarray(wide[:, : _decimal_bytes(array.type)][:, ::-1]).tobytes()
    return _Made(levels + content, PLAIN, rows - array.null_count)


def _levels(array: pa.Array) -> bytes:
    """1 where a value is there: a run of equal ones, or of eights."""
    if array.null_count in (0, len(array)):
        run = varint(len(array) << 1) + bytes([array.null_count == 0])
    else:
        bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()
        run = varint(len(bits) << 1 | 1) + bits
    return len(run).to_bytes(4, "little") + run
