"""FAST messages → events, once more: slowly, in plain Python, from messages and not from columns.

Shares nothing with the package but the numbers that events.py gives to flags, conditions and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from market.fast_reference_values import I8, I16, I32, Tags, ValueReader, or_default, tail_digits, whole

from umdf.market import families as e
from umdf.wire.fast.message import Message

Row = dict[str, Any]
QUOTED = {"K": e.IMPLIED, "R": e.RECOVERY, "C": e.EXCHANGE_BEST, "LM": e.BTB_LIMITED, "AN": e.BTB_ALL_OR_NONE}
STATISTICS = {"3": 101, "5": 11, "6": 3, "7": 5, "8": 4, "9": 13, "B": 6, "C": 9, "D": 102, "v": 14}


class ReferenceEvents:
    """The events of some messages: rows by family, as dictionaries without what is absent."""

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in e.FAMILIES}
        self.units: dict[int, tuple[int | None, int | None]] = {}
        self.unknown: dict[str, int] = {}
        for number, message in sorted(messages.items()):
            tags = Tags(message.template.body, message.values)
            self.sequence, self.sent = ValueReader().number(tags.get(34)), ValueReader().stamp(tags.get(52))
            self.units[number] = self.sequence, self.sent
            self.unit = number
            kind = tags.get(35)
            if kind in ("X", "W"):
                self.market_data(tags, kind == "W")
            elif kind == "f":
                self.status(tags)
            elif kind == "y":
                for place, entry in enumerate(tags.group(146)):
                    self.definition(tags, entry, place)
            elif kind == "B":
                self.news(tags)
            elif kind == "0":
                self.add(
                    "control", 0, e.LAST, kind="H", next_sequence=None if self.sequence is None else self.sequence + 1
                )
            elif kind == "4":
                r = ValueReader()
                self.add("control", 0, e.LAST, r, kind="S", next_sequence=r.number(tags.get(36)))

    def add(self, family: str, place: int, flags: int, reading: ValueReader | None = None, **columns: Any) -> Row:
        row = {"unit": self.unit, "entry_index": place, **{k: v for k, v in columns.items() if v is not None}}
        row["flags"] = flags | (e.OUT_OF_RANGE if reading and reading.is_out_of_range else 0)
        self.rows[family].append(row)
        return row

    def market_data(self, body: Tags, snapshot: bool) -> None:
        made: list[tuple[Any, str, Row]] = []
        r = ValueReader()
        if snapshot:
            depth = r.number(body.get(264), I32)
            flags = e.SNAPSHOT
            own = self.add(
                "snapshot", 0, flags, r, instrument_id=r.number(body.get(48)), last_sequence=r.number(body.get(369)),
                last_rpt_seq=r.number(body.get(83)), total_snapshots=r.number(body.get(911)), depth=depth or None,
                trade_date=r.days(body.get(75)),
            )  # fmt: skip
            own["flags"] = flags | (e.OUT_OF_RANGE if r.is_out_of_range else 0)
            head = self.add(
                "mbo", 0, flags, action="R", side="N", venue="E",
                instrument_id=ValueReader().number(body.get(48)), rpt_seq=ValueReader().number(body.get(83)),
            )  # fmt: skip
            made.append((head.get("instrument_id"), "mbo", head))
        for place, entry in enumerate(body.group(268)):
            made += self.entry(body, entry, place + snapshot, snapshot)
        for in_mbo in (True, False):
            seen = set()
            for instrument, family, row in reversed(made):
                if (family == "mbo") == in_mbo and instrument not in seen:
                    row["flags"] |= e.LAST
                    seen.add(instrument)

    def entry(self, body: Tags, entry: Tags, place: int, snapshot: bool) -> list[tuple[Any, str, Row]]:
        common, get = ValueReader(), entry.get
        instrument = common.number(get(48) if 48 in entry.values else body.get(48))
        rpt_seq = None if snapshot else common.number(get(83))
        if snapshot and 83 in entry.values:
            common.number(get(83))
        action, letter = common.number(get(279), I8), common.char(get(269))
        conditions = common.words(get(277)) or 0
        theoretical = common.number(get(286), I8) == 5
        flags = e.SNAPSHOT if snapshot else 0
        for word in (get(276) or "").split():
            flags |= QUOTED.get(word, e.OUT_OF_RANGE)
        if conditions & e.CONDITIONS["IM"]:
            flags |= e.IMPLIED
        if common.is_out_of_range:
            flags |= e.OUT_OF_RANGE
        sent_day = None if self.sent is None else self.sent // 86_400_000_000_000
        made: list[tuple[Any, str, Row]] = []

        def add(family: str, r: ValueReader, **columns: Any) -> None:
            ts_event = r.moment(get(272), get(273), sent_day)
            row = self.add(
                family, place, flags, r, instrument_id=instrument, rpt_seq=rpt_seq, ts_event=ts_event, **columns
            )
            if family == "control":
                row.pop("rpt_seq", None)
            made.append((instrument, family, row))

        def day(r: ValueReader) -> int | None:
            """Of a date that is not sent: of the event, else of SendingTime."""
            ts_event = ValueReader().moment(get(272), get(273), sent_day)
            return sent_day if ts_event is None else ts_event // 86_400_000_000_000

        gone = action in (2, 3, 4)
        real_trade = letter == "2" and not snapshot and not conditions & e.CONDITIONS["U"]
        book, trade = letter in ("0", "1"), real_trade and not gone
        if book or letter == "J" or trade or (rpt_seq is not None and not snapshot):
            r, columns = ValueReader(), {}
            if book or real_trade:
                columns = {"price": r.price(get(270)), "size": r.number(get(271))}
            if book:
                columns |= {
                    "order_id": r.number(get(37)), "firm": r.number(get(288 if letter == "0" else 289)),
                    "prev_size": r.number(get(37780)), "position": r.number(get(290), I32),
                    "order_count": r.number(get(346), I32), "expire_date": r.days(get(432)),
                    "ts_insert": r.moment(get(37016), get(37017), day(r)),
                    "early_termination": r.number(get(37019), I8), "btb_cert_indicator": r.number(get(37023), I8),
                }  # fmt: skip
            elif real_trade:
                columns["trade_id"] = r.number(get(1003))
            did = "N"
            if book:
                known = {None: "A", 0: "A", 1: "M", 2: "C", 3: "R", 4: "C", 5: "M"}
                did = known.get(action, "U")
                if action == 5 and columns["price"] is None and columns["size"] is None:
                    did = "C"
                if did in "AM" and ValueReader().char(get(1500), "E") == "L":
                    columns["early_termination"] = or_default(r, get(37019), 0)
                    columns["btb_cert_indicator"] = or_default(r, get(37023), 1)
            elif letter == "J":
                did = "R"
            elif trade:
                did = "T"
            side = {"0": "B", "1": "A"}.get(letter or "", "N")
            # A date that is wrong is noticed wherever it is read, so also where its time is not there.
            bad_insert = ValueReader()
            bad_insert.days(get(37016))
            r.is_out_of_range |= bad_insert.is_out_of_range
            add("mbo", r, action=did, side=side, venue=r.char(get(1500), "E"), update_action=action, entry_type=letter,
                **columns)  # fmt: skip
        self.other(body, entry, add, letter, action, gone, real_trade, theoretical, instrument, day)
        return made

    def other(
        self, body: Tags, entry: Tags, add: Any, letter: str | None, action: int | None, gone: bool, real_trade: bool,
        theoretical: bool, instrument: int | None, day: Any,
    ) -> None:  # fmt: skip
        r, get = ValueReader(), entry.get
        done = "C" if gone else "A"
        is_lending = not gone and ValueReader().char(get(1500), "E") == "L"
        if letter == "J" and instrument is None:
            add("control", r, kind="R")
        elif real_trade:
            add(
                "trades", r, action=done, side="N", update_action=action, price=r.price(get(270)),
                size=r.number(get(271)), trade_id=r.number(get(1003)), buyer=r.number(get(288)),
                seller=r.number(get(289)), conditions=r.words(get(277)) or 0, trade_date=r.days(body.get(75)),
                trading_session=r.number(get(336), I8), venue=r.char(get(1500), "E"),
                ts_insert=self.inserted(r, entry, day), trade_volume=r.number(get(1020)),
                net_change=r.price(get(451)), tick_direction=r.char(get(274)), seller_days=r.number(get(287), I32),
                interest_rate=r.price(get(37014)),
                early_termination=or_default(r, get(37019), 0 if is_lending else None),
                btb_contract_info=or_default(r, get(37024), 1 if is_lending else None),
                btb_grace_date=r.days(get(37025)), expire_date=r.days(get(432)),
                btb_cert_indicator=or_default(r, get(37023), 1 if is_lending else None),
            )  # fmt: skip
        elif letter == "2" or letter == "4" or letter in STATISTICS:
            stat_type = (
                100 if letter == "2" else (2 if theoretical else 1) if letter == "4" else STATISTICS[letter or ""]
            )
            volume = letter == "B"
            for under in entry.group(711) if letter == "D" else [None]:
                r = ValueReader()
                price = None if volume else r.price(get(270)) if under is None else r.price(under.get(810))
                add(
                    "statistics", r, stat_type=stat_type, action=done, price=price,
                    size=r.number(get(1020 if volume else 271)), trade_count=r.number(get(271)) if volume else None,
                    financial_volume=r.scaled(get(270), 4) if volume else None, net_change=r.price(get(451)),
                    conditions=r.words(get(277)), open_close_settl_flag=r.number(get(286), I8),
                    settl_price_type=r.number(get(731), I8),
                    price_type=or_default(r, get(423), 2 if letter == "6" and not gone else None),
                    price_adjustment_method=or_default(r, get(37013), 0 if letter == "5" and not gone else None),
                    last_trade_date=r.days(get(9325)),
                    trade_date=r.days(body.get(75)), trading_session=r.number(get(336), I8),
                    venue=r.char(get(1500), "E"), entry_type=letter, currency=get(15) or None,
                    tick_direction=r.char(get(274)), trade_id=r.number(get(1003)), buyer=r.number(get(288)),
                    seller=r.number(get(289)), seller_days=r.number(get(287), I32), interest_rate=r.price(get(37014)),
                    index_seq=r.number(get(37100)), underlying_id=r.number(under.get(309)) if under else None,
                    underlying_px_type=or_default(r, under.get(37018), None if gone else 0) if under else None,
                    first_price=r.price(get(1025)), last_price=r.price(get(31)), price_delta=r.price(get(811)),
                )  # fmt: skip
        elif letter == "A":
            bits = r.words(get(277)) or 0
            side = "B" if bits & 1 << 8 else "A" if bits & 1 << 9 else "N"
            add("imbalance", r, action=done, side=side, size=r.number(get(271)), conditions=bits)
        elif letter == "c":
            add(
                "status", r, phase=r.number(get(625), I16), state=r.number(get(326), I16),
                event=r.number(get(1174), I16), trading_session=r.number(get(336), I8),
                ts_open=r.stamp(get(342)), trade_date=r.days(body.get(75)), venue=r.char(get(1500), "E"),
            )  # fmt: skip
        elif letter in ("g", "h"):
            unit = or_default(ValueReader(), get(1306), 0 if letter == "g" else None)
            add(
                "price_band", r, entry_type=letter, price_band_type=r.number(get(6939), I8),
                price_limit_type=or_default(r, get(1306), 0 if letter == "g" else None),
                midpoint_type=or_default(r, get(37008), 0 if unit == 2 else None),
                low_limit_price=r.price(get(1148)), high_limit_price=r.price(get(1149)),
                trading_reference_price=r.price(get(1150)), avg_daily_traded_qty=r.number(get(37003)),
                max_trade_vol=r.number(get(1140)),
            )  # fmt: skip
        elif letter not in ("0", "1", "J"):
            name = str(get(269))
            self.unknown[name] = self.unknown.get(name, 0) + 1

    def inserted(self, r: ValueReader, entry: Tags, day: Any) -> int | None:
        r.days(entry.get(37016))
        return r.moment(entry.get(37016), entry.get(37017), day(r))

    def status(self, body: Tags) -> None:
        r, get = ValueReader(), body.get
        self.add(
            "status", 0, e.LAST, None, instrument_id=r.number(get(48)), ts_event=r.stamp(get(60)),
            security_group=get(1151) or None, security_exchange=get(207) or None, phase=r.number(get(625), I16),
            state=r.number(get(326), I16), event=r.number(get(1174), I16), trading_session=r.number(get(336), I8),
            ts_open=r.stamp(get(342)), trade_date=r.days(get(75)), venue=r.char(get(1500), "E"),
        )["flags"] |= e.OUT_OF_RANGE if r.is_out_of_range else 0  # fmt: skip

    def definition(self, body: Tags, entry: Tags, place: int) -> None:
        r, get = ValueReader(), entry.get
        words = {"Y": 1, "N": 0}
        governance = {"No": 0, "N1": 1, "N2": 2, "N3": 3, "NM": 4, "MA": 5, "MB": 6, "M2": 7}
        tail = lambda value: None if value in (None, "") else tail_digits(value)  # noqa: E731
        isin = next((alt.get(455) for alt in entry.group(454) if alt.get(456) == "4"), None)
        feeds = []
        for channel in entry.group(1351):
            number = r._fits(tail(channel.get(1180)), I16)
            for feed in channel.group(1141) or [None]:
                feeds.append(
                    {"channel": number, "feed_type": feed.get(1022) if feed else None,
                     "depth": r.number(feed.get(264), I32) if feed else None}
                )  # fmt: skip
        lists = {
            "legs": [
                {"leg_id": r.number(x.get(602)), "leg_symbol": x.get(600), "leg_ratio": r.price(x.get(623)),
                 "leg_side": r.number(x.get(624), I8), "leg_security_type": x.get(609)} for x in entry.group(555)
            ],
            "underlyings": [
                {"underlying_id": r.number(x.get(309)), "underlying_symbol": x.get(311),
                
                 "index_pct": r.price(x.get(6919)), "index_theoretical_qty": r.price(x.get(37021))}
                for x in entry.group(711)
            ],
            "attributes": [
                {"attribute_type": r.number(x.get(871), I16), "attribute_value": r.number(x.get(872), I16)}
                for x in entry.group(870)
            ],
            "lots": [
                {"lot_type": r.number(x.get(1093), I8), "min_lot_size": r.number(x.get(1231))}
                for x in entry.group(1234)
            ],
            "tick_rules": [
                {"start_price": r.price(x.get(1206)), "end_price": r.price(x.get(1207)),
                 "increment": r.price(x.get(1208)), "rule_type": r.number(x.get(1209), I8)} for x in entry.group(1205)
            ],
            "alternate_ids": [{"alternate_id": x.get(455), "id_source": x.get(456)} for x in entry.group(454)],
            "feeds": feeds,
        }  # fmt: skip
        lists = {
            name: [{k: v for k, v in x.items() if v not in (None, "")} for x in rows] for name, rows in lists.items()
        }
        text = lambda tag: get(tag) or None  # noqa: E731
        coded = lambda table, value: table.get(value, whole(value))  # noqa: E731
        self.add(
            "definition", place, e.LAST, None, instrument_id=r.number(get(48)), isin=isin or None,
            action=r.char(get(980)), symbol=text(55), security_exchange=text(207), security_group=text(1151),
            asset=text(6937), security_type=text(167), security_sub_type=r.number(get(762), I32),
            product=r.number(get(460), I16), cfi_code=text(461), description=text(107), currency=text(15),
            strike_currency=text(947), settl_currency=text(120), country=text(470), strategy_type=text(7534),
            total_instruments=r.number(body.get(393)), is_last=r._fits(coded(words, body.get(893)), I8),
            tick=r.price(get(969)), tick_denominator=r.number(get(5151), I16), strike_price=r.price(get(202)),
            contract_multiplier=r.price(get(231)), price_divisor=r.price(get(37012)), maturity_date=r.days(get(541)),
            maturity_month_year=r.number(get(200), I32), contract_settl_month=r.number(get(667), I32),
            issue_date=r.days(get(225)), dated_date=r.days(get(873)), start_date=r.days(get(916)),
            end_date=r.days(get(917)), settl_date=r.days(get(64)), settl_type=r._fits(tail(get(63)), I32),
            ts_validity=r.stamp(get(6938)), exercise_style=r.number(get(1194), I8), put_or_call=r.number(get(201), I8),
            opt_payout_type=r.number(get(1482), I8), price_type=r.number(get(423), I8),
            market_segment_id=r.number(get(1300), I32),
            governance_indicator=r._fits(coded(governance, get(37011)), I16),
            security_match_type=r.number(get(37015), I16), multi_leg_model=r.number(get(1377), I8),
            multi_leg_price_method=r.number(get(1378), I8), implied_market_indicator=r.number(get(1144), I8),
            round_lot=r.number(get(561)), min_trade_vol=r.number(get(562)), min_order_qty=r.number(get(9749)),
            max_order_qty=r.number(get(9748)), min_cross_qty=r.number(get(35561)), shares_issued=r.number(get(7595)),
            corporate_action_event_id=r.number(get(37010)), **{name: rows or None for name, rows in lists.items()},
        )["flags"] |= e.OUT_OF_RANGE if r.is_out_of_range else 0  # fmt: skip

    def news(self, body: Tags) -> None:
        r, get = ValueReader(), body.get
        lines = [x.get(355) or x.get(58) or "" for x in body.group(33)]
        related = [{"related_id": r.number(x.get(48))} for x in body.group(146)]
        self.add(
            "news", 0, e.LAST, None, news_source=r.number(get(6940), I16), language=get(1474) or "pt",
            news_id=r.number(get(1472)), ts_origin=r.stamp(get(42)), url=get(149) or None,
            headline=get(359) or get(148) or None, text="\n".join(lines) or None,
            related=[{k: v for k, v in x.items() if v is not None} for x in related] or None,
        )["flags"] |= e.OUT_OF_RANGE if r.is_out_of_range else 0  # fmt: skip
