"""FIX/FAST tags ⇄ events: one table for the decoder, the encoder and the documentation.

A tag is found by its number and by its group (the tag of the group's count), never by its name. How a
value is converted follows from the type of its column and from its type in the template, which
differs between versions of the exchange's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umdf.market import families as e

# Groups: the tag of their count. 0 is the body of the message.
BODY, ENTRIES, INSTRUMENTS, UNDERLYINGS, LEGS, ATTRIBUTES, LOTS = 0, 268, 146, 711, 555, 870, 1234
TICK_RULES, ALTERNATE_IDS, CHANNELS, FEED_TYPES, TEXT_LINES = 1205, 454, 1351, 1141, 33

# 35. NonFixData (n) is not published any more and becomes nothing.
INCREMENTAL, SNAPSHOT, SECURITY_LIST, SECURITY_STATUS, NEWS = "X", "W", "y", "f", "B"
HEARTBEAT, SEQUENCE_RESET = "0", "4"
MSG_TYPE, MSG_SEQ_NUM, SENDING_TIME, NEW_SEQ_NO = 35, 34, 52, 36
ENTRY_TYPE, UPDATE_ACTION, SECURITY_ID, RPT_SEQ = 269, 279, 48, 83
QUOTE_CONDITION, TRADE_CONDITION, OPEN_CLOSE_SETTL_FLAG, VENUE = 276, 277, 286, 1500
ENTRY_DATE, ENTRY_TIME, THEORETICAL = 272, 273, 5

# When an entry is of this kind and not of the first one with its letter.
LAST_NOT_TRADE = "277 has U, or it stands in a snapshot"  # 10.1: no trade, only the last valid price
FLAG_THEORETICAL = "286 is 5"  # 10.4
NO_INSTRUMENT = "there is no 48"  # 4.2.9: the whole channel


@dataclass(frozen=True)
class EntryKind:
    """A kind of MDEntry: its 269, and the row that it becomes besides that of mbo."""

    entry_type: str
    name: str
    family: str = ""
    stat_type: int = 0
    condition: str = ""


ENTRY_KINDS = (
    EntryKind("", "unknown"),
    EntryKind("", "start of a snapshot"),
    EntryKind("0", "bid", "mbo"),
    EntryKind("1", "offer", "mbo"),
    EntryKind("J", "empty book", "mbo"),
    EntryKind("J", "channel reset", "control", condition=NO_INSTRUMENT),
    EntryKind("2", "trade", "trades"),
    EntryKind("2", "last price", "statistics", e.LAST_PRICE, LAST_NOT_TRADE),
    EntryKind("3", "index value", "statistics", e.INDEX_VALUE),
    EntryKind("4", "opening price", "statistics", e.OPENING_PRICE),
    EntryKind("4", "theoretical opening", "statistics", e.THEORETICAL_OPENING, FLAG_THEORETICAL),
    EntryKind("5", "closing price", "statistics", e.CLOSING_PRICE),
    EntryKind("6", "settlement price", "statistics", e.SETTLEMENT_PRICE),
    EntryKind("7", "high", "statistics", e.SESSION_HIGH),
    EntryKind("8", "low", "statistics", e.SESSION_LOW),
    EntryKind("9", "vwap", "statistics", e.VWAP),
    EntryKind("B", "trade volume", "statistics", e.TRADE_VOLUME),
    EntryKind("C", "open interest", "statistics", e.OPEN_INTEREST),
    EntryKind("D", "composite underlying", "statistics", e.COMPOSITE_UNDERLYING),
    EntryKind("v", "volatility price", "statistics", e.VOLATILITY),
    EntryKind("A", "imbalance", "imbalance"),
    EntryKind("c", "state", "status"),
    EntryKind("g", "price band", "price_band"),
    EntryKind("h", "quantity band", "price_band"),
)
KIND_NUMBERS = {kind.name: number for number, kind in enumerate(ENTRY_KINDS)}
UNKNOWN, SNAPSHOT_HEADER, BID, OFFER, EMPTY_BOOK, CHANNEL_RESET, TRADE, LAST_PRICE = range(8)
VOLUME, COMPOSITE, IMBALANCE = (KIND_NUMBERS[name] for name in ("trade volume", "composite underlying", "imbalance"))
ALL_KINDS = (1 << len(ENTRY_KINDS)) - 1
BOOK_KINDS = 1 << BID | 1 << OFFER


def _kind_mask(*kinds: int) -> int:
    return sum(1 << kind for kind in kinds)


# Conversions that do not follow from the types of column and template.
WORDS = "words"  # space-separated, each a bit
CODES = "codes"  # a text that represents a number
DIGITS = "digits"  # the digits at the end: D2 is 2, MBP101 is 101
SETTL_TYPE, DAYS_PREFIX = 63, "D"  # 0 is regular and has no letter


@dataclass(frozen=True)
class TagRule:
    """A column of a family and the tag that it comes from; a date has its time beside it.

    Where several rules name a column, each applies to the kinds of entries in `kind_mask`.
    """

    column: str
    tag: int
    time_tag: int = 0
    kind_mask: int = ALL_KINDS
    groups: tuple[int, ...] = (ENTRIES,)  # the first that has the tag
    conversion: str = ""
    absent: str = ""  # the meaning of an absent one, by the reference


QUOTE_CONDITIONS = {  # 276, bits of FLAGS
    "K": e.IMPLIED,
    "R": e.RECOVERY,
    "C": e.EXCHANGE_BEST,
    "LM": e.BTB_LIMITED,
    "AN": e.BTB_ALL_OR_NONE,
}
CODE_TABLES: Mapping[int, Mapping[str, int]] = {
    893: {"N": 0, "Y": 1},
    37011: {"No": 0, "N1": 1, "N2": 2, "N3": 3, "NM": 4, "MA": 5, "MB": 6, "M2": 7},
}

_VENUE = TagRule("venue", VENUE, absent="E")
_TRADE_DATE = TagRule("trade_date", 75, groups=(BODY,))
_INSTRUMENT = TagRule("instrument_id", SECURITY_ID, groups=(ENTRIES, BODY))
# 13.4: date and time of the event at the engine. A channel reset has no date (4.2.9): it is that of SendingTime.
_EVENT = TagRule("ts_event", ENTRY_DATE, ENTRY_TIME)
_COMMON = (
    _INSTRUMENT,
    TagRule("rpt_seq", RPT_SEQ, kind_mask=ALL_KINDS & ~_kind_mask(SNAPSHOT_HEADER)),
    TagRule("rpt_seq", RPT_SEQ, kind_mask=_kind_mask(SNAPSHOT_HEADER), groups=(BODY,)),
    _EVENT,
)
_CONDITIONS = TagRule("conditions", TRADE_CONDITION, conversion=WORDS)
_NOT_VOLUME, _ON_VOLUME = ALL_KINDS & ~_kind_mask(VOLUME, COMPOSITE), _kind_mask(VOLUME)
_BOOK_OR_TRADE = BOOK_KINDS | _kind_mask(TRADE)

# The entries of X and W, by family. `action`, `side` and `stat_type` follow from the kind and from 279.
ENTRY_RULES: Mapping[str, tuple[TagRule, ...]] = {
    "mbo": (
        *_COMMON,
        TagRule("price", 270, kind_mask=_BOOK_OR_TRADE),
        TagRule("size", 271, kind_mask=_BOOK_OR_TRADE),
        TagRule("order_id", 37, kind_mask=BOOK_KINDS),
        TagRule("firm", 288, kind_mask=_kind_mask(BID)),
        TagRule("firm", 289, kind_mask=_kind_mask(OFFER)),
        TagRule("prev_size", 37780, kind_mask=BOOK_KINDS),
        TagRule("position", 290, kind_mask=BOOK_KINDS),
        TagRule("order_count", 346, kind_mask=BOOK_KINDS),
        TagRule("ts_insert", 37016, 37017, kind_mask=BOOK_KINDS),
        _VENUE,
        TagRule("update_action", UPDATE_ACTION),
        TagRule("entry_type", ENTRY_TYPE),
        TagRule("trade_id", 1003, kind_mask=_kind_mask(TRADE)),
        TagRule("expire_date", 432, kind_mask=BOOK_KINDS),
        TagRule("early_termination", 37019, kind_mask=BOOK_KINDS),
        TagRule("btb_cert_indicator", 37023, kind_mask=BOOK_KINDS),
    ),
    "trades": (
        *_COMMON,
        TagRule("update_action", UPDATE_ACTION),
        TagRule("price", 270),
        TagRule("size", 271),
        TagRule("trade_id", 1003),
        TagRule("buyer", 288),
        TagRule("seller", 289),
        _CONDITIONS,
        _TRADE_DATE,
        TagRule("trading_session", 336),
        _VENUE,
        TagRule("ts_insert", 37016, 37017),
        TagRule("trade_volume", 1020),
        TagRule("net_change", 451),
        TagRule("tick_direction", 274),
        TagRule("seller_days", 287),
        TagRule("interest_rate", 37014),
        TagRule("early_termination", 37019),
        TagRule("btb_contract_info", 37024),
        TagRule("btb_grace_date", 37025),
        TagRule("expire_date", 432),
        TagRule("btb_cert_indicator", 37023),
    ),
    "statistics": (
        *_COMMON,
        TagRule("price", 270, kind_mask=_NOT_VOLUME),
        TagRule("price", 810, kind_mask=_kind_mask(COMPOSITE), groups=(UNDERLYINGS,)),
        TagRule("financial_volume", 270, kind_mask=_ON_VOLUME),  # 10.2
        TagRule("size", 271, kind_mask=ALL_KINDS & ~_ON_VOLUME),
        TagRule("size", 1020, kind_mask=_ON_VOLUME),
        TagRule("trade_count", 271, kind_mask=_ON_VOLUME),
        TagRule("net_change", 451),
        _CONDITIONS,
        TagRule("open_close_settl_flag", OPEN_CLOSE_SETTL_FLAG),
        TagRule("settl_price_type", 731),
        TagRule("price_type", 423),
        TagRule("price_adjustment_method", 37013),
        TagRule("last_trade_date", 9325),
        _TRADE_DATE,
        TagRule("trading_session", 336),
        _VENUE,
        TagRule("entry_type", ENTRY_TYPE),
        TagRule("currency", 15),
        TagRule("tick_direction", 274),
        TagRule("trade_id", 1003),
        TagRule("buyer", 288),
        TagRule("seller", 289),
        TagRule("seller_days", 287),
        TagRule("interest_rate", 37014),
        TagRule("index_seq", 37100),
        TagRule("underlying_id", 309, kind_mask=_kind_mask(COMPOSITE), groups=(UNDERLYINGS,)),
        TagRule("underlying_px_type", 37018, kind_mask=_kind_mask(COMPOSITE), groups=(UNDERLYINGS,)),
        TagRule("first_price", 1025),
        TagRule("last_price", 31),
        TagRule("price_delta", 811),
    ),
    "status": (  # 11.4
        *_COMMON,
        TagRule("phase", 625),
        TagRule("state", 326),
        TagRule("event", 1174),
        TagRule("trading_session", 336),
        TagRule("ts_open", 342),
        _TRADE_DATE,
        _VENUE,
    ),
    "imbalance": (*_COMMON, TagRule("size", 271), _CONDITIONS),
    "price_band": (
        *_COMMON,
        TagRule("entry_type", ENTRY_TYPE),
        TagRule("price_band_type", 6939),
        TagRule("price_limit_type", 1306),
        TagRule("midpoint_type", 37008),
        TagRule("low_limit_price", 1148),
        TagRule("high_limit_price", 1149),
        TagRule("trading_reference_price", 1150),
        TagRule("avg_daily_traded_qty", 37003),
        TagRule("max_trade_vol", 1140),
    ),
    "control": (_EVENT,),
}


def _group_rules(group: int, *rules: tuple[str, int] | tuple[str, int, str]) -> tuple[TagRule, ...]:
    return tuple(
        TagRule(rule[0], rule[1], groups=(group,), conversion=rule[2] if len(rule) > 2 else "") for rule in rules
    )


# Messages that are a row themselves.
BODY_RULES: Mapping[str, tuple[TagRule, ...]] = {
    "snapshot": _group_rules(
        BODY,
        ("instrument_id", SECURITY_ID),
        ("last_sequence", 369),
        ("last_rpt_seq", RPT_SEQ),
        ("total_snapshots", 911),
        ("depth", 264),
        ("trade_date", 75),
    ),
    "status": (
        TagRule("venue", VENUE, groups=(BODY,), absent="E"),
        *_group_rules(
            BODY,
            ("instrument_id", SECURITY_ID),
            ("ts_event", 60),
            ("security_exchange", 207),
            ("security_group", 1151),
            ("phase", 625),
            ("state", 326),
            ("event", 1174),
            ("trading_session", 336),
            ("ts_open", 342),
            ("trade_date", 75),
        ),
    ),
    "news": _group_rules(
        BODY,
        ("news_source", 6940),
        ("language", 1474),
        ("news_id", 1472),
        ("ts_origin", 42),
        ("url", 149),
    ),
    "control": _group_rules(BODY, ("next_sequence", NEW_SEQ_NO)),
}
# The encoded one first, the plain one, the length of the encoded one. Several lines of text become one text.
HEADLINES, TEXTS = (359, 148, 358), (355, 58, 354)

# The instruments of a SecurityList: a row each.
DEFINITION_RULES = (
    *_group_rules(BODY, ("total_instruments", 393), ("is_last", 893, CODES)),
    *_group_rules(
        INSTRUMENTS,
        ("instrument_id", SECURITY_ID),
        ("action", 980),
        ("symbol", 55),
        ("security_exchange", 207),
        ("security_group", 1151),
        ("asset", 6937),
        ("security_type", 167),
        ("security_sub_type", 762),
        ("product", 460),
        ("cfi_code", 461),
        ("description", 107),
        ("currency", 15),
        ("strike_currency", 947),
        ("settl_currency", 120),
        ("country", 470),
        ("strategy_type", 7534),
        ("tick", 969),
        ("tick_denominator", 5151),
        ("strike_price", 202),
        ("contract_multiplier", 231),
        ("price_divisor", 37012),
        ("maturity_date", 541),
        ("maturity_month_year", 200),
        ("contract_settl_month", 667),
        ("issue_date", 225),
        ("dated_date", 873),
        ("start_date", 916),
        ("end_date", 917),
        ("settl_date", 64),
        ("settl_type", SETTL_TYPE, DIGITS),
        ("ts_validity", 6938),
        ("exercise_style", 1194),
        ("put_or_call", 201),
        ("opt_payout_type", 1482),
        ("price_type", 423),
        ("market_segment_id", 1300),
        ("governance_indicator", 37011, CODES),
        ("security_match_type", 37015),
        ("multi_leg_model", 1377),
        ("multi_leg_price_method", 1378),
        ("implied_market_indicator", 1144),
        ("round_lot", 561),
        ("min_trade_vol", 562),
        ("min_order_qty", 9749),
        ("max_order_qty", 9748),
        ("min_cross_qty", 35561),
        ("shares_issued", 7595),
        ("corporate_action_event_id", 37010),  # in a leg, 37010 is something else
    ),
)
# Its repeating groups. The channels (1351) hold the feed types (1141); both together are the list `feeds`.
DEFINITION_LISTS: Mapping[str, tuple[int, tuple[TagRule, ...]]] = {
    "legs": (
        LEGS,
        _group_rules(
            LEGS,
            ("leg_id", 602),
            ("leg_symbol", 600),
            ("leg_ratio", 623),
            ("leg_side", 624),
            ("leg_security_type", 609),
        ),
    ),
    "underlyings": (
        UNDERLYINGS,
        _group_rules(
            UNDERLYINGS,
            ("underlying_id", 309),
            ("underlying_symbol", 311),
            ("index_pct", 6919),
            ("index_theoretical_qty", 37021),
        ),
    ),
    "attributes": (ATTRIBUTES, _group_rules(ATTRIBUTES, ("attribute_type", 871), ("attribute_value", 872))),
    "lots": (LOTS, _group_rules(LOTS, ("lot_type", 1093), ("min_lot_size", 1231))),
    "tick_rules": (
        TICK_RULES,
        _group_rules(TICK_RULES, ("start_price", 1206), ("end_price", 1207), ("increment", 1208), ("rule_type", 1209)),
    ),
    "alternate_ids": (ALTERNATE_IDS, _group_rules(ALTERNATE_IDS, ("alternate_id", 455), ("id_source", 456))),
}
FEED_RULES = (
    *_group_rules(CHANNELS, ("channel", 1180, DIGITS)),
    *_group_rules(FEED_TYPES, ("feed_type", 1022), ("depth", 264)),
)
ISIN_SOURCE = "4"  # 456
