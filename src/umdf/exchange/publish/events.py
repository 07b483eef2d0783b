"""Units of one protocol → `Events`: what each column of a record means, family by family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.journal_details import DETAILS, OrderDetails, TradeDetails
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import FAST, MBO, MBP, POSITION, SBE, TOB, ChannelSettings
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.publish.statistic_rows import composite_columns, statistic_columns, with_composites
from umdf.exchange.publish.unit_builder import FamilyColumns, UnitBatch
from umdf.exchange.publish.unit_builder_kernel import RPT_SEQ
from umdf.market import families as e
from umdf.market.rows import Events, RepeatingGroup, Rows, Text, Units, text_column

Numbers = NDArray[Any]
EVENT_FLAGS = 0xFFFF  # the flags that events have
NONE_8, NONE_16, NONE_32 = e.NULL_I8, e.NULL_I16, e.NULL_I32
REGULAR_SESSION, AFTER_MARKET_SESSION = 1, 6  # 336
LENDING_VENUE = ord("L")
OFFER_KINDS, NO_DETAILS = (k.ADD, k.CHANGE, k.SNAPSHOT_ORDER), OrderDetails()
PLUS, MINUS = ord("0"), ord("2")  # 274
CONDITION_BITS = (1 << DETAILS) - 1
# Columns of trades and orders, and the attributes of their details.
ORDER_DETAILS = {
    "expire_date": "expire_date",
    "early_termination": "early_termination",
    "btb_cert_indicator": "cert_indicator",
}
TRADE_DETAILS = {
    **ORDER_DETAILS,
    "seller_days": "seller_days",
    "interest_rate": "interest_rate",
    "btb_contract_info": "contract_info",
    "btb_grace_date": "grace_date",
}
FEED_TYPES = {MBO: "", MBP: "STD", TOB: "STD"}  # 1022: not sent for MBO


def _table_by_kind(default: int, dtype: str, values: dict[int, Any]) -> Numbers:
    table = np.full(k.KINDS, default, dtype)
    for kind, value in values.items():
        table[kind] = ord(value) if isinstance(value, str) else value
    return table


ACTIONS = _table_by_kind(
    0,
    "u1",
    {
        k.ADD: "A", k.CHANGE: "M", k.DELETE: "C", k.DELETE_FROM: "C", k.DELETE_THRU: "R", k.EMPTY_BOOK: "R",
        k.CHANNEL_RESET: "R", k.SNAPSHOT_ORDER: "A", k.TRADE: "A", k.BUST: "C",
    },
)  # fmt: skip
UPDATE_ACTIONS = _table_by_kind(
    0,
    "i1",
    {k.CHANGE: e.CHANGE, k.DELETE: e.DELETE, k.DELETE_FROM: e.DELETE_FROM, k.DELETE_THRU: e.DELETE_THRU, k.BUST: 2},
)
ENTRY_TYPES = _table_by_kind(
    0,
    "u1",
    {
        k.EMPTY_BOOK: "J", k.CHANNEL_RESET: "J", k.OPENING: "4", k.THEORETICAL: "4", k.CLOSING: "5", k.SETTLEMENT: "6",
        k.HIGH: "7", k.LOW: "8", k.EXECUTION: "9", k.VOLUME: "B", k.OPEN_INTEREST: "C", k.LAST_PRICE: "2",
        k.PRICE_BAND: "g", k.QUANTITY_BAND: "h", k.INDEX_VALUE: "3", k.VOLATILITY: "v", k.COMPOSITE: "D",
    },
)  # fmt: skip
STAT_TYPES = _table_by_kind(
    0,
    "i2",
    {
        k.OPENING: e.OPENING_PRICE, k.THEORETICAL: e.THEORETICAL_OPENING, k.CLOSING: e.CLOSING_PRICE,
        k.SETTLEMENT: e.SETTLEMENT_PRICE, k.HIGH: e.SESSION_HIGH, k.LOW: e.SESSION_LOW, k.EXECUTION: e.VWAP,
        k.VOLUME: e.TRADE_VOLUME, k.OPEN_INTEREST: e.OPEN_INTEREST, k.LAST_PRICE: e.LAST_PRICE,
        k.INDEX_VALUE: e.INDEX_VALUE, k.VOLATILITY: e.VOLATILITY, k.COMPOSITE: e.COMPOSITE_UNDERLYING,
    },
)  # fmt: skip


class EventBuilder:
    """Builds the events of one channel."""

    def __init__(self, settings: ChannelSettings, listing: Listing, news: Sequence[NewsItem]) -> None:
        self._news_items = news
        self._settings, self._listing, self._protocol = settings, listing, settings.protocol
        self._depth = {MBO: 0, MBP: settings.depth, TOB: 1}[settings.book_type]  # 264
        self.trading_date = listing.trading_date  # days since 1970
        self._instrument_ids = listing.instrument_ids  # the last one of what concerns no instrument
        self._has_lending = bool((listing.type == InstrumentType.LENDING).any()) and settings.protocol == FAST
        self._is_by_position = settings.generation == POSITION
        self._builders: dict[str, Callable[[FamilyColumns], Rows]] = {
            "mbo": self._mbo,
            "trades": self._trades,
            "execution_summary": self._summaries,
            "statistics": self._statistics,
            "status": self._status,
            "imbalance": self._imbalance,
            "price_band": self._price_bands,
            "definition": self._definitions,
            "news": self._news,
            "snapshot": self._snapshots,
            "control": self._control,
        }

    def events(self, unit_batch: UnitBatch, seq_version: int, ts_send: Numbers | None = None) -> Events:
        count = len(unit_batch.sequence)
        units = Units(
            np.full(count, self._settings.channel, np.int16),
            np.full(count, seq_version, np.int64),
            unit_batch.sequence,
            unit_batch.ts_ns if ts_send is None else ts_send,
            np.full(count, e.NULL, np.int64),
        )
        return Events(units, {name: self._builders[name](columns) for name, columns in unit_batch.families.items()})

    def _rows(self, family: str, records: FamilyColumns, columns: dict[str, Numbers], **more: Any) -> Rows:
        common = {
            "ts_event": records[k.TS],
            "instrument_id": self._instrument_ids[np.maximum(records[k.INSTRUMENT], -1)],
            "rpt_seq": records[RPT_SEQ],
            "flags": (records[k.FLAGS] & EVENT_FLAGS).astype(np.int32),
        }
        return Rows(
            e.FAMILIES[family], records.unit, records.msg_index, records.entry_index, {**common, **columns}, **more
        )

    def _constant(self, records: FamilyColumns, value: int, dtype: str) -> Numbers:
        return np.full(len(records), value, dtype)

    def _trade_date(self, records: FamilyColumns) -> Numbers:
        return self._constant(records, self.trading_date, "i4")

    def _mbo(self, records: FamilyColumns) -> Rows:
        kind, side = records[k.KIND], records[k.SIDE].astype(np.uint8)
        entry_type = np.where(side == k.BID, np.uint8(ord("0")), np.uint8(ord("1")))
        special = ENTRY_TYPES[kind]
        columns = {
            "action": ACTIONS[kind],
            "side": side,
            "price": records[k.PRICE],
            "size": records[k.SIZE],
            "order_id": records[k.ID],
            "firm": records[k.FIRM],
            "ts_insert": records[k.INSERT],
            "update_action": UPDATE_ACTIONS[kind],
            "entry_type": np.where(special != 0, special, entry_type),
        }
        if self._settings.book_type != MBO:
            columns["order_count"] = _narrow(records[k.CODE], "i4", NONE_32)
        if self._settings.book_type == TOB:
            columns["update_action"] = np.where(kind == k.CHANGE, np.int8(e.OVERLAY), UPDATE_ACTIONS[kind])
        if self._is_by_position:
            columns["position"] = _narrow(records[k.POSITION], "i4", NONE_32)
        else:
            columns["prev_size"] = records[k.OTHER]
        if self._has_lending:
            venue = self._venues(records)
            columns["venue"] = np.where(venue == LENDING_VENUE, venue, 0).astype(np.uint8)  # absent is E
            is_offer = (venue == LENDING_VENUE) & np.isin(kind, OFFER_KINDS)
            orders = self._listing.details.orders
            found = [orders.get(number, NO_DETAILS) for number in np.where(is_offer, records[k.ID], e.NULL).tolist()]
            columns |= self._details(found, ORDER_DETAILS)
        return self._rows("mbo", records, columns)

    def _trades(self, records: FamilyColumns) -> Rows:
        kind, code = records[k.KIND], records[k.CODE]
        conditions = np.where(code == k.NULL, 0, code & CONDITION_BITS)
        flags = records[k.FLAGS]
        implied = np.where(flags & k.IMPLIED != 0, e.CONDITIONS["IM"], 0)
        columns = {
            "action": ACTIONS[kind],
            "update_action": UPDATE_ACTIONS[kind],
            "side": records[k.SIDE].astype(np.uint8),
            "price": records[k.PRICE],
            "size": records[k.SIZE],
            "trade_id": records[k.ID],
            "buyer": records[k.FIRM],
            "seller": records[k.OTHER],
            "conditions": (conditions | implied).astype(np.int32),
            "trade_condition": (conditions & 0x7FFF).astype(np.int32),
            "trd_sub_type": _sub_types(conditions),
            "ts_insert": records[k.INSERT],
            "trade_volume": records[k.AUX],
            "net_change": records[k.POSITION],
            "trading_session": _trading_session(records),
            "trade_date": self._trade_date(records),
            "venue": self._venues(records).astype(np.uint8),
            "tick_direction": np.where(flags & k.UPTICK != 0, PLUS, np.where(flags & k.DOWNTICK != 0, MINUS, 0)).astype(
                "u1"
            ),
        }
        if (details := np.where(code > 0, code >> DETAILS, 0)).any():
            trades = self._listing.details.trades
            columns |= self._details([trades[number] for number in details.tolist()], TRADE_DETAILS)
        return self._rows("trades", records, columns)

    @staticmethod
    def _details(details: Sequence[OrderDetails | TradeDetails], names: dict[str, str]) -> dict[str, Numbers]:
        """Columns of a family from the attributes of details."""
        found = {}
        for name, attribute in names.items():
            column = e.TRADES.column(name)
            values = [getattr(detail, attribute) for detail in details]
            found[name] = np.array([column.null if value is None else value for value in values], column.dtype)
        return found

    def _summaries(self, records: FamilyColumns) -> Rows:
        columns = {
            "side": records[k.SIDE].astype(np.uint8),
            "price": records[k.PRICE],
            "size": records[k.SIZE],
            "cancelled_size": records[k.OTHER],
            "ts_aggressor": records[k.INSERT],
        }
        return self._rows("execution_summary", records, columns)

    def _statistics(self, records: FamilyColumns) -> Rows:
        composite: dict[str, Numbers] = {}
        if (records[k.KIND] == k.COMPOSITE).any():
            records, prices = with_composites(records, self._listing)
            composite = composite_columns(prices, self._listing)
        kind = records[k.KIND]
        columns = {
            **statistic_columns(records, self._venues(records), self._protocol == FAST),
            "stat_type": STAT_TYPES[kind],
            "action": _set_or_deleted(records),
            "trade_date": self._trade_date(records),
            "trading_session": _trading_session(records),
            "entry_type": ENTRY_TYPES[kind],
        }
        if composite:
            composite["price"] = np.where(kind == k.COMPOSITE, composite["price"], columns["price"])
        return self._rows(
            "statistics", records, columns | composite, texts={"currency": _text_where(kind == k.VOLUME, b"BRL")}
        )

    def _venues(self, records: FamilyColumns) -> Numbers:
        """1500 of the instrument of each record."""
        return self._listing.venue[np.maximum(records[k.INSTRUMENT], 0)]

    def _status(self, records: FamilyColumns) -> Rows:
        group = records[k.KIND] == k.GROUP_PHASE
        phase, state = np.where(group, records[k.AUX], records[k.OTHER]), np.where(group, k.NULL, records[k.AUX])
        names = [self._listing.groups[g] if g >= 0 else None for g in np.where(group, records[k.ID], -1).tolist()]
        columns = {
            "phase": _narrow(phase, "i2", NONE_16),
            "state": _narrow(state, "i2", NONE_16),
            "event": _narrow(records[k.CODE], "i2", NONE_16),
            "trading_session": _trading_session(records),
            "ts_open": records[k.INSERT],
            "trade_date": self._trade_date(records),
        }
        return self._rows("status", records, columns, texts={"security_group": text_column(names)})

    def _imbalance(self, records: FamilyColumns) -> Rows:
        columns = {
            "action": _set_or_deleted(records),
            "side": records[k.SIDE].astype(np.uint8),
            "size": records[k.SIZE],
            "conditions": records[k.CODE].astype(np.int32),
        }
        return self._rows("imbalance", records, columns)

    def _price_bands(self, records: FamilyColumns) -> Rows:
        price, code = records[k.KIND] == k.PRICE_BAND, records[k.CODE]
        midpoint = code >> k.BAND_MIDPOINT & 0xFF
        columns = {
            "entry_type": ENTRY_TYPES[records[k.KIND]],
            "price_band_type": np.where(price & (code != 0), code & 0xFF, NONE_8).astype(np.int8),
            "price_limit_type": np.where(price & (code != 0), code >> k.BAND_LIMIT_TYPE & 0xFF, NONE_8).astype(np.int8),
            "midpoint_type": np.where(price & (midpoint > 0), midpoint - 1, NONE_8).astype(np.int8),
            "trading_reference_price": np.where(price & (code == 0), records[k.OTHER], e.NULL),
            "low_limit_price": records[k.PRICE],
            "high_limit_price": records[k.AUX],
            "avg_daily_traded_qty": np.where(price, e.NULL, records[k.SIZE]),
            "max_trade_vol": np.where(price, e.NULL, records[k.OTHER]),
        }
        return self._rows("price_band", records, columns)

    def _definitions(self, records: FamilyColumns) -> Rows:
        definitions = self._listing.definitions.rows(records[k.OTHER])
        columns = {
            **definitions.columns,
            "action": records[k.CODE].astype(np.uint8),
            "total_instruments": records[k.SIZE],
            "is_last": records[k.POSITION].astype(np.int8),
        }
        lists = {**definitions.lists, "feeds": self._feeds(records)}
        return self._rows("definition", records, columns, texts=definitions.texts, lists=lists)

    def _feeds(self, records: FamilyColumns) -> RepeatingGroup:
        """The channel of an instrument: the feed type and the depth are not sent for MBO (1141)."""
        return RepeatingGroup(
            np.arange(len(records) + 1, dtype=np.int32),
            {
                "channel": self._constant(records, self._settings.channel, "i2"),
                "depth": self._constant(records, self._depth or NONE_32, "i4"),
            },
            {"feed_type": text_column([FEED_TYPES[self._settings.book_type]] * len(records))},
        )

    def _news(self, records: FamilyColumns) -> Rows:
        items = [self._news_items[number] for number in records[k.ID].tolist()]
        # Binary sends a long text in parts (9.2.4), FIX/FAST in one message of several chunks.
        parts = [[item.text] if self._protocol == FAST else item.parts for item in items]
        numbers = np.where(records[k.POSITION] == k.NULL, 1, records[k.POSITION])
        columns = {
            "news_source": np.array([item.source for item in items], np.int16),
            "part_count": np.array([len(part) for part in parts], np.int32),
            "part_number": numbers.astype(np.int32),
            "news_id": np.array([e.NULL if item.news_id is None else item.news_id for item in items], np.int64),
            "ts_origin": records[k.TS],
            "total_text_length": np.array([len(item.text.encode()) for item in items], np.int64),
        }
        if self._protocol == SBE:  # has no list of instruments, but one of them (48)
            first = np.array([item.related[0] if item.related else -1 for item in items], np.int64)
            columns["instrument_id"] = self._instrument_ids[first]
        texts = {
            "headline": text_column([item.headline for item in items]),
            "text": text_column([part[number - 1] for part, number in zip(parts, numbers.tolist(), strict=True)]),
            "language": text_column([item.language or None for item in items]),
            "url": text_column([item.url or None for item in items]),
        }
        related = [index for item in items for index in item.related]
        offsets = np.cumsum([0, *(len(item.related) for item in items)]).astype(np.int32)
        ids = self._instrument_ids[np.array(related, np.int64)]
        lists = {"related": RepeatingGroup(offsets, {"related_id": ids})}
        return self._rows("news", records, columns, texts=texts, lists=lists if related else {})

    def _snapshots(self, records: FamilyColumns) -> Rows:
        columns = {
            "last_sequence": records[k.ID],
            "last_seq_version": records[k.CODE],
            "last_rpt_seq": records[RPT_SEQ],
            "total_snapshots": records[k.AUX],
            "total_bids": records[k.SIZE],
            "total_offers": records[k.OTHER],
            "total_stats": records[k.POSITION],
            "depth": self._constant(records, self._depth or NONE_32, "i4"),
            "trade_date": self._trade_date(records),
        }
        return self._rows("snapshot", records, columns)

    def _control(self, records: FamilyColumns) -> Rows:
        resets = records[k.KIND] == k.SEQUENCE_RESET
        columns = {
            "kind": np.where(resets, ord("S"), ord("H")).astype(np.uint8),
            "next_sequence": np.where(resets, 1, records[k.ID]),
        }
        return self._rows("control", records, columns)


def _sub_types(conditions: Numbers) -> Numbers:
    """The special type of a trade in Binary (829), which the word of its condition says too."""
    result = np.full(len(conditions), NONE_16, np.int16)
    for code, word in e.TRD_SUB_TYPES.items():
        result[conditions & e.CONDITIONS[word] != 0] = code
    return result


def _narrow(values: Numbers, dtype: str, null: int) -> Numbers:
    return np.where(values == k.NULL, null, values).astype(dtype)


def _trading_session(records: FamilyColumns) -> Numbers:
    is_after_market = records[k.FLAGS] & k.AFTER_MARKET != 0
    return np.where(is_after_market, AFTER_MARKET_SESSION, REGULAR_SESSION).astype(np.int8)


def _set_or_deleted(records: FamilyColumns) -> Numbers:
    return np.where(records[k.FLAGS] & k.DELETED != 0, np.uint8(ord("C")), np.uint8(ord("A")))


def _text_where(is_set: Numbers, text: bytes) -> Text:
    """A text in the rows that are set, null in the others."""
    offsets = np.zeros(len(is_set) + 1, np.int32)
    np.cumsum(is_set * len(text), out=offsets[1:])
    return offsets, np.frombuffer(text * int(is_set.sum()), np.uint8)
