"""Which fields in a row are usually absent together, so that one question can be asked for all of them.

An optional field is absent by a zero bit of the presence map, or by a byte of NULL in the stream. A run of such fields
is absent if all of its bits are zero and the next bytes are all NULL; the interpreter and generated code both ask that
first, for a whole run and then for its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from umdf.wire.fast.templates import CONSTANT, DEFAULT, DELTA, NONE, Field

MOST_NULLS = 16  # bytes that one question can look at

Line = TypeVar("Line")


@dataclass
class Unit(Generic[Line]):
    """The lines of one field, group or sequence, and what it takes for it to be absent."""

    lines: list[Line]
    skippable: bool = False
    nulls: int = 0  # bytes of NULL that say so; with none, a presence bit of zero
    bit: int = 0  # which one, as a mask, where that is known beforehand


Ask = Callable[[list[Unit[Line]], list[Line]], list[Line]]  # puts the question in front of the lines of a run


def is_absent_by(instruction: Field) -> tuple[bool, int]:
    """Whether a field is absent by a zero bit or a NULL alone, whatever came before, and the bytes of that NULL."""
    kind = instruction.operator.kind
    if not instruction.optional or instruction.in_parts:
        return False, 0
    if kind in (NONE, DELTA):
        return True, 1
    return kind == CONSTANT or (kind == DEFAULT and instruction.operator.initial is None), 0


def with_skips(units: list[Unit[Line]], ask: Ask[Line], fewest: int) -> list[Line]:
    """All lines, with a question in front of each run of at least `fewest` units, and of its parts of one kind."""
    lines: list[Line] = []
    for skippable, group in groupby((unit for unit in units if unit.lines), key=lambda unit: unit.skippable):
        for run in _portions(list(group)):
            parts = [list(part) for _, part in groupby(run, key=lambda unit: unit.nulls)]
            inside: list[Line] = []
            for part in parts:
                plain = [line for unit in part for line in unit.lines]
                inside += ask(part, plain) if skippable and len(parts) > 1 and len(part) >= fewest else plain
            lines += ask(run, inside) if skippable and len(run) >= fewest else inside
    return lines


def _portions(run: list[Unit[Line]]) -> list[list[Unit[Line]]]:
    """No more NULLs and no more bits in each than a question can look at."""
    portions: list[list[Unit[Line]]] = [[]]
    for unit in run:
        last = portions[-1]
        if sum(u.nulls for u in last) + unit.nulls > MOST_NULLS or sum(u.nulls == 0 for u in last) >= 32:
            portions.append([])
        portions[-1].append(unit)
    return portions
