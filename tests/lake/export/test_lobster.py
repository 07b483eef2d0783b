"""LOBSTER's files: replayed by plain Python, and against the lake's own levels and the generator's truth."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from lake.captures import truth

from umdf.errors import UmdfError
from umdf.lake.export.job import ExportRequest, Options, export
from umdf.lake.export.lobster import LobsterConverter, LobsterLine
from umdf.lake.export.order_flow import MBO_COLUMNS, TOP_COLUMNS, Row, UntrustedDataError, merge_rows
from umdf.lake.schemas import table
from umdf.market.families import LAST, MAYBE_BAD_BOOK

FIRST, SECOND = date(2026, 11, 13), date(2026, 11, 16)
NEW, CANCEL, DELETE, EXECUTE, HIDDEN, CROSS, STATE = range(1, 8)
MIDNIGHT = {FIRST: 1_794_538_800 * 10**9, SECOND: 1_794_798_000 * 10**9}  # 03:00 UTC
NO_LEVEL = {"A": (9_999_999_999, 0), "B": (-9_999_999_999, 0)}
Message = tuple[int, int, int, int, int, int]


@pytest.fixture(scope="module")
def files(whole: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, date], tuple[Path, Path]]:
    """Message and book file by symbol and date."""
    out = tmp_path_factory.mktemp("lobster") / "out"
    export(whole.lake, "lobster", out)
    found = {}
    for message in sorted(out.glob("*_message_10.csv")):
        symbol, day, start, end, *_ = message.name.split("_")
        assert (start, end) == ("0", "86400000")
        found[symbol, date.fromisoformat(day)] = (
            message,
            message.with_name(message.name.replace("message", "orderbook")),
        )
    return found


def messages(path: Path, day: date) -> Iterator[Message]:
    for line in path.read_text().splitlines():
        time, *rest = line.split(",")
        seconds, nanoseconds = time.split(".")
        assert len(nanoseconds) == 9
        yield MIDNIGHT[day] + int(seconds) * 10**9 + int(nanoseconds), *map(int, rest)  # type: ignore[reportReturnType]


def levels(line: str) -> dict[str, list[tuple[int, int]]]:
    numbers = list(map(int, line.split(",")))
    assert len(numbers) == 40
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    return {"A": pairs[::2], "B": pairs[1::2]}


def test_replaying_the_messages_gives_the_book_file(files: dict[Any, tuple[Path, Path]]):
    kinds: Counter[int] = Counter()
    for (_, day), (message_file, book_file) in files.items():
        orders: dict[int, tuple[str, int, int]] = {}
        shown = book_file.read_text().splitlines()
        found = list(messages(message_file, day))
        assert len(shown) == len(found)
        for (_, kind, order_id, size, price, direction), line in zip(found, shown, strict=True):
            kinds[kind] += 1
            if kind == NEW:
                assert order_id not in orders
                orders[order_id] = ("B" if direction == 1 else "A", price, size)
            elif kind in (CANCEL, DELETE, EXECUTE):
                side, at, left = orders.pop(order_id)
                assert (side, at) == ("B" if direction == 1 else "A", price) and left >= size
                assert kind != DELETE or left == size
                if left > size:
                    orders[order_id] = (side, at, left - size)
            assert levels(line) == best(orders)
    assert all(kinds[kind] for kind in (NEW, CANCEL, DELETE, EXECUTE, CROSS, STATE)), kinds


def best(orders: dict[int, tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    """Looked for among all orders, every time."""
    found = {}
    for side in "AB":
        sizes: Counter[int] = Counter()
        for own, price, size in orders.values():
            if own == side:
                sizes[price] += size
        ranked = sorted(sizes.items(), reverse=side == "B")[:10]
        found[side] = ranked + [NO_LEVEL[side]] * (10 - len(ranked))
    return found


def test_the_books_are_the_lakes_mbp_10(files: dict[Any, tuple[Path, Path]], whole: Any):
    compared = 0
    for (symbol, day), (message_file, book_file) in files.items():
        times = [message[0] for message in messages(message_file, day)]
        lines = book_file.read_text().splitlines()
        end = date.fromordinal(day.toordinal() + 1)
        rows = (
            whole.lake.get_range("mbp_10", symbol, day, end, price_type="fixed", pretty_ts=False).to_arrow().to_pylist()
        )
        moments = [row["ts_event"] or row["ts_send"] for row in rows]  # a delisting has no ts_event
        for row, now, following in zip(rows, moments, [*moments[1:], None], strict=True):
            if following is not None and following <= now:
                continue  # the file tells moments apart by their time only
            place = bisect_right(times, now) - 1
            if place < 0:
                continue
            shown = levels(lines[place])
            for side, word in (("B", "bid"), ("A", "ask")):
                all_ten = [(row[f"{word}_px_{n:02}"], row[f"{word}_sz_{n:02}"]) for n in range(10)]
                there = [(price, size) for price, size in all_ten if size is not None]
                priced = [(price // 10**5, size) for price, size in there if price is not None]
                assert shown[side][: len(priced)] == priced
                if len(there) < 10:
                    assert shown[side][len(priced) :] == [NO_LEVEL[side]] * (10 - len(priced))
                compared += 1
    assert compared > 1_000


def test_the_last_row_equals_the_truth_and_every_trade_is_exported(files: dict[Any, tuple[Path, Path]], whole: Any):
    for day, capture in whole.captures.items():
        names = {row["instrument_id"]: row["symbol"] for row in truth(capture, "instruments").to_pylist()}
        expected: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: {"A": [], "B": []})
        for row in truth(capture, "final_levels").to_pylist():
            if row["price"] is not None:
                expected[names[row["instrument_id"]]][row["side"]].append((row["price"] // 10**5, row["size"]))
        traded: Counter[str] = Counter()
        for row in truth(capture, "trades").to_pylist():
            traded[names[row["instrument_id"]]] += row["size"]
        for symbol in names.values():
            if (symbol, day) not in files:
                continue
            message_file, book_file = files[symbol, day]
            final = levels(book_file.read_text().splitlines()[-1])
            for side in "AB":
                known = expected[symbol][side][:10]
                assert final[side] == known + [NO_LEVEL[side]] * (10 - len(known))
            found = list(messages(message_file, day))
            assert sum(message[3] for message in found if message[1] in (EXECUTE, HIDDEN, CROSS)) == traded[symbol]


def test_pandas_reads_both_files(files: dict[Any, tuple[Path, Path]]):
    message_file, book_file = files["WINZ26", FIRST]
    found, shown = (pandas.read_csv(path, header=None) for path in (message_file, book_file))
    assert found.shape[1] == 6 and shown.shape == (len(found), 40)
    assert set(found[1]) <= set(range(1, 8)) and set(found[5]) == {1, -1}


def test_a_window_is_a_slice_of_the_whole_day(files: dict[Any, tuple[Path, Path]], whole: Any, tmp_path: Path):
    message_file, book_file = files["WINZ26", FIRST]
    found = [message[0] for message in messages(message_file, FIRST)]
    low, high = (
        found[len(found) // 3] // 10**6 * 10**6,
        found[2 * len(found) // 3] // 10**6 * 10**6,
    )
    export(whole.lake, "lobster", tmp_path / "out", request=ExportRequest(["WINZ26"], low, high))
    start, end = ((at - MIDNIGHT[FIRST]) // 10**6 for at in (low, high))
    inside = [place for place, ts in enumerate(found) if low <= ts < high]
    for path, kind in ((message_file, "message"), (book_file, "orderbook")):
        lines = path.read_text().splitlines()
        cut = (tmp_path / "out" / f"WINZ26_2026-11-13_{start}_{end}_{kind}_10.csv").read_text().splitlines()
        assert cut == [lines[place] for place in inside] and cut


def row(action: str, **values: Any) -> Row:
    ends = values.pop("ends", True)
    known = {"key": (1, 1, 0, 0), "ts_event": MIDNIGHT[FIRST] + 1, "ts_recv": 0, "flags": LAST if ends else 0}
    known |= {"action": action, "side": "B", "price": 10**10, "size": 100, "order_id": 1, "top": None}
    return Row(**(known | values))


def lines_of(*rows: Row, **options: Any) -> list[list[int]]:
    maker = LobsterConverter("PETR4", FIRST, options.pop("levels", 1), **options)
    return [numbers(line) for line in maker.lines(rows)]


def numbers(line: LobsterLine) -> list[int]:
    return list(map(int, line.message.split(",")[1:]))


def test_volume_beyond_the_visible_orders_is_a_hidden_execution():
    rows = [row("A"), row("T", size=150, ends=False, side="N", order_id=None), row("C")]
    assert lines_of(*rows) == [[1, 1, 100, 100_000, 1], [4, 1, 100, 100_000, 1], [5, 0, 50, 100_000, 1]]


def test_part_traded_and_part_cancelled_are_two_messages():
    rows = [row("A"), row("T", size=30, ends=False, side="N", order_id=None), row("M", size=20)]
    assert lines_of(*rows)[1:] == [[4, 1, 30, 100_000, 1], [2, 1, 50, 100_000, 1]]


@pytest.mark.parametrize("change", [{"size": 200}, {"price": 11 * 10**9}])
def test_an_order_that_loses_priority_is_deleted_and_added_again(change: dict[str, int]):
    found = lines_of(row("A"), row("M", **change))
    assert [message[0] for message in found] == [NEW, DELETE, NEW]


def test_a_price_that_is_finer_than_lobsters_is_an_error_or_rounded():
    fine = row("A", price=10_000_050_000)  # 10.00005
    with pytest.raises(UmdfError) as error:
        lines_of(fine)
    assert error.value.reason == "PETR4: price 10.00005 is not a multiple of 0.0001"
    assert lines_of(fine, round_prices=True) == [[1, 1, 100, 100_001, 1]]


@pytest.mark.parametrize(
    "rows",
    [
        [row("C")],
        [row("A"), row("A")],
        [row("A"), row("C", side="A")],
        [row("A", top=(10**10, 99, None, None))],
        [row("A", top=(10**10, 100, 2, 2))],
    ],
)
def test_a_book_that_does_not_follow_from_its_orders_is_refused(rows: list[Row]):
    with pytest.raises(UntrustedDataError, match="cannot be rebuilt order by order from packet 1"):
        lines_of(*rows)


def as_table(name: str, columns: tuple[str, ...], **values: Any) -> pa.Table:
    known = {
        "seq_version": 1,
        "sequence": 1,
        "msg_index": 0,
        "entry_index": 0,
        "flags": LAST,
        "action": "A",
        "side": "B",
    }
    known |= {"ts_event": 1, "ts_send": 1, "ts_recv": 1, "order_id": 1, "price": 10**10, "size": 100} | values
    schema = table(name).schema
    return pa.table({column: pa.array([known.get(column)], schema.field(column).type) for column in columns})


@pytest.mark.parametrize(
    ("order", "top", "reason"),
    [
        ({"position": 1}, {}, "not an order-by-order book"),
        ({"order_id": None}, {}, "not an order-by-order book"),
        ({"order_count": 2}, {}, "not an order-by-order book"),
        ({"venue": "L"}, {}, "not an order-by-order book"),
        ({"action": "R", "update_action": 4}, {}, "not an order-by-order book"),
        ({"flags": LAST | MAYBE_BAD_BOOK}, {}, "1 rows may be wrong"),
        ({}, {"flags": MAYBE_BAD_BOOK}, "1 rows may be wrong"),
        ({}, {"sequence": 2}, "the book starts from a snapshot at packet 2"),
    ],
)
def test_days_that_cannot_be_replayed_order_by_order_are_rejected(
    order: dict[str, Any], top: dict[str, Any], reason: str
):
    best = {"bid_px_00": 10**10, "bid_sz_00": 100}
    mbo, tops = as_table("mbo", MBO_COLUMNS, **order), as_table("mbp_1", TOP_COLUMNS, **(best | top))
    with pytest.raises(UntrustedDataError, match=f"PETR4: {reason}"):
        list(merge_rows("PETR4", mbo, tops))


def test_untrusted_rows_are_rejected_or_left_out(lossy: Any, tmp_path: Path):
    with pytest.raises(UntrustedDataError, match="rows may be wrong") as error:
        export(lossy.lake, "lobster", tmp_path / "out")
    assert "--exclude-stale" in error.value.hint and not list(tmp_path.iterdir())
    marked = lossy.lake.get_range("mbo", columns=["symbol", "flags"]).to_arrow().to_pylist()
    doubtful = {one["symbol"] for one in marked if one["flags"] & 4} - {None}
    report = export(lossy.lake, "lobster", tmp_path / "out", request=ExportRequest(exclude_stale=True))
    written = {path.name.split("_")[0] for path in (tmp_path / "out").glob("*.csv")}
    assert written and not written & doubtful and set(report.skipped) >= {f"{name} on {FIRST}" for name in doubtful}


def test_levels_must_be_between_1_and_200(whole: Any, tmp_path: Path):
    with pytest.raises(UmdfError, match="invalid --levels: 0; use 1 to"):
        export(whole.lake, "lobster", tmp_path / "out", request=ExportRequest(["WINZ26"]), options=Options(levels=0))
