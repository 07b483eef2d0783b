"""What an ingest is told: which tables, which channels, how its work is cut, who runs its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from umdf.lake.plan.day_builder import TABLES
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.plan.planner import SPAN_SEQUENCES
from umdf.lake.plan.segments import MulticastGroup
from umdf.lake.runtime.spark_tasks import Progress
from umdf.lake.tasks.survey import SPLIT_BYTES

DEFAULT_TABLES = frozenset(TABLES) - {"mbp_10"}  # computed on demand from `mbo` and `book_state`

ROWS_PER_TASK = 2_000_000  # rows of `mbo` per books task


class TaskRunner(Protocol):
    """Runs tasks: umdf.lake.runtime.spark_tasks.run_tasks with its session, or umdf.lake.runtime.local_runner."""

    parallel: int

    def __call__(
        self, tasks: Sequence[Any], function: str, *, description: str = ..., progress: Progress | None = ...
    ) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class IngestSettings:
    tables: frozenset[str] = DEFAULT_TABLES
    # Multicast groups as named by the channel configuration.
    channel_config: Mapping[MulticastGroup, Mapping[str, Any]] = field(default_factory=dict)
    span_sequences: int = SPAN_SEQUENCES
    split_bytes: int = SPLIT_BYTES
    rows_per_task: int = ROWS_PER_TASK
    follow: FollowSettings | None = None  # more files will come: process only what is final
    # `channel_config` replaces the lake's, and all days are rebuilt.
    is_config_replaced: bool = False


StepProgress = Callable[[str, int], Progress | None]  # called with each step and its number of tasks


def no_progress(step: str, tasks: int) -> Progress | None:
    return None
