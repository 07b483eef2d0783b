"""Results: JSON in both directions, what makes a run pass, and a report that escapes what the feed says."""

from __future__ import annotations

import json

from umdf.certify.report import render_report
from umdf.certify.results import (
    BookEvidence,
    BookResult,
    Evidence,
    MessageEvidence,
    Outcome,
    Run,
    StepResult,
)


def run_of(*steps: StepResult) -> Run:
    return Run(
        "Binary version 16, equities", "sbe", "priority", "equities", "test", "2026-11-19T10:00:00+00:00", 1.5, steps
    )


def step(outcome: Outcome, *, is_required: bool = True, failures: tuple[str, ...] = ()) -> StepResult:
    message = MessageEvidence(72, "incremental", 7, "35=B|148=<script>alert(1)</script>", "00ff")
    evidence = Evidence((message,), 3, BookEvidence(("100 at 32.45",)), BookEvidence(), (message,))
    book = BookResult("MBO", outcome, ("35=B",), failures, evidence)
    return StepResult("C1", "News <b>", is_required, outcome, ("the exchange sends News",), (book,), "", "C1", "News")


def test_a_run_is_the_same_after_json() -> None:
    run = run_of(step(Outcome.PASS), step(Outcome.FAIL, failures=("expected 35=B; nothing came",)))
    values = json.loads(json.dumps(run.to_json()))
    assert Run.from_json(values) == run
    assert values["counts"] == {"pass": 1, "fail": 1, "n/e": 0} and values["has_passed"] is False


def test_a_run_passes_if_all_required_steps_do() -> None:
    passed, failed, skipped = step(Outcome.PASS), step(Outcome.FAIL), step(Outcome.NOT_EXECUTED)
    assert run_of(passed).has_passed and run_of(passed, skipped).has_passed
    assert run_of(passed, step(Outcome.FAIL, is_required=False)).has_passed
    assert not run_of(passed, failed).has_passed
    assert not run_of(skipped).has_passed and not run_of().has_passed, "nothing was shown"
    assert run_of(passed, failed).first_failure == failed


def test_the_report_escapes_the_feed_and_names_the_first_failure() -> None:
    page = render_report([run_of(step(Outcome.FAIL, failures=("expected 35=B; got <i>",)))])
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "News &lt;b&gt;" in page
    assert (
        "Not all required steps have passed" in page and "first failure C1: MBO: expected 35=B; got &lt;i&gt;" in page
    )
    assert "<details open>" in page and "3 more messages" in page
    assert "<details>" in render_report([run_of(step(Outcome.PASS))])
