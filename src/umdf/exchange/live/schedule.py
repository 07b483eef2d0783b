"""When a week's steps happen: São Paulo's hours, business days and holidays, from Sunday 12:00 to Friday 22:00.

    for step in Schedule(timetable).steps_after(now_ns): ...

A step is a name and, where it concerns one, a market. What a step does is the table of `exchange`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as local_time
from zoneinfo import ZoneInfo

from umdf.errors import ConfigError, one_of
from umdf.market.calendar import ZONE

EPOCH = date(1970, 1, 1)
FRIDAY, SUNDAY = 4, 6
START_WEEK, STOP_WEEK = "start_week", "stop_week"
EQUITIES, DERIVATIVES = "equities", "derivatives"
MARKETS = (EQUITIES, DERIVATIVES)
# The steps of a business day, in the order in which they may follow each other. Those of AFTER_MARKET are one block.
PHASE_STEPS = (
    "pre_open",
    "open",
    "closing_call",
    "pre_close",
    "close",
    "after_market_pre_open",
    "after_market_open",
    "after_market_close",
)
REQUIRED_STEPS = ("pre_open", "open", "close")
DAY_STEPS = ("morning", "settlement", "end_of_day")  # of all markets
DEFAULT_DAY = {"morning": "07:00", "settlement": "18:45", "end_of_day": "19:30"}
DEFAULT_PHASES: Mapping[str, Mapping[str, str]] = {
    EQUITIES: {
        "pre_open": "09:45",
        "open": "10:00",
        "closing_call": "16:55",
        "pre_close": "17:00",
        "close": "17:05",
        "after_market_pre_open": "17:25",
        "after_market_open": "17:30",
        "after_market_close": "18:00",
    },
    DERIVATIVES: {"pre_open": "08:55", "open": "09:00", "pre_close": "18:25", "close": "18:30"},
}
WEEK_START, WEEK_STOP = local_time(12), local_time(22)  # on Sunday, on Friday


@dataclass(frozen=True)
class Step:
    ts_ns: int
    name: str
    market: str = ""  # one of MARKETS, or all


@dataclass(frozen=True)
class Timetable:
    """Local times by name, as `hh:mm` or `hh:mm:ss`."""

    phases: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: DEFAULT_PHASES)  # by market
    day: Mapping[str, str] = field(default_factory=lambda: DEFAULT_DAY)
    holidays: frozenset[date] = frozenset()

    def __post_init__(self) -> None:
        for market, steps in self.phases.items():
            if market not in MARKETS:
                raise ConfigError(f"schedule: unknown market: {market}", f"use {one_of(MARKETS)}")
            for name in (*REQUIRED_STEPS, *(PHASE_STEPS[5:] if PHASE_STEPS[5] in steps else ())):
                if name not in steps:
                    raise ConfigError(f"schedule.{market}: has no {name}", f"set {name}, or leave the whole table out")
            _require_order(f"schedule.{market}", steps, PHASE_STEPS)
        day = {**DEFAULT_DAY, **self.day}
        object.__setattr__(self, "day", day)
        _require_order("schedule", day, DAY_STEPS)
        first, last = (time_of(f"schedule.{name}", day[name]) for name in ("morning", "end_of_day"))
        for market, steps in self.phases.items():
            for name, text in steps.items():
                if not first < time_of(f"schedule.{market}.{name}", text) < last:
                    hint = f"morning is {day['morning']}, end_of_day is {day['end_of_day']}"
                    raise ConfigError(f"schedule.{market}.{name} = {text} is not within the day", hint)


def _require_order(table: str, steps: Mapping[str, str], order: tuple[str, ...]) -> None:
    before = ""
    for name in steps:
        if name not in order:
            raise ConfigError(f"{table}: unknown step: {name}", f"use {one_of(order)}")
    for name in (name for name in order if name in steps):
        if before and time_of(f"{table}.{name}", steps[name]) <= time_of(f"{table}.{before}", steps[before]):
            raise ConfigError(f"{table}.{name} = {steps[name]} is not after {before} = {steps[before]}", "change one")
        before = name


def time_of(key: str, text: str) -> local_time:
    try:
        return local_time.fromisoformat(text)
    except (ValueError, TypeError):
        raise ConfigError(f"{key}: not a time: {text}", 'write "10:00" or "10:00:30"') from None


def local_ns(day: date, at: local_time) -> int:
    """A local time as nanoseconds UTC."""
    return round(datetime.combine(day, at, ZoneInfo(ZONE)).timestamp()) * 1_000_000_000 + at.microsecond * 1_000


def local_datetime(ts_ns: int) -> datetime:
    return datetime.fromtimestamp(ts_ns / 1e9, ZoneInfo(ZONE))


class Schedule:
    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    def is_business_day(self, day: date) -> bool:
        return day.weekday() <= FRIDAY and day not in self._timetable.holidays

    def steps_of(self, day: date) -> list[Step]:
        """The steps of a calendar day, in order."""
        timetable, steps = self._timetable, []
        if day.weekday() == SUNDAY:
            steps.append(Step(local_ns(day, WEEK_START), START_WEEK))
        if self.is_business_day(day):
            for name, text in timetable.day.items():
                steps.append(Step(local_ns(day, time_of(name, text)), name))
            for market, times in timetable.phases.items():
                steps += [Step(local_ns(day, time_of(name, text)), name, market) for name, text in times.items()]
        if day.weekday() == FRIDAY:
            steps.append(Step(local_ns(day, WEEK_STOP), STOP_WEEK))
        return sorted(steps, key=lambda step: step.ts_ns)

    def steps_after(self, ts_ns: int) -> Iterator[Step]:
        """All steps later than a time, without end."""
        day = local_datetime(ts_ns).date()
        while True:
            yield from (step for step in self.steps_of(day) if step.ts_ns > ts_ns)
            day += timedelta(1)

    def is_down(self, ts_ns: int) -> bool:
        """Whether the platform is down: from Friday 22:00 to Sunday 12:00."""
        now = local_datetime(ts_ns)
        after_stop = now.weekday() == FRIDAY and now.time() >= WEEK_STOP
        return after_stop or now.weekday() == 5 or (now.weekday() == SUNDAY and now.time() < WEEK_START)

    def next_business_day(self, day: date) -> date:
        day += timedelta(1)
        while not self.is_business_day(day):
            day += timedelta(1)
        return day


def days_since_1970(day: date) -> int:
    return (day - EPOCH).days
