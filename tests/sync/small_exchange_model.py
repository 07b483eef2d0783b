"""What the small exchange holds about an instrument, and how it writes it into Binary messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

CLOSE, OPEN, UNKNOWN = 4, 17, 20  # 625 and 326
PHASES = (2, CLOSE, OPEN, 18, 21, 101)
SEPARATES, REJOINS, SESSION_CHANGE = 101, 102, 4  # 1174
NEW, CHANGE, DELETE_THRU = 0, 1, 3  # 279
BID, OFFER = "0", "1"
PRICE_UNIT = 10**9
TRADE_DATE = 20_000
NO_FLAGS = {"matchEventIndicator": 0}
Fields = dict[str, Any]
Message = tuple[int, Fields]


class OrderView(NamedTuple):
    order_id: int
    price: int
    size: int


class View(NamedTuple):
    """What is right about an instrument. One that does not exist has no order, no trade, and an unknown state."""

    bids: tuple[OrderView, ...] = ()
    offers: tuple[OrderView, ...] = ()
    last: int | None = None
    trades: int = 0
    high: int | None = None
    state: int = UNKNOWN


@dataclass(frozen=True)
class Order:
    order_id: int
    side: str
    price: int
    size: int
    ts: int

    @property
    def priority(self) -> tuple[int, int]:
        """Best price first, at one price the oldest first."""
        return -self.price if self.side == BID else self.price, self.ts

    def fields(self) -> Fields:
        return {
            "mDEntryType": self.side,
            "mDEntryPx": self.price,
            "mDEntrySize": self.size,
            "secondaryOrderID": self.order_id,
            "mDInsertTimestamp": self.ts,
        }


@dataclass(frozen=True)
class Trade:
    price: int
    size: int
    trade_id: int
    ts: int

    def fields(self) -> Fields:
        ids = {"tradingSessionID": 1, "tradeDate": TRADE_DATE, "tradeID": self.trade_id}
        return ids | {"mDEntryPx": self.price, "mDEntrySize": self.size}

    def last_price_fields(self) -> Fields:
        return self.fields() | {"tradeCondition": 0, "mDEntryTimestamp": self.ts}


@dataclass
class Instrument:
    instrument_id: int
    group: str
    rpt_seq: int = 0
    orders: dict[int, Order] = field(default_factory=dict)
    last: Trade | None = None
    trades: dict[int, Trade] = field(default_factory=dict)  # of the session
    high: int | None = None
    own_state: int | None = None  # while it is separated from its group

    def side(self, side: str) -> list[Order]:
        return sorted((order for order in self.orders.values() if order.side == side), key=lambda order: order.priority)

    def view(self, phase: int) -> View:
        sides = [
            [OrderView(o.order_id, o.price * PRICE_UNIT, o.size) for o in self.side(side)] for side in (BID, OFFER)
        ]
        last, high = self.last and self.last.price * PRICE_UNIT, self.high and self.high * PRICE_UNIT
        state = phase if self.own_state is None else self.own_state
        return View(tuple(sides[0]), tuple(sides[1]), last, len(self.trades), high, state)

    def definition(self, action: str, total: int = 1, *, is_last: bool = True) -> Message:
        return 12, {
            "securityID": self.instrument_id,
            "securityExchange": "BVMF",
            "securityIDSource": "8",
            "securityGroup": self.group,
            "symbol": f"{self.group}{self.instrument_id}",
            "securityUpdateAction": action,
            "securityType": 3,
            "securitySubType": 1,
            "totNoRelatedSym": total,
            "lastFragment": int(is_last),
            "issueDate": 1,
            "asset": self.group,
            "cfiCode": "ESXXXX",
            "currency": "BRL",
            "product": 5,
        }

    def snapshot(self, sequence: int, epoch: int, instruments: int, state: Fields | None) -> list[Message]:
        """Its header, orders, statistics and status, as of a packet of the incremental stream."""
        own = {"securityID": self.instrument_id}
        statistics: list[Message] = []
        if self.last is not None:
            statistics.append((27, own | self.last.last_price_fields() | NO_FLAGS))
        if self.high is not None:
            statistics.append((24, own | high_fields(self.high) | NO_FLAGS))
        if state is not None:
            statistics.append((3, state | NO_FLAGS))
        header = own | {
            "lastMsgSeqNumProcessed": sequence,
            "lastSequenceVersion": epoch,
            "lastRptSeq": self.rpt_seq or None,  # 0 is the null value
            "totNumReports": instruments,
            "totNumBids": len(self.side(BID)),
            "totNumOffers": len(self.side(OFFER)),
            "totNumStats": len(statistics),
        }
        entries = [order.fields() | NO_FLAGS for order in (*self.side(BID), *self.side(OFFER))]
        halves = entries[: len(entries) // 2], entries[len(entries) // 2 :]
        orders: list[Message] = [(71, own | {"noMDEntries": part}) for part in halves if part]
        return [(30, header), *orders, *statistics]


def high_fields(high: int) -> Fields:
    return {"mDUpdateAction": NEW, "tradeDate": TRADE_DATE, "mDEntryPx": high}


def phase_fields(group: str, phase: int, ts: int) -> Fields:
    fields = {"securityGroup": group, "tradingSessionID": 1, "tradingSessionSubID": phase}
    return fields | {"tradeDate": TRADE_DATE, "transactTime": ts}
