"""The Binary table as a program for `convert_kernel`: every instruction, without this batch's addresses.

An address is the start of some memory (a *base*: a family, a list of indices …) plus an offset within it, so a batch
only has to supply its bases. Columns of a family are one *stride* apart; those of decoded messages are looked up in the
decoder's tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.market.families import FAMILIES, SNAPSHOT, Column, Family
from umdf.market.rows import ColumnPlaces
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe.instructions import KINDS, Instruction, InstructionBuilder
from umdf.market.sbe.mapping_rules import Combine, Constant, FieldSource, MonthYear, TemplateRule, find_node
from umdf.market.sbe.mapping_table import RULES
from umdf.wire.sbe import tables_kernel as w
from umdf.wire.sbe.layout import Layout, Node, null_bits

# What the book kernel reads raw, so that mbo always has it.
REQUIRED_COLUMNS = {
    "mbo": (
        *("action", "side", "price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert"),
        *("venue", "update_action", "entry_type", "instrument_id", "rpt_seq", "flags", "ts_event"),
    )
}
KEY_COLUMNS = (("unit", np.dtype(np.uint32)), ("msg_index", np.dtype(np.uint16)), ("entry_index", np.dtype(np.uint16)))
UNIT, MSG_INDEX, ENTRY_INDEX = 0, 1, 2
ALWAYS, MERGED, IDENTITY = 0, 1, 2  # when an instruction runs: gates of a family are MERGED + 2 · number, …
ALWAYS_MERGED = ("mbo",)  # `events` looks up the index of any message among its rows
NOT_CONSTANT = {"flags", "trades.side"}  # something is added to them later


@dataclass(eq=False)
class FamilyPlan:
    """The columns of one family (or of one list of a family), in memory and out of it."""

    number: int
    family: Family
    rules: list[int]  # numbers of its rules
    columns: list[Column]  # of numbers
    constants: dict[str, int] = field(default_factory=dict)  # columns that are the same in every row of any batch

    @cached_property
    def places(self) -> ColumnPlaces:
        """Of each column its stride in the family's memory, its type, and its value where that is always the same."""
        columns = enumerate(self.columns, len(KEY_COLUMNS))
        return {c.name: (index, c.dtype, self.constants.get(c.name)) for index, c in columns}

    def column_index(self, name: str) -> int:
        """The stride of a column in the family's memory."""
        return len(KEY_COLUMNS) + next(i for i, column in enumerate(self.columns) if column.name == name)


@dataclass(frozen=True, eq=False)
class RulePlan:
    number: int
    rule: TemplateRule
    family: int
    builder: InstructionBuilder


class AddressBases:
    """The numbers of the bases: 0 is none, then the decoder's tables, families, and for each rule its places and
    parents."""

    NODE_TABLE, COLUMN_TABLE, PART_TABLE, MESSAGE_COUNTS = 1, 2, 3, 4

    def __init__(self, nodes: int, families: int, rules: int) -> None:
        self.families = 1 + self.MESSAGE_COUNTS
        self.positions = self.families + families
        self.parents = self.positions + rules
        self.slots = self.parents + rules  # by node
        self.first, self.book_counts, self.counts, self.totals = range(self.slots + nodes, self.slots + nodes + 4)
        self.count = self.totals + 1


class ConversionPlan:
    """For one schema, one pattern of presence, and a snapshot stream or not."""

    def __init__(self, layout: Layout, tracked: dict[int, NDArray[np.int64]], *, snapshot: bool, entries: bool) -> None:
        self.layout = layout
        self._extra_flags = SNAPSHOT if snapshot else 0
        self.has_entry_rows = entries  # some rows are entries of groups, so that entry_index is not 0 throughout
        self.rules: list[RulePlan] = []
        self.families: list[FamilyPlan] = []
        self._tables: list[NDArray[np.int64]] = []
        self._instructions: list[NDArray[np.int64]] = []
        self._addresses: list[list[tuple[int, int, int]]] = []  # for each address: base, offset, strides
        self._gates: list[tuple[int, int]] = []  # which count, which gate
        self._choose_rules(layout, tracked)
        self.bases = AddressBases(len(layout.nodes), len(self.families), len(self.rules))
        # The counts after those of the nodes.
        self.messages_count, self.packets_count = len(layout.nodes), len(layout.nodes) + 1
        row = self._new_instruction(k.FIRST_MESSAGES, self.packets_count)
        self._set_address(row, k.SOURCE, self.bases.MESSAGE_COUNTS)
        self._set_address(row, k.TARGET, self.bases.first)
        for template in sorted({each.rule.template for each in self.rules if "." not in each.rule.family}):
            self._add_message_slots(layout.roots[template])
        for family in self.families:
            self._add_family(family)
        self._finish()

    def _choose_rules(self, layout: Layout, tracked: dict[int, NDArray[np.int64]]) -> None:
        families: dict[str, tuple[Family, list[TemplateRule]]] = {}
        for rule in RULES:
            if find_node(layout, rule.template, rule.group) is None:
                continue
            if rule.required_field and not InstructionBuilder(layout, rule, tracked).resolve(rule.required_field):
                continue
            families.setdefault(rule.family, (FAMILIES[rule.family], []))[1].append(rule)
            for name, group_rule in rule.lists.items():
                if group_rule.group and find_node(layout, rule.template, group_rule.group):
                    path = list_path(rule, name)
                    flags = FAMILIES[rule.family].column("flags")
                    entry = Family(path, "", (flags, *FAMILIES[rule.family].lists[name]), {})
                    families[path] = (
                        entry,
                        [TemplateRule(rule.template, path, group_rule.columns, group=group_rule.group)],
                    )
        for number, (name, (family, rules)) in enumerate(families.items()):
            plans = [
                RulePlan(len(self.rules) + i, r, number, InstructionBuilder(layout, r, tracked))
                for i, r in enumerate(rules)
            ]
            self.rules += plans
            self.families.append(
                FamilyPlan(number, family, [p.number for p in plans], _number_columns(name, family, plans))
            )

    def _new_instruction(self, op: int, count: int, gate: int = ALWAYS, **values: int) -> int:
        instruction = np.zeros(k.INSTRUCTION, np.int64)
        instruction[k.OP] = op
        for name, value in values.items():
            instruction[getattr(k, name.upper())] = value
        self._instructions.append(instruction)
        self._gates.append((count, gate))
        self._addresses.append([(0, 0, 0)] * k.ADDRESSES)
        return len(self._instructions) - 1

    def _set_address(self, number: int, word: int, base: int, offset: int = 0, strides: int = 0) -> None:
        self._addresses[number][word] = base, offset, strides

    def _set_source(self, row: int, word: int, node: Node, attribute: str, number: int = 0) -> None:
        """An address within a decoded node: the decoder's tables have it."""
        if attribute in ("packet", "index"):
            base, at = self.bases.NODE_TABLE, w.NODE * node.index + (w.N_PACKET if attribute == "packet" else w.N_INDEX)
        elif attribute == "offsets":
            base, at = self.bases.PART_TABLE, w.PART * (node.first_part + number) + w.P_OFFSETS
        else:
            field = w.C_VALUES if attribute == "values" else w.C_BITMAP
            base, at = self.bases.COLUMN_TABLE, w.COLUMN * (node.first_column + number) + field
        self._set_address(row, word, base, 8 * at, k.LOOKED_UP)

    def _add_message_slots(self, root: Node) -> None:
        row = self._new_instruction(k.MESSAGE_SLOTS, root.index)
        self._set_source(row, k.SOURCE, root, "packet")
        self._set_source(row, k.SECOND, root, "index")
        self._set_address(row, k.TARGET, self.bases.slots + root.index)
        self._set_address(row, k.POSITIONS, self.bases.first)

    def _add_family(self, plan: FamilyPlan) -> None:
        rules = [self.rules[number] for number in plan.rules]
        if "." not in plan.family.name:
            self._add_positions(plan, rules)
        else:
            row = self._new_instruction(k.IDENTITY, rules[0].builder.node.index)
            self._set_address(row, k.TARGET, self.bases.positions + rules[0].number)
        instructions = {
            column.name: [
                each.builder.instructions(
                    each.rule.columns.get(column.name), column, self._extra_flags if column.name == "flags" else 0
                )
                for each in rules
            ]
            for column in plan.columns
        }
        for name, of_rules in instructions.items():
            constants = {steps[0].constant if len(steps) == 1 else None for steps in of_rules}
            if (
                len(constants) == 1
                and None not in constants
                and not NOT_CONSTANT & {name, f"{plan.family.name}.{name}"}
            ):
                plan.constants[name] = constants.pop() or 0
        ordered = sorted(plan.columns, key=lambda column: column.name != "flags")  # others add bits to it
        for at, each in enumerate(rules):
            self._add_key_columns(plan, each)
            for column in ordered:
                if column.name not in plan.constants:
                    for instruction in instructions[column.name][at]:
                        self._add_instruction(plan, each, column, instruction)

    def _add_positions(self, plan: FamilyPlan, rules: list[RulePlan]) -> None:
        """The target of each row: the running sum of a count per message; or simply consecutive."""
        bases, merged = self.bases, MERGED + 2 * plan.number
        counts = bases.book_counts if plan.family.name in ALWAYS_MERGED else bases.counts
        self._set_address(self._new_instruction(k.ZERO, self.messages_count, merged), k.TARGET, counts)
        for each in rules:
            root = each.builder.root
            row = self._new_instruction(k.MARK, root.index, merged)
            self._set_address(row, k.TARGET, counts)
            self._set_address(row, k.POSITIONS, bases.slots + root.index)
            found = each.builder.resolve(each.rule.required_field) if each.rule.required_field else None
            if each.rule.group:
                self._instructions[row][k.OP] = k.MARK_GROUP
                self._set_source(row, k.SOURCE, root, "offsets", root.children.index(each.builder.node.index))
            elif found is not None and found.wire is not None and found.wire.part.null is not None:
                self._instructions[row][k.OP] = k.MARK_IF
                self._instructions[row][k.KIND] = KINDS[found.wire.part.primitive]
                self._instructions[row][k.NULL] = null_bits(found.wire)
                self._set_source(row, k.SOURCE, root, "values", root.columns.index(found.wire))
        row = self._new_instruction(k.PREFIX, self.messages_count, merged)
        self._set_address(row, k.TARGET, counts)
        self._set_address(row, k.SECOND, bases.totals, 8 * plan.number)
        for each in rules:
            root = each.builder.root
            row = self._new_instruction(k.POSITION_GROUP if each.rule.group else k.POSITION, root.index, merged)
            self._set_address(row, k.SOURCE, counts)
            self._set_address(row, k.TARGET, bases.positions + each.number)
            self._set_address(row, k.POSITIONS, bases.slots + root.index)
            if each.rule.group:
                self._set_source(row, k.SECOND, root, "offsets", root.children.index(each.builder.node.index))
                self._set_address(row, k.EXTRA, bases.parents + each.number)
            row = self._new_instruction(k.IDENTITY, each.builder.node.index, merged + 1)
            self._set_address(row, k.TARGET, bases.positions + each.number)

    def _add_key_columns(self, plan: FamilyPlan, each: RulePlan) -> None:
        """Unit, msg_index and entry_index."""
        if "." in plan.family.name:
            return
        bases, root, node = self.bases, each.builder.root, each.builder.node
        widths = (("packet", k.U32, 4, k.COPY_4, UNIT), ("index", k.U16, 2, k.COPY_2, MSG_INDEX))
        for attribute, kind, size, copy_op, column_index in widths:
            row = self._new_instruction(k.REPEAT if each.rule.group else copy_op, node.index, kind=kind, size=size)
            self._set_source(row, k.SOURCE, root, attribute)
            self._set_target(row, plan, each, column_index)
            if each.rule.group:
                self._set_address(row, k.EXTRA, bases.parents + each.number)
        if self.has_entry_rows and each.rule.group:
            row = self._new_instruction(k.ENTRY_INDEX, node.index)
            self._set_source(row, k.SOURCE, root, "offsets", root.children.index(node.index))
            self._set_address(row, k.SECOND, bases.parents + each.number)
            self._set_target(row, plan, each, ENTRY_INDEX)
        elif self.has_entry_rows:
            self._set_target(self._new_instruction(k.CONSTANT, node.index, size=2), plan, each, ENTRY_INDEX)

    def _set_target(self, row: int, plan: FamilyPlan, each: RulePlan, column_index: int) -> None:
        base = self.bases.families + plan.number
        self._set_address(row, k.TARGET, base, 0, column_index)
        self._set_address(row, k.FLAGS, base, 0, plan.column_index("flags"))
        self._set_address(row, k.POSITIONS, self.bases.positions + each.number)

    def _add_instruction(self, plan: FamilyPlan, each: RulePlan, column: Column, instruction: Instruction) -> None:
        row = self._new_instruction(
            instruction.op,
            each.builder.node.index,
            size=instruction.size,
            absent=instruction.absent,
            null=instruction.null,
            low=instruction.nullable if instruction.op == k.LOOK_UP else instruction.low,
            high=instruction.high,
            factor=instruction.factor,
            shift=instruction.shift,
            mask=instruction.mask if instruction.op == k.LOOK_UP else instruction.nullable,
        )
        self._set_target(row, plan, each, plan.column_index(column.name))
        if instruction.wire is not None and instruction.node is not None:
            self._instructions[row][k.KIND] = KINDS[instruction.wire.part.primitive]
            number = instruction.node.columns.index(instruction.wire)
            self._set_source(row, k.SOURCE, instruction.node, "values", number)
            if instruction.has_bitmap:
                self._set_source(row, k.SECOND, instruction.node, "bitmaps", number)
        if instruction.op == k.REPEAT:
            self._set_address(row, k.EXTRA, self.bases.parents + each.number)
        if instruction.table is not None:
            self._tables.append(instruction.table)
            self._instructions[row][k.TABLE] = buffer_address(instruction.table)

    def _finish(self) -> None:
        self.instructions = np.array(self._instructions, np.int64)
        self.addresses, gates = np.array(self._addresses, np.int64), np.array(self._gates, np.int64)
        self.count_numbers, self.gate_numbers = gates[:, 0], gates[:, 1]
        self.rules_with_texts = [each for each in self.rules if _has_texts(each.rule)]

    def find_family(self, name: str) -> FamilyPlan | None:
        return next((family for family in self.families if family.family.name == name), None)


def list_path(rule: TemplateRule, name: str) -> str:
    """The name of a list as a family of its own, one per template."""
    return f"{rule.family}.{name}.{rule.template}"


def _number_columns(name: str, family: Family, rules: list[RulePlan]) -> list[Column]:
    """The columns of numbers that some rule can fill."""
    names = set(REQUIRED_COLUMNS.get(name, ())) | {"flags"}
    for each in rules:
        for column, source in each.rule.columns.items():
            if _can_fill(each, source):
                names.add(column)
    common = [family.column(c) for c in ("ts_event", "instrument_id", "rpt_seq", "flags")] if name in FAMILIES else []
    return [column for column in (*common, *family.columns) if column.name in names and not column.is_text]


def _can_fill(plan: RulePlan, source: FieldSource) -> bool:
    if isinstance(source, Constant):
        return True
    if isinstance(source, Combine):
        return any(_can_fill(plan, part) for part in source.parts)
    return not isinstance(source, MonthYear) and plan.builder.schema_field(source.field) is not None


def _has_texts(rule: TemplateRule) -> bool:
    family = FAMILIES.get(rule.family)
    return family is not None and any(
        isinstance(source, MonthYear) or family.column(name).is_text for name, source in rule.columns.items()
    )
