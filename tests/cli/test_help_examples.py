"""The examples below each command's help: each can be said, and what needs neither Spark nor half an hour is run."""

from __future__ import annotations

import gzip
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
import zstandard
from cli.test_examples import one_file
from lake.captures import day, files_of, ingest

import umdf
from umdf.cli import app
from umdf.cli.app import command_tree, run
from umdf.cli.output import Printer
from umdf.transport.capture import open_capture

SCHEMAS = Path(umdf.__file__).parent / "schemas"
COMMENT = "  "  # blanks before what an example is for
# With words of these, an example is only parsed: Spark, a cluster, certification, days of a million messages, kernels;
# test_examples has the demo; `restore` and `accept` want a table that somebody else has changed, `forget` an input.
ONLY_PARSED = (
    "exchange", "stream", '"S', "--master", "pack", "--fix", "nautilus", "demo", "restore", "accept",
    "forget", "decode -", "feed", "history", "replay day/capture --channels", "--speed 10", "certify",
)  # fmt: skip
PLAIN = ("ingest", "lake rebuild")  # on Spark, and without it if they are told so


def examples() -> Iterator[str]:
    for module in app.COMMANDS:
        for block in (module.EXAMPLES, *(examples for _, examples in getattr(module, "SUBCOMMANDS", ()))):
            for example in block:
                pipeline = example.partition(COMMENT)[0].partition(" > ")[0].split(" | ")
                yield next(command for command in pipeline if command.startswith("umdf ")).removeprefix("umdf ")


EXAMPLES = list(dict.fromkeys(examples()))
RUN = [each for each in EXAMPLES if not any(word in each for word in ONLY_PARSED)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything that the examples name."""
    home = tmp_path_factory.mktemp("examples")
    captured, fast = day(home, 2_500, 12, seed=4), day(home, 1_200, 10, "fast", lines="A")
    (home / "day").mkdir()
    shutil.copytree(captured / "capture", home / "day" / "capture")
    shutil.copytree(captured / "capture", home / "capture")
    one_file(files_of(captured), home / "day.pcap")
    lines = [[file for file in files_of(captured) if file.stem[-1] == line] for line in "AB"]
    for name, files in zip(("a.pcap", "b.pcap"), lines, strict=True):
        one_file(files, home / name)
    one_file(files_of(fast), home / "fast.pcap")
    incremental = next(file for file in files_of(fast) if "incremental" in file.name)  # one stream, as the numbers go
    with open_capture(incremental) as source:
        (home / "fast.bin").write_bytes(b"".join(batch.payload(i) for batch in source for i in range(len(batch))))
    (home / "day.pcap.zst").write_bytes(zstandard.compress((home / "day.pcap").read_bytes()))
    (home / "b.pcap.zst").write_bytes(zstandard.compress((home / "b.pcap").read_bytes()))
    (home / "b.pcap.gz").write_bytes(gzip.compress((home / "b.pcap").read_bytes()))
    shutil.copy(SCHEMAS / "sbe" / "b3-umdf-2.2.0.xml", home / "b3-market-data-messages.xml")
    shutil.copy(SCHEMAS / "fast" / "umdf-fast.xml", home / "templates-FIX.xml")
    (home / "channels.toml").write_text(
        '[[channel]]\nnumber = 72\nprotocol = "sbe"\n'
        'incremental = { A = "224.0.20.72:20001", B = "224.0.21.72:20101" }\n'
        'snapshot = { A = "224.0.20.72:20002" }\ninstruments = { A = "224.0.20.72:20003" }\n'
    )
    ingest(home / "lake", files_of(home / "day"))
    return home


@pytest.fixture(scope="module")
def names(home: Path) -> dict[str, str]:
    """What an example says → what there is here."""
    bars = polars.read_delta(str(home / "lake" / "ohlcv_1m"))
    one, other = bars.group_by("symbol").len().sort("len", "symbol")["symbol"][-2:]
    row = polars.read_delta(str(home / "lake" / "mbo")).row(0, named=True)
    key = ":".join(str(row[name]) for name in ("channel_id", "seq_version", "sequence", "msg_index"))
    return {"PETR4": one, "WINZ26": one, "VALE3": other, "mbo:72:273:1005:2": f"mbo:{key}", "13:05": "12:45:03"} | {
        "2026-11-13T13:00": "2026-11-13T12:00"
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_parses(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "--help" in example:
        assert run(shlex.split(example)) == 0
        return
    words = shlex.split(example)
    command: Any = command_tree(app.COMMANDS)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(example, words, obj=Printer())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("example", RUN)
def test_every_example_runs(
    example: str, home: Path, names: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "--help" in example:
        return
    for path in home.iterdir():  # each one starts from the same, and none writes over another's
        if path.name == "lake" and not example.startswith(("query", "report", "export", "explain")):
            shutil.copytree(path, tmp_path / path.name)
        elif path.name != "day" or "--out day" not in example:
            (tmp_path / path.name).symlink_to(path, target_is_directory=path.is_dir())
    if example.startswith("ingest"):
        shutil.rmtree(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    for name, here in names.items():
        example = example.replace(name, here)
    if example.startswith(PLAIN):
        example += " --no-spark"
    before = set(tmp_path.iterdir())
    assert run(shlex.split(example)) == 0
    out, err = capsys.readouterr()
    assert out or set(tmp_path.iterdir()) > before, "neither printed nor written"
    assert "warning" not in err or "use --limit 0 for all" in err, err
