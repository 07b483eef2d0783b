"""Records of statistics → columns of the family `statistics`: what each column of a record means, by kind.

record       PRICE        SIZE      OTHER              AUX               CODE             ID            FIRM
opening      price                                     net change        286
theoretical  TOP          TOQ                                            286
closing      price                  37013, of 286=4    9325, of 286=4    286
settlement   price                                                       286, 731 << 8
execution    VWAP         volume    trades             net change
volume                    volume    trades             financial volume  1500
interest     rate (BTB)   contracts
last price   price        size      seller                               conditions       trade         buyer
index value  value                                     net change                         37100         274
volatility                          long price         delta                                            short price
composite                           number in details                                     37100
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.journal_details import CompositePrice
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.unit_builder import FamilyColumns
from umdf.market import families as e

Numbers = NDArray[Any]
COUNTING_KINDS = (k.VOLUME, k.EXECUTION)
CHANGING_KINDS = (k.OPENING, k.EXECUTION, k.INDEX_VALUE)
FLAGGED_KINDS = (k.OPENING, k.THEORETICAL, k.CLOSING, k.SETTLEMENT)
NUMBERED_KINDS = (k.INDEX_VALUE, k.COMPOSITE)
SETTLEMENT_VENUE, INDEX_VENUE = ord("A"), ord("N")
ADJUSTED_CLOSING, FIXED_AMOUNT = 4, 3  # 286; 423
NONE_8, NONE_32 = e.NULL_I8, e.NULL_I32


def with_composites(records: FamilyColumns, listing: Listing) -> tuple[FamilyColumns, list[CompositePrice | None]]:
    """A row for each price of a composite, which is one entry (10.10); and these prices, None for other rows."""
    is_composite = records[k.KIND] == k.COMPOSITE
    prices: list[list[CompositePrice | None]] = [
        [*listing.details.composites[number]] if composite else [None]
        for composite, number in zip(is_composite.tolist(), records[k.OTHER].tolist(), strict=True)
    ]
    rows = np.repeat(np.arange(len(records)), [len(part) for part in prices])
    repeated = replace(
        records,
        values=records.values[:, rows],
        unit=records.unit[rows],
        msg_index=records.msg_index[rows],
        entry_index=records.entry_index[rows],
    )
    return repeated, [price for part in prices for price in part]


def composite_columns(prices: list[CompositePrice | None], listing: Listing) -> dict[str, Numbers]:
    ids = listing.instrument_ids
    return {
        "price": np.array([e.NULL if price is None else price.price for price in prices]),
        "underlying_id": np.array([e.NULL if price is None else int(ids[price.index]) for price in prices]),
        "underlying_px_type": np.array([NONE_8 if price is None else price.price_type for price in prices], np.int8),
    }


def statistic_columns(records: FamilyColumns, venue: Numbers, has_vwap_only: bool) -> dict[str, Numbers]:
    """`venue` is that of each instrument. With `has_vwap_only`, FIX/FAST's way, the VWAP is sent alone (10.3)."""
    kind, code, other, aux, firm = (records[column] for column in (k.KIND, k.CODE, k.OTHER, k.AUX, k.FIRM))

    def of(kinds: int | tuple[int, ...], values: Numbers, null: int = e.NULL) -> Numbers:
        return np.where(kind == kinds if isinstance(kinds, int) else np.isin(kind, kinds), values, null)

    execution = kind == k.EXECUTION
    if has_vwap_only:
        other, size = np.where(execution, e.NULL, other), np.where(execution, e.NULL, records[k.SIZE])
        aux = np.where(execution, e.NULL, aux)
    else:
        size = records[k.SIZE]
    settlement = kind == k.SETTLEMENT
    adjusted = (kind == k.CLOSING) & (code == ADJUSTED_CLOSING)
    # 10.6: A, of an index N and without 423; 10.4: none on a theoretical price; 12.4: of another venue its own.
    venue = np.where(settlement & (venue != INDEX_VENUE), SETTLEMENT_VENUE, venue)
    venue = np.where((kind == k.VOLUME) & (code > 0), code, np.where(kind == k.THEORETICAL, 0, venue))
    return {
        "price": records[k.PRICE],
        "size": size,
        "trade_count": of(COUNTING_KINDS, other),
        "financial_volume": of(k.VOLUME, aux),
        "net_change": of(CHANGING_KINDS, aux),
        "conditions": of(k.LAST_PRICE, code, NONE_32).astype(np.int32),
        "open_close_settl_flag": of(FLAGGED_KINDS, code & 0xFF, NONE_8).astype(np.int8),
        "settl_price_type": np.where(settlement, code >> 8, NONE_8).astype(np.int8),
        "price_type": np.where(settlement & (venue != INDEX_VENUE), FIXED_AMOUNT, NONE_8).astype(np.int8),
        "last_trade_date": np.where(adjusted, aux, NONE_32).astype(np.int32),
        "price_adjustment_method": np.where(adjusted, other, NONE_8).astype(np.int8),
        "trade_id": of(k.LAST_PRICE, records[k.ID]),
        "buyer": of(k.LAST_PRICE, firm),
        "seller": of(k.LAST_PRICE, other),
        "index_seq": of(NUMBERED_KINDS, records[k.ID]),
        "tick_direction": np.where((kind == k.INDEX_VALUE) & (firm > 0), firm, 0).astype(np.uint8),
        "first_price": of(k.VOLATILITY, firm),
        "last_price": of(k.VOLATILITY, other),
        "price_delta": of(k.VOLATILITY, aux),
        "venue": venue.astype(np.uint8),
    }
