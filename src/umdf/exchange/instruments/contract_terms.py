"""Terms that the order flow gives to lending offers and pre-contracts (13.1), and to forwards (10.1).

They follow from the number of the order or trade, so that whatever publishes it again says the same.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.journal_details import OrderDetails, TradeDetails
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.market import families as e

CERTIFIED, NOT_CERTIFIED = 0, 1  # 37023
PRE_CONTRACT, INTENTION = 1, 2  # 37024
LOAN_DAYS = (30, 60, 90, 180)
EARLY_TERMINATION = (1, 1, 1, 0, 2)  # 37019: yes, no, also in case of PTO
OFFER_CONDITIONS = (0, 0, 0, e.BTB_LIMITED, e.BTB_ALL_OR_NONE)  # 276
OFFER_KINDS = (k.ADD, k.CHANGE, k.SNAPSHOT_ORDER)
DAILY_RATE = 400_000  # of a forward, 1e-9: 0.04 percent


def offer_terms(order_id: int, trading_date: int) -> OrderDetails:
    """Of a lending offer entered on a day (days since 1970)."""
    number = order_id * 2_654_435_761 >> 7  # neighbours differ
    return OrderDetails(
        expire_date=trading_date + LOAN_DAYS[number % 4],
        early_termination=EARLY_TERMINATION[number % 5],
        cert_indicator=CERTIFIED if number % 3 else NOT_CERTIFIED,
        conditions=OFFER_CONDITIONS[number // 5 % 5],
    )


def pre_contract_terms(trade_id: int, trading_date: int) -> TradeDetails:
    days, early = LOAN_DAYS[trade_id // 10 % 4], EARLY_TERMINATION[trade_id // 10 % 5]
    return TradeDetails(
        expire_date=trading_date + days,
        early_termination=early,
        contract_info=INTENTION if trade_id % 70 == 0 else PRE_CONTRACT,
        grace_date=trading_date + days // 2 if early else None,
        cert_indicator=CERTIFIED if trade_id % 30 else NOT_CERTIFIED,
    )


def forward_terms(days: int) -> TradeDetails:
    return TradeDetails(seller_days=days, interest_rate=DAILY_RATE * days)


class ContractTerms:
    """Gives records of the journal their details, before they are published."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._forwards: dict[int, int] = {}  # the number of the details, by days
        self._deleted: list[int] = []  # offers that nothing published from now on refers to

    def add_to(self, records: np.ndarray, trading_date: int) -> None:
        """Trades of lending and forwards, and lending offers, among records of the journal or of snapshots."""
        types = self._listing.type[np.maximum(records[:, k.INSTRUMENT], 0)]
        concerns_instrument = records[:, k.INSTRUMENT] >= 0
        lending = np.flatnonzero((types == InstrumentType.LENDING) & concerns_instrument)
        forwards = np.flatnonzero((types == InstrumentType.FORWARD) & (records[:, k.KIND] == k.TRADE))
        if len(lending):
            self._add_to_lending(records, lending, trading_date)
        for row in forwards.tolist():
            days = self._listing.instruments[int(records[row, k.INSTRUMENT])].settl_days or 0
            if days not in self._forwards:
                self._forwards[days] = self._listing.details.add_trade(forward_terms(days))
            records[row, k.CODE] |= self._forwards[days]

    def _add_to_lending(self, records: np.ndarray, rows: np.ndarray, trading_date: int) -> None:
        details = self._listing.details
        for order_id in self._deleted:
            details.orders.pop(order_id, None)
        self._deleted.clear()
        for row in rows.tolist():
            kind, number = records[row, [k.KIND, k.ID]].tolist()
            if kind == k.TRADE:
                records[row, k.CODE] |= details.add_trade(pre_contract_terms(number, trading_date))
            elif kind in OFFER_KINDS:
                if number not in details.orders:
                    details.orders[number] = offer_terms(number, trading_date)
                records[row, k.FLAGS] |= details.orders[number].conditions
            elif kind == k.DELETE:
                self._deleted.append(number)
