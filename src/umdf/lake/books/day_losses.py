"""What is or may be missing of each instrument at the end of a run, and the books that may be wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.books.replay import L_BOOK, LOSS_COLUMNS, NO_END, BookReplay, Numbers
from umdf.sync import book_trust_kernel as trust

STALE_REASON = "messages are known to be lost"
UNVERIFIED_REASON = "messages were lost and nothing came since that shows whether they touched it"


def loss_windows_by_instrument(replay: BookReplay, closed: Sequence[Numbers]) -> Numbers:
    """(instrument, since, until) of everything that is or may be missing; `closed`: the windows (by book) whose end is
    known."""
    unanswered = np.concatenate([replay.unanswered_gaps(), replay.gaps_of_unseen()])
    still_open = replay.open_losses(unanswered, NO_END)
    loss_windows = np.concatenate([np.empty((0, LOSS_COLUMNS), np.int64), *closed, still_open])
    loss_windows[:, L_BOOK] >>= 1
    return loss_windows[np.argsort(loss_windows[:, L_BOOK], kind="stable")]


def untrusted_books(replay: BookReplay, symbols: pa.Array) -> list[dict[str, Any]]:
    """The books that may be wrong, with reasons."""
    found = []
    for book in np.flatnonzero(replay.current_bad()).tolist():
        instrument_id, symbol = int(replay.ids[book >> 1]), symbols[book >> 1].as_py()
        is_stale = bool(replay.states[book, trust.S_STALE])
        of_book = replay.books.book(instrument_id, lending=bool(book & 1))
        reason = str(of_book.stale) if of_book is not None and of_book.stale else STALE_REASON
        if not is_stale:
            reason = UNVERIFIED_REASON
        found.append({"instrument_id": instrument_id, "symbol": symbol, "is_stale": is_stale, "reason": reason})
    return found
