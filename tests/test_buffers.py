"""Memory is used again only when nobody can see it any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from umdf.buffers import ALIGNMENT, Memory, Pool, ReferenceWatch


def test_memory_that_nobody_holds_is_handed_out_again() -> None:
    pool = Pool()
    address = pool.acquire(100).address
    assert pool.acquire(100).address == address
    assert pool.acquire(50).address == address


HOLDS = pytest.mark.parametrize(
    "hold",
    [
        lambda memory: memory,
        lambda memory: memory.array,
        lambda memory: memory.base,
        lambda memory: memory.array[3:5],
        lambda memory: memory.array[8:72].view(np.int64)[::2],
        lambda memory: memoryview(memory.array),
        lambda memory: memoryview(memory.array[4:9])[1:],
        lambda memory: pa.py_buffer(memory.array),
        lambda memory: pa.py_buffer(memory.array).slice(10, 20),
        lambda memory: pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(memory.array)]),
        lambda memory: pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(memory.array)]).slice(1).to_numpy(),
    ],
    ids=(
        "itself|array|base|slice|view of a slice|memoryview|memoryview of a slice|Arrow buffer"
        "|slice of an Arrow buffer|Arrow array|numpy view of an Arrow array"
    ).split("|"),
)


@HOLDS
def test_memory_in_use_is_not_handed_out(hold: Callable[[Memory], Any]) -> None:
    pool = Pool()
    memory = pool.acquire(100)
    address, held = memory.address, hold(memory)
    del memory
    assert pool.acquire(100).address != address
    del held
    assert address in [pool.acquire(100).address for _ in range(2)]


@HOLDS
def test_a_watch_notices_every_new_reference(hold: Callable[[Memory], Any]) -> None:
    shown = {1: Memory(100), 2: Memory(100)}
    watch = ReferenceWatch(shown, shown.values())
    watch.start()
    assert watch.is_unchanged()
    held = hold(shown[2])
    assert watch.is_unchanged() == (held is shown[2])  # a memory itself is reached only by who has what shows it
    also = shown
    assert not watch.is_unchanged()
    del held, also
    assert watch.is_unchanged()


def test_memory_too_small_is_replaced() -> None:
    pool = Pool()
    pool.acquire(10)
    assert pool.acquire(1000).nbytes == 1000
    assert pool.acquire(10).nbytes == 1000


def test_a_pool_keeps_at_most_max_buffers() -> None:
    pool = Pool(max_buffers=2)
    held = [pool.acquire(64) for _ in range(5)]
    assert len({memory.address for memory in held}) == 5
    del held
    assert len({id(pool.acquire(64)) for _ in range(10)}) <= 2


def test_several_held_at_once_are_apart() -> None:
    pool = Pool()
    held = [pool.acquire(256) for _ in range(8)]
    for number, memory in enumerate(held):
        memory.array[:] = number
    assert [set(memory.array.tolist()) for memory in held] == [{number} for number in range(8)]


@pytest.mark.parametrize("nbytes", [1, 63, 64, 1000])
def test_memory_is_aligned_as_arrow_wants_it(nbytes: int) -> None:
    memory = Memory(nbytes)
    assert memory.address % ALIGNMENT == 0
    assert len(memory.array) == memory.nbytes == nbytes
