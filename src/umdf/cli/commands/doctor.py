"""`umdf doctor`: prints the findings of `umdf.doctor`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from umdf.cli.output import JsonFlag, print_json
from umdf.cli.text_table import print_table
from umdf.errors import UmdfError

EXAMPLES = (
    "umdf doctor          what works here, what does not, and what to do",
    "umdf doctor --fix    compile the kernels now, then look",
    "umdf doctor --json | python3 -m json.tool",
)
STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Compile the kernels before looking.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what is wrong with this machine, and how to fix it.

    Looks at Python, packages, what lakes need, compiled kernels, Java, receive buffers, multicast, processors, memory
    and open files. Nothing leaves the machine. Ends with 3 if something is bad; a warning is about a part that you may
    not need.
    """
    from umdf import doctor as checks

    if fix:
        checks.apply_fixes()
    findings = checks.run_checks()
    failed = [finding.check for finding in findings if finding.status is checks.Status.BAD]
    if as_json:
        print_json({"ok": not failed, "checks": [dataclasses.asdict(finding) for finding in findings]})
    else:
        rows = [(finding.check, str(finding.status), finding.found, finding.fix) for finding in findings]
        print_table(("check", "status", "found", "what to do"), rows, STYLES)
    if failed:
        raise UmdfError(f"bad here: {', '.join(failed)}", "do what the last column says and run umdf doctor again")
