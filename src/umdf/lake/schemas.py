"""The tables of the lake: columns, partitions, order of rows, and whether rows are added or replaced.

A table is defined once: event families in umdf.market.families, all others here. Delta's schema, Spark's schema and
CREATE TABLE statements are derived from the Arrow schema (umdf.lake.dialects).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from umdf.errors import UsageError
from umdf.market import arrow
from umdf.market.families import COMMON, FAMILIES, TRADES, Column

APPEND = "append"  # rows are final at the frontier
REPLACE = "replace"  # rewritten for a trading_date and channel
PARTITION = ("trading_date", "channel_id")
ROW_KEY = ("seq_version", "sequence", "msg_index", "entry_index")  # with channel_id, within a trading week
EVENT_SORT = ("instrument_id", *ROW_KEY)
# Minima and maxima of these go into the table's log, so that readers can skip files.
STATISTICS_COLUMNS = ("instrument_id", "symbol", "sequence", "ts_event", "ts_recv", "ts_interval")
# Which people look for, besides.
LOOKUP_COLUMNS = ("order_id", "trade_id", "file_id", "first_sequence", "last_sequence")
TYPES = {
    **{name: kind for name, (kind, _) in arrow.TYPES.items()},
    "bytes": pa.binary(),
    "bool": pa.bool_(),
    "f64": pa.float64(),
    "ids": pa.list_(pa.int64()),
}


@dataclass(frozen=True)
class Table:
    name: str
    doc: str
    schema: pa.Schema  # every column, those of the partition too
    mode: str
    sort: tuple[str, ...]
    partition: tuple[str, ...] = PARTITION

    @property
    def file_schema(self) -> pa.Schema:
        """The columns inside a file: those of the partition are in its path."""
        return pa.schema([field for field in self.schema if field.name not in self.partition])

    @property
    def partition_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.partition])

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        inside = set(self.file_schema.names)
        return tuple(name for name in STATISTICS_COLUMNS if name in inside)

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns that readers filter on: minima and maxima of these are in the files, for each of their row groups."""
        names = {*STATISTICS_COLUMNS, *self.sort, *LOOKUP_COLUMNS}
        return tuple(name for name in self.file_schema.names if name in names or name.startswith("ts_"))


DATE = Column("trading_date", "date", "trading date: the date of ts_send in São Paulo")
CHANNEL = Column("channel_id", "i16", "channel number")
SYMBOL = Column("symbol", "text", "symbol of the instrument (55 Symbol)")
INSTRUMENT = Column("instrument_id", "i64", "instrument number (48 SecurityID)")
SEQ_VERSION = Column("seq_version", "i64", "epoch: which numbering `sequence` belongs to")
SEQUENCE = Column("sequence", "i64", "sequence number of the packet (Binary) or message (FAST)")
TS_SEND = Column("ts_send", "ns", "send time at the exchange")
TS_RECV = Column("ts_recv", "ns", "receive time (capture or socket)")
FLAGS = Column("flags", "i32", "bit set: see flags in docs/events.md", False)
LINE = Column("line", "char", "line: A or B")
STREAM = Column("stream", "text", "stream: incremental, snapshot or instruments")
FILE_ID = Column("file_id", "i64", "input file: the first 8 bytes of its digest, which `ledger` has in full")
FILE_OFFSET = Column("file_offset", "i64", "byte offset of the record in the input file, after decompression")
TS_INTERVAL = Column("ts_interval", "ns", "start of the interval", False)
FIRST_SEQUENCE, LAST_SEQUENCE = (
    Column("first_sequence", "i64", "first sequence number"),
    Column("last_sequence", "i64", "last sequence number"),
)
CLOCK_OFFSET = Column("clock_offset_ns", "i64", "capture clock minus exchange clock: median of ts_recv - ts_send")
FORMAT, CONTENT = (
    Column("format", "i16", "version of the format of `content`", False),
    Column("content", "bytes", "serialized state, for umdf only", False),
)


def levels(depth: int) -> tuple[Column, ...]:
    """`bid_px_00, ask_px_00, bid_sz_00 …`: the best `depth` levels of both sides."""
    parts = (("px", "price", "price"), ("sz", "i64", "size"), ("ct", "i32", "number of orders"))
    return tuple(
        Column(f"{side}_{part}_{level:02d}", kind, f"{doc} of {side} level {level}")
        for level in range(depth)
        for part, kind, doc in parts
        for side in ("bid", "ask")
    )


_CHANGE_COLUMNS = (
    Column(
        "action", "char", "action of the row that changed the book: A add, M modify, C cancel, R clear, T trade", False
    ),
    Column("side", "char", "side of that row: B bid, A ask, N neither", False),
    Column("depth", "i32", "best level that changed, counted from 0; NULL if none did"),
    Column("price", "price", "price of that row"),
    Column("size", "i64", "quantity of that row"),
)
_TRADE_COLUMNS = tuple(
    TRADES.column(name) for name in "action side price size trade_id buyer seller conditions trade_date".split()
)
_BAR_COLUMNS = (
    TS_INTERVAL,
    INSTRUMENT,
    SYMBOL,
    FLAGS,
    Column("open", "price", "price of the first trade that sets the last price"),
    Column("high", "price", "highest price of such trades"),
    Column("low", "price", "lowest price of such trades"),
    Column("close", "price", "price of the last such trade"),
    Column("volume", "i64", "quantity traded", False),
    Column("trade_count", "i64", "number of trades", False),
    Column("financial_volume", "volume", "Σ price × size"),
    Column("ts_first", "ns", "exchange time of the first trade"),
    Column("ts_last", "ns", "exchange time of the last trade"),
)
_BBO_COLUMNS = (
    Column("ts_interval", "ns", "end of the interval", False),
    INSTRUMENT,
    SYMBOL,
    FLAGS,
    Column("ts_event", "ns", "exchange time of the last row before the end of the interval"),
    SEQ_VERSION,
    SEQUENCE,
    Column("price", "price", "price of the last trade so far; NULL if a gap followed it"),
    Column("size", "i64", "quantity of the last trade so far; NULL if a gap followed it"),
    *levels(1),
)


def _table(
    name: str, doc: str, mode: str, sort: str, *columns: Column, partition: tuple[str, ...] = PARTITION
) -> Table:
    fields = [
        pa.field(column.name, TYPES[column.type], column.nullable, {"doc": column.doc, **_type_metadata(column)})
        for column in columns
    ]
    return Table(name, doc, pa.schema(fields, {"family": name, "doc": doc}), mode, tuple(sort.split()), partition)


def _type_metadata(column: Column) -> dict[str, str]:
    return arrow.TYPES[column.type][1] if column.type in arrow.TYPES else {}


def _family_table(name: str) -> Table:
    family = FAMILIES[name]
    return Table(name, family.doc, arrow.schema(family, joined=True), APPEND, EVENT_SORT)


_EVENT_SORT_TEXT = " ".join(EVENT_SORT)
_LAKE_TABLES = (
    _table(
        "packets", "Every packet received, and how it was used.", APPEND,
        "stream line seq_version sequence file_offset",
        DATE, CHANNEL, LINE, STREAM, SEQ_VERSION, SEQUENCE, TS_SEND, TS_RECV,
        Column("disposition", "text", "used, duplicate, late, heartbeat, reset, corrupt or unknown", False),
        Column("messages", "i32", "number of messages in the packet"),
        Column("size_bytes", "i32", "size of the packet", False),
        FILE_ID, FILE_OFFSET,
    ),
    _table(
        "gaps", "Gaps: what was lost, why, and how it was recovered.", REPLACE,
        "seq_version first_sequence instrument_id",
        DATE, CHANNEL, STREAM, SEQ_VERSION, FIRST_SEQUENCE, LAST_SEQUENCE, INSTRUMENT, SYMBOL,
        Column("first_rpt_seq", "i64", "first missing RptSeq, of a gap of one instrument"),
        Column("last_rpt_seq", "i64", "last missing RptSeq, of a gap of one instrument"),
        Column("missing", "i64", "number of missing sequence numbers", False),
        Column("cause", "text", "loss (neither line delivered it) or join (sent before the recording began)", False),
        Column("recovered_by", "text",
               "snapshot, rpt_seq (no book was affected), retransmission, loop (a later one); NULL while open"),
        Column("ts_opened", "ns", "send time of the first packet after the gap (FAST loops: its receive time)"),
        Column("ts_recovered", "ns", "when the last affected book was recovered; or the end of that loop"),
        Column("affected", "i64", "number of instruments that lost updates"),
        Column("instruments", "ids", "the affected instruments; NULL if there are too many to list"),
    ),
    _table(
        "quality", "Delivery quality of each line: packets, losses, duplicates, skew.", REPLACE, "stream line",
        DATE, CHANNEL, STREAM, LINE,
        Column("packets", "i64", "packets received", False),
        Column("messages", "i64", "messages in those packets", False),
        Column("size_bytes", "i64", "size of all packets", False),
        Column("lost", "i64", "sequence numbers that this line did not deliver", False),
        Column("duplicates", "i64", "packets that this line had delivered before", False),
        Column("late", "i64", "packets that came after their gap was reported", False),
        Column("corrupt", "i64", "packets that could not be decoded", False),
        Column("first_arrivals", "i64", "sequence numbers that this line delivered first", False),
        Column("skew_p50_ns", "i64", "delay behind the other line, median"),
        Column("skew_p99_ns", "i64", "delay behind the other line, 99th percentile"),
        Column("skew_max_ns", "i64", "delay behind the other line, maximum"),
        Column("peak_packets_1s", "i64", "packets in the busiest second"),
        FIRST_SEQUENCE, LAST_SEQUENCE,
        Column("ts_first", "ns", "receive time of the first packet"),
        Column("ts_last", "ns", "receive time of the last packet"),
        CLOCK_OFFSET,
        Column("filled", "i64", "lost sequence numbers that another line delivered"),
        Column("incomplete_snapshots", "i64", "snapshots of which not all orders or statistics arrived"),
    ),
    _table(
        "book_check", "Every snapshot in the capture, compared with the book rebuilt from the incremental stream.",
        APPEND, "instrument_id seq_version sequence",
        DATE, CHANNEL, INSTRUMENT, SYMBOL, SEQ_VERSION, SEQUENCE, TS_RECV,
        Column("last_sequence", "i64", "the snapshot includes all incremental updates up to this sequence (369)"),
        Column("last_rpt_seq", "i64", "RptSeq of the snapshot (83)"),
        Column("verdict", "text", "equal, different, stale, unverified, no_book, ahead, outdated, other_epoch", False),
        Column("orders_expected", "i64", "orders or levels in the snapshot"),
        Column("orders_found", "i64", "orders or levels in the rebuilt book"),
        Column("difference", "text", "the first difference, or why nothing was compared"),
    ),
    _table(
        "quarantine", "Packets and messages that could not be used, with the reason and their bytes.", APPEND,
        "file_id file_offset",
        DATE, CHANNEL, LINE, TS_RECV, SEQ_VERSION, SEQUENCE, FILE_ID, FILE_OFFSET,
        Column("reason", "text", "why it could not be used", False),
        Column("template", "text", "template of the message, if it was recognized"),
        Column("size_bytes", "i64", "full size, even if `content` is truncated; of a damaged file, the bytes not read"),
        Column("content", "bytes", "the bytes, at most 64 KiB"),
    ),
    _table(
        "ledger", "Every input file in the lake, identified by its digest.", APPEND, "digest channel_id line stream",
        Column("digest", "text", "digest of the content, as algorithm:hex", False),
        Column("size_bytes", "i64", "size of the input file", False),
        Column("path", "text", "path that it was first ingested from"),
        DATE, CHANNEL, LINE, STREAM, SEQ_VERSION, FIRST_SEQUENCE, LAST_SEQUENCE,
        Column("packets", "i64", "packets of this channel, stream and line in the file"),
        Column("ts_first", "ns", "receive time of the first of them"),
        Column("ts_last", "ns", "receive time of the last of them"),
        Column("flow", "text", "multicast group, as address:port"),
        Column("channel_config", "text", "digest of the channel configuration used for this file"),
        Column("content_digest", "text", "digest of the decompressed content; NULL if the file is not compressed"),
        CLOCK_OFFSET,
        Column("commit", "i64", "lake commit that added the file", False),
        partition=(),
    ),
    *(
        _table(f"mbp_{depth}", f"The best {word} of both sides: a row for every change.", APPEND, _EVENT_SORT_TEXT,
               DATE, *COMMON, SYMBOL, *_CHANGE_COLUMNS, *levels(depth))
        for depth, word in ((1, "level"), (10, "10 levels"))
    ),
    _table("tbbo", "Every trade, with the best bid and ask just before it.", APPEND, _EVENT_SORT_TEXT,
           DATE, *COMMON, SYMBOL, *_TRADE_COLUMNS, *levels(1)),
    *(
        _table(f"bbo_{size}", f"Best bid and ask at the end of every {word} with an update.", APPEND,
               "instrument_id ts_interval", DATE, CHANNEL, *_BBO_COLUMNS)
        for size, word in (("1s", "second"), ("1m", "minute"))
    ),
    *(
        _table(f"ohlcv_{size}", f"Bars of one {word}, without busted trades.", mode,
               "instrument_id ts_interval", DATE, CHANNEL, *_BAR_COLUMNS)
        for size, word, mode in (
            ("1s", "second", APPEND), ("1m", "minute", APPEND), ("1h", "hour", REPLACE), ("1d", "day", REPLACE)
        )
    ),
    _table(
        "day_statistics", "One row per instrument and day: trades, published statistics, gaps, last state.", REPLACE,
        "instrument_id",
        DATE, CHANNEL, INSTRUMENT, SYMBOL, FLAGS,
        Column("open", "price", "price of the first trade"), Column("high", "price", "highest trade price"),
        Column("low", "price", "lowest trade price"), Column("close", "price", "price of the last trade"),
        Column("vwap", "price", "Σ price × size / Σ size"), Column("volume", "i64", "quantity traded"),
        Column("trade_count", "i64", "number of trades"), Column("financial_volume", "volume", "Σ price × size"),
        Column("busted", "i64", "trades that were busted later"),
        Column("exchange_open", "price", "opening price published by the exchange"),
        Column("exchange_high", "price", "highest price published by the exchange"),
        Column("exchange_low", "price", "lowest price published by the exchange"),
        Column("exchange_close", "price", "closing price of the day, published by the exchange"),
        Column("exchange_vwap", "price", "VWAP published by the exchange"),
        Column("settlement_price", "price", "settlement price of the day, published by the exchange"),
        Column("open_interest", "i64", "open interest published by the exchange"),
        Column("exchange_volume", "i64", "quantity traded, published by the exchange"),
        Column("exchange_trade_count", "i64", "number of trades, published by the exchange"),
        Column("events", "i64", "rows in `mbo`"),
        Column("unverified_events", "i64", "rows in `mbo` with the flag MAYBE_BAD_BOOK"),
        Column("gaps", "i64", "how often updates of its books were lost"),
        Column("last_phase", "i16", "last phase of its group (625)"),
        Column("last_state", "i16", "last state, its own or its group's (326)"),
        Column("ts_first", "ns", "exchange time of the first trade"),
        Column("ts_last", "ns", "exchange time of the last trade"),
    ),
    _table(
        "book_state", "Books at some row of the day, from which a later ingest continues.", APPEND, _EVENT_SORT_TEXT,
        DATE, CHANNEL, INSTRUMENT, SEQ_VERSION, SEQUENCE,
        Column("msg_index", "i32", "index of the last message applied, in its packet", False),
        Column("entry_index", "i32", "index of the last entry applied, in its message", False),
        Column("rpt_seq", "i64", "RptSeq of the last row applied"), FLAGS, FORMAT, CONTENT,
    ),
    _table(
        "channel_state", "State of a channel-day that is not over, from which the next micro-batch continues.",
        REPLACE, "seq_version sequence",
        DATE, CHANNEL, SEQ_VERSION,
        Column("sequence", "i64", "the frontier: everything up to this sequence is in the tables"),
        Column("ts_recv", "ns", "receive time of the frontier"), FORMAT, CONTENT,
    ),
)  # fmt: skip


@cache
def tables() -> dict[str, Table]:
    """Every table of the lake by name."""
    return {table.name: table for table in (*map(_family_table, FAMILIES), *_LAKE_TABLES)}


def table(name: str) -> Table:
    found = tables().get(name)
    if found is None:
        raise UsageError(f"unknown table: {name}", f"available: {', '.join(tables())}")
    return found
