"""The layout of the live plan: what a kernel needs to read one Binary message straight into a book.

The plan is one array of int64s (see `live_plan`); every position in it counts int64s from its start.

    plan[template]                           position of the template's entry; 0: no row comes from its root block
    plan[entry + E_…]                        when it makes a row, and from when on every column is where it is expected
    plan[entry + E_COLUMNS + F_FIELDS · L_… + F_…]   one column of the row

How a column is read, `block` and `version` being those of the message's header:

    KIND is CONSTANT, or the block is shorter than OFFSET + SIZE, or version < SINCE, or version > UNTIL: the value is
    ABSENT. Otherwise load SIZE bytes at OFFSET (signed or not); NULL is ABSENT where version < NULL_BEFORE.
    NUMBER   outside LOW … HIGH: ABSENT, and flags | OUT_OF_RANGE. Else number · FACTOR. 64 bits keep their bits.
    CODED    plan[TABLE + number] of a number below 256, else plan[TABLE + OTHER_CODE].

`flags` is L_FLAGS | L_MORE_FLAGS. Where block ≥ E_KNOWN and version ≥ E_VERSION, a column whose UNTIL is below
E_VERSION is ABSENT and no other has to look at block or version.
"""

from __future__ import annotations

from umdf.market.sbe.convert_kernel import ABSENT_CODE, CODES, OTHER_CODE

TEMPLATES = 256  # larger ids make no rows

E_ROW_CONDITION, E_FULL_LENGTH, E_MIN_VERSION, E_COLUMNS = 0, 1, 2, 3
ALWAYS_ROW, ROW_IF_RPT_SEQ = 1, 2  # E_MAKES: a row of every message, or only where rpt_seq is there

L_INSTRUMENT_ID, L_ACTION, L_SIDE, L_PRICE, L_SIZE, L_ORDER_ID, L_POSITION, L_PREV_SIZE = 0, 1, 2, 3, 4, 5, 6, 7
L_FIRM, L_TS_INSERT, L_TS_EVENT, L_RPT_SEQ, L_TRADE_ID, L_FLAGS, L_MORE_FLAGS = 8, 9, 10, 11, 12, 13, 14
LIVE_COLUMNS = 15

F_KIND, F_OFFSET, F_SIZE, F_SIGNED, F_SINCE, F_UNTIL, F_NULL_BEFORE, F_NULL = 0, 1, 2, 3, 4, 5, 6, 7
F_ABSENT, F_LOW, F_HIGH, F_FACTOR, F_TABLE = 8, 9, 10, 11, 12
F_FIELDS = 13
CONSTANT, NUMBER, CODED = 0, 1, 2

__all__ = ["ABSENT_CODE", "CODES", "OTHER_CODE"]
