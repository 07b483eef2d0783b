"""Schemas as the exchange publishes them, a file a version: what a user passes with --sbe-schema.

Not our file with other words: types by other names and shapes, fewer offsets, `mDEntrySize` of a delete required since
version 15, `transactTime` known since then only (before, the same bytes were `mDEntryTimestamp`), positions only before
version 16, the templates 4 and 20 up to version 9. Texts are ours; facts are those of the published files.
"""

from __future__ import annotations

from functools import cache

from umdf.wire.sbe.loader import loads
from umdf.wire.sbe.schema import Schema

TYPES = """
  <composite name="messageHeader">
    <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
    <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
  </composite>
  <composite name="GroupSizeEncoding">
    <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint8"/>
  </composite>
  <enum name="MessageType" encodingType="char">
    <validValue name="X">X</validValue><validValue name="D">d</validValue><validValue name="W">W</validValue>
  </enum>
  <enum name="MDUpdateAction" encodingType="uint8">
    <validValue name="NEW">0</validValue><validValue name="CHANGE">1</validValue>
    <validValue name="DELETE">2</validValue>
  </enum>
  <enum name="MDEntryType" encodingType="char">
    <validValue name="BID">0</validValue><validValue name="OFFER">1</validValue><validValue name="BAND">g</validValue>
    <validValue name="TRADE">2</validValue>
  </enum>
  <enum name="SecurityType" encodingType="uint8">
    <validValue name="CS">3</validValue><validValue name="FUT">8</validValue><validValue name="MLEG">11</validValue>
  </enum>
  <enum name="Side" encodingType="uint8"><validValue name="BUY">1</validValue></enum>
  <enum name="Code" encodingType="uint8"><validValue name="SOME">1</validValue></enum>
  <type name="SubTypeCode" primitiveType="uint8" presence="optional" nullValue="0"/>
  <set name="MatchEventIndicator" encodingType="uint8"><choice name="EndOfEvent">7</choice></set>
  <set name="TradeCondition" encodingType="uint16"><choice name="RegularTrade">13</choice></set>
  <type name="SecurityID" primitiveType="uint64"/><type name="OrderID" primitiveType="uint64"/>
  <type name="Firm" primitiveType="uint32" presence="optional" nullValue="0"/>
  <type name="RptSeq" primitiveType="uint32" presence="optional" nullValue="0"/>
  <type name="Position" primitiveType="uint32"/><type name="Count" primitiveType="uint32"/>
  <type name="SubType" primitiveType="uint16"/><type name="Date" primitiveType="uint16"/>
  <type name="Date32" primitiveType="int32" presence="optional" nullValue="0"/>
  <type name="Quantity" primitiveType="int64"/>
  <type name="QuantityOptional" primitiveType="int64" presence="optional"/>
  <type name="Action" primitiveType="char"/><type name="Text3" primitiveType="char" length="3"/>
  <type name="Text4" primitiveType="char" length="4"/><type name="Text6" primitiveType="char" length="6"/>
  <type name="Text20" primitiveType="char" length="20"/>
  <composite name="Price">
    <type name="mantissa" primitiveType="int64"/>
    <type name="exponent" primitiveType="int8" presence="constant">-4</type>
  </composite>
  <composite name="PriceOptional">
    <type name="mantissa" primitiveType="int64" presence="optional"/>
    <type name="exponent" primitiveType="int8" presence="constant">-4</type>
  </composite>
  <composite name="Fixed8">
    <type name="mantissa" primitiveType="int64" presence="optional"/>
    <type name="exponent" primitiveType="int8" presence="constant">-8</type>
  </composite>
  <composite name="Ratio">
    <type name="mantissa" primitiveType="int64" presence="optional"/>
    <type name="exponent" primitiveType="int8" presence="constant">-7</type>
  </composite>
  <composite name="Time">
    <type name="time" primitiveType="uint64" presence="optional" nullValue="0"/>
    <type name="unit" primitiveType="uint8" presence="constant">9</type>
  </composite>
  <composite name="MonthYear">
    <type name="year" primitiveType="uint16" presence="optional" nullValue="0"/>
    <type name="month" primitiveType="uint8" presence="optional" nullValue="0"/>
    <type name="day" primitiveType="uint8" presence="optional" nullValue="0"/>
    <type name="week" primitiveType="uint8" presence="optional" nullValue="0"/>
  </composite>
  <composite name="Text">
    <type name="length" primitiveType="uint8"/>
    <type name="varData" primitiveType="char" length="0" characterEncoding="UTF-8"/>
  </composite>"""

_HEAD = '<field name="messageType" id="35" type="MessageType" presence="constant" valueRef="MessageType.{}"/>'
_SECURITY = '<field name="securityID" id="48" type="SecurityID"/>'
_EVENT = '<field name="matchEventIndicator" id="37035" type="MatchEventIndicator"/>'
_ENTRY = '<field name="mDEntryType" id="269" type="MDEntryType"{}/>'
_RPT_SEQ = '<field name="rptSeq" id="83" type="RptSeq"/>'


def _constant(entry: str) -> str:
    action = (
        '<field name="mDUpdateAction" id="279" type="MDUpdateAction" presence="constant" valueRef="MDUpdateAction.{}"/>'
    )
    kind = ' presence="constant" valueRef="MDEntryType.{}"'
    return action.format("NEW") + _ENTRY.format(kind.format(entry))


def _time(version: int) -> str:
    if version < 15:
        return '<field name="mDEntryTimestamp" id="37033" type="Time"{}/>'
    return '<field name="transactTime" id="60" type="Time" sinceVersion="15"{}/>'


def _position(version: int, place: str = "") -> str:
    if version > 15:
        return ""
    presence = ' presence="optional" deprecated="15"' if version == 15 else ""
    return f'<field name="mDEntryPositionNo" id="290" type="Position"{presence}{place}/>'


def _orders(version: int) -> str:
    time, gap = _time(version), version > 15
    size = "QuantityOptional" if version < 15 else "Quantity"
    previous = (
        '<field name="mDEntryPrevSize" id="37780" type="QuantityOptional" presence="optional" sinceVersion="16"/>'
    )
    price = '<field name="mDEntryPx" id="270" type="PriceOptional" presence="optional"{}/>'
    implied = '<field name="matchEventIndicator" id="37035" type="MatchEventIndicator" sinceVersion="10"/>'
    return f"""
  <sbe:message name="Order_MBO_50" id="50">{_HEAD.format("X")}{_SECURITY}{_EVENT}
    <field name="mDUpdateAction" id="279" type="MDUpdateAction"/>{_ENTRY.format("")}{price.format(' offset="12"')}
    <field name="mDEntrySize" id="271" type="Quantity"/>{_position(version)}
    <field name="enteringFirm" id="37501" type="Firm"{' offset="32"' if gap else ""}/>
    <field name="mDInsertTimestamp" id="37034" type="Time"/>
    <field name="secondaryOrderID" id="198" type="OrderID"/>{_RPT_SEQ}{time.format("")}
    {previous if version >= 16 else ""}
  </sbe:message>
  <sbe:message name="DeleteOrder_MBO_51" id="51">{_HEAD.format("X")}{_SECURITY}{_EVENT}
    <field name="mDUpdateAction" id="279" type="MDUpdateAction" presence="constant" valueRef="MDUpdateAction.DELETE"/>
    {_ENTRY.format(' offset="10"')}{_position(version, ' offset="12"')}
    <field name="mDEntrySize" id="271" type="{size}"{' offset="16"' if gap else ""}/>
    <field name="secondaryOrderID" id="198" type="OrderID"/>{time.format("")}{_RPT_SEQ}
    {price.format(' sinceVersion="15"') if version >= 15 else ""}
  </sbe:message>
  <sbe:message name="Trade_53" id="53">{_HEAD.format("X")}{_SECURITY}{_EVENT}{_constant("TRADE")}
    <field name="tradingSessionID" id="336" type="Code"/><field name="tradeCondition" id="277" type="TradeCondition"/>
    <field name="mDEntryPx" id="270" type="Price"/><field name="mDEntrySize" id="271" type="Quantity"/>
    <field name="tradeID" id="1003" type="Count"/><field name="mDEntryBuyer" id="288" type="Firm"/>
    <field name="mDEntrySeller" id="289" type="Firm"/><field name="tradeDate" id="75" type="Date"/>
    <field name="trdSubType" id="829" type="SubTypeCode" presence="optional" sinceVersion="7"/>
    {time.format(' offset="44"')}{_RPT_SEQ}
  </sbe:message>
  <sbe:message name="SnapshotFullRefresh_Orders_MBO_71" id="71">{_HEAD.format("W")}{_SECURITY}
    <group name="noMDEntries" id="268" dimensionType="GroupSizeEncoding">{price.format("")}
      <field name="mDEntrySize" id="271" type="Quantity"/>{_position(version)}
      <field name="enteringFirm" id="37501" type="Firm"{' offset="20"' if gap else ""}/>
      <field name="mDInsertTimestamp" id="37034" type="Time"/><field name="secondaryOrderID" id="198" type="OrderID"/>
      {_ENTRY.format("")}{implied if version >= 10 else ""}
    </group>
  </sbe:message>"""


def _band(template: int, reference: str, since: str) -> str:
    return f"""
  <sbe:message name="PriceBand_{template}" id="{template}"{since}>
    {_HEAD.format("X")}{_SECURITY}{_EVENT}{_constant("BAND")}
    <field name="bandType" id="6939" type="Code" presence="optional"/>
    <field name="limitType" id="1306" type="Code" presence="optional"/>
    <field name="midpointType" id="37008" type="Code" presence="optional"/>
    <field name="lowLimitPrice" id="1148" type="PriceOptional" presence="optional"/>
    <field name="highLimitPrice" id="1149" type="PriceOptional" presence="optional"/>
    <field name="tradingReferencePrice" id="1150" type="{reference}" presence="optional"/>
    <field name="mDEntryTimestamp" id="37033" type="Time"/>{_RPT_SEQ}
  </sbe:message>"""


def _definition(template: int, tick: str, since: str, index_part: str) -> str:
    return f"""
  <sbe:message name="SecurityDefinition_{template}" id="{template}"{since}>{_HEAD.format("D")}{_SECURITY}
    <field name="securityExchange" id="207" type="Text4"/><field name="securityIDSource" id="22" type="Action"/>
    <field name="group" id="1151" type="Text3"/><field name="ticker" id="55" type="Text20"/>
    <field name="updateAction" id="980" type="Action"/><field name="securityType" id="167" type="SecurityType"/>
    <field name="securitySubType" id="762" type="SubType"/><field name="totNoRelatedSym" id="393" type="Count"/>
    <field name="minPriceIncrement" id="969" type="{tick}" presence="optional"/>
    <field name="maturityDate" id="541" type="Date32" presence="optional"/>
    <field name="asset" id="6937" type="Text6"/>
    <field name="maturityMonthYear" id="200" type="MonthYear" presence="optional"/>
    <field name="lotType" id="1093" type="Code" presence="optional"/>
    <field name="minLotSize" id="1231" type="QuantityOptional"/>
    <group name="noUnderlyings" id="711" dimensionType="GroupSizeEncoding">
      <field name="underlyingSecurityID" id="309" type="SecurityID"/>{index_part}
      <field name="underlyingSymbol" id="311" type="Text20"/>
    </group>
    <group name="noLegs" id="555" dimensionType="GroupSizeEncoding">
      <field name="legSecurityID" id="602" type="SecurityID"/><field name="legRatioQty" id="623" type="Ratio"/>
      <field name="legSecurityType" id="609" type="SecurityType"/><field name="legSide" id="624" type="Side"/>
      <field name="legSymbol" id="600" type="Text20"/>
    </group>
    <data name="description" id="107" type="Text"/>
  </sbe:message>"""


@cache
def user_schema(version: int) -> Schema:
    return loads(user_file(version), f"exchange-{version}.xml")


def user_file(version: int) -> bytes:
    """A file of the exchange's for this version: 7, 8, 9, 10, 15 or 16."""
    index_part = '<field name="indexPct" id="6919" type="Fixed8" presence="optional"/>'
    messages = _orders(version)
    if version < 10:
        messages += _band(20, "PriceOptional", "") + _definition(4, "PriceOptional", "", index_part)
    if version > 7:
        since = ' sinceVersion="8"'
        messages += _band(22, "Fixed8", since) + _definition(12, "Fixed8", since, "")
    return f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="b3.umdf.mbo.sbe" id="2" version="{version}"
  semanticVersion="0" byteOrder="littleEndian"><types>{TYPES}</types>{messages}</sbe:messageSchema>""".encode()
