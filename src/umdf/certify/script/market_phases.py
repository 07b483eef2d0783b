"""Section B: the phases of the market. What the script says of levels is true of the start books."""

from __future__ import annotations

from umdf.certify.book_expectations import Deleted, NewLevel, RemovedFromTop, Requeued, SizeChanged, TopIs, Unchanged
from umdf.certify.expectations import Message, Trades, group_phase, instrument_status
from umdf.certify.observation import ASK, BID
from umdf.certify.operations import (
    BEST,
    Amend,
    Cancel,
    ChangePhase,
    ChangeState,
    Enter,
    EnterOnBehalf,
    GoToPhase,
    SetSpecialAuction,
)
from umdf.certify.recovery_expectations import MARKET_BID, Snapshot
from umdf.certify.script.step import CONDITIONAL, Section, Step, books, for_each_book
from umdf.certify.start_books import CLOSING_CALL, MOA_SIZE, ONE_OF_EACH, OPEN_MARKET, PRE_OPEN
from umdf.exchange.live.schedule import EQUITIES
from umdf.exchange.matching.memory_layout_kernel import (
    CLOSE,
    FINAL_CLOSING_CALL,
    OPEN,
    PAUSE,
    PRE_CLOSE,
    REJOINS,
    RESERVED,
    SEPARATES,
)
from umdf.exchange.matching.orders import MOA

LOOP_S = 1.0  # a snapshot loop takes less
CONNECT = "Connect to the market recovery (snapshot) stream of the chosen channel."

B1 = Section(
    "B1",
    "Pre-Open Market Phase",
    (
        Step("B1.1", CONNECT, for_each_book(Snapshot(RESERVED, is_new_session=True)), settle_s=LOOP_S),
        Step(
            "B1.2",
            "The exchange sends a BID order for 100 at the Closing price.",
            books((NewLevel(BID, 6),), (SizeChanged(BID, 3),), (Unchanged(),)),
            (Enter("B1.2", BID),),
        ),
        Step(
            "B1.3",
            "The exchange sends an ASK order for 100 at the Closing price.",
            for_each_book(NewLevel(ASK)),
            (Enter("B1.3", ASK),),
        ),
        Step(
            "B1.4",
            "The exchange sends a BID order MOA, and an ASK order for 100 at the Closing price.",
            books(
                (NewLevel(BID, is_priced=False), NewLevel(ASK, 2)),
                (NewLevel(BID, is_priced=False), SizeChanged(ASK)),
                (NewLevel(BID, is_priced=False), SizeChanged(ASK)),
            ),
            (Enter("B1.4 MOA", BID, None, MOA_SIZE, order_type=MOA), Enter("B1.4", ASK)),
        ),
        Step(
            "B1.5",
            "The exchange cancels the BID and ASK orders at the Closing price.",
            books(
                (Deleted(BID, 7), Deleted(ASK, 2)),
                (SizeChanged(BID, 4, rises=False), SizeChanged(ASK, rises=False)),
                (SizeChanged(ASK, rises=False),),
            ),
            (Cancel("B1.2"), Cancel("B1.4")),
        ),
        Step(
            "B1.6",
            "The exchange opens the market.",
            for_each_book(Trades(at_closing=True), TopIs(BID), TopIs(ASK), group_phase(OPEN)),
            (ChangePhase(OPEN),),
        ),
    ),
    (GoToPhase(RESERVED, after_market=False), *PRE_OPEN),
)

B2 = Section(
    "B2",
    "Open Market Phase",
    (
        Step("B2.1", CONNECT, for_each_book(Snapshot(OPEN)), settle_s=LOOP_S),
        Step(
            "B2.2",
            "The exchange sends a BID order for 100 at the Closing price.",
            books((NewLevel(BID, 6),), (SizeChanged(BID, 3),), (Unchanged(),)),
            (Enter("B2.2", BID),),
        ),
        Step(
            "B2.3",
            "The exchange sends an ASK order for 100 at the best price.",
            books((NewLevel(ASK, 3),), (SizeChanged(ASK),), (SizeChanged(ASK),)),
            (Enter("B2.3", ASK, BEST),),
        ),
        Step(
            "B2.4",
            "The exchange changes the state of the instrument to PAUSED.",
            for_each_book(instrument_status(PAUSE, SEPARATES)),
            (ChangeState(PAUSE),),
        ),
        Step(
            "B2.5",
            "The exchange deletes the best ASK order.",
            books((TopIs(ASK), Deleted(ASK)), (SizeChanged(ASK, rises=False),), (SizeChanged(ASK, rises=False),)),
            (Cancel(ASK),),
        ),
        Step(
            "B2.6",
            "The exchange changes the state of the instrument to RESERVED.",
            for_each_book(instrument_status(RESERVED, SEPARATES)),
            (ChangeState(RESERVED),),
        ),
        Step(
            "B2.7",
            "The exchange sends an ASK order for 100 at the Closing price.",
            for_each_book(NewLevel(ASK)),
            (Enter("B2.7", ASK),),
        ),
        Step(
            "B2.8",
            "The exchange changes the state of the instrument to OPEN.",
            for_each_book(TopIs(ASK), Trades(), RemovedFromTop(BID), instrument_status(OPEN, REJOINS)),
            (ChangeState(OPEN),),
        ),
        Step(
            "B2.9",
            "The exchange sends two BID orders for 100, one tick above the Closing price.",
            books((NewLevel(BID), NewLevel(BID, 2)), (NewLevel(BID),), (NewLevel(BID),)),
            (Enter("B2.9 first", BID, 1), Enter("B2.9 second", BID, 1)),
        ),
        Step(
            "B2.10",
            "The exchange sends a trade on behalf.",
            for_each_book(Trades(condition="2")),
            (EnterOnBehalf(price=2),),
        ),
        Step(
            "B2.11",
            "The exchange changes the state of the instrument to CLOSED.",
            for_each_book(RemovedFromTop(BID), instrument_status(CLOSE)),
            (ChangeState(CLOSE),),
        ),
        Step(
            "B2.12",
            "The exchange changes the state of the instrument to OPEN.",
            for_each_book(instrument_status(OPEN, REJOINS)),
            (ChangeState(OPEN),),
        ),
    ),
    (GoToPhase(OPEN, after_market=False), *OPEN_MARKET),
)

B3 = Section(
    "B3",
    "Special Auction",
    (
        Step(
            "B3.1",
            "The exchange sets an instrument to Special Auction.",
            for_each_book(Message("y", ((37015, "8"),), of="instrument")),
            (SetSpecialAuction(), ChangeState(RESERVED)),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.2",
            "The exchange sends a BID order for 100 at the Closing price.",
            for_each_book(NewLevel(BID)),
            (Enter("B3.2", BID),),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.3",
            "The exchange sends an ASK order for 100, one tick above the Closing price.",
            for_each_book(NewLevel(ASK)),
            (Enter("B3.3", ASK, 1),),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.4",
            "The exchange sends a BID order MOA.",
            for_each_book(NewLevel(BID, is_priced=False)),
            (Enter("B3.4", BID, None, 50, order_type=MOA),),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.5",
            "The exchange changes the price of the ASK order.",
            books((NewLevel(ASK), Requeued(ASK, has_new_price=True)), (NewLevel(ASK),), (NewLevel(ASK),)),
            (Amend("B3.3", price=0),),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.6",
            "The exchange changes the state of the instrument to OPEN.",
            for_each_book(Trades(), instrument_status(OPEN)),
            (ChangeState(OPEN),),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.7",
            "The exchange sends a BID and an ASK order.",
            for_each_book(NewLevel(BID), NewLevel(ASK)),
            (Enter("B3.7 BID", BID, 1), Enter("B3.7 ASK", ASK, 2)),
            requirement=CONDITIONAL,
        ),
        Step(
            "B3.8",
            "The exchange changes the phase of the market to PAUSED.",
            for_each_book(group_phase(PAUSE)),
            (ChangePhase(PAUSE),),
            requirement=CONDITIONAL,
        ),
    ),
    (GoToPhase(OPEN, after_market=False),),
    segments=(EQUITIES,),
)

B4 = Section(
    "B4",
    "Paused Market Phase",
    (
        Step("B4.1", CONNECT, for_each_book(Snapshot(PAUSE)), settle_s=LOOP_S),
        Step(
            "B4.2",
            "The exchange cancels the BID order.",
            for_each_book(Deleted(BID)),
            (Cancel("start BID 1"),),
        ),
        Step(
            "B4.3",
            "The exchange cancels the ASK order.",
            for_each_book(Deleted(ASK)),
            (Cancel("start ASK 1"),),
        ),
        Step(
            "B4.4",
            "The exchange changes the phase of the market to Final Closing Call.",
            for_each_book(group_phase(FINAL_CLOSING_CALL)),
            (ChangePhase(FINAL_CLOSING_CALL),),
        ),
    ),
    # Derivatives have no B3, whose orders and pause the script goes on with; so both get their own.
    (GoToPhase(OPEN, after_market=False), *ONE_OF_EACH, ChangePhase(PAUSE)),
)

B5 = Section(
    "B5",
    "Final Closing Call",
    (
        Step(
            "B5.1",
            CONNECT,
            for_each_book(Snapshot(FINAL_CLOSING_CALL, FINAL_CLOSING_CALL, book=MARKET_BID)),
            settle_s=LOOP_S,
        ),
        Step(
            "B5.2",
            "The exchange sends an ASK order for 100 at the Closing price.",
            for_each_book(NewLevel(ASK)),
            (Enter("B5.2", ASK),),
        ),
        Step(
            "B5.3",
            "The exchange sends a BID order for 100, one tick above the Closing price.",
            books((NewLevel(BID, 2),), (NewLevel(BID, 2),), (Unchanged(),)),
            (Enter("B5.3", BID, 1),),
        ),
        Step(
            "B5.4",
            "The exchange increases the quantity of the ASK order.",
            books((Requeued(ASK),), (SizeChanged(ASK),), (SizeChanged(ASK),)),
            (Amend("B5.2", size=200),),
        ),
        Step(
            "B5.5",
            "The exchange sends an ASK order for 100 at the Closing price.",
            books((NewLevel(ASK, 2),), (SizeChanged(ASK),), (SizeChanged(ASK),)),
            (Enter("B5.5", ASK),),
        ),
        Step(
            "B5.6",
            "The Final Closing Call ends.",
            for_each_book(Trades()),
            (ChangePhase(PRE_CLOSE),),
        ),
        Step(
            "B5.7",
            "The exchange changes the phase of the market to Pre-Close.",
            for_each_book(group_phase(PRE_CLOSE)),
            includes_previous=True,  # the change of phase is what ends the call
        ),
    ),
    (GoToPhase(FINAL_CLOSING_CALL, after_market=False), *CLOSING_CALL),
)

SECTIONS = (B1, B2, B3, B4, B5)
