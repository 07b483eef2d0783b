"""The part of a conversion plan that some set of templates needs, ready to run.

A batch supplies a few addresses; the kernel computes all others. Which instructions run depends only on which nodes
have rows, so a program is built once for each such set.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, buffer_address
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe.conversion_plan import (
    ALWAYS,
    ALWAYS_MERGED,
    KEY_COLUMNS,
    MERGED,
    AddressBases,
    ConversionPlan,
    FamilyPlan,
    RulePlan,
)
from umdf.wire.sbe.decode import Batch

_BATCH_BASES = struct.Struct("<4q")  # the decoder's tables and the counts of messages, from AddressBases.NODE_TABLE on
_BATCH_ARGUMENTS = struct.Struct("<5q")  # of the kernel, from SCRATCH on


@dataclass(frozen=True, eq=False)
class ProgramFamily:
    """A family that gets rows, and where they come from."""

    plan: FamilyPlan
    nodes: list[int]  # of its rules that have rows
    is_merged: bool  # its rows come from several templates, or not every message gives one
    text_rules: list[RulePlan] = field(default_factory=list)  # those that give texts, if any of them has rows

    @property
    def is_list(self) -> bool:
        return "." in self.plan.family.name


class Program:
    """The instructions of a plan for batches in which these nodes have rows."""

    def __init__(self, plan: ConversionPlan, has_rows: NDArray[np.bool_]) -> None:
        self.plan = plan
        self.families = [
            family
            for number in range(len(plan.families))
            if (family := _program_family(plan, plan.families[number], has_rows)).nodes
        ]
        is_merged = np.zeros(len(plan.families), np.bool_)
        is_merged[[each.plan.number for each in self.families if each.is_merged]] = True
        is_merged[[each.number for each in plan.families if each.family.name in ALWAYS_MERGED]] = True
        gates = np.ones(MERGED + 2 * len(plan.families), np.bool_)
        gates[MERGED::2], gates[MERGED + 1 :: 2] = is_merged, ~is_merged
        assert gates[ALWAYS]
        has_count = np.append(has_rows, (True, True))  # messages and packets
        is_needed = has_count[plan.count_numbers] & gates[plan.gate_numbers]
        self._instructions = plan.instructions[is_needed]
        self._addresses = np.ascontiguousarray(plan.addresses[is_needed])
        self._count_numbers = plan.count_numbers[is_needed].copy()
        self._lists = self._list_sizes(has_rows)
        self._counts = np.zeros(len(plan.layout.nodes) + 2, np.int64)
        bases = plan.bases
        self.bases, self.strides, self.totals = (
            np.zeros(bases.count, np.int64),
            np.zeros(bases.count, np.int64),
            np.zeros(len(plan.families), np.int64),
        )
        self.bases[bases.totals] = buffer_address(self.totals)
        self._bases_view, self._strides_view = self.bases.data, self.strides.data
        arguments = self._arguments = np.zeros(k.ARGUMENTS, np.int64)
        for place, array in (
            (k.INSTRUCTIONS, self._instructions),
            (k.INSTRUCTION_ADDRESSES, self._addresses),
            (k.COUNT_NUMBERS, self._count_numbers),
            (k.BASES, self.bases),
            (k.STRIDES, self.strides),
            (k.COUNTS, self._counts),
            (k.TOTALS, self.totals),
            (k.LISTS, self._lists),
        ):
            arguments[place] = array.ctypes.data
        arguments[k.INSTRUCTION_COUNT], arguments[k.LIST_COUNT] = len(self._instructions), len(self._lists)
        arguments[k.NODE_COUNT], arguments[k.FAMILY_COUNT] = len(plan.layout.nodes), len(plan.families)
        self._arguments_address, self._arguments_view = int(arguments.ctypes.data), arguments.data

    def _list_sizes(self, has_rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Of each list that the instructions use: its base, and the count that gives its length."""
        bases, plan = self.plan.bases, self.plan
        nodes = [each.builder.node.index for each in plan.rules]
        lists = [(bases.positions + number, node) for number, node in enumerate(nodes) if has_rows[node]]
        lists += [(bases.parents + number, node) for number, node in enumerate(nodes) if has_rows[node]]
        lists += [(bases.slots + node, node) for node in np.flatnonzero(has_rows).tolist()]
        lists += [(bases.first, plan.packets_count)]
        lists += [(base, plan.messages_count) for base in (bases.book_counts, bases.counts)]
        return np.array(lists, np.int64)

    def set_memory(self, family: ProgramFamily, memory: Memory, stride: int) -> None:
        """The memory of a family's columns, for the next run."""
        number = self.plan.bases.families + family.plan.number
        self._bases_view[number], self._strides_view[number] = memory.address, stride

    def run(self, batch: Batch, scratch: ScratchMemory) -> None:
        """Convert a batch."""
        memory = batch.memory
        messages = memory.message_counts.address
        at = 8 * AddressBases.NODE_TABLE
        _BATCH_BASES.pack_into(self._bases_view, at, *memory.table_addresses, messages)
        needed = -1
        while needed:
            arguments = scratch.address, scratch.nbytes, memory.table_addresses[0], messages, batch.packets
            _BATCH_ARGUMENTS.pack_into(self._arguments_view, 8 * k.SCRATCH, *arguments)
            needed = k.run_program(self._arguments_address)
            if needed:
                scratch.grow(needed)


class ScratchMemory:
    """Memory of the lists that only one run needs."""

    def __init__(self) -> None:
        self.grow(1 << 15)

    def grow(self, nbytes: int) -> None:
        self.array, self.nbytes = np.empty(2 * nbytes, np.uint8), 2 * nbytes
        self.address = buffer_address(self.array)


def _program_family(plan: ConversionPlan, family: FamilyPlan, has_rows: NDArray[np.bool_]) -> ProgramFamily:
    rules = [plan.rules[number] for number in family.rules]
    active = [each for each in rules if has_rows[each.builder.node.index]]
    is_list = "." in family.family.name
    # A family that only one template feeds, with a row for every message, needs no merging.
    is_plain = any(is_list or not (each.rule.group or each.rule.required_field) for each in active)
    text_rules = [each for each in plan.rules_with_texts if each.rule.family == family.family.name]
    if not any(has_rows[each.builder.node.index] for each in text_rules):
        text_rules = []
    return ProgramFamily(
        family,
        [each.builder.node.index for each in active],
        len(active) > 1 or not is_plain or family.family.name in ALWAYS_MERGED,
        text_rules,
    )


def columns_size(family: FamilyPlan, stride: int) -> int:
    """The bytes of a family's columns."""
    return (len(KEY_COLUMNS) + len(family.columns)) * stride
