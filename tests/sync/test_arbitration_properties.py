"""The kernel against a slow reference of its rules, on random streams of two lines with every kind of fault."""

from __future__ import annotations

from random import Random

import pytest
from sync.arbitration_streams import Outcome, make_stream, run_kernel, run_reference, settings_of

SEEDS = [*range(20), *(pytest.param(seed, marks=pytest.mark.full_size) for seed in range(20, 60))]


@pytest.mark.parametrize("has_versions", [True, False], ids=["binary", "fast"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_follows_the_rules_however_its_input_is_divided(seed: int, has_versions: bool):
    stream, random = make_stream(seed, has_versions), Random(seed)
    settings = settings_of(random, has_versions)
    expected = run_reference(stream.units, settings)
    times = run_kernel(stream.units, 1, settings).release_times
    assert times == sorted(times)
    for size in (1, 7, 100, len(stream.units)):
        found = run_kernel(stream.units, size, settings)
        assert_equal(found, expected)
        assert found.release_times == times
    save_at = random.randrange(len(stream.units))
    assert_equal(run_kernel(stream.units, 7, settings, save_at), expected)


def assert_equal(found: Outcome, expected: Outcome) -> None:
    for at, (ours, theirs) in enumerate(zip(found.events, expected.events, strict=False)):
        assert ours == theirs, (at, expected.events[max(0, at - 5) : at + 3], found.events[max(0, at - 5) : at + 3])
    assert len(found.events) == len(expected.events)
    assert found.quarantined == expected.quarantined
    assert found.counts == expected.counts


@pytest.mark.parametrize("has_versions", [True, False], ids=["binary", "fast"])
@pytest.mark.parametrize("seed", range(1_000, 1_150))
def test_nothing_wrong_is_delivered(seed: int, has_versions: bool):
    stream = make_stream(seed, has_versions)
    outcome = run_kernel(stream.units, len(stream.units), {"has_versions": has_versions})
    names = {version: name for name, version in stream.versions.items()}
    epoch, last, gaps, seen = None, 0, set[int](), set[tuple[int, int]]()
    for kind, *values in outcome.events:
        if kind == "step":
            step, epoch_now, first, final, _ = values
            if step == "EPOCH":
                epoch, last, gaps = epoch_now, first - 1, set()
            elif step == "GAP":
                gaps |= set(range(first, final + 1))
                last = max(last, final)
            continue
        unit_epoch, number, _, _, is_late, content = values
        name, true_number, *_ = content.decode().split(":")
        assert unit_epoch == epoch
        assert number == int(true_number) or (number, content) in stream.misnumbered
        if has_versions:
            assert names[unit_epoch] == name
        if is_late:
            assert number in gaps
        else:
            assert number == last + 1  # in order; everything else was reported
            assert (unit_epoch, number) not in seen
            seen.add((unit_epoch, number))
            last = number
