"""Since when a replayer serves messages (5.2 items 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from umdf.errors import UsageError, one_of

SAO_PAULO = ZoneInfo("America/Sao_Paulo")
SECOND_NS = 1_000_000_000
SESSION, WEEK, TWO_DAYS = "session", "week", "two-days"


@dataclass(frozen=True)
class Profile:
    """`session`: the Replayer; `week`: the Historical Replayer; `two-days`: that of the certification (D3.4)."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _STARTS:
            raise UsageError(f"unknown retention: {self.name}", f"use {one_of(_STARTS)}")

    def oldest_ns(self, now_ns: int) -> int:
        day = datetime.fromtimestamp(now_ns // SECOND_NS, UTC).astimezone(SAO_PAULO)
        midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
        return int(_STARTS[self.name](midnight).timestamp()) * SECOND_NS


_STARTS: dict[str, Callable[[datetime], datetime]] = {
    SESSION: lambda midnight: midnight,
    TWO_DAYS: lambda midnight: midnight - timedelta(days=1),
    WEEK: lambda midnight: midnight - timedelta(days=(midnight.weekday() + 1) % 7),  # Sunday
}
