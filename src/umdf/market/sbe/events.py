"""Decoded Binary columns → events.

    mapper = SbeEventMapper(decoder.layout)
    events = mapper.events(decoder.decode(buffer, start, end))
    events.rows("mbo").columns["price"]

Rows of a family are in wire order. The mapping table is compiled once (`conversion_plan`); a batch only supplies
the addresses of its columns. Memory is reused when nothing refers to it any more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool, buffer_address
from umdf.market.families import NULL
from umdf.market.rows import Events, Numbers, Rows, Units
from umdf.market.sbe import aggressor_kernel as a
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe.conversion_plan import ENTRY_INDEX, IDENTITY, KEY_COLUMNS, MERGED, ConversionPlan, FamilyPlan
from umdf.market.sbe.text_columns import add_text_columns
from umdf.wire.sbe.decode import Batch
from umdf.wire.sbe.layout import Layout
from umdf.wire.sbe.schema import Schema

TrackedColumns = tuple[tuple[int, bytes], ...]


class SbeEventMapper:
    """Maps the batches of one stream, in order: it remembers the aggressor of an unfinished event. One per thread."""

    def __init__(self, schema: Layout | Schema) -> None:
        self.layout = schema if isinstance(schema, Layout) else Layout(schema)
        self._plans: dict[tuple[TrackedColumns, bool, bool], ConversionPlan] = {}
        self._pools: dict[str, Pool] = {}
        self._scratch = np.empty(1 << 16, np.uint8)
        self._constants: dict[tuple[np.dtype[np.generic], int], Numbers] = {}
        self._aggressor_state = np.zeros(a.STATE_WORDS, np.int64)

    def events(self, batch: Batch, ts_recv: NDArray[np.int64] | None = None, *, snapshot: bool = False) -> Events:
        """The events of a batch; `snapshot`: its packets are of a snapshot stream."""
        plan = self._plan(batch, snapshot)
        units = _units(batch, ts_recv)
        run = ConversionRun(self, plan, batch)
        families: dict[str, Rows] = {}
        for family in plan.families:
            if "." not in family.family.name and run.totals[family.number]:
                families[family.family.name] = run.rows(family)
        if not snapshot:
            run.find_aggressors(families, units, self._aggressor_state)
        add_text_columns(run, families)
        return Events(units, families)

    def reset(self) -> None:
        """Forget the unfinished event: the next batch is of another stream, or follows a loss."""
        self._aggressor_state[:] = 0

    def _plan(self, batch: Batch, snapshot: bool) -> ConversionPlan:
        counts = batch.rows.tolist()
        tracked: list[tuple[int, bytes]] = []
        entries = False
        for node in self.layout.nodes:
            if counts[node.index]:
                found = batch.tracked(node)
                if found.count(0) != len(found):
                    tracked.append((node.index, found))
                entries |= node.parent is not None
        key = tuple(tracked), snapshot, entries
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 64:
                self._plans.clear()
            masks = {index: np.frombuffer(found, np.int64) for index, found in tracked}
            plan = self._plans[key] = ConversionPlan(self.layout, masks, snapshot=snapshot, entries=entries)
        return plan

    def memory(self, family: str, nbytes: int) -> Memory:
        return self._pools.setdefault(family, Pool()).acquire(nbytes)

    def scratch(self, nbytes: int) -> NDArray[np.uint8]:
        if len(self._scratch) < nbytes:
            self._scratch = np.empty(2 * nbytes, np.uint8)
        return self._scratch

    def constant_array(self, dtype: np.dtype[np.generic], value: int, count: int) -> Numbers:
        """A constant column; the array is shared, so it is read-only."""
        array = self._constants.get((dtype, value))
        if array is None or len(array) < count:
            array = np.full(max(1024, 2 * count), value).astype(dtype)
            array.flags.writeable = False
            self._constants[dtype, value] = array
        return array[:count]


def _units(batch: Batch, ts_recv: NDArray[np.int64] | None) -> Units:
    headers = batch.headers
    return Units(
        headers.channel.astype(np.int16),
        headers.seq_version.astype(np.int64),
        headers.sequence.astype(np.int64),
        headers.sending_time.view(np.int64),
        np.full(batch.packets, NULL) if ts_recv is None else np.asarray(ts_recv, np.int64),
    )


class ConversionRun:
    """One batch through the program."""

    def __init__(self, mapper: SbeEventMapper, plan: ConversionPlan, batch: Batch) -> None:
        self.mapper, self.plan, self.batch = mapper, plan, batch
        bases, messages = plan.bases, int(batch.messages.sum(dtype=np.int64))
        counts = np.append(batch.rows, (messages, batch.packets))
        rows = batch.rows[plan.rule_nodes]
        has_rows = (rows > 0).astype(np.int64)
        candidates = plan.rules_of_family @ rows
        # A family that only one template feeds needs no merging.
        merged = (plan.rules_of_family @ has_rows > 1) | (plan.simple_rules_of_family @ has_rows == 0) & (
            candidates > 0
        )
        merged[plan.always_merged] = messages > 0
        gates = np.ones(plan.gates, np.int64)
        gates[MERGED::2], gates[IDENTITY::2] = merged, ~merged
        self.base, self.stride = np.zeros((2, bases.count), np.int64)
        self.memories: dict[int, Memory] = {}
        row_counts = counts.tolist()
        for node in plan.source_nodes:
            if row_counts[node.index]:
                table, memory = batch.store_of(node)
                plan.update_offsets(node, table)
                self.base[bases.node(node)] = memory.address
        for family, count in zip(plan.families, candidates.tolist(), strict=True):
            if count:
                number = bases.families + family.number
                capacity = 1 << (count + k.FIRST_ROW - 1).bit_length()
                memory = mapper.memory(family.family.name, (len(KEY_COLUMNS) + len(family.columns)) * 8 * capacity)
                self.stride[number], self.base[number] = 8 * capacity, memory.address
                self.memories[family.number] = memory
        self._allocate_lists(rows, messages)
        program = plan.program(counts)
        program.set_addresses(self.base, self.stride, counts[program.count_numbers] * gates[program.gate_numbers])
        k.run_program(buffer_address(program.instructions), len(program.instructions))
        self.totals: list[int] = np.where(merged, self._totals, candidates).tolist()

    def _allocate_lists(self, rows: NDArray[np.int64], messages: int) -> None:
        """Memory for the lists of the program: slots of messages, indices of rows, counts."""
        plan, bases, packets = self.plan, self.plan.bases, self.batch.packets
        sizes = np.concatenate(
            [rows, rows, self.batch.rows, [packets, messages + 2, messages + 2, 2 * len(plan.families)]]
        )
        sizes = 4 * (sizes + (sizes & 1))
        ends = np.cumsum(sizes)
        scratch = self.mapper.scratch(int(ends[-1]) + 8)
        at = buffer_address(scratch)
        shift = -at % 8
        self.base[bases.positions : bases.messages] = at + shift + ends - sizes
        self.base[bases.messages] = buffer_address(self.batch.messages)
        self._totals = scratch[shift + int(ends[-1] - sizes[-1]) :][: 8 * len(plan.families)].view(np.int64)
        self._totals[:] = 0
        self._scratch = scratch, shift + ends - sizes

    def row_positions(self, rule: int, count: int) -> NDArray[np.int64]:
        """The indices of a rule's rows among those of its family; valid until the next batch."""
        scratch, starts = self._scratch
        at = int(starts[rule])
        return scratch[at : at + 4 * count].view(np.uint32).astype(np.int64) - k.FIRST_ROW

    def columns(self, family: FamilyPlan) -> dict[str, Numbers]:
        total, array, columns = self.totals[family.number], self.memories[family.number].array, {}
        stride = self.stride.item(self.plan.bases.families + family.number)
        for column_index, (name, dtype) in enumerate(family.dtypes, len(KEY_COLUMNS)):
            value = family.constants.get(name)
            if value is None:
                columns[name] = np.ndarray(total, dtype, array, column_index * stride + k.FIRST_ROW * dtype.itemsize)
            else:
                columns[name] = self.mapper.constant_array(dtype, value, total)
        return columns

    def rows(self, family: FamilyPlan) -> Rows:
        total, array = self.totals[family.number], self.memories[family.number].array
        stride = self.stride.item(self.plan.bases.families + family.number)
        unit, msg_index, entry_index = (
            np.ndarray(total, dtype, array, place * stride + k.FIRST_ROW * dtype.itemsize)
            for place, (_, dtype) in enumerate(KEY_COLUMNS)
        )
        if not self.plan.has_entry_rows:
            entry_index = self.mapper.constant_array(KEY_COLUMNS[ENTRY_INDEX][1], 0, total)
        return Rows(family.family, unit, msg_index, entry_index, self.columns(family))

    def find_aggressors(self, families: dict[str, Rows], units: Units, state: NDArray[np.int64]) -> None:
        summaries, trades, book = (families.get(name) for name in ("execution_summary", "trades", "mbo"))
        if summaries is None and trades is None and not state[a.OPEN_COUNT]:
            state[a.LAST_CHANNEL] = -1  # no event is open: the end of this batch does not matter
            return
        arguments = np.zeros(a.ARGUMENTS, np.int64)
        unit_arrays = [units.channel_id.view(np.uint16), units.seq_version, units.sequence, state]
        kept_alive: list[Numbers] = []  # keeps the arrays alive while the kernel reads them
        for rows, at in ((summaries, a.SUMMARIES), (trades, a.TRADES)):
            if rows is not None:
                kept_alive += [rows.unit, rows.msg_index, rows.column("instrument_id"), rows.column("side")]
                arguments[at] = len(rows)
                arguments[at + 1 : at + 5] = [buffer_address(each) for each in kept_alive[-4:]]
        if trades is not None:
            arguments[a.T_ACTION] = buffer_address(trades.columns["action"])
        bases = self.plan.bases
        arguments[a.FIRST_MESSAGE], arguments[a.FIRST_BOOK_ROW] = self.base[bases.first], self.base[bases.book_counts]
        if book is not None:
            arguments[a.BOOK_ROWS] = len(book)
            arguments[a.FLAGS] = buffer_address(book.columns["flags"]) - 4 * k.FIRST_ROW
        arguments[a.UNITS] = len(units)
        arguments[a.CHANNEL : a.STATE + 1] = [buffer_address(each) for each in unit_arrays]
        a.find_aggressors(buffer_address(arguments))
