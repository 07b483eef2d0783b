"""Consecutive fields that are usually absent together, so that one test covers them all.

An optional field is absent by a zero bit of the presence map, or by a byte of NULL in the stream. A run of such fields
is absent if all of its bits are zero and the next bytes are all NULL; the interpreter and generated code both test that
first, for a whole run and then for its halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from umdf.wire.fast.templates import CONSTANT, DEFAULT, DELTA, NONE, Field

MAX_NULLS = 24  # bytes that one test can cover

Line = TypeVar("Line")


@dataclass
class FieldCode(Generic[Line]):
    """The lines of one field, group or sequence, and the condition for its absence."""

    lines: list[Line]
    is_skippable: bool = False
    nulls: int = 0  # its bytes of NULL; if none, a presence bit of zero
    bit: int = 0  # which one, as a mask, where that is known beforehand


SkipEmitter = Callable[[list[FieldCode[Line]], list[Line]], list[Line]]  # puts the test before the lines of a run


def absence_encoding(instruction: Field) -> tuple[bool, int]:
    """Whether a field is absent by a zero bit or a NULL alone, whatever came before, and the bytes of that NULL."""
    kind = instruction.operator.kind
    if not instruction.optional or instruction.has_part_operators:
        return False, 0
    if kind in (NONE, DELTA):
        return True, 1
    return kind == CONSTANT or (kind == DEFAULT and instruction.operator.initial is None), 0


def insert_skips(codes: list[FieldCode[Line]], emit_skip: SkipEmitter[Line], min_run: int) -> list[Line]:
    """All lines, with a test in front of each run of at least `min_run` units, and of its halves."""
    lines: list[Line] = []
    for skippable, group in groupby((unit for unit in codes if unit.lines), key=lambda unit: unit.is_skippable):
        for run in _split_run(list(group)):
            if skippable:
                lines += _with_skip(run, emit_skip, min_run)
            else:
                lines += [line for unit in run for line in unit.lines]
    return lines


def _with_skip(run: list[FieldCode[Line]], emit_skip: SkipEmitter[Line], min_run: int) -> list[Line]:
    # Halved where bits and NULLs meet: fields of one kind tend to come and go together.
    edges = [at for at in range(1, len(run)) if (run[at].nulls == 0) != (run[at - 1].nulls == 0)]
    if edges:
        middle = min(edges, key=lambda at: abs(2 * at - len(run)))
        lines = _with_skip(run[:middle], emit_skip, min_run) + _with_skip(run[middle:], emit_skip, min_run)
    else:
        lines = [line for unit in run for line in unit.lines]
    return emit_skip(run, lines) if len(run) >= min_run else lines


def _split_run(run: list[FieldCode[Line]]) -> list[list[FieldCode[Line]]]:
    """No more NULLs and bits in each than one test can cover."""
    runs: list[list[FieldCode[Line]]] = [[]]
    for unit in run:
        last = runs[-1]
        if sum(u.nulls for u in last) + unit.nulls > MAX_NULLS or sum(u.nulls == 0 for u in last) >= 32:
            runs.append([])
        runs[-1].append(unit)
    return runs
