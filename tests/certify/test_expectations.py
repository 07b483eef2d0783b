"""The checks: each finds what it is for, and says what came instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from umdf.certify.book_expectations import Deleted, NewLevel, RemovedFromTop, Requeued, SizeChanged, TopIs, Unchanged
from umdf.certify.expectations import (
    Expectation,
    LegTrades,
    Message,
    Trades,
    group_phase,
    instrument_status,
)
from umdf.certify.observation import (
    ASK,
    BID,
    INCREMENTAL,
    MBO,
    MBP,
    SNAPSHOT,
    TOB,
    BookRow,
    BookState,
    Observation,
    SeenMessage,
)
from umdf.certify.recovery_expectations import (
    BIDS,
    EMPTY,
    MARKET_BID,
    HasOrders,
    IndexValue,
    Logon,
    ReplayAnswer,
    Snapshot,
)

ONE = 1_000_000_000
ID = 100


def message(msg_type: str, *fields: tuple[int, str], stream: str = INCREMENTAL) -> SeenMessage:
    return SeenMessage(72, stream, 1, ((35, msg_type), *fields), b"\0")


def entry(action: str, kind: str, price: str = "", size: str = "", order: str = "", *more: tuple[int, str]) -> tuple:
    optional = ((270, price), (271, size), (37, order))
    return (279, action), (269, kind), (48, str(ID)), *((tag, text) for tag, text in optional if text), *more


def update(*entries: tuple) -> SeenMessage:
    return message("X", (268, str(len(entries))), *(field for each in entries for field in each))


def orders(*rows: tuple[int, int, int]) -> tuple[BookRow, ...]:
    """Price, size, id."""
    return tuple(BookRow(price * ONE, size, order) for price, size, order in rows)


def levels(*rows: tuple[int | None, int]) -> tuple[BookRow, ...]:
    return tuple(BookRow(None if price is None else price * ONE, size, None, 1) for price, size in rows)


def seen(*messages: SeenMessage, books: tuple[BookState, ...] = (BookState(),), **more: object) -> Observation:
    values = {"book_type": MBO, "protocol": "fast", "generation": "priority", **more}
    return Observation(security_id=ID, group="S1", closing_price=32 * ONE, messages=messages, books=books, **values)


TWO_BIDS = BookState(orders((33, 10, 1), (32, 20, 2)))
NEW_ORDER = seen(
    update(entry("0", "0", "32", "5", "3")),
    books=(TWO_BIDS, BookState((*TWO_BIDS.bids, *orders((32, 5, 3))))),
)
LEVEL_CHANGE = seen(
    update(entry("1", "1", "34", "30")),
    books=(BookState((), levels((34, 10))), BookState((), levels((34, 30)))),
    book_type=MBP,
)
DELETION = seen(update(entry("2", "0", "33", "10", "1")), books=(TWO_BIDS, BookState(TWO_BIDS.bids[1:])))
REQUEUE = seen(
    update(entry("2", "1", "34", "10", "7"), entry("0", "1", "33", "10", "8")),
    books=(BookState((), orders((34, 10, 7))), BookState((), orders((33, 10, 8)))),
)
EMPTIED_TOP = seen(update(entry("5", "0")), books=(BookState(levels((33, 10))), BookState()), book_type=TOB)
DELETE_FROM = seen(
    update(entry("4", "0", "", "", "", (290, "2"))), books=(TWO_BIDS, BookState()), generation="position"
)
TRADE = seen(update(entry("0", "2", "32", "10", "", (277, "R 2"))))
LEGS = seen(
    message("X", (268, "1"), (279, "0"), (269, "2"), (48, "201"), (277, "1")),
    message("X", (268, "1"), (279, "0"), (269, "2"), (48, "202"), (277, "1 L")),
    leg_ids=(201, 202),
)
STATUS = seen(message("f", (48, str(ID)), (326, "2"), (1174, "101")))
PHASE = seen(message("f", (1151, "S1"), (625, "021")))
MOC_SNAPSHOT = seen(
    message(
        "W", (48, str(ID)), (268, "2"), (269, "0"), (271, "5"), (269, "c"), (625, "101"), (326, "101"), stream=SNAPSHOT
    ),
    books=(BookState(levels((None, 5))),),
)
ANSWER = seen(
    replies=(
        message("A"), message("BX", (1348, "0")), message("URDR", (10054, "3")), message("BY", (1426, "3")),
    ),
)  # fmt: skip
GONE = seen(replies=(message("BX", (1348, "0")), message("BY", (1426, "4"), (1354, "1"))))

MET: list[tuple[Expectation, Observation]] = [
    (NewLevel(BID, 3), NEW_ORDER),
    (SizeChanged(ASK), LEVEL_CHANGE),
    (Deleted(BID), DELETION),
    (Deleted(BID), EMPTIED_TOP),
    (TopIs(BID), DELETION),
    (Requeued(ASK, has_new_price=True), REQUEUE),
    (Unchanged(), STATUS),
    (RemovedFromTop(BID), DELETION),
    (RemovedFromTop(BID), DELETE_FROM),
    (RemovedFromTop(BID), EMPTIED_TOP),
    (Trades(at_closing=True, condition="2"), TRADE),
    (LegTrades(), LEGS),
    (instrument_status(2, 101), STATUS),
    (group_phase(21), PHASE),
    (Message("f", ((326, ""),)), STATUS),
    (Snapshot(101, 101, book=MARKET_BID), MOC_SNAPSHOT),
    (Logon(), ANSWER),
    (ReplayAnswer(count=3), ANSWER),
    (ReplayAnswer(report=4, error=1), GONE),
    (HasOrders(BID), seen(books=(TWO_BIDS,))),
    (IndexValue(), seen(update(entry("0", "3", "120000")))),
]
NOT_MET: list[tuple[Expectation, Observation, str]] = [
    (NewLevel(BID, 2), NEW_ORDER, "nothing new on the 2nd level of BID"),
    (NewLevel(ASK), NEW_ORDER, "nothing new on the top of ASK"),
    (NewLevel(BID, 3, is_priced=False), NEW_ORDER, "has 32"),
    (NewLevel(BID, 3), replace(NEW_ORDER, messages=()), "no entry was received"),
    (NewLevel(BID, 3), replace(NEW_ORDER, generation="position"), "290=None, expected 3"),
    (SizeChanged(ASK, rises=False), LEVEL_CHANGE, "did not fall"),
    (SizeChanged(ASK), replace(LEVEL_CHANGE, messages=(update(entry("1", "1", "34", "31")),)), "with 271=30"),
    (Deleted(BID, 2), DELETION, "the 2nd level of BID was not deleted"),
    (Deleted(BID), replace(DELETION, messages=(update(entry("2", "0", "32", "20", "2")),)), "no entry 279=2"),
    (TopIs(ASK), DELETION, "still nothing"),
    (Requeued(ASK), REQUEUE, "its price is 33"),
    (Requeued(BID), replace(NEW_ORDER, messages=(update(entry("1", "0", "32", "5", "3")),)), "a CHANGE keeps"),
    (Unchanged(), NEW_ORDER, "the book was updated"),
    (RemovedFromTop(BID), replace(DELETION, generation="position"), "no entry 279=4"),
    (RemovedFromTop(BID), replace(DELETE_FROM, generation="priority"), "no entry 279=2 or 3"),
    (Trades(), STATUS, "no trade was received"),
    (Trades(at_closing=True), replace(TRADE, closing_price=ONE), "traded at 32, expected 1"),
    (Trades(condition="X"), TRADE, "277=R 2, expected X"),
    (LegTrades(), replace(LEGS, leg_ids=(201, 203)), "no trade of the leg 203"),
    (instrument_status(21), STATUS, "received 326=2, expected 326=21"),
    (group_phase(17), PHASE, "received 625=021, expected 625=17"),
    (Message("B"), STATUS, "no 35=B"),
    (Snapshot(17), MOC_SNAPSHOT, "the snapshot has 625=101, expected 17"),
    (Snapshot(book=EMPTY), MOC_SNAPSHOT, "entries 269=0"),
    (Snapshot(book=BIDS), replace(MOC_SNAPSHOT, books=(BookState(),)), "the book after recovery"),
    (Snapshot(), STATUS, "no Snapshot Full Refresh"),
    (ReplayAnswer(count=4), ANSWER, "3 messages were replayed, expected 4"),
    (ReplayAnswer(report=4, error=1), ANSWER, "1426=3, expected 4"),
    (ReplayAnswer(report=4, error=6), GONE, "1354=1, expected 6"),
    (ReplayAnswer(response=1, report=None, error=0), GONE, "1348=0, expected 1"),
    (ReplayAnswer(), STATUS, "not answered"),
    (Logon(), GONE, "no 35=A"),
    (HasOrders(ASK), seen(books=(TWO_BIDS,)), "ASK nothing"),
    (IndexValue(), TRADE, "no index value"),
]


@pytest.mark.parametrize(("expectation", "observation"), MET, ids=lambda each: getattr(each, "text", ""))
def test_what_was_seen_meets_its_check(expectation: Expectation, observation: Observation) -> None:
    assert expectation.failure(observation) is None


@pytest.mark.parametrize(("expectation", "observation", "said"), NOT_MET)
def test_what_is_missing_or_wrong_is_reported(expectation: Expectation, observation: Observation, said: str) -> None:
    assert said in (expectation.failure(observation) or "nothing is wrong")


def test_a_snapshot_of_the_session_before_still_has_its_statistics() -> None:
    statistics = replace(
        MOC_SNAPSHOT,
        messages=(message("W", (48, str(ID)), (268, "1"), (269, "7"), (270, "33"), stream=SNAPSHOT),),
    )
    assert Snapshot().failure(statistics) is None
    assert "a high of the session before" in (Snapshot(is_new_session=True).failure(statistics) or "")


def test_trade_conditions_are_letters_in_fast_and_bits_in_binary() -> None:
    on_behalf = seen(update(entry("0", "2", "32", "10", "", (277, str(1 << 6)))), protocol="sbe")
    assert Trades(condition="2").failure(on_behalf) is None
    assert "expected X" in (Trades(condition="X").failure(on_behalf) or "")
