"""Binary messages ⇄ events: one table, read by the decoder, the encoder and the documentation.

A rule maps fields of a template (names as in the reference, section 9.2) to columns of a family. To encode, the rules
of a family are tried in this order: the first whose test holds writes the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from umdf.market.families import (
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
    UNKNOWN_ACTION,
    VWAP,
)
from umdf.market.sbe.definition_mapping import DEFINITION_RULE
from umdf.market.sbe.mapping_rules import (
    ABSENT,
    PRESENT,
    SUCCESSORS,
    Bits,
    CodeMap,
    Combine,
    Copy,
    FieldSource,
    RowTest,
    Scale,
    TemplateRule,
    constant,
)

Columns = Mapping[str, FieldSource]

SIDE = {"0": "B", "1": "A"}
AGGRESSOR_SIDE = {1: "B", 2: "A"}
ORDER_ACTION = {0: "A", 1: "M", 2: "C"}
MASS_ACTION = {3: "R", 4: "C"}  # Delete Thru empties the side; Delete From takes positions 1 … N (NOTES: version < 15)
STATISTIC_ACTION = {0: "A", 2: "C", 1: "A", 5: "A", 3: "C", 4: "C"}
IMBALANCE_SIDE = {1: "B", 2: "A"}  # of the high byte: bits 8 and 9 (11.3)

EVENT_BITS = {7: LAST, 4: IMPLIED, 5: RECOVERY}  # MatchEventIndicator (11.1)
CONDITION_BITS = {bit: 1 << bit for bit in range(15)}  # TradeCondition and ImbalanceCondition (11.2, 11.3)


_SUB_TYPES = {code: CONDITIONS[word] for code, word in TRD_SUB_TYPES.items()}
_EVENT_FLAGS = Bits("matchEventIndicator", EVENT_BITS)
_CONDITIONS = Combine(
    "",
    (
        Bits("tradeCondition", CONDITION_BITS, unknown=CONDITIONS["UNKNOWN"]),
        CodeMap("trdSubType", _SUB_TYPES, CONDITIONS["UNKNOWN"], absent=0),
        Bits("matchEventIndicator", {4: CONDITIONS["IM"]}),
    ),
)


def _common(time: str = "transactTime", rpt_seq: str = "rptSeq", flags: FieldSource = _EVENT_FLAGS) -> Columns:
    when: Columns = {"ts_event": Scale(time)} if time else {}
    return {"instrument_id": Copy("securityID"), **when, "rpt_seq": Copy(rpt_seq), "flags": flags}


def _book_action(codes: Mapping[int, str]) -> Columns:
    """Of a message that changes the book: with an unknown action the book can no longer be trusted."""
    flag = CodeMap("mDUpdateAction", {code: 0 for code in codes}, MAYBE_BAD_BOOK)
    action = CodeMap("mDUpdateAction", codes, UNKNOWN_ACTION)
    return {"action": action, **_common(flags=Combine("", (_EVENT_FLAGS, flag)))}


_ENTRY_TIME = _common("mDEntryTimestamp")
_ACTION_AND_ENTRY: Columns = {"update_action": Copy("mDUpdateAction"), "entry_type": Copy("mDEntryType")}
_ORDER: Columns = {
    "side": CodeMap("mDEntryType", SIDE),
    "price": Scale("mDEntryPx"),
    "size": Copy("mDEntrySize"),
    "order_id": Copy("secondaryOrderID"),
    "firm": Copy("enteringFirm"),
    "prev_size": Copy("mDEntryPrevSize"),
    "position": Copy("mDEntryPositionNo"),
    "ts_insert": Scale("mDInsertTimestamp"),
}
_NO_SIDE: Columns = {"side": constant("N")}
_TRADE: Columns = {"price": Scale("mDEntryPx"), "size": Copy("mDEntrySize"), "trade_id": Copy("tradeID")}
_FORWARD: Columns = {"seller_days": Copy("sellerDays"), "interest_rate": Scale("mDEntryInterestRate")}
_DETAILS: Columns = {
    "side": constant("N"),  # the aggressor, by `events`, if an execution summary has it
    "update_action": Copy("mDUpdateAction"),
    "buyer": Copy("mDEntryBuyer"),
    "seller": Copy("mDEntrySeller"),
    "trade_condition": Copy("tradeCondition"),
    "trd_sub_type": Copy("trdSubType"),
    "conditions": _CONDITIONS,
    "trade_date": Copy("tradeDate"),
    "trading_session": Copy("tradingSessionID"),
}


def _rpt_seq_only(template: int, time: str = "mDEntryTimestamp", entry_type: FieldSource | None = None) -> TemplateRule:
    """rptSeq is contiguous over all templates (83), so that the book's own stream must show every number."""
    flags = _EVENT_FLAGS if template != 55 else constant(0)  # 55 has no matchEventIndicator
    columns = {"action": constant("N"), **_NO_SIDE, **_common(time, flags=flags), **_ACTION_AND_ENTRY}
    columns["entry_type"] = entry_type or Copy("mDEntryType")
    return TemplateRule(template, "mbo", columns, required_field="rptSeq")


def _trade_in_book(template: int) -> TemplateRule:
    columns = {"action": constant("T"), **_NO_SIDE, **_TRADE, **_common(), **_ACTION_AND_ENTRY}
    return TemplateRule(template, "mbo", columns)


def _statistic(template: int, stat_type: int, columns: Columns, *, deletable: bool = False) -> TemplateRule:
    action: FieldSource = CodeMap("mDUpdateAction", STATISTIC_ACTION, "A") if deletable else constant("A")
    own: Columns = {
        "stat_type": constant(stat_type),
        "action": action,
        "entry_type": Copy("mDEntryType"),
        "trade_date": Copy("tradeDate"),
        **_ENTRY_TIME,
    }
    # What is never deleted has no action on the wire, so that a deletion of it cannot be written.
    when = {"stat_type": stat_type} if deletable else {"stat_type": stat_type, "action": "A"}
    return TemplateRule(template, "statistics", {**own, **columns}, when=(when,))


_PRICE: Columns = {"price": Scale("mDEntryPx")}
_SIZE: Columns = {"size": Copy("mDEntrySize")}
_FLAG: Columns = {"open_close_settl_flag": Copy("openCloseSettlFlag")}
_NET_CHANGE: Columns = {"net_change": Scale("netChgPrevDay")}

_MBO = (
    TemplateRule(
        71,
        "mbo",
        {
            "action": constant("A"),
            **_ORDER,
            "entry_type": Copy("mDEntryType"),
            "instrument_id": Copy("securityID"),
            "flags": Bits("matchEventIndicator", EVENT_BITS, always=SNAPSHOT),
        },
        group="noMDEntries",
        when=({"action": "A", "flags": SNAPSHOT},),
    ),
    TemplateRule(
        11,
        "mbo",
        {"action": constant("R"), **_NO_SIDE, **_ENTRY_TIME, **_ACTION_AND_ENTRY},
        when=({"action": "R", "instrument_id": ABSENT},),
    ),
    TemplateRule(
        30,
        "mbo",
        {"action": constant("R"), **_NO_SIDE, **_common("", "lastRptSeq", constant(SNAPSHOT))},
    ),
    TemplateRule(
        52,
        "mbo",
        {
            **_book_action(MASS_ACTION),
            "side": CodeMap("mDEntryType", SIDE),
            "position": Copy("mDEntryPositionNo"),
            **_ACTION_AND_ENTRY,
        },
        when=(
            {"action": "R", "side": "BA"},
            {"action": "C", "update_action": 4},
            {"action": "C", "order_id": ABSENT},
        ),
    ),
    TemplateRule(
        9,
        "mbo",
        {"action": constant("R"), **_NO_SIDE, **_ENTRY_TIME, **_ACTION_AND_ENTRY},
        when=({"action": "R"},),
    ),
    TemplateRule(
        51,
        "mbo",
        # An order that was matched away had no size before version 15, and a delete needs none.
        {
            "action": constant("C"),
            **_ORDER,
            "size": Copy("mDEntrySize", or_null=True),
            **_common(),
            **_ACTION_AND_ENTRY,
        },
        when=({"action": "C"},),
    ),
    TemplateRule(
        50,
        "mbo",
        {**_book_action(ORDER_ACTION), **_ORDER, **_ACTION_AND_ENTRY},
        when=({"action": "AM"},),
    ),
    _trade_in_book(53),
    _trade_in_book(54),
    _rpt_seq_only(3, "transactTime", constant("c")),
    *(_rpt_seq_only(template) for template in (15, 16, 17, 19, 21, 22, 24, 25, 27, 28, 29, 56)),
    *(_rpt_seq_only(template, "transactTime") for template in (55, 57)),
)

_TRADES = (
    TemplateRule(57, "trades", {"action": constant("C"), **_TRADE, **_DETAILS, **_common()}, when=({"action": "C"},)),
    TemplateRule(
        54,
        "trades",
        {"action": constant("A"), **_TRADE, **_DETAILS, **_FORWARD, **_common()},
        when=({"seller_days": PRESENT}, {"interest_rate": PRESENT}),
    ),
    TemplateRule(53, "trades", {"action": constant("A"), **_TRADE, **_DETAILS, **_common()}, when=({"action": "A"},)),
    TemplateRule(
        55,
        "execution_summary",
        {
            "side": CodeMap("aggressorSide", AGGRESSOR_SIDE),
            "price": Scale("lastPx"),
            "size": Copy("fillQty"),
            "hidden_size": Copy("tradedHiddenQty"),
            "cancelled_size": Copy("cxlQty"),
            "ts_aggressor": Scale("aggressorTime"),
            **_common(flags=constant(0)),
        },
        when=({},),
    ),
)

_STATISTICS = (
    _statistic(15, OPENING_PRICE, {**_PRICE, **_NET_CHANGE, **_FLAG}, deletable=True),
    _statistic(16, THEORETICAL_OPENING, {**_PRICE, **_SIZE, **_FLAG}, deletable=True),
    _statistic(17, CLOSING_PRICE, {**_PRICE, **_FLAG, "last_trade_date": Copy("lastTradeDate")}),
    _statistic(24, SESSION_HIGH, _PRICE, deletable=True),
    _statistic(25, SESSION_LOW, _PRICE, deletable=True),
    _statistic(
        27,
        LAST_PRICE,
        {
            **_TRADE,
            **_FORWARD,
            "buyer": Copy("mDEntryBuyer"),
            "seller": Copy("mDEntrySeller"),
            "conditions": _CONDITIONS,
            "trading_session": Copy("tradingSessionID"),
        },
    ),
    _statistic(
        28,
        SETTLEMENT_PRICE,
        {**_PRICE, **_FLAG, "settl_price_type": Copy("settlPriceType"), "price_type": Copy("priceType")},
    ),
    _statistic(29, OPEN_INTEREST, _SIZE),
    _statistic(
        56,
        VWAP,
        {
            "price": Scale("vwapPx"),
            "size": Copy("tradeVolume"),
            "trade_count": Copy("numberOfTrades"),
            **_NET_CHANGE,
            "trading_session": Copy("tradingSessionID"),
        },
    ),
)

_STATUS: Columns = {
    "event": Copy("securityTradingEvent"),
    "trading_session": Copy("tradingSessionID"),
    "ts_open": Scale("tradSesOpenTime"),
    "trade_date": Copy("tradeDate"),
}
_SYSTEM: Columns = {"flags": constant(0)}
_OTHER_FAMILIES = (
    TemplateRule(
        10,
        "status",
        {
            "security_group": Copy("securityGroup"),
            "phase": Copy("tradingSessionSubID"),
            **_STATUS,
            "ts_event": Scale("transactTime"),
            "flags": _EVENT_FLAGS,
        },
        when=({"security_group": PRESENT},),
    ),
    TemplateRule(3, "status", {"state": Copy("securityTradingStatus"), **_STATUS, **_common()}, when=({},)),
    TemplateRule(
        19,
        "imbalance",
        {
            "action": CodeMap("mDUpdateAction", STATISTIC_ACTION, "A"),
            "side": CodeMap("imbalanceCondition", IMBALANCE_SIDE, shift=8),
            "conditions": Bits("imbalanceCondition", CONDITION_BITS, unknown=CONDITIONS["UNKNOWN"]),
            **_SIZE,
            **_ENTRY_TIME,
        },
        when=({},),
    ),
    TemplateRule(
        21,
        "price_band",
        {
            "entry_type": Copy("mDEntryType"),
            "avg_daily_traded_qty": Copy("avgDailyTradedQty"),
            "max_trade_vol": Copy("maxTradeVol"),
            **_ENTRY_TIME,
        },
        when=({"entry_type": "h"},),
    ),
    TemplateRule(
        22,
        "price_band",
        {
            "entry_type": Copy("mDEntryType"),
            "price_band_type": Copy("priceBandType"),
            "price_limit_type": Copy("priceLimitType"),
            "midpoint_type": Copy("priceBandMidpointPriceType"),
            "low_limit_price": Scale("lowLimitPrice"),
            "high_limit_price": Scale("highLimitPrice"),
            "trading_reference_price": Scale("tradingReferencePrice"),
            **_ENTRY_TIME,
        },
        when=({"entry_type": "g"},),
    ),
    TemplateRule(
        5,
        "news",
        {
            "instrument_id": Copy("securityID"),
            "flags": _EVENT_FLAGS,
            "news_source": Copy("newsSource"),
            "language": Copy("languageCode"),
            "part_count": Copy("partCount"),
            "part_number": Copy("partNumber"),
            "news_id": Copy("newsID"),
            "ts_origin": Scale("origTime"),
            "total_text_length": Copy("totalTextLength"),
            "headline": Copy("headline"),
            "text": Copy("text"),
            "url": Copy("uRLLink"),
        },
        when=({},),
    ),
    TemplateRule(
        30,
        "snapshot",
        {
            **_common("", "lastRptSeq", constant(SNAPSHOT)),
            "last_sequence": Copy("lastMsgSeqNumProcessed"),
            "last_seq_version": Copy("lastSequenceVersion"),
            "last_rpt_seq": Copy("lastRptSeq"),
            "total_snapshots": Copy("totNumReports"),
            "total_bids": Copy("totNumBids"),
            "total_offers": Copy("totNumOffers"),
            "total_stats": Copy("totNumStats"),
        },
        when=({},),
    ),
    TemplateRule(
        1, "control", {"kind": constant("S"), "next_sequence": Copy("newSeqNo"), **_SYSTEM}, when=({"kind": "S"},)
    ),
    TemplateRule(
        2, "control", {"kind": constant("H"), "next_sequence": Copy("nextSeqNo"), **_SYSTEM}, when=({"kind": "H"},)
    ),
    TemplateRule(
        11,
        "control",
        {"kind": constant("R"), "ts_event": Scale("mDEntryTimestamp"), "flags": _EVENT_FLAGS},
        when=({"kind": "R"},),
    ),
)


def _with_former(rules: tuple[TemplateRule, ...]) -> Iterator[TemplateRule]:
    """Each rule, then the same for the template of older versions that a user's schema may have."""
    for rule in rules:
        yield rule
        yield from (replace(rule, template=former) for former, now in SUCCESSORS.items() if now == rule.template)


_ALL = (*_MBO, *_TRADES, *_STATISTICS, *_OTHER_FAMILIES, DEFINITION_RULE)
RULES: tuple[TemplateRule, ...] = tuple(_with_former(_ALL))

# Rows that another family's rows write: trades and statistics their own, the snapshot header its book's R.
WRITTEN_BY_OTHERS: Mapping[str, tuple[RowTest, ...]] = {"mbo": ({"action": "TN"}, {"action": "R", "flags": SNAPSHOT})}
