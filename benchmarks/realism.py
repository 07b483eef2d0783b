"""Made-up days beside real traffic: `python -m benchmarks.realism` prints the table of docs/design/exchange.md.

The figures of a day come from its capture, read with nothing but struct and the offsets of the schema. Real figures
are those that are known of published traffic: the peak is that of a busy channel, all others are of a quiet
derivatives channel. So there are two kinds of days: a quiet one, with as many messages for each instrument as that
channel, and a busy one. A quiet day is two minutes long and its figures depend on the seed, the longest lives most: the
table has the median of five.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.wire.sbe.loader import load

FRAMES = 42  # bytes of Ethernet, IP and UDP headers
PACKET_HEADER, MESSAGE_HEADER = (
    16,
    struct.Struct("<HHHHHH"),
)  # length, encoding, block length, template, schema, version
ORDER, DELETE, TRADE, SUMMARY, EXECUTION, BAND, HEARTBEAT = 50, 51, 53, 55, 56, 22, 2
NEW = 0  # 279
INTERVAL_NS = 100_000_000
FACTOR = 1.5
PEAK = "peak of 100 ms over the mean"
QUIET_DAYS = 5
QUIET = BulkSettings(20_000, 150, lines="A", seed=7, rate=160)
BUSY = BulkSettings(1_000_000, 150, lines="A", seed=7)


@dataclass(frozen=True)
class Figure:
    name: str
    real: float
    made_up: float
    unit: str = "%"

    @property
    def is_close(self) -> bool:
        return self.real / FACTOR <= self.made_up <= self.real * FACTOR


@dataclass
class Traffic:
    """What is counted of an incremental stream."""

    templates: Counter[int] = field(default_factory=Counter)
    packet_sizes: Counter[int] = field(default_factory=Counter)  # packets by their number of messages
    instruments: Counter[int] = field(default_factory=Counter)
    intervals: Counter[int] = field(default_factory=Counter)  # packets
    actions: Counter[int] = field(default_factory=Counter)
    lives_ns: list[int] = field(default_factory=list)
    born_ns: dict[int, int] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        offsets = {
            template: {field.name: field.offset for field in load().messages[template].sent_fields}
            for template in (ORDER, DELETE)
        }
        for ts_ns, packet in packets(path):
            at, messages = PACKET_HEADER, 0
            while at < len(packet):
                length, _, _, template, _, _ = MESSAGE_HEADER.unpack_from(packet, at)
                self.templates[template] += 1
                if template in offsets:
                    self._order(packet, at + MESSAGE_HEADER.size, template, offsets[template])
                at, messages = at + length, messages + 1
            if template != HEARTBEAT:
                self.intervals[ts_ns // INTERVAL_NS] += 1
            self.packet_sizes[messages] += 1

    def _order(self, packet: bytes, block: int, template: int, offsets: dict[str, int]) -> None:
        def uint64(name: str) -> int:
            return int.from_bytes(packet[block + offsets[name] : block + offsets[name] + 8], "little")

        self.instruments[uint64("securityID")] += 1
        order_id, ts_ns = uint64("secondaryOrderID"), uint64("transactTime")
        if template == DELETE:
            if order_id in self.born_ns:
                self.lives_ns.append(ts_ns - self.born_ns.pop(order_id))
            return
        action = packet[block + offsets["mDUpdateAction"]]
        self.actions[action] += 1
        if action == NEW:
            self.born_ns[order_id] = ts_ns

    def figures(self) -> Iterator[Figure]:
        trading = self.templates.total() - self.templates[HEARTBEAT]
        # Of the real channel 42 % were heartbeats: it was quiet. Here shares are of what is not.
        for name, template, share in (
            ("orders (50)", ORDER, 28), ("deletes (51)", DELETE, 18), ("trades (53)", TRADE, 3.5),
            ("execution summaries (55)", SUMMARY, 2.5), ("execution statistics (56)", EXECUTION, 2.5),
            ("price bands (22)", BAND, 1.4),
        ):  # fmt: skip
            yield Figure(name, share / 0.58, 100 * self.templates[template] / trading)
        yield Figure("packets of one message", 93, 100 * self.packet_sizes[1] / self.packet_sizes.total())
        yield Figure("most messages in a packet", 18, max(self.packet_sizes), "")
        shares = [100 * count / self.instruments.total() for _, count in self.instruments.most_common()]
        yield Figure("orders in the top 5", 50, sum(shares[:5]))
        yield Figure("orders in the top 20", 96, sum(shares[:20]))
        lives = sorted(self.lives_ns)
        for percent, real_ms in ((10, 1), (50, 20), (90, 17_000)):
            yield Figure(f"life of an order, p{percent}", real_ms, lives[len(lives) * percent // 100] / 1e6, "ms")
        yield Figure("new orders, of new and changed", 94, 100 * self.actions[NEW] / self.actions.total())
        spanned = max(self.intervals) - min(self.intervals) + 1
        mean = self.intervals.total() / spanned
        yield Figure(PEAK, 24, max(self.intervals.values()) / mean, "")


def packets(path: Path) -> Iterator[tuple[int, bytes]]:
    """Time and payload of each packet of a pcap file with nanoseconds."""
    content, at, record = path.read_bytes(), 24, struct.Struct("<IIII")
    while at < len(content):
        seconds, nanoseconds, length, _ = record.unpack_from(content, at)
        yield seconds * 1_000_000_000 + nanoseconds, content[at + 16 + FRAMES : at + 16 + length]
        at += 16 + length


def measure(settings: BulkSettings) -> list[Figure]:
    traffic = Traffic()
    with tempfile.TemporaryDirectory() as directory:
        write_capture(settings, Path(directory))
        for path in sorted(Path(directory).glob("capture/*-incremental-A.pcap")):
            traffic.read(path)
    return list(traffic.figures())


def median_day(settings: BulkSettings, count: int) -> list[Figure]:
    """The median of each figure over days of consecutive seeds."""
    days = [measure(replace(settings, seed=settings.seed + number)) for number in range(count)]
    return [
        replace(figures[0], made_up=median(figure.made_up for figure in figures))
        for figures in zip(*days, strict=True)
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=QUIET.seed)
    seed = parser.parse_args().seed
    print("| | real | quiet day | busy day | within 1.5 |\n|---|---|---|---|---|")
    quiet_day = median_day(replace(QUIET, seed=seed), QUIET_DAYS)
    for quiet, busy in zip(quiet_day, measure(replace(BUSY, seed=seed)), strict=True):
        unit = f" {quiet.unit}" if quiet.unit else ""
        is_close = (busy if quiet.name == PEAK else quiet).is_close
        values = " | ".join(f"{value:.3g}{unit}" for value in (quiet.real, quiet.made_up, busy.made_up))
        print(f"| {quiet.name} | {values} | {'yes' if is_close else 'no'} |")


if __name__ == "__main__":
    main()
