"""Prices and times as a caller wants them, against Python's own decimals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.errors import UmdfError
from umdf.lake.query.price_styles import OutputFormat, to_float64
from umdf.lake.schemas import table

LEAST, MOST = -(1 << 63) + 1, (1 << 63) - 1
NUMBERS = st.lists(st.none() | st.integers(LEAST, MOST) | st.integers(-(10**12), 10**12), max_size=20)
PRICE = table("trades").schema.field("price")
TIME = table("trades").schema.field("ts_event")
VOLUME = table("ohlcv_1m").schema.field("financial_volume")


def shown(style: OutputFormat, field: pa.Field, values: list[int | None], cut: int = 0) -> pa.ChunkedArray:
    rows = pa.table([pa.array(values, field.type)], pa.schema([field]))
    return style.to_table(rows.slice(cut)).column(0)


@given(NUMBERS, st.integers(0, 3))
def test_a_decimal_has_every_digit(values: list[int | None], cut: int) -> None:
    found = shown(OutputFormat("decimal"), PRICE, values, cut)
    assert found.type == pa.decimal128(19, 9)
    expected = [None if value is None else Decimal(value).scaleb(-9) for value in values[cut:]]
    assert (
        found.to_pylist() == expected and shown(OutputFormat("fixed"), PRICE, values, cut).to_pylist() == values[cut:]
    )


@given(NUMBERS, st.integers(0, 3))
def test_a_float_is_the_nearest_double(values: list[int | None], cut: int) -> None:
    found = shown(OutputFormat("float"), PRICE, values, cut).to_pylist()
    assert found == [None if value is None else float(Fraction(value, 10**9)) for value in values[cut:]]


@given(st.lists(st.integers(LEAST, MOST), min_size=1))
def test_floats_alone(values: list[int]) -> None:
    assert to_float64(pa.array(values).to_numpy()).tolist() == [float(Fraction(value, 10**9)) for value in values]


@given(NUMBERS)
def test_a_timestamp_keeps_its_nanoseconds(values: list[int | None]) -> None:
    found = shown(OutputFormat(), TIME, values)
    assert found.type == pa.timestamp("ns", "UTC") and found.cast(pa.int64()).to_pylist() == values
    assert shown(OutputFormat(pretty_ts=False), TIME, values).to_pylist() == values


def test_financial_volume_is_a_decimal_already() -> None:
    rows = pa.table([pa.array([Decimal("12.3400"), None], VOLUME.type)], pa.schema([VOLUME]))
    assert OutputFormat("decimal").to_table(rows).equals(rows) and OutputFormat("fixed").to_table(rows).equals(rows)
    assert OutputFormat("float").to_table(rows).column(0).to_pylist() == [12.34, None]


def test_prices_inside_lists_are_converted_too() -> None:
    schema = pa.schema([table("definition").schema.field(name) for name in ("legs", "underlyings", "attributes")])
    leg = {"leg_id": 7, "leg_symbol": "A", "leg_ratio": 1_500_000_000, "leg_side": 1, "leg_security_type": None}
    rows = pa.Table.from_pylist(
        [{"legs": some, "underlyings": [], "attributes": []} for some in ([], [leg, leg | {"leg_ratio": None}], [leg])],
        schema,
    )
    for price_type, value in (("decimal", Decimal("1.5")), ("float", 1.5), ("fixed", 1_500_000_000)):
        for cut in (0, 1, 2):
            found = OutputFormat(price_type).to_table(rows.slice(cut)).column("legs").to_pylist()
            ratios = [[each["leg_ratio"] for each in some] for some in found]
            assert ratios == [[], [value, None], [value]][cut:]
            assert [[each["leg_id"] for each in some] for some in found] == [[], [7, 7], [7]][cut:]


def test_an_unknown_price_type_is_refused() -> None:
    with pytest.raises(UmdfError, match="invalid price_type: 'double'; use decimal, fixed or float"):
        OutputFormat("double")
