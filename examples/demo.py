"""`make demo`: captures of both protocols, a synthetic day, its books and its lake; a live exchange and its client."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from umdf.cli.replay import expand_captures, replay
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.schemas import tables
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

OUT = Path("demo-out")
OPEN_NS = 1_763_038_800_000_000_000  # 2025-11-13 13:00 UTC, 10:00 in São Paulo
TODAY = 20_405  # days since 1970
PETR4, FIRM_A, FIRM_B = 200_000_000_001, 3, 85
LINE_A = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
END_OF_EVENT = 1 << 7
LIVE_S, LATE_S = 30, 6  # of the live exchange, and when the client joins it
LIVE_EXCHANGE = """
[exchange]
instruments = 100
start = "2026-11-16 09:59:50"
messages_per_s = 300
[network]
first_port = {port}
[faults]
loss = 0.05
common_loss = 0.005
[replayer]
address = "127.0.0.1:{replayer_port}"
comp_id = "REPLAYER"
[[channel]]
number = 72
protocol = "fast"
types = ["CS", "PS", "OPT", "ETF"]
[[channel]]
number = 78
protocol = "sbe"
types = ["FUT", "MLEG"]
"""
SYMBOL = "WINZ26"  # one that the generator always lists


Message = tuple[str, dict[str, Any]]


def order(number: int, side: str, price: str, size: int, firm: int, rpt_seq: int, at_ns: int) -> Message:
    return "Order_MBO_50", {
        "securityID": PETR4,
        "matchEventIndicator": END_OF_EVENT,
        "mDUpdateAction": 0,
        "mDEntryType": side,
        "mDEntryPx": price,
        "mDEntrySize": size,
        "enteringFirm": firm,
        "mDInsertTimestamp": at_ns,
        "secondaryOrderID": number,
        "rptSeq": rpt_seq,
        "transactTime": at_ns,
    }


def sample_packets() -> list[Packet]:
    """A definition, an opening phase, two orders, a trade, a heartbeat."""
    definition = {
        "securityID": PETR4,
        "securityExchange": "BVMF",
        "securityIDSource": "8",
        "securityGroup": "TST",
        "symbol": "PETR4",
        "securityUpdateAction": "A",
        "securityType": 14,
        "securitySubType": 1004,
        "totNoRelatedSym": 1,
        "minPriceIncrement": "0.01",
        "securityValidityTimestamp": 253_402_300_799,
        "issueDate": 10_000,
        "isinNumber": "BRPETRACNPR6",
        "asset": "PETR",
        "cfiCode": "EPNNPR",
        "currency": "BRL",
        "product": 5,
        "tickSizeDenominator": 2,
        "lastFragment": 1,
        "noInstrAttribs": [{"instrAttribType": 24, "instrAttribValue": 1}],
        "securityDesc": "PETROBRAS PN",
    }
    phase = {
        "securityGroup": "TST",
        "matchEventIndicator": END_OF_EVENT,
        "tradingSessionID": 1,
        "tradingSessionSubID": 17,
        "tradeDate": TODAY,
        "transactTime": OPEN_NS,
    }
    order_ns = OPEN_NS + 1_500_000
    match = {"securityID": PETR4, "transactTime": order_ns + 40_000}
    summary = match | {
        "aggressorSide": 2,
        "lastPx": "38.11",
        "fillQty": 300,
        "aggressorTime": order_ns + 39_000,
        "rptSeq": 3,
    }
    trade = match | {"matchEventIndicator": 0, "tradingSessionID": 1, "tradeCondition": 1 << 13, "mDEntryPx": "38.11"}
    trade |= {"mDEntrySize": 300, "tradeID": 10, "mDEntryBuyer": FIRM_A, "mDEntrySeller": FIRM_B, "rptSeq": 4}
    deleted_order = match | {"matchEventIndicator": 0, "mDEntryType": "0", "mDEntrySize": 300, "secondaryOrderID": 9001}
    day = {"securityID": PETR4, "matchEventIndicator": END_OF_EVENT, "tradingSessionID": 1, "tradeDate": TODAY}
    day |= {
        "tradeVolume": 300,
        "vwapPx": "38.11",
        "numberOfTrades": 1,
        "mDEntryTimestamp": order_ns + 40_000,
        "rptSeq": 6,
    }
    contents: list[list[Message]] = [
        [("SecurityDefinition_12", definition)],
        [("SecurityGroupPhase_10", phase)],
        [
            order(9001, "0", "38.11", 300, FIRM_A, 1, order_ns),
            order(9002, "1", "38.14", 500, FIRM_B, 2, order_ns + 9_000),
        ],
        [
            ("ExecutionSummary_55", summary),
            ("Trade_53", trade | {"tradeDate": TODAY}),
            ("DeleteOrder_MBO_51", deleted_order | {"rptSeq": 5, "mDEntryPx": "38.11"}),
            ("ExecutionStatistics_56", day),
        ],
        [("Sequence_2", {"nextSeqNo": 5})],
    ]
    sequences = (1, 2, 3, 4, 0)  # a heartbeat takes no number
    return [
        Packet(messages, channel=72, sequence=sequence, sending_time=OPEN_NS + i * 1_000_000)
        for i, (sequence, messages) in enumerate(zip(sequences, contents, strict=True))
    ]


def write_capture(path: Path) -> None:
    packets = compose(load(), sample_packets())
    ts_ns = OPEN_NS + 150_000 + 1_000_000 * np.arange(len(packets.start))
    with PcapWriter(path) as writer:
        writer.write_batch(packets.buffer, packets.start, packets.end, ts_ns, *LINE_A)
        # A truncated packet: it is quarantined, and nothing else is affected.
        damaged = packets.buffer[packets.start[3] : packets.end[3] - 30].tobytes()
        writer.write(int(ts_ns[-1]) + 1_000_000, damaged, *LINE_A)


def sample_fast_messages() -> list[tuple[int, dict[str, Any]]]:
    """The phase, the first order and the trade once more: (template, values)."""
    entry = {"SecurityID": PETR4, "MDEntryDate": 20251113, "SecurityIDSource": 8, "SecurityExchange": "BVMF"}
    bid = entry | {"MDUpdateAction": 0, "MDEntryType": "0", "RptSeq": 1, "MDEntryPx": Decimal(-2, 3811)}
    bid |= {"MDEntrySize": 300, "OrderID": "9001", "MDEntryBuyer": str(FIRM_A), "MDEntryTime": 130000001}
    bid |= {"MDInsertDate": 20251113, "MDInsertTime": 130000001}
    trade = entry | {"MDUpdateAction": 0, "MDEntryType": "2", "RptSeq": 4, "MDEntryPx": Decimal(-2, 3811)}
    trade |= {"MDEntrySize": 300, "TradeID": "10", "MDEntryBuyer": str(FIRM_A), "MDEntrySeller": str(FIRM_B)}
    trade |= {"TradingSessionID": 1, "MDEntryTime": 130000001}
    phase = {"SecurityGroup": "TST", "TradingSessionSubID": "17", "TradingSessionID": 1, "TradeDate": 20251113}
    phase |= {"TransactTime": 20251113130000000}
    return [(142, phase), (152, {"MDEntries": [bid]}), (152, {"MDEntries": [trade]})]


def write_fast_capture(path: Path) -> None:
    encoder = Writer(load_templates())
    with PcapWriter(path) as writer:
        for sequence, (template_id, values) in enumerate(sample_fast_messages(), 1):
            head = {"ApplVerID": "9", "MsgType": "f" if template_id == 142 else "X"}
            head |= {"MsgSeqNum": sequence, "SendingTime": 20251113130000000 + sequence}
            message = encoder.encode(template_id, head | values)
            technical_header = struct.pack(">IHHH", sequence, 1, 1, len(message))
            writer.write(OPEN_NS + sequence * 1_000_000, technical_header + message, *LINE_A)


def umdf_command(*command: str) -> list[str]:
    return [str(Path(sys.executable).parent / "umdf"), *command]


def run_and_print(*command: str) -> None:
    print(f"\n$ umdf {' '.join(command)}", flush=True)
    subprocess.run(umdf_command(*command), check=True)


def compare_as_fix(sbe: Path, fast: Path) -> None:
    """The same three messages in both protocols, as FIX."""
    print("\nthe same three messages in FAST and in SBE, as FIX:", flush=True)
    lines = [
        subprocess.run(umdf_command("decode", str(path), "--format", "fix"), check=True, capture_output=True, text=True)
        for path in (fast, sbe)
    ]
    in_fast, in_sbe = (done.stdout.splitlines() for done in lines)
    for kind, fast_line, sbe_line in zip(
        ("phase", "order", "trade"), in_fast, (in_sbe[1], in_sbe[2], in_sbe[5]), strict=True
    ):
        print(f"  {kind}\n    FAST  {fast_line}\n    SBE   {sbe_line}")


def simulate_day(day: Path) -> None:
    """A synthetic session with loss on both lines, and one book of it: as it was, and as it ended."""
    shutil.rmtree(day, ignore_errors=True)
    size = ("--messages", "60000", "--instruments", "40", "--loss", "0.002", "--roll-s", "5")
    run_and_print("exchange", "capture", *size, str(day))
    run_and_print("book", str(day / "capture"), "--symbols", SYMBOL, "--at", "12:45:20", "--depth", "5")
    print("\nall instruments when the day ends, the first five:", flush=True)
    done = subprocess.run(umdf_command("book", str(day / "capture")), check=True, capture_output=True, text=True)
    print(done.stderr + "\n".join(done.stdout.splitlines()[:6]))


def compare_with_truth(day: Path) -> None:
    """The rebuilt books beside those of the generator."""
    replayed = replay(expand_captures([day / "capture"]), load(), load_templates())
    [channel] = replayed.session.channels.values()
    truth: dict[int, list[tuple[str, int]]] = {}
    for row in pq.read_table(day / "truth" / "final_orders.parquet").to_pylist():
        truth.setdefault(row["instrument_id"], []).append((row["side"], row["order_id"]))
    equal = stale = 0
    for instrument_id in channel.instrument_ids():
        book = channel.book(instrument_id)
        assert book is not None
        sides = (("B", book.bids), ("A", book.asks))
        ours = [(side, order.order_id) for side, levels in sides for level in levels for order in level.orders]
        equal += sorted(ours, key=str) == sorted(truth.get(instrument_id, []), key=str)
        stale += not channel.book_trust(instrument_id).is_healthy
    books = len(channel.instrument_ids())
    print(f"\n{equal} of {books} books equal the exchange's own; {stale} are stale and say so")


def build_lake(day: Path, lake: Path) -> None:
    """The day as Delta tables by Spark, and a report of it."""
    shutil.rmtree(lake, ignore_errors=True)
    run_and_print("ingest", str(day / "capture"), "--lake", str(lake))
    run_and_print("report", str(lake), "--out", str(OUT / "report.html"))
    query = ("query", str(lake), "--symbols", SYMBOL, "--schema")
    run_and_print(*query, "ohlcv-1s", "--columns", "ts_interval,open,high,low,close,volume", "--limit", "5")
    run_and_print(*query, "mbp-1", "--chart", str(OUT / "quotes.html"))


def stream_recording(day: Path, lake: Path, streamed: Path) -> None:
    """The same files once more, a few at a time, as if the day still went on: the tables are the same."""
    shutil.rmtree(streamed, ignore_errors=True)
    run_and_print("stream", str(day / "capture"), "--lake", str(streamed), "--once", "--finish", "--max-files", "8")
    whole, parts = open_snapshot(lake), open_snapshot(streamed)
    names = [name for name in tables() if name != "ledger"]
    equal = sum(whole.logical_hash(name) == parts.logical_hash(name) for name in names)
    print(f"{equal} of {len(names)} tables of the stream equal those of the ingest, row by row")


def trade_live(live: Path) -> None:
    """An exchange over UDP that loses packets on both lines, and a client that joins late and records."""
    shutil.rmtree(live, ignore_errors=True)
    live.mkdir()
    port = free_port()
    settings, channels, log = live / "exchange.toml", live / "channels.toml", live / "feed.log"
    settings.write_text(LIVE_EXCHANGE.format(port=port, replayer_port=port - 1))
    with channels.open("w") as out:
        subprocess.run(umdf_command("exchange", "channels", str(settings)), check=True, stdout=out)
    command = ("exchange", "run", settings.name, "--duration-s", str(LIVE_S))
    print(f"\n$ umdf {' '.join(command)} &     # it loses 5 % on each line, and runs of packets on both", flush=True)
    with subprocess.Popen(umdf_command(*command), cwd=live) as exchange:
        time.sleep(LATE_S)
        seconds = str(LIVE_S - LATE_S - 4)
        words = ("--record", str(live / "recording"), "--log", str(log), "--duration-s", seconds)
        run_and_print("feed", "--channels", str(channels), *words)
        exchange.wait()
    run_and_print("ingest", str(live / "recording"), "--lake", str(live / "lake"), "--no-spark")
    run_and_print("report", str(live / "lake"), "--out", str(live / "report.html"))
    gaps = open_snapshot(live / "lake").arrow_table("gaps").to_pylist()
    lost = [gap for gap in gaps if gap["stream"] == "incremental" and gap["cause"] == "loss"]
    missing = sum(gap["missing"] for gap in lost)
    statuses = [record for record in map(json.loads, log.read_text().splitlines()) if record["type"] == "status"]
    last = {(record["protocol"], record["channel"]): record for record in statuses}.values()
    opened, filled = (sum(record[name] for record in last) for name in ("missing", "filled"))
    print(f"\nthe client lost {opened:,} sequences on both lines; the replayer brought {filled:,} of them")
    print(f"missing in the client: {opened - filled}; in the lake of its recording: {missing}, in {len(lost)} gaps")


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
    return port if port < 50_000 else port - 20_000


def main() -> None:
    OUT.mkdir(exist_ok=True)
    capture, fast = OUT / "morning.pcap", OUT / "morning-fast.pcap"
    write_capture(capture)
    write_fast_capture(fast)
    for path in (capture, fast):
        print(f"wrote {path} ({path.stat().st_size} bytes)")
    run_and_print("decode", str(capture))
    run_and_print("decode", str(capture), "--format", "fix", "--limit", "4")
    run_and_print("decode", str(capture), "--format", "json", "--names", "--limit", "3")
    run_and_print("explain", str(capture), "--packet", "3")
    run_and_print("explain", str(fast), "--packet", "2")
    compare_as_fix(capture, fast)
    simulate_day(OUT / "day")
    compare_with_truth(OUT / "day")
    build_lake(OUT / "day", OUT / "lake")
    stream_recording(OUT / "day", OUT / "lake", OUT / "streamed")
    trade_live(OUT / "live")
    print("\nnext:")
    sql = '"SELECT symbol, sum(volume) FROM ohlcv_1d GROUP BY symbol ORDER BY 2 DESC LIMIT 5"'
    for command in (f"query {OUT}/lake {sql}", f"lake status {OUT}/lake", f"book {OUT}/day/capture"):
        print(f"  .venv/bin/umdf {command}")


if __name__ == "__main__":
    main()
