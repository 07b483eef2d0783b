"""Section D: recovery by snapshot, by the TCP Replayer, and by the Historical Replayer."""

from __future__ import annotations

from umdf.certify.client_actions import (
    LAST_MESSAGES,
    Connect,
    Disconnect,
    LogOnToHistory,
    RequestDay,
    RequestLastMessages,
    RequestUnknownChannel,
)
from umdf.certify.expectations import Trades
from umdf.certify.observation import ASK, BID
from umdf.certify.operations import ClearBooks, Enter, GoToPhase, Wait
from umdf.certify.recovery_expectations import ASKS, BIDS, EMPTY, HasOrders, Logon, ReplayAnswer, Snapshot
from umdf.certify.script.market_phases import LOOP_S
from umdf.certify.script.step import Section, Step, by_order, for_each_book
from umdf.exchange.matching.memory_layout_kernel import OPEN

# On an idle stream the next heartbeat shows where it is: to a client that starts, and to one that has missed something.
UNTIL_HEARTBEAT, UNTIL_STARTED = Wait(31), Wait(62)  # who starts waits for a second one
MESSAGES_GONE, UNKNOWN_APPLICATION = 1, 0  # 1354
BID_ORDERS = (Enter("D BID 1", BID, 0), Enter("D BID 2", BID, 0), Enter("D BID 3", BID, -1))
ASK_ORDERS = (Enter("D ASK 1", ASK, 1), Enter("D ASK 2", ASK, 1), Enter("D ASK 3", ASK, 2))

D1 = Section(
    "D1",
    "Snapshot",
    (
        Step(
            "D1.1",
            "The client connects to a channel whose books are all empty.",
            for_each_book(Snapshot(book=EMPTY)),
            (Connect(), UNTIL_STARTED),
            settle_s=LOOP_S,
        ),
        Step(
            "D1.2",
            "The client disconnects; the exchange sends BID orders; the client connects again.",
            for_each_book(Snapshot(book=BIDS)),
            (Disconnect(), *BID_ORDERS, Connect(), UNTIL_STARTED),
            settle_s=LOOP_S,
        ),
        Step(
            "D1.3",
            "The client disconnects; the exchange empties the book and sends ASK orders; the client connects again.",
            for_each_book(Snapshot(book=ASKS)),
            (Disconnect(), ClearBooks(), *ASK_ORDERS, Connect(), UNTIL_STARTED),
            settle_s=LOOP_S,
        ),
        Step(
            "D1.4",
            "The exchange sends BID orders that match.",
            for_each_book(Trades()),
            (Enter("", BID, 1), Enter("", BID, 1)),
        ),
    ),
    (GoToPhase(OPEN),),
)

D2 = Section(
    "D2",
    "TCP Replayer",
    (
        Step(
            "D2.1",
            "The client connects to a channel whose books are all empty.",
            by_order(Snapshot(book=EMPTY)),
            (Connect(), UNTIL_STARTED),
            settle_s=LOOP_S,
        ),
        Step(
            "D2.2",
            "The client disconnects; the exchange sends BID orders; the client requests the messages of these orders.",
            by_order(ReplayAnswer(), HasOrders(BID)),
            (Disconnect(), *BID_ORDERS, Connect(starts_again=False), UNTIL_HEARTBEAT),
        ),
        Step(
            "D2.3",
            "The client disconnects; the exchange empties the book and sends ASK orders; the client requests the "
            "messages of these orders.",
            by_order(ReplayAnswer(), HasOrders(ASK)),
            (Disconnect(), ClearBooks(), *ASK_ORDERS, Connect(starts_again=False), UNTIL_HEARTBEAT),
        ),
    ),
    (GoToPhase(OPEN),),
    protocols=("fast",),
)

D3 = Section(
    "D3",
    "TCP Historical Replayer",
    (
        Step("D3.1", "Log on to the Historical Replayer.", by_order(Logon()), (LogOnToHistory(),)),
        Step(
            "D3.2",
            f"Request the {LAST_MESSAGES} incremental messages before the last one.",
            by_order(ReplayAnswer(count=LAST_MESSAGES)),
            (RequestLastMessages(),),
        ),
        Step(
            "D3.3",
            "Request incremental messages of the day before, in the range that the exchange tells.",
            by_order(ReplayAnswer()),
            (RequestDay(1),),
        ),
        Step(
            "D3.4",
            "Request incremental messages that are older than two days.",
            by_order(ReplayAnswer(report=4, error=MESSAGES_GONE)),
            (RequestDay(3),),
        ),
        Step(
            "D3.5",
            "Request incremental messages of a channel that does not exist.",
            by_order(ReplayAnswer(response=1, report=None, error=UNKNOWN_APPLICATION)),
            (RequestUnknownChannel(),),
        ),
    ),
    protocols=("fast",),
    needs_week=True,
)

SECTIONS = (D1, D2, D3)
