"""The exchange's calendar: which date it is in São Paulo.

Invariant: local dates come from the time zone's own transitions (daylight saving ended in 2019, and a law can bring
it back), never from a fixed offset and never from a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL, NULL_I32

ZONE = "America/Sao_Paulo"
DAY_NS = 86_400 * 10**9
_WEEK_S = 7 * 86_400  # no two transitions since 1990 are closer, so weekly steps find them all
_FIRST_S = int(datetime(1990, 1, 1, tzinfo=UTC).timestamp())
_LAST_S = int(datetime(2060, 1, 1, tzinfo=UTC).timestamp())


@cache
def transitions() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When the offset from UTC changes (ns), and the offsets (ns): one more, the first is before every change."""
    zone = ZoneInfo(ZONE)

    def offset_s(at_s: int) -> int:
        offset = datetime.fromtimestamp(at_s, zone).utcoffset()
        assert offset is not None
        return round(offset.total_seconds())

    when, offsets = [], [offset_s(_FIRST_S)]
    for end_s in range(_FIRST_S + _WEEK_S, _LAST_S, _WEEK_S):
        after = offset_s(end_s)
        if after == offsets[-1]:
            continue
        low, high = end_s - _WEEK_S, end_s
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if offset_s(middle) == after else (middle, high)
        when.append(high)
        offsets.append(after)
    return np.array(when, np.int64) * 10**9, np.array(offsets, np.int64) * 10**9


def local_dates(ts_ns: NDArray[np.int64]) -> NDArray[np.int32]:
    """The date in São Paulo of times in UTC, as days since 1970; NULL where there is no time."""
    if not len(ts_ns):
        return np.empty(0, np.int32)
    when, offsets = transitions()
    absent = ts_ns == NULL
    known = ts_ns if not absent.any() else np.where(absent, 0, ts_ns)
    first, last = np.searchsorted(when, [known.min(), known.max()], side="right").tolist()
    if first == last:  # nearly always: no transition lies between them
        offset: NDArray[np.int64] = offsets[first : first + 1]
    else:
        offset = offsets[np.searchsorted(when, known, side="right")]
    # Floored before the offset is added: a damaged time at the end of the range must not wrap.
    seconds = known // 10**9 + offset // 10**9
    days = (seconds // 86_400).astype(np.int32)
    days[absent] = NULL_I32
    return days


def are_all_on_date(ts_ns: NDArray[np.int64], date: int) -> bool:
    """Whether all times are on one date. Dates grow with time, so the first and the last suffice."""
    return not len(ts_ns) or bool((local_dates(np.array([ts_ns.min(), ts_ns.max()])) == date).all())


def local_date(ts_ns: int) -> int:
    """As `local_dates`, of one time."""
    return int(local_dates(np.array([ts_ns], np.int64))[0])
