"""The plan of a live kernel, read by plain Python, makes the same book rows as `SbeEvents`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from market.sbe_strategies import SCHEMA, event_dicts
from wire.sbe.packet_builders import concatenate_packets
from wire.sbe.strategies import encoded_messages

from umdf.market.families import MBO, OUT_OF_RANGE
from umdf.market.sbe import live_plan_kernel as live
from umdf.market.sbe.events import SbeEventMapper
from umdf.market.sbe.live_plan import PLAN_COLUMNS, build_live_plan
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.layout import Layout

PLAN = build_live_plan(Layout(SCHEMA)).tolist()
FROM_ROOT = {t for t in range(live.TEMPLATES) if PLAN[t]}
MESSAGES = [message for template, message in SCHEMA.messages.items() if template in FROM_ROOT]
DECODER, MAPPER = Decoder(SCHEMA), SbeEventMapper(SCHEMA)


def column(entry: int, number: int, block: bytes, version: int) -> tuple[int, bool]:
    """One column as the layout says it is read, and whether it did not fit."""
    at = entry + live.E_COLUMNS + live.F_FIELDS * number
    field = PLAN[at : at + live.F_FIELDS]
    offset, size = field[live.F_OFFSET], field[live.F_SIZE]
    absent = field[live.F_ABSENT], False
    sent = field[live.F_SINCE] <= version <= field[live.F_UNTIL] and offset + size <= len(block)
    if field[live.F_KIND] == live.CONSTANT or not sent:
        return absent
    value = int.from_bytes(block[offset : offset + size], "little", signed=bool(field[live.F_SIGNED]) or size == 8)
    if version < field[live.F_NULL_BEFORE] and value == field[live.F_NULL]:
        return absent
    if field[live.F_KIND] == live.CODED:
        return PLAN[field[live.F_TABLE] + (value if value < 256 else live.OTHER_CODE)], False
    if not field[live.F_LOW] <= value <= field[live.F_HIGH]:
        return field[live.F_ABSENT], True
    return value * field[live.F_FACTOR], False


def row(message: bytes) -> dict[str, Any] | None:
    block_length, template, version = (int.from_bytes(message[at : at + 2], "little") for at in (4, 6, 10))
    entry, block = PLAN[template], message[12 : 12 + block_length]
    found = {name: column(entry, number, block, version) for name, number in PLAN_COLUMNS.items()}
    flags = found["flags"][0] | column(entry, live.L_MORE_FLAGS, block, version)[0]
    flags |= OUT_OF_RANGE if any(wrong for _, wrong in found.values()) else 0
    shown: dict[str, Any] = {}
    for name, (value, _) in (found | {"flags": (flags, False)}).items():
        kind = MBO.column(name)
        shown[name] = None if kind.nullable and value == kind.null else chr(value) if kind.type == "char" else value
    return None if PLAN[entry + live.E_ROW_CONDITION] == live.ROW_IF_RPT_SEQ and shown["rpt_seq"] is None else shown


def test_every_template_that_makes_book_rows_from_its_block_has_an_entry() -> None:
    assert {3, 9, 11, *range(15, 18), 19, 21, 22, 24, 25, *range(27, 31), *range(50, 58)} == FROM_ROOT


@given(st.lists(encoded_messages(SCHEMA, range(17, 7, -1), MESSAGES), min_size=1, max_size=4))
def test_the_plan_reads_any_message_as_the_columns_do(messages: list[bytes]) -> None:
    head = bytes(4) + (1).to_bytes(4, "little") + bytes(8)
    batch = DECODER.decode(*concatenate_packets([head + b"".join(messages)]))
    sound = {int(i) for t in batch.templates for i in batch.msg_index(batch.layout.roots[t])}
    ours = [found for i, found in enumerate(map(row, messages)) if found is not None and i in sound]
    wanted = event_dicts(MAPPER.events(batch)).get("mbo", [])
    # The update action is no part of the plan, and may not fit either.
    for found, reference in zip(ours, wanted, strict=True):
        is_odd = reference["update_action"] is None
        reference = {name: reference[name] for name in found}
        if is_odd:
            reference["flags"] |= found["flags"] & OUT_OF_RANGE
            found["flags"] |= reference["flags"] & OUT_OF_RANGE
        assert found == reference


def test_a_message_of_today_is_where_the_plan_expects_it() -> None:
    for template in FROM_ROOT:
        message = SCHEMA.messages[template]
        entry = PLAN[template]
        assert (
            PLAN[entry + live.E_FULL_LENGTH] <= message.block_length
            and PLAN[entry + live.E_MIN_VERSION] <= SCHEMA.version
        )
    assert np.array(PLAN).dtype == np.int64
