"""Defects of an exchange, one at a time: what it publishes or does wrong, and the step that must find it.

A defect is planted by a context manager, and is gone after it: the same session plays the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from umdf.certify.profile import Combination
from umdf.certify.stage import MAIN, Stage
from umdf.errors import UsageError
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.matching.orders import LIMIT, MOC
from umdf.exchange.matching.trade_entry import condition_bits
from umdf.exchange.publish import price_levels_kernel as p
from umdf.exchange.publish import publisher as publishing
from umdf.exchange.publish.channel_settings import INCREMENTAL, MBP, SNAPSHOTS
from umdf.exchange.publish.price_levels import DerivedRecords, PriceLevels
from umdf.exchange.publish.publisher import JournalBatch, Publisher
from umdf.exchange.replayer.connection import ReplayerConnection
from umdf.exchange.replayer.service import ReplayService
from umdf.exchange.session import trading_session
from umdf.wire.fix.replay_messages import Report, ResponseError, ResponseType

Records = NDArray[np.int64]
Plant = Callable[[Stage, pytest.MonkeyPatch], None]
FAST, SBE = Combination("fast"), Combination("sbe")
FAST_POSITION, SBE_POSITION = Combination("fast", "position"), Combination("sbe", "position")


@dataclass(frozen=True)
class Defect:
    name: str
    combination: Combination
    step: str  # that finds it first, when its section is played
    said: str  # in its failure
    plant: Plant

    @property
    def section(self) -> str:
        return self.step.partition(".")[0]


@contextmanager
def planted(defect: Defect, stage: Stage) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        defect.plant(stage, patch)
        yield


# How defects are planted.


def edit(change: Callable[[Stage, Records], Records], stream: str = INCREMENTAL) -> Plant:
    """Change what every channel publishes on a stream."""

    def plant(stage: Stage, patch: pytest.MonkeyPatch) -> None:
        def publish(self: Publisher, batch: JournalBatch) -> None:
            if batch.stream == stream and len(batch.records):
                batch = replace(batch, records=change(stage, batch.records.copy()))
            original(self, batch)

        original = Publisher.publish
        patch.setattr(Publisher, "publish", publish)

    return plant


def drop(kind: int, where: Callable[[Stage, Records], Any] | None = None, stream: str = INCREMENTAL) -> Plant:
    """Publish no record of a kind."""

    def without(stage: Stage, records: Records) -> Records:
        dropped = records[:, k.KIND] == kind
        if where is not None:
            dropped &= where(stage, records)
        kept = records[~dropped]
        # The end of an event that was dropped is that of the record before it.
        ends = np.flatnonzero(dropped & (records[:, k.FLAGS] & k.LAST != 0))
        for end in (np.searchsorted(np.flatnonzero(~dropped), ends) - 1).tolist():
            if end >= 0:
                kept[end, k.FLAGS] |= k.LAST
        return kept

    return edit(without, stream)


def overwrite(kind: int, column: int, before: int | None, after: int, stream: str = INCREMENTAL) -> Plant:
    """Publish another value in a column of a kind of record."""

    def change(_: Stage, records: Records) -> Records:
        rows = records[:, k.KIND] == kind
        if before is not None:
            rows &= records[:, column] == before
        records[rows, column] = after
        return records

    return edit(change, stream)


def on_method(owner: type, name: str, make: Callable[[Any], Any]) -> Plant:
    """Put another method in place of one; `make` gets the original."""
    return lambda stage, patch: patch.setattr(owner, name, make(getattr(owner, name)))


def does_nothing(owner: type, name: str) -> Plant:
    return on_method(owner, name, lambda original: lambda self, *args, **options: None)


def one_tick_higher(_: Stage, records: Records) -> Records:
    records[records[:, k.KIND] == k.TRADE, k.PRICE] += 10_000_000
    return records


def silence(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    for publisher in stage.exchange.publication.publishers:
        patch.setattr(publisher, "settings", replace(publisher.settings, heartbeat_ms=10**9))


def bids_upside_down(_: Stage, records: Records) -> Records:
    records[(records[:, k.KIND] == k.ADD) & (records[:, k.SIDE] == k.BID), k.POSITION] = 1
    return records


def moa_behind_priced_orders(_: Stage, records: Records) -> Records:
    records[(records[:, k.KIND] == k.ADD) & (records[:, k.PRICE] == k.NULL), k.POSITION] = 6
    return records


def not_on_behalf(_: Stage, records: Records) -> Records:
    rows = (records[:, k.KIND] == k.TRADE) & (records[:, k.CODE] != k.NULL)
    records[rows, k.CODE] &= ~condition_bits(["2"])
    return records


def levels_of(book_type: str, change: Callable[[DerivedRecords], DerivedRecords]) -> Plant:
    """Change what the channel of a book type makes of the journal."""

    def plant(stage: Stage, patch: pytest.MonkeyPatch) -> None:
        for publisher in stage.exchange.publication.publishers:
            if publisher.settings.book_type == book_type and publisher._levels is not None:
                derive = publisher._levels.derive
                patch.setattr(publisher._levels, "derive", lambda records, derive=derive: change(derive(records)))

    return plant


def without_changes(derived: DerivedRecords) -> DerivedRecords:
    kept = derived.records[:, k.KIND] != k.CHANGE
    return DerivedRecords(derived.records[kept], derived.source[kept])


def every_level(original: Any) -> Any:
    """Top of book is sent again whenever anything changes below it."""

    def derive(self: PriceLevels, records: Records) -> DerivedRecords:
        depth = int(self._table[p.P_DEPTH])
        self._table[p.P_DEPTH] = 10 if self._is_overlay else depth
        derived = original(self, records)
        self._table[p.P_DEPTH] = depth
        return derived

    return derive


def old_statistics(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    """A day with a trade ends, and its statistics are not reset."""
    patch.setattr(trading_session, "CLEARED_BY_SESSION_CHANGE", ())
    stage.clear_books()
    stage.rejoin()
    stage.go_to_phase(k.OPEN, after_market=False)
    for side in (0, 1):
        stage.enter("", MAIN, side, stage.price(0), 100)
    stage.exchange.trading.end_of_day("")
    stage.exchange.flush()


def refuse(name: str) -> Plant:
    def refused(self: Exchange, *args: object, **options: object) -> None:
        raise UsageError("the state of the instrument does not allow it", "wait for Open")

    return on_method(Exchange, name, lambda original: refused)


def moc_with_a_price(original: Any) -> Any:
    def enter(self: Exchange, *args: Any, **options: Any) -> Any:
        if options.get("order_type") == MOC:
            price = int(self.market.instruments[self.engine.index_of(args[0]), k.I_PREVIOUS_CLOSE])
            return original(self, *args[:2], price, *args[3:], **{**options, "order_type": LIMIT})
        return original(self, *args, **options)

    return enter


def without_after_market(stage: Stage, records: Records) -> Records:
    records[:, k.FLAGS] &= ~k.AFTER_MARKET
    return records


def answer_with(change: Callable[[Any], Any]) -> Plant:
    """Another acknowledgment of requests."""

    def make(original: Any) -> Any:
        def request(self: ReplayService, *args: Any, **options: Any) -> Any:
            answer = original(self, *args, **options)
            return replace(answer, acknowledgment=change(answer.acknowledgment))

        return request

    return on_method(ReplayService, "request", make)


def parts_with(change: Callable[[Any], Any | None]) -> Plant:
    """Other parts of an answer; None: not sent."""

    def make(original: Any) -> Any:
        def parts(self: ReplayService, *args: Any) -> Iterator[Any]:
            for part in original(self, *args):
                changed = change(part)
                if changed is not None:
                    yield changed

        return parts

    return on_method(ReplayService, "_parts", make)


def other_error(part: Any) -> Any:
    if isinstance(part, Report) and part.error is not None:
        return replace(part, error=ResponseError.OLDEST_NOT_AVAILABLE)
    return part


def fewer_messages() -> Plant:
    """Answers lack the last message of their first part, or that part, if it has no other."""

    def make(original: Any) -> Any:
        def parts(self: ReplayService, *args: Any) -> Iterator[Any]:
            is_first = True
            for part in original(self, *args):
                if is_first and not isinstance(part, Report):
                    is_first, part = False, replace(part, messages=part.messages[:-1])
                if isinstance(part, Report) or part.messages:
                    yield part

        return parts

    return on_method(ReplayService, "_parts", make)


def strategy_is_not_forbidden(stage: Stage, records: Records) -> Records:
    return records[~((records[:, k.KIND] == k.STATE) & (records[:, k.AUX] == k.FORBIDDEN))]


def leg_trades(_: Stage, records: Records) -> Any:
    return (records[:, k.CODE] != k.NULL) & (records[:, k.CODE] & k.C_LEG != 0)


def leave_empty_books_out(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    for publisher in stage.exchange.publication.publishers:
        patch.setattr(publisher, "settings", replace(publisher.settings, sends_empty_books=False))


def of_type(security_type: str) -> Callable[[Stage, Records], Any]:
    def where(stage: Stage, records: Records) -> Any:
        listing = stage.exchange.listing
        rows = [index for index, name in enumerate(listing.security_types) if name == security_type]
        return np.isin(records[:, k.INSTRUMENT], rows)

    return where


def as_it_is(records: Records) -> DerivedRecords:
    return DerivedRecords(records, np.arange(len(records)))


def deleted_one_by_one(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publishing, "merge_matched", as_it_is)


def phase(number: int) -> Callable[[Stage, Records], Any]:
    return lambda stage, records: records[:, k.AUX] == number


DEFECTS = (
    Defect("no heartbeat", SBE, "A.1", "no 35=0", silence),
    Defect("no definitions", SBE, "A.2", "no 35=d", drop(k.DEFINITION, stream="instruments")),
    Defect(
        "wrong phase in the snapshot",
        SBE,
        "B1.1",
        "625=17, expected 21",
        overwrite(k.GROUP_PHASE, k.AUX, k.RESERVED, k.OPEN, SNAPSHOTS),
    ),
    Defect("no statistics reset", SBE, "B1.1", "of the session before (1174=4", old_statistics),
    Defect("no snapshots", SBE, "B1.1", "no Snapshot Full Refresh", drop(k.SNAPSHOT_HEADER, stream=SNAPSHOTS)),
    Defect("bids in reverse order", SBE_POSITION, "B1.2", "6th level of BID", edit(bids_upside_down)),
    Defect(
        "price levels do not change",
        FAST,
        "B1.2",
        "MBP: expected quantity of the 3rd level of BID",
        levels_of(MBP, without_changes),
    ),
    Defect(
        "top of book is sent without need",
        FAST,
        "B1.2",
        "TOB: expected no update",
        on_method(PriceLevels, "derive", every_level),
    ),
    Defect(
        "MOA behind priced orders",
        SBE_POSITION,
        "B1.4",
        "nothing new on the top of BID",
        edit(moa_behind_priced_orders),
    ),
    Defect("missing delete", SBE, "B1.5", "7th level of BID was not deleted", drop(k.DELETE)),
    Defect("no trade", SBE, "B1.6", "no trade was received", drop(k.TRADE)),
    Defect("wrong trade price", SBE, "B1.6", "traded at", edit(one_tick_higher)),
    Defect("missing phase", SBE, "B1.6", "no 35=f of the group", drop(k.GROUP_PHASE, phase(k.OPEN))),
    Defect(
        "wrong state code",
        SBE,
        "B2.4",
        "326=21 1174=101, expected 326=2 1174=101",
        overwrite(k.STATE, k.AUX, k.PAUSE, k.RESERVED),
    ),
    Defect(
        "wrong trading event",
        SBE,
        "B2.4",
        "1174=102, expected 326=2 1174=101",
        overwrite(k.STATE, k.CODE, k.SEPARATES, k.REJOINS),
    ),
    Defect("no cancels in a pause", SBE, "B2.5", "could not do it", refuse("cancel")),
    Defect("deletes instead of Delete From", FAST_POSITION, "B2.8", "no entry 279=4", deleted_one_by_one),
    Defect("a trade on behalf like any other", SBE, "B2.10", "expected 2", edit(not_on_behalf)),
    Defect(
        "a closed instrument keeps its orders",
        SBE,
        "B2.11",
        "BID deleted from the top",
        does_nothing(MatchingEngine, "expire_orders"),
    ),
    Defect("special auction is not said", SBE, "B3.1", "37015", does_nothing(Exchange, "set_special_auction")),
    Defect("amendments are lost", SBE, "B3.5", "nothing new on the top of ASK", does_nothing(Exchange, "amend")),
    Defect("pause is not said", FAST, "B3.8", "expected 625=2", overwrite(k.GROUP_PHASE, k.AUX, k.PAUSE, k.OPEN)),
    Defect(
        "wrong state in the snapshot",
        SBE,
        "B5.1",
        "326=17, expected 101",
        overwrite(k.STATE, k.AUX, k.FINAL_CLOSING_CALL, k.OPEN, SNAPSHOTS),
    ),
    Defect(
        "MOC with a price", SBE, "B5.1", "the first BID of the snapshot", on_method(Exchange, "enter", moc_with_a_price)
    ),
    Defect("after-market is not said", SBE, "B6.1", "336=1, expected 6", edit(without_after_market, SNAPSHOTS)),
    Defect("auction band is ignored", SBE, "B6.5", "nothing new on the top of ASK", does_nothing(Exchange, "set_band")),
    Defect(
        "no ETF on channel 62",
        FAST,
        "B7.1",
        "167=INDEX, expected 167=ETF",
        drop(k.DEFINITION, of_type("ETF"), "instruments"),
    ),
    Defect("no index values", FAST, "B7.2", "no index value", drop(k.INDEX_VALUE)),
    Defect("no news", SBE, "C1", "no 35=B", drop(k.NEWS)),
    Defect("snapshots without orders", SBE, "D1.2", "entries 269=none", drop(k.SNAPSHOT_ORDER, stream=SNAPSHOTS)),
    Defect("unanswered request", FAST, "D2.2", "not answered", does_nothing(ReplayerConnection, "_on_message")),
    Defect("no report", FAST, "D2.2", "no 35=BY", parts_with(lambda part: None if isinstance(part, Report) else part)),
    Defect("fewer messages than requested", FAST, "D3.2", "19 messages were replayed", fewer_messages()),
    Defect("wrong 1354", FAST, "D3.4", "1354=6, expected 1", parts_with(other_error)),
    Defect(
        "wrong 1348",
        FAST,
        "D3.5",
        "1348=2, expected 1",
        answer_with(lambda a: replace(a, response_type=ResponseType.NOT_ACCEPTED) if a.response_type else a),
    ),
    Defect("a strategy is open at once", SBE, "E4.1", "no 35=f", edit(strategy_is_not_forbidden)),
    Defect("empty books are left out", SBE, "E4.2", "no Snapshot Full Refresh", leave_empty_books_out),
    Defect("legs do not trade", SBE, "E4.6", "no trade of the leg", drop(k.TRADE, leg_trades)),
)
