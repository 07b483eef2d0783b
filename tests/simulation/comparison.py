"""What the client shows at the end beside what the exchange itself has: books, statistics, states, definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from parity.truth import BAND, STATISTIC, columns, newest_settlements
from simulation.whole_system import FollowedChannel, Simulation

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.truth.tables import final_statistics
from umdf.feed.channel_states import FeedState
from umdf.market.families import LAST_PRICE, TRADE_VOLUME
from umdf.sync.channel import Channel

Rows = list[tuple[Any, ...]]
IMBALANCE = 0  # of the truth: it is no statistic of the wire
pc: Any = pyarrow.compute  # its functions are made at run time


def differences(simulation: Simulation) -> list[str]:
    """Everything that is not as the exchange has it, after the quiet time; nothing may be untrusted."""
    return [each for channel in simulation.channels.values() for each in _channel_differences(simulation, channel)]


def _channel_differences(simulation: Simulation, channel: FollowedChannel) -> list[str]:
    feed, found = channel.feed, list[str]()
    live, publisher, market = feed.channel, channel.publisher, simulation.exchange.market
    last = next(row[2] for row in publisher.sequences() if row[0] == "incremental")
    if live.sequence != last or feed.state != FeedState.LIVE:
        found.append(f"{feed.key} is {feed.state} at {live.sequence}, the exchange at {last}")
    found += channel.compare_all()
    listed = publisher.is_member & market.is_listed
    ids = all_ids(channel, market)
    for number in sorted(ids):
        for trust in (live.book_trust(number), live.state_trust(number), live.definition_trust(number)):
            if not trust.is_healthy:
                found.append(f"{feed.key} {number} is {trust.level}: {trust.reason}")
    tables, (statistics, bands) = live.state.to_tables(), final_statistics(market)
    is_fast = feed.key.protocol == "fast"
    names = STATISTIC[:5] if is_fast else STATISTIC
    # A snapshot states the last price, which later trades move: it is compared as what the client shows.
    not_compared = [LAST_PRICE, IMBALANCE] if is_fast else [LAST_PRICE, IMBALANCE, TRADE_VOLUME]
    true_statistics = pa.table(statistics)
    imbalances = true_statistics.filter(pc.equal(true_statistics["stat_type"], IMBALANCE))
    kept, own = (~np.isin(table["stat_type"], not_compared) for table in (true_statistics, tables["statistics"]))
    true_statistics, own_statistics = true_statistics.filter(kept), tables["statistics"].filter(own)
    rows = market.instruments[listed]
    specs = [simulation.exchange.listing.instruments[row] for row in np.flatnonzero(listed).tolist()]
    pairs: dict[str, tuple[Rows, Rows]] = {
        "statistics": (_of(newest_settlements(own_statistics), names, ids), _of(true_statistics, names, ids)),
        "imbalances": (
            _of(tables["imbalance"], ("instrument_id", "size"), ids),
            _of(imbalances, ("instrument_id", "size"), ids),
        ),
        "last prices": (
            _of(tables["last"], ("instrument_id", "price"), ids),
            sorted(map(tuple, rows[rows[:, k.I_LAST] > 0][:, [k.I_ID, k.I_LAST]].tolist()), key=str),
        ),
        "bands": (_of(tables["price_band"], BAND, ids), _of(pa.table(bands), BAND, ids)),
        "states": (
            _of(tables["states"], ("instrument_id", "state", "phase"), ids),
            sorted(map(tuple, rows[:, [k.I_ID, k.I_STATE, k.I_PHASE]].tolist()), key=str),
        ),
        "instruments": (
            sorted(_definition(live, number) for number in live.state.instruments.ids()),
            sorted(
                (int(number), spec.symbol, spec.lot, spec.match_type)
                for number, spec in zip(rows[:, k.I_ID], specs, strict=True)
            ),
        ),
    }
    for name, (shown, right) in pairs.items():
        if shown != right:
            wrong, missing = (sorted(set(a) - set(b), key=str)[:3] for a, b in ((shown, right), (right, shown)))
            found.append(f"{feed.key} {name}: shown {wrong}, right {missing}")
    return found


def all_ids(channel: FollowedChannel, market: Market) -> set[int]:
    return set(market.instruments[channel.publisher.is_member & market.is_listed, k.I_ID].tolist())


def _definition(live: Channel, number: int) -> tuple[Any, ...]:
    """What the exchange's operator can change of it."""
    definition = live.state.instruments.get(number)
    assert definition is not None
    return number, definition.symbol, definition["min_order_qty"], definition["security_match_type"]


def _of(table: pa.Table, names: tuple[str, ...], ids: set[int]) -> Rows:
    return sorted((row for row in columns(table, names) if row[0] in ids), key=str)
