"""Lines laid out for a wire → `Events`: what each column of a line means, family by family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_layout import Columns, Laid
from umdf.exchange.bulk_listing import Listing
from umdf.exchange.bulk_settings import POSITION, BulkSettings
from umdf.market import events as e
from umdf.market.rows import Events, List, Rows, Text, Units, text_of

Numbers = NDArray[Any]
OF_EVENTS = 0xFFFF  # the flags that events have
NONE_8, NONE_16, NONE_32 = e.NULL_I8, e.NULL_I16, e.NULL_I32
LEG_TRADE, REGULAR_SESSION = 102, 1
SETTLEMENT_STREAM, ELECTRONIC = ord("A"), ord("E")


def _by_kind(default: int, dtype: str, values: dict[int, Any]) -> Numbers:
    table = np.full(k.KINDS, default, dtype)
    for kind, value in values.items():
        table[kind] = ord(value) if isinstance(value, str) else value
    return table


ACTIONS = _by_kind(
    0,
    "u1",
    {
        k.ADD: "A", k.CHANGE: "M", k.DELETE: "C", k.DELETE_FROM: "C", k.DELETE_THRU: "R", k.EMPTY_BOOK: "R",
        k.CHANNEL_RESET: "R", k.SNAPSHOT_ORDER: "A", k.TRADE: "A", k.BUST: "C",
    },
)  # fmt: skip
UPDATE_ACTIONS = _by_kind(
    0,
    "i1",
    {k.CHANGE: e.CHANGE, k.DELETE: e.DELETE, k.DELETE_FROM: e.DELETE_FROM, k.DELETE_THRU: e.DELETE_THRU, k.BUST: 2},
)
ENTRY_TYPES = _by_kind(
    0,
    "u1",
    {
        k.EMPTY_BOOK: "J", k.CHANNEL_RESET: "J", k.OPENING: "4", k.THEORETICAL: "4", k.CLOSING: "5", k.SETTLEMENT: "6",
        k.HIGH: "7", k.LOW: "8", k.EXECUTION: "9", k.VOLUME: "B", k.INTEREST: "C", k.LAST_PRICE: "2",
        k.PRICE_BAND: "g", k.QUANTITY_BAND: "h",
    },
)  # fmt: skip
STAT_TYPES = _by_kind(
    0,
    "i2",
    {
        k.OPENING: e.OPENING_PRICE, k.THEORETICAL: e.THEORETICAL_OPENING, k.CLOSING: e.CLOSING_PRICE,
        k.SETTLEMENT: e.SETTLEMENT_PRICE, k.HIGH: e.SESSION_HIGH, k.LOW: e.SESSION_LOW, k.EXECUTION: e.VWAP,
        k.VOLUME: e.TRADE_VOLUME, k.INTEREST: e.OPEN_INTEREST, k.LAST_PRICE: e.LAST_PRICE,
    },
)  # fmt: skip
NEWS = (
    ("Market open", "Continuous trading has begun."),
    ("Leilão de fechamento", "Início do leilão de fechamento.\nAtenção às ofertas MOC."),
)


class EventMaker:
    """Events of one wire. `wire_rpt_seq` is the column of a line that holds RptSeq there."""

    def __init__(self, settings: BulkSettings, listing: Listing, wire_rpt_seq: int) -> None:
        self._settings, self._listing, self._rpt_seq = settings, listing, wire_rpt_seq
        self._by_position = settings.generation == POSITION
        self._makers: dict[str, Callable[[Columns], Rows]] = {
            "mbo": self._mbo,
            "trades": self._trades,
            "execution_summary": self._summaries,
            "statistics": self._statistics,
            "status": self._status,
            "imbalance": self._imbalance,
            "price_band": self._bands,
            "definition": self._definitions,
            "news": self._news,
            "snapshot": self._snapshots,
            "control": self._control,
        }

    def events(self, laid: Laid, seq_version: int, ts_send: Numbers | None = None) -> Events:
        count = len(laid.sequence)
        units = Units(
            np.full(count, self._settings.channel, np.int16),
            np.full(count, seq_version, np.int64),
            laid.sequence,
            laid.ts_ns if ts_send is None else ts_send,
            np.full(count, e.NULL, np.int64),
        )
        return Events(units, {name: self._makers[name](columns) for name, columns in laid.families.items()})

    def _rows(self, family: str, lines: Columns, columns: dict[str, Numbers], **more: Any) -> Rows:
        common = {
            "ts_event": lines[k.TS],
            "instrument_id": lines[k.INSTRUMENT],
            "rpt_seq": lines[self._rpt_seq],
            "flags": (lines[k.FLAGS] & OF_EVENTS).astype(np.int32),
        }
        return Rows(e.FAMILIES[family], lines.unit, lines.msg_index, lines.entry_index, {**common, **columns}, **more)

    def _constant(self, lines: Columns, value: int, dtype: str) -> Numbers:
        return np.full(len(lines), value, dtype)

    def _trade_date(self, lines: Columns) -> Numbers:
        return self._constant(lines, self._settings.trading_date, "i4")

    def _mbo(self, lines: Columns) -> Rows:
        kind, side = lines[k.KIND], lines[k.SIDE].astype(np.uint8)
        entry_type = np.where(side == k.BID, np.uint8(ord("0")), np.uint8(ord("1")))
        special = ENTRY_TYPES[kind]
        columns = {
            "action": ACTIONS[kind],
            "side": side,
            "price": lines[k.PRICE],
            "size": lines[k.SIZE],
            "order_id": lines[k.ID],
            "firm": lines[k.FIRM],
            "ts_insert": lines[k.INSERT],
            "update_action": UPDATE_ACTIONS[kind],
            "entry_type": np.where(special != 0, special, entry_type),
        }
        if self._by_position:
            columns["position"] = _narrow(lines[k.POSITION], "i4", NONE_32)
        else:
            columns["prev_size"] = lines[k.OTHER]
        return self._rows("mbo", lines, columns)

    def _trades(self, lines: Columns) -> Rows:
        kind, code = lines[k.KIND], lines[k.CODE]
        conditions = np.where(code == k.NULL, 0, code)
        implied = np.where(lines[k.FLAGS] & k.IMPLIED != 0, e.CONDITIONS["IM"], 0)
        columns = {
            "action": ACTIONS[kind],
            "update_action": UPDATE_ACTIONS[kind],
            "side": lines[k.SIDE].astype(np.uint8),
            "price": lines[k.PRICE],
            "size": lines[k.SIZE],
            "trade_id": lines[k.ID],
            "buyer": lines[k.FIRM],
            "seller": lines[k.OTHER],
            "conditions": (conditions | implied).astype(np.int32),
            "trade_condition": (conditions & 0x7FFF).astype(np.int32),
            "trd_sub_type": np.where(conditions & k.C_LEG != 0, LEG_TRADE, NONE_16).astype(np.int16),
            "ts_insert": lines[k.INSERT],
            "trade_volume": lines[k.AUX],
            "net_change": lines[k.POSITION],
            "trading_session": self._constant(lines, REGULAR_SESSION, "i1"),
            "trade_date": self._trade_date(lines),
            "stream": self._constant(lines, ELECTRONIC, "u1"),
        }
        return self._rows("trades", lines, columns)

    def _summaries(self, lines: Columns) -> Rows:
        columns = {
            "side": lines[k.SIDE].astype(np.uint8),
            "price": lines[k.PRICE],
            "size": lines[k.SIZE],
            "cancelled_size": lines[k.OTHER],
            "ts_aggressor": lines[k.INSERT],
        }
        return self._rows("execution_summary", lines, columns)

    def _statistics(self, lines: Columns) -> Rows:
        kind, code, other, aux = lines[k.KIND], lines[k.CODE], lines[k.OTHER], lines[k.AUX]
        last, volume = kind == k.LAST_PRICE, kind == k.VOLUME
        flagged = np.isin(kind, (k.OPENING, k.THEORETICAL, k.CLOSING, k.SETTLEMENT))
        bare = (kind == k.EXECUTION) & (self._rpt_seq == k.RPT_FAST)  # FIX/FAST sends the VWAP alone (10.3)
        settles, closes = kind == k.SETTLEMENT, (kind == k.CLOSING) & (code == 4)
        columns = {
            "stat_type": STAT_TYPES[kind],
            "action": _set_or_deleted(lines),
            "price": lines[k.PRICE],
            "size": np.where(bare, e.NULL, lines[k.SIZE]),
            "trade_count": np.where(last | bare, e.NULL, other),
            "financial_volume": np.where(volume, aux, e.NULL),
            "net_change": np.where(volume | last | bare, e.NULL, aux),
            "conditions": np.where(last, code, NONE_32).astype(np.int32),
            "open_close_settl_flag": np.where(flagged, code & 0xFF, NONE_8).astype(np.int8),
            "settl_price_type": np.where(settles, code >> 8, NONE_8).astype(np.int8),
            "price_type": np.where(settles, 3, NONE_8).astype(np.int8),
            "last_trade_date": np.where(closes, self._settings.trading_date - 1, NONE_32).astype(np.int32),
            "trade_id": lines[k.ID],
            "buyer": lines[k.FIRM],
            "seller": np.where(last, other, e.NULL),
            "trade_date": self._trade_date(lines),
            "trading_session": self._constant(lines, REGULAR_SESSION, "i1"),
            "stream": np.where(settles, SETTLEMENT_STREAM, ELECTRONIC).astype(np.uint8),
            "entry_type": ENTRY_TYPES[kind],
        }
        return self._rows("statistics", lines, columns, texts={"currency": _where(volume, b"BRL")})

    def _status(self, lines: Columns) -> Rows:
        group = lines[k.KIND] == k.GROUP_PHASE
        phase, state = np.where(group, lines[k.AUX], lines[k.OTHER]), np.where(group, k.NULL, lines[k.AUX])
        names = [self._listing.groups[g] if g >= 0 else None for g in np.where(group, lines[k.ID], -1).tolist()]
        columns = {
            "phase": _narrow(phase, "i2", NONE_16),
            "state": _narrow(state, "i2", NONE_16),
            "event": _narrow(lines[k.CODE], "i2", NONE_16),
            "trading_session": self._constant(lines, REGULAR_SESSION, "i1"),
            "ts_open": lines[k.INSERT],
            "trade_date": self._trade_date(lines),
        }
        return self._rows("status", lines, columns, texts={"security_group": text_of(names)})

    def _imbalance(self, lines: Columns) -> Rows:
        columns = {
            "action": _set_or_deleted(lines),
            "side": lines[k.SIDE].astype(np.uint8),
            "size": lines[k.SIZE],
            "conditions": lines[k.CODE].astype(np.int32),
        }
        return self._rows("imbalance", lines, columns)

    def _bands(self, lines: Columns) -> Rows:
        price = lines[k.KIND] == k.PRICE_BAND
        columns = {
            "entry_type": ENTRY_TYPES[lines[k.KIND]],
            "price_band_type": np.where(price, lines[k.CODE], NONE_8).astype(np.int8),
            "price_limit_type": np.where(price, 0, NONE_8).astype(np.int8),
            "low_limit_price": lines[k.PRICE],
            "high_limit_price": lines[k.AUX],
            "avg_daily_traded_qty": np.where(price, e.NULL, lines[k.SIZE]),
            "max_trade_vol": np.where(price, e.NULL, lines[k.OTHER]),
        }
        return self._rows("price_band", lines, columns)

    def _definitions(self, lines: Columns) -> Rows:
        columns, texts, lists = self._listing.definition(lines[k.ID], lines[k.OTHER])
        columns |= {
            "action": lines[k.CODE].astype(np.uint8),
            "total_instruments": lines[k.SIZE],
            "is_last": lines[k.POSITION].astype(np.int8),
        }
        feeds = List(
            np.arange(len(lines) + 1, dtype=np.int32),
            {
                "channel": self._constant(lines, self._settings.channel, "i2"),
                "depth": np.zeros(len(lines), np.int32),
            },
            {"feed_type": text_of(["MBO"] * len(lines))},
        )
        return self._rows("definition", lines, columns, texts=texts, lists={**lists, "feeds": feeds})

    def _news(self, lines: Columns) -> Rows:
        said = [NEWS[number] for number in lines[k.ID].tolist()]
        one = self._constant(lines, 1, "i4")
        columns = {
            "news_source": self._constant(lines, 3, "i2"),
            "part_count": one,
            "part_number": one,
            "ts_origin": lines[k.TS],
            "total_text_length": np.array([len(text.encode()) for _, text in said], np.int64),
        }
        texts = {"headline": text_of([headline for headline, _ in said]), "text": text_of([text for _, text in said])}
        return self._rows("news", lines, columns, texts=texts)

    def _snapshots(self, lines: Columns) -> Rows:
        columns = {
            "last_sequence": lines[k.ID],
            "last_seq_version": lines[k.CODE],
            "last_rpt_seq": lines[self._rpt_seq],
            "total_snapshots": lines[k.AUX],
            "total_bids": lines[k.SIZE],
            "total_offers": lines[k.OTHER],
            "total_stats": lines[k.POSITION],
            "trade_date": self._trade_date(lines),
        }
        return self._rows("snapshot", lines, columns)

    def _control(self, lines: Columns) -> Rows:
        resets = lines[k.KIND] == k.SEQUENCE_RESET
        columns = {
            "kind": np.where(resets, ord("S"), ord("H")).astype(np.uint8),
            "next_sequence": np.where(resets, 1, lines[k.ID]),
        }
        return self._rows("control", lines, columns)


def _narrow(values: Numbers, dtype: str, null: int) -> Numbers:
    return np.where(values == k.NULL, null, values).astype(dtype)


def _set_or_deleted(lines: Columns) -> Numbers:
    return np.where(lines[k.FLAGS] & k.DELETED != 0, np.uint8(ord("C")), np.uint8(ord("A")))


def _where(chosen: Numbers, text: bytes) -> Text:
    """A text in some rows, nothing in the others."""
    offsets = np.zeros(len(chosen) + 1, np.int32)
    np.cumsum(chosen * len(text), out=offsets[1:])
    return offsets, np.frombuffer(text * int(chosen.sum()), np.uint8)
