"""The truth of a bulk capture, as Parquet: the market's own books and statistics, never decoded from packets.

Prices are int64 in units of 1e-9, NULL for a market order; times are nanoseconds UTC. All have `channel_id`.

    final_orders   instrument_id, side, position (1 is the top), price, size, order_id, firm, ts_insert
    final_levels   instrument_id, side, level (1 is the top), price, size, order_count
    trades         instrument_id, ts_event, trade_id, price, size, buyer, seller, side (of the aggressor), conditions,
                   busted: in the order in which they happened
    statistics     instrument_id, stat_type, open_close_settl_flag, settl_price_type, price, size, trade_count,
                   financial_volume (1e-4), net_change, ts_event: what is published when the day ends. A trade volume
                   is sent by FIX/FAST only; quantity, count and change of a VWAP are sent by Binary only
    price_bands    instrument_id, entry_type, price_band_type, price_limit_type, midpoint_type, low_limit_price,
                   high_limit_price, avg_daily_traded_qty, max_trade_vol
    states         instrument_id, state (326, that of its group where it follows it), phase (625), event (1174, absent
                   where none was sent)
    groups         security_group, phase
    instruments    instrument_id, symbol, security_group, security_type, tick, lot, is_listed (at the end of the day)
    loss           protocol, line (A, B, AB: on both), first_sequence, last_sequence: what was dropped of the
                   incremental stream
    sequences      protocol, stream, first_sequence, last_sequence, packets: of the incremental stream; of the others of
                   all loops together
    counts         protocol, stream, family, rows: events that were published (heartbeats and resets are `control`)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market, Records
from umdf.exchange.publish.events import STAT_TYPES
from umdf.exchange.publish.statistic_rows import CHANGING_KINDS, COUNTING_KINDS, FLAGGED_KINDS

ROW_GROUP_ROWS = 1 << 16  # of a Parquet file, so that memory does not grow with the day
TRADES = {
    "instrument_id": k.INSTRUMENT,
    "ts_event": k.TS,
    "trade_id": k.ID,
    "price": k.PRICE,
    "size": k.SIZE,
    "buyer": k.FIRM,
    "seller": k.OTHER,
    "side": k.SIDE,
    "conditions": k.CODE,
    "busted": k.FLAGS,
}
BAND_KINDS = (k.PRICE_BAND, k.QUANTITY_BAND)


class ParquetTable:
    """A Parquet file that grows by row groups."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, columns: dict[str, Any]) -> None:
        batch = pa.RecordBatch.from_pydict(columns, schema=self._schema)
        self._pending.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
        self._pending, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


def _schema(**types: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in types.items()])


TRADES_SCHEMA = _schema(
    channel_id="int16",
    **dict.fromkeys(("instrument_id", "ts_event", "trade_id", "price", "size", "buyer", "seller"), "int64"),
    side="string",
    conditions="int32",
    busted="bool",
)
LOSS_SCHEMA = _schema(
    channel_id="int16", protocol="string", line="string", first_sequence="int64", last_sequence="int64"
)


class Truth:
    """The tables that grow during the day, and those that are written at its end."""

    def __init__(self, directory: Path, channel: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.channel = directory, channel
        self.loss_table = ParquetTable(directory / "loss.parquet", LOSS_SCHEMA)
        self._trade_table = ParquetTable(directory / "trades.parquet", TRADES_SCHEMA)
        self.trade_count = 0

    def add_trades(self, records: Records, instrument_ids: NDArray[np.int64]) -> None:
        """Add the trades among records of the incremental stream."""
        trades = records[records[:, k.KIND] == k.TRADE]
        if not len(trades):
            return
        self.trade_count += len(trades)
        columns: dict[str, Any] = {name: trades[:, column] for name, column in TRADES.items()}
        columns |= {
            "channel_id": np.full(len(trades), self.channel, np.int16),
            "instrument_id": instrument_ids[trades[:, k.INSTRUMENT]],
            "side": _side_names(trades[:, k.SIDE]),
            "conditions": trades[:, k.CODE].astype(np.int32),
            "busted": trades[:, k.FLAGS] & k.BUSTED != 0,
            "buyer": _nullable(trades[:, k.FIRM]),
            "seller": _nullable(trades[:, k.OTHER]),
        }
        self._trade_table.add(columns)

    def add_loss(self, protocol: str, line: str, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        count = len(first)
        if count:
            keys = {"channel_id": [self.channel] * count, "protocol": [protocol] * count, "line": [line] * count}
            self.loss_table.add({**keys, "first_sequence": first, "last_sequence": last})

    def close(self) -> None:
        self.loss_table.close()
        self._trade_table.close()

    def write(self, name: str, columns: dict[str, Any]) -> None:
        rows = len(next(iter(columns.values())))
        table = pa.table({"channel_id": np.full(rows, self.channel, np.int16), **columns})
        pq.write_table(table, self.directory / f"{name}.parquet", compression="zstd")

    def write_market(self, market: Market) -> None:
        """Write the state at the end of the day."""
        self.write("final_orders", final_orders(market))
        self.write("final_levels", final_levels(market))
        statistics, bands = final_statistics(market)
        self.write("statistics", statistics)
        self.write("price_bands", bands)
        table, listing, count = market.instruments, market.listing, len(market.listing)
        is_listed = table[:, k.I_STATE] != k.UNKNOWN
        states = table[is_listed]
        event = states[:, k.I_EVENT]
        self.write(
            "states",
            {
                "instrument_id": states[:, k.I_ID],
                "state": states[:, k.I_STATE],
                "phase": states[:, k.I_PHASE],
                "event": _nullable(event),
            },
        )
        # A group whose only instrument was deleted has no phase.
        listed = [g for g in range(len(listing.groups)) if (is_listed & (listing.group == g)).any()]
        phases = [int(table[(listing.group == g) & is_listed, k.I_PHASE].max()) for g in listed]
        self.write("groups", {"security_group": [listing.groups[g] for g in listed], "phase": phases})
        self.write(
            "instruments",
            {
                "instrument_id": listing.security_id[:count],
                "symbol": listing.symbols,
                "security_group": [listing.groups[g] for g in listing.group[:count].tolist()],
                "security_type": listing.security_types,
                "tick": listing.tick[:count],
                "lot": listing.lot[:count],
                "is_listed": is_listed[:count],
            },
        )


def final_orders(market: Market) -> dict[str, Any]:
    parts: list[NDArray[np.int64]] = [np.zeros((0, 8), np.int64)]
    for row in market.instruments:
        for side in (0, 1):
            count, at = int(row[k.I_BIDS + side]), int(row[k.I_ORDERS_OFFSET] + side * row[k.I_CAPACITY])
            if count == 0 or row[k.I_STATE] == k.UNKNOWN:
                continue
            orders = market.orders[at : at + count][::-1]
            keys = orders[:, k.O_KEY]
            part = np.empty((count, 8), np.int64)
            part[:, 0], part[:, 1], part[:, 2] = row[k.I_ID], (k.BID, k.ASK)[side], np.arange(1, count + 1)
            part[:, 3] = np.where(keys == k.MARKET_ORDER_KEY, k.NULL, (keys if side == 0 else -keys) * row[k.I_TICK])
            part[:, 4:8] = orders[:, [k.O_SIZE, k.O_ID, k.O_FIRM, k.O_INSERT]]
            if market.listing.is_anonymous[int(row[k.I_INDEX])] == 1:
                part[:, 6] = k.NULL
            parts.append(part)
    rows = np.concatenate(parts)
    return {
        "instrument_id": rows[:, 0],
        "side": _side_names(rows[:, 1]),
        "position": rows[:, 2],
        "price": _nullable(rows[:, 3]),
        "size": rows[:, 4],
        "order_id": rows[:, 5],
        "firm": _nullable(rows[:, 6]),
        "ts_insert": rows[:, 7],
    }


def final_levels(market: Market) -> dict[str, Any]:
    orders = final_orders(market)
    table = pa.table({name: orders[name] for name in ("instrument_id", "side", "price", "size")})
    if not table.num_rows:
        return {name: pa.array([], pa.int64()) for name in ("instrument_id", "level", "size", "order_count")}
    instrument, side = orders["instrument_id"], table.column("side").to_numpy(zero_copy_only=False)
    price = np.array([k.NULL if p is None else p for p in table.column("price").to_pylist()], np.int64)
    book = np.ones(len(instrument), bool)
    book[1:] = (instrument[1:] != instrument[:-1]) | (side[1:] != side[:-1])
    first = book.copy()
    first[1:] |= price[1:] != price[:-1]
    starts = np.flatnonzero(first)
    number = np.cumsum(first)
    book_start = np.maximum.accumulate(np.where(book, number, 0))
    return {
        "instrument_id": instrument[starts],
        "side": side[starts],
        "level": (number - book_start + 1)[starts],
        "price": _nullable(price[starts]),
        "size": np.add.reduceat(orders["size"], starts),
        "order_count": np.diff(np.append(starts, len(instrument))),
    }


def final_statistics(market: Market) -> tuple[dict[str, Any], dict[str, Any]]:
    is_listed = np.flatnonzero(market.instruments[:, k.I_STATE] != k.UNKNOWN)
    values = [market.statistic_values(statistic)[is_listed] for statistic in range(k.STATISTICS)]
    ids = np.tile(market.instruments[is_listed, k.I_ID], k.STATISTICS)
    rows = np.concatenate(values)
    is_present = rows[:, k.V_PRESENT] != 0
    ids, rows = ids[is_present], rows[is_present]
    is_band = np.isin(rows[:, k.V_KIND], BAND_KINDS)
    return _statistics(ids[~is_band], rows[~is_band]), _price_bands(ids[is_band], rows[is_band])


def _statistics(ids: NDArray[np.int64], rows: NDArray[np.int64]) -> dict[str, Any]:
    kind, code = rows[:, k.V_KIND], rows[:, k.V_CODE]
    volume = kind == k.VOLUME
    return {
        "instrument_id": ids,
        "stat_type": STAT_TYPES[kind],
        "open_close_settl_flag": _nullable(np.where(np.isin(kind, FLAGGED_KINDS), code & 0xFF, k.NULL)),
        "settl_price_type": _nullable(np.where(kind == k.SETTLEMENT, code >> 8, k.NULL)),
        "price": _nullable(rows[:, k.V_PRICE]),
        "size": _nullable(rows[:, k.V_SIZE]),
        "trade_count": _nullable(np.where(np.isin(kind, COUNTING_KINDS), rows[:, k.V_OTHER], k.NULL)),
        "financial_volume": _nullable(np.where(volume, rows[:, k.V_AUX], k.NULL)),
        "net_change": _nullable(np.where(np.isin(kind, CHANGING_KINDS), rows[:, k.V_AUX], k.NULL)),
        "ts_event": rows[:, k.V_TS],
    }


def _price_bands(ids: NDArray[np.int64], rows: NDArray[np.int64]) -> dict[str, Any]:
    price, code = rows[:, k.V_KIND] == k.PRICE_BAND, rows[:, k.V_CODE]
    midpoint = code >> k.BAND_MIDPOINT & 0xFF
    return {
        "instrument_id": ids,
        "entry_type": np.where(price, "g", "h"),
        "price_band_type": _nullable(np.where(price, code & 0xFF, k.NULL)),
        "price_limit_type": _nullable(np.where(price, code >> k.BAND_LIMIT_TYPE & 0xFF, k.NULL)),
        "midpoint_type": _nullable(np.where(price & (midpoint > 0), midpoint - 1, k.NULL)),
        "low_limit_price": _nullable(rows[:, k.V_PRICE]),
        "high_limit_price": _nullable(rows[:, k.V_AUX]),
        "avg_daily_traded_qty": _nullable(rows[:, k.V_SIZE]),
        "max_trade_vol": _nullable(rows[:, k.V_OTHER]),
    }


def _nullable(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == k.NULL)


def _side_names(codes: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.where(codes == k.BID, "B", np.where(codes == k.ASK, "A", "N")), pa.string())
