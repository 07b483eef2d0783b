"""The days before: mornings, a few minutes of trading and their ends, so that replayers have a history (D3)."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from umdf.certify.observation import ASK, BID
from umdf.certify.profile import DAY_START, MBO_CHANNEL
from umdf.certify.stage import MAIN, SECOND_NS, Stage
from umdf.exchange.live.schedule import local_datetime, local_ns

STEP_NS = 3_600 * SECOND_NS  # while nothing trades
TRADING_STARTS, TRADING_ENDS, DAY_ENDS = time(10, 0, 15), time(10, 0, 30), time(20)


def play_week(stage: Stage) -> None:
    """Play every business day from the exchange's start to the day of the script."""
    day = local_datetime(stage.exchange.now_ns).date()
    while day < DAY_START.date():
        if day.weekday() < 5:
            _play_day(stage, day)
        day += timedelta(days=1)
    _play_until(stage, DAY_START)


def _play_day(stage: Stage, day: date) -> None:
    _play_until(stage, datetime.combine(day, TRADING_STARTS))
    first = stage.last_sequence(MBO_CHANNEL) + 1
    for side, ticks in ((BID, -2), (ASK, 2), (BID, 0), (ASK, 0)):  # the last two trade
        stage.enter("", MAIN, side, stage.price(ticks), 100)
        stage.advance(1)
    _play_until(stage, datetime.combine(day, TRADING_ENDS))
    stage.days[(DAY_START.date() - day).days] = first, stage.last_sequence(MBO_CHANNEL)
    _play_until(stage, datetime.combine(day, DAY_ENDS))


def _play_until(stage: Stage, local: datetime) -> None:
    exchange, end_ns = stage.exchange, local_ns(local.date(), local.time())
    while exchange.now_ns < end_ns:
        exchange.advance(min(end_ns, exchange.now_ns + STEP_NS))
