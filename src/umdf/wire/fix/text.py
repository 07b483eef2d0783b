"""FIX `tag=value` lines for display: fields separated by `|`, one message per line."""

from __future__ import annotations

from collections.abc import Iterable

from umdf.units import printable

ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|"})


def format_fields(fields: Iterable[tuple[int, str]]) -> str:
    """One message. Bars, backslashes and control characters in values are escaped with a backslash."""
    return "|".join(f"{tag}={printable(value.translate(ESCAPES))}" for tag, value in fields)


def month_year(year: int | None, month: int | None, day: int | None, week: int | None) -> str:
    """FIX MonthYear: YYYYMM, YYYYMMDD or YYYYMMwW."""
    text = f"{year or 0:04}{month or 0:02}"
    if day:
        return f"{text}{day:02}"
    return f"{text}w{week}" if week else text
