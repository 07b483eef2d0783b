"""The help pages: flags without a type, arguments without braces, paragraphs and examples that fit 80 columns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from textwrap import fill, indent
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

WIDTH = 78  # of an example: 80 columns less the margins
COMMENT = "  "  # blanks between an example and what it does


class _HelpPage:
    """For commands and groups alike; typer would show `<bool>` for a flag and `{FILE} <path>` for an argument."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperArgument):
                param.display_type_rich = lambda ctx: ""
            elif getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.metavar is None and param.type_descriptor.is_choice:
                param.metavar = str(param.display_type_rich(ctx)).strip("<>")
            if param.name == "help":
                param.help = "Print help"
            param.help = _escape_markup(param.help or "")
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]


class HelpCommand(_HelpPage, TyperCommand):
    pass


class HelpGroup(_HelpPage, TyperGroup):
    order: tuple[str, ...] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """In our order; typer would list groups after all commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: self.order.index(name) if name in self.order else len(self.order))


def help_text(function: Callable[..., Any]) -> str:
    """The docstring with a line per paragraph, which the terminal wraps."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return _escape_markup("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))


def _escape_markup(text: str) -> str:
    """For rich, which takes a table such as [faults] for markup and leaves it out. May be applied twice."""
    return re.sub(r"(?<!\\)\[", r"\[", text)


def help_epilog(examples: Iterable[str], exit_codes: Mapping[Any, str] | None = None) -> str:
    """The text below the options of a command: its examples, and exit codes if there are any."""
    text = "\n".join(_example_lines(tuple(examples))).replace("[", r"\[")
    # typer removes the common indentation of all lines but the first: the first one is empty to keep it.
    text = f"\n[bold]Examples[/bold]\n{indent(text, '  ')}"
    if exit_codes:
        rows = [fill(f"  {code:<4} {text}", WIDTH, subsequent_indent=" " * 7) for code, text in exit_codes.items()]
        text += "\n\n[bold]Exit codes[/bold]\n" + "\n".join(rows)
    return text


def _example_lines(examples: tuple[str, ...]) -> list[str]:
    """Examples as they are if they all fit; otherwise wrapped, each below its comment."""
    if all(len(example) <= WIDTH - 2 for example in examples):
        return list(examples)
    lines = []
    for example in examples:
        command, _, comment = example.partition(COMMENT)
        lines += ["", f"# {comment.strip()}"] if comment else [""]
        lines += _wrap_command(command)
    return lines[1:]


def _wrap_command(command: str) -> list[str]:
    """The command in lines that a shell reads as one, broken before options, or inside quotes."""
    lines, line = [], ""
    for word in command.split(" ") if '"' in command else re.split(" (?=--)", command):
        if line.strip() and len(line) + 1 + len(word) > WIDTH - 4:
            lines.append(line if line.count('"') % 2 else f"{line} \\")
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
