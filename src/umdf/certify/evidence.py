"""What was seen → the evidence of a result: texts, bytes in base 16, the book before and after."""

from __future__ import annotations

from collections.abc import Sequence

from umdf.certify.book_expectations import row_text
from umdf.certify.observation import BookState, Observation, SeenMessage
from umdf.certify.results import BookEvidence, Evidence, MessageEvidence

MOST_MESSAGES = 12  # that are kept of a step: the first and the last
MOST_ROWS = 10  # of a side


def evidence_of(seen: Observation) -> Evidence:
    # Of the looping streams only what concerns the instrument.
    own = [message for message in seen.messages if concerns(message, seen)]
    kept = [*own[: MOST_MESSAGES // 2], *own[-MOST_MESSAGES // 2 :]] if len(own) > MOST_MESSAGES else own
    return Evidence(
        tuple(map(message_evidence, kept)),
        len(own) - len(kept),
        book_evidence(seen.before),
        book_evidence(seen.after),
        tuple(map(message_evidence, seen.replies[-MOST_MESSAGES:])),
    )


def concerns(message: SeenMessage, seen: Observation) -> bool:
    """Whether a message is about the instrument, its group, or everybody."""
    ids = {entry.get(48) for entry in message.entries}
    groups = {entry.get(1151) for entry in message.entries}
    return str(seen.security_id) in ids or (ids == {None} and groups <= {None, seen.group})


def message_evidence(message: SeenMessage) -> MessageEvidence:
    return MessageEvidence(message.channel, message.stream, message.sequence, str(message), message.data.hex())


def book_evidence(book: BookState) -> BookEvidence:
    return BookEvidence(*(_rows(side) for side in (book.bids, book.asks)))


def _rows(side: Sequence) -> tuple[str, ...]:
    shown = [row_text(row) for row in side[:MOST_ROWS]]
    return (*shown, f"… {len(side) - MOST_ROWS} more") if len(side) > MOST_ROWS else tuple(shown)
