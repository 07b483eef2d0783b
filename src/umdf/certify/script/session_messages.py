"""Section A, messages of the session level, and C, news."""

from __future__ import annotations

from umdf.certify.expectations import Message
from umdf.certify.observation import INSTRUMENTS
from umdf.certify.operations import PublishNews, Wait
from umdf.certify.script.step import OPTIONAL, Section, Step, by_order, for_each_book

SESSION = Section(
    "A",
    "Session Messages",
    (
        Step(
            "A.1",
            "Connect to an idle incremental stream and wait for a Heartbeat.",
            by_order(Message("0")),
            (Wait(31),),
        ),
        Step(
            "A.2",
            "Connect to the instrument definition stream and wait for Security Lists.",
            by_order(Message("y", stream=INSTRUMENTS)),
            settle_s=1.0,
            requirement=OPTIONAL,
        ),
    ),
)

NEWS = Section(
    "C1",
    "News Messages",
    (
        Step(
            "C1",
            "Connect to a channel of instruments; the exchange sends News on it.",
            for_each_book(Message("B", ((148, ""),))),
            (PublishNews(),),
            requirement=OPTIONAL,
        ),
    ),
)
