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


DATE = Column("trading_date", "date", "the business day of the capture, in São Paulo")
CHANNEL = Column("channel_id", "i16", "the channel")
SYMBOL = Column("symbol", "text", "55 of the instrument")
INSTRUMENT = Column("instrument_id", "i64", "48 SecurityID")
SEQ_VERSION = Column("seq_version", "i64", "the numbering epoch of `sequence`")
SEQUENCE = Column("sequence", "i64", "packet (Binary) or message (FAST) number")
TS_SEND = Column("ts_send", "ns", "when the exchange sent it")
TS_RECV = Column("ts_recv", "ns", "when the capture or the socket got it")
FLAGS = Column("flags", "i32", "bits of events.FLAGS", False)
LINE = Column("line", "char", "A or B")
STREAM = Column("stream", "text", "incremental, snapshot or instrument")
FILE_ID = Column("file_id", "i64", "the first 8 bytes of the input's digest; `ledger` has all of it")
FILE_OFFSET = Column("file_offset", "i64", "where its record starts in the (unpacked) file")
TS_INTERVAL = Column("ts_interval", "ns", "start of the interval", False)
FIRST_SEQUENCE, LAST_SEQUENCE = (
    Column("first_sequence", "i64", "first number of the span"),
    Column("last_sequence", "i64", "last number of the span"),
)
FORMAT, CONTENT = (
    Column("format", "i16", "version of the layout of `content`", False),
    Column("content", "bytes", "opaque", False),
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
    Column("action", "char", "of the change that led here: A M C R T", False),
    Column("side", "char", "of the change: B A N", False),
    Column("depth", "i32", "level that changed, from 0; absent if none did"),
    Column("price", "price", "of the change"),
    Column("size", "i64", "of the change"),
)
_TRADE_COLUMNS = tuple(
    TRADES.column(name) for name in "action side price size trade_id buyer seller conditions trade_date".split()
)
_BAR_COLUMNS = (
    TS_INTERVAL,
    INSTRUMENT,
    SYMBOL,
    FLAGS,
    Column("open", "price", "first trade that moves the price"),
    Column("high", "price", "highest trade that moves the price"),
    Column("low", "price", "lowest trade that moves the price"),
    Column("close", "price", "last trade that moves the price"),
    Column("volume", "i64", "quantity traded", False),
    Column("trade_count", "i64", "number of trades", False),
    Column("financial_volume", "volume", "Σ price × size"),
    Column("ts_first", "ns", "ts_event of the first trade"),
    Column("ts_last", "ns", "ts_event of the last trade"),
)
_BBO_COLUMNS = (
    Column("ts_interval", "ns", "end of the interval", False),
    INSTRUMENT,
    SYMBOL,
    FLAGS,
    Column("ts_event", "ns", "of the last change before it"),
    SEQ_VERSION,
    SEQUENCE,
    Column("price", "price", "last trade so far; absent if something was lost since"),
    Column("size", "i64", "last trade so far; absent if something was lost since"),
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
        "packets", "What became of every datagram.", APPEND, "stream line seq_version sequence file_offset",
        DATE, CHANNEL, LINE, STREAM, SEQ_VERSION, SEQUENCE, TS_SEND, TS_RECV,
        Column("verdict", "text", "used, duplicate, late, corrupt, unknown …", False),
        Column("messages", "i32", "how many messages it holds"),
        Column("size_bytes", "i32", "of the datagram", False),
        FILE_ID, FILE_OFFSET,
    ),
    _table(
        "gaps", "What was lost, why, and how it was cured.", REPLACE, "seq_version first_sequence instrument_id",
        DATE, CHANNEL, STREAM, SEQ_VERSION, FIRST_SEQUENCE, LAST_SEQUENCE, INSTRUMENT, SYMBOL,
        Column("first_rpt_seq", "i64", "of a gap of one instrument"),
        Column("last_rpt_seq", "i64", "of a gap of one instrument"),
        Column("missing", "i64", "how many numbers are missing", False),
        Column("cause", "text", "loss, start, reset …", False),
        Column("cure", "text", "snapshot, rpt_seq, retransmission; absent while it is open"),
        Column("ts_opened", "ns", "ts_send of what followed"),
        Column("ts_cured", "ns", "when the last instrument was healed"),
        Column("touched", "i64", "how many instruments have lost something"),
        Column("instruments", "ids", "which ones; absent if they are many"),
    ),
    _table(
        "quality", "How well each line of a channel delivered.", REPLACE, "stream line",
        DATE, CHANNEL, STREAM, LINE,
        Column("packets", "i64", "datagrams seen", False),
        Column("messages", "i64", "messages in them", False),
        Column("size_bytes", "i64", "of all datagrams", False),
        Column("lost", "i64", "numbers that this line did not deliver", False),
        Column("duplicates", "i64", "seen before on this line", False),
        Column("late", "i64", "behind the frontier", False),
        Column("corrupt", "i64", "not decodable", False),
        Column("first_arrivals", "i64", "how often this line was first", False),
        Column("skew_p50_ns", "i64", "arrival behind the other line, median"),
        Column("skew_p99_ns", "i64", "arrival behind the other line, 99th percentile"),
        Column("skew_max_ns", "i64", "arrival behind the other line, largest"),
        Column("peak_packets_1s", "i64", "busiest second"),
        FIRST_SEQUENCE, LAST_SEQUENCE,
        Column("ts_first", "ns", "ts_recv of the first datagram"),
        Column("ts_last", "ns", "ts_recv of the last datagram"),
    ),
    _table(
        "book_check", "Rebuilt books against every snapshot in the capture.", APPEND,
        "instrument_id seq_version sequence",
        DATE, CHANNEL, INSTRUMENT, SYMBOL, SEQ_VERSION, SEQUENCE, TS_RECV,
        Column("last_sequence", "i64", "369: the snapshot holds everything up to this number"),
        Column("last_rpt_seq", "i64", "83 of the snapshot"),
        Column("verdict", "text", "equal, different, stale, no_book …", False),
        Column("orders_expected", "i64", "in the snapshot"),
        Column("orders_found", "i64", "in our book"),
        Column("difference", "text", "the first one, in words"),
    ),
    _table(
        "quarantine", "What could not be used, with its bytes.", APPEND, "file_id file_offset",
        DATE, CHANNEL, LINE, TS_RECV, SEQ_VERSION, SEQUENCE, FILE_ID, FILE_OFFSET,
        Column("reason", "text", "why", False),
        Column("template", "text", "of the message, if it was recognised"),
        Column("size_bytes", "i64", "of the whole, also if `content` is cut; of a damaged file, the unread bytes"),
        Column("content", "bytes", "its bytes, at most 64 KiB"),
    ),
    _table(
        "ledger", "Every input that is in the lake, by its content.", APPEND, "digest channel_id line stream",
        Column("digest", "text", "of the content: algorithm:hex", False),
        Column("size_bytes", "i64", "of the input", False),
        Column("path", "text", "where it was first seen"),
        DATE, CHANNEL, LINE, STREAM, SEQ_VERSION, FIRST_SEQUENCE, LAST_SEQUENCE,
        Column("packets", "i64", "datagrams of this channel and line in it"),
        Column("ts_first", "ns", "ts_recv of the first one"),
        Column("ts_last", "ns", "ts_recv of the last one"),
        Column("flow", "text", "address:port that it was sent to"),
        Column("channel_config", "text", "digest of the channel configuration that it was ingested with"),
        Column("commit", "i64", "the lake commit that brought it in", False),
        partition=(),
    ),
    *(
        _table(f"mbp_{depth}", f"The best {depth} levels after every change of them.", APPEND, _EVENT_SORT_TEXT,
               DATE, *COMMON, SYMBOL, *_CHANGE_COLUMNS, *levels(depth))
        for depth in (1, 10)
    ),
    _table("tbbo", "Every trade with the best prices just before it.", APPEND, _EVENT_SORT_TEXT,
           DATE, *COMMON, SYMBOL, *_TRADE_COLUMNS, *levels(1)),
    *(
        _table(f"bbo_{size}", f"The best prices at the end of every {word}.", APPEND, "instrument_id ts_interval",
               DATE, CHANNEL, *_BBO_COLUMNS)
        for size, word in (("1s", "second"), ("1m", "minute"))
    ),
    *(
        _table(f"ohlcv_{size}", f"Bars of a {word}; busted and corrected trades are not in them.", mode,
               "instrument_id ts_interval", DATE, CHANNEL, *_BAR_COLUMNS)
        for size, word, mode in (
            ("1s", "second", APPEND), ("1m", "minute", APPEND), ("1h", "hour", REPLACE), ("1d", "day", REPLACE)
        )
    ),
    _table(
        "day_statistics", "What a day was for each instrument.", REPLACE, "instrument_id",
        DATE, CHANNEL, INSTRUMENT, SYMBOL, FLAGS,
        Column("open", "price", "first trade"), Column("high", "price", "highest trade"),
        Column("low", "price", "lowest trade"), Column("close", "price", "last trade"),
        Column("vwap", "price", "Σ price × size / Σ size"), Column("volume", "i64", "quantity traded"),
        Column("trade_count", "i64", "number of trades"), Column("financial_volume", "volume", "Σ price × size"),
        Column("busted", "i64", "trades that were cancelled later"),
        Column("exchange_open", "price", "the exchange's"), Column("exchange_high", "price", "the exchange's"),
        Column("exchange_low", "price", "the exchange's"), Column("exchange_close", "price", "the exchange's"),
        Column("exchange_vwap", "price", "the exchange's"),
        Column("settlement_price", "price", "the exchange's"), Column("open_interest", "i64", "the exchange's"),
        Column("exchange_volume", "i64", "quantity traded as the exchange says"),
        Column("exchange_trade_count", "i64", "number of trades as the exchange says"),
        Column("events", "i64", "rows of `mbo`"), Column("events_in_doubt", "i64", "those with MAYBE_BAD_BOOK"),
        Column("losses", "i64", "how often something was lost"),
        Column("last_phase", "i16", "625 of its group at the end"),
        Column("last_state", "i16", "326 at the end, its own or its group's"),
        Column("ts_first", "ns", "ts_event of the first trade"), Column("ts_last", "ns", "ts_event of the last trade"),
    ),
    _table(
        "book_state", "Books at a moment, from which a later run goes on.", APPEND, _EVENT_SORT_TEXT,
        DATE, CHANNEL, INSTRUMENT, SEQ_VERSION, SEQUENCE,
        Column("msg_index", "i32", "of the last row in it", False),
        Column("entry_index", "i32", "of the last row in it", False),
        Column("rpt_seq", "i64", "of the last row in it"), FLAGS, FORMAT, CONTENT,
    ),
    _table(
        "channel_state", "What a channel holds behind its frontier: packets that wait, half-built messages, open bars.",
        REPLACE, "seq_version sequence",
        DATE, CHANNEL, SEQ_VERSION, Column("sequence", "i64", "the frontier: everything up to it is in the tables"),
        Column("ts_recv", "ns", "of the frontier"), FORMAT, CONTENT,
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
