"""Our schema file against the rows of the reference, and a file in the exchange's own style."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from umdf.wire.sbe.loader import load, loads
from umdf.wire.sbe.schema import CONSTANT, OPTIONAL, REQUIRED, Block, Field, Group, Part

SCHEMA = load()
LEAST64 = -(1 << 63)

# The types that can say "absent" by themselves: a required field of such a type may still carry that value.
NULLS = dict.fromkeys(
    """UTCTimestampNanos RptSeq FirmOptional SecurityIDOptional ClearingHouseID NewsID Percentage LocalMktDateOptional
    LocalMktDate32Optional UInt16NULL UInt32NULL UInt64NULL PriceType OptPayoutType TrdSubType MarketSegmentID
    MaturityMonthYear MDEntryPositionNo""".split(),
    0,
) | dict.fromkeys(
    """PriceOptional PriceOffset8Optional Fixed8 RatioQty QuantityOptional QuantityVolumeOptional
    UTCTimestampSeconds""".split(),
    LEAST64,
)
# The types whose fields say whether they may be absent.
NULLS_IF_OPTIONAL = {
    "SettlType": 65535,
    "MatchEventIndicator": None,  # a set has no null value
    **dict.fromkeys("LanguageCode CountryCode ISINNumber Currency SecurityStrategyType".split(), 0),
    **dict.fromkeys(
        """SecurityTradingEvent LotType UInt8 ExerciseStyle PutOrCall GovernanceIndicator SecurityMatchType Boolean
        MultiLegModel MultiLegPriceMethod PriceBandType ImpliedMarketIndicator PriceLimitType
        PriceBandMidpointPriceType""".split(),
        255,
    ),
}
EXPONENTS = {"Price": -4, "PriceOptional": -4, "Price8": -8, "PriceOffset8Optional": -8, "Fixed8": -8}
EXPONENTS |= {"Percentage": -4, "RatioQty": -7}


def reference() -> Iterator[tuple[Block, list[str]]]:
    """Every row of the table with the block that it belongs to; rows that open a block included."""
    root: Block | None = None
    block: Block | None = None
    for line in Path(__file__).with_name("reference_table.txt").read_text().splitlines():
        words = line.split()
        match words[0]:
            case "#" | "enum" | "codes" | "more":
                continue
            case "message":
                root = block = SCHEMA.messages[int(words[1])]
            case "group":
                assert root is not None
                block = next(group for group in root.groups if group.name == words[2])
            case "tail":
                block = root
                continue
        assert block is not None
        yield block, words


def rows(*kinds: str) -> list[tuple[Block, list[str]]]:
    return [(block, words) for block, words in reference() if words[0] in kinds or (not kinds and words[0].isdigit())]


def enums() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in Path(__file__).with_name("reference_table.txt").read_text().splitlines():
        words = line.split()
        if words[0] in ("enum", "codes"):
            name = words[1]
            found[name] = words[2:]
        elif words[0] == "more":
            found[name] += words[1:]
    return found


def named(block: Block, name: str) -> Field:
    return next(field for field in block.fields if field.name == name)


def every_block() -> Iterator[Block]:
    for message in SCHEMA.messages.values():
        yield message
        yield from message.groups


def every_field() -> Iterator[Field]:
    for block in every_block():
        yield from block.fields


def label(value: object) -> str:
    return value.name if isinstance(value, Block) else "-".join(value[:2]) if isinstance(value, list) else str(value)


def test_our_schema_is_the_one_that_the_feed_announces():
    assert (SCHEMA.id, SCHEMA.version, SCHEMA.semantic_version) == (2, 16, "2.2.0")
    assert SCHEMA.package == "b3.umdf.mbo.sbe"
    assert load() is SCHEMA


@pytest.mark.parametrize(("block", "words"), rows("message", "group"), ids=label)
def test_blocks_have_the_number_name_and_length_of_the_reference(block, words):
    number = block.tag if isinstance(block, Group) else block.template_id
    assert [str(number), block.name, str(block.block_length)] == words[1:]


def test_there_are_no_other_messages_groups_or_fields_than_those_of_the_reference():
    assert len(SCHEMA.messages) == len(rows("message")) == 29
    assert sum(len(message.groups) for message in SCHEMA.messages.values()) == len(rows("group")) == 4
    assert sum(len(block.data) for block in every_block()) == len(rows("data"))
    known = {(block.name, words[1]) for block, words in rows()}
    extra = {(b.name, f.name) for b in every_block() for f in b.sent_fields} - known
    positions = ["Order_MBO_50", "DeleteOrder_MBO_51", "MassDeleteOrders_MBO_52", "noMDEntries"]
    assert extra == {(name, "mDEntryPositionNo") for name in positions}


@pytest.mark.parametrize(("block", "words"), rows(), ids=label)
def test_a_field_stands_where_the_reference_puts_it(block, words):
    tag, name, presence, kind, offset, size = words[:6]
    field = named(block, name)
    assert (field.tag, field.type, field.offset, field.end) == (int(tag), kind, int(offset), int(offset) + int(size))
    assert field.since == (int(words[7]) if len(words) > 6 else 0)
    assert field.until is None
    may_be_absent = presence == "O" or kind in NULLS
    assert field.presence == (OPTIONAL if may_be_absent else REQUIRED)
    null = (NULLS | NULLS_IF_OPTIONAL)[kind] if may_be_absent else None
    assert {part.null for part in field.parts} == {null}
    assert field.exponent == EXPONENTS.get(kind)
    assert field.time_unit == {"UTCTimestampNanos": 9, "UTCTimestampSeconds": 0}.get(kind)


@pytest.mark.parametrize(("block", "words"), rows("const"), ids=label)
def test_constants_have_the_values_of_the_reference_and_are_not_sent(block, words):
    for word in words[1:]:
        (tag, name), value = word.partition("=")[0].split(":"), word.partition("=")[2]
        field = named(block, name)
        assert (field.tag, field.presence, field.parts) == (int(tag), CONSTANT, ())
        is_number = field.type in ("ApplVerID", "MDUpdateAction", "OpenCloseSettlFlag", "SeqNum1")
        assert field.constant == (int(value) if is_number else value)


def test_every_constant_field_is_in_the_reference():
    stated = sum(len(words) - 1 for _, words in rows("const"))
    assert sum(field.presence == CONSTANT for field in every_field()) == stated


@pytest.mark.parametrize(("block", "words"), rows("data"), ids=label)
def test_texts_follow_the_block(block, words):
    data = next(data for data in block.data if data.name == words[2])
    size = {"VarString": 2, "TextEncoding": 1}[words[3]]
    assert (data.tag, data.type, data.length_size, data.encoding) == (int(words[1]), words[3], size, "UTF-8")


@pytest.mark.parametrize(
    ("template", "lengths"),
    # of versions 8, 9, 10, 15 and 16
    [
        (12, (230, 230, 231, 231, 232)),
        (15, (44, 44, 44, 44, 44)),
        (27, (68, 68, 68, 68, 68)),
        (30, (32, 32, 32, 34, 34)),
        (50, (64, 64, 64, 64, 72)),
        (51, (44, 44, 44, 52, 52)),
        (53, (56, 56, 56, 56, 56)),
        (54, (68, 68, 68, 68, 68)),
        (71, (8, 8, 8, 8, 8)),
    ],
)
def test_older_versions_send_shorter_blocks(template, lengths):
    message = SCHEMA.messages[template]
    assert tuple(message.block_length_of(version) for version in (8, 9, 10, 15, 16)) == lengths


def test_only_these_blocks_ever_changed_their_length():
    changed = {b.name for b in every_block() if b.block_length_of(8) != b.block_length}
    expected = {"SecurityDefinition_12", "Order_MBO_50", "DeleteOrder_MBO_51", "SnapshotFullRefresh_Header_30"}
    assert changed == expected | {"noMDEntries"}
    orders = SCHEMA.messages[71].groups[0]
    assert [orders.block_length_of(version) for version in (8, 9, 10, 15, 16)] == [41, 41, 42, 42, 42]


def test_messages_know_the_version_that_brought_them():
    assert {m.template_id: m.since for m in SCHEMA.messages.values() if m.since} == {12: 8, 22: 8, 28: 9, 29: 9}


@pytest.mark.parametrize(("template", "offset"), [(50, 28), (51, 12), (52, 12), (71, 16)])
def test_positions_stand_in_what_is_padding_since_version_16(template, offset):
    message = SCHEMA.messages[template]
    field = named(message.groups[0] if template == 71 else message, "mDEntryPositionNo")
    assert field.parts == (Part("", "uint32", offset, null=0),)
    assert (field.tag, field.presence, field.until) == (290, OPTIONAL, 15)
    assert field.in_version(8) and field.in_version(15) and not field.in_version(16)


def test_maturities_have_four_parts():
    parts = named(SCHEMA.messages[12], "maturityMonthYear").parts
    assert [(p.name, p.primitive, p.offset) for p in parts] == [
        ("year", "uint16", 188), ("month", "uint8", 190), ("day", "uint8", 191), ("week", "uint8", 192)]  # fmt: skip


def test_groups_announce_two_bytes_of_length_and_one_of_count():
    groups = [group for message in SCHEMA.messages.values() for group in message.groups]
    assert {(group.length_size, group.count_size) for group in groups} == {(2, 1)}


@pytest.mark.parametrize(("name", "words"), enums().items(), ids=label)
def test_enums_name_every_code_of_the_reference(name, words):
    if name == "SecuritySubType":
        codes = named(SCHEMA.messages[12], "securitySubType").codes
        assert list(codes) == [int(word) for word in words]
        assert all(text.isidentifier() and text.isupper() for text in codes.values())
        return
    encoding, pairs = words[0], [word.split("=") for word in words[1:]]
    expected = {code if encoding == "char" else int(code): text for code, text in pairs}
    fields = [field for field in every_field() if field.type == name]
    assert fields
    assert all(field.codes == expected for field in fields)
    assert {part.primitive for field in fields for part in field.parts} <= {encoding.removesuffix("NULL").lower()}


def test_every_enum_is_in_the_reference_but_the_settlement_price_type():
    of_fields = {field.type for field in every_field() if field.codes and field.name != "securitySubType"}
    assert of_fields - set(enums()) == {"SettlPriceType"}  # its codes stand in the FIX/FAST reference only
    assert named(SCHEMA.messages[28], "settlPriceType").codes == {1: "FINAL", 2: "THEORETICAL", 3: "UPDATED"}


def test_sets_name_their_bits():
    trade = SCHEMA.messages[53]
    assert named(trade, "tradeCondition").bits == {
        0: "OpeningPrice", 1: "Crossed", 2: "LastTradeAtTheSamePrice", 3: "OutOfSequence", 6: "TradeOnBehalf",
        13: "RegularTrade", 14: "BlockTrade"}  # fmt: skip
    indicator = named(trade, "matchEventIndicator").bits
    assert [indicator[bit] for bit in (4, 5, 7)] == ["Implied", "RecoveryMsg", "EndOfEvent"]
    assert {indicator[bit] for bit in (0, 1, 2, 3, 6)} == {"Reserved"}
    imbalance = named(SCHEMA.messages[19], "imbalanceCondition")
    assert imbalance.bits == {8: "ImbalanceMoreBuyers", 9: "ImbalanceMoreSellers"}


def test_fields_carry_the_fix_type_by_which_they_are_shown():
    definition = SCHEMA.messages[12]
    shown = "symbol strikePrice minOrderQty issueDate maturityMonthYear lastFragment currency".split()
    kinds = [named(definition, name).semantic for name in shown]
    assert kinds == ["String", "Price", "Qty", "LocalMktDate", "MonthYear", "Boolean", "Currency"]
    assert {field.semantic for field in every_field()} >= {"UTCTimestamp", "Exchange", "char", "Int", "SeqNum"}
    assert all(field.semantic for field in every_field())
    assert {m.template_id: m.semantic for m in SCHEMA.messages.values()} == {
        number: named(message, "messageType").constant for number, message in SCHEMA.messages.items()
    }


# The shape of the exchange's own file: a DOCTYPE, several <types>, hardly any offsets and block lengths, presence now
# on the type and now on the field, null values through the encoding type of an enum.
OFFICIAL = b"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<!DOCTYPE xml>
<!-- a long comment -->
<sbe:messageSchema xmlns:ns2="http://www.fixprotocol.org/ns/simple/1.0" xmlns:sbe="http://fixprotocol.io/2016/sbe"
    package="b3.umdf.mbo.sbe" id="2" version="9" semanticVersion="1.8.0" byteOrder="littleEndian">
  <types>
    <composite name="MessageHeader"><type name="blockLength" primitiveType="uint16"/></composite>
    <composite name="GroupSizeEncoding">
      <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint8"/>
    </composite>
    <composite name="TextEncoding">
      <type name="length" primitiveType="uint8"/>
      <type name="varData" primitiveType="char" length="0" characterEncoding="UTF-8"/>
    </composite>
    <composite name="UTCTimestampNanos" semanticType="UTCTimestamp">
      <type name="time" primitiveType="uint64" presence="optional" nullValue="0" timeUnit="nanosecond"/>
      <type name="unit" primitiveType="uint8" presence="constant" valueRef="TimeUnit.NANOSECOND"/>
    </composite>
    <composite name="Decimal">
      <type name="mantissa" primitiveType="int64"/><ref name="exponent" type="Exponent"/>
    </composite>
    <composite name="Price">
      <type name="mantissa" primitiveType="int64"/>
      <type name="exponent" primitiveType="int8" presence="constant">-4</type>
    </composite>
  </types>
  <types>
    <type name="Exponent" primitiveType="int8"/>
    <type name="UInt8NULL" primitiveType="uint8" presence="optional" nullValue="0"/>
    <type name="CharNULL" primitiveType="char" presence="optional" nullValue="0"/>
    <type name="SeqNum1" primitiveType="uint32" presence="constant">1</type>
    <type name="BVMF" primitiveType="char" length="4" characterEncoding="ASCII" presence="constant">BVMF</type>
    <type name="Quantity" primitiveType="int64"/>
    <type name="SecurityID" primitiveType="uint64"/>
    <enum name="TimeUnit" encodingType="uint8">
      <validValue name="SECOND">0</validValue><validValue name="NANOSECOND">9</validValue>
    </enum>
    <enum name="PriceType" encodingType="UInt8NULL">
      <validValue name="PERCENTAGE" description="">1</validValue>
      <validValue name="RESERVED1" sinceVersion="3" deprecated="5">1</validValue>
    </enum>
    <enum name="Kind" encodingType="CharNULL"><validValue name="BID">0</validValue></enum>
    <enum name="Side" encodingType="uint8"><validValue name="BUY">1</validValue></enum>
    <set name="Flags" encodingType="uint16">
      <choice name="OpeningPrice">0</choice><choice name="Reserved">1</choice><choice name="Reserved">15</choice>
    </set>
  </types>
  <sbe:message name="SecurityDefinition_4" id="4" description="old" deprecated="8">
    <field name="timeUnit" id="1" type="TimeUnit" presence="constant" valueRef="TimeUnit.SECOND"/>
    <field name="newSeqNo" id="36" type="SeqNum1"/>
    <field name="securityExchange" id="207" type="BVMF"/>
    <field name="securityID" id="48" type="SecurityID"/>
    <field name="priceType" id="423" type="PriceType" presence="required"/>
    <field name="kind" id="269" type="Kind"/>
    <field name="side" id="54" type="Side" presence="optional" sinceVersion="2"/>
    <field name="flags" id="277" type="Flags" presence="optional"/>
    <field name="size" id="271" type="Quantity" offset="16" presence="optional"/>
    <field name="price" id="270" type="Price" presence="optional"/>
    <field name="time" id="60" type="UTCTimestampNanos"/>
    <field name="free" id="9" type="Decimal"/>
    <field name="count" id="10" type="uint32"/>
    <group name="noLegs" id="555" dimensionType="GroupSizeEncoding">
      <field name="legSide" id="624" type="Side"/>
      <group name="inner" id="556" dimensionType="GroupSizeEncoding" blockLength="4"/>
    </group>
    <data name="securityDesc" id="107" type="TextEncoding"/>
  </sbe:message>
</sbe:messageSchema>
"""


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "b3-market-data-messages-1.8.0.xml"
    path.write_bytes(OFFICIAL)
    return load(path)


def test_a_file_in_the_exchanges_style_is_laid_out_without_offsets(official):
    message = official.messages[4]
    assert (official.version, official.semantic_version, Path(official.source).suffix) == (9, "1.8.0", ".xml")
    assert [(f.name, f.presence, f.parts) for f in message.sent_fields] == [
        ("securityID", REQUIRED, (Part("", "uint64", 0, null_before=(1 << 64) - 1),)),
        ("priceType", OPTIONAL, (Part("", "uint8", 8, null=0),)),
        ("kind", OPTIONAL, (Part("", "char", 9, null=0),)),
        ("side", OPTIONAL, (Part("", "uint8", 10, null=255),)),
        ("flags", OPTIONAL, (Part("", "uint16", 11),)),
        ("size", OPTIONAL, (Part("", "int64", 16, null=LEAST64),)),
        ("price", OPTIONAL, (Part("", "int64", 24, null=LEAST64),)),
        ("time", OPTIONAL, (Part("", "uint64", 32, null=0),)),
        (
            "free",
            REQUIRED,
            (Part("mantissa", "int64", 40, null_before=LEAST64), Part("exponent", "int8", 48, null_before=-128)),
        ),
        ("count", REQUIRED, (Part("", "uint32", 49, null_before=(1 << 32) - 1),)),
    ]
    assert message.block_length == 53
    assert message.block_length_of(1) == 53  # side is new in 2, but stands before older fields


def test_a_file_in_the_exchanges_style_gives_constants_exponents_and_codes(official):
    message = official.messages[4]
    constants = {f.name: f.constant for f in message.fields if f.presence == CONSTANT}
    assert constants == {"timeUnit": 0, "newSeqNo": 1, "securityExchange": "BVMF"}
    assert (named(message, "price").exponent, named(message, "free").exponent) == (-4, None)
    assert named(message, "time").time_unit == 9
    assert named(message, "priceType").codes == {1: "PERCENTAGE"}  # the first name of a code counts
    assert named(message, "kind").codes == {"0": "BID"}
    assert named(message, "flags").bits == {0: "OpeningPrice", 1: "Reserved", 15: "Reserved"}


def test_a_file_in_the_exchanges_style_gives_groups_and_texts(official):
    (legs,) = official.messages[4].groups
    assert (legs.name, legs.tag, legs.block_length, legs.groups[0].block_length) == ("noLegs", 555, 1, 4)
    (text,) = official.messages[4].data
    assert (text.name, text.tag, text.length_size, text.encoding) == ("securityDesc", 107, 1, "UTF-8")


def test_loads_names_its_source():
    assert loads(OFFICIAL).source == "<string>"
    assert loads(OFFICIAL, "mine.xml").source == "mine.xml"
