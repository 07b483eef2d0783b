"""Settings: flags > file > default, and a file that is wrong is refused with the place and the nearest name."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

from umdf.cli.app import run
from umdf.cli.output import JsonFlag, print_json


class Format(enum.StrEnum):
    JSON = "json"
    FIX = "fix"


def probe(
    file: Annotated[str, typer.Argument(help="A file.")] = "-",
    form: Annotated[Format, typer.Option("--format", help="How.")] = Format.FIX,
    gap_wait_ms: Annotated[int, typer.Option("--gap-wait-ms", min=0, help="How long.")] = 5,
    rate: Annotated[float, typer.Option("--rate", help="How fast.")] = 1.0,
    out: Annotated[Path | None, typer.Option("--out", help="Where to.")] = None,
    symbol: Annotated[list[str] | None, typer.Option("--symbol", help="Which.")] = None,
    names: Annotated[bool, typer.Option("--names/--no-names", help="Names.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what arrived."""
    print_json([file, form, gap_wait_ms, rate, str(out), symbol or [], names, as_json])


PROBE = ModuleType("umdf.cli.probe")
PROBE.probe, PROBE.EXAMPLES = probe, ()  # type: ignore[attr-defined]
DEFAULTS = ["-", "fix", 5, 1.0, "None", [], False, False]
FILE = """
[probe]
format = "json"
gap_wait_ms = 20
rate = 2
out = "there"
symbol = ["PETR4", "VALE3"]
names = true
"""


def arrived(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[object]:
    assert run(argv, [PROBE]) == 0
    return json.loads(capsys.readouterr().out)


def refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "day.toml").write_text(text)
    assert run(["--config", str(tmp_path / "day.toml"), "probe"], [PROBE]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.removeprefix(f"umdf: {tmp_path}/").strip()


def test_without_a_file_the_defaults_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert arrived(["probe"], capsys) == DEFAULTS


def test_flags_override_the_file_which_overrides_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "day.toml").write_text(FILE)
    config = ["--config", str(tmp_path / "day.toml"), "probe"]
    assert arrived(config, capsys) == ["-", "json", 20, 2.0, "there", ["PETR4", "VALE3"], True, False]
    flags = [
        "x",
        "--format",
        "fix",
        "--gap-wait-ms",
        "7",
        "--rate",
        "3",
        "--out",
        "here",
        "--symbol",
        "WINZ26",
        "--no-names",
    ]
    assert arrived([*config, *flags], capsys) == ["x", "fix", 7, 3.0, "here", ["WINZ26"], False, False]


def test_umdf_toml_in_the_current_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("umdf.toml").write_text("[probe]\ngap_wait_ms = 9")
    assert arrived(["probe"], capsys)[2] == 9
    Path("other.toml").write_text("")
    assert arrived(["--config", "other.toml", "probe"], capsys) == DEFAULTS


def test_json_and_debug_can_be_set_for_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "day.toml").write_text("json = true\ndebug = true")
    assert arrived(["--config", str(tmp_path / "day.toml"), "probe"], capsys)[-1] is True
    assert run(["--config", str(tmp_path / "day.toml"), "probe", "--gap-wait-ms", "x"], [PROBE]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err and json.loads(err.splitlines()[-1])["exit_code"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[prob]\nformat = 1", "day.toml: unknown table: prob; did you mean probe?"),
        ("[probe]\nformt = 1", "day.toml: unknown setting: probe.formt; did you mean format?"),
        ("[probe]\ngap-wait-ms = 1", "day.toml: unknown setting: probe.gap-wait-ms; did you mean gap_wait_ms?"),
        ("[probe]\nfile = 'x'", "day.toml: unknown setting: probe.file; "),
        ("version = true", "day.toml: unknown setting: version; "),
        ("probe = 1", "day.toml: probe is a command, not a setting; write it as a table: [probe]"),
        ("[probe]\ngap_wait_ms = '5'", 'day.toml: probe.gap_wait_ms is "5", expected an integer; '),
        ("[probe]\ngap_wait_ms = true", "day.toml: probe.gap_wait_ms is true, expected an integer; "),
        ("[probe]\ngap_wait_ms = -1", "day.toml: probe.gap_wait_ms: "),
        ("[probe]\nrate = 'fast'", 'day.toml: probe.rate is "fast", expected a number; '),
        ("[probe]\nnames = 1", "day.toml: probe.names is 1, expected a boolean (true or false); "),
        ("[probe]\nout = 1", "day.toml: probe.out is 1, expected a string; "),
        ("[probe]\nformat = 'jsn'", 'day.toml: probe.format is "jsn", expected one of json, fix; '),
        ("[probe]\nsymbol = 'PETR4'", 'day.toml: probe.symbol is "PETR4", expected a list of strings; '),
        ("[probe]\nsymbol = ['PETR4', 1]", "day.toml: probe.symbol is a list, expected a list of strings; "),
        ("[probe", "day.toml: invalid TOML: "),
    ],
)
def test_an_invalid_file_is_a_one_line_error(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(text, tmp_path, capsys).startswith(said)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", "nowhere.toml", "probe"], [PROBE]) == 3
    assert capsys.readouterr().err == "umdf: settings file not found: nowhere.toml; check --config\n"
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    assert run(["--config", str(tmp_path / "x.toml"), "probe"], [PROBE]) == 3
    assert "not UTF-8" in capsys.readouterr().err
    assert run(["--config", str(tmp_path), "probe"], [PROBE]) == 3


def test_a_bad_umdf_toml_does_not_stop_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("umdf.toml").write_text("[nonsense]")
    assert run(["probe", "--help"], [PROBE]) == 0
    assert "Show what arrived" in capsys.readouterr().out
    assert run(["probe"], [PROBE]) == 3
