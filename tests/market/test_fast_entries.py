"""FAST entries one by one: what each MDEntryType becomes, and what odd values do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from market.event_dicts import row_dicts
from market.fast_random_messages import messages

from umdf.market import families as e
from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, Segment, Sequence

TEMPLATES = load()
DECODER = Decoder(TEMPLATES)
EVENTS = FastEventMapper(DECODER.layout)
SENT = 20261113130000250
SENT_NS = 1_794_574_800_250_000_000  # 2026-11-13 13:00:00.250 UTC
DAY = 1_794_528_000_000_000_000  # of that day
ENTRY = {279: 0, 269: "0", 48: 77, 83: 5, 272: 20261113, 273: 130000123}


def named(segment: Segment, tags: dict[int, Any]) -> dict[str, Any]:
    """Values by tag → by name."""
    values = {}
    for instruction in segment.instructions:
        if isinstance(instruction, Sequence):
            if instruction.length.id in tags:
                values[instruction.name] = [named(instruction.body, one) for one in tags[instruction.length.id]]
        elif instruction.id in tags:
            values[instruction.name] = tags[instruction.id]
    return values


def encoded(template_id: int, tags: dict[int, Any]) -> bytes:
    body = TEMPLATES.by_id[template_id].body
    return Writer(TEMPLATES).encode(template_id, named(body, {34: 9, 52: SENT, **tags}))


def events_of(*made: bytes, decoder: Decoder = DECODER, events: FastEventMapper = EVENTS, **options: Any) -> Events:
    end = np.cumsum([len(one) for one in made], dtype=np.int64)
    batch = decoder.decode(np.frombuffer(b"".join(made), np.uint8), np.concatenate([[0], end[:-1]]), end)
    return events.events(batch, **options)


def x(*entries: dict[int, Any], template_id: int = 152, **body: Any) -> Events:
    tags = {int(name[1:]): value for name, value in body.items()}
    return events_of(encoded(template_id, {**tags, 268: [{**ENTRY, **entry} for entry in entries]}))


def rows(events: Events, family: str) -> list[dict[str, Any]]:
    return row_dicts(events.rows(family))


def test_a_new_order_has_every_column() -> None:
    entry = {37: "123456789012", 270: Decimal(-2, 1050), 271: 300, 288: "3", 289: "8", 37016: 20261112, 37017: 93000001}
    (row,) = rows(x({**entry, 37780: 500, 346: 2, 276: "K R"}), "mbo")
    assert row == {
        "unit": 0, "entry_index": 0, "action": "A", "side": "B", "price": 10_500_000_000, "size": 300,
        "order_id": 123456789012, "firm": 3, "prev_size": 500, "order_count": 2, "venue": "E", "update_action": 0,
        "entry_type": "0", "instrument_id": 77, "rpt_seq": 5, "ts_event": DAY + 46_800_123_000_000,
        "ts_insert": DAY - 86_400_000_000_000 + 34_200_001_000_000, "flags": e.LAST | e.IMPLIED | e.RECOVERY,
    }  # fmt: skip


def test_mbo_always_has_the_columns_that_books_read() -> None:
    columns = (
        *("action", "side", "price", "size", "order_id", "firm", "prev_size", "position", "order_count", "ts_insert"),
        *("venue", "update_action", "entry_type", "instrument_id", "rpt_seq", "flags", "ts_event"),
    )
    for template_id in (81, 145, 152, 1152):
        tags = {269: "J"} if template_id == 81 else {}
        assert set(columns) <= set(x(tags, template_id=template_id).rows("mbo").columns)


@pytest.mark.parametrize(
    ("entry", "action", "side"),
    [
        ({279: 0}, "A", "B"),
        ({279: 1, 269: "1"}, "M", "A"),
        ({279: 2, 269: "1"}, "C", "A"),
        ({279: 3}, "R", "B"),
        ({279: 4, 269: "1"}, "C", "A"),
        ({279: 5, 270: Decimal(-2, 1), 271: 5}, "M", "B"),
        ({279: 5, 271: 5}, "M", "B"),
        ({279: 5}, "C", "B"),
        ({279: 9}, "U", "B"),
        ({269: "J"}, "R", "N"),
    ],
)
def test_a_book_entry_does_what_279_says(entry: dict[int, Any], action: str, side: str) -> None:
    (row,) = rows(x(entry), "mbo")
    assert (row["action"], row["side"], row["update_action"]) == (action, side, entry.get(279, 0))


def test_an_order_without_price_has_none() -> None:
    assert "price" not in rows(x({271: 100}), "mbo")[0]


def test_the_position_generation_has_positions() -> None:
    assert rows(x({290: 7}, template_id=145), "mbo")[0]["position"] == 7


def test_a_trade_is_a_trade_and_a_row_of_the_book() -> None:
    events = x(
        {269: "2", 270: Decimal(-2, 1050), 271: 300, 1003: "10", 288: "3", 289: "8", 277: "X L", 336: 6, 1020: 900},
        t75=20261112,
    )
    (trade,) = rows(events, "trades")
    assert trade["conditions"] == e.CONDITIONS["X"] | e.CONDITIONS["L"]
    assert (trade["action"], trade["side"], trade["trade_id"], trade["buyer"], trade["seller"]) == ("A", "N", 10, 3, 8)
    assert (trade["trading_session"], trade["trade_volume"], trade["trade_date"]) == (
        6,
        900,
        DAY // 86_400_000_000_000 - 1,
    )
    (row,) = rows(events, "mbo")
    assert (row["action"], row["price"], row["size"], row["trade_id"]) == ("T", 10_500_000_000, 300, 10)


@pytest.mark.parametrize("update", [e.DELETE, e.DELETE_FROM])
def test_a_bust_is_no_trade_of_the_book(update: int) -> None:
    events = x({269: "2", 279: update, 1003: "10"})
    assert [(row["action"], row["update_action"]) for row in rows(events, "trades")] == [("C", update)]
    assert [row["action"] for row in rows(events, "mbo")] == ["N"]


def test_a_last_price_of_the_exchange_is_a_statistic_not_a_trade() -> None:
    events = x({269: "2", 277: "U", 270: Decimal(0, 5), 271: 3})
    (row,) = rows(events, "statistics")
    assert (row["stat_type"], row["price"], row["size"]) == (e.LAST_PRICE, 5_000_000_000, 3)
    assert not len(events.rows("trades"))
    assert [row["action"] for row in rows(events, "mbo")] == ["N"]


@pytest.mark.parametrize(
    ("letter", "flag", "stat_type"),
    [
        ("3", None, e.INDEX_VALUE), ("4", None, e.OPENING_PRICE), ("4", 0, e.OPENING_PRICE),
        ("4", 5, e.THEORETICAL_OPENING), ("5", 4, e.CLOSING_PRICE), ("6", 1, e.SETTLEMENT_PRICE),
        ("7", None, e.SESSION_HIGH), ("8", None, e.SESSION_LOW), ("9", None, e.VWAP), ("C", None, e.OPEN_INTEREST),
        ("v", None, e.VOLATILITY),
    ],
)  # fmt: skip
@pytest.mark.parametrize("update", [e.NEW, e.DELETE])
def test_statistics_by_entry_type(letter: str, flag: int | None, stat_type: int, update: int) -> None:
    flagged = {} if flag is None else {286: flag}
    events = x({269: letter, 279: update, 270: Decimal(-2, 5), 271: 8, **flagged})
    (row,) = rows(events, "statistics")
    assert (row["stat_type"], row["action"], row["price"], row["size"]) == (stat_type, "AC"[update // 2], 50_000_000, 8)
    assert [(row["action"], row["rpt_seq"]) for row in rows(events, "mbo")] == [("N", 5)]
    assert "price" not in rows(events, "mbo")[0]


@pytest.mark.parametrize("flag", [1, 4])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_settlements_keep_both_codes(flag: int, kind: int) -> None:
    (row,) = rows(x({269: "6", 286: flag, 731: kind}), "statistics")
    assert (row["open_close_settl_flag"], row["settl_price_type"]) == (flag, kind)


def test_a_trade_volume_has_its_own_columns() -> None:
    volume = {269: "B", 270: Decimal(-4, 9_000_000_000_000_001), 271: 12, 1020: 3400, 15: "BRL"}
    (row,) = rows(x(volume), "statistics")
    assert (row["financial_volume"], row["trade_count"], row["size"]) == (9_000_000_000_000_001, 12, 3400)
    assert "price" not in row and row["currency"] == "BRL" and not row["flags"] & e.OUT_OF_RANGE


def test_a_composite_underlying_has_a_row_each() -> None:
    below = [{309: 1, 810: Decimal(-2, 5)}, {309: 2, 810: Decimal(-2, 6), 37018: 1}]
    events = x({269: "7"}, {269: "D", 711: below, 48: 78, 37100: 4}, {269: "8", 48: 78})
    found = [row for row in rows(events, "statistics") if row["stat_type"] == e.COMPOSITE_UNDERLYING]
    assert [(row["underlying_id"], row["price"], row["entry_index"]) for row in found] == [
        (1, 50_000_000, 1),
        (2, 60_000_000, 1),
    ]
    assert [row.get("underlying_px_type") for row in found] == [0, 1]
    assert len(rows(events, "mbo")) == 3


@pytest.mark.parametrize(("words", "side"), [({277: "P"}, "B"), ({277: "Q"}, "A"), ({}, "N")])
def test_an_imbalance_has_a_side(words: dict[int, str], side: str) -> None:
    (row,) = rows(x({269: "A", 271: 50, **words}), "imbalance")
    assert (row["side"], row["size"], row["action"]) == (side, 50, "A")


def test_a_price_band() -> None:
    band = {269: "g", 6939: "3", 1306: 2, 1148: Decimal(-1, 5), 1149: Decimal(0, 7), 37008: 1}
    (row,) = rows(x(band), "price_band")
    assert (row["price_band_type"], row["price_limit_type"], row["midpoint_type"]) == (3, 2, 1)
    assert (row["low_limit_price"], row["high_limit_price"]) == (500_000_000, 7_000_000_000)


def test_a_channel_reset_has_no_instrument_and_the_date_of_sending() -> None:
    entry = {key: value for key, value in ENTRY.items() if key not in (48, 83, 272)} | {269: "J"}
    events = events_of(encoded(81, {268: [entry]}))
    (row,) = rows(events, "mbo")
    assert (row["action"], row["side"], row.get("instrument_id")) == ("R", "N", None)
    assert row["ts_event"] == DAY + 46_800_123_000_000
    assert [(row["kind"], row.get("next_sequence")) for row in rows(events, "control")] == [("R", None)]


def test_the_flag_last_is_on_the_last_entry_of_each_instrument() -> None:
    events = x({48: 1}, {48: 2}, {48: 1, 269: "2"}, {48: 2, 269: "7"}, {48: 3})
    assert [bool(row["flags"] & e.LAST) for row in rows(events, "mbo")] == [False, False, True, True, True]


def test_a_snapshot_clears_and_fills() -> None:
    body = {369: 700, 911: 3, 83: 55, 48: 77, 75: 20261113, 264: 0}
    entries = [
        {269: "0", 37: "5", 270: Decimal(-2, 1), 271: 1}, {269: "2", 270: Decimal(-2, 2)},
        {269: "c", 625: "17", 326: 21, 1174: 101, 336: 1, 342: 20261113210000000, 272: 20261113, 273: "130000000"},
    ]  # fmt: skip
    events = events_of(encoded(153, {**body, 268: entries}))
    (head,) = rows(events, "snapshot")
    assert (head["last_sequence"], head["last_rpt_seq"], head["total_snapshots"]) == (700, 55, 3)
    assert "depth" not in head and "rpt_seq" not in head
    clear, order = rows(events, "mbo")
    assert (clear["action"], clear["side"], clear["rpt_seq"], clear["entry_index"]) == ("R", "N", 55, 0)
    assert (order["action"], order["entry_index"], order.get("rpt_seq")) == ("A", 1, None)
    assert (clear["flags"], order["flags"]) == (e.SNAPSHOT, e.SNAPSHOT | e.LAST)
    (last,) = rows(events, "statistics")
    assert (last["stat_type"], last["flags"], last["instrument_id"]) == (e.LAST_PRICE, e.SNAPSHOT, 77)
    (state,) = rows(events, "status")
    assert (state["phase"], state["state"], state["event"], state["trading_session"]) == (17, 21, 101, 1)
    assert state["ts_open"] == DAY + 21 * 3_600_000_000_000 and state["flags"] == e.SNAPSHOT | e.LAST
    assert not len(events.rows("trades"))


def test_an_empty_snapshot_is_complete_at_once() -> None:
    (clear,) = rows(events_of(encoded(153, {369: 700, 911: 3, 48: 77, 268: []})), "mbo")
    assert clear["flags"] == e.SNAPSHOT | e.LAST


def test_unknown_entry_types_are_counted_and_keep_rpt_seq_whole() -> None:
    events = FastEventMapper(DECODER.layout)
    made = encoded(152, {268: [{**ENTRY, 269: "z"}, {**ENTRY, 269: "zz", 83: 6}, {**ENTRY, 269: "z", 83: 7}]})
    found = events_of(made, events=events)
    assert dict(events.unknown) == {"z": 2, "zz": 1}
    assert [(row["action"], row["rpt_seq"], row.get("entry_type")) for row in rows(found, "mbo")] == [
        ("N", 5, "z"),
        ("N", 6, None),
        ("N", 7, "z"),
    ]
    assert list(found.families) == ["mbo"]


@pytest.mark.parametrize(
    ("entry", "column"),
    [
        ({37: "A1B2"}, "order_id"),
        ({37: "9223372036854775808"}, "order_id"),
        ({270: Decimal(-10, 1)}, "price"),
        ({270: Decimal(1, 1_000_000_000)}, "price"),
        ({270: Decimal(-9, -(1 << 63))}, "price"),
        ({272: 20261131}, "ts_event"),
        ({273: 250000000}, "ts_event"),
        ({1500: "OM"}, "venue"),
    ],
)
def test_what_does_not_fit_is_null_and_flagged(entry: dict[int, Any], column: str) -> None:
    odd, fine = rows(x(entry, {37: "5"}), "mbo")
    assert column not in odd and odd["flags"] & e.OUT_OF_RANGE
    assert not fine["flags"] & e.OUT_OF_RANGE


@pytest.mark.parametrize(("price", "value"), [(Decimal(-10, 10), 1), (Decimal(-63, 0), 0), (Decimal(9, 9), 9 * 10**18)])
def test_what_fits_exactly_is_kept(price: Decimal, value: int) -> None:
    (row,) = rows(x({270: price}), "mbo")
    assert row["price"] == value and not row["flags"] & e.OUT_OF_RANGE


def test_unknown_condition_words_set_the_unknown_bit() -> None:
    (row,) = rows(x({269: "2", 277: "RL QQ RL"}), "trades")
    assert row["conditions"] == e.CONDITIONS["RL"] | e.CONDITIONS["UNKNOWN"]
    assert rows(x({276: "K ??"}), "mbo")[0]["flags"] == e.LAST | e.IMPLIED | e.OUT_OF_RANGE


def test_the_trade_date_is_that_of_sao_paulo_and_times_are_utc() -> None:
    entry = {**ENTRY, 269: "2", 272: 20261114, 273: 13000000}  # 01:30 UTC on the 14th is 22:30 on the 13th there
    made = encoded(152, {52: 20261114013000100, 75: 20261113, 268: [entry]})
    (row,) = rows(events_of(made), "trades")
    assert row["trade_date"] == DAY // 86_400_000_000_000
    assert row["ts_event"] == DAY + 86_400_000_000_000 + 5_400_000_000_000


def test_quarantined_messages_are_units_without_rows() -> None:
    fine, cut = encoded(144, {}), encoded(152, {268: [ENTRY]})[:-3]
    events = events_of(fine, cut, encoded(122, {36: 1}), msg_index=np.array([0, 1, 0]), channel_id=72, seq_version=4)
    assert events.units.sequence.tolist() == [9, e.NULL, 9]
    assert events.units.ts_send.tolist() == [SENT_NS, e.NULL, SENT_NS]
    assert events.units.channel_id.tolist() == [72] * 3 and events.units.seq_version.tolist() == [4] * 3
    assert [(row["unit"], row["kind"], row["next_sequence"]) for row in rows(events, "control")] == [
        (0, "H", 10),
        (2, "S", 1),
    ]


def test_rows_of_several_templates_stand_in_the_order_of_the_wire() -> None:
    made = [encoded(template_id, {268: [{**ENTRY, 48: 1 + n}]}) for n, template_id in enumerate((152, 145, 152, 145))]
    found = events_of(*made, msg_index=np.array([0, 1, 0, 1])).rows("mbo")
    assert found.unit.tolist() == [0, 1, 2, 3] and found.msg_index.tolist() == [0, 1, 0, 1]
    assert found.columns["instrument_id"].tolist() == [1, 2, 3, 4]


def test_damaged_messages_never_raise() -> None:
    chance = np.random.default_rng(7)
    for seed in range(30):
        made = [bytearray(one) for one in messages(TEMPLATES, 30, seed)]
        for one in made:
            one[int(chance.integers(len(one)))] ^= int(chance.integers(1, 256))
        events = events_of(*map(bytes, made))
        assert all(np.all(np.diff(found.wire_order) >= 0) for found in events.families.values())


OTHER_NAMES = b"""<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
  <template name="Inc" id="7">
    <string name="Kind" id="35"><constant value="X"/></string>
    <string name="Seq" id="34"/>
    <string name="When" id="52"/>
    <string name="Day" id="75"/>
    <sequence name="E"><length name="N" id="268"/>
      <string name="a" id="279"/><string name="b" id="269"/><string name="c" id="48"/><string name="d" id="83"/>
      <string name="e" id="270"/><decimal name="f" id="271"/><uInt64 name="g" id="37"/><uInt32 name="h" id="288"/>
      <uInt64 name="i" id="272"/><string name="j" id="273"/><uInt32 name="k" id="1500"><constant value="4"/></uInt32>
      <string name="l" id="290"/>
    </sequence>
  </template>
</templates>"""


def test_a_template_file_with_other_names_and_types_means_the_same() -> None:
    templates = loads(OTHER_NAMES)
    entry = {
        "a": "1", "b": "0", "c": "77", "d": "5", "e": "-10.5", "f": Decimal(2, 3), "g": 12, "h": 3, "i": 20261113,
        "j": "13:00:00.123", "l": "4",
    }  # fmt: skip
    values = {"Seq": "12", "When": "20261113-13:00:00.250", "Day": "2026-11-13", "E": [entry]}
    decoder = Decoder(templates)
    made = Writer(templates).encode(7, values)
    found = events_of(made, decoder=decoder, events=FastEventMapper(decoder.layout))
    assert found.units.sequence.tolist() == [12] and found.units.ts_send.tolist() == [SENT_NS]
    (row,) = rows(found, "mbo")
    assert row == {
        "unit": 0, "entry_index": 0, "action": "M", "side": "B", "price": -10_500_000_000, "size": 300, "order_id": 12,
        "firm": 3, "position": 4, "venue": "4", "update_action": 1, "entry_type": "0", "instrument_id": 77,
        "rpt_seq": 5, "ts_event": DAY + 46_800_123_000_000, "flags": e.LAST,
    }  # fmt: skip


def test_messages_know_their_kind_by_msg_type() -> None:
    status = {1151: "XX", 625: "02", 60: SENT, 75: 20261113, 1500: "E"}
    for template_id in (142, 1142):
        (row,) = rows(events_of(encoded(template_id, status)), "status")
        assert (row["security_group"], row["phase"], row["ts_event"]) == ("XX", 2, SENT_NS)
