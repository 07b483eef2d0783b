"""What every command has, whichever it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from umdf.cli.app import COMMANDS, command_tree, run
from umdf.cli.output import EXIT_CODES


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, and how it is called."""
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


EVERY = dict(leaves(command_tree(COMMANDS)))


def test_the_list_of_commands_is_complete() -> None:
    assert {path[0] for path in EVERY} == {module.__name__.rpartition(".")[2] for module in COMMANDS}


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"umdf {' '.join(path)}" in shown.partition("Examples")[2]
    assert "--json" in shown and "Exit codes" not in shown
    assert not re.search(r"<(bool|path|str|int|float)\b", shown)
    texts = [EVERY[path].help, *(param.help for param in EVERY[path].params)]
    tables = [table for text in texts for table in re.findall(r"\[\w+\]", text)]
    assert [table for table in tables if table not in shown] == [], "taken for markup"


def test_exit_codes_are_on_the_first_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    codes = [
        line.split()[0] for line in capsys.readouterr().out.partition("Exit codes")[2].splitlines() if line.strip()
    ]
    assert set(codes) >= {str(int(code)) for code in EXIT_CODES}


def test_commands_are_listed_in_our_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = re.findall(r"^│ (\w+) ", capsys.readouterr().out.partition("Commands")[2], re.MULTILINE)
    assert listed == [module.__name__.rpartition(".")[2] for module in COMMANDS]


@pytest.mark.parametrize("path", [(), ("lake",), ("exchange",), *EVERY], ids=" ".join)
def test_help_fits_80_columns(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    below = shown.partition("Examples")[2].partition("Exit codes")[0].splitlines()
    assert all(line.startswith("   ") for line in below if line.strip()), "an example was wrapped by the terminal"


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_option_has_help(path: tuple[str, ...]) -> None:
    assert [param.name for param in EVERY[path].params if not param.help] == []
