"""Arrow columns of every type and shape that the Parquet writers may be given, for hypothesis."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from umdf.lake.parquet.flat_file_writer import FlatFileWriter

CODES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
BITS = {pa.int64(): 64, pa.int32(): 32, pa.int16(): 16, pa.int8(): 8}
DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))


def whole_numbers(kind: pa.DataType) -> st.SearchStrategy[int]:
    most = 1 << BITS[kind] - 1
    ends = st.sampled_from([-most, -most + 1, -1, 0, 1, most - 2, most - 1])
    return ends | st.integers(-most, most - 1) | st.integers(0, 5)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda value: Decimal(value).scaleb(-scale))


FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{kind: whole_numbers(kind) for kind in BITS},
    pa.date32(): DATES,
    pa.utf8(): TEXTS,
    # As many digits as Python's decimals have without being told.
    **{pa.decimal128(digits, scale): decimals(digits, scale) for digits, scale in ((28, 4), (18, 0), (5, 2))},
}
NESTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=6),
    pa.float64(): st.floats(allow_nan=False),
    pa.list_(pa.int64()): st.lists(whole_numbers(pa.int64()), max_size=3),
    pa.list_(pa.struct([("a", pa.utf8()), ("b", pa.int32())])): st.lists(
        st.fixed_dictionaries({"a": st.none() | TEXTS, "b": st.none() | whole_numbers(pa.int32())}), max_size=2
    ),
}


@dataclass(frozen=True)
class Given:
    """Rows as they are handed over, a table for each call, and what must come back."""

    calls: list[pa.Table]
    rows: pa.Table
    growing: frozenset[str]
    packed: frozenset[str]


@st.composite
def tables(draw: st.DrawFn, kinds: dict[pa.DataType, st.SearchStrategy[Any]]) -> Given:
    counts = draw(st.lists(st.integers(1, 10) | st.integers(1, 300), min_size=1, max_size=3))
    fields, columns, plain = [], [], []
    for at, kind in enumerate(draw(st.lists(st.sampled_from(list(kinds)), min_size=1, max_size=5))):
        nulls = draw(st.sampled_from(["required", "none", "some", "all"]))
        value = st.none() if nulls == "all" else kinds[kind] if nulls != "some" else st.none() | kinds[kind]
        pattern, run = draw(st.lists(value, min_size=1, max_size=8)), draw(st.sampled_from([1, 2, 20]))
        values = [pattern[row // run % len(pattern)] for row in range(sum(counts))]
        fields.append(pa.field(f"c{at}", kind, nullable=nulls != "required"))
        plain.append(pa.array(values, kind))
        columns.append(draw(handed_over(values, kind)))
    schema = pa.schema(fields)
    whole = pa.table(columns, schema.names)
    starts = [sum(counts[:call]) for call in range(len(counts))]
    chosen = st.frozensets(st.sampled_from(schema.names))
    return Given(
        [whole.slice(start, count) for start, count in zip(starts, counts, strict=True)],
        pa.Table.from_arrays(plain, schema=schema),
        draw(chosen),
        draw(chosen),
    )


@st.composite
def handed_over(draw: st.DrawFn, values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """The values in chunks, each a slice of something longer; texts perhaps as dictionaries, with NULL among them."""
    cuts = sorted(draw(st.sets(st.integers(0, len(values)), max_size=2)) | {0, len(values)})
    codes = draw(st.none() | st.sampled_from(CODES)) if kind == pa.utf8() else None
    null_inside = draw(st.booleans())
    chunks = []
    for first, last in itertools.pairwise(cuts):
        before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        other = [values[first], None]
        longer = [*(other * 5)[:before], *values[first:last], *(other * 5)[:after]]
        chunk = coded(longer, codes, null_inside) if codes else pa.array(longer, kind)
        chunks.append(chunk.slice(before, last - first))
    return pa.chunked_array(chunks, chunks[0].type)


def coded(values: list[str | None], codes: pa.DataType, null_inside: bool) -> pa.Array:
    """A dictionary that has an unused text, and NULL either as a missing code or as a text."""
    texts: list[str | None] = ["unused", *dict.fromkeys(value for value in values if value is not None)]
    texts += [None] if null_inside else []
    places = {text: place for place, text in enumerate(texts)}
    return pa.DictionaryArray.from_arrays(
        pa.array([places.get(value) for value in values], codes), pa.array(texts, pa.utf8())
    )


def write_flat(path: Path, asked: Given) -> FlatFileWriter:
    schema = asked.rows.schema
    with pa.OSFile(str(path), "wb") as sink:
        file = FlatFileWriter(sink, schema, schema.names, delta_columns=asked.growing, compressed_columns=asked.packed)
        for rows in asked.calls:
            file.write(rows)
        file.close()
    return file


def with_unreadable_neighbours(path: Path) -> tuple[pa.Table, pa.Table]:
    """A file of three row groups, all but the second of zeros; its rows, and those of the second."""
    parts = []
    for group in range(3):
        ids = np.arange(200) // 4 + 1000 * group
        days = pa.array(ids.astype(np.int32)).cast(pa.date32())
        symbols = pa.array([f"S{number:05d}" for number in ids.tolist()])
        parts.append(pa.table({"instrument_id": ids, "ts_recv": ids * 10**9, "trade_date": days, "symbol": symbols}))
    rows = pa.concat_tables(parts)
    write_flat(path, Given(parts, rows, frozenset({"ts_recv"}), frozenset({"symbol"})))
    about, content = pq.read_metadata(path), bytearray(path.read_bytes())
    for group in (0, 2):
        columns = [about.row_group(group).column(at) for at in range(about.num_columns)]
        first = columns[0].dictionary_page_offset or columns[0].data_page_offset
        size = sum(column.total_compressed_size for column in columns)
        content[first : first + size] = bytes(size)
    path.write_bytes(content)
    return rows, parts[1]
