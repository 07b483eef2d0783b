"""Channels: settings that cannot be, and the journal as the members of a channel see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import FAST, MBP, SBE, TOB, ChannelSettings, Members
from umdf.exchange.publish.member_filter import MemberFilter
from umdf.exchange.publish.news import NewsItem

LISTING = generate_listing(BulkSettings(1_000, 20), np.random.default_rng(1))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"protocol": "itch"}, "channel 72: unknown protocol: itch"),
        ({"generation": "next"}, "channel 72: unknown generation: next"),
        ({"book_type": "LEVEL3"}, "channel 72: unknown book type: LEVEL3"),
        ({"lines": "B"}, "channel 72: unknown lines: B"),
        ({"protocol": SBE, "book_type": TOB}, "channel 72: Binary has no TOB books"),
        ({"depth": 5}, "channel 72: MBO of depth 5"),
        ({"protocol": FAST, "book_type": MBP, "depth": -1}, "channel 72: MBP of depth -1"),
        ({"heartbeat_ms": -1}, "channel 72: heartbeat of -1 ms"),
        ({"channel": 0}, "channel out of range: 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ChannelSettings(**{"channel": 72, **settings})


def test_defaults_are_those_of_the_protocol() -> None:
    assert ChannelSettings(72, FAST, book_type=MBP).depth == 10
    assert [ChannelSettings(72, protocol).heartbeat_ns // 10**9 for protocol in (SBE, FAST)] == [1, 10]
    assert ChannelSettings(72, seq_versions={"incremental": 5}).seq_versions["incremental"] == 5


ENGINE_NEWS = NewsItem("engine", "")


def journal(*rows: dict[str, int]) -> Any:
    records = np.full((len(rows), k.RECORD_COLUMNS), k.NULL, np.int64)
    records[:, k.FLAGS] = 0
    for record, columns in zip(records, rows, strict=True):
        for name, value in columns.items():
            record[getattr(k, name.upper())] = value
    return records


def member_records(records: Any, news: Any = (ENGINE_NEWS,), **settings: Any) -> Any:
    return MemberFilter(ChannelSettings(72, **settings), LISTING, news).of(records).records


def test_a_channel_gets_its_members_and_what_concerns_all() -> None:
    futures = Members(types=("FUT",))
    member, other = (int(np.flatnonzero(futures.of(LISTING) == wanted)[0]) for wanted in (True, False))
    group, other_group = int(LISTING.group[member]), int(LISTING.group[other])
    records = journal(
        {"kind": k.ADD, "instrument": member, "flags": k.LAST},
        {"kind": k.ADD, "instrument": other, "flags": k.LAST},
        {"kind": k.GROUP_PHASE, "id": group, "flags": k.LAST},
        {"kind": k.GROUP_PHASE, "id": other_group, "flags": k.LAST},
        {"kind": k.NEWS, "id": 0, "flags": k.LAST},
    )
    kept = member_records(records, members=futures)
    assert kept[:, k.KIND].tolist() == [k.ADD, k.GROUP_PHASE, k.NEWS]
    assert kept[:2, k.INSTRUMENT].tolist() == [member, k.NULL] and kept[1, k.ID] == group


def test_an_event_ends_with_the_last_record_that_a_channel_gets() -> None:
    """A strategy of another channel trades with its legs: the end is marked on a record of the other channel."""
    futures = Members(types=("FUT",))
    member, other = (int(np.flatnonzero(futures.of(LISTING) == wanted)[0]) for wanted in (True, False))
    records = journal(
        {"kind": k.TRADE, "instrument": other},
        {"kind": k.TRADE, "instrument": member},
        {"kind": k.EXECUTION, "instrument": other, "flags": k.LAST},
        {"kind": k.ADD, "instrument": other, "flags": k.LAST},
        {"kind": k.ADD, "instrument": member},  # the event goes on in the next batch
    )
    kept = member_records(records, members=futures)
    assert kept[:, k.FLAGS].tolist() == [k.LAST, 0]
    assert records[1, k.FLAGS] == 0, "the journal is shared with other channels"


def test_members_fit_every_list() -> None:
    symbol = LISTING.symbols[0]
    kind = LISTING.security_types[0]
    assert Members(symbols=(symbol,)).of(LISTING).sum() == 1
    assert Members(symbols=(symbol,), types=(kind,)).of(LISTING).sum() == 1
    assert Members(symbols=(symbol,), types=("CS" if kind != "CS" else "FUT",)).of(LISTING).sum() == 0
    assert Members().of(LISTING).all()


def test_the_news_channel_gets_only_the_news_that_name_it() -> None:
    news = (ENGINE_NEWS, NewsItem("global", "", channels=(72,)), NewsItem("other", "", channels=(73,)))
    records = journal({"kind": k.ADD, "instrument": 0}, *({"kind": k.NEWS, "id": number} for number in range(3)))
    kept = member_records(records, news, is_news_channel=True)
    assert kept[:, [k.KIND, k.ID]].tolist() == [[k.NEWS, 1]]
    assert member_records(records, news)[:, k.ID].tolist() == [k.NULL, 0, 1]


def test_long_news_are_cut_between_characters() -> None:
    item = NewsItem("", "é" * 1_700)
    assert "".join(item.parts) == item.text and [len(part.encode()) for part in item.parts] == [
        1_000,
        1_000,
        1_000,
        400,
    ]
    assert NewsItem("", "").parts == [""]
