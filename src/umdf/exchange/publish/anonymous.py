"""Instruments whose orders and trades are published without firms (288 and 289: the blind screen of FX)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k

Records = NDArray[np.int64]
SECOND_FIRM_KINDS = (k.TRADE, k.BUST, k.LAST_PRICE)  # with the seller in OTHER


def without_firms(records: Records, listing: Listing) -> Records:
    """The records as everybody may see them."""
    instrument = records[:, k.INSTRUMENT]
    is_hidden = (instrument >= 0) & (listing.is_anonymous[np.maximum(instrument, 0)] == 1)
    is_hidden &= np.isin(records[:, k.KIND], (k.ADD, k.CHANGE, k.DELETE, k.SNAPSHOT_ORDER, *SECOND_FIRM_KINDS))
    if not is_hidden.any():
        return records
    hidden = records.copy()
    hidden[is_hidden, k.FIRM] = k.NULL
    hidden[is_hidden & np.isin(records[:, k.KIND], SECOND_FIRM_KINDS), k.OTHER] = k.NULL
    return hidden
