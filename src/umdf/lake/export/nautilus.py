"""Rows of the lake → data of Nautilus, by the real classes of nautilus_trader, for its ParquetDataCatalog.

The one rule: only what Nautilus can say truly. A quote needs a price on both sides, a bar needs prices, an order needs
one: rows that lack them are left out and counted. Rows that may be wrong are refused: Nautilus has no mark for doubt.
`ts_init` is ts_recv, never earlier than the row before, because a catalog is ordered by it.
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
from umdf.lake.export.nautilus_book import Deltas
from umdf.lake.export.nautilus_instruments import PACKAGE, UnknownTypeError, nautilus, precision_of
from umdf.lake.export.nautilus_instruments import instrument as instrument_of
from umdf.lake.export.orderflow import MBO_COLUMNS, TOP_COLUMNS, DoubtError, rows_of
from umdf.lake.export.pieces import Piece
from umdf.market.events import MAYBE_BAD_BOOK
from umdf.units import plain_decimal_text

if TYPE_CHECKING:
    from umdf.lake.export.job import Job

pc: Any = pyarrow.compute  # its functions are made at run time
BAR_SIZES = {
    "ohlcv_1s": ("SECOND", 1),
    "ohlcv_1m": ("MINUTE", 60),
    "ohlcv_1h": ("HOUR", 3600),
    "ohlcv_1d": ("DAY", 86_400),
}
SECOND_NS = 10**9
QUOTE = ("bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00")
BAR = ("open", "high", "low", "close", "volume")
CHUNK = 500_000  # deltas of a file, at least
DELETED = "D"
LEFT_OUT = {"mbp_1": "best prices of one side only", "trades": "busts, and trades without price or size"}


def write(job: Job) -> None:
    """A catalog: the instruments, and the data of each in files that follow one another in time."""
    require(PACKAGE, "a Nautilus catalog")
    catalog = import_module(f"{PACKAGE}.persistence.catalog").ParquetDataCatalog(str(job.made))
    for one in sorted({one for day in job.days for one in day.instruments}):
        days = [day for day in job.days if one in day.instruments]
        listed = [row for day in days for row in Piece(day, one).read("definition", whole=True).to_pylist()]
        defined = [row for row in listed if row["action"] != DELETED] or listed
        try:
            instrument = instrument_of(one, defined[-1], precision_of(defined))
        except UnknownTypeError:
            if job.days[0].asked.symbols is not None:
                raise
            job.leave_out("instruments of types that Nautilus does not have", 1)
            continue
        catalog.write_data([instrument])
        job.count(type(instrument).__name__, 1)
        scale = Scale(str(one), instrument.price_precision)
        for day in days:
            for table in job.tables:
                if table != "definition":
                    _write(job, catalog, Piece(day, one), table, instrument.id, scale)


def _write(job: Job, catalog: Any, piece: Piece, table: str, of: Any, scale: Scale) -> None:
    try:
        chunks = _deltas(job, piece, of, scale) if table == "mbo" else _ticks(job, piece, table, of, scale)
        for chunk in chunks:
            catalog.write_data(chunk)
            job.count(type(chunk[0]).__name__, len(chunk))
    except DoubtError as doubt:
        job.skip(piece, doubt)


def _ticks(job: Job, piece: Piece, table: str, of: Any, scale: Scale) -> list[list[Any]]:
    rows = piece.of_one_channel(table)
    refuse_doubt(rows, piece.name, table)
    scale.refuse(rows, PRICES[table])
    made, left_out = MAKERS[table](rows, of, scale)
    job.leave_out(LEFT_OUT.get(table, "bars without prices"), left_out)
    return [made] if made else []


def _deltas(job: Job, piece: Piece, of: Any, scale: Scale) -> list[list[Any]]:
    mbo = piece.of_one_channel("mbo", MBO_COLUMNS, whole=True)
    if not mbo.num_rows:
        return []
    scale.refuse(mbo, PRICES["mbo"])
    tops = piece.of_one_channel("mbp_1", TOP_COLUMNS, whole=True)
    maker = Deltas(piece.name, of, scale.precision, scale.price, scale.size)
    events = maker.events(rows_of(piece.name, mbo, tops), piece.day.window)
    made = list(in_chunks(events))  # all of a day, so that a doubt at its end leaves nothing of it behind
    job.leave_out("changes of orders without a price", maker.left_out)
    return made


def in_chunks(events: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Lists for a file each: whole events, and no two files share an instant, because a catalog's files must not."""
    chunk: list[Any] = []
    for event in events:
        if len(chunk) >= CHUNK and event[0].ts_init > chunk[-1].ts_init:
            yield chunk
            chunk = []
        chunk += event
    if chunk:
        yield chunk


class Scale:
    """Prices of one instrument: from our 1e-9 to Nautilus' raw numbers, with a fixed number of digits."""

    def __init__(self, symbol: str, precision: int) -> None:

        self.symbol, self.precision = symbol, precision
        self.price = 10 ** (nautilus("objects").FIXED_PRECISION - 9)
        self.size = 10 ** nautilus("objects").FIXED_PRECISION

    def refuse(self, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Prices that need more digits than the instrument has."""
        unit = 10 ** (9 - self.precision)
        for name in columns:
            prices = np.asarray(pc.drop_null(rows.column(name)).combine_chunks())
            wrong = prices[prices % unit != 0]
            if len(wrong):
                reason = f"{self.symbol}: the price {plain_decimal_text(int(wrong[0]), -9)} is no multiple of its tick"
                raise UmdfError(
                    reason, "leave the instrument out: Nautilus has one number of digits for all its prices"
                )


def quotes(rows: pa.Table, of: Any, scale: Scale) -> tuple[list[Any], int]:
    """`mbp_1` → QuoteTick; rows without a price on both sides are left out."""
    kept, make = _complete(rows, QUOTE), nautilus("data").QuoteTick.from_raw
    p, z, digits = scale.price, scale.size, scale.precision
    made = [
        make(of, bid * p, ask * p, digits, digits, bid_size * z, ask_size * z, 0, 0, ts, ts_init)
        for (bid, ask, bid_size, ask_size), ts, ts_init in zip(_values(kept, QUOTE), *_times(kept), strict=True)
    ]
    return made, rows.num_rows - len(made)


def trades(rows: pa.Table, of: Any, scale: Scale) -> tuple[list[Any], int]:
    """`trades` → TradeTick; busts are left out, and trades without price or size."""
    make, name, of_side = (
        nautilus("data").TradeTick.from_raw,
        nautilus("identifiers").TradeId,
        nautilus("enums").AggressorSide,
    )
    sides = {"B": of_side.BUYER, "A": of_side.SELLER, "N": of_side.NO_AGGRESSOR}
    kept = _complete(rows.filter(pc.equal(rows.column("action"), "A")), ("price", "size"))
    kept = kept.filter(pc.greater(kept.column("size"), 0))
    columns = ("price", "size", "side", "trade_id", "sequence", "entry_index")
    made = []
    for (price, size, side, number, *place), ts, ts_init in zip(_values(kept, columns), *_times(kept), strict=True):
        trade_id = name(str(number) if number is not None else "-".join(map(str, place)))
        raw = (price * scale.price, scale.precision, size * scale.size, 0)
        made.append(make(of, *raw, sides[side], trade_id, ts, ts_init))
    return made, rows.num_rows - len(made)


def bars(rows: pa.Table, of: Any, scale: Scale, table: str) -> tuple[list[Any], int]:
    """`ohlcv_…` → Bar, stamped with the end of its interval; those without prices are left out."""
    word, seconds = BAR_SIZES[table]
    kind = nautilus("data").BarType.from_str(f"{of}-1-{word}-LAST-EXTERNAL")
    kept, make, made = _complete(rows, BAR), nautilus("data").Bar.from_raw, []
    for (*prices, volume), start in zip(_values(kept, BAR), kept.column("ts_interval").to_pylist(), strict=True):
        raw, end = [price * scale.price for price in prices], start + seconds * SECOND_NS
        made.append(make(kind, *raw, scale.precision, volume * scale.size, 0, end, end))
    return made, rows.num_rows - len(made)


def refuse_doubt(rows: pa.Table, symbol: str, table: str) -> None:
    flags = rows.column("flags")
    doubtful = pc.not_equal(pc.bit_wise_and(flags, pa.scalar(MAYBE_BAD_BOOK, flags.type)), 0)
    count = pc.sum(doubtful).as_py() or 0
    if count:
        reason = f"{symbol}: {count:,} rows of {table} may be wrong, because something was lost before them"
        raise DoubtError(reason, "leave them out with --exclude-stale; Nautilus has no mark for doubt")


MAKERS: dict[str, Callable[[pa.Table, Any, Scale], tuple[list[Any], int]]] = {
    "mbp_1": quotes,
    "trades": trades,
    **{name: (lambda rows, of, scale, table=name: bars(rows, of, scale, table)) for name in BAR_SIZES},
}
PRICES = {"mbo": ("price",), "mbp_1": QUOTE[:2], "trades": ("price",), **dict.fromkeys(BAR_SIZES, BAR[:4])}


def _complete(rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    for name in columns:
        rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def _values(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)


def _times(rows: pa.Table) -> tuple[list[int], list[int]]:
    """ts_event (ts_send where it is absent), and ts_recv as it never goes back."""
    events = pc.coalesce(rows.column("ts_event"), rows.column("ts_send"), rows.column("ts_recv")).to_pylist()
    return events, list(accumulate(rows.column("ts_recv").to_pylist(), max))
