"""Undamaged days, to be damaged by tests, and what a lake says of the market."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from lake.captures import ALL, day, files_of, hashes, ingest

from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.hashing import logical_hash
from umdf.transport.capture import PacketBatch, open_capture
from umdf.wire.packet import ChunkParser
from umdf.wire.sbe.headers import read_packet_headers

PROTOCOLS = ("sbe", "fast")
UndamagedDay = dict[str, tuple[Path, Path]]


def sound_days(tmp: Path, messages: int) -> UndamagedDay:
    """A clean day of each protocol, and its lake."""
    made = {}
    for protocol in PROTOCOLS:
        captured, root = day(tmp, messages, 20, protocol=protocol, seed=31), tmp / f"lake-{protocol}"
        ingest(root, files_of(captured))
        made[protocol] = captured, root
    return made


def captures_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if ".pcap" in path.name)


def differing(one: Path, other: Path) -> set[str]:
    found, expected = hashes(one, files_too=False), hashes(other, files_too=False)
    return {name for name in found if found[name] != expected[name]}


def line(directory: Path, name: str) -> Path:
    """The largest file of a line."""
    return max(directory.glob(f"*incremental-{name}.pcap"), key=lambda path: path.stat().st_size)


def market(root: Path) -> dict[str, str]:
    """Hashes without the time of arrival, which is that of the first line."""
    snapshot = open_snapshot(root)
    return {name: logical_hash(snapshot.arrow_table(name), {"ts_recv"}) for name in sorted(ALL - {"book_state"})}


def flip(raw: bytearray, start: int, at: int, bit: int, *, is_checked: bool = False) -> None:
    """Flip a bit in the packet whose payload starts there; without a checksum nothing tells of it."""
    raw[at] ^= 1 << bit
    if not is_checked:
        raw[start - 2 : start] = bytes(2)


def payloads(path: Path) -> list[tuple[int, int]]:
    """Where the packets are in a capture."""
    raw, found = path.read_bytes(), []
    with open_capture(path) as capture:
        for batch in capture:
            for row in range(len(batch)):
                payload = batch.payload(row)
                start = raw.index(payload, int(batch.offset[row]))
                found.append((start, start + len(payload)))
    return found


def numbers_of(batch: PacketBatch, protocol: str) -> list[list[int]]:
    """The numbers in each packet: of the packet itself (Binary; a heartbeat has none), or of its messages."""
    if protocol == "sbe":
        sequence = read_packet_headers(batch.buffer, batch.start, batch.end).sequence.tolist()
        return [[number] if number else [] for number in sequence]
    chunks = ChunkParser().parse(batch.buffer, batch.start, batch.end)
    return [sorted({*chunks.msg_seq_num[chunks.packet == row].tolist()}) for row in range(len(batch))]


def drop_numbers(paths: Sequence[Path], directory: Path, protocol: str, numbers: Collection[int]) -> list[Path]:
    """The captures without the packets of the incremental stream that have one of these numbers."""
    directory.mkdir()
    for path in paths:
        raw, kept = path.read_bytes(), [b""]
        with open_capture(path) as capture:
            packets = [
                (int(at), some)
                for batch in capture
                for at, some in zip(batch.offset, numbers_of(batch, protocol), strict=True)
            ]
        edges = [at for at, _ in packets] + [len(raw)]
        is_dropped = "incremental" in path.name
        for number, (at, some) in enumerate(packets):
            if not (is_dropped and any(each in numbers for each in some)):
                kept.append(raw[at : edges[number + 1]])
        (directory / path.name).write_bytes(raw[: edges[0]] + b"".join(kept))
    return sorted(directory.iterdir())
