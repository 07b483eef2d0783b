"""The live exchange: what it publishes agrees with its own state, in both protocols, through the steps of its days."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange.reference_client import Client, messages_of, ops_of_fast, ops_of_sbe

from umdf.exchange.live.outputs import Captures, sinks_of
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.live.settings import ExchangeSettings, read_settings
from umdf.exchange.truth.tables import final_orders

ROOT = Path(__file__).parents[2]
OPS = {"sbe": ops_of_sbe, "fast": ops_of_fast}
SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3600 * 10**9


def small(**more: Any) -> ExchangeSettings:
    settings = read_settings(ROOT / "examples" / "exchange.toml")
    return replace(settings, **{"instruments": 24, "messages_per_s": 15, **more})


def run(directory: Path, settings: ExchangeSettings, duration_ns: int, tick_ns: int) -> RunningMarket:
    captures = Captures(directory / "capture")
    running = RunningMarket(settings, sinks_of(settings, [captures.open_line]))
    end_ns = running.now_ns + duration_ns
    while running.now_ns < end_ns:
        running.advance(min(running.now_ns + tick_ns, end_ns))
    running.close()
    return running


def replayed(directory: Path, protocol: str) -> Client:
    client = Client(False)
    for stream in ("instruments", "incremental"):
        for message in messages_of(directory, protocol, stream):
            for op in OPS[protocol](message):
                client.take(op, protocol)
    return client


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_the_books_of_a_morning_are_those_of_the_exchange(tmp_path: Path, protocol: str) -> None:
    settings = small(start=datetime(2026, 11, 16, 9, 44, 50))
    channels = [(c, a) for c, a in zip(settings.channels, settings.addresses, strict=True) if c.protocol == protocol]
    settings = replace(settings, channels=(channels[0][0],), addresses=(channels[0][1],))
    running = run(tmp_path, settings, 16 * MINUTE, 10 * SECOND)
    orders = final_orders(running.market)
    columns = [orders[name] for name in ("instrument_id", "side", "position", "price", "size", "order_id", "firm")]
    lists = (column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in columns)
    rows = zip(*lists, strict=True)
    members = set(running.listing.security_id[settings.channels[0].members.of(running.listing)].tolist())
    assert replayed(tmp_path, protocol).orders() == {row for row in rows if row[0] in members}
    assert running.messages > 5_000
