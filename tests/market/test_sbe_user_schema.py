"""Events by a user's own schema: of the traffic's version, of another, and with templates that are gone since."""

from __future__ import annotations

from typing import Any

import pytest
from market.sbe_strategies import SCHEMA, event_dicts
from market.sbe_user_schema import user_file, user_schema
from wire.sbe.packet_builders import concatenate_packets
from wire.sbe.reference_codec import encode_packet

from umdf.book.engine import Books
from umdf.book.live import PacketApplier
from umdf.buffers import buffer_address
from umdf.errors import EncodeError
from umdf.market.families import OUT_OF_RANGE
from umdf.market.rows import Events
from umdf.market.sbe.events import SbeEventMapper
from umdf.market.sbe.messages import SbeMessageMapper
from umdf.wire.sbe.compose import compose_message
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.encode import Encoder
from umdf.wire.sbe.explain import explain
from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import OtherVersions, Schema
from umdf.wire.sbe.view import rows

VERSIONS = (8, 9, 10, 15, 16)
NULL = -(1 << 63)
ORDER: dict[str, Any] = {"securityID": 7, "matchEventIndicator": 128, "mDUpdateAction": 0, "mDEntryType": "0"}
ORDER |= {"mDEntryPx": "12.3400", "mDEntrySize": 100, "enteringFirm": 8, "mDInsertTimestamp": 5, "transactTime": 11}
ORDER |= {"secondaryOrderID": 1, "rptSeq": 1}
DELETE: dict[str, Any] = {"securityID": 7, "matchEventIndicator": 128, "mDEntryType": "0", "secondaryOrderID": 1}
DELETE |= {"transactTime": 12, "rptSeq": 3}
TRADE: dict[str, Any] = {"securityID": 7, "matchEventIndicator": 0, "tradingSessionID": 1, "tradeCondition": 1 << 13}
TRADE |= {
    "mDEntryPx": "12.3400",
    "mDEntrySize": 40,
    "tradeID": 10,
    "tradeDate": 19_926,
    "transactTime": 12,
    "rptSeq": 2,
}
ENTRY: dict[str, Any] = {"mDEntryPx": "9.0000", "mDEntrySize": 5, "secondaryOrderID": 6, "mDEntryType": "1"}


READERS: dict[tuple[str, bool], tuple[Decoder, SbeEventMapper]] = {}  # making them takes longer than most tests


def reader(schema: Schema, validity: bool = True) -> tuple[Decoder, SbeEventMapper]:
    key = schema.source, validity
    if key not in READERS:
        decoder = Decoder(schema, validity=validity)
        READERS[key] = decoder, SbeEventMapper(decoder.layout)
    READERS[key][1].reset()
    return READERS[key]


def decoded(schema: Schema, messages: list[bytes]) -> Batch:
    return reader(schema)[0].decode(*concatenate_packets([encode_packet(messages)]))


def events_of(schema: Schema, messages: list[bytes], *, validity: bool = True) -> Events:
    decoder, mapper = reader(schema, validity)
    batch = decoder.decode(*concatenate_packets([encode_packet(messages)]))
    assert not batch.quarantine
    return mapper.events(batch)


def traffic(version: int) -> list[bytes]:
    """An order, a trade with it, its delete (without a size before version 15), and a snapshot's order."""
    position = {"mDEntryPositionNo": 1} if version <= 15 else {}
    delete = DELETE | position | ({} if version < 15 else {"mDEntrySize": 60, "mDEntryPx": "12.3400"})
    by_name = [
        (50, ORDER | position),
        (53, TRADE),
        (51, delete),
        (71, {"securityID": 8, "noMDEntries": [ENTRY | position]}),
    ]
    return [compose_message(SCHEMA, template, values, version) for template, values in by_name]


@pytest.mark.parametrize("of_schema", VERSIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_schema_of_the_exchange_reads_every_version_as_ours_does(version: int, of_schema: int) -> None:
    messages, schema = traffic(version), user_schema(of_schema)
    found = event_dicts(
        events_of(schema, messages, validity=version != 10)
    )  # with a bitmap of every column, or without
    wanted = event_dicts(events_of(SCHEMA, messages))
    assert found.keys() == wanted.keys() == {"mbo", "trades"}
    # What a file cannot know: times that were renamed later, a price that came later, and that what was a position
    # before version 16 is padding since.
    lost = {"ts_event"} if version < 15 <= of_schema else set[str]()
    lost |= {"position"} if of_schema > 15 or version > 15 else set()
    for family, ours in wanted.items():
        for row, reference in zip(found[family], ours, strict=True):
            unknown = lost | ({"price"} if of_schema < 15 <= version and row["action"] == "C" else set())
            assert {k: v for k, v in row.items() if k not in unknown} == {
                k: v for k, v in reference.items() if k not in unknown
            }
            assert row["flags"] & OUT_OF_RANGE == 0


@pytest.mark.parametrize("version", [8, 15, 16])
def test_a_delete_needs_no_size_whatever_the_schema_requires(version: int) -> None:
    """Version 8 sends the null value of a size that was matched away; version 15 and later promise one."""
    schema = user_schema(16)
    delete = compose_message(SCHEMA, 51, DELETE, version)
    assert (NULL).to_bytes(8, "little", signed=True) in delete
    messages = [compose_message(SCHEMA, 50, ORDER, version), compose_message(SCHEMA, 53, TRADE, version), delete]
    batch, events = decoded(schema, messages), events_of(schema, messages)
    (row,) = [row for row in event_dicts(events)["mbo"] if row["action"] == "C"]
    assert row["size"] is None and row["flags"] & OUT_OF_RANGE == 0
    books = Books(requires_full_history=True)
    books.apply(events.rows("mbo"))
    book = books.book(7)
    assert book is not None and book.stale is None and book.bids == ()
    shown = next(row.fields for row in rows(batch) if row.node.path == "DeleteOrder_MBO_51")
    assert shown.get("mDEntrySize") == (None if version < 16 else NULL)  # what version 16 sends is what is shown


@pytest.mark.parametrize("version", VERSIONS)
def test_a_packet_at_a_time_is_read_as_a_batch_is(version: int) -> None:
    schema = user_schema(16)
    messages = [compose_message(SCHEMA, 50, ORDER, version), compose_message(SCHEMA, 53, TRADE, version)]
    messages.append(compose_message(SCHEMA, 51, DELETE, version))
    buffer = concatenate_packets([encode_packet(messages)])[0]
    books, live_books = Books(requires_full_history=True), Books(requires_full_history=True)
    outcomes = books.apply(events_of(schema, messages).rows("mbo"))
    live = PacketApplier(live_books, reader(schema)[0].layout)
    applied = live.apply(buffer_address(buffer), len(buffer))
    assert applied == 3 and live.outcomes(3).tolist() == outcomes.codes.tolist()
    for each in (books, live_books):
        book = each.book(7)
        assert book is not None and book.stale is None


def test_a_null_value_in_a_required_field_is_absent_only_in_traffic_older_than_the_schema() -> None:
    schema = user_schema(16)
    order = ORDER | {"mDUpdateAction": 255, "secondaryOrderID": (1 << 64) - 1}
    for version, absent in ((15, True), (16, False), (17, False)):
        batch = decoded(schema, [compose_message(SCHEMA, 50, order, version)])
        (row,) = rows(batch)
        assert ("mDUpdateAction" in row.fields, "secondaryOrderID" in row.fields) == (not absent, not absent)
        lines = {
            line.name: line for line in explain(schema, encode_packet([compose_message(SCHEMA, 50, order, version)]))
        }
        assert (lines["mDUpdateAction"].meaning == "absent") is absent
    ours = decoded(SCHEMA, [compose_message(SCHEMA, 50, order, 8)])
    assert next(iter(rows(ours))).fields["mDUpdateAction"] == 255  # ours says of every version what it requires


@pytest.mark.parametrize(
    ("of_schema", "versions", "said"),
    [
        (16, (16,), ""),
        (16, (8,), "of version 8, the schema exchange-16.xml of version 16: fields that had another name or place"),
        (16, (8, 9, 16), "of versions 8 to 9, the schema exchange-16.xml of version 16"),
        (
            8,
            (8, 16),
            "of version 16, the schema exchange-8.xml of version 8: what is newer than the schema is not decoded",
        ),
        (None, (8, 9, 10, 15, 16), ""),
        (None, (17,), "of version 17, the schema b3-umdf-2.2.0.xml of versions 8 to 16: what is new"),
        (None, (7, 17), "of versions 7 to 17, the schema b3-umdf-2.2.0.xml of versions 8 to 16: fields"),
    ],
)
def test_traffic_that_the_schema_was_not_written_for_is_reported_once(
    of_schema: int | None, versions: tuple[int, ...], said: str
) -> None:
    schema = SCHEMA if of_schema is None else user_schema(of_schema)
    found = OtherVersions(schema)
    for version in versions:
        for _ in range(2):
            batch = decoded(schema, [compose_message(SCHEMA, 53, TRADE, version)] * 2)
            assert (batch.other_versions is None) == (schema.oldest <= version <= schema.version)
            found.add(batch.other_versions)
    assert [notice for notice in found.notices() if said in notice] == found.notices()
    assert len(found.notices()) == (said != "")


def test_a_decimal_that_sends_its_exponent_is_no_number_of_an_event() -> None:
    """The exchange has none. A price by its mantissa alone would be wrong, so there is none."""
    constant = b'<composite name="Price">\n    <type name="mantissa" primitiveType="int64"/>\n    '
    constant += b'<type name="exponent" primitiveType="int8" presence="constant">-4</type>'
    file = user_file(16)
    assert constant in file
    schema = loads(file.replace(constant, constant.replace(b' presence="constant">-4</type>', b"/>")), "free.xml")
    trade = TRADE | {"mDEntryPx": {"mantissa": 1234, "exponent": -2}}
    events = events_of(schema, [compose_message(schema, 53, trade)])
    (row,) = event_dicts(events)["trades"]
    assert row["price"] is None and row["size"] == 40
    with pytest.raises(EncodeError, match=r"Trade_53\.mDEntryPx\.mantissa is required"):
        Encoder(schema).encode(*SbeMessageMapper(schema).messages(events))


BAND = {"securityID": 7, "matchEventIndicator": 128, "bandType": 2, "limitType": 1, "lowLimitPrice": "1.5"}
BAND |= {"highLimitPrice": "2.5", "tradingReferencePrice": "2", "mDEntryTimestamp": 9, "rptSeq": 4}


@pytest.mark.parametrize("template", [20, 22])
def test_a_price_band_of_an_older_template_reaches_the_events_by_its_tags(template: int) -> None:
    schema = user_schema(8)
    found = event_dicts(events_of(schema, [compose_message(schema, template, BAND)]))
    assert found.keys() == {"price_band", "mbo"}
    (band,), (moved,) = found["price_band"], found["mbo"]
    wanted = {"instrument_id": 7, "entry_type": "g", "price_band_type": 2, "price_limit_type": 1, "midpoint_type": None}
    wanted |= {"low_limit_price": 1_500_000_000, "high_limit_price": 2_500_000_000, "ts_event": 9, "rpt_seq": 4}
    wanted |= {"trading_reference_price": 2_000_000_000}
    assert {name: band[name] for name in wanted} == wanted
    assert (moved["action"], moved["rpt_seq"], moved["instrument_id"]) == ("N", 4, 7)


def definition(number: int, **values: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"securityID": number, "securityExchange": "BVMF", "securityIDSource": "8", "group": "DR"}
    given |= {"ticker": f"DOLZ{number}", "updateAction": "A", "securityType": 8, "securitySubType": 21}
    given |= {"totNoRelatedSym": 3, "minPriceIncrement": "0.5", "asset": "DOL", "description": f"Dólar {number}"}
    return given | values


def test_definitions_of_an_older_template_and_of_its_successor_are_one_list() -> None:
    """Names of codes, months, texts, lists of entries and their texts, in the order of the wire."""
    schema = user_schema(9)
    legs = [
        {"legSecurityID": n, "legRatioQty": "1.5", "legSecurityType": 8, "legSide": 1, "legSymbol": f"L{n}"}
        for n in (1, 2)
    ]
    under = [{"underlyingSecurityID": 5, "underlyingSymbol": "WINZ"}]
    given = [
        (4, definition(1, maturityMonthYear={"year": 2026, "month": 12}, noLegs=legs)),
        (12, definition(2, lotType=1, minLotSize=5, noUnderlyings=under)),
        (4, definition(3, securityType=11, noUnderlyings=[under[0] | {"indexPct": "1"}], noLegs=legs[:1])),
        (12, definition(4, maturityMonthYear={"year": 2027, "month": 1, "week": 2}, noLegs=legs)),
    ]
    messages = [compose_message(schema, template, values) for template, values in given]
    found = event_dicts(events_of(schema, messages))["definition"]
    assert [row["instrument_id"] for row in found] == [1, 2, 3, 4]
    assert [row["symbol"] for row in found] == ["DOLZ1", "DOLZ2", "DOLZ3", "DOLZ4"]
    assert [row["description"] for row in found] == [f"Dólar {n}" for n in (1, 2, 3, 4)]
    assert [row["security_type"] for row in found] == ["FUT", "FUT", "MLEG", "FUT"]
    assert [row["maturity_month_year"] for row in found] == [202612, None, None, 20270192]
    assert [row["tick"] for row in found] == [500_000_000] * 4
    assert [[leg["leg_symbol"] for leg in row["legs"]] for row in found] == [["L1", "L2"], [], ["L1"], ["L1", "L2"]]
    assert [leg["leg_ratio"] for leg in found[0]["legs"]] == [1_500_000_000] * 2
    assert [[each["underlying_symbol"] for each in row["underlyings"]] for row in found] == [[], ["WINZ"], ["WINZ"], []]
    assert [[each["lot_type"] for each in row["lots"]] for row in found] == [[], [1], [], []]
    # One template alone gives the same rows.
    for template in (4, 12):
        alone = [message for message, (number, _) in zip(messages, given, strict=True) if number == template]
        for row in event_dicts(events_of(schema, alone))["definition"]:
            reference = found[row["instrument_id"] - 1]
            place = {"unit", "msg_index"}
            assert {k: v for k, v in row.items() if k not in place} == {
                k: v for k, v in reference.items() if k not in place
            }


@pytest.mark.parametrize(("of_schema", "band", "definitions"), [(7, 20, 4), (8, 22, 12), (16, 22, 12)])
def test_events_are_written_by_the_newest_template_that_the_schema_has(
    of_schema: int, band: int, definitions: int
) -> None:
    schema = user_schema(of_schema)
    messages = [compose_message(schema, band, BAND), compose_message(schema, definitions, definition(1))]
    events = events_of(schema, messages)
    writer = SbeMessageMapper(schema)
    encoded = Encoder(schema).encode(*writer.messages(events))
    assert not writer.unmapped_rows
    decoder, mapper = reader(schema)
    again = decoder.decode(encoded.buffer, encoded.start, encoded.end)
    assert again.templates == sorted([band, definitions])
    found, wanted = event_dicts(mapper.events(again)), event_dicts(events)
    assert found["price_band"] == wanted["price_band"] and found["definition"] == wanted["definition"]
