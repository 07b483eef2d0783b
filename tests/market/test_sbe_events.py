"""Decoded Binary columns → events, against a slow reference in plain Python."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market.sbe_reference import events as expected_events
from market.sbe_strategies import SCHEMA, event_dicts, with_absent_columns
from wire.sbe.packet_builders import concatenate_packets, packets_of
from wire.sbe.strategies import MODES, encoded_messages, values

from umdf.market.families import LAST, NULL, SNAPSHOT
from umdf.market.sbe.conversion_plan import REQUIRED_COLUMNS
from umdf.market.sbe.events import SbeEventMapper
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Schema

TEMPLATES = sorted(SCHEMA.messages)


def packet(number: int, sequence: int, messages: list[bytes]) -> bytes:
    head = bytes([72, 0]) + (1).to_bytes(2, "little") + sequence.to_bytes(4, "little")
    return head + (10**18 + number).to_bytes(8, "little") + b"".join(messages)


DECODERS = {validity: Decoder(SCHEMA, validity=validity) for validity in (True, False)}
MAPPER = SbeEventMapper(SCHEMA)  # making its program takes longer than most tests


def decoded(packets: list[bytes], schema: Schema = SCHEMA, *, validity: bool = True) -> Batch:
    decoder = DECODERS[validity] if schema is SCHEMA else Decoder(schema)
    return decoder.decode(*concatenate_packets(packets))


def assert_as_reference(batches: list[Batch], *, snapshot: bool = False, mapped: list[Batch] | None = None) -> None:
    """The events of some batches are what the plain reference says, row by row and column by column."""
    MAPPER.reset()
    for batch, wanted in zip(mapped or batches, expected_events(batches, snapshot=snapshot), strict=True):
        found = event_dicts(MAPPER.events(batch, snapshot=snapshot))
        assert found.keys() == wanted.keys()
        for family, rows in wanted.items():
            assert len(found[family]) == len(rows)
            for ours, reference in zip(found[family], with_absent_columns(family, rows), strict=True):
                assert ours == reference, {n: (v, reference.get(n)) for n, v in ours.items() if v != reference.get(n)}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("mode", MODES)
def test_every_field_of_every_template_set_absent_and_extreme(template: int, mode: str) -> None:
    message = SCHEMA.messages[template]
    varied = mode in ("set", "random")

    @settings(max_examples=settings().max_examples // 8 if varied else 2)
    @given(st.lists(values(message, 16, mode, 3), min_size=1, max_size=3))
    def check(each: list[dict[str, Any]]) -> None:
        encoded = compose(SCHEMA, [Packet([(template, fields) for fields in each], sequence=1)])
        assert_as_reference([decoded(packets_of(encoded))])

    check()


@given(st.data(), st.booleans())
def test_any_messages_of_any_version_in_any_packets(data: st.DataObject, snapshot: bool) -> None:
    messages = st.lists(encoded_messages(SCHEMA, range(17, 7, -1)), max_size=4)
    packets = [
        packet(i, data.draw(st.sampled_from([i + 1, 0, i + 2])), data.draw(messages))
        for i in range(data.draw(st.integers(0, 5)))
    ]
    cut = data.draw(st.integers(0, len(packets)))
    parts = [packets[:cut], packets[cut:]]
    # What the rows are must not depend on whether the decoder made bitmaps.
    mapped = [decoded(part, validity=False) for part in parts]
    assert_as_reference([decoded(part) for part in parts], snapshot=snapshot, mapped=mapped)


def test_rows_are_in_the_order_of_the_wire_across_templates_and_packets() -> None:
    rng = np.random.default_rng(5)
    names = {50: "mDEntrySize", 51: "mDEntrySize", 53: "mDEntrySize", 56: "tradeVolume"}
    packets, sizes = [], []
    for number in range(40):
        messages = []
        for template in rng.choice(list(names), int(rng.integers(0, 6))).tolist():
            sizes.append(len(sizes) + 1)
            required = {"securityID": 7, "matchEventIndicator": 128, "rptSeq": len(sizes)}
            messages.append((template, _filled(template) | required | {names[template]: len(sizes)}))
        packets.append(Packet(messages, sequence=number + 1))
    events = SbeEventMapper(SCHEMA).events(decoded(packets_of(compose(SCHEMA, packets))))
    mbo = events.rows("mbo")
    assert mbo.columns["rpt_seq"].tolist() == sizes
    assert (np.diff(mbo.wire_order) > 0).all()
    both = np.concatenate([events.rows(name).columns["size"] for name in ("trades", "statistics")])
    orders = np.concatenate([events.rows(name).wire_order for name in ("trades", "statistics")])
    assert (np.diff(both[np.argsort(orders)]) > 0).all()


def _filled(template: int) -> dict[str, Any]:
    """Some value in every field that must be sent."""
    out: dict[str, Any] = {}
    for field in SCHEMA.messages[template].sent_fields:
        if field.parts[0].null is None:
            out[field.name] = "1" if field.parts[0].primitive == "char" or field.exponent is not None else 1
    return out


def test_the_book_always_has_what_its_kernel_reads() -> None:
    for template in (50, 11, 71):
        message = _filled(template) | ({"noMDEntries": [_entry()]} if template == 71 else {})
        batch = decoded(packets_of(compose(SCHEMA, [Packet([(template, message)])])))
        mbo = SbeEventMapper(batch.layout).events(batch).rows("mbo")
        assert set(REQUIRED_COLUMNS["mbo"]) <= mbo.columns.keys()
        for name in REQUIRED_COLUMNS["mbo"]:
            assert len(mbo.columns[name]) == 1 and mbo.columns[name].flags.c_contiguous


def _entry() -> dict[str, Any]:
    return {"mDEntrySize": 5, "secondaryOrderID": 9, "mDEntryType": "0", "matchEventIndicator": 0}


SUMMARY = {"securityID": 7, "aggressorSide": 1, "lastPx": "1", "fillQty": 1}
TRADE = _filled(53) | {"securityID": 7, "matchEventIndicator": 0}
END = _filled(56) | {"securityID": 7, "matchEventIndicator": 128, "rptSeq": 5}


def sides(packets: list[Packet], cuts: tuple[int, ...] = ()) -> str:
    """The sides of the trades of some packets, mapped in batches that start at these cuts."""
    encoded = packets_of(compose(SCHEMA, packets))
    bounds = [0, *cuts, len(encoded)]
    batches = [decoded(encoded[a:b]) for a, b in itertools.pairwise(bounds)]
    mapper = SbeEventMapper(SCHEMA)
    found = [mapper.events(batch).rows("trades").column("side").tobytes() for batch in batches]
    assert_as_reference(batches)
    return b"".join(found).decode()


def test_the_aggressor_is_known_from_the_summary_until_the_event_ends() -> None:
    sell = SUMMARY | {"aggressorSide": 2}
    other = SUMMARY | {"securityID": 8}
    event = [(55, SUMMARY), (53, TRADE), (53, TRADE), (56, END)]
    assert sides([Packet(event, sequence=1)]) == "BB"
    assert sides([Packet([*event, (53, TRADE)], sequence=1)]) == "BBN"
    assert sides([Packet([(53, TRADE), (55, SUMMARY), (55, sell), (53, TRADE)], sequence=1)]) == "NA"
    assert sides([Packet([(55, other), (53, TRADE), (53, TRADE | {"securityID": 8})], sequence=1)]) == "NB"
    assert sides([Packet([(55, SUMMARY), (57, _filled(57) | {"securityID": 7}), (53, TRADE)], sequence=1)]) == "NB"


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2), (1, 2, 3)])
def test_an_event_can_span_packets_and_batches(cuts: tuple[int, ...]) -> None:
    heart = Packet([(2, {"nextSeqNo": 3})], sequence=0)
    event = [Packet([(55, SUMMARY)], sequence=1), Packet([(53, TRADE)], sequence=2), heart]
    event += [Packet([(53, TRADE), (56, END), (53, TRADE)], sequence=3)]
    assert sides(event, cuts) == "BBN"


@pytest.mark.parametrize("cuts", [(), (1,)])
def test_after_a_lost_packet_no_trade_is_given_a_side(cuts: tuple[int, ...]) -> None:
    assert sides([Packet([(55, SUMMARY)], sequence=1), Packet([(53, TRADE)], sequence=3)], cuts) == "N"
    assert sides([Packet([(55, SUMMARY)], sequence=1), Packet([(53, TRADE)], sequence=2, seq_version=2)], cuts) == "N"


def test_more_open_summaries_than_fit_drop_the_oldest() -> None:
    storm = [(55, SUMMARY | {"securityID": number}) for number in range(200)]
    assert sides_of_last([Packet([*storm, (53, TRADE | {"securityID": 199})], sequence=1)]) == "B"


def sides_of_last(packets: list[Packet]) -> str:
    batch = decoded(packets_of(compose(SCHEMA, packets)))
    return chr(SbeEventMapper(SCHEMA).events(batch).rows("trades").columns["side"][-1])


def test_a_price_that_does_not_fit_is_absent_and_flagged() -> None:
    order = _filled(50) | {"mDEntryPx": "922337203685477.5807", "matchEventIndicator": 128}
    fits = order | {"mDEntryPx": "9223372036.8547"}
    encoded = compose(SCHEMA, [Packet([(50, order), (50, fits), (50, order | {"mDEntryPx": "-9223372036.8548"})])])
    mbo = SbeEventMapper(SCHEMA).events(decoded(packets_of(encoded))).rows("mbo")
    assert mbo.columns["price"].tolist() == [NULL, 9223372036_854700000, NULL]
    assert mbo.columns["flags"].tolist() == [LAST | 1024, LAST, LAST | 1024]


def test_a_schema_without_some_field_has_an_absent_column() -> None:
    content = _source().replace(b'<field name="enteringFirm"', b'<field name="other"').replace(b'id="37501"', b'id="9"')
    batch = decoded(packets_of(compose(SCHEMA, [Packet([(50, _filled(50) | {"enteringFirm": 3})])])), loads(content))
    assert SbeEventMapper(batch.layout).events(batch).rows("mbo").columns["firm"].tolist() == [NULL]


def test_a_renamed_field_is_found_by_its_tag() -> None:
    content = (
        _source().replace(b'name="secondaryOrderID"', b'name="OrderNumber"').replace(b'"securityID"', b'"SecurityId"')
    )
    batch = decoded(
        packets_of(compose(SCHEMA, [Packet([(50, _filled(50) | {"secondaryOrderID": 77})])])), loads(content)
    )
    mbo = SbeEventMapper(batch.layout).events(batch).rows("mbo")
    assert (mbo.columns["order_id"].tolist(), mbo.columns["instrument_id"].tolist()) == ([77], [1])


def test_exponents_come_from_the_schema() -> None:
    content = _source().replace(b'presence="constant">-4<', b'presence="constant">-2<')
    batch = decoded(
        packets_of(compose(SCHEMA, [Packet([(50, _filled(50) | {"mDEntryPx": "0.0123"})])])), loads(content)
    )
    assert SbeEventMapper(batch.layout).events(batch).rows("mbo").columns["price"].tolist() == [1_230_000_000]


def _source() -> bytes:
    from importlib import resources

    return resources.files("umdf.schemas").joinpath("sbe", "b3-umdf-2.2.0.xml").read_bytes()


def test_units_are_the_packets_and_ts_recv_is_the_callers() -> None:
    batch = decoded(packets_of(compose(SCHEMA, [Packet([], 72, 3, 9, 5), Packet([], 72, 3, 10, 6)])))
    units = SbeEventMapper(SCHEMA).events(batch, np.array([11, 12])).units
    assert (units.channel_id.tolist(), units.seq_version.tolist()) == ([72, 72], [3, 3])
    assert (units.sequence.tolist(), units.ts_send.tolist(), units.ts_recv.tolist()) == ([9, 10], [5, 6], [11, 12])
    assert SbeEventMapper(SCHEMA).events(batch).units.ts_recv.tolist() == [NULL, NULL]


def test_events_in_use_are_not_overwritten() -> None:
    decoder, mapper = Decoder(SCHEMA), SbeEventMapper(SCHEMA)
    held = []
    for number in range(1, 20):
        packets = packets_of(compose(SCHEMA, [Packet([(50, _filled(50) | {"secondaryOrderID": number})])]))
        held.append(mapper.events(decoder.decode(*concatenate_packets(packets))))
    assert [events.rows("mbo").columns["order_id"].tolist() for events in held] == [[n] for n in range(1, 20)]


def test_every_row_of_a_snapshot_stream_says_so() -> None:
    messages = [(template, _filled(template)) for template in (10, 3, 30, 24)]
    batch = decoded(packets_of(compose(SCHEMA, [Packet(messages)])))
    events = SbeEventMapper(SCHEMA).events(batch, snapshot=True)
    assert events.families.keys() == {"status", "snapshot", "mbo", "statistics"}
    assert all((rows.columns["flags"] & SNAPSHOT != 0).all() for rows in events.families.values())
