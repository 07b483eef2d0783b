"""What a client holds of a channel besides its books: definitions, phases and states, statistics, the tape.

The one rule: everything is applied in the order of the wire. Definitions, statuses, snapshot starts and channel resets
are few and are walked first, row by row; they depend on no statistic. What they make the statistics forget, and where,
goes to the kernels with the rows, so that a batch needs no cutting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from umdf.market.events import NULL, SNAPSHOT
from umdf.market.instruments import EXCHANGE, Changed, Instruments
from umdf.market.phases import Phases, Status
from umdf.market.rows import Events, Numbers, strings_of
from umdf.market.statistics import Forget, Statistics
from umdf.market.statistics_kernel import DROP, START_AGAIN
from umdf.market.statistics_view import readable, tables

Stream = Literal["incremental", "snapshot", "instruments"]

# The families that are walked, in this order where they stand at the same place: a snapshot starts before its entries.
_WALKED = ("snapshot", "control", "definition", "status")
_CHANNEL_RESET = ord("R")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows first … last - 1 of a family, between which no other walked family has any, and their places in the wire."""

    family: str
    first: int
    last: int
    orders: list[int]
    statuses: list[Status]  # of the family `status`


@dataclass(slots=True)
class Changes(Changed):
    """What a batch changed. The books of what was deleted are invalid (7.3)."""

    snapshots: list[int] = field(default_factory=list)  # instruments whose statistics and state started again
    channel_resets: int = 0


@dataclass(frozen=True, slots=True)
class InstrumentView:
    """An instrument for people."""

    instrument_id: int
    symbol: str | None
    state: int
    phase: int
    separated: bool
    session: int | None
    ts_open: int | None
    since: int | None
    depth: int | None  # of its book on this channel, where the definition says it
    statistics: dict[str, dict[str, Any]]


class MarketState:
    """The instruments of one channel, and everything that is said of them outside their books."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.instruments = Instruments()
        self.phases = Phases(self.instruments)
        self.statistics = Statistics()

    def apply(self, events: Events, stream: Stream = "incremental") -> Changes:
        """Apply a batch of one stream. Definitions of the incremental stream are changes during the session."""
        changes, forgets = Changes(), list[Forget]()
        for stretch in _walk(events, stream):
            forgets += _APPLIERS[stretch.family](self, stretch, events, stream, changes)
        self.statistics.apply(events, forgets)
        return changes

    def _define(self, stretch: Stretch, events: Events, stream: Stream, changes: Changes) -> list[Forget]:
        """A stretch of definitions, cut so that none both creates and deletes: one may do both to an instrument."""
        rows, forgets, intraday = events.rows("definition"), list[Forget](), stream == "incremental"
        gone = rows.column("action")[stretch.first : stretch.last] == ord("D")
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(gone)) + 1).tolist(), len(gone)]):
            first, last = stretch.first + start, stretch.first + end
            changed = self.instruments.apply(rows, events.units, first, last, intraday=intraday)
            changes.added += changed.added
            changes.modified += changed.modified
            if intraday:
                self.phases.created(changed.added)
            if gone[start]:  # also what has no definition here may have a book and statistics
                ids = rows.column("instrument_id")[first:last].tolist()
                changes.deleted += ids
                self.phases.deleted(ids)
                forgets += [Forget(place, who, DROP) for place, who in zip(stretch.orders[start:end], ids, strict=True)]
        return forgets

    def _state(self, stretch: Stretch, events: Events, stream: Stream, changes: Changes) -> list[Forget]:
        return [
            Forget(place, who, kind)
            for place, status in zip(stretch.orders, stretch.statuses, strict=True)
            for who, kind in self.phases.apply(status)
        ]

    def _start_snapshots(self, stretch: Stretch, events: Events, stream: Stream, changes: Changes) -> list[Forget]:
        ids = events.rows("snapshot").column("instrument_id")[stretch.first : stretch.last].tolist()
        for instrument_id in ids:
            self.phases.start_snapshot(instrument_id)
        changes.snapshots += ids
        return [Forget(place, who, START_AGAIN) for place, who in zip(stretch.orders, ids, strict=True)]

    def _control(self, stretch: Stretch, events: Events, stream: Stream, changes: Changes) -> list[Forget]:
        """A channel reset empties all statistics (4.2.9); states stay until they are sent again (13.9)."""
        kinds = events.rows("control").column("kind")[stretch.first : stretch.last].tolist()
        resets = [place for place, kind in zip(stretch.orders, kinds, strict=True) if kind == _CHANNEL_RESET]
        changes.channel_resets += len(resets)
        for _ in resets:
            self.phases.channel_reset()
        return [Forget(place, None, START_AGAIN) for place in resets]

    # What is asked of it.

    def instrument(self, instrument_id: int) -> InstrumentView:
        state = self.phases.of(instrument_id)
        return InstrumentView(
            instrument_id,
            self.instruments.symbol_of(instrument_id),
            state.state,
            state.phase,
            state.separated,
            state.session,
            state.ts_open,
            state.since,
            self.instruments.depth_of(instrument_id, self.channel),
            readable(self.statistics, instrument_id),
        )

    def to_tables(self) -> dict[str, pa.Table]:
        """Final statistics and states, sorted by instrument: `states` and the tables of `statistics_view.tables`."""
        states = []
        for instrument_id in sorted({*self.instruments.ids(), *self.phases.named()}):
            state = self.phases.of(instrument_id)
            values = {name: getattr(state, name) for name in state.__dataclass_fields__}
            symbol = self.instruments.symbol_of(instrument_id)
            states.append({"instrument_id": instrument_id, "symbol": symbol} | values)
        return {"states": pa.Table.from_pylist(states, STATES_SCHEMA)} | tables(self.statistics)

    def export(self) -> dict[str, Any]:
        """Everything, as plain values and arrays that can be pickled."""
        return {
            "channel": self.channel,
            "instruments": self.instruments,
            "phases": self.phases.export(),
            "statistics": self.statistics.export(),
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> MarketState:
        market = cls(state["channel"])
        market.instruments = state["instruments"]
        market.phases = Phases(market.instruments)
        market.phases.restore(state["phases"])
        market.statistics.restore(state["statistics"])
        return market


_APPLIERS = {
    "snapshot": MarketState._start_snapshots,
    "control": MarketState._control,
    "definition": MarketState._define,
    "status": MarketState._state,
}
STATES_SCHEMA = pa.schema(
    [
        ("instrument_id", pa.int64()),
        ("symbol", pa.utf8()),
        ("state", pa.int16()),
        ("phase", pa.int16()),
        ("separated", pa.bool_()),
        ("session", pa.int8()),
        ("ts_open", pa.int64()),
        ("since", pa.int64()),
    ]
)


def _walk(events: Events, stream: Stream) -> list[Stretch]:
    """The walked families, in the order of the wire."""
    present = [(rank, name) for rank, name in enumerate(_WALKED) if len(events.rows(name))]
    if not present:
        return []
    orders = {name: events.rows(name).order for _, name in present}
    statuses = {"status": statuses_of(events, stream)} if "status" in orders else {}
    ranks = np.concatenate([np.full(len(orders[name]), rank) for rank, name in present])
    ranks = ranks[np.lexsort((ranks, np.concatenate(list(orders.values()))))]
    done, stretches = dict.fromkeys(orders, 0), []
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(ranks)) + 1).tolist(), len(ranks)]):
        name = _WALKED[int(ranks[start])]
        first, done[name] = done[name], done[name] + end - start
        rows = slice(first, done[name])
        stretches.append(Stretch(name, first, done[name], orders[name][rows].tolist(), statuses.get(name, [])[rows]))
    return stretches


def statuses_of(events: Events, stream: Stream) -> list[Status]:
    """The rows of the family `status`."""
    rows = events.rows("status")
    columns = {
        name: _optional(rows.column(name), rows.family.column(name).null)
        for name in ("instrument_id", "phase", "state", "event", "trading_session", "ts_open")
    }
    texts = {}
    for name in ("security_group", "security_exchange"):
        text = rows.texts.get(name)
        texts[name] = [""] * len(rows) if text is None else strings_of(text)
    groups = [
        (code, exchange or EXCHANGE) if code else None
        for code, exchange in zip(texts["security_group"], texts["security_exchange"], strict=True)
    ]
    happened, sent = rows.column("ts_event"), events.units.ts_send[rows.unit]
    times = _optional(np.where(happened == NULL, sent, happened), NULL)
    in_snapshot = ((rows.column("flags") & SNAPSHOT != 0) | (stream == "snapshot")).tolist()
    ids = columns.pop("instrument_id")
    return [Status(*values) for values in zip(ids, groups, *columns.values(), times, in_snapshot, strict=True)]


def _optional(values: Numbers, null: int) -> list[int | None]:
    return [None if value == null else value for value in values.tolist()]
