"""Rows of the lake → tables in Databento's format.

Invariant: a value that does not fit the type of Databento's column is an error that names the instrument, never a
truncated number. Rows that Databento's schema cannot represent are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from umdf.errors import UmdfError, UsageError, one_of
from umdf.lake.export.databento_columns import (
    PRICE,
    SCHEMAS,
    TEXT,
    TIME,
    UNDEFINED,
    UNDEFINED_PRICE,
    UTC_NS,
    DatabentoField,
    DatabentoSchema,
)
from umdf.lake.export.definitions import to_definition_records
from umdf.lake.schemas import table as table_named

if TYPE_CHECKING:
    from umdf.lake.export.job import ExportJob, Options

pc: Any = pyarrow.compute  # its functions are created at run time

PUBLISHER_ID = 65_000  # not used by Databento, which numbers publishers from 1
DAY_NS = 86_400 * 10**9
DATASET = "bvmf-umdf"
PRICE_TYPES = ("float", "fixed")
TABLES_WITH_DAILY_FILES = frozenset({"definition", "ohlcv_1d"})  # few rows per instrument: one file per date
WRITE_ROWS = 1 << 20
LEFT_OUT = {"trades": "trade busts", "statistics": "statistics without a Databento type"}
I32 = np.iinfo(np.int32)
DATABENTO_FLAGS = 0xFF  # our other flags have no bit there
MAX_STAT_TYPE = 99  # up to here both use the same numbers

# 625 and 326 → Databento's StatusAction, is_trading, is_quoting.
STATUS_ACTIONS = {
    2: (9, "N", "N"),  # pause
    4: (12, "N", "N"),  # close
    17: (7, "Y", "Y"),  # open
    18: (15, "N", "N"),  # pre-close of a group, forbidden for an instrument: not available
    21: (1, "N", "Y"),  # pre-open, reserved: an auction call
    101: (11, "N", "Y"),  # final closing call
}
UNKNOWN_STATUS = (0, "~", "~")
SESSION_CHANGE, CHANGE_TRADING_SESSION = 4, 2  # 1174 → TradingEvent
UPDATE_ACTIONS = {"A": 1, "C": 2}


@dataclass(frozen=True)
class DatabentoOptions:
    publisher_id: int = PUBLISHER_ID
    is_fixed_price: bool = False  # prices as int64 of 1e-9 instead of floats
    is_wide: bool = False  # uint32 columns become uint64


def write(job: ExportJob) -> None:
    """One file per schema, date and instrument, as Databento splits by symbol; those of TABLES_WITH_DAILY_FILES have
    all instruments."""
    form = parse_options(job.options)
    for day in job.days:
        for table in job.tables:
            if table in TABLES_WITH_DAILY_FILES:
                _write(job, form, table, day.read(table, None, source_columns(table), whole_day=False), day.date)
        for instrument_day in day.instrument_days() if set(job.tables) - TABLES_WITH_DAILY_FILES else ():
            for table in job.tables:
                if table not in TABLES_WITH_DAILY_FILES:
                    _write(
                        job,
                        form,
                        table,
                        instrument_day.read(table, source_columns(table)),
                        day.date,
                        instrument_day.instrument.file_name,
                    )


def _write(job: ExportJob, form: DatabentoOptions, table: str, rows: pa.Table, day: date, instrument: str = "") -> None:
    if not rows.num_rows:
        return
    shape = databento_schema(table)
    path = job.new_file(".".join(filter(None, (f"{DATASET}-{day:%Y%m%d}", shape.schema, instrument, "parquet"))))
    schema = shape.arrow_schema(form.is_fixed_price, form.is_wide)
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for first in range(0, rows.num_rows, WRITE_ROWS):
            made, left_out = to_databento(rows.slice(first, WRITE_ROWS), table, form)
            file.write_table(made)
            count += made.num_rows
            job.count_left_out(LEFT_OUT.get(table, table), left_out)
    job.count(shape.schema, count)
    if not count:
        path.unlink()


def source_columns(table: str) -> list[str] | None:
    """The columns to read; all of them for definitions."""
    if table == "definition":
        return None
    wanted = {
        *databento_schema(table).sources,
        "ts_send",
        "ts_recv",
        "symbol",
        "action",
        "stat_type",
        "state",
        "phase",
        "event",
    }
    return [name for name in table_named(table).schema.names if name in wanted]


def to_databento(rows: pa.Table, table: str, options: DatabentoOptions = DatabentoOptions()) -> tuple[pa.Table, int]:  # noqa: B008
    """Rows of a table of the lake (prices fixed, times in ns) in Databento's format, and how many were skipped."""
    shape = databento_schema(table)
    prepared = PREPARE.get(table, _unchanged)(rows)
    left_out = 0 if table == "definition" else rows.num_rows - prepared.num_rows
    prepared = _with_common_columns(prepared, shape, options)
    arrays = [_field_array(prepared, field, options) for field in shape.fields]
    return pa.Table.from_arrays(arrays, schema=shape.arrow_schema(options.is_fixed_price, options.is_wide)), left_out


def databento_schema(table: str) -> DatabentoSchema:
    shape = SCHEMAS.get(table)
    if shape is None:
        raise UsageError(f"no Databento schema for {table}", f"available: {', '.join(SCHEMAS)}")
    return shape


def _with_common_columns(rows: pa.Table, shape: DatabentoSchema, form: DatabentoOptions) -> pa.Table:
    computed: dict[str, Any] = {
        "rtype": pa.repeat(pa.scalar(shape.rtype, pa.int64()), rows.num_rows),
        "publisher_id": pa.repeat(pa.scalar(form.publisher_id, pa.int64()), rows.num_rows),
    }
    names = set(rows.column_names)
    if "flags" in names:
        computed["flags"] = pc.bit_wise_and(
            rows.column("flags"), pa.scalar(DATABENTO_FLAGS, rows.schema.field("flags").type)
        )
    if {"ts_recv", "ts_send"} <= names:
        # Time from sending to ts_recv; clamped, as more than two seconds do not fit.
        delta = pc.fill_null(pc.subtract(rows.column("ts_recv"), rows.column("ts_send")), 0)
        computed["ts_in_delta"] = pc.min_element_wise(pc.max_element_wise(delta, int(I32.min)), int(I32.max))
    return _with_columns(rows, computed)


def _with_columns(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.append_column(name, values) if place < 0 else rows.set_column(place, name, values)
    return rows


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows


def _prepare_trades(rows: pa.Table) -> pa.Table:
    """Databento's schema has only trades (T), no busts."""
    rows = rows.filter(pc.equal(rows.column("action"), "A"))
    count = rows.num_rows
    return _with_columns(rows, {"action": pa.repeat("T", count), "depth": pa.repeat(pa.scalar(0, pa.int64()), count)})


def _prepare_statistics(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.less_equal(rows.column("stat_type"), MAX_STAT_TYPE))
    update_actions = [UPDATE_ACTIONS[action] for action in rows.column("action").to_pylist()]
    return _with_columns(rows, {"databento_action": pa.array(update_actions, pa.int64())})


def _prepare_status(rows: pa.Table) -> pa.Table:
    """Rows of instruments only: the phase of a group has no instrument."""
    rows = rows.filter(pc.is_valid(rows.column("instrument_id")))
    codes = pc.coalesce(rows.column("state"), rows.column("phase")).to_pylist()
    status_actions = [STATUS_ACTIONS.get(code, UNKNOWN_STATUS) for code in codes]
    events = [CHANGE_TRADING_SESSION if event == SESSION_CHANGE else 0 for event in rows.column("event").to_pylist()]
    return _with_columns(
        rows,
        {
            "databento_action": pa.array([action for action, _, _ in status_actions], pa.int64()),
            "is_trading": pa.array([trading for _, trading, _ in status_actions], pa.string()),
            "is_quoting": pa.array([quoting for _, _, quoting in status_actions], pa.string()),
            "databento_event": pa.array(events, pa.int64()),
        },
    )


PREPARE: dict[str, Callable[[pa.Table], pa.Table]] = {
    "trades": _prepare_trades,
    "tbbo": _prepare_trades,
    "statistics": _prepare_statistics,
    "status": _prepare_status,
    "definition": to_definition_records,
}


def _field_array(rows: pa.Table, field: DatabentoField, form: DatabentoOptions) -> pa.Array:
    values = rows.column(field.source) if field.source in rows.column_names else None
    if field.type == TEXT:
        return _text_array(values, field, rows.num_rows)
    if field.type == TIME:
        return _time_array(values, rows.num_rows)
    numbers = _int64_array(values, rows.num_rows)
    if field.type == PRICE:
        return _price_array(numbers, form.is_fixed_price)
    return _integer_array(numbers, field, field.arrow_type(form.is_fixed_price, form.is_wide), rows)


def _text_array(values: Any, field: DatabentoField, count: int) -> pa.Array:
    if values is None:
        return pa.repeat(str(field.absent), count)
    return pc.fill_null(values.cast(pa.string()), str(field.absent)).combine_chunks()


def _time_array(values: Any, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, UTC_NS)
    if pa.types.is_date32(values.type):
        values = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY_NS)
    return values.cast(pa.int64()).cast(UTC_NS).combine_chunks()


def _int64_array(values: Any, count: int) -> pa.Array:
    return pa.nulls(count, pa.int64()) if values is None else values.cast(pa.int64()).combine_chunks()


def _price_array(values: pa.Array, fixed: bool) -> pa.Array:
    if fixed:
        return pc.fill_null(values, UNDEFINED_PRICE)
    known = np.asarray(pc.fill_null(values, 0)) / 1e9
    known[np.asarray(pc.is_null(values))] = np.nan
    return pa.array(known, pa.float64())


def _integer_array(values: pa.Array, field: DatabentoField, kind: pa.DataType, rows: pa.Table) -> pa.Array:
    target_dtype = np.dtype(kind.to_pandas_dtype())
    limits = np.iinfo(target_dtype)
    absent = int(limits.max) if field.absent == UNDEFINED else int(field.absent)
    numbers: NDArray[Any] = np.asarray(pc.fill_null(values, 0))
    if target_dtype.kind == "u":
        numbers = numbers.view(np.uint64)  # unsigned on the wire, stored bit-cast
    wrong = np.flatnonzero(numbers > limits.max)
    if target_dtype.kind == "i":
        wrong = np.flatnonzero((numbers > limits.max) | (numbers < limits.min))
    if len(wrong):
        raise _overflow_error(field, int(numbers[wrong[0]]), kind, rows.column("symbol")[int(wrong[0])].as_py())
    converted = numbers.astype(target_dtype)
    converted[np.asarray(pc.is_null(values))] = absent
    return pa.array(converted, kind)


def _overflow_error(field: DatabentoField, value: int, kind: pa.DataType, symbol: str | None) -> UmdfError:
    hint = "use --wide-integers" if kind == pa.uint32() else "exclude this instrument"
    return UmdfError(
        f"{symbol or 'an instrument without a symbol'}: {field.name} {value} does not fit Databento's {kind}", hint
    )


def parse_options(options: Options) -> DatabentoOptions:
    """Options from the command line."""
    if not 0 <= options.publisher_id <= np.iinfo(np.uint16).max:
        raise UsageError(f"publisher ID out of range: {options.publisher_id}", "use 0 to 65535")
    if options.price_type not in PRICE_TYPES:
        raise UsageError(f"invalid price type: {options.price_type}", f"use {one_of(PRICE_TYPES)}")
    return DatabentoOptions(options.publisher_id, options.price_type == "fixed", options.wide_integers)
