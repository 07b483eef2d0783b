"""Bad input on every call: one clear error, with what to do next."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

import umdf
from umdf.lake.commit.writer import open_writer


def mbo(**more: Any) -> dict[str, Any]:
    return {"schema": "mbo", **more}


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("get_range", {"schema": "mbp-11"}, r"unknown schema: 'mbp-11'; did you mean mbp_1 or mbp_10"),
    ("get_range", {"schema": "xyz"}, r"unknown schema: 'xyz'; available: mbo, trades"),
    ("get_range", mbo(symbols="PTR4"), r"unknown symbol: 'PTR4'; did you mean PETR4"),
    ("get_range", mbo(symbols="petr4"), r"unknown symbol: 'petr4'; did you mean PETR4"),
    ("get_range", mbo(symbols="%$#"), r"unknown symbol: '%\$#'; there are .* `day_statistics` has them all"),
    ("get_range", mbo(symbols=["PETR4", "NONE"]), r"unknown symbol: 'NONE'"),
    ("get_range", mbo(symbols=[]), r"symbols is empty; omit it"),
    ("get_range", mbo(symbols=7), r"invalid symbol: 7; .*stype_in='instrument_id'"),
    ("get_range", mbo(symbols=(1, 2)), r"invalid symbol: 1"),
    ("get_range", mbo(start="2026-13-45"), r"invalid start: '2026-13-45'"),
    ("get_range", mbo(end="soon"), r"invalid end: 'soon'"),
    ("get_range", mbo(start="2026-11-14", end="2026-11-13"), r"start 2026-11-14 is after end 2026-11-13"),
    ("get_range", mbo(start="2030-01-01"), r"no data from 2030-01-01; available dates: 2026-11-13, "),
    ("get_range", mbo(start="2026-11-14", end="2026-11-16"), r"no data from 2026-11-14 to 2026-11-16"),
    ("get_range", mbo(end=20261113), r"no data to 1970-01-01 00:00:00.020261113; available dates:"),
    ("get_range", mbo(stype_in="isin"), r"invalid stype_in: 'isin'; use raw, parent"),
    ("get_range", mbo(price_type="double"), r"invalid price_type: 'double'; use decimal"),
    ("get_range", mbo(columns=["prize"]), r"unknown column of mbo: 'prize'; did you mean price"),
    ("get_range", mbo(columns=[]), r"columns is empty or has repeated names; omit it"),
    ("get_range", mbo(columns=["price", "price"]), r"columns is empty or has repeated names; omit it"),
    ("get_range", mbo(columns=["continuous"]), r"unknown column of mbo: 'continuous'"),
    ("get_range", {"schema": "packets", "symbols": "PETR4"}, r"symbols do not apply to packets; omit them"),
    ("get_range", {"schema": "gaps", "exclude_stale": True}, r"exclude_stale does not apply to gaps; omit it"),
    ("get_range", {"schema": "day_statistics", "start": "2026-11-13T10:00"}, r"day_statistics has no timestamps; use"),
    ("get_range", mbo(symbols="DOL", stype_in="parent"), r"invalid parent symbol: 'DOL'; use ASSET.TYPE"),
    ("get_range", mbo(symbols="WI.FUT", stype_in="parent"), r"no contracts of 'WI.FUT' .*WIN.FUT"),
    ("get_range", mbo(symbols="WIN", stype_in="continuous"), r"invalid continuous symbol: 'WIN'; use"),
    ("get_range", mbo(symbols="XYZ.c.0", stype_in="continuous"), r"no futures of 'XYZ'"),
    ("get_range", mbo(symbols="WIN.c.5", stype_in="continuous"), r"WIN has only 3 contracts"),
    ("get_range", mbo(symbols="WIN.v.0", stype_in="continuous", end="2026-11-14"),
     r"by the previous day's volume, which the lake does not have \(it starts on 2026-11-13\); use WIN.c.0"),
    ("get_range", mbo(symbols="x1", stype_in="instrument_id"), r"invalid instrument ID: 'x1'"),
    ("get_range", mbo(symbols=1, stype_in="instrument_id"), r"unknown instrument ID .*: 1; list them"),
    ("trades_with_quotes", {"by": "ts_send"}, r"invalid by: 'ts_send'; use position, ts_event or ts_recv"),
    ("trades_with_quotes", {"quotes": "bbo_1s"}, r"invalid quotes: 'bbo_1s'; use mbp_1 or mbp_10"),
    ("trades_with_quotes", {"quotes": "quotes"}, r"unknown schema: 'quotes'"),
    ("trades_with_quotes", {"columns": ["bid_px_01"]}, r"unknown column of trades: 'bid_px_01'; did you mean bid_px"),
    ("book_at", {"symbol": "PETR4", "at": "2026-11-14"}, r"no data from 2026-11-14 to 2026-11-15"),
    ("book_at", {"symbol": "PTR4", "at": "2026-11-13"}, r"unknown symbol: 'PTR4'; did you mean PETR4"),
    ("book_at", {"symbol": "PETR4", "at": "2026-11-13"}, r"PETR4 is ambiguous on .* \(channels 72, 80\); pass"),
    ("book_at", {"symbol": "PETR4", "at": "2026-11-13", "channel": 5}, r"PETR4 is not listed on channel 5 "),
    ("book_at", {"symbol": "PETR4", "at": "2026-11-16", "depth": 0}, r"invalid depth: 0"),
    ("book_at", {"symbol": None, "at": "2026-11-16"}, r"book_at takes one symbol"),
    ("definitions", {"at": "2026-11-12"}, r"no definitions at 2026-11-12; the lake has definitions of"),
    ("definitions", {"at": "2026-11-13T10:00"}, r"no definitions at 2026-11-13T10:00"),
    ("definitions", {"symbols": "NONE"}, r"unknown symbol: 'NONE'"),
    ("symbols", {"date": "2026-11-14"}, r"no data from 2026-11-14"),
    ("continuous_contracts", {"symbols": "WIN.n.0"}, r"invalid continuous symbol: 'WIN.n.0'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "asked", "said"), CASES, ids=[f"{call}-{asked}"[:70] for call, asked, _ in CASES])
def test_one_clear_error(lake: umdf.Lake, call: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(umdf.UmdfError, match=said) as caught:
        getattr(lake, call)(**asked)
    assert caught.value.hint and "\n" not in str(caught.value)


def test_an_error_names_the_dates_on_which_a_symbol_is_listed(lake: umdf.Lake, tmp_path: Path) -> None:
    from lake.report_lake import DAY, OTHER_DAY, write_lake

    for day, symbol in ((OTHER_DAY, "OLD3"), (DAY, "NEW3")):
        write_lake(
            tmp_path, {"definition": [{"channel_id": 1, "instrument_id": 1, "symbol": symbol, "action": "A"}]}, day
        )
    with pytest.raises(umdf.UmdfError, match="OLD3 is not listed from 2026-11-13; it is listed on 2026-11-12"):
        umdf.Lake(tmp_path).get_range("mbo", "OLD3", "2026-11-13")


def test_a_missing_lake_and_an_empty_lake_are_clear_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(
            umdf.UmdfError, match=r"is not a umdf lake \(no lake.json\); create one with `umdf ingest CAPTURE… --lake "
        ):
            umdf.Lake(path)
    with open_writer(tmp_path / "lake"):
        pass
    lake = umdf.Lake(tmp_path / "lake")
    assert (lake.commit, lake.dates(), lake.schemas(), lake.symbols()) == (0, [], [], [])
    asked = [("get_range", {"schema": "mbo"}), ("get_range", {"schema": "mbo", "symbols": "A"}), ("definitions", {})]
    asked += [
        ("book_at", {"symbol": "A", "at": "2026-11-13"}),
        ("trades_with_quotes", {}),
        ("continuous_contracts", {"symbols": "A.c.0"}),
    ]
    for call, how in asked:
        with pytest.raises(
            umdf.UmdfError, match=r"the lake .* is empty; load captures with `umdf ingest CAPTURE… --lake "
        ):
            getattr(lake, call)(**how)


@pytest.mark.parametrize(
    ("package", "output"), [("pandas", "to_pandas"), ("polars", "to_polars"), ("pyspark", "to_spark")]
)
def test_an_output_whose_package_is_missing_says_so(
    lake: umdf.Lake, monkeypatch: pytest.MonkeyPatch, package: str, output: str
) -> None:
    known = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(f"No module named {package!r}")
        return known(name, *more, **others)

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(umdf.UmdfError, match=r"(cannot import .*|needs pyspark, .*); pip install"):
        getattr(lake.get_range("trades", "PETR4"), output)()
