"""A reference client in plain Python, slow and simple: it replays the decoded messages of a bulk capture.

It shares nothing with the generator or with the book engine, and asserts that the messages are consistent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from umdf.cli.decoding.fast_reader import FastReader
from umdf.cli.decoding.files import AUTO, DecodeCounts, Readers, decode_files
from umdf.cli.decoding.messages import DecodedMessage
from umdf.cli.decoding.sbe_reader import SbeReader
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.loader import load as load_schema

END_OF_EVENT, IMPLIED, RECOVERY = 1 << 7, 1 << 4, 1 << 5
SBE_STATISTICS = {15: "4", 16: "TOP", 17: "5", 28: "6", 24: "7", 25: "8", 56: "9", 29: "C", 27: "last", 19: "A"}
MAX_ENTRIES = 100  # a FAST message of this length may end in the middle of an event


def messages_of(directory: Path, protocol: str, stream: str, line: str = "A") -> Iterator[DecodedMessage]:
    """All messages of a stream and line, in the order of its files."""
    files = sorted((directory / "capture").glob(f"*-{protocol}-*-{stream}-{line}.pcap"))
    counts = DecodeCounts()
    readers = Readers(lambda: SbeReader(load_schema()), lambda: FastReader(load_templates()))
    for decoded in decode_files(files, readers, AUTO, counts):
        assert list(decoded.quarantine()) == [] and list(decoded.skip_reasons()) == []
        yield from decoded.messages(False)
    assert counts.is_undamaged and not counts.unrecognised


def truth_of(directory: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(directory / "truth" / f"{name}.parquet").to_pylist()


def nanos(text: str | None) -> int | None:
    return None if text is None else int(Decimal(text) * 10**9)


@dataclass
class Op:
    """One message or entry, in a form common to both protocols."""

    kind: (
        str  # order, thru, from, empty, trade, bust, summary, stat, state, phase, define, reset, heartbeat, band, news
    )
    instrument: int = 0
    rpt_seq: int | None = None
    action: int = 0
    side: str = ""
    price: int | None = None
    size: int | None = None
    id: int = 0
    firm: int | None = None
    prev: int | None = None
    position: int | None = None
    what: Any = None
    last: bool = False
    recovery: bool = False
    fields: dict[str, Any] = field(default_factory=dict)


def ops_of_sbe(message: DecodedMessage) -> Iterator[Op]:
    f, template = message.fields, message.template_id
    indicator = f.get("matchEventIndicator", 0)
    op = Op("", f.get("securityID", 0), f.get("rptSeq"), last=bool(indicator & END_OF_EVENT), fields=f)
    op.recovery, op.price = bool(indicator & RECOVERY), nanos(f.get("mDEntryPx"))
    op.size, op.position = f.get("mDEntrySize"), f.get("mDEntryPositionNo")
    op.side = {"0": "B", "1": "A"}.get(f.get("mDEntryType", ""), "")
    if template in (50, 51):
        op.kind, op.id, op.action = "order", f["secondaryOrderID"], f.get("mDUpdateAction", 2)
        op.firm, op.prev = f.get("enteringFirm"), f.get("mDEntryPrevSize")
    elif template == 52:
        op.kind = {3: "thru", 4: "from"}[f["mDUpdateAction"]]
    elif template in (53, 57):
        op.kind, op.id = {53: "trade", 57: "bust"}[template], f["tradeID"]
        op.what = (f.get("mDEntryBuyer"), f.get("mDEntrySeller"))
    elif template in SBE_STATISTICS:
        what: Any = SBE_STATISTICS[template]
        op.kind, op.what = "stat", (what, f["openCloseSettlFlag"]) if what in ("5", "6") else (what, None)
        op.action = f.get("mDUpdateAction", 0)
        if template == 56:
            op.price, op.size = nanos(f.get("vwapPx")), f["tradeVolume"]
    elif template in (21, 22):
        op.kind, op.what = "band", f.get("priceBandType", "h")
    else:
        names = {
            55: "summary",
            9: "empty",
            11: "reset",
            3: "state",
            10: "phase",
            12: "define",
            2: "heartbeat",
            1: "again",
        }
        op.kind = {**names, 5: "news"}[template]
    yield op


def ops_of_fast(message: DecodedMessage) -> Iterator[Op]:
    f, name = message.fields, message.name
    if not name.startswith(("MDIncremental", "ChannelReset")):
        kind = {"Heartbea": "heartbeat", "Sequence": "again", "News_143": "news", "SecurityL": "define"}.get(
            name[:8], ""
        )
        if name.startswith("SecurityList"):
            for entry in f["RelatedSym"]:
                yield Op("define", entry["SecurityID"], fields=entry)
        elif name.startswith("SecurityStatus"):
            yield Op("phase" if "SecurityGroup" in f else "state", f.get("SecurityID", 0), fields=f)
        else:
            yield Op(kind, fields=f)
        return
    entries = f["MDEntries"]
    for number, e in enumerate(entries):
        yield entry_of_fast(e, number == len(entries) - 1 and len(entries) < MAX_ENTRIES)


def entry_of_fast(e: dict[str, Any], last: bool = False) -> Op:
    letter, action = e["MDEntryType"], e.get("MDUpdateAction", 0)
    op = Op("", e.get("SecurityID", 0), e.get("RptSeq"), action, fields=e, last=last)
    op.price, op.size, op.position = nanos(e.get("MDEntryPx")), e.get("MDEntrySize"), e.get("MDEntryPositionNo")
    op.recovery = "R" in e.get("QuoteCondition", "").split()
    if letter in "01":
        op.side = "BA"[int(letter)]
        firm = e.get("MDEntryBuyer" if letter == "0" else "MDEntrySeller")
        op.kind, op.firm, op.prev = "order", None if firm is None else int(firm), e.get("MDEntryPrevSize")
        op.id = int(e.get("OrderID", 0))
        op.kind = {3: "thru", 4: "from"}.get(action, "order")
    elif letter == "J":
        op.kind = "empty" if op.instrument else "reset"
    elif letter == "2" and "U" not in e.get("TradeCondition", "").split():
        op.kind, op.id = "bust" if action == 2 else "trade", int(e["TradeID"])
        op.what = tuple(int(e[n]) if n in e else None for n in ("MDEntryBuyer", "MDEntrySeller"))
    elif letter in "gh":
        op.kind, op.what = "band", int(e["PriceBandType"]) if letter == "g" else "h"
    elif letter == "c":
        op.kind = "state"
    else:
        what: Any = "last" if letter == "2" else "TOP" if letter == "4" and e.get("OpenCloseSettlFlag") == 5 else letter
        op.kind, op.what = "stat", (what, e["OpenCloseSettlFlag"]) if letter in "56" else (what, None)
    return op


@dataclass
class Order:
    id: int
    price: int | None
    size: int
    firm: int | None

    def key(self, side: str) -> tuple[Any, ...]:
        if self.price is None:
            return (0, 0, self.id)
        return (1, -self.price if side == "B" else self.price, self.id)


class Client:
    """The state of a client after some messages. An assertion fails if the messages are inconsistent."""

    def __init__(self, by_position: bool) -> None:
        self.by_position = by_position
        self.books: dict[tuple[int, str], list[Order]] = {}
        self.rpt_seq: dict[int, int | None] = {}
        self.trades: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.busted: set[tuple[int, int]] = set()
        self.stats: dict[tuple[int, Any], tuple[int | None, int | None]] = {}
        self.states: dict[int, int] = {}
        self.separated: set[int] = set()  # instruments that do not follow their group
        self.phases: dict[str, int] = {}
        self.groups: dict[int, str] = {}
        self.summarised: dict[int, int] = {}  # quantity of a summary that is not traded yet
        self.counts: Counter[str] = Counter()
        self.last_id = self.last_implied = 0

    def book(self, instrument: int, side: str) -> list[Order]:
        return self.books.setdefault((instrument, side), [])

    def state_of(self, instrument: int) -> int | None:
        if instrument in self.separated:
            return self.states[instrument]
        return self.phases.get(self.groups.get(instrument, ""))

    def is_in_auction(self, instrument: int) -> bool:
        return self.state_of(instrument) in (21, 101)

    def take(self, op: Op, protocol: str) -> None:
        self.counts[op.kind] += 1
        if op.instrument and op.rpt_seq is not None:
            known = self.rpt_seq.get(op.instrument)
            assert op.rpt_seq == 1 + (known or 0), (op, known)
            self.rpt_seq[op.instrument] = op.rpt_seq
        if protocol == "sbe" and op.kind == "trade" and not self.is_in_auction(op.instrument):
            assert op.instrument in self.summarised, "a trade without its execution summary"
            self.summarised[op.instrument] -= op.size or 0
        getattr(self, f"_{op.kind}", lambda _: None)(op)
        if op.kind == "stat" and op.what[0] == "9":
            assert self.summarised.pop(op.instrument, 0) == 0, "the summary's quantity was not all traded"

    def _summary(self, op: Op) -> None:
        assert op.instrument not in self.summarised
        self.summarised[op.instrument] = op.fields["fillQty"]

    def _trade(self, op: Op) -> None:
        key = op.instrument, op.id
        assert key not in self.trades
        self.trades[key] = (op.price, op.size, *op.what)
        is_leg = op.fields.get("trdSubType") == 102 or "1" in op.fields.get("TradeCondition", "").split()
        if not is_leg:
            self.stats[op.instrument, ("last", None)] = (op.price, op.size)

    def _bust(self, op: Op) -> None:
        assert self.trades[op.instrument, op.id][:2] == (op.price, op.size)
        self.busted.add((op.instrument, op.id))

    def _order(self, op: Op) -> None:
        book = self.book(op.instrument, op.side)
        index = next((i for i, order in enumerate(book) if order.id == op.id), -1)
        if op.action == 0:
            assert index < 0, "a new order is there already"
            assert op.size and op.size > 0
            if not op.recovery:
                if op.id < 1 << 62:
                    assert op.id > self.last_id
                    self.last_id = op.id
                else:
                    assert op.id > self.last_implied or self.by_position  # restated with its id (14.3)
                    self.last_implied = max(self.last_implied, op.id)
            order = Order(op.id, op.price, op.size, op.firm)
            if self.by_position:
                assert op.position and 1 <= op.position <= len(book) + 1
                book.insert(op.position - 1, order)
            else:
                assert op.position is None
                book.append(order)
                book.sort(key=lambda one: one.key(op.side))
            return
        assert index >= 0, f"no living order {op}"
        if self.by_position:
            assert op.position == index + 1
        if op.action == 2:
            assert op.size in (None, book[index].size)
            if op.price is not None:
                assert op.price == book[index].price
            del book[index]
            return
        assert op.action == 1 and op.price == book[index].price
        if not self.by_position:
            assert op.prev == book[index].size
        book[index].size = op.size or 0
        assert book[index].size > 0

    def _from(self, op: Op) -> None:
        book = self.book(op.instrument, op.side)
        assert self.by_position and op.position and op.position <= len(book)
        del book[: op.position]

    def _thru(self, op: Op) -> None:
        self.book(op.instrument, op.side).clear()

    def _empty(self, op: Op) -> None:
        for side in "BA":
            self.book(op.instrument, side).clear()
        self.rpt_seq[op.instrument] = None

    def _reset(self, op: Op) -> None:
        self.books.clear()
        self.stats.clear()
        self.rpt_seq = dict.fromkeys(self.rpt_seq)

    def _stat(self, op: Op) -> None:
        if op.action == 2:
            assert self.stats.pop((op.instrument, op.what), None) is not None, op
        else:
            self.stats[op.instrument, op.what] = (op.price, op.size)

    def _define(self, op: Op) -> None:
        f = op.fields
        action = f.get("securityUpdateAction", f.get("SecurityUpdateAction"))
        self.groups[op.instrument] = f["securityGroup"] if "securityGroup" in f else f["SecurityGroup"]
        if action == "D":
            for side in "BA":
                self.book(op.instrument, side).clear()
            self.stats = {key: value for key, value in self.stats.items() if key[0] != op.instrument}
            self.states.pop(op.instrument, None)

    def _state(self, op: Op) -> None:
        f = op.fields
        name = "securityTradingStatus" if "securityTradingStatus" in f else "SecurityTradingStatus"
        self.states[op.instrument] = f[name]
        if f.get("securityTradingEvent", f.get("SecurityTradingEvent")) == 101:
            self.separated.add(op.instrument)
        else:
            self.separated.discard(op.instrument)

    def _phase(self, op: Op) -> None:
        f = op.fields
        group = f["securityGroup"] if "securityGroup" in f else f["SecurityGroup"]
        self.phases[group] = int(f["tradingSessionSubID" if "tradingSessionSubID" in f else "TradingSessionSubID"])
        members = {instrument for instrument, its in self.groups.items() if its == group}
        cleared: set[Any] = {"TOP", "A"} if self.phases[group] != 21 else set()
        if f.get("securityTradingEvent", f.get("SecurityTradingEvent")) == 4:
            cleared |= {"last", "4", "7", "8", "9", "B", "TOP"}
        self.stats = {key: v for key, v in self.stats.items() if key[0] not in members or key[1][0] not in cleared}

    def orders(self) -> set[tuple[Any, ...]]:
        return {
            (instrument, side, position, order.price, order.size, order.id, order.firm)
            for (instrument, side), book in self.books.items()
            for position, order in enumerate(book, 1)
        }


@dataclass
class Snapshot:
    """The snapshot of one instrument."""

    instrument: int
    last_sequence: int
    last_rpt_seq: int
    total: int
    loop: int
    fields: dict[str, Any]
    ops: list[Op]

    def orders(self) -> list[tuple[Any, ...]]:
        return [(op.side, op.price, op.size, op.id, op.firm) for op in self.ops if op.kind == "order"]

    def stats(self) -> dict[Any, tuple[int | None, int | None]]:
        return {op.what: (op.price, op.size) for op in self.ops if op.kind == "stat"}


def snapshots_of(directory: Path, protocol: str) -> list[Snapshot]:
    return list(_sbe_snapshots(directory) if protocol == "sbe" else _fast_snapshots(directory))


def _sbe_snapshots(directory: Path) -> Iterator[Snapshot]:
    current: Snapshot | None = None
    loop = 0
    for message in messages_of(directory, "sbe", "snapshot"):
        f = message.fields
        if message.template_id in (30, 1):
            if current:
                yield current
            current = None
        if message.template_id == 1:
            loop += 1
        elif message.template_id == 30:
            sequence, rpt_seq = f["lastMsgSeqNumProcessed"], f.get("lastRptSeq", 0)
            current = Snapshot(f["securityID"], sequence, rpt_seq, f["totNumReports"], loop, f, [])
        elif message.template_id == 71:
            assert current and current.instrument == f["securityID"]
            for entry in f["noMDEntries"]:
                price, size, side = nanos(entry.get("mDEntryPx")), entry["mDEntrySize"], "BA"[int(entry["mDEntryType"])]
                firm, position = entry.get("enteringFirm"), entry.get("mDEntryPositionNo")
                order = Op("order", f["securityID"], None, 0, side, price, size, entry["secondaryOrderID"], firm)
                order.position = position
                current.ops.append(order)
        elif message.template_id not in (10, 2):
            assert current and current.instrument == f["securityID"] and "rptSeq" not in f
            current.ops += ops_of_sbe(message)
    assert current is None, "the last loop is complete"


def _fast_snapshots(directory: Path) -> Iterator[Snapshot]:
    loop = 0
    for message in messages_of(directory, "fast", "snapshot"):
        f = message.fields
        if message.name.startswith(("SequenceReset", "Heartbeat")):
            loop += message.name.startswith("SequenceReset")
            continue
        sequence, rpt_seq = f["LastMsgSeqNumProcessed"], f.get("RptSeq", 0)
        ops = [entry_of_fast(entry) for entry in f["MDEntries"]]
        for op in ops:
            if op.kind == "trade":  # 269=2 in a snapshot is the last price
                op.kind, op.what = "stat", ("last", None)
        yield Snapshot(f["SecurityID"], sequence, rpt_seq, f["TotNumReports"], loop, f, ops)
