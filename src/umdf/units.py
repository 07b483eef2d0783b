"""Exact conversions for output: decimals as text, days and nanoseconds as dates; text that is safe to print.

Nothing here rounds, and no value of the wire raises an error: a value without a calendar date stays a number.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache

EPOCH = date(1970, 1, 1)
LAST_DAY = (date.max - EPOCH).days
FIRST_DAY = (date.min - EPOCH).days


def decimal_text(mantissa: int, exponent: int) -> str:
    """mantissa · 10^exponent without an exponent, keeping every digit: (123400, -4) → 12.3400."""
    if exponent >= 0:
        return str(mantissa * 10**exponent)
    sign, digits = "-" if mantissa < 0 else "", str(abs(mantissa)).rjust(1 - exponent, "0")
    return f"{sign}{digits[:exponent]}.{digits[exponent:]}"


def fix_decimal(mantissa: int, exponent: int) -> str:
    """In FIX format, without trailing zeros: (123400, -4) → 12.34."""
    return strip_trailing_zeros(decimal_text(mantissa, exponent))


def strip_trailing_zeros(text: str) -> str:
    """12.3400 → 12.34, 12.0000 → 12."""
    return text.rstrip("0").rstrip(".") if "." in text else text


@lru_cache(maxsize=4096)  # a day has few dates
def fix_date(days: int) -> str:
    """Days since 1970-01-01 as YYYYMMDD."""
    if not FIRST_DAY <= days <= LAST_DAY:
        return str(days)
    return (EPOCH + timedelta(days)).strftime("%Y%m%d").rjust(8, "0")


def iso_date(days: int) -> str | int:
    """Days since 1970-01-01 as YYYY-MM-DD."""
    return (EPOCH + timedelta(days)).isoformat() if FIRST_DAY <= days <= LAST_DAY else days


def fix_timestamp(value: int, unit: int) -> str:
    """A time since the epoch, in 10^-unit seconds, as YYYYMMDD-HH:MM:SS[.fraction]."""
    seconds, fraction = divmod(value, 10**unit)
    days, seconds = divmod(seconds, 86400)
    if not FIRST_DAY <= days <= LAST_DAY:
        return str(value)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{fix_date(days)}-{clock}" + (f".{fraction:0{unit}}" if unit else "")


def utc_text(ns: int) -> str:
    """Nanoseconds since 1970 as readable text: 2026-11-13 13:00:00.123456789."""
    text = fix_timestamp(ns, 9)
    return f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[9:]}" if "-" in text[1:] else text


def printable(text: str) -> str:
    """Text of the feed, or a file name, safe for a terminal: control characters are escaped, as \\n, \\x1b or \\u202e.

    Control characters (C0, DEL, C1), line ends, and marks that turn the direction of writing. A byte of a file name
    that is not UTF-8 (Python keeps it as a lone surrogate) is shown as that byte, \\xff.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
