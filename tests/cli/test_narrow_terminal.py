"""What commands print on a terminal of 80 columns: the columns that matter, whole words, and sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.test_text_table import on_a_terminal

from umdf.cli.app import run
from umdf.cli.output import size_text

WIDTH = 80


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("narrow") / "demo"
    assert run(["lake", "demo", str(directory), "--messages", "5000"]) == 0
    return directory


def shown(*arguments: str | Path) -> list[str]:
    program = f"from umdf.cli.app import run; run({list(map(str, arguments))!r})"
    text = on_a_terminal(program, WIDTH, NO_COLOR="1")
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]


def test_trades_show_price_and_size_and_name_what_is_hidden(demo: Path) -> None:
    lines = shown("query", demo / "lake", "--schema", "trades", "--limit", "2")
    assert lines[0].split() == ["ts_event", "side", "price", "size", "trade_id", "symbol"]
    assert any(line.startswith("hidden: ts_send, ts_recv, ") for line in lines)
    assert all(len(line) <= WIDTH for line in lines)


def test_bars_show_all_prices(demo: Path) -> None:
    head = shown("query", demo / "lake", "--schema", "ohlcv-1m", "--limit", "2")[0].split()
    assert {"ts_interval", "symbol", "open", "high", "low", "close", "volume"} <= set(head)


def test_a_hint_does_not_suggest_columns_that_were_chosen(demo: Path) -> None:
    columns = "ts_event,ts_recv,ts_send,price,size"
    text = " ".join(shown("query", demo / "lake", "--schema", "trades", "--columns", columns, "--limit", "1"))
    assert "hidden: " in text and "--columns" not in text


def test_decoded_fields_are_wrapped_between_words(demo: Path) -> None:
    lines = shown("decode", demo / "day" / "capture", "--limit", "1")
    assert lines[1].startswith("SecurityDefinition_12  packet 1  ")
    fields = [word for line in lines[2:] for word in line.split()]
    assert "securityIDSource=EXCHANGE_SYMBOL" in fields and "minPriceIncrement=5.00000000" in fields
    assert all(len(line) <= WIDTH for line in lines[1:])


def test_an_explained_packet_keeps_its_bytes_and_tags(demo: Path) -> None:
    capture = min((demo / "day" / "capture").glob("*incremental-A.pcap"))
    lines = shown("explain", capture, "--packet", "1")
    head = next(line for line in lines if line.startswith("offset"))
    assert head.split()[:5] == ["offset", "bytes", "field", "tag", "value"]
    assert all(len(line) <= WIDTH for line in lines[lines.index(head) :])
    assert any(re.search(r"channelNumber +72$", line) for line in lines)


def test_maintenance_answers_in_sentences(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(demo / "lake")
    capsys.readouterr()
    assert run(["lake", "compact", lake]) == 0
    assert re.fullmatch(r"merged \d+ files into \d+ \(commit 2\)\n", capsys.readouterr().out)
    assert run(["lake", "compact", lake]) == 0
    assert capsys.readouterr().out == "nothing to compact\n"
    assert run(["lake", "vacuum", lake]) == 0
    assert capsys.readouterr().out == "deleted 0 files (0 B)\n"
    assert run(["lake", "abort", lake]) == 0
    assert capsys.readouterr().out == "no commit is unfinished\n"


def test_an_unknown_symbol_is_answered_with_some_that_exist(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", str(demo / "lake"), "--schema", "trades", "--symbols", "%%%"]) == 3
    said = capsys.readouterr().err
    assert "there are " in said and "day_statistics" in said and "lake.symbols()" not in said


def test_sizes_have_a_unit_that_suits_them() -> None:
    assert [size_text(size) for size in (0, 999, 4_500, 1_234_000_000)] == ["0 B", "999 B", "4.5 kB", "1,234.0 MB"]
