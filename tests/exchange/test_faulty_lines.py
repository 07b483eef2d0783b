"""A network with faults is a sink that wraps sinks: seeded, and it says what it lost."""

from __future__ import annotations

import numpy as np
import pytest

from umdf.exchange.network.faults import Faults, Outage
from umdf.exchange.network.faulty_lines import FaultyLines
from umdf.exchange.publish.sinks import Packets

COUNT, SPACING_NS = 5_000, 1_000_000


class Received:
    """A sink that keeps the sequences and times of what it gets."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.times: list[int] = []
        self.now_ns, self.is_closed = 0, False

    def write(self, packets: Packets) -> None:
        self.sequences += packets.first_sequence.tolist()
        self.times += packets.ts_ns.tolist()

    def advance(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def close(self) -> None:
        self.is_closed = True


def packets(sequences: list[int]) -> Packets:
    numbers, starts = np.array(sequences), 10 * np.arange(len(sequences))
    return Packets(np.zeros(1, np.uint8), starts, starts + 10, SPACING_NS * numbers, numbers, numbers)


def send(
    faults: Faults, sequences: list[int] | None = None, seed: int = 1
) -> tuple[dict[str, Received], dict[str, set[int]]]:
    lines, lost = {"A": Received(), "B": Received()}, {"A": set[int](), "B": set[int](), "AB": set[int]()}

    def note(line: str, first: np.ndarray, last: np.ndarray) -> None:
        lost[line].update(n for a, b in zip(first.tolist(), last.tolist(), strict=True) for n in range(a, b + 1))

    network = FaultyLines(lines, np.random.default_rng(seed), faults, note)
    sequences = sequences or list(range(1, COUNT + 1))
    for first in range(0, len(sequences), 600):  # chunks of a message are written together
        network.write(packets(sequences[first : first + 600]))
    return lines, lost


@pytest.mark.parametrize(
    "faults", [Faults(), Faults(loss=0.05), Faults(common_loss=0.01), Faults(loss=0.02, common_loss=0.01)], ids=str
)
def test_what_a_line_did_not_get_is_what_is_reported(faults: Faults) -> None:
    lines, lost = send(faults)
    every = set(range(1, COUNT + 1))
    for name, line in lines.items():
        assert every - set(line.sequences) == lost[name]
        assert line.sequences == sorted(line.sequences) and line.times == sorted(line.times)
    assert lost["AB"] == lost["A"] & lost["B"]
    assert bool(lost["A"]) == bool(faults.loss or faults.common_loss)


def test_loss_is_independent_or_common() -> None:
    _, alone = send(Faults(loss=0.05))
    assert 0.03 < len(alone["A"]) / COUNT < 0.07 and len(alone["AB"]) < len(alone["A"]) / 5
    _, common = send(Faults(common_loss=0.01, max_run=4))
    assert common["A"] == common["B"] == common["AB"] and 0.01 < len(common["AB"]) / COUNT < 0.04


def test_a_dead_line_delivers_nothing_for_its_time_and_the_other_everything() -> None:
    lines, lost = send(Faults(outages=(Outage(line="B", from_s=1.0, until_s=2.0),)))
    assert lost == {"A": set(), "B": set(range(1_000, 2_000)), "AB": set()}
    assert len(lines["A"].sequences) == COUNT


def test_the_same_seed_loses_the_same() -> None:
    assert send(Faults(loss=0.05, common_loss=0.01), seed=4)[1] == send(Faults(loss=0.05, common_loss=0.01), seed=4)[1]
    assert send(Faults(loss=0.05, common_loss=0.01), seed=4)[1] != send(Faults(loss=0.05, common_loss=0.01), seed=5)[1]


def test_chunks_of_a_message_are_lost_together() -> None:
    sequences = [1 + number // 3 for number in range(3_000)]
    lines, lost = send(Faults(loss=0.05), sequences)
    for name, line in lines.items():
        assert lost[name] and not lost[name] & set(line.sequences)
        assert all(line.sequences.count(sequence) == 3 for sequence in set(line.sequences[:300]))


def test_faults_wrap_any_sinks_and_pass_on_time_and_end() -> None:
    inner = {"A": Received(), "B": Received()}
    network = FaultyLines({"A": FaultyLines(inner, np.random.default_rng(1))}, np.random.default_rng(2))
    network.write(packets([1, 2, 3]))
    network.advance(77)
    network.close()
    for sink in inner.values():
        assert sink.sequences == [1, 2, 3] and sink.now_ns == 77 and sink.is_closed
