"""The FIX name and type of every tag in either feed, for the FIX view.

A type is that of the message references (FIX/FAST 1.1 to 1.3, Binary 9.2), never that of a template: those differ
between versions of the exchange's files. The key is the tag and, where a tag has two meanings, its repeating group.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tag:
    number: int
    name: str
    type: str  # a FIX type, as in TYPES below


# Tag, name, type; with a group's count tag before it (555/37010), the meaning inside that group only.
_TABLE = """
15 Currency Currency
22 SecurityIDSource String
31 LastPx Price
33 NoLinesOfText NumInGroup
34 MsgSeqNum SeqNum
35 MsgType String
36 NewSeqNo SeqNum
37 OrderID String
42 OrigTime UTCTimestamp
43 PossDupFlag Boolean
48 SecurityID int
52 SendingTime UTCTimestamp
55 Symbol String
58 Text String
60 TransactTime UTCTimestamp
63 SettlType String
64 SettlDate LocalMktDate
75 TradeDate LocalMktDate
83 RptSeq int
84 CxlQty Qty
107 SecurityDesc String
120 SettlCurrency Currency
146 NoRelatedSym NumInGroup
148 Headline String
149 URLLink String
167 SecurityType String
198 SecondaryOrderID String
200 MaturityMonthYear MonthYear
201 PutOrCall int
202 StrikePrice Price
207 SecurityExchange Exchange
212 DataLen Length
213 Data data
217 RoutingID String
225 IssueDate LocalMktDate
231 ContractMultiplier float
245 NoRoutingIDs NumInGroup
246 RoutingType int
262 MDReqID String
264 MarketDepth int
268 NoMDEntries NumInGroup
269 MDEntryType char
270 MDEntryPx Price
271 MDEntrySize Qty
272 MDEntryDate UTCDateOnly
273 MDEntryTime UTCTimeOnly
274 TickDirection char
276 QuoteCondition MultipleValueString
277 TradeCondition MultipleValueString
279 MDUpdateAction char
286 OpenCloseSettlFlag MultipleValueString
287 SellerDays int
288 MDEntryBuyer String
289 MDEntrySeller String
290 MDEntryPositionNo int
305 UnderlyingSecurityIDSource String
308 UnderlyingSecurityExchange Exchange
309 UnderlyingSecurityID int
311 UnderlyingSymbol String
326 SecurityTradingStatus int
336 TradingSessionID int
342 TradSesOpenTime UTCTimestamp
346 NumberOfOrders int
347 MessageEncoding String
354 EncodedTextLen Length
355 EncodedText data
358 EncodedHeadlineLen Length
359 EncodedHeadline data
369 LastMsgSeqNumProcessed SeqNum
393 TotNoRelatedSym int
423 PriceType int
432 ExpireDate LocalMktDate
451 NetChgPrevDay PriceOffset
454 NoSecurityAltID NumInGroup
455 SecurityAltID String
456 SecurityAltIDSource String
460 Product int
461 CFICode String
470 CountryOfIssue Country
541 MaturityDate LocalMktDate
555 NoLegs NumInGroup
561 RoundLot Qty
562 MinTradeVol Qty
600 LegSymbol String
602 LegSecurityID int
603 LegSecurityIDSource String
609 LegSecurityType String
616 LegSecurityExchange Exchange
623 LegRatioQty float
624 LegSide int
625 TradingSessionSubID int
667 ContractSettlMonth MonthYear
711 NoUnderlyings NumInGroup
731 SettlPriceType int
762 SecuritySubType String
810 UnderlyingPx Price
811 PriceDelta float
829 TrdSubType int
870 NoInstrAttribs NumInGroup
871 InstrAttribType int
872 InstrAttribValue int
873 DatedDate LocalMktDate
893 LastFragment Boolean
911 TotNumReports int
916 StartDate LocalMktDate
917 EndDate LocalMktDate
947 StrikeCurrency Currency
969 MinPriceIncrement Price
980 SecurityUpdateAction char
1003 TradeID String
1020 TradeVolume Qty
1022 MDFeedType String
1023 MDPriceLevel int
1025 FirstPx Price
1093 LotType int
1128 ApplVerID String
1140 MaxTradeVol int
1141 NoMDFeedTypes NumInGroup
1144 ImpliedMarketIndicator int
1148 LowLimitPrice Price
1149 HighLimitPrice Price
1150 TradingReferencePrice Price
1151 SecurityGroup String
1174 SecurityTradingEvent int
1180 ApplID String
1194 ExerciseStyle int
1205 NoTickRules NumInGroup
1206 StartTickPriceRange Price
1207 EndTickPriceRange Price
1208 TickIncrement Price
1209 TickRuleType int
1231 MinLotSize Qty
1234 NoLotTypeRules NumInGroup
1300 MarketSegmentID String
1306 PriceLimitType int
1351 NoApplIDs NumInGroup
1365 FillQty Qty
1377 MultiLegModel int
1378 MultiLegPriceMethod int
1472 NewsID String
1474 LanguageCode Language
1482 OptPayoutType int
1500 MDStreamID String
2445 AggressorTime UTCTimestamp
2446 AggressorSide int
5151 TickSizeDenominator int
5767 AgressorSide char
6919 IndexPct Percentage
6937 Asset String
6938 SecurityValidityTimestamp UTCTimestamp
6939 PriceBandType int
6940 NewsSource String
7534 SecurityStrategyType String
7595 NoSharesIssued int
7687 PercentageVar Percentage
9219 InstrumentID int
9325 LastTradeDate UTCDateOnly
9343 NoUnchangedSecurities int
9344 NoNotTradedSecurities int
9748 MaxOrderQty Qty
9749 MinOrderQty Qty
9989 TotTradedSecurities int
9990 CapitalPct Percentage
9993 PrevYearVariation Percentage
9996 NoFallingSecurities int
9997 NoRisingSecurities int
35526 NextSeqNo SeqNum
35561 MinCrossQty Qty
37001 PercThresholdNormalTrade Percentage
37002 PercThresholdCrossTrade Percentage
37003 AvgDailyTradedQty int
37004 MaximumNormalSharesPerDailyAvgShares30DRatio float
37005 MaximumCrossSharesPerDailyAvgShares30DRatio float
37006 NormalSharesPerOutstandingSharesRatio float
37007 CrossSharesPerOutstandingSharesRatio float
37008 PriceBandMidpointPriceType int
37009 LegType char
37010 CorporateActionEventID int
555/37010 BuyersPerspective char
37011 GovernanceIndicator String
37012 PriceDivisor float
37013 PriceAdjustmentMethod int
37014 MDEntryInterestRate Percentage
37015 SecurityMatchType int
37016 MDInsertDate UTCDateOnly
37017 MDInsertTime UTCTimeOnly
37018 UnderlyingPxType int
37019 EarlyTermination int
37021 IndexTheoreticalQty float
37023 BTBCertIndicator int
37024 BTBContractInfo int
37025 BTBGraceDate LocalMktDate
37026 IsinNumber String
37033 MDEntryTimestamp UTCTimestamp
37034 MDInsertTimestamp UTCTimestamp
37035 MatchEventIndicator MultipleValueString
37037 ClearingHouseID int
37070 TotNumStats int
37071 TotNumBids int
37072 TotNumOffers int
37073 NumberOfTrades int
37083 LastRptSeq int
37084 LastSequenceVersion int
37100 IndexSeq int
37277 ImbalanceCondition MultipleValueString
37501 EnteringFirm String
37709 PartCount int
37710 PartNumber int
37777 TotalTextLength int
37778 VwapPx Price
37779 TradedHiddenQty Qty
37780 MDEntryPrevSize Qty
"""


def _parse(table: str) -> dict[tuple[int, int], Tag]:
    tags: dict[tuple[int, int], Tag] = {}
    for line in table.strip().splitlines():
        key, name, type = line.split()
        group, _, number = key.rpartition("/")
        where = (int(group or 0), int(number))
        assert where not in tags, line
        tags[where] = Tag(int(number), name, type)
    return tags


TAGS = _parse(_TABLE)  # (the group's count tag or 0, tag) → Tag
TYPES = frozenset(tag.type for tag in TAGS.values())


def lookup(tag: int, group: int = 0) -> Tag | None:
    """The meaning of a tag inside the group with this count tag (0: outside any); None for a tag of neither feed."""
    return TAGS.get((group, tag)) or TAGS.get((0, tag))
