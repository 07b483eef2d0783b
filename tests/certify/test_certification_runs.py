"""The whole script on our exchange and our client: all required steps pass, in each of the eight combinations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from umdf.certify.profile import COMBINATIONS, Combination
from umdf.certify.report import render_report
from umdf.certify.results import Outcome, Run
from umdf.certify.runner import certify
from umdf.certify.script import STEPS

IN_SHORT_RUN = {Combination("fast", "position"), Combination("sbe")}


@pytest.mark.parametrize(
    "combination",
    [
        pytest.param(each, marks=() if each in IN_SHORT_RUN else pytest.mark.full_size, id=str(each))
        for each in COMBINATIONS
    ],
)
def test_every_step_that_is_available_passes(combination: Combination, tmp_path: Path) -> None:
    run = certify(combination, tmp_path)
    assert {step.id: step.failures for step in run.steps if step.outcome == Outcome.FAIL} == {}
    assert run.has_passed and [step.id for step in run.steps] == [step.id for step in STEPS]
    not_executed = {step.section for step in run.steps if step.outcome == Outcome.NOT_EXECUTED}
    expected = {"B3", "B7"} if combination.segment == "derivatives" else set[str]()
    expected |= {"B7", "D2", "D3"} if combination.protocol == "sbe" else set()
    assert not_executed == expected
    check_evidence(run)
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run
    check_report(run)


def check_evidence(run: Run) -> None:
    """Every step shows what was received, and the books of those that change one."""
    for step in run.steps:
        for book in step.books if step.outcome == Outcome.PASS else ():
            seen = [*book.evidence.messages, *book.evidence.replies]
            is_silent = any(text.startswith("no update") for text in book.expected)
            assert is_silent or seen, step.id
            assert all(message.text and bytes.fromhex(message.data) for message in seen), step.id
    (new_bid,) = (step for step in run.steps if step.id == "B1.2")
    evidence = new_bid.books[0].evidence
    assert len(evidence.before.bids) == 5 and len(evidence.after.bids) == 6
    assert evidence.after.bids[:5] == evidence.before.bids


def check_report(run: Run) -> None:
    page = render_report([run])
    assert all(f"<b>{step.id}</b>" in page for step in run.steps)
    assert "All required steps have passed" in page and "http" not in page.replace("http-equiv", "")
