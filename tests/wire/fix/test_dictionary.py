"""The tag table, against rows typed from the Binary message reference and samples of the FIX/FAST one."""

from __future__ import annotations

import pytest

from umdf.wire.fix.dictionary import TAGS, TYPES, Tag, lookup

# Binary reference 2.2.0, section 9.2: tag and name. FIX spells the first letters as capitals; two names differ.
BINARY = """
15 currency 22 securityIDSource 31 lastPx 36 newSeqNo 42 origTime 48 securityID 55 symbol 58 text 60 transactTime
63 settlType 64 settlDate 75 tradeDate 83 rptSeq 84 cxlQty 107 securityDesc 148 headline 149 uRLLink 167 securityType
198 secondaryOrderID 200 maturityMonthYear 201 putOrCall 202 strikePrice 207 securityExchange 225 issueDate
231 contractMultiplier 268 noMDEntries 269 mDEntryType 270 mDEntryPx 271 mDEntrySize 277 tradeCondition
279 mDUpdateAction 286 openCloseSettlFlag 287 sellerDays 288 mDEntryBuyer 289 mDEntrySeller
305 underlyingSecurityIDSource 308 underlyingSecurityExchange 309 underlyingSecurityID 311 underlyingSymbol
326 securityTradingStatus 336 tradingSessionID 342 tradSesOpenTime 369 lastMsgSeqNumProcessed 393 totNoRelatedSym
423 priceType 451 netChgPrevDay 460 product 461 cfiCode 470 countryOfIssue 541 maturityDate 555 noLegs
562 minTradeVol 600 legSymbol 602 legSecurityID 603 legSecurityIDSource 609 legSecurityType 616 legSecurityExchange
623 legRatioQty 624 legSide 625 tradingSessionSubID 667 contractSettlMonth 711 noUnderlyings 731 settlPriceType
762 securitySubType 829 trdSubType 870 noInstrAttribs 871 instrAttribType 872 instrAttribValue 873 datedDate
893 lastFragment 911 totNumReports 916 startDate 917 endDate 947 strikeCurrency 969 minPriceIncrement
980 securityUpdateAction 1003 tradeID 1020 tradeVolume 1093 lotType 1128 applVerID 1140 maxTradeVol
1144 impliedMarketIndicator 1148 lowLimitPrice 1149 highLimitPrice 1150 tradingReferencePrice 1151 securityGroup
1174 securityTradingEvent 1194 exerciseStyle 1231 minLotSize 1300 marketSegmentID 1306 priceLimitType 1365 fillQty
1377 multiLegModel 1378 multiLegPriceMethod 1472 newsID 1474 languageCode 1482 optPayoutType 2445 aggressorTime
2446 aggressorSide 5151 tickSizeDenominator 6937 asset 6938 securityValidityTimestamp 6939 priceBandType
6940 newsSource 7534 securityStrategyType 7595 noSharesIssued 9325 lastTradeDate 9748 maxOrderQty 9749 minOrderQty
35526 nextSeqNo 35561 minCrossQty 37003 avgDailyTradedQty 37008 priceBandMidpointPriceType
37010 corporateActionEventId 37011 governanceIndicator 37012 priceDivisor 37014 mDEntryInterestRate
37015 securityMatchType 37026 isinNumber 37033 mDEntryTimestamp 37034 mDInsertTimestamp 37035 matchEventIndicator
37037 clearingHouseID 37070 totNumStats 37071 totNumBids 37072 totNumOffers 37073 numberOfTrades 37083 lastRptSeq
37084 lastSequenceVersion 37277 imbalanceCondition 37501 enteringFirm 37709 partCount 37710 partNumber
37777 totalTextLength 37778 vwapPx 37779 tradedHiddenQty 37780 mDEntryPrevSize 290 mDEntryPositionNo
35 msgType 120 settlCurrency
"""

# Tags by the type column of the FIX/FAST reference.
TYPED = {
    "UTCTimestamp": (52, 42, 60, 342, 6938),
    "UTCDateOnly": (272, 37016, 9325),
    "UTCTimeOnly": (273, 37017),
    "LocalMktDate": (75, 541, 225, 873, 916, 917, 64, 432, 37025),
    "MonthYear": (200, 667),
    "Price": (270, 1148, 1149, 1150, 1025, 31, 810, 1206, 1207, 1208, 202, 969),
    "PriceOffset": (451,),
    "Percentage": (6919, 37014, 7687, 9990, 9993, 37001, 37002),
    "Qty": (271, 37780, 1020, 1231, 561, 562, 9748, 9749, 35561),
    "float": (811, 623, 231, 37012, 37021, 37004, 37005, 37006, 37007),
    "NumInGroup": (146, 1351, 1141, 454, 711, 555, 268, 245, 33, 870, 1205, 1234),
    "char": (269, 279, 980, 37009, 5767),
    "Currency": (15, 947, 120),
    "data": (213, 359, 355),
    "int": (48, 83, 423, 625, 326, 336, 872, 1482, 37003, 1140, 290, 346),
    "Boolean": (893,),
    "Country": (470,),
    "Language": (1474,),
    "String": (37, 1003, 288, 289, 1500, 762, 107, 58, 148),
}


def test_every_tag_of_the_binary_reference_has_its_name():
    words = BINARY.split()
    for number, name in zip(words[::2], words[1::2], strict=True):
        tag = lookup(int(number))
        assert tag is not None, number
        assert tag.number == int(number)
        assert tag.name.lower() == name.lower() and tag.name[0].isupper()


@pytest.mark.parametrize("type", TYPED)
def test_types_are_those_of_the_references_columns(type: str):
    assert {number: TAGS[0, number].type for number in TYPED[type]} == dict.fromkeys(TYPED[type], type)


def test_tag_37010_means_one_thing_in_a_leg_and_another_on_the_instrument():
    assert lookup(37010, group=555) == Tag(37010, "BuyersPerspective", "char")
    assert lookup(37010, group=146) == lookup(37010) == Tag(37010, "CorporateActionEventID", "int")


def test_a_tag_has_its_meaning_inside_any_group():
    assert lookup(270, group=268) == lookup(270) == Tag(270, "MDEntryPx", "Price")


def test_a_tag_of_neither_feed_is_unknown():
    assert lookup(44) is None and lookup(0) is None and lookup(-1, group=555) is None


def test_every_length_counts_the_data_of_the_next_tag():
    lengths = sorted(number for (_, number), tag in TAGS.items() if tag.type == "Length")
    assert lengths == [212, 354, 358]
    assert all(TAGS[0, number + 1].type == "data" for number in lengths)


def test_names_are_unique_and_types_are_fix_types():
    names = [tag.name for tag in TAGS.values()]
    assert len(names) == len(set(names))
    assert {*TYPED, "Exchange", "Length", "MultipleValueString", "SeqNum"} == TYPES
