"""The order flow in the course of a day: busy at the open and before the close, quiet at midday and after it."""

from __future__ import annotations

from datetime import datetime

import pytest

from umdf.exchange.live import schedule as s
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import FAST, STREAMS, ChannelSettings
from umdf.exchange.publish.sinks import TeeSink

SECOND = 10**9
MINUTES, RATE = 20, 20
TIMETABLE = s.Timetable({s.EQUITIES: s.DEFAULT_PHASES[s.EQUITIES]})  # derivatives stay closed


def records_from(hour: int, minute: int) -> int:
    """How much happens in the market in some minutes of Monday, beside what the start of the day publishes."""
    channel = ChannelSettings(90, FAST, is_news_channel=True)  # publishes nothing of it
    start = datetime(2026, 11, 16, hour, minute)
    settings = ExchangeSettings((channel,), instruments=100, messages_per_s=RATE, start=start, timetable=TIMETABLE)
    exchange = Exchange(settings, lambda _: dict.fromkeys(STREAMS, TeeSink([])))
    before, end_ns = exchange.records, exchange.now_ns + MINUTES * 60 * SECOND
    while exchange.now_ns < end_ns:
        exchange.advance(exchange.now_ns + 5 * SECOND)
    return exchange.records - before


@pytest.fixture(scope="module")
def midday() -> int:
    return records_from(13, 40)


def test_most_happens_after_the_open_and_before_the_close(midday: int) -> None:
    assert min(records_from(10, 1), records_from(16, 34)) > 1.3 * midday


def test_hardly_anything_happens_after_the_market(midday: int) -> None:
    assert 0 < records_from(17, 31) < 0.3 * midday
