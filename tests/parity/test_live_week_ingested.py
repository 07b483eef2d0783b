"""The captures of a trading week of the live exchange, ingested, equal its truth: books, trades, statistics and states,
in both protocols, over nights, a holiday, resets, a failover and a weekend."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake.captures import ALL, ingest, rows
from lake.wire_order import epochs_of, place_of
from parity.live_week import CHANNEL, PROTOCOLS, LiveWeek

import umdf
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.events import STAT_TYPES
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.market.families import LAST, MAYBE_BAD_BOOK, SETTLEMENT_PRICE

pytestmark = pytest.mark.xdist_group("live-week")
Sized = Callable[[int, int], int]
Place = tuple[int, int]
FAST_ONLY = (k.VOLUME,)
ENDS_A_NUMBERING = ("Thursday, before a failover", "Friday, over")
SEPARATED, REJOINED = 101, 102  # 1174


class IngestedWeek:
    def __init__(self, week: LiveWeek, protocol: str, root: Path) -> None:
        self.week, self.protocol, self.root = week, protocol, root
        ingest(root, week.files(protocol), tables=ALL)
        self.lake = umdf.Lake(root)
        self.epochs = epochs_of(root)
        self.index = {int(number): row for row, number in enumerate(week.exchange.listing.security_id.tolist())}
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """In wire order."""
        if table not in self._rows:
            self._rows[table] = sorted(rows(self.root, table), key=lambda row: place_of(row, self.epochs))
        return self._rows[table]

    def until(self, table: str, place: Place, after: Place = (-1, -1)) -> list[dict[str, Any]]:
        return [row for row in self.rows(table) if after <= self.place(row) <= place]

    def place(self, row: dict[str, Any]) -> Place:
        """The epoch as the exchange counts it: its first numbering is 1."""
        return self.epochs[row["seq_version"]] + 1, row["sequence"]


@pytest.fixture(scope="module", params=["priority", pytest.param("position", marks=pytest.mark.full_size)])
def week(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sized: Sized) -> LiveWeek:
    directory = tmp_path_factory.mktemp("week")
    return LiveWeek(directory, sized(5, random.randrange(1 << 30)), sized(5, 20), request.param)


@pytest.fixture(scope="module", params=PROTOCOLS)
def ingested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, week: LiveWeek) -> IngestedWeek:
    return IngestedWeek(week, request.param, tmp_path_factory.mktemp("lake"))


def test_nothing_is_missing_and_snapshots_agree(ingested: IngestedWeek) -> None:
    """A day other than the first of a numbering begins with a join, which its first snapshots answer."""
    gaps = {(row["cause"], row["recovered_by"]) for row in rows(ingested.root, "gaps")}
    assert gaps == {("join", "snapshot")} and open_snapshot(ingested.root).rows("quarantine") == 0
    verdicts = Counter(row["verdict"] for row in rows(ingested.root, "book_check"))
    assert verdicts["equal"] > verdicts.total() / 2 and not verdicts["different"]
    assert [f"{day:%d}" for day in ingested.lake.dates()] == ["16", "17", "18", "19", "20", "22", "23"]


def test_trades_and_busts_are_those_of_the_exchange(ingested: IngestedWeek) -> None:
    week, listing = ingested.week, ingested.week.exchange.listing
    true, busts = [], []
    for epoch, sequence, record in week.records(ingested.protocol, k.TRADE, k.BUST):
        who = epoch, sequence, int(listing.security_id[record[k.INSTRUMENT]]), record[k.ID]
        if record[k.KIND] == k.BUST:
            busts.append(who)
        else:
            true.append((*who, *map(nullable, (record[c] for c in (k.PRICE, k.SIZE, k.FIRM, k.OTHER)))))
    names = ("instrument_id", "trade_id", "price", "size", "buyer", "seller")
    found = [(*ingested.place(row), *(row[name] for name in names)) for row in ingested.rows("trades")
             if row["action"] == "A"]  # fmt: skip
    assert sorted(found, key=str) == sorted(true, key=str) and len(found) > 50
    gone = [(*ingested.place(row), *(row[name] for name in names[:2])) for row in ingested.rows("trades")
            if row["action"] == "C"]  # fmt: skip
    assert sorted(gone) == sorted(busts) and len(gone) >= 2


def test_books_are_the_exchanges_at_every_moment(ingested: IngestedWeek, sized: Sized) -> None:
    week, compared, chance = ingested.week, 0, random.Random(ingested.week.seed)
    symbols = week.exchange.listing.symbols
    for moment in week.moments:
        for number in chance.sample(sorted(moment.states), min(sized(18, 1_000), len(moment.states))):
            index = ingested.index[number]
            true = week.books_at(ingested.protocol, index, moment.place[ingested.protocol])
            if not any(true.values()) and moment.name in ("Wednesday", "Sunday"):
                continue  # a day on which nothing was sent about it
            book = ingested.lake.book_at(symbols[index], moment.ts_recv)
            found: dict[str, list[Any]] = {"B": [], "A": []}
            for order in book.orders("fixed").to_pylist():
                found[order["side"]].append(tuple(order[name] for name in ("price", "size", "order_id", "firm")))
            if moment.name == "Wednesday" and ingested.protocol == "sbe":
                # Heartbeats of Binary have no numbers: no snapshot of that day can be laid beside the stream.
                assert not book.is_trusted and not found["B"] + found["A"]
                continue
            # Nobody can tell whether a numbering that has ended had more numbers.
            assert book.is_trusted or moment.name in ENDS_A_NUMBERING, (moment.name, book.distrust_reason)
            assert found == true, (moment.name, symbols[index])
            compared += len(found["B"]) + len(found["A"])
    assert compared > 50


def test_levels_are_the_exchanges_after_any_sequence(ingested: IngestedWeek, sized: Sized) -> None:
    """`mbp_10` after the last row of a packet or message, but for books that wait for a snapshot, and for packets in
    which an event of the book has not ended yet: its row comes with the next packet."""
    week = ingested.week
    last = {(ingested.place(row), row["instrument_id"]): row for row in ingested.rows("mbp_10")}
    ends = {(ingested.place(row), row["instrument_id"]): bool(row["flags"] & LAST) for row in ingested.rows("mbo")}
    last = {key: row for key, row in last.items() if ends.get(key, True)}  # a channel reset names no instrument
    right = [key for key, row in last.items() if not row["flags"] & MAYBE_BAD_BOOK]
    assert len(right) > 0.9 * len(last)
    for place, number in random.Random(week.seed).sample(sorted(right), sized(60, 200)):
        row = last[place, number]
        book = week.history.book_at(ingested.protocol, ingested.index[number], place[1], CHANNEL, place[0])
        for side, name in (("B", "bid"), ("A", "ask")):
            true = [(level.price, level.size, level.orders) for level in book.levels(side, 10)]
            found = [tuple(row[f"{name}_{part}_{at:02}"] for part in ("px", "sz", "ct")) for at in range(10)]
            assert [each for each in found if each[1]] == true, (place, number)


def test_statistics_are_the_exchanges_at_every_moment(ingested: IngestedWeek) -> None:
    compared = 0
    for moment in ingested.week.moments:
        place = moment.place[ingested.protocol]
        found = newest_statistics(ingested, place)
        for number in moment.states:
            true = true_statistics(ingested, number, place)
            assert found.get(number, {}) == true, (moment.name, number)
            compared += len(true)
    assert compared > 500


def nullable(value: int) -> int | None:
    return None if value == k.NULL else value


def newest_statistics(ingested: IngestedWeek, place: Place) -> dict[int, dict[Any, Any]]:
    found: dict[int, dict[Any, Any]] = {}
    after = channel_reset(ingested, place)
    for row in ingested.until("statistics", place, after):
        kind, flag = row["stat_type"], row["open_close_settl_flag"]
        of_instrument = found.setdefault(row["instrument_id"], {})
        of_instrument.pop((kind, flag), None)
        if row["action"] != "C":
            more = (row["settl_price_type"],) if kind == SETTLEMENT_PRICE else ()
            of_instrument[kind, flag] = row["price"], row["size"], *more
    for row in ingested.until("price_band", place, after):
        key = row["entry_type"], row["price_band_type"]
        limits = row["low_limit_price"], row["high_limit_price"], row["avg_daily_traded_qty"], row["max_trade_vol"]
        found.setdefault(row["instrument_id"], {})[key] = limits
    for row in ingested.until("imbalance", place, after):
        of_instrument = found.setdefault(row["instrument_id"], {})
        of_instrument.pop("imbalance", None)
        if row["action"] != "C":
            of_instrument["imbalance"] = row["size"]
    return found


def channel_reset(ingested: IngestedWeek, place: Place) -> Place:
    """The place of the newest reset of the channel: what was published before is void (4.2.9)."""
    week, found = ingested.week, (-1, -1)
    for epoch, number, sequences in week.history._batches[ingested.protocol, CHANNEL]:
        chosen = week.history._records[number][:, k.KIND] == k.CHANNEL_RESET
        for sequence in week.history._sequences[sequences][chosen].tolist():
            if (epoch, sequence) <= place:
                found = epoch, sequence
    return found


def true_statistics(ingested: IngestedWeek, number: int, place: Place) -> dict[Any, Any]:
    index, (epoch, sequence) = ingested.index[number], place
    records = ingested.week.history.statistics_at(ingested.protocol, index, sequence, CHANNEL, epoch)
    found: dict[Any, Any] = {}
    for record in sorted(records.values(), key=lambda record: record[k.TS]):
        kind, code = record[k.KIND], record[k.CODE]
        value = [nullable(record[column]) for column in (k.PRICE, k.SIZE)]
        if kind == k.PRICE_BAND:
            found["g", code & 0xFF] = (*(record[column] for column in (k.PRICE, k.AUX)), None, None)
        elif kind == k.QUANTITY_BAND:
            found["h", None] = (None, None, record[k.SIZE], record[k.OTHER])
        elif kind == k.IMBALANCE:
            found["imbalance"] = record[k.SIZE]
        elif kind in FAST_ONLY and ingested.protocol == "sbe":
            continue
        else:
            has_flag = kind in (k.OPENING, k.THEORETICAL, k.CLOSING, k.SETTLEMENT)
            flag = code & 0xFF if has_flag and code != k.NULL else None
            if kind == k.EXECUTION and ingested.protocol == "fast":
                value[1] = None  # the VWAP alone (10.3)
            more = (code >> 8,) if kind == k.SETTLEMENT else ()
            found[int(STAT_TYPES[kind]), flag] = (*value, *more)
    return found


def test_states_are_the_exchanges_at_every_moment(ingested: IngestedWeek) -> None:
    listing = ingested.week.exchange.listing
    for moment in ingested.week.moments:
        phases, own = dict[str, int](), dict[int, int]()
        for row in ingested.until("status", moment.place[ingested.protocol]):
            if row["security_group"] is not None:
                phases[row["security_group"]] = row["phase"]
            elif row["event"] == SEPARATED:
                own[row["instrument_id"]] = row["state"]
            elif row["event"] == REJOINED:
                own.pop(row["instrument_id"], None)
        for number, (phase, state) in moment.states.items():
            group = listing.groups[int(listing.group[ingested.index[number]])]
            assert phases[group] == phase, (moment.name, group)
            assert own.get(number, phase) == state, (moment.name, number)
