"""Binary messages → events, the slow and obvious way: plain Python over the rows that `view` shows.

Written from the message reference, template by template. It shares nothing with the table of `market`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from market.sbe_reference_definition import definition
from market.sbe_reference_message import (
    ENTRY_TYPES,
    MAYBE_BAD_BOOK,
    SNAPSHOT,
    STATISTICS,
    UNKNOWN,
    Event,
    Fields,
    Message,
)

from umdf.wire.sbe.decode import Batch
from umdf.wire.sbe.view import rows


def events(batches: Sequence[Batch], *, snapshot: bool = False) -> list[dict[str, list[Event]]]:
    """The events of some batches of one stream, by family."""
    aggressor = Aggressor()
    out: list[dict[str, list[Event]]] = []
    for batch in batches:
        families: dict[str, list[Event]] = {}
        headers = list(zip(batch.channel.tolist(), batch.seq_version.tolist(), batch.sequence.tolist(), strict=True))
        unit = -1
        for row in rows(batch):
            while unit < row.packet:
                unit += 1
                aggressor.packet(*headers[unit])
            template = int(row.node.path.rpartition("_")[2])
            for family, entry_index, event in events_of_message(template, row.fields):
                event |= {"unit": row.packet, "msg_index": row.msg_index, "entry_index": entry_index}
                event["flags"] |= SNAPSHOT if snapshot else 0
                if family == "trades" and not snapshot and event["action"] == "A":
                    event["side"] = aggressor.open.get(event["instrument_id"], "N")
                families.setdefault(family, []).append(event)
            if template == 55:
                summary = families["execution_summary"][-1]
                aggressor.open[summary["instrument_id"]] = summary["side"]
            if row.fields.get("matchEventIndicator", 0) & 128 and in_book(template, row.fields):
                aggressor.open.clear()
        while unit + 1 < batch.packets:
            unit += 1
            aggressor.packet(*headers[unit])
        out.append(families)
    return out


def in_book(template: int, fields: Fields) -> bool:
    return any(family == "mbo" for family, _, _ in events_of_message(template, fields))


class Aggressor:
    """The summaries of the event that goes on."""

    def __init__(self) -> None:
        self.open: dict[int | None, str] = {}
        self.last: tuple[int, int, int] | None = None

    def packet(self, channel: int, version: int, sequence: int) -> None:
        if sequence:
            if (channel, version, sequence - 1) != self.last:
                self.open.clear()
            self.last = channel, version, sequence


def events_of_message(template: int, fields: Fields) -> list[tuple[str, int, Event]]:
    """(family, entry_index, event) for everything that one message means."""
    out: list[tuple[str, int, Event]] = []
    for family, make in MAKERS.get(template, ()):
        message = Message(template, fields)
        for entry_index, event in enumerate(make(message)):
            event["flags"] = event.get("flags", 0) | message.flags
            out.append((family, entry_index, event))
    if template not in BOOK and template in ENTRY_TYPES and "rptSeq" in fields:
        message = Message(template, fields)
        event = rpt_seq_only(message)
        event["flags"] = message.event_flags() * (template != 55) | message.flags
        out.append(("mbo", 0, event))
    return out


def rpt_seq_only(m: Message) -> Event:
    action = None if m.template == 3 else m.update_action()
    return {"action": "N", "side": "N", "update_action": action, "entry_type": m.entry_type()} | m.common()


def order(m: Message) -> Event:
    return {
        "side": {"0": "B", "1": "A"}.get(m.fields.get("mDEntryType", ""), "N"),
        "price": m.price("mDEntryPx"),
        "size": m.whole("mDEntrySize"),
        "order_id": m.whole("secondaryOrderID"),
        "firm": m.whole("enteringFirm"),
        "prev_size": m.whole("mDEntryPrevSize"),
        "position": m.whole("mDEntryPositionNo", 0, (1 << 31) - 1),
        "ts_insert": m.whole("mDInsertTimestamp"),
        "entry_type": m.entry_type(),
    }


def add_or_change(m: Message) -> list[Event]:
    action = {0: "A", 1: "M", 2: "C"}.get(m.fields.get("mDUpdateAction", -1), "U")
    bad = MAYBE_BAD_BOOK if action == "U" else 0
    return [
        {"action": action, "update_action": m.update_action(), "flags": m.event_flags() | bad} | order(m) | m.common()
    ]


def delete(m: Message) -> list[Event]:
    return [{"action": "C", "update_action": 2, "flags": m.event_flags()} | order(m) | m.common()]


def mass_delete(m: Message) -> list[Event]:
    action = {3: "R", 4: "C"}.get(m.fields.get("mDUpdateAction", -1), "U")
    bad = MAYBE_BAD_BOOK if action == "U" else 0
    own = {"action": action, "update_action": m.update_action(), "flags": m.event_flags() | bad}
    whole = order(m)
    return [own | {name: whole[name] for name in ("side", "position", "entry_type")} | m.common()]


def empty(m: Message) -> list[Event]:
    return [rpt_seq_only(m) | {"action": "R", "flags": m.event_flags()}]


def trade_in_book(m: Message) -> list[Event]:
    own = {"price": m.price("mDEntryPx"), "size": m.whole("mDEntrySize"), "trade_id": m.whole("tradeID")}
    return [rpt_seq_only(m) | {"action": "T", "flags": m.event_flags()} | own]


def snapshot_in_book(m: Message) -> list[Event]:
    own = {"action": "R", "side": "N", "flags": SNAPSHOT, "instrument_id": m.whole("securityID")}
    return [own | {"rpt_seq": m.whole("lastRptSeq")}]


def snapshot_orders(m: Message) -> list[Event]:
    out = []
    for entry in m.fields.get("noMDEntries", ()):
        inner = Message(71, entry)
        event = {"action": "A", "instrument_id": m.whole("securityID")} | order(inner)
        out.append(event | {"flags": inner.event_flags() | SNAPSHOT | inner.flags | m.flags})
        m.flags = 0
    return out


def trade(m: Message) -> list[Event]:
    return [
        {
            "action": "C" if m.template == 57 else "A",
            "side": "N",
            "update_action": m.update_action(),
            "price": m.price("mDEntryPx"),
            "size": m.whole("mDEntrySize"),
            "trade_id": m.whole("tradeID"),
            "buyer": m.whole("mDEntryBuyer"),
            "seller": m.whole("mDEntrySeller"),
            "conditions": m.conditions(),
            "trade_condition": m.whole("tradeCondition"),
            "trd_sub_type": m.whole("trdSubType"),
            "trade_date": m.whole("tradeDate"),
            "trading_session": m.small("tradingSessionID"),
            "seller_days": m.whole("sellerDays"),
            "interest_rate": m.price("mDEntryInterestRate"),
            "flags": m.event_flags(),
        }
        | m.common()
    ]


def summary(m: Message) -> list[Event]:
    own = {
        "side": {1: "B", 2: "A"}.get(m.fields.get("aggressorSide", 0), "N"),
        "price": m.price("lastPx"),
        "size": m.whole("fillQty"),
        "hidden_size": m.whole("tradedHiddenQty"),
        "cancelled_size": m.whole("cxlQty"),
        "ts_aggressor": m.whole("aggressorTime"),
    }
    return [own | m.common()]


def deleted(m: Message) -> str:
    return "C" if m.fields.get("mDUpdateAction") in (2, 3, 4) else "A"


def statistic(m: Message) -> list[Event]:
    kind, entry = STATISTICS[m.template]
    vwap = m.template == 56
    own = {
        "stat_type": kind,
        "action": deleted(m),
        "entry_type": entry,
        "price": m.price("vwapPx" if vwap else "mDEntryPx"),
        "size": m.whole("tradeVolume" if vwap else "mDEntrySize"),
        "trade_count": m.whole("numberOfTrades"),
        "net_change": m.price("netChgPrevDay"),
        "conditions": m.conditions() if m.template == 27 else None,
        "open_close_settl_flag": 5 if m.template == 16 else m.small("openCloseSettlFlag"),
        "settl_price_type": m.small("settlPriceType"),
        "price_type": m.small("priceType"),
        "last_trade_date": m.whole("lastTradeDate"),
        "trade_date": m.whole("tradeDate"),
        "trading_session": m.small("tradingSessionID"),
        "trade_id": m.whole("tradeID"),
        "buyer": m.whole("mDEntryBuyer"),
        "seller": m.whole("mDEntrySeller"),
        "seller_days": m.whole("sellerDays"),
        "interest_rate": m.price("mDEntryInterestRate"),
        "flags": m.event_flags(),
    }
    return [own | m.common()]


def status(m: Message) -> list[Event]:
    own = {
        "security_group": m.fields.get("securityGroup") or None,
        "phase": m.whole("tradingSessionSubID"),
        "state": m.whole("securityTradingStatus"),
        "event": m.whole("securityTradingEvent"),
        "trading_session": m.small("tradingSessionID"),
        "ts_open": m.whole("tradSesOpenTime"),
        "trade_date": m.whole("tradeDate"),
        "flags": m.event_flags(),
    }
    return [own | m.common()]


def imbalance(m: Message) -> list[Event]:
    raw = m.fields.get("imbalanceCondition", 0)
    own = {
        "action": deleted(m),
        "side": {1: "B", 2: "A"}.get(raw >> 8, "N"),
        "size": m.whole("mDEntrySize"),
        "conditions": raw & 0x7FFF | (UNKNOWN if raw & 0x8000 else 0),
        "flags": m.event_flags(),
    }
    return [own | m.common()]


def band(m: Message) -> list[Event]:
    own = {
        "entry_type": m.entry_type(),
        "price_band_type": m.small("priceBandType"),
        "price_limit_type": m.small("priceLimitType"),
        "midpoint_type": m.small("priceBandMidpointPriceType"),
        "low_limit_price": m.price("lowLimitPrice"),
        "high_limit_price": m.price("highLimitPrice"),
        "trading_reference_price": m.price("tradingReferencePrice"),
        "avg_daily_traded_qty": m.whole("avgDailyTradedQty"),
        "max_trade_vol": m.whole("maxTradeVol"),
        "flags": m.event_flags(),
    }
    return [own | m.common()]


def news(m: Message) -> list[Event]:
    own = {
        "instrument_id": m.whole("securityID"),
        "news_source": m.whole("newsSource"),
        "language": m.fields.get("languageCode"),
        "part_count": m.whole("partCount"),
        "part_number": m.whole("partNumber"),
        "news_id": m.whole("newsID"),
        "ts_origin": m.whole("origTime"),
        "total_text_length": m.whole("totalTextLength"),
        "headline": m.fields.get("headline"),
        "text": m.fields.get("text"),
        "url": m.fields.get("uRLLink"),
        "flags": m.event_flags(),
    }
    return [own]


def snapshot_header(m: Message) -> list[Event]:
    own = {
        "instrument_id": m.whole("securityID"),
        "rpt_seq": m.whole("lastRptSeq"),
        "last_sequence": m.whole("lastMsgSeqNumProcessed"),
        "last_seq_version": m.whole("lastSequenceVersion"),
        "last_rpt_seq": m.whole("lastRptSeq"),
        "total_snapshots": m.whole("totNumReports"),
        "total_bids": m.whole("totNumBids"),
        "total_offers": m.whole("totNumOffers"),
        "total_stats": m.whole("totNumStats"),
        "flags": SNAPSHOT,
    }
    return [own]


def sequence_reset(m: Message) -> list[Event]:
    return [{"kind": "S", "next_sequence": 1}]


def heartbeat(m: Message) -> list[Event]:
    return [{"kind": "H", "next_sequence": m.whole("nextSeqNo")}]


def channel_reset(m: Message) -> list[Event]:
    return [{"kind": "R", "ts_event": m.whole("mDEntryTimestamp"), "flags": m.event_flags()}]


BOOK = {
    **{9: empty, 11: empty, 30: snapshot_in_book, 50: add_or_change, 51: delete, 52: mass_delete},
    **{53: trade_in_book, 54: trade_in_book, 71: snapshot_orders},
}
MAKERS: dict[int, list[tuple[str, Any]]] = {template: [("mbo", make)] for template, make in BOOK.items()}
for _template, _family, _make in (
    *((template, "statistics", statistic) for template in STATISTICS),
    *((template, "trades", trade) for template in (53, 54, 57)),
    *((template, "price_band", band) for template in (21, 22)),
    *((3, "status", status), (10, "status", status), (55, "execution_summary", summary), (19, "imbalance", imbalance)),
    *((5, "news", news), (30, "snapshot", snapshot_header), (12, "definition", definition)),
    *((1, "control", sequence_reset), (2, "control", heartbeat), (11, "control", channel_reset)),
):
    MAKERS.setdefault(_template, []).append((_family, _make))
