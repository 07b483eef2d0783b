"""SecurityDefinition_12 → the family definition, the slow and obvious way."""

from __future__ import annotations

from market.sbe_reference_message import Event, Fields, Message

MONTHS = {"maturity_month_year": "maturityMonthYear", "contract_settl_month": "contractSettlMonth"}
SECURITY_TYPES = dict(
    enumerate("CASH CORP CS DTERM ETF FOPT FORWARD FUT INDEX INDEXOPT MLEG OPT OPTEXER PS SECLOAN SOPT SPOT".split(), 1)
)


def month(value: Fields | None) -> int | None:
    if not value:
        return None
    of_month = 100 * value.get("year", 0) + value.get("month", 0)
    if "day" in value:
        return 100 * of_month + value["day"]
    return 100 * of_month + 90 + value["week"] if "week" in value else of_month


def definition(m: Message) -> list[Event]:
    def named(code: int | None) -> str | None:
        return None if code is None else SECURITY_TYPES.get(code, str(code))

    texts = {"symbol": "symbol", "security_exchange": "securityExchange", "security_group": "securityGroup"}
    texts |= {"asset": "asset", "isin": "isinNumber", "cfi_code": "cfiCode", "description": "securityDesc"}
    texts |= {"currency": "currency", "strike_currency": "strikeCurrency", "settl_currency": "settlCurrency"}
    texts |= {"country": "countryOfIssue", "strategy_type": "securityStrategyType"}
    wholes = {"security_sub_type": "securitySubType", "product": "product", "total_instruments": "totNoRelatedSym"}
    wholes |= {"tick_denominator": "tickSizeDenominator", "maturity_date": "maturityDate", "issue_date": "issueDate"}
    wholes |= {"dated_date": "datedDate", "start_date": "startDate", "end_date": "endDate", "settl_date": "settlDate"}
    wholes |= {"settl_type": "settlType", "market_segment_id": "marketSegmentID"}
    wholes |= {"governance_indicator": "governanceIndicator", "security_match_type": "securityMatchType"}
    wholes |= {"min_lot_size": "minLotSize", "min_trade_vol": "minTradeVol", "min_order_qty": "minOrderQty"}
    wholes |= {"max_order_qty": "maxOrderQty", "min_cross_qty": "minCrossQty", "shares_issued": "noSharesIssued"}
    wholes |= {"clearing_house_id": "clearingHouseID", "corporate_action_event_id": "corporateActionEventId"}
    smalls = {"is_last": "lastFragment", "exercise_style": "exerciseStyle", "put_or_call": "putOrCall"}
    smalls |= {"opt_payout_type": "optPayoutType", "price_type": "priceType", "multi_leg_model": "multiLegModel"}
    smalls |= {"multi_leg_price_method": "multiLegPriceMethod", "implied_market_indicator": "impliedMarketIndicator"}
    smalls |= {"lot_type": "lotType"}
    prices = {"tick": "minPriceIncrement", "strike_price": "strikePrice", "contract_multiplier": "contractMultiplier"}
    prices |= {"price_divisor": "priceDivisor"}
    days = ("maturityDate", "issueDate", "datedDate", "startDate", "endDate", "settlDate")
    event: Event = {"action": m.char("securityUpdateAction") or "\0", "instrument_id": m.whole("securityID")}
    event |= {ours: m.fields.get(name) or None for ours, name in texts.items()}
    event |= {ours: m.whole(name, *([-(1 << 31) + 1] if name in days else [])) for ours, name in wholes.items()}
    event |= {ours: m.small(name) for ours, name in smalls.items()}
    event |= {ours: m.price(name) for ours, name in prices.items()}
    event |= {
        "security_type": named(m.fields.get("securityType")),
        "ts_validity": m.seconds("securityValidityTimestamp"),
    }
    event |= {ours: month(m.fields.get(name)) for ours, name in MONTHS.items()}
    event["legs"] = []
    for entry in m.fields.get("noLegs", ()):
        leg = Message(12, entry)
        ratio, side, number = leg.price("legRatioQty"), leg.small("legSide"), leg.whole("legSecurityID")
        kind = named(entry.get("legSecurityType"))
        own = {"leg_id": number, "leg_symbol": entry.get("legSymbol") or None, "leg_ratio": ratio, "leg_side": side}
        event["legs"].append(own | {"leg_security_type": kind})
        m.flags |= leg.flags
    event["underlyings"] = []
    for entry in m.fields.get("noUnderlyings", ()):
        other = Message(12, entry)
        number = other.whole("underlyingSecurityID")
        own = {"underlying_id": number, "underlying_symbol": entry.get("underlyingSymbol") or None}
        event["underlyings"].append(own)
        m.flags |= other.flags
    event["attributes"] = [
        {"attribute_type": entry.get("instrAttribType"), "attribute_value": entry.get("instrAttribValue")}
        for entry in m.fields.get("noInstrAttribs", ())
    ]
    lot = {"lot_type": event["lot_type"], "min_lot_size": event["min_lot_size"]}
    event["lots"] = [lot] if lot["lot_type"] is not None or lot["min_lot_size"] is not None else []
    return [event]
