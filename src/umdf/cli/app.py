"""The `umdf` command: global options, the list of commands, and the only place that reports errors.

A command is a module in COMMANDS: a function with the module's name (its docstring is the help), and EXAMPLES. A group
of commands also has SUBCOMMANDS: functions with their examples.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.main import get_command

import umdf
from umdf.cli import config
from umdf.cli.commands import (
    book,
    certify,
    decode,
    doctor,
    exchange,
    explain,
    export,
    feed,
    history,
    ingest,
    lake,
    query,
    replay,
    report,
    stream,
)
from umdf.cli.help_pages import HelpCommand, HelpGroup, help_epilog, help_text
from umdf.cli.output import EXIT_CODES, ExitCode, JsonFlag, Printer, exit_with, prepare_streams, print_json, printer_of

COMMANDS: tuple[ModuleType, ...] = (
    decode, explain, book, ingest, stream, query, report, export, lake, feed, replay, history, exchange, certify,
    doctor,
)  # fmt: skip
EXAMPLES = (
    "umdf doctor                       check this machine",
    "umdf lake demo demo               build a small example lake",
    "umdf decode day.pcap --limit 20   look at a capture",
    "umdf --config day.toml ingest …   read settings from a file",
    "umdf --version --json             version of umdf, Python and platform as JSON",
)


def _name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


class RootGroup(HelpGroup):
    order = tuple(map(_name_of, COMMANDS))


def umdf_command(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit")] = False,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file, TOML (default: ./umdf.toml if it exists)"),
    ] = None,
    as_json: JsonFlag = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print a traceback on errors")] = False,
) -> None:
    """B3 market data (UMDF): decode captures, rebuild books, build a lakehouse, simulate the exchange."""
    if version:
        versions = {"version": umdf.__version__, "python": platform.python_version(), "platform": platform.platform()}
        print_json(versions) if as_json else print(f"umdf {umdf.__version__}")
        exit_with(ExitCode.DONE)
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        exit_with(ExitCode.DONE)
    _apply_settings(ctx, printer_of(ctx), config_file, as_json)


def _apply_settings(ctx: typer.Context, printer: Printer, file: Path | None, as_json: bool) -> None:
    """Make the file's settings the defaults of the commands, which are parsed after this."""
    if file is None and config.DEFAULT_FILE.is_file() and not printer.is_help:
        file = config.DEFAULT_FILE
    settings = config.defaults(file, ctx.command, config.read_settings(file)) if file else {}
    printer.config_file = file
    printer.command = f"umdf {ctx.invoked_subcommand}"
    command_settings = settings.setdefault(str(ctx.invoked_subcommand), {})
    if as_json or settings.get("as_json"):
        command_settings["as_json"] = True
    printer.json = printer.json or command_settings.get("as_json", False)
    printer.debug = printer.debug or settings.get("debug", False)
    ctx.default_map = settings


def build(commands: Iterable[ModuleType] = COMMANDS) -> typer.Typer:
    settings = {"help_option_names": ["--help", "-h"]}
    app = typer.Typer(cls=RootGroup, add_completion=False, rich_markup_mode="rich", context_settings=settings)
    app.callback(invoke_without_command=True, epilog=help_epilog(EXAMPLES, EXIT_CODES))(umdf_command)
    for module in commands:
        name = _name_of(module)
        function, epilog = getattr(module, name), help_epilog(module.EXAMPLES)
        subcommands = getattr(module, "SUBCOMMANDS", ())
        if not subcommands:
            app.command(name, cls=HelpCommand, help=help_text(function), epilog=epilog)(function)
            continue
        group = typer.Typer(cls=HelpGroup, rich_markup_mode="rich", context_settings=settings)
        group.callback(invoke_without_command=True, epilog=epilog)(function)
        for function, examples in subcommands:
            help, epilog = help_text(function), help_epilog(examples)
            group.command(function.__name__, cls=HelpCommand, help=help, epilog=epilog)(function)
        app.add_typer(group, name=name)
    return app


@functools.cache
def command_tree(commands: tuple[ModuleType, ...]) -> Any:
    """What parses command lines. It takes 30 ms to build and keeps nothing between runs."""
    return get_command(build(commands))


def run(argv: Sequence[str], commands: Iterable[ModuleType] = COMMANDS) -> int:
    """Run one command line and return its exit code."""
    prepare_streams()
    printer = Printer(json="--json" in argv, debug="--debug" in argv, is_help="--help" in argv or "-h" in argv)
    code = int(ExitCode.DONE)
    try:
        try:
            command = command_tree(tuple(commands))
            with command.make_context("umdf", list(argv), obj=printer) as ctx:
                command.invoke(ctx)
        except typer.Exit as left:
            code = left.exit_code
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return printer.print_error(config.attribute_to_file(error, printer.config_file))
    return code


def main() -> None:
    sys.exit(run(sys.argv[1:]))
