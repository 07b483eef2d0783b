"""Books and definitions at a moment, against replays from scratch, and lossy lakes against whole ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lake.captures import ALL, day, files_of, ingest, rows, truth
from lake.query.query_lakes import FIRST, SECOND, STORED, delta

import umdf
from umdf.book.views import Book
from umdf.lake.books.derived_levels import DEPTH
from umdf.lake.query.times import midnight_ns
from umdf.market.families import LAST, MAYBE_BAD_BOOK, MBO
from umdf.market.rows import Rows


def content_of(book: Any) -> Any:
    """What is in a book, to be compared."""
    return [
        (side, level.price, level.size, level.count, [(o.order_id, o.size, o.firm) for o in level.orders])
        for side, levels in (("B", book.bids), ("A", book.asks))
        for level in levels
    ]


def test_the_book_at_the_end_of_a_day_equals_the_truth(lake: umdf.Lake, tmp_path: Path, root: Path) -> None:
    capture = day(root.parent, 3_000, 12, seed=2, trading_date=20_773)
    orders, checked = truth(capture, "final_orders").to_pylist(), 0
    for number, symbol in {(one["instrument_id"], one["symbol"]) for one in truth(capture, "instruments").to_pylist()}:
        book = lake.book_at(symbol, SECOND)
        own = [one for one in orders if one["instrument_id"] == number]
        found = book.orders("fixed").to_pylist()
        for side in "BA":
            mine = [(one["price"], one["size"], one["order_id"], one["firm"]) for one in found if one["side"] == side]
            ours = sorted((one["position"], one["price"], one["size"], one["order_id"], one["firm"])
                          for one in own if one["side"] == side)  # fmt: skip
            assert mine == [one[1:] for one in ours], symbol
        assert book.is_trusted and book.instrument_id == number and book.channel_id == 72
        checked += len(own)
    assert checked > 50


def replayed(mbo: list[dict[str, Any]], number: int) -> Book | None:
    """A book from its rows alone, one after the other."""
    books = umdf.Books(requires_full_history=True)
    columns: dict[str, Any] = {}
    for column in (*MBO.columns, *(MBO.column(name) for name in ("instrument_id", "rpt_seq", "flags"))):
        values = [row[column.name] for row in mbo]
        if column.type == "char":
            values = [0 if value is None else ord(value) for value in values]
        if column.type == "date":
            values = [None] * len(values)
        columns[column.name] = np.array([column.null if value is None else value for value in values], column.dtype)
    none = np.zeros(len(mbo), np.uint16)
    books.apply(Rows(MBO, none.astype(np.uint32), none, none, columns))
    return books.book(number)


def test_the_book_at_any_time_equals_a_replay_from_scratch(
    lake: umdf.Lake, root: Path, sized: Callable[[int, int], int]
) -> None:
    """On a day without loss: rows up to the last packet that had come, cut at the end of an event."""
    chance, every = (
        random.Random(1),
        delta(root, "mbo", trading_date=SECOND).sort("sequence", "msg_index", "entry_index"),
    )
    checked = 0
    for symbol in ("PETR4", "WINZ26", "VALE3", "WINZ26G27"):
        own = every.filter(every["symbol"] == symbol).to_dicts()
        for place in sorted(chance.sample(range(len(own)), sized(12, 100))):
            at = own[place]["ts_recv"] + chance.choice([-1, 0, 1])
            before = [row for row in own if row["ts_recv"] <= at]
            while before and not before[-1]["flags"] & LAST and _same_event(own, len(before)):
                before.pop()
            book = lake.book_at(symbol, at)
            expected = replayed(before, own[0]["instrument_id"]) if before else None
            assert content_of(book) == (content_of(expected) if expected else []), (symbol, at)
            assert book.is_trusted == bool(before)
            assert (book.sequence, book.ts_recv) == (
                (before[-1]["sequence"], before[-1]["ts_recv"]) if before else (None, None)
            )
            checked += bool(content_of(book))
    assert checked > 20


def _same_event(own: list[dict[str, Any]], count: int) -> bool:
    return count < len(own) and own[count]["ts_event"] == own[count - 1]["ts_event"]


def test_levels_and_depth_are_those_of_mbp_10(lake: umdf.Lake, root: Path) -> None:
    stored = (
        delta(root, "mbp_10", trading_date=SECOND, symbol="VALE3")
        .sort("sequence", "msg_index", "entry_index")
        .to_dicts()
    )
    for row in stored[:: max(1, len(stored) // 20)]:
        same = [other for other in stored if other["ts_recv"] <= row["ts_recv"]][-1]
        levels = lake.book_at("VALE3", row["ts_recv"], DEPTH).levels("fixed").to_pylist()
        for side, word in (("B", "bid"), ("A", "ask")):
            mine = [(one["price"], one["size"], one["count"]) for one in levels if one["side"] == side]
            shown = [tuple(same[f"{word}_{part}_{n:02}"] for part in ("px", "sz", "ct")) for n in range(DEPTH)]
            assert mine == [level for level in shown if level[1] is not None]
    book = lake.book_at("VALE3", SECOND, 2)
    assert len(book.bids) <= 2 and book.levels().schema.field("price").type == pa.decimal128(19, 9)
    assert book.orders().schema.field("ts_insert").type == pa.timestamp("ns", "UTC")
    assert [book.levels().num_rows, repr(book).count("may be wrong")] == [len(book.bids) + len(book.asks), 0]


def arrivals(root: Path) -> dict[int, int]:
    """When each packet of the incremental stream first came."""
    found: dict[int, int] = {}
    for row in rows(root, "packets"):
        if row["stream"] == "incremental" and row["disposition"] == "used":
            found[row["sequence"]] = row["ts_recv"]
    return found


def test_a_trusted_book_after_losses_equals_the_truth(tmp_path: Path, sized: Callable[[int, int], int]) -> None:
    """The same market twice, once with packets lost on both lines. A trusted book is the true one."""
    messages, seed = sized(2_000, 10_000), 1
    whole, lossy = tmp_path / "whole", tmp_path / "lossy"
    ingest(whole, files_of(day(tmp_path, messages, 12, seed=seed)), tables=STORED)
    ingest(lossy, files_of(day(tmp_path, messages, 12, seed=seed, loss=0.05)), tables=STORED)
    true, lake = umdf.Lake(whole), umdf.Lake(lossy)
    one, other = arrivals(whole), arrivals(lossy)
    # Moments at which the same packets had come to both, but for those that were lost: none is still on its way.
    moments: dict[int, int] = {}
    come = 0
    for n in sorted(one)[:-1]:
        come = max(come, one[n], other.get(n, 0))
        if come < min(one[n + 1], other.get(n + 1, one[n + 1])) - 1:
            moments[n] = come
    chance, trusted, doubted, wrong = random.Random(seed), 0, 0, 0
    gaps = [row for row in rows(lossy, "gaps") if row["stream"] == "incremental"]
    assert len(gaps) >= 3
    edges = [n for gap in gaps for n in range(gap["first_sequence"] - 2, gap["last_sequence"] + 4)]
    near = [moments[n] for n in edges if n in moments]
    far = chance.sample(list(moments.values()), sized(6, 200))
    for at in chance.sample(near, min(len(near), sized(14, 300))) + far:
        for symbol in ("PETR4", "WINZ26", "ITUB4", "VALE3"):
            book, truth = lake.book_at(symbol, at), true.book_at(symbol, at)
            if book.is_trusted:
                assert content_of(book) == content_of(truth), (symbol, at, book, truth)
                trusted += 1
            else:
                doubted += 1
                wrong += content_of(book) != content_of(truth)
                assert book.distrust_reason
    assert trusted > doubted > 0 and wrong > 0


def test_a_book_after_a_loss_is_not_trusted(lake: umdf.Lake, root: Path) -> None:
    bad = [row for row in rows(root, "mbo") if row["flags"] & MAYBE_BAD_BOOK and row["flags"] & LAST]
    row = max(bad, key=lambda row: row["sequence"])
    book = lake.book_at(row["symbol"], row["ts_recv"], channel=72)
    assert not book.is_trusted and "lost" in (book.distrust_reason or "") and "may be wrong" in repr(book)


def test_definitions_are_those_in_force(lake: umdf.Lake, root: Path) -> None:
    every = [row for row in rows(root, "definition")]
    changes = sorted(row["ts_recv"] for row in every if row["channel_id"] == 72)
    for at in [*changes[:: max(1, len(changes) // 15)], changes[-1] + 1]:
        found = lake.definitions(at, price_type="fixed", pretty_ts=False).to_arrow().to_pylist()
        expected = {}
        for channel in {row["channel_id"] for row in every}:
            known = [row for row in every if row["channel_id"] == channel and row["ts_recv"] <= at]
            newest = max((row["trading_date"] for row in known), default=None)
            for row in sorted(known, key=lambda row: (row["ts_recv"], row["sequence"], row["msg_index"])):
                if row["trading_date"] == newest:
                    expected[channel, row["instrument_id"]] = row
        kept = {key: row for key, row in expected.items() if row["action"] != "D"}
        assert {(row["channel_id"], row["instrument_id"]): row for row in found} == kept and len(found) == len(kept)
    assert {row["trading_date"] for row in lake.definitions(FIRST).to_arrow().to_pylist()} == {FIRST}
    deleted = next(row for row in every if row["action"] == "D" and row["trading_date"] == SECOND)
    before = lake.definitions(deleted["ts_recv"] - 1, deleted["symbol"], columns=["trading_date", "symbol"])
    dates = [row["trading_date"] for row in before.to_arrow().to_pylist()]
    assert SECOND in dates
    after = lake.definitions(SECOND, deleted["symbol"]).to_arrow().column("trading_date").to_pylist()
    assert SECOND not in after


def test_on_a_day_without_a_list_the_last_one_is_in_force(lake: umdf.Lake) -> None:
    sunday = lake.definitions("2026-11-15").to_arrow()
    assert sunday.equals(lake.definitions(FIRST).to_arrow()) and sunday.num_rows > 0
    early = midnight_ns(SECOND) + 10**9  # Monday, before its list
    assert lake.definitions(early).to_arrow().equals(sunday)
    assert lake.definitions().to_arrow().num_rows == lake.definitions(SECOND + timedelta(days=9)).to_arrow().num_rows


def test_book_at_works_for_position_books_and_fast_channels(tmp_path: Path) -> None:
    for name, more in (("position", {"generation": "position"}), ("fast", {"protocol": "fast"})):
        one = day(tmp_path, 2_000, 12, **more)
        ingest(tmp_path / name, files_of(one), tables=ALL)
        lake, orders = umdf.Lake(tmp_path / name), truth(one, "final_orders").to_pylist()
        for symbol in ("PETR4", "VALE3"):
            book = lake.book_at(symbol, FIRST)
            own = [row for row in orders if row["instrument_id"] == book.instrument_id]
            found = sorted((o["side"], o["size"], o["firm"]) for o in book.orders("fixed").to_pylist())
            assert found == sorted((o["side"], o["size"], o["firm"]) for o in own) and book.is_trusted
