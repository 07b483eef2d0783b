"""The state of a channel besides its books: definitions, phases and states, statistics, the tape.

Invariant: everything is applied in wire order. Definitions, statuses, snapshot starts and channel resets
are few and are applied first, row by row; they depend on no statistic. The statistics that they clear, and from which
position on, go to the kernels with the rows, so a batch need not be split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from umdf.market.families import NULL, SNAPSHOT
from umdf.market.instruments import DEFAULT_EXCHANGE, DefinitionChanges, Instruments
from umdf.market.phases import BEFORE_ALL, Phases, Status
from umdf.market.rows import Events, Numbers, strings_of
from umdf.market.statistics import StatisticReset, Statistics
from umdf.market.statistics_kernel import INSTRUMENT_DELETED, NEW_SESSION, RESET_ALL
from umdf.market.statistics_view import describe_statistics, statistics_tables

Stream = Literal["incremental", "snapshot", "instruments"]

# The families that are walked, in this order at the same position: a snapshot starts before its entries.
_ORDERED_FAMILIES = ("snapshot", "control", "definition", "status")
_CHANNEL_RESET = ord("R")


@dataclass(frozen=True, slots=True)
class FamilyRun:
    """Rows first … last - 1 of a family, with no row of another walked family between, and their wire order."""

    family: str
    first: int
    last: int
    orders: list[int]
    statuses: list[Status]  # of the family `status`
    as_of: Mapping[int, int]  # the sequence of each instrument's snapshot


@dataclass(slots=True)
class BatchChanges(DefinitionChanges):
    """What a batch changed. The books of what was deleted are invalid (7.3)."""

    snapshots: list[int] = field(default_factory=list)  # instruments whose statistics and state started again
    new_sessions: list[int] = field(default_factory=list)  # instruments whose trading session has changed (11.3)
    channel_resets: int = 0


@dataclass(frozen=True, slots=True)
class InstrumentView:
    """An instrument, for display."""

    instrument_id: int
    symbol: str | None
    state: int
    phase: int
    separated: bool
    session: int | None
    ts_open: int | None
    since: int | None
    depth: int | None  # of its book on this channel, if the definition has it
    statistics: dict[str, dict[str, Any]]


class MarketState:
    """The instruments of one channel, and everything published about them except their books."""

    def __init__(self, channel: int, *, by_sequence: bool = False) -> None:
        """`by_sequence`: all events are of one epoch, and what comes late does not undo what has a higher sequence."""
        self.channel, self._by_sequence = channel, by_sequence
        self.instruments = Instruments()
        self.phases = Phases(self.instruments)
        self.statistics = Statistics()

    def apply(
        self,
        events: Events,
        stream: Stream = "incremental",
        as_of: Mapping[int, int] | None = None,
        resets: Sequence[StatisticReset] = (),
    ) -> BatchChanges:
        """Apply a batch of one stream. Definitions of the incremental stream are changes during the session. `as_of` is
        the sequence of each instrument's snapshot: what happened after it stays. `resets` are further ones."""
        changes, resets = BatchChanges(), [*resets]
        for run in _family_runs(events, stream, as_of, self._by_sequence):
            resets += _APPLIERS[run.family](self, run, events, stream, changes)
        self.statistics.apply(events, resets)
        return changes

    def _apply_definitions(
        self, run: FamilyRun, events: Events, stream: Stream, changes: BatchChanges
    ) -> list[StatisticReset]:
        """A run of definitions, split so that no part both creates and deletes: a batch may do both."""
        rows, resets, intraday = events.rows("definition"), list[StatisticReset](), stream == "incremental"
        is_deleted = rows.column("action")[run.first : run.last] == ord("D")
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(is_deleted)) + 1).tolist(), len(is_deleted)]):
            first, last = run.first + start, run.first + end
            definition_changes = self.instruments.apply(rows, events.units, first, last, intraday=intraday)
            changes.added += definition_changes.added
            changes.modified += definition_changes.modified
            if intraday:
                sequence = int(events.units.sequence[rows.unit[first]]) if self._by_sequence else BEFORE_ALL
                # One that is modified (980=M) existed before, whether its definition was received or not.
                is_modified = rows.column("action")[first:last] == ord("M")
                modified = set(rows.column("instrument_id")[first:last][is_modified].tolist())
                self.phases.mark_created((n for n in definition_changes.added if n not in modified), sequence)
            if is_deleted[start]:  # an instrument without a definition here may have a book and statistics too
                ids = rows.column("instrument_id")[first:last].tolist()
                changes.deleted += ids
                self.phases.remove(ids)
                resets += [
                    StatisticReset(place, who, INSTRUMENT_DELETED)
                    for place, who in zip(run.orders[start:end], ids, strict=True)
                ]
        return resets

    def _apply_statuses(
        self, run: FamilyRun, events: Events, stream: Stream, changes: BatchChanges
    ) -> list[StatisticReset]:
        resets = [
            StatisticReset(place, who, kind)
            for place, status in zip(run.orders, run.statuses, strict=True)
            for who, kind in self.phases.apply(status)
        ]
        changes.new_sessions += [reset.instrument_id or 0 for reset in resets if reset.kind == NEW_SESSION]
        return resets

    def _apply_snapshot_starts(
        self, run: FamilyRun, events: Events, stream: Stream, changes: BatchChanges
    ) -> list[StatisticReset]:
        ids = events.rows("snapshot").column("instrument_id")[run.first : run.last].tolist()
        for instrument_id in ids:
            self.phases.start_snapshot(instrument_id, run.as_of.get(instrument_id))
        changes.snapshots += ids
        return [StatisticReset(place, who, RESET_ALL) for place, who in zip(run.orders, ids, strict=True)]

    def _apply_control(
        self, run: FamilyRun, events: Events, stream: Stream, changes: BatchChanges
    ) -> list[StatisticReset]:
        """A channel reset clears all statistics (4.2.9); states stay until they are sent again (13.9)."""
        kinds = events.rows("control").column("kind")[run.first : run.last].tolist()
        resets = [place for place, kind in zip(run.orders, kinds, strict=True) if kind == _CHANNEL_RESET]
        changes.channel_resets += len(resets)
        for _ in resets:
            self.phases.channel_reset()
        return [StatisticReset(place, None, RESET_ALL) for place in resets]

    # Queries.

    def instrument(self, instrument_id: int) -> InstrumentView:
        state = self.phases.state_of(instrument_id)
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
            describe_statistics(self.statistics, instrument_id),
        )

    def to_tables(self) -> dict[str, pa.Table]:
        """Final statistics and states, sorted by instrument: `states` and those of `statistics_tables`."""
        states = []
        for instrument_id in sorted({*self.instruments.ids(), *self.phases.instrument_ids()}):
            state = self.phases.state_of(instrument_id)
            values = {name: getattr(state, name) for name in state.__dataclass_fields__}
            symbol = self.instruments.symbol_of(instrument_id)
            states.append({"instrument_id": instrument_id, "symbol": symbol} | values)
        return {"states": pa.Table.from_pylist(states, STATES_SCHEMA)} | statistics_tables(self.statistics)

    def export(self) -> dict[str, Any]:
        """The whole state, as plain values and arrays that can be pickled."""
        return {
            "channel": self.channel,
            "instruments": self.instruments,
            "phases": self.phases.export(),
            "statistics": self.statistics.export(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MarketState:
        market = cls(state["channel"])
        market.instruments = state["instruments"]
        market.phases = Phases(market.instruments)
        market.phases.restore(state["phases"])
        market.statistics.restore(state["statistics"])
        return market


_APPLIERS = {
    "snapshot": MarketState._apply_snapshot_starts,
    "control": MarketState._apply_control,
    "definition": MarketState._apply_definitions,
    "status": MarketState._apply_statuses,
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


def _family_runs(events: Events, stream: Stream, as_of: Mapping[int, int] | None, by_sequence: bool) -> list[FamilyRun]:
    """The walked families, in wire order."""
    families = events.families
    present = [(rank, name) for rank, name in enumerate(_ORDERED_FAMILIES) if name in families and len(families[name])]
    if not present:
        return []
    orders = {name: events.rows(name).wire_order for _, name in present}
    statuses = {"status": read_statuses(events, stream, as_of, by_sequence)} if "status" in orders else {}
    ranks = np.concatenate([np.full(len(orders[name]), rank) for rank, name in present])
    ranks = ranks[np.lexsort((ranks, np.concatenate(list(orders.values()))))]
    next_rows, runs = dict.fromkeys(orders, 0), []
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(ranks)) + 1).tolist(), len(ranks)]):
        name = _ORDERED_FAMILIES[int(ranks[start])]
        first, next_rows[name] = next_rows[name], next_rows[name] + end - start
        rows = slice(first, next_rows[name])
        own = orders[name][rows].tolist(), statuses.get(name, [])[rows], as_of or {}
        runs.append(FamilyRun(name, first, next_rows[name], *own))
    return runs


def read_statuses(
    events: Events, stream: Stream, as_of: Mapping[int, int] | None = None, by_sequence: bool = False
) -> list[Status]:
    """The rows of the family `status`; `by_sequence`: each as of its own sequence or, in a snapshot, as of that of its
    instrument."""
    rows = events.rows("status")
    columns = {
        name: _none_if_null(rows.column(name), rows.family.column(name).null)
        for name in ("instrument_id", "phase", "state", "event", "trading_session", "ts_open")
    }
    texts = {}
    for name in ("security_group", "security_exchange"):
        text = rows.texts.get(name)
        texts[name] = [""] * len(rows) if text is None else strings_of(text)
    groups = [
        (code, exchange or DEFAULT_EXCHANGE) if code else None
        for code, exchange in zip(texts["security_group"], texts["security_exchange"], strict=True)
    ]
    event_times, send_times = rows.column("ts_event"), events.units.ts_send[rows.unit]
    times = _none_if_null(np.where(event_times == NULL, send_times, event_times), NULL)
    in_snapshot = ((rows.column("flags") & SNAPSHOT != 0) | (stream == "snapshot")).tolist()
    ids = columns.pop("instrument_id")
    sequences: list[int | None] = [None] * len(rows)
    if as_of is not None:
        sequences = [None if number is None else as_of.get(number) for number in ids]
    elif by_sequence and stream == "incremental":
        sequences = events.units.sequence[rows.unit].tolist()
    values = zip(ids, groups, *columns.values(), times, in_snapshot, sequences, strict=True)
    return [Status(*each) for each in values]


def _none_if_null(values: Numbers, null: int) -> list[int | None]:
    return [None if value == null else value for value in values.tolist()]
