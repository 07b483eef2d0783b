"""The trust of all instruments of a channel at once, in arrays: a live client reads it again and again.

Invariant: it is what `Channel.book_trust` and `Channel.state_trust` tell of each instrument alone.
"""

from __future__ import annotations

import numpy as np

from umdf.sync import update_gate_kernel as k
from umdf.sync.gated_updates import GatedUpdates
from umdf.sync.gaps import GapLedger
from umdf.sync.trust import HEALTHY, Trust, unverified

RESET_LOST = "a message was lost that may have reset its statistics"


def silence(silent_s: float) -> Trust:
    return unverified(f"nothing was received on any line for {silent_s:.0f} s")


def untrusted_instruments(updates: GatedUpdates, gaps: GapLedger, silent_s: float | None) -> dict[int, Trust]:
    """Every instrument whose book is not healthy: those that are defined, and those that have a book."""
    trust, defined = updates.trust, np.array(updates.state.instruments.ids(), np.int64)
    ids, numbers = trust.shown_books()
    verified = np.maximum(trust.states[numbers, k.S_VERIFIED], updates.empty_until)
    is_stale = trust.states[numbers, k.S_STALE] != 0
    without_book = np.setdiff1d(defined, ids)
    verified = np.concatenate([verified, np.full(len(without_book), updates.empty_until)])
    is_stale = np.concatenate([is_stale, np.zeros(len(without_book), np.bool_)])
    all_ids = np.concatenate([ids, without_book])
    found = {int(ids[row]): trust.trust_of(int(numbers[row]), None) for row in np.flatnonzero(is_stale).tolist()}
    by_gap = [unverified(gap.reason) for gap in gaps.missing]
    first_gap = np.searchsorted(gaps.ends, verified, side="right")
    chosen = np.flatnonzero(~is_stale & (first_gap < len(by_gap)))
    found |= {
        number: by_gap[gap] for number, gap in zip(all_ids[chosen].tolist(), first_gap[chosen].tolist(), strict=True)
    }
    others = updates.suspects.keys() - found.keys()
    if others:
        found |= dict.fromkeys(others & set(all_ids.tolist()), unverified(RESET_LOST))
    for number, reason in updates.phases.end_of_day_doubts(all_ids.tolist(), gaps).items():
        found.setdefault(number, unverified(reason))
    if silent_s is not None:
        found = dict.fromkeys(all_ids.tolist(), silence(silent_s)) | found
    return found


def shown_trust(updates: GatedUpdates, gaps: GapLedger, silent_s: float | None, instrument_id: int) -> Trust:
    """Of one instrument."""
    number = updates.trust.shown_number(instrument_id)
    verified = updates.empty_until
    if number >= 0:
        verified = max(verified, int(updates.trust.states[number, k.S_VERIFIED]))
    gap = gaps.first_after(verified)
    if number >= 0:
        trust = updates.trust.trust_of(number, gap)
    else:
        trust = HEALTHY if gap is None else unverified(gap.reason)
    if trust.is_healthy and instrument_id in updates.suspects:
        trust = unverified(RESET_LOST)
    if trust.is_healthy and (reason := updates.phases.end_of_day_doubt(instrument_id, gaps)):
        trust = unverified(reason)
    if trust.is_healthy and silent_s is not None:
        trust = silence(silent_s)
    return trust
