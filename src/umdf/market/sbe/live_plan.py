"""The book's part of the Binary table as one array, for a kernel that applies a packet without building columns.

Its layout is in `live_plan_kernel`. It consists of the same instructions as the program of `conversion_plan`, so
both read every message the same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import MBO, Column
from umdf.market.sbe import convert_kernel as k
from umdf.market.sbe import live_plan_kernel as live
from umdf.market.sbe.instructions import Instruction, InstructionBuilder
from umdf.market.sbe.mapping_table import RULES
from umdf.wire.sbe.layout import NEVER_RETIRED, Layout, as_int64

PLAN_COLUMNS = {
    **{"instrument_id": live.L_INSTRUMENT_ID, "action": live.L_ACTION, "side": live.L_SIDE, "price": live.L_PRICE},
    **{"size": live.L_SIZE, "order_id": live.L_ORDER_ID, "position": live.L_POSITION, "prev_size": live.L_PREV_SIZE},
    **{"firm": live.L_FIRM, "ts_insert": live.L_TS_INSERT, "ts_event": live.L_TS_EVENT, "rpt_seq": live.L_RPT_SEQ},
    **{"trade_id": live.L_TRADE_ID, "flags": live.L_FLAGS},
}


def build_live_plan(layout: Layout) -> NDArray[np.int64]:
    """The plan of a schema: an index by template, then entries, then tables of codes."""
    plan: list[int] = [0] * live.TEMPLATES
    tables: list[tuple[int, NDArray[np.int64]]] = []  # where a table's place is to be written, and the table
    for rule in RULES:
        root = layout.roots.get(rule.template)
        if rule.family != "mbo" or rule.group or root is None or rule.template >= live.TEMPLATES:
            continue
        # Retired fields count: a message of an older version may come at any time.
        retired = np.array([wire.is_retired for wire in root.columns], np.int64)
        builder = InstructionBuilder(layout, rule, {root.index: retired})
        if rule.required_field and builder.resolve(rule.required_field) is None:
            continue
        plan[rule.template] = len(plan)
        plan += [
            live.ROW_IF_RPT_SEQ if rule.required_field else live.ALWAYS_ROW,
            root.full_block_length,
            root.min_fast_version,
        ]
        fields = [[0] * live.F_FIELDS for _ in range(live.LIVE_COLUMNS)]
        for name, number in PLAN_COLUMNS.items():
            column = MBO.column(name)
            for more, instruction in enumerate(builder.instructions(rule.columns.get(name), column)):
                assert more == 0 or number + more == live.L_MORE_FLAGS
                fields[number + more] = _plan_field(instruction, column, layout.schema.oldest)
                if instruction.table is not None:
                    word = len(plan) + live.F_FIELDS * (number + more) + live.F_TABLE
                    tables.append((word, instruction.table))
        for field in fields:
            plan += field
    known: dict[bytes, int] = {}  # most are the same
    for word, table in tables:
        plan[word] = known.setdefault(table.tobytes(), len(plan))
        if plan[word] == len(plan):
            plan += table.tolist()
    return np.array(plan, np.int64)


def _plan_field(instruction: Instruction, column: Column, oldest: int) -> list[int]:
    field = [0] * live.F_FIELDS
    field[live.F_KIND], field[live.F_ABSENT] = live.CONSTANT, instruction.absent
    if instruction.wire is None:
        return field
    assert not instruction.shift
    part, field_definition = instruction.wire.part, instruction.wire.field
    limits = np.iinfo(column.dtype.name)
    field[live.F_KIND] = live.NUMBER if instruction.table is None else live.CODED
    field[live.F_OFFSET], field[live.F_SIZE] = part.offset, part.size
    field[live.F_SIGNED] = int(part.primitive.startswith("int"))
    field[live.F_SINCE], field[live.F_UNTIL] = (
        field_definition.since,
        NEVER_RETIRED if field_definition.until is None else field_definition.until,
    )
    if instruction.nullable:
        field[live.F_NULL_BEFORE], field[live.F_NULL] = NEVER_RETIRED, instruction.null
    elif part.null_before is not None:
        field[live.F_NULL_BEFORE], field[live.F_NULL] = oldest, as_int64(part.null_before)
    is_unbounded = instruction.op not in (k.MOVE, k.SCALE_8)
    field[live.F_LOW] = int(limits.min) + 1 if is_unbounded else instruction.low
    field[live.F_HIGH] = int(limits.max) if is_unbounded else instruction.high
    field[live.F_FACTOR] = instruction.factor
    if instruction.table is not None:
        field[live.F_ABSENT] = int(instruction.table[k.ABSENT_CODE])
    return field
