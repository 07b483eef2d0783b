"""Which instruments are meant: parents, numbers and continuous contracts, against slow references."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pytest
from lake.query.query_lakes import FIRST, delta
from lake.report_lake import write_lake

import umdf
from umdf.lake.query.times import midnight_ns

RAW: dict[str, Any] = {"price_type": "fixed", "pretty_ts": False}
DAYS = [date(2026, 11, 9) + timedelta(days=n) for n in (0, 1, 2, 3, 4, 7, 8)]
SECOND_NS = 10**9


def listed(number: int, symbol: str, asset: str = "DOL", kind: str = "FUT", **more: Any) -> dict[str, Any]:
    about = {"channel_id": 72, "instrument_id": number, "symbol": symbol, "asset": asset, "security_type": kind}
    return about | {"action": "A", "is_last": 0} | more


def at(day: date, seconds: float) -> int:
    return int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() + seconds) * SECOND_NS


def contracts(seed: int) -> list[dict[str, Any]]:
    """Futures of two assets with maturities in and behind the days; some whose trading ends before."""
    chance = random.Random(seed)
    found = []
    for number in range(8):
        maturity = DAYS[0] + timedelta(days=chance.randrange(-2, 14))
        ends = midnight_ns(maturity + timedelta(days=chance.choice([-1, 0, 1, 30])))
        asset = "DOL" if number % 4 else "WIN"
        found.append(listed(number, f"{asset}{number}", asset, maturity_date=maturity, ts_validity=ends))
    found += [listed(20, "DOLC100", kind="OPT", maturity_date=DAYS[-1]), listed(21, "DOLX", maturity_date=None)]
    return found


def write_futures(root: Path, seed: int = 1) -> list[dict[str, Any]]:
    """A lake of futures: lists, and what was traded. The numbers of instruments are others on each day."""
    chance, rows = random.Random(seed), []
    for n, day in enumerate(DAYS):
        own = [
            one | {"instrument_id": 1_000 * n + one["instrument_id"], "ts_recv": at(day, 0)} for one in contracts(seed)
        ]
        chance.shuffle(own)
        own[-1] |= {"is_last": 1, "ts_recv": at(day, 1)}
        # Listed during the day: the nearest of all, but nobody knew of it when the day began.
        late = listed(1_000 * n + 99, "DOLLATE", maturity_date=day, ts_recv=at(day, 3600), seq_version=7)
        traded = [
            {name: one[name] for name in ("channel_id", "instrument_id", "symbol")} | {"volume": chance.randrange(4)}
            for one in own if chance.random() < 0.8
        ]  # fmt: skip
        trades = [
            {name: one[name] for name in ("channel_id", "instrument_id", "symbol")}
            | {"sequence": place, "seq_version": 1, "ts_recv": at(day, 60 + place), "action": "A", "price": place}
            for place, one in enumerate([*own, late])
        ]
        write_lake(root, {"definition": [*own, late], "day_statistics": traded, "trades": trades}, day)
        rows += [one | {"day": day, "volumes": traded} for one in own]
    return rows


def slow_rank(rows: list[dict[str, Any]], day: date, asset: str, rule: str) -> list[str]:
    """The roll rule in as few words as possible."""
    ranked = []
    for one in rows:
        if one["day"] != day or one["asset"] != asset or one["security_type"] != "FUT" or one["maturity_date"] is None:
            continue
        if one["maturity_date"] >= day and one["ts_validity"] > midnight_ns(day):
            ranked.append((one["maturity_date"], one["symbol"]))
    if rule == "v":
        before = [each for each in DAYS if each < day]
        if not before:
            return []
        traded = next(one["volumes"] for one in rows if one["day"] == before[-1])
        volume = {one["symbol"]: one["volume"] for one in traded}
        ranked = [(-volume.get(symbol, 0), maturity, symbol) for maturity, symbol in ranked]
    return [key[-1] for key in sorted(ranked)]


@pytest.mark.parametrize("seed", range(5))
def test_continuous_contracts_follow_the_roll_rule(tmp_path: Path, seed: int) -> None:
    rows = write_futures(tmp_path, seed)
    lake = umdf.Lake(tmp_path)
    checked = 0
    for asset in ("DOL", "WIN"):
        for rule in "cv":
            for rank in range(3):
                name = f"{asset}.{rule}.{rank}"
                expected = {day: order[rank] for day in DAYS if len(order := slow_rank(rows, day, asset, rule)) > rank}
                if not expected:
                    with pytest.raises(umdf.UmdfError, match=f"{name}|no futures of '{asset}'"):
                        lake.continuous_contracts(name)
                    continue
                checked += len(expected)
                found = lake.continuous_contracts(name).to_pylist()
                assert {roll["trading_date"]: roll["symbol"] for roll in found} == expected, name
                trades = lake.get_range("trades", name, stype_in="continuous", **RAW).to_arrow()
                assert (
                    dict(zip(*(trades.column(n).to_pylist() for n in ("trading_date", "symbol")), strict=True))
                    == expected
                )
                assert set(trades.column("continuous").to_pylist()) == {name}
                assert trades.num_rows == len(expected)
    assert checked > 20 and "DOLLATE" not in str(lake.continuous_contracts(["DOL.c.0", "DOL.c.1"]).to_pylist())


def test_contracts_are_ranked_without_data_of_the_same_day(tmp_path: Path) -> None:
    """What is traded on a day changes the contract of the next day, not of its own."""
    rows = write_futures(tmp_path, 1)
    before = umdf.Lake(tmp_path).continuous_contracts("DOL.v.0").to_pylist()
    other = slow_rank(rows, DAYS[-1], "DOL", "v")[-1]
    assert other != before[-1]["symbol"]
    volumes = {"day_statistics": [{"channel_id": 72, "instrument_id": 7, "symbol": other, "volume": 10**9}]}
    write_lake(tmp_path, volumes, DAYS[-1])
    assert umdf.Lake(tmp_path).continuous_contracts("DOL.v.0").to_pylist() == before
    write_lake(tmp_path, volumes, DAYS[-2])
    after = umdf.Lake(tmp_path).continuous_contracts("DOL.v.0").to_pylist()
    assert after[:-1] == before[:-1] and (after[-1]["symbol"], after[-1]["volume"]) == (other, 10**9)
    assert after[-1]["volume_date"] == DAYS[-2]


def test_a_contract_with_two_continuous_symbols_is_returned_twice(tmp_path: Path) -> None:
    write_futures(tmp_path, 1)
    lake = umdf.Lake(tmp_path)
    names = ["DOL.c.0", "DOL.c.1", "DOL.v.0"]
    both = lake.get_range("trades", names, stype_in="continuous", **RAW).to_arrow().to_pylist()
    each = [lake.get_range("trades", name, stype_in="continuous", **RAW).to_arrow().to_pylist() for name in names]

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["trading_date"], row["sequence"], row["continuous"]

    assert sorted(both, key=key) == sorted([row for some in each for row in some], key=key)
    assert [key(row)[:2] for row in both] == sorted(key(row)[:2] for row in both)


def test_a_parent_is_all_contracts_of_an_asset(tmp_path: Path) -> None:
    write_futures(tmp_path, 1)
    lake = umdf.Lake(tmp_path)
    for parent, asset, kinds in (("DOL.FUT", "DOL", ["FUT"]), ("WIN.FUT", "WIN", ["FUT"]), ("DOL.OPT", "DOL", ["OPT"])):
        for name in ("trades", "definition", "day_statistics"):
            found = lake.get_range(name, parent, DAYS[1], DAYS[4], stype_in="parent", **RAW).to_arrow()
            own = delta(tmp_path, "definition").filter(
                (polars.col("asset") == asset) & polars.col("security_type").is_in(kinds)
            )
            ids = own.select("trading_date", "instrument_id").unique()
            expected = delta(tmp_path, name).filter(polars.col("trading_date").is_in(DAYS[1:4]))
            expected = expected.join(ids, ["trading_date", "instrument_id"], "semi")
            assert found.num_rows == expected.height > 0
            assert set(found.column("symbol").to_pylist()) == set(expected["symbol"])
    both = lake.get_range("trades", ["DOL.FUT", "WIN.FUT"], stype_in="parent").to_arrow()
    assert both.num_rows == delta(tmp_path, "trades").filter(polars.col("symbol") != "DOLC100").height


def test_instruments_can_be_requested_by_id(lake: umdf.Lake, root: Path) -> None:
    number = delta(root, "trades", trading_date=FIRST)["instrument_id"][0]
    expected = delta(root, "trades").filter(polars.col("instrument_id") == number).height
    for asked in (number, str(number), [number]):
        assert lake.get_range("trades", asked, stype_in="instrument_id").to_arrow().num_rows == expected > 0
    states = lake.get_range("book_state", number, stype_in="instrument_id").to_arrow()
    assert set(states.column("instrument_id").to_pylist()) == {number}


def test_a_symbol_on_two_channels_has_the_rows_of_both(lake: umdf.Lake, root: Path) -> None:
    found = lake.get_range("trades", "WINZ26", FIRST, "2026-11-14").to_arrow()
    assert set(found.column("channel_id").to_pylist()) == {72, 80}
    assert found.num_rows == delta(root, "trades", trading_date=FIRST, symbol="WINZ26").height


def test_symbols_match_the_row_not_another_definition(tmp_path: Path) -> None:
    """An instrument that changes its symbol has the last one on every row of that day."""
    old, new = listed(1, "OLD3", ts_recv=1), listed(1, "NEW3", ts_recv=2, action="M")
    row = {"channel_id": 72, "instrument_id": 1, "symbol": "NEW3", "seq_version": 1, "sequence": 1}
    write_lake(tmp_path, {"definition": [old, new], "trades": [row]})
    lake = umdf.Lake(tmp_path)
    assert lake.get_range("trades", "NEW3").to_arrow().num_rows == 1
    assert lake.get_range("trades", "OLD3").to_arrow().num_rows == 0
    assert lake.definitions(symbols="NEW3").to_arrow().num_rows == 1


def test_without_definitions_the_symbols_of_rows_are_used(tmp_path: Path) -> None:
    row = {"channel_id": 72, "instrument_id": 1, "symbol": "AAAA3", "seq_version": 1, "sequence": 1}
    write_lake(tmp_path, {"trades": [row, row | {"symbol": "BBBB3", "sequence": 2}]})
    lake = umdf.Lake(tmp_path)
    assert lake.get_range("trades", "BBBB3").to_arrow().column("sequence").to_pylist() == [2]
    assert lake.get_range("trades", "CCCC3").to_arrow().num_rows == 0
