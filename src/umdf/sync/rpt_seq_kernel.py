"""What an update's RptSeq (83) says about its book, for one update or many, live or from captures."""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined

NULL = -(1 << 63)
FOLLOWS, SEEMS_TO_FOLLOW, OLD, UPDATES_MISSING = range(4)  # SEEMS_TO_FOLLOW: it is the next one, which proves nothing
# If an Empty Book or a channel reset is lost with as many updates as the book had before, the next one seems to follow.
# That happens only to books that had few.
SHORT_HISTORY = 32


@inlined
def compare_rpt_seq(known, rpt_seq, is_unverified, is_ambiguous):
    """`known` is the last RptSeq of the book: 0 if there was none, so that only 1 can follow; NULL after an Empty Book
    or a channel reset, after which any may.

    If units were lost since (`is_unverified`), a lower number is not an old one: an Empty Book or a channel reset,
    which restart RptSeq (4.2.9), may be among them. `is_ambiguous`: an earlier update of this doubt only seemed to
    follow.
    """
    if known == NULL:
        return np.int64(UPDATES_MISSING if is_unverified and rpt_seq != 1 else FOLLOWS)
    if rpt_seq == known + 1:
        proves_nothing = is_unverified and (is_ambiguous or 0 < known <= SHORT_HISTORY)
        return np.int64(SEEMS_TO_FOLLOW if proves_nothing else FOLLOWS)
    if rpt_seq <= known and not is_unverified:
        return np.int64(OLD)
    return np.int64(UPDATES_MISSING)
