"""Maturity dates of futures and options: month letters, and the rule of each asset for the day of the month.

Weekends are no business days, nor is New Year's Day; other holidays are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta

EPOCH = date(1970, 1, 1)
MONTHS = "FGHJKMNQUVXZ"
CALLS, PUTS = "ABCDEFGHIJKL", "MNOPQRSTUVWX"  # the month of an option
WEDNESDAY, FRIDAY, SATURDAY = 2, 4, 5
DayRule = Callable[[int, int], date]


def is_business_day(day: date) -> bool:
    return day.weekday() < SATURDAY and (day.month, day.day) != (1, 1)


def _business_day(day: date, step: int) -> date:
    """The day itself, or the next business day in a direction."""
    while not is_business_day(day):
        day += timedelta(step)
    return day


def first_business_day(year: int, month: int) -> date:
    return _business_day(date(year, month, 1), 1)


def last_business_day(year: int, month: int) -> date:
    first_of_next = date(year + month // 12, month % 12 + 1, 1)
    return _business_day(first_of_next - timedelta(1), -1)


def fifteenth(year: int, month: int) -> date:
    return _business_day(date(year, month, 15), 1)


def wednesday_near_fifteenth(year: int, month: int) -> date:
    middle = date(year, month, 15)
    return middle + timedelta((WEDNESDAY - middle.weekday() + 3) % 7 - 3)


def third_friday(year: int, month: int) -> date:
    first = date(year, month, 1)
    return first + timedelta((FRIDAY - first.weekday()) % 7 + 14)


def last_friday(year: int, month: int) -> date:
    last = date(year + month // 12, month % 12 + 1, 1) - timedelta(1)
    return last - timedelta((last.weekday() - FRIDAY) % 7)


def next_maturities(today: date, months: str, rule: DayRule) -> Iterator[date]:
    """The maturities after a day, in the months of some letters."""
    year, month = today.year, today.month
    while True:
        if MONTHS[month - 1] in months and (day := rule(year, month)) > today:
            yield day
        year, month = year + month // 12, month % 12 + 1


def contract_code(day: date) -> str:
    """Z26: the month letter and the year."""
    return f"{MONTHS[day.month - 1]}{day.year % 100:02}"


def previous_business_day(days: int) -> int:
    """The business day before one, both in days since 1970."""
    return (_business_day(EPOCH + timedelta(days - 1), -1) - EPOCH).days
