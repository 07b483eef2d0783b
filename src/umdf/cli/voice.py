"""How every command speaks: exit codes, errors in one line with what to do next, warnings; text or JSON.

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

MOST_FAULTS_SHOWN = 20
# What a write says when its file takes no more. A stdout that is closed has no descriptor to write to.
CANNOT_WRITE = {
    errno.ENOSPC: "make room there, or write elsewhere",
    errno.EDQUOT: "make room there, or write elsewhere",
    errno.EFBIG: "write elsewhere, or raise the limit (ulimit -f)",
    errno.EBADF: "stdout is closed: send it somewhere, as with > FILE",
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
    ExitCode.DONE: "done",
    ExitCode.BUG: "unexpected failure (a bug)",
    ExitCode.USAGE: "wrong usage",
    ExitCode.INPUT: "the input cannot be used (missing, no capture, bad schema or config), or the output not written",
    ExitCode.DAMAGED: "done, but part of the input was damaged (only with --strict)",
    ExitCode.INTERRUPTED: "stopped with Ctrl-C",
    ExitCode.OUTPUT_CLOSED: "the reader of the output went away (| head)",
}

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text; errors too.")]


class DamagedError(UmdfError):
    """Raised at the end of a command that has done its work, with --strict, on damaged input."""


@dataclass
class Voice:
    """What the global options say about speaking; commands find it with `voice_of(ctx)`."""

    json: bool = False
    debug: bool = False
    command: str = "umdf"  # for errors that are about the command as a whole
    helping: bool = False  # --help is asked for: no reason to trip over a bad configuration
    config_file: Path | None = None

    def warn(self, text: str) -> None:
        """Something the user should know, though the work goes on."""
        sys.stdout.flush()
        _complain(json.dumps({"warning": text}) if self.json else printable(f"umdf: warning: {text}"))

    def explain(self, error: BaseException) -> ExitCode:
        """Say what went wrong on stderr; the exit code that goes with it."""
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return self._fail("stopped", "", ExitCode.INTERRUPTED)
        if isinstance(error, BrokenPipeError):
            drop_output()
            return ExitCode.OUTPUT_CLOSED
        if self.debug:
            traceback.print_exception(error)
        match error:
            case OSError() if error.errno in CANNOT_WRITE:
                drop_output()
                reason = f"cannot write {error.filename or 'the output'}: {os.strerror(error.errno)}"
                return self._fail(reason, CANNOT_WRITE[error.errno], ExitCode.INPUT)
            case ModuleNotFoundError() if (package := (error.name or "").partition(".")[0]) in EXTRAS:
                return self._fail_without(package)
            case MissingPackageError():
                return self._fail_without(error.package)
            case typer.TyperException():
                return self._fail(*_usage(error), ExitCode.USAGE)
            case UsageError():
                return self._fail(error.reason, error.hint, ExitCode.USAGE)
            case SchemaError() if len(error.faults) > 1:
                return self._fail_with_faults(error)
            case UmdfError():
                code = ExitCode.DAMAGED if isinstance(error, DamagedError) else ExitCode.INPUT
                return self._fail(error.reason, error.hint, code)
            case OSError() if error.filename is not None:
                reason = f"cannot use {error.filename}: {error.strerror}"
                return self._fail(reason, "check the path and its permissions", ExitCode.INPUT)
            case _:
                said = " ".join(str(error).split())
                hint = "this is a bug, please report it with what `umdf --debug …` prints"
                return self._fail(f"unexpected {type(error).__name__}: {said}", hint, ExitCode.BUG)

    def _fail_without(self, package: str) -> ExitCode:
        missing = MissingPackageError(package, f"`{self.command}`")
        return self._fail(missing.reason, missing.hint, ExitCode.INPUT)

    def _fail_with_faults(self, error: SchemaError) -> ExitCode:
        reason, hint = f"{len(error.faults)} faults in {error.faults[0].file}", error.hint or "correct them all"
        if self.json:
            faults = [dataclasses.asdict(fault) for fault in error.faults]
            return self._fail(reason, hint, ExitCode.INPUT, faults=faults)
        code = self._fail(reason, hint, ExitCode.INPUT)
        for fault in error.faults[:MOST_FAULTS_SHOWN]:
            _complain(printable(f"  {fault}"))
        if len(error.faults) > MOST_FAULTS_SHOWN:
            _complain(f"  … and {len(error.faults) - MOST_FAULTS_SHOWN} more")
        return code

    def _fail(self, reason: str, hint: str, code: ExitCode, **more: Any) -> ExitCode:
        if self.json:
            _complain(json.dumps({"error": reason, "hint": hint, "exit_code": int(code), **more}))
        else:
            _complain(printable(f"umdf: {reason}; {hint}" if hint else f"umdf: {reason}"))
        return code


def _complain(line: str) -> None:
    try:
        print(line, file=sys.stderr)
    except OSError:  # nobody can be told: the exit code still says it
        pass


def open_output() -> None:
    """Before anything is printed: stdout and stderr can be written to, whatever the shell and the locale are.

    A descriptor that is closed (`>&-`) would go to the next file that is opened, and what is printed into that file. So
    stdout gets one that cannot be written to: the first word that is printed fails as on a full disk. What is said on
    a closed stderr is lost. Characters that the encoding of stdout does not have are escaped.
    """
    for number, name, how in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, how)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Python flushes stdout once more when it exits: let that go nowhere."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except io.UnsupportedOperation:  # not a file: nothing of it is left to flush
        pass


def voice_of(ctx: typer.Context) -> Voice:
    voice = ctx.obj
    assert isinstance(voice, Voice)
    return voice


def print_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """JSON on one line, in UTF-8; what would steer a terminal, or is not UTF-8, is escaped, so that it reads back."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_text(line: str) -> None:
    """One line for people; what would steer a terminal is escaped."""
    print(printable(line))


def leave(code: ExitCode) -> NoReturn:
    raise typer.Exit(code)


def epilog(examples: tuple[str, ...]) -> str:
    """What stands below a command's options: examples and exit codes."""
    shown = "\n".join(f"  {example}" for example in examples).replace("[", r"\[")
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    return f"[bold]Examples[/bold]\n{shown}\n\n[bold]Exit codes[/bold]\n{codes}"


def _usage(error: typer.TyperException) -> tuple[str, str]:
    """typer's sentence in our voice: no capital, no full stop, and what to do next."""
    said = " ".join(error.format_message().split())
    reason, found, guess = said.partition(". Did you mean ")
    if not found:
        reason, found, guess = said.partition(" (Possible options: ")
    reason = reason[:1].lower() + reason[1:].rstrip(".")
    if found:
        return reason, f"did you mean {guess.rstrip('?)')}?"
    ctx = getattr(error, "ctx", None)
    return reason, f"see `{ctx.command_path if ctx else 'umdf'} --help`"
