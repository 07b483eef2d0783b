"""A hash of rows as a set: independent of their order, of files, batches and the order of columns.

It proves that batch, stream and truth are equal. Each value is mixed with its column's name, values of a row are
summed, the sum is mixed, and the rows are summed: twice over, with different constants, 128 bits in all. Invariant:
NULL adds nothing, so a column of NULLs counts as missing; 0 and an empty string are values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Words = NDArray[np.uint64]
HashedColumn = tuple[Any, Words, NDArray[np.bool_] | None]
BLOCK_ROWS = 1 << 14  # rows at a time, so that they stay in the CPU cache
MIX_FACTOR_1, MIX_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64


def logical_hash(rows: pa.Table | Iterable[pa.RecordBatch], skip: Iterable[str] = ()) -> str:
    """Hash of all rows, without the columns in `skip`."""
    total = LogicalHash(skip)
    for batch in cast(pa.Table, rows).to_batches() if isinstance(rows, pa.Table) else rows:
        total.add(batch)
    return total.hexdigest()


class LogicalHash:
    def __init__(self, skip: Iterable[str] = ()) -> None:
        self.rows = 0
        self._low = self._high = 0
        self._skip = frozenset(skip)
        self._seeds: dict[str, tuple[np.uint64, np.uint64]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        columns = [(name, batch.column(name)) for name in batch.schema.names if name not in self._skip]
        hashed = [
            (self._seeds_of(name), *_words_and_presence(column))
            for name, column in columns
            if column.null_count < len(batch)
        ]
        for start in range(0, len(batch), BLOCK_ROWS):
            block = [
                (seeds, words[start : start + BLOCK_ROWS], _block_of(there, start)) for seeds, words, there in hashed
            ]
            self._add_block(block, min(BLOCK_ROWS, len(batch) - start))
        self.rows += len(batch)

    def hexdigest(self) -> str:
        return f"{self.rows:x}-{self._high:016x}{self._low:016x}"

    def _seeds_of(self, name: str) -> tuple[np.uint64, np.uint64]:
        if name not in self._seeds:
            seed, factor = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), np.uint64)
            self._seeds[name] = seed, factor | np.uint64(1)
        return self._seeds[name]

    def _add_block(self, columns: list[HashedColumn], count: int) -> None:
        low, high = self._row_sums(columns, count)
        self._low = (self._low + int(low.sum(dtype=np.uint64))) & (1 << 64) - 1
        self._high = (self._high + int(high.sum(dtype=np.uint64))) & (1 << 64) - 1

    def _row_sums(self, columns: list[HashedColumn], count: int) -> tuple[Words, Words]:
        low, high = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        mixed, shifted = np.empty(count, np.uint64), np.empty(count, np.uint64)
        for (seed, factor), words, is_present in columns:
            np.add(words, seed, out=mixed)
            _mix(mixed, shifted)
            if is_present is not None:
                mixed *= is_present
            low += mixed
            mixed *= factor
            high += mixed
        for half in (low, high):
            _mix(half, shifted)
        return low, high

    def row_hashes(self, batch: pa.RecordBatch) -> Words:
        """One hash per row, the same for equal rows; they are not added to the sum."""
        columns = [(name, batch.column(name)) for name in batch.schema.names if name not in self._skip]
        hashed = [
            (self._seeds_of(name), *_words_and_presence(column))
            for name, column in columns
            if column.null_count < len(batch)
        ]
        return self._row_sums(hashed, len(batch))[0]


def _mix(words: Words, shifted: Words) -> None:
    """The last steps of splitmix64, in place."""
    for shift, factor in ((30, MIX_FACTOR_1), (27, MIX_FACTOR_2)):
        np.right_shift(words, np.uint64(shift), out=shifted)
        words ^= shifted
        words *= factor
    np.right_shift(words, np.uint64(31), out=shifted)
    words ^= shifted


def _block_of(is_present: NDArray[np.bool_] | None, start: int) -> NDArray[np.bool_] | None:
    return None if is_present is None else is_present[start : start + BLOCK_ROWS]


def _words_and_presence(column: pa.Array) -> tuple[Words, NDArray[np.bool_] | None]:
    """Each value as a 64-bit word, and which of them are present (None: all)."""
    is_present = None if column.null_count == 0 else np.asarray(column.is_valid())
    return _values(column), is_present


def _values(column: pa.Array) -> Words:
    kind: Any = column.type
    if pa.types.is_dictionary(kind):
        words = _values(column.dictionary)
        return words[np.asarray(column.indices.fill_null(0))] if len(words) else np.zeros(len(column), np.uint64)
    if pa.types.is_date32(kind):
        return _values(column.cast(pa.int32()))
    if pa.types.is_boolean(kind):
        return _values(column.cast(pa.int8()))
    if pa.types.is_integer(kind):
        return _numbers(column).astype(np.int64).view(np.uint64)
    if pa.types.is_floating(kind):
        return (_numbers(column).astype(np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        coded = column.dictionary_encode()
        return _texts(coded.dictionary)[np.asarray(coded.indices.fill_null(0))]
    return _nested(column)


def _numbers(column: pa.Array) -> NDArray[Any]:
    """The column's own memory; the content of NULL slots does not matter."""
    width = column.type.bit_width // 8
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), column.type.to_pandas_dtype())
    return np.frombuffer(buffer, column.type.to_pandas_dtype(), len(column), column.offset * width)


def _decimals(column: pa.Array) -> Words:
    """From both halves of the 128-bit integer."""
    halves = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = halves[0::2].copy(), halves[1::2].copy()
    _mix(high, np.empty_like(high))
    return low + high


def _texts(values: pa.Array) -> Words:
    raw = [value if isinstance(value, bytes) else value.encode() for value in values.to_pylist() if value is not None]
    digests = b"".join(hashlib.blake2b(value, digest_size=8).digest() for value in raw) or bytes(8)
    return np.frombuffer(digests, np.uint64)


def _nested(column: pa.Array) -> Words:
    """Lists and structs, from their text; most are empty, and their tables are small."""

    def canonical(value: Any) -> Any:
        if isinstance(value, dict):
            return sorted((key, canonical(inner)) for key, inner in value.items() if inner is not None)
        return [canonical(inner) for inner in value] if isinstance(value, list) else value

    texts = [None if value is None else repr(canonical(value)) for value in column.to_pylist()]
    encoded = pa.array(texts, pa.utf8()).dictionary_encode()
    return _texts(encoded.dictionary)[np.asarray(encoded.indices.fill_null(0))]
