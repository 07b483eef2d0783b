"""Sizes: `make test` runs every test reduced, `make soak` (pytest --soak) runs the same tests at full size."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

Size = TypeVar("Size")

# Examples stay random, so that every run looks somewhere else; a failure prints the line that repeats it. The first
# call of a kernel may compile it, so no example has a deadline.
settings.register_profile(
    "quick", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("quick"), max_examples=1_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests at full size (make soak)")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with Ctrl-C ignored, and so would be every command that is tried here.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("soak" if config.getoption("--soak") else "quick")


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether this is the full-size run."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture(scope="session")
def sized(soak: bool) -> Callable[[Size, Size], Size]:
    """`sized(1_000, 1_000_000)`: the first in `make test`, the second in `make soak`."""

    def choose(small: Size, large: Size) -> Size:
        return large if soak else small

    return choose


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`@pytest.mark.full_size`: `make test` has ten minutes, and another case of the same test in them."""
    if not config.getoption("--soak"):
        for item in items:
            if item.get_closest_marker("full_size"):
                item.add_marker(pytest.mark.skip(reason="only at full size: make soak"))
