"""Events as Arrow: every family, every type of column, and what is absent."""

from __future__ import annotations

import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from market.event_builders import MORNING_NS, build_events, define, statistic, trade

from umdf.market.arrow import record_batch, schema
from umdf.market.calendar import DAY_NS, local_date, local_dates, transitions
from umdf.market.families import COMMON, FAMILIES, NULL, NULL_I32, Column
from umdf.market.instruments import Instruments
from umdf.market.rows import Events, Rows


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("joined", [False, True])
def test_a_family_without_rows_is_an_empty_batch_of_its_schema(name: str, joined: bool) -> None:
    family = FAMILIES[name]
    batch = record_batch(build_events(), name, Instruments() if joined else None)
    assert batch.schema.equals(schema(family, joined=joined), check_metadata=True) and batch.num_rows == 0
    batch.validate(full=True)


def value_for(column: Column, i: int) -> object:
    return {"text": f"é{i}", "char": chr(65 + i)}.get(column.type, i + 1)


def expected_of(column: Column, value: object) -> object:
    if value is None:
        return None if column.nullable else {"char": "\0"}.get(column.type, 0)
    if column.type == "volume":
        return Decimal(int(str(value))).scaleb(-4)
    if column.type == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(int(str(value)))
    return value


@pytest.mark.parametrize("name", FAMILIES)
def test_every_column_of_every_family_shows_its_values_and_its_absence(name: str) -> None:
    family = FAMILIES[name]
    own = [column for column in (*COMMON[7:], *family.columns)]
    full = [{column.name: value_for(column, i) for column in own} for i in range(3)]
    entry = {
        item: [{c.name: value_for(c, i) for c in fields} for i in range(2)] for item, fields in family.lists.items()
    }
    gaps = {item: [{}] for item in family.lists}
    batch = record_batch(build_events((name, full[0] | entry), (name, gaps), (name, full[2])), name)
    batch.validate(full=True)
    found = batch.to_pylist()
    for column in own:
        shown = [row[column.name] for row in found]
        assert shown == [expected_of(column, v) for v in (full[0][column.name], None, full[2][column.name])], column
    for item, fields in family.lists.items():
        assert found[0][item] == [{c.name: expected_of(c, e[c.name]) for c in fields} for e in entry[item]]
        assert found[1][item] == [{c.name: None for c in fields}] and found[2][item] == []


def test_a_column_that_the_wire_does_not_have_is_null_throughout() -> None:
    zeros = np.zeros(2, np.uint16)
    rows = Rows(FAMILIES["trades"], np.arange(2, dtype=np.uint32), zeros, zeros, {"price": np.array([1, NULL])})
    batch = record_batch(Events(build_events(trade(1, 1, 1, 1), trade(1, 1, 1, 1)).units, {"trades": rows}), "trades")
    batch.validate(full=True)
    assert batch["price"].to_pylist() == [1, None] and batch["tick_direction"].null_count == 2
    assert batch["conditions"].to_pylist() == [0, 0] and batch["trade_date"].type == pa.date32()


def test_packet_columns_symbol_and_trading_date_are_added_to_each_row() -> None:
    instruments, night = Instruments(), MORNING_NS - 10 * 3600 * 10**9  # 02:00 UTC is the evening before
    definitions = build_events(define(1, "PETR4"))
    instruments.apply(definitions.rows("definition"), definitions.units, intraday=False)
    events = build_events(statistic(1, 4, 1), trade(1, 10, 5, 9), trade(2, 10, 5, 10), ts_send=night)
    batch = record_batch(events, "trades", instruments)
    assert batch["sequence"].to_pylist() == [2, 3] and batch["channel_id"].to_pylist() == [72, 72]
    assert batch["symbol"].to_pylist() == ["PETR4", None] and batch["ts_recv"].null_count == 2
    assert batch["trading_date"].to_pylist() == [datetime.date(2026, 11, 12)] * 2
    assert record_batch(events, "statistics", instruments)["symbol"].to_pylist() == ["PETR4"]
    assert record_batch(definitions, "definition", instruments).schema.names.count("symbol") == 1


def test_columns_without_nulls_are_not_copied() -> None:
    events = build_events(trade(1, 10, 5, 9), trade(1, 11, 5, 10))
    prices = events.rows("trades").columns["price"]
    array = record_batch(events, "trades")["price"]
    assert array.buffers()[0] is None and array.buffers()[1].address == prices.ctypes.data


def test_invalid_utf8_is_replaced() -> None:
    events = build_events(define(1, "ABÉ"), define(2, "x"))
    rows = events.rows("definition")
    content = rows.texts["symbol"][1]
    rows.texts["symbol"] = np.array([0, 3, 5], np.int32), content  # cut in mid-character
    rows.columns["action"] = np.array([200, 65], np.uint8)
    batch = record_batch(events, "definition")
    batch.validate(full=True)
    assert batch["symbol"].to_pylist() == ["AB\ufffd", "\ufffdx"] and batch["action"].to_pylist() == ["\ufffd", "A"]


def test_a_schema_says_what_its_numbers_mean() -> None:
    fields = schema(FAMILIES["statistics"])
    assert fields.field("price").metadata == {b"doc": b"price (270)", b"unit": b"1e-9", b"scale": b"9"}
    assert fields.field("financial_volume").type == pa.decimal128(28, 4)
    assert all(field.metadata[b"doc"] for field in fields) and fields.metadata[b"family"] == b"statistics"
    assert not fields.field("stat_type").nullable and fields.field("price").nullable


@given(st.lists(st.integers(631_152_000, 2_840_140_800 - 1), max_size=20))
def test_local_dates_are_those_of_the_time_zone(seconds: list[int]) -> None:
    zone, epoch = ZoneInfo("America/Sao_Paulo"), datetime.date(1970, 1, 1)
    expected = [(datetime.datetime.fromtimestamp(s, zone).date() - epoch).days for s in seconds]
    assert local_dates(np.array(seconds, np.int64) * 10**9).tolist() == expected


def test_daylight_saving_moved_midnight_until_2019() -> None:
    summer, winter = datetime.datetime(2019, 1, 10, 2, 30), datetime.datetime(2019, 7, 10, 2, 30)
    days = [local_date(round(t.replace(tzinfo=datetime.UTC).timestamp()) * 10**9) for t in (summer, winter)]
    assert [datetime.date(1970, 1, 1) + datetime.timedelta(day) for day in days] == [
        datetime.date(2019, 1, 10),
        datetime.date(2019, 7, 9),
    ]
    when, offsets = transitions()
    assert len(offsets) == len(when) + 1 and offsets[-1] == -3 * 3600 * 10**9
    assert all(local_date(int(t) - 1) <= local_date(int(t)) for t in when)


def test_an_absent_time_has_no_date_and_extreme_times_do_not_overflow() -> None:
    ends = np.array([NULL, NULL + 1, (1 << 63) - 1, 0, DAY_NS])
    assert local_dates(ends).tolist()[0] == NULL_I32 and local_dates(ends).tolist()[3:] == [-1, 0]
