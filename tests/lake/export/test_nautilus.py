"""A Nautilus catalog, read back by the real nautilus_trader."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from lake.captures import truth

from umdf.errors import UmdfError
from umdf.lake.export import nautilus
from umdf.lake.export.job import ExportRequest, export
from umdf.lake.export.order_flow import UntrustedDataError

FIRST, SECOND = date(2026, 11, 13), date(2026, 11, 16)
TABLES = ["mbo", "mbp_1", "trades", "ohlcv_1m", "ohlcv_1d"]
HOW_TO_RUN = "nautilus_trader is not installed: pip install -c constraints.txt -e '.[export-tests]'"


def test_without_nautilus_the_error_says_what_to_install(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, nautilus.PACKAGE, None)
    with pytest.raises(UmdfError) as error:
        export(whole.lake, "nautilus", tmp_path / "out")
    assert str(error.value) == (
        "a Nautilus catalog needs nautilus_trader, which is not installed; pip install 'umdf[nautilus]'"
    )
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def catalog(whole: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    real = pytest.importorskip("nautilus_trader.persistence.catalog", reason=HOW_TO_RUN)
    out = tmp_path_factory.mktemp("nautilus") / "out"
    export(whole.lake, "nautilus", out, TABLES)
    return real.ParquetDataCatalog(str(out))


def rows_of(whole: Any, table: str, symbol: str) -> list[dict[str, Any]]:
    return whole.lake.get_range(table, symbol, price_type="fixed", pretty_ts=False).to_arrow().to_pylist()


def fixed(value: Any) -> int:
    """A Price or Quantity in units of 1e-9."""
    return int(value.as_decimal() * 10**9)


def symbols_of(whole: Any) -> list[str]:
    return whole.lake.symbols()


def test_every_instrument_has_its_nautilus_class(catalog: Any, whole: Any):
    found = {instrument.raw_symbol.value: instrument for instrument in catalog.instruments()}
    assert sorted(found) == sorted(symbols_of(whole))
    kinds = {"CS": "Equity", "FUT": "FuturesContract", "OPT": "OptionContract", "MLEG": "FuturesSpread"}
    for symbol, instrument in found.items():
        said = [row for row in rows_of(whole, "definition", symbol) if row["action"] != "D"][-1]
        assert type(instrument).__name__ == kinds[said["security_type"]]
        assert fixed(instrument.price_increment) == said["tick"] and instrument.id.value == f"{symbol}.BVMF"
        if said["contract_multiplier"]:
            assert fixed(instrument.multiplier) == said["contract_multiplier"]
        if said["strike_price"]:
            assert fixed(instrument.strike_price) == said["strike_price"]


def test_quotes_are_the_best_prices_of_both_sides(catalog: Any, whole: Any):
    found = defaultdict(list)
    for tick in catalog.quote_ticks():
        numbers = (tick.bid_price, tick.ask_price, tick.bid_size, tick.ask_size)
        found[tick.instrument_id.symbol.value].append((*map(fixed, numbers), tick.ts_event))
    for symbol in symbols_of(whole):
        expected = [
            (row["bid_px_00"], row["ask_px_00"], row["bid_sz_00"] * 10**9, row["ask_sz_00"] * 10**9, row["ts_event"])
            for row in rows_of(whole, "mbp_1", symbol)
            if row["bid_px_00"] is not None and row["ask_px_00"] is not None
        ]
        assert found[symbol] == expected


def test_trades_are_those_of_the_truth(catalog: Any, whole: Any):
    sides = {"BUYER": "B", "SELLER": "A", "NO_AGGRESSOR": "N"}
    found = defaultdict(list)
    for tick in catalog.trade_ticks():
        side = sides[tick.aggressor_side.name]
        one = (tick.ts_event, fixed(tick.price), fixed(tick.size) // 10**9, side, int(tick.trade_id.value))
        found[tick.instrument_id.symbol.value].append(one)
    expected = defaultdict(list)
    for capture in whole.captures.values():
        names = {row["instrument_id"]: row["symbol"] for row in truth(capture, "instruments").to_pylist()}
        for row in truth(capture, "trades").to_pylist():
            one = (row["ts_event"], row["price"], row["size"], row["side"], row["trade_id"])
            expected[names[row["instrument_id"]]].append(one)
    assert found == expected


def test_bars_end_where_their_interval_ends(catalog: Any, whole: Any):
    found = defaultdict(list)
    for bar in catalog.bars():
        spec = str(bar.bar_type).removeprefix(f"{bar.bar_type.instrument_id}-")
        numbers = tuple(map(fixed, (bar.open, bar.high, bar.low, bar.close)))
        found[bar.bar_type.instrument_id.symbol.value, spec].append((bar.ts_event, *numbers, int(bar.volume)))
    for symbol in symbols_of(whole):
        for table, spec, seconds in (("ohlcv_1m", "1-MINUTE", 60), ("ohlcv_1d", "1-DAY", 86_400)):
            expected = [
                (
                    row["ts_interval"] + seconds * 10**9,
                    *(row[name] for name in ("open", "high", "low", "close", "volume")),
                )
                for row in rows_of(whole, table, symbol)
                if row["open"] is not None
            ]
            assert found[symbol, f"{spec}-LAST-EXTERNAL"] == expected


def replayed(catalog: Any, symbol: str) -> dict[int, list[Any]]:
    """What Nautilus' own book shows after each event, by ts_event: bids and asks, up to ten levels."""
    enums = pytest.importorskip("nautilus_trader.model.enums", reason=HOW_TO_RUN)
    books = pytest.importorskip("nautilus_trader.model.book", reason=HOW_TO_RUN)
    deltas = catalog.order_book_deltas([f"{symbol}.BVMF"])
    book = books.OrderBook(deltas[0].instrument_id, enums.BookType.L3_MBO)
    shown = defaultdict(list)
    for delta in deltas:
        book.apply_delta(delta)
        if delta.flags & 128:
            sides = (book.bids(), book.asks())
            best = [[(fixed(level.price), round(level.size())) for level in side[:10]] for side in sides]
            shown[delta.ts_event].append(best)
    return shown


def test_nautilus_order_books_equal_mbp_10(catalog: Any, whole: Any):
    compared = 0
    for symbol in symbols_of(whole)[:6]:
        shown = replayed(catalog, symbol)
        times = sorted(shown)
        for row in rows_of(whole, "mbp_10", symbol):
            sides = []
            for word in ("bid", "ask"):
                all_ten = [(row[f"{word}_px_{n:02}"], row[f"{word}_sz_{n:02}"]) for n in range(10)]
                sides.append([pair for pair in all_ten if pair[1] is not None])
            priceless = any(price is None for side in sides for price, _ in side)
            if not priceless:
                # An order without a price is no event there.
                now = bisect_right(times, row["ts_event"] or row["ts_send"])
                assert sides in shown[times[now - 1]]
                compared += 1
    assert compared > 100


def test_final_books_equal_the_truth(catalog: Any, whole: Any):
    enums = pytest.importorskip("nautilus_trader.model.enums", reason=HOW_TO_RUN)
    books = pytest.importorskip("nautilus_trader.model.book", reason=HOW_TO_RUN)
    capture = whole.captures[SECOND]
    expected: dict[int, list[tuple[str, int, int, int]]] = defaultdict(list)
    for row in truth(capture, "final_orders").to_pylist():
        if row["price"] is not None:
            expected[row["instrument_id"]].append((row["side"], row["price"], row["size"], row["order_id"]))
    checked = 0
    for row in truth(capture, "instruments").to_pylist():
        deltas = catalog.order_book_deltas([f"{row['symbol']}.BVMF"])
        if not deltas or row["instrument_id"] not in expected:
            continue
        book = books.OrderBook(deltas[0].instrument_id, enums.BookType.L3_MBO)
        for delta in deltas:
            book.apply_delta(delta)
        sides = (("B", book.bids()), ("A", book.asks()))
        found = [
            (side, fixed(order.price), fixed(order.size) // 10**9, order.order_id)
            for side, levels in sides
            for level in levels
            for order in level.orders()
        ]
        assert sorted(found) == sorted(expected[row["instrument_id"]])
        checked += 1
    assert checked >= 5


def test_a_window_starts_with_a_snapshot_of_resting_orders(catalog: Any, whole: Any, tmp_path: Path):
    real = pytest.importorskip("nautilus_trader.persistence.catalog", reason=HOW_TO_RUN)
    every = [delta for delta in catalog.order_book_deltas(["WINZ26.BVMF"]) if delta.ts_init < 1_794_700_000 * 10**9]
    low = every[len(every) // 2].ts_init
    export(whole.lake, "nautilus", tmp_path / "out", ["mbo"], ExportRequest(["WINZ26"], low, "2026-11-14"))
    own = real.ParquetDataCatalog(str(tmp_path / "out"))
    assert own.order_book_deltas(["WINZ26.BVMF"])[0].action.name == "CLEAR"
    last = every[-1].ts_event
    assert replayed(own, "WINZ26")[last] == replayed(catalog, "WINZ26")[last]


def test_untrusted_rows_are_rejected_or_left_out(lossy: Any, tmp_path: Path):
    real = pytest.importorskip("nautilus_trader.persistence.catalog", reason=HOW_TO_RUN)
    for schemas in (["mbo"], ["mbp_1"]):
        with pytest.raises(UntrustedDataError, match="may be wrong"):
            export(lossy.lake, "nautilus", tmp_path / "out", schemas)
    export(lossy.lake, "nautilus", tmp_path / "out", ["mbp_1"], ExportRequest(exclude_stale=True))
    sure = [row for row in lossy.lake.get_range("mbp_1", exclude_stale=True).to_arrow().to_pylist()]
    both = [row for row in sure if row["bid_px_00"] is not None and row["ask_px_00"] is not None]
    assert len(real.ParquetDataCatalog(str(tmp_path / "out")).quote_ticks()) == len(both)
