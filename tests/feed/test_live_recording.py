"""The recording of a live run, ingested at once and in parts as a stream, equals the live client's own rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from feed.live_exchange import CheckedClient, LiveMarket
from lake.captures import ALL, hashes, ingest, rows
from lake.followed_days import cut, following

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.network.faults import Faults, Outage
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings, Members
from umdf.feed.subscriptions import LiveRow
from umdf.transport.recording import closed_files

FAMILIES = ("mbo", "trades", "statistics", "status")
TABLES = ALL
LONG_TEXT = "A sessão de negociação será estendida. " * 80  # Binary sends it in four parts (9.2.4)
CHANNELS = (ChannelSettings(72, SBE, members=Members(("CS",))), ChannelSettings(73, FAST, members=Members(("ETF",))))


def live_key(row: LiveRow, names: tuple[str, ...]) -> tuple[Any, ...]:
    return row.channel.number, row.sequence, row.instrument_id, *(row.values[name] for name in names)


def lake_key(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return row["channel_id"], row["sequence"], row["instrument_id"], *(_value(row[name]) for name in names)


def _value(value: Any) -> Any:
    """As the client has it: prices in units of 1e-9, dates as days since 1970."""
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return int(value.scaleb(9)) if isinstance(value, Decimal) else value


def test_batch_and_stream_of_a_recording_equal_the_live_rows_and_the_exchange(
    tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    # One line is dead for a time, so that the recording is of two lines with faults, but nothing is lost.
    market = LiveMarket(CHANNELS, Faults(outages=(Outage("incremental", "A", 31, 32),)))
    live_rows: dict[str, list[LiveRow]] = {family: [] for family in FAMILIES}
    news: list[LiveRow] = []
    with CheckedClient(market, record=tmp_path / "recording") as client:
        for family, found in live_rows.items():
            client.live.subscribe(schema=family, callback=found.append)
        client.live.subscribe(schema="news", callback=news.append)
        client.run(30, 200_000_000)
        market.exchange.publish_news("Aviso", LONG_TEXT)
        client.run(sized(3, 120))
        client.catch_up()
        client.assert_equal_to_the_exchange()
        members = [client._members(feed) for feed in client.feeds]
    whole = [(row.channel.protocol, row.values["text"]) for row in news if row.values["is_complete"]]
    assert sorted(each for each in whole if each[1] == LONG_TEXT) == [("fast", LONG_TEXT), ("sbe", LONG_TEXT)]
    assert all(row.values["is_complete"] for row in news)
    files, batch, streamed = closed_files(tmp_path / "recording"), tmp_path / "batch", tmp_path / "streamed"
    ingest(batch, files, tables=TABLES)
    for _ in following(streamed, cut(files, 3), tables=TABLES):
        pass
    in_batch, in_stream = hashes(batch), hashes(streamed)
    for name in TABLES:
        assert in_batch[name] == in_stream[name], (name, rows(batch, name)[:3], rows(streamed, name)[:3])
    for family, found in live_rows.items():
        in_lake = rows(batch, family)
        # A lake's flags also say what is known later: of trust, and of the clock of the recording.
        names = tuple(name for name in found[0].values if name in in_lake[0] and name[:3] not in ("ts_", "fla"))
        assert len(names) > 5
        differing = Counter(live_key(row, names) for row in found)
        differing.subtract(Counter(lake_key(row, names) for row in in_lake))
        assert not +differing and not -differing, (family, (+differing).most_common(2), (-differing).most_common(2))
    # Trades are those of the exchange.
    actions = Counter(row["action"] for row in rows(batch, "trades"))
    listing = market.exchange.listing
    chosen = np.isin(listing.security_id, list(set.union(*members)))
    assert actions["A"] - actions["C"] == int(market.exchange.market.instruments[chosen, k.I_TRADES].sum()) > 20
