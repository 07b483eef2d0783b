"""The schedule of a week: São Paulo's hours, holidays, the weekend, and what a timetable may say."""

from __future__ import annotations

from datetime import date, datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from umdf.errors import ConfigError
from umdf.exchange.live.schedule import DEFAULT_PHASES, DERIVATIVES, EQUITIES, Schedule, Step, Timetable, local_datetime

SAO_PAULO = ZoneInfo("America/Sao_Paulo")


def ns(*local: int) -> int:
    return round(datetime(*local, tzinfo=SAO_PAULO).timestamp()) * 10**9  # type: ignore[misc]


def steps(schedule: Schedule, start_ns: int, end_ns: int) -> list[Step]:
    return list(takewhile(lambda step: step.ts_ns <= end_ns, schedule.steps_after(start_ns)))


def test_a_week_begins_on_sunday_at_noon_and_ends_on_friday_at_ten() -> None:
    week = steps(Schedule(Timetable()), ns(2026, 11, 15, 0, 0), ns(2026, 11, 22, 11, 0))
    assert (week[0].name, week[0].ts_ns) == ("start_week", ns(2026, 11, 15, 12, 0))
    assert (week[-1].name, week[-1].ts_ns) == ("stop_week", ns(2026, 11, 20, 22, 0))
    assert [step.ts_ns for step in week] == sorted(step.ts_ns for step in week)
    names = [step.name for step in week if step.market in ("", EQUITIES)]
    day = ["morning", *DEFAULT_PHASES[EQUITIES], "settlement", "end_of_day"]
    assert names == ["start_week", *day * 5, "stop_week"]


def test_nothing_trades_on_a_holiday() -> None:
    schedule = Schedule(Timetable(holidays=frozenset({date(2026, 11, 20)})))
    friday = schedule.steps_of(date(2026, 11, 20))
    assert [step.name for step in friday] == ["stop_week"]
    assert not schedule.is_business_day(date(2026, 11, 20)) and not schedule.is_business_day(date(2026, 11, 21))
    assert schedule.next_business_day(date(2026, 11, 19)) == date(2026, 11, 23)


def test_derivatives_open_before_equities() -> None:
    day = Schedule(Timetable()).steps_of(date(2026, 11, 16))
    opens = {step.market: local_datetime(step.ts_ns).time().isoformat() for step in day if step.name == "open"}
    assert opens == {DERIVATIVES: "09:00:00", EQUITIES: "10:00:00"}


@pytest.mark.parametrize(
    ("local", "is_down"),
    [((2026, 11, 20, 21, 59), False), ((2026, 11, 20, 22, 0), True), ((2026, 11, 21, 10, 0), True),
     ((2026, 11, 22, 11, 59), True), ((2026, 11, 22, 12, 0), False), ((2026, 11, 18, 3, 0), False)],
)  # fmt: skip
def test_the_platform_is_down_at_the_weekend(local: tuple[int, ...], is_down: bool) -> None:
    assert Schedule(Timetable()).is_down(ns(*local)) == is_down


def test_hours_follow_daylight_saving_time() -> None:
    """In February 2018 clocks went back: ten o'clock is 12:00 UTC before, 13:00 after."""
    schedule = Schedule(Timetable())
    for day, hour in ((date(2018, 2, 16), 12), (date(2018, 2, 19), 13)):
        (opens,) = (s.ts_ns for s in schedule.steps_of(day) if (s.name, s.market) == ("open", EQUITIES))
        assert datetime.fromtimestamp(opens / 1e9, ZoneInfo("UTC")).hour == hour


@pytest.mark.parametrize(
    ("phases", "day", "reason"),
    [
        ({"bonds": {}}, {}, "schedule: unknown market: bonds"),
        ({EQUITIES: {"open": "10:00", "close": "17:00"}}, {}, "schedule.equities: has no pre_open"),
        ({EQUITIES: {"pre_open": "10:00", "open": "09:00", "close": "17:00"}}, {}, "09:00 is not after pre_open"),
        ({EQUITIES: {"pre_open": "ten", "open": "10:00", "close": "17:00"}}, {}, "not a time: ten"),
        ({EQUITIES: {"pre_open": "09:00", "open": "10:00", "close": "23:00"}}, {}, "is not within the day"),
        ({EQUITIES: {"pre_open": "09:00", "open": "10:00", "close": "17:00", "lunch": "12:00"}}, {}, "step: lunch"),
        ({}, {"morning": "20:00"}, "settlement = 18:45 is not after morning"),
    ],
)  # fmt: skip
def test_a_wrong_timetable_is_refused(phases: dict[str, dict[str, str]], day: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        Timetable(phases, day)
