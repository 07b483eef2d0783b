"""Events → Binary messages: the same table backwards, and back again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market.sbe_strategies import BOTH_WAYS, SCHEMA, event_dicts, realistic_messages
from wire.sbe.packet_builders import concatenate_packets, decoded_rows, fields_of, packets_of

from umdf.errors import EncodeError
from umdf.market.families import (
    CONDITIONS,
    FAMILIES,
    LAST,
    NULL,
    NULL_I32,
    SESSION_HIGH,
    SNAPSHOT,
    TRADE_VOLUME,
    VOLATILITY,
    VWAP,
)
from umdf.market.rows import Events, Rows, Units, text_column
from umdf.market.sbe.events import SbeEventMapper
from umdf.market.sbe.messages import SbeMessageMapper
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.encode import Encoder

TEMPLATES = sorted(SCHEMA.messages)
DECODER, MAPPER = Decoder(SCHEMA), SbeEventMapper(SCHEMA)
WRITERS = {version: (SbeMessageMapper(SCHEMA, version), Encoder(SCHEMA, version)) for version in BOTH_WAYS}


def decode_events(packets: list[bytes]) -> Events:
    MAPPER.reset()
    return MAPPER.events(DECODER.decode(*concatenate_packets(packets)))


def encode_events(events: Events, version: int = 16) -> list[bytes]:
    messages, encoder = WRITERS[version]
    return packets_of(encoder.encode(*messages.messages(events)))


def units(count: int) -> Units:
    times = np.arange(count, dtype=np.int64) + 10**18
    nothing = np.full(count, NULL)
    return Units(np.full(count, 72, np.int16), np.full(count, 1), np.arange(count) + 1, times, nothing)


def build_events(family: str, columns: dict[str, list[Any]], texts: dict[str, list[str]] | None = None) -> Events:
    """Rows of one family, each a message of one packet; chars as text."""
    found = FAMILIES[family]
    count = len(next(iter(columns.values())))
    arrays = {}
    for name, given_values in columns.items():
        numbers = [ord(value) if isinstance(value, str) else value for value in given_values]
        arrays[name] = np.array(numbers, found.column(name).dtype)
    index = np.arange(count, dtype=np.uint16)
    rows = Rows(found, np.zeros(count, np.uint32), index, np.zeros(count, np.uint16), arrays)
    rows.texts = {name: text_column(list(values)) for name, values in (texts or {}).items()}
    return Events(units(1), {family: rows})


def decoded(packets: list[bytes]) -> Batch:
    return DECODER.decode(*concatenate_packets(packets))


@pytest.mark.parametrize("version", BOTH_WAYS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_round_trips(template: int, version: int) -> None:
    message = SCHEMA.messages[template]
    if message.since > version:
        pytest.skip("not in this version")

    @settings(max_examples=settings().max_examples // 10)
    @given(st.lists(realistic_messages(template, message, version), min_size=1, max_size=3))
    def check(each: list[dict[str, Any]]) -> None:
        packets = packets_of(compose(SCHEMA, [Packet([(template, f) for f in each], 72, 1, 5, 7)], version))
        events = decode_events(packets)
        again = encode_events(events, version)
        assert decoded_rows(decoded(again)) == decoded_rows(decoded(packets))
        assert event_dicts(decode_events(again)) == event_dicts(events)

    check()


@given(st.data(), st.sampled_from(BOTH_WAYS))
def test_random_packets_round_trip(data: st.DataObject, version: int) -> None:
    known = [t for t in TEMPLATES if SCHEMA.messages[t].since <= version]
    one = st.sampled_from(known).flatmap(
        lambda t: st.tuples(st.just(t), realistic_messages(t, SCHEMA.messages[t], version))
    )
    packets = [Packet(data.draw(st.lists(one, max_size=4)), 72, 3, number + 1, number) for number in range(3)]
    sent = packets_of(compose(SCHEMA, packets, version))
    events = decode_events(sent)
    again = encode_events(events, version)
    assert decoded_rows(decoded(again)) == decoded_rows(decoded(sent))
    assert again == sent
    assert not WRITERS[version][0].unmapped_rows


def test_positions_are_written_as_version_8_sent_them() -> None:
    columns = {
        **{"action": ["A", "C", "C", "R"], "side": ["B", "A", "B", "A"], "position": [3, 1, 7, NULL_I32]},
        **{"price": [10**10, NULL, NULL, NULL], "size": [5, 5, NULL, NULL], "order_id": [9, 8, NULL, NULL]},
        **{"instrument_id": [1] * 4, "rpt_seq": [1, 2, 3, 4], "flags": [LAST] * 4},
    }
    found = decoded_rows(decoded(encode_events(build_events("mbo", columns), 8)))
    assert [(template, fields.get("mDEntryPositionNo")) for _, _, template, fields in found] == [
        (50, 3),
        (51, 1),
        (52, 7),
        (52, None),
    ]
    assert [fields.get("mDUpdateAction") for *_, fields in found] == [0, None, 4, 3]


def test_trades_and_everything_else_in_the_book_is_written_by_its_own_family() -> None:
    events = build_events(
        "mbo", {"action": list("TNR"), "side": list("NNN"), "instrument_id": [1] * 3, "flags": [0, 0, SNAPSHOT]}
    )
    assert fields_of(decoded(encode_events(events))) == []
    assert not WRITERS[16][0].unmapped_rows


def test_what_binary_has_no_message_for_is_left_out_and_counted() -> None:
    kinds = [VOLATILITY, SESSION_HIGH, TRADE_VOLUME, VWAP, VWAP]
    columns = {"stat_type": kinds, "action": ["A", "A", "A", "A", "C"], "price": [10**9] * 5, "size": [1] * 5}
    events = build_events("statistics", columns | {"instrument_id": [1] * 5, "flags": [0] * 5})
    found = decoded_rows(decoded(encode_events(events)))
    # What stays is numbered again without gaps.
    assert [(index, template) for _, index, template, _ in found] == [(0, 24), (1, 56)]
    assert WRITERS[16][0].unmapped_rows == {"statistics": 3}
    settlement = build_events(
        "statistics", {"stat_type": [3], "action": ["A"], "price": [0], "flags": [0], "instrument_id": [1]}
    )
    assert encode_events(settlement, 8)[0][16:] == b""  # SettlementPrice_28 came with version 9
    assert WRITERS[8][0].unmapped_rows == {"statistics": 1}


def test_orders_of_a_snapshot_stand_together_by_instrument_and_message() -> None:
    count = 5
    rows = Rows(
        FAMILIES["mbo"],
        np.zeros(count, np.uint32),
        np.array([0, 0, 1, 2, 2], np.uint16),
        np.array([0, 1, 0, 0, 1], np.uint16),
        {
            "action": np.full(count, ord("A"), np.uint8),
            "side": np.frombuffer(b"BABAB", np.uint8),
            "size": np.arange(count) + 1,
            "order_id": np.arange(count) + 100,
            "instrument_id": np.array([1, 1, 1, 2, 2]),
            "flags": np.full(count, SNAPSHOT, np.int32),
        },
    )
    found = decoded_rows(decoded(encode_events(Events(units(1), {"mbo": rows}))))
    orders = [(fields["securityID"], [e["secondaryOrderID"] for e in fields["noMDEntries"]]) for *_, fields in found]
    assert orders == [(1, [100, 101]), (1, [102]), (2, [103, 104])]


def test_events_that_are_numbered_by_entries_become_messages_in_their_order() -> None:
    # As FAST numbers them: one message of many entries.
    orders = {
        "action": list("ACA"),
        "side": list("BBA"),
        "price": [10**9] * 3,
        "size": [1, 2, 3],
        "order_id": [1, 2, 3],
    }
    mbo = build_events("mbo", orders | {"instrument_id": [1] * 3, "flags": [0] * 3}).rows("mbo")
    mbo.msg_index, mbo.entry_index = np.zeros(3, np.uint16), np.array([0, 2, 4], np.uint16)
    trades = build_events(
        "trades", {"action": ["A"], "price": [10**9], "size": [9], "trade_id": [1], "flags": [0]}
    ).rows("trades")
    trades.msg_index, trades.entry_index = np.zeros(1, np.uint16), np.array([3], np.uint16)
    found = decoded_rows(decoded(encode_events(Events(units(1), {"mbo": mbo, "trades": trades}))))
    assert [(index, template) for _, index, template, _ in found] == [(0, 50), (1, 51), (2, 53), (3, 50)]


def test_a_channel_reset_is_one_message_of_two_families() -> None:
    packets = packets_of(compose(SCHEMA, [Packet([(11, {"matchEventIndicator": 128, "mDEntryTimestamp": 5})])]))
    events = decode_events(packets)
    assert events.families.keys() == {"mbo", "control"}
    assert encode_events(events) == packets
    for name in ("mbo", "control"):  # either is enough
        assert encode_events(Events(events.units, {name: events.rows(name)})) == packets


def test_raw_condition_fields_are_written_from_conditions_when_absent() -> None:
    bits = CONDITIONS["R"] | CONDITIONS["RL"] | CONDITIONS["REGULAR"]
    columns = {"action": ["A"], "price": [10**9], "size": [1], "trade_id": [4], "conditions": [bits], "flags": [0]}
    fields = fields_of(decoded(encode_events(build_events("trades", columns))))[0]
    assert (fields["tradeCondition"], fields["trdSubType"]) == (0x2001, 106)


def test_lot_fields_are_written_from_the_lots_group() -> None:
    packets = packets_of(compose(SCHEMA, [Packet([(12, _definition(lotType=2, minLotSize=100))])]))
    events = decode_events(packets)
    rows = events.rows("definition")
    for name in ("lot_type", "min_lot_size"):
        del rows.columns[name]
    assert encode_events(events) == packets


def _definition(**fields: Any) -> dict[str, Any]:
    own = {
        "securityID": 7,
        "securityExchange": "BVMF",
        "securityIDSource": "8",
        "securityGroup": "A",
        "symbol": "PETR4",
    }
    own |= {"securityUpdateAction": "A", "securityType": 14, "securitySubType": 1004, "totNoRelatedSym": 1}
    return own | {"issueDate": 1, "asset": "PETR", "cfiCode": "E", "currency": "BRL", "product": 5} | fields


def test_a_security_type_without_a_name_keeps_its_number() -> None:
    packets = packets_of(compose(SCHEMA, [Packet([(12, _definition(securityType=99))])]))
    events = decode_events(packets)
    assert event_dicts(events)["definition"][0]["security_type"] == "99"
    assert encode_events(events) == packets


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [("price", 1, "more decimals"), ("rpt_seq", 1 << 32, "does not fit"), ("firm", -1, "does not fit")],
)
def test_what_a_field_cannot_hold_is_refused(column: str, value: int, reason: str) -> None:
    columns = {"action": ["A"], "side": ["B"], "price": [10**9], "size": [1], "order_id": [1], "instrument_id": [1]}
    with pytest.raises(EncodeError, match=f"{column} {value} .*{reason}"):
        encode_events(build_events("mbo", columns | {"flags": [0]} | {column: [value]}))


def test_numbers_beyond_63_bits_keep_their_bits() -> None:
    big = (1 << 64) - 5
    packets = packets_of(compose(SCHEMA, [Packet([(9, {"securityID": big, "matchEventIndicator": 0})])]))
    events = decode_events(packets)
    assert events.rows("mbo").columns["instrument_id"].tolist() == [-5]
    assert encode_events(events) == packets
