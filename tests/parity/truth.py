"""A bulk capture rebuilt by us, laid beside what the generator says has happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from umdf.cli.replay import ReplayResult, expand_captures, replay
from umdf.market.arrow import record_batch
from umdf.market.families import CONDITIONS, SETTLEMENT_PRICE, TRADE_VOLUME
from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.session import ChannelKey, Until
from umdf.sync.snapshots import Snapshots
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import Protocol
from umdf.wire.sbe.loader import load as load_schema

Rows = list[tuple[Any, ...]]
pc: Any = pyarrow.compute  # its functions are made at run time
MS = 1_000_000
ORDER = ("instrument_id", "side", "position", "price", "size", "order_id", "firm")
TRADE = ("instrument_id", "trade_id", "price", "size", "buyer", "seller", "side", "conditions")
STATISTIC = ("instrument_id", "stat_type", "open_close_settl_flag", "settl_price_type", "price", "size", "trade_count")
BAND = (
    "instrument_id",
    "entry_type",
    "price_band_type",
    "price_limit_type",
    "midpoint_type",
    "low_limit_price",
    "high_limit_price",
    "avg_daily_traded_qty",
    "max_trade_vol",
)


@dataclass
class RebuiltChannels:
    """What the captures in a directory came to."""

    directory: Path
    streams: tuple[str, ...] = ("instruments", "snapshot", "incremental")
    until: Until | None = None
    replayed: ReplayResult = field(init=False)
    trades: dict[ChannelKey, list[pa.RecordBatch]] = field(default_factory=dict)
    messages: int = 0

    def __post_init__(self) -> None:
        paths = [
            p for p in expand_captures([self.directory / "capture"]) if any(name in p.name for name in self.streams)
        ]
        self.replayed = replay(paths, load_schema(), load_templates(), self.until, self._watch)

    def _watch(self, key: ChannelKey, events: Events) -> None:
        self.messages += len(events.rows("mbo"))
        if "trades" in events.families:
            self.trades.setdefault(key, []).append(record_batch(events, "trades"))

    def truth(self, name: str) -> pa.Table:
        return pq.read_table(self.directory / "truth" / f"{name}.parquet")


def orders_of(channel: Channel) -> Rows:
    """Every order of every book, in the columns of ORDER."""
    found: Rows = []
    for instrument_id in sorted(channel.instrument_ids()):
        book = channel.book(instrument_id)
        assert book is not None
        for side, levels in (("B", book.bids), ("A", book.asks)):
            orders = [(level.price, order) for level in levels for order in level.orders]
            found += [
                (instrument_id, side, position, price, order.size, order.order_id, order.firm)
                for position, (price, order) in enumerate(orders, 1)
            ]
    return found


def snapshots_of(directory: Path) -> list[tuple[ChannelKey, Snapshots]]:
    """Every snapshot in the captures, as they were sent."""
    found: list[tuple[ChannelKey, Snapshots]] = []

    class Watching(Channel):
        def apply_snapshots(self, snapshots: Snapshots, received: object = None) -> None:
            found.append(((Protocol.UNKNOWN, self.number), snapshots))

    with mock.patch("umdf.sync.session.Channel", Watching):
        RebuiltChannels(directory, ("snapshot", "instruments"))
    return found


def columns(table: pa.Table, names: tuple[str, ...]) -> Rows:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def compare(rebuilt: RebuiltChannels, key: ChannelKey, channel: Channel) -> dict[str, tuple[Rows, Rows]]:
    """What we have and what is true, table by table."""
    protocol, state = key[0], channel.state.to_tables()
    trades = _without_implied(pa.Table.from_batches(rebuilt.trades[key]))
    made = trades.filter(pc.equal(trades["action"], "A"))
    busted = trades.filter(pc.equal(trades["action"], "C"))
    true_trades = rebuilt.truth("trades")
    true_busts = true_trades.filter(true_trades["busted"])
    statistics, true_statistics = newest_settlements(state["statistics"]), rebuilt.truth("statistics")
    if protocol == Protocol.SBE:
        wire_trade, wire_statistic = TRADE, STATISTIC
        true_statistics = true_statistics.filter(pc.not_equal(true_statistics["stat_type"], TRADE_VOLUME))
    else:
        # FIX/FAST has no aggressor and no BLOCK, REGULAR …; the quantity of a VWAP is Binary's.
        wire_trade, wire_statistic = TRADE[:6], STATISTIC[:5]
    listed = rebuilt.truth("instruments")
    listed = listed.filter(listed["is_listed"])
    return {
        "orders": (orders_of(channel), columns(_by_side(rebuilt.truth("final_orders")), ORDER)),
        "trades": (sorted(columns(made, wire_trade), key=str), sorted(columns(true_trades, wire_trade), key=str)),
        "busts": (_set(busted, ("instrument_id", "trade_id")), _set(true_busts, ("instrument_id", "trade_id"))),
        "statistics": (_set(statistics, wire_statistic), _set(true_statistics, wire_statistic)),
        "bands": (_set(state["price_band"], BAND), _set(rebuilt.truth("price_bands"), BAND)),
        "states": (
            _set(state["states"], ("instrument_id", "state", "phase")),
            _set(rebuilt.truth("states"), ("instrument_id", "state", "phase")),
        ),
        "instruments": (
            sorted((number, channel.state.instruments.symbol_of(number)) for number in channel.state.instruments.ids()),
            sorted(columns(listed, ("instrument_id", "symbol"))),
        ),
    }


def _without_implied(trades: pa.Table) -> pa.Table:
    """The generator says that a trade is implied by its flag, not by its conditions."""
    kept = pc.bit_wise_and(trades["conditions"], pa.scalar(~CONDITIONS["IM"], pa.int32()))
    return trades.set_column(trades.schema.get_field_index("conditions"), "conditions", kept)


def newest_settlements(statistics: pa.Table) -> pa.Table:
    """We keep all combinations of 286 and 731 apart; to the generator a final price takes the place of a preview."""
    names = ("instrument_id", "stat_type", "open_close_settl_flag", "settl_price_type")
    known = set(columns(statistics, names))
    final = [
        (*row[:3], 1) if row[1] == SETTLEMENT_PRICE and row[3] == 2 else None for row in columns(statistics, names)
    ]
    return statistics.filter(pa.array([row is None or row not in known for row in final]))


def _set(table: pa.Table, names: tuple[str, ...]) -> Rows:
    return sorted(columns(table, names), key=str)


def _by_side(table: pa.Table) -> pa.Table:
    """By instrument, bids before asks, by position."""
    keyed = table.append_column("asks", pc.equal(table["side"], "A").cast(pa.int8()))
    return keyed.sort_by([("instrument_id", "ascending"), ("asks", "ascending"), ("position", "ascending")])
