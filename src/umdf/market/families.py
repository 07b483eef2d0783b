"""The families of events: one vocabulary for both protocols, every book, every table.

A family is written down once, here. Kernels fill its columns as numpy arrays, Arrow and Spark see the same columns as
a table, and the documentation is drawn from the same list.

Inside, a value that is absent is the smallest number of its type (NULL) or an empty char; at the Arrow boundary it is
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
FLAGS = {
    LAST: "last of its event",
    SNAPSHOT: "from a snapshot",
    BAD_TS_RECV: "ts_recv is not to be trusted",
    MAYBE_BAD_BOOK: "something was lost before this row",
    IMPLIED: "implied",
    RECOVERY: "retransmitted",
    OUT_OF_RANGE: "a value did not fit",
    EXCHANGE_BEST: "276=C",
    BTB_LIMITED: "lending: limited",
    BTB_ALL_OR_NONE: "lending: all or none",
}

# conditions: one bit set for FAST's words (277), SBE's TradeCondition and ImbalanceCondition sets and its TrdSubType.
# Bits 0 to 14 are SBE's own.
CONDITIONS = {
    "R": 1 << 0,  # opening price
    "X": 1 << 1,  # crossed
    "L": 1 << 2,  # last trade at the same price
    "OUT_OF_SEQUENCE": 1 << 3,  # does not move the last price; Binary only
    "2": 1 << 6,  # entered by the marketplace
    "P": 1 << 8,  # imbalance: more buyers
    "Q": 1 << 9,  # imbalance: more sellers
    "REGULAR": 1 << 13,  # Binary only
    "BLOCK": 1 << 14,  # Binary only
    "U": 1 << 16,  # exchange last
    "3": 1 << 17,  # multi asset (termo vista); TrdSubType 101
    "1": 1 << 18,  # leg trade; 102
    "MP": 1 << 19,  # midpoint; 103
    "PT": 1 << 20,  # block book trade; 104
    "RF": 1 << 21,  # request for quote, or fixed income; 105
    "RL": 1 << 22,  # retail liquidity provider; 106
    "TC": 1 << 23,  # trade at close; 107
    "TA": 1 << 24,  # trade at average; 108
    "SW": 1 << 25,  # sweep; 109
    "IM": 1 << 26,  # implied
    "UNKNOWN": 1 << 30,  # a word or code that this table does not have
}
TRD_SUB_TYPES = {101: "3", 102: "1", 103: "MP", 104: "PT", 105: "RF", 106: "RL", 107: "TC", 108: "TA", 109: "SW"}

# What a statistics row is about. Up to 99 the numbers are Databento's.
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

# What the types of columns are inside. A text is offsets (int32) and bytes.
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
        """What stands for an absent value inside."""
        return 0 if self.type == "char" else int(np.iinfo(DTYPES[self.type]).min)


@dataclass(frozen=True)
class Family:
    name: str
    doc: str
    columns: tuple[Column, ...]  # its own, behind the common ones
    lists: Mapping[str, tuple[Column, ...]]  # repeating groups of a row: a list of structs at the Arrow boundary

    def column(self, name: str) -> Column:
        return next(column for column in (*COMMON, *self.columns) if column.name == name)


# Every row of every family has these. The first five belong to the packet (FAST: to the message) and are gathered from
# it at the Arrow boundary; `symbol` and `trading_date` are joined there too.
COMMON = (
    Column("ts_send", "ns", "when the exchange sent it"),
    Column("ts_recv", "ns", "when the capture or the socket got it"),
    Column("channel_id", "i16", "the channel"),
    Column("seq_version", "i64", "the numbering epoch of `sequence`"),
    Column("sequence", "i64", "packet (Binary) or message (FAST) number"),
    Column("msg_index", "i32", "place of the message in its packet", nullable=False),
    Column("entry_index", "i32", "place of the entry in its message", nullable=False),
    Column("ts_event", "ns", "when it happened in the engine"),
    Column("instrument_id", "i64", "48 SecurityID"),
    Column("rpt_seq", "i64", "83: contiguous per instrument over all families"),
    Column("flags", "i32", "bits of FLAGS", nullable=False),
)
UNIT_COLUMNS = ("ts_send", "ts_recv", "channel_id", "seq_version", "sequence")

_ENTRY = Column("entry_type", "char", "269 as FAST names it")
_ACTION = Column(
    "update_action", "i8", "279 as sent: 0 new, 1 change, 2 delete, 3 delete thru, 4 delete from, 5 overlay"
)
_VENUE = Column("stream", "char", "1500: E electronic, X ex-pit, O exercise, T termo, N index, L lending, A all")
_SESSION = Column("trading_session", "i8", "336: 1 regular, 6 non-regular")
_TRADE_DATE = Column("trade_date", "date", "75 tradeDate: the business day it belongs to, often older than today")


def _family(name: str, doc: str, *columns: Column, **lists: tuple[Column, ...]) -> Family:
    return Family(name, doc, columns, lists)


MBO = _family(
    "mbo",
    "Every change of a book, in order, with trades (T) and everything else that moves rpt_seq (N) between them.",
    Column("action", "char", "A add, M modify, C cancel, R clear (a side, a book, a channel), T trade, N none", False),
    Column("side", "char", "B bid, A ask, N neither", False),
    Column("price", "price", "absent for MOA and MOC orders"),
    Column("size", "i64", "271"),
    Column("order_id", "i64", "37, SBE secondaryOrderID: identity and priority"),
    Column("firm", "i64", "288/289, SBE enteringFirm"),
    Column("prev_size", "i64", "37780: size before a change"),
    Column("position", "i32", "290, position generation only: 1 is the top"),
    Column("order_count", "i32", "346, price-depth books only"),
    Column("ts_insert", "ns", "when the order entered the book"),
    _VENUE,
    _ACTION,
    _ENTRY,
    Column("trade_id", "i64", "1003, of a T"),
    Column("expire_date", "date", "432, lending"),
    Column("early_termination", "i8", "37019, lending"),
    Column("btb_cert_indicator", "i8", "37023, lending"),
)

TRADES = _family(
    "trades",
    "Trades and their cancellations. The exchange's last price is no trade: see statistics.",
    Column("action", "char", "A trade, C bust", False),
    _ACTION,
    Column("side", "char", "B or A: the aggressor, where an execution summary said so; N otherwise", False),
    Column("price", "price", "270"),
    Column("size", "i64", "271"),
    Column("trade_id", "i64", "1003"),
    Column("buyer", "i64", "288"),
    Column("seller", "i64", "289"),
    Column("conditions", "i32", "bits of CONDITIONS", False),
    Column("trade_condition", "i32", "277 as Binary sends it: the raw set"),
    Column("trd_sub_type", "i16", "829 as Binary sends it"),
    _TRADE_DATE,
    _SESSION,
    _VENUE,
    Column("ts_insert", "ns", "37016/37017: of the original trade"),
    Column("trade_volume", "i64", "1020: quantity traded in the session so far"),
    Column("net_change", "price", "451"),
    Column("tick_direction", "char", "274"),
    Column("seller_days", "i32", "287, termo"),
    Column("interest_rate", "price", "37014, termo"),
    Column("early_termination", "i8", "37019, lending"),
    Column("btb_contract_info", "i8", "37024, lending"),
    Column("btb_grace_date", "date", "37025, lending"),
)

EXECUTION_SUMMARY = _family(
    "execution_summary",
    "What an aggressor did, before the trades it made (Binary template 55).",
    Column("side", "char", "of the aggressor: B, A, N none", False),
    Column("price", "price", "lastPx"),
    Column("size", "i64", "fillQty"),
    Column("hidden_size", "i64", "tradedHiddenQty"),
    Column("cancelled_size", "i64", "cxlQty"),
    Column("ts_aggressor", "ns", "aggressorTime"),
)

STATISTICS_FAMILY = _family(
    "statistics",
    "Numbers about an instrument that the exchange publishes.",
    Column("stat_type", "i16", "of STATISTICS", False),
    Column("action", "char", "A set, C deleted", False),
    Column("price", "price", "270"),
    Column("size", "i64", "271; the session's quantity (1020) of a trade volume and of execution statistics"),
    Column("trade_count", "i64", "271 of a trade volume, numberOfTrades"),
    Column("financial_volume", "volume", "270 of a trade volume, in units of 1e-4"),
    Column("net_change", "price", "451"),
    Column("conditions", "i32", "bits of CONDITIONS (a last price has some)"),
    Column("open_close_settl_flag", "i8", "286"),
    Column("settl_price_type", "i8", "731"),
    Column("price_type", "i8", "423"),
    Column("price_adjustment_method", "i8", "37013"),
    Column("last_trade_date", "date", "9325"),
    _TRADE_DATE,
    _SESSION,
    _VENUE,
    _ENTRY,
    Column("currency", "text", "15"),
    Column("tick_direction", "char", "274"),
    Column("trade_id", "i64", "of a last price"),
    Column("buyer", "i64", "of a last price"),
    Column("seller", "i64", "of a last price"),
    Column("seller_days", "i32", "287"),
    Column("interest_rate", "price", "37014"),
    Column("index_seq", "i64", "37100"),
    Column("underlying_id", "i64", "309 of a composite underlying"),
    Column("underlying_px_type", "i8", "37018"),
    Column("first_price", "price", "1025 of a volatility price"),
    Column("last_price", "price", "31 of a volatility price"),
    Column("price_delta", "price", "811 of a volatility price"),
)

STATUS = _family(
    "status",
    "Phase of a group or state of an instrument.",
    Column("security_group", "text", "1151; absent where one instrument is meant"),
    Column("security_exchange", "text", "207 of the group, as group codes repeat; BVMF where absent"),
    Column("phase", "i16", "625: the group's phase"),
    Column("state", "i16", "326: the instrument's state"),
    Column("event", "i16", "1174: 4 session change, 101 leaves its group, 102 rejoins"),
    _SESSION,
    Column("ts_open", "ns", "342: when the auction ends"),
    _TRADE_DATE,
)

IMBALANCE = _family(
    "imbalance",
    "Which side of an auction is left over, and how much.",
    Column("action", "char", "A set, C deleted", False),
    Column("side", "char", "B more buyers, A more sellers, N balanced", False),
    Column("size", "i64", "271"),
    Column("conditions", "i32", "bits of CONDITIONS", False),
)

PRICE_BAND = _family(
    "price_band",
    "Limits on prices (269=g) and quantities (269=h), and the reference price.",
    _ENTRY,
    Column("price_band_type", "i8", "6939: 1 hard, 2 auction, 3 rejection, 4 static"),
    Column("price_limit_type", "i8", "1306: 0 price, 1 ticks, 2 percent"),
    Column("midpoint_type", "i8", "37008"),
    Column("low_limit_price", "price", "1148"),
    Column("high_limit_price", "price", "1149"),
    Column("trading_reference_price", "price", "1150"),
    Column("avg_daily_traded_qty", "i64", "37003"),
    Column("max_trade_vol", "i64", "1140"),
)

DEFINITION = _family(
    "definition",
    "Instruments: the start-of-day list and what changed since.",
    Column("action", "char", "980: A add, M modify, D delete", False),
    Column("symbol", "text", "55"),
    Column("security_exchange", "text", "207"),
    Column("security_group", "text", "1151"),
    Column("asset", "text", "6937"),
    Column("security_type", "text", "167 as FIX names it: FUT, OPT, PS …"),
    Column("security_sub_type", "i32", "762"),
    Column("product", "i16", "460"),
    Column("isin", "text", "48 with 22=4, SBE isinNumber"),
    Column("cfi_code", "text", "461"),
    Column("description", "text", "107"),
    Column("currency", "text", "15"),
    Column("strike_currency", "text", "947"),
    Column("settl_currency", "text", "120"),
    Column("country", "text", "470"),
    Column("strategy_type", "text", "7534"),
    Column("total_instruments", "i64", "393: of the whole list"),
    Column("is_last", "i8", "893 lastFragment"),
    Column("tick", "price", "969 minPriceIncrement"),
    Column("tick_denominator", "i16", "5151"),
    Column("strike_price", "price", "202; strategies on options have none (12.3)"),
    Column("contract_multiplier", "price", "231"),
    Column("price_divisor", "price", "37012"),
    Column("maturity_date", "date", "541"),
    Column("maturity_month_year", "i32", "200 as yyyymm, yyyymmdd or, for week w of the month, yyyymm9w"),
    Column("contract_settl_month", "i32", "667"),
    Column("issue_date", "date", "225"),
    Column("dated_date", "date", "873"),
    Column("start_date", "date", "916"),
    Column("end_date", "date", "917"),
    Column("settl_date", "date", "64"),
    Column("settl_type", "i32", "63"),
    Column("ts_validity", "ns", "6938 securityValidityTimestamp"),
    Column("exercise_style", "i8", "1194: 0 European, 1 American"),
    Column("put_or_call", "i8", "201: 0 put, 1 call"),
    Column("opt_payout_type", "i8", "1482; the two feeds name 2 differently"),
    Column("price_type", "i8", "423"),
    Column("market_segment_id", "i32", "1300"),
    Column("governance_indicator", "i16", "37011 as Binary numbers it"),
    Column("security_match_type", "i16", "37015"),
    Column("multi_leg_model", "i8", "1377: 0 exchange-defined, 1 user-defined"),
    Column("multi_leg_price_method", "i8", "1378"),
    Column("implied_market_indicator", "i8", "1144"),
    Column("lot_type", "i8", "1093 of Binary"),
    Column("min_lot_size", "i64", "1231 of Binary"),
    Column("round_lot", "i64", "561"),
    Column("min_trade_vol", "i64", "562"),
    Column("min_order_qty", "i64", "9749"),
    Column("max_order_qty", "i64", "9748"),
    Column("min_cross_qty", "i64", "35561"),
    Column("shares_issued", "i64", "7595"),
    Column("clearing_house_id", "i64", "SBE clearingHouseID"),
    Column("corporate_action_event_id", "i64", "37010 on the instrument"),
    legs=(
        Column("leg_id", "i64", "602"),
        Column("leg_symbol", "text", "600"),
        Column("leg_ratio", "price", "623"),
        Column("leg_side", "i8", "624: 1 buy, 2 sell"),
        Column("leg_security_type", "text", "609"),
    ),
    underlyings=(
        Column("underlying_id", "i64", "309"),
        Column("underlying_symbol", "text", "311"),
        Column("index_pct", "price", "6919"),
        Column("index_theoretical_qty", "price", "37021"),
    ),
    attributes=(
        Column("attribute_type", "i16", "871"),
        Column("attribute_value", "i16", "872"),
    ),
    lots=(
        Column("lot_type", "i8", "1093"),
        Column("min_lot_size", "i64", "1231"),
    ),
    tick_rules=(
        Column("start_price", "price", "1206"),
        Column("end_price", "price", "1207"),
        Column("increment", "price", "1208"),
        Column("rule_type", "i8", "1209"),
    ),
    alternate_ids=(
        Column("alternate_id", "text", "455"),
        Column("id_source", "text", "456"),
    ),
    feeds=(  # the groups 1351 and 1141, flattened: one struct for each channel and feed type
        Column("channel", "i16", "1180"),
        Column("feed_type", "text", "1022"),
        Column("depth", "i32", "264; 0 is order depth"),
    ),
)

NEWS = _family(
    "news",
    "News, a row for each part as it was sent.",
    Column("news_source", "i16", "6940"),
    Column("language", "text", "1474"),
    Column("part_count", "i32", "how many parts there are"),
    Column("part_number", "i32", "from 1"),
    Column("news_id", "i64", "1472; the engine's own news have none"),
    Column("ts_origin", "ns", "42"),
    Column("total_text_length", "i64", "of all parts together"),
    Column("headline", "text", "148 or, encoded, 359"),
    Column("text", "text", "58 or, encoded, 355"),
    Column("url", "text", "149"),
    related=(Column("related_id", "i64", "48 of 146"),),
)

SNAPSHOT_FAMILY = _family(
    "snapshot",
    "Where a snapshot of an instrument starts; its book rows carry the flag SNAPSHOT.",
    Column("last_sequence", "i64", "369: the snapshot holds everything up to this number"),
    Column("last_seq_version", "i64", "lastSequenceVersion; absent before Binary version 15 and in FAST"),
    Column("last_rpt_seq", "i64", "83"),
    Column("total_snapshots", "i64", "911"),
    Column("total_bids", "i64", "Binary only"),
    Column("total_offers", "i64", "Binary only"),
    Column("total_stats", "i64", "Binary only: statistics and the status"),
    Column("depth", "i32", "264: absent for an order-depth book"),
    _TRADE_DATE,
)

CONTROL = _family(
    "control",
    "What keeps the stream itself going.",
    Column("kind", "char", "H heartbeat, S sequence reset, R channel reset", False),
    Column("next_sequence", "i64", "of the incremental stream: nextSeqNo, 36"),
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
