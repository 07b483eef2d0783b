"""Files side by side: every packet once, and none before an older one of another file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from umdf.transport.capture_merge import merged_windows
from umdf.transport.pcap_writer import PcapWriter

FLOW = ("10.0.0.1", 1), ("224.0.0.1", 2)


def write(path: Path, times: list[int]) -> Path:
    with PcapWriter(path) as writer:
        for ts_ns in times:
            writer.write(ts_ns, ts_ns.to_bytes(8, "little") + path.name.encode(), *FLOW)
    return path


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.full_size) for seed in range(3, 8))])
def test_windows_hold_every_packet_in_order(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    files, total = [], 0
    for number in range(rng.randint(1, 6)):
        begin = rng.choice([0, 1_000, 50_000])
        times = sorted(begin + rng.randrange(100_000) for _ in range(rng.choice([0, 1, 30_000])))
        files.append(write(tmp_path / f"{number}.pcap", times))
        total += len(times)
    rng.shuffle(files)
    before, found = -1, 0
    for window, now_ns in merged_windows(files, []):
        times = [int(t) for batch, rows in window for t in batch.ts_ns[rows]]
        assert all(before <= t <= now_ns for t in times)
        found += len(times)
        before = now_ns
    assert found == total


def test_rolling_files_are_read_one_after_the_other(tmp_path: Path):
    files = [write(tmp_path / f"{n}.pcap", list(range(n * 100, n * 100 + 100))) for n in range(5)]
    assert [now for _, now in merged_windows(files, [])][-1] == 499


def test_a_truncated_file_is_a_warning_and_the_others_are_read_on(tmp_path: Path):
    whole = write(tmp_path / "a.pcap", [1, 2, 3])
    cut = write(tmp_path / "b.pcap", [1, 2, 3])
    cut.write_bytes(cut.read_bytes()[:-5])
    damaged: list[str] = []
    assert sum(len(rows) for window, _ in merged_windows([whole, cut], damaged) for _, rows in window) == 5
    assert len(damaged) == 1 and "b.pcap" in damaged[0]
