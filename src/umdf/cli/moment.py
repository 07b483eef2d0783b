"""Times that commands are given: `--at`, a moment in a capture, by sequence number or by time; `--date`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import numpy as np

from umdf.errors import UsageError

if TYPE_CHECKING:
    from umdf.sync.session import Until

NUMBER = re.compile(r"\d+")
TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,9})?)?")
FRACTION = re.compile(r"\.(\d{1,9})")


def moment(text: str, day_of_capture_ns: Callable[[], int]) -> Until:
    """Which units count at this moment: sequence numbers up to it, or what was sent by then (UTC, unless it says)."""
    if NUMBER.fullmatch(text):
        last = int(text)
        return lambda units: units.sequence <= last
    until_ns = time_ns(text, day_of_capture_ns)
    return lambda units: np.asarray(units.ts_send) <= until_ns


def trading_date(text: str | None) -> date | None:
    """A `--date`, if one is given."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise UsageError(f"--date {text}: no date", "say it as 2026-11-13") from None


def time_ns(text: str, day_of_capture_ns: Callable[[], int]) -> int:
    """2026-11-13T10:00:00.123456789-03:00, with less where less will do; a time alone is one of the capture's day."""
    said = text
    if TIME.fullmatch(text):
        day = datetime.fromtimestamp(day_of_capture_ns() // 1_000_000_000, UTC).date()
        said = f"{day}T{text.zfill(5) if text.count(':') == 1 else text.rjust(8, '0')}"
    fraction = FRACTION.search(said)
    try:
        whole = datetime.fromisoformat(FRACTION.sub("", said).replace("Z", "+00:00"))
    except ValueError:
        hint = "say a sequence number, or a time such as 13:05:00 or 2026-11-13T10:05:00-03:00"
        raise UsageError(f"--at {text}: neither a number nor a time", hint) from None
    whole = whole if whole.tzinfo else whole.replace(tzinfo=UTC)
    return int(whole.timestamp()) * 1_000_000_000 + (int(fraction[1].ljust(9, "0")) if fraction else 0)
