"""Section E: a user-defined spread."""

from __future__ import annotations

from umdf.certify.book_expectations import NewLevel
from umdf.certify.expectations import LegTrades, Message, Trades, instrument_status
from umdf.certify.observation import ASK, BID
from umdf.certify.operations import ChangeState, CreateStrategy, Enter, GoToPhase
from umdf.certify.recovery_expectations import EMPTY, Snapshot
from umdf.certify.script.market_phases import LOOP_S
from umdf.certify.script.step import OPTIONAL, Section, Step, for_each_book
from umdf.certify.stage import STRATEGY
from umdf.exchange.matching.memory_layout_kernel import FORBIDDEN, OPEN, RESERVED

STRATEGIES = Section(
    "E4",
    "User Defined Spread (UDS)",
    (
        Step(
            "E4.1",
            "The exchange creates a user-defined spread of two legs.",
            for_each_book(Message("y", ((555, "2"),), of="instrument"), instrument_status(FORBIDDEN)),
            (CreateStrategy(),),
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
        Step(
            "E4.2",
            "Request the spread that was created.",
            for_each_book(Snapshot(book=EMPTY)),
            settle_s=LOOP_S,
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
        Step(
            "E4.3",
            "The exchange changes the state of the spread to RESERVED.",
            for_each_book(instrument_status(RESERVED)),
            (ChangeState(RESERVED, STRATEGY),),
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
        Step(
            "E4.4",
            "The exchange sends a BID order for the spread.",
            for_each_book(NewLevel(BID)),
            (Enter("E4.4", BID, role=STRATEGY),),
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
        Step(
            "E4.5",
            "The exchange changes the state of the spread to OPEN.",
            for_each_book(instrument_status(OPEN)),
            (ChangeState(OPEN, STRATEGY),),
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
        Step(
            "E4.6",
            "The exchange sends an ASK order for the spread.",
            for_each_book(Trades(), LegTrades()),
            (Enter("E4.6", ASK, role=STRATEGY),),
            requirement=OPTIONAL,
            role=STRATEGY,
        ),
    ),
    (GoToPhase(OPEN),),
)
