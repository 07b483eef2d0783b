"""The Binary table as a program for `sbe_events_kernel`: every instruction, without this batch's addresses.

An address is the start of some memory (a *base*: a decoded node, a family, a list of places …) plus an offset within
it, so that a batch only has to say where its bases are. Columns of a family stand one *stride* apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import address_of
from umdf.market import sbe_events_kernel as k
from umdf.market.events import FAMILIES, SNAPSHOT, Column, Family
from umdf.market.sbe_rules import Always, AnyOf, MonthYear, Rule, Source, node_of
from umdf.market.sbe_steps import KINDS, Step, Steps
from umdf.market.sbe_table import RULES
from umdf.wire.sbe.layout import Layout, Node, null_bits
from umdf.wire.sbe.store import Table

# What the book kernel reads raw, so that mbo always has it.
ALWAYS_THERE = {
    "mbo": (
        *("action", "side", "price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert"),
        *("stream", "update_action", "entry_type", "instrument_id", "rpt_seq", "flags", "ts_event"),
    )
}
OWN = (("unit", np.dtype(np.uint32)), ("msg_index", np.dtype(np.uint16)), ("entry_index", np.dtype(np.uint16)))
UNIT, MSG_INDEX, ENTRY_INDEX = 0, 1, 2
MOST_PARTS = 256
ALWAYS, MERGED, IDENTITY = 0, 1, 2  # when an instruction runs: gates of a family are MERGED + 2 · number, …
ALWAYS_MERGED = ("mbo",)  # `sbe_events` looks up where any message stands among its rows
NOT_CONSTANT = {"flags", "trades.side"}  # something is added to them later


@dataclass(eq=False)
class FamilyPlan:
    """The columns of one family (or of one list of a family), in memory and out of it."""

    number: int
    family: Family
    rules: list[int]  # numbers of its rules
    columns: list[Column]  # of numbers
    constants: dict[str, int] = field(default_factory=dict)  # columns that are the same in every row of any batch
    kinds: list[tuple[str, np.dtype[np.generic]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kinds = [(column.name, column.dtype) for column in self.columns]

    def place(self, name: str) -> int:
        """Which stride of the family's memory a column is at."""
        return len(OWN) + next(i for i, column in enumerate(self.columns) if column.name == name)


@dataclass(frozen=True, eq=False)
class RulePlan:
    number: int
    rule: Rule
    family: int
    steps: Steps


@dataclass(frozen=True, eq=False)
class Part:
    """The instructions that some set of templates needs, as arrays, so that a batch's addresses are a few sums."""

    program: NDArray[np.int64]
    base: NDArray[np.int64]  # of each address: which base, how far from it, how many strides further
    offset: NDArray[np.int64]
    strides: NDArray[np.int64]
    count: NDArray[np.int64]  # which count, which gate
    gate: NDArray[np.int64]

    def fill(self, bases: NDArray[np.int64], strides: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Write the addresses and counts of a batch into the program."""
        addresses = bases[self.base]
        addresses += self.offset
        addresses += strides[self.base] * self.strides
        self.program[:, : k.ADDRESSES] = addresses
        self.program[:, k.COUNT] = counts


class Bases:
    """The numbers of the bases: 0 is none, then nodes, families, and for each rule its places and parents."""

    def __init__(self, nodes: int, families: int, rules: int) -> None:
        self.families = 1 + nodes
        self.places = self.families + families
        self.parents = self.places + rules
        self.slots = self.parents + rules  # by node
        self.first, self.book_counts, self.counts, self.totals = range(self.slots + nodes, self.slots + nodes + 4)
        self.messages = self.totals + 1
        self.count = self.messages + 1

    def node(self, node: Node) -> int:
        return 1 + node.index


class Plan:
    """For one schema, one pattern of presence, and a snapshot stream or not."""

    def __init__(self, layout: Layout, tracked: dict[int, NDArray[np.int64]], *, snapshot: bool, entries: bool) -> None:
        self.layout = layout
        self._extra = SNAPSHOT if snapshot else 0
        self.with_entries = entries  # some rows are entries of groups, so that entry_index is not 0 throughout
        self.rules: list[RulePlan] = []
        self.families: list[FamilyPlan] = []
        self._tables: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._addresses: list[list[tuple[int, int, int]]] = []  # for each address: base, offset, strides
        self._sources: list[tuple[int, int, Node, str, int]] = []  # instruction, address, node, stretch, column
        self._gates: list[tuple[int, int]] = []  # which count, which gate
        self._choose_rules(layout, tracked)
        self.bases = Bases(len(layout.nodes), len(self.families), len(self.rules))
        # The counts behind those of the nodes.
        self.messages_count, self.packets_count = len(layout.nodes), len(layout.nodes) + 1
        row = self._add(k.FIRST, self.packets_count)
        self._address(row, k.SOURCE, self.bases.messages)
        self._address(row, k.TARGET, self.bases.first)
        for template in sorted({each.rule.template for each in self.rules if "." not in each.rule.family}):
            self._slots(layout.roots[template])
        for family in self.families:
            self._family(family)
        self._finish()

    def _choose_rules(self, layout: Layout, tracked: dict[int, NDArray[np.int64]]) -> None:
        wanted: dict[str, tuple[Family, list[Rule]]] = {}
        for rule in RULES:
            if node_of(layout, rule.template, rule.group) is None:
                continue
            if rule.only_with and not Steps(layout, rule, tracked).find(rule.only_with):
                continue
            wanted.setdefault(rule.family, (FAMILIES[rule.family], []))[1].append(rule)
            for name, each in rule.lists.items():
                if each.group and node_of(layout, rule.template, each.group):
                    path = list_path(rule, name)
                    flags = FAMILIES[rule.family].column("flags")
                    entry = Family(path, "", (flags, *FAMILIES[rule.family].lists[name]), {})
                    wanted[path] = entry, [Rule(rule.template, path, each.columns, group=each.group)]
        for number, (name, (family, rules)) in enumerate(wanted.items()):
            plans = [RulePlan(len(self.rules) + i, r, number, Steps(layout, r, tracked)) for i, r in enumerate(rules)]
            self.rules += plans
            self.families.append(FamilyPlan(number, family, [p.number for p in plans], _columns(name, family, plans)))

    def _add(self, op: int, count: int, gate: int = ALWAYS, **values: int) -> int:
        row = np.zeros(k.INSTRUCTION, np.int64)
        row[k.OP] = op
        for name, value in values.items():
            row[getattr(k, name.upper())] = value
        self._rows.append(row)
        self._gates.append((count, gate))
        self._addresses.append([(0, 0, 0)] * k.ADDRESSES)
        return len(self._rows) - 1

    def _address(self, row: int, place: int, base: int, offset: int = 0, strides: int = 0) -> None:
        self._addresses[row][place] = base, offset, strides

    def _source(self, row: int, place: int, node: Node, stretch: str, number: int = 0) -> None:
        """An address within a decoded node; where exactly depends on how far its table has grown."""
        self._address(row, place, self.bases.node(node))
        self._sources.append((row, place, node, stretch, number))

    def _slots(self, root: Node) -> None:
        row = self._add(k.SLOTS, root.index)
        self._source(row, k.SOURCE, root, "packet")
        self._source(row, k.SECOND, root, "index")
        self._address(row, k.TARGET, self.bases.slots + root.index)
        self._address(row, k.PLACES, self.bases.first)

    def _family(self, plan: FamilyPlan) -> None:
        rules = [self.rules[number] for number in plan.rules]
        if "." not in plan.family.name:
            self._places(plan, rules)
        else:
            row = self._add(k.IDENTITY, rules[0].steps.node.index)
            self._address(row, k.TARGET, self.bases.places + rules[0].number)
        filled = {
            column.name: [
                each.steps.of(each.rule.columns.get(column.name), column, self._extra if column.name == "flags" else 0)
                for each in rules
            ]
            for column in plan.columns
        }
        for name, of_rules in filled.items():
            constants = {steps[0].constant if len(steps) == 1 else None for steps in of_rules}
            if (
                len(constants) == 1
                and None not in constants
                and not NOT_CONSTANT & {name, f"{plan.family.name}.{name}"}
            ):
                plan.constants[name] = constants.pop() or 0
        ordered = sorted(plan.columns, key=lambda column: column.name != "flags")  # others add bits to it
        for at, each in enumerate(rules):
            self._own(plan, each)
            for column in ordered:
                if column.name not in plan.constants:
                    for step in filled[column.name][at]:
                        self._step(plan, each, column, step)

    def _places(self, plan: FamilyPlan, rules: list[RulePlan]) -> None:
        """Where each row goes: a count for each message, summed up; or just one after the other."""
        bases, merged = self.bases, MERGED + 2 * plan.number
        counts = bases.book_counts if plan.family.name in ALWAYS_MERGED else bases.counts
        self._address(self._add(k.ZERO, self.messages_count, merged), k.TARGET, counts)
        for each in rules:
            root = each.steps.root
            row = self._add(k.MARK, root.index, merged)
            self._address(row, k.TARGET, counts)
            self._address(row, k.PLACES, bases.slots + root.index)
            found = each.steps.find(each.rule.only_with) if each.rule.only_with else None
            if each.rule.group:
                self._rows[row][k.OP] = k.MARK_GROUP
                self._source(row, k.SOURCE, root, "offsets", root.children.index(each.steps.node.index))
            elif found is not None and found.wire is not None and found.wire.part.null is not None:
                self._rows[row][k.OP] = k.MARK_IF
                self._rows[row][k.KIND] = KINDS[found.wire.part.primitive]
                self._rows[row][k.NULL] = null_bits(found.wire)
                self._source(row, k.SOURCE, root, "values", root.columns.index(found.wire))
        row = self._add(k.PREFIX, self.messages_count, merged)
        self._address(row, k.TARGET, counts)
        self._address(row, k.SECOND, bases.totals, 8 * plan.number)
        for each in rules:
            root = each.steps.root
            row = self._add(k.PLACE_GROUP if each.rule.group else k.PLACE, root.index, merged)
            self._address(row, k.SOURCE, counts)
            self._address(row, k.TARGET, bases.places + each.number)
            self._address(row, k.PLACES, bases.slots + root.index)
            if each.rule.group:
                self._source(row, k.SECOND, root, "offsets", root.children.index(each.steps.node.index))
                self._address(row, k.EXTRA, bases.parents + each.number)
            row = self._add(k.IDENTITY, each.steps.node.index, merged + 1)
            self._address(row, k.TARGET, bases.places + each.number)

    def _own(self, plan: FamilyPlan, each: RulePlan) -> None:
        """Unit, msg_index and entry_index."""
        if "." in plan.family.name:
            return
        bases, root, node = self.bases, each.steps.root, each.steps.node
        widths = (("packet", k.U32, 4, k.COPY_4, UNIT), ("index", k.U16, 2, k.COPY_2, MSG_INDEX))
        for stretch, kind, size, quick, place in widths:
            row = self._add(k.SPREAD if each.rule.group else quick, node.index, kind=kind, size=size)
            self._source(row, k.SOURCE, root, stretch)
            self._to(row, plan, each, place)
            if each.rule.group:
                self._address(row, k.EXTRA, bases.parents + each.number)
        if self.with_entries and each.rule.group:
            row = self._add(k.ENTRY_INDEX, node.index)
            self._source(row, k.SOURCE, root, "offsets", root.children.index(node.index))
            self._address(row, k.SECOND, bases.parents + each.number)
            self._to(row, plan, each, ENTRY_INDEX)
        elif self.with_entries:
            self._to(self._add(k.CONSTANT, node.index, size=2), plan, each, ENTRY_INDEX)

    def _to(self, row: int, plan: FamilyPlan, each: RulePlan, place: int) -> None:
        base = self.bases.families + plan.number
        self._address(row, k.TARGET, base, 0, place)
        self._address(row, k.FLAGS, base, 0, plan.place("flags"))
        self._address(row, k.PLACES, self.bases.places + each.number)

    def _step(self, plan: FamilyPlan, each: RulePlan, column: Column, step: Step) -> None:
        row = self._add(
            step.op,
            each.steps.node.index,
            size=step.size,
            absent=step.absent,
            null=step.null,
            low=step.nullable if step.op == k.LOOK_UP else step.low,
            high=step.high,
            factor=step.factor,
            shift=step.shift,
            mask=step.mask if step.op == k.LOOK_UP else step.nullable,
        )
        self._to(row, plan, each, plan.place(column.name))
        if step.wire is not None and step.node is not None:
            self._rows[row][k.KIND] = KINDS[step.wire.part.primitive]
            number = step.node.columns.index(step.wire)
            self._source(row, k.SOURCE, step.node, "values", number)
            if step.has_bitmap:
                self._source(row, k.SECOND, step.node, "bitmaps", number)
        if step.op == k.SPREAD:
            self._address(row, k.EXTRA, self.bases.parents + each.number)
        if step.table is not None:
            self._tables.append(step.table)
            self._rows[row][k.TABLE] = address_of(step.table)

    def _finish(self) -> None:
        addresses, gates = np.array(self._addresses, np.int64), np.array(self._gates, np.int64)
        base, offset, strides = (np.ascontiguousarray(addresses[:, :, i]) for i in range(3))
        self._whole = Part(np.array(self._rows, np.int64), base, offset, strides, gates[:, 0], gates[:, 1])
        self._parts: dict[bytes, Part] = {}
        self.gates = MERGED + 2 * len(self.families)
        self.rule_nodes = np.array([each.steps.node.index for each in self.rules])
        of_family = np.arange(len(self.families))[:, None] == np.array([each.family for each in self.rules])
        plain = ["." in rule.family or not (rule.group or rule.only_with) for rule in (p.rule for p in self.rules)]
        self.of_family, self.plain_of_family = of_family.astype(np.int64), (of_family & plain).astype(np.int64)
        self.always_merged = [each.number for each in self.families if each.family.name in ALWAYS_MERGED]
        self.with_texts = [each for each in self.rules if _has_texts(each.rule)]
        self.source_nodes = list({node.index: node for _, _, node, _, _ in self._sources}.values())
        self._known_tables: dict[int, Table] = {}

    def part(self, counts: NDArray[np.int64]) -> Part:
        """The instructions for a batch with these counts of rows."""
        there = counts > 0
        key = there.tobytes()
        part = self._parts.get(key)
        if part is None:
            if len(self._parts) == MOST_PARTS:
                self._parts.clear()
            whole, wanted = self._whole, there[self._whole.count]
            of = (whole.program, whole.base, whole.offset, whole.strides, whole.count, whole.gate)
            part = self._parts[key] = Part(*(array[wanted] for array in of))
        return part

    def family_of(self, name: str) -> FamilyPlan | None:
        return next((family for family in self.families if family.family.name == name), None)

    def meet(self, node: Node, table: Table) -> None:
        """Learn where the columns of a node are, if its table is another than before."""
        if self._known_tables.get(node.index) is table:
            return
        self._known_tables[node.index] = table
        for row, place, of, stretch, number in self._sources:
            if of is node:
                found = getattr(table, stretch)
                self._whole.offset[row, place] = found if isinstance(found, int) else found[number]
        self._parts.clear()


def list_path(rule: Rule, name: str) -> str:
    """What a list of a family is called as a family of its own; each template has its own."""
    return f"{rule.family}.{name}.{rule.template}"


def _columns(name: str, family: Family, rules: list[RulePlan]) -> list[Column]:
    """The columns of numbers that some rule can fill."""
    wanted = set(ALWAYS_THERE.get(name, ())) | {"flags"}
    for each in rules:
        for column, source in each.rule.columns.items():
            if _can_fill(each, source):
                wanted.add(column)
    common = [family.column(c) for c in ("ts_event", "instrument_id", "rpt_seq", "flags")] if name in FAMILIES else []
    return [column for column in (*common, *family.columns) if column.name in wanted and not column.is_text]


def _can_fill(each: RulePlan, source: Source) -> bool:
    if isinstance(source, Always):
        return True
    if isinstance(source, AnyOf):
        return any(_can_fill(each, part) for part in source.parts)
    return not isinstance(source, MonthYear) and each.steps.field(source.field) is not None


def _has_texts(rule: Rule) -> bool:
    family = FAMILIES.get(rule.family)
    return family is not None and any(
        isinstance(source, MonthYear) or family.column(name).is_text for name, source in rule.columns.items()
    )
