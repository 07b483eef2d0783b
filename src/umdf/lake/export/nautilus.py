"""Rows of the lake → NautilusTrader data, with the classes of nautilus_trader, for its ParquetDataCatalog.

Invariant: only what Nautilus can represent exactly. A quote needs a price on both sides, a bar needs prices, an order
needs one: rows without them are skipped and counted. Rows that may be wrong are an error, because Nautilus cannot mark
them. `ts_init` is ts_recv, never earlier than in the row before, because a catalog is ordered by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from umdf.errors import UmdfError, require
from umdf.lake.export.instrument_days import InstrumentDay
from umdf.lake.export.nautilus_book import DeltaBuilder
from umdf.lake.export.nautilus_instruments import PACKAGE, UnsupportedTypeError, nautilus_module, price_precision
from umdf.lake.export.nautilus_instruments import to_instrument as instrument_of
from umdf.lake.export.order_flow import MBO_COLUMNS, TOP_COLUMNS, UntrustedDataError, merge_rows
from umdf.market.families import MAYBE_BAD_BOOK
from umdf.units import fix_decimal

if TYPE_CHECKING:
    from umdf.lake.export.job import ExportJob

pc: Any = pyarrow.compute  # its functions are created at run time
BAR_SIZES = {
    "ohlcv_1s": ("SECOND", 1),
    "ohlcv_1m": ("MINUTE", 60),
    "ohlcv_1h": ("HOUR", 3600),
    "ohlcv_1d": ("DAY", 86_400),
}
SECOND_NS = 10**9
QUOTE_COLUMNS = ("bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00")
BAR_COLUMNS = ("open", "high", "low", "close", "volume")
MIN_FILE_DELTAS = 500_000  # minimum deltas per file
DELETED = "D"
LEFT_OUT = {"mbp_1": "best prices of one side only", "trades": "busts, and trades without price or size"}


def write(job: ExportJob) -> None:
    """Write a catalog: the instruments, and the data of each in consecutive files."""
    require(PACKAGE, "a Nautilus catalog")
    catalog = import_module(f"{PACKAGE}.persistence.catalog").ParquetDataCatalog(str(job.directory))
    for one in sorted({one for day in job.days for one in day.instruments}):
        days = [day for day in job.days if one in day.instruments]
        listed = [row for day in days for row in InstrumentDay(day, one).read("definition", whole_day=True).to_pylist()]
        defined = [row for row in listed if row["action"] != DELETED] or listed
        try:
            instrument = instrument_of(one, defined[-1], price_precision(defined))
        except UnsupportedTypeError:
            if job.days[0].request.symbols is not None:
                raise
            job.count_left_out("instruments of types that Nautilus does not support", 1)
            continue
        catalog.write_data([instrument])
        job.count(type(instrument).__name__, 1)
        scale = PriceScale(str(one), instrument.price_precision)
        for day in days:
            for table in job.tables:
                if table != "definition":
                    _write(job, catalog, InstrumentDay(day, one), table, instrument.id, scale)


def _write(
    job: ExportJob, catalog: Any, instrument_day: InstrumentDay, table: str, instrument_id: Any, scale: PriceScale
) -> None:
    try:
        chunks = (
            _convert_deltas(job, instrument_day, instrument_id, scale)
            if table == "mbo"
            else _convert_ticks(job, instrument_day, table, instrument_id, scale)
        )
        for chunk in chunks:
            catalog.write_data(chunk)
            job.count(type(chunk[0]).__name__, len(chunk))
    except UntrustedDataError as error:
        job.skip_instrument(instrument_day, error)


def _convert_ticks(
    job: ExportJob, instrument_day: InstrumentDay, table: str, instrument_id: Any, scale: PriceScale
) -> list[list[Any]]:
    rows = instrument_day.read_single_channel(table)
    reject_unverified(rows, instrument_day.name, table)
    scale.check_prices(rows, PRICE_COLUMNS[table])
    ticks, left_out = CONVERTERS[table](rows, instrument_id, scale)
    job.count_left_out(LEFT_OUT.get(table, "bars without prices"), left_out)
    return [ticks] if ticks else []


def _convert_deltas(
    job: ExportJob, instrument_day: InstrumentDay, instrument_id: Any, scale: PriceScale
) -> list[list[Any]]:
    mbo = instrument_day.read_single_channel("mbo", MBO_COLUMNS, whole_day=True)
    if not mbo.num_rows:
        return []
    scale.check_prices(mbo, PRICE_COLUMNS["mbo"])
    tops = instrument_day.read_single_channel("mbp_1", TOP_COLUMNS, whole_day=True)
    builder = DeltaBuilder(instrument_day.name, instrument_id, scale.precision, scale.price_factor, scale.size_factor)
    events = builder.events(merge_rows(instrument_day.name, mbo, tops), instrument_day.day.window)
    made = list(split_into_files(events))  # the whole day first, so that an error at its end leaves nothing behind
    job.count_left_out("changes of orders without price", builder.left_out)
    return made


def split_into_files(events: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """One list per file: whole events, and no timestamp in two files, as a catalog requires."""
    chunk: list[Any] = []
    for event in events:
        if len(chunk) >= MIN_FILE_DELTAS and event[0].ts_init > chunk[-1].ts_init:
            yield chunk
            chunk = []
        chunk += event
    if chunk:
        yield chunk


class PriceScale:
    """Converts an instrument's prices from units of 1e-9 to Nautilus' raw numbers, with a fixed precision."""

    def __init__(self, symbol: str, precision: int) -> None:

        self.symbol, self.precision = symbol, precision
        self.price_factor = 10 ** (nautilus_module("objects").FIXED_PRECISION - 9)
        self.size_factor = 10 ** nautilus_module("objects").FIXED_PRECISION

    def check_prices(self, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Raise if a price needs more digits than the instrument has."""
        unit = 10 ** (9 - self.precision)
        for name in columns:
            prices = np.asarray(pc.drop_null(rows.column(name)).combine_chunks())
            wrong = prices[prices % unit != 0]
            if len(wrong):
                reason = f"{self.symbol}: price {fix_decimal(int(wrong[0]), -9)} is not a multiple of the tick"
                raise UmdfError(reason, "exclude this instrument (Nautilus has one precision per instrument)")


def to_quote_ticks(rows: pa.Table, instrument_id: Any, scale: PriceScale) -> tuple[list[Any], int]:
    """`mbp_1` → QuoteTick; rows without a price on both sides are skipped."""
    complete, make = _drop_incomplete(rows, QUOTE_COLUMNS), nautilus_module("data").QuoteTick.from_raw
    p, z, digits = scale.price_factor, scale.size_factor, scale.precision
    ticks = [
        make(instrument_id, bid * p, ask * p, digits, digits, bid_size * z, ask_size * z, 0, 0, ts, ts_init)
        for (bid, ask, bid_size, ask_size), ts, ts_init in zip(
            _values(complete, QUOTE_COLUMNS), *_times(complete), strict=True
        )
    ]
    return ticks, rows.num_rows - len(ticks)


def to_trade_ticks(rows: pa.Table, instrument_id: Any, scale: PriceScale) -> tuple[list[Any], int]:
    """`trades` → TradeTick; busts, and trades without price or size, are skipped."""
    make, name, aggressor_side = (
        nautilus_module("data").TradeTick.from_raw,
        nautilus_module("identifiers").TradeId,
        nautilus_module("enums").AggressorSide,
    )
    sides = {"B": aggressor_side.BUYER, "A": aggressor_side.SELLER, "N": aggressor_side.NO_AGGRESSOR}
    complete = _drop_incomplete(rows.filter(pc.equal(rows.column("action"), "A")), ("price", "size"))
    complete = complete.filter(pc.greater(complete.column("size"), 0))
    columns = ("price", "size", "side", "trade_id", "sequence", "entry_index")
    ticks = []
    for (price, size, side, number, *place), ts, ts_init in zip(
        _values(complete, columns), *_times(complete), strict=True
    ):
        trade_id = name(str(number) if number is not None else "-".join(map(str, place)))
        raw = (price * scale.price_factor, scale.precision, size * scale.size_factor, 0)
        ticks.append(make(instrument_id, *raw, sides[side], trade_id, ts, ts_init))
    return ticks, rows.num_rows - len(ticks)


def to_bars(rows: pa.Table, instrument_id: Any, scale: PriceScale, table: str) -> tuple[list[Any], int]:
    """`ohlcv_…` → Bar, stamped with the end of its interval; those without prices are skipped."""
    word, seconds = BAR_SIZES[table]
    kind = nautilus_module("data").BarType.from_str(f"{instrument_id}-1-{word}-LAST-EXTERNAL")
    kept, make, made = _drop_incomplete(rows, BAR_COLUMNS), nautilus_module("data").Bar.from_raw, []
    for (*prices, volume), start in zip(
        _values(kept, BAR_COLUMNS), kept.column("ts_interval").to_pylist(), strict=True
    ):
        raw, end = [price * scale.price_factor for price in prices], start + seconds * SECOND_NS
        made.append(make(kind, *raw, scale.precision, volume * scale.size_factor, 0, end, end))
    return made, rows.num_rows - len(made)


def reject_unverified(rows: pa.Table, symbol: str, table: str) -> None:
    flags = rows.column("flags")
    is_unverified = pc.not_equal(pc.bit_wise_and(flags, pa.scalar(MAYBE_BAD_BOOK, flags.type)), 0)
    count = pc.sum(is_unverified).as_py() or 0
    if count:
        reason = f"{symbol}: {count:,} rows of {table} may be wrong because of gaps, which Nautilus cannot mark"
        raise UntrustedDataError(reason, "skip them with --exclude-stale")


CONVERTERS: dict[str, Callable[[pa.Table, Any, PriceScale], tuple[list[Any], int]]] = {
    "mbp_1": to_quote_ticks,
    "trades": to_trade_ticks,
    **{name: (lambda rows, of, scale, table=name: to_bars(rows, of, scale, table)) for name in BAR_SIZES},
}
PRICE_COLUMNS = {
    "mbo": ("price",),
    "mbp_1": QUOTE_COLUMNS[:2],
    "trades": ("price",),
    **dict.fromkeys(BAR_SIZES, BAR_COLUMNS[:4]),
}


def _drop_incomplete(rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    for name in columns:
        rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def _values(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)


def _times(rows: pa.Table) -> tuple[list[int], list[int]]:
    """ts_event (ts_send if absent), and ts_recv, made non-decreasing."""
    events = pc.coalesce(rows.column("ts_event"), rows.column("ts_send"), rows.column("ts_recv")).to_pylist()
    return events, list(accumulate(rows.column("ts_recv").to_pylist(), max))
