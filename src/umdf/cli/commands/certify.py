"""`umdf certify`: plays B3's certification script, and reports every step with its evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.output import JsonFlag, Printer, print_json, printer_of
from umdf.errors import UmdfError
from umdf.units import printable

if TYPE_CHECKING:
    from umdf.certify.profile import Combination
    from umdf.certify.results import Run, StepResult
    from umdf.certify.selection import Selection

EXAMPLES = (
    "umdf certify                                   all eight combinations: protocol, generation, segment",
    "umdf certify --protocol sbe --generation priority --segment equities",
    "umdf certify --only B2.4                       B2 from its start book up to this step",
    "umdf certify --report certification.html       every step with its evidence",
    "umdf certify --list                            the steps, and what is expected",
)


def certify(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Option(help="Protocol: fast, sbe or all", metavar="NAME")] = "all",
    generation: Annotated[
        str, typer.Option(help="Generation of the books: priority, position or all", metavar="NAME")
    ] = "all",
    segment: Annotated[str, typer.Option(help="Segment: equities, derivatives or all", metavar="NAME")] = "all",
    only: Annotated[
        str, typer.Option("--only", help="Only this section, or its steps up to this one", metavar="STEP")
    ] = "",
    first: Annotated[str, typer.Option("--from", help="Section or step to start from", metavar="STEP")] = "",
    list_steps: Annotated[bool, typer.Option("--list", help="List the steps and what they expect, and exit")] = False,
    report: Annotated[Path | None, typer.Option(help="HTML file for the report", metavar="FILE")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play B3's certification script: every step Pass, Fail or N/E (not executed), with evidence.

    A simulated exchange plays the steps and our client receives them over sockets of this machine; the exchange's clock
    runs as fast as it can. Exits with 0 only if all required steps pass.
    """
    from umdf.certify.selection import select_combinations, select_steps

    printer = printer_of(ctx)
    selection, combinations = select_steps(only, first), select_combinations(protocol, generation, segment)
    if list_steps:
        _list(printer, selection, combinations)
        return
    _finish(printer, [_play(printer, combination, selection) for combination in combinations], report)


def _play(printer: Printer, combination: Combination, selection: Selection) -> Run:
    from tempfile import TemporaryDirectory

    from umdf.certify.runner import certify as play

    if not printer.json:
        print(f"{combination}")
    with TemporaryDirectory(prefix="umdf-certify-") as directory:
        return play(combination, Path(directory), selection, lambda step: _show(printer, step))


def _show(printer: Printer, step: StepResult) -> None:
    if printer.json:
        return
    print(printable(f"  {step.id:<6} {step.outcome.upper():<5} {step.description}"))
    for failure in step.failures if step.outcome == "fail" else ():
        print(printable(f"         {failure}"))
    sys.stdout.flush()


def _finish(printer: Printer, runs: list[Run], report: Path | None) -> None:
    from umdf.certify.report import render_report

    if report is not None:
        report.write_text(render_report(runs), encoding="utf-8")
    if printer.json:
        print_json({"runs": [run.to_json() for run in runs], "has_passed": all(run.has_passed for run in runs)})
    else:
        for run in runs:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in run.counts.items())
            print(f"{run.combination}: {'passed' if run.has_passed else 'FAILED'} ({counts}; {run.seconds:.0f} s)")
        if report is not None:
            print(f"wrote {printable(str(report))}")
    failed = [run for run in runs if not run.has_passed]
    if failed:
        first = failed[0].first_failure
        step = f", first at {first.id}" if first is not None else ""
        raise UmdfError(
            f"not certified: {len(failed)} of {len(runs)} runs failed{step}",
            "see the steps above" if report is None else "see the report",
        )


def _list(printer: Printer, selection: Selection, combinations: list[Combination]) -> None:
    rows = []
    for section in selection.sections:
        for step in selection.steps(section):
            played = [each for each in combinations if not section.why_not(each.protocol, each.segment)]
            rows.append(
                {
                    "step": step.id,
                    "section": section.title,
                    "required": step.requirement,
                    "segments": list(section.segments),
                    "protocols": list(section.protocols),
                    "runs": len(played),
                    "description": step.description,
                    "expected": {book: [each.text for each in found] for book, found in step.expected.items()},
                }
            )
    if printer.json:
        print_json({"steps": rows})
        return
    for row in rows:
        print(printable(f"{row['step']:<6} {row['required']} {row['description']}"))
        for texts in _texts_of(row["expected"]):
            print(printable(f"         {texts}"))


def _texts_of(expected: dict[str, list[str]]) -> list[str]:
    """A line for each book type, or one if they are the same."""
    lines = ["; ".join(texts) for texts in expected.values()]
    if len(set(lines)) == 1:
        return lines[:1]
    return [f"{book}: {line}" for book, line in zip(expected, lines, strict=True)]
