"""Which fields in a row are usually absent together, so that one question can be asked for all of them.

An optional field is absent by a zero bit of the presence map, or by a byte of NULL in the stream. A run of such fields
is absent if all of its bits are zero and the next bytes are all NULL; the interpreter and generated code both ask that
first, for a whole run and then for its halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from umdf.wire.fast.templates import CONSTANT, DEFAULT, DELTA, NONE, Field

MOST_NULLS = 24  # bytes that one question can look at

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
    """All lines, with a question in front of each run of at least `fewest` units, and of its halves."""
    lines: list[Line] = []
    for skippable, group in groupby((unit for unit in units if unit.lines), key=lambda unit: unit.skippable):
        for run in _portions(list(group)):
            if skippable:
                lines += _asked(run, ask, fewest)
            else:
                lines += [line for unit in run for line in unit.lines]
    return lines


def _asked(run: list[Unit[Line]], ask: Ask[Line], fewest: int) -> list[Line]:
    # Halved where bits and NULLs meet: fields of one kind tend to come and go together.
    edges = [at for at in range(1, len(run)) if (run[at].nulls == 0) != (run[at - 1].nulls == 0)]
    if edges:
        middle = min(edges, key=lambda at: abs(2 * at - len(run)))
        lines = _asked(run[:middle], ask, fewest) + _asked(run[middle:], ask, fewest)
    else:
        lines = [line for unit in run for line in unit.lines]
    return ask(run, lines) if len(run) >= fewest else lines


def _portions(run: list[Unit[Line]]) -> list[list[Unit[Line]]]:
    """No more NULLs and no more bits in each than a question can look at."""
    portions: list[list[Unit[Line]]] = [[]]
    for unit in run:
        last = portions[-1]
        if sum(u.nulls for u in last) + unit.nulls > MOST_NULLS or sum(u.nulls == 0 for u in last) >= 32:
            portions.append([])
        portions[-1].append(unit)
    return portions
