"""`umdf doctor`: prints the findings of `umdf.doctor`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from umdf.cli.output import JsonFlag, print_json
from umdf.cli.text_table import print_table
from umdf.errors import UmdfError

EXAMPLES = (
    "umdf doctor          what works, what does not, and how to fix it",
    "umdf doctor --fix    compile the kernels, then check",
    "umdf doctor --json | python3 -m json.tool",
)
STYLES = {"ok": "green", "warn": "yellow", "error": "bold red"}


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Compile the kernels first")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check this machine and suggest fixes.

    Checks Python, packages, compiled kernels, Java, receive buffers, multicast, CPUs, memory and open files. Nothing is
    sent anywhere. Exits with 3 if a check fails; a warning concerns a part that you may not need.
    """
    from umdf import doctor as checks

    if fix:
        checks.apply_fixes()
    findings = checks.run_checks()
    failed = [finding.check for finding in findings if finding.status is checks.Status.ERROR]
    if as_json:
        print_json({"ok": not failed, "checks": [dataclasses.asdict(finding) for finding in findings]})
    else:
        rows = [(finding.check, str(finding.status), finding.details, finding.fix) for finding in findings]
        print_table(("check", "status", "details", "fix"), rows, STYLES)
    if failed:
        raise UmdfError(
            f"failed checks: {', '.join(failed)}", "apply the fixes listed above, then run `umdf doctor` again"
        )
