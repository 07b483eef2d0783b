"""Runs as one HTML page: readable, printable, without anything from elsewhere. Text of the feed is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from umdf.certify.results import BookEvidence, BookResult, MessageEvidence, Outcome, Run, StepResult
from umdf.lake.report.html import Html, code, escape, paragraph, pill, table
from umdf.lake.report.style import STYLE

KINDS = {Outcome.PASS: "good", Outcome.FAIL: "bad", Outcome.NOT_EXECUTED: "fair"}
WORDS = {Outcome.PASS: "Pass", Outcome.FAIL: "Fail", Outcome.NOT_EXECUTED: "N/E"}
SHOWN_BYTES = 400  # of a message
OWN_STYLE = """
h3 { font-size: 15px; margin: 22px 0 6px; }
details { border: 1px solid var(--rule); border-radius: 6px; background: var(--card); margin-top: 8px; }
summary { cursor: pointer; padding: 8px 12px; display: grid; grid-template-columns: 62px 1fr auto; gap: 10px; }
summary b { font-variant-numeric: tabular-nums; }
.step { padding: 0 14px 12px; font-size: 13.5px; } .step h4 { margin: 14px 0 4px; font-size: 13.5px; }
.step ul { margin: 4px 0; padding-left: 20px; } .failure { color: var(--bad); }
.step pre { margin: 4px 0; font: 12px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.bytes { color: var(--quiet); }
.books { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; }
@media print { details { break-inside: avoid; } details:not([open]) { border: 0; } summary { padding: 3px 0; } }
"""


def render_report(runs: Sequence[Run], title: str = "B3 certification script") -> str:
    """The page of some runs."""
    body = "\n".join([_verdict(runs), _overview(runs), *(_run(run) for run in runs)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{OWN_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{body}\n"
        f"<footer>{paragraph('Created by `umdf certify`. Times are UTC.')}</footer></main></body></html>\n"
    )


def _verdict(runs: Sequence[Run]) -> Html:
    failed = [run for run in runs if not run.has_passed]
    kind = "bad" if failed else "good"
    head = "Not all required steps have passed" if failed else "All required steps have passed"
    lines = []
    for run in failed:
        first = run.first_failure
        what = (
            f"first failure {first.id}: {first.failures[0] if first.failures else ''}"
            if first
            else "no step has passed"
        )
        lines.append(f"<p>{escape(f'{run.combination}: {what}')}</p>")
    return Html(f'<div class="verdict {kind}"><p class="head">{head}</p>{"".join(lines)}</div>')


def _overview(runs: Sequence[Run]) -> Html:
    rows = [
        (
            escape(run.combination),
            pill("passed" if run.has_passed else "failed", "good" if run.has_passed else "bad"),
            *(escape(str(run.counts[outcome])) for outcome in Outcome),
            escape(run.mode),
            escape(run.started),
            escape(f"{run.seconds:.1f}"),
        )
        for run in runs
    ]
    columns = ("combination", "outcome", "pass #", "fail #", "n/e #", "mode", "started", "seconds #")
    return table(columns, rows)


def _run(run: Run) -> str:
    notes = "".join(paragraph(note) for note in run.notes)
    parts, section = [f"<section><h2>{escape(run.combination)}</h2>{notes}"], ""
    for step in run.steps:
        if step.section != section:
            section = step.section
            parts.append(f"<h3>{escape(f'{section} {step.section_title}'.strip())}</h3>")
        parts.append(_step(step))
    return "\n".join([*parts, "</section>"])


def _step(step: StepResult) -> str:
    required = "" if step.is_required else ' <span class="note">not required</span>'
    is_open = " open" if step.outcome == Outcome.FAIL else ""
    head = (
        f"<summary><b>{escape(step.id)}</b><span>{escape(step.description)}{required}</span>"
        f"{pill(WORDS[step.outcome], KINDS[step.outcome])}</summary>"
    )
    parts = []
    if step.reason:
        parts.append(f'<p class="{"failure" if step.outcome == Outcome.FAIL else "note"}">{escape(step.reason)}</p>')
    if step.actions:
        parts.append(f"<h4>What was done</h4>{_list(step.actions)}")
    parts += [_book(book) for book in step.books]
    return f'<details{is_open}>{head}<div class="step">{"".join(parts)}</div></details>'


def _book(book: BookResult) -> str:
    evidence = book.evidence
    parts = [f"<h4>{escape(book.book_type)} {pill(WORDS[book.outcome], KINDS[book.outcome])}</h4>"]
    parts.append(_list(f"expected: {text}" for text in book.expected))
    if book.failures:
        parts.append(_list(book.failures, "failure"))
    if evidence.before != evidence.after:
        parts.append(
            f'<div class="books">{_side("Book before", evidence.before)}{_side("after", evidence.after)}</div>'
        )
    elif evidence.after != BookEvidence():
        parts.append(_side("Book, unchanged", evidence.after))
    parts += [_message(message) for message in (*evidence.messages, *evidence.replies)]
    if evidence.left_out:
        parts.append(paragraph(f"{evidence.left_out} more messages between the first and the last"))
    return "".join(parts)


def _side(title: str, book: BookEvidence) -> str:
    rows = [f"BID {row}" for row in book.bids] + [f"ASK {row}" for row in book.asks]
    return f"<div><b>{escape(title)}</b><pre>{escape(chr(10).join(rows) or 'empty')}</pre></div>"


def _message(message: MessageEvidence) -> str:
    data = message.data if len(message.data) <= 2 * SHOWN_BYTES else f"{message.data[: 2 * SHOWN_BYTES]}…"
    where = f"{message.stream} {message.channel or ''} {message.sequence}"
    return f'<pre>{code(where)} {escape(message.text)}\n<span class="bytes">{escape(data)}</span></pre>'


def _list(items: Iterable[str], kind: str = "") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
