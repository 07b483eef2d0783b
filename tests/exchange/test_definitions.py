"""Every definition of every market arrives in both protocols and generations as the catalogue has it."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
from exchange.published_events import publish

from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.instrument_spec import InstrumentSpec
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import FAST, INSTRUMENTS, MBP, POSITION, PRIORITY, SBE, ChannelSettings
from umdf.exchange.publish.publisher import JournalBatch
from umdf.market.families import DEFINITION
from umdf.market.rows import Rows, strings_of

TRADING_DATE, MIDNIGHT_NS = 20_770, 20_770 * 86_400 * 1_000_000_000
NOT_IN_149 = {"min_trade_vol", "price_type"}  # 562 and 423, in the previous generation
KINDS = [(SBE, PRIORITY), (SBE, POSITION), (FAST, PRIORITY), (FAST, POSITION)]


@pytest.fixture(scope="module")
def listing() -> Listing:
    return Listing(generate_catalogue(500, 2, date(2026, 11, 13)), TRADING_DATE, np.random.default_rng(1))


def definitions_of(settings: ChannelSettings, listing: Listing, action: str = "A") -> Rows:
    count = len(listing)
    records = np.full((count, k.RECORD_COLUMNS), k.NULL, np.int64)
    records[:, k.KIND], records[:, k.SIDE], records[:, k.FLAGS] = k.DEFINITION, k.NO_SIDE, 0
    records[:, k.TS], records[:, k.CODE], records[:, k.SIZE] = MIDNIGHT_NS, ord(action), count
    records[:, k.ID] = records[:, k.INSTRUMENT] = np.arange(count)
    records[:, k.OTHER], records[:, k.POSITION] = listing.definition_number, np.arange(count) == count - 1
    batch = JournalBatch(INSTRUMENTS, records, MIDNIGHT_NS, starts_loop=True)
    return publish(settings, listing, batch).rows("definition")


def value_of(rows: Rows, row: int, name: str) -> Any:
    column = DEFINITION.column(name)
    if column.is_text:
        return strings_of(rows.texts[name])[row] if name in rows.texts else ""
    value = int(rows.column(name)[row])
    return None if value == column.null else value


def entries_of(rows: Rows, row: int, name: str, *fields: str) -> list[tuple[Any, ...]]:
    group = rows.lists.get(name)
    if group is None:
        return []
    part = slice(int(group.offsets[row]), int(group.offsets[row + 1]))
    columns = [(strings_of(group.texts[f]) if f in group.texts else group.columns[f].tolist())[part] for f in fields]
    return list(zip(*columns, strict=True))


def days(day: date | None) -> int | None:
    return None if day is None else (day - date(1970, 1, 1)).days


def shared_projection(spec: InstrumentSpec) -> dict[str, Any]:
    """What both protocols say of an instrument, straight from the catalogue."""
    return {
        "instrument_id": spec.security_id, "symbol": spec.symbol, "security_group": spec.group, "asset": spec.asset,
        "security_type": spec.security_type, "security_sub_type": spec.sub_type, "product": spec.product,
        "isin": spec.isin, "cfi_code": spec.cfi_code, "description": spec.description, "currency": spec.currency,
        "strike_currency": spec.strike_currency, "settl_currency": spec.settl_currency or spec.currency,
        "tick": spec.tick, "tick_denominator": spec.decimals, "strike_price": spec.strike,
        "contract_multiplier": spec.multiplier, "price_divisor": spec.divisor, "maturity_date": days(spec.maturity),
        "maturity_month_year": spec.maturity_code, "contract_settl_month": spec.settl_month,
        "exercise_style": spec.exercise_style, "put_or_call": spec.put_or_call, "market_segment_id": spec.segment,
        "multi_leg_model": spec.multi_leg_model, "multi_leg_price_method": spec.price_method,
        "min_order_qty": spec.lot, "min_trade_vol": spec.lot, "max_order_qty": 100_000 * spec.lot,
        "shares_issued": spec.shares_issued, "corporate_action_event_id": spec.corporate_action,
        "settl_type": spec.settl_days, "price_type": spec.price_type, "strategy_type": spec.strategy_type,
        "country": "BR", "security_exchange": "BVMF", "governance_indicator": spec.governance,
    }  # fmt: skip


@pytest.mark.parametrize(("protocol", "generation"), KINDS)
def test_definitions_arrive_as_the_catalogue_has_them(protocol: str, generation: str, listing: Listing) -> None:
    rows = definitions_of(ChannelSettings(72, protocol, generation), listing)
    assert len(rows) == len(listing)
    texts = {name: strings_of(text) for name, text in rows.texts.items()}
    not_sent = NOT_IN_149 if (protocol, generation) == (FAST, POSITION) else set[str]()
    for row, spec in enumerate(listing.instruments):
        expected = {name: value for name, value in shared_projection(spec).items() if name not in not_sent}
        found = {name: texts[name][row] if name in texts else value_of(rows, row, name) for name in expected}
        assert found == expected, spec.symbol
        legs = [(listing.instruments[listing.index_of(leg.symbol)], leg) for leg in spec.legs]
        names = ("leg_id", "leg_symbol", "leg_ratio", "leg_side", "leg_security_type")
        assert entries_of(rows, row, "legs", *names) == [
            (other.security_id, leg.symbol, leg.ratio, leg.side, other.security_type) for other, leg in legs
        ]
        underlyings = [
            (listing.instruments[listing.index_of(u.symbol)].security_id, u.symbol) for u in spec.underlyings
        ]
        assert entries_of(rows, row, "underlyings", "underlying_id", "underlying_symbol") == underlyings
        attributes = entries_of(rows, row, "attributes", "attribute_type", "attribute_value")
        assert attributes == list(spec.attributes)
        lots = [] if not spec.lot_type else [(spec.lot_type, spec.lot)]
        assert entries_of(rows, row, "lots", "lot_type", "min_lot_size") == lots
        if protocol == FAST and spec.divisor:  # weights have no Binary field
            weights = entries_of(rows, row, "underlyings", "index_pct", "index_theoretical_qty")
            assert weights == [(u.percent, u.quantity) for u in spec.underlyings]
        if protocol == FAST:
            assert entries_of(rows, row, "feeds", "channel") == [(72,)]
    assert value_of(rows, len(rows) - 1, "is_last") == 1


def test_price_depth_channels_say_their_depth(listing: Listing) -> None:
    """1141 is not sent for MBO; STD and the depth for price depth (reference 1.3.1)."""
    rows = definitions_of(ChannelSettings(72, FAST, book_type=MBP, depth=5), listing)
    assert entries_of(rows, 0, "feeds", "channel", "feed_type", "depth") == [(72, "STD", 5)]
