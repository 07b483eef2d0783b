"""The logical hash sees every value and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lake.lake_rows import rows_of

from umdf.lake.hashing import logical_hash
from umdf.lake.schemas import table, tables


@pytest.mark.parametrize("name", tables())
def test_order_batches_columns_and_dictionaries_do_not_matter(name: str) -> None:
    rows = rows_of(name, 40)
    expected = logical_hash(rows)
    backwards = rows.take(list(range(39, -1, -1))).select(rows.schema.names[::-1])
    assert logical_hash(backwards) == expected
    assert logical_hash(rows.to_batches(max_chunksize=7)) == expected
    assert logical_hash(rows.slice(0, 13).to_batches() + rows.slice(13).to_batches()) == expected
    coded = [
        column.dictionary_encode() if column.type == pa.utf8() else column
        for column in (rows.column(field) for field in rows.schema.names)
    ]
    assert logical_hash(pa.Table.from_arrays(coded, rows.schema.names)) == expected


@pytest.mark.parametrize("name", tables())
def test_every_column_counts(name: str) -> None:
    rows, seen = rows_of(name, 40), set()
    expected = logical_hash(rows)
    for field in rows.schema:
        values = rows.column(field.name).to_pylist()
        if len({repr(value) for value in values}) < 2:
            continue
        turned = pa.array([*values[1:], values[0]], field.type)
        seen.add(logical_hash(rows.set_column(rows.schema.get_field_index(field.name), field.name, turned)))
        seen.add(logical_hash(rows, skip=[field.name]))
    assert len(seen) > len(rows.schema) and expected not in seen


def one(**columns: pa.Array) -> str:
    return logical_hash(pa.table(columns))


def test_absent_is_not_zero_and_not_empty() -> None:
    numbers = [one(x=pa.array([value], pa.int64())) for value in (None, 0, 1, -1)]
    texts = [one(x=pa.array([value], pa.utf8())) for value in (None, "", "0")]
    lists = [one(x=pa.array([value], pa.list_(pa.int64()))) for value in (None, [], [0], [0, 0])]
    for different in (numbers, texts, lists):
        assert len(set(different)) == len(different)


def test_a_column_of_nothing_is_no_column_and_a_width_is_no_difference() -> None:
    x = pa.array([1, -2, None], pa.int64())
    assert one(x=x, later=pa.nulls(3, pa.int64())) == one(x=x) == one(x=x.cast(pa.int16()))


def test_rows_count_as_often_as_they_are_there_and_values_stay_in_their_row() -> None:
    x = pa.array([1, 1], pa.int64())
    assert one(x=x) != one(x=x[:1])
    assert one(x=pa.array([1, 2]), y=pa.array([1, 2])) != one(x=pa.array([1, 2]), y=pa.array([2, 1]))
    assert one(x=pa.array([1]), y=pa.array([2])) != one(x=pa.array([2]), y=pa.array([1]))


def test_slices_of_memory_are_read_where_they_start() -> None:
    rows = rows_of("trades", 40)
    part = pa.table({name: rows.column(name).to_pylist()[5:9] for name in rows.schema.names}, rows.schema)
    assert logical_hash(rows.slice(5, 4)) == logical_hash(part)
    assert table("trades").schema.field("channel_id").type == pa.int16()
