"""A tiny exchange in plain Python: it sends one Binary channel, and knows what is right after every packet.

    exchange = SmallExchange(Random(7))
    exchange.run(150)                       # packets of the incremental stream, and snapshots between them
    exchange.sent()                         # packets of all streams, in order of time
    exchange.truth[epoch, sequence]         # what is right after that packet, by instrument

Invariant: the truth is taken from dicts of orders and trades, never from the bytes that are sent. What a message does
is done after it was added to its packet, because the packet before it may end there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sync.small_exchange_model import (
    BID,
    CHANGE,
    CLOSE,
    DELETE_THRU,
    NEW,
    NO_FLAGS,
    OFFER,
    OPEN,
    PHASES,
    REJOINS,
    SEPARATES,
    SESSION_CHANGE,
    TRADE_DATE,
    UNKNOWN,
    Fields,
    Instrument,
    Message,
    Order,
    Trade,
    View,
    high_fields,
    phase_fields,
)

from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

CHANNEL, MS = 72, 1_000_000
SCHEMA = load(None)
INCREMENTAL, SNAPSHOT, INSTRUMENTS = "incremental", "snapshot", "instruments"
LOOP_VERSIONS = {SNAPSHOT: 7, INSTRUMENTS: 8}
END_OF_EVENT, RECOVERY = 128, 32  # MatchEventIndicator
GROUPS = {"AA": (11, 12, 13), "BB": (21, 22)}
CREATED_LATER = {23: "BB", 14: "AA"}
ALL_INSTRUMENTS = sorted({number for ids in GROUPS.values() for number in ids} | CREATED_LATER.keys())
LOOP_STARTS, LOOP_ENDS = -1, -2
# What may happen, and how often; the first of an instrument, the others of the channel.
INSTRUMENT_EVENTS = {
    "add_order": 40, "change_order": 12, "delete_order": 12, "mass_delete": 2, "trade": 14, "bust": 3, "empty_book": 3,
    "change_state": 5, "change_session_of_instrument": 1,
}  # fmt: skip
CHANNEL_EVENTS = {
    "change_phase": 4, "change_session": 2, "channel_reset": 0.7, "create_instrument": 1.5, "delete_instrument": 0.6,
}  # fmt: skip


@dataclass(frozen=True)
class SentPacket:
    """`sequence` is 0 for a heartbeat. Snapshot and instrument streams have their own numbers."""

    ts: int
    stream: str
    epoch: int
    sequence: int
    content: bytes


class SmallExchange:
    def __init__(self, random: Random, *, first_sequence: int = 1, epoch: int = 273, has_events: bool = True) -> None:
        self._random, self._has_events = random, has_events  # whether statuses have 1174
        self.instruments = {number: Instrument(number, group) for group, ids in GROUPS.items() for number in ids}
        self._phases = dict.fromkeys(GROUPS, UNKNOWN)
        self._uncreated = dict(CREATED_LATER)
        self.epoch, self.sequence = epoch, first_sequence - 1
        self.now = 1_000_000 * MS
        self.truth: dict[tuple[int, int], dict[int, View]] = {}
        self._packets: list[tuple[str, Packet]] = []
        self._messages: list[Message] = []  # of the packet that has not ended
        self._last_id = 1000
        self._numbers = {SNAPSHOT: 0, INSTRUMENTS: 0}
        self._snapshot_loop: list[int] = []  # what the current loop has still to show
        self._start()

    def _start(self) -> None:
        self._record()
        for group, phase in self._phases.items():
            self._send_phase(group, OPEN if phase == UNKNOWN else phase)
        self._end_packet()

    def sent(self) -> list[SentPacket]:
        encoded = compose(SCHEMA, [packet for _, packet in self._packets])
        content = encoded.buffer.tobytes()
        spans = zip(self._packets, encoded.start.tolist(), encoded.end.tolist(), strict=True)
        return [
            SentPacket(packet.sending_time, stream, packet.seq_version, packet.sequence, content[start:end])
            for (stream, packet), start, end in spans
        ]

    # A session.

    def run(self, packets: int, *, snapshots: float = 0.3) -> None:
        """Send this many packets of the incremental stream, with loops of the others between them."""
        last = self.sequence + packets
        events = INSTRUMENT_EVENTS | CHANNEL_EVENTS
        while self.sequence < last:
            name = self._random.choices(list(events), list(events.values()))[0]
            arguments = [self._random.choice(list(self.instruments.values()))] if name in INSTRUMENT_EVENTS else []
            getattr(self, name)(*arguments)
            self._end_event()
            if self._random.random() < snapshots:
                self.snapshot_step()
            if self._random.random() < 0.02:
                self.instrument_loop()
            if self._random.random() < 0.03:
                self.heartbeat()
        self._end_packet()

    def rest(self) -> None:
        """Nothing happens any more: heartbeats, lists of instruments and snapshot loops, for longer than any doubt."""
        self._end_packet()
        self._snapshot_loop = []
        for _ in range(3):
            self.instrument_loop()
            self.pause(600)
            self.heartbeat()
            while not self.snapshot_step():
                pass
        self.instrument_loop()
        self.heartbeat()

    def pause(self, ms: int) -> None:
        self._end_packet()
        self.now += ms * MS

    def restart(self) -> None:
        """The numbering starts again, with the books as they were or with none (4.2.8)."""
        self._end_packet()
        self.epoch, self.sequence = self.epoch + 5, 0
        if self._random.random() < 0.5:
            self.instruments = {number: Instrument(number, each.group) for number, each in self.instruments.items()}
            self._phases = dict.fromkeys(self._phases, UNKNOWN)
        self._snapshot_loop = []
        self._start()

    # Packets.

    def _record(self) -> None:
        self.truth[self.epoch, self.sequence] = {
            number: found.view(self._phases[found.group]) for number, found in self.instruments.items()
        }

    def _send(self, template: int, fields: Fields, flags: int | None = 0) -> None:
        """Add a message to the current event; an event may span packets."""
        if self._messages and self._random.random() < 0.12:
            self._end_packet()
        self._messages.append((template, fields if flags is None else fields | {"matchEventIndicator": flags}))

    def _end_event(self) -> None:
        if self._messages and "matchEventIndicator" in self._messages[-1][1]:
            self._messages[-1][1]["matchEventIndicator"] |= END_OF_EVENT
        if self._random.random() < 0.8:
            self._end_packet()

    def _end_packet(self) -> None:
        if self._messages:
            self.sequence += 1
            self._add_packet(INCREMENTAL, self._messages, self.epoch, self.sequence)
            self._messages = []
            self._record()

    def _add_packet(self, stream: str, messages: list[Message], epoch: int, sequence: int) -> None:
        self.now += self._random.randint(1, 80) * MS // 10
        self._packets.append((stream, Packet(messages, CHANNEL, epoch, sequence, self.now)))

    def _add_loop_packet(self, stream: str, messages: list[Message]) -> None:
        self._numbers[stream] += 1
        self._add_packet(stream, messages, LOOP_VERSIONS[stream], self._numbers[stream])

    def heartbeat(self) -> None:
        self._end_packet()
        self._add_packet(INCREMENTAL, [(2, {"nextSeqNo": self.sequence + 1})], self.epoch, 0)

    def _next_rpt_seq(self, found: Instrument) -> Fields:
        found.rpt_seq += 1
        return {"securityID": found.instrument_id, "rptSeq": found.rpt_seq}

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # Orders and trades.

    def add_order(self, found: Instrument) -> None:
        side = self._random.choice((BID, OFFER))
        price = self._random.randint(90, 100) if side == BID else self._random.randint(101, 110)
        order = Order(self._new_id(), side, price, self._random.randint(1, 9) * 100, self.now + self._last_id)
        self._send_order(found, order, NEW)

    def _send_order(self, found: Instrument, order: Order, action: int, flags: int = 0) -> None:
        more = {"mDUpdateAction": action, "transactTime": self.now}
        self._send(50, self._next_rpt_seq(found) | order.fields() | more, flags)
        found.orders[order.order_id] = order

    def change_order(self, found: Instrument) -> None:
        if not found.orders:
            return self.add_order(found)
        order = self._random.choice(list(found.orders.values()))
        return self._send_order(found, replace(order, size=max(1, order.size - 100)), CHANGE)

    def delete_order(self, found: Instrument) -> None:
        if not found.orders:
            return self.add_order(found)
        return self._send_delete(found, self._random.choice(list(found.orders.values())))

    def _send_delete(self, found: Instrument, order: Order) -> None:
        fields = {name: value for name, value in order.fields().items() if name != "mDInsertTimestamp"}
        self._send(51, self._next_rpt_seq(found) | fields | {"transactTime": self.now})
        del found.orders[order.order_id]

    def mass_delete(self, found: Instrument) -> None:
        side = self._random.choice((BID, OFFER))
        self._send(52, self._next_rpt_seq(found) | {"mDUpdateAction": DELETE_THRU, "mDEntryType": side})
        found.orders = {number: order for number, order in found.orders.items() if order.side != side}

    def trade(self, found: Instrument) -> None:
        if not found.orders:
            return self.add_order(found)
        order = self._random.choice(list(found.orders.values()))
        size = self._random.choice((order.size, max(1, order.size // 2)))
        summary = {"aggressorSide": 1, "lastPx": order.price, "fillQty": size}
        self._send(55, self._next_rpt_seq(found) | summary, None)
        trade = Trade(order.price, size, self._new_id(), self.now)
        self._send(53, self._next_rpt_seq(found) | trade.fields() | {"tradeCondition": 0, "transactTime": trade.ts})
        found.last = found.trades[trade.trade_id] = trade
        if size == order.size:
            self._send_delete(found, order)
        else:
            self._send_order(found, replace(order, size=order.size - size), CHANGE)
        if found.high is None or order.price > found.high:
            self._send_high(found, order.price)
        return None

    def _send_high(self, found: Instrument, high: int) -> None:
        self._send(24, self._next_rpt_seq(found) | high_fields(high))
        found.high = high

    def bust(self, found: Instrument) -> None:
        """A trade is cancelled; its price stays the last one until another is sent (13.4)."""
        if not found.trades:
            return self.trade(found)
        trade = found.trades[self._random.choice(list(found.trades))]
        self._send(57, self._next_rpt_seq(found) | trade.fields() | {"transactTime": self.now})
        del found.trades[trade.trade_id]
        return None

    # Books and channels that are sent again.

    def empty_book(self, found: Instrument) -> None:
        """The book is sent again from the start; statistics stay (4.2.9)."""
        self._send(9, {"securityID": found.instrument_id, "mDEntryTimestamp": self.now})
        orders, found.orders, found.rpt_seq = found.orders, {}, 0
        self._resend_orders(found, orders)

    def _resend_orders(self, found: Instrument, orders: dict[int, Order]) -> None:
        for order in orders.values():
            self._send_order(found, order, NEW, RECOVERY)

    def channel_reset(self) -> None:
        """All books and statistics are gone and sent again, then all states (4.2.9, 13.9)."""
        self._send(11, {"mDEntryTimestamp": self.now})
        before = [(found, found.orders, found.last, found.high) for found in self.instruments.values()]
        for found, *_ in before:
            found.orders, found.last, found.high, found.rpt_seq = {}, None, None, 0
        for found, orders, last, high in before:
            self._send(9, {"securityID": found.instrument_id, "mDEntryTimestamp": self.now})
            self._resend_orders(found, orders)
            if last is not None:
                self._send(27, self._next_rpt_seq(found) | last.last_price_fields())
                found.last = last
            if high is not None:
                self._send_high(found, high)
        for group, phase in self._phases.items():
            self._send_phase(group, phase)
        for found in self.instruments.values():
            self._send_state(found, found.own_state, self._membership(found))

    # Definitions, phases, states.

    def create_instrument(self) -> None:
        """With its first status, without which its state is unknown (7.1)."""
        if self._uncreated:
            self._end_packet()
            found = Instrument(*self._uncreated.popitem())
            self._messages.append(found.definition("A"))
            state = self._random.choice(self._other_states(found.group))
            fields = self._next_rpt_seq(found) | self._state_fields(found, state, SEPARATES)
            self._messages.append((3, fields | NO_FLAGS))
            found.own_state, self.instruments[found.instrument_id] = state, found

    def delete_instrument(self) -> None:
        if len(self.instruments) > 3:
            self._end_packet()
            found = self.instruments.pop(self._random.choice(list(self.instruments)))
            self._messages.append(found.definition("D"))

    def change_phase(self, group: str | None = None, phase: int | None = None) -> None:
        """Without 1174, a separated instrument is never in the phase of its group: nobody could tell (legacy 14.6)."""
        group = group or self._random.choice(list(self._phases))
        members = [found for found in self.instruments.values() if found.group == group]
        taken = () if self._has_events else {found.own_state for found in members}
        allowed = [each for each in PHASES if each not in taken]
        self._send_phase(group, phase if phase in allowed else self._random.choice(allowed))

    def _send_phase(self, group: str, phase: int, event: int | None = None) -> None:
        self._send(10, phase_fields(group, phase, self.now) | {"securityTradingEvent": event})
        self._phases[group] = phase

    def change_session(self) -> None:
        """The statistics of the day end, of a whole group that is closed (11.3)."""
        group = self._random.choice(list(self._phases))
        if self._phases[group] != CLOSE:
            return self.change_phase(group, CLOSE)
        self._send_phase(group, CLOSE, SESSION_CHANGE)
        for found in self.instruments.values():
            if found.group == group:
                found.last, found.high, found.trades = None, None, {}
        return None

    def change_session_of_instrument(self, found: Instrument) -> None:
        self._send_state(found, found.own_state, SESSION_CHANGE)
        found.last, found.high, found.trades = None, None, {}

    def change_state(self, found: Instrument) -> None:
        """It separates, takes another state of its own, or rejoins."""
        is_stated = self._has_events and self._random.random() < 0.7
        if found.own_state is not None and self._random.random() < 0.5:
            return self._send_state(found, None, REJOINS if is_stated else None)
        states = PHASES if is_stated else self._other_states(found.group)
        return self._send_state(found, self._random.choice(states), SEPARATES if is_stated else None)

    def _other_states(self, group: str) -> list[int]:
        return [each for each in PHASES if each != self._phases[group]]

    def _membership(self, found: Instrument) -> int:
        return REJOINS if found.own_state is None else SEPARATES

    def _send_state(self, found: Instrument, own_state: int | None, event: int | None) -> None:
        self._send(3, self._next_rpt_seq(found) | self._state_fields(found, own_state, event))
        found.own_state = own_state

    def _state_fields(self, found: Instrument, own_state: int | None, event: int | None) -> dict[str, Any]:
        return {
            "securityID": found.instrument_id,
            "tradingSessionID": 1,
            "securityTradingStatus": self._phases[found.group] if own_state is None else own_state,
            "securityTradingEvent": event if self._has_events or event == SESSION_CHANGE else None,
            "tradeDate": TRADE_DATE,
            "transactTime": self.now,
        }

    # Snapshots and the list of instruments.

    def snapshot_step(self) -> bool:
        """Send the next part of the snapshot loop; returns whether it was the last."""
        self._end_packet()
        if not self._snapshot_loop:
            self._numbers[SNAPSHOT] = 0
            self._snapshot_loop = [LOOP_STARTS, *self.instruments, LOOP_ENDS]
        number = self._snapshot_loop.pop(0)
        if number == LOOP_STARTS:
            phases = [(10, phase_fields(*each, self.now) | NO_FLAGS) for each in self._phases.items()]
            self._add_loop_packet(SNAPSHOT, phases)
        elif number == LOOP_ENDS:
            self._add_loop_packet(SNAPSHOT, [(1, {})])
        elif number in self.instruments:
            found = self.instruments[number]
            state = self._state_fields(found, found.own_state, self._membership(found))
            messages = found.snapshot(self.sequence, self.epoch, len(self.instruments), state)
            cut = self._random.randint(1, len(messages))
            for part in (messages[:cut], messages[cut:]):
                if part:
                    self._add_loop_packet(SNAPSHOT, part)
        return number == LOOP_ENDS

    def instrument_loop(self) -> None:
        self._end_packet()
        self._numbers[INSTRUMENTS] = 0
        total = len(self.instruments)
        for number, found in enumerate(self.instruments.values(), 1):
            self._add_loop_packet(INSTRUMENTS, [found.definition("A", total, is_last=number == total)])
        self._add_loop_packet(INSTRUMENTS, [(1, {})])
