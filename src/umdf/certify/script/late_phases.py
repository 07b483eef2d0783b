"""Sections B6, the after-market, and B7, indexes and ETFs."""

from __future__ import annotations

from umdf.certify.book_expectations import Deleted, NewLevel, RemovedFromTop, SizeChanged, TopIs, Unchanged
from umdf.certify.expectations import Message, Trades, instrument_status
from umdf.certify.observation import ASK, BID, INSTRUMENTS
from umdf.certify.operations import (
    BEST,
    Cancel,
    ChangeState,
    Enter,
    GoToPhase,
    SetAuctionBand,
    TradeOfMember,
    Wait,
)
from umdf.certify.recovery_expectations import IndexValue, Snapshot
from umdf.certify.script.market_phases import CONNECT, LOOP_S
from umdf.certify.script.step import OPTIONAL, Section, Step, books, by_order, for_each_book
from umdf.certify.stage import INDEX
from umdf.certify.start_books import OPEN_MARKET
from umdf.exchange.live.schedule import EQUITIES
from umdf.exchange.matching.memory_layout_kernel import CLOSE, OPEN, REJOINS

AFTER_MARKET_SESSION = 6  # 336

B6 = Section(
    "B6",
    "After Market",
    (
        Step("B6.1", CONNECT, for_each_book(Snapshot(OPEN, session=AFTER_MARKET_SESSION)), settle_s=LOOP_S),
        Step(
            "B6.2",
            "The exchange sends a BID order for 100 at the Closing price.",
            books((NewLevel(BID, 6),), (SizeChanged(BID, 3),), (Unchanged(),)),
            (Enter("B6.2", BID),),
        ),
        Step(
            "B6.3",
            "The exchange sends an ASK order for 100 at the best price.",
            books((NewLevel(ASK, 3),), (SizeChanged(ASK),), (SizeChanged(ASK),)),
            (Enter("B6.3", ASK, BEST),),
        ),
        Step(
            "B6.4",
            "The exchange deletes the best ASK order.",
            books((TopIs(ASK), Deleted(ASK)), (SizeChanged(ASK, rises=False),), (SizeChanged(ASK, rises=False),)),
            (Cancel(ASK),),
        ),
        Step(
            "B6.5",
            "The exchange sends an ASK order for 100 at the Closing price.",
            # Outside of the auction band it does not trade at once: it is the new best ASK of an auction, whose end is
            # 1174=102.
            for_each_book(NewLevel(ASK), Trades(), RemovedFromTop(BID), instrument_status(OPEN, REJOINS)),
            (Enter("B6.5", ASK), ChangeState(OPEN)),
        ),
        Step(
            "B6.6",
            "The exchange sends BID orders for 100, one tick above the Closing price.",
            books((NewLevel(BID), NewLevel(BID, 2)), (NewLevel(BID),), (NewLevel(BID),)),
            (Enter("B6.6 first", BID, 1), Enter("B6.6 second", BID, 1)),
        ),
        Step(
            "B6.7",
            "The exchange changes the state of the instrument to CLOSED.",
            for_each_book(RemovedFromTop(BID), instrument_status(CLOSE)),
            (ChangeState(CLOSE),),
        ),
    ),
    (GoToPhase(OPEN, after_market=True), *OPEN_MARKET, SetAuctionBand(high=0)),
)

B7 = Section(
    "B7",
    "Index and ETF",
    (
        Step(
            "B7.1",
            "Connect to the instrument definition stream of channel 62.",
            by_order(
                Message("y", ((167, "INDEX"),), stream=INSTRUMENTS),
                Message("y", ((167, "ETF"),), stream=INSTRUMENTS),
            ),
            settle_s=LOOP_S,
            requirement=OPTIONAL,
            role=INDEX,
        ),
        Step(
            "B7.2",
            "The exchange trades instruments that the chosen index is made of.",
            by_order(IndexValue()),
            (TradeOfMember(),),
            requirement=OPTIONAL,
            role=INDEX,
        ),
        Step(
            "B7.3",
            "Stay connected to the incremental stream for 30 seconds.",
            by_order(IndexValue()),
            (Wait(31),),
            requirement=OPTIONAL,
            role=INDEX,
        ),
    ),
    (GoToPhase(OPEN),),
    segments=(EQUITIES,),
    protocols=("fast",),
    is_of_indexes=True,
)

SECTIONS = (B6, B7)
