"""A bulk capture is consistent and agrees with its truth: decoded, and replayed in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from exchange.decoded_day import Day, write
from exchange.reference_client import Client, snapshots_of, truth_of

from umdf.errors import ConfigError
from umdf.exchange.bulk.capture import PUBLISHERS, Clock, write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.publish.sbe_publisher import SbePublisher

KINDS = [(protocol, generation) for protocol in ("sbe", "fast") for generation in ("priority", "position")]
STATISTICS = {1: "4", 2: "TOP", 3: "6", 4: "8", 5: "7", 6: "B", 9: "C", 11: "5", 13: "9", 100: "last"}


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def day(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]
) -> Day:
    protocol, generation = request.param
    directory = tmp_path_factory.mktemp(f"{protocol}-{generation}")
    return write(directory, protocol, generation, messages=sized(8_000, 200_000), channel_reset=True)


def replayed(day: Day) -> Client:
    """Every message, every check of the client."""
    client, next_sequence = day.client(), 1
    for message, ops in day.decoded():
        for op in ops:
            client.take(op, day.protocol)
        if message.sequence not in (0, next_sequence - 1):
            assert message.sequence == next_sequence
            next_sequence += 1
    assert not client.summarised
    return client


def test_final_books_trades_statistics_and_states_are_the_truth(day: Day) -> None:
    client = replayed(day)
    columns = ("instrument_id", "side", "position", "price", "size", "order_id", "firm")
    assert client.orders() == {tuple(row[name] for name in columns) for row in truth_of(day.directory, "final_orders")}
    trades = truth_of(day.directory, "trades")
    assert client.trades == {
        (row["instrument_id"], row["trade_id"]): (row["price"], row["size"], row["buyer"], row["seller"])
        for row in trades
    }
    assert client.busted == {(row["instrument_id"], row["trade_id"]) for row in trades if row["busted"]}
    assert client.busted and len(trades) == day.summary.trades
    assert final_statistics(client) == true_statistics(day)
    groups = {row["security_group"]: row["phase"] for row in truth_of(day.directory, "groups")}
    assert client.phases == groups
    for row in truth_of(day.directory, "states"):
        instrument = row["instrument_id"]
        assert groups[client.groups[instrument]] == row["phase"]
        if row["event"] == 101:
            assert client.states[instrument] == row["state"]
        else:
            assert row["state"] == row["phase"]


def final_statistics(client: Client) -> dict[Any, Any]:
    return {(instrument, *what): value for (instrument, what), value in client.stats.items()}


def true_statistics(day: Day) -> dict[Any, Any]:
    statistics = {}
    for row in truth_of(day.directory, "statistics"):
        what, flag = STATISTICS[row["stat_type"]], row["open_close_settl_flag"]
        key = row["instrument_id"], what, flag if what in "56" else None
        if what == "B" and day.protocol == "sbe":
            continue
        statistics[key] = row["price"], None if (what, day.protocol) == ("9", "fast") else row["size"]
    return statistics


def test_levels_are_the_orders_together(day: Day) -> None:
    orders, levels = truth_of(day.directory, "final_orders"), truth_of(day.directory, "final_levels")
    expected = []
    for (instrument, side), book in groupby(orders, lambda row: (row["instrument_id"], row["side"])):
        for level, (price, some) in enumerate(groupby(book, lambda row: row["price"]), 1):
            sizes = [row["size"] for row in some]
            expected.append((instrument, side, level, price, sum(sizes), len(sizes)))
    columns = ("instrument_id", "side", "level", "price", "size", "order_count")
    assert [tuple(row[name] for name in columns) for row in levels] == expected


def test_snapshots_agree_with_the_books_at_their_sequence(day: Day) -> None:
    waiting = sorted(snapshots_of(day.directory, day.protocol), key=lambda snapshot: snapshot.last_sequence)
    loops = Counter((snapshot.loop, snapshot.total) for snapshot in waiting)
    assert len(loops) >= 4 and all(count == total for (_, total), count in loops.items())
    assert max(len({s.last_sequence for s in waiting if s.loop == loop}) for loop, _ in loops) > 1
    client, checked, sequence = day.client(), 0, 0
    for message, ops in day.decoded():
        if message.sequence > sequence:
            while checked < len(waiting) and waiting[checked].last_sequence <= sequence:
                check_snapshot(client, waiting[checked], day.protocol)
                checked += 1
            sequence = message.sequence
        for op in ops:
            client.take(op, day.protocol)
    for snapshot in waiting[checked:]:
        check_snapshot(client, snapshot, day.protocol)
    assert any(len(snapshot.orders()) > 40 for snapshot in waiting)


def check_snapshot(client: Client, snapshot: Any, protocol: str) -> None:
    instrument = snapshot.instrument
    book = [(side, o.price, o.size, o.id, o.firm) for side in "BA" for o in client.book(instrument, side)]
    assert snapshot.orders() == book
    assert snapshot.last_rpt_seq == (client.rpt_seq.get(instrument) or 0)
    known = {what: value for (of, what), value in client.stats.items() if of == instrument}
    assert snapshot.stats() == known
    state = next(op for op in snapshot.ops if op.kind == "state")
    assert state is snapshot.ops[-1]
    if protocol == "sbe":
        sides = Counter(op.side for op in snapshot.ops if op.kind == "order")
        header = snapshot.fields
        assert (header["totNumBids"], header["totNumOffers"]) == (sides["B"], sides["A"])
        assert header["totNumStats"] == len(snapshot.ops) - len(snapshot.orders())
    if client.by_position:
        for side in "BA":
            positions = [op.position for op in snapshot.ops if op.kind == "order" and op.side == side]
            assert protocol == "fast" or positions == list(range(1, len(positions) + 1))


def test_books_are_never_crossed_while_they_trade(day: Day) -> None:
    client = day.client()
    for _, ops in day.decoded():
        touched = set()
        for op in ops:
            client.take(op, day.protocol)
            if op.last and op.kind in ("order", "stat"):
                touched.add(op.instrument)
        for instrument in touched:
            if client.state_of(instrument) == 17:
                bid, ask = client.book(instrument, "B"), client.book(instrument, "A")
                assert not (bid and ask) or (bid[0].price is not None and bid[0].price < (ask[0].price or 0))


def test_the_day_has_every_kind_of_event(day: Day) -> None:
    ops = [op for _, some in day.decoded() for op in some]
    kinds = Counter(op.kind for op in ops)
    expected = {
        "order",
        "trade",
        "bust",
        "stat",
        "state",
        "phase",
        "define",
        "empty",
        "reset",
        "heartbeat",
        "band",
        "news",
    }
    expected.add("thru")
    assert expected <= kinds.keys()
    assert day.protocol == "fast" or kinds["summary"]
    assert (kinds["from"] > 0) == (day.settings.generation == "position")
    stats = {op.what[0] for op in ops if op.kind == "stat"}
    assert {"4", "TOP", "5", "6", "7", "8", "9", "C", "A", "last"} <= stats
    assert ("B" in stats) == (day.protocol == "fast")
    assert any(op.recovery for op in ops if op.kind == "order")
    assert any(op.price is None for op in ops if op.kind == "order" and op.action == 0)
    assert any(op.id >= 1 << 62 for op in ops if op.kind == "order")
    names = ("securityTradingEvent", "SecurityTradingEvent")
    assert {op.fields.get(name) for op in ops for name in names if op.kind in ("state", "phase")} >= {4, 101, 102}
    phases = [op.fields.get("tradingSessionSubID", op.fields.get("TradingSessionSubID")) for op in ops]
    sent = [int(phase) for phase in phases if phase is not None]
    assert [phase for phase, _ in groupby(sent)] == [21, 17, 101, 4] or set(sent) == {21, 17, 101, 4}


def test_events_of_trades_have_their_shape(tmp_path: Path) -> None:
    for generation in ("priority", "position"):
        day = write(tmp_path / generation, "sbe", generation)
        events: Counter[tuple[int, ...]] = Counter()
        event: list[int] = []
        for message in day.messages():
            event.append(message.template_id)
            if message.fields.get("matchEventIndicator", 0) & 128:
                events[tuple(event)] += 1
                event = []
            elif message.template_id == 2:
                event = []
        assert {(50,), (51,), (51, 50), (55, 53, 50, 56), (55, 53, 51, 56)} <= events.keys()
        assert any(52 in event and 53 in event for event in events) == (generation == "position")
        assert all(event[-1] == 56 for event in events if 53 in event)


class IndirectPublisher(SbePublisher):
    """Encodes every batch by events and the encoder."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.direct_encoder = None


@pytest.mark.parametrize("generation", ["priority", "position"])
def test_direct_encoding_writes_the_same_bytes_as_events(
    tmp_path: Path, generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = write(tmp_path / "direct", "sbe", generation, messages=3_000, loss=0.01)
    monkeypatch.setitem(PUBLISHERS, "sbe", IndirectPublisher)
    indirect = write(tmp_path / "indirect", "sbe", generation, messages=3_000, loss=0.01)
    for name in ("capture", "truth"):
        files = [sorted((day.directory / name).iterdir()) for day in (direct, indirect)]
        assert [path.name for path in files[0]] == [path.name for path in files[1]]
        for one, other in zip(*files, strict=True):
            assert one.read_bytes() == other.read_bytes(), one.name


def test_the_order_flow_is_realistic(tmp_path: Path) -> None:
    """Shares and lifetimes as in real traffic, within what a short day can show."""
    day = write(tmp_path, "sbe", "priority", messages=40_000, instruments=60, rate=5_000)
    born: dict[int, int] = {}
    lives, new, changed, busy = [], 0, 0, Counter[int]()
    per_100_ms, per_packet = Counter[int](), Counter[int]()
    for message in day.messages():
        f = message.fields
        per_packet[message.packet] += 1
        per_100_ms[message.ts_recv // 100_000_000] += 1
        if message.template_id not in (50, 51):
            continue
        busy[f["securityID"]] += 1
        if message.template_id == 51:
            if f["secondaryOrderID"] in born:
                lives.append(f["transactTime"] - born.pop(f["secondaryOrderID"]))
        elif f["mDUpdateAction"] == 0:
            born[f["secondaryOrderID"]], new = f["transactTime"], new + 1
        else:
            changed += 1
    lives.sort()
    assert 0.3e6 < lives[len(lives) // 10] < 3e6 and 8e6 < lives[len(lives) // 2] < 60e6
    assert 0.92 < new / (new + changed) < 0.96
    shares = [count / busy.total() for _, count in busy.most_common()]
    assert 0.4 < sum(shares[:5]) < 0.65 and sum(shares[:20]) > 0.9
    seconds = max(per_100_ms) - min(per_100_ms) + 1
    assert max(per_100_ms.values()) > 10 * per_100_ms.total() / seconds
    assert 0.5 < sum(count == 1 for count in per_packet.values()) / len(per_packet) < 0.97


def test_packets_are_at_most_1400_bytes_and_18_messages(tmp_path: Path) -> None:
    day = write(tmp_path, "sbe", "priority", rate=20_000)
    per_packet = Counter(message.packet for message in day.messages())
    assert max(per_packet.values()) <= 18 and len(set(per_packet.values())) > 5
    heartbeats = [message for message in day.messages() if message.template_id == 2]
    assert heartbeats and all(heartbeat.sequence == 0 for heartbeat in heartbeats)
    next_sequence = 1
    for message in day.messages():
        if message.template_id == 2:
            assert message.fields["nextSeqNo"] == next_sequence
        next_sequence = max(next_sequence, message.sequence + 1)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path) -> None:
    def content(name: str, **more: Any) -> dict[str, bytes]:
        write(tmp_path / name, "both", "priority", loss=0.01, messages=2_000, **more)
        files = sorted((tmp_path / name / "capture").iterdir())
        return {file.name: file.read_bytes() for file in files}

    first = content("first", seed=5)
    assert first == content("again", seed=5)
    assert first.keys() != content("other", seed=6).keys()


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_what_is_missing_is_what_the_truth_says_was_lost(tmp_path: Path, protocol: str) -> None:
    day = write(tmp_path, protocol, "position", loss=0.02)
    last = next(
        row["last_sequence"]
        for row in truth_of(tmp_path, "sequences")
        if (row["protocol"], row["stream"]) == (protocol, "incremental")
    )
    missing = {}
    for line in "AB":
        seen = {message.sequence for message in day.messages(line)} - {0}
        missing[line] = set(range(1, last + 1)) - seen
    missing["AB"] = missing["A"] & missing["B"]
    lost: dict[str, set[int]] = {"A": set(), "B": set(), "AB": set()}
    for row in truth_of(tmp_path, "loss"):
        lost[row["line"]] |= set(range(row["first_sequence"], row["last_sequence"] + 1))
    assert lost == missing
    assert all(missing.values())


def test_both_lines_carry_the_same_and_only_the_times_differ(tmp_path: Path) -> None:
    day = write(tmp_path, "sbe", "priority", messages=2_000)
    a, b = list(day.messages("A")), list(day.messages("B"))
    assert [(f.sequence, f.fields) for f in a] == [(f.sequence, f.fields) for f in b]
    skew = [one.ts_recv - other.ts_recv for one, other in zip(a, b, strict=True)]
    assert min(skew) < 0 < max(skew)


def test_one_session_in_both_protocols_is_one_market(tmp_path: Path) -> None:
    day = write(tmp_path, "both", "priority", messages=3_000)
    sbe, fast = (replayed(Day(day.directory, day.settings, day.summary, protocol)) for protocol in ("sbe", "fast"))
    assert (sbe.orders(), sbe.trades, sbe.busted) == (fast.orders(), fast.trades, fast.busted)


def test_files_roll_and_the_manifest_lists_each_closed_one(tmp_path: Path) -> None:
    day = write(tmp_path, "sbe", "priority", roll_bytes=200_000, roll_s=5)
    listed = [json.loads(line) for line in (tmp_path / "capture" / "manifest.jsonl").read_text().splitlines()]
    capture, files = tmp_path / "capture", sorted(path.name for path in (tmp_path / "capture").glob("*.pcap*"))
    assert sorted(line["file"] for line in listed) == files and len(files) > 8
    assert sum(line["packets"] for line in listed) == day.summary.packets
    for line in listed:
        assert line["bytes"] == (capture / line["file"]).stat().st_size <= 200_000 and line["closed"]
        assert line["last_ns"] - line["first_ns"] < 5_000_000_000
    for series in {(line["stream"], line["line"]) for line in listed}:
        entries = [line for line in listed if (line["stream"], line["line"]) == series]
        assert [line["file"] for line in entries] == sorted(line["file"] for line in entries)
        assert all(one["last_ns"] <= two["first_ns"] for one, two in pairwise(entries))


def test_real_time_waits_for_the_simulated_clock_and_closes_files_as_it_goes(tmp_path: Path) -> None:
    now, listed = [0], []

    def sleep(seconds: float) -> None:
        now[0] += int(seconds * 1e9)
        manifest = tmp_path / "capture" / "manifest.jsonl"
        listed.append(len(manifest.read_text().splitlines()) if manifest.exists() else 0)

    settings = BulkSettings(messages=1_000, instruments=10, rate=50, real_time=True, roll_s=2)
    summary = write_capture(settings, tmp_path, Clock(lambda: now[0], sleep))
    assert abs(now[0] / 1e9 - summary.simulated_s) < 1.5
    assert len(listed) > 20 and 0 < listed[len(listed) // 2] < listed[-1]


def test_counts_of_the_truth_are_what_was_published(tmp_path: Path) -> None:
    day = write(tmp_path, "sbe", "priority", messages=2_000)
    counts = {row["family"]: row["rows"] for row in truth_of(tmp_path, "counts") if row["stream"] == "incremental"}
    kinds = Counter(op.kind for _, ops in day.decoded() for op in ops)
    assert counts["mbo"] == kinds["order"] + kinds["thru"] + kinds["from"] + kinds["empty"] + kinds["reset"]
    assert counts["trades"] == kinds["trade"] + kinds["bust"]
    assert counts["execution_summary"] == kinds["summary"] and counts["control"] == kinds["heartbeat"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"messages": 10}, "too few"),
        ({"instruments": 3}, "--instruments out of range: 3"),
        ({"protocol": "itch"}, "invalid --protocol: itch"),
        ({"generation": "x"}, "invalid --generation: x"),
        ({"lines": "BA"}, "invalid --lines: BA"),
        ({"loss": 0.9}, "--loss out of range: 0.9"),
        ({"seed": -1}, "--seed out of range: -1"),
    ],
)
def test_invalid_settings_are_a_one_line_error(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        replace(BulkSettings(messages=100_000, instruments=100), **settings)


def test_an_existing_capture_is_not_overwritten(tmp_path: Path) -> None:
    for expectation in (nullcontext(), pytest.raises(ConfigError, match="is not empty; use a new directory")):
        with expectation:
            write_capture(BulkSettings(messages=1_000, instruments=10), tmp_path)


def test_a_group_may_lose_its_only_instrument(tmp_path: Path) -> None:
    write_capture(BulkSettings(3_000, 20, seed=4), tmp_path)
    assert (tmp_path / "truth" / "groups.parquet").exists()
