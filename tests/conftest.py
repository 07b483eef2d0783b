"""Sizes: `make test` runs every test reduced, `make soak` (pytest --soak) runs the same tests at full size. And the
one Spark session of the tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Size = TypeVar("Size")
TESTS = Path(__file__).parent

# Examples stay random, so that every run looks somewhere else; a failure prints the line that repeats it. The first
# call of a kernel may compile it, so no example has a deadline.
settings.register_profile(
    "quick", max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("quick"), max_examples=1_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests at full size (make soak)")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with Ctrl-C ignored, and so would be every command that is tried here.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("soak" if config.getoption("--soak") else "quick")
    if not config.getoption("--soak"):
        # An ingest waits for the disk 200 times, and no test pulls the plug. Commands and Spark's workers still sync.
        os.fsync = lambda fd: None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector does not look at it again and again, an eighth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


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


# The groups that take longest, longest first: what is begun last must be short, else one process waits for the other.
LONGEST = (
    "spark",
    "lake-follow",
    "test_upgrade.py",
    "cluster",
    "generated",
    "lake-repeated",
    "lake-damage",
    "test_truth.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`@pytest.mark.full_size`: `make test` has six minutes, and another case of the same test in them. Tests share a
    process with those that share their fixtures: the same xdist group, else the same conftest.py, else the same file.
    """
    for item in items:
        if item.get_closest_marker("full_size") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="only at full size: make soak"))
        if not item.get_closest_marker("xdist_group"):
            own_fixtures = item.path.parent != TESTS and (item.path.parent / "conftest.py").exists()
            item.add_marker(pytest.mark.xdist_group(str(item.path.parent if own_fixtures else item.path)))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    name = marker.args[0] if marker and marker.args else ""
    return next((rank for rank, longest in enumerate(LONGEST) if name.endswith(longest)), len(LONGEST))


@pytest.fixture(scope="session")
def spark_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-logs")


@pytest.fixture(scope="session")
def shared_spark(spark_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A JVM takes seconds to start and longer to warm up, so all tests of the xdist group "spark" share one."""
    from umdf.lake.runtime import session

    with pytest.MonkeyPatch.context() as patch:
        # Workers import functions of the tests by name.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])))
        work = tmp_path_factory.mktemp("spark-work")
        with session.session_scope(cores=2, memory="1g", work=work, logs=spark_logs, quick=True) as own:
            yield own
    assert list(work.iterdir()) == []


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> SparkSession:
    """With the views, settings and data sources of one module."""
    return shared_spark.newSession()
