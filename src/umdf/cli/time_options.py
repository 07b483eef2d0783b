"""Options for times: `--at`, a moment in a capture, by sequence number or by time; and `--date`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from umdf.errors import UsageError

if TYPE_CHECKING:
    from umdf.sync.session import Until

SEQUENCE = re.compile(r"\d+")
TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,9})?)?")
FRACTION = re.compile(r"\.(\d{1,9})")


def parse_at(text: str, day_of_capture_ns: Callable[[], int]) -> Until:
    """A moment: a sequence number, or a sending time (UTC unless it has a zone)."""
    from umdf.sync.session import Until

    if SEQUENCE.fullmatch(text):
        return Until(sequence=int(text))
    return Until(ts_send=parse_time_ns(text, day_of_capture_ns))


def parse_trading_date(text: str | None) -> date | None:
    """The date of `--date`, if there is one."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise UsageError(f"invalid --date: {text}", "use YYYY-MM-DD, for example 2026-11-13") from None


def parse_time_ns(text: str, day_of_capture_ns: Callable[[], int]) -> int:
    """2026-11-13T10:00:00.123456789-03:00 or less precise; a time alone is on the day of the capture."""
    iso_text = text
    if TIME.fullmatch(text):
        day = datetime.fromtimestamp(day_of_capture_ns() // 1_000_000_000, UTC).date()
        iso_text = f"{day}T{text.zfill(5) if text.count(':') == 1 else text.rjust(8, '0')}"
    fraction = FRACTION.search(iso_text)
    try:
        seconds_part = datetime.fromisoformat(FRACTION.sub("", iso_text).replace("Z", "+00:00"))
    except ValueError:
        hint = "use a sequence number or a time, for example 13:05:00 or 2026-11-13T10:05:00-03:00"
        raise UsageError(f"invalid --at: {text}", hint) from None
    seconds_part = seconds_part if seconds_part.tzinfo else seconds_part.replace(tzinfo=UTC)
    return int(seconds_part.timestamp()) * 1_000_000_000 + (int(fraction[1].ljust(9, "0")) if fraction else 0)
