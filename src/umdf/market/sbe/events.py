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
from umdf.market.rows import ConstantColumns, Events, MemoryColumns, Numbers, Rows, Units
from umdf.market.sbe import aggressor_kernel as a
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe import units_kernel as u
from umdf.market.sbe.conversion_plan import ENTRY_INDEX, KEY_COLUMNS, MSG_INDEX, ConversionPlan, FamilyPlan
from umdf.market.sbe.program import Program, ProgramFamily, ScratchMemory, columns_size
from umdf.market.sbe.text_columns import add_text_columns
from umdf.wire.sbe.decode import Batch
from umdf.wire.sbe.layout import Layout
from umdf.wire.sbe.schema import Schema

TrackedColumns = tuple[tuple[int, bytes], ...]
MAX_PROGRAMS, MAX_PLANS = 256, 64  # kept at a time


class SbeEventMapper:
    """Maps the batches of one stream, in order: it remembers the aggressor of an unfinished event. One per thread."""

    def __init__(self, schema: Layout | Schema) -> None:
        self.layout = schema if isinstance(schema, Layout) else Layout(schema)
        self._plans: dict[tuple[TrackedColumns, bool, bool], ConversionPlan] = {}
        self._programs: dict[tuple[bytes, bytes, bool], Program] = {}
        self._pools: dict[str, Pool] = {}
        self.scratch = ScratchMemory()
        self.constants = ConstantColumns()
        self._aggressor_state = np.zeros(a.STATE_WORDS, np.int64)
        self._aggressor_arguments = np.zeros(a.ARGUMENTS, np.int64)

    def events(self, batch: Batch, ts_recv: NDArray[np.int64] | None = None, *, snapshot: bool = False) -> Events:
        """The events of a batch; `snapshot`: its packets are of a snapshot stream."""
        program, units = self._program(batch, snapshot), _units(batch, ts_recv)
        run = ConversionRun(self, program, batch)
        families = {each.plan.family.name: run.rows(each.plan) for each in run.filled if not each.is_list}
        if not snapshot:
            run.find_aggressors(families, units, self._aggressor_state, self._aggressor_arguments)
        add_text_columns(run, families)
        return Events(units, families)

    def reset(self) -> None:
        """Forget the unfinished event: the next batch is of another stream, or follows a loss."""
        self._aggressor_state[:] = 0

    def _program(self, batch: Batch, snapshot: bool) -> Program:
        has_rows, tracked = batch.rows > 0, batch.tracked_columns
        key = has_rows.tobytes(), b"" if tracked is None else tracked.tobytes(), snapshot
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) == MAX_PROGRAMS:
                self._programs.clear()
            program = self._programs[key] = Program(self._plan(batch, snapshot), has_rows)
        return program

    def _plan(self, batch: Batch, snapshot: bool) -> ConversionPlan:
        tracked: list[tuple[int, bytes]] = []
        entries = False
        for node in self.layout.nodes:
            if batch.rows[node.index]:
                found = batch.tracked(node)
                if found.count(0) != len(found):
                    tracked.append((node.index, found))
                entries |= node.parent is not None
        key = tuple(tracked), snapshot, entries
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > MAX_PLANS:
                self._plans.clear()
            masks = {index: np.frombuffer(found, np.int64) for index, found in tracked}
            plan = self._plans[key] = ConversionPlan(self.layout, masks, snapshot=snapshot, entries=entries)
        return plan

    def memory(self, family: str, nbytes: int) -> Memory:
        pool = self._pools.get(family)
        if pool is None:
            pool = self._pools[family] = Pool()
        return pool.acquire(nbytes)


def _units(batch: Batch, ts_recv: NDArray[np.int64] | None) -> Units:
    packets = batch.packets
    columns = np.empty((u.CHANNEL + 1) * packets, np.int64)
    # The packets may have changed since they were decoded: the decoder's checks may no longer hold.
    if u.gather_units(batch.memory.arguments_address, buffer_address(columns)) != packets:
        raise ValueError("a packet lies outside the buffer")
    return Units(
        np.ndarray(packets, np.int16, columns, 8 * u.CHANNEL * packets),
        columns[:packets],
        columns[u.SEQUENCE * packets : (u.SEQUENCE + 1) * packets],
        columns[u.TS_SEND * packets : (u.TS_SEND + 1) * packets],
        columns[u.TS_RECV * packets : (u.TS_RECV + 1) * packets] if ts_recv is None else np.asarray(ts_recv, np.int64),
    )


class ConversionRun:
    """One batch through its program."""

    def __init__(self, mapper: SbeEventMapper, program: Program, batch: Batch) -> None:
        self.mapper, self.program, self.plan, self.batch = mapper, program, program.plan, batch
        self._memories: dict[int, tuple[Memory, int]] = {}  # by family, with the stride of its columns
        self.totals: dict[int, int] = {}  # rows by family
        row_counts: list[int] = batch.rows.tolist()
        for family in program.families:
            plan, count = family.plan, 0
            for node in family.nodes:
                count += row_counts[node]
            stride = 8 << (count + k.FIRST_ROW - 1).bit_length()
            memory = mapper.memory(plan.family.name, columns_size(plan, stride))
            program.set_memory(family, memory, stride)
            self._memories[plan.number], self.totals[plan.number] = (memory, stride), count
        program.run(batch, mapper.scratch)
        self.filled: list[ProgramFamily] = []
        for family in program.families:
            number = family.plan.number
            if family.is_merged:
                self.totals[number] = program.totals.item(number)
            if self.totals[number]:
                self.filled.append(family)

    def row_positions(self, rule: int, count: int) -> NDArray[np.int64]:
        """The indices of a rule's rows among those of its family; valid until the next batch."""
        scratch = self.mapper.scratch
        at = self.program.bases.item(self.plan.bases.positions + rule) - scratch.address
        return scratch.array[at : at + 4 * count].view(np.uint32).astype(np.int64) - k.FIRST_ROW

    def columns(self, family: FamilyPlan) -> MemoryColumns:
        memory, stride = self._memories[family.number]
        return MemoryColumns(
            family.places, self.totals[family.number], memory, stride, k.FIRST_ROW, self.mapper.constants
        )

    def rows(self, family: FamilyPlan) -> Rows:
        memory, stride = self._memories[family.number]
        total, array = self.totals[family.number], memory.array
        (_, unit), (_, msg_index), (_, entry_index) = KEY_COLUMNS
        return Rows(
            family.family,
            np.ndarray(total, unit, array, k.FIRST_ROW * unit.itemsize),
            np.ndarray(total, msg_index, array, MSG_INDEX * stride + k.FIRST_ROW * msg_index.itemsize),
            np.ndarray(total, entry_index, array, ENTRY_INDEX * stride + k.FIRST_ROW * entry_index.itemsize)
            if self.plan.has_entry_rows
            else self.mapper.constants.array(entry_index, 0, total),
            self.columns(family),
        )

    def find_aggressors(
        self,
        families: dict[str, Rows],
        units: Units,
        state: NDArray[np.int64],
        arguments: NDArray[np.int64],
    ) -> None:
        """Write the aggressor's side into the trades that follow its execution summary."""
        summaries, trades, book = families.get("execution_summary"), families.get("trades"), families.get("mbo")
        if summaries is None and trades is None and not state.item(a.OPEN_COUNT):
            state[a.LAST_CHANNEL] = -1  # no event is open: the end of this batch does not matter
            return
        unit_arrays = [units.channel_id, units.seq_version, units.sequence, state]
        kept_alive: list[Numbers] = []  # keeps the arrays alive while the kernel reads them
        for rows, at in ((summaries, a.SUMMARIES), (trades, a.TRADES)):
            addresses = [0] * 5
            if rows is not None:
                arrays = [rows.unit, rows.msg_index, rows.column("instrument_id"), rows.column("side")]
                addresses = [len(rows), *map(buffer_address, arrays)]
                kept_alive += arrays
            arguments[at : at + 5] = addresses
        arguments[a.T_ACTION] = 0 if trades is None else buffer_address(trades.columns["action"])
        bases = self.plan.bases
        arguments[a.FIRST_MESSAGE : a.STATE + 1] = [
            self.program.bases.item(bases.first),
            self.program.bases.item(bases.book_counts),
            0 if book is None else len(book),
            0 if book is None else buffer_address(book.columns["flags"]) - 4 * k.FIRST_ROW,
            len(units),
            *map(buffer_address, unit_arrays),
        ]
        a.find_aggressors(buffer_address(arguments))
