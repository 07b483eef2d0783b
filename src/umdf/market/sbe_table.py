"""Binary messages ⇄ events: one table, read by the decoder, the encoder and the documentation.

A line says which column of which family comes from which field (names as in the reference, section 9.2). Rules of one
family stand in the order in which events → messages tries them: the first whose test holds writes the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from umdf.market.events import (
    CLOSING_PRICE,
    CONDITIONS,
    IMPLIED,
    LAST,
    LAST_PRICE,
    MAYBE_BAD_BOOK,
    OPEN_INTEREST,
    OPENING_PRICE,
    RECOVERY,
    SESSION_HIGH,
    SESSION_LOW,
    SETTLEMENT_PRICE,
    SNAPSHOT,
    THEORETICAL_OPENING,
    TRD_SUB_TYPES,
    VWAP,
)
from umdf.market.sbe_definition_table import DEFINITION_RULE
from umdf.market.sbe_rules import (
    ABSENT,
    PRESENT,
    SUCCESSORS,
    AnyOf,
    Bits,
    Coded,
    Rule,
    Same,
    Scaled,
    Source,
    Test,
    always,
)

Columns = Mapping[str, Source]

SIDE = {"0": "B", "1": "A"}
AGGRESSOR = {1: "B", 2: "A"}
ORDER_ACTION = {0: "A", 1: "M", 2: "C"}
MASS_ACTION = {3: "R", 4: "C"}  # Delete Thru empties the side; Delete From takes positions 1 … N (NOTES: version < 15)
STATISTIC_ACTION = {0: "A", 2: "C", 1: "A", 5: "A", 3: "C", 4: "C"}
IMBALANCE_SIDE = {1: "B", 2: "A"}  # of the high byte: bits 8 and 9 (11.3)

EVENT_BITS = {7: LAST, 4: IMPLIED, 5: RECOVERY}  # MatchEventIndicator (11.1)
CONDITION_BITS = {bit: 1 << bit for bit in range(15)}  # TradeCondition and ImbalanceCondition (11.2, 11.3)


def _unknown_action(codes: Mapping[int, str]) -> Coded:
    """A book message with an action that nobody knows: the book cannot be trusted any more."""
    return Coded("mDUpdateAction", {code: 0 for code in codes}, MAYBE_BAD_BOOK)


_SUB_TYPES = {code: CONDITIONS[word] for code, word in TRD_SUB_TYPES.items()}
_EVENT = Bits("matchEventIndicator", EVENT_BITS)
_CONDITIONS = AnyOf(
    "",
    (
        Bits("tradeCondition", CONDITION_BITS, unknown=CONDITIONS["UNKNOWN"]),
        Coded("trdSubType", _SUB_TYPES, CONDITIONS["UNKNOWN"], absent=0),
        Bits("matchEventIndicator", {4: CONDITIONS["IM"]}),
    ),
)


def _common(time: str = "transactTime", rpt_seq: str = "rptSeq", flags: Source = _EVENT) -> Columns:
    when: Columns = {"ts_event": Scaled(time)} if time else {}
    return {"instrument_id": Same("securityID"), **when, "rpt_seq": Same(rpt_seq), "flags": flags}


_ENTRY_TIME = _common("mDEntryTimestamp")
_ACTION_AND_ENTRY: Columns = {"update_action": Same("mDUpdateAction"), "entry_type": Same("mDEntryType")}
_ORDER: Columns = {
    "side": Coded("mDEntryType", SIDE),
    "price": Scaled("mDEntryPx"),
    "size": Same("mDEntrySize"),
    "order_id": Same("secondaryOrderID"),
    "firm": Same("enteringFirm"),
    "prev_size": Same("mDEntryPrevSize"),
    "position": Same("mDEntryPositionNo"),
    "ts_insert": Scaled("mDInsertTimestamp"),
}
_NEITHER: Columns = {"side": always("N")}
_TRADE: Columns = {
    "price": Scaled("mDEntryPx"),
    "size": Same("mDEntrySize"),
    "trade_id": Same("tradeID"),
}
_FORWARD: Columns = {"seller_days": Same("sellerDays"), "interest_rate": Scaled("mDEntryInterestRate")}
_TRADE_MORE: Columns = {
    "side": always("N"),  # the aggressor, by `sbe_events`, where an execution summary named it
    "update_action": Same("mDUpdateAction"),
    "buyer": Same("mDEntryBuyer"),
    "seller": Same("mDEntrySeller"),
    "trade_condition": Same("tradeCondition"),
    "trd_sub_type": Same("trdSubType"),
    "conditions": _CONDITIONS,
    "trade_date": Same("tradeDate"),
    "trading_session": Same("tradingSessionID"),
}


def _moves_rpt_seq(template: int, time: str = "mDEntryTimestamp", entry_type: Source | None = None) -> Rule:
    """rptSeq is contiguous over all templates (83), so that the book's own stream must show every number."""
    flags = _EVENT if template != 55 else always(0)  # 55 has no matchEventIndicator
    columns = {"action": always("N"), **_NEITHER, **_common(time, flags=flags), **_ACTION_AND_ENTRY}
    return Rule(template, "mbo", {**columns, "entry_type": entry_type or Same("mDEntryType")}, only_with="rptSeq")


def _trade_in_book(template: int) -> Rule:
    return Rule(template, "mbo", {"action": always("T"), **_NEITHER, **_TRADE, **_common(), **_ACTION_AND_ENTRY})


def _statistic(template: int, stat_type: int, columns: Columns, *, deletable: bool = False) -> Rule:
    action: Source = Coded("mDUpdateAction", STATISTIC_ACTION, "A") if deletable else always("A")
    own: Columns = {
        "stat_type": always(stat_type),
        "action": action,
        "entry_type": Same("mDEntryType"),
        "trade_date": Same("tradeDate"),
        **_ENTRY_TIME,
    }
    # What is never deleted has no action on the wire, so that a deletion of it cannot be written.
    when = {"stat_type": stat_type} if deletable else {"stat_type": stat_type, "action": "A"}
    return Rule(template, "statistics", {**own, **columns}, when=(when,))


_PRICE: Columns = {"price": Scaled("mDEntryPx")}
_SIZE: Columns = {"size": Same("mDEntrySize")}
_FLAG: Columns = {"open_close_settl_flag": Same("openCloseSettlFlag")}
_NET_CHANGE: Columns = {"net_change": Scaled("netChgPrevDay")}

_MBO = (
    Rule(
        71,
        "mbo",
        {
            "action": always("A"),
            **_ORDER,
            "entry_type": Same("mDEntryType"),
            "instrument_id": Same("securityID"),
            "flags": Bits("matchEventIndicator", EVENT_BITS, always=SNAPSHOT),
        },
        group="noMDEntries",
        when=({"action": "A", "flags": SNAPSHOT},),
    ),
    Rule(
        11,
        "mbo",
        {"action": always("R"), **_NEITHER, **_ENTRY_TIME, **_ACTION_AND_ENTRY},
        when=({"action": "R", "instrument_id": ABSENT},),
    ),
    Rule(
        30,
        "mbo",
        {"action": always("R"), **_NEITHER, **_common("", "lastRptSeq", always(SNAPSHOT))},
    ),
    Rule(
        52,
        "mbo",
        {
            "action": Coded("mDUpdateAction", MASS_ACTION),
            "side": Coded("mDEntryType", SIDE),
            "position": Same("mDEntryPositionNo"),
            **_common(flags=AnyOf("", (_EVENT, _unknown_action(MASS_ACTION)))),
            **_ACTION_AND_ENTRY,
        },
        when=(
            {"action": "R", "side": "BA"},
            {"action": "C", "update_action": 4},
            {"action": "C", "order_id": ABSENT},
        ),
    ),
    Rule(
        9,
        "mbo",
        {"action": always("R"), **_NEITHER, **_ENTRY_TIME, **_ACTION_AND_ENTRY},
        when=({"action": "R"},),
    ),
    Rule(
        51,
        "mbo",
        # An order that was matched away had no size before version 15, and a delete needs none.
        {"action": always("C"), **_ORDER, "size": Same("mDEntrySize", or_null=True), **_common(), **_ACTION_AND_ENTRY},
        when=({"action": "C"},),
    ),
    Rule(
        50,
        "mbo",
        {
            "action": Coded("mDUpdateAction", ORDER_ACTION),
            **_ORDER,
            **_common(flags=AnyOf("", (_EVENT, _unknown_action(ORDER_ACTION)))),
            **_ACTION_AND_ENTRY,
        },
        when=({"action": "AM"},),
    ),
    _trade_in_book(53),
    _trade_in_book(54),
    _moves_rpt_seq(3, "transactTime", always("c")),
    *(_moves_rpt_seq(template) for template in (15, 16, 17, 19, 21, 22, 24, 25, 27, 28, 29, 56)),
    *(_moves_rpt_seq(template, "transactTime") for template in (55, 57)),
)

_TRADES = (
    Rule(57, "trades", {"action": always("C"), **_TRADE, **_TRADE_MORE, **_common()}, when=({"action": "C"},)),
    Rule(
        54,
        "trades",
        {"action": always("A"), **_TRADE, **_TRADE_MORE, **_FORWARD, **_common()},
        when=({"seller_days": PRESENT}, {"interest_rate": PRESENT}),
    ),
    Rule(53, "trades", {"action": always("A"), **_TRADE, **_TRADE_MORE, **_common()}, when=({"action": "A"},)),
    Rule(
        55,
        "execution_summary",
        {
            "side": Coded("aggressorSide", AGGRESSOR),
            "price": Scaled("lastPx"),
            "size": Same("fillQty"),
            "hidden_size": Same("tradedHiddenQty"),
            "cancelled_size": Same("cxlQty"),
            "ts_aggressor": Scaled("aggressorTime"),
            **_common(flags=always(0)),
        },
        when=({},),
    ),
)

_STATISTICS = (
    _statistic(15, OPENING_PRICE, {**_PRICE, **_NET_CHANGE, **_FLAG}, deletable=True),
    _statistic(16, THEORETICAL_OPENING, {**_PRICE, **_SIZE, **_FLAG}, deletable=True),
    _statistic(17, CLOSING_PRICE, {**_PRICE, **_FLAG, "last_trade_date": Same("lastTradeDate")}),
    _statistic(24, SESSION_HIGH, _PRICE, deletable=True),
    _statistic(25, SESSION_LOW, _PRICE, deletable=True),
    _statistic(
        27,
        LAST_PRICE,
        {
            **_TRADE,
            **_FORWARD,
            "buyer": Same("mDEntryBuyer"),
            "seller": Same("mDEntrySeller"),
            "conditions": _CONDITIONS,
            "trading_session": Same("tradingSessionID"),
        },
    ),
    _statistic(
        28,
        SETTLEMENT_PRICE,
        {**_PRICE, **_FLAG, "settl_price_type": Same("settlPriceType"), "price_type": Same("priceType")},
    ),
    _statistic(29, OPEN_INTEREST, _SIZE),
    _statistic(
        56,
        VWAP,
        {
            "price": Scaled("vwapPx"),
            "size": Same("tradeVolume"),
            "trade_count": Same("numberOfTrades"),
            **_NET_CHANGE,
            "trading_session": Same("tradingSessionID"),
        },
    ),
)

_STATUS: Columns = {
    "event": Same("securityTradingEvent"),
    "trading_session": Same("tradingSessionID"),
    "ts_open": Scaled("tradSesOpenTime"),
    "trade_date": Same("tradeDate"),
}
_SYSTEM: Columns = {"flags": always(0)}
_OTHERS = (
    Rule(
        10,
        "status",
        {
            "security_group": Same("securityGroup"),
            "phase": Same("tradingSessionSubID"),
            **_STATUS,
            "ts_event": Scaled("transactTime"),
            "flags": _EVENT,
        },
        when=({"security_group": PRESENT},),
    ),
    Rule(3, "status", {"state": Same("securityTradingStatus"), **_STATUS, **_common()}, when=({},)),
    Rule(
        19,
        "imbalance",
        {
            "action": Coded("mDUpdateAction", STATISTIC_ACTION, "A"),
            "side": Coded("imbalanceCondition", IMBALANCE_SIDE, shift=8),
            "conditions": Bits("imbalanceCondition", CONDITION_BITS, unknown=CONDITIONS["UNKNOWN"]),
            **_SIZE,
            **_ENTRY_TIME,
        },
        when=({},),
    ),
    Rule(
        21,
        "price_band",
        {
            "entry_type": Same("mDEntryType"),
            "avg_daily_traded_qty": Same("avgDailyTradedQty"),
            "max_trade_vol": Same("maxTradeVol"),
            **_ENTRY_TIME,
        },
        when=({"entry_type": "h"},),
    ),
    Rule(
        22,
        "price_band",
        {
            "entry_type": Same("mDEntryType"),
            "price_band_type": Same("priceBandType"),
            "price_limit_type": Same("priceLimitType"),
            "midpoint_type": Same("priceBandMidpointPriceType"),
            "low_limit_price": Scaled("lowLimitPrice"),
            "high_limit_price": Scaled("highLimitPrice"),
            "trading_reference_price": Scaled("tradingReferencePrice"),
            **_ENTRY_TIME,
        },
        when=({"entry_type": "g"},),
    ),
    Rule(
        5,
        "news",
        {
            "instrument_id": Same("securityID"),
            "flags": _EVENT,
            "news_source": Same("newsSource"),
            "language": Same("languageCode"),
            "part_count": Same("partCount"),
            "part_number": Same("partNumber"),
            "news_id": Same("newsID"),
            "ts_origin": Scaled("origTime"),
            "total_text_length": Same("totalTextLength"),
            "headline": Same("headline"),
            "text": Same("text"),
            "url": Same("uRLLink"),
        },
        when=({},),
    ),
    Rule(
        30,
        "snapshot",
        {
            **_common("", "lastRptSeq", always(SNAPSHOT)),
            "last_sequence": Same("lastMsgSeqNumProcessed"),
            "last_seq_version": Same("lastSequenceVersion"),
            "last_rpt_seq": Same("lastRptSeq"),
            "total_snapshots": Same("totNumReports"),
            "total_bids": Same("totNumBids"),
            "total_offers": Same("totNumOffers"),
            "total_stats": Same("totNumStats"),
        },
        when=({},),
    ),
    Rule(1, "control", {"kind": always("S"), "next_sequence": Same("newSeqNo"), **_SYSTEM}, when=({"kind": "S"},)),
    Rule(2, "control", {"kind": always("H"), "next_sequence": Same("nextSeqNo"), **_SYSTEM}, when=({"kind": "H"},)),
    Rule(
        11,
        "control",
        {"kind": always("R"), "ts_event": Scaled("mDEntryTimestamp"), "flags": _EVENT},
        when=({"kind": "R"},),
    ),
)


def _with_former(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    """Each rule, then the same for the template of older versions that a user's schema may have."""
    for rule in rules:
        yield rule
        yield from (replace(rule, template=former) for former, now in SUCCESSORS.items() if now == rule.template)


RULES: tuple[Rule, ...] = tuple(_with_former((*_MBO, *_TRADES, *_STATISTICS, *_OTHERS, DEFINITION_RULE)))

# Rows that another family's rows write: trades and statistics their own, the snapshot header its book's R.
WRITTEN_ELSEWHERE: Mapping[str, tuple[Test, ...]] = {"mbo": ({"action": "TN"}, {"action": "R", "flags": SNAPSHOT})}
