"""Catalogues: what the generator lists is what an exchange could list, and a file says where it is wrong."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from umdf.errors import UsageError
from umdf.exchange.instruments.catalogue_file import generate_catalogue, load_catalogue, save_catalogue
from umdf.exchange.instruments.instrument_spec import BUY, UNIT, InstrumentSpec
from umdf.exchange.instruments.instrument_types import InstrumentType as T
from umdf.exchange.instruments.isin import check_digit
from umdf.exchange.instruments.listing import Listing

TODAY, TRADING_DATE = date(2026, 11, 13), 20_770
MONTHS = "FGHJKMNQUVXZ"


@pytest.fixture(scope="module")
def specs() -> list[InstrumentSpec]:
    return generate_catalogue(1_500, 3, TODAY)


def test_a_catalogue_has_all_markets_and_the_well_known_symbols(specs: list[InstrumentSpec]) -> None:
    by_symbol = {spec.symbol: spec for spec in specs}
    assert len(by_symbol) == len(specs) == 1_500 and {spec.type for spec in specs} == set(T)
    assert len({spec.security_id for spec in specs}) == len(specs)
    assert {"PETR4", "PETR4F", "VALE3", "WINZ26", "DOLZ26", "BOVA11", "IBOV", "USDBRLD2"} <= set(by_symbol)
    assert (by_symbol["PETR4"].lot, by_symbol["PETR4"].lot_type) == (100, 2)
    assert (by_symbol["PETR4F"].lot, by_symbol["PETR4F"].lot_type) == (1, 1)
    # As issued.
    known = {"PETR4": "BRPETRACNPR6", "PETR3": "BRPETRACNOR9", "VALE3": "BRVALEACNOR0", "BOVA11": "BRBOVACTF003"}
    assert {symbol: by_symbol[symbol].isin for symbol in known} == known
    assert all(spec.isin[-1] == check_digit(spec.isin[:-1]) for spec in specs if spec.isin)
    assert all(spec.is_anonymous == (spec.type == T.FX_SPOT) for spec in specs)
    # 1300: required for all that can be traded, not on indexes and lending.
    assert all((spec.segment is None) == (spec.type in (T.INDEX, T.LENDING)) for spec in specs)


def test_futures_have_chains_with_the_right_letters_and_dates(specs: list[InstrumentSpec]) -> None:
    chains: defaultdict[str, list[InstrumentSpec]] = defaultdict(list)
    for spec in specs:
        if spec.type == T.FUTURE:
            chains[spec.asset].append(spec)
    assert len(chains) > 5 and all(len(chain) >= 3 for chain in list(chains.values())[:-1])
    for chain in chains.values():
        days = [spec.maturity for spec in chain]
        assert all(day is not None and day > TODAY for day in days) and days == sorted(days, key=str)
        for spec in chain:
            assert spec.maturity is not None
            assert spec.symbol == f"{spec.asset}{MONTHS[spec.maturity.month - 1]}{spec.maturity.year % 100}"
            assert spec.maturity_code == 100 * spec.maturity.year + spec.maturity.month
            assert spec.maturity.weekday() < 5


def test_strategies_are_worth_the_difference_of_their_legs(specs: list[InstrumentSpec]) -> None:
    by_symbol = {spec.symbol: spec for spec in specs}
    strategies = [spec for spec in specs if spec.type == T.STRATEGY]
    assert {spec.sub_type for spec in strategies} >= {90, 140, 141, 1108}
    assert {len(spec.legs) for spec in strategies} == {2, 3}
    for spec in strategies:
        legs = [(by_symbol[leg.symbol], leg) for leg in spec.legs]
        assert len({leg.asset for leg, _ in legs}) == 1
        value = sum((1 if leg.side == BUY else -1) * leg.ratio * leg_spec.reference_price for leg_spec, leg in legs)
        assert spec.reference_price == value // UNIT
        assert spec.strike is None and spec.is_user_defined == (spec.sub_type == 1108)


def test_options_mature_by_month_week_and_day(specs: list[InstrumentSpec]) -> None:
    options = [spec for spec in specs if spec.type == T.OPTION]
    kinds = set()
    for spec in options:
        assert spec.maturity is not None and spec.maturity > TODAY and spec.strike
        code, day = str(spec.maturity_code), spec.maturity
        if len(code) == 6:
            kinds.add("month")
            assert code == f"{day:%Y%m}" and day.weekday() == 4 and 15 <= day.day <= 21
        elif code[6] == "9":
            kinds.add("week")
            assert code == f"{day:%Y%m}9{(day.day + 6) // 7}" and spec.symbol.endswith(f"W{code[7]}")
        else:
            kinds.add("day")
            assert code == f"{day:%Y%m%d}" and spec.symbol.endswith(f"D{day:%d}")
    assert kinds == {"month", "week", "day"}


def test_an_index_is_worth_what_its_underlyings_are(specs: list[InstrumentSpec]) -> None:
    by_symbol = {spec.symbol: spec for spec in specs}
    for spec in (spec for spec in specs if spec.type == T.INDEX):
        value = sum((item.quantity or 0) * by_symbol[item.symbol].reference_price for item in spec.underlyings)
        assert value / (spec.divisor or 1) == pytest.approx(spec.reference_price, rel=1e-3)
        assert sum(item.percent or 0 for item in spec.underlyings) == pytest.approx(100 * UNIT, rel=1e-6)


def test_the_same_seed_gives_the_same_catalogue_and_all_sizes_work() -> None:
    assert generate_catalogue(300, 1, TODAY) == generate_catalogue(300, 1, TODAY) != generate_catalogue(300, 2, TODAY)
    for count in (100, 20_000):
        symbols = [spec.symbol for spec in generate_catalogue(count, 1, TODAY)]
        assert len(set(symbols)) == count
    with pytest.raises(UsageError, match="out of range: 20001"):
        generate_catalogue(20_001, 1, TODAY)


def test_a_file_gives_back_what_was_saved(specs: list[InstrumentSpec], tmp_path: Path) -> None:
    save_catalogue(tmp_path / "catalogue.csv", specs)
    assert load_catalogue(tmp_path / "catalogue.csv") == specs


LINE = "PETR4,stock,1,PETR,S1,PS,1004,5,EPNNPR,0.01,32.45"
FAULTS: list[tuple[str, str]] = [
    (LINE.replace("0.01", "cheap"), "line 2: tick is not a number: cheap"),
    (LINE.replace("0.01", "0"), "line 2: tick is not positive: 0"),
    (LINE.replace("32.45", "32.455"), "line 2: reference_price is not on a tick: 32.455"),
    (LINE.replace("32.45", "1e30"), "line 2: reference_price is too large"),
    (LINE.replace("32.45", "nan"), "line 2: reference_price is not a number: nan"),
    (LINE.replace("PS", "PN"), "line 2: security_type is unknown: PN"),
    (LINE.replace("stock", "share"), "line 2: type is unknown: share"),
    (LINE.replace("PETR4", "P" * 21), "line 2: symbol is longer than 20 bytes"),
    (LINE.replace("PETR4", "PETR4\x1b"), "line 2: symbol is not printable"),
    (LINE.replace(",1,", ",0,"), "line 2: security_id is out of range: 0"),
    (LINE.replace(",1,", ",,"), "line 2: security_id is empty"),
    (LINE.replace("1004", "x"), "line 2: sub_type is not a whole number: x"),
    (LINE.replace(",5,", ",8,"), "line 2: product is unknown: 8"),
    (LINE[: LINE.rindex(",")], "line 2: 10 cells, not 11"),
    (LINE + "\n" + LINE, "line 3: symbol is in the file twice: PETR4"),
    (LINE + "\n" + LINE.replace("PETR4", "PETR3"), "line 3: security_id is that of PETR4 too: 1"),
    (LINE.replace("stock", "option"), "line 2: strike is empty"),
    (LINE.replace("stock", "future"), "line 2: maturity is empty"),
    (LINE.replace("stock", "strategy"), "line 2: legs is empty"),
]


@pytest.mark.parametrize(("lines", "error"), FAULTS, ids=[error for _, error in FAULTS])
def test_a_fault_is_named_by_file_line_and_field(lines: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    header = "symbol,type,security_id,asset,group,security_type,sub_type,product,cfi_code,tick,reference_price"
    path.write_text(f"{header}\n{lines}\n")
    with pytest.raises(UsageError) as caught:
        load_catalogue(path)
    assert str(caught.value).startswith(f"{path}, {error}"), str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell", "error"),
    [
        ("legs", "buy WINZ26; hold WING27", "legs is not a list of legs"),
        ("legs", "sell WINZ26; buy WINX99", "legs has no line for WINX99"),
        ("legs", "sell WINZ26; buy DOLZ26", "legs are of several assets"),
        ("maturity", "2026-13-01", "maturity is not a date"),
        ("maturity_code", "202701", "maturity_code is of another month"),
        ("isin", "BRWINZ26ABC0", "isin has a wrong check digit"),
        ("attributes", "24=1", "attributes is not a list of attributes"),
        ("is_anonymous", "maybe", "is_anonymous is neither yes nor no"),
        ("follows", "NOBODY", "follows has no line for NOBODY"),
        ("underlyings", "PETR4 7", "underlyings is not a list of underlyings"),
    ],
)
def test_faults_of_strategies(column: str, cell: str, error: str, specs: list[InstrumentSpec], tmp_path: Path) -> None:
    names = ("WINZ26", "WING27", "DOLZ26", "WINZ26G27")
    chosen = [replace(spec, follows="") for spec in specs if spec.symbol in names]
    path = tmp_path / "bad.csv"
    save_catalogue(path, chosen)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    row = next(row for row in lines if row[0] == "WINZ26G27")
    row[lines[0].index(column)] = cell
    path.write_text("\n".join(",".join(cells) for cells in lines) + "\n")
    with pytest.raises(UsageError, match=error) as caught:
        load_catalogue(path)
    assert f"line {1 + lines.index(row)}" in str(caught.value)


def test_garbage_is_an_error_of_one_line(specs: list[InstrumentSpec], tmp_path: Path) -> None:
    path, numbers = tmp_path / "garbage.csv", random.Random(4)
    save_catalogue(path, specs[:40])
    content, refused = path.read_bytes(), 0
    for _ in range(200):
        bad = bytearray(content)
        for _ in range(numbers.randint(1, 4)):
            bad[numbers.randrange(len(bad))] = numbers.randrange(256)
        path.write_bytes(bad)
        try:
            load_catalogue(path)
        except UsageError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 50
    with pytest.raises(UsageError, match="cannot read"):
        load_catalogue(tmp_path / "nowhere.csv")


@pytest.fixture
def listing() -> Listing:
    return Listing(generate_catalogue(300, 3, TODAY), TRADING_DATE, np.random.default_rng(1), capacity=303)


def test_instruments_come_and_go_during_the_day(listing: Listing) -> None:
    spec = listing.instruments[listing.index_of("PETR4")]
    new = replace(spec, symbol="NEWS3", security_id=77, isin="")
    assert listing.add(new) == 300 == len(listing) - 1 and listing.instrument_ids[300] == 77
    with pytest.raises(UsageError, match="NEWS3 is listed already"):
        listing.add(new)
    listing.modify("NEWS3", replace(new, description="NEW NAME"))
    assert listing.definition_number[300] == 301 and listing.definitions.specs[300].description == spec.description
    with pytest.raises(UsageError, match="keeps its symbol"):
        listing.modify("NEWS3", replace(new, security_id=78))
    for symbol in ("NEWS4", "NEWS5"):
        listing.add(replace(new, symbol=symbol, security_id=80 + len(listing)))
    with pytest.raises(UsageError, match="no room for NEWS6: 303 instruments"):
        listing.add(replace(new, symbol="NEWS6"))
    assert listing.instrument_ids[-1] == -(1 << 63) and len(listing.security_id) == 303


def test_a_deleted_stock_takes_its_lending_book_with_it(listing: Listing) -> None:
    rows = listing.delete("PETR4")
    assert [listing.instruments[row].symbol for row in rows] == ["PETR4BTB", "PETR4"]
    with pytest.raises(UsageError, match="unknown instrument: PETR4BTB"):
        listing.index_of("PETR4BTB")


def test_what_has_matured_expires_with_its_strategies(listing: Listing) -> None:
    after = date(2026, 12, 17)  # the day after WINZ26
    expired = {listing.instruments[row].symbol for row in listing.expire(after)}
    due = {spec.symbol for spec in listing.instruments if spec.maturity is not None and spec.maturity < after}
    legs = {s.symbol for s in listing.instruments if any(leg.symbol in due for leg in s.legs)}
    assert "WINZ26" in expired and "WINZ26G27" in expired and expired == due | legs
    assert listing.expire(after) == [] and listing.expire(after + timedelta(1_000)) != []


def test_no_order_flow_where_nothing_is_traded(listing: Listing) -> None:
    idle = [spec.type in (T.INDEX, T.INDICATOR) for spec in listing.instruments]
    assert not listing.activity[: len(listing)][idle].any() and listing.activity.sum() == pytest.approx(1)


def test_the_same_future_in_two_sizes_has_one_price(specs: list[InstrumentSpec]) -> None:
    """Nobody would believe a dollar that costs one price in DOL and another in WDO, nor a future beside its index."""
    by_symbol = {spec.symbol: spec for spec in specs}
    for mini, full, followed in (("WDO", "DOL", "DOL"), ("IND", "WIN", "IBOV"), ("WIN", "WIN", "IBOV")):
        ours = [spec for spec in specs if spec.type == T.FUTURE and spec.asset == mini]
        assert ours and {by_symbol[spec.follows].asset for spec in ours} == {followed}
        for spec in ours:
            twin = by_symbol.get(full + spec.symbol.removeprefix(mini))
            assert twin is None or (twin.reference_price, twin.tick) == (spec.reference_price, spec.tick)
