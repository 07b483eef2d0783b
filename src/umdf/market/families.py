"""The families of events: one vocabulary for both protocols, every book, every table.

A family is defined once, here. Kernels fill its columns as numpy arrays, Arrow and Spark see the same columns as
a table, and the documentation is generated from the same list.

Internally, an absent value is the smallest number of its type (NULL) or an empty char; at the Arrow boundary it is
NULL. Prices are int64 in units of 1e-9, times are int64 nanoseconds UTC, dates are days since 1970. Unsigned numbers
of the wire are bit-cast to signed ones: no table format has unsigned columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

NULL = -(1 << 63)  # of an int64; of a narrower type its own smallest number
NULL_I32, NULL_I16, NULL_I8 = -(1 << 31), -(1 << 15), -(1 << 7)
PRICE_EXPONENT = -9
VOLUME_EXPONENT = -4  # financial volume outgrows 1e-9: 922 trillion at 1e-4

# flags: the first four are Databento's.
LAST = 128  # the last row of its event (of the instrument in its message, where the wire has no such mark)
SNAPSHOT = 32
BAD_TS_RECV = 8
MAYBE_BAD_BOOK = 4
IMPLIED = 1 << 8  # 276=K, 277=IM, MatchEventIndicator bit 4
RECOVERY = 1 << 9  # 276=R, MatchEventIndicator bit 5: sent again while the exchange recovers
OUT_OF_RANGE = 1 << 10  # a value did not fit its column and is NULL; the packet still has it
EXCHANGE_BEST = 1 << 11  # 276=C
BTB_LIMITED = 1 << 12  # 276=LM
BTB_ALL_OR_NONE = 1 << 13  # 276=AN
FROM_BOOK = 1 << 14  # of a cancel without a price: what it lacks is taken from the book
JOINED = 1 << 16  # of bars and days, with MAYBE_BAD_BOOK: the recording begins within the interval, nothing else
FLAGS = {
    LAST: "last row of its event",
    SNAPSHOT: "from a snapshot",
    BAD_TS_RECV: "ts_recv cannot be trusted: the clock of the capture is off",
    MAYBE_BAD_BOOK: "the book may be wrong: a gap precedes this row",
    IMPLIED: "implied order or trade",
    RECOVERY: "sent again while the exchange recovers",
    OUT_OF_RANGE: "a value was out of range and is NULL",
    EXCHANGE_BEST: "exchange best (276=C)",
    BTB_LIMITED: "lending: limited (276=LM)",
    BTB_ALL_OR_NONE: "lending: all or none (276=AN)",
    FROM_BOOK: "cancel without a price (Binary before version 11): price, size and prev_size are those of the book",
    JOINED: "of bars and days: MAYBE_BAD_BOOK only because the recording begins later",
}

# conditions: one bit set for FAST's words (277), SBE's TradeCondition and ImbalanceCondition sets and its TrdSubType.
# Bits 0 to 14 are SBE's own.
CONDITIONS = {
    "R": 1 << 0,
    "X": 1 << 1,
    "L": 1 << 2,
    "OUT_OF_SEQUENCE": 1 << 3,
    "2": 1 << 6,
    "P": 1 << 8,
    "Q": 1 << 9,
    "REGULAR": 1 << 13,
    "BLOCK": 1 << 14,
    "U": 1 << 16,
    "3": 1 << 17,
    "1": 1 << 18,
    "MP": 1 << 19,
    "PT": 1 << 20,
    "RF": 1 << 21,
    "RL": 1 << 22,
    "TC": 1 << 23,
    "TA": 1 << 24,
    "SW": 1 << 25,
    "IM": 1 << 26,
    "UNKNOWN": 1 << 30,
}
CONDITION_MEANINGS = {
    "R": "opening price",
    "X": "crossed",
    "L": "last trade at the same price",
    "OUT_OF_SEQUENCE": "out of sequence: does not set the last price (Binary only)",
    "2": "entered by the marketplace",
    "P": "imbalance: more buyers",
    "Q": "imbalance: more sellers",
    "REGULAR": "regular trade (Binary only)",
    "BLOCK": "block trade (Binary only)",
    "U": "exchange last",
    "3": "multi asset (termo vista)",
    "1": "leg trade",
    "MP": "midpoint",
    "PT": "block book trade",
    "RF": "request for quote, or fixed income",
    "RL": "retail liquidity provider",
    "TC": "trade at close",
    "TA": "trade at average",
    "SW": "sweep",
    "IM": "implied",
    "UNKNOWN": "a word or code that this table does not have",
}
TRD_SUB_TYPES = {101: "3", 102: "1", 103: "MP", 104: "PT", 105: "RF", 106: "RL", 107: "TC", 108: "TA", 109: "SW"}

# Types of statistics. Up to 99 the numbers are Databento's.
OPENING_PRICE = 1  # 269=4
THEORETICAL_OPENING = 2  # 269=4 286=5: TOP in price, TOQ in size
SETTLEMENT_PRICE = 3  # 269=6
SESSION_LOW = 4  # 269=8
SESSION_HIGH = 5  # 269=7
TRADE_VOLUME = 6  # 269=B
OPEN_INTEREST = 9  # 269=C
CLOSING_PRICE = 11  # 269=5
VWAP = 13  # 269=9; Binary's execution statistics: VWAP in price, traded quantity in size
VOLATILITY = 14  # 269=v
LAST_PRICE = 100  # a last price that is no trade: 277=U, LastTradePrice_27, 269=2 in a snapshot
INDEX_VALUE = 101  # 269=3
COMPOSITE_UNDERLYING = 102  # 269=D: a row for each underlying
STATISTICS = {
    OPENING_PRICE: "opening price",
    THEORETICAL_OPENING: "theoretical opening",
    SETTLEMENT_PRICE: "settlement price",
    SESSION_LOW: "low",
    SESSION_HIGH: "high",
    TRADE_VOLUME: "trade volume",
    OPEN_INTEREST: "open interest",
    CLOSING_PRICE: "closing price",
    VWAP: "vwap",
    VOLATILITY: "volatility price",
    LAST_PRICE: "last price",
    INDEX_VALUE: "index value",
    COMPOSITE_UNDERLYING: "composite underlying",
}

# 279
NEW, CHANGE, DELETE, DELETE_THRU, DELETE_FROM, OVERLAY = range(6)
UNKNOWN_ACTION = "U"  # `action` of a book row whose 279 is none of these: what it did to the book is not known

# Internal representation of column types. A text is offsets (int32) and bytes.
DTYPES = {
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "price": "int64",
    "volume": "int64",
    "ns": "int64",
    "date": "int32",
    "char": "uint8",
    "text": "",
}
NULLS = {name: 0 if name == "char" else int(np.iinfo(dtype).min) for name, dtype in DTYPES.items() if dtype}


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # of DTYPES
    doc: str
    nullable: bool = True

    @property
    def is_text(self) -> bool:
        return self.type == "text"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(DTYPES[self.type])

    @property
    def null(self) -> int:
        """The value that represents NULL internally."""
        return NULLS[self.type]


@dataclass(frozen=True)
class Family:
    name: str
    doc: str
    columns: tuple[Column, ...]  # its own, after the common ones
    lists: Mapping[str, tuple[Column, ...]]  # repeating groups of a row: a list of structs at the Arrow boundary

    def column(self, name: str) -> Column:
        return next(column for column in (*COMMON, *self.columns) if column.name == name)


# Every row of every family has these. The first five belong to the packet (FAST: to the message) and are gathered from
# it at the Arrow boundary; `symbol` and `trading_date` are joined there too.
COMMON = (
    Column("ts_send", "ns", "send time at the exchange"),
    Column("ts_recv", "ns", "receive time (capture or socket)"),
    Column("channel_id", "i16", "channel number"),
    Column("seq_version", "i64", "epoch: which numbering `sequence` belongs to"),
    Column("sequence", "i64", "sequence number of the packet (Binary) or message (FAST)"),
    Column("msg_index", "i32", "index of the message in its packet", nullable=False),
    Column("entry_index", "i32", "index of the entry in its message", nullable=False),
    Column("ts_event", "ns", "time of the event in the matching engine"),
    Column("instrument_id", "i64", "instrument number (48 SecurityID)"),
    Column("rpt_seq", "i64", "RptSeq (83): contiguous per instrument, across all families"),
    Column("flags", "i32", "bit set: see flags in docs/events.md", nullable=False),
)
UNIT_COLUMNS = ("ts_send", "ts_recv", "channel_id", "seq_version", "sequence")

_ENTRY = Column("entry_type", "char", "entry type (269), with FAST's letters for both protocols")
_ACTION = Column(
    "update_action", "i8", "update action (279): 0 new, 1 change, 2 delete, 3 delete thru, 4 delete from, 5 overlay"
)
_VENUE = Column("venue", "char", "venue (1500): E electronic, X ex-pit, O exercise, T termo, N index, L lending, A all")
_SESSION = Column("trading_session", "i8", "trading session (336): 1 regular, 6 non-regular")
_TRADE_DATE = Column("trade_date", "date", "business day it refers to (75); often before the trading date")


def _family(name: str, doc: str, *columns: Column, **lists: tuple[Column, ...]) -> Family:
    return Family(name, doc, columns, lists)


MBO = _family(
    "mbo",
    "Every order book update in wire order, with trades (T) and other messages that consume a RptSeq (N) between them.",
    Column(
        "action",
        "char",
        "A add, M modify, C cancel, R clear (a side, a book, a channel), T trade, N none, U unknown (279)",
        False,
    ),
    Column("side", "char", "B bid, A ask, N neither", False),
    Column("price", "price", "price (270); NULL for market-on-auction and market-on-close orders"),
    Column("size", "i64", "quantity (271)"),
    Column("order_id", "i64", "order number, which also gives its priority (37; Binary: secondaryOrderID)"),
    Column("firm", "i64", "firm that entered the order (288/289; Binary: enteringFirm)"),
    Column("prev_size", "i64", "quantity before the change (37780)"),
    Column("position", "i32", "position in the book, 1 is the best (290; `position` books only)"),
    Column("order_count", "i32", "number of orders at the price (346; price-depth books only)"),
    Column("ts_insert", "ns", "time at which the order entered the book"),
    _VENUE,
    _ACTION,
    _ENTRY,
    Column("trade_id", "i64", "trade number (1003), of action T"),
    Column("expire_date", "date", "expiry date (432), lending only"),
    Column("early_termination", "i8", "early termination (37019; 0 if not sent), lending only"),
    Column("btb_cert_indicator", "i8", "0 certified, 1 not certified (37023; 1 if not sent), lending only"),
)

TRADES = _family(
    "trades",
    "Trades and busts. A last price that the exchange publishes is not a trade: see statistics.",
    Column("action", "char", "A trade, C bust", False),
    _ACTION,
    Column("side", "char", "aggressor: B buyer, A seller, if an execution summary said so; N unknown", False),
    Column("price", "price", "price (270)"),
    Column("size", "i64", "quantity (271)"),
    Column("trade_id", "i64", "trade number (1003)"),
    Column("buyer", "i64", "buying firm (288)"),
    Column("seller", "i64", "selling firm (289)"),
    Column("conditions", "i32", "bit set: see conditions in docs/events.md", False),
    Column("trade_condition", "i32", "trade conditions as Binary sends them (277, raw bit set)"),
    Column("trd_sub_type", "i16", "trade subtype as Binary sends it (829)"),
    _TRADE_DATE,
    _SESSION,
    _VENUE,
    Column("ts_insert", "ns", "time of the original trade (37016/37017)"),
    Column("trade_volume", "i64", "quantity traded in the session so far (1020)"),
    Column("net_change", "price", "change from the previous closing price (451)"),
    Column("tick_direction", "char", "tick direction (274)"),
    Column("seller_days", "i32", "days until delivery (287), termo only"),
    Column("interest_rate", "price", "interest rate (37014), termo only"),
    Column("early_termination", "i8", "early termination (37019; 0 if not sent), lending only"),
    Column("btb_contract_info", "i8", "1 pre-contract, 2 intention (37024; 1 if not sent), lending only"),
    Column("btb_grace_date", "date", "grace date (37025), lending only"),
    Column("expire_date", "date", "expiry date (432), lending only"),
    Column("btb_cert_indicator", "i8", "0 certified, 1 not certified (37023; 1 if not sent), lending only"),
)

EXECUTION_SUMMARY = _family(
    "execution_summary",
    "Execution summary of an aggressor order, sent before its trades (Binary template 55).",
    Column("side", "char", "side of the aggressor: B buyer, A seller, N none", False),
    Column("price", "price", "price of the last fill (lastPx)"),
    Column("size", "i64", "filled quantity (fillQty)"),
    Column("hidden_size", "i64", "quantity of matched passive orders that was not displayed (tradedHiddenQty)"),
    Column("cancelled_size", "i64", "quantity cancelled while matching (cxlQty)"),
    Column("ts_aggressor", "ns", "time of the aggressor order (aggressorTime)"),
)

STATISTICS_FAMILY = _family(
    "statistics",
    "Statistics that the exchange publishes: opening, high, low, settlement, volume, open interest …",
    Column("stat_type", "i16", "which statistic: see stat_type in docs/events.md", False),
    Column("action", "char", "A set, C deleted", False),
    Column("price", "price", "price (270)"),
    Column("size", "i64", "quantity (271); of trade volume and execution statistics, the session's (1020)"),
    Column("trade_count", "i64", "number of trades (271 of a trade volume; Binary: numberOfTrades)"),
    Column("financial_volume", "volume", "financial volume, Σ price × size (270 of a trade volume)"),
    Column("net_change", "price", "change from the previous closing price (451)"),
    Column("conditions", "i32", "bit set: see conditions in docs/events.md; only last prices have some"),
    Column("open_close_settl_flag", "i8", "open, close or settlement flag (286)"),
    Column("settl_price_type", "i8", "settlement price type (731)"),
    Column("price_type", "i8", "price type of a settlement price (423; 2 per unit if not sent)"),
    Column("price_adjustment_method", "i8", "price adjustment of a closing price (37013; 0 none if not sent)"),
    Column("last_trade_date", "date", "date of the last trade (9325)"),
    _TRADE_DATE,
    _SESSION,
    _VENUE,
    _ENTRY,
    Column("currency", "text", "currency (15)"),
    Column("tick_direction", "char", "tick direction (274)"),
    Column("trade_id", "i64", "trade number of a last price"),
    Column("buyer", "i64", "buying firm of a last price"),
    Column("seller", "i64", "selling firm of a last price"),
    Column("seller_days", "i32", "days until delivery (287)"),
    Column("interest_rate", "price", "interest rate (37014)"),
    Column("index_seq", "i64", "sequence number of the index value (37100)"),
    Column("underlying_id", "i64", "instrument number of the underlying, of a composite (309)"),
    Column("underlying_px_type", "i8", "price of the underlying (37018): 0 trade (if not sent), 1 average of the top"),
    Column("first_price", "price", "first price, of a volatility price (1025)"),
    Column("last_price", "price", "last price, of a volatility price (31)"),
    Column("price_delta", "price", "delta, of a volatility price (811)"),
)

STATUS = _family(
    "status",
    "Phase of a group of instruments, or state of one instrument.",
    Column("security_group", "text", "group of instruments (1151); NULL if the row is about one instrument"),
    Column("security_exchange", "text", "exchange of the group (207), as group codes repeat; BVMF if not sent"),
    Column("phase", "i16", "phase of the group (625)"),
    Column("state", "i16", "state of the instrument (326)"),
    Column("event", "i16", "trading event (1174): 4 session change, 101 leaves its group, 102 rejoins it"),
    _SESSION,
    Column("ts_open", "ns", "estimated end of the auction (342)"),
    _TRADE_DATE,
    _VENUE,
)

IMBALANCE = _family(
    "imbalance",
    "Auction imbalance: side and quantity.",
    Column("action", "char", "A set, C deleted", False),
    Column("side", "char", "B more buyers, A more sellers, N balanced", False),
    Column("size", "i64", "quantity (271)"),
    Column("conditions", "i32", "bit set: see conditions in docs/events.md", False),
)

PRICE_BAND = _family(
    "price_band",
    "Price bands (269=g), quantity limits (269=h) and the reference price.",
    _ENTRY,
    Column("price_band_type", "i8", "type of band (6939): 1 hard, 2 auction, 3 rejection, 4 static"),
    Column("price_limit_type", "i8", "unit of a band's limits (1306): 0 price (if not sent), 1 ticks, 2 percent"),
    Column(
        "midpoint_type",
        "i8",
        "midpoint of limits in percent (37008): 0 last price (if not sent), 1 complementary last, 2 theoretical",
    ),
    Column("low_limit_price", "price", "lower limit (1148)"),
    Column("high_limit_price", "price", "upper limit (1149)"),
    Column("trading_reference_price", "price", "reference price (1150)"),
    Column("avg_daily_traded_qty", "i64", "average daily quantity traded (37003)"),
    Column("max_trade_vol", "i64", "maximum quantity of an order (1140)"),
)

DEFINITION = _family(
    "definition",
    "Instrument definitions: the list at the start of the day, and changes during it.",
    Column("action", "char", "A add, M modify, D delete (980)", False),
    Column("symbol", "text", "symbol (55)"),
    Column("security_exchange", "text", "exchange (207)"),
    Column("security_group", "text", "group of instruments (1151)"),
    Column("asset", "text", "asset (6937)"),
    Column("security_type", "text", "security type, in FIX's words (167): FUT, OPT, PS …"),
    Column("security_sub_type", "i32", "security subtype (762)"),
    Column("product", "i16", "product (460)"),
    Column("isin", "text", "ISIN (48 with 22=4; Binary: isinNumber)"),
    Column("cfi_code", "text", "CFI code (461)"),
    Column("description", "text", "description (107)"),
    Column("currency", "text", "currency (15)"),
    Column("strike_currency", "text", "currency of the strike price (947)"),
    Column("settl_currency", "text", "settlement currency (120)"),
    Column("country", "text", "country of issue (470)"),
    Column("strategy_type", "text", "strategy type (7534)"),
    Column("total_instruments", "i64", "number of instruments in the whole list (393)"),
    Column("is_last", "i8", "1 if this is the last message of the list (893)"),
    Column("tick", "price", "tick size (969)"),
    Column("tick_denominator", "i16", "number of decimals of prices (5151)"),
    Column("strike_price", "price", "strike price (202); strategies on options have none (12.3)"),
    Column("contract_multiplier", "price", "contract multiplier (231)"),
    Column("price_divisor", "price", "price divisor (37012)"),
    Column("maturity_date", "date", "maturity date (541)"),
    Column(
        "maturity_month_year", "i32", "maturity month (200): yyyymm, yyyymmdd or, for week w of the month, yyyymm9w"
    ),
    Column("contract_settl_month", "i32", "settlement month (667)"),
    Column("issue_date", "date", "issue date (225)"),
    Column("dated_date", "date", "date of activation, if not the issue date (873)"),
    Column("start_date", "date", "start date (916)"),
    Column("end_date", "date", "end date (917)"),
    Column("settl_date", "date", "settlement date (64)"),
    Column("settl_type", "i32", "settlement type (63)"),
    Column("ts_validity", "ns", "end of trading in the instrument (6938)"),
    Column("exercise_style", "i8", "exercise style (1194): 0 European, 1 American"),
    Column("put_or_call", "i8", "put or call (201): 0 put, 1 call"),
    Column("opt_payout_type", "i8", "option payout type (1482); the two protocols define 2 differently"),
    Column("price_type", "i8", "price type (423)"),
    Column("market_segment_id", "i32", "market segment (1300)"),
    Column("governance_indicator", "i16", "governance level, with Binary's numbers (37011)"),
    Column("security_match_type", "i16", "matching type (37015)"),
    Column("multi_leg_model", "i8", "strategy model (1377): 0 exchange-defined, 1 user-defined"),
    Column("multi_leg_price_method", "i8", "strategy price method (1378)"),
    Column("implied_market_indicator", "i8", "implied market indicator (1144)"),
    Column("lot_type", "i8", "lot type (1093), Binary only"),
    Column("min_lot_size", "i64", "minimum lot size (1231), Binary only"),
    Column("round_lot", "i64", "round lot (561)"),
    Column("min_trade_vol", "i64", "minimum trade quantity (562)"),
    Column("min_order_qty", "i64", "minimum order quantity (9749)"),
    Column("max_order_qty", "i64", "maximum order quantity (9748)"),
    Column("min_cross_qty", "i64", "minimum cross quantity (35561)"),
    Column("shares_issued", "i64", "number of shares issued (7595)"),
    Column("clearing_house_id", "i64", "clearing house (Binary: clearingHouseID)"),
    Column("corporate_action_event_id", "i64", "corporate action of the instrument (37010)"),
    legs=(
        Column("leg_id", "i64", "instrument number of the leg (602)"),
        Column("leg_symbol", "text", "symbol of the leg (600)"),
        Column("leg_ratio", "price", "ratio (623)"),
        Column("leg_side", "i8", "side (624): 1 buy, 2 sell"),
        Column("leg_security_type", "text", "security type of the leg (609)"),
    ),
    underlyings=(
        Column("underlying_id", "i64", "instrument number of the underlying (309)"),
        Column("underlying_symbol", "text", "symbol of the underlying (311)"),
        Column("index_pct", "price", "weight in the index, percent (6919)"),
        Column("index_theoretical_qty", "price", "theoretical quantity in the index (37021)"),
    ),
    attributes=(
        Column("attribute_type", "i16", "attribute type (871)"),
        Column("attribute_value", "i16", "attribute value (872)"),
    ),
    lots=(
        Column("lot_type", "i8", "lot type (1093)"),
        Column("min_lot_size", "i64", "minimum lot size (1231)"),
    ),
    tick_rules=(
        Column("start_price", "price", "first price of the range (1206)"),
        Column("end_price", "price", "last price of the range (1207)"),
        Column("increment", "price", "tick size in the range (1208)"),
        Column("rule_type", "i8", "type of rule (1209)"),
    ),
    alternate_ids=(
        Column("alternate_id", "text", "alternate identifier (455)"),
        Column("id_source", "text", "source of the identifier (456)"),
    ),
    feeds=(  # the groups 1351 and 1141, flattened: one struct for each channel and feed type
        Column("channel", "i16", "channel number (1180)"),
        Column("feed_type", "text", "feed type (1022)"),
        Column("depth", "i32", "depth of the book (264); 0 is order depth"),
    ),
)

NEWS = _family(
    "news",
    "News: one row for each part, as sent.",
    Column("news_source", "i16", "source (6940)"),
    Column("language", "text", "language (1474); pt if not sent"),
    Column("part_count", "i32", "number of parts"),
    Column("part_number", "i32", "number of this part, from 1"),
    Column("news_id", "i64", "news number (1472); NULL for news of the matching engine"),
    Column("ts_origin", "ns", "time of origin (42)"),
    Column("total_text_length", "i64", "length of the text of all parts"),
    Column("headline", "text", "headline (148 or, encoded, 359)"),
    Column("text", "text", "text (58 or, encoded, 355)"),
    Column("url", "text", "link (149)"),
    related=(Column("related_id", "i64", "instrument that the news is about (48 in 146)"),),
)

SNAPSHOT_FAMILY = _family(
    "snapshot",
    "Header of a snapshot of one instrument; its book is in mbo, with the flag SNAPSHOT.",
    Column("last_sequence", "i64", "the snapshot includes all incremental updates up to this sequence (369)"),
    Column("last_seq_version", "i64", "epoch of last_sequence; NULL before Binary version 15 and in FAST"),
    Column("last_rpt_seq", "i64", "RptSeq of the book in the snapshot (83)"),
    Column("total_snapshots", "i64", "number of snapshots in the loop (911)"),
    Column("total_bids", "i64", "number of bids in the snapshot, Binary only"),
    Column("total_offers", "i64", "number of offers in the snapshot, Binary only"),
    Column("total_stats", "i64", "number of statistics and statuses in the snapshot, Binary only"),
    Column("depth", "i32", "depth of the book (264); NULL for an order-depth book"),
    _TRADE_DATE,
)

CONTROL = _family(
    "control",
    "Heartbeats, sequence resets and channel resets.",
    Column("kind", "char", "H heartbeat, S sequence reset, R channel reset", False),
    Column("next_sequence", "i64", "next sequence number of the incremental stream (36; Binary: nextSeqNo)"),
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        MBO,
        TRADES,
        EXECUTION_SUMMARY,
        STATISTICS_FAMILY,
        STATUS,
        IMBALANCE,
        PRICE_BAND,
        DEFINITION,
        NEWS,
        SNAPSHOT_FAMILY,
        CONTROL,
    )
}
