"""--soak reaches the tests: the fixtures and hypothesis' profile."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings


def test_sizes_and_examples_follow_the_same_switch(soak: bool, sized: Callable[[int, int], int]) -> None:
    assert sized(1, 2) == (2 if soak else 1)
    assert settings.default is not None
    assert settings.default.max_examples == (1_000 if soak else 50)
