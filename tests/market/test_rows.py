"""Rows in memory: choosing some of them takes their texts and lists along."""

from __future__ import annotations

import numpy as np
import pytest

from umdf.buffers import Memory, buffer_address
from umdf.market.families import DEFINITION, FAMILIES, NULL
from umdf.market.rows import (
    ConstantColumns,
    Events,
    MemoryColumns,
    RepeatingGroup,
    Rows,
    Units,
    empty_rows,
    strings_of,
    text_column,
)

NAMES = ["PETR4", "", "VALE3", "WINZ26"]
LEGS = [["A", "BB"], [], ["CCC"], ["D"]]


def definitions() -> Rows:
    legs = [leg for row in LEGS for leg in row]
    offsets = np.cumsum([0, *map(len, LEGS)]).astype(np.int32)
    return Rows(
        DEFINITION,
        np.arange(4, dtype=np.uint32),
        np.zeros(4, np.uint16),
        np.array([0, 1, 2, 3], np.uint16),
        {"instrument_id": np.arange(100, 104)},
        {"symbol": text_column(list(NAMES))},
        {"legs": RepeatingGroup(offsets, {"leg_id": np.arange(len(legs))}, {"leg_symbol": text_column(list(legs))})},
    )


@pytest.mark.parametrize("chosen", [[], [2], [3, 0], [0, 1, 2, 3], [1, 1]])
def test_some_rows_keep_their_texts_and_lists(chosen: list[int]):
    rows = definitions().take(np.array(chosen, np.int64))
    assert rows.columns["instrument_id"].tolist() == [100 + row for row in chosen]
    assert strings_of(rows.texts["symbol"]) == [NAMES[row] for row in chosen]
    legs = rows.lists["legs"]
    found = strings_of(legs.texts["leg_symbol"])
    assert [found[a:b] for a, b in zip(legs.offsets, legs.offsets[1:], strict=False)] == [LEGS[row] for row in chosen]


def test_take_accepts_a_mask_or_row_numbers():
    rows = definitions().take(np.array([True, False, False, True]))
    assert strings_of(rows.texts["symbol"]) == ["PETR4", "WINZ26"]


def test_a_column_that_the_wire_does_not_have_is_null_throughout():
    assert definitions().column("tick").tolist() == [NULL] * 4
    assert definitions().column("flags").tolist() == [0] * 4


def test_the_order_of_rows_is_unit_then_message_then_entry():
    rows = definitions()
    assert (np.diff(rows.wire_order) > 0).all()
    rows.unit[:] = 0
    assert (np.diff(rows.wire_order) > 0).all()


def test_families_without_rows_are_left_out():
    numbers = [np.zeros(4, np.int64)] * 5
    events = Events(Units(*numbers), {"definition": definitions()})
    assert not events.take({"definition": np.zeros(4, np.bool_)}).families
    assert len(events.rows("mbo")) == 0
    assert all(len(empty_rows(family)) == 0 for family in FAMILIES.values())


def columns_in_memory() -> tuple[MemoryColumns, Memory]:
    """Three rows of `price`, `flags` and, of one value throughout, `venue`; the first row of memory is not used."""
    memory = Memory(2 * 64)
    memory.array[:64].view(np.int64)[:] = range(8)
    memory.array[64:].view(np.int32)[:] = range(100, 116)
    places = {
        "price": (0, np.dtype(np.int64), None),
        "flags": (1, np.dtype(np.int32), None),
        "venue": (2, np.dtype(np.uint8), 69),
    }
    return MemoryColumns(places, 3, memory, 64, 1, ConstantColumns()), memory


def test_columns_in_memory_are_a_mapping_of_arrays():
    columns, memory = columns_in_memory()
    assert {name: values.tolist() for name, values in columns.items()} == {
        "price": [1, 2, 3],
        "flags": [101, 102, 103],
        "venue": [69, 69, 69],
    }
    columns["flags"][0] |= 1 << 20
    assert memory.array[64:].view(np.int32)[1] == 101 | 1 << 20, "an array is a view, not a copy"
    columns["size"] = np.arange(3)
    assert list(columns) == ["price", "flags", "venue", "size"] and len(columns) == 4
    del columns["price"]
    assert "price" not in columns and columns.get("price") is None
    with pytest.raises(KeyError):
        columns["price"]
    with pytest.raises(KeyError):
        del columns["price"]


def test_the_address_of_a_column_is_that_of_its_array():
    columns, _ = columns_in_memory()
    before = columns.address("flags"), columns.address("venue")
    assert before == (buffer_address(columns["flags"]), buffer_address(columns["venue"]))
    columns["flags"] = np.zeros(3, np.int32)
    assert columns.address("flags") == buffer_address(columns["flags"]) != before[0]


def test_a_shared_column_is_the_array_of_the_others():
    columns, (others, _) = columns_in_memory()[0], columns_in_memory()
    columns.share("flags", others)
    assert columns.address("flags") == others.address("flags")
    assert columns["flags"] is others["flags"]
