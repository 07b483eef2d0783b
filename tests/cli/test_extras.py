"""A base install: whatever is used without its extra is one line that names the package and the extra."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lake.report_lake import DAY, write_lake
from packaging.requirements import Requirement

from umdf.errors import EXTRAS

ROOT = Path(__file__).parents[2]
# As if these packages were not installed: whatever else is, in this environment, is in a base install too.
HIDING = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden!r} else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Hiding, sys.meta_path)
"""
COMMAND = "from umdf.cli.app import run; sys.exit(run(sys.argv[1:]))"
BASE = {*EXTRAS, "polars", "nicegui", "plotly"}
WITH_LAKE = BASE - {"deltalake"}


def without(hidden: set[str], program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDING.format(hidden=hidden) + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture in `day`, a lake in `lake`."""
    place = tmp_path_factory.mktemp("extras")
    done = without(BASE, COMMAND, "exchange", "capture", "--messages", "500", "--instruments", "10", place / "day")
    assert done.returncode == 0, done.stderr
    row = {"channel_id": 72, "instrument_id": 1, "symbol": "PETR4", "action": "A"}
    write_lake(place / "lake", {"definition": [row], "trades": [row]}, DAY)
    return place


LAKE = "needs deltalake, which is not installed; pip install 'umdf[lake]'"
SPARK = "needs pyspark, which is not installed; pip install 'umdf[spark]'"
NAUTILUS = "needs nautilus_trader, which is not installed; pip install 'umdf[nautilus]'"
MISSING = {
    "base": (BASE, {
        "ingest day/capture --lake new --no-spark": LAKE,
        "ingest day/capture --lake new": SPARK,
        "stream day/capture --lake new": SPARK,
        "query lake --schema trades": LAKE,
        "query lake SELECT": SPARK,
        "report lake": LAKE,
        "export lake new --format databento": LAKE,
        "explain --lake lake --row trades:72:0:0": LAKE,
        **{f"lake {command} lake": LAKE for command in ("status", "verify", "compact", "vacuum", "rebuild --no-spark")},
        "lake restore lake mbo": LAKE,
        "lake accept lake mbo": LAKE,
        "lake demo new": LAKE,
    }),
    "lake": (WITH_LAKE, {
        "ingest day/capture --lake new": SPARK,
        "lake rebuild lake": SPARK,
        "lake forget lake a.pcap": SPARK,
        "stream day/capture --lake new": SPARK,
        "query lake SELECT": SPARK,
        "export lake new --format nautilus": NAUTILUS,
    }),
}  # fmt: skip
COMMANDS = """
from umdf.cli.app import run
for command in sys.argv[1:]:
    sys.stderr.write(f"{run(command.split())} ")
"""


@pytest.mark.parametrize("installed", MISSING)
def test_a_command_without_its_extra_is_a_one_line_error_and_creates_nothing(
    place: Path, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    hidden, expected = MISSING[installed]
    done = without(hidden, COMMANDS, *expected)
    lines = [f"umdf: `umdf {command.split()[0]}` {said}" for command, said in expected.items()]
    assert done.stderr == "\n3 ".join([*lines, ""])
    assert not (place / "new").exists()


def test_what_a_base_install_and_the_extra_lake_have_works(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    capture = min((place / "day" / "capture").glob("*.pcap")).relative_to(place)
    base = (f"decode {capture}", f"decode {capture} --format parquet --out parquet", f"explain {capture} --packet 1",
            "book day/capture", "doctor", "--version", "--help")  # fmt: skip
    lake = ("ingest day/capture --lake own --no-spark", "query own --schema trades", "report own",
            "export own out --format databento", "lake status own", "lake verify own --deep",
            f"lake forget own {capture.resolve()} --no-spark")  # fmt: skip
    for hidden, commands in ((BASE, base), (WITH_LAKE, lake)):
        done = without(hidden, COMMANDS, *commands)
        assert done.stderr.split() == ["0"] * len(commands), done.stderr


def test_public_names_without_their_extra_say_so(place: Path) -> None:
    program = """
import umdf
for name in umdf.__all__:
    try:
        getattr(umdf, name)
    except umdf.UmdfError as error:
        print(error)
try:
    umdf.Lake(sys.argv[1])
except umdf.UmdfError as error:
    print(error)
"""
    done = without(BASE, program, place / "lake")
    assert done.stdout.splitlines() == [f"umdf.register_source {SPARK}", f"umdf.Lake {LAKE}"], done.stderr


def test_every_package_is_in_the_extra_that_is_named() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brings = {extra: {Requirement(line).name.replace("-", "_") for line in lines} for extra, lines in listed.items()}
    for package, extra in EXTRAS.items():
        assert package in brings[extra] or package == "py4j", package  # py4j comes with pyspark
    assert brings["lake"] <= brings["spark"]
