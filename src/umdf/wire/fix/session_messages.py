"""The messages of a FIX session: their types, the fields that they must have, and why one is rejected."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.wire.fix.message import FixMessage

LOGON, HEARTBEAT, TEST_REQUEST, RESEND_REQUEST, REJECT, SEQUENCE_RESET, LOGOUT = "A", "0", "1", "2", "3", "4", "5"
BUSINESS_REJECT = "j"
# SessionRejectReason (373).
REQUIRED_TAG_MISSING, NO_VALUE, VALUE_INCORRECT, FORMAT_INCORRECT, COMP_ID_PROBLEM, GROUP_COUNT_INCORRECT = (
    1,
    4,
    5,
    6,
    9,
    16,
)
# What a message must have beside SendingTime (52). OrigSendingTime (122) too, if it is a possible duplicate; but some
# engines leave it out of gap fills.
REQUIRED_TAGS = {TEST_REQUEST: (112,), RESEND_REQUEST: (7, 16), SEQUENCE_RESET: (36,)}


@dataclass(frozen=True)
class WrongField:
    """Why a message is rejected (35=3)."""

    reason: int  # 373
    tag: int  # 371
    text: str


def wrong_field(message: FixMessage) -> WrongField | None:
    """The first field that is missing, or has no value."""
    if message.empty_tag:
        return WrongField(NO_VALUE, message.empty_tag, f"tag {message.empty_tag} has no value")
    possible_duplicate = (122,) if message.text(43) == "Y" and message.msg_type != SEQUENCE_RESET else ()
    for tag in (52, *possible_duplicate, *REQUIRED_TAGS.get(message.msg_type, ())):
        if message.get(tag) is None:
            return missing_field(tag)
    return None


def missing_field(tag: int) -> WrongField:
    return WrongField(REQUIRED_TAG_MISSING, tag, f"tag {tag} is missing")


def not_a_number(tag: int, value: bytes | None) -> WrongField:
    """Why a field that should be a number is rejected: it is absent, or is no number."""
    return missing_field(tag) if value is None else WrongField(FORMAT_INCORRECT, tag, f"tag {tag} is not a number")
