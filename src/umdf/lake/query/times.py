"""Parses time ranges: the values of `start`, `end` and `at`.

Invariant: a date is a trading date (in São Paulo, as the partitions), anything finer is a time, and a time without an
offset is UTC. `start` is inclusive, `end` exclusive; if they are equal, the range is empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Integral
from typing import Any
from zoneinfo import ZoneInfo

from umdf.errors import UsageError
from umdf.market.calendar import ZONE, local_date
from umdf.units import EPOCH, utc_text

DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
FRACTION = re.compile(r"\.(\d+)")
HINT = (
    "use a date such as 2026-11-13, a time such as 2026-11-13T10:05:00-03:00 (UTC if it has no offset), "
    "or nanoseconds since 1970"
)
MAX_DATES_LISTED = 12
NS_DIGITS = 9


def parse_time(value: Any, argument: str) -> date | int:
    """A trading date, or a time in nanoseconds UTC."""
    try:
        found = _parse_value(value)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise UsageError(f"invalid {argument}: {value!r}", HINT)
    return found


def _parse_value(value: Any) -> date | int | None:
    if isinstance(value, str):
        return date.fromisoformat(value) if DATE.fullmatch(value) else _parse_instant(value)
    if isinstance(value, datetime):  # also pandas' Timestamp, which adds nanoseconds
        whole = value if value.tzinfo else value.replace(tzinfo=UTC)
        return None if value != value else _datetime_ns(whole) + int(getattr(value, "nanosecond", 0))
    if isinstance(value, date):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if type(value).__name__ == "datetime64":
        return _parse_value(str(value)) if str(value) != "NaT" else None
    return None


def _parse_instant(text: str) -> int | None:
    fraction = FRACTION.search(text)
    if fraction and len(fraction[1]) > NS_DIGITS:
        return None
    whole = datetime.fromisoformat(FRACTION.sub("", text).replace("Z", "+00:00"))
    whole = whole if whole.tzinfo else whole.replace(tzinfo=UTC)
    return _datetime_ns(whole) + (int(fraction[1].ljust(NS_DIGITS, "0")) if fraction else 0)


def _datetime_ns(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000


def to_trading_date(ns: int) -> date:
    """The date of a time in São Paulo."""
    return EPOCH + timedelta(days=local_date(ns))


def midnight_ns(day: date) -> int:
    """When a date starts in São Paulo."""
    return _datetime_ns(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)))


@dataclass(frozen=True)
class TimeRange:
    """Parsed `start` and `end`; None: no bound."""

    start: date | int | None = None
    end: date | int | None = None

    @classmethod
    def parse(cls, start: Any, end: Any) -> TimeRange:
        bounds = [
            None if value is None else parse_time(value, name) for name, value in (("start", start), ("end", end))
        ]
        span = cls(*bounds)
        if span.start is not None and span.end is not None and _bound_ns(span.start) > _bound_ns(span.end):
            hint = "end is exclusive, for one day use the next date"
            raise UsageError(f"start {_format_bound(span.start)} is after end {_format_bound(span.end)}", hint)
        return span

    @property
    def is_empty(self) -> bool:
        """Whether `start` equals `end`."""
        return self.start is not None and self.end is not None and _bound_ns(self.start) == _bound_ns(self.end)

    @property
    def start_ns(self) -> int | None:
        return None if isinstance(self.start, date) else self.start

    @property
    def end_ns(self) -> int | None:
        return None if isinstance(self.end, date) else self.end

    @property
    def has_times(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    def includes_date(self, day: date, margin_days: int = 0) -> bool:
        """Whether rows of a trading date can be in the range. `margin_days`: a row may arrive after midnight."""
        margin = timedelta(days=margin_days)
        if self.is_empty:
            return False
        if isinstance(self.start, date):
            after = day >= self.start
        else:
            after = self.start is None or day >= to_trading_date(self.start) - margin
        if isinstance(self.end, date):
            return after and day < self.end
        return after and (self.end is None or day <= to_trading_date(self.end - 1) + margin)

    def __str__(self) -> str:
        words = [f"{name} {_format_bound(bound)}" for name, bound in (("from", self.start), ("to", self.end)) if bound]
        return " ".join(words) or "on any date"


def _bound_ns(bound: date | int) -> int:
    return midnight_ns(bound) if isinstance(bound, date) else bound


def _format_bound(bound: date | int) -> str:
    return str(bound) if isinstance(bound, date) else utc_text(bound)


def format_dates(dates: list[date]) -> str:
    if len(dates) <= MAX_DATES_LISTED:
        return ", ".join(map(str, dates))
    return f"{len(dates)} dates from {dates[0]} to {dates[-1]}, the last ones {', '.join(map(str, dates[-3:]))}"
