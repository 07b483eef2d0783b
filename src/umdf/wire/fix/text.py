"""FIX `tag=value` lines for people: fields apart by `|`, one message a line."""

from __future__ import annotations

from collections.abc import Iterable

ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|", "\n": "\\n", "\r": "\\r", "\x01": "\\x01", "\0": "\\0"})


def line(fields: Iterable[tuple[int, str]]) -> str:
    """One message. A value that holds a bar, a line end or SOH has it escaped with a backslash."""
    return "|".join(f"{tag}={value.translate(ESCAPES)}" for tag, value in fields)


def month_year(year: int | None, month: int | None, day: int | None, week: int | None) -> str:
    """FIX MonthYear: YYYYMM, YYYYMMDD or YYYYMMwW."""
    text = f"{year or 0:04}{month or 0:02}"
    if day:
        return f"{text}{day:02}"
    return f"{text}w{week}" if week else text
