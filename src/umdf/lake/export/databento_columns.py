"""The format of Databento's Parquet files: the columns of each schema, their types and their sources.

Invariant: names, types and order are those of `databento.DBNStore.to_parquet` (DBN version 3); a value that the
exchange does not publish is undefined as in DBN (the maximum of the type, no price, no time, an empty string), never a
guess. docs/export.md lists columns without a counterpart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.schemas import levels

PRICE, TIME, TEXT = "price", "time", "text"
UNDEFINED = "undefined"  # absent values become the maximum of the type
UNDEFINED_PRICE = (1 << 63) - 1
UTC_NS = pa.timestamp("ns", "UTC")


@dataclass(frozen=True)
class DatabentoField:
    name: str
    type: str  # a numpy type (u4), or PRICE, TIME, TEXT
    source: str | None  # column of our rows; None: always `absent`
    absent: int | str = 0  # value if our rows have none

    def arrow_type(self, fixed: bool, wide_integers: bool) -> pa.DataType:
        special = {PRICE: pa.int64() if fixed else pa.float64(), TIME: UTC_NS, TEXT: pa.string()}
        if self.type in special:
            return special[self.type]
        return pa.from_numpy_dtype(np.dtype("u8" if wide_integers and self.type == "u4" else self.type))


@dataclass(frozen=True)
class DatabentoSchema:
    schema: str  # Databento's name: mbp-1
    table: str  # table of the lake: mbp_1
    rtype: int
    fields: tuple[DatabentoField, ...]  # the index last, as pandas writes it

    @property
    def sources(self) -> list[str]:
        return [field.source for field in self.fields if field.source]

    def arrow_schema(self, fixed: bool, wide_integers: bool) -> pa.Schema:
        fields = [pa.field(field.name, field.arrow_type(fixed, wide_integers)) for field in self.fields]
        return pa.schema(fields, {"pandas": _pandas_metadata(fields)})


def _pandas_metadata(fields: Sequence[pa.Field]) -> str:
    """Metadata that lets pandas restore the last column as the index."""
    columns = [
        {"name": field.name, "field_name": field.name, **_pandas_type(field.type)} for field in fields
    ]  # fmt: skip
    names = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    return json.dumps(
        {
            "index_columns": [fields[-1].name],
            "column_indexes": [{**names, "metadata": {"encoding": "UTF-8"}}],
            "columns": columns,
            "attributes": {},
            "creator": {"library": "pyarrow", "version": pa.__version__},
            "pandas_version": "2.3.3",
        }
    )


def _pandas_type(kind: pa.DataType) -> dict[str, Any]:
    if kind == UTC_NS:
        return {"pandas_type": "datetimetz", "numpy_type": "datetime64[ns]", "metadata": {"timezone": "UTC"}}
    if kind == pa.string():
        return {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    name = {"double": "float64"}.get(str(kind), str(kind))
    return {"pandas_type": name, "numpy_type": name, "metadata": None}


def _parse_fields(text: str) -> tuple[DatabentoField, ...]:
    """Lines of `name type source absent`; a source of `-` is none, a missing one is the name of the field."""
    found = []
    for line in text.strip().splitlines():
        name, kind, *more = line.split()
        source = (more[0] if more else name).replace("-", "") or None
        absent: int | str = more[1] if len(more) > 1 else ("" if kind == TEXT else 0)
        found.append(DatabentoField(name, kind, source, int(absent) if str(absent).isdecimal() else absent))
    return tuple(found)


_HEADER_FIELDS = _parse_fields("""
ts_event       time
rtype          u1
publisher_id   u2
instrument_id  u4
""")
_SYMBOL, _RECEIVED = _parse_fields("symbol text"), _parse_fields("ts_recv time")
_LEVEL_TYPES = {"price": PRICE, "i64": "u4", "i32": "u4"}
_ROW_END = _parse_fields("""
flags          u1
ts_in_delta    i4
sequence       u4
""")
_CHANGE = _parse_fields("""
action         text
side           text
depth          u1   depth undefined
price          price
size           u4
""")


def _levels(depth: int) -> tuple[DatabentoField, ...]:
    return tuple(DatabentoField(column.name, _LEVEL_TYPES[column.type], column.name) for column in levels(depth))


def _schema(
    schema: str, rtype: int, *parts: tuple[DatabentoField, ...], index: tuple[DatabentoField, ...] = _RECEIVED
) -> DatabentoSchema:
    return DatabentoSchema(schema, schema.replace("-", "_"), rtype, sum((*parts, _SYMBOL, index), ()))


_MBO = _parse_fields("""
action         text
side           text
price          price
size           u4
channel_id     u1
order_id       u8
""")
_BBO = _parse_fields("""
side           text - N
price          price
size           u4
flags          u1
sequence       u4
""")
_BAR = _parse_fields("""
open           price
high           price
low            price
close          price
volume         u8
""")
_STATISTICS = _parse_fields("""
ts_ref         time  trade_date
price          price
quantity       i8    size undefined
sequence       u4
ts_in_delta    i4
stat_type      u2
channel_id     u2
update_action  u1    databento_action
stat_flags     u1    -
""")
_STATUS = _parse_fields("""
action         u2   databento_action
reason         u2   -
trading_event  u2   databento_event
is_trading     text
is_quoting     text
is_short_sell_restricted text - ~
""")
_DEFINITION = _parse_fields("""
raw_symbol            text   symbol
security_update_action text  action
instrument_class      text
min_price_increment   price  tick
display_factor        price  fixed_one
expiration            time   maturity_date
activation            time   -
high_limit_price      price  -
low_limit_price       price  -
max_price_variation   price  -
unit_of_measure_qty   price  contract_multiplier
min_price_increment_amount price -
price_ratio           price  -
inst_attrib_value     i4     - undefined
underlying_id         u4
raw_instrument_id     u8     instrument_id
market_depth_implied  i4     - undefined
market_depth          i4     - undefined
market_segment_id     u4     market_segment_id undefined
max_trade_vol         u4     - undefined
min_lot_size          i4     min_lot_size undefined
min_lot_size_block    i4     - undefined
min_lot_size_round_lot i4    round_lot undefined
min_trade_vol         u4     min_trade_vol undefined
contract_multiplier   i4     - undefined
decay_quantity        i4     - undefined
original_contract_size i4    - undefined
appl_id               i2     - undefined
maturity_year         u2     maturity_year undefined
decay_start_date      u2     - undefined
channel_id            u2
currency              text
settl_currency        text
secsubtype            text   security_sub_type
group                 text   security_group
exchange              text   security_exchange
asset                 text
cfi                   text   cfi_code
security_type         text
unit_of_measure       text   -
underlying            text   underlying_symbol
strike_price_currency text   strike_currency
strike_price          price
match_algorithm       text   -
main_fraction         u1     - undefined
price_display_format  u1     - undefined
sub_fraction          u1     - undefined
underlying_product    u1     - undefined
maturity_month        u1     maturity_month undefined
maturity_day          u1     maturity_day undefined
maturity_week         u1     - undefined
user_defined_instrument text user_defined
contract_multiplier_unit i1  - undefined
flow_schedule_type    i1     - undefined
tick_rule             u1     - undefined
leg_count             u2
leg_index             u2
leg_instrument_id     u4     leg_id
leg_raw_symbol        text   leg_symbol
leg_instrument_class  text
leg_side              text   leg_side N
leg_price             price  -
leg_delta             price  -
leg_ratio_price_numerator i4   -
leg_ratio_price_denominator i4 -
leg_ratio_qty_numerator i4
leg_ratio_qty_denominator i4
leg_underlying_id     u4     -
""")
_INTERVAL_FIELD = _parse_fields("ts_event time ts_interval")

SCHEMAS = {
    shape.table: shape
    for shape in (
        _schema("mbo", 160, _HEADER_FIELDS, _MBO, _ROW_END),
        _schema("mbp-1", 1, _HEADER_FIELDS, _CHANGE, _ROW_END, _levels(1)),
        _schema("mbp-10", 10, _HEADER_FIELDS, _CHANGE, _ROW_END, _levels(10)),
        _schema("trades", 0, _HEADER_FIELDS, _CHANGE, _ROW_END),
        _schema("tbbo", 1, _HEADER_FIELDS, _CHANGE, _ROW_END, _levels(1)),
        *(
            _schema(schema, rtype, _HEADER_FIELDS, _BBO, _levels(1), index=_parse_fields("ts_recv time ts_interval"))
            for schema, rtype in (("bbo-1s", 195), ("bbo-1m", 196))
        ),
        *(
            _schema(schema, rtype, _HEADER_FIELDS[1:], _BAR, index=_INTERVAL_FIELD)
            for schema, rtype in (("ohlcv-1s", 32), ("ohlcv-1m", 33), ("ohlcv-1h", 34), ("ohlcv-1d", 35))
        ),
        _schema("statistics", 24, _HEADER_FIELDS, _STATISTICS),
        _schema("status", 18, _HEADER_FIELDS, _STATUS),
        _schema("definition", 19, _HEADER_FIELDS, _DEFINITION),
    )
}
