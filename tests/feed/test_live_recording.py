"""The recording of a live run, ingested at once and in parts as a stream, equals the live client's own rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
from umdf.transport.capture import open_capture
from umdf.transport.channels_file import format_channels
from umdf.transport.recording import closed_files
from umdf.transport.rolling_captures import LOCK

FAMILIES = ("mbo", "trades", "statistics", "status")
TABLES = ALL
LONG_TEXT = "A sessão de negociação será estendida. " * 80  # Binary sends it in four parts (9.2.4)
CHANNELS = (ChannelSettings(72, SBE, members=Members(("CS",))), ChannelSettings(73, FAST, members=Members(("ETF",))))


def live_key(row: LiveRow, names: tuple[str, ...]) -> tuple[Any, ...]:
    return row.channel.number, row.sequence, row.instrument_id, *(row.values[name] for name in names)


def lake_key(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return row["channel_id"], row["sequence"], row["instrument_id"], *(_value(row[name]) for name in names)


def _value(value: Any) -> Any:
    """As the client has it: prices in units of 1e-9, financial volumes of 1e-4, dates as days since 1970."""
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return int(value.scaleb(-int(value.as_tuple().exponent))) if isinstance(value, Decimal) else value


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


def sequences_in(file: Path, copy: Path) -> list[int]:
    """Of a Binary channel; of what is readable of a file that is being written."""
    copy.write_bytes(file.read_bytes())
    found: list[int] = []
    with open_capture(copy) as capture:
        for packets in capture:
            found += [
                int.from_bytes(packets.buffer[start + 4 : start + 8].tobytes(), "little")
                for start in packets.start.tolist()
            ]
    return found


def test_a_stream_follows_a_recording_whose_recorder_was_killed(tmp_path: Path) -> None:
    """What was flushed before the kill is in the lake, and the end is that of one ingest of everything."""
    market, recording = LiveMarket(CHANNELS), tmp_path / "recording"
    (tmp_path / "channels.toml").write_text(format_channels(market.settings.addresses))
    market.run_alone(31)
    words = ["feed", "--channels", str(tmp_path / "channels.toml"), "--record", str(recording), "--duration-s", "600"]
    sequence, flushed = 0, set[int]()
    with subprocess.Popen([sys.executable, "-m", "umdf", *words], stdout=subprocess.DEVNULL) as killed:
        try:
            while not sequence or sequence not in flushed:  # a second after it was received, at the latest
                assert killed.poll() is None
                time.sleep(0.1)
                if not (recording / LOCK).exists():
                    continue
                market.run_alone(0.1)
                parts = [each for each in recording.glob("*sbe-072-incremental-A.pcap.part") if each.stat().st_size]
                flushed = set(sequences_in(parts[0], tmp_path / "copy.pcap")) - {0} if parts else set()
                if len(flushed) > 20 and not sequence:
                    sequence = market.history.last_sequence("sbe", 72)
        finally:
            killed.kill()
    assert not closed_files(recording)
    market.run_alone(1)  # to nobody

    def followed() -> Iterator[list[Path]]:
        """The files that are new, at each moment that `umdf stream` would look."""
        with CheckedClient(market, record=recording) as client:
            first = closed_files(recording)
            [file] = [each for each in first if "sbe-072-incremental-A" in each.name]
            assert flushed <= set(sequences_in(file, tmp_path / "copy.pcap"))
            yield first
            client.run(1)
            client.catch_up()
        yield [file for file in closed_files(recording) if file not in first]

    results = list(following(tmp_path / "streamed", followed(), tables=TABLES))
    assert len(results) == 3 and results[0].new and results[1].new
    assert flushed & {row["sequence"] for row in rows(tmp_path / "streamed", "mbo") if row["channel_id"] == 72}
    ingest(tmp_path / "batch", closed_files(recording), tables=TABLES)
    assert hashes(tmp_path / "streamed") == hashes(tmp_path / "batch")
