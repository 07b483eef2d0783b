"""`umdf certify`: plays B3's certification script, and reports every step with its evidence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.output import JsonFlag, Printer, print_json, printer_of
from umdf.errors import UmdfError, UsageError
from umdf.units import printable

if TYPE_CHECKING:
    from umdf.certify.profile import Combination
    from umdf.certify.results import Run, StepResult
    from umdf.certify.selection import Selection

EXAMPLES = (
    "umdf certify                                   all eight combinations: protocol, generation, segment",
    "umdf certify --protocol sbe --generation priority --segment equities --report certification.html",
    "umdf certify --only B2.4                       B2 from its start book up to this step",
    "umdf certify --client external --protocol fast --generation priority --segment equities --log client.jsonl",
    "umdf certify --listen --channels channels.toml --symbol PETR4 --book mbo",
    "umdf certify --list                            the steps, and what is expected",
)
REQUIREMENTS = {"Y": "required", "C": "conditional", "N": "optional"}  # the script's column Req


def certify(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Option(help="Protocol", metavar="fast|sbe|all")] = "all",
    generation: Annotated[str, typer.Option(help="Generation of the books", metavar="priority|position|all")] = "all",
    segment: Annotated[str, typer.Option(help="Segment", metavar="equities|derivatives|all")] = "all",
    only: Annotated[
        str, typer.Option("--only", help="Only this section (B2), or its steps up to this one (B2.4)", metavar="STEP")
    ] = "",
    first: Annotated[str, typer.Option("--from", help="Section or step to start from", metavar="STEP")] = "",
    list_steps: Annotated[bool, typer.Option("--list", help="List the steps and what they expect, and exit")] = False,
    client: Annotated[
        str, typer.Option(help="Client to certify: umdf itself, or another program", metavar="own|external")
    ] = "own",
    channels: Annotated[
        Path,
        typer.Option(help="Channels (TOML): written for an external client, read with --listen", metavar="FILE"),
    ] = Path("channels.toml"),
    log: Annotated[
        Path | None,
        typer.Option(
            help="Log that the external client writes, JSON lines (default: a person confirms each step)",
            metavar="FILE",
        ),
    ] = None,
    instructions: Annotated[
        Path,
        typer.Option(help="File to write: steps and what the external client has to do, JSON lines", metavar="FILE"),
    ] = Path("instructions.jsonl"),
    first_port: Annotated[
        int, typer.Option(help="First port to send to, for an external client", metavar="PORT")
    ] = 20_001,
    interface: Annotated[
        str, typer.Option(help="Address to send to, for an external client", metavar="ADDRESS")
    ] = "127.0.0.1",
    speed: Annotated[
        float, typer.Option(help="Speed of the exchange's clock with an external client", metavar="N", min=0.1)
    ] = 1.0,
    settle_s: Annotated[
        float,
        typer.Option(
            help="Seconds an external client has to write its log after each action", metavar="SECONDS", min=0.05
        ),
    ] = 2.0,
    is_listening: Annotated[
        bool,
        typer.Option("--listen", help="Observe the feed of --channels, on which another exchange plays the script"),
    ] = False,
    symbol: Annotated[str, typer.Option(help="Instrument to observe", metavar="SYMBOL")] = "",
    book: Annotated[str, typer.Option(help="Books to observe", metavar="mbo|mbp|tob")] = "mbo",
    duration_s: Annotated[
        float | None,
        typer.Option(help="Seconds to observe (default: until all steps have passed, or Ctrl-C)", metavar="SECONDS"),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file for the report", metavar="FILE")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play B3's certification script: every step Pass, Fail or N/E (not executed), with evidence.

    A simulated exchange plays the steps and our client receives them over sockets of this machine; the exchange's clock
    runs as fast as it can. An external client receives them on the addresses that are written to --channels. Exits with
    0 only if all required steps pass.
    """
    from umdf.certify.external import ExternalSettings
    from umdf.certify.selection import select_combinations, select_steps

    printer, selection = printer_of(ctx), select_steps(only, first)
    if is_listening:
        _finish(
            printer, [_listen(printer, selection, channels, (symbol, book, generation, segment), duration_s)], report
        )
        return
    combinations = select_combinations(protocol, generation, segment)
    if list_steps:
        _list(printer, selection, combinations)
    elif client == "own":
        _finish(printer, [_play(printer, combination, selection) for combination in combinations], report)
    elif client == "external":
        if len(combinations) > 1:
            raise UsageError(
                f"{len(combinations)} combinations for an external client", "set --protocol, --generation and --segment"
            )
        settings = ExternalSettings(first_port, interface, settle_s, speed)
        files = channels, log, instructions
        _finish(printer, [_play_external(printer, combinations[0], selection, settings, files)], report)
    else:
        raise UsageError(f"unknown client: {client}", "use own or external")


def _play(printer: Printer, combination: Combination, selection: Selection) -> Run:
    from umdf.certify.runner import certify as play

    _print_line(printer, f"{combination}")
    with _history() as directory:
        return play(combination, directory, selection, lambda step: _show(printer, step))


def _play_external(
    printer: Printer,
    combination: Combination,
    selection: Selection,
    settings: Any,
    files: tuple[Path, Path | None, Path],
) -> Run:
    from umdf.certify.exchange_session import open_exchange
    from umdf.certify.external import play_with_log, play_with_person
    from umdf.certify.external_client import instruction_file
    from umdf.transport.channels_file import format_channels

    channels, log, instructions = files
    ports = iter(range(settings.first_port, 65_536))
    write = instruction_file(instructions)

    def instruct(instruction: dict[str, Any]) -> None:
        write(instruction)
        if "client" in instruction:
            _print_line(printer, "  client: " + ", ".join(f"{key} {value}" for key, value in instruction.items()))

    with (
        _history() as directory,
        open_exchange(combination, directory, selection, lambda: next(ports), settings.interface) as opened,
    ):
        channels.write_text(format_channels(opened.channels, opened.replayers), encoding="utf-8")
        _print_line(printer, f"{combination}; {opened.stage.combination.symbols.main}; channels are in {channels}")

        def show(step: StepResult) -> None:
            _show(printer, step)

        if log is not None:
            return play_with_log(combination, opened.stage, selection, log, instruct, settings, show)
        return play_with_person(combination, opened.stage, selection, _Person(), instruct, show)


class _Person:
    """Asks on the terminal; the exchange goes on while somebody thinks."""

    def __init__(self) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._answers: SimpleQueue[str] = SimpleQueue()
        self._asked = ""
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._answers.put(line.strip().lower())
        self._answers.put("f")  # nobody is there to confirm

    def __call__(self, step: Any, actions: tuple[str, ...]) -> Any:
        from umdf.certify.results import Outcome

        if self._asked != step.id:
            self._asked = step.id
            print(printable(f"{step.id} {step.description}"))
            for line in (*actions, *(f"expected: {text}" for text in _texts_of(_expected(step)))):
                print(printable(f"    {line}"))
            print("    pass, fail or n/e? [p/f/n] ", end="", flush=True)
        if self._answers.empty():
            return None
        answer = self._answers.get()
        outcomes = {"p": Outcome.PASS, "f": Outcome.FAIL, "n": Outcome.NOT_EXECUTED}
        return outcomes.get(answer[:1])


def _listen(
    printer: Printer, selection: Selection, channels: Path, what: tuple[str, str, str, str], duration_s: float | None
) -> Run:
    from umdf.certify.listen import ObservationTarget, listen, seconds_from_now
    from umdf.certify.observation import BOOK_TYPES
    from umdf.transport.channels_file import read_channels

    symbol, book, generation, segment = what
    if not symbol:
        raise UsageError("no instrument to observe", "add --symbol PETR4")
    if book.upper() not in BOOK_TYPES:
        raise UsageError(f"unknown book: {book}", "use mbo, mbp or tob")
    generation, segment = (
        value if value != "all" else default for value, default in ((generation, "priority"), (segment, "equities"))
    )
    is_late, interrupted = seconds_from_now(duration_s), list[bool]()
    with _ends_on_interrupt(interrupted):
        return listen(
            read_channels(channels),
            ObservationTarget(symbol, book.upper(), generation, segment),
            selection,
            lambda step: _show(printer, step),
            lambda: bool(interrupted) or is_late(),
        )


@contextmanager
def _ends_on_interrupt(interrupted: list[bool]) -> Iterator[None]:
    """Ctrl-C ends observing, and the report is written."""
    import signal

    before = signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _history() -> Iterator[Path]:
    """Where the replayers keep what was published."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="umdf-certify-") as directory:
        yield Path(directory)


def _print_line(printer: Printer, text: str) -> None:
    if not printer.json:
        print(printable(text), flush=True)


def _show(printer: Printer, step: StepResult) -> None:
    _print_line(printer, f"  {step.id:<6} {step.outcome.upper():<5} {step.description}")
    for failure in step.failures if step.outcome == "fail" else ():
        _print_line(printer, f"         {failure}")


def _finish(printer: Printer, runs: list[Run], report: Path | None) -> None:
    from umdf.certify.report import render_report

    if report is not None:
        report.write_text(render_report(runs), encoding="utf-8")
    if printer.json:
        print_json({"runs": [run.to_json() for run in runs], "has_passed": all(run.has_passed for run in runs)})
    for run in runs:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in run.counts.items())
        _print_line(
            printer, f"{run.combination}: {'passed' if run.has_passed else 'FAILED'} ({counts}; {run.seconds:.0f} s)"
        )
    if report is not None:
        _print_line(printer, f"wrote {report}")
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
        played = [each for each in combinations if not section.why_not(each.protocol, each.segment)]
        for step in selection.steps(section):
            about = {"step": step.id, "section": section.title, "required": step.requirement, "runs": len(played)}
            about |= {"segments": list(section.segments), "protocols": list(section.protocols)}
            rows.append({**about, "description": step.description, "expected": _expected(step)})
    if printer.json:
        print_json({"steps": rows})
    for row in rows:
        _print_line(printer, f"{row['step']:<6} {REQUIREMENTS[row['required']]:<11} {row['description']}")
        for text in _texts_of(row["expected"]):
            _print_line(printer, f"{'':<18} {text}")


def _expected(step: Any) -> dict[str, list[str]]:
    return {book: [each.text for each in found] for book, found in step.expected.items()}


def _texts_of(expected: dict[str, list[str]]) -> list[str]:
    """A line for each book type, or one if they are the same."""
    lines = ["; ".join(texts) for texts in expected.values()]
    if len(set(lines)) == 1:
        return lines[:1]
    return [f"{book}: {line}" for book, line in zip(expected, lines, strict=True)]
