"""What the documents promise: the notebook, the three commands, the demo lake; run as a user would run them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import polars
import pytest
from lake.captures import day, files_of
from lake.lake_commands import UMDF

from umdf.cli.app import run

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
ROOT = Path(__file__).parent.parent.parent
NOTEBOOK = ROOT / "examples" / "quants.ipynb"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The notebook as it is shipped, by a Python that is named by its path, where nothing is set or prepared: the
    directory that it ran in, and what each cell showed."""
    home = tmp_path_factory.mktemp("notebook")
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "run_notebook.py"), str(NOTEBOOK)],
        cwd=home, env={**kept, "PATH": os.defpath}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return home, json.loads(done.stdout.splitlines()[-1])


def test_the_demo_lake_is_a_lake_and_is_not_made_twice(
    notebook: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = notebook[0] / "demo"
    bars = polars.read_delta(str(demo / "lake" / "ohlcv_1m"))
    assert bars["ts_interval"].n_unique() >= 10
    assert (demo / "day" / "truth").is_dir()
    assert run(["lake", "verify", str(demo / "lake")]) == 0
    assert run(["lake", "demo", str(demo)]) == 3
    assert "already exists; use a new or empty directory" in capsys.readouterr().err
    assert run(["lake", "demo", str(tmp_path / "small"), "--messages", "20000", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["events"] > 4_000 and result["gaps"] > 0 and len(result["next"]) == 5


def test_the_notebook_runs_from_its_first_cell_to_its_last(notebook: tuple[Path, list[str]]) -> None:
    home, shown = notebook
    said = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in said["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code), "no outputs are kept"
    assert len(shown) == len(code)
    bars, prices = shown[2], shown[4]
    assert bars.count("<rect") >= 10 and prices.count('class="plot s1"') == 2  # in the key, and the line
    trades = polars.read_delta(str(home / "demo" / "lake" / "trades")).filter(polars.col("action") == "A")
    busiest = trades.group_by("symbol").agg(polars.len().alias("n"), polars.col("size").sum()).sort("n").row(-1)
    assert f"<td>{busiest[1]}</td>" in shown[8] and f"<td>{busiest[2]}</td>" in shown[8]


def one_file(files: list[Path], out: Path) -> None:
    """All records of some pcap files, in the order of their times: what a user's tcpdump would have written."""
    records, head = [], b""
    for path in files:
        content = path.read_bytes()
        head, place = content[:24], 24
        while place < len(content):
            seconds, fraction, size = struct.unpack_from("<III", content, place)
            records.append(((seconds, fraction), content[place : place + 16 + size]))
            place += 16 + size
    out.write_bytes(head + b"".join(record for _, record in sorted(records, key=lambda one: one[0])))


@pytest.mark.full_size
def test_my_pcap_becomes_a_table_and_a_chart_in_three_commands(tmp_path: Path) -> None:
    captured = day(tmp_path, 2_500, 12, seed=4)
    one_file(files_of(captured), tmp_path / "my.pcap")
    text = (ROOT / "docs" / "quickstart.md").read_text()
    commands = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(commands) == 3 and all(command.startswith("umdf ") for command in commands)
    shown, symbol = [], ""
    for command in commands:
        words = command.split()[1:]
        if "--symbols" in words:
            bars = polars.read_delta(str(tmp_path / "lake" / "ohlcv_1s"))
            symbol = bars.group_by("symbol").len().sort("len", "symbol")["symbol"][-1]  # this capture has no PETR4
            words[words.index("--symbols") + 1] = symbol
        done = subprocess.run(
            [sys.executable, "-c", UMDF, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        shown.append(done.stdout)
    assert "1 new file, 0 already" in shown[0]
    table = [line.split("\t") for line in shown[1].splitlines()]
    assert table[0] == ["ts_event", "side", "price", "size"] and len(table) == 11
    stored = polars.read_delta(str(tmp_path / "lake" / "trades")).filter(polars.col("symbol") == symbol)
    stored = stored.sort("sequence", "msg_index", "entry_index").head(10)
    wanted = [(Decimal(price).scaleb(-9), str(size)) for price, size in stored.select("price", "size").iter_rows()]
    assert [(Decimal(price), size) for _, _, price, size in table[1:]] == wanted
    drawn = (tmp_path / "chart.html").read_text()
    assert drawn.count("<rect") == bars.filter(polars.col("symbol") == symbol).height >= 3
    assert "http" not in drawn.replace("http-equiv", ""), "it needs nothing from elsewhere"
