"""X 152 messages of a busy order channel, for timing: one to five entries of 55 template fields each, mostly orders,
with trades, price bands, statistics and indexes with their underlyings among them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.wire.fast.loader import load
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal

TEMPLATE = 152
DATE = 20260302
FIRMS = ("3", "8", "16", "27", "45", "85", "107", "114", "120", "122", "131", "238", "308", "386", "1618")
INSTRUMENTS = 500


def order_book_messages(messages: int, seed: int = 3) -> list[dict[str, Any]]:
    """Values for `Writer.encode`."""
    rng = random.Random(seed)
    return [_message(rng, number) for number in range(messages)]


def encoded_order_book_messages(
    messages: int, repeat: int = 1, seed: int = 3
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], int]:
    """The buffer, start and end of each message, and the number of entries; `repeat` times the same messages."""
    writer = Writer(load())
    values = order_book_messages(messages, seed)
    written = [writer.encode(TEMPLATE, message) for message in values] * repeat
    sizes = np.array([len(data) for data in written], np.int64)
    end = np.cumsum(sizes)
    entries = repeat * sum(len(message["MDEntries"]) for message in values)
    return np.frombuffer(b"".join(written), np.uint8), end - sizes, end, entries


def _message(rng: random.Random, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "ApplVerID": "9",
        "MsgType": "X",
        "MsgSeqNum": number + 1,
        "SendingTime": DATE * 1_000_000_000 + 100_000_000 + 3 * number,
    }
    if rng.random() < 0.02:
        message["TradeDate"] = DATE
    market = _EntryGenerator(rng)
    message["MDEntries"] = [market.entry() for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5)))]
    return message


class _EntryGenerator:
    """What the entries of a message have in common."""

    def __init__(self, rng: random.Random) -> None:
        self.chance = rng
        self.time = rng.randrange(100_000_000, 170_000_000)
        self.price = rng.randrange(1_000, 60_000)
        self.order = rng.randrange(80_000_000_000, 90_000_000_000)
        self.next_instrument()

    def next_instrument(self) -> None:
        self.security = 100_000_000 + int(self.chance.random() ** 3 * INSTRUMENTS) * 7919
        self.rpt_seq = self.chance.randrange(1, 3_000_000)

    def entry(self) -> dict[str, Any]:
        if self.chance.random() < 0.1:
            self.next_instrument()
        self.rpt_seq += 1
        entry = {
            "SecurityIDSource": 8,
            "SecurityExchange": "BVMF",
            "SecurityID": self.security,
            "RptSeq": self.rpt_seq,
            "MDEntryTime": self.time,
            "MDEntryDate": DATE,
            "MDStreamID": "E",
        }
        kind = self.chance.random()
        return entry | (
            self.order_entry()
            if kind < 0.85
            else self.trade_entry()
            if kind < 0.95
            else self.price_band_entry()
            if kind < 0.97
            else self.closing_price_entry()
            if kind < 0.99
            else self.index_entry()
        )

    def order_entry(self) -> dict[str, Any]:
        rng = self.chance
        side = rng.choice("01")
        order = {
            "MDUpdateAction": rng.choice((0, 0, 0, 0, 0, 1, 2, 2, 2, 2)),
            "MDEntryType": side,
            "MDEntrySize": 100 * rng.randrange(1, 60),
            "OrderID": str(self.order + rng.randrange(900)),
            "MDInsertDate": DATE,
            "MDInsertTime": self.time - rng.randrange(50_000),
            "MDEntryBuyer" if side == "0" else "MDEntrySeller": rng.choice(FIRMS),
        }
        if rng.random() < 0.97:  # the others are market orders for the auction
            order["MDEntryPx"] = Decimal(-2, self.price + rng.randrange(-20, 20))
        if order["MDUpdateAction"] == 1:
            order["MDEntryPrevSize"] = 100 * rng.randrange(1, 60)
        return order

    def trade_entry(self) -> dict[str, Any]:
        rng = self.chance
        trade = {
            "MDUpdateAction": 0,
            "MDEntryType": "2",
            "MDEntryPx": Decimal(-2, self.price + rng.randrange(-3, 3)),
            "MDEntrySize": 100 * rng.randrange(1, 30),
            "TradeID": str(rng.randrange(10, 900_000)),
            "MDEntryBuyer": rng.choice(FIRMS),
            "MDEntrySeller": rng.choice(FIRMS),
            "TickDirection": rng.choice("0123"),
            "TradeVolume": rng.randrange(10**4, 10**8),
            "TradingSessionID": 1,
        }
        return trade | ({"TradeCondition": rng.choice("RL")} if rng.random() < 0.5 else {})

    def price_band_entry(self) -> dict[str, Any]:
        return {
            "MDUpdateAction": 0,
            "MDEntryType": "g",
            "LowLimitPrice": Decimal(-2, self.price - 500),
            "HighLimitPrice": Decimal(-2, self.price + 500),
            "TradingReferencePrice": Decimal(-4, 100 * self.price + 7),
            "PriceBandType": "1",
            "PriceLimitType": 0,
            "AvgDailyTradedQty": self.chance.randrange(10**6),
            "MaxTradeVol": 10**6,
        }

    def closing_price_entry(self) -> dict[str, Any]:
        return {
            "MDUpdateAction": 0,
            "MDEntryType": "5",
            "MDEntryPx": Decimal(-2, self.price),
            "NetChgPrevDay": Decimal(-2, self.chance.randrange(-90, 90)),
            "PriceType": "2",
            "OpenCloseSettlFlag": 4,
            "SettlPriceType": 1,
            "LastTradeDate": DATE - 3,
            "Currency": "BRL",
        }

    def index_entry(self) -> dict[str, Any]:
        rng = self.chance
        underlyings = [
            {
                "UnderlyingSecurityID": 100_000_000 + 7919 * rng.randrange(INSTRUMENTS),
                "UnderlyingSecurityIDSource": 8,
                "UnderlyingSecurityExchange": "BVMF",
                "UnderlyingPx": Decimal(-2, rng.randrange(1_000, 60_000)),
                "UnderlyingPxType": 1,
            }
            for _ in range(rng.randrange(2, 9))
        ]
        return {
            "MDUpdateAction": 0,
            "MDEntryType": "3",
            "MDEntryPx": Decimal(-2, 100 * self.price),
            "Underlyings": underlyings,
            "IndexSeq": rng.randrange(10**6),
        }
