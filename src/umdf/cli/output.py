"""The output of every command: exit codes, one-line errors with a hint, warnings; text or JSON.

    umdf: <reason>; <hint>                                     on stderr
    {"error": <reason>, "hint": <hint>, "exit_code": <code>}   with --json

A traceback is shown only with --debug.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import sys
import traceback
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from umdf.errors import EXTRAS, MissingPackageError, SchemaError, UmdfError, UsageError
from umdf.units import printable

MAX_FAULTS_SHOWN = 20
# Errors of a write, with hints. A closed stdout has no descriptor to write to.
WRITE_ERRORS = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EFBIG: "write elsewhere, or raise the limit (ulimit -f)",
    errno.EBADF: "stdout is closed; redirect it, for example with > FILE",
}


class ExitCode(IntEnum):
    DONE = 0
    BUG = 1
    USAGE = 2
    INPUT = 3
    DAMAGED = 4
    INTERRUPTED = 130  # 128 + SIGINT, as shells count
    OUTPUT_CLOSED = 141  # 128 + SIGPIPE


EXIT_CODES = {
    ExitCode.DONE: "success",
    ExitCode.BUG: "internal error (a bug)",
    ExitCode.USAGE: "invalid command line",
    ExitCode.INPUT: (
        "unusable input or failed output (missing file, not a capture, invalid schema or settings, disk full)"
    ),
    ExitCode.DAMAGED: "success, but part of the input was damaged (only with --strict)",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.OUTPUT_CLOSED: "output closed by its reader (| head)",
}

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text, including errors")]


TYPER_PHRASES = {
    "Value error, ": "",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
    "Input should be greater than": "must be more than",
    "Input should be less than": "must be less than",
}


class DamagedError(UmdfError):
    """Raised at the end of a command that has done its work, with --strict, on damaged input."""


@dataclass
class Printer:
    """Prints warnings and errors as the global options say; a command gets it with `printer_of(ctx)`."""

    json: bool = False
    debug: bool = False
    command: str = "umdf"  # for errors that are about the command as a whole
    is_help: bool = False  # --help works also with an invalid settings file
    config_file: Path | None = None

    def warn(self, text: str) -> None:
        """Print a warning on stderr; the command continues."""
        sys.stdout.flush()
        _print_stderr(json.dumps({"warning": text}) if self.json else printable(f"umdf: warning: {text}"))

    def print_error(self, error: BaseException) -> ExitCode:
        """Print an error on stderr and return its exit code."""
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return self._print_failure("interrupted", "", ExitCode.INTERRUPTED)
        if isinstance(error, BrokenPipeError):
            discard_stdout()
            return ExitCode.OUTPUT_CLOSED
        if self.debug:
            traceback.print_exception(error)
        match error:
            case OSError() if error.errno in WRITE_ERRORS:
                discard_stdout()
                reason = f"cannot write {error.filename or 'the output'}: {os.strerror(error.errno)}"
                return self._print_failure(reason, WRITE_ERRORS[error.errno], ExitCode.INPUT)
            case ModuleNotFoundError() if (package := (error.name or "").partition(".")[0]) in EXTRAS:
                return self._print_missing_package(package)
            case MissingPackageError():
                return self._print_missing_package(error.package)
            case typer.TyperException():
                return self._print_failure(*_usage_error(error), ExitCode.USAGE)
            case UsageError():
                return self._print_failure(error.reason, error.hint, ExitCode.USAGE)
            case SchemaError() if len(error.faults) > 1:
                return self._print_faults(error)
            case UmdfError():
                code = ExitCode.DAMAGED if isinstance(error, DamagedError) else ExitCode.INPUT
                return self._print_failure(error.reason, error.hint, code)
            case OSError() if error.filename is not None:
                reason = f"cannot access {error.filename}: {error.strerror}"
                return self._print_failure(reason, "check the path and its permissions", ExitCode.INPUT)
            case _:
                message = " ".join(str(error).split())
                hint = "this is a bug, please report it with the output of `umdf --debug …`"
                return self._print_failure(f"internal error: {type(error).__name__}: {message}", hint, ExitCode.BUG)

    def _print_missing_package(self, package: str) -> ExitCode:
        missing_package = MissingPackageError(package, f"`{self.command}`")
        return self._print_failure(missing_package.reason, missing_package.hint, ExitCode.INPUT)

    def _print_faults(self, error: SchemaError) -> ExitCode:
        reason, hint = f"{len(error.faults)} errors in {error.faults[0].file}", error.hint or "fix them all"
        if self.json:
            faults = [dataclasses.asdict(fault) for fault in error.faults]
            return self._print_failure(reason, hint, ExitCode.INPUT, faults=faults)
        code = self._print_failure(reason, hint, ExitCode.INPUT)
        for fault in error.faults[:MAX_FAULTS_SHOWN]:
            _print_stderr(printable(f"  {fault}"))
        if len(error.faults) > MAX_FAULTS_SHOWN:
            _print_stderr(f"  … and {len(error.faults) - MAX_FAULTS_SHOWN} more")
        return code

    def _print_failure(self, reason: str, hint: str, code: ExitCode, **more: Any) -> ExitCode:
        if self.json:
            _print_stderr(json.dumps({"error": reason, "hint": hint, "exit_code": int(code), **more}))
        else:
            _print_stderr(printable(f"umdf: {reason}; {hint}" if hint else f"umdf: {reason}"))
        return code


def _print_stderr(line: str) -> None:
    try:
        print(line, file=sys.stderr)
    except OSError:  # stderr cannot be written to: only the exit code is left
        pass


def prepare_streams() -> None:
    """Make stdout and stderr usable before anything is printed, in any shell and locale.

    A closed descriptor (`>&-`) would be given to the next file that is opened, and what is printed would go there. So a
    closed stdout gets a descriptor that cannot be written to: the first write fails as on a full disk. Output to a
    closed stderr is lost. Characters that the encoding of stdout does not have are escaped.
    """
    for number, name, mode in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            null_fd = os.open(os.devnull, mode)
            if null_fd != number:
                os.dup2(null_fd, number)
                os.close(null_fd)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Discard stdout, which Python flushes once more when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except io.UnsupportedOperation:  # not a file: nothing to flush
        pass


def printer_of(ctx: typer.Context) -> Printer:
    printer = ctx.obj
    assert isinstance(printer, Printer)
    return printer


def size_text(size_bytes: float) -> str:
    """A number of bytes for people: 312 B, 4.5 kB, 1,234.0 MB."""
    if size_bytes < 1e3:
        return f"{size_bytes:.0f} B"
    return f"{size_bytes / 1e3:.1f} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:,.1f} MB"


def counted(number: int, noun: str) -> str:
    """1 file, 2 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """JSON on one line, in UTF-8; control characters and what is not UTF-8 are escaped, so that it can be read back."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_escaped(line: str) -> None:
    """Print one line of text with control characters escaped."""
    print(printable(line))


def exit_with(code: ExitCode) -> NoReturn:
    raise typer.Exit(code)


def _usage_error(error: typer.TyperException) -> tuple[str, str]:
    """Reason and hint of an error of typer, in our style: no capital, no full stop."""
    message = " ".join(error.format_message().split())
    for typers, ours in TYPER_PHRASES.items():
        message = message.replace(typers, ours)
    reason, separator, suggestion = message.partition(". Did you mean ")
    if not separator:
        reason, separator, suggestion = message.partition(" (Possible options: ")
    reason = reason[:1].lower() + reason[1:].rstrip(".")
    if reason == "no such option: --config":
        return "--config is a global option", "put it before the command"
    if separator:
        return reason, f"did you mean {suggestion.rstrip('?)')}?"
    ctx = getattr(error, "ctx", None)
    return reason, f"see `{ctx.command_path if ctx else 'umdf'} --help`"
